#!/bin/bash
# How fast prompts are read on this machine's GPU: `reel bench` on synthetic models, from no context
# at all, the last position's logits on the host included. A model is timed only when
# tools/gpu_check.py finds its prompts within the bound of transformers' (step prefill-quick).
#
#   bench/gpu/prefill.sh [CASE ...]     default: all cases below
#
# Writes $OUT/gpu-prefill.csv and prints a table last. GPU_OPTIONS="KEY=VALUE ..." is handed to reel
# (and to the check); MODEL_06B, MODEL_17B and MODEL_35 name other models, LONG other lengths of case long.
# DEVICE=cpu tries the script without a GPU; SIZE=sim TORCH=cpu its check with the fake driver of tests/sim.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. tools/gpu_env.sh
device=${DEVICE:-gpu} runs=${RUNS:-5}
[ $# -gt 0 ] || set -- first lengths crossover long 1.7b 3.5
csv=$OUT/gpu-prefill.csv
. bench/gpu/rows.sh
{
    echo "# ${gpu%%,*}, driver${gpu##*,}, reel $REEL_COMMIT, $(date -u +%F); $(state)"
    echo "# bench/gpu/prefill.sh $*${GPU_OPTIONS:+ with GPU_OPTIONS=\"$GPU_OPTIONS\"}; the median of $runs runs each"
    echo 'case,model,test,ms_to_first_token,prompt_tok_per_s,sd_tok_per_s,passes,reaches,unit,command'
} >"$csv"

right() { # MODEL: its prompts are right, as far as looked; once a model
    local mark out=$KEEP/prefill-check given=(--model "$1" --steps prefill-quick)
    ! grep -q qwen3_5 "$1/config.json" || given=(--hybrid "$1" --steps hybrid-quick)
    mark=$out/$(basename "$1").$$
    [ ! -f "$mark.right" ] || return 0
    [ ! -f "$mark.wrong" ] || return 1
    mkdir -p "$out"
    if timeout 150 "$PYTHON" tools/gpu_check.py --reel "$REEL" --library "$REEL_LIBRARY" --models "$KEEP/models" --out "$out" \
        --size "${SIZE:-full}" --torch-device "${TORCH:-}" --gpu-options "$(tr ' ' , <<<"${GPU_OPTIONS:-}")" \
        --device "$device" "${given[@]}" >"$out/words" 2>&1; then
        touch "$mark.right"
        echo "# $(basename "$1"): $(grep -o '[0-9]* positions: rms.*' "$out/words" | head -n 1)" >>"$csv"
    else
        touch "$mark.wrong"
        tail -n 5 "$out/words" >&2
        return 1
    fi
}

timed() { # CASE LIMIT MODEL FLOORS ARGUMENTS...; FLOORS: "TEST:UNIT:PASSES:REACHES ..."
    local name=$1 limit=$2 model=$3 floors=$4 status=0 words
    shift 4
    words="reel bench $(basename "$model") $* -n 0 -r $runs --device $device"
    if ! right "$model"; then
        echo "$name,$(basename "$model"),,,,,,,the output is wrong: nothing was timed,$words" >>"$csv"
    elif timeout "$limit" "$REEL" bench "$model" "$@" -n 0 -r "$runs" --device "$device" ${options[@]+"${options[@]}"} \
        -o csv >"$KEEP/bench.csv" 2>"$KEEP/bench.err" || ! status=$?; then
        "$PYTHON" - "$KEEP/bench.csv" "$name" "$words" "$floors" >>"$csv" <<'END'
import csv, sys
path, name, words, floors = sys.argv[1:]
floors = {f.split(":")[0]: f.split(":") for f in floors.split()}
words = words.replace(",", " ")
for row in csv.DictReader(open(path)):
    _, unit, passes, reaches = floors.get(row["test"], ["", "", "", ""])
    spread = row["stddev_ts"] if row["n_gen"] == "0" else ""
    print(f'{name},{row["model"]},{row["test"]},{row["first_token_ms"]},{row["prompt_ts"]},{spread},'
          f"{passes},{reaches},{unit},{words}")
END
    else
        [ "$status" != 124 ] || echo "not over in $limit s" >"$KEEP/bench.err"
        echo "$name,$(basename "$model"),,,,,,,$(tail -n 1 "$KEEP/bench.err" | tr ',\r' '; ' | tail -c 200),$words" >>"$csv"
    fi
}

small=$(synthesized qwen3-0.6b "${MODEL_06B:-}")
for case in "$@"; do
    case $case in
    first) # the first id itself, picked and delivered
        timed 'to the first id' 60 "$small" 'pp16+tg1:ms:1.0:0.5 pp64+tg1:ms:1.2:0.6' \
            -p 0 --pg 1,1 --pg 2,1 --pg 4,1 --pg 8,1 --pg 16,1 --pg 32,1 --pg 64,1 --pg 128,1 --pg 512,1
        ;;
    lengths)
        timed lengths 90 "$small" 'pp512:tok/s:120000:250000' -p 1,2,4,8,16,32,64,128,256,512,1024
        ;;
    crossover) # each way of reading, from one token on
        given=("${options[@]+"${options[@]}"}")
        for from in 0 1; do
            options=("${given[@]+"${given[@]}"}" --gpu-option "prefill_from=$from")
            timed "prefill_from=$from" 90 "$small" '' -p 2,3,4,5,6,8,12,16,32
        done
        options=("${given[@]+"${given[@]}"}")
        ;;
    long)
        timed long 120 "$small" 'pp4096:tok/s:150000:300000 pp32768:tok/s:30000:70000' -p "${LONG:-4096,32768}"
        ;;
    1.7b)
        timed 1.7B 90 "$(synthesized qwen3-1.7b "${MODEL_17B:-}")" 'pp512:tok/s:60000:120000' -p 16,64,512,4096
        ;;
    3.5)
        timed 3.5 120 "$(synthesized qwen3.5-0.8b "${MODEL_35:-}")" 'pp520:tok/s:100000:200000 pp4096:tok/s:120000:250000' -p 64,520,4096
        ;;
    *) echo "case $case is unknown" >&2 ;;
    esac
done
echo "# afterwards: $(state)" >>"$csv"

"$PYTHON" - "$csv" <<'END'
import csv, sys
lines = open(sys.argv[1]).read().splitlines()
print("\n".join(line for line in lines if line.startswith("#")))
failed = False
for row in csv.DictReader(line for line in lines if not line.startswith("#")):
    ms, rate, verdict = row["ms_to_first_token"], row["prompt_tok_per_s"], ""
    if not ms:
        failed, verdict = True, f'FAILED: {row["unit"]}'
    elif row["passes"]:
        is_time = row["unit"] == "ms"
        value, floor, reach = float(ms if is_time else rate), float(row["passes"]), float(row["reaches"])
        better = (lambda bar: value <= bar) if is_time else (lambda bar: value >= bar)
        verdict = f"BELOW the floor, {floor:g} {row['unit']}" if not better(floor) else \
            f"passes {floor:g}" + (f" and reaches {reach:g}" if better(reach) else f", not yet {reach:g}")
    print(f'{row["case"]:18} {row["model"]:14} {row["test"] or "-":12} {ms or "-":>9} ms {rate or "-":>12} tok/s  {verdict}')
sys.exit(failed)
END
