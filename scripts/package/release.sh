#!/bin/sh
# Makes a release: checks that tree and version are ready, builds all packages with their checksums, and prints the tag that
# it would set. With --tag it sets the tag. Pushing it and uploading the files are manual steps.
#
#   scripts/package/release.sh [--tag] [--built FOLDER]
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
tag= built=
while [ $# -gt 0 ]; do
    case $1 in
    --tag) tag=yes ;;
    --built) built=$2 && shift ;;
    *) echo "usage: scripts/package/release.sh [--tag] [--built FOLDER]" >&2 && exit 2 ;;
    esac
    shift
done

version=$(scripts/package/version.sh)
problems=0
problem() {
    echo "release: $1" >&2
    problems=$((problems + 1))
}
changed=$(git status --porcelain)
[ -z "$changed" ] || problem "the tree is not clean:
$changed"
header=$(sed -n 's/^#define CACHEALLOC_VERSION "\(.*\)"/\1/p' include/cachealloc.h)
[ "$header" = "$version" ] || problem "include/cachealloc.h has version $header, and Cargo.toml $version"
heading=$(sed -n 's/^## //p' CHANGELOG.md | head -1)
case $heading in
"$version" | "$version "*) ;;
*) problem "CHANGELOG.md begins with $heading, and Cargo.toml has version $version" ;;
esac
for name in $(sed -n 's/^name = "\(cachealloc-.*\)"/\1/p' Cargo.lock); do
    locked=$(grep -A 1 "^name = \"$name\"" Cargo.lock | sed -n 's/^version = "\(.*\)"/\1/p')
    [ "$locked" = "$version" ] || problem "Cargo.lock has $name $locked, and Cargo.toml version $version"
done
if git rev-parse --quiet --verify "refs/tags/v$version" >/dev/null; then
    problem "the tag v$version exists: raise the version in Cargo.toml, include/cachealloc.h and CHANGELOG.md"
fi
case $heading in
*"not released"*)
    [ -z "$tag" ] || problem "CHANGELOG.md says of $version that it is not released yet"
    ;;
esac
[ "$problems" = 0 ] || exit 1

if [ -z "$built" ]; then
    make build >&2
    built=${CARGO_TARGET_DIR:-$root/target}/release
fi
echo "packages of $version:"
for script in dist.sh deb.sh wheel.py; do
    package=$("scripts/package/$script" --built "$built")
    echo "  $package"
done
checksums=$(scripts/package/checksums.sh)
echo "  $checksums"
commit=$(git rev-parse HEAD)
if [ -n "$tag" ]; then
    git tag -a -m "cachealloc $version" "v$version" "$commit"
    echo "tagged: v$version is $commit; publish it with git push origin v$version"
else
    echo "would be tagged: v$version is $commit"
fi
