"""A training step on PyTorch's own cache against the same step under the library with PyTorch's cache off.

usage: torch_step.py LIBRARY [PAIRS] [FREE_MODE...]

Machines drift, so processes alternate: one of each kind in every round, ratios within the round, medians and spread
over the rounds. PyTorch's cache runs twice in a round, and the ratio of these two says what the machine's noise is.
Prints `name value unit` lines. The losses must be equal to the last digit.
"""
# needs: torch
import os
import re
import statistics
import subprocess
import sys

TRAIN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "py", "train.py")


def run(environment):
    done = subprocess.run(
        [sys.executable, TRAIN], env={**os.environ, **environment}, capture_output=True, text=True, timeout=240
    )
    if done.returncode:
        sys.exit(f"training failed with {environment}:\n{done.stdout}\n{done.stderr[-2000:]}")
    ms = float(re.search(r"([\d.]+) ms a step", done.stdout).group(1))
    torch_mib = float(re.search(r"reserves (\d+) MiB", done.stdout).group(1))
    loss = re.search(r"loss (\S+)", done.stdout).group(1)
    return ms, torch_mib, loss, done.stderr


def reserved_peak(stderr):
    """The table's `reserved peak` in MiB, whatever unit it is printed in."""
    found = re.search(r"reserved peak\D*([\d.]+)\s*([KMG]i?B|bytes|B)?", stderr)
    if not found:
        return None
    scale = {"K": 2**10, "M": 2**20, "G": 2**30}.get((found.group(2) or "B")[0], 1)
    return float(found.group(1)) * scale / 2**20


def main():
    library = os.path.abspath(sys.argv[1])
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    modes = sys.argv[3:] or ["ordered"]
    os.environ.setdefault("TRAIN_STEPS", "60")
    times = {"torch": [], "again": [], **{mode: [] for mode in modes}}
    losses, peak = set(), {}
    for number in range(pairs):
        kinds = list(times)
        turn = number % len(kinds)
        for kind in kinds[turn:] + kinds[:turn]:
            environment = {}
            if kind in modes:
                environment = {
                    "LD_PRELOAD": library,
                    "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
                    "CACHEALLOC_CONF": f"free_mode:{kind},stats_on_exit:stderr",
                }
            ms, torch_mib, loss, stderr = run(environment)
            times[kind].append(ms)
            losses.add(loss)
            mib = reserved_peak(stderr) if kind in modes else torch_mib
            if mib is not None:
                peak[kind] = max(mib, peak.get(kind, 0))
    print(f"torch_step {statistics.median(times['torch']):.3f} ms")
    print(f"torch_peak_reserved {peak['torch']:.0f} MiB")
    for mode in ["again", *modes]:
        ratios = sorted(ours / torch for ours, torch in zip(times[mode], times["torch"]))
        print(f"{mode}_step {statistics.median(times[mode]):.3f} ms")
        print(f"{mode}_step_ratio {statistics.median(ratios):.4f} x")
        print(f"{mode}_step_ratio_least {ratios[0]:.4f} x")
        print(f"{mode}_step_ratio_most {ratios[-1]:.4f} x")
        if mode in modes:
            print(f"{mode}_peak_reserved {peak.get(mode, float('nan')):.0f} MiB")
    print(f"losses_equal {int(len(losses) == 1)} bool")


main()
