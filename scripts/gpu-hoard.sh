#!/usr/bin/env bash
# Measures the memory that caches hold on this machine's GPU while the sizes of a program change, and after its peak:
# without a cache, PyTorch's, and this one. Needs python3 with torch and exclusive use of the device; under 30 s a line.
#
# usage: scripts/gpu-hoard.sh [--lib PATH] [--programs "gp lora graphs"] [--caches "native torch ours"] [SETTINGS ...]
#
# SETTINGS: more lines for each program, under the library with these options. Exit code 1 if a line fails.
set -eu

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
lib=$root/target/release/libcachealloc.so
programs="gp lora graphs"
caches="native torch ours"
while [ $# -gt 0 ]; do
    case $1 in
    --lib) lib=$2; shift ;;
    --programs) programs=$2; shift ;;
    --caches) caches=$2; shift ;;
    -*) sed -n '2,7s/^# //p' "$0" >&2; exit 2 ;;
    *) break ;;
    esac
    shift
done
lib=$(realpath -e "$lib")

failures=0
line() { # program cache variables...
    local program=$1 cache=$2 status=0
    shift 2
    timeout -k 5 60 env "$@" python3 "$root/tests/gpu/py/hoard.py" "$program" "$cache" || status=$?
    if [ $status != 0 ]; then
        failures=$((failures + 1))
        echo "$program $cache: exit code $status"
    fi
}

cat <<'HEAD'
GiB; time in ms; calls to the driver that allocate
               ------- while sizes change -------  --- 10 s of small steps ---  --- a step ---      -- calls --
               device   cache holds   live         device   cache holds   live  (mean)  small       all  last 2 s
HEAD
raw=PYTORCH_NO_CUDA_MEMORY_CACHING=1
for program in $programs; do
    for cache in $caches; do
        case $cache in
        native) line "$program" native $raw ;;
        torch) line "$program" torch x= ;;
        ours) line "$program" ours $raw LD_PRELOAD="$lib" ;;
        esac
    done
    for settings in "$@"; do
        echo "$settings:"
        line "$program" ours $raw LD_PRELOAD="$lib" CACHEALLOC_CONF="$settings"
    done
done
[ $failures = 0 ]
