#!/usr/bin/env bash
# Runs programs on this machine's GPU natively and under the library in each free mode, and compares exit code and
# output. What it runs is listed in tests/gpu/cases.txt (our own programs and the Python frameworks) and in
# tests/gpu/cuda-samples.txt (NVIDIA's samples, from a checkout that --samples names).
set -u

usage() {
    cat <<'TEXT'
usage: scripts/gpu-test.sh [options]
  --lib PATH        the library (default target/release/libcachealloc.so)
  --modes "M..."    free modes (default "strict ordered relaxed"); "" runs natively twice and compares that
  --conf TEXT       more settings, as in CACHEALLOC_CONF: "record:all,snapshot:/tmp/x-%p.pickle"
  --only PATTERN    only cases whose name matches this extended regular expression; may be repeated
  --samples DIR     a checkout of NVIDIA's cuda-samples
  --out DIR         where the logs of failures go (default .out/gpu-test); emptied first
  --keep-all        keep the logs of what passed, too
  --build-dir DIR   where programs are built (default .out/gpu-build)
  --build-only      build and stop
  --jobs N          programs run at once (default 4)
Needs nvcc and a driver; Python cases are skipped where their package is missing. Exit code: 0 all the same,
1 something differs or fails natively, 2 it could not run.
TEXT
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tests=$root/tests/gpu
lib=$root/target/release/libcachealloc.so
[ -e "$lib" ] || lib=$root/.carry/libcachealloc.so
modes="strict ordered relaxed"
conf=
only=
samples=
out=$root/.out/gpu-test
build=$root/.out/gpu-build
jobs=4
build_only=
keep_all=
while [ $# -gt 0 ]; do
    case $1 in
    --lib) lib=$2; shift ;;
    --modes) modes=$2; shift ;;
    --conf) conf=$2; shift ;;
    --only) only=${only:+$only|}$2; shift ;;
    --samples) samples=$2; shift ;;
    --out) out=$2; shift ;;
    --build-dir) build=$2; shift ;;
    --build-only) build_only=1 ;;
    --keep-all) keep_all=1 ;;
    --jobs) jobs=$2; shift ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
    esac
    shift
done

fail() {
    echo "gpu-test: $*" >&2
    exit 2
}
nvcc=$(command -v "${NVCC:-nvcc}") || fail "no nvcc"
if [ -n "$modes" ] && [ -z "$build_only" ]; then
    [ -e "$lib" ] || fail "no library at $lib (make, or --lib PATH)"
    lib=$(cd "$(dirname "$lib")" && pwd)/$(basename "$lib")
fi
case $out in "" | / | "$root" | "$HOME") fail "not emptying $out" ;; esac
rm -rf "$out"
mkdir -p "$out" "$build/lib" || exit 2
out=$(cd "$out" && pwd)
build=$(cd "$build" && pwd)
scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT

# ---- build ----

arch=${GPU_ARCH:-}
if [ -z "$arch" ]; then
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d '. ')
    arch=${capability:+sm_$capability}
fi
# Libraries may lie beside nvcc (toolkit) or come without the plain .so name (Python packages, bare driver).
toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
link_flags=(-L"$build/lib" -Xlinker -rpath -Xlinker "$build/lib")
for directory in "$toolkit"/lib64 "$toolkit"/lib "$toolkit"/targets/x86_64-linux/lib "$toolkit"/targets/sbsa-linux/lib; do
    [ -d "$directory" ] || continue
    link_flags+=(-L"$directory" -L"$directory/stubs" -Xlinker -rpath -Xlinker "$directory")
    for name in cudart cublas cublasLt cufft cusolver cusparse curand nvrtc; do
        versioned=$(find "$directory" -maxdepth 1 -name "lib$name.so.*" | sort | head -n 1)
        if [ -n "$versioned" ] && [ ! -e "$directory/lib$name.so" ]; then ln -sf "$versioned" "$build/lib/lib$name.so"; fi
    done
done
driver=$(ldconfig -p 2>/dev/null | awk '$1 == "libcuda.so.1" { print $NF; exit }')
[ -z "$driver" ] || ln -sf "$driver" "$build/lib/libcuda.so"

