#!/bin/sh
# Prints the processor that a program or library was built for, as `uname -m` calls it: x86_64 or aarch64.
#
#   scripts/package/machine.sh FILE
set -eu
# From the file's header, by its number in <elf.h>.
number=$(od -An -tu2 --endian=little -j18 -N2 "$1" | tr -d ' ')
case $number in
62) echo x86_64 ;;
183) echo aarch64 ;;
*)
    echo "machine: $1 is for machine $number, for which there are no packages" >&2
    exit 1
    ;;
esac
