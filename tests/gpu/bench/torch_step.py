"""A training step on PyTorch's own cache against the same step under the library with PyTorch's cache off.

usage: torch_step.py LIBRARY [ROUNDS] [FREE_MODE...]

Machines drift, so all processes live at once and take turns of a few steps; while one trains the others wait for a line. Each
round has one turn of each kind, and ratios are within the round. PyTorch's cache runs twice in a round: the ratio of
these two says what the noise is. Prints `name value unit` lines: the median, and the standard error of it (of a normal
distribution), of the time of a step and of the processor's time, of all threads. The losses must be equal to the last digit.
TRAIN names another program that takes turns: `torch_ddp.py`, with TRAIN_KIND `ddp` or `fsdp`, a process on each GPU.
"""
# needs: torch
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile

PROGRAMS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "py/pytorch")
TRAIN = os.path.join(PROGRAMS, os.environ.get("TRAIN", "train.py"))
# In the first turns the caches still learn the sizes.
WARM_UP = 5


class Trainer:
    def __init__(self, environment):
        self.stderr = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [sys.executable, TRAIN],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            text=True,
        )

    def turn(self):
        """Returns the time of a step and its processor time in milliseconds, and the loss."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        words = self.process.stdout.readline().split()
        if len(words) != 3:
            self.process.wait()
            sys.exit(f"training failed:\n{self.end()[1][-2000:]}")
        return float(words[0]), float(words[1]), words[2]

    def end(self):
        """Returns the memory that PyTorch reserved, in MiB, and the library's output at the end."""
        out = self.process.communicate()[0]
        self.stderr.seek(0)
        reserved = re.search(r"reserves (\d+) MiB", out)
        return reserved and float(reserved.group(1)), self.stderr.read()


def reserved_peak(stderr):
    """Returns the table's `reserved peak` in MiB, whatever its unit."""
    found = re.search(r"reserved peak\D*([\d.]+)\s*([KMG]i?B|bytes|B)?", stderr)
    if not found:
        return None
    scale = {"K": 2**10, "M": 2**20, "G": 2**30}.get((found.group(2) or "B")[0], 1)
    return float(found.group(1)) * scale / 2**20


def say(name, ratios):
    ratios = sorted(ratios)
    # Half of the interquartile range; a normal distribution has a deviation of 1.48 times that. The error of a median
    # is 1.25 times that of a mean.
    quarter = len(ratios) // 4
    spread = (ratios[-1 - quarter] - ratios[quarter]) / 2 * 1.48
    print(f"{name} {statistics.median(ratios):.4f} x")
    print(f"{name}_error {1.25 * spread / math.sqrt(len(ratios)):.4f} x")
    print(f"{name}_least {ratios[0]:.4f} x")
    print(f"{name}_most {ratios[-1]:.4f} x")


def main():
    library = os.path.abspath(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    modes = sys.argv[3:] or ["ordered"]
    os.environ.setdefault("TRAIN_TURNS", "16")
    ours = lambda mode: {
        "LD_PRELOAD": library,
        "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
        "CACHEALLOC_CONF": f"free_mode:{mode},stats_on_exit:stderr",
    }
    trainers = {"torch": Trainer({}), "again": Trainer({}), **{mode: Trainer(ours(mode)) for mode in modes}}
    kinds, turns = list(trainers), {kind: [] for kind in trainers}
    equal = True
    for number in range(WARM_UP + rounds):
        first = number % len(kinds)
        for kind in kinds[first:] + kinds[:first]:
            turns[kind].append(trainers[kind].turn())
        equal &= len({turns[kind][-1][2] for kind in kinds}) == 1
    ends = {kind: trainer.end() for kind, trainer in trainers.items()}
    measured = {kind: [turn[:2] for turn in all_turns[WARM_UP:]] for kind, all_turns in turns.items()}
    print(f"torch_step {statistics.median(wall for wall, _ in measured['torch']):.3f} ms")
    print(f"torch_step_cpu {statistics.median(cpu for _, cpu in measured['torch']):.3f} ms")
    print(f"torch_peak_reserved {ends['torch'][0]:.0f} MiB")
    for kind in kinds[1:]:
        pairs = list(zip(measured[kind], measured["torch"]))
        say(f"{kind}_step_ratio", [one[0] / torch[0] for one, torch in pairs])
        say(f"{kind}_cpu_ratio", [one[1] / torch[1] for one, torch in pairs])
        if kind in modes:
            print(f"{kind}_peak_reserved {reserved_peak(ends[kind][1]) or math.nan:.0f} MiB")
    print(f"losses_equal {int(equal)} bool")


main()
