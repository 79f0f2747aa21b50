# shellcheck shell=bash
# Sourced by scripts that run reel on a GPU machine; sets REEL, REEL_LIBRARY, REEL_COMMIT, KEEP, OUT.
# What tools/gpu_pack.sh made is taken from build/gpu and kept in $KEEP, so that a later call in the
# same machine finds it; without it, this tree is built. Parts of a GGUF are kept and joined too.
KEEP=${KEEP:-/tmp/reel-gpu}
OUT=${OUT:-build/gpu-out}
mkdir -p "$KEEP/lib" "$KEEP/parts" "$KEEP/models" "$OUT"
if [ -d build/gpu ]; then
    rm -rf "$KEEP/gpu"
    cp -r build/gpu "$KEEP/gpu"
fi
for part in build/gpu-part?/*; do
    if [ -f "$part" ]; then cp "$part" "$KEEP/parts/"; fi
done
SMOLLM2=${SMOLLM2:-$KEEP/SmolLM2-135M-Instruct.Q4_1.gguf}
if [ ! -f "$SMOLLM2" ] && [ -f "$KEEP/parts/gguf.sha256" ]; then
    cat "$KEEP"/parts/gpu-part? >"$KEEP/joined" 2>/dev/null || true
    if [ "$(sha256sum <"$KEEP/joined")" = "$(cat "$KEEP/parts/gguf.sha256")" ]; then
        mv "$KEEP/joined" "$SMOLLM2"
    else
        echo "SmolLM2 is not whole yet: $(find "$KEEP/parts" -name 'gpu-part*' | wc -l) parts are here" >&2
    fi
    rm -f "$KEEP/joined"
fi

PYTHON=${PYTHON:-python3}
cuda_folders() { # where CUDA's libraries may be: the toolkit's folder, then those of Python packages
    printf '%s\n' /usr/local/cuda*/lib64
    "$PYTHON" -c 'import glob, sys
for path in sys.path:
    print(*sorted(glob.glob(path + "/nvidia/*/lib")), sep="\n")' | grep . || true
}

# Only NVRTC's own files join the search path: other CUDA libraries there could stand in for PyTorch's.
if ! ldconfig -p | grep -q libnvrtc; then
    for folder in $(cuda_folders); do
        if compgen -G "$folder/libnvrtc.so*" >/dev/null && ! compgen -G "$KEEP/lib/libnvrtc.so*" >/dev/null; then
            ln -sf "$folder"/libnvrtc* "$KEEP/lib/"
        fi
    done
fi
if [ -d "$KEEP/gpu" ]; then
    REEL=${REEL:-$KEEP/gpu/bin/reel} REEL_LIBRARY=${REEL_LIBRARY:-$KEEP/gpu/lib/libreel.so}
    REEL_COMMIT=${REEL_COMMIT:-$(cat "$KEEP/gpu/commit")}
    export LD_LIBRARY_PATH="$KEEP/gpu/lib:$KEEP/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
else
    if [ -z "${REEL:-}" ]; then make -s -j"$(nproc)" all build/release/audio_vectors; fi
    REEL=${REEL:-build/release/reel} REEL_LIBRARY=${REEL_LIBRARY:-build/release/libreel.so}
    REEL_COMMIT=${REEL_COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}
    export LD_LIBRARY_PATH="$KEEP/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi
export REEL REEL_LIBRARY REEL_COMMIT KEEP OUT SMOLLM2 PYTHON XDG_CACHE_HOME="$KEEP/cache" PYTHONUNBUFFERED=1
