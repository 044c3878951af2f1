"""A program with a full cache does not starve a peer process: checked, and the cost measured.

Needs exclusive use of the device; about a minute.
"""

from __future__ import annotations

from gpu_runner import machine
from gpu_runner.context import Context
from gpu_runner.paths import PYTHON_PROGRAMS
from gpu_runner.process import run
from gpu_runner.report import Report


def run_suite(context: Context) -> bool:
    context.needs_gpu()
    report = Report(context.out)
    command = machine.python(PYTHON_PROGRAMS / "neighbours.py", context.library)
    ran = run(command, env=context.environment(), seconds=300, merge=True)
    report.line(ran.text.rstrip())
    if ran.code == 0:
        report.ok("neighbours")
    else:
        report.failed("neighbours", f"exit code {ran.code}")
    return report.good
