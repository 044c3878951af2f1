"""The cost of recording: an allocation and its free with and without history, and the snapshot of many of them.

usage: record_cost.py LIBRARY

PyTorch's recorder (its cache on, no library) and the library's (PyTorch's cache off), from the same Python stack
of one program. Processes alternate; medians of five. Prints `name value unit` lines.
"""
# needs: torch
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

PAIRS = 100_000
ROUNDS = 5
DEPTH = 12  # Python frames; with torch's own, the native stack has some thirty


def pairs(count):
    """Returns the nanoseconds of one pair."""
    import torch

    def deep(level):
        if level:
            return deep(level - 1)
        start = time.perf_counter_ns()
        for _ in range(count):
            torch.empty(16384, device="cuda")
        return (time.perf_counter_ns() - start) / count

    return deep(DEPTH)


def child(kind):
    import torch

    torch.empty(1, device="cuda")
    pairs(2000)
    if kind.startswith("torch-"):
        stacks = kind.split("-")[1]
        torch.cuda.memory._record_memory_history(stacks=stacks, max_entries=10**7)
        pairs(2000)
    result = {"pair": min(pairs(PAIRS // 10) for _ in range(10))}
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "snapshot.pickle")
        start = time.perf_counter()
        if kind.startswith("torch-"):
            torch.cuda.memory._dump_snapshot(path)
        elif "record" in os.environ.get("CACHEALLOC_CONF", ""):
            code = ctypes.CDLL(None).cachealloc_snapshot(path.encode())
            assert code == 0, code
        if os.path.exists(path):
            result["seconds"] = time.perf_counter() - start
            result["bytes"] = os.path.getsize(path)
    print(json.dumps(result))


def run(kind, library):
    environment = dict(os.environ)
    if not kind.startswith("torch"):
        conf = {"off": "signal:off", "native": "record:all,stacks:native", "all": "record:all,stacks:all",
                "python": "record:all,stacks:python"}[kind.split("-")[1]]
        environment.update(LD_PRELOAD=library, PYTORCH_NO_CUDA_MEMORY_CACHING="1",
                           CACHEALLOC_CONF=f"{conf},log:quiet,max_entries:1000000,snapshot:/dev/null")
    done = subprocess.run([sys.executable, __file__, "--child", kind], env=environment, capture_output=True, text=True,
                          timeout=200)
    if done.returncode:
        sys.exit(f"{kind} failed:\n{done.stdout}\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    if sys.argv[1] == "--child":
        return child(sys.argv[2])
    library = os.path.abspath(sys.argv[1])
    kinds = ["torch", "torch-python", "torch-all", "ours-off", "ours-native", "ours-python", "ours-all"]
    results = {kind: [] for kind in kinds}
    for _ in range(ROUNDS if len(sys.argv) < 3 else int(sys.argv[2])):
        for kind in kinds:
            results[kind].append(run(kind, library))
    median = {(kind, key): statistics.median(r[key] for r in results[kind])
              for kind in kinds for key in results[kind][0]}
    for kind in kinds:
        print(f"{kind}_pair {median[kind, 'pair']:.0f} ns")
    for kind, base in [("torch-python", "torch"), ("torch-all", "torch"), ("ours-native", "ours-off"),
                       ("ours-python", "ours-off"), ("ours-all", "ours-off")]:
        print(f"{kind}_adds {median[kind, 'pair'] - median[base, 'pair']:.0f} ns")
        print(f"{kind}_snapshot {median[kind, 'seconds']:.3f} s")
        print(f"{kind}_snapshot_bytes {median[kind, 'bytes'] / 1e6:.2f} MB")


main()