compile() { # directory output log nvcc-arguments...
    local from=$1 output=$2 log=$3
    shift 3
    if ! (cd "$from" && "$nvcc" -std=c++17 -O2 ${arch:+-arch=$arch} -Wno-deprecated-gpu-targets \
        -Xcompiler -pthread -o "$output" "$@" "${link_flags[@]}") >"$log" 2>&1; then
        rm -f "$output"
        echo "gpu-test: $(basename "$output") does not build:" >&2
        grep -E -i -m 5 'error|cannot' "$log" >&2
    fi
}
throttle() { while [ "$(jobs -rp | wc -l)" -ge "$1" ]; do wait -n; done; }
up_to_date() { [ -e "$1" ] && [ -z "$(find "$2" -newer "$1" -name '*.[ch]*' -print -quit)" ]; }

wanted() { [ -z "$only" ] || [[ $1 =~ $only ]]; }

# our own programs that the chosen cases use
programs=
while read -r name options command; do
    case $name in '' | '#'*) continue ;; esac
    wanted "$name" || continue
    for word in $command; do
        if [ -e "$tests/$word.cu" ] && [[ " $programs " != *" $word "* ]]; then programs="$programs $word"; fi
    done
done <"$tests/cases.txt"
cores=$(nproc)
for program in $programs; do
    read -r -a flags <<<"$(sed -n '1s,^// nvcc: *,,p' "$tests/$program.cu")"
    for kind in static shared; do
        up_to_date "$build/$program.$kind" "$tests" && continue
        throttle "$cores"
        compile "$tests" "$build/$program.$kind" "$build/$program.$kind.log" -cudart "$kind" "$program.cu" ${flags[@]+"${flags[@]}"} &
    done
