"""Snapshots of real programs, checked by check-snapshot.py, by PyTorch's own tools, and for the expected contents.

Needs nvcc; PyTorch, CuPy and JAX for the rest.
"""

from __future__ import annotations

from gpu_runner import machine
from gpu_runner.context import CannotRun, Context
from gpu_runner.cuda import Compiler
from gpu_runner.paths import PYTHON_PROGRAMS, ROOT
from gpu_runner.process import Words, run
from gpu_runner.report import Report


def run_suite(context: Context) -> bool:
    context.needs_gpu()
    suite = Suite(context)
    compiler = Compiler(context.build)
    for name, source in (("cpp", "streams_threads"), ("cublas", "cublas_gemm"), ("thrust", "thrust_temporaries")):
        program = compiler.own(f"cuda/{source}.cu", "-O2", "-g", "-lcuda", "-lcublas", name=f"{source}.recorded")
        if not program.exists():
            raise CannotRun(f"tests/gpu/cuda/{source}.cu does not build")
        suite.record(name, [program])
    if machine.has_package("torch"):
        suite.script("torch", "pytorch/train.py", PYTORCH_NO_CUDA_MEMORY_CACHING="1", TRAIN_STEPS="5")
        suite.script("nccl", "pytorch/nccl_allreduce.py")
    if machine.has_package("cupy"):
        suite.script("cupy", "arrays/cupy_ops.py")
    if machine.has_package("jax"):
        suite.script("jax", "arrays/jax_ops.py", XLA_PYTHON_CLIENT_ALLOCATOR="platform")
    return suite.report.good


class Suite:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.report = Report(context.out)

    def script(self, name: str, script: str, **variables: str) -> None:
        self.record(name, machine.python(PYTHON_PROGRAMS / script), **variables)

    def record(self, name: str, command: Words, **variables: str) -> None:
        """Runs a program recorded, and checks the snapshots that it leaves."""
        if not self.context.wanted(name):
            return
        out = self.context.out
        settings = self.context.settings("record:all", f"snapshot:{name}-%p-%n.pickle", "stacks:all")
        ran = run(command, env=self.context.under_library(settings, **variables), cwd=out, seconds=200, merge=True)
        (out / f"{name}.log").write_bytes(ran.stdout)
        if ran.code != 0:
            self.report.failed(name, f"exit code {ran.code}", ran.tail(8))
        files = sorted(out.glob(f"{name}-*.pickle"))
        if not files:
            self.report.failed(name, "no snapshot")
            return
        checked = run(machine.python(ROOT / "scripts/check-snapshot.py", *files), merge=True, seconds=600)
        if checked.code != 0:
            self.report.failed(name, "check-snapshot.py", checked.tail(3))
        judged = run(machine.python(PYTHON_PROGRAMS / "judge_snapshot.py", name, *files), merge=True, seconds=600)
        if judged.code != 0:
            self.report.failed(name, "judge_snapshot.py", judged.text)
        elif checked.code == 0 and ran.code == 0:
            self.report.ok(name, judged.text.strip())
