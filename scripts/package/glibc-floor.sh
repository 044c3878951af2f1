#!/bin/sh
# Prints the oldest glibc that all these files load on, such as 2.17. Fails if README.md promises an older one.
#
#   scripts/package/glibc-floor.sh FILE...
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
promised=$(sed -n 's/.*glibc \([0-9][0-9.]*\) or later.*/\1/p' "$root/README.md" | head -1)
[ -n "$promised" ] || { echo "glibc-floor: README.md says no \"glibc N or later\"" >&2; exit 1; }
floor=0
for file in "$@"; do
    unknown=$(readelf --dyn-syms --wide "$file" | awk '$5 == "GLOBAL" && $7 == "UND" && $8 !~ /@/ { print $8 }')
    [ -z "$unknown" ] || { echo "glibc-floor: $file needs $unknown, of whatever version" >&2; exit 1; }
    versions=$(readelf --version-info --wide "$file" | grep -o 'Name: GLIBC_[0-9.]*' | sed 's/.*_//')
    [ -n "$versions" ] || { echo "glibc-floor: $file names no version of glibc" >&2; exit 1; }
    needed=$(echo "$versions" | sort -V | tail -1)
    newest=$(printf '%s\n' "$needed" "$promised" | sort -V | tail -1)
    if [ "$newest" != "$promised" ]; then
        echo "glibc-floor: $file needs glibc $needed, and README.md promises $promised" >&2
        exit 1
    fi
    floor=$(printf '%s\n' "$needed" "$floor" | sort -V | tail -1)
done
echo "$floor"
