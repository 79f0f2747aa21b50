#!/bin/sh
# compile_kernels.sh [--few | --narrow | MODEL GPU [WISH=N ...] [narrow=FORM]]
# Compiles the device code as it would be for each of a list of models on GPUs, for a few of them that have all kernels
# and the kinds of GPU that differ most, with one of another family or with narrow weights, for all plans with narrow
# weights, or for the one given. Of the few a day has two (KERNELS_DAY, a number of days), with one of the programs of
# which there are two alike; the one of another family or with narrow weights changes daily.
# Prints what the compiler says. Warnings, speed that ptxas says is lost and spilled registers fail; four registers put
# aside around a rare call are let pass, and on sm_120 that any call has ptxas ignore setmaxnreg. With nvdisasm what
# ptxas made is looked at, too (sass_hazards.py). Without nvcc there is nothing to do (exit status 77). Needs no GPU.
set -u
cd "$(dirname "$0")/.." || exit 1
PATH=$PATH:/usr/local/cuda/bin
emit=${B:-build/release}/emit_constants

few='qwen3-0.6b h200
qwen3.5-0.8b b200
qwen3-asr-0.6b rtx4090
tests/golden/models/q35-b.json test4 compute=75'
# Of these the few have one at a time: turn, below.
others='smollm2-135m h200 compute=75
tests/golden/models/q35-b.json test4
qwen3-0.6b h200 gpus=2'
plans="$few
$others
qwen3-0.6b h200 columns=2
qwen3-0.6b h200 columns=4
qwen3-0.6b h200 columns=8
qwen3-0.6b h200 columns=8 drafts=1
qwen3.5-0.8b h200 columns=4 drafts=1
qwen3.5-0.8b h200 columns=4 drafts=1 leaves=1
qwen3.5-0.8b h200 draft_layer=1 narrow=int8
qwen3-1.7b h200 taps=1
qwen3-1.7b h200 taps=1 columns=4 drafts=1 leaves=1
qwen3-1.7b h200 draft_layer=2 narrow=int8
qwen3-0.6b h200 cache=1
qwen3-0.6b h200 cache=2 columns=4
qwen3.5-0.8b h200 columns=2
qwen3-0.6b a100
qwen3-0.6b rtx3090
qwen3-0.6b rtx4090
qwen3-0.6b b200
qwen3-0.6b rtx5090
qwen3-8b h200
qwen3-8b h200 gpus=2
smollm2-135m h200
qwen3.5-0.8b h200
qwen3.5-0.8b h200 gpus=2
qwen3-asr-0.6b h200
models/demo/config.json rtx4090
tests/golden/models/q3-a.json test4"
# Shapes of other families, which differ from those above in rows and k tiles of a warp, and in biases.
families='qwen2.5-0.5b h200
llama-3.2-1b h200
qwen2.5-1.5b h200
tinyllama-1.1b h200
llama-3.2-3b h200
smollm2-1.7b h200
mistral-7b h200'
# Weights that stay narrow. Of these, too.
narrow='qwen3-0.6b h200 narrow=int8
qwen3-0.6b h200 narrow=int4
qwen3-0.6b h200 narrow=fp8
qwen3-0.6b h200 narrow=int4 columns=4
qwen3-0.6b a100 narrow=int4 columns=4
qwen3-0.6b h200 narrow=q4_k_m
qwen3-0.6b h200 narrow=q8_0
qwen3-0.6b h200 narrow=q2_k
qwen3-0.6b h200 narrow=nvfp4
qwen3-0.6b h200 narrow=nf4
qwen3-0.6b h200 narrow=iq4_xs'
# These put registers aside so far. --narrow compiles them as well, and fails.
spilling='qwen3-0.6b h200 narrow=q2_k columns=4
qwen3-0.6b h200 narrow=int8 columns=4
qwen3-0.6b h200 narrow=fp8 columns=4
qwen3-0.6b a100 narrow=int8
qwen3-0.6b a100 narrow=int4
qwen3-0.6b a100 narrow=fp8
qwen3-0.6b a100 narrow=int8 columns=4
qwen3-0.6b a100 narrow=fp8 columns=4
qwen3-0.6b rtx5090 narrow=int4'
plans="$plans
$families
$narrow"
# What these programs put aside so far, stores and loads in bytes: more of it than others are let pass, and no more of it.
known='qwen3-0.6b h200 columns=4 columns 12 72
qwen3-0.6b h200 columns=8 drafts=1 columns 24 24
qwen3.5-0.8b h200 columns=4 drafts=1 columns 20 72
qwen3.5-0.8b h200 columns=4 drafts=1 leaves=1 columns 32 84
qwen3-1.7b h200 taps=1 columns=4 drafts=1 leaves=1 columns 40 36
qwen3-1.7b h200 draft_layer=2 narrow=int8 prefill 56 128
qwen3-0.6b h200 narrow=int4 columns=4 columns 12 84
qwen3-0.6b b200 decode 8 80
qwen3-0.6b b200 short_far 404 772
qwen3-0.6b rtx5090 short_far 664 772
mistral-7b h200 short_far 192 1764
qwen3-0.6b h200 gpus=2 short_far 628 952'

