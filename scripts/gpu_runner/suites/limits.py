"""Memory limits and strategies: the driver has no counterpart, so the programs check their own results.

Needs PyTorch.
"""

from __future__ import annotations

from gpu_runner import machine
from gpu_runner.checks import Checks
from gpu_runner.context import Context
from gpu_runner.paths import PYTHON_PROGRAMS

LIMIT_MIB = 4096
LIMIT = f"gpu_memory_limit_mb:{LIMIT_MIB}"
VARIABLES = {"LIMIT_MIB": str(LIMIT_MIB)}
UNCACHED = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


def run_suite(context: Context) -> bool:
    context.needs_gpu()
    machine.need_package("torch")
    checks = Checks(context, r": ok\n\Z")
    limit, chunks = (machine.python(PYTHON_PROGRAMS / name) for name in ("limit.py", "chunks.py"))
    for name, settings in [
        ("ordered", "free_mode:ordered"),
        ("strict", "free_mode:strict"),
        ("relaxed", "free_mode:relaxed"),
        ("recorded", "record:all,snapshot:/dev/null"),
        ("expandable", "expandable_segments:true"),
        ("in-chunks", "strategy:pre_allocate,fraction_of_gpu_memory_to_use:1"),
        ("uncached", "fraction_of_gpu_memory_to_use:0"),
    ]:
        checks.check(f"limit-{name}", f"{settings},{LIMIT}", limit, {**VARIABLES, **UNCACHED})
    # PyTorch's own cache and its own virtual memory both count towards the limit.
    checks.check("limit-torch", LIMIT, limit, VARIABLES)
    expandable = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    checks.check("limit-torch-expandable", LIMIT, limit, {**VARIABLES, **expandable})
    checks.check("chunks", "strategy:pre_allocate,fraction_of_gpu_memory_to_use:0.2", chunks, UNCACHED)
    return checks.report.good
