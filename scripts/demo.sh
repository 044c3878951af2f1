#!/bin/sh
# Shows the product: the same program natively and under the library, on this machine's GPU or, where there is none, on
# the simulated driver. Needs gcc; no CUDA toolkit.
set -eu
cd "$(dirname "$0")/.."
target=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)
library=$target/release/libcachealloc.so
[ -e "$library" ] || { echo "demo: $library is missing: run make" >&2; exit 2; }
program=$target/samples/01-loop
rounds=${1:-600}

scripts/samples.sh >/dev/null 2>&1 || gcc -O2 -g -o "$program" samples/01-loop.c -ldl
report=$(mktemp)
trap 'rm -f "$report"' EXIT
if "$program" 1 >/dev/null 2>&1; then
    echo "demo: on this machine's GPU"
    driver=
else
    cargo build -q --profile checked -p simulated-driver
    folder=$target/checked/simulated
    mkdir -p "$folder"
    ln -sf ../libcuda.so "$folder/libcuda.so.1"
    driver=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    echo "demo: no GPU here (no libcuda.so.1, or cuInit fails): on the simulated driver"
    export LD_LIBRARY_PATH="$driver" SIM_REPORT="$report"
fi

# Prints how many of these calls reached the simulated driver in the last run.
reached() {
    [ -z "$driver" ] || awk -v name="$1" '$1 == "call" && $2 == name { n += $3 } END { print "  " name " calls that reached the driver: " n + 0 }' "$report"
    [ -z "$driver" ] || awk '$1 == "virtual_ns" { printf "  simulated time: %.1f ms\n", $2 / 1e6 }' "$report"
}
run() {
    echo
    echo "$ $*"
    : >"$report"
    start=$(date +%s%N)
    env "$@" "$program" "$rounds" 2>&1 | sed 's/^/  /'
    end=$(date +%s%N)
    [ -n "$driver" ] || echo "  $(((end - start) / 1000000)) ms"
    reached cuMemAlloc_v2
}
run NATIVELY=1
run LD_PRELOAD="$library" CACHEALLOC_CONF=stats_on_exit:stderr
# Once more with history: which line allocated what, in the format of PyTorch's viewer.
mkdir -p "$target/demo"
cd "$target/demo"
run LD_PRELOAD="$library" CACHEALLOC_CONF=record:all,snapshot:loop.pickle
cargo build -q --release -p cachealloc-cli
"$target/release/cachealloc" top-sites loop.pickle | sed 's/^/  /'
"$target/release/cachealloc" report --force loop.pickle
echo
echo "  report:   $PWD/loop.html (open it in a browser)"
echo "  snapshot: $PWD/loop.pickle (opens at https://pytorch.org/memory_viz as well)"
