"""Collects in a folder what a GPU machine without cargo needs: the built files, and the sources of this project's programs.

The folder has the layout of the tree, so that `DIR/scripts/gpu run ...` works there as here. In DIR/bin are library and command,
the library with its assertions on (checked), the simulated driver (simulated), the Rust programs, and the listed folders of
NVIDIA's checkouts.
"""

from __future__ import annotations

import argparse
import shutil
import tarfile
from pathlib import Path

from gpu_runner.context import CannotRun, empty_folder
from gpu_runner.paths import PACKED, ROOT, SIMULATED, TARGET
from gpu_runner.process import run
from gpu_runner.suites import samples

PROGRAMS = ("hazards", "matrix", "answers", "judge")
SOURCES = (
    "scripts/gpu",
    "scripts/gpu_runner",
    "scripts/check-snapshot.py",
    "scripts/bench/gpu.sh",
    "scripts/bench/graphs.sh",
    "samples/hooks",
    "src/wheel",
    "tests/gpu",
)


def pack(folder: Path, library: Path, options: argparse.Namespace) -> None:
    checked = TARGET / "checked"
    built = {
        "libcachealloc.so": library,
        "cachealloc": library.with_name("cachealloc"),
        # The assertions of this one are on.
        "checked/libcachealloc.so": checked / "libcachealloc.so",
        str(SIMULATED / "libcuda.so.1"): checked / "libcuda.so",
        **{name: checked / name for name in PROGRAMS},
    }
    for file in built.values():
        if not file.exists():
            raise CannotRun(f"no {file}; `make` and `make test` build what is packed")
    folder = empty_folder(folder)
    for source in SOURCES:
        copy(ROOT / source, folder / source)
    for name, file in built.items():
        strip(file, folder / PACKED.name / name)
    for checkout in samples.CHECKOUTS:
        named = checkout.named(options)
        if named:
            with tarfile.open(folder / PACKED.name / checkout.archive, "w:xz") as archive:
                for source in checkout.folders(named):
                    archive.add(named / source, source)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{folder}: {size / (1 << 20):.0f} MiB")


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    else:
        shutil.copy(source, target)


def strip(source: Path, target: Path) -> None:
    """Copies a built file without what debuggers need, most of its size. Symbols stay: stacks name them."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if run(["strip", "-g", "-o", target, source]).code != 0:
        shutil.copy(source, target)
