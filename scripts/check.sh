#!/bin/sh
# Formatting and lints. A toolchain without rustfmt or clippy (the minimal profile) skips that part, and says so.
set -eu
cd "$(dirname "$0")/.."
if cargo fmt --version >/dev/null 2>&1; then
    cargo fmt --all --check
else
    echo "check: skipped the formatting: rustfmt is not installed" >&2
fi
if cargo clippy --version >/dev/null 2>&1; then
    cargo clippy -q --workspace --all-targets -- -D warnings
else
    echo "check: skipped the lints: clippy is not installed" >&2
fi
