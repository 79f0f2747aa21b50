#!/bin/bash
# Vectors of 10,000 short texts on this machine's GPU: tokens and texts a second of reel, where texts share passes, beside
# transformers in bf16 (sdpa, texts sorted by length, several batch sizes) in the same process, with synthetic weights
# in the shape of Qwen3-Embedding-0.6B, which is that of Qwen3-0.6B. Lengths are spread evenly: 8 to 64 ids; then 160 to
# 480, as prompts of reranking have, fewer texts. bench/gpu/embed.py says what is compared before anything is timed.
#
#   bench/gpu/embed.sh [ARGUMENTS of embed.py]
#
# Writes $OUT/gpu-embed.csv and prints a table last; the exit status is 1 when vectors are wrong. GPU_OPTIONS="KEY=VALUE
# ..." is handed to reel; MODEL_06B names another model. DEVICE=cpu TORCH=cpu tries the script without a GPU.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. tools/gpu_env.sh
csv=$OUT/gpu-embed.csv
. bench/gpu/rows.sh
model=$(synthesized qwen3-0.6b "${MODEL_06B:-}") || exit 1
{
    echo "# ${gpu%%,*}, driver${gpu##*,}, $(nproc) cores, reel $REEL_COMMIT, $(date -u +%F); $(state)"
    echo "# bench/gpu/embed.sh${*:+ $*}${GPU_OPTIONS:+ with GPU_OPTIONS=\"$GPU_OPTIONS\"}: $(basename "$model"); medians"
} >"$csv"
timeout "${LIMIT:-540}" "$PYTHON" bench/gpu/embed.py "$model" --library "$REEL_LIBRARY" --device "${DEVICE:-gpu}" \
    --torch-device "${TORCH:-}" --gpu-options "$(tr ' ' , <<<"${GPU_OPTIONS:-}")" --cache "$XDG_CACHE_HOME" "$@" \
    >>"$csv" 2>"$KEEP/embed.err"
status=$?
[ $status -eq 0 ] || tail -n 5 "$KEEP/embed.err" >&2
echo "# afterwards: $(state)" >>"$csv"

"$PYTHON" - "$csv" <<'END'
import csv, sys
lines = open(sys.argv[1]).read().splitlines()
print("\n".join(line for line in lines if line.startswith("#")))
rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
for row in rows:
    print(f'{row["texts"]:>6} texts of {row["lengths"]:>8} ids  {row["peer"]:22} {row["batch"]:>6}  '
          f'{row["tokens_s"]:>8} tokens/s {row["texts_s"]:>6} texts/s  cosine to f32 {row["cosine_f32"]}'
          + (f', to bf16 {row["cosine_bf16"]}' if row["cosine_bf16"] else ""))
for lengths in dict.fromkeys(row["lengths"] for row in rows):
    some = [row for row in rows if row["lengths"] == lengths and row["rounds"] != "0"]
    ours = [float(row["tokens_s"]) for row in some if row["peer"] == "reel"]
    their = [float(row["tokens_s"]) for row in some if row["peer"] != "reel"]
    if ours and their:
        print(f"{lengths} ids: reel has {ours[0] / max(their):.2f} times transformers' best")
END
exit $status
