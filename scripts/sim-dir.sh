#!/bin/sh
# Prints a folder that holds the simulated driver as libcuda.so.1, for LD_LIBRARY_PATH.
#
#   LD_LIBRARY_PATH=$(scripts/sim-dir.sh [profile]) target/debug/hello
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
built="$root/target/${1:-debug}/libcuda.so"
if [ ! -e "$built" ]; then
    echo "$built is missing: cargo build -p simulated-driver" >&2
    exit 1
fi
folder="$root/target/${1:-debug}/sim"
mkdir -p "$folder"
ln -sf ../libcuda.so "$folder/libcuda.so.1"
echo "$folder"
