#!/bin/sh
# Makes target/dist/cachealloc_VERSION_ARCHITECTURE.deb from the built files, only with dpkg-deb; lintian reports nothing.
#
#   scripts/package/deb.sh [--built FOLDER]        DEBEMAIL: an address for the maintainers
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
built=$target/release
[ "${1:-}" != --built ] || built=$2
version=$("$root/scripts/package/version.sh")
# The processor of the built files, which may differ from this machine's.
machine=$("$root/scripts/package/machine.sh" "$built/libcachealloc.so")
case $machine in
x86_64) architecture=amd64 ;;
aarch64) architecture=arm64 ;;
esac
strip=strip
[ "$machine" = "$(uname -m)" ] || strip=$machine-linux-gnu-strip
floor=$("$root/scripts/package/glibc-floor.sh" "$built/libcachealloc.so" "$built/cachealloc")
date=$("$root/scripts/package/date.sh")
# The default is an address that cannot exist: .invalid is reserved for that.
maintainer="The cachealloc authors <${DEBEMAIL:-maintainers@cachealloc.invalid}>"
mkdir -p "$target/dist"
folder=$(mktemp -d "$target/dist/deb.XXXXXX")
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"
"$root/scripts/package/install.sh" --built "$built" "$folder/usr" >&2
# In a separate folder: no program is linked with the library, and the loader need not find it.
mkdir "$folder/usr/lib/cachealloc"
mv "$folder/usr/lib/libcachealloc.so" "$folder/usr/lib/cachealloc"
chmod 644 "$folder/usr/lib/cachealloc/libcachealloc.so"
"$strip" --strip-unneeded --remove-section=.comment "$folder/usr/bin/cachealloc" "$folder/usr/lib/cachealloc/libcachealloc.so"
documents=$folder/usr/share/doc/cachealloc
rm "$documents/LICENSE-APACHE" # every Debian has it
{
    echo "cachealloc is under the MIT licence, or the Apache License 2.0 (/usr/share/common-licenses/Apache-2.0)."
    echo
    cat "$documents/LICENSE-MIT"
    echo
    "$root/scripts/package/third-party.py" --debian
} >"$documents/copyright"
rm "$documents/LICENSE-MIT"
sed -i 's/(LICENSE-[A-Z]*)/(copyright)/g' "$documents/README.md"
# The changes of this version, in the format of Debian's changelogs.
{
    echo "cachealloc ($version) unstable; urgency=medium"
    echo
    awk -v heading="## $version" '
        /^## / { here = index($0 " ", heading " ") == 1; next }
        !here || !NF { next }
        /^\* / { if (change) print change; change = $0; next }
        { sub(/^ +/, ""); change = change " " $0 }
        END { print change }' "$documents/CHANGELOG.md" | fmt -s -w 76 | sed '/^\*/!s/^/  /; s/^/  /'
    echo
    echo " -- $maintainer  $(LC_ALL=C date -u -d "@$date" '+%a, %d %b %Y %H:%M:%S +0000')"
} >"$documents/changelog"
rm "$documents/CHANGELOG.md"
mkdir "$folder/usr/share/zsh/vendor-completions"
mv "$folder/usr/share/zsh/site-functions/_cachealloc" "$folder/usr/share/zsh/vendor-completions"
rmdir "$folder/usr/share/zsh/site-functions"
gzip -9n "$documents/changelog" "$folder/usr/share/man"/man*/*
mkdir "$folder/DEBIAN"
size=$(du -sk "$folder/usr" | cut -f1)
cat >"$folder/DEBIAN/control" <<CONTROL
Package: cachealloc
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $size
Depends: libc6 (>= $floor), libgcc-s1
Section: devel
Priority: optional
Description: caching allocator and memory profiler for CUDA programs
 A library that is preloaded into unmodified CUDA programs gives them a fast
 caching allocator for GPU memory, and a complete picture of it: statistics,
 history, snapshots for PyTorch's viewer. The command starts programs under it,
 and looks at them while they run.
CONTROL
(cd "$folder" && find usr -type f -exec md5sum {} + | sort -k 2 >DEBIAN/md5sums)
package=$target/dist/cachealloc_${version}_$architecture.deb
SOURCE_DATE_EPOCH=$date dpkg-deb --root-owner-group --build "$folder" "$package" >&2
echo "$package"
