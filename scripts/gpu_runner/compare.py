"""Runs cases without the library and under it in each free mode, and compares exit codes and outputs."""

from __future__ import annotations

import contextlib
import fcntl
import re
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Iterable, Iterator, Mapping, Optional, Sequence, Tuple

from gpu_runner import lists
from gpu_runner.context import Context
from gpu_runner.paths import TESTS
from gpu_runner.process import TIMED_OUT, Ran, Words, run
from gpu_runner.table import print_table
from gpu_runner.verdict import LATE, OK, SAME, SKIPPED, WAIVED, Verdict

NATIVE = "native"
# Lists the runs of a folder.
PROGRESS = "progress.txt"
# Locked while a case runs.
DEVICE = "device.lock"
# Exit code of a program that cannot run on this GPU, as NVIDIA's samples have it.
WAIVED_CODE = 2
# Runs of a case that differs in `ordered`, and what it means if they are equal: chance, uninitialized memory, or reliance on
# an undocumented wait.
CAUSES = {
    "native+again": "native differs from itself",
    "ordered+again": "not every time",
    "zeroed": "equal with fill:zero",
    "strict+again": "equal in strict",
}


@dataclass(frozen=True)
class Case:
    name: str
    command: Words
    options: lists.Options = lists.Options()
    cwd: Optional[Path] = None
    variables: Mapping[str, str] = field(default_factory=dict)
    # Modes in which it is not run, with the reason.
    skip: Mapping[str, str] = field(default_factory=dict)
    # Whether it also runs without the library. If not, its own exit code and output decide.
    native: bool = True

    @property
    def listed_name(self) -> str:
        """Its name in the lists, which do not distinguish the two builds of a program."""
        return re.sub(r"\.(static|shared)$", "", self.name)


@dataclass(frozen=True)
class Task:
    """Outcome of one case in one mode. `ran` is None if no time was left."""

    ran: Optional[Ran]
    masked: bytes = b""
    errors: int = 0


class Comparison:
    """Compares cases. A suite may override the variables of a run, and what is wrong with one."""

    def __init__(self, context: Context, cases: Sequence[Case], left_out: Sequence[str] = ()) -> None:
        self.context = context
        self.cases = [case for case in cases if context.wanted(case.name)]
        self.left_out = list(left_out)
        self.modes = list(context.modes) or ["native-again"]
        self._tasks: Dict[Tuple[str, str], Task] = {}
        self._skip, self._known = lists.skipped(), lists.known_differences()
        self._lock = threading.Lock()
        self._earlier = earlier_runs(context.out) if context.options.resume else {}
        # Programs may write files into the folder that they start in.
        self._folders = {case.cwd: threading.Lock() for case in self.cases if case.cwd}

    def variables(self, case: Case, mode: str) -> Mapping[str, str]:
        return case.variables

    def problem(self, case: Case, mode: str, ran: Ran) -> Optional[str]:
        return None

    def run(self) -> bool:
        """Runs everything and prints the table. Returns whether nothing differs."""
        modes = [NATIVE, *self.modes]
        self._run_all(task for task in in_turn(self.cases, modes, self.context.jobs) if self.is_run(*task))
        return print_table(self, self._causes())

    # ---- what the table asks

    def is_run(self, case: Case, mode: str) -> bool:
        if mode == NATIVE:
            return case.native
        return mode not in case.skip and (mode, case.listed_name) not in self._skip

    def known(self, case: Case, mode: str) -> Optional[str]:
        return self._known.get((mode, case.listed_name))

    def task(self, case: Case, mode: str) -> Task:
        return self._tasks[case.name, mode]

    def verdict(self, case: Case, mode: str) -> Verdict:
        """Compares a run with the one without the library. Without such a run, it must succeed itself."""
        if not self.is_run(case, mode):
            return SKIPPED
        task = self.task(case, mode)
        native = self.task(case, NATIVE) if case.native else task
        if task.ran is None or native.ran is None:
            return LATE
        if task.ran.code in TIMED_OUT:
            return Verdict("HANG")
        problem = self.problem(case, mode, task.ran)
        if problem:
            return Verdict(problem)
        if task.ran.code != native.ran.code or (not case.native and task.ran.code != 0):
            return Verdict(f"exit {task.ran.code}")
        if task.masked != native.masked:
            return Verdict("differs")
        if task.errors != native.errors:
            return Verdict(f"{task.errors} errors")
        return OK if task.ran.code == 0 else SAME

    def native_verdict(self, case: Case) -> Verdict:
        if not case.native:
            return SKIPPED
        ran = self.task(case, NATIVE).ran
        if ran is None:
            return LATE
        problem = self.problem(case, NATIVE, ran)
        if problem:
            return Verdict(problem)
        return OK if ran.code == 0 else WAIVED if ran.code == WAIVED_CODE else Verdict(f"exit {ran.code}")

    # ---- runs

    def _run_all(self, tasks: Iterable[Tuple[Case, str]]) -> None:
        """Runs tasks: first those that may run beside others, then each of the others alone."""
        tasks = list(tasks)
        for alone, jobs in ((False, self.context.jobs), (True, 1)):
            with ThreadPoolExecutor(jobs) as pool:
                for _ in pool.map(lambda task: self._run(*task), [task for task in tasks if task[0].options.alone == alone]):
                    pass

    def _run(self, case: Case, mode: str) -> None:
        earlier = self._earlier.get((case.name, mode))
        if earlier:
            self._tasks[case.name, mode] = self._task(case, earlier)
            return
        with device(self.context.build, case.options.alone), self._folders.get(case.cwd, contextlib.nullcontext()):
            if self.context.is_late():
                self._tasks[case.name, mode] = Task(None)
                return
            ran = run(case.command, seconds=case.options.seconds, env=self._environment(case, mode), cwd=case.cwd or self.context.out)
        self._tasks[case.name, mode] = self._task(case, ran)
        self._keep(case, mode, ran)

    def _environment(self, case: Case, mode: str) -> Dict[str, str]:
        variables = self.variables(case, mode)
        if mode.startswith(NATIVE):
            return self.context.environment(**variables)
        return self.context.under_library(self.context.settings(settings(mode)), **variables)

    def _task(self, case: Case, ran: Ran) -> Task:
        masked = mask(ran.stdout)
        if case.options.sort:
            masked = b"".join(sorted(masked.splitlines(True)))
        return Task(ran, masked, error_count(ran.stderr))

    def _keep(self, case: Case, mode: str, ran: Ran) -> None:
        base = self.context.out / f"{case.name}.{mode}"
        base.with_name(base.name + ".out").write_bytes(ran.stdout)
        base.with_name(base.name + ".err").write_bytes(ran.stderr)
        with self._lock, (self.context.out / PROGRESS).open("a") as progress:
            print(f"{case.name} {mode}: exit {ran.code} after {ran.seconds:.1f} s", file=progress)

    def _causes(self) -> Dict[str, str]:
        """Repeats the cases that differ in `ordered`, and returns which of these runs are equal, by case."""
        if "ordered" not in self.modes:
            return {}
        suspects = [case for case in self.cases if not self.verdict(case, "ordered").good]
        self._run_all((case, mode) for case in suspects for mode in CAUSES if case.native)
        return {case.name: self._cause(case) for case in suspects if case.native}

    def _cause(self, case: Case) -> str:
        found = []
        for mode, meaning in CAUSES.items():
            said = self.verdict(case, mode)
            if said is not LATE and said.good != (mode == "native+again"):
                found.append(meaning)
        return ", ".join(found) or f"none of: {' '.join(CAUSES)}"


