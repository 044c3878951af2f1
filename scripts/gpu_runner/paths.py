"""Paths of the tree, or of a folder made by `scripts/gpu pack`, which has the same layout and `bin/`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterator

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests/gpu"
CUDA_PROGRAMS = TESTS / "cuda"
PYTHON_PROGRAMS = TESTS / "py"
OUT = ROOT / ".out/gpu"
PACKED = ROOT / "bin"
# Folder of the packed simulated driver, in that folder.
SIMULATED = Path("simulated")
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def built(name: str, profile: str) -> Path:
    """Returns the path of a built file, which need not exist."""
    packed = PACKED / name
    return packed if packed.exists() else TARGET / profile / name


def rows(file: Path) -> Iterator[str]:
    """Yields the lines of a list that are neither empty nor comments."""
    for line in file.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            yield line
