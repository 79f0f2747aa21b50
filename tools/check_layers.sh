#!/bin/sh
# Refuses an include that tools/layers.txt does not allow, and a page of docs/ that names a source
# file which is not there. Prints file:line of each.
set -u
cd "$(dirname "$0")/.." || exit 1
bad=0

forbidden=$(git ls-files 'src/*.c' 'src/*.h' | xargs grep -n '^ *# *include *"' /dev/null | awk '
    FILENAME == "tools/layers.txt" {
        if (/^#/ || NF == 0 || $1 == "elsewhere") next
        if ($1 ~ /^src\//) { except[$1 " " $2] = 1; next }
        known[$1] = 1
        for (i = 2; i <= NF; i++) allowed[$1 " " $i] = 1
        next
    }
    {
        split($0, part, ":")
        file = part[1]
        header = $0
        sub(/^[^"]*"/, "", header)
        sub(/".*$/, "", header)
        split(file, name, "/")
        from = name[2]
        if ((name[2] "/" name[3]) in known) from = name[2] "/" name[3]
        n = split(header, name, "/")
        if (n == 1) next # of include/, which the compiler finds alone
        to = name[1]
        if (n > 2 && (name[1] "/" name[2]) in known) to = name[1] "/" name[2]
        if (!(from in known)) { print file ":" part[2] ": " from " is not in tools/layers.txt"; next }
        if (to == from || (from " " to) in allowed || (from " " header) in allowed) next
        if (to == "kernels" && header ~ /\.h$/ && (from " kernels/*.h") in allowed) next
        if ((file " " header) in except) { used[file " " header] = 1; next }
        print file ":" part[2] ": " from " may not include " header
    }
    END { for (e in except) if (!(e in used)) print "tools/layers.txt: nothing needs the exception " e }
' tools/layers.txt -)
if [ -n "$forbidden" ]; then
    printf '%s\n' "$forbidden"
    bad=1
fi

elsewhere=$(sed -n 's/^elsewhere //p' tools/layers.txt)
# `plan/plan.c`, `src/plan/plan.c`, `kernels/args.h`, `args.h`: as a page may name them.
for page in README.md docs/*.md kernels/README.md; do
    case $page in docs/EXPERIMENTS.md) continue ;; esac # tells of what is gone
    grep -noE '[A-Za-z0-9_/.-]+\.(c|h|cu|cuh|sh|py|md)\b' "$page" | while IFS=: read -r line name; do
        case $name in *NAME* | */_* | _* | http*) continue ;; esac
        case " $elsewhere " in *" $name "*) continue ;; esac
        git ls-files | grep -qE "(^|/)$(printf '%s' "${name#../}" | sed 's/\./\\./g')\$" ||
            echo "$page:$line: there is no $name"
    done
done >build/check_layers.$$
if [ -s build/check_layers.$$ ]; then
    cat build/check_layers.$$
    bad=1
fi
rm -f build/check_layers.$$
exit $bad
