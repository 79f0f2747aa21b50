#!/bin/sh
# Runs every libFuzzer program under $1/tests/fuzz for $2 seconds, starting from its committed corpus.
# New inputs go to $1/corpus; one that crashes is kept as $1/crash-TARGET-* and fails the run.
set -u
build=$1
seconds=$2
failed=0
n=0
for program in "$build"/tests/fuzz/fuzz_*; do
    case $program in *.o | *.d) continue ;; esac
    [ -x "$program" ] || continue
    name=${program##*/fuzz_}
    mkdir -p "$build/corpus/$name"
    n=$((n + 1))
    if "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -max_len=65536 -artifact_prefix="$build/crash-$name-" "$build/corpus/$name" \
        "tests/fuzz/corpus/$name" >"$build/fuzz-$name.log" 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/fuzz-$name.log")
        echo "ok   fuzz $name: $runs runs in $seconds s"
    else
        failed=$((failed + 1))
        echo "FAIL fuzz $name:"
        tail -n 30 "$build/fuzz-$name.log"
    fi
done
[ $failed -eq 0 ] && [ $n -gt 0 ]
