#!/bin/bash
# What decoding costs on this machine's GPU: `reel bench` on the shapes and positions that count, one
# launch a token, sampling, opening and compiling. Models are synthesized; SmolLM2 is timed where
# its GGUF is (see tools/gpu_env.sh). `reel bench` refuses a model whose output is wrong.
#
#   bench/gpu/decode.sh [CASE ...]      default: all cases below; 3.5 is Qwen3.5-0.8B, energy both families
#
# Writes $OUT/gpu-decode.csv and prints a table last. DEVICE=cpu tries the script without a GPU;
# GPU_OPTIONS="KEY=VALUE ..." is handed to reel; MODEL_06B, MODEL_17B and MODEL_35 name other models.
# Tokens per joule are NVML's count over whole repeats of at least a second, idle power included.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. tools/gpu_env.sh
device=${DEVICE:-gpu} runs=${RUNS:-5}
[ $# -gt 0 ] || set -- short steps one-launch sampled 4096 open compile 1.7b smollm2 32768 3.5 energy
csv=$OUT/gpu-decode.csv
. bench/gpu/rows.sh
{
    echo "# ${gpu%%,*}, driver${gpu##*,}, reel $REEL_COMMIT, $(date -u +%F); $(state)"
    echo "# bench/gpu/decode.sh $*${GPU_OPTIONS:+ with GPU_OPTIONS=\"$GPU_OPTIONS\"}; the median of $runs runs each"
    echo 'case,model,value,unit,sd,p50_ms,p99_ms,gb_per_s,tokens_per_joule,watts,idle_watts,passes_at,command'
} >"$csv"

smollm2() {
    local folder=$KEEP/models/smollm2-bf16
    [ -d "$folder" ] || [ ! -f "$SMOLLM2" ] || "$PYTHON" tools/gguf_to_bf16.py "$SMOLLM2" "$folder" || return
    [ -d "$folder" ] && echo "$folder"
}

timed() { # CASE PASSES_AT LIMIT MODEL ARGUMENTS...
    local name=$1 passes=$2 limit=$3 model=$4
    shift 4
    local words status=0
    words="reel bench $(basename "$model") -p 0 $* -r $runs --device $device"
    if timeout "$limit" "$REEL" bench "$model" -p 0 "$@" -r "$runs" --device "$device" ${options[@]+"${options[@]}"} \
        -o csv >"$KEEP/bench.csv" 2>"$KEEP/bench.err" || ! status=$?; then
        "$PYTHON" - "$KEEP/bench.csv" "$name" "$passes" "$words" >>"$csv" <<'END'
import csv, sys
path, name, passes, words = sys.argv[1:]
for row in csv.DictReader(open(path)):
    print(f'{name},{row["model"]} {row["test"]},{float(row["median_ts"]):.1f},tok/s,'
          f'{row["stddev_ts"]},{row["p50_ms"]},{row["p99_ms"]},{row["gb_per_s"]},'
          f'{row["tokens_per_joule"]},{row["watts"]},{row["idle_watts"]},{passes},{words}')
END
    else
        [ "$status" != 124 ] || echo "not over in $limit s" >"$KEEP/bench.err"
        echo "$name,$(basename "$model"),,$(tail -n 1 "$KEEP/bench.err" | tr ',\r' '; ' | tail -c 200),,,,,,,,$passes,$words" >>"$csv"
    fi
}

opened() { # CASE PASSES_AT MODEL: the median of fresh processes
    local words passes=$2
    words="bench/gpu/open.py $1 $(basename "$3") --device $device"
    timeout 150 "$PYTHON" bench/gpu/open.py "$1" "$3" --library "$REEL_LIBRARY" --device "$device" --cache "$KEEP/cache/reel" \
        --runs "$runs" >"$KEEP/open.csv" 2>"$KEEP/open.err" || echo "$1,,$(tail -n 1 "$KEEP/open.err" | tr ',' ';' | tail -c 200)" >"$KEEP/open.csv"
    while IFS=, read -r case value unit; do
        echo "$case,$(basename "$3"),$value,$unit,,,,,,,,$passes,$words" >>"$csv"
        passes= # the first line is the one that counts
    done <"$KEEP/open.csv"
}

small=$(synthesized qwen3-0.6b "${MODEL_06B:-}")
for case in "$@"; do
    case $case in
    short) timed 'positions 0-200' 2500 60 "$small" -n 200 -d 0 ;;
    steps) timed 'runs of 100' '' 60 "$small" -n 100 -d 0,100,500,1000 ;;
    one-launch) timed 'one launch a token' 2200 60 "$small" -n 100 -d 0 --one-launch-per-token ;;
    sampled)
        timed 'greedy beside sampled' '' 60 "$small" -n 100 -d 0
        timed 'sampled' '' 60 "$small" -n 100 -d 0 --temp 0.8 --top-k 50 --top-p 0.9
        ;;
    4096) timed 'around 4096' 1700 60 "$small" -n 100 -d "${DEPTH_4096:-4046}" ;;
    32768) timed 'around 32768' 630 150 "$small" -n 100 -d "${DEPTH_32768:-32718}" ;;
    1.7b) timed '1.7B positions 0-200' 1050 120 "$(synthesized qwen3-1.7b "${MODEL_17B:-}")" -n 200 -d 0 ;;
    smollm2)
        folder=$(smollm2) && timed 'SmolLM2 positions 0-200' 3500 60 "$folder" -n 200 -d 0 || echo 'no SmolLM2' >&2
        ;;
    3.5)
        folder=$(synthesized qwen3.5-0.8b "${MODEL_35:-}")
        timed '3.5 positions 0-200' 2100 120 "$folder" -n 200 -d 0
        timed '3.5 around 4096' 1900 120 "$folder" -n 100 -d "${DEPTH_4096:-4046}"
        timed '3.5 around 32768' 1400 180 "$folder" -n 100 -d "${DEPTH_32768:-32718}"
        ;;
    energy)
        for folder in "$small" "$(synthesized qwen3.5-0.8b "${MODEL_35:-}")"; do
            timed 'energy positions 0-200' '' 120 "$folder" -n 200 -d 0
            timed 'energy around 4096' '' 120 "$folder" -n 200 -d "${DEPTH_4096:-4046}"
            timed 'energy around 32768' '' 180 "$folder" -n 200 -d "${DEPTH_32768:-32718}"
        done
        ;;
    open) opened open 2 "$small" ;;
    compile) opened compile 30 "$small" ;;
    *) echo "case $case is unknown" >&2 ;;
    esac
