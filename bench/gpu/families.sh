#!/bin/bash
# What decoding costs for shapes of other families on this machine's GPU, at positions 0 to 200, beside
# what its read bandwidth would allow. Models are synthesized. A shape is timed only where `reel verify`
# finds its logits right; how many greedy ids equal the CPU's is said beside it (random weights have
# near-ties, after which ids go apart).
#
#   bench/gpu/families.sh [SHAPE ...]     default: llama-3.2-1b and qwen2.5-0.5b
#
# Writes $OUT/gpu-families.csv and prints a table last; the exit status is 1 when a shape is wrong or below
# its floor. DEVICE=cpu tries the script without a GPU; GPU_OPTIONS="KEY=VALUE ..." is handed to reel.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. tools/gpu_env.sh
device=${DEVICE:-gpu} runs=${RUNS:-5} n_ids=${IDS:-24}
[ $# -gt 0 ] || set -- llama-3.2-1b qwen2.5-0.5b
csv=$OUT/gpu-families.csv
. bench/gpu/rows.sh
{
    echo "# ${gpu%%,*}, driver${gpu##*,}, reel $REEL_COMMIT, $(date -u +%F); $(state)"
    echo "# bench/gpu/families.sh $*${GPU_OPTIONS:+ with GPU_OPTIONS=\"$GPU_OPTIONS\"}; the median of $runs runs each"
    echo 'shape,family,value,unit,sd,p50_ms,p99_ms,gb_per_s,read_gb_per_s,ceiling_tok_s,share,passes_at,ids_as_cpu,logits,command'
} >"$csv"

ids() { # DEVICE MODEL: greedy ids behind a few words, separated by spaces
    local given=()
    [ "$1" = cpu ] || given=(${options[@]+"${options[@]}"})
    timeout 240 "$REEL" run "$2" --raw -p 'The tape plays on' -n "$n_ids" --temp 0 --ignore-eos --json -q --device "$1" \
        ${given[@]+"${given[@]}"} 2>>"$KEEP/families.err" |
        "$PYTHON" -c 'import json, sys; print(*json.load(sys.stdin)["ids"])'
}

same() { # how many ids two lists begin with in common
    "$PYTHON" -c 'import sys
a, b = (x.split() for x in sys.argv[1:])
print(next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b))))' "$1" "$2"
}

shape() { # SHAPE SHARE: the least share of the ceiling
    local name=$1 passes=$2 model words verdict=right made wanted
    : >"$KEEP/families.err"
    model=$(synthesized "$name") || { echo "$name,,,cannot be made,,,,,,,,$passes,,," >>"$csv"; return; }
    words="reel bench $name -p 0 -n 200 -d 0 -r $runs --device $device"
    timeout 240 "$REEL" verify "$model" -n 8 --device "$device" ${options[@]+"${options[@]}"} >"$KEEP/verify" 2>&1 ||
        { verdict=WRONG; tail -n 3 "$KEEP/verify" >&2; }
    made=$(ids "$device" "$model") wanted=$(ids cpu "$model")
    if [ $verdict = right ] && timeout 180 "$REEL" bench "$model" -p 0 -n 200 -d 0 -r "$runs" --device "$device" \
        ${options[@]+"${options[@]}"} -o csv >"$KEEP/bench.csv" 2>"$KEEP/families.err"; then
        "$REEL" inspect "$model" --json >"$KEEP/inspect.json"
        "$PYTHON" - "$KEEP/bench.csv" "$KEEP/inspect.json" "$name" "$passes" "$(same "$made" "$wanted") of $n_ids" \
            "$words" >>"$csv" <<'END'
import csv, json, sys
path, inspected, name, passes, ids, words = sys.argv[1:]
token_bytes = json.load(open(inspected))["memory"]["token_bytes"]
for row in csv.DictReader(open(path)):
    read = float(row["read_bandwidth_gb_per_s"])
    ceiling = read * 1e9 / token_bytes
    value = float(row["median_ts"])
    print(f'{name},{row["family"]},{value:.1f},tok/s,{row["stddev_ts"]},{row["p50_ms"]},{row["p99_ms"]},'
          f'{row["gb_per_s"]},{read:.1f},{ceiling:.1f},{value / ceiling:.3f},{passes},{ids},right,{words}')
END
    else
        echo "$name,,,$(tail -n 1 "$KEEP/families.err" | tr ',\r' '; ' | tail -c 200),,,,,,,,$passes,,$verdict,$words" >>"$csv"
    fi
}

for name in "$@"; do
    case $name in
    llama-3.2-1b) shape "$name" 0.78 ;;
    qwen2.5-0.5b) shape "$name" 0.62 ;;
    *) shape "$name" '' ;;
    esac
done
echo "# afterwards: $(state)" >>"$csv"

"$PYTHON" - "$csv" <<'END'
import csv, sys
lines = open(sys.argv[1]).read().splitlines()
print("\n".join(line for line in lines if line.startswith("#")))
failed = False
for row in csv.DictReader(line for line in lines if not line.startswith("#")):
    verdict = ""
    if not row["value"]:
        failed, verdict = True, f'FAILED: {row["unit"] or row["logits"]}'
    elif row["passes_at"]:
        low = float(row["share"]) < float(row["passes_at"])
        failed |= low
        verdict = f'{"BELOW" if low else "passes"} {row["passes_at"]}'
    print(f'{row["shape"]:16} {row["value"] or "-":>9} tok/s of {row["ceiling_tok_s"] or "-":>9}  share {row["share"] or "-":>6}  '
          f'p50 {row["p50_ms"] or "-":>8} ms  logits {row["logits"]}, ids {row["ids_as_cpu"] or "-":>8}  {verdict}')
sys.exit(failed)
END
