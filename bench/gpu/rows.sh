# shellcheck shell=bash
# Sourced, after tools/gpu_env.sh, by the scripts here that write rows about whole models: what the
# GPU is (`gpu`, `state`), GPU_OPTIONS for reel (`options`), and models that are made when they lack.
# shellcheck disable=SC2034 # those who source this use it
gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true)
gpu=${gpu:-no GPU,none} # of several the first
state() { nvidia-smi --query-gpu=clocks.sm,clocks.mem,temperature.gpu,power.draw --format=csv,noheader 2>/dev/null | paste -sd ';' || true; }
options=()
for option in ${GPU_OPTIONS:-}; do options+=(--gpu-option "$option"); done

synthesized() { # SHAPE [FOLDER]: that folder, or one that is made
    [ -n "${2:-}" ] && { echo "$2"; return; }
    [ -d "$KEEP/models/$1" ] || "$REEL" synthesize "$KEEP/models/$1" "$1" >/dev/null || return
    echo "$KEEP/models/$1"
}
