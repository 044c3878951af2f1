"""Reads a snapshot with PyTorch's own tools, and checks that it contains what it must.

usage: judge_snapshot.py NAME FILE...

NAME is the program that was recorded (see scripts/gpu_runner/suites/snapshots.py). Prints one line; exit code 1 if something is wrong.
"""
import collections
import pickle
import subprocess
import sys

# What the snapshots of each program must contain together: files or functions on stacks, and categories.
WANTED = {
    "cpp": (["streams_threads", "main"], ["app"]),
    "cublas": (["main"], ["app", "cuBLAS"]),
    "thrust": (["thrust"], ["app"]),
    "torch": (["train.py", "step", "TransformerEncoderLayer"], ["PyTorch", "cuBLAS"]),
    "nccl": (["nccl_allreduce.py", "ncclCommInit"], ["NCCL"]),
    "cupy": (["cupy_ops.py"], ["CuPy"]),
    "jax": (["jax_ops.py"], ["JAX"]),
}


def by_torch(path):
    """PyTorch's own readers, without those that fetch a script from the network."""
    try:
        from torch.cuda import _memory_viz
    except ImportError:
        return []
    wrong = []
    with open(path, "rb") as file:
        data = pickle.load(file)
    for reader in ["segsum", "trace", "segments", "memory", "trace_plot", "segment_plot"]:
        try:
            # The text of the flame graph, before it is drawn.
            plain = {"format_flamegraph": str} if reader in ("segments", "memory") else {}
            assert getattr(_memory_viz, reader)(data, **plain)
        except Exception as error:
            wrong.append(f"{reader}: {type(error).__name__}: {error}")
    command = [sys.executable, "-m", "torch.cuda._memory_viz", "stats", path]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        wrong.append(f"stats: {done.stderr.strip().splitlines()[-1:]}")
    return wrong


def main():
    name, files = sys.argv[1], sys.argv[2:]
    words, categories, wrong = set(), collections.Counter(), []
    entries = live = 0
    for path in files:
        wrong += by_torch(path)
        with open(path, "rb") as file:
            data = pickle.load(file)
        for trace in data["device_traces"]:
            entries += len(trace)
            for entry in trace:
                if entry["action"] == "alloc":
                    categories[entry.get("category", "unknown")] += entry["size"]
                for frame in entry.get("frames", []):
                    words.add(frame["name"])
                    words.add(frame["filename"])
        live += sum(segment["allocated_size"] for segment in data["segments"])
    text = "\n".join(words)
    in_text, in_categories = WANTED[name]
    wrong += [f"no {word!r} on any stack" for word in in_text if word not in text]
    wrong += [f"no category {word!r}" for word in in_categories if word not in categories]
    unknown = sum(1 for word in words if word == "??")
    print(f"{name}: {len(files)} files, {entries} entries, {len(words)} names, {live >> 20} MiB live, "
          f"by category {dict(categories.most_common(6))}" + (", unnamed frames" if unknown else ""))
    for line in wrong:
        print(f"{name}: WRONG: {line}")
    sys.exit(1 if wrong else 0)


main()
