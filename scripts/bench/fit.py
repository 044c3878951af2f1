#!/usr/bin/env python3
"""Compares the results of `cachealloc fit` for recorded traces with real runs of them on the simulated driver: the peak of
reserved memory, and the smallest gpu_memory_limit_mb. Exit code 1 if they differ by more than 1 %.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEVICE_MIB = 32768
KINDS = ["", "expandable_segments:true", "garbage_collection_threshold:0.8"]


def run(options, trace, folder, *conf):
    environment = dict(
        os.environ,
        LD_PRELOAD=str(options.lib),
        LD_LIBRARY_PATH=str(options.sim),
        SIM_MEMORY_MB=str(DEVICE_MIB),
        CACHEALLOC_CONF=",".join(filter(None, ["log:quiet", *conf])),
    )
    return subprocess.run([options.replay, trace], env=environment, cwd=folder, capture_output=True).returncode == 0


def real(options, trace, folder, conf, held_mib):
    """Returns the peak of reserved memory in bytes, and the smallest limit in MiB, by bisection."""
    if not run(options, trace, folder, conf, "stats_on_exit:s.json"):
        sys.exit(f"{trace.name} does not complete")
    devices = json.loads((folder / "s.json").read_text())["devices"].values()
    fails, works = held_mib - 1, 2 * held_mib
    while works - fails > 1:
        limit = (fails + works) // 2
        completes = run(options, trace, folder, conf, f"gpu_memory_limit_mb:{limit}")
        works, fails = (limit, fails) if completes else (works, limit)
    return sum(device["reserved_bytes.all.peak"] for device in devices), works


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lib", type=pathlib.Path, default=ROOT / "target/release/libcachealloc.so")
    parser.add_argument("--command", type=pathlib.Path, default=ROOT / "target/release/cachealloc")
    parser.add_argument("--sim", type=pathlib.Path, default=ROOT / "target/checked/simulated")
    parser.add_argument("--replay", type=pathlib.Path, default=ROOT / "target/checked/replay")
    options = parser.parse_args()
    worst = 0
    print(f"{'trace':31} {'options':32} {'reserved: said / real':>22} {'least limit: said / real':>25}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for trace in sorted((ROOT / "tests/data/traces").glob("*.txt")):
            run(options, trace, folder, "record:all", "context:none", "snapshot:s.pickle")
            for conf in KINDS:
                ask = [options.command, "fit", "s.pickle", "--json", f"--gpu={DEVICE_MIB}M", f"--options={conf}"]
                said = subprocess.run(ask, cwd=folder, capture_output=True, check=True).stdout
                device = json.loads(said)["devices"][0]
                tried = device["sets"][0]
                reserved, limit = real(options, trace, folder, conf, device["peak_bytes"] >> 20)
                ratios = [tried["peak_reserved_bytes"] / reserved, (tried["least_limit"]["bytes"] >> 20) / limit]
                worst = max(worst, *(abs(ratio - 1) for ratio in ratios))
                print(f"{trace.stem:31} {conf:32} {ratios[0]:22.4f} {ratios[1]:25.4f}")
    print(f"at most {100 * worst:.2f} % apart")
    return 1 if worst > 0.01 else 0


if __name__ == "__main__":
    sys.exit(main())
