#!/usr/bin/env bash
# Checks on this machine's GPU that a program with a full cache does not starve a peer process, and measures the cost.
# Run it alone, because it needs the whole device. About a minute.
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
