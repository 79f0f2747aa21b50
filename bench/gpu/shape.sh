#!/bin/bash
# Builds and runs the shape benches on the GPU found (sm_90), each bounded in time; CSV files under $OUT.
# usage: bench/gpu/shape.sh [bench ...]
cd "$(dirname "$0")" || exit 1
OUT=${OUT:-/tmp/shape}
mkdir -p "$OUT"
[ $# -gt 0 ] || set -- exchange layer attention
nvidia-smi --query-gpu=name,driver_version,clocks.sm --format=csv,noheader | tee "$OUT/gpu.txt"
for bench in "$@"; do
    (nvcc -O3 -std=c++17 -arch=sm_90 -o "/tmp/$bench" "$bench.cu" || echo "$bench did not compile") &
done
wait
for bench in "$@"; do
    start=$SECONDS
    timeout 60 "/tmp/$bench" >"$OUT/$bench.csv" 2>"$OUT/$bench.err"
    echo "$bench: exit $?, $((SECONDS - start)) s, $(wc -l <"$OUT/$bench.csv") lines, $(grep -c FAILED "$OUT/$bench.csv") failed"
    head -c 300 "$OUT/$bench.err"
done