def earlier_runs(out: Path) -> Dict[Tuple[str, str], Ran]:
    """Returns the runs that a folder has, by case and mode."""
    runs, progress = {}, out / PROGRESS
    for line in progress.read_text().splitlines() if progress.exists() else []:
        found = re.fullmatch(r"(\S+) (\S+): exit (\d+) after ([\d.]+) s", line)
        if found:
            name, mode, code, seconds = found.groups()
            stdout, stderr = ((out / f"{name}.{mode}{end}").read_bytes() for end in (".out", ".err"))
            runs[name, mode] = Ran(int(code), stdout, stderr, float(seconds))
    return runs


@contextlib.contextmanager
def device(build: Path, alone: bool) -> Iterator[None]:
    """Holds the device while a case runs: for itself, or beside others. Suites that run at once share the folder of builds."""
    with (build / DEVICE).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


def in_turn(cases: Sequence[Case], modes: Sequence[str], width: int) -> Iterator[Tuple[Case, str]]:
    """Yields each case in each mode. Runs of one case are `width` apart, so they hardly wait for each other's folder."""
    for start in range(0, len(cases), width):
        yield from ((case, mode) for mode in modes for case in cases[start : start + width])


def settings(mode: str) -> str:
    """Returns the settings of a free mode, or of a run that finds a cause."""
    if mode == "zeroed":
        return "free_mode:ordered,fill:zero"
    return f"free_mode:{mode.split('+')[0]}"


def mask(output: bytes) -> bytes:
    """Masks what may differ between two runs without the library."""
    return subprocess.run(["sed", "-E", "-f", TESTS / "mask.sed"], input=output, stdout=subprocess.PIPE, check=True).stdout


def error_count(stderr: bytes) -> int:
    """Counts the errors that a program or its framework reports besides its output."""
    word = re.compile(rb"\berror\b|\bfail(ed|ure)?\b|exception", re.IGNORECASE)
    # The library's messages, and the indented lines of its reports.
    others = re.sub(rb"^cachealloc.*\n(?: +.*\n)*", b"", stderr, flags=re.MULTILINE)
    return sum(bool(word.search(line)) for line in others.splitlines())
