#!/bin/sh
# fuzz.sh BUILD SECONDS
# Runs every libFuzzer program under BUILD/tests/fuzz for SECONDS, a core each, starting from its
# committed corpus. New inputs go to BUILD/corpus; one that crashes is kept as BUILD/crash-TARGET-*
# and fails the run.
set -u

if [ "${1:-}" = --one ]; then
    build=$2
    seconds=$3
    name=${4##*/fuzz_}
    mkdir -p "$build/corpus/$name"
    "$4" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
        -max_len=65536 -artifact_prefix="$build/crash-$name-" "$build/corpus/$name" \
        "tests/fuzz/corpus/$name" >"$build/fuzz-$name.log" 2>&1
    echo $? >"$build/fuzz-$name.code"
    exit 0
fi

build=$1
seconds=$2
programs=$(find "$build/tests/fuzz" -type f -perm -u+x -name 'fuzz_*' ! -name '*.*' | sort)
# shellcheck disable=SC2086 # a list of words
printf '%s\n' $programs | xargs -P "${JOBS:-$(nproc)}" -n 1 "$0" --one "$build" "$seconds"
failed=0
n=0
for program in $programs; do
    name=${program##*/fuzz_}
    log=$build/fuzz-$name.log
    n=$((n + 1))
    if [ "$(cat "$build/fuzz-$name.code")" = 0 ]; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        echo "ok   fuzz $name: $runs runs in $seconds s"
    else
        failed=$((failed + 1))
        echo "FAIL fuzz $name:"
        tail -n 30 "$log"
    fi
done
echo "$n fuzz targets, $failed failed"
[ $failed -eq 0 ] && [ $n -gt 0 ]
