#!/usr/bin/env bash
# What do caches hold on this machine's GPU while the sizes of a program change, and after its peak: none, PyTorch's,
# ours? Needs python3 with torch, and the device for itself. About half a minute a line.
#
# usage: scripts/gpu-hoard.sh [--lib PATH] [--only PATTERN] [SETTINGS ...]
#
# PATTERN: of `gp native`, `lora ours`, ...; SETTINGS: more lines, each with these options of the library.
set -eu

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
lib=$root/target/release/libcachealloc.so
only=
while [ $# -gt 0 ]; do
    case $1 in
    --lib) lib=$2; shift ;;
    --only) only=$2; shift ;;
    -*) sed -n '2,7s/^# //p' "$0" >&2; exit 2 ;;
    *) break ;;
    esac
    shift
done
lib=$(realpath -e "$lib")

failures=0
line() { # program cache variables...
    local program=$1 cache=$2
    shift 2
    [[ "$program $cache" =~ $only ]] || return 0
    timeout -k 5 120 env "$@" python3 "$root/tests/gpu/py/hoard.py" "$program" "$cache" || {
        failures=$((failures + 1))
        echo "$program $cache: exit $?"
    }
}

cat <<'HEAD'
GiB; time in ms; calls to the driver that allocate
               ------- while sizes change -------  --- 10 s of small steps ---  --- a step ---      -- calls --
               device   cache holds   live         device   cache holds   live  (mean)  small       all  last 2 s
HEAD
raw=PYTORCH_NO_CUDA_MEMORY_CACHING=1
for program in gp lora graphs; do
    line "$program" native $raw
    line "$program" torch x=
    line "$program" ours $raw LD_PRELOAD="$lib"
    for settings in "$@"; do
        ! [[ "$program ours" =~ $only ]] || echo "$settings:"
        line "$program" ours $raw LD_PRELOAD="$lib" CACHEALLOC_CONF="$settings"
    done
done
[ $failures = 0 ]
