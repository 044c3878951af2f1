"""Devices, compilers, frameworks and launchers of this machine. Each is looked up once, when a suite first needs it."""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
from pathlib import Path
from typing import List, Optional

from gpu_runner.context import CannotRun
from gpu_runner.process import run


def python(*words: "str | os.PathLike[str]") -> List[str]:
    """Returns a command of the Python that runs this."""
    return [sys.executable, *(os.fspath(word) for word in words)]


@functools.lru_cache(maxsize=None)
def has_package(name: str) -> bool:
    """Whether Python finds a package. It is not imported: importing a framework takes seconds."""
    code = f"import importlib.util, sys; sys.exit(not importlib.util.find_spec({name!r}))"
    return run(python("-c", code)).code == 0


def need_package(name: str) -> None:
    if not has_package(name):
        raise CannotRun(f"python3 has no {name}")


@functools.lru_cache(maxsize=None)
def nvcc() -> Path:
    found = shutil.which(os.environ.get("NVCC", "nvcc"))
    if not found:
        raise CannotRun("no nvcc")
    return Path(found)


def has_nvcc() -> bool:
    try:
        return bool(nvcc())
    except CannotRun:
        return False


def toolkit() -> Path:
    """Returns the folder of the CUDA toolkit."""
    return nvcc().resolve().parent.parent


def tool(name: str) -> Optional[str]:
    """Returns the path of one of NVIDIA's tools, also where only the toolkit has it."""
    return shutil.which(name) or shutil.which(name, path=str(toolkit() / "bin"))


@functools.lru_cache(maxsize=None)
def architecture() -> str:
    """Returns nvcc's name of device 0's architecture; an empty text if it is unknown. GPU_ARCH overrides it."""
    if os.environ.get("GPU_ARCH"):
        return os.environ["GPU_ARCH"]
    lines = smi("--query-gpu=compute_cap", "--format=csv,noheader").splitlines()
    digits = lines[0].replace(".", "").strip() if lines else ""
    return f"sm_{digits}" if digits.isdigit() else ""


def smi(*arguments: str) -> str:
    """Returns the output of nvidia-smi; an empty text without it."""
    ran = run(["nvidia-smi", *arguments], seconds=60)
    return ran.text if ran.code == 0 else ""


@functools.lru_cache(maxsize=None)
def device_count() -> int:
    """Returns the number of GPUs that a program sees."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return len(visible.split(",")) if visible else sum(line.startswith("GPU") for line in smi("-L").splitlines())


@functools.lru_cache(maxsize=None)
def driver_library() -> Optional[str]:
    """Returns the path of the driver's library, for linking where the toolkit has no stub."""
    for line in run(["ldconfig", "-p"]).text.splitlines():
        words = line.split()
        if words and words[0] == "libcuda.so.1":
            return words[-1]
    return None


@functools.lru_cache(maxsize=None)
def mpirun(ranks: int = 2) -> Optional["tuple[str, ...]"]:
    """Returns how two ranks are started; None without MPI."""
    if not shutil.which("mpirun"):
        return None
    count = ("-n", str(ranks))
    # Without these options Open MPI refuses root, and more ranks than cores; MPICH has neither option.
    if re.search("open.mpi", run(["mpirun", "--version"], merge=True).text, re.IGNORECASE):
        return ("mpirun", "--allow-run-as-root", "--oversubscribe", *count)
    return ("mpirun", *count)


@functools.lru_cache(maxsize=None)
def mpi_flags() -> "tuple[str, ...]":
    """Returns -I, -L and -l of MPI's compiler wrapper, or nothing without MPI."""
    for option in ("-showme", "-show"):  # Open MPI's, MPICH's
        ran = run(["mpicc", option])
        if ran.code == 0:
            return tuple(re.findall(r"(?:^| )(-[ILl]\S+)", ran.text))
    return ()
