#!/usr/bin/env bash
# Runs programs under NVIDIA's tools on this machine's GPU, without and with the library, and compares what the tools
# find: compute-sanitizer, Nsight Compute, cuda-gdb, users of CUPTI, and clients of MPS. A tool that is missing, or
# cannot work here, is skipped with the reason.
set -u

usage() {
    cat <<'TEXT'
usage: scripts/gpu-tools.sh [--lib PATH] [--out DIR] [--build-dir DIR] [--only PATTERN] [--conf TEXT]
  --only PATTERN   only steps whose name matches: sanitizer-*, ncu, gdb-*, cupti, profiler, mps-*
Exit code: 0 all the same, 1 something differs, 2 it could not run.
TEXT
}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
lib=$root/target/release/libcachealloc.so
[ -e "$lib" ] || lib=$root/.carry/libcachealloc.so
out=$root/.out/gpu-tools
build=$root/.out/gpu-build
only=
conf=
while [ $# -gt 0 ]; do
    case $1 in
    --lib) lib=$2; shift ;;
    --out) out=$2; shift ;;
    --build-dir) build=$2; shift ;;
    --only) only=$2; shift ;;
    --conf) conf=$2; shift ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
    esac
    shift
done
fail() {
    echo "gpu-tools: $*" >&2
    exit 2
}
[ -e "$lib" ] || fail "no library at $lib (make, or --lib PATH)"
lib=$(cd "$(dirname "$lib")" && pwd)/$(basename "$lib")
nvcc=$(command -v "${NVCC:-nvcc}") || fail "no nvcc"
mkdir -p "$out" "$build/tools" || exit 2
out=$(cd "$out" && pwd)
build=$(cd "$build/tools" && pwd)
export CACHEALLOC_CONF=free_mode:ordered${conf:+,$conf} PYTHONUNBUFFERED=1
toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
tool() { # name: its path, also where only the toolkit has it
    command -v "$1" || { [ -x "$toolkit/bin/$1" ] && echo "$toolkit/bin/$1"; }
}
wanted() { [ -z "$only" ] || [[ $1 =~ $only ]]; }
differences=0
say() { printf '%-24s %s\n' "$1" "$2" | tee -a "$out/table.txt"; }
: >"$out/table.txt"

# ---- build ----

capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d '. ')
capability=${GPU_ARCH:-${capability:+sm_$capability}}
compile() { # output source flags...
    local output=$1 source=$2
    shift 2
    "$nvcc" -std=c++17 ${capability:+-arch=$capability} -Xcompiler -pthread -o "$build/$output" "$root/tests/gpu/$source" "$@" \
        >"$out/build-$output.log" 2>&1 || { rm -f "$build/$output"; return 1; }
}
libraries=(-L"$build")
for directory in "$toolkit"/lib64 "$toolkit"/lib "$toolkit"/targets/x86_64-linux/lib "$toolkit"/extras/CUPTI/lib64; do
    [ -d "$directory" ] || continue
    libraries+=(-L"$directory" -Xlinker -rpath -Xlinker "$directory")
    versioned=$(find "$directory" -maxdepth 1 -name 'libcupti.so.*' | sort | head -n 1)
    [ -z "$versioned" ] || ln -sf "$versioned" "$build/libcupti.so"
done
driver=$(ldconfig -p 2>/dev/null | awk '$1 == "libcuda.so.1" { print $NF; exit }')
[ -z "$driver" ] || ln -sf "$driver" "$build/libcuda.so"
compile planted tools/planted.cu -O2 -lineinfo "${libraries[@]}" &
compile planted-debug tools/planted.cu -g -G "${libraries[@]}" &
compile watched tools/watched.cu -O2 -I"$toolkit/extras/CUPTI/include" "${libraries[@]}" -lcupti -lcuda &
compile streams_threads streams_threads.cu -O2 "${libraries[@]}" &
compile hazards hazards.cu -O2 "${libraries[@]}" -lcuda &
compile ipc ipc.cu -O2 "${libraries[@]}" -lcuda &
wait
[ -x "$build/planted" ] || fail "tests/gpu/tools/planted.cu does not build: $(grep -m1 -i error "$out/build-planted.log")"

# ---- what is compared ----

