"""Builds CUDA programs with nvcc."""

from __future__ import annotations

import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Iterable, Optional, Sequence

from gpu_runner import machine
from gpu_runner.paths import TESTS
from gpu_runner.process import run

SECONDS_MAX = 600
LIBRARIES = "cudart cublas cublasLt cufft cusolver cusolverMg cusparse curand nvrtc nvJitLink cupti".split()


@dataclass(frozen=True)
class Program:
    """One call of nvcc. The source's folder is the working directory."""

    output: Path
    folder: Path
    arguments: Sequence[str]


class Compiler:
    """Compiles into one folder, which also gets the links that the linker needs."""

    def __init__(self, build: Path) -> None:
        self.build = build
        (build / "lib").mkdir(parents=True, exist_ok=True)
        self._link_flags = self._links()

    def _links(self) -> "list[str]":
        """Links libraries that are beside nvcc, or lack the plain .so name (Python packages, a driver without toolkit)."""
        into = self.build / "lib"
        flags = [f"-L{into}", "-Xlinker", "-rpath", "-Xlinker", str(into)]
        toolkit = machine.toolkit()
        places = "lib64 lib targets/x86_64-linux/lib targets/sbsa-linux/lib extras/CUPTI/lib64".split()
        for folder in (toolkit / place for place in places):
            if not folder.is_dir():
                continue
            flags += [f"-L{folder}", f"-L{folder}/stubs", "-Xlinker", "-rpath", "-Xlinker", str(folder)]
            for name in LIBRARIES:
                versioned = sorted(folder.glob(f"lib{name}.so.*"))
                if versioned and not (folder / f"lib{name}.so").exists():
                    link(into / f"lib{name}.so", versioned[0])
        driver = machine.driver_library()
        if driver:
            link(into / "libcuda.so", Path(driver))
        return flags

    def compile(self, program: Program) -> bool:
        """Returns whether it builds; if not, the errors are printed, and the output does not exist."""
        architecture = machine.architecture()
        command = [str(machine.nvcc()), "-std=c++17", *([f"-arch={architecture}"] if architecture else [])]
        command += ["-Wno-deprecated-gpu-targets", "-Xcompiler", "-pthread", "-o", str(program.output)]
        program.output.parent.mkdir(parents=True, exist_ok=True)
        ran = run([*command, *program.arguments, *self._link_flags], seconds=SECONDS_MAX, cwd=program.folder, merge=True)
        program.output.with_name(program.output.name + ".log").write_bytes(ran.stdout)
        if ran.code == 0:
            return True
        program.output.unlink(missing_ok=True)
        print(f"gpu: {program.output.name} does not build:", file=sys.stderr)
        errors = [line for line in ran.text.splitlines() if re.search("error|cannot", line, re.IGNORECASE)]
        print("\n".join(errors[:5]) or ran.tail(1), file=sys.stderr)
        return False

    def compile_all(self, programs: Iterable[Program]) -> None:
        """Compiles programs side by side, apart from those that are newer than all sources in their folder."""
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(self.compile, [program for program in programs if not is_up_to_date(program)]))

    def own(self, source: str, *flags: str, name: Optional[str] = None) -> Path:
        """Compiles a program of tests/gpu. Returns its path, which does not exist if it does not build."""
        program = Program(self.build / (name or Path(source).stem), TESTS, [*(flags or ["-O2"]), source])
        if not is_up_to_date(program):
            self.compile(program)
        return program.output


def is_up_to_date(program: Program) -> bool:
    if not program.output.exists():
        return False
    built = program.output.stat().st_mtime
    sources = program.folder.rglob("*.[ch]*")
    return all(source.stat().st_mtime <= built for source in sources)


def link(name: Path, target: Path) -> None:
    name.unlink(missing_ok=True)
    name.symlink_to(target)


def flags_of(source: Path) -> "list[str]":
    """Returns the flags in the first line of a source, where MPI stands for the flags of this machine's MPI."""
    first = source.read_text().splitlines()[0]
    words = first[len("// nvcc:") :].split() if first.startswith("// nvcc:") else []
    return [flag for word in words for flag in (machine.mpi_flags() if word == "MPI" else (word,))]
