#!/usr/bin/env bash
# Runs programs on this machine's GPU without the library and under it in each free mode, and compares exit code and
# output. The programs are listed in tests/gpu/cases.txt (this project's programs and the Python frameworks) and, for the
# checkouts of --samples and --library-samples, in tests/gpu/cuda-samples.txt and tests/gpu/library-samples.txt.
# Cases that differ in `ordered` are run again with fill:zero and in `strict`, to find the cause.
set -u

usage() {
    cat <<'TEXT'
usage: scripts/gpu-test.sh [options]
  --lib PATH        the library (default target/release/libcachealloc.so)
  --modes "M..."    free modes (default "strict ordered relaxed"); "" runs natively twice and compares that
  --conf TEXT       more settings, as in CACHEALLOC_CONF: "record:all,snapshot:/tmp/x-%p.pickle"
  --only PATTERN    only cases whose name matches this extended regular expression; may be repeated
  --samples DIR     a checkout of NVIDIA's cuda-samples
  --library-samples DIR  a checkout of NVIDIA's CUDALibrarySamples
  --out DIR         where the logs of failures go (default .out/gpu-test); emptied first
  --keep-all        keep the logs of what passed, too
  --build-dir DIR   where programs are built (default .out/gpu-build)
  --build-only      build and stop
  --jobs N          programs run at once (default 4)
  --limit N         start nothing after N seconds, and say what was not run
  --no-causes       do not run again what differs
Needs nvcc and a driver; Python cases are skipped where a package is missing. Exit code: 0 all the same (or known to
differ, see tests/gpu/known-differences.txt), 1 something differs or fails natively, 2 it could not run.
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
library_samples=
limit=
causes=1
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
    --library-samples) library_samples=$2; shift ;;
    --limit) limit=$2; shift ;;
    --no-causes) causes= ;;
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
    for name in cudart cublas cublasLt cufft cusolver cusolverMg cusparse curand nvrtc nvJitLink cupti; do
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

# Compiler flags for a program with MPI: -I, -L and -l of Open MPI's or MPICH's compiler wrapper.
mpi_flags() {
    local words
    words=$(mpicc -showme 2>/dev/null || mpicc -show 2>/dev/null) || return
    grep -oE -- '(^| )-(I|L|l)[^ ]+' <<<"$words"
}

# programs of this project that the chosen cases use
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
    # `MPI` among the flags stands for the flags of this machine's MPI: none if it has no compiler wrapper.
    for i in "${!flags[@]}"; do
        [ "${flags[i]}" = MPI ] || continue
        unset "flags[i]"
        for word in $(mpi_flags); do flags+=("$word"); done
    done
    for kind in static shared; do
        up_to_date "$build/$program.$kind" "$tests" && continue
        throttle "$cores"
        compile "$tests" "$build/$program.$kind" "$build/$program.$kind.log" -cudart "$kind" "$program.cu" ${flags[@]+"${flags[@]}"} &
    done
