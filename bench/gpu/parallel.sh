#!/bin/bash
# Several sessions at once on this machine's GPU: what they make together, how long one waits, what many of them
# take, and whether they make the ids that each makes alone.
#
#   [BEFORE=REEL] bench/gpu/parallel.sh [CASE ...]      default: all cases
#
#   ids       one session's ids beside an earlier build's (bench/gpu/compare.py --rounds 0): BEFORE, or
#             build/gpu-before/bin/reel, which tools/gpu_pack.sh made in a checkout of the earlier commit
#   speed     reel bench --parallel 1,2,4,8 at position 0 and around 4,096
#   gaps      8 sessions while prompts of 4,096 and of 32,768 tokens arrive
#   sessions  memory of 100 sessions opened for 32,768 positions
#   joins     sessions that come and go from 64 threads (bench/joins.c) for JOIN_SECONDS, 180, in all
#
# Models are synthesized: Qwen3-0.6B and Qwen3.5-0.8B. Writes $OUT/gpu-parallel.csv, one row a figure,
# $OUT/gpu-parallel-bench.csv, what reel bench said, and $OUT/gpu-parallel-ids.csv; prints a table last. The exit
# status is 1 when ids differ or a part fails; a figure below its floor is marked. DEVICE=cpu SHAPES="small.json ..."
# CONTEXT=512 LONG="100 300" tries the script without a GPU.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
if [ -d build/gpu-before ]; then
    mkdir -p "${KEEP:-/tmp/reel-gpu}"
    cp -r build/gpu-before "${KEEP:-/tmp/reel-gpu}/"
