#!/usr/bin/env python3
"""Replays real allocation traces through the library on the simulated driver and prints peak reserved / peak live,
beside PyTorch's allocator (torch_policy.py), both with ordinary and with expandable segments, and plain cudaMalloc; and, as
multiples of peak live, the smallest limit of either and the smallest device on which the trace still completes. Exit code 1
if a trace needs more than PyTorch does with ordinary segments, or fails with more memory than the smallest. With --repeat N
instead: the driver calls of N repetitions of the trace, with everything freed at each end and limits near the live memory,
as in a training run.
"""
import argparse
import csv
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import torch_policy

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRACES = ROOT / "tests/data/traces"
STATISTICS = pathlib.Path(tempfile.gettempdir()) / f"bench-traces-{os.getpid()}.json"
DEVICE_MIB = 32768
# More memory must not make a program fail: number of larger sizes to try, up to this multiple of the live memory.
LARGER_COUNT, LARGER_TO = 12, 1.35
REPEATED_RATIOS = [1.01, 1.02, 1.03, 1.04, 1.05, 1.07, 1.1]


def run(options, trace, conf, device_mib=DEVICE_MIB):
    environment = dict(
        os.environ,
        LD_PRELOAD=str(options.lib),
        LD_LIBRARY_PATH=str(options.sim),
        SIM_MEMORY_MB=str(device_mib),
        CACHEALLOC_CONF=",".join(filter(None, [f"stats_on_exit:{STATISTICS}", options.conf, *conf])),
    )
    return subprocess.run([options.replay, trace], env=environment, capture_output=True, text=True)


def replay(options, trace, conf):
    """Returns the peaks of live and of reserved memory, in MiB."""
    result = run(options, trace, conf)
    if result.returncode != 0:
        sys.exit(f"{trace.name}: exit code {result.returncode}: {result.stderr}")
    live = float(re.search(r"peak live ([\d.]+) MiB", result.stdout)[1])
    # In bytes, because the text table has only three digits.
    devices = json.loads(STATISTICS.read_text())["devices"].values()
    reserved = sum(device["reserved_bytes.all.peak"] for device in devices) / (1 << 20)
    return live, reserved


def within(options, trace, conf, limit=None, device=DEVICE_MIB):
    conf = conf if limit is None else [*conf, f"gpu_memory_limit_mb:{limit}"]
    return run(options, trace, conf, device).returncode == 0


