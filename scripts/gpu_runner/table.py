"""The table of a comparison: one row for each case, one column for each mode, and a line that sums up."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, List, Mapping

from gpu_runner import verdict
from gpu_runner.report import Report

if TYPE_CHECKING:
    from gpu_runner.compare import Case, Comparison


class Table:
    def __init__(self, comparison: Comparison, causes: Mapping[str, str]) -> None:
        self.comparison = comparison
        self.causes = causes
        self.report = Report(comparison.context.out)
        self.differences = self.native_failures = self.known = self.late = 0
        self.skipped = list(comparison.left_out)

    def print(self) -> bool:
        names = [case.name for case in self.comparison.cases]
        width = max(map(len, ["program", *names]))
        self.report.line(self._row("program".ljust(width), ["native", *self.comparison.modes], "cause"))
        for case in self.comparison.cases:
            words = [self._native(case), *(self._word(case, mode) for mode in self.comparison.modes)]
            self.report.line(self._row(case.name.ljust(width), words, self.causes.get(case.name, "")))
        for text in self.skipped:
            self.report.line(f"skipped: {text}")
        for case in self.comparison.cases:
            for mode in self.comparison.modes:
                reason = self.comparison.known(case, mode)
                if reason:
                    self.report.line(f"known difference: {case.name} in {mode}: {reason}")
        self.report.line(
            f"{len(names)} programs, {self.differences} differences, {self.known} known, {self.native_failures} fail without the library, "
            f"{self.late} runs not made, {len(self.skipped)} skipped; outputs in {self.comparison.context.out}"
        )
        return not (self.differences or self.native_failures or self.late)

    def _row(self, name: str, words: List[str], cause: str) -> str:
        return "  ".join([name, *(word.ljust(10) for word in words), cause]).rstrip()

    def _native(self, case: Case) -> str:
        said = self.comparison.native_verdict(case)
        self.late += said is verdict.LATE
        self.native_failures += not said.good
        if said is verdict.OK:
            ran = self.comparison.task(case, "native").ran
            for line in ran.text.splitlines() if ran else []:
                if line.startswith("skipped:"):
                    self.skipped.append(f"{case.name}: {line[len('skipped:') :].strip()}")
                    return "skipped"
        return said.word

    def _word(self, case: Case, mode: str) -> str:
        said = self.comparison.verdict(case, mode)
        self.late += said is verdict.LATE
        if self.comparison.known(case, mode):
            self.known += 1
            # "ok!" is known to differ, and does not.
            return f"{said.word}!" if said.good else "known"
        if not said.good:
            self.differences += 1
            self._write_difference(case, mode)
        return said.word

    def _write_difference(self, case: Case, mode: str) -> None:
        if not case.native:
            return
        native, ours = (self.comparison.task(case, name).masked.decode(errors="replace") for name in ("native", mode))
        lines = difflib.unified_diff(native.splitlines(True), ours.splitlines(True), "native", mode)
        (self.comparison.context.out / f"{case.name}.{mode}.diff").write_text("".join(lines))


def print_table(comparison: Comparison, causes: Mapping[str, str]) -> bool:
    """Prints the table. Returns whether each case was run and none differs or fails without the library."""
    return Table(comparison, causes).print()
