#!/bin/sh
# Checks formatting and lints, with warnings denied, if rustfmt and clippy are installed (see scripts/tools.sh).
#
#   scripts/check.sh            for this processor
#   scripts/check.sh --other    the lints for the other processor, x86-64 or aarch64
set -eu
cd "$(dirname "$0")/.."
# Returns whether a tool is installed; under CI it must be.
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
# Lints for the other processor need Rust's library for it, but neither a linker nor a C compiler.
if has cargo clippy --version && { [ -z "$target" ] || has test -d "$(rustc --print sysroot)/lib/rustlib/$target/lib"; }; then
    cargo clippy -q --workspace --all-targets ${target:+--target "$target"} -- -D warnings
fi
