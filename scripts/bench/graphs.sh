#!/usr/bin/env bash
# Measures the memory that captured workloads keep reserved, with and without reuse, against PyTorch's own cache, and the
# cost of launching a graph with an allocation in it. Needs nvcc, and python3 with torch.
#
# usage: scripts/bench/graphs.sh [--lib PATH]
set -u

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
lib=$root/target/release/libcachealloc.so
[ -e "$lib" ] || lib=$root/bin/libcachealloc.so
if [ "${1:-}" = --lib ]; then lib=$2; fi
lib=$(realpath -e "$lib") || exit 2
build=$root/.out/gpu-build
mkdir -p "$build"
"${NVCC:-nvcc}" -std=c++17 -O2 -arch=native -o "$build/graph_memory" "$root/tests/gpu/cuda/graph_memory.cu" -lcuda || exit 2

run() { # name variables... -- command...
    local name=$1 variables=()
    shift
    while [ "$1" != -- ]; do variables+=("$1"); shift; done
    shift
    echo "$name: $(env "${variables[@]}" "$@" 2>&1 | tail -1)"
}
memory=(-- python3 "$root/tests/gpu/bench/graph_memory.py")
reuse=graph_capture_record_stream_reuse
raw=(PYTORCH_NO_CUDA_MEMORY_CACHING=1 "LD_PRELOAD=$lib")
run "memory, PyTorch, no reuse" "PYTORCH_CUDA_ALLOC_CONF=$reuse:False" "${memory[@]}"
run "memory, PyTorch, reuse" "PYTORCH_CUDA_ALLOC_CONF=$reuse:True" "${memory[@]}"
run "memory, ours, no reuse" "${raw[@]}" "CACHEALLOC_CONF=$reuse:false" "${memory[@]}"
run "memory, ours, reuse" "${raw[@]}" "${memory[@]}"
for _ in 1 2 3; do
    run "launch, natively" "CACHEALLOC=0" -- "$build/graph_memory" ordered
    run "launch, memory nodes" "LD_PRELOAD=$lib" -- "$build/graph_memory" ordered
    run "launch, graph_pool" "LD_PRELOAD=$lib" CACHEALLOC_CONF=graph_pool:true -- "$build/graph_memory" ordered
done