done
# NVIDIA's samples
each_sample() { # runs "$@" with directory, name, sources, flags, arguments and options set
    local directory name sources flags arguments options
    while IFS='|' read -r directory sources flags arguments options; do
        case $directory in '' | '#'*) continue ;; esac
        for column in directory sources flags arguments options; do
            read -r "${column?}" <<<"${!column}" # trims it
            [ "${!column}" != - ] || printf -v "$column" ''
        done
        name=${directory##*/}
        if wanted "sample-$name" && [ -d "$samples/Samples/$directory" ]; then "$@"; fi
    done <"$tests/cuda-samples.txt"
}
build_sample() {
    local from=$samples/Samples/$directory into=$build/samples/$name source plain=() words=()
    mkdir -p "$into"
    up_to_date "$into/$name" "$from" && return
    read -r -a words <<<"$flags"
    for source in $sources; do
        case $source in
        *'>'*) throttle "$cores"; compile "$from" "$into/${source#*>}" "$into/build-fatbin.log" -fatbin -I"$samples/Common" "${source%>*}" & ;;
        *) plain+=("$source") ;;
        esac
    done
    for source in "$from"/data "$from"/*.mtx; do [ ! -e "$source" ] || ln -sfn "$source" "$into/"; done
    throttle "$cores"
    compile "$from" "$into/$name" "$into/build.log" -I"$samples/Common" -I. "${plain[@]}" ${words[@]+"${words[@]}"} &
}
if [ -n "$samples" ]; then
    samples=$(cd "$samples" && pwd) || exit 2
    each_sample build_sample
fi
wait
[ -z "$build_only" ] || exit 0

# ---- run ----

# Each task is one case in one mode; `cases` keeps the order for the table.
cases=()
declare -A option_of command_of directory_of
add() { # name options directory command
    cases+=("$1")
    option_of[$1]=$2
    directory_of[$1]=$3
    command_of[$1]=$4
}
python=$(command -v python3 || true)
has_package() { [ -n "$python" ] && "$python" -c "import importlib.util, sys; sys.exit(not importlib.util.find_spec('$1'))" 2>/dev/null; }
needs() { # the package that a Python case needs
    sed -n '1,12s/^# needs: //p' "$1"
}
while read -r name options command; do
    case $name in '' | '#'*) continue ;; esac
    wanted "$name" || continue
    both=
    for word in $command; do
        [ -e "$tests/$word.cu" ] && both=$word
        if [[ $word == py/* ]]; then
            package=$(needs "$tests/$word")
            if ! has_package "$package"; then
                echo "gpu-test: $name is skipped: no Python package $package" >&2
                continue 2
            fi
            command=${command/"$word"/"$python $tests/$word"}
        fi
    done
    if [ -n "$both" ]; then
        for kind in static shared; do add "$name.$kind" "$options" "$scratch" "${command/"$both"/"$build/$both.$kind"}"; done
    else
        add "$name" "$options" "$scratch" "$command"
    fi
done <"$tests/cases.txt"
add_sample() { add "sample-$name" "${options:--}" "$build/samples/$name" "./$name $arguments"; }
[ -z "$samples" ] || each_sample add_sample
[ ${#cases[@]} -gt 0 ] || fail "no case matches"

skipped() { # case mode
    awk -v mode="$2" -v name="${1%.static}" 'BEGIN { sub(/\.shared$/, "", name) } $1 == mode && $2 == name { found = 1 } END { exit !found }' "$tests/skip.txt"
}
run_task() { # case mode
    local options=${option_of[$1]} seconds=120 log=$scratch/$1.$2 environment=()
    [[ $options =~ t=([0-9]+) ]] && seconds=${BASH_REMATCH[1]}
    case $2 in
    native*) ;;
    *) environment=(LD_PRELOAD="$lib" CACHEALLOC_CONF="free_mode:$2${conf:+,$conf}" GPU_TEST_UNDER_LIBRARY=1) ;;
    esac
    local start=$SECONDS
    # Word splitting is how a case's command becomes words.
    # shellcheck disable=SC2086
    (cd "${directory_of[$1]}" 2>/dev/null && exec timeout -k 5 "$seconds" env PYTHONUNBUFFERED=1 ${environment[@]+"${environment[@]}"} ${command_of[$1]}) \
        >"$log.out" 2>"$log.err" </dev/null
    echo $? >"$log.rc"
    echo $((SECONDS - start)) >"$log.seconds"
    echo "$1 $2: exit $(cat "$log.rc") after $((SECONDS - start)) s" >>"$out/progress.txt"
    sed -E -f "$tests/mask.sed" "$log.out" >"$log.masked"
    case $options in *sort*) sort -o "$log.masked" "$log.masked" ;; esac
}
compared=$modes
[ -n "$modes" ] || compared="native-again"
for alone in '' 1; do
    for name in "${cases[@]}"; do
        if [[ ${option_of[$name]} == *alone* ]]; then [ -n "$alone" ] || continue; else [ -z "$alone" ] || continue; fi
        for mode in native $compared; do
            skipped "$name" "$mode" && continue
            throttle "$([ -n "$alone" ] && echo 1 || echo "$jobs")"
            run_task "$name" "$mode" &
        done
    done
    wait
done

# ---- compare ----

verdict() { # case mode -> ok, or what differs
    local log=$scratch/$1.$2 native=$scratch/$1.native rc
    rc=$(cat "$log.rc")
    case $rc in 124 | 137) echo HANG; return ;; esac
    [ "$rc" = "$(cat "$native.rc")" ] || { echo "exit $rc"; return; }
    if ! cmp -s "$log.masked" "$native.masked"; then echo differs; elif [ "$rc" = 0 ]; then echo ok; else echo same; fi
}
width=7
for name in "${cases[@]}"; do [ ${#name} -gt "$width" ] && width=${#name}; done
line="%-${width}s  %-10s"
differences=0 native_failures=0 rows=()
# shellcheck disable=SC2059,SC2086
rows+=("$(printf "$line" program native && printf '  %-10s' $compared)")
for name in "${cases[@]}"; do
    rc=$(cat "$scratch/$name.native.rc") native=ok keep=$keep_all
    if [ "$rc" != 0 ]; then
        native="exit $rc" keep=1
        [ "$rc" = 2 ] || native_failures=$((native_failures + 1)) # 2: a sample that this GPU cannot run
    fi
    # shellcheck disable=SC2059
    row=$(printf "$line" "$name" "$native")
    for mode in $compared; do
        if skipped "$name" "$mode"; then said=skipped; else said=$(verdict "$name" "$mode"); fi
        row+=$(printf '  %-10s' "$said")
        case $said in ok | same | skipped) continue ;; esac
        differences=$((differences + 1)) keep=1
        diff -u --label native --label "$mode" "$scratch/$name.native.masked" "$scratch/$name.$mode.masked" >"$out/$name.$mode.diff"
    done
    rows+=("$row")
    [ -z "$keep" ] || cp "$scratch/$name".*.out "$scratch/$name".*.err "$out"
done
seconds=$(cat "$scratch"/*.seconds | awk '{ sum += $1 } END { print sum }')
rows+=("${#cases[@]} programs, $differences differences, $native_failures fail natively; $seconds s of runs; logs of failures in $out")
printf '%s\n' "${rows[@]}" | tee "$out/table.txt"
[ "$differences" = 0 ] && [ "$native_failures" = 0 ]
