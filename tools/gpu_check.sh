#!/bin/bash
# tools/gpu_check.py with what this machine has: see tools/gpu_env.sh. Results go to $OUT.
# usage: tools/gpu_check.sh [arguments of gpu_check.py]
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/gpu_env.sh
exec "$PYTHON" tools/gpu_check.py --reel "$REEL" --library "$REEL_LIBRARY" --models "$KEEP/models" \
    --smollm2 "$SMOLLM2" --out "$OUT" "$@"
