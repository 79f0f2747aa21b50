#!/bin/bash
# What a pass of 1, 2, 4 and 8 columns (docs/BATCHES.md) takes on this machine's GPU, at positions 0 and 4,096, and
# whether each column makes the ids that it makes alone. Needs what tools/gpu_pack.sh made. Models are synthesized.
#
#   bench/gpu/columns.sh [SHAPE ...]      default: qwen3-0.6b
#
# CAPS="0 1 2 3": bytes in flight in the layers, in slots of the ring; 0 is the plan's number. Writes
# $OUT/gpu-columns.tsv and prints it. The exit status is 1 when ids differ or a launch fails.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. tools/gpu_env.sh
. bench/gpu/rows.sh
[ $# -gt 0 ] || set -- qwen3-0.6b
out=$OUT/gpu-columns.tsv bad=0
: >"$out"
for shape in "$@"; do
    model=$(synthesized "$shape") || exit
    for cap in ${CAPS:-0}; do
        echo "# $shape, reel $REEL_COMMIT, cap $cap${GPU_OPTIONS:+, $GPU_OPTIONS}" >>"$out"
        timeout 240 "$(dirname "$REEL")/columns_bench" "$model" "${GPU_OPTIONS:-}" "$KEEP/cache" "$cap" >>"$out" 2>&1 || {
            echo "# FAILED" >>"$out"
            bad=1
        }
    done
done
cat "$out"
exit $bad
