#!/bin/sh
# Refuses what the simulator could not see: kernels reach other threads, exchanged and mapped memory
# through the five files alone that have a twin there. Prints each line that does otherwise.
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
exit $bad
