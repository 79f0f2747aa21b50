#!/bin/sh
# Line coverage of src/ after `make config=coverage test`, a line a file, least covered first.
set -eu
build=$1
root=$PWD
cd "$build"
find src -name '*.gcda' | while read -r data; do
    gcov -n -o "$(dirname "$data")" "$data" 2>/dev/null
done | awk -v root="$root/" '
    /^File / { file = $2; gsub("\047", "", file); sub(root, "", file) }
    /^Lines executed:/ && file ~ /^src\// {
        split($0, part, /[:% ]+/)
        lines[file] = part[5]; share[file] = part[3]; file = ""
    }
    END {
        for (f in lines) {
            printf "%6.1f %% of %5d lines  %s\n", share[f], lines[f], f
            n += lines[f]; hit += lines[f] * share[f] / 100
        }
        if (n) printf "%6.1f %% of %5d lines  all of src/\n", 100 * hit / n, n
    }' | sort -n
