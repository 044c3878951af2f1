"""Memory that caches hold while the sizes of a program change, and after its peak: a table.

Without a cache, with PyTorch's, and with this one; --conf adds a line under the library with these settings. Cases are named
PROGRAM-CACHE, such as lora-torch. Needs PyTorch and exclusive use of the device; under 30 s a line.
"""

from __future__ import annotations

from gpu_runner import machine
from gpu_runner.context import Context
from gpu_runner.paths import PYTHON_PROGRAMS
from gpu_runner.process import run
from gpu_runner.report import Report

PROGRAMS = ("gp", "lora", "graphs")
HEAD = """GiB; time in ms; calls to the driver that allocate
               ------- while sizes change -------  --- 10 s of small steps ---  --- a step ---      -- calls --
               device   cache holds   live         device   cache holds   live  (mean)  small       all  last 2 s"""


def run_suite(context: Context) -> bool:
    context.needs_gpu()
    machine.need_package("torch")
    report = Report(context.out)
    report.line(HEAD)
    uncached = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    environments = {
        "native": context.environment(**uncached),
        "torch": context.environment(),
        "ours": context.under_library("", **uncached),
    }
    if context.conf:
        environments[context.conf] = context.under_library(context.conf, **uncached)
    for program in PROGRAMS:
        for cache, env in environments.items():
            if not context.wanted(f"{program}-{cache}"):
                continue
            if cache == context.conf:
                report.line(f"{context.conf}:")
            word = cache if cache in ("native", "torch") else "ours"
            ran = run(machine.python(PYTHON_PROGRAMS / "hoard.py", program, word), env=env, seconds=60)
            report.line(ran.text.rstrip())
            if ran.code != 0:
                report.failed(f"{program}-{cache}", f"exit code {ran.code}", ran.tail(8))
    return report.good
