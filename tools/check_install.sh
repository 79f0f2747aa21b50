#!/bin/sh
# Installs the release build into a folder of its own, builds every example from there as C and as
# C++, against the shared and the static library, and uninstalls it again.
set -eu
cc=${CC:-cc}
cxx=${CXX:-c++}
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
prefix=$stage/prefix

make -s install PREFIX="$prefix" >/dev/null
PKG_CONFIG_PATH=$prefix/lib/pkgconfig
LD_LIBRARY_PATH=$prefix/lib
export PKG_CONFIG_PATH LD_LIBRARY_PATH
[ "$("$prefix/bin/reel" --version)" = "reel $(pkg-config --modversion reel)" ] || {
    echo "reel --version and reel.pc disagree"
    exit 1
}

others=$(nm -D --defined-only "$prefix/lib/libreel.so" | awk '$3 !~ /^reel_/ { print $3 }')
[ -z "$others" ] || { echo "libreel.so exports more than reel_*: $others"; exit 1; }
others=$(nm -g --defined-only "$prefix/lib/libreel.a" | awk 'NF == 3 && $3 !~ /^reel_/ { print $3 }')
[ -z "$others" ] || { echo "libreel.a exports more than reel_*: $others"; exit 1; }
declared=$(grep -o '\breel_[a-z_]*(' include/reel.h | tr -d '(' | sort -u)
for name in $declared; do
    nm -D --defined-only "$prefix/lib/libreel.so" | grep -q " $name\$" || {
        echo "include/reel.h declares $name, libreel.so lacks it"
        exit 1
    }
done

flags='-Wall -Wextra -Werror'
for source in examples/*.c; do
    name=$(basename "$source" .c)
    for language in c c++; do
        compiler=$cc
        standard=-std=c17
        if [ $language = c++ ]; then
            compiler=$cxx
            standard=-std=c++17
        fi
        command -v "$compiler" >/dev/null || { echo "no $compiler: C++ was not tried"; continue; }
        # shellcheck disable=SC2046,SC2086 # lists of words
        $compiler $standard $flags -x $language "$source" -x none -o "$stage/$name-shared" \
            $(pkg-config --cflags --libs reel)
        # shellcheck disable=SC2046,SC2086
        $compiler $standard $flags -x $language "$source" -x none -o "$stage/$name-static" \
            $(pkg-config --cflags reel) "$prefix/lib/libreel.a" \
            $(pkg-config --libs libutf8proc jansson nettle soxr) -lm -ldl -pthread
    done
done
if [ -f models/demo/model.safetensors ]; then
    for program in shared static; do
        [ -n "$("$stage/generate-$program" models/demo "The morning after the ball")" ] || {
            echo "the example says nothing"
            exit 1
        }
    done
fi

make -s uninstall PREFIX="$prefix" >/dev/null
left=$(find "$prefix" -type f -o -type l)
[ -z "$left" ] || { echo "uninstall left: $left"; exit 1; }
