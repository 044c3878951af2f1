#!/bin/sh
# Formatting and lints, warnings denied, as far as rustfmt and clippy are there (scripts/tools.sh says which are missing).
#
#   scripts/check.sh            for this processor
#   scripts/check.sh --other    the lints for the other processor, x86-64 or aarch64
set -eu
cd "$(dirname "$0")/.."
# Whether a tool is there; under CI it must be.
has() {
    "$@" >/dev/null 2>&1 || [ -n "${CI:-}" ]
}
case ${1:-}$(uname -m) in
--otheraarch64) target=x86_64-unknown-linux-gnu ;;
--other*) target=aarch64-unknown-linux-gnu ;;
*) target= ;;
esac
if [ -z "$target" ] && has cargo fmt --version; then
    cargo fmt --all --check
fi
# No linker and no C compiler of its own is needed for the other one: Rust's library for it is.
if has cargo clippy --version && { [ -z "$target" ] || has test -d "$(rustc --print sysroot)/lib/rustlib/$target/lib"; }; then
    cargo clippy -q --workspace --all-targets ${target:+--target "$target"} -- -D warnings
fi
