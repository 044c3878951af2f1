"""Breakdowns of the GPU memory of real programs: the largest table of `cachealloc explain` while each runs.

Prints it beside nvidia-smi's figure, and the share that the rows explain. Fails if a program has no table. Needs nvidia-smi;
nvcc, PyTorch, CuPy and JAX for the programs. Files: NAME.txt, NAME.json, NAME.log, and of a snapshot NAME.file.txt.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Dict, Iterator, List

from gpu_runner import machine
from gpu_runner.context import Context
from gpu_runner.cuda import Compiler
from gpu_runner.paths import PYTHON_PROGRAMS
from gpu_runner.process import Words, run, start
from gpu_runner.report import Report

SECONDS_MAX = 240


def run_suite(context: Context) -> bool:
    context.needs_gpu()
    suite = Suite(context)
    query = "--query-gpu=name,driver_version,memory.total,memory.used"
    suite.report.line(machine.smi(query, "--format=csv,noheader").strip())
    if machine.has_nvcc():
        compiler = Compiler(context.build)
        for name, source, *arguments in (("cublas", "cublas_gemm"), ("graphs", "graph_memory", "modes")):
            program = compiler.own(f"cuda/{source}.cu", "-O2", "-lcuda", "-lcublas", name=f"{source}.explained")
            if program.exists():
                suite.explain(name, [program, *arguments])
    if machine.has_package("torch"):
        suite.script("torch", "pytorch/train.py", TRAIN_STEPS="300")
        suite.script("torch-uncached", "pytorch/train.py", PYTORCH_NO_CUDA_MEMORY_CACHING="1", TRAIN_STEPS="150")
        suite.script("nccl", "pytorch/nccl_allreduce.py")
    if machine.has_package("cupy"):
        suite.script("cupy", "arrays/cupy_ops.py")
    if machine.has_package("jax"):
        suite.script("jax", "arrays/jax_ops.py", XLA_PYTHON_CLIENT_ALLOCATOR="platform")
        variables = {"TF_GPU_ALLOCATOR": "cuda_malloc_async", "XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async"}
        suite.script("jax-async", "arrays/jax_ops.py", **variables)
    return suite.report.good


class Suite:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.command = context.command()
        self.report = Report(context.out)

    def script(self, name: str, script: str, **variables: str) -> None:
        self.explain(name, machine.python(PYTHON_PROGRAMS / script), **variables)

    def explain(self, name: str, program: Words, **variables: str) -> None:
        if not self.context.wanted(name):
            return
        out = self.context.out
        settings = self.context.settings("record:state", f"snapshot:{name}-%p-%n.pickle")
        env = self.context.under_library(settings, **variables)
        with (out / f"{name}.log").open("wb") as log:
            running = start(program, seconds=SECONDS_MAX, stdout=log, stderr=log, env=env, cwd=out)
            largest = 0
            while running.poll() is None:
                for process in descendants(running.pid):
                    largest = max(largest, self._table(name, process, largest))
                time.sleep(0.1)
        self.report.line(f"== {name}: exit code {running.returncode}")
        if not largest:
            self.report.failed(name, "no table")
            return
        self.report.indented((out / f"{name}.txt").read_text(), by=2)
        for line in (out / f"{name}.smi").read_text().splitlines():
            self.report.line(f"  nvidia-smi: {line}")
        for line in shares(json.loads((out / f"{name}.json").read_text())):
            self.report.line(f"  {line}")
        for file in out.glob(f"{name}-*.pickle"):
            said = run([self.command, "explain", file], merge=True)
            if said.code == 0:
                (out / f"{name}.file.txt").write_bytes(said.stdout)
                for line in said.text.splitlines():
                    self.report.line(f"  at the end: {line}")
            file.unlink()

    def _table(self, name: str, process: int, largest: int) -> int:
        """Keeps the table of a process if its sum is larger than any before, and returns the sum; else 0."""
        said = run([self.command, "explain", "--json", str(process)])
        if said.code != 0:
            return 0
        total = sum(device["sum_bytes"] or 0 for device in json.loads(said.stdout)["devices"])
        if total > largest:
            base = self.context.out / name
            Path(f"{base}.json").write_bytes(said.stdout)
            Path(f"{base}.smi").write_text(machine.smi("--query-compute-apps=pid,used_memory", "--format=csv,noheader"))
            Path(f"{base}.txt").write_bytes(run([self.command, "explain", str(process)], merge=True).stdout)
        return int(total)


def descendants(process: int) -> Iterator[int]:
    """Yields a process and its descendants."""
    yield process
    for child in run(["pgrep", "-P", str(process)]).text.split():
        yield from descendants(int(child))


def shares(table: Dict[str, List[Dict[str, object]]]) -> Iterator[str]:
    """Yields a line for each device: the shares of its memory by the source of the rows."""
    for device in table["devices"]:
        total, rest = device["sum_bytes"], device["rest_bytes"]
        rows = device["rows"]
        if not total:
            continue
        assert isinstance(total, int) and isinstance(rest, int) and isinstance(rows, list)
        by: Dict[str, int] = {}
        for row in rows:
            if row["place"] == "sum":
                by[row["method"]] = by.get(row["method"], 0) + row["bytes"]
        known = ", ".join(f"{method} {100 * part / total:.2f} %" for method, part in sorted(by.items()))
        yield f"device {device['device']} ({device['sum']}): {known}; rest {rest >> 20} MiB, {100 * rest / total:.2f} %"
