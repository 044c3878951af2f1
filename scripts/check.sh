#!/bin/sh
# Formatting and lints, warnings denied; the lints for the other processor, too. Fails where rustfmt or clippy is missing,
# as in rustup's minimal profile.
set -eu
cd "$(dirname "$0")/.."
for tool in fmt clippy; do
    cargo "$tool" --version >/dev/null 2>&1 || {
        echo "check: cargo $tool is missing: rustup component add rustfmt clippy" >&2
        exit 1
    }
done
cargo fmt --all --check
cargo clippy -q --workspace --all-targets -- -D warnings

# No linker and no C compiler of its own is needed for this: Rust's library for it is.
case $(uname -m) in
aarch64) other=x86_64-unknown-linux-gnu ;;
*) other=aarch64-unknown-linux-gnu ;;
esac
if [ -d "$(rustc --print sysroot)/lib/rustlib/$other/lib" ]; then
    cargo clippy -q --workspace --all-targets --target $other -- -D warnings
elif [ -z "${CI:-}" ]; then
    echo "check: nothing was checked for $other: rustup target add $other" >&2
else
    echo "check: nothing can be checked for $other, and under CI it must be: rustup target add $other" >&2
    exit 1
fi
