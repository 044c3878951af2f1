"""The Rust programs of the driver API: hazards, the matrix of earlier and later work, and answers; output compared.

Runs on the simulated driver (--driver) as well, which also reports races. What needs that driver is left out on a GPU.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Iterator, List, Mapping, Optional

from gpu_runner import machine
from gpu_runner.compare import NATIVE, Case, Comparison
from gpu_runner.context import CannotRun, Context
from gpu_runner.lists import Options
from gpu_runner.paths import TESTS, built, rows
from gpu_runner.process import Ran, run

# Modes that do not keep a promise, by the promise's name in `hazards --list`.
BROKEN = {
    "Always": {},
    "Full": {"relaxed": "relaxed gives up the order of streams"},
    "StrictOnly": {"relaxed": "only strict promises it", "ordered": "only strict promises it"},
}
# Variables of the simulated driver that a GPU does without: they widen races, or make up for a driver without a device.
UNNEEDED = ("SIM_LINGER_US", "SIM_DEADLOCK_MS", "SIM_IDLE_MS", "SIM_DISJOINT")
SEEDS = (1, 2, 3)
# A GPU is quick, and what hangs on it keeps it busy. The simulated driver may share its machine with other work.
GPU_SECONDS, SIMULATED_SECONDS = 60, 240


@dataclass(frozen=True)
class Hazard:
    """A line of `hazards --list`."""

    name: str
    kept: str
    native: bool
    machine: Mapping[str, str]

    @staticmethod
    def read(line: str) -> "Hazard":
        name, kept, native, *machine = line.split()
        return Hazard(name, kept, native == "natively", dict(word.split("=", 1) for word in machine))


class Hazards(Comparison):
    """A comparison in which no run may fail, with or without the library. Reports of the simulated driver count as well."""

    _machines = itertools.count(1)

    def variables(self, case: Case, mode: str) -> Mapping[str, str]:
        if not self.context.driver:
            return {}
        own = {
            "SIM_REPORT": str(self._sim_report(case, mode)),
            # Processes of other runs must not be on the same devices.
            "SIM_MACHINE": str((os.getpid() << 20) + next(self._machines)),
            "SIM_DEADLOCK_MS": "20000",
        }
        return {**own, **case.variables}

    def problem(self, case: Case, mode: str, ran: Ran) -> Optional[str]:
        if ran.code != 0:
            return f"exit {ran.code}"
        if b"FAIL" in ran.stdout:
            return "FAIL"
        if mode != NATIVE and b"caching is off" in ran.stderr:
            return "not served"
        report = self._sim_report(case, mode)
        lines = report.read_text().splitlines() if report.exists() else []
        return "reported" if any(line.startswith(("sim: ", "capture killed")) for line in lines) else None

    def _sim_report(self, case: Case, mode: str) -> Path:
        return self.context.out / f"{case.name}.{mode}.sim"


def run_suite(context: Context) -> bool:
    left_out: List[str] = []
    cases = [case for case in all_cases(context) if context.wanted(case.name)]
    if not cases:
        raise CannotRun("no case matches --only")
    if not context.driver:
        cases = list(for_gpu(cases, left_out))
    return Hazards(context, cases, left_out).run()


def program(name: str) -> Path:
    path = built(name, "checked")
    if not path.exists():
        raise CannotRun(f"no {path}; `make test` builds it, `scripts/gpu pack` packs it")
    return path


def all_cases(context: Context) -> Iterator[Case]:
    path, options = program("hazards"), Options(seconds=SIMULATED_SECONDS)
    for line in run([path, "--list"], env=context.environment()).text.splitlines():
        hazard = Hazard.read(line)
        kept = BROKEN[hazard.kept]
        yield Case(hazard.name, [path, hazard.name], options, variables=hazard.machine, skip=kept, native=hazard.native)
    yield Case("matrix", [program("matrix")], options)
    for seed in SEEDS:
        yield Case(f"answers-{seed}", [program("answers"), str(seed)], options)


def for_gpu(cases: List[Case], left_out: List[str]) -> Iterator[Case]:
    """Yields what a GPU can run, and adds the rest to `left_out`, with the reason."""
    known = {name: words for name, *words in (line.split(None, 2) for line in rows(TESTS / "hazards.txt"))}
    devices = machine.device_count()
    for case in cases:
        word, reason = known.get(case.name, ("", ""))
        lacks = reason if word == "simulated" else missing(case.variables, devices)
        if lacks:
            left_out.append(f"{case.name}: {lacks}")
            continue
        options = Options(seconds=GPU_SECONDS, alone=word == "alone")
        yield replace(case, options=options, native=case.native and word != "ours")


def missing(wanted: Mapping[str, str], devices: int) -> Optional[str]:
    """Returns why a machine with this number of GPUs cannot run a program with these variables, if so."""
    for variable, value in wanted.items():
        if variable == "SIM_DEVICES":
            if devices < int(value):
                return f"it needs {value} GPUs"
        elif variable == "SIM_MEMORY_MB":
            return f"it needs a device of {value} MiB"
        elif variable not in UNNEEDED:
            return f"it needs the simulated driver's {variable}"
    return None
