"""This project's CUDA programs and the Python frameworks (tests/gpu/cases.txt), output compared.

Needs nvcc; cases of a Python framework that the machine lacks are skipped.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, List, Optional

from gpu_runner import machine
from gpu_runner.compare import Case, Comparison
from gpu_runner.context import CannotRun, Context
from gpu_runner.cuda import Compiler, Program, flags_of
from gpu_runner.lists import Options
from gpu_runner.paths import CUDA_PROGRAMS, PYTHON_PROGRAMS, TESTS, rows

# Each program is built with both kinds of the CUDA runtime.
RUNTIMES = ("static", "shared")


def run_suite(context: Context) -> bool:
    context.needs_gpu()
    left_out: List[str] = []
    rows_wanted = [line.split(None, 2) for line in rows(TESTS / "cases.txt")]
    rows_wanted = [row for row in rows_wanted if any(map(context.wanted, [row[0], *(f"{row[0]}.{it}" for it in RUNTIMES)]))]
    programs = [word for row in rows_wanted for word in row[2].split() if (CUDA_PROGRAMS / f"{word}.cu").exists()]
    build(context, sorted(set(programs)))
    cases = []
    for name, options, command in rows_wanted:
        try:
            cases += cases_of(context, name, Options.parse(options), command.split())
        except CannotRun as error:
            left_out.append(f"{name}: {error}")
    if not cases and not left_out:
        raise CannotRun("no case matches --only")
    return Comparison(context, cases, left_out).run()


def build(context: Context, programs: List[str]) -> None:
    if not programs:
        return
    compiler = Compiler(context.build)
    compiler.compile_all(
        Program(
            context.build / f"{program}.{runtime}",
            CUDA_PROGRAMS,
            ["-O2", "-cudart", runtime, f"{program}.cu", *flags_of(CUDA_PROGRAMS / f"{program}.cu")],
        )
        for program in programs
        for runtime in RUNTIMES
    )


def cases_of(context: Context, name: str, options: Options, words: List[str]) -> List[Case]:
    """Returns the cases of one line: two for a CUDA program, one for each runtime."""
    if machine.device_count() < options.devices:
        raise CannotRun(f"fewer than {options.devices} GPUs")
    variables: Dict[str, str] = {}
    while re.match(r"\w+=", words[0]):
        variable, value = words.pop(0).split("=", 1)
        variables[variable] = value
    program: Optional[str] = None
    command: List[str] = []
    for word in words:
        if (CUDA_PROGRAMS / f"{word}.cu").exists():
            program = word
        command += expanded(word)
    if not program:
        return [Case(name, command, options, variables=variables)]
    cases = []
    for runtime in RUNTIMES:
        # A program that does not build is run all the same, and fails: it must not be overlooked.
        built = str(context.build / f"{program}.{runtime}")
        own = [built if word == program else word for word in command]
        cases.append(Case(f"{name}.{runtime}", own, options, variables=variables))
    return cases


def expanded(word: str) -> List[str]:
    """Returns the words that a word of a command stands for."""
    if word == "MPIRUN":
        launcher = machine.mpirun()
        if not launcher:
            raise CannotRun("no mpirun")
        return list(launcher)
    if word.startswith("py/"):
        script = PYTHON_PROGRAMS / word[len("py/") :]
        for package in needed_packages(script):
            machine.need_package(package)
        return machine.python(script)
    return [word]


def needed_packages(script: Path) -> List[str]:
    """Returns the packages that the head of a Python case names."""
    head = "\n".join(script.read_text().splitlines()[:12])
    return [package for line in re.findall(r"^# needs: (.*)", head, re.MULTILINE) for package in line.split()]
