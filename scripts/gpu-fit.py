#!/usr/bin/env python3
"""Checks the predictions of `cachealloc fit` on this machine's GPU. Ten programs of tests/gpu/py/sizes.py are recorded once
each: the peak of reserved memory is compared, and each program runs under limits one hundredth above and below the predicted
least one, and under the least smaller limit that is also predicted to suffice, if any. Then the first program runs on a device
with little free memory: the least on which it completes, without and with the library, by bisection.

Needs python3 with torch, and exclusive use of the device. Exit code 1 if a prediction is more than 1 % off.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = "bert gpt images lstm unet experts graph process transforms tables".split()
DEVICE_MIB = 65536
MIB = 1 << 20


def built(name):
    return next(path for path in (ROOT / "target/release" / name, ROOT / ".carry" / name) if path.exists())


def run(folder, lib, *arguments, conf=()):
    """Returns whether it completes. With lib=None, it runs without the library."""
    environment = dict(os.environ, PYTORCH_NO_CUDA_MEMORY_CACHING="1")
    if lib:
        environment |= {"LD_PRELOAD": str(lib), "CACHEALLOC_CONF": ",".join(["log:quiet", *conf])}
    command = [sys.executable, ROOT / "tests/gpu/py/sizes.py", *arguments]
    ran = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    shortage = "out of memory" in ran.stderr or "OutOfMemory" in ran.stderr or "ALLOC_FAILED" in ran.stderr
    if ran.returncode and not shortage:
        print(f"{arguments}, {conf}: {ran.stderr[-400:]}", file=sys.stderr)
    return ran.returncode == 0


def fit(options, folder, sets):
    """Returns the predictions for each set of options, and the peak memory of the program."""
    ask = [options.command, "fit", "s.pickle", "--json", f"--gpu={DEVICE_MIB}M", *(f"--options={it}" for it in sets)]
    said = json.loads(subprocess.run(ask, cwd=folder, capture_output=True, check=True).stdout)["devices"][0]
    return said["sets"], said["peak_bytes"]


def compare(options, name):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        recorded = ["record:all", "context:none", "snapshot:s.pickle", "stats_on_exit:s.json"]
        if not run(folder, options.lib, name, conf=recorded):
            return f"{name:12} does not complete", 1.0, None
        (tried,), held = fit(options, folder, [""])
        devices = json.loads((folder / "s.json").read_text())["devices"].values()
        reserved = sum(device["reserved_bytes.all.peak"] for device in devices)
        least = tried["least_limit"]["bytes"]
        limits = [-(-least * 101 // (100 * MIB)), least * 99 // (100 * MIB)]
        limits += [limit // MIB for limit in tried["least_limit"]["also_bytes"][:1]]
        confs = [f"gpu_memory_limit_mb:{limit}" for limit in limits]
        said = {it["options"]: it["completes"] for it in fit(options, folder, confs)[0]}
        real = {conf: run(folder, options.lib, name, conf=[conf]) for conf in confs}
        ratio = tried["peak_reserved_bytes"] / reserved
        row = f"{name:12}{held / MIB:10.0f}{ratio:24.4f}{least / held:22.4f}"
        word = {True: "completes", False: "fails"}
        row += "".join(f"{word[said[conf]]:>14} / {word[real[conf]]:9}" for conf in confs)
        return row, max(abs(ratio - 1), 0 if said == real else 1), held


def least_left(folder, lib, held_mib):
    """Returns the least free device memory that suffices, in MiB, in steps of one hundredth of `held_mib`."""
    fails, works = 80, 130
    while works - fails > 1:
        share = (fails + works) // 2
        completes = run(folder, lib, PROGRAMS[0], str(held_mib * share // 100))
        works, fails = (share, fails) if completes else (works, share)
    return works


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lib", type=pathlib.Path, default=None)
    parser.add_argument("--command", type=pathlib.Path, default=None)
    parser.add_argument("--jobs", type=int, default=5)
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=PROGRAMS)
    options = parser.parse_args()
    options.lib = (options.lib or built("libcachealloc.so")).resolve()
    options.command = (options.command or built("cachealloc")).resolve()
    heads = "".join(f"{head + ': said / real':>26}" for head in ("1 % more", "1 % less", "a smaller one"))
    print(f"{'program':12}{'held, MiB':>10}{'reserved: said / real':>24}{'least limit / held':>22}{heads}")
    worst, held_by_first = 0, None
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for name, (row, off, held) in zip(options.programs, pool.map(lambda name: compare(options, name), options.programs)):
            print(row, flush=True)
            worst = max(worst, off)
            held_by_first = held if name == PROGRAMS[0] else held_by_first
    if held_by_first:
        with tempfile.TemporaryDirectory() as folder:
            held_mib = held_by_first // MIB
            least = {word: least_left(folder, lib, held_mib) for word, lib in (("natively", None), ("ours", options.lib))}
            print(f"{PROGRAMS[0]}, the least that is left, of {held_mib} MiB held:", *(f"{w} {l} %" for w, l in least.items()))
    return 1 if worst > 0.01 else 0


if __name__ == "__main__":
    sys.exit(main())