done
# Third-party programs: `each_sample FUNCTION` calls it with directory, name, sources, flags, arguments, options,
# from (where the sources lie) and into (where it is built) set.
each_sample() {
    [ -z "$samples" ] || each_line_of cuda-samples.txt "$samples/Samples" sample "$1"
    [ -z "$library_samples" ] || each_line_of library-samples.txt "$library_samples" library "$1"
}
each_line_of() { # list folder kind function
    local directory name sources flags arguments options from into program
    while IFS='|' read -r directory sources flags arguments options; do
        case $directory in '' | '#'*) continue ;; esac
        for column in directory sources flags arguments options; do
            read -r "${column?}" <<<"${!column}" # trims it
            [ "${!column}" != - ] || printf -v "$column" ''
        done
        program=${directory##*/}
        if [ "$3" = library ]; then # a folder may hold several: the last source names the program
            program=${sources##* }
            program=${program%.*}
        fi
        name=$3-${program%_example} from=$2/$directory into=$build/$3/$program
        if wanted "$name" && [ -d "$from" ] && enough_devices "$options"; then "$4"; fi
    done <"$tests/$1"
}
devices=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
enough_devices() { # options
    [[ ! $1 =~ gpus=([0-9]+) ]] || [ "$devices" -ge "${BASH_REMATCH[1]}" ]
}
build_sample() {
    local source plain=() words=() includes=()
    mkdir -p "$into"
    up_to_date "$into/$program" "$from" && return
    [ ! -d "$samples/Common" ] || includes=(-I"$samples/Common")
    read -r -a words <<<"$flags"
    for source in $sources; do
        case $source in
        *'>'*) throttle "$cores"; compile "$from" "$into/${source#*>}" "$into/build-${source##*.}.log" "-${source##*.}" ${includes[@]+"${includes[@]}"} "${source%>*}" & ;;
        *) plain+=("$source") ;;
        esac
    done
    # Files that a program reads at run time: its data folder, matrices, and the kernels that it compiles itself.
    for source in "$from"/data "$from"/*.mtx "$from"/*.cu "$from"/*.cuh "$from"/*.h; do [ ! -e "$source" ] || ln -sfn "$source" "$into/"; done
    throttle "$cores"
    compile "$from" "$into/$program" "$into/build.log" ${includes[@]+"${includes[@]}"} -I. "${plain[@]}" ${words[@]+"${words[@]}"} &
}
for checkout in samples library_samples; do
    [ -z "${!checkout}" ] || { printf -v "$checkout" '%s' "$(cd "${!checkout}" && pwd)" && [ -n "${!checkout}" ]; } || exit 2
done
each_sample build_sample
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
mpirun_command() { # how two ranks are started on this machine
    command -v mpirun >/dev/null || return 1
    # Open MPI refuses root, and more ranks than it counts cores, without these options; MPICH has neither option.
    if mpirun --version 2>&1 | grep -qi 'open.mpi'; then echo mpirun --allow-run-as-root --oversubscribe -n 2; else echo mpirun -n 2; fi
}
leave_out() { # case reason
    echo "gpu-test: $1 is skipped: $2" >&2
    left_out+=("$1: $2")
}
left_out=()
while read -r name options command; do
    case $name in '' | '#'*) continue ;; esac
    wanted "$name" || continue
    enough_devices "$options" || continue
    both=
    for word in $command; do
        [ -e "$tests/$word.cu" ] && both=$word
        case $word in
        MPIRUN)
            launcher=$(mpirun_command) || { leave_out "$name" "no mpirun"; continue 2; }
            command=${command/MPIRUN/"$launcher"} ;;
        py/*)
            for package in $(needs "$tests/$word"); do
                has_package "$package" || { leave_out "$name" "no Python package $package"; continue 3; }
            done
            command=${command/"$word"/"$python $tests/$word"} ;;
        esac
    done
    if [ -n "$both" ]; then
        for kind in static shared; do add "$name.$kind" "$options" "$scratch" "${command/"$both"/"$build/$both.$kind"}"; done
    else
        add "$name" "$options" "$scratch" "$command"
    fi
done <"$tests/cases.txt"
add_sample() {
    if [ -e "$into/$program" ]; then add "$name" "${options:--}" "$into" "./$program $arguments"; else leave_out "$name" "not built"; fi
}
each_sample add_sample
[ ${#cases[@]} -gt 0 ] || fail "no case matches"

listed() { # file case mode: whether tests/gpu/FILE names the case in that mode
    awk -v mode="$3" -v name="${2%.static}" 'BEGIN { sub(/\.shared$/, "", name) } $1 == mode && $2 == name { found = 1 } END { exit !found }' "$tests/$1"
}
skipped() { listed skip.txt "$@"; }
# The settings of a run: the free modes, and those that find a cause. `KIND+again` repeats KIND.
settings() { # mode
    case $1 in
    zeroed) echo free_mode:ordered,fill:zero ;;
    *) echo "free_mode:${1%+again}" ;;
    esac
}
run_task() { # case mode
    local options=${option_of[$1]} seconds=120 log=$scratch/$1.$2 environment=()
    [[ $options =~ t=([0-9]+) ]] && seconds=${BASH_REMATCH[1]}
    case $2 in
    native*) ;;
    *) environment=(LD_PRELOAD="$lib" CACHEALLOC_CONF="$(settings "$2")${conf:+,$conf}" GPU_TEST_UNDER_LIBRARY=1) ;;
    esac
    if [ -n "$limit" ] && [ "$SECONDS" -ge "$limit" ]; then
        echo late >"$log.rc"
        : | tee "$log.out" "$log.err" "$log.masked" "$log.seconds" >"$log.errors"
        return
    fi
    local start=$SECONDS
    # Word splitting is intended: it splits a case's command into words.
    # shellcheck disable=SC2086
    (cd "${directory_of[$1]}" 2>/dev/null && exec timeout -k 5 "$seconds" env PYTHONUNBUFFERED=1 ${environment[@]+"${environment[@]}"} ${command_of[$1]}) \
        >"$log.out" 2>"$log.err" </dev/null
    echo $? >"$log.rc"
    echo $((SECONDS - start)) >"$log.seconds"
    echo "$1 $2: exit $(cat "$log.rc") after $((SECONDS - start)) s" >>"$out/progress.txt"
    sed -E -f "$tests/mask.sed" "$log.out" >"$log.masked"
    case $options in *sort*) sort -o "$log.masked" "$log.masked" ;; esac
    # Number of errors that a program or its framework reported besides its output, without the library's own lines.
    grep -v '^cachealloc' "$log.err" | grep -a -c -i -E '\berror\b|\bfail(ed|ure)?\b|exception' >"$log.errors"
}
compared=$modes
[ -n "$modes" ] || compared="native-again"
run_all() { # lines of "case mode" on stdin: first those that may run beside others
    local tasks name mode alone
    tasks=$(cat)
    for alone in '' 1; do
        while read -r name mode; do
            [ -n "$name" ] || continue
            if [[ ${option_of[$name]} == *alone* ]]; then [ -n "$alone" ] || continue; else [ -z "$alone" ] || continue; fi
            throttle "$([ -n "$alone" ] && echo 1 || echo "$jobs")"
            run_task "$name" "$mode" 2>>"$out/shell.txt" & # where the shell says that a program was aborted
        done <<<"$tasks"
        wait
    done
}
run_all < <(
    for name in "${cases[@]}"; do
        for mode in native $compared; do skipped "$name" "$mode" || echo "$name" "$mode"; done
    done
)

# ---- compare ----

verdict() { # case mode -> ok, or what differs
    local log=$scratch/$1.$2 native=$scratch/$1.native rc
    rc=$(cat "$log.rc")
    [ "$(cat "$native.rc")" != late ] || rc=late
    case $rc in late) echo late; return ;; 124 | 137) echo HANG; return ;; esac
    [ "$rc" = "$(cat "$native.rc")" ] || { echo "exit $rc"; return; }
    if ! cmp -s "$log.masked" "$native.masked"; then echo differs
    elif ! cmp -s "$log.errors" "$native.errors"; then echo "$(cat "$log.errors") errors"
    elif [ "$rc" = 0 ]; then echo ok; else echo same; fi
}
good() { # verdict
    case $1 in ok | same | skipped | late) return 0 ;; *) return 1 ;; esac
}
# Cases that differ in `ordered` are run again: without the library (does it differ from itself?), unchanged (chance?), with
# cleared memory (does it read uninitialized memory?), and with frees that wait (does it rely on an undocumented wait?).
again="native+again ordered+again zeroed strict+again"
declare -A cause_of
if [ -n "$causes" ] && [[ " $compared " == *" ordered "* ]]; then
    suspects=()
    for name in "${cases[@]}"; do
        skipped "$name" ordered || good "$(verdict "$name" ordered)" || suspects+=("$name")
    done
    [ ${#suspects[@]} = 0 ] || run_all < <(for name in "${suspects[@]}"; do for mode in $again; do echo "$name" "$mode"; done; done)
    for name in ${suspects[@]+"${suspects[@]}"}; do
        equal=
        for mode in $again; do
            said=$(verdict "$name" "$mode")
            case $mode:$said in
            *:late) ;;
            native*) good "$said" || equal="$equal,native differs from itself" ;;
            ordered*) ! good "$said" || equal="$equal,not every time" ;;
            zeroed*) ! good "$said" || equal="$equal,equal with fill:zero" ;;
            *) ! good "$said" || equal="$equal,equal in strict" ;;
            esac
        done
        cause_of[$name]=${equal:+${equal#,}}
        [ -n "$equal" ] || cause_of[$name]="none of: $again"
    done
fi
width=7
for name in "${cases[@]}"; do [ ${#name} -gt "$width" ] && width=${#name}; done
line="%-${width}s  %-10s"
differences=0 native_failures=0 known=0 late=0 rows=()
# shellcheck disable=SC2059,SC2086
rows+=("$(printf "$line" program native && printf '  %-10s' $compared)  cause")
for name in "${cases[@]}"; do
    rc=$(cat "$scratch/$name.native.rc") native=ok keep=$keep_all
    if [ "$rc" = late ]; then
        native=late
    elif [ "$rc" != 0 ]; then
        native="exit $rc" keep=1
        [ "$rc" = 2 ] || native_failures=$((native_failures + 1)) # 2: a sample that this GPU cannot run
    elif grep -q '^skipped:' "$scratch/$name.native.out"; then
        native=skipped keep=1
        left_out+=("$name: $(sed -n 's/^skipped: *//p' "$scratch/$name.native.out" | head -n 1)")
    fi
    # shellcheck disable=SC2059
    row=$(printf "$line" "$name" "$native")
    for mode in $compared; do
        if skipped "$name" "$mode"; then said=skipped; else said=$(verdict "$name" "$mode"); fi
        [ "$said" != late ] || late=$((late + 1))
        if listed known-differences.txt "$name" "$mode"; then
            known=$((known + 1))
            if good "$said"; then said="$said!"; else said=known keep=1; fi # ok!: known to differ, and does not
        fi
        row+=$(printf '  %-10s' "$said")
        case $said in *!) continue ;; esac
        good "$said" && continue
        diff -u --label native --label "$mode" "$scratch/$name.native.masked" "$scratch/$name.$mode.masked" >"$out/$name.$mode.diff"
        [ "$said" = known ] || differences=$((differences + 1)) keep=1
    done
    rows+=("$row  ${cause_of[$name]:-}")
    [ -z "$keep" ] || cp "$scratch/$name".*.out "$scratch/$name".*.err "$out"
done
for name in ${left_out[@]+"${left_out[@]}"}; do rows+=("skipped: $name"); done
while read -r mode name reason; do
    case $mode in '' | '#'*) ;; *) rows+=("known difference: $name in $mode: $reason") ;; esac
done <"$tests/known-differences.txt"
seconds=$(cat "$scratch"/*.seconds | awk '{ sum += $1 } END { print sum + 0 }')
rows+=("${#cases[@]} programs, $differences differences, $known known, $native_failures fail natively, $late runs not made, ${#left_out[@]} skipped; $seconds s of runs; logs of failures in $out")
printf '%s\n' "${rows[@]}" | tee "$out/table.txt"
[ "$differences" = 0 ] && [ "$native_failures" = 0 ] && [ "$late" = 0 ]
