"""Predictions of `cachealloc fit`: ten PyTorch and CuPy programs under limits above and below the predicted least one.

Each is recorded once: its peak of reserved memory is compared, and it runs under limits one hundredth above and below the
predicted least one, and under the least smaller limit that is also predicted to suffice, if any. Then the first program runs on
a device with little free memory: the least on which it completes, without and with the library, by bisection. Fails if a
prediction is more than 1 % off. Needs PyTorch, and exclusive use of the device.
"""

from __future__ import annotations

import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, List, NamedTuple, Sequence, Tuple

from gpu_runner import machine
from gpu_runner.context import CannotRun, Context
from gpu_runner.paths import PYTHON_PROGRAMS
from gpu_runner.process import run
from gpu_runner.report import Report

PROGRAMS = "bert gpt images lstm unet experts graph process transforms tables".split()
DEVICE_MIB = 65536
MIB = 1 << 20
SHORTAGES = ("out of memory", "OutOfMemory", "ALLOC_FAILED")


class Compared(NamedTuple):
    row: str
    # Largest relative error of a prediction; 1 if the program completed where it should not, or the other way round.
    off: float
    held: int


def run_suite(context: Context) -> bool:
    context.needs_gpu()
    machine.need_package("torch")
    context.command()
    report = Report(context.out)
    heads = "".join(f"{head + ': said / real':>26}" for head in ("1 % more", "1 % less", "a smaller one"))
    report.line(f"{'program':12}{'held, MiB':>10}{'reserved: said / real':>24}{'least limit / held':>22}{heads}")
    programs = [name for name in PROGRAMS if context.wanted(name)]
    if not programs:
        raise CannotRun("no case matches --only")
    with ThreadPoolExecutor(context.jobs) as pool:
        for name, compared in zip(programs, pool.map(lambda name: compare(context, name), programs)):
            report.line(compared.row)
            if compared.off > 0.01:
                report.failed(name, "a prediction is more than 1 % off")
            if name == PROGRAMS[0] and compared.held:
                first_held = compared.held // MIB
    if programs[0] == PROGRAMS[0] and report.good:
        least = {word: least_left(context, library, first_held) for word, library in (("natively", False), ("ours", True))}
        said = " ".join(f"{word} {percent} %" for word, percent in least.items())
        report.line(f"{PROGRAMS[0]}, the least that is left, of {first_held} MiB held: {said}")
    return report.good


def completes(context: Context, folder: Path, arguments: Sequence[str], settings: Sequence[str], library: bool = True) -> bool:
    """Runs a program, and returns whether it completes. Anything but a shortage of memory is printed."""
    uncached = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    env = context.environment(**uncached)
    if library:
        env = context.under_library(context.settings("log:quiet", *settings), **uncached)
    ran = run(machine.python(PYTHON_PROGRAMS / "sizes.py", *arguments), env=env, cwd=folder, seconds=600)
    if ran.code and not any(word in ran.errors for word in SHORTAGES):
        print(f"{arguments}, {settings}: {ran.errors[-400:]}", file=sys.stderr)
    return ran.code == 0


def predictions(context: Context, folder: Path, sets: Sequence[str]) -> Tuple[List[Any], int]:
    """Returns the predictions for each set of options, and the peak memory of the program."""
    options = [f"--options={it}" for it in sets]
    ran = run([context.command(), "fit", "s.pickle", "--json", f"--gpu={DEVICE_MIB}M", *options], cwd=folder, seconds=600)
    if ran.code != 0:
        raise CannotRun(f"cachealloc fit: {ran.tail(3)}")
    said = json.loads(ran.stdout)["devices"][0]
    return said["sets"], said["peak_bytes"]


def compare(context: Context, name: str) -> Compared:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        recorded = ["record:all", "context:none", "snapshot:s.pickle", "stats_on_exit:s.json"]
        if not completes(context, folder, [name], recorded):
            return Compared(f"{name:12} does not complete", 1, 0)
        (tried,), held = predictions(context, folder, [""])
        devices = json.loads((folder / "s.json").read_text())["devices"].values()
        reserved = sum(device["reserved_bytes.all.peak"] for device in devices)
        least = tried["least_limit"]["bytes"]
        limits = [-(-least * 101 // (100 * MIB)), least * 99 // (100 * MIB)]
        limits += [limit // MIB for limit in tried["least_limit"]["also_bytes"][:1]]
        settings = [f"gpu_memory_limit_mb:{limit}" for limit in limits]
        said = {it["options"]: it["completes"] for it in predictions(context, folder, settings)[0]}
        real = {limit: completes(context, folder, [name], [limit]) for limit in settings}
    ratio = tried["peak_reserved_bytes"] / reserved
    word = {True: "completes", False: "fails"}
    row = f"{name:12}{held / MIB:10.0f}{ratio:24.4f}{least / held:22.4f}"
    row += "".join(f"{word[said[limit]]:>14} / {word[real[limit]]:9}" for limit in settings)
    return Compared(row, max(abs(ratio - 1), 0 if said == real else 1), held)


def least_left(context: Context, library: bool, held_mib: int) -> int:
    """Returns the least free device memory that suffices, in hundredths of what the program holds."""
    fails, works = 80, 130
    with tempfile.TemporaryDirectory() as folder:
        while works - fails > 1:
            share = (fails + works) // 2
            arguments = [PROGRAMS[0], str(held_mib * share // 100)]
            if completes(context, Path(folder), arguments, [], library):
                works = share
            else:
                fails = share
    return works
