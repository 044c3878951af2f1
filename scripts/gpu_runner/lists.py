"""The lists of tests/gpu: cases, and what is known of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Mapping, Tuple

from gpu_runner.paths import TESTS, rows

# Mode and case, with the reason.
Reasons = Mapping[Tuple[str, str], str]


@dataclass(frozen=True)
class Options:
    """The options column of a list, as tests/gpu/cases.txt explains it."""

    seconds: float = 120
    alone: bool = False
    sort: bool = False
    devices: int = 0

    @staticmethod
    def parse(text: str) -> "Options":
        words = [] if text == "-" else text.split(",")
        numbers = dict(re.findall(r"\b(t|gpus)=(\d+)", text))
        return Options(
            seconds=float(numbers.get("t", 120)),
            alone="alone" in words,
            sort="sort" in words,
            devices=int(numbers.get("gpus", 0)),
        )


def reasons(file: str) -> Reasons:
    """Reads a list of mode, case and reason."""
    found = {}
    for line in rows(TESTS / file):
        mode, case, reason = line.split(None, 2)
        found[mode, case] = reason
    return found


def skipped() -> Reasons:
    return reasons("skip.txt")


def known_differences() -> Reasons:
    return reasons("known-differences.txt")
