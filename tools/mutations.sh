#!/bin/sh
# mutations.sh BUILD
# Tries every mutation of the kernels (tests/support/mutations.h) in the program that must see it, with the schedules
# that any run of that program has: a soak has more of them, and so does not say what `make test` would see. Fails
# where one is not seen, and where a list of the table is tried by no program.
set -u
build=$1
unset REEL_SOAK REEL_MUTATION_TURN
REEL_MUTATION= # all
export REEL_MUTATION
programs=$(grep -l 'mutations_try(' tests/sim/test_*.c | sed "s|^|$build/|; s|\.c$||")
# shellcheck disable=SC2086 # a list of words
"$(dirname "$0")/run_tests.sh" "$build" "$build/tests/unit/test_mutations" $programs
code=$?
[ $code -ne 75 ] || exit 75

# What each list says: NAME: SEEN of ALL mutations seen
for program in $programs; do
    sed -n "s|^\([a-z_]*\): \([0-9]*\) of \([0-9]*\) mutations seen$|\1 \2 \3 ${program##*/}|p" "$program.log"
done | awk -v table="$(sed -n 's/^\([0-9]*\) mutations$/\1/p' "$build/tests/unit/test_mutations.log")" '
    { printf "%-10s %3d of %3d seen by %s\n", $1, $2, $3, $4; seen += $2; all += $3 }
    END {
        if (all != table) printf "%d of %d mutations are in lists that programs try\n", all, table
        printf "%d of %d mutations seen\n", seen, table
        exit !(table > 0 && seen == table)
    }' || code=1
exit $code
