#!/usr/bin/env bash
# Records real programs on this machine's GPU and checks their snapshots with check-snapshot.py, with PyTorch's own tools,
# and for the expected contents.
set -u

usage() {
    cat <<'TEXT'
usage: scripts/gpu-snapshots.sh [--lib PATH] [--out DIR] [--build-dir DIR]
Needs nvcc, a driver, and for most of it python3 with torch. Exit code: 0 all well, 1 something is wrong, 2 it could not run.
TEXT
}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
lib=$root/target/release/libcachealloc.so
[ -e "$lib" ] || lib=$root/.carry/libcachealloc.so
out=$root/.out/gpu-snapshots
build=$root/.out/gpu-build
while [ $# -gt 0 ]; do
    case $1 in
    --lib) lib=$2; shift ;;
    --out) out=$2; shift ;;
    --build-dir) build=$2; shift ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
    esac
    shift
done
fail() {
    echo "gpu-snapshots: $*" >&2
    exit 2
}
[ -e "$lib" ] || fail "no library at $lib (make, or --lib PATH)"
lib=$(cd "$(dirname "$lib")" && pwd)/$(basename "$lib")
nvcc=$(command -v "${NVCC:-nvcc}") || fail "no nvcc"
mkdir -p "$out" "$build" || exit 2
out=$(cd "$out" && pwd)
build=$(cd "$build" && pwd)
rm -f "$out"/*.pickle
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d '. ')
for program in streams_threads cublas_gemm thrust_temporaries; do
    "$nvcc" -std=c++17 -O2 -g ${capability:+-arch=sm_$capability} -Xcompiler -pthread -o "$build/$program.recorded" \
        "$root/tests/gpu/$program.cu" -lcuda -lcublas || fail "$program does not build"
done
wrong=0
record() { # name command...: runs it natively and recorded, compares the exit code, and checks what it left
    local name=$1 code
    shift
    (cd "$out" && CACHEALLOC_CONF="record:all,snapshot:$name-%p-%n.pickle,$conf" LD_PRELOAD=$lib timeout -k 5 200 "$@") \
        >"$out/$name.log" 2>&1
    code=$?
    if [ "$code" != 0 ]; then
        echo "$name: exit code $code"
        wrong=1
    fi
    local files=("$out/$name"-*.pickle)
    if [ ! -e "${files[0]}" ]; then
        echo "$name: no snapshot"
        wrong=1
        return
    fi
    python3 "$root/scripts/check-snapshot.py" "${files[@]}" >"$out/$name.check" 2>&1 || { echo "$name: $(tail -n 3 "$out/$name.check")"; wrong=1; }
    python3 "$root/tests/gpu/py/judge_snapshot.py" "$name" "${files[@]}" || wrong=1
}
conf=stacks:all
record cpp "$build/streams_threads.recorded"
record cublas "$build/cublas_gemm.recorded"
record thrust "$build/thrust_temporaries.recorded"
has() { python3 -c "import $1" 2>/dev/null; }
if has torch; then
    record torch env PYTORCH_NO_CUDA_MEMORY_CACHING=1 TRAIN_STEPS=5 python3 "$root/tests/gpu/py/train.py"
    record nccl python3 "$root/tests/gpu/py/nccl_allreduce.py"
fi
has cupy && record cupy python3 "$root/tests/gpu/py/cupy_ops.py"
has jax && record jax env XLA_PYTHON_CLIENT_ALLOCATOR=platform python3 "$root/tests/gpu/py/jax_ops.py"
[ "$wrong" = 0 ] && echo "all snapshots are sound"
exit $wrong
