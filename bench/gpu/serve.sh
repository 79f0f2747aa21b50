#!/bin/bash
# One stream over HTTP beside reel bench on the same model and GPU: tokens a second of a client on loopback.
#
#   bench/gpu/serve.sh [SHAPE ...]     default: qwen3-0.6b
#
# Models are synthesized. Writes $OUT/gpu-serve.csv and prints it; the exit status is 1 when HTTP has less than
# LEAST (0.97) of what reel bench has. DEVICE=cpu tries the script without a GPU.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. tools/gpu_env.sh
device=${DEVICE:-gpu} runs=${RUNS:-7} n=${TOKENS:-200} least=${LEAST:-0.97} port=${PORT:-8099}
[ $# -gt 0 ] || set -- qwen3-0.6b
csv=$OUT/gpu-serve.csv
. bench/gpu/rows.sh
{
    echo "# ${gpu%%,*}, driver${gpu##*,}, reel $REEL_COMMIT, $(date -u +%F); $(state)"
    echo "# bench/gpu/serve.sh $*; medians of $runs streams of $n tokens, /v1/completions, prompt of 4 tokens"
    echo 'shape,bench_tok_s,http_tok_s,share,http_from_request_tok_s,server_says_tok_s,first_token_ms'
} >"$csv"
worst=0
for shape in "$@"; do
    model=$(synthesized "$shape") || { echo "$shape,cannot be made" >>"$csv"; worst=1; continue; }
    # A synthetic model's own tokenizer has no text for most ids, and a token without text is no event.
    "$PYTHON" - "$shape" "$model" <<'END'
import lzma, pathlib, sys
family = pathlib.Path("tests/fixtures/tokenizers") / sys.argv[1].split("-")[0]
for file in family.glob("tokenizer*.json.xz"):
    (pathlib.Path(sys.argv[2]) / file.stem).write_bytes(lzma.decompress(file.read_bytes()))
END
    "$REEL" serve "test=$model" --device "$device" --port "$port" --log none 2>"$KEEP/serve.err" &
    server=$!
    for _ in $(seq 600); do
        curl -sf "localhost:$port/ready" >/dev/null 2>&1 && break
        "$PYTHON" -c "import urllib.request as u; u.urlopen('http://localhost:$port/ready')" 2>/dev/null && break
        kill -0 $server 2>/dev/null || break
        sleep 0.1
    done
    made=$(timeout 120 "$PYTHON" bench/gpu/serve.py "$port" test "$runs" "$n") || { tail -3 "$KEEP/serve.err" >&2; worst=1; }
    again=$(timeout 120 "$PYTHON" bench/gpu/serve.py "$port" test "$runs" "$n")
    kill $server
    wait $server
    timeout 180 "$REEL" bench "$model" -p 0 -n "$n" -d 0 -r "$runs" --device "$device" -o csv >"$KEEP/bench.csv" 2>"$KEEP/bench.err" ||
        { tail -3 "$KEEP/bench.err" >&2; worst=1; }
    for one in "$made" "$again"; do
        "$PYTHON" - "$KEEP/bench.csv" "$shape" "$one" "$least" >>"$csv" <<'END' || worst=1
import csv, json, sys
path, shape, made, least = sys.argv[1:]
row = next(csv.DictReader(open(path)))
made = json.loads(made)
bench = float(row["median_ts"])
share = made["client"] / bench
print(f'{shape},{bench:.1f},{made["client"]:.1f},{share:.3f},{made["whole"]:.1f},{made["server"]:.1f},{made["first_ms"]:.3f}')
sys.exit(share < float(least))
END
    done
done
cat "$csv"
exit $worst
