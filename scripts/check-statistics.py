#!/usr/bin/env python3
"""Checks statistics as cachealloc writes them (JSON): all keys of PyTorch, and the relations between them.

    scripts/check-statistics.py [--in-order] FILE...

Several reports of one file, one after the other, with --in-order: totals and peaks only grow."""
import json
import sys

STATS = ["allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
         "inactive_split_bytes", "requested_bytes"]
METRICS = ["current", "peak", "allocated", "freed"]
COUNTERS = ["num_alloc_retries", "num_ooms", "max_split_size", "num_sync_all_streams", "num_device_alloc",
            "num_device_free", "num_oom_rejections"]
KEYS = sorted([f"{stat}.{pool}.{metric}" for stat in STATS for pool in ["all", "large_pool", "small_pool"]
               for metric in METRICS]
              + [f"oversize_{what}.{metric}" for what in ["allocations", "segments"] for metric in METRICS] + COUNTERS)


def check(stats):
    assert list(stats) == KEYS, "the keys are PyTorch's, in its order"
    for key in KEYS:
        begin, _, metric = key.rpartition(".")
        assert stats[key] >= 0 or (key, stats[key]) == ("max_split_size", -1), key
        if metric == "current":
            assert stats[key] == stats[begin + ".allocated"] - stats[begin + ".freed"], key
            assert stats[key] <= stats[begin + ".peak"], key
        if ".all." in key and metric != "peak":
            parts = [stats[key.replace(".all.", pool)] for pool in (".small_pool.", ".large_pool.")]
            assert stats[key] == sum(parts), key
    order = ["requested_bytes", "active_bytes", "reserved_bytes"]
    sizes = [stats[f"{name}.all.current"] for name in order]
    assert sizes == sorted(sizes), dict(zip(order, sizes))
    assert stats["allocated_bytes.all.current"] <= stats["active_bytes.all.current"]


def grew(before, after):
    for key in KEYS:
        if key.startswith("num_") or key.endswith((".peak", ".allocated", ".freed")):
            assert after[key] >= before[key], f"{key} fell from {before[key]} to {after[key]}"


def main():
    in_order = sys.argv[1] == "--in-order"
    decoder = json.JSONDecoder()
    for path in sys.argv[1 + in_order:]:
        text = open(path).read()
        count, before, place = 0, {}, 0
        while text[place:].strip():
            report, end = decoder.raw_decode(text[place:].lstrip())
            place += len(text[place:]) - len(text[place:].lstrip()) + end
            everything = {**report["devices"], **{f"context {c['id']}": c["stats"] for c in report["contexts"]}}
            for name, stats in everything.items():
                check(stats)
                if in_order and name in before:
                    grew(before[name], stats)
            before, count = everything, count + 1
        assert count, f"{path} is empty"
        total = sum(stats["allocation.all.allocated"] for stats in report["devices"].values())
        print(f"{path}: {count} sound reports, {total} allocations")


main()
