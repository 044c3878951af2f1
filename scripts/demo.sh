#!/bin/sh
# Shows the product on this machine's GPU or, without one, on the simulated driver: the same program without and with the
# library, a snapshot and a report of its memory, and a program that runs out of memory. Needs gcc; no CUDA
# toolkit. Prints each command that it runs.
#
#   scripts/demo.sh [ROUNDS]      `make demo` builds what it needs
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
library=$target/demo/libcachealloc.so
command=$target/demo/cachealloc
for file in "$library" "$command"; do
    [ -e "$file" ] || { echo "demo: $file is missing: run make demo" >&2; exit 2; }
done
# The loader needs an absolute path.
library=$(cd "$target/demo" && pwd)/libcachealloc.so
program=$target/samples/01-loop
rounds=${1:-600}
simulated=
report=$(mktemp) said=$(mktemp)
trap 'rm -f "$report" "$said"' EXIT

show() {
    shows 0 "$@"
}
# Shows a command that must end with the exit code in the first argument.
shows() {
    wanted=$1
    shift
    echo
    echo "$ $*"
    code=0
    "$@" >"$said" 2>&1 || code=$?
    sed 's/^/  /' "$said"
    [ "$code" = "$wanted" ] || { echo "demo: this ended with code $code, not $wanted" >&2; exit 1; }
}
# Prints a count of the simulated driver from the last run.
count() {
    [ -z "$simulated" ] || awk '
        $1 == "call" && $2 == "cuMemAlloc_v2" { calls += $3 }
        $1 == "virtual_ns" { ns = $2 }
        END { printf "  cuMemAlloc_v2 calls that reached the driver: %d; simulated time: %.1f ms\n", calls, ns / 1e6 }
    ' "$report"
}

mkdir -p "$target/samples"
show gcc -O2 -g -o "$program" samples/01-loop.c -ldl
echo
if "$program" 1 >/dev/null 2>&1; then
    echo "This machine has a GPU."
else
    echo "No GPU here (no libcuda.so.1, or cuInit fails): the simulated driver stands in for it."
    simulated=$target/demo/simulated
    mkdir -p "$simulated"
    ln -sf ../libcuda.so "$simulated/libcuda.so.1"
    simulated=$(cd "$simulated" && pwd)
    export LD_LIBRARY_PATH="$simulated${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" SIM_REPORT="$report"
    echo "$ export LD_LIBRARY_PATH=$LD_LIBRARY_PATH"
fi
show "$program" "$rounds"
count
show env LD_PRELOAD="$library" CACHEALLOC_CONF=stats_on_exit:stderr "$program" "$rounds"
count
# Again with history: the allocations of each line, in the format of PyTorch's viewer.
snapshot=$target/demo/loop.pickle
show env LD_PRELOAD="$library" CACHEALLOC_CONF="record:all,snapshot:$snapshot" "$program" "$rounds"
show "$command" top-sites "$snapshot"
show "$command" report --force -o "${snapshot%.pickle}.html" "$snapshot"
echo
echo "And a program that runs out of memory: who asked, who holds what, and what would help."
hungry=$target/samples/07-out-of-memory
show gcc -O2 -g -o "$hungry" samples/07-out-of-memory.c -ldl
shows 1 "$command" run --report "$target/demo/oom.html" --gpu-memory-limit-mb 256 -- "$hungry"
echo
echo "The reports:   ${snapshot%.pickle}.html and $target/demo/oom.html (open them in a browser)"
echo "The snapshots: $snapshot and $target/demo/oom.pickle (open at https://pytorch.org/memory_viz as well)"
