#!/bin/sh
# Collects in .carry what the gpu-*.sh scripts need on a machine that has a GPU and no cargo, from what is built here:
#
#   scripts/gpu-pack.sh [--samples DIR] [--library-samples DIR]
#
# library and command (make), the library with its assertions on, the simulated driver and the judge (make test builds
# them), and the listed folders of NVIDIA's checkouts. On the other machine, which has the same tree:
#
#   tar -xf .carry/cuda-samples.tar.xz -C /tmp; tar -xf .carry/library-samples.tar.xz -C /tmp
#   scripts/gpu-test.sh --samples /tmp/cuda-samples --library-samples /tmp/library-samples
#   scripts/gpu-random.sh --lib .carry/libcachealloc.so --sim .carry/checked --judge .carry/judge
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
samples= library_samples=
while [ $# -gt 0 ]; do
    case $1 in
        --samples) samples=$(realpath "$2") ;;
        --library-samples) library_samples=$(realpath "$2") ;;
        *) echo "gpu-pack.sh: $1?" >&2; exit 2 ;;
    esac
    shift 2
done
cd "$root"

rm -rf .carry
mkdir -p .carry/checked
cp target/release/libcachealloc.so target/release/cachealloc target/checked/judge .carry
cp target/checked/libcachealloc.so .carry/checked
cp target/checked/libcuda.so .carry/checked/libcuda.so.1
strip -g .carry/cachealloc .carry/judge .carry/checked/*

# pack NAME CHECKOUT PREFIX: packs the folders in the list of this name, and those in its flags.
pack() {
    list=tests/gpu/$1.txt
    (
        cd "$2"
        sed -n "s,^\([0-9A-Za-z][^ ]*\) |.*,$3\1,p" "$root/$list"
        sed -n "s,^\([0-9A-Za-z][^ ]*\) |.* -I\(\.\.[^ ]*\).*,$3\1/\2,p" "$root/$list" |
            xargs -r realpath -m --relative-to=.
        [ ! -d Common ] || echo Common
    ) | sort -u | tar -cJf ".carry/$1.tar.xz" -C "$2" --transform="s,^,$1/," --files-from=-
}
[ -z "$samples" ] || pack cuda-samples "$samples" Samples/
[ -z "$library_samples" ] || pack library-samples "$library_samples" ""
du -sh .carry | cut -f1
