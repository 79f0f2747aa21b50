#!/bin/bash
# bench/peers/gpu.py on the 0.6B shape with what this machine has: see tools/gpu_env.sh.
# build/gpu-llama, which bench/peers/llama_cuda.sh makes, is kept in $KEEP like the rest.
# usage: bench/peers/gpu.sh [arguments of gpu.py]
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/gpu_env.sh
[ ! -d build/gpu-llama ] || { rm -rf "$KEEP/llama" && cp -r build/gpu-llama "$KEEP/llama"; }
model=${MODEL_06B:-$KEEP/models/qwen3-0.6b}
[ -d "$model" ] || "$REEL" synthesize "$model" qwen3-0.6b >/dev/null
llama=()
if [ -f "$KEEP/llama/llama-bench.xz" ]; then
    "$PYTHON" -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.argv[1]), open(sys.argv[2], "wb"))' \
        "$KEEP/llama/llama-bench.xz" "$KEEP/llama/llama-bench"
    chmod +x "$KEEP/llama/llama-bench"
fi
if [ -x "$KEEP/llama/llama-bench" ]; then
    # These come with the toolkit or with PyTorch; in a folder of their own they disturb nobody else.
    mkdir -p "$KEEP/llama/lib"
    for folder in $(cuda_folders) /usr/local/nvidia/lib64; do
        for name in libcublas.so.13 libcublasLt.so.13 libcudart.so.13 libcuda.so.1; do
            if [ -e "$folder/$name" ] && [ ! -e "$KEEP/llama/lib/$name" ]; then ln -s "$folder/$name" "$KEEP/llama/lib/"; fi
        done
    done
    # shellcheck disable=SC2016 # expanded when that script runs
    printf '#!/bin/sh\nLD_LIBRARY_PATH="%s/llama/lib:$LD_LIBRARY_PATH" exec "%s/llama/llama-bench" "$@"\n' "$KEEP" "$KEEP" >"$KEEP/llama/run"
    chmod +x "$KEEP/llama/run"
    llama=(--llama-bench "$KEEP/llama/run" --gguf-py "$KEEP/llama")
fi
exec "$PYTHON" bench/peers/gpu.py "$model" --reel "$REEL" --out "$OUT/gpu-peers.csv" ${llama[@]+"${llama[@]}"} "$@"
