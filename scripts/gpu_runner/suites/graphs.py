"""Captures that allocate and free: they fail without the library, so the programs check their own results.

Needs nvcc; PyTorch and CuPy for the rest.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from gpu_runner import machine
from gpu_runner.checks import Checks
from gpu_runner.context import CannotRun, Context
from gpu_runner.cuda import Compiler
from gpu_runner.paths import PYTHON_PROGRAMS
from gpu_runner.process import run

MODES = ("ordered", "strict", "relaxed")
NO_REUSE = "graph_capture_record_stream_reuse:false"
UNCACHED = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


def run_suite(context: Context) -> bool:
    context.needs_gpu()
    program = Compiler(context.build).own("cuda/graph_memory.cu", "-O2", "-lcuda")
    if not program.exists():
        raise CannotRun("tests/gpu/cuda/graph_memory.cu does not build")
    checks = Checks(context)
    by_hand(checks, program)
    if machine.has_package("torch"):
        torch(checks)
    if machine.has_package("cupy"):
        script = machine.python(PYTHON_PROGRAMS / "arrays/graph_cupy.py")
        checks.check("cupy", "", script)
        checks.check("cupy-no-reuse", NO_REUSE, script)
    return checks.report.good


def by_hand(checks: Checks, program: Path) -> None:
    for mode in MODES:
        checks.check(f"modes-{mode}", f"free_mode:{mode}", [program, "modes"])
        checks.check(f"threads-{mode}", f"free_mode:{mode}", [program, "threads"])
    for name, settings in [
        ("no-reuse", NO_REUSE),
        ("expandable", "expandable_segments:true"),
        ("limited", "gpu_memory_limit_mb:600"),
        ("recorded", "record:all,snapshot:/dev/null"),
    ]:
        checks.check(f"modes-{name}", settings, [program, "modes"])
    checks.check("ordered", "graph_pool:true", [program, "ordered"])
    checks.check("ordered-nodes", "", [program, "ordered"])


def torch(checks: Checks) -> None:
    script = machine.python(PYTHON_PROGRAMS / "pytorch/graph_torch.py")
    for mode in MODES:
        checks.check(f"torch-{mode}", f"free_mode:{mode}", script, UNCACHED)
    checks.check("torch-no-reuse", NO_REUSE, script, UNCACHED)
    for model in ("mlp", "transformer"):
        backward(checks, model)
    checks.check("torch-own-cache", "", script)


def backward(checks: Checks, model: str) -> None:
    """Compares captured backward passes with those in graphs of PyTorch's own cache.

    Not in relaxed mode: the driver allows the frees of earlier gradients there, and takes their memory away from the
    graphs that write it (docs/graphs.md).
    """
    names = {mode: f"backward-{model}-{mode}" for mode in ("thread_local", "global")}
    if not any(map(checks.context.wanted, names.values())):
        return
    script = machine.python(PYTHON_PROGRAMS / "pytorch/graph_backward.py")
    with tempfile.NamedTemporaryFile() as reference:
        ran = run(script, env=checks.context.environment(GRAPH_MODEL=model), seconds=300)
        if ran.code != 0:
            checks.report.failed(f"backward-{model}", f"exit code {ran.code} without the library", ran.tail(8))
        reference.write(ran.stdout)
        reference.flush()
        for mode, name in names.items():
            variables = {"GRAPH_MODEL": model, "GRAPH_MODE": mode, "GRAPH_REFERENCE": reference.name}
            checks.check(name, "", script, {**UNCACHED, **variables})
