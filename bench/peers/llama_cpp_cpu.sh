#!/bin/bash
# reel against llama.cpp on this machine's CPU: the same weights, threads and tests, runs interleaved.
#
#   bench/peers/llama_cpp_cpu.sh LLAMA_BENCH THREADS ROUNDS REEL_MODEL=GGUF ...
#
# A pair of the 0.6B's shapes: `reel synthesize FOLDER qwen3-0.6b`, then bench/peers/qwen3_to_gguf.py.
#
# REEL_MODEL is what `reel bench` opens, GGUF the same weights for llama-bench; for a .gguf both may
# be the same file. Writes CSV: one line a round, then the medians. PREFIX, if set, goes before every
# timed command: on a machine that others use, PREFIX="chrt -r 5" keeps them off the cores.
set -euo pipefail
llama_bench=$1 threads=$2 rounds=$3
shift 3
reel=${REEL:-build/release/reel}
prompt=512 generate=128

field() { # field NAME: that column of the CSV on stdin, second line on
    python3 -c 'import csv,sys
for row in csv.DictReader(sys.stdin): print(row[sys.argv[1]])' "$1"
}

echo "# $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $threads threads; reel $(git rev-parse --short HEAD)"
echo "# PREFIX=\"${PREFIX:-}\" bench/peers/llama_cpp_cpu.sh llama-bench $threads $rounds $(for pair in "$@"; do basename "${pair%%=*}"; done | tr '\n' ' ')"
echo 'model,round,test,reel_ts,llama_cpp_ts,reel_gb_per_s,read_bandwidth_gb_per_s,llama_cpp_build'
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
for round in $(seq "$rounds"); do
    for pair in "$@"; do
        model=${pair%%=*} gguf=${pair#*=}
        for test in "-p $prompt -n 0" "-p 0 -n $generate"; do
            # shellcheck disable=SC2086 # lists of words
            ours=$(${PREFIX:-} "$reel" bench "$model" -t "$threads" $test -r 1 -o csv 2>/dev/null)
            # shellcheck disable=SC2086
            theirs=$(${PREFIX:-} "$llama_bench" -m "$gguf" -t "$threads" $test -r 1 -o csv 2>/dev/null)
            printf '%s,%s,%s,%s,%s,%s,%s,%s\n' "$(basename "$model")" "$round" \
                "$(field test <<<"$ours")" "$(field avg_ts <<<"$ours")" \
                "$(field avg_ts <<<"$theirs")" "$(field gb_per_s <<<"$ours")" \
                "$(field read_bandwidth_gb_per_s <<<"$ours")" \
                "$(field build_commit <<<"$theirs")" | tee -a "$lines"
        done
    done
done
echo '# medians: model,test,reel_ts,llama_cpp_ts,ratio,reel_gb_per_s,read_bandwidth_gb_per_s,share'
python3 - "$lines" <<'END'
import collections, csv, statistics, sys
groups = collections.OrderedDict()
for model, _, test, *values, _ in csv.reader(open(sys.argv[1])):
    groups.setdefault((model, test), []).append([float(v) for v in values])
for (model, test), rows in groups.items():
    ours, theirs, gb, read = (statistics.median(column) for column in zip(*rows))
    share = statistics.median(row[2] / row[3] for row in rows)
    print(f"# {model},{test},{ours:.1f},{theirs:.1f},{ours / theirs:.2f},{gb:.1f},{read:.1f},{share:.2f}")
END
