#!/bin/sh
# Prints how the cost of calls grows with the number of objects: instructions per call under valgrind, which are the same
# on every machine. A row for each kind of tests/c/cost/curve.c, a column for each N.
#
#   scripts/bench/curves.sh [LIBRARY [N...]]    by default target/release/libcachealloc.so, and 1000 to 1000000
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
library=${1:-$root/target/release/libcachealloc.so}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- 1000 10000 100000 1000000
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
gcc -std=gnu11 -O1 -o "$folder/curve" "$root/tests/c/cost/curve.c" -ldl -lpthread
gcc -std=gnu11 -O1 -shared -fPIC -o "$folder/libcuda.so.1" "$root/tests/c/cost/growing_driver.c"

# counted KIND N DRIVER OPTIONS
counted() {
    LD_PRELOAD=$library LD_LIBRARY_PATH=$3 CACHEALLOC_CONF="snapshot:/dev/null/no$4" valgrind --tool=callgrind \
        --callgrind-out-file=/dev/null --toggle-collect=counted "$folder/curve" "$1" "$2" 2>&1 |
        awk '/ calls, / { calls = $1 } /Collected/ { count = $NF } END { print calls ? int(count / calls) : "-" }'
}

# row KIND DRIVER [OPTIONS [N-MAX]]
row() {
    printf '%-12s' "$1"
    for n in $sizes; do
        cost=-
        [ "$n" -gt "${4:-1000000}" ] || cost=$(counted "$1" "$n" "$2" "${3:-}")
        printf '%12s' "$cost"
    done
    echo
}

sizes=$*
printf '%-12s' N
printf '%12s' "$@"
echo
for kind in pending streams neighbours shared; do row $kind "$folder"; done
# All memory is in blocks of another stream.
printf '%-12s' order
for n in $sizes; do printf '%12s' "$(counted order "$n" "$folder" ",gpu_memory_limit_mb:$(((n * 4096 + 1048575) >> 20))")"; done
echo
# The driver supports no more contexts.
row contexts "$folder" "" 4000
# An arena is as large as the device, and under valgrind there is room for no more than 128 GiB.
row fragmented "$folder" ,expandable_segments:true 60000
simulated=$root/target/checked/sim
[ ! -e "$simulated" ] || row capture "$simulated"