# Masks differences between two runs without the library: addresses, process IDs, times, and the library's messages.
mask() {
    grep -a -v -E '^(cachealloc|time:)|^==(PROF|WARNING)== *$' |
        sed -E 's/0x[0-9a-fA-F]+/ADDRESS/g; s/==[0-9]+==/==PID==/g; s/(process|Process|pid|PID|LWP|Thread) [0-9]+/\1 N/g; s/[0-9]+(\.[0-9]+)? (s|ms|us)\b/N \2/g'
}
# Runs a command without and with the library, filters the output by `keep_lines`, and compares it and the exit code.
# The output without the library is searched for `must`, and for `cannot`: the reason why the tool cannot work here.
keep_lines='.'
must=.
cannot='no such text'
with_library=(env "LD_PRELOAD=$lib" GPU_TEST_UNDER_LIBRARY=1)
compare() { # name seconds command...
    local name=$1 seconds=$2 code_native code_ours reason
    shift 2
    wanted "$name" || return
    timeout -k 5 "$seconds" "$@" >"$out/$name.native" 2>&1 </dev/null
    code_native=$?
    if reason=$(grep -a -m 1 -E "$cannot" "$out/$name.native"); then
        say "$name" "skipped: $reason"
        return
    fi
    if [ "$code_native" = 124 ] || ! grep -a -q -E -- "$must" "$out/$name.native"; then
        say "$name" "skipped: natively it does not do its work (exit $code_native): $(tail -n 1 "$out/$name.native" | cut -c1-120)"
        return
    fi
    timeout -k 5 "$seconds" "${with_library[@]}" "$@" >"$out/$name.ours" 2>&1 </dev/null
    code_ours=$?
    for side in native ours; do mask <"$out/$name.$side" | grep -a -E -- "$keep_lines" >"$out/$name.$side.kept"; done
    if [ "$code_native" != "$code_ours" ]; then
        say "$name" "DIFFERS: exit $code_native natively, $code_ours under the library"
    elif ! diff -u "$out/$name.native.kept" "$out/$name.ours.kept" >"$out/$name.diff"; then
        say "$name" "DIFFERS: $(grep -m 1 '^[-+][^-+]' "$out/$name.diff" | cut -c1-140)"
    else
        say "$name" "ok: exit $code_native, $(wc -l <"$out/$name.native.kept") lines; $(grep -a -m 1 -E -- "$must" "$out/$name.native" | sed 's/^=* *//' | cut -c1-90)"
        return
    fi
    differences=$((differences + 1))
}

# ---- compute-sanitizer: the mistake is found, with the same words ----

if sanitizer=$(tool compute-sanitizer); then
    keep_lines='Invalid|ERROR SUMMARY|RACECHECK SUMMARY|[Rr]ace|Uninitialized|Leaked|LEAK SUMMARY|bytes (before|after|inside)|^[a-z]+: cuda|neighbours'
    cannot='Device not supported|not supported on|Unable to|insufficient permission|Internal Sanitizer Error'
    must='ERROR SUMMARY: 0 errors'
    compare sanitizer-clean 100 "$sanitizer" --tool memcheck "$build/planted" clean
    must='Invalid __global__ write'
    compare sanitizer-overrun 100 "$sanitizer" --tool memcheck "$build/planted" overrun
    must='Leaked [0-9,]+ bytes'
    compare sanitizer-leak 100 "$sanitizer" --tool memcheck --leak-check full "$build/planted" leak
    must='[Rr]ace reported|hazard'
    compare sanitizer-race 100 "$sanitizer" --tool racecheck "$build/planted" race
    must='Uninitialized'
    compare sanitizer-unwritten 100 "$sanitizer" --tool initcheck "$build/planted" unwritten
else
    say "sanitizer" "skipped: no compute-sanitizer"
fi

# ---- Nsight Compute: the same kernels are seen ----

if ncu=$(tool ncu); then
    keep_lines='^ +[a-z_]+.*\([0-9]+, [0-9]+, [0-9]+\)x|^[a-z]+: cuda|neighbours'
    cannot='ERR_NVGPUCTRPERM|LibraryNotLoaded|Failed to initialize|not supported'
    must='Context'
    compare ncu 150 "$ncu" --clock-control none --section LaunchStats --launch-count 8 "$build/planted" clean
else
    say "ncu" "skipped: no ncu"
fi

# ---- cuda-gdb: the preload is for the program only ----

if gdb=$(tool cuda-gdb) && [ -x "$build/planted-debug" ]; then
    gdb_run() { # name commands... -- arguments of the program
        local name=$1 commands=()
        shift
        wanted "$name" || return
        while [ "$1" != -- ]; do commands+=(-ex "$1"); shift; done
        shift
        cat >"$build/$name.sh" <<'TEXT'
#!/bin/sh
exec "$DEBUGGER" -batch -nx -ex 'set startup-with-shell off' -ex 'set pagination off' \
    ${PROGRAM_PRELOAD:+-ex "set environment LD_PRELOAD $PROGRAM_PRELOAD"} "$@"
TEXT
        chmod +x "$build/$name.sh"
        with_library=(env "PROGRAM_PRELOAD=$lib")
        compare "$name" 120 env "DEBUGGER=$gdb" "$build/$name.sh" "${commands[@]}" --args "$build/planted-debug" "$@"
        with_library=(env "LD_PRELOAD=$lib" GPU_TEST_UNDER_LIBRARY=1)
    }
    keep_lines='^Breakpoint|^#0|exited (normally|with)|CUDA_EXCEPTION|received signal|^[a-z]+: cuda|neighbours'
    cannot='ptrace: Operation not permitted|not supported|could not be initialized|fatal:'
    must='exited normally'
    gdb_run gdb-clean run bt -- clean
    must='CUDA_EXCEPTION|Illegal|exited with'
    gdb_run gdb-null run bt -- null
    must='write_past_the_end'
    gdb_run gdb-breakpoint 'break write_past_the_end' run bt 'delete' continue -- overrun
