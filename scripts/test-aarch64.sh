#!/bin/sh
# Builds everything for aarch64, runs under qemu's user emulation the tests that can run there, and makes the packages.
#
#   scripts/test-aarch64.sh [TEST...]     TEST: part of the name of a black-box test; default: those below
#
# It needs `rustup target add aarch64-unknown-linux-gnu`, and of Debian: gcc-aarch64-linux-gnu g++-aarch64-linux-gnu
# libc6-dev-arm64-cross qemu-user-static. Results, and the tests that cannot run there, are in docs/aarch64.md.
set -eu
cd "$(dirname "$0")/.."
target=aarch64-unknown-linux-gnu
built=$(pwd)/target/$target

if [ "${1:-}" != --in-namespace ]; then
    for tool in qemu-aarch64-static aarch64-linux-gnu-gcc aarch64-linux-gnu-g++; do
        command -v $tool >/dev/null || { echo "test-aarch64: $tool is missing" >&2; exit 1; }
    done
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
    cargo build -q --target $target --release -p cachealloc-preload -p cachealloc-cli
    cargo build -q --target $target --profile checked -p simulated-driver -p cachealloc-preload -p cachealloc-cli \
        --features cachealloc-preload/break-rules
    cargo test -q --target $target --profile checked --no-run -p cachealloc-stacks -p cachealloc-tests
    # In a namespace, the kernel starts programs of the other processor with the emulator, and the machine stays unchanged.
    exec unshare --map-root-user --mount "scripts/test-aarch64.sh" --in-namespace "$(command -v qemu-aarch64-static)" "$@"
fi

emulator=$2 && shift 2
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
# The header of an aarch64 file, with a mask of the significant bits.
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
printf '%s' ":aarch64:M::$magic:$mask:$emulator:F" >/proc/sys/fs/binfmt_misc/register
# The folder of its loader and C library.
export QEMU_LD_PREFIX=/usr/aarch64-linux-gnu
# The tests compile programs.
mkdir -p "$built/tools"
for tool in gcc g++; do
    printf '#!/bin/sh\nexec aarch64-linux-gnu-%s "$@"\n' $tool >"$built/tools/$tool"
    chmod 755 "$built/tools/$tool"
done
export PATH="$built/tools:$PATH"

run() { # NAME [ARGUMENT...]: the newest test executable of this name, in the folder of its package
    # shellcheck disable=SC2012
    file=$(ls -t "$built/checked/deps/$1"-* | grep -v '\.d$' | head -n 1)
    shift
    "$file" --test-threads 2 "$@"
}

if [ $# -eq 0 ]; then
    cd src/stacks
    # Without the tests of stacks that let the kernel read memory, which the emulator does not support.
    run cachealloc_stacks
    for each in oracle rules heap fork; do run $each; done
    # /proc/thread-self/exe is the emulator there, so these do not find the program's names.
    run modules --skip the_main_program_and_no_module --skip names_are_demangled_and_inlined_functions_shown
    run stacks --skip coroutines_have_stacks_of_their_own
    run signals --skip after_a_trap_where_only_libgcc_has_a_rule
    cd ../..
    # One test runs the shell, which is a program of this machine. Three need the names.
    set -- header:: matrix:: deep:: options:: doors:: answers:: ipc::an_ --skip options::help_needs_no_cuda \
        --skip programs_are_left_out_by_name --skip waits_are_reported_with_their_stacks \
        --skip an_overrun_is_reported_with_the_place_of_the_allocation
    "scripts/package/deb.sh" --built "$built/release"
    "scripts/package/dist.sh" --built "$built/release"
    "scripts/package/wheel.py" --built "$built/release"
fi
cd tests
run it "$@"