fi
. tools/gpu_env.sh
. bench/gpu/rows.sh
device=${DEVICE:-gpu} runs=${RUNS:-5} context=${CONTEXT:-32768} join_seconds=${JOIN_SECONDS:-180}
read -ra long <<<"${LONG:-4096 32768}"
read -ra shapes <<<"${SHAPES:-qwen3-0.6b qwen3.5-0.8b}"
[ $# -gt 0 ] || set -- ids speed gaps sessions joins
csv=$OUT/gpu-parallel.csv bench=$OUT/gpu-parallel-bench.csv before=${BEFORE:-$KEEP/gpu-before/bin/reel}
joins=$(dirname "$REEL")/joins
[ -x "$joins" ] || joins=$(dirname "$REEL")/bench/joins
bad=0
{
    echo "# ${gpu%%,*}, driver${gpu##*,}, reel $REEL_COMMIT, $(date -u +%F); $(state)"
    echo "# bench/gpu/parallel.sh $*${GPU_OPTIONS:+ with GPU_OPTIONS=\"$GPU_OPTIONS\"}"
    echo 'case,model,what,value,unit,passes_at'
} >"$csv"
: >"$bench"

row() { echo "$1,$2,$3,$4,$5,${6:-}" >>"$csv"; }
failed() { # CASE MODEL FILE WHAT_HAPPENED: its last line is the reason
    bad=1
    row "$1" "$2" "FAILED: $(tail -n 1 "$3" | tr ',\r' '; ' | tail -c 200)" '' "$4"
}

synthesized_as() { # SHAPE: its folder; a path of a config.json is a shape, too
    case $1 in
    */* | *.json)
        [ -d "$KEEP/models/tried-$(basename "$1")" ] ||
            "$REEL" synthesize "$KEEP/models/tried-$(basename "$1")" "$1" >/dev/null || return
        echo "$KEEP/models/tried-$(basename "$1")"
        ;;
    *) synthesized "$1" ;;
    esac
}

benched() { # CASE MODEL LIMIT ARGUMENTS...: rows of reel bench --parallel
    local case=$1 model=$2 limit=$3 status=0
    shift 3
    timeout "$limit" "$REEL" bench "$model" "$@" -r "$runs" --device "$device" ${options[@]+"${options[@]}"} -o csv \
        >"$KEEP/parallel.csv" 2>"$KEEP/parallel.err" || status=$?
    if [ $status -ne 0 ]; then
        [ $status -ne 124 ] || echo "not over in $limit s" >"$KEEP/parallel.err"
        failed "$case" "$(basename "$model")" "$KEEP/parallel.err" "reel bench $*"
        return
    fi
    [ -s "$bench" ] || head -n 1 "$KEEP/parallel.csv" >"$bench"
    tail -n +2 "$KEEP/parallel.csv" >>"$bench"
    "$PYTHON" - "$KEEP/parallel.csv" "$case" "$(basename "$model")" >>"$csv" <<'END'
import csv, sys
path, case, model = sys.argv[1:]
floors = {("qwen3-0.6b", 2, 0): 4900, ("qwen3-0.6b", 8, 0): 14000, ("qwen3.5-0.8b", 8, 0): 9000}
ratios = {2: 1.2, 4: 1.4, 8: 1.6}  # of a pass of one column: at position 0, Qwen3-0.6B
one = None
for r in csv.DictReader(open(path)):
    b, depth, pp, arrives = int(r["pl"]), int(r["depth"]), int(r["pp"]), r["test"] == "arrivals"
    where = f"{b} sessions while prompts of {pp} arrive" if arrives else f"{b} sessions from {depth}"
    floor = "" if arrives else floors.get((model, b, depth), "")
    gap = ("" if model != "qwen3-0.6b" or b != 8 else 8 if pp > 4096 else 3) if arrives else \
        3 if model == "qwen3-0.6b" and b == 8 and depth == 0 else ""
    print(f'{case},{model},{where}: in all,{float(r["speed_tg"]):.1f},tok/s,{floor}')
    print(f'{case},{model},{where}: worst gap,{float(r["worst_gap_ms"]):.3f},ms,{gap}')
    if arrives:
        print(f'{case},{model},{where}: first token of a prompt,{float(r["first_token_ms"]):.2f},ms,')
        continue
    if float(r["tokens_per_joule"]):
        print(f'{case},{model},{where}: energy,{float(r["tokens_per_joule"]):.3f},tok/J,')
    if b == 1:
        one = float(r["speed_tg"])
    elif one:
        most = ratios.get(b, "") if model == "qwen3-0.6b" and depth == 0 else ""
        print(f'{case},{model},{where}: a pass against one column,{b * one / float(r["speed_tg"]):.3f},times,{most}')
END
}

lines_of() { # CASE MODEL FILE: WHAT,VALUE,UNIT lines become rows
    while IFS=, read -r what value unit; do row "$1" "$2" "$what" "$value" "$unit"; done <"$3"
}

watched() { # FILE: the GPU's memory every 5 s, until killed
    while sleep 5; do nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits >>"$1" 2>/dev/null; done
}

for case in "$@"; do
    for shape in "${shapes[@]}"; do
        model=$(synthesized_as "$shape") || { row "$case" "$shape" 'FAILED: cannot be made' '' ''; bad=1; continue; }
        name=$(basename "$model")
        case $case in
        ids)
            [ "$shape" = "${shapes[0]}" ] || continue # all shapes at once
            if [ ! -x "$before" ]; then
                row ids '' "no earlier build at $before: ids of one session were not compared" '' ''
                continue
            fi
            if "$PYTHON" bench/gpu/compare.py --before "$before" --after "$REEL" --models "$KEEP/models" --case 0.6b,0.8b \
                --rounds 0 --device "$device" >"$OUT/gpu-parallel-ids.csv" 2>"$KEEP/parallel.err"; then
                row ids '0.6b and 0.8b' "ids beside $(cat "$(dirname "$before")/../commit" 2>/dev/null || echo before)" same ''
            else
                cat "$OUT/gpu-parallel-ids.csv" >>"$KEEP/parallel.err"
                failed ids '0.6b and 0.8b' "$KEEP/parallel.err" 'compare.py --rounds 0'
            fi
            ;;
        speed)
            benched speed "$model" 120 --parallel 1,2,4,8 -p 0 -n 200 -d 0
            benched speed "$model" 120 --parallel 1,2,4,8 -p 0 -n 100 -d "${long[0]}"
            ;;
        gaps)
            for n in "${long[@]}"; do benched gaps "$model" 150 --parallel 8 --arrivals -p "$n" -n 400; done
            ;;
        sessions)
            [ "$shape" = "${shapes[0]}" ] || continue
            if timeout 120 "$PYTHON" bench/gpu/sessions.py "$model" --library "$REEL_LIBRARY" --device "$device" \
                --context "$context" --prompt $((context / 32)) --cache "$KEEP/cache/reel" >"$KEEP/sessions.csv" 2>"$KEEP/parallel.err"; then
                lines_of sessions "$name" "$KEEP/sessions.csv"
            else
                lines_of sessions "$name" "$KEEP/sessions.csv"
                failed sessions "$name" "$KEEP/parallel.err" sessions.py
            fi
            ;;
        joins)
            seconds=$((join_seconds / ${#shapes[@]})) status=0
            : >"$KEEP/used.txt"
            watched "$KEEP/used.txt" &
            watcher=$!
            timeout $((seconds + 60)) "$joins" "$model" "device=$device" "seconds=$seconds" threads=64 prompt=300 tokens=48 \
                "cache=$KEEP/cache/reel" ${GPU_OPTIONS:+"options=${GPU_OPTIONS// /,}"} >"$KEEP/joins.csv" 2>"$KEEP/parallel.err" || status=$?
            kill $watcher
            wait $watcher 2>/dev/null
            grep -E "^(joins|ids|wrong|seconds|ids a second|resident|malloc'ed)" "$KEEP/joins.csv" >"$KEEP/joins.kept"
            lines_of joins "$name" "$KEEP/joins.kept"
            n=$(wc -l <"$KEEP/used.txt")
            if [ "$n" -ge 4 ]; then
                row joins "$name" 'GPU memory at half' "$(sed -n "$((n / 2))p" "$KEEP/used.txt")" MB
                row joins "$name" 'GPU memory at the end' "$(sed -n "$((n - 1))p" "$KEEP/used.txt")" MB
            fi
            [ $status -eq 0 ] || failed joins "$name" "$KEEP/parallel.err" "exit status $status"
            ;;
        *) echo "case $case is unknown" >&2 ;;
        esac
    done
done
echo "# afterwards: $(state)" >>"$csv"

"$PYTHON" - "$csv" <<'END'
import csv, sys
lines = open(sys.argv[1]).read().splitlines()
print("\n".join(line for line in lines if line.startswith("#")))
for r in csv.DictReader(line for line in lines if not line.startswith("#")):
    verdict = ""
    if r["passes_at"] and r["value"]:
        more = r["unit"] == "tok/s"
        good = float(r["value"]) >= float(r["passes_at"]) if more else float(r["value"]) <= float(r["passes_at"])
        verdict = f'passes {r["passes_at"]}' if good else f'BELOW {r["passes_at"]}' if more else f'ABOVE {r["passes_at"]}'
    print(f'{r["case"]:9} {r["model"]:14} {r["what"]:66} {r["value"]:>10} {r["unit"]:9} {verdict}')
END
exit $bad
