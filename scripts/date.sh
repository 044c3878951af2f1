#!/bin/sh
# Prints the time that packed files bear, in seconds: that of the commit, so that one commit makes the same bytes anywhere
# and at any time. Another one: SOURCE_DATE_EPOCH.
set -eu
[ -z "${SOURCE_DATE_EPOCH:-}" ] || { echo "$SOURCE_DATE_EPOCH"; exit; }
git -C "$(dirname "$0")/.." log -1 --format=%ct 2>/dev/null || date +%s
