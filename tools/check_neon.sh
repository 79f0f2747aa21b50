#!/bin/sh
# Cross-compiles the CPU kernels for 64-bit ARM, a file a core, and runs their checks under qemu-user, a path a core:
# every path and type against sums in double precision. Needs no ARM library beyond libc.
set -eu
cc=${CROSS_CC:-aarch64-linux-gnu-gcc}
emulator=${CROSS_RUN:-qemu-aarch64}
out=build/neon

if [ "${1:-}" = --one ]; then
    optimised=-O2
    # Every body of the portable kernels is tested where they are built for use; here they are the comparison.
    [ "$2" != src/cpu/kernels_portable.c ] || optimised='-O1 -DKERNELS_ONE_BODY'
    # shellcheck disable=SC2086 # two words
    $cc -std=c17 -D_POSIX_C_SOURCE=200809L $optimised -ffp-contract=off -Wall -Wextra -Werror -Iinclude -Isrc -Itests -I. \
        -c "$2" -o "$out/$(basename "$2" .c).o"
    exit
fi
rm -rf "$out"
mkdir -p "$out"
# Those that take longest first.
sources='src/cpu/kernels_portable.c src/cpu/kernels_neon.c src/base/error.c src/base/memory.c src/model/dtype.c
    src/model/matrix.c src/model/kv_form.c src/base/cpu_features.c src/cpu/cpu_path.c src/cpu/tile.c src/cpu/panels.c src/base/thread_pool.c tests/support/kernel_checks.c tests/support/tile_rows.c
    tests/support/planes_checks.c tests/cross/kernels.c'
# shellcheck disable=SC2086 # a list of words
printf '%s\n' $sources | xargs -P "$(nproc)" -n 1 "$0" --one
$cc -static "$out"/*.o -lm -pthread -o "$out/kernels"
# shellcheck disable=SC2016 # the inner shell expands
printf 'portable\nneon\n' | xargs -P "$(nproc)" -I % sh -c '"$1" "$2/kernels" "$3" >"$2/$3.log"' sh "$emulator" "$out" %
cat "$out/portable.log" "$out/neon.log"
for path in portable neon; do grep -q "^$path checked" "$out/$path.log"; done
