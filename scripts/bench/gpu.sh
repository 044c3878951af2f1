#!/usr/bin/env bash
# Measures an allocation and its free without the library, with cudaMallocAsync, in PyTorch's allocator and under the
# library, side by side in one run, and prints one table; then a training step on PyTorch's cache against the library.
# Machines drift, so all programs run in several alternating rounds, and the table has the medians over the rounds.
set -u

usage() {
    cat <<'TEXT'
usage: scripts/bench/gpu.sh [--lib PATH] [--other PATH] [--out DIR] [--build-dir DIR] [--rounds N] [--pairs N] [--mode FREE_MODE] [--no-torch]
  --other PATH another build of the library, measured in the same rounds
  --rounds N   rounds of the call benchmarks (default 3)
  --pairs N    turns of training that each kind takes (default 100)
TEXT
}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
lib=$root/target/release/libcachealloc.so
[ -e "$lib" ] || lib=$root/bin/libcachealloc.so
out=$root/.out/gpu-bench
build=$root/.out/gpu-build
rounds=3 pairs=100 mode=ordered torch=1 other=
while [ $# -gt 0 ]; do
    case $1 in
    --lib) lib=$2; shift ;;
    --other) other=$2; shift ;;
    --out) out=$2; shift ;;
    --build-dir) build=$2; shift ;;
    --rounds) rounds=$2; shift ;;
    --pairs) pairs=$2; shift ;;
    --mode) mode=$2; shift ;;
    --no-torch) torch= ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
    esac
    shift
done
fail() {
    echo "bench-gpu: $*" >&2
    exit 2
}
nvcc=$(command -v "${NVCC:-nvcc}") || fail "no nvcc"
mkdir -p "$out" "$build/lib" || exit 2
out=$(cd "$out" && pwd)
build=$(cd "$build" && pwd)
here=$root/tests/gpu/bench
ours=1
[ -z "$other" ] || other=$(cd "$(dirname "$other")" && pwd)/$(basename "$other") || exit 2
if [ -e "$lib" ]; then lib=$(cd "$(dirname "$lib")" && pwd)/$(basename "$lib"); else
    echo "bench-gpu: no library at $lib: only the others are measured" >&2
    ours=
fi

# ---- build ----
driver=$(ldconfig -p 2>/dev/null | awk '$1 == "libcuda.so.1" { print $NF; exit }')
[ -z "$driver" ] || ln -sf "$driver" "$build/lib/libcuda.so"
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d '. ')
arch=${GPU_ARCH:-${capability:+sm_$capability}}
"$nvcc" -std=c++17 -O2 ${arch:+-arch=$arch} -o "$build/pairs" "$here/pairs.cu" -L"$build/lib" -lcuda || fail "pairs does not build"
python=$(command -v python3 || true)
if [ -n "$torch" ] && torch_root=$("$python" -c 'import importlib.util, os; print(os.path.dirname(importlib.util.find_spec("torch").origin))' 2>/dev/null); then
    toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
    abi=$("$python" -c 'import torch; print(int(torch._C._GLIBCXX_USE_CXX11_ABI))')
    runtimes=$(find "$torch_root/.." "$toolkit" -name 'libcudart.so*' -print 2>/dev/null | head -n 1)
    # The allocator's own libraries name the runtime that they need; the linker need not resolve it again.
    g++ -std=c++17 -O2 -D_GLIBCXX_USE_CXX11_ABI="$abi" -o "$build/torch_pair" "$here/torch_pair.cpp" \
        -I"$torch_root/include" -I"$toolkit/include" -L"$torch_root/lib" -Wl,-rpath,"$torch_root/lib" \
        -Wl,-rpath,"$(dirname "${runtimes:-/}")" -Wl,--allow-shlib-undefined -lc10_cuda -lc10 -pthread \
        || { echo "bench-gpu: torch_pair does not build" >&2; rm -f "$build/torch_pair"; }
else
    torch=
    rm -f "$build/torch_pair"
fi

# ---- run ----
rm -f "$out"/*.figures
measure() { # column command...: figures are appended as `name value unit`
    local column=$1
    shift
    timeout -k 5 150 "$@" >>"$out/$column.figures" 2>"$out/$column.err" || echo "bench-gpu: $column failed" >&2
}
for ((round = 1; round <= rounds; round++)); do
    measure native "$build/pairs"
    measure native_async "$build/pairs" async
    [ ! -x "$build/torch_pair" ] || measure torch "$build/torch_pair"
    if [ -n "$ours" ]; then
        measure ours env LD_PRELOAD="$lib" CACHEALLOC_CONF="free_mode:$mode" "$build/pairs"
        measure ours_async env LD_PRELOAD="$lib" CACHEALLOC_CONF="free_mode:$mode" "$build/pairs" async
    fi
    [ -z "$other" ] || measure other env LD_PRELOAD="$other" CACHEALLOC_CONF="free_mode:$mode" "$build/pairs"
done
sed -i 's/^async_//' "$out"/*async.figures

# ---- table ----
python3 - "$out" "$rounds" <<'PY' | tee "$out/table.txt"
import os, statistics, sys
out, rounds = sys.argv[1], sys.argv[2]
columns = ["native", "native_async", "torch", "ours", "ours_async", "other"]
figures, names = {}, []
for column in columns:
    path = os.path.join(out, column + ".figures")
    for line in open(path) if os.path.exists(path) else []:
        words = line.split()
        if len(words) == 3 and words[2] == "ns":
            figures.setdefault((column, words[0]), []).append(float(words[1]))
            if words[0] not in names:
                names.append(words[0])
median = {key: statistics.median(values) for key, values in figures.items()}
heads = ["native", "async", "PyTorch", "ours", "ours async", "other", "native/ours", "ours-native"]
print(f"nanoseconds, medians of {rounds} rounds".ljust(38) + "".join(h.rjust(13) for h in heads))
for name in names:
    cells = [median.get((column, name)) for column in columns]
    row = name.ljust(38) + "".join(("-" if c is None else f"{c:.1f}").rjust(13) for c in cells)
    native, ours = cells[0], cells[3]
    if native and ours:
        row += f"{native / ours:.2f}x".rjust(13) + f"{ours - native:+.1f}".rjust(13)
    print(row)
PY
if [ -n "$torch" ] && [ -n "$ours" ] && [ "$pairs" -gt 0 ]; then
    "$python" "$here/torch_step.py" "$lib" "$pairs" "$mode" | tee "$out/torch_step.txt"
fi
