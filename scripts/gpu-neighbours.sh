#!/usr/bin/env bash
# Does a program with a full cache starve another one on this machine's GPU, and what does it cost not to?
# Run alone: it counts on the whole device. About a minute.
#
# usage: scripts/gpu-neighbours.sh [--lib PATH]
set -eu

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
lib=$root/target/release/libcachealloc.so
while [ $# -gt 0 ]; do
    case $1 in
    --lib) lib=$2; shift ;;
    *) sed -n '2,5s/^# //p' "$0" >&2; exit 2 ;;
    esac
    shift
done
exec python3 "$root/tests/gpu/py/neighbours.py" "$(realpath -e "$lib")"
