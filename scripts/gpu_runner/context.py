"""The surroundings of a suite: the library, the driver, and the options of the command."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Sequence

# A folder with this file was written by a run, and may be emptied by the next one.
LOG = "log.txt"
# The checksum of the library with which it was written.
CHECKSUM = "library.sha256"
# Under the library a few programs require more than the driver itself guarantees.
UNDER_LIBRARY = "GPU_TEST_UNDER_LIBRARY"


class CannotRun(Exception):
    """A suite cannot run on this machine; the text says why."""


@dataclass(frozen=True)
class Context:
    library: Path
    # Folder of the simulated driver; None on a GPU.
    driver: Optional[Path]
    only: Sequence["re.Pattern[str]"]
    modes: Sequence[str]
    # More settings, in the syntax of CACHEALLOC_CONF.
    conf: str
    jobs: int
    # Time after which no program is started, on the clock of `time.monotonic`.
    until: Optional[float]
    # Options of single suites.
    options: argparse.Namespace
    out: Path
    build: Path

    def wanted(self, name: str) -> bool:
        return not self.only or any(pattern.search(name) for pattern in self.only)

    def is_late(self) -> bool:
        return self.until is not None and time.monotonic() >= self.until

    def needs_gpu(self) -> None:
        if self.driver:
            raise CannotRun("it needs a GPU, and --driver names a simulated driver")

    def command(self) -> Path:
        """Returns the command `cachealloc`, which is beside the library."""
        path = self.library.with_name("cachealloc")
        if not path.exists():
            raise CannotRun(f"no command at {path}")
        return path

    def settings(self, *more: str) -> str:
        """Joins settings of the library, and those of --conf."""
        return ",".join(text for text in (*more, self.conf) if text)

    def environment(self, **variables: str) -> "dict[str, str]":
        """Returns the variables of a program without the library. Runs are alike: no variable of the library is inherited."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CACHEALLOC", "SIM_"))}
        kept.pop("LD_PRELOAD", None)
        if self.driver:
            kept["LD_LIBRARY_PATH"] = str(self.driver)
        return {**kept, "PYTHONUNBUFFERED": "1", **variables}

    def under_library(self, settings: str, **variables: str) -> "dict[str, str]":
        ours = {"LD_PRELOAD": str(self.library), "CACHEALLOC_CONF": settings, UNDER_LIBRARY: "1"}
        return self.environment(**{**ours, **variables})


def empty_folder(folder: Path) -> Path:
    """Makes an empty folder. Refuses to empty one that no run has written."""
    if folder.exists() and any(folder.iterdir()) and not (folder / LOG).exists():
        raise CannotRun(f"not emptying {folder}: it is not from a run of scripts/gpu; move it, or name another --out")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / LOG).touch()
    return folder.resolve()


def folder_of_run(folder: Path, library: Path, resumes: bool) -> Path:
    """Returns a folder for a run: an empty one, or one that has what an earlier run of the same library has made."""
    checksum, known = hashlib.sha256(library.read_bytes()).hexdigest(), folder / CHECKSUM
    if resumes and known.exists():
        if known.read_text() != checksum:
            raise CannotRun(f"{folder} is from a run of another library; name another --out, or do not resume")
        return folder.resolve()
    folder = empty_folder(folder)
    (folder / CHECKSUM).write_text(checksum)
    return folder
