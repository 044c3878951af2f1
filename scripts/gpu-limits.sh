#!/usr/bin/env bash
# Tests limits and strategies on this machine's GPU with programs that check their results themselves,
# because the driver has no counterpart. Needs python3 with torch.
#
# usage: scripts/gpu-limits.sh [--lib PATH] [--only PATTERN]
set -u

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
lib=$root/target/release/libcachealloc.so
only=
while [ $# -gt 0 ]; do
    case $1 in
    --lib) lib=$2; shift ;;
    --only) only=$2; shift ;;
    *) sed -n '2,5s/^# //p' "$0" >&2; exit 2 ;;
    esac
    shift
done
lib=$(realpath -e "$lib") || exit 2
python3 -c 'import torch' 2>/dev/null || { echo "gpu-limits: python3 has no torch" >&2; exit 2; }

failures=0
check() { # name settings variables... script
    local name=$1 settings=$2 out rc
    shift 2
    [[ $name =~ $only ]] || return
    local variables=("${@:1:$#-1}") script=${!#}
    out=$(timeout -k 5 300 env "${variables[@]}" LD_PRELOAD="$lib" CACHEALLOC_CONF="$settings" \
        python3 "$root/tests/gpu/py/$script" 2>&1)
    rc=$?
    if [ $rc = 0 ] && grep -q ': ok$' <<<"${out##*$'\n'}"; then
        echo "$name: ok"
    else
        failures=$((failures + 1))
        echo "$name: exit $rc"
        printf '    %s\n' "${out//$'\n'/$'\n'    }"
    fi
}

raw=PYTORCH_NO_CUDA_MEMORY_CACHING=1
for mode in ordered strict relaxed; do
    check "limit-$mode" "free_mode:$mode,gpu_memory_limit_mb:4096" $raw LIMIT_MIB=4096 limit.py
done
snapshots=$(mktemp -d)
check limit-recorded "gpu_memory_limit_mb:4096,record:all,snapshot:$snapshots/%p-%n.pickle" $raw LIMIT_MIB=4096 limit.py
rm -rf "$snapshots"
check limit-expandable "gpu_memory_limit_mb:4096,expandable_segments:true" $raw LIMIT_MIB=4096 limit.py
check limit-in-chunks "gpu_memory_limit_mb:4096,strategy:pre_allocate,fraction_of_gpu_memory_to_use:1" \
    $raw LIMIT_MIB=4096 limit.py
check limit-uncached "gpu_memory_limit_mb:4096,fraction_of_gpu_memory_to_use:0" $raw LIMIT_MIB=4096 limit.py
# PyTorch's own cache and its own virtual memory both count towards the limit.
check limit-torch "gpu_memory_limit_mb:4096" LIMIT_MIB=4096 limit.py
check limit-torch-expandable "gpu_memory_limit_mb:4096" \
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True LIMIT_MIB=4096 limit.py
check chunks "strategy:pre_allocate,fraction_of_gpu_memory_to_use:0.2" $raw chunks.py
[ $failures = 0 ]
