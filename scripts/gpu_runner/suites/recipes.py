"""The recipes of docs/recipes.md, as written, on small programs, for the frameworks that the machine has.

Exit code and output must equal those of the plain run, and the recording must have tensors, not segments. Needs nvcc or one of
the frameworks.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path

from gpu_runner import machine
from gpu_runner.context import Context
from gpu_runner.paths import CUDA_PROGRAMS, TESTS
from gpu_runner.recipe import PROGRAMS, Recipe, Recipes

FRAMEWORKS = ("rmm", "cudf", "tensorflow", "ipykernel")


def run_suite(context: Context) -> bool:
    context.needs_gpu()
    recipes = Recipes(context)
    recipes.report.line(machine.smi("--query-gpu=name,driver_version", "--format=csv,noheader").strip())
    for name, package, function in [
        ("pytorch", "torch", pytorch),
        ("loader", "torch", loader),
        ("ddp", "torch", ddp),
        ("pipeline", "torch", pipeline),
        ("cupy", "cupy", cupy),
        ("jax", "jax", jax),
        ("numba", "numba", numba),
        ("rmm", "rmm", rmm),
    ]:
        if context.wanted(name) and machine.has_package(package):
            function(recipes)
    if context.wanted("cublas") and machine.has_nvcc():
        cublas(recipes)
    if context.wanted("mpi") and machine.has_nvcc() and machine.mpirun():
        mpi(recipes)
    for package in FRAMEWORKS:
        if not machine.has_package(package):
            recipes.report.line(f"not run: no Python package {package}")
    if not machine.mpirun():
        recipes.report.line("not run: no mpirun")
    if machine.device_count() < 2:
        recipes.report.line("not run: pipeline: one device")
    return recipes.report.good


def pytorch(recipes: Recipes) -> None:
    recipe = recipes.begin("pytorch", "run --uncached --report; the module; stats and snapshot while it runs")
    recipe.reported("pytorch.py", "--uncached")
    recipe.is_there("step-4.pickle")
    recipe.segments("pytorch.py", recipe.record(recipe.script("pytorch.py")))
    while_it_runs(recipe)


def while_it_runs(recipe: Recipe) -> None:
    """Asks a program for its statistics and for a snapshot, once it waits for a file."""
    go_on, errors = recipe.folder / "go-on", recipe.folder / "live.err"
    command = ["cachealloc", "run", "--uncached", "--record", "--", *recipe.script("pytorch.py")]
    with errors.open("wb") as stderr:
        env = recipe.environment(RECIPE_GO_ON=str(go_on))
        live = subprocess.Popen(
            command, env=env, cwd=recipe.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr
        )
        try:
            for _ in range(600):
                if b"PyTorch counts" in errors.read_bytes() or live.poll() is not None:
                    break
                time.sleep(0.1)
            stats = recipe.run(["cachealloc", "stats", str(live.pid)], merge=True)
            rate = re.search("hit rate.*", stats.text)
            recipe.say(stats.code == 0 and rate is not None, f"stats: {' '.join(rate[0].split())}" if rate else stats.text)
            snapshot = recipe.run(["cachealloc", "snapshot", str(live.pid)]).text.strip()
            recipe.is_there(snapshot)
            go_on.touch()
            recipe.say(live.wait(60) == 0, "while it runs: exit code 0")
        finally:
            live.kill()
    recipe.tensors("pytorch.py", [recipe.folder / snapshot])


def loader(recipes: Recipes) -> None:
    recipes.begin("loader", "a DataLoader's workers, forked and spawned").reported("loader.py", "--uncached")


def ddp(recipes: Recipes) -> None:
    devices = machine.device_count()
    recipe = recipes.begin("ddp", f"torchrun, a rank for each of {devices} devices")
    torchrun = ["torchrun"] if shutil.which("torchrun") else machine.python("-m", "torch.distributed.run")
    ranks = ["--nproc-per-node", str(devices), "--master-port", "29571"]
    program = str(PROGRAMS / "ddp.py")
    launched = [*torchrun, *ranks, program]
    recipe.plain(launched)
    ours = ["cachealloc", "run", "--uncached", "--record", "--snapshot", "rank%r-%p.pickle", "--", *launched]
    recipe.same("run -- torchrun", ours)
    snapshots = recipe.files("rank*.pickle")
    recipe.count(devices, snapshots)
    for rank in range(devices):
        recipe.tensors("ddp.py", recipe.files(f"rank{rank}-*.pickle"), "--library", "NCCL")
    recipe.run(["cachealloc", "report", *map(str, snapshots), "-o", "all.html"])
    recipe.is_there("all.html")
    each = ["cachealloc", "run", "--record", "--", *machine.python(program)]
    recipe.same("torchrun --no-python .. cachealloc run", [*torchrun, "--no-python", *ranks, *each])
    recipe.count(devices, recipe.files("cachealloc-*.pickle"))


def pipeline(recipes: Recipes) -> None:
    if machine.device_count() < 2:
        return
    recipe = recipes.begin("pipeline", "several devices in one process, across_contexts:barrier")
    script, conf = recipe.script("pipeline.py"), "across_contexts:barrier"
    recipe.plain(script)
    recipe.same("run --uncached", ["cachealloc", "run", "--uncached", "--", *script], CACHEALLOC_CONF=conf)
    recipe.tensors("pipeline.py", recipe.record(script, "--uncached", CACHEALLOC_CONF=conf))


def cupy(recipes: Recipes) -> None:
    recipe = recipes.begin("cupy", "set_allocator(None) in the program")
    recipe.reported("cupy_arrays.py")
    recipe.segments("cupy_arrays.py", recipe.record(recipe.script("cupy_arrays.py"), RECIPE_CACHED="1"))


def jax(recipes: Recipes) -> None:
    recipe = recipes.begin("jax", "run --uncached --report")
    script = recipe.script("jax_arrays.py")
    recipe.reported("jax_arrays.py", "--uncached")
    recipe.tensors("jax_arrays.py", recipe.record(script, "--uncached", XLA_PYTHON_CLIENT_ALLOCATOR="cuda_async"))
    recipe.segments("jax_arrays.py", recipe.record(script))


def numba(recipes: Recipes) -> None:
    recipe = recipes.begin("numba", "run --report; each free when the array goes")
    recipe.reported("numba_arrays.py")
    script = recipe.script("numba_arrays.py")
    recipe.tensors("numba_arrays.py", recipe.record(script, NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT="1"))


def rmm(recipes: Recipes) -> None:
    recipe = recipes.begin("rmm", "reinitialize(pool_allocator=False) in place of a pool")
    recipe.reported("rmm_buffers.py")
    recipe.segments("rmm_buffers.py", recipe.record(recipe.script("rmm_buffers.py"), RECIPE_CACHED="1"))


def cublas(recipes: Recipes) -> None:
    recipe = recipes.begin("cublas", "nvcc -g app.cu -lcublas -o app; run --report")
    source = recipe.folder / "app.cu"
    shutil.copy(CUDA_PROGRAMS / "cublas_gemm.cu", source)
    shutil.copy(CUDA_PROGRAMS / "check.h", recipe.folder)
    if not recipe.builds(["-g", "app.cu", "-lcublas"]):
        return
    recipe.plain(["./app"])
    recipe.same("run --report", ["cachealloc", "run", "--report", "app.html", "--", "./app"])
    recipe.is_there("app.html")
    files = recipe.record(["./app"])
    recipe.tensors("app.cu", files, "--library", "cuBLAS")
    lines = source.read_text().splitlines()
    place = f"app.cu:{1 + next(i for i, line in enumerate(lines) if 'T *da = device_alloc' in line)}"
    sites = recipe.run(["cachealloc", "top-sites", "-n", "0", "--by", "count", *map(str, files)]).text
    site = next((line for line in sites.splitlines() if place in line), None)
    recipe.say(site is not None, f"its lines: {site.split('  ')[-1]}" if site else f"no call site at {place}")


def mpi(recipes: Recipes) -> None:
    recipe = recipes.begin("mpi", "mpirun, a snapshot for each rank")
    launcher = machine.mpirun()
    assert launcher
    # Without MPI's headers, the ranks run a program that does not communicate.
    flags = machine.mpi_flags()
    source = "cuda/mpi_exchange.cu" if flags else "tools/kept.cu"
    if not recipe.builds(["-g", str(TESTS / source), *flags]):
        return
    in_order = ["bash", "-c", 'set -o pipefail; "$@" | sort', "-", *launcher]
    recipe.plain([*in_order, "./app"])
    ours = ["cachealloc", "run", "--record", "--snapshot", "rank%r.pickle", "--", "./app"]
    recipe.same(f"mpirun .. run, {Path(source).name}", [*in_order, *ours])
    files = recipe.files("rank*.pickle")
    recipe.count(2, files)
    recipe.run(["cachealloc", "report", *map(str, files), "-o", "all.html"])
    recipe.is_there("all.html")