done
echo "# afterwards: $(state)" >>"$csv"

"$PYTHON" - "$csv" <<'END'
import csv, sys
lines = open(sys.argv[1]).read().splitlines()
print("\n".join(line for line in lines if line.startswith("#")))
rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
found = {}


def joules(row):
    if not float(row["tokens_per_joule"] or 0):
        return ""
    return f'{float(row["tokens_per_joule"]):.2f} tok/J at {row["watts"]} W ({row["idle_watts"]} idle)'


for row in rows:
    passes, value = row["passes_at"], row["value"]
    verdict = ""
    if passes and value:
        slow = float(value) > float(passes) if row["unit"] == "s" else float(value) < float(passes)
        verdict = f"BELOW {passes}" if slow and row["unit"] != "s" else "TOO SLOW" if slow else f"passes {passes}"
    if value:
        found[row["case"]] = float(value)
    print(f'{row["case"]:26} {row["model"]:34} {value or "FAILED":>10} {row["unit"]:6} p50 {row["p50_ms"] or "-":>8} '
          f'p99 {row["p99_ms"] or "-":>8} {row["gb_per_s"] or "-":>8} GB/s {joules(row):>30}  {verdict}')
if {"sampled", "greedy beside sampled"} <= found.keys():
    print(f'sampled against greedy: {found["sampled"] / found["greedy beside sampled"]:.3f} (0.95 passes)')
END