constant() { sed -n "s/^-D$1=//p" "$folder/options"; }
# Registers, stack, spill stores and spill loads of the function named $1, or the most that any of those has
# whose names begin with $1 and _.
resources() {
    awk -v name="$1" '
        /Function properties for/ { here = $NF == name || index($NF, name "_") == 1; if (here) found++ }
        here && /stack frame/ {
            if ($1 > stack) stack = $1
            if ($5 > stores) stores = $5
            if ($9 > loads) loads = $9
        }
        here && /Used [0-9]+ registers/ {
            for (i = 1; i < NF; i++) if ($i == "Used" && $(i + 1) > registers) registers = $(i + 1)
        }
        END { if (!found) stores = 999999; print registers + 0, stack + 0, stores + 0, loads + 0 }' "$folder/log"
}

# One program, $1, for the plan named by the other arguments: a line of the table.
program() {
    kernel=$1 function=$1
    shift
    threads=$(constant P_THREADS) moved=$(constant P_REGISTERS_CONSUMER) shared=$(constant P_SHARED_BYTES)
    if [ "$kernel" = prefill ] || [ "$kernel" = packed ]; then
        threads=288 moved=0 shared=$(constant P_PREFILL_SHARED)
        [ "$(constant G_REGISTERS)" != 1 ] || [ "$(constant M_HEAD_DIM)" -le 128 ] || threads=384 moved=224
        [ "$(constant G_WGMMA)" != 1 ] || threads=384 moved=232
    fi
    [ "$moved" != 232 ] || [ "$(constant P_GPUS)" = 1 ] || moved=224
    if [ "$kernel" = prefill_delta ]; then
        function=prefill threads=256 moved=0 shared=$(constant P_PREFILL_CHUNK)
    fi
    if [ "$kernel" = encoder ]; then
        threads=288 moved=0 shared=$(constant P_PREFILL_SHARED)
        [ "$(constant G_WGMMA)" != 1 ] || threads=384 moved=232
    fi
    if [ "$kernel" = short ] || [ "$kernel" = short_far ]; then
        function=prefill_short shared=$(constant P_SHORT_SHARED)
    fi
    if [ "$kernel" = draft_input ]; then
        function=draft_product threads=256 moved=0 shared=4096
    fi
    begin=$(date +%s)
    nvcc -std=c++17 -arch="$target" -cubin -Werror all-warnings -Xptxas -v \
        --options-file "$folder/options" -o "$folder/$kernel.cubin" "kernels/$kernel.cu" \
        >"$folder/log" 2>&1
    code=$?
    seconds=$(($(date +%s) - begin))
    # shellcheck disable=SC2046 # four words
    set -- "$*" $(resources "$function")
    verdict=ok stores=16 loads=64
    # of prefill's kernels some hold all registers there are: what they put aside lies outside their loops
    [ "$kernel" != prefill ] && [ "$kernel" != packed ] || stores=48 loads=96
    # that of short prompts holds a phase's tiles and its input, and puts some aside once a phase
    case $kernel in short*) stores=448 loads=640 ;; esac
    allowed=$(printf '%s\n' "$known" | sed -n "s|^$1 $kernel \([0-9]* [0-9]*\)\$|\1|p")
    [ -z "$allowed" ] || stores=${allowed% *} loads=${allowed#* }
    [ "$4" -le "$stores" ] && [ "$5" -le "$loads" ] || verdict=SPILLS
    if [ $code -eq 0 ] && command -v nvdisasm >/dev/null && ! tools/sass_hazards.py "$folder/$kernel.cubin"; then
        verdict=HAZARD
    fi
    # ptxas says so where it ignores setmaxnreg, or has products wait for each other
    case $target in sm_120*) known_loss="into 'extern' call" ;; *) known_loss=none ;; esac
    grep 'Potential Performance Loss' "$folder/log" | grep -v "$known_loss" >"$folder/losses"
    [ ! -s "$folder/losses" ] || verdict=SLOW
    [ $code -eq 0 ] || verdict=FAILED
    bytes=$(stat -c %s "$folder/$kernel.cubin" 2>/dev/null || echo 0)
    printf '%-38s %-8s %-8s %4d x %-3d %8d %6d %6d %6d %7d %7d %5d  %s\n' "$1" "$kernel" "$target" \
        "$threads" "$2" "$moved" "$3" "$4" "$5" "$shared" "$bytes" $seconds $verdict
    [ $code -eq 0 ] || grep -iE 'error|warning' "$folder/log" | head -n 20
    sort -u "$folder/losses"
    [ $verdict = ok ]
}

