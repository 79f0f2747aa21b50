#!/bin/sh
# Cross-compiles the CPU kernels for 64-bit ARM and runs their checks under qemu-user: every path and
# type against sums in double precision. Needs no ARM library beyond libc.
set -eu
cc=${CROSS_CC:-aarch64-linux-gnu-gcc}
emulator=${CROSS_RUN:-qemu-aarch64}
out=build/neon
mkdir -p "$out"
sources='src/base/error.c src/base/memory.c src/model/dtype.c src/model/matrix.c src/base/cpu_features.c
    src/cpu/cpu_path.c src/cpu/kernels_portable.c src/cpu/kernels_neon.c src/cpu/tile.c
    tests/support/kernel_checks.c tests/support/planes_checks.c tests/cross/kernels.c'
# shellcheck disable=SC2086 # a list of words
$cc -std=c17 -D_POSIX_C_SOURCE=200809L -O2 -ffp-contract=off -static -Wall -Wextra -Werror \
    -Iinclude -Isrc -Itests -I. $sources -lm -o "$out/kernels"
$emulator "$out/kernels" | tee "$out/log"
grep -q '^neon checked' "$out/log"
