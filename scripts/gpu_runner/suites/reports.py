"""The command and its report find mistakes planted in programs; and a report of a million entries, measured.

The measurement is against PyTorch's own viewer page of the same file. Needs nvcc; PyTorch, CuPy and MPI for the rest.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import List, Optional

from gpu_runner import machine
from gpu_runner.context import CannotRun, Context
from gpu_runner.cuda import Compiler
from gpu_runner.paths import PYTHON_PROGRAMS, TESTS
from gpu_runner.process import Ran, Words, run
from gpu_runner.report import Report

UNCACHED = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
TRAIN = machine.python(PYTHON_PROGRAMS / "pytorch/train.py")
# PyTorch has started, and trains, after this time.
STARTED_S = 12


def run_suite(context: Context) -> bool:
    context.needs_gpu()
    program = Compiler(context.build).own("tools/kept.cu", "-O2", "-g")
    if not program.exists():
        raise CannotRun("tests/gpu/tools/kept.cu does not build")
    suite = Suite(context)
    if context.wanted("cpp"):
        suite.planted("cpp", TESTS / "tools/kept.cu", [program])
    if context.wanted("cupy") and machine.has_package("cupy"):
        script = PYTHON_PROGRAMS / "arrays/planted_cupy.py"
        # Python frees its arrays at exit, so that leaked memory is held longest.
        suite.planted("cupy", script, machine.python(script), at="peak")
    launchers = {"mpirun": machine.mpirun()}
    if shutil.which("torchrun"):
        launchers["torchrun"] = ("torchrun", "--no-python", "--nproc-per-node", "2")
    for name, launcher in launchers.items():
        if launcher and context.wanted(name):
            suite.ranks(name, launcher, program)
    if machine.has_package("torch"):
        for name, function in (("torch", suite.torch), ("million", suite.million), ("live", suite.live)):
            if context.wanted(name):
                function()
    return suite.report.good


def line_of(source: Path, word: str) -> str:
    """Returns the place of a planted mistake."""
    lines = source.read_text().splitlines()
    number = next(number for number, line in enumerate(lines, 1) if f"planted: {word}" in line)
    return f"{source.name}:{number}"


class Suite:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.command = str(context.command())
        self.report = Report(context.out)

    def ask(self, *arguments: object, seconds: float = 600) -> Ran:
        """Runs the command."""
        words = [self.command, *map(str, arguments)]
        return run(words, env=self.context.environment(), cwd=self.context.out, seconds=seconds, merge=True)

    def record(self, name: str, program: Words, **variables: str) -> Optional[Path]:
        """Runs a program recorded, and makes a report. Returns the last snapshot; None if the program fails."""
        snapshots = self.context.out / f"{name}-%n.pickle"
        command = [self.command, "run", "--lib", self.context.library, "--record=all", "--snapshot", snapshots, "--", *program]
        ran = run(command, env=self.context.environment(**variables), cwd=self.context.out, seconds=600, merge=True)
        (self.context.out / f"{name}.log").write_bytes(ran.stdout)
        if ran.code != 0:
            self.report.failed(name, f"exit code {ran.code}", ran.tail(5))
            return None
        return self.last(f"{name}-*.pickle")

    def last(self, pattern: str) -> Path:
        """Returns the newest of the numbered snapshots."""
        return max(self.context.out.glob(pattern), key=lambda file: (len(file.name), file.name))

    def make_report(self, name: str, files: List[Path]) -> bool:
        said = self.ask("report", "--force", "-o", f"{name}.html", *files)
        if said.code != 0:
            self.report.failed(name, "no report", said.tail(5))
        return said.code == 0

    def planted(self, name: str, source: Path, program: Words, at: str = "end") -> None:
        """Checks that each of the planted mistakes is named."""
        self.report.line(name)
        file = self.record(name, program)
        if not file or not self.make_report(name, [file]):
            return
        for what, options in [
            ("weights", ["--by", "peak"]),
            ("leak", ["--by", "live", "--at", at]),
            ("temporaries", ["--by", "temporary"]),
        ]:
            place = line_of(source, what)
            said = self.ask("top-sites", *options, "-n", 3, file).text
            found = next((line for line in said.splitlines() if place in line), None)
            if found:
                self.report.line(f"    {what}: {found}")
            else:
                self.report.failed(f"    {what}", f"{place} is not named by top-sites {' '.join(options)}")
                self.report.indented("\n".join(said.splitlines()[:12]), by=8)

    def torch(self) -> None:
        self.report.line("torch")
        file = self.record("torch", TRAIN, TRAIN_STEPS="5", **UNCACHED)
        if file and self.make_report("torch", [file]):
            self.report.indented(self.ask("top-sites", "--by", "peak", "-n", 6, file).text)

    def million(self) -> None:
        """Measures a report of a million entries."""
        self.report.line("a million entries")
        file = self.record("million", TRAIN, TRAIN_STEPS="1200", **UNCACHED)
        if not file:
            return
        self.report.line(f"    file: {file.stat().st_size / 1e6} MB")
        self.report.indented("\n".join(self.ask("top-sites", "-n", 1, file).text.splitlines()[:1]))
        plot = machine.python("-m", "torch.cuda._memory_viz", "trace_plot", file, "-o", "trace_plot.html")
        self.measure("report", [self.command, "report", "--force", "-o", "million.html", file], "million.html")
        self.measure("trace_plot", plot, "trace_plot.html")

    def measure(self, name: str, command: Words, page: str) -> None:
        began = time.perf_counter()
        child = subprocess.Popen(
            [str(word) for word in command],
            cwd=self.context.out,
            env=self.context.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(child.pid, 0)  # the memory of this child alone
        child.returncode = os.WEXITSTATUS(status)
        seconds = time.perf_counter() - began
        file = self.context.out / page
        size = f"{file.stat().st_size / 1e6} MB" if file.exists() else "no page"
        used = f"exit {child.returncode}, {seconds:.2f} s, {usage.ru_maxrss / 1024:.0f} MiB"
        self.report.line(f"    {name}: {used}; {page}: {size}")

    def ranks(self, name: str, launcher: "tuple[str, ...]", program: Path) -> None:
        """Checks that each of two processes leaves a snapshot of its rank, and that one report has both."""
        out = self.context.out
        command = [*launcher, self.command, "run", "--lib", str(self.context.library), "--record=all"]
        command += ["--snapshot", f"{out}/{name}-%r-%p.pickle", "--", str(program)]
        ran = run(command, env=self.context.environment(), cwd=out, seconds=300, merge=True)
        files = [file for rank in (0, 1) for file in out.glob(f"{name}-{rank}-*.pickle") if file.stat().st_size]
        if ran.code != 0 or len(files) != 2:
            self.report.failed(name, f"exit code {ran.code}, {' '.join(file.name for file in files)}", ran.tail(5))
        elif self.make_report(name, files):
            said = self.ask("top-sites", "--by", "live", "--at", "end", "-n", 1, *files)
            self.report.ok(name, f"two ranks: {said.tail(1)}")

    def live(self) -> None:
        """Queries a running program."""
        self.report.line("while it runs")
        snapshots = str(self.context.out / "live-%n.pickle")
        command = [self.command, "run", "--lib", str(self.context.library), "--record=state", "--snapshot", snapshots, "--"]
        env = self.context.environment(TRAIN_STEPS="1000000", **UNCACHED)
        with (self.context.out / "live.log").open("wb") as log:
            child = subprocess.Popen([*command, *map(str, TRAIN)], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            time.sleep(STARTED_S)
            self.report.indented(self.ask("top", "-n", 3, child.pid, seconds=60).text)
            stats = self.ask("stats", child.pid, seconds=60).text
            self.report.indented("\n".join(line for line in stats.splitlines() if re.search("hit rate|served", line)))
            snapshot = run([self.command, "snapshot", str(child.pid)], cwd=self.context.out, seconds=60)
            file = Path(snapshot.text.strip() or "none")
            if snapshot.code != 0 or not file.is_file() or not file.stat().st_size:
                self.report.failed("live", "no snapshot", snapshot.tail(3))
                return
            first = self.ask("top-sites", "-n", 1, file).text.splitlines()
            self.report.line(f"    snapshot: {file.name}: {first[0] if first else ''}")
        finally:
            child.terminate()
            child.wait()
