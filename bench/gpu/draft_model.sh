#!/bin/bash
# What a draft model (docs/SPECULATION.md) is worth on this machine's GPU: both models run, the draft model guesses, and an
# oracle then makes a given share of its guesses right (tools/draft_bench.c). Needs what tools/gpu_pack.sh made. Models are
# synthesized.
#
#   bench/gpu/draft_model.sh [TARGET DRAFT]      shapes; default: qwen3-8b qwen3-0.6b
#
# Writes $OUT/gpu-draft-model.csv and prints a table last: that of guesses of which three in four are right.
# DEVICE=cpu tries the script without a GPU; GPU_OPTIONS="KEY=VALUE ..." is handed to both models; IDS is how many are
# made in a run (160); POSITION how long the prompt is (32 and 4,000); LIMIT how many seconds all may take (540). The exit status is 1 when ids differ or a launch fails.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. tools/gpu_env.sh
. bench/gpu/rows.sh
[ $# -gt 0 ] || set -- qwen3-8b qwen3-0.6b
device=${DEVICE:-gpu} csv=$OUT/gpu-draft-model.csv bad=0
target=$(synthesized "$1" "${MODEL_TARGET:-}") && draft=$(synthesized "$2" "${MODEL_DRAFT:-}") || exit
tr ' ' ',' <<<"${GPU_OPTIONS:-}" >"$KEEP/draft.options"
timeout "${LIMIT:-540}" "$(dirname "$REEL")/draft_bench" "$target" "$draft" "$device" "$(cat "$KEEP/draft.options")" "$KEEP/cache" \
    "${IDS:-160}" "${POSITION:-0}" >"$KEEP/draft.tsv" 2>"$KEEP/draft.err" || bad=1
{
    echo "# ${gpu%%,*}, driver${gpu##*,}, reel $REEL_COMMIT, $(date -u +%F); $(state)"
    echo "# draft_bench $(basename "$target") $(basename "$draft") $device${GPU_OPTIONS:+ \"$GPU_OPTIONS\"} CACHE ${IDS:-160}; the best of 3 runs; right: the chance of each guess; ids are those without drafts"
    sed '1!d; s/ /_/g; s/\t/,/g; s/^/model,draft,/' "$KEEP/draft.tsv"
    sed "1d; s/\t/,/g; s/^/$(basename "$target"),$(basename "$draft"),/" "$KEEP/draft.tsv"
} >"$csv"
if [ $bad = 1 ]; then
    echo "# FAILED: $(tail -n 1 "$KEEP/draft.err")" >>"$csv"
    cat "$csv"
else
    grep '^#' "$csv"
    grep -P 'position|\t-\t-\t|\t0.75\t' "$KEEP/draft.tsv" | awk '!seen[$0]++ && ($3 != "-" || !alone[$1 $2]++)' FS='\t' |
        column -t -s "$(printf '\t')"
fi
exit $bad
