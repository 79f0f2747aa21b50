#!/bin/sh
# Refuses `#ifdef X`, `#ifndef X` and `defined(X)` of a macro that some file defines as 0: it is defined either way,
# so the question always has the same answer. `#if X` asks for its value. The one `#ifndef X` allowed is the
# default itself, with `#define X 0` in the next line. Prints each line that asks otherwise.
# check_macros.sh [FILE...]: these files instead of all of the repository.
set -u
[ $# -gt 0 ] || {
    cd "$(dirname "$0")/.." || exit 1
    # shellcheck disable=SC2046 # a list of words
    set -- $(git ls-files '*.c' '*.h' '*.cu' '*.cuh')
}
# Each file is read twice: first for what is defined as 0, then for who asks.
awk '
    FNR == 1 { file++ }
    file <= n && match($0, /^[ \t]*#[ \t]*define[ \t]+[A-Za-z_0-9]+[ \t]+0[ \t]*($|\/)/) {
        sub(/^[ \t]*#[ \t]*define[ \t]+/, "")
        zero[$1] = 1
    }
    file <= n { next }
    held != "" && !($0 ~ "^[ \t]*#[ \t]*define[ \t]+" name "[ \t]+0") { print held; bad = 1 }
    { held = "" }
    /^[ \t]*#[ \t]*ifn?def[ \t]/ {
        name = $0
        sub(/^[ \t]*#[ \t]*ifn?def[ \t]+/, "", name)
        sub(/[^A-Za-z_0-9].*/, "", name)
        if (!(name in zero)) next
        if ($0 ~ /ifndef/) held = FILENAME ":" FNR ": " $0
        else { print FILENAME ":" FNR ": " $0; bad = 1 }
        next
    }
    /^[ \t]*#[ \t]*(el)?if[ \t(!]/ {
        rest = $0
        while (match(rest, /defined[ \t]*\(?[ \t]*[A-Za-z_0-9]+/)) {
            name = substr(rest, RSTART, RLENGTH)
            sub(/defined[ \t]*\(?[ \t]*/, "", name)
            if (name in zero) { print FILENAME ":" FNR ": " $0; bad = 1 }
            rest = substr(rest, RSTART + RLENGTH)
        }
    }
    END { exit bad }' n=$# "$@" "$@" || {
    echo 'these macros are always defined: ask for their value with #if'
    exit 1
}
