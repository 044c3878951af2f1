#!/bin/sh
# Builds interpreters from CPython's sources, each with the interpreter's lock and without it, and runs the tests of Python's
# stacks in each. About ten minutes per interpreter on two cores.
#
#   scripts/test-pythons.sh SOURCES...     SOURCES: unpacked sources of CPython 3.13 or later
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { sed -n 's/^# *scripts/usage: scripts/p' "$0" >&2; exit 2; }
scratch=$(pwd)/target/pythons
pythons=
for sources in "$@"; do
    sources=$(cd "$sources" && pwd)
    for lock in "" --disable-gil; do
        place=$scratch/$(basename "$sources")$lock
        # Kept between runs.
        if [ ! -x "$place/bin/python3" ]; then
            mkdir -p "$place.build"
            (
                cd "$place.build"
                # shellcheck disable=SC2086
                "$sources/configure" -q --without-ensurepip --disable-test-modules --prefix="$place" $lock OPT="-O1 -DNDEBUG"
                make -s -j"$(nproc)"
                make -s install
            ) >"$place.log" 2>&1 || { tail "$place.log" >&2; exit 1; }
        fi
        pythons="$pythons $place/bin/python3"
    done
done
PYTHONS=$pythons cargo test -q --profile checked -p cachealloc-python -- --nocapture
