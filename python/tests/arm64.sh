#!/bin/sh
# Runs the wheel for 64-bit ARM under qemu: the command, the package, and the tests named. Python and its libraries are
# Debian's packages for arm64, unpacked and not installed; numpy and cffi are PyPI's. The wheel of the speech demo is taken
# from beside WHEEL, if it is there. Takes minutes.
# usage: arm64.sh WHEEL [FOLDER] [TEST...]; FOLDER keeps what was fetched, default build/arm64
set -eu
cd "$(dirname "$0")/../.."
wheel=$1
folder=${2:-build/arm64}
[ $# -lt 2 ] || shift
shift
command -v qemu-aarch64 >/dev/null || { echo "qemu-aarch64 is not installed (Debian: qemu-user)" >&2; exit 77; }
mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial" "$folder/debs"
folder=$(cd "$folder" && pwd)
wheel=$(cd "$(dirname "$wheel")" && pwd)/$(basename "$wheel")
if [ ! -x "$folder/root/usr/bin/python3.11" ]; then
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main" \
        >"$folder/sources.list"
    : >"$folder/status"
    apt() {
        apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root \
            -o Dir::Etc::sourcelist="$folder/sources.list" -o Dir::Etc::sourceparts=- \
            -o Dir::State::lists="$folder/lists" -o Dir::State::status="$folder/status" -o Dir::Cache="$folder/cache" "$@"
    }
    apt update
    (cd "$folder/debs" && apt download libc6 libgcc-s1 libstdc++6 libexpat1 zlib1g libffi8 libbz2-1.0 liblzma5 libssl3 \
        libsqlite3-0 python3.11-minimal libpython3.11-minimal libpython3.11-stdlib)
    for deb in "$folder"/debs/*.deb; do dpkg -x "$deb" "$folder/root"; done
fi
if [ ! -d "$folder/site/numpy" ]; then
    python3 -m venv "$folder/venv"
    "$folder/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.11 \
        --platform manylinux2014_aarch64 --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 \
        --dest "$folder" numpy cffi
    for one in "$folder"/*.whl; do python3 -m zipfile -e "$one" "$folder/site"; done
fi
rm -rf "$folder/site/reel" "$folder/site"/reel_command.py "$folder/site/reel_demo_speech"
for one in "$wheel" "$(dirname "$wheel")"/reel_demo_speech-*.whl; do
    [ ! -e "$one" ] || python3 -m zipfile -e "$one" "$folder/site"
done
chmod +x "$folder/site/reel/bin/reel"
mkdir -p "$folder/root/usr/lib/python3"
ln -sfn "$folder/site" "$folder/root/usr/lib/python3/dist-packages" # where Debian's Python looks
# What the tests start is the emulator, too.
printf '#!/bin/sh\nexec qemu-aarch64 -L "%s/root" "%s/site/reel/bin/reel" "$@"\n' "$folder" "$folder" >"$folder/command"
printf '#!/bin/sh\nexec qemu-aarch64 -L "%s/root" "%s/root/usr/bin/python3.11" "$@"\n' "$folder" "$folder" >"$folder/python"
chmod +x "$folder/command" "$folder/python"
emulated() {
    qemu-aarch64 -L "$folder/root" -E PYTHONHOME="$folder/root/usr" -E PYTHONPATH=python/tests \
        -E REEL_TEST_INSTALLED=1 -E HOME="$folder" -E REEL_COMMAND="$folder/command" "$@"
}
emulated "$folder/site/reel/bin/reel" run demo "Emma" -n 8 --temp 0
emulated "$folder/site/reel/bin/reel" devices | head -n 4
emulated "$folder/root/usr/bin/python3.11" -c '
import platform
import reel
model = reel.Model("demo")
print(platform.machine(), reel.library_path.endswith("reel/libreel.so"), model)
print(model.generate("Emma", max_tokens=8, temperature=0).text())'
[ $# = 0 ] || emulated "$folder/root/usr/bin/python3.11" -c '
import sys
import unittest
sys.executable = sys.argv.pop(1)
unittest.main(module=None)' "$folder/python" "$@"
