#!/bin/sh
# Writes target/dist/SHA256SUMS of this version's packages there: `sha256sum --check SHA256SUMS` beside them.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
dist=${CARGO_TARGET_DIR:-$root/target}/dist
version=$("$root/scripts/package/version.sh")
cd "$dist"
files=$(find . -maxdepth 1 -type f \( -name "cachealloc-$version-*.tar.gz" -o -name "cachealloc_${version}_*.deb" \
    -o -name "cachealloc-$version-*.whl" \) -printf '%f\n' | sort)
[ -n "$files" ] || { echo "checksums: no package of $version in $dist" >&2; exit 1; }
# shellcheck disable=SC2086
sha256sum $files >SHA256SUMS
echo "$dist/SHA256SUMS"
