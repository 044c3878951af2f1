#!/bin/sh
# Makes target/dist/cachealloc_VERSION_ARCHITECTURE.deb of what was built, by dpkg-deb alone.
#
#   scripts/deb.sh [--built FOLDER]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
built=$target/release
[ "${1:-}" != --built ] || built=$2
version=$("$root/scripts/version.sh")
architecture=$(dpkg --print-architecture)
floor=$("$root/scripts/glibc-floor.sh" "$built/libcachealloc.so" "$built/cachealloc")
mkdir -p "$target/dist"
folder=$(mktemp -d "$target/dist/deb.XXXXXX")
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"
"$root/scripts/install.sh" --built "$built" "$folder/usr" >&2
documents=$folder/usr/share/doc/cachealloc
rm "$documents/LICENSE-APACHE" # every Debian has it
{
    echo "cachealloc is under the MIT licence, or the Apache License 2.0 (/usr/share/common-licenses/Apache-2.0)."
    echo
    cat "$documents/LICENSE-MIT"
    echo
    "$root/scripts/third-party.py"
} >"$documents/copyright"
rm "$documents/LICENSE-MIT"
mv "$documents/CHANGELOG.md" "$documents/changelog"
mkdir "$folder/usr/share/zsh/vendor-completions"
mv "$folder/usr/share/zsh/site-functions/_cachealloc" "$folder/usr/share/zsh/vendor-completions"
rmdir "$folder/usr/share/zsh/site-functions"
gzip -9n "$documents/changelog" "$folder/usr/share/man/man1"/*.1
mkdir "$folder/DEBIAN"
size=$(du -sk "$folder/usr" | cut -f1)
cat >"$folder/DEBIAN/control" <<CONTROL
Package: cachealloc
Version: $version
Architecture: $architecture
Maintainer: The cachealloc authors <maintainers@localhost>
Installed-Size: $size
Depends: libc6 (>= $floor), libgcc-s1
Section: devel
Priority: optional
Description: caching allocator and memory profiler for CUDA programs
 A library that is preloaded into unmodified CUDA programs gives them a fast caching allocator for
 GPU memory, and a complete picture of it: statistics, history, snapshots for PyTorch's viewer. The command starts
 programs under it, and looks at them while they run.
CONTROL
(cd "$folder" && find usr -type f -exec md5sum {} + | sort -k 2 >DEBIAN/md5sums)
package=$target/dist/cachealloc_${version}_$architecture.deb
SOURCE_DATE_EPOCH=$("$root/scripts/date.sh") dpkg-deb --root-owner-group --build "$folder" "$package" >&2
echo "$package"