def smallest(completes, live, reserved):
    """Returns the smallest size in MiB, by bisection, and those of LARGER_COUNT larger sizes with which the trace fails."""
    fails, works = int(live) - 1, int(reserved) + 32
    while works - fails > 1:
        size = (fails + works) // 2
        works, fails = (size, fails) if completes(size) else (works, size)
    top = int(live * LARGER_TO)
    larger = [works + (top - works) * number // LARGER_COUNT for number in range(1, LARGER_COUNT + 1)]
    return works, [size for size in larger if size > works and not completes(size)]


def by_pytorch(trace, live, is_expandable):
    """Returns the peak of reserved memory in PyTorch's allocator, and its smallest limit, in MiB."""
    events = [line.split() for line in trace.read_text().splitlines() if line[:2] in ("a ", "f ")]
    events = [(what, name, *map(int, size)) for what, name, *size in events]
    reserved = torch_policy.reserved_peak(events, is_expandable) / (1 << 20)
    within = lambda mib: torch_policy.reserved_peak(events, is_expandable, mib << 20) is not None
    fails, works = int(live) - 1, int(reserved) + 1
    while works - fails > 1:
        limit = (fails + works) // 2
        works, fails = (limit, fails) if within(limit) else (works, limit)
    return reserved, works


def repeated(trace, count):
    """Repeats the trace, each time with different names."""
    events = [line.split() for line in trace.read_text().splitlines() if line[:2] in ("a ", "f ")]
    lines = []
    for number in range(count):
        alive = {}
        for what, name, *size in events:
            if what == "a":
                alive[name] = None
            elif name not in alive:
                continue
            else:
                del alive[name]
            lines.append(" ".join([what, f"{number}.{name}", *size]))
        lines += [f"f {number}.{name}" for name in reversed(alive)]
    return "\n".join(lines) + "\n"


def calls_when_repeated(options, names):
    print(f"{'calls to the driver, by limit / live':36}" + "".join(f"{ratio:>8}" for ratio in REPEATED_RATIOS))
    with tempfile.NamedTemporaryFile("w+", suffix=".txt") as file:
        for name in names:
            file.seek(0)
            file.truncate()
            file.write(repeated(TRACES / f"{name}.txt", options.repeat))
            file.flush()
            trace = pathlib.Path(file.name)
            live, _ = replay(options, trace, [])
            cells = []
            for ratio in REPEATED_RATIOS:
                completes = within(options, trace, [], limit=int(live * ratio))
                devices = json.loads(STATISTICS.read_text())["devices"].values()
                calls = sum(device["num_device_alloc"] for device in devices)
                cells.append(f"{calls if completes else 'fails':>8}")
            print(f"{name:36}{''.join(cells)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lib", type=pathlib.Path, default=ROOT / "target/release/libcachealloc.so")
    parser.add_argument("--sim", type=pathlib.Path, default=ROOT / "target/release/sim")
    parser.add_argument("--replay", type=pathlib.Path, default=ROOT / "target/release/replay")
    parser.add_argument("--conf", default="", help="further options, as in CACHEALLOC_CONF")
    parser.add_argument("--repeat", type=int, metavar="N")
    parser.add_argument("traces", nargs="*")
    options = parser.parse_args()
    if options.repeat:
        names = [row["trace"] for row in csv.DictReader(open(TRACES / "reference.csv"))]
        calls_when_repeated(options, [name for name in names if name in (options.traces or names)])
        return 0
    worse = 0
    kinds = {"ordinary": [], "expandable": ["expandable_segments:true"]}
    heads = {"reserved": [*kinds, "PyTorch", "expandable", "native"], "limit": [*kinds, "PyTorch", "expandable"], "device": [*kinds]}
    cells_of = lambda texts: " ".join(f"{text:>10}" for text in texts)
    groups = [f"{head + ' / live':^{len(cells_of(columns))}}" for head, columns in heads.items()]
    print(f"{'':31} {'peak':>8} | {' | '.join(groups)}")
    print(f"{'trace':31} {'live MiB':>8} | {' | '.join(map(cells_of, heads.values()))}")
    logarithms = {kind: [] for kind in kinds}
    for row in csv.DictReader(open(TRACES / "reference.csv")):
        if options.traces and row["trace"] not in options.traces:
            continue
        trace = TRACES / f"{row['trace']}.txt"
        ratios, cells = {}, {head: [] for head in heads}
        for kind, conf in kinds.items():
            live, reserved = replay(options, trace, conf)
            ratios[kind] = reserved / live
            cells["reserved"].append(f"{reserved / live:.3f}")
            for bound in ("limit", "device"):
                completes = lambda mib: within(options, trace, conf, **{bound: mib})
                works, odd = smallest(completes, live, reserved)
                cells[bound].append(f"{works / live:.3f}")
                worse += len(odd)
                for mib in odd:
                    print(f"{row['trace']}, {kind}: completes with a {bound} of {works} MiB, but not of {mib}")
            if not row["trace"].startswith("mm_"):
                logarithms[kind].append(math.log(ratios[kind]))
        mark = ""
        for is_expandable in (False, True):
            reserved, limit = by_pytorch(trace, live, is_expandable)
            cells["reserved"].append(f"{reserved / live:.3f}")
            cells["limit"].append(f"{limit / live:.3f}")
            if is_expandable:
                continue
            if ratios["ordinary"] > reserved / live + 0.0005:
                worse, mark = worse + 1, "  more than PyTorch"
            # The table is from a simulation, within 0.007 of real runs.
            if abs(reserved / live - float(row["pytorch"])) > 0.0006:
                worse, mark = worse + 1, mark + f"  not {row['pytorch']} of PyTorch"
        cells["reserved"].append(row["native"])
        print(f"{row['trace']:31} {live:8.1f} | {' | '.join(map(cells_of, cells.values()))}{mark}")
    for kind, values in logarithms.items():
        if values:
            print(f"geometric mean of the training traces, {kind}: {math.exp(sum(values) / len(values)):.4f}")
    return 1 if worse else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        STATISTICS.unlink(missing_ok=True)
