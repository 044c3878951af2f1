"""Programs under compute-sanitizer, Nsight Compute, cuda-gdb, CUPTI and MPS: the tools find the same with the library.

A tool that is missing, or cannot work here, is skipped with the reason. Needs nvcc.
"""

from __future__ import annotations

from pathlib import Path
from typing import Dict

from gpu_runner import machine
from gpu_runner.context import CannotRun, Context
from gpu_runner.cuda import Compiler
from gpu_runner.mps import Server
from gpu_runner.paths import TESTS
from gpu_runner.suites.hazards import program
from gpu_runner.watched import Step, Steps

PROGRAM_LINES = "^[a-z]+: cuda|neighbours"
# Hazards of the clients of MPS: what the host sees, waits, wrong frees, stream order.
HAZARDS = (
    "pinned_write",
    "copy_to_pinned",
    "launched_host_function",
    "event_query",
    "spin_behind_free",
    "spin_and_malloc_behind_async_free",
    "query_while_a_free_waits",
    "double_free",
    "wild_free",
    "merged_neighbours",
    "crossed_frees",
)
EACH = 'for name; do "$0" "$name" || echo "exit code $?"; done'
GDB = """#!/bin/sh
exec "$DEBUGGER" -batch -nx -ex 'set startup-with-shell off' -ex 'set pagination off' \\
    ${PROGRAM_PRELOAD:+-ex "set environment LD_PRELOAD $PROGRAM_PRELOAD"} "$@"
"""


def run_suite(context: Context) -> bool:
    context.needs_gpu()
    compiler = Compiler(context.build)
    planted = compiler.own("tools/planted.cu", "-O2", "-lineinfo")
    if not planted.exists():
        raise CannotRun("tests/gpu/tools/planted.cu does not build")
    steps = Steps(context)
    sanitizer(steps, planted)
    nsight_compute(steps, planted)
    gdb(steps, compiler.own("tools/planted.cu", "-g", "-G", name="planted-debug"))
    cupti(steps, compiler)
    mps(steps, compiler, planted)
    return steps.report.good


def sanitizer(steps: Steps, planted: Path) -> None:
    """Each mistake is found, with the same words."""
    tool = machine.tool("compute-sanitizer")
    if not tool:
        steps.report.skipped("sanitizer", "no compute-sanitizer")
        return
    keep = (
        "Invalid|ERROR SUMMARY|RACECHECK SUMMARY|[Rr]ace|Uninitialized|Leaked|LEAK SUMMARY|bytes (before|after|inside)|"
        + PROGRAM_LINES
    )
    cannot = "Device not supported|not supported on|Unable to|insufficient permission|Internal Sanitizer Error"
    for mistake, must, options in [
        ("clean", "ERROR SUMMARY: 0 errors", ["memcheck"]),
        ("overrun", "Invalid __global__ write", ["memcheck"]),
        ("leak", "Leaked [0-9,]+ bytes", ["memcheck", "--leak-check", "full"]),
        ("race", "[Rr]ace reported|hazard", ["racecheck"]),
        ("unwritten", "Uninitialized", ["initcheck"]),
    ]:
        command = [tool, "--tool", *options, str(planted), mistake]
        steps.compare(Step(f"sanitizer-{mistake}", command, 100, must=must, keep=keep, cannot=cannot))


def nsight_compute(steps: Steps, planted: Path) -> None:
    """The same kernels are seen."""
    tool = machine.tool("ncu")
    if not tool:
        steps.report.skipped("ncu", "no ncu")
        return
    steps.compare(
        Step(
            "ncu",
            [tool, "--clock-control", "none", "--section", "LaunchStats", "--launch-count", "8", str(planted), "clean"],
            150,
            must="Context",
            keep=r"^ +[a-z_]+.*\([0-9]+, [0-9]+, [0-9]+\)x|" + PROGRAM_LINES,
            cannot="ERR_NVGPUCTRPERM|LibraryNotLoaded|Failed to initialize|not supported",
        )
    )


def gdb(steps: Steps, program: Path) -> None:
    """The preload is for the debugged program only, and the debugger stops where it does without."""
    tool = machine.tool("cuda-gdb")
    if not tool or not program.exists():
        steps.report.skipped("gdb", "no cuda-gdb, or no debug build")
        return
    script = steps.context.out / "gdb.sh"
    script.write_text(GDB)
    script.chmod(0o755)
    keep = r"^Breakpoint|^#0|exited (normally|with)|CUDA_EXCEPTION|received signal|" + PROGRAM_LINES
    cannot = "ptrace: Operation not permitted|not supported|could not be initialized|fatal:"
    for name, must, commands, mistake in [
        ("clean", "exited normally", ["run", "bt"], "clean"),
        ("null", "CUDA_EXCEPTION|Illegal|exited with", ["run", "bt"], "null"),
        (
            "breakpoint",
            "write_past_the_end",
            ["break write_past_the_end", "run", "bt", "delete", "continue"],
            "overrun",
        ),
    ]:
        options = [word for command in commands for word in ("-ex", command)]
        steps.compare(
            Step(
                f"gdb-{name}",
                [str(script), *options, "--args", str(program), mistake],
                120,
                must=must,
                keep=keep,
                cannot=cannot,
                variables={"DEBUGGER": tool},
                preload="PROGRAM_PRELOAD",
            )
        )


def cupti(steps: Steps, compiler: Compiler) -> None:
    """A program and a framework observe the same about themselves."""
    include = f"-I{machine.toolkit()}/extras/CUPTI/include"
    watched = compiler.own("tools/watched.cu", "-O2", include, "-lcupti", "-lcuda")
    if watched.exists():
        steps.compare(Step("cupti", [str(watched)], 120, must="launches:", cannot="^skipped:"))
    else:
        steps.report.skipped("cupti", "tests/gpu/tools/watched.cu does not build")
    if not machine.has_package("torch"):
        steps.report.skipped("profiler", "no torch")
        return
    command = machine.python(TESTS / "tools/profiled.py")
    uncached = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    steps_of: Dict[str, Dict[str, str]] = {"profiler": {}, "profiler-no-cache": uncached}
    for name, variables in steps_of.items():
        keep = "^[0-9]+ |^loss"
        steps.compare(Step(name, command, 150, must="loss", keep=keep, cannot="^skipped:", variables=variables))


def mps(steps: Steps, compiler: Compiler, planted: Path) -> None:
    """Two clients of one server do not notice whether either is under the library."""
    names = ("mps-streams", "mps-hazards", "mps-ipc")
    if not any(map(steps.context.wanted, names)):
        return
    programs = {
        "mps-streams": [str(compiler.own("cuda/streams_threads.cu", "-O2"))],
        "mps-hazards": ["sh", "-c", EACH, str(program("hazards")), *HAZARDS],
        "mps-ipc": [str(compiler.own("cuda/ipc.cu", "-O2", "-lcuda"))],
    }
    with Server(steps, planted) as server:
        for name, command in programs.items():
            if server.works:
                steps.two_clients(name, command, 200, server.variables)
