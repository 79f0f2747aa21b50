#!/bin/sh
# Puts what the soak's steps tests, mutations and server run into build/soak-pack.tar.xz, for a machine that has this
# tree's files and a C compiler but builds nothing: programs, fakes and the libraries that a plain machine may lack.
# Some 30 MB, for the programs share most of their code and the packer looks back half a gigabyte. Over there:
#   xz -dc build/soak-pack.tar.xz | tar -xf -
#   LD_LIBRARY_PATH=$PWD/build/release/lib SOAK_BUILT=COMMIT SOAK_SECONDS=480 tools/soak.sh tests
# as often as programs are left, then mutations and server in its place. build/soak/COMMIT holds what is done: it goes
# along to where the next part runs, and back.
set -eu
cd "$(dirname "$0")/.."
make -j"$(nproc)" all tests build/release/bench/server_soak
pack=build/soak-pack
rm -rf "$pack"
mkdir -p "$pack/build/release/lib"
find build/release/reel build/release/bench/server_soak build/release/fake build/release/fake-mic build/release/tests \
    -type f -perm -u+x ! -name '*.log' ! -name '*.result' | while read -r file; do
    mkdir -p "$pack/$(dirname "$file")"
    strip -s -o "$pack/$file" "$file"
done
sound=$(find /usr/lib /usr/lib64 -name libsndfile.so.1 2>/dev/null | head -n 1)
ldd build/release/reel build/release/tests/unit/test_tokenizer_split build/release/tests/cli/test_line_editor \
    ${sound:+"$sound"} |
    sed -n 's|^.*=> \(/[^ ]*\) .*$|\1|p' | sort -u | grep -v '/lib\(c\|m\|dl\|rt\|pthread\)\.so' | while read -r file; do
    cp -L "$file" "$pack/build/release/lib"
done
[ -z "$sound" ] || cp -L "$sound" "$pack/build/release/lib"
tar -C "$pack" -cf - build | xz -T1 --lzma2=preset=2,dict=512MiB >build/soak-pack.tar.xz
rm -rf "$pack"
du -h build/soak-pack.tar.xz
