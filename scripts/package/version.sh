#!/bin/sh
# Prints the version: that of the workspace.
set -eu
sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$(dirname "$0")/../../Cargo.toml"
