#!/usr/bin/env bash
# Tests the recipes of docs/recipes.md. Runs each recipe as written, on a small program, if this machine has the framework:
# exit code and output must equal those of the plain run, and the recording must have tensors, not segments.
#
# usage: scripts/gpu-recipes.sh [--lib PATH] [--command PATH] [--out DIR] [--only PATTERN]
#
# Needs nvcc or python3 with one of the frameworks. Exit code: 0 all passed, 1 one failed, 2 it could not run.
set -u

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
lib=$root/target/release/libcachealloc.so
[ -e "$lib" ] || lib=$root/.carry/libcachealloc.so
command=$root/target/release/cachealloc
[ -e "$command" ] || command=$root/.carry/cachealloc
out=$root/.out/gpu-recipes
only=
while [ $# -gt 0 ]; do
    case $1 in
    --lib) lib=$2; shift ;;
    --command) command=$2; shift ;;
    --out) out=$2; shift ;;
    --only) only=$2; shift ;;
    *) sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
    shift
done
[ -e "$lib" ] && [ -e "$command" ] || { echo "gpu-recipes: no $lib or no $command" >&2; exit 2; }
case $out in "" | / | "$root" | "$HOME") echo "gpu-recipes: not emptying $out" >&2; exit 2 ;; esac
rm -rf "$out"
mkdir -p "$out/bin" && cp "$lib" "$out/bin/libcachealloc.so" && cp "$command" "$out/bin/cachealloc" || exit 2
out=$(cd "$out" && pwd)
# The recipes use the names `cachealloc` and `python`; the module is that of the wheel.
export PATH=$out/bin:$PATH PYTHONPATH=$root/src/wheel${PYTHONPATH:+:$PYTHONPATH}
python=$(command -v python || command -v python3 || true)
programs=$root/tests/gpu/py/recipes
devices=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
wrong=0