# Of programs that are alike, $1, the one of this pair of days for the few plans that take turns, and all for
# others.
today() {
    alike=$1
    shift
    if [ -n "${KERNELS_DAY:-}" ] && echo "$few" | grep -qxF "$*"; then
        alike=$(echo "$alike" | cut -d ' ' -f $((KERNELS_DAY / 2 % 2 + 1))) # one word alone stays
    fi
    all=0
    for kernel in $alike; do program "$kernel" "$@" || all=1; done
    return $all
}

# The programs of a plan named by the arguments.
compile() {
    folder=$(mktemp -d) || return 1
    trap 'rm -rf "$folder"' EXIT
    "$emit" "$@" >"$folder/constants" || return 1
    sed 's/^/-D/' "$folder/constants" >"$folder/options"
    target=sm_$(constant G_COMPUTE)
    # setmaxnreg and wgmma are of one architecture only
    [ "$(constant G_REGISTERS)" != 1 ] && [ "$(constant G_WGMMA)" != 1 ] || target=${target}a
    good=0
    [ "$(constant P_COLUMNS)" = 1 ] || {
        program columns "$@"
        return
    }
    program decode "$@" || good=1
    # A hybrid has no packed texts.
    if [ "$(constant P_PREFILL_TOKENS)" != 0 ]; then
        if [ "$(constant M_DELTA)" != 0 ]; then alike=prefill; else alike='prefill packed'; fi
        today "$alike" "$@" || good=1
    fi
    [ "$(constant P_PREFILL_CHUNK)" = 0 ] || program prefill_delta "$@" || good=1
    [ "$(constant P_SHORT_TOKENS)" = 0 ] || today 'short short_far' "$@" || good=1
    case "$*" in qwen3.5* | *taps=1*) program draft_input "$@" || good=1 ;; esac # shapes with a draft layer
    [ -z "$(constant A_LAYERS)" ] || program encoder "$@" || good=1
    return $good
}

command -v nvcc >/dev/null || {
    echo "nvcc is not installed"
    exit 77
}
if [ "${1:-}" = --one ]; then
    shift
    compile "$@"
    exit
fi
make -s -j"$(nproc)" "$emit" || exit 1
# Each day another of the others, of the first six other families (mistral-7b takes longest) or of those with narrow
# weights, which have every second day.
turn() {
    if [ $((KERNELS_DAY % 2)) -eq 0 ]; then
        printf '%s\n' "$others" "$families" | sed -n "$((KERNELS_DAY / 2 % 9 + 1))p"
    else
        printf '%s\n' "$narrow" | sed -n "$((KERNELS_DAY / 2 % 9 + 1))p"
    fi
}
case ${1:-} in
--few)
    export KERNELS_DAY="${KERNELS_DAY:-$(($(date +%s) / 86400))}"
    plans="$(echo "$few" | awk -v day="$KERNELS_DAY" '(NR + day) % 2')
$(turn)" ;;
--narrow) plans="$narrow
$spilling" ;;
?*) plans=$* ;;
esac
nvcc --version | sed -n 's/^Cuda compilation/compilation/p'
printf '%-38s %-8s %-8s %-10s %8s %6s %6s %6s %7s %7s %5s\n' plan kernel target 'threads x' moved \
    stack stores loads shared bytes s
printf '%s\n' "$plans" | xargs -P "$(nproc)" -L 1 tools/compile_kernels.sh --one
code=$?
[ $code -eq 0 ] && echo "$(printf '%s\n' "$plans" | wc -l) plans compiled"
exit $code
