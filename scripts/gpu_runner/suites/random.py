"""Random programs for a given time, each compared with itself without the library (docs/judge.md).

The simulated driver decides which programs are valid; with --driver they also run on it. Differences are reduced, and kept in
the folder of --out. It ends within a few seconds after --seconds.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import tempfile
from pathlib import Path

from gpu_runner.context import CannotRun, Context
from gpu_runner.paths import PACKED, SIMULATED, TARGET, built
from gpu_runner.report import Report

# The judge takes a range of seeds; this one is larger than any run needs.
SEEDS = 1_000_000_000
SCARCE_SHARE = 8


def add_options(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--seconds", type=int, metavar="N", default=60, help="time to run (default: 60)")
    group.add_argument("--seed", type=int, metavar="N", default=1, help="the first seed (default: 1)")
    group.add_argument("--theme", default="all", help="kind of program (default: all)")


def run_suite(context: Context) -> bool:
    judge = built("judge", "checked")
    if not judge.exists():
        raise CannotRun(f"no {judge}; `make test` builds it, `scripts/gpu pack` packs it")
    options, report = context.options, Report(context.out)
    with tempfile.TemporaryDirectory() as scratch:
        simulated = context.driver or simulated_driver(Path(scratch) / "sim")
        command = [judge, "run", "--lib", context.library, "--driver", simulated, "--scratch", Path(scratch) / "runs"]
        command += ["--seeds", f"{options.seed}..{options.seed + SEEDS}"]
        command += ["--jobs", context.jobs, "--out", context.out / "found"]
        command += [] if context.driver else ["--gpu"]
        for theme, seconds in runs(options, on_gpu=not context.driver):
            words = [*command, "--theme", theme, "--seconds", seconds]
            code, stopped = follow([str(word) for word in words], context.environment(), report)
            if code != 0:
                report.failed(theme, f"exit code {code}; programs that differ are in {context.out / 'found'}")
            if stopped:
                break
    return report.good


def runs(options: argparse.Namespace, *, on_gpu: bool) -> "list[tuple[str, int]]":
    """Returns the themes to run, with the seconds for each: on a GPU programs that make memory scarce run by themselves."""
    if options.theme != "all" or not on_gpu:
        return [(options.theme, options.seconds)]
    scarce = max(1, options.seconds // SCARCE_SHARE)
    return [("scarce", scarce), ("all", max(1, options.seconds - scarce))]


def simulated_driver(folder: Path) -> Path:
    """Returns a folder in which the simulated driver has the name that programs open: the packed one, or a new one."""
    packed = PACKED / SIMULATED
    if packed.exists():
        return packed
    driver = TARGET / "checked/libcuda.so"
    if not driver.exists():
        raise CannotRun(f"no simulated driver at {driver}; `make test` builds it")
    folder.mkdir()
    (folder / "libcuda.so.1").symlink_to(driver.resolve())
    return folder


def follow(command: "list[str]", env: "dict[str, str]", report: Report) -> "tuple[int, bool]":
    """Runs the judge and passes its lines on as they come. On SIGTERM it is asked for its summary.

    Returns its exit code, and whether there was such a signal.
    """
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True
        child.terminate()

    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
        before = signal.signal(signal.SIGTERM, stop)
        try:
            assert child.stdout
            for line in child.stdout:
                report.line(line.rstrip())
            return child.wait(), stopped
        finally:
            signal.signal(signal.SIGTERM, before)
