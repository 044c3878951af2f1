#!/bin/sh
# Installs the built files: library, command, header, manual pages, completions, licences.
#
#   scripts/package/install.sh [--remove] [--built FOLDER] PREFIX     PREFIX as /usr/local, or a folder that is packed later
#
# FOLDER holds the built files: target/release.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
built=${CARGO_TARGET_DIR:-$root/target}/release
remove=
while :; do
    case ${1:-} in
    --remove) remove=yes ;;
    --built) built=$2 && shift ;;
    *) break ;;
    esac
    shift
done
[ $# -eq 1 ] || { echo "usage: scripts/package/install.sh [--remove] [--built FOLDER] PREFIX" >&2; exit 2; }
prefix=$1
shared=$prefix/share
documents=$shared/doc/cachealloc

if [ -n "$remove" ]; then
    rm -f "$prefix/lib/libcachealloc.so" "$prefix/bin/cachealloc" "$prefix/include/cachealloc.h" \
        "$shared/man/man1/cachealloc.1" "$shared/man/man1/cachealloc-"*.1 \
        "$shared/man/man7/cachealloc.7" \
        "$shared/bash-completion/completions/cachealloc" "$shared/zsh/site-functions/_cachealloc" \
        "$shared/fish/vendor_completions.d/cachealloc.fish"
    rm -rf "$documents"
    echo "removed from $prefix"
    exit
fi
for file in libcachealloc.so cachealloc; do
    [ -e "$built/$file" ] || { echo "install: $built/$file is missing: run \`make\` first" >&2; exit 1; }
done
pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
"$built/cachealloc" man --folder "$pages"
for shell in bash zsh fish; do "$built/cachealloc" completions "$shell" >"$pages/$shell"; done

install -D -m 755 "$built/libcachealloc.so" "$prefix/lib/libcachealloc.so"
install -D -m 755 "$built/cachealloc" "$prefix/bin/cachealloc"
install -D -m 644 "$root/include/cachealloc.h" "$prefix/include/cachealloc.h"
install -d "$shared/man/man1" "$documents"
install -m 644 "$pages"/*.1 "$shared/man/man1"
install -D -m 644 "$pages/cachealloc.7" "$shared/man/man7/cachealloc.7"
install -D -m 644 "$pages/bash" "$shared/bash-completion/completions/cachealloc"
install -D -m 644 "$pages/zsh" "$shared/zsh/site-functions/_cachealloc"
install -D -m 644 "$pages/fish" "$shared/fish/vendor_completions.d/cachealloc.fish"
(cd "$root" && install -m 644 LICENSE-MIT LICENSE-APACHE README.md CHANGELOG.md CONTRIBUTING.md "$documents" &&
    # All targets of links in the documents.
    find docs samples src/README.md -type f -exec install -D -m 644 {} "$documents/{}" \;)
echo "installed in $prefix"
