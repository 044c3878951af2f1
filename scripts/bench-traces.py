#!/usr/bin/env python3
"""Replays real allocation traces through the library on the simulated driver and prints peak reserved / peak live,
beside PyTorch's allocator and plain cudaMalloc, with ordinary and with expandable segments; and, as multiples of peak
live, the smallest gpu_memory_limit_mb at which the trace still completes. Exit code 1 if a trace needs more than
PyTorch does.
"""
import argparse
import csv
import math
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TRACES = ROOT / "tests/data/traces"


def run(options, trace, conf):
    environment = dict(
        os.environ,
        LD_PRELOAD=str(options.lib),
        LD_LIBRARY_PATH=str(options.sim),
        SIM_MEMORY_MB="32768",
        CACHEALLOC_CONF=",".join(filter(None, ["stats_on_exit:stderr", options.conf, *conf])),
    )
    return subprocess.run([options.replay, trace], env=environment, capture_output=True, text=True)


def replay(options, trace, conf):
    """Peak live and peak reserved, in MiB."""
    result = run(options, trace, conf)
    if result.returncode != 0:
        sys.exit(f"{trace.name}: exit code {result.returncode}: {result.stderr}")
    live = float(re.search(r"peak live ([\d.]+) MiB", result.stdout)[1])
    reserved = float(re.search(r"reserved peak +([\d.]+) MiB", result.stderr)[1])
    return live, reserved


def smallest_limit(options, trace, conf, live, reserved):
    """In MiB, found by halving: a larger limit is taken to be no worse."""
    fails, works = int(live) - 1, int(reserved) + 32
    while works - fails > 1:
        limit = (fails + works) // 2
        if run(options, trace, [*conf, f"gpu_memory_limit_mb:{limit}"]).returncode == 0:
            works = limit
        else:
            fails = limit
    return works


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lib", type=pathlib.Path, default=ROOT / "target/release/libcachealloc.so")
    parser.add_argument("--sim", type=pathlib.Path, default=ROOT / "target/release/sim")
    parser.add_argument("--replay", type=pathlib.Path, default=ROOT / "target/release/replay")
    parser.add_argument("--conf", default="", help="further options, as in CACHEALLOC_CONF")
    parser.add_argument("traces", nargs="*")
    options = parser.parse_args()
    worse = 0
    kinds = {"ordinary": [], "expandable": ["expandable_segments:true"]}
    print(f"{'':31} {'peak':>8} |  {'reserved / live':^42} | {'smallest limit / live':^21}")
    heads = [*kinds, "PyTorch", "native"]
    print(f"{'trace':31} {'live MiB':>8} | {' '.join(f'{head:>10}' for head in heads)} | {'  '.join(kinds)}")
    logarithms = {kind: [] for kind in kinds}
    for row in csv.DictReader(open(TRACES / "reference.csv")):
        if options.traces and row["trace"] not in options.traces:
            continue
        trace = TRACES / f"{row['trace']}.txt"
        ratios, limits = {}, {}
        for kind, conf in kinds.items():
            live, reserved = replay(options, trace, conf)
            ratios[kind] = reserved / live
            limits[kind] = smallest_limit(options, trace, conf, live, reserved) / live
            if not row["trace"].startswith("mm_"):
                logarithms[kind].append(math.log(ratios[kind]))
        # The reference has three decimals.
        more = [kind for kind in kinds if ratios[kind] > float(row["pytorch"]) + 0.0005]
        worse += len(more)
        cells = [f"{ratios[kind]:10.3f}" for kind in kinds] + [f"{row['pytorch']:>10}", f"{row['native']:>10}"]
        least = "  ".join(f"{limits[kind]:{len(kind)}.3f}" for kind in kinds)
        mark = f"  {', '.join(more)}: more than PyTorch" if more else ""
        print(f"{row['trace']:31} {live:8.1f} | {' '.join(cells)} | {least}{mark}")
    for kind, values in logarithms.items():
        if values:
            print(f"geometric mean of the training traces, {kind}: {math.exp(sum(values) / len(values)):.4f}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
