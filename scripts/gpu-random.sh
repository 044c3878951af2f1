#!/bin/sh
# Runs random programs on this machine's GPU, without and with the library, for a given time:
#
#   scripts/gpu-random.sh --lib LIB --sim DIR [--judge FILE] [--seconds N] [--seed S] [--jobs N] [--theme T] [--out DIR]
#
# DIR has the simulated driver, which decides which programs are valid; FILE is the built judge (beside
# it by default). Needs no cargo. Prints, as it goes, the number of programs and steps, and each difference
# with its program, which is reduced and kept in the folder of --out (gpu-random-found); the exit code is
# 1 if any was found. It ends within a few seconds after --seconds, and on SIGTERM, with a summary.
set -eu

lib= sim= judge= seconds=60 seed=1 jobs=1 theme=all out=gpu-random-found
while [ $# -gt 0 ]; do
    case $1 in
        --lib) lib=$2 ;;
        --sim) sim=$2 ;;
        --judge) judge=$2 ;;
        --seconds) seconds=$2 ;;
        --seed) seed=$2 ;;
        --jobs) jobs=$2 ;;
        --theme) theme=$2 ;;
        --out) out=$2 ;;
        *) echo "gpu-random.sh: $1?" >&2; exit 2 ;;
    esac
    shift 2
done
[ -n "$lib" ] && [ -n "$sim" ] || { echo "gpu-random.sh --lib LIB --sim DIR" >&2; exit 2; }
lib=$(realpath "$lib")
sim=$(realpath "$sim")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A folder in which the simulated driver has the name that programs open.
mkdir "$work/sim"
for name in libcuda.so.1 libcuda.so; do
    if [ -e "$sim/$name" ]; then
        ln -s "$(realpath "$sim/$name")" "$work/sim/libcuda.so.1"
        break
    fi
done
[ -e "$work/sim/libcuda.so.1" ] || { echo "gpu-random.sh: no libcuda.so in $sim" >&2; exit 2; }
[ -n "$judge" ] || for place in "$sim/judge" "$sim/../judge"; do
    [ -x "$place" ] && judge=$place && break
done
[ -n "$judge" ] && [ -x "$judge" ] || { echo "gpu-random.sh: where is the judge? --judge FILE" >&2; exit 2; }

end=$((seed + 1000000000))
"$judge" run --gpu --lib "$lib" --driver "$work/sim" --scratch "$work/runs" --seconds "$seconds" \
    --seeds "$seed..$end" --theme "$theme" --jobs "$jobs" --out "$out" &
child=$!
# On SIGTERM, the judge prints its summary.
trap 'kill -TERM $child 2>/dev/null' TERM INT HUP
code=0
wait $child || code=$?
while kill -0 $child 2>/dev/null; do
    code=0
    wait $child || code=$?
done
exit $code
