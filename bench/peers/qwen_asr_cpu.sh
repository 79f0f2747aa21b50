#!/bin/bash
# reel's speech-to-text against antirez/qwen-asr on this machine's CPU: the same weights, clips,
# threads and number of ids, runs in turn.
#
#   bench/peers/qwen_asr_cpu.sh QWEN_ASR MODEL THREADS ROUNDS SECONDS ...
#
# QWEN_ASR is a copy of https://github.com/antirez/qwen-asr with .git or a file COMMIT, MODEL what
# `reel synthesize MODEL qwen3-asr-0.6b` wrote. The peer is built in a temporary folder by its own
# `make blas` (libopenblas-dev), with one number changed: the most tokens of an answer, 2048 there.
# What the weights say never ends, so both make TOKENS ids of a clip (default 100). The peer gets a
# folder of links with vocab.json and merges.txt beside the weights.
#
# CORES lists the OPENBLAS_CORETYPE to measure, "" being OpenBLAS's own choice (the default), and
# PATHS the --cpu-path of reel, likewise. MARCH builds the peer for another CPU than this one:
# MARCH=haswell CORES=Haswell PATHS=avx2 is a machine without AVX-512. PREFIX, if set, goes before
# every timed command, as in llama_cpp_cpu.sh.
#
# Writes CSV: a line a run, then medians and ratios.
set -euo pipefail
peer=$1 model=$(realpath "$2")
shift 2
here=$(dirname "$(realpath "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

export TOKENS=${TOKENS:-100}
if [ -e "$peer/.git" ]; then commit=$(git -C "$peer" rev-parse HEAD); else commit=$(cat "$peer/COMMIT"); fi
cp -r "$peer" "$work/source"
# Its loop evaluates the last id too, whose answer nobody reads; reel's does not. One id less makes
# TOKENS ids and TOKENS - 1 steps in both.
sed -i "s/int max_tokens = 2048;/int max_tokens = $((TOKENS - 1));/" "$work/source/qwen_asr.c"
grep -q "int max_tokens = $((TOKENS - 1));" "$work/source/qwen_asr.c" ||
    { echo "qwen_asr.c has no line 'int max_tokens = 2048;' any more" >&2 && exit 1; }
make -C "$work/source" blas CFLAGS_BASE="-Wall -Wextra -O3 -march=${MARCH:-native} -ffast-math" \
    >"$work/build.log" 2>&1 || { tail -n 20 "$work/build.log" >&2 && exit 1; }

PEER_COMMIT=$commit python3 "$here/qwen_asr_cpu.py" "$work" "$model" "$@"
