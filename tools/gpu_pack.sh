#!/bin/bash
# Puts what a GPU machine needs to run this tree's reel without building it into build/gpu:
#   bin/        reel, without the embedded demo models (models/ is in the tree) and curl;
#               audio_vectors for tools/gpu_check.py, columns_bench, draft_bench, decode_bench, joins for bench/gpu/parallel.sh, scores, eagle3_head, speculated_ids
#   lib/        libreel.so and the libraries that it wants and that a plain machine may lack
#   commit      the commit it was built from
# usage: tools/gpu_pack.sh [MODEL.gguf [PARTS]]
# A GGUF file is cut into build/gpu-part1, build/gpu-part2, ... for copying in several goes.
set -euo pipefail
cd "$(dirname "$0")/.."
pack=build/gpu work=build/gpu-work
rm -rf "$pack"
mkdir -p "$pack/bin" "$pack/lib" "$work/gen" "$work/none"
tools/embed_demo.sh >"$work/gen/demo_files.c.new"
cmp -s "$work/gen/demo_files.c.new" "$work/gen/demo_files.c" || cp "$work/gen/demo_files.c.new" "$work/gen/demo_files.c"
touch "$work/gen/demo_files.c" # newer than models/demo, so that make leaves it alone
make -s -j"$(nproc)" CURL= B="$work" "$work/reel" "$work/libreel.so" "$work/audio_vectors" "$work/bench/joins" \
    "$work/bench/scores" "$work/bench/eagle3_head" "$work/bench/speculated_ids" \
    "$work/columns_bench" "$work/draft_bench" "$work/decode_bench" >/dev/null
strip -o "$pack/bin/reel" "$work/reel"
strip -o "$pack/bin/audio_vectors" "$work/audio_vectors"
strip -o "$pack/bin/joins" "$work/bench/joins"
strip -o "$pack/bin/scores" "$work/bench/scores"
strip -o "$pack/bin/eagle3_head" "$work/bench/eagle3_head"
strip -o "$pack/bin/speculated_ids" "$work/bench/speculated_ids"
strip -o "$pack/bin/columns_bench" "$work/columns_bench"
strip -o "$pack/bin/draft_bench" "$work/draft_bench"
strip -o "$pack/bin/decode_bench" "$work/decode_bench"
strip --strip-unneeded -o "$pack/lib/libreel.so" "$work/libreel.so"
for name in utf8proc jansson nettle soxr gomp microhttpd wslay gnutls hogweed gmp tasn1 idn2 unistring p11-kit ffi; do
    path=$(ldd "$work/reel" | sed -n "s|.*lib${name}[^ ]* => \([^ ]*\) .*|\1|p")
    [ -z "$path" ] || cp -L "$path" "$pack/lib/" # what is not used yet is not wanted
done
git describe --always --dirty >"$pack/commit"
if [ $# -gt 0 ]; then
    rm -rf build/gpu-part*
    split -n "${2:-5}" --numeric-suffixes=1 -a 1 "$1" build/gpu-part
    for part in build/gpu-part?; do
        mv "$part" "$part.tmp" && mkdir "$part" && mv "$part.tmp" "$part/$(basename "$part")"
    done
    sha256sum <"$1" >build/gpu-part1/gguf.sha256
fi
du -sh build/gpu build/gpu-part* 2>/dev/null || true
