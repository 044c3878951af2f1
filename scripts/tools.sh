#!/bin/sh
# Lists, before anything is built, the missing tools of the tests, and the tests that are skipped without them.
# Under CI (CI is set), a missing tool is an error.
#
#   scripts/tools.sh [--long]      --long: those of `make test-long`, too
set -eu
missing=0
has() { command -v "$1" >/dev/null 2>&1; }
# need TEST SKIPPED INSTALL: a check for a tool, the tests that are skipped without it, and how to install it.
need() {
    sh -c "$1" >/dev/null 2>&1 && return
    missing=$((missing + 1))
    echo "tests: $2 (to have it: $3)" >&2
}
for tool in cargo gcc; do
    has "$tool" || { echo "tests: $tool is missing, and nothing can be tested without it" >&2; exit 2; }
done
component='rustup component add'
need 'cargo fmt --version' 'no rustfmt: the formatting is not checked' "$component rustfmt"
need 'cargo clippy --version' 'no clippy: the lints do not run' "$component clippy"
need 'command -v g++' 'no g++: stacks of C++ are not tested' 'apt-get install g++'
need 'command -v python3' 'no python3: Python does not read our snapshots and statistics, and Python programs are not run' 'apt-get install python3'
need 'command -v gdb && command -v strace' 'no gdb or no strace: programs are not run under them' 'apt-get install gdb strace'
need 'ls /usr/lib/*/libjemalloc.so.2 /usr/lib/*/libtcmalloc_minimal.so.4 /usr/lib/*/faketime/libfaketimeMT.so.1' \
    'no jemalloc, tcmalloc or libfaketime: the library does not run beside them' \
    'apt-get install libjemalloc2 libtcmalloc-minimal4 libfaketime'
need '[ "$(id -u)" = 0 ]' 'not root: other users, namespaces and packages are not tried' 'run the tests as root in a container'
if [ "${1:-}" = --long ]; then
    case $(uname -m) in
    aarch64) other=x86_64-unknown-linux-gnu ;;
    *) other=aarch64-unknown-linux-gnu ;;
    esac
    need "[ -d \"$(rustc --print sysroot)/lib/rustlib/$other/lib\" ]" "no $other library of Rust's: nothing is checked for it" "rustup target add $other"
    need 'command -v valgrind' 'no valgrind: instructions are not counted' 'apt-get install valgrind'
    need 'command -v chromium' 'no chromium: the report is not opened' 'apt-get install chromium'
    need 'command -v musl-gcc' 'no musl-gcc: programs of that C library are not tried' 'apt-get install musl-tools'
    need 'command -v lintian' 'no lintian: the Debian package is not checked by it' 'apt-get install lintian'
    need "python3 -c 'import ensurepip'" 'no venv for python3: the wheel is not installed' 'apt-get install python3-venv'
    need "/usr/bin/python3 -c 'import prometheus_client'" 'no prometheus_client: its reader does not read our text' \
        'apt-get install python3-prometheus-client'
fi
[ "$missing" = 0 ] || [ -z "${CI:-}" ] || { echo "tests: under CI nothing is left out" >&2; exit 1; }
