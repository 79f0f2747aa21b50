#!/bin/bash
# What speech takes on this machine's GPU: clips of 2, 8 and 30 s by the C API in one process, and
# files of 30 s one after the other by `reel transcribe` (see bench/gpu/speech.py), with synthetic
# weights in Qwen3-ASR-0.6B's shapes. Nothing is timed unless tools/gpu_check.py finds the logits behind
# 30 s of audio within the bound of transformers' (step speech-quick) and the trained miniature's texts
# right (speech-clips); nor what gives other ids in another run.
#
#   bench/gpu/speech.sh [CHECKED]       "CHECKED": the check was done in this machine already, for this commit
#
# Writes $OUT/gpu-speech.csv and prints a table last. GPU_OPTIONS="KEY=VALUE ..." is handed to reel and
# to the check; MODEL_ASR names another model; RUNS, FILES. DEVICE=cpu tries the script without a GPU;
# SIZE=tiny TORCH=cpu its check.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. tools/gpu_env.sh
device=${DEVICE:-gpu} runs=${RUNS:-20} files=${FILES:-12}
csv=$OUT/gpu-speech.csv
. bench/gpu/rows.sh
model=$(synthesized qwen3-asr-0.6b "${MODEL_ASR:-}") || exit 1
{
    echo "# ${gpu%%,*}, driver${gpu##*,}, $(nproc) cores, reel $REEL_COMMIT, $(date -u +%F); $(state)"
    echo "# bench/gpu/speech.sh${GPU_OPTIONS:+ with GPU_OPTIONS=\"$GPU_OPTIONS\"}: $(basename "$model"), device $device, one process; made tones in noise"
    echo 'case,quantity,median,min,max,unit,passes,reaches,runs,note'
} >"$csv"

right() {
    timeout 170 "$PYTHON" tools/gpu_check.py --reel "$REEL" --library "$REEL_LIBRARY" --models "$KEEP/models" --out "$KEEP/speech-check" \
        --size "${SIZE:-full}" --torch-device "${TORCH:-}" --gpu-options "$(tr ' ' , <<<"${GPU_OPTIONS:-}")" --device "$device" \
        --speech "$model" --steps speech-quick,speech-clips >"$KEEP/speech-check.txt" 2>&1
}

mark=$KEEP/speech-right-$(basename "$model")-$REEL_COMMIT
if [ "${1:-}" = CHECKED ] && [ -f "$mark" ]; then
    echo '# checked before, in this machine' >>"$csv"
elif right; then
    touch "$mark"
else
    tail -n 6 "$KEEP/speech-check.txt" >&2
    echo "all,all,,,,,,,0,the output is wrong: nothing was timed" >>"$csv"
    model=
fi
[ ! -f "$KEEP/speech-check.txt" ] || grep -E '^(ok|not asked)' "$KEEP/speech-check.txt" | tr -s ' ' | sed 's/^/# /' >>"$csv"
if [ -n "$model" ]; then
    timeout 120 "$PYTHON" bench/gpu/speech.py "$model" --library "$REEL_LIBRARY" --reel "$REEL" --device "$device" --cache "$KEEP/cache/reel" \
        --folder "$KEEP" --runs "$runs" --files "$files" ${options[@]+"${options[@]}"} >>"$csv" 2>"$KEEP/speech.err" ||
        echo "all,all,,,,,,,0,$(tail -n 1 "$KEEP/speech.err" | tr ',\r' '; ' | tail -c 200)" >>"$csv"
fi
echo "# afterwards: $(state)" >>"$csv"

"$PYTHON" - "$csv" <<'END'
import csv, sys
lines = open(sys.argv[1]).read().splitlines()
print("\n".join(line for line in lines if line.startswith("#")))
failed = False
for row in csv.DictReader(line for line in lines if not line.startswith("#")):
    verdict = ""
    if not row["median"]:
        failed, verdict = True, "FAILED"
    elif row["passes"]:
        value, floor, faster = float(row["median"]), float(row["passes"]), row["unit"] != "ms"
        better = (lambda bar: value >= bar) if faster else (lambda bar: value <= bar)
        verdict = f"passes {floor:g}" if better(floor) else f"NOT {floor:g}"
        if row["reaches"] and better(floor):
            reach = float(row["reaches"])
            verdict += f" and reaches {reach:g}" if better(reach) else f", not yet {reach:g}"
    spread = f'{row["min"]} to {row["max"]}'
    print(f'{row["case"]:6} {row["quantity"]:28} {row["median"] or "-":>10} {row["unit"]:12} {spread:24} {verdict:30} {row["note"]}')
sys.exit(failed)
END
