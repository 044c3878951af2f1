"""The lines of a suite: each check ends in one line, on stdout and in `log.txt` of the suite's folder."""

from __future__ import annotations

from pathlib import Path

from gpu_runner.context import LOG


class Report:
    """Prints lines, and remembers whether one of them was a failure."""

    def __init__(self, folder: Path) -> None:
        self.failures = 0
        self._log = (folder / LOG).open("a")

    def line(self, text: str = "") -> None:
        print(text, flush=True)
        print(text, file=self._log, flush=True)

    def ok(self, name: str, text: str = "") -> None:
        self.line(f"{name}: ok{', ' if text else ''}{text}")

    def failed(self, name: str, why: str, output: str = "") -> None:
        self.failures += 1
        self.line(f"{name}: failed: {why}")
        self.indented(output)

    def skipped(self, name: str, why: str) -> None:
        self.line(f"{name}: skipped: {why}")

    def indented(self, text: str, by: int = 4) -> None:
        for line in text.splitlines():
            self.line(" " * by + line)

    @property
    def good(self) -> bool:
        return self.failures == 0
