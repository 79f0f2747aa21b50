#!/bin/sh
# Runs every test program under $1/tests and adds up what cmocka reports. A program that dies counts
# as one failure.
set -u
build=$1
total_pass=0
total_fail=0
total_skip=0
log="$build/tests.log"
: >"$log"
for program in $(find "$build/tests" -type f -perm -u+x -name 'test_*' ! -name '*.*' | sort); do
    name=${program#"$build"/tests/}
    out=$(REEL_BUILD="$build" timeout 900 "$program" 2>&1)
    code=$?
    printf '%s\n' "== $name" "$out" >>"$log"
    pass=$(printf '%s\n' "$out" | grep -c '^\[       OK \]')
    fail=$(printf '%s\n' "$out" | grep -c '^\[  FAILED  \] [^0-9]' )
    skip=$(printf '%s\n' "$out" | grep -c '^\[  SKIPPED \] [^0-9]')
    [ $code -eq 0 ] || [ "$fail" -gt 0 ] || fail=1
    if [ "$fail" -gt 0 ]; then
        printf 'FAIL %s (exit %d)\n%s\n' "$name" $code "$(printf '%s\n' "$out" | tail -n 40)"
    else
        printf 'ok   %s: %d passed%s\n' "$name" "$pass" "$([ "$skip" -gt 0 ] && printf ', %d skipped' "$skip")"
    fi
    total_pass=$((total_pass + pass))
    total_fail=$((total_fail + fail))
    total_skip=$((total_skip + skip))
done
printf '%d passed, %d failed, %d skipped\n' $total_pass $total_fail $total_skip
[ $total_fail -eq 0 ] && [ $total_pass -gt 0 ]
