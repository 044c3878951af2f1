"""The suites, one module each.

`scripts/gpu list` shows the first line of a suite's docstring. Its function `run_suite(context)` returns whether all is well, and
raises `CannotRun` if this machine lacks what it needs. If it has options of its own, `add_options(group)` declares them.
"""

from __future__ import annotations

import importlib
from types import ModuleType

NAMES = (
    "hazards",
    "programs",
    "samples",
    "random",
    "graphs",
    "limits",
    "neighbours",
    "snapshots",
    "recipes",
    "reports",
    "explain",
    "fit",
    "hoard",
    "tools",
)


def load(name: str) -> ModuleType:
    return importlib.import_module(f"gpu_runner.suites.{name}")


def summary(suite: ModuleType) -> str:
    return (suite.__doc__ or "").splitlines()[0]
