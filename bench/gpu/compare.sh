#!/bin/bash
# Two builds on one card: the same ids, and speeds side by side (bench/gpu/compare.py says how).
#
#   BEFORE=REEL bench/gpu/compare.sh [arguments of compare.py]
#
# BEFORE is the earlier build's program, build/gpu-before/bin/reel where it is not named: what tools/gpu_pack.sh made in a
# checkout of the earlier commit, copied here. Writes $OUT/gpu-compare.csv and prints it as a table.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
if [ -d build/gpu-before ]; then
    mkdir -p "${KEEP:-/tmp/reel-gpu}"
    cp -r build/gpu-before "${KEEP:-/tmp/reel-gpu}/"
fi
. tools/gpu_env.sh
. bench/gpu/rows.sh
before=${BEFORE:-$KEEP/gpu-before/bin/reel} csv=$OUT/gpu-compare.csv
{
    echo "# ${gpu%%,*}, driver${gpu##*,}, reel $REEL_COMMIT against $(cat "$(dirname "$before")/../commit" 2>/dev/null || echo unknown), $(date -u +%F); $(state)"
    echo "# bench/gpu/compare.sh $*; prompts/s: 1 over the time to a prompt's end; a ratio above 1: the later build is faster"
    echo 'case,model,test,before,after,unit,ratio,spread_before,spread_after,runs'
    "$PYTHON" bench/gpu/compare.py --before "$before" --after "$REEL" --models "$KEEP/models" "$@"
    echo $? >"$KEEP/compare.exit"
    echo "# afterwards: $(state)"
} >"$csv"
grep '^#' "$csv"
grep -v '^#' "$csv" | if command -v column >/dev/null; then column -s, -t; else cat; fi
exit "$(cat "$KEEP/compare.exit")"
