#!/usr/bin/env bash
# Runs captures that allocate on this machine's GPU: programs that check their results themselves, because without the
# library they fail. Needs nvcc; python3 with torch and cupy for the rest.
#
# usage: scripts/gpu-graphs.sh [--lib PATH] [--only PATTERN]
set -u

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
lib=$root/target/release/libcachealloc.so
[ -e "$lib" ] || lib=$root/.carry/libcachealloc.so
only=
while [ $# -gt 0 ]; do
    case $1 in
    --lib) lib=$2; shift ;;
    --only) only=$2; shift ;;
    *) sed -n '2,5s/^# //p' "$0" >&2; exit 2 ;;
    esac
    shift
done
lib=$(realpath -e "$lib") || exit 2
build=$root/.out/gpu-build
mkdir -p "$build"
program=$build/graph_memory
"${NVCC:-nvcc}" -std=c++17 -O2 -arch=native -o "$program" "$root/tests/gpu/graph_memory.cu" -lcuda || exit 2

failures=0
check() { # name settings variables... -- command...
    local name=$1 settings=$2 variables=() out rc
    shift 2
    while [ "$1" != -- ]; do variables+=("$1"); shift; done
    shift
    [[ $name =~ $only ]] || return
    out=$(timeout -k 5 300 env "${variables[@]}" LD_PRELOAD="$lib" CACHEALLOC_CONF="$settings" GPU_TEST_UNDER_LIBRARY=1 \
        "$@" 2>&1)
    rc=$?
    if [ $rc = 0 ] && ! grep -q FAIL <<<"$out" && grep -q 'ok$' <<<"$out"; then
        echo "$name: ok"
        grep '^time:' <<<"$out" | sed 's/^/    /'
    else
        failures=$((failures + 1))
        echo "$name: exit $rc"
        printf '    %s\n' "${out//$'\n'/$'\n'    }"
    fi
}

reuse=graph_capture_record_stream_reuse
for mode in ordered strict relaxed; do
    check "modes-$mode" "free_mode:$mode" -- "$program" modes
    check "threads-$mode" "free_mode:$mode" -- "$program" threads
done
check modes-no-reuse "$reuse:false" -- "$program" modes
check modes-expandable expandable_segments:true -- "$program" modes
check modes-limited gpu_memory_limit_mb:600 -- "$program" modes
check modes-recorded "record:all,snapshot:/tmp/gpu-graphs-%p.pickle" -- "$program" modes
rm -f /tmp/gpu-graphs-*.pickle
check ordered graph_pool:true -- "$program" ordered
check ordered-nodes "" -- "$program" ordered
if python3 -c 'import torch' 2>/dev/null; then
    raw=PYTORCH_NO_CUDA_MEMORY_CACHING=1
    for mode in ordered strict relaxed; do
        check "torch-$mode" "free_mode:$mode" $raw -- python3 "$root/tests/gpu/py/graph_torch.py"
    done
    check torch-no-reuse "$reuse:false" $raw -- python3 "$root/tests/gpu/py/graph_torch.py"
    reference=$(mktemp)
    for model in mlp transformer; do
        GRAPH_MODEL=$model python3 "$root/tests/gpu/py/graph_backward.py" >"$reference" || failures=$((failures + 1))
        for capture in relaxed thread_local global; do
            check "backward-$model-$capture" "" $raw GRAPH_MODEL=$model GRAPH_MODE=$capture GRAPH_REFERENCE="$reference" -- \
                python3 "$root/tests/gpu/py/graph_backward.py"
        done
    done
    rm -f "$reference"
    check torch-own-cache "" -- python3 "$root/tests/gpu/py/graph_torch.py"
fi
if python3 -c 'import cupy' 2>/dev/null; then
    check cupy "" -- python3 "$root/tests/gpu/py/graph_cupy.py"
    check cupy-no-reuse "$reuse:false" -- python3 "$root/tests/gpu/py/graph_cupy.py"
fi
[ $failures = 0 ]