wanted() { [[ $1 =~ $only ]]; }
has() { [ -n "$python" ] && "$python" -c "import importlib.util, sys; sys.exit(not importlib.util.find_spec('$1'))" 2>/dev/null; }
say() { # verdict what: one that is not ok counts
    printf '    %-6s %s\n' "$1" "$2"
    [ "$1" = ok ] || wrong=1
}
begin() { # name title: a folder of its own, in which the commands run
    name=$1
    echo "$name: $2"
    mkdir -p "$out/$name" && cd "$out/$name" || exit 2
}
plain() { # command...: the run that the others are held against
    timeout -k 5 120 "$@" >plain.out 2>plain.err </dev/null
    echo $? >plain.code
    [ "$(cat plain.code)" = 0 ] || { say WRONG "the plain run: exit code $(cat plain.code)"; tail -n 5 plain.err; }
}
same() { # what command...: exit code and output are those of the plain run
    local what=$1 code
    shift
    timeout -k 5 180 "$@" >out.txt 2>err.txt </dev/null
    code=$?
    if [ $code != "$(cat plain.code)" ]; then
        say WRONG "$what: exit code $code"
        tail -n 8 err.txt
    elif ! cmp -s out.txt plain.out; then
        say WRONG "$what: another output"
        diff plain.out out.txt | head -n 8
    else
        say ok "$what: exit code and output"
    fi
}
there() { # file...: written, and a report says that no framework hides its tensors
    local file
    for file; do
        if [ ! -s "$file" ]; then
            say WRONG "no $file"
        elif [[ $file == *.html ]] && grep -q 'has its own cache' "$file"; then
            say WRONG "$file speaks of a cache"
        else
            say ok "$file ($(stat -c %s "$file") bytes)"
        fi
    done
}
count() { # number file...: so many files
    local number=$1
    shift
    if [ -e "$1" ] && [ $# = "$number" ]; then say ok "$number snapshots"; else say WRONG "$# snapshots instead of $number: $*"; fi
}
judged() { cachealloc top-sites --json -n 0 --by count "${files[@]}" | python3 "$programs/judge.py" "$@"; }
tensors() { # program options...: the snapshots of `files` have its tensors
    local said
    if said=$(judged "$@" 2>&1); then say ok "tensors"; else say WRONG "tensors"; fi
    sed 's/^/           /' <<<"$said"
}
segments() { # program: these do not have its tensors, and a report says why; else the others would show nothing
    if judged "$@" >segments.txt 2>&1; then say WRONG "tensors, with the framework's cache, too"; else say ok "segments, with the framework's cache"; fi
    cachealloc report --force -o cached.html "${files[@]}" 2>report.err
    if grep -q 'has its own cache' cached.html; then say ok "and the report says so"; else say WRONG "and no report says so"; fi
}
record() { # options of run... -- command...: the same program once more, for a snapshot of what was reported
    rm -f recorded-*.pickle
    timeout -k 5 180 cachealloc run --record --snapshot 'recorded-%p.pickle' "$@" >record.out 2>record.err </dev/null ||
        { say WRONG "recording: exit code $?"; tail -n 5 record.err; }
    files=(recorded-*.pickle)
}
reported() { # program options of run...: run --report, then what is in it
    local program=$1
    shift
    plain "$python" "$program"
    same "run $* --report" cachealloc run "$@" --report app.html -- "$python" "$program"
    there app.html
    record "$@" -- "$python" "$program"
    count 1 "${files[@]}"
    tensors "$program"
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
if has torch; then
    if wanted pytorch; then
        begin pytorch "run --uncached --report; the module; stats and snapshot while it runs"
        reported "$programs/pytorch.py" --uncached
        there step-4.pickle
        record -- "$python" "$programs/pytorch.py"
        segments "$programs/pytorch.py"
        rm -f "$out/go-on"
        RECIPE_GO_ON=$out/go-on cachealloc run --uncached --record -- "$python" "$programs/pytorch.py" >live.out 2>live.err &
        process=$!
        for _ in $(seq 600); do ! grep -q 'PyTorch counts' live.err || break; sleep 0.1; done
        if cachealloc stats $process >stats.txt 2>&1; then say ok "stats: $(grep -m1 'hit rate' stats.txt | tr -s ' ')"; else say WRONG "stats: $(cat stats.txt)"; fi
        files=("$(cachealloc snapshot $process 2>snapshot.err)")
        there "${files[0]}"
        touch "$out/go-on"
        wait $process || say WRONG "while it runs: exit code $?"
        tensors "$programs/pytorch.py"
    fi
    if wanted loader; then
        begin loader "a DataLoader's workers, forked and spawned"
        reported "$programs/loader.py" --uncached
    fi
    if wanted ddp; then
        begin ddp "torchrun, a rank for each of $devices devices"
        torchrun=(torchrun)
        command -v torchrun >/dev/null || torchrun=("$python" -m torch.distributed.run)
        ranks=(--nproc-per-node "$devices" --master-port 29571)
        plain "${torchrun[@]}" "${ranks[@]}" "$programs/ddp.py"
        same "run -- torchrun" cachealloc run --uncached --record --snapshot 'rank%r-%p.pickle' -- "${torchrun[@]}" "${ranks[@]}" "$programs/ddp.py"
        count "$devices" rank*.pickle
        for ((rank = 0; rank < devices; rank++)); do
            files=("rank$rank"-*.pickle)
            tensors "$programs/ddp.py" --library NCCL
        done
        cachealloc report rank*.pickle -o all.html 2>report.err
        there all.html
        same "torchrun --no-python .. cachealloc run" "${torchrun[@]}" --no-python "${ranks[@]}" cachealloc run --record -- "$python" "$programs/ddp.py"
        count "$devices" cachealloc-*.pickle
    fi
    if wanted pipeline && [ "$devices" -ge 2 ]; then
        begin pipeline "several devices in one process, across_contexts:barrier"
        plain "$python" "$programs/pipeline.py"
        same "run --uncached" env CACHEALLOC_CONF=across_contexts:barrier cachealloc run --uncached -- "$python" "$programs/pipeline.py"
        CACHEALLOC_CONF=across_contexts:barrier record --uncached -- "$python" "$programs/pipeline.py"
        tensors "$programs/pipeline.py"
    fi
fi
if has cupy && wanted cupy; then
    begin cupy "set_allocator(None) in the program"
    reported "$programs/cupy_arrays.py"
    RECIPE_CACHED=1 record -- "$python" "$programs/cupy_arrays.py"
    segments "$programs/cupy_arrays.py"
fi
if has jax && wanted jax; then
    begin jax "run --uncached --report"
    reported "$programs/jax_arrays.py" --uncached
    XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async record --uncached -- "$python" "$programs/jax_arrays.py"
    tensors "$programs/jax_arrays.py"
    cachealloc top-sites -n 5 --by count "${files[@]}" >async.txt 2>&1
    record -- "$python" "$programs/jax_arrays.py"
    segments "$programs/jax_arrays.py"
fi
if has numba && wanted numba; then
    begin numba "run --report; each free when the array goes"
    reported "$programs/numba_arrays.py"
    NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT=1 record -- "$python" "$programs/numba_arrays.py"
    tensors "$programs/numba_arrays.py"
fi
if has rmm && wanted rmm; then
    begin rmm "reinitialize(pool_allocator=False) in place of a pool"
    reported "$programs/rmm_buffers.py"
    RECIPE_CACHED=1 record -- "$python" "$programs/rmm_buffers.py"
    segments "$programs/rmm_buffers.py"
fi
if command -v nvcc >/dev/null && wanted cublas; then
    begin cublas "nvcc -g app.cu -lcublas -o app; run --report"
    cp "$root/tests/gpu/cublas_gemm.cu" app.cu
    cp "$root/tests/gpu/check.h" .
    nvcc -g app.cu -lcublas -o app >build.txt 2>&1 || { say WRONG "it does not build"; tail -n 5 build.txt; }
    plain ./app
    same "run --report" cachealloc run --report app.html -- ./app
    there app.html
    record -- ./app
    tensors app.cu --library cuBLAS
    line=$(grep -n -m1 'T \*da = device_alloc' app.cu | cut -d: -f1)
    site=$(cachealloc top-sites -n 0 --by count "${files[@]}" | grep -m1 "app.cu:$line")
    if [ -n "$site" ]; then say ok "its lines: ${site##*  }"; else say WRONG "no call site at app.cu:$line"; fi
fi
if command -v mpirun >/dev/null && wanted mpi; then
    begin mpi "mpirun, a snapshot for each rank"
    launch=(mpirun -n 2)
    if mpirun --version 2>&1 | grep -qi open.mpi; then launch=(mpirun --allow-run-as-root --oversubscribe -n 2); fi
    # Without MPI's headers, the ranks run a program that does not communicate.
    read -r -a flags <<<"$(mpicc -showme 2>/dev/null | grep -oE -- '(^| )-(I|L|l)[^ ]+' | tr '\n' ' ')"
    app=mpi_exchange.cu
    [ ${#flags[@]} != 0 ] || app=tools/kept.cu
    if nvcc -g "$root/tests/gpu/$app" ${flags[@]+"${flags[@]}"} -o app >build.txt 2>&1; then
        sorted=(bash -c 'set -o pipefail; "$@" | sort' -)
        plain "${sorted[@]}" "${launch[@]}" ./app
        same "mpirun .. run, ${app##*/}" "${sorted[@]}" "${launch[@]}" cachealloc run --record --snapshot 'rank%r.pickle' -- ./app
        count 2 rank*.pickle
        cachealloc report rank*.pickle -o all.html 2>report.err
        there all.html
    else
        say WRONG "it does not build"
        tail -n 5 build.txt
    fi
fi
for package in rmm cudf tensorflow ipykernel; do has $package || echo "not run: no Python package $package"; done
command -v mpirun >/dev/null || echo "not run: no mpirun"
[ "$devices" -ge 2 ] || echo "not run: pipeline: one device"
exit $wrong
