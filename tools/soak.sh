#!/bin/sh
# The long tests in full: every failing call, every schedule, all goldens, hours of sound
# (REEL_SOAK=1), plain and under the sanitizers (those with fewer positions of the goldens:
# tests/support/sanitized.h), and ten minutes of fuzzing a target. Hours, not minutes. The result goes
# to bench/results/soak.txt.
set -u
cd "$(dirname "$0")/.." || exit 1
out=bench/results/soak.txt
mkdir -p bench/results
REEL_SOAK=1
REEL_TEST_SECONDS=${REEL_TEST_SECONDS:-14400}
export REEL_SOAK REEL_TEST_SECONDS
jobs=$(nproc)
good=0
{
    echo "commit  $(git rev-parse --short HEAD)$(git diff --quiet HEAD || echo ' and uncommitted changes')"
    echo "machine $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $jobs cores"
    echo "command make soak"
    if [ -n "${REEL_SMOLLM2:-}" ]; then echo "SmolLM2 given"; else echo "SmolLM2 not given: skipped"; fi
} >"$out"
record() { # record NAME COMMAND...
    name=$1
    shift
    begin=$(date +%s)
    "$@" >"build/soak-$name.log" 2>&1
    code=$?
    [ $code -eq 0 ] || good=1
    printf '%-10s exit %d, %d s: %s\n' "$name" $code $(($(date +%s) - begin)) \
        "$(tail -n 1 "build/soak-$name.log")" | tee -a "$out"
}
mkdir -p build
# shellcheck disable=SC2317 # called through record
release() { make -j"$jobs" all tests && tools/run_tests.sh build/release; }
# shellcheck disable=SC2317
sanitize() { # without SmolLM2: hours under the sanitizers
    unset REEL_SMOLLM2
    make -j"$jobs" config=sanitize CC=clang all tests && tools/run_tests.sh build/sanitize
}
# shellcheck disable=SC2317
fuzz() { make -j"$jobs" config=fuzz fuzz SECONDS="${FUZZ_SECONDS:-600}"; }
record tests release
record sanitize sanitize
record fuzz fuzz
exit $good
