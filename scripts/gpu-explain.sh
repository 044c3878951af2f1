#!/usr/bin/env bash
# Breaks down the GPU memory of real programs: runs each under the library, calls `cachealloc explain` repeatedly while it
# runs, and prints the table with the largest sum, the figure of nvidia-smi, and the share that the rows explain.
#
# usage: scripts/gpu-explain.sh [--lib PATH] [--command PATH] [--out DIR] [--only PATTERN]
#
# Needs nvcc and nvidia-smi; for most of it python3 with torch, cupy, jax. Exit code: 0 each program has a table, 1 one has
# no table, 2 it could not run. Files in the folder: NAME.txt, NAME.json, NAME.log, and for a snapshot NAME.file.txt.
set -u

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
lib=$root/target/release/libcachealloc.so
[ -e "$lib" ] || lib=$root/.carry/libcachealloc.so
command=$root/target/release/cachealloc
[ -e "$command" ] || command=$root/.carry/cachealloc
out=$root/.out/gpu-explain
only=
while [ $# -gt 0 ]; do
    case $1 in
    --lib) lib=$2; shift ;;
    --command) command=$2; shift ;;
    --out) out=$2; shift ;;
    --only) only=$2; shift ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
    shift
done
lib=$(realpath -e "$lib") && command=$(realpath -e "$command") || exit 2
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2

# Prints the process and all its descendants.
tree() {
    local child
    echo "$1"
    for child in $(pgrep -P "$1"); do tree "$child"; done
}

# Prints the shares of a table by the source of each row.
shares() {
    python3 - "$1" <<'PY'
import json, sys
for device in json.load(open(sys.argv[1]))["devices"]:
    total = device["sum_bytes"]
    if not total:
        continue
    by = {}
    for row in device["rows"]:
        if row["place"] == "sum":
            by[row["method"]] = by.get(row["method"], 0) + row["bytes"]
    known = ", ".join(f"{method} {100 * bytes / total:.2f} %" for method, bytes in sorted(by.items()))
    rest = device["rest_bytes"]
    print(f"  device {device['device']} ({device['sum']}): {known}; rest {rest >> 20} MiB, {100 * rest / total:.2f} %")
PY
}

sum_of() { python3 -c 'import json,sys; print(sum(d["sum_bytes"] or 0 for d in json.load(open(sys.argv[1]))["devices"]))' "$1"; }

missing=0
explain() { # name command...
    local name=$1 program process best=0 sum
    shift
    [[ $name =~ $only ]] || return
    rm -f "$out/$name".*
    (cd "$out" && CACHEALLOC_CONF="record:state,snapshot:$name-%p-%n.pickle" LD_PRELOAD=$lib exec timeout -k 5 240 "$@") \
        >"$out/$name.log" 2>&1 &
    program=$!
    while kill -0 "$program" 2>/dev/null; do
        for process in $(tree "$program"); do
            "$command" explain --json "$process" >"$out/now.json" 2>/dev/null || continue
            sum=$(sum_of "$out/now.json")
            [ "$sum" -gt "$best" ] || continue
            best=$sum
            mv "$out/now.json" "$out/$name.json"
            nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader >"$out/$name.smi" 2>&1
            "$command" explain "$process" >"$out/$name.txt" 2>&1
        done
        sleep 0.1
    done
    wait "$program"
    echo "== $name: exit code $?"
    if [ "$best" = 0 ]; then
        echo "  no table"
        missing=1
        return
    fi
    sed 's/^/  /' "$out/$name.txt"
    sed 's/^/  nvidia-smi: /' "$out/$name.smi"
    shares "$out/$name.json"
    for file in "$out/$name"-*.pickle; do
        [ -e "$file" ] && "$command" explain "$file" >"$out/$name.file.txt" 2>&1 && sed 's/^/  at the end: /' "$out/$name.file.txt"
        rm -f "$file"
    done
}

has() { python3 -c "import $1" 2>/dev/null; }
nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used --format=csv,noheader
if nvcc=$(command -v "${NVCC:-nvcc}"); then
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '. ')
    "$nvcc" -std=c++17 -O2 -arch="sm_$capability" -Xcompiler -pthread -o "$out/cublas_gemm" "$root/tests/gpu/cublas_gemm.cu" \
        -lcuda -lcublas && explain cublas "$out/cublas_gemm"
    "$nvcc" -std=c++17 -O2 -arch="sm_$capability" -Xcompiler -pthread -o "$out/graph_memory" "$root/tests/gpu/graph_memory.cu" \
        -lcuda && explain graphs "$out/graph_memory" modes
fi
if has torch; then
    explain torch env TRAIN_STEPS=300 python3 "$root/tests/gpu/py/train.py"
    explain torch-uncached env PYTORCH_NO_CUDA_MEMORY_CACHING=1 TRAIN_STEPS=150 python3 "$root/tests/gpu/py/train.py"
    explain nccl python3 "$root/tests/gpu/py/nccl_allreduce.py"
fi
has cupy && explain cupy python3 "$root/tests/gpu/py/cupy_ops.py"
if has jax; then
    explain jax env XLA_PYTHON_CLIENT_ALLOCATOR=platform python3 "$root/tests/gpu/py/jax_ops.py"
    explain jax-async env TF_GPU_ALLOCATOR=cuda_malloc_async XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async python3 "$root/tests/gpu/py/jax_ops.py"
fi
exit $missing
