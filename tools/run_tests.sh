#!/bin/sh
# run_tests.sh BUILD [PROGRAM...]
# Runs the test programs of BUILD/tests, one more than there are cores, because some wait for clocks and
# terminals, and adds up what cmocka reports. A program that dies or runs past its time counts as one failure.
# BUILD/tests/NAME.log holds its output. Beside a program's seconds stand those of the processors, which other work on the
# machine does not make more, and the shares that it took of what rotates over runs.
#   JOBS  programs at a time    REEL_TEST_SECONDS  limit for one (900)
#   REEL_DONE  a folder where what programs that passed have said is kept: they are not run again
#   REEL_UNTIL  seconds since 1970 after which none begins and the last are stopped: they are left for the next time,
#               neither passed nor failed, and the exit status is 75 where nothing else is wrong
set -u
# No program outlives this script, whatever ends it.
bound='setpriv --pdeathsig TERM'

if [ "${1:-}" = --one ]; then
    program=$2
    done=${REEL_DONE:+$REEL_DONE/$(echo "${program#*/tests/}" | tr / -)}
    if [ -n "$done" ] && [ -e "$done.result" ]; then
        cp "$done.log" "$program.log"
        cp "$done.result" "$program.result"
        exit 0
    fi
    begin=$(date +%s)
    seconds=${REEL_TEST_SECONDS:-900}
    rm -f "$program.result"
    if [ -n "${REEL_UNTIL:-}" ] && [ $((REEL_UNTIL - begin)) -lt "$seconds" ]; then
        seconds=$((REEL_UNTIL - begin))
        [ $seconds -gt 0 ] || exit 0
    else
        REEL_UNTIL=
    fi
    $bound timeout "$seconds" "$program" >"$program.log" 2>&1
    code=$?
    [ $code -ne 124 ] || [ -z "$REEL_UNTIL" ] || exit 0
    seconds=$(($(date +%s) - begin))
    # The second line says what the programs that this shell started took, user's and system's: 0m1.25s 0m0.5s
    times >"$program.times"
    echo "$code $seconds $(awk -F '[ms ]+' 'NR == 2 { printf "%.1f", $1 * 60 + $2 + $3 * 60 + $4 }' "$program.times")" \
        >"$program.result"
    rm -f "$program.times"
    [ -z "$done" ] || [ $code -ne 0 ] || {
        cp "$program.log" "$done.log"
        cp "$program.result" "$done.result"
    }
    exit 0
fi

# Tests run kernels on a fake driver of their own, and know what a machine without a GPU answers.
REEL_BUILD=$1 CUDA_VISIBLE_DEVICES=
export REEL_BUILD CUDA_VISIBLE_DEVICES
shift
programs=$*
[ -n "$programs" ] ||
    programs=$(find "$REEL_BUILD/tests" -type f -perm -u+x -name 'test_*' ! -name '*.*' | sort)
# Those that take longest begin first (tests/slow.txt, in order), so that no core waits for one of them at the end.
# shellcheck disable=SC2086 # a list of words
printf '%s\n' $programs | awk '
    NR == FNR { rank[$1] = ++n; next }
    { name = $0; sub(/^.*\/tests\//, "", name); printf "%d\t%s\n", name in rank ? rank[name] : n + 1, $0 }
' "$(dirname "$0")/../tests/slow.txt" - | sort -s -n -k 1,1 | cut -f 2 |
    $bound xargs -P "${JOBS:-$(($(nproc) + 1))}" -n 1 $bound "$0" --one

passed=0
failed=0
skipped=0
left=0
for program in $programs; do
    [ -e "$program.result" ] || {
        printf 'left %s\n' "${program#"$REEL_BUILD"/tests/}"
        left=$((left + 1))
        continue
    }
    read -r code seconds cpu <"$program.result"
    log=$program.log
    # cmocka names a failed test where it ran and once more in its closing list.
    ok=$(grep -c '^\[       OK \]' "$log")
    bad=$(grep '^\[  FAILED  \] [^0-9]' "$log" | sort -u | grep -c .)
    skip=$(grep '^\[  SKIPPED \] [^0-9]' "$log" | sort -u | grep -c .)
    [ "$code" -eq 0 ] || [ "$bad" -gt 0 ] || bad=1
    if [ "$bad" -gt 0 ]; then
        printf 'FAIL %s (exit %d after %d s)\n' "${program#"$REEL_BUILD"/tests/}" "$code" "$seconds"
        tail -n 60 "$log"
    else
        printf 'ok   %-40s %4d passed' "${program#"$REEL_BUILD"/tests/}" "$ok"
        [ "$skip" -eq 0 ] || printf ', %d skipped' "$skip"
        printf ', %d s, CPU %s s' "$seconds" "$cpu"
        # What rotates: tests/support/shares.h and mutations.h
        sed -n 's/^\([^ :]*\): share \([0-9]*\) of \([0-9]*\) .*/; \1 \2 of \3/p' "$log" | tr -d '\n'
        printf '\n'
    fi
    passed=$((passed + ok))
    failed=$((failed + bad))
    skipped=$((skipped + skip))
done
printf '%d passed, %d failed, %d skipped' $passed $failed $skipped
[ $left -eq 0 ] || printf ', %d programs left' $left
printf '\n'
[ $failed -ne 0 ] || [ $left -eq 0 ] || exit 75
[ $failed -eq 0 ] && [ $passed -gt 0 ]
