#!/bin/sh
# Runs every test program under $1/tests, or those named after it, and adds up what cmocka reports.
# A program that dies or runs past its time counts as one failure. The whole output: $1/tests.log.
set -u
build=$1
shift
programs=$*
[ -n "$programs" ] ||
    programs=$(find "$build/tests" -type f -perm -u+x -name 'test_*' ! -name '*.*' | sort)
passed=0
failed=0
skipped=0
log="$build/tests.log"
: >"$log"
for program in $programs; do
    name=${program#"$build"/tests/}
    begin=$(date +%s)
    REEL_BUILD="$build" timeout "${REEL_TEST_SECONDS:-900}" "$program" >"$build/test.out" 2>&1
    code=$?
    seconds=$(($(date +%s) - begin))
    printf '== %s (exit %d, %d s)\n' "$name" $code $seconds >>"$log"
    cat "$build/test.out" >>"$log"
    # cmocka names a failed test where it ran and once more in its closing list.
    ok=$(grep -c '^\[       OK \]' "$build/test.out")
    bad=$(grep '^\[  FAILED  \] [^0-9]' "$build/test.out" | sort -u | grep -c .)
    skip=$(grep '^\[  SKIPPED \] [^0-9]' "$build/test.out" | sort -u | grep -c .)
    [ $code -eq 0 ] || [ "$bad" -gt 0 ] || bad=1
    if [ "$bad" -gt 0 ]; then
        printf 'FAIL %s (exit %d)\n' "$name" $code
        tail -n 60 "$build/test.out"
    else
        printf 'ok   %-40s %4d passed' "$name" "$ok"
        [ "$skip" -eq 0 ] || printf ', %d skipped' "$skip"
        printf ', %d s\n' $seconds
    fi
    passed=$((passed + ok))
    failed=$((failed + bad))
    skipped=$((skipped + skip))
done
rm -f "$build/test.out"
printf '%d passed, %d failed, %d skipped\n' $passed $failed $skipped
[ $failed -eq 0 ] && [ $passed -gt 0 ]
