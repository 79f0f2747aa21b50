#!/bin/sh
# Refuses what the simulator could not see: kernels reach other threads, exchanged and mapped memory
# through the five files alone that have a twin there. Prints each line that does otherwise. Nor does it see who an
# access is ordered for: with several GPUs words are read, and given to others, in the scope of the system, and what
# the host sees always is. --mutate narrows each of these scopes to one GPU, which that check must notice, and prints those that it does not.
set -u
cd "$(dirname "$0")/.." || exit 1
bad=0
look() { # look WHAT PATTERN
    found=$(for f in kernels/*.cu kernels/*.cuh; do
        case ${f#kernels/} in sync.cuh | memory.cuh | reduce.cuh | mma.cuh | maths.cuh) continue ;; esac
        sed 's|/\*.*\*/||; s|//.*||' "$f" | grep -nE "$2" | sed "s|^|$f:|"
    done)
    [ -z "$found" ] && return
    printf '%s\n%s\n' "$1" "$found"
    bad=1
}
look 'inline assembly belongs into sync.cuh and the four beside it:' '(^|[^a-z_])asm([^a-z_]|$)'
look 'what CUDA calls it belongs into sync.cuh and reduce.cuh:' \
    '__(shfl|syncwarp|syncthreads|ballot|all_sync|any_sync|shared__|threadfence|ldg|nanosleep)|atomic[A-Z]|(thread|block)Idx|(block|grid)Dim|[^a-z_]clock(64)?\('
look 'memory that other threads write goes through the functions of sync.cuh and memory.cuh:' \
    '(^|[^&a-z_>])(w->)?(a|args)(->|\.)(words|kv|mailbox|abort|logits|hidden|profile)(\[|->)'
look 'the same, by an asterisk:' '\*(w->)?(a|args)(->|\.)(words|kv|mailbox|abort|logits|hidden|profile)'

# ---- scopes ----

sync=kernels/sync.cuh
scope() { # scope GPUS FUNCTION WORDS: what the function's body says in a program for so many GPUs
    ${CC:-cc} -E -P -x c -DP_GPUS="$1" -DG_COPY=2 -Ikernels - <"$sync" |
        awk -v name="$2" -v words="$3" '
            /^__device__/ { inside = index($0, " " name "(") > 0 }
            inside { body = body $0 }
            END { gsub(/" *"/, "", body); exit !index(body, words) }' && return
    echo "kernels/sync.cuh: with $1 GPUs $2 does not say $3"
    bad=1
}
scopes() {
    for f in word_load word_load2 word_load4; do
        scope 1 $f ld.relaxed.gpu.global
        scope 2 $f ld.relaxed.sys.global
    done
    scope 2 peer_store st.relaxed.sys.global.u64
    scope 2 peer_store32 st.relaxed.sys.global.u32
    scope 2 plain_claim atomicCAS_system
    for n in 1 2; do
        scope $n word_store st.relaxed.gpu.global.u64 # others have peer_store
        scope $n fence_gpu fence.acq_rel.gpu
        scope $n fence_system fence.acq_rel.sys
        scope $n mapped_store32 st.relaxed.sys.global.u32
        scope $n mapped_store64 st.relaxed.sys.global.u64
        scope $n mapped_load32 ld.relaxed.sys.global.u32
        scope $n mapped_load64 ld.relaxed.sys.global.u64
    done
}
if [ "${1-}" = --mutate ]; then
    missed=0 tried=0 copy=$(mktemp) || exit 1
    lines=$(grep -nE '\.sys|_system\(p' "$sync" | cut -d: -f1)
    for line in $lines; do
        sed "${line}s/\.sys/.gpu/; ${line}s/atomicCAS_system/atomicCAS/" kernels/sync.cuh >"$copy"
        sync=$copy bad=0 tried=$((tried + 1))
        scopes >"$copy.said"
        [ $bad -ne 0 ] || { missed=$((missed + 1)) && sed -n "${line}p" kernels/sync.cuh; }
    done
    rm -f "$copy" "$copy.said"
    echo "$((tried - missed)) of $tried scopes are noticed that are only those of one GPU"
    exit $missed
fi
scopes
exit $bad
