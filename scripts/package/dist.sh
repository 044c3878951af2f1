#!/bin/sh
# Makes target/dist/cachealloc-VERSION-ARCHITECTURE-linux-glibcFLOOR.tar.gz from the built files: a tarball that can be unpacked anywhere.
#
#   scripts/package/dist.sh [--built FOLDER]
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
built=$target/release
[ "${1:-}" != --built ] || built=$2
floor=$("$root/scripts/package/glibc-floor.sh" "$built/libcachealloc.so" "$built/cachealloc")
machine=$("$root/scripts/package/machine.sh" "$built/libcachealloc.so")
name=cachealloc-$("$root/scripts/package/version.sh")-$machine-linux-glibc$floor
folder=$target/dist/$name
rm -rf "$folder"
"$root/scripts/package/install.sh" --built "$built" "$folder" >&2
mv "$folder/share/doc/cachealloc"/* "$folder"
rm -r "$folder/share/doc"
"$root/scripts/package/third-party.py" >"$folder/THIRD-PARTY"
tar -C "$target/dist" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$("$root/scripts/package/date.sh")" -cf - "$name" |
    gzip -9n >"$folder.tar.gz"
rm -rf "$folder"
echo "$folder.tar.gz"
