#!/bin/sh
# Builds samples/ into target/samples: the C ones with gcc, the Rust one with rustc, the CUDA ones with nvcc if it is
# installed. Prints the built files; without nvcc, the CUDA samples are skipped with a message.
set -eu
cd "$(dirname "$0")/.."
out=${CARGO_TARGET_DIR:-target}/samples
mkdir -p "$out"
for source in samples/*.c; do
    [ -e "$source" ] || continue
    gcc -O2 -g -Wall -Wextra -Iinclude -o "$out/$(basename "$source" .c)" "$source" -ldl -lpthread
    echo "$out/$(basename "$source" .c)"
done
for source in samples/hooks/*.c; do
    gcc -O2 -g -Wall -Wextra -Iinclude -shared -fPIC -o "$out/$(basename "$source" .c).so" "$source" -ldl -lpthread
    echo "$out/$(basename "$source" .c).so"
done
for source in samples/*.rs; do
    "${RUSTC:-rustc}" -O --edition 2024 -o "$out/$(basename "$source" .rs)" "$source"
    echo "$out/$(basename "$source" .rs)"
done
for source in samples/*.cu; do
    [ -e "$source" ] || continue
    if nvcc=$(command -v "${NVCC:-nvcc}"); then
        "$nvcc" -std=c++17 -O2 -o "$out/$(basename "$source" .cu)" "$source"
        echo "$out/$(basename "$source" .cu)"
    else
        echo "skipped $source: no nvcc" >&2
    fi
done
