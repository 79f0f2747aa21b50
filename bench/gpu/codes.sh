#!/bin/bash
# What keys and values of 8 bits cost and gain on this machine's GPU: 100 tokens and prompts of 512 around each position of
# DEPTHS (default 0,4000,32000) with --kv bf16, int8 and fp8.
#
#   bench/gpu/codes.sh [SHAPE ...]      default: qwen3-0.6b
#
# `reel bench` refuses a model whose output is wrong. Writes $OUT/gpu-kv.csv and prints it. RUNS (3), PROMPTS (512),
# FORMS ("bf16 int8 fp8") and GPU_OPTIONS change what is timed. The exit status is 1 when a case fails.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. tools/gpu_env.sh
. bench/gpu/rows.sh
[ $# -gt 0 ] || set -- qwen3-0.6b
csv=$OUT/gpu-kv.csv bad=0
{
    echo "# ${gpu%%,*}, driver${gpu##*,}, reel $REEL_COMMIT, $(date -u +%F); $(state)"
    echo "# bench/gpu/codes.sh $*${GPU_OPTIONS:+ with GPU_OPTIONS=\"$GPU_OPTIONS\"}; medians of ${RUNS:-3} runs"
    echo 'shape,kv,test,depth,tokens_per_s,sd,tok_per_joule'
} >"$csv"
for shape in "$@"; do
    model=$(synthesized "$shape") || { echo "$shape: cannot be made" >&2; exit 1; }
    for form in ${FORMS:-bf16 int8 fp8}; do
        if ! timeout 240 "$REEL" bench "$model" --kv "$form" -p "${PROMPTS:-512}" -n 100 -d "${DEPTHS:-0,4000,32000}" \
            -r "${RUNS:-3}" --device "${DEVICE:-gpu}" ${options[@]+"${options[@]}"} -o csv >"$KEEP/codes.csv" 2>"$KEEP/codes.err"; then
            echo "$shape,$form,FAILED: $(tail -n 1 "$KEEP/codes.err" | tr ',\r' '; ' | tail -c 250),,,," >>"$csv"
            bad=1
            continue
        fi
        "$PYTHON" - "$KEEP/codes.csv" "$shape" "$form" >>"$csv" <<'END'
import csv, sys
path, shape, form = sys.argv[1:]
for row in csv.DictReader(open(path)):
    print(f'{shape},{form},{row["test"]},{row.get("depth", "")},{row["median_ts"]},{row["stddev_ts"]},{row.get("tokens_per_joule", "")}')
END
    done
done
echo "# afterwards: $(state)" >>"$csv"
cat "$csv"
exit $bad
