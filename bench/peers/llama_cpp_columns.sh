#!/bin/bash
# Sessions that decode together, reel against llama.cpp, on one thread of this machine's CPU and by the processor's
# time, so that other programs matter little: the same weights, runs interleaved.
#
#   bench/peers/llama_cpp_columns.sh LLAMA_BATCHED_BENCH ROUNDS TOKENS GGUF ...
#
# reel: bench/columns, as `make build/release/bench/columns` builds it. llama-batched-bench tells no processor's time, so
# it runs twice, for TOKENS and for a quarter of them, and the difference counts. Writes CSV: one line for each round,
# program and number of sessions (for reel 0 is the runtime's loop on one session), then the medians. PREFIX, if set,
# goes before every timed command.
set -euo pipefail
llama=$1 rounds=$2 tokens=$3
shift 3
columns=build/release/bench/columns

user_s() { # user_s COMMAND ...: its processor time in user space, seconds
    python3 - "$@" <<'END'
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime)
END
}

theirs() { # theirs GGUF SESSIONS TOKENS: seconds
    # shellcheck disable=SC2086 # PREFIX is a list of words
    user_s ${PREFIX:-} "$llama" -m "$1" -c 4096 -b 512 -ub 512 -npp 4 -ntg "$3" -npl "$2" -t 1 -tb 1
}

echo "# $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), 1 thread; reel $(git rev-parse --short HEAD); load before $(cut -d' ' -f1 /proc/loadavg)"
echo "# PREFIX=\"${PREFIX:-}\" bench/peers/llama_cpp_columns.sh llama-batched-bench $rounds $tokens $(for model in "$@"; do basename "$model"; done | tr '\n' ' ')"
echo 'model,round,program,sessions,tokens_per_processor_s'
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
for round in $(seq "$rounds"); do
    for model in "$@"; do
        # shellcheck disable=SC2086
        ${PREFIX:-} "$columns" "$model" 1 "$tokens" 1 | tail -n +2 | while IFS=, read -r _ sessions _ speed _; do
            echo "$(basename "$model"),$round,reel,$sessions,$speed"
        done | tee -a "$lines"
        for sessions in 1 8; do
            long=$(theirs "$model" "$sessions" "$tokens") short=$(theirs "$model" "$sessions" $((tokens / 4)))
            python3 -c 'import sys
model, turn, sessions, tokens, long, short = sys.argv[1:]
made = int(sessions) * (int(tokens) - int(tokens) // 4)
print(f"{model},{turn},llama.cpp,{sessions},{made / (float(long) - float(short)):.1f}")' \
                "$(basename "$model")" "$round" "$sessions" "$tokens" "$long" "$short" | tee -a "$lines"
        done
    done
done
echo '# medians: model,program,sessions,tokens_per_processor_s,times one session'
python3 - "$lines" <<'END'
import collections, csv, statistics, sys
groups = collections.OrderedDict()
for model, _, program, sessions, speed in csv.reader(open(sys.argv[1])):
    groups.setdefault((model, program, int(sessions)), []).append(float(speed))
medians = {key: statistics.median(speeds) for key, speeds in groups.items()}
for (model, program, sessions), speed in medians.items():
    alone = medians[model, program, 0 if program == "reel" else 1]
    print(f"# {model},{program},{sessions},{speed:.1f},{speed / alone:.2f}")
END
