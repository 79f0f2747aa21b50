#!/bin/sh
# The same evaluations over the server, over Python's package and by transformers: python/eval/run.py.
#   tools/eval.sh                 all; writes bench/results/eval.csv
#   tools/eval.sh STEP...         demo, smollm2, hf, speech; writes nothing there
# pip installs lm_eval, transformers, torch and jiwer (some gigabytes) into a folder of build/clients, once.
#   REEL_SMOLLM2=FILE    SmolLM2-135M-Instruct.Q4_1.gguf; without it the demo models alone are evaluated
#   PIP_SECONDS          most seconds for the installation (1800)
set -u
cd "$(dirname "$0")/.." || exit 1
packages="lm_eval[api] accelerate transformers torch jiwer aiohttp cffi numpy"
folder=build/clients/eval
command -v espeak-ng >/dev/null || {
    echo "espeak-ng is not installed"
    exit 77
}
if [ ! -e "$folder/.installed" ]; then
    rm -rf "$folder"
    mkdir -p "$(dirname "$folder")"
    python3 -m venv "$folder" >"$folder.log" 2>&1
    # shellcheck disable=SC2086 # a list of words
    timeout "${PIP_SECONDS:-1800}" nice "$folder/bin/python" -m pip install --quiet --no-compile --retries 1 $packages >>"$folder.log" 2>&1 || {
        echo "pip could not install $packages: $(tail -n 1 "$folder.log")"
        exit 77
    }
    touch "$folder/.installed"
fi
make -s build/release/reel build/release/libreel.so || exit 1
make -s python PYTHON="$folder/bin/python" >/dev/null || exit 1
commit=$(git rev-parse --short HEAD)
git diff --quiet HEAD -- . ':!bench/results' || commit="$commit and uncommitted changes"
rows=build/eval.rows.csv
: >"$rows"
# shellcheck disable=SC2086 # no argument where there is no file
REEL_LIBRARY=$PWD/build/release/libreel.so PYTHONPATH=python \
    "$folder/bin/python" python/eval/run.py --csv "$rows" ${REEL_SMOLLM2:+--gguf "$REEL_SMOLLM2"} "$@" 2>build/eval.err || {
    code=$?
    tail -n 20 build/eval.err
}
versions=$("$folder/bin/python" -c 'import importlib.metadata as m; print(" ".join(f"{p} {m.version(p)}" for p in ("lm_eval", "transformers", "torch", "jiwer")))')
if [ $# -eq 0 ] && [ "${code:-0}" -le 1 ]; then
    {
        echo "# $(uname -sm), $(nproc) cores of $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1); reel $commit; $(date -u +%Y-%m-%d); $versions"
        echo "# tools/eval.sh"
        echo "task,model,by,metric,value,unit"
        cat "$rows"
    } >bench/results/eval.csv
fi
exit "${code:-0}"
