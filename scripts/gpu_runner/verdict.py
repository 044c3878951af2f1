"""Result of comparing one run with the run without the library."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """The word that stands in the table, and whether all is well."""

    word: str
    good: bool = False


OK = Verdict("ok", good=True)
# It fails as it does without the library.
SAME = Verdict("same", good=True)
SKIPPED = Verdict("skipped", good=True)
# No time was left; the sum counts such runs.
LATE = Verdict("late", good=True)
# The program says that it cannot run on this GPU.
WAIVED = Verdict("exit 2", good=True)
