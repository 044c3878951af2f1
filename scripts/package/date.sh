#!/bin/sh
# Prints the time stamp of packed files in seconds: that of the commit, so that packages of a commit are reproducible.
# SOURCE_DATE_EPOCH overrides it.
set -eu
[ -z "${SOURCE_DATE_EPOCH:-}" ] || { echo "$SOURCE_DATE_EPOCH"; exit; }
git -C "$(dirname "$0")/../.." log -1 --format=%ct 2>/dev/null || date +%s
