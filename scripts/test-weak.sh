#!/bin/sh
# Runs the lock-free parts under Miri, for a processor that reorders stores and reads, with many seeds: each gives another
# order of the threads and of the values they see. Needs `rustup toolchain install nightly --component miri,rust-src`.
#
#   scripts/test-weak.sh [SEEDS]     default 64
set -eu
cd "$(dirname "$0")/.."
# Contexts, events and tables are never freed, so leak checks are off.
export MIRIFLAGS="-Zmiri-many-seeds=0..${1:-64} -Zmiri-disable-isolation -Zmiri-ignore-leaks"
miri() {
    cargo +nightly miri test -q --target aarch64-unknown-linux-gnu --target-dir target/miri "$@"
}
miri -p cachealloc-core --lib weak
miri -p cachealloc-python --lib readers_find_whole_records
miri -p cachealloc-tests --test weak
