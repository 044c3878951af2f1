#!/usr/bin/env python3
"""Replays real allocation traces through the library on the simulated driver and prints peak reserved / peak live,
beside PyTorch's allocator and plain cudaMalloc. Exit code 1 if a trace needs more than PyTorch does.

usage: bench-traces.py [--lib PATH] [--sim DIR] [--replay PATH] [TRACE...]
"""
import argparse
import csv
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TRACES = ROOT / "tests/data/traces"


def replay(options, trace):
    environment = dict(
        os.environ,
        LD_PRELOAD=str(options.lib),
        LD_LIBRARY_PATH=str(options.sim),
        SIM_MEMORY_MB="32768",
        CACHEALLOC_CONF=",".join(filter(None, ["stats_on_exit:stderr", options.conf])),
    )
    result = subprocess.run([options.replay, trace], env=environment, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{trace.name}: exit code {result.returncode}: {result.stderr}")
    live = float(re.search(r"peak live ([\d.]+) MiB", result.stdout)[1])
    reserved = float(re.search(r"reserved peak +([\d.]+) MiB", result.stderr)[1])
    return live, reserved


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lib", type=pathlib.Path, default=ROOT / "target/release/libcachealloc.so")
    parser.add_argument("--sim", type=pathlib.Path, default=ROOT / "target/release/sim")
    parser.add_argument("--replay", type=pathlib.Path, default=ROOT / "target/release/replay")
    parser.add_argument("--conf", default="", help="further options, as in CACHEALLOC_CONF")
    parser.add_argument("traces", nargs="*")
    options = parser.parse_args()
    worse = 0
    print(f"{'trace':32} {'live MiB':>9} {'reserved':>9} {'ratio':>7} {'PyTorch':>8} {'native':>7}")
    for row in csv.DictReader(open(TRACES / "reference.csv")):
        if options.traces and row["trace"] not in options.traces:
            continue
        live, reserved = replay(options, TRACES / f"{row['trace']}.txt")
        ratio = reserved / live
        mark = ""
        # The reference has three decimals.
        if ratio > float(row["pytorch"]) + 0.0005:
            worse += 1
            mark = "  more than PyTorch"
        print(f"{row['trace']:32} {live:9.1f} {reserved:9.1f} {ratio:7.3f} {row['pytorch']:>8} {row['native']:>7}{mark}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
