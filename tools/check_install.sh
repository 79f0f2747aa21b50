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
declared=$(cat "$prefix"/include/*.h | sed 's|/\*.*\*/||' | grep -o '\breel_[a-z_]*(' | tr -d '(' | sort -u)
for name in $declared; do
    nm -D --defined-only "$prefix/lib/libreel.so" | grep -q " $name\$" || {
        echo "the headers declare $name, libreel.so lacks it"
        exit 1
    }
done

soname=$(objdump -p "$prefix/lib/libreel.so" | awk '$1 == "SONAME" { print $2 }')
[ "$soname" = "libreel.so.$(pkg-config --modversion reel | cut -d. -f1-2)" ] || {
    echo "the name of the shared library, $soname, does not follow the version"
    exit 1
}
[ -e "$prefix/lib/$soname" ] || { echo "$soname is not installed"; exit 1; }

flags='-Wall -Wextra -Werror'
# each header by itself, as C and as C++
for header in reel reel_speech reel_measure; do
    echo "#include <$header.h>" >"$stage/alone.c"
    # shellcheck disable=SC2046,SC2086 # lists of words
    $cc -std=c17 $flags -x c -c "$stage/alone.c" -o "$stage/alone.o" $(pkg-config --cflags reel)
    command -v "$cxx" >/dev/null || continue
    # shellcheck disable=SC2046,SC2086
    $cxx -std=c++17 $flags -x c++ -c "$stage/alone.c" -o "$stage/alone.o" $(pkg-config --cflags reel)
done
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
