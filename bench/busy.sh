#!/bin/bash
# Prompts and decoding on the CPU beside programs that spin: none, as many as there are cores, twice as many.
#
#   bench/busy.sh ROUNDS BEFORE_LIB MODEL ...
#
# BEFORE_LIB is the folder of another build's libreel.so, or "" for none. MODEL is a folder. Every round runs each
# build and each number of threads once, in turn: "default" is what is taken when nobody asks for a number. Writes CSV: one
# line a run, then the medians of the rounds and each median as a part of the best fixed number's. SECONDS_EACH (0.5) is how
# long each half of a run takes at least, THREADS the fixed numbers, SPINNING the numbers of programs that spin, WAIT_LOAD
# the load average above which a block waits (for at most five minutes) before it begins. What spins is in the same session
# as what is timed, as two programs of one terminal, or with APART=1 each in its own, as users of two terminals: Linux gives
# sessions equal shares where autogroups are on. PRIORITY is written to their sessions' /proc/self/autogroup, to keep a shared
# machine's other work off the cores.
#
# PROMPT and TOKENS are the lengths of what is timed (256 and 64), BEFORE_THREADS the fixed numbers of the other build. The ids
# made are compared: they must not depend on the number of threads. Parts are of the best fixed number of the build now.
set -euo pipefail
rounds=$1 before=$2
shift 2
cores=$(nproc)
lib=$(realpath "${LIB:-build/release}")
[ -z "$before" ] || before=$(realpath "$before")
threads=${THREADS:-$(for ((t = 1; t <= cores; t *= 2)); do echo $t; done)}
spinning=${SPINNING:-0 $cores $((2 * cores))}
each=${SECONDS_EACH:-0.5}
commit=${COMMIT:-$(git rev-parse --short HEAD)}
if [ -n "${PRIORITY:-}" ] && [ -z "${RAISED:-}" ]; then
    RAISED=1 exec setsid -w "$0" "$rounds" "$before" "$@"
fi
prioritise() { [ -z "${PRIORITY:-}" ] || echo "$PRIORITY" >/proc/self/autogroup; }
prioritise

work=$(mktemp -d)
pids=()
stop_spinning() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    pids=()
}
trap 'stop_spinning; rm -rf "$work"' EXIT
cc -O2 -Iinclude bench/busy.c -o "$work/busy" -L"$lib" -lreel

calm() { # waits for others to rest
    for _ in {1..30}; do
        awk -v most="${WAIT_LOAD:-1.0}" '{ exit $1 > most }' /proc/loadavg && return
        sleep 10
    done
}

measure() { # measure BUILD THREADS MODEL: "prompt decode hash"
    local path=$lib n=$2
    [ "$1" = now ] || path=$before
    [ "$n" != default ] || n=0
    LD_PRELOAD=$path/libreel.so "$work/busy" "$3" "$n" "${PROMPT:-256}" "${TOKENS:-64}" "$each"
}

echo "# $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $cores cores, Linux $(uname -r); reel $commit"
echo "# ${APART:+APART=$APART }${PRIORITY:+PRIORITY=$PRIORITY }bench/busy.sh $rounds ${before:+BEFORE_LIB }$(for model in "$@"; do basename "$model"; done | tr '\n' ' ')${NOTE:+; $NOTE}"
echo 'model,spinning,round,build,threads,prompt_per_s,decode_per_s,ids,load_before'
for model in "$@"; do
    for n in $spinning; do
        calm
        for ((i = 0; i < n; i++)); do
            # shellcheck disable=SC2016 # for the inner shell
            PRIORITY=${APART:+${PRIORITY:-}} ${APART:+setsid} bash -c \
                '[ -z "$PRIORITY" ] || echo "$PRIORITY" >/proc/self/autogroup; while :; do :; done' &
            pids+=($!)
        done
        load=$(cut -d' ' -f1 /proc/loadavg)
        sleep 1
        for ((round = 1; round <= rounds; round++)); do
            for build in now ${before:+before}; do
                numbers=$threads
                [ "$build" = now ] || numbers=${BEFORE_THREADS-$threads}
                for t in default $numbers; do
                    result=$(measure "$build" "$t" "$model")
                    echo "$(basename "$model"),$n,$round,$build,$t,${result// /,},$load" | tee -a "$work/lines"
                done
            done
        done
        stop_spinning
    done
done
python3 - "$work/lines" <<'END'
import csv, statistics, sys
groups, ids = {}, {}
for model, n, _, build, threads, prompt, decode, made, _ in csv.reader(open(sys.argv[1])):
    groups.setdefault((model, n, build, threads), []).append((float(prompt), float(decode)))
    ids.setdefault(model, set()).add(made)
middle = {key: [statistics.median(column) for column in zip(*runs)] for key, runs in groups.items()}
print("# medians: model,spinning,build,threads,prompt_per_s,decode_per_s,prompt_of_best_fixed,decode_of_best_fixed")
for (model, n, build, threads), values in middle.items():
    fixed = [v for (m, k, b, t), v in middle.items() if (m, k, b) == (model, n, "now") and t != "default"]
    best = [max(v[i] for v in fixed) for i in (0, 1)]
    print(f"# {model},{n},{build},{threads},{values[0]:.1f},{values[1]:.1f},{values[0] / best[0]:.2f},{values[1] / best[1]:.2f}")
for model, made in ids.items():
    print(f"# {model}: " + ("the same ids in all runs" if len(made) == 1 else f"{len(made)} DIFFERENT LISTS OF IDS"))
END
