#!/bin/sh
# Wheels for Linux with glibc 2.28 or newer (manylinux_2_28): the package, libreel.so, the command and the text demo,
# once. zig, from PyPI, compiles for each target; wheel_libraries.sh builds what is linked, and a bill of materials in the
# wheel says what that is.
# usage: build_wheel.sh [x86_64|aarch64]...; the wheels are left in build/dist
set -eu
cd "$(dirname "$0")/.."
glibc=2.28
most_bytes=12000000 # the demo model that writes text is most of it
cli_libraries='libcurl.a libmbedtls.a libmbedx509.a libmbedcrypto.a libmicrohttpd.a libwslay.so'
libraries='libutf8proc.a libjansson.a libnettle.a libsoxr.a'
built=build/wheel
mkdir -p $built build/dist
jobs=$(nproc)

if ! $built/venv/bin/python -c 'import auditwheel, cyclonedx' 2>/dev/null; then
    "${PYTHON:-python3}" -m venv $built/venv
    $built/venv/bin/pip install --quiet --disable-pip-version-check ziglang cffi wheel build auditwheel 'setuptools>=61' \
        'cyclonedx-python-lib[json-validation]==11.12.0'
fi
python=$(pwd)/$built/venv/bin/python

tools() { # tools TARGET FOLDER: the compiler and its like, as programs
    mkdir -p "$2/bin"
    for tool in cc ar ranlib; do
        [ $tool = cc ] && options="cc -target $1-linux-gnu.$glibc" || options=$tool
        printf '#!/bin/sh\nexec "%s" -m ziglang %s "$@"\n' "$python" "$options" >"$2/bin/$tool"
        chmod +x "$2/bin/$tool"
    done
}
compile() { # compile TARGET FOLDER
    lib=$(pwd)/$2/lib
    in_lib() { for one; do printf '%s ' "$lib/$one"; done; }
    # shellcheck disable=SC2086 # lists of words
    make --silent -j"$jobs" WHEEL=1 B="$2/release" CC="${CCACHE:-} $(pwd)/$2/bin/cc" AR="$(pwd)/$2/bin/ar" ARCH="$1" \
        PKG_CFLAGS="-I$(pwd)/$2/include -DUTF8PROC_STATIC" \
        PKG_LIBS="$(in_lib $libraries)" CLI_LIBS="$(in_lib $cli_libraries)" \
        CLI_CFLAGS="-DREEL_WITH_CURL -DREEL_WITH_SERVER -DREEL_FIND_CERTIFICATES -DCURL_STATICLIB" \
        LDFLAGS='-s' DEMO_FILES=python/demo_beside.c "$2/release/wheel/libreel.so" "$2/release/wheel/reel"
}
stage() { # stage FOLDER: what goes into the package besides Python
    rm -rf "$1/stage"
    mkdir -p "$1/stage/bin" "$1/stage/lib" "$1/stage/models/demo"
    cp "$1/release/wheel/libreel.so" "$1/stage"
    cp "$1/release/wheel/reel" "$1/stage/bin"
    cp "$1/lib/libwslay.so.1" "$1/stage/lib"
    cp models/demo/* "$1/stage/models/demo"
    # Whose code is in it, and under which terms.
    mkdir -p "$1/stage/licenses"
    cp LICENSE "$1/stage/licenses/reel"
    for copyright in "$1"/work/*/debian/copyright; do
        library=$(basename "${copyright%/debian/copyright}")
        cp "$copyright" "$1/stage/licenses/${library%%-[0-9]*}"
    done
    cp "$1/work/wslay/usr/share/doc/libwslay1/copyright" "$1/stage/licenses/wslay"
}

for target in "${@:-x86_64}"; do
    folder=$built/$target
    tools "$target" "$folder"
    python/wheel_libraries.sh "$target" "$folder" $built/sources
    compile "$target" "$folder"
    stage "$folder"
    # shellcheck disable=SC2086 # lists of words
    tools/sbom.py --wheel "$folder" $built/sources "$folder/reel.cdx.json" $libraries $cli_libraries
    rm -rf python/build python/*.egg-info
    PATH=$(pwd)/$built/venv/bin:$PATH REEL_STAGED=$(pwd)/$folder/stage REEL_SBOM=$(pwd)/$folder/reel.cdx.json \
        REEL_WHEEL_PLATFORM="manylinux_$(echo $glibc | tr . _)_$target" \
        "$python" -m build --wheel --no-isolation --outdir build/dist python >"$folder"/wheel.log 2>&1 || {
        tail -n 30 "$folder"/wheel.log >&2
        exit 1
    }
    rm -rf python/build python/*.egg-info
done
# The speech demo, a package of files alone.
folder=$built/speech
rm -rf $folder
mkdir -p $folder/reel_demo_speech
cp python/speech_demo/pyproject.toml $folder
cp models/speech/* $folder/reel_demo_speech
echo '"""The files of the model that reel calls demo-speech."""' >$folder/reel_demo_speech/__init__.py
"$python" -m build --wheel --no-isolation --outdir build/dist $folder >$folder.log 2>&1 || {
    tail -n 30 $folder.log >&2
    exit 1
}
for wheel in build/dist/reel-[0-9]*.whl; do
    bytes=$(wc -c <"$wheel")
    printf '%s %s bytes\n' "$wheel" "$bytes"
    [ "$bytes" -le $most_bytes ] || { echo "$wheel: $bytes bytes, at most $most_bytes are wanted" >&2; exit 1; }
    "$python" tools/sbom.py --check "$wheel"
    $built/venv/bin/auditwheel show "$wheel" | sed -n '/consistent with/,$p' | grep -v '^$' | head -n 6
done
