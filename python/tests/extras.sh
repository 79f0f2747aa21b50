#!/bin/sh
# Lets pip install a wheel with the extra cuda12 and with cuda13, and shows that package and command open the NVRTC that pip
# put there, whatever the machine has, and that it compiles. The driver is that of tests/sim (make fakes). Needs pip's index.
# usage: extras.sh WHEEL [FOLDER]; FOLDER keeps the environments, default build/extras
set -eu
cd "$(dirname "$0")/../.."
wheel=$1
folder=${2:-build/extras}
driver=${REEL_BUILD:-build/release}/fake/libcuda.so.1
[ -e "$driver" ] || { echo "$driver is not there (make fakes)" >&2; exit 77; }
mkdir -p "$folder/driver"
folder=$(cd "$folder" && pwd)
cp "$driver" "$folder/driver"
cc -shared -fPIC -Itests python/tests/old_driver.c -o "$folder/old.so" -ldl
for major in 12 13; do
    venv=$folder/$major
    [ -x "$venv/bin/pip" ] || python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps "$wheel"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "${wheel}[cuda$major]"
    preload=
    [ $major = 13 ] || preload=$folder/old.so
    shown() { # shown NAME COMMAND...: the NVRTC that the loader opened last; before it those too new for the driver
        name=$1
        shift
        env -u REEL_LIBRARY -u REEL_COMMAND LD_DEBUG=libs LD_LIBRARY_PATH="$folder/driver" LD_PRELOAD="$preload" \
            "$@" >"$folder/said" 2>"$folder/loader"
        opened=$(sed -n 's|.*calling init: \(.*/libnvrtc\.so\.[0-9]*\)$|\1|p' "$folder/loader" | tail -n 1)
        opened=$(realpath -m "${opened:-none}")
        case $opened in
        "$venv"/lib/python*/site-packages/nvidia/*/lib/libnvrtc.so.$major) ;;
        *) echo "cuda$major, $name: the loader opened $opened" >&2 && exit 1 ;;
        esac
        version=$(sed -n "s/.*\(NVRTC \|'nvrtc': '\)\($major\.[0-9]*\).*/\2/p" "$folder/said")
        [ -n "$version" ] || { echo "cuda$major, $name: another one is used: $(cat "$folder/said")" >&2 && exit 1; }
        echo "cuda$major, $name: NVRTC $version, ${opened#"$venv"/}"
    }
    shown package "$venv/bin/python" -c 'import reel; print(reel.devices())'
    shown command "$venv/bin/reel" devices
    "$venv/bin/python" - "$opened" <<'END'
import ctypes
import sys

nvrtc = ctypes.CDLL(sys.argv[1])
program, size = ctypes.c_void_p(), ctypes.c_size_t()
options = (ctypes.c_char_p * 1)(b"--gpu-architecture=sm_90")
text = b'extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }'
for status in (nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"twice.cu", 0, None, None),
               nvrtc.nvrtcCompileProgram(program, 1, options),
               nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))):
    if status != 0:
        sys.exit(f"{sys.argv[1]}: error {status}")
print(f"    compiles: {size.value} bytes of machine code for sm_90")
END
done
echo "ok: $(basename "$wheel")"
