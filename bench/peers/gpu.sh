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
if [ -x "$KEEP/llama/llama-bench" ]; then
    # libcublas comes with the toolkit or with PyTorch; in a folder of its own it disturbs nobody else.
    mkdir -p "$KEEP/llama/lib"
    for folder in /usr/local/cuda*/lib64 \
        $("$PYTHON" -c 'import sys; print(*sys.path)' | tr ' ' '\n' | sed -n 's|site-packages$|&/nvidia/cu13/lib|p'); do
        ln -sf "$folder"/libcublas*.so.1? "$KEEP/llama/lib/" 2>/dev/null || true
    done
    # shellcheck disable=SC2016 # expanded when that script runs
    printf '#!/bin/sh\nLD_LIBRARY_PATH="%s/llama/lib:$LD_LIBRARY_PATH" exec "%s/llama/llama-bench" "$@"\n' "$KEEP" "$KEEP" >"$KEEP/llama/run"
    chmod +x "$KEEP/llama/run"
    llama=(--llama-bench "$KEEP/llama/run" --gguf-py "$KEEP/llama")
fi
exec "$PYTHON" bench/peers/gpu.py "$model" --reel "$REEL" --out "$OUT/gpu-peers.csv" ${llama[@]+"${llama[@]}"} "$@"
