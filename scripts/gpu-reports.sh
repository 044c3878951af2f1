#!/usr/bin/env bash
# Checks on this machine's GPU that the command and its report find mistakes planted in programs, and measures a report of a
# million entries against PyTorch's own viewer page of the same file.
#
# usage: scripts/gpu-reports.sh [--lib PATH] [--command PATH] [--out DIR]
# Needs nvcc; python3 with torch and cupy for the rest. Exit code: 0 all found, 1 one was not, 2 it could not run.
set -u

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
lib=$root/target/release/libcachealloc.so
command=$root/target/release/cachealloc
out=$root/.out/gpu-reports
while [ $# -gt 0 ]; do
    case $1 in
    --lib) lib=$2; shift ;;
    --command) command=$2; shift ;;
    --out) out=$2; shift ;;
    *) sed -n '2,6s/^# //p' "$0" >&2; exit 2 ;;
    esac
    shift
done
lib=$(realpath -e "$lib") && command=$(realpath -e "$command") && mkdir -p "$out" && out=$(realpath "$out") || exit 2
program=$out/kept
"${NVCC:-nvcc}" -std=c++17 -O2 -g -arch=native -o "$program" "$root/tests/gpu/tools/kept.cu" || exit 2

wrong=0
line() { echo "$(basename "$1"):$(grep -n "planted: $2" "$1" | cut -d: -f1)"; } # source word
named() { # what place command...
    local what=$1 place=$2 first
    shift 2
    first=$("$@" 2>&1 | grep -m1 -F -- "$place")
    if [ -n "$first" ]; then
        echo "    $what: $first"
    else
        wrong=1
        echo "    $what: $place is not named by: ${*##*/}"
        "$@" 2>&1 | head -n 12 | sed 's/^/        /'
    fi
}
look() { # name source command...
    local name=$1 source=$2
    shift 2
    echo "$name"
    rm -f "$out/$name"*.pickle
    "$command" run --lib "$lib" --record=all --snapshot "$out/$name-%n.pickle" -- "$@" >"$out/$name.log" 2>&1 ||
        { wrong=1; echo "    exit $?"; tail -n 5 "$out/$name.log"; return; }
    local files=("$out/$name"-*.pickle)
    local file=${files[-1]}
    "$command" report --force -o "$out/$name.html" "$file" || wrong=1
    [ -n "$source" ] || { "$command" top-sites --by peak -n 6 "$file" 2>&1 | sed 's/^/    /'; return; }
    named weights "$(line "$source" weights)" "$command" top-sites --by peak -n 3 "$file"
    named leak "$(line "$source" leak)" "$command" top-sites --by live --at "$at" -n 3 "$file"
    named temporaries "$(line "$source" temporaries)" "$command" top-sites --by temporary -n 3 "$file"
}
at=end
look cpp "$root/tests/gpu/tools/kept.cu" "$program"
if python3 -c 'import cupy' 2>/dev/null; then
    # Python frees its arrays at exit, so that leaked memory is held longest.
    at=peak look cupy "$root/tests/gpu/py/planted_cupy.py" python3 "$root/tests/gpu/py/planted_cupy.py"
fi
if python3 -c 'import torch' 2>/dev/null; then
    look torch "" env PYTORCH_NO_CUDA_MEMORY_CACHING=1 TRAIN_STEPS=5 python3 "$root/tests/gpu/py/train.py"
    echo "a million entries"
    rm -f "$out"/million*.pickle
    LD_PRELOAD=$lib CACHEALLOC_CONF=record:all,snapshot:$out/million-%n.pickle PYTORCH_NO_CUDA_MEMORY_CACHING=1 TRAIN_STEPS=1200 \
        python3 "$root/tests/gpu/py/train.py" >"$out/million.log" 2>&1 || { wrong=1; tail -n 5 "$out/million.log"; }
    files=("$out"/million-*.pickle)
    timed() { # name command...
        local name=$1
        shift
        python3 - "$@" <<'PY' | sed "s/^/    $name: /"
import resource, subprocess, sys, time
began = time.perf_counter()
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
print(f"exit {code}, {time.perf_counter() - began:.2f} s, {used:.0f} MiB")
PY
    }
    ls -l "${files[-1]}" | awk '{print "    file: " $5 / 1e6 " MB"}'
    "$command" top-sites -n 1 "${files[-1]}" 2>&1 | head -n 1 | sed 's/^/    /'
    timed "report" "$command" report --force -o "$out/million.html" "${files[-1]}"
    timed "trace_plot" python3 -m torch.cuda._memory_viz trace_plot "${files[-1]}" -o "$out/trace_plot.html"
    ls -l "$out/million.html" "$out/trace_plot.html" | awk '{print "    " $NF ": " $5 / 1e6 " MB"}' | sed "s|$out/||"
fi
ranks() { # name launcher...: two processes, each with a snapshot of its own rank, and one report of both
    local name=$1 files
    shift
    rm -f "$out/$name"-*.pickle
    "$@" "$command" run --lib "$lib" --record=all --snapshot "$out/$name-%r-%p.pickle" -- "$program" >"$out/$name.log" 2>&1
    local code=$?
    files=("$out/$name"-0-*.pickle "$out/$name"-1-*.pickle)
    if [ $code = 0 ] && [ ${#files[@]} = 2 ] && [ -s "${files[0]}" ] && [ -s "${files[1]}" ] &&
        "$command" report --force -o "$out/$name.html" "${files[@]}"; then
        echo "$name: two ranks: $("$command" top-sites --by live --at end -n 1 "${files[@]}" | tail -n 1)"
    else
        wrong=1
        echo "$name: exit $code, ${files[*]##*/}"
        tail -n 5 "$out/$name.log"
    fi
}
command -v mpirun >/dev/null && ranks mpirun mpirun --allow-run-as-root --oversubscribe -n 2
command -v torchrun >/dev/null && ranks torchrun torchrun --no-python --nproc-per-node 2

if python3 -c 'import torch' 2>/dev/null; then
    echo "while it runs"
    (cd "$out" && exec env PYTORCH_NO_CUDA_MEMORY_CACHING=1 TRAIN_STEPS=1000000 "$command" run --lib "$lib" --record=state \
        --snapshot "$out/live-%n.pickle" -- python3 "$root/tests/gpu/py/train.py" >"$out/live.log" 2>&1) &
    process=$!
    sleep 12
    "$command" top -n 3 "$process" 2>&1 | sed 's/^/    /'
    "$command" stats "$process" 2>&1 | grep -E 'hit rate|served' | sed 's/^/    /'
    file=$("$command" snapshot "$process") && [ -s "$file" ] || { wrong=1; echo "    no snapshot: $file"; }
    echo "    snapshot: ${file##*/}: $("$command" top-sites -n 1 "$file" | head -n 1)"
    kill "$process"
    wait "$process" 2>/dev/null
fi
exit $wrong
