#!/bin/sh
# Formatting and lints, warnings denied. Fails where rustfmt or clippy is missing, as in rustup's minimal profile.
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
