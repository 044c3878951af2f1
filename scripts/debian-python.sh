#!/bin/sh
# Fetches an interpreter of a later Debian for the tests of Python's stacks, from the mirror that apt uses here: the
# packages that it needs, including its C library, unpacked into target/pythons and never installed. Prints the
# program that runs it, for PYTHONS.
#
#   scripts/debian-python.sh SUITE VERSION      scripts/debian-python.sh trixie 3.13
set -eu
cd "$(dirname "$0")/.."
[ $# -eq 2 ] || { sed -n 's/^# *scripts/usage: scripts/p' "$0" >&2; exit 2; }
suite=$1 python=python$2
place=$(pwd)/target/pythons/$suite-$2
program=$place/$python
# Kept between runs.
if [ -x "$program" ]; then
    echo "$program"
    exit
fi

say() {
    echo "debian-python: $*" >&2
}

here=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
mirror=
# A list of sources may name the release or `stable`; only the fetched index has both names.
for key in Release Codename; do
    # shellcheck disable=SC2016
    [ -n "$mirror" ] || mirror=$(apt-get indextargets --format '$(REPO_URI)' "$key: $here" 'Component: main' | head -n 1)
done
[ -n "$mirror" ] || { say "apt has no mirror of $here"; exit 1; }

rm -rf "$place"
mkdir -p "$place/apt/lists/partial" "$place/apt/cache/archives/partial" "$place/apt/none"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$place/apt/sources.list"
# An empty list of installed packages, so that apt fetches everything.
: >"$place/apt/status"
apt() {
    apt-get -qq -o Dir::Etc::SourceList="$place/apt/sources.list" -o Dir::Etc::SourceParts="$place/apt/none" \
        -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts="$place/apt/none" \
        -o Dir::State="$place/apt" -o Dir::State::status="$place/apt/status" -o Dir::Cache="$place/apt/cache" \
        -o APT::Sandbox::User="$(id -un)" -o APT::Install-Recommends=false -o Acquire::Retries=3 -o Debug::NoLocking=true "$@"
}
for attempt in 1 2 3 4; do
    if apt update >&2 && apt install -y --download-only "$python" >&2; then
        break
    fi
    [ "$attempt" -lt 4 ] || { say "cannot fetch $python of $suite from $mirror"; exit 1; }
    sleep $((attempt * 10))
done
for package in "$place"/apt/cache/archives/*.deb; do
    dpkg -x "$package" "$place"
done
rm -rf "$place/apt"

# Run by the unpacked loader, because the C library of this machine may be older.
loader=$(find "$place" -name 'ld-linux-*.so.*' | head -n 1)
libraries=$(echo "$place"/usr/lib/*-linux-gnu)
cat >"$program.new" <<END
#!/bin/sh
exec "$loader" --library-path "$libraries\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}" "$place/usr/bin/$python" "\$@"
END
chmod +x "$program.new"
"$program.new" -c 'import ctypes' || { say "$python of $suite does not run"; exit 1; }
mv "$program.new" "$program"
echo "$program"
