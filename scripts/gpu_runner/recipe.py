"""One recipe: a folder in which its commands run, and the checks of what they leave."""

from __future__ import annotations

import difflib
import os
import shutil
from pathlib import Path
from typing import List, Mapping, Optional, Sequence

from gpu_runner import machine
from gpu_runner.context import Context
from gpu_runner.paths import PYTHON_PROGRAMS, ROOT
from gpu_runner.process import Ran, run
from gpu_runner.report import Report

PROGRAMS = PYTHON_PROGRAMS / "recipes"
# Words of a report about a framework that hides its tensors.
CACHE_WARNING = "has its own cache"


class Recipes:
    """The recipes name the command as `cachealloc`, and import the module of the wheel."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.report = Report(context.out)
        self.bin = context.out / "bin"
        self.bin.mkdir()
        shutil.copy(context.library, self.bin / "libcachealloc.so")
        shutil.copy(context.command(), self.bin / "cachealloc")

    def begin(self, name: str, title: str) -> "Recipe":
        self.report.line(f"{name}: {title}")
        folder = self.context.out / name
        folder.mkdir()
        return Recipe(self, name, folder)


class Recipe:
    def __init__(self, recipes: Recipes, name: str, folder: Path) -> None:
        self.recipes = recipes
        self.name = name
        self.folder = folder
        self.report = recipes.report
        self._plain: Ran

    def say(self, good: bool, what: str) -> bool:
        """Prints a check; one that is not good counts."""
        self.report.failures += not good
        self.report.line(f"    {'ok' if good else 'failed':6} {what}")
        return good

    def environment(self, **variables: str) -> "dict[str, str]":
        paths = {"PATH": f"{self.recipes.bin}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src/wheel")}
        if os.environ.get("PYTHONPATH"):
            paths["PYTHONPATH"] += f":{os.environ['PYTHONPATH']}"
        return self.recipes.context.environment(**{**paths, **variables})

    def run(
        self,
        command: Sequence[str],
        seconds: float = 180,
        merge: bool = False,
        variables: Optional[Mapping[str, str]] = None,
    ) -> Ran:
        env = self.environment(**(variables or {}))
        return run(command, env=env, cwd=self.folder, seconds=seconds, merge=merge)

    def script(self, name: str) -> List[str]:
        return machine.python(PROGRAMS / name)

    def builds(self, arguments: Sequence[str]) -> bool:
        """Compiles ./app, as a user does."""
        ran = self.run([str(machine.nvcc()), *arguments, "-o", "app"], seconds=600, merge=True)
        return ran.code == 0 or self.say(False, f"it does not build: {ran.tail(5)}")

    def plain(self, command: Sequence[str]) -> None:
        """Makes the run to which the others are compared."""
        self._plain = self.run(command, seconds=120)
        if self._plain.code != 0:
            self.say(False, f"the plain run: exit code {self._plain.code}")
            self.report.indented(self._plain.tail(5))

    def same(self, what: str, command: Sequence[str], **variables: str) -> None:
        ran = self.run(command, variables=variables)
        if ran.code != self._plain.code:
            self.say(False, f"{what}: exit code {ran.code}")
            self.report.indented(ran.tail(8))
        elif ran.stdout != self._plain.stdout:
            self.say(False, f"{what}: another output")
            lines = difflib.unified_diff(self._plain.text.splitlines(), ran.text.splitlines(), "plain", what, lineterm="", n=0)
            self.report.indented("\n".join(list(lines)[:8]))
        else:
            self.say(True, f"{what}: exit code and output")

    def is_there(self, name: str) -> None:
        """Checks that a file was written, and that no report says that a framework hides its tensors."""
        file = self.folder / name
        if not name or not file.is_file() or not file.stat().st_size:
            self.say(False, f"no {name or 'file'}")
        elif file.suffix == ".html" and CACHE_WARNING in file.read_text():
            self.say(False, f"{name} speaks of a cache")
        else:
            self.say(True, f"{name} ({file.stat().st_size} bytes)")

    def files(self, pattern: str) -> List[Path]:
        return sorted(self.folder.glob(pattern))

    def count(self, number: int, files: Sequence[Path]) -> None:
        names = " ".join(file.name for file in files)
        self.say(len(files) == number, f"{len(files)} snapshots{'' if len(files) == number else f', not {number}: {names}'}")

    def record(self, program: Sequence[str], *options: str, **variables: str) -> List[Path]:
        """Runs a program once more, for a snapshot."""
        for file in self.files("recorded-*.pickle"):
            file.unlink()
        command = ["cachealloc", "run", "--record", "--snapshot", "recorded-%p.pickle", *options, "--", *program]
        ran = self.run(command, variables=variables)
        if ran.code != 0:
            self.say(False, f"recording: exit code {ran.code}")
            self.report.indented(ran.tail(5))
        return self.files("recorded-*.pickle")

    def reported(self, script: str, *options: str) -> None:
        """Runs a script with a report, and checks what is in it."""
        program = self.script(script)
        self.plain(program)
        command = ["cachealloc", "run", *options, "--report", "app.html", "--", *program]
        self.same(f"run {' '.join(options)} --report", command)
        self.is_there("app.html")
        files = self.record(program, *options)
        self.count(1, files)
        self.tensors(script, files)

    def tensors(self, source: str, files: Sequence[Path], *options: str) -> None:
        """Checks that the snapshots have the tensors of the source's comments."""
        judged = self._judged(source, files, *options)
        self.say(judged.code == 0, "tensors")
        self.report.indented(judged.text, by=11)

    def segments(self, source: str, files: Sequence[Path]) -> None:
        """Checks that these snapshots do not have its tensors, and that a report says why: else `tensors` shows nothing."""
        found = self._judged(source, files).code == 0
        self.say(not found, "tensors, with the framework's cache, too" if found else "segments, with the framework's cache")
        self.run(["cachealloc", "report", "--force", "-o", "cached.html", *map(str, files)])
        page = self.folder / "cached.html"
        warns = page.exists() and CACHE_WARNING in page.read_text()
        self.say(warns, "and the report says so" if warns else "and no report says so")

    def _judged(self, source: str, files: Sequence[Path], *options: str) -> Ran:
        sites = self.run(["cachealloc", "top-sites", "--json", "-n", "0", "--by", "count", *map(str, files)])
        (self.folder / "sites.json").write_bytes(sites.stdout)
        path = self.folder / source if (self.folder / source).exists() else PROGRAMS / source
        judge = machine.python(PROGRAMS / "judge.py", path, *options)
        return self.run(["sh", "-c", 'exec "$0" "$@" < sites.json', *judge], merge=True)
