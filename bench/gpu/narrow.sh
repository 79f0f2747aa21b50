#!/bin/bash
# What weights that stay narrow cost and gain on this machine's GPU: decoding at positions 0 to 200 and prompts of 512 and
# 4,096 tokens, each form beside bf16. Models are synthesized. `reel bench` refuses a model whose output is wrong.
#
#   bench/gpu/narrow.sh [SHAPE:FORM ...]      FORM: bf16, int8, int4, fp8; default: the shapes of docs/WEIGHTS.md
#
# int8 and int4 are made while the model is loaded (--weights), the output matrix too, as int8. fp8 is a folder as reel
# quantize writes it, with an output matrix in bf16. SHAPE may be a model's file or folder: then FORM is only a word.
#
# Writes $OUT/gpu-narrow.csv and prints a table last; the exit status is 1 when a case fails or is below its floor.
# DEPTHS (default 0), PROMPTS (512,4096) and RUNS (5) change what is timed, GPU_OPTIONS what is handed to reel.
# PROFILE=1 adds $OUT/gpu-narrow-profile.txt, where a token's time goes in each case.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. tools/gpu_env.sh
. bench/gpu/rows.sh
device=${DEVICE:-gpu} runs=${RUNS:-5} prompts=${PROMPTS:-512,4096} depths=${DEPTHS:-0}
[ $# -gt 0 ] || set -- qwen3-0.6b:bf16 qwen3-0.6b:int8 qwen3-0.6b:int4 qwen3-0.6b:fp8 qwen3-1.7b:bf16 qwen3-1.7b:int8 \
    qwen3-1.7b:int4 qwen3.5-0.8b:bf16 qwen3.5-0.8b:int8
csv=$OUT/gpu-narrow.csv bad=0
{
    echo "# ${gpu%%,*}, driver${gpu##*,}, reel $REEL_COMMIT, $(date -u +%F); $(state)"
    echo "# bench/gpu/narrow.sh $*${GPU_OPTIONS:+ with GPU_OPTIONS=\"$GPU_OPTIONS\"}; medians of $runs runs"
    echo 'shape,form,test,value,unit,sd,gb_per_s,tok_per_joule,bits_per_weight,passes_at'
} >"$csv"

formed() { # SHAPE FORM: its folder, made when it lacks
    if [ -e "$1" ]; then
        echo "$1"
    elif [ "$2" = fp8 ]; then
        [ -d "$KEEP/models/$1-$2" ] || "$REEL" synthesize "$KEEP/models/$1-$2" "$1" --weights "$2" >/dev/null || return
        echo "$KEEP/models/$1-$2"
    else
        synthesized "$1"
    fi
}

for case in "$@"; do
    shape=${case%:*} form=${case#*:}
    made=()
    [ -e "$shape" ] || case $form in int*) made=(--weights "$form") ;; esac
    model=$(formed "$shape" "$form") || { echo "$shape,$form,cannot be made,,,,,,," >>"$csv"; bad=1; continue; }
    if ! timeout 240 "$REEL" bench "$model" ${made[@]+"${made[@]}"} -p "$prompts" -n 200 -d "$depths" -r "$runs" --device "$device" \
        ${options[@]+"${options[@]}"} -o csv >"$KEEP/narrow.csv" 2>"$KEEP/narrow.err"; then
        echo "$shape,$form,FAILED: $(tail -n 1 "$KEEP/narrow.err" | tr ',\r' '; ' | tail -c 250),,,,,,," >>"$csv"
        bad=1
        continue
    fi
    "$PYTHON" - "$KEEP/narrow.csv" "$(basename "$shape")" "$form" >>"$csv" <<'END'
import csv, sys
path, shape, form = sys.argv[1:]
floors = {("qwen3-0.6b", "int8"): 3700, ("qwen3-0.6b", "int4"): 4200, ("qwen3-0.6b", "fp8"): 3400,
          ("qwen3-1.7b", "int8"): 1800, ("qwen3-1.7b", "int4"): 2500, ("qwen3-8b", "int4"): 700,
          ("qwen3.5-0.8b", "int8"): 2900}
for row in csv.DictReader(open(path)):
    floor = floors.get((shape, form), "") if row["test"] == "tg200" else ""
    print(f'{shape},{form},{row["test"]},{float(row["median_ts"]):.1f},tok/s,{row["stddev_ts"]},{row["gb_per_s"]},'
          f'{row.get("tokens_per_joule", "")},{row.get("bits_per_weight", "")},{floor}')
END
    [ -z "${PROFILE:-}" ] || {
        echo "== $shape $form"
        timeout 100 "$REEL" profile "$model" ${made[@]+"${made[@]}"} -d 0 --device "$device" ${options[@]+"${options[@]}"} 2>&1
    } >>"$OUT/gpu-narrow-profile.txt"
done
echo "# afterwards: $(state)" >>"$csv"

"$PYTHON" - "$csv" <<'END' || bad=1
import csv, sys
lines = open(sys.argv[1]).read().splitlines()
print("\n".join(line for line in lines if line.startswith("#")))
wide, below = {}, False
for r in csv.DictReader(line for line in lines if not line.startswith("#")):
    key, verdict = (r["shape"], r["test"]), ""
    if not r["value"]:
        print(r["shape"], r["form"], r["test"])
        continue
    if r["form"] == "bf16":
        wide[key] = float(r["value"])
    elif key in wide:
        verdict = f'{float(r["value"]) / wide[key]:.3f} of bf16'
    if r["passes_at"]:
        good = float(r["value"]) >= float(r["passes_at"])
        below |= not good
        verdict += f', {"passes" if good else "BELOW"} {r["passes_at"]}'
    print(f'{r["shape"]:14} {r["form"]:5} {r["test"]:16} {r["value"]:>10} tok/s {r["gb_per_s"]:>8} GB/s {r["tok_per_joule"]:>6} tok/J  {verdict}')
sys.exit(below)
END
exit $bad