else
    say "gdb" "skipped: no cuda-gdb, or no debug build"
fi

# ---- CUPTI: what a program and a framework see of themselves ----

keep_lines=.
cannot='^skipped:'
must='launches:'
if [ -x "$build/watched" ]; then
    compare cupti 120 "$build/watched"
else
    say cupti "skipped: it does not build: $(grep -m1 -i -E 'error|cannot' "$out/build-watched.log")"
fi
must='loss'
keep_lines='^[0-9]+ |^loss'
if python3 -c 'import torch' 2>/dev/null; then
    compare profiler 150 python3 "$root/tests/gpu/tools/profiled.py"
    compare profiler-no-cache 150 env PYTORCH_NO_CUDA_MEMORY_CACHING=1 python3 "$root/tests/gpu/tools/profiled.py"
else
    say profiler "skipped: no torch"
fi

# ---- MPS: two clients of one server ----

stop_mps() {
    [ -n "${mps:-}" ] || return
    echo quit | timeout 20 nvidia-cuda-mps-control >>"$out/mps.log" 2>&1
    # It was started here, with separate directories: processes that remain are ended by their IDs.
    local file
    for file in "$mps"/pipe/*.pid; do
        [ ! -e "$file" ] || kill "$(cat "$file")" 2>/dev/null
    done
    rm -rf "$mps"
    mps=
}
two_clients() { # name seconds command...: twice at once natively, then with the library in both, then in one of them
    local name=$1 seconds=$2 mode side wrong=''
    shift 2
    wanted "$name" || return
    for mode in native-native ours-ours ours-native; do
        for side in 1 2; do
            local kind=${mode%-*} environment=()
            [ $side = 1 ] || kind=${mode#*-}
            [ "$kind" = native ] || environment=("${with_library[@]}")
            { timeout -k 5 "$seconds" ${environment[@]+"${environment[@]}"} "$@" 2>"$out/$name.$mode.$side.err" </dev/null
              echo "exit $?"; } | mask >"$out/$name.$mode.$side" &
        done
        wait
        for side in 1 2; do cmp -s "$out/$name.native-native.1" "$out/$name.$mode.$side" || wrong="$wrong $mode.$side"; done
    done
    if [ -z "$wrong" ]; then
        say "$name" "ok: $(tail -n 2 "$out/$name.ours-ours.1" | tr '\n' ' ')"
    elif [[ $wrong == *native-native* ]]; then
        say "$name" "skipped: two native clients differ: $(tail -n 2 "$out/$name.native-native.2" | tr '\n' ' ')"
    else
        say "$name" "DIFFERS:$wrong"
        differences=$((differences + 1))
    fi
}
if ! wanted mps-streams && ! wanted mps-hazards && ! wanted mps-ipc; then
    :
elif ! command -v nvidia-cuda-mps-control >/dev/null; then
    say mps "skipped: no nvidia-cuda-mps-control"
else
    trap stop_mps EXIT
    trap 'exit 1' INT TERM HUP
    mps=$(mktemp -d /tmp/mps-XXXXXX)
    mkdir "$mps/pipe" "$mps/log"
    export CUDA_MPS_PIPE_DIRECTORY=$mps/pipe CUDA_MPS_LOG_DIRECTORY=$mps/log
    if ! timeout 20 nvidia-cuda-mps-control -d >"$out/mps.log" 2>&1; then
        say mps "skipped: the daemon does not start: $(tail -n 1 "$out/mps.log")"
    elif ! timeout 60 "$build/planted" clean >"$out/mps-first.log" 2>&1; then
        say mps "skipped: a native client does not run: $(tail -n 1 "$out/mps-first.log")"
    else
        say mps "server $(echo get_server_list | timeout 10 nvidia-cuda-mps-control 2>/dev/null | wc -w) running"
        two_clients mps-streams 150 "$build/streams_threads"
        two_clients mps-hazards 200 "$build/hazards" visible deadlock frees async
        two_clients mps-ipc 150 "$build/ipc"
        cp "$mps"/log/*.log "$out/" 2>/dev/null
    fi
    stop_mps
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
fi

echo "$differences differences; logs in $out"
[ "$differences" = 0 ]
