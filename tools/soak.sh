#!/bin/sh
# The long tests in full: every failing call, every schedule, all goldens, hours of sound (REEL_SOAK=1), plain and
# under the sanitizers, clang's analyzer to its own limit, every plan by nvcc, and a minute of fuzzing a target.
# Hours, not minutes; bench/results/soak.txt says how many, step by step, and of which commit.
#
# What was begun goes on: programs and steps that passed at a commit are kept in build/soak/COMMIT and not run again
# there. Uncommitted changes have no such name, and begin anew. Name steps to run only those:
#   tests mutations sanitize sanitize-sim thread tidy kernels fuzz server
#   REEL_TEST_SECONDS  limit for one program (14400)    FUZZ_SECONDS  a target (60)    REEL_SMOLLM2  the model's file
#   SERVER_SECONDS  of a server among rude clients (3600)
#   SOAK_SECONDS  ends after so many, about: programs that were not done are left for the next call, which goes on
#                 there. The longest program must fit: minutes on 16 cores (soak.txt)
#   SOAK_BUILT=COMMIT  build/release is there and is that commit's: a step can run where nothing can be built (tools/soak_pack.sh
#                      makes what to carry there), and its build/soak/COMMIT be copied to where the others do. The
#                      record names every machine
set -u
cd "$(dirname "$0")/.." || exit 1
REEL_TEST_SECONDS=${REEL_TEST_SECONDS:-14400}
FUZZ_SECONDS=${FUZZ_SECONDS:-60}
export REEL_TEST_SECONDS
[ -z "${SOAK_SECONDS:-}" ] || {
    REEL_UNTIL=$(($(date +%s) + SOAK_SECONDS))
    export REEL_UNTIL
}
jobs=$(nproc)
wanted=" $* "
commit=${SOAK_BUILT:-$(git rev-parse --short HEAD)}
if [ -n "${SOAK_BUILT:-}" ]; then
    kept=build/soak/$commit
elif git diff --quiet HEAD -- . ':!bench/results/soak.txt'; then
    kept=build/soak/$commit
else
    commit="$commit and uncommitted changes"
    kept=build/soak/uncommitted
    rm -rf "$kept"
fi
mkdir -p "$kept" bench/results

# Programs that passed are in $kept/STEP, with their seconds: run_tests.sh.
# shellcheck disable=SC2317 # called through record, as all of these
programs() { # programs STEP BUILD [PROGRAM...]
    REEL_DONE=$kept/$1
    export REEL_DONE
    mkdir -p "$REEL_DONE"
    shift
    tools/run_tests.sh "$@"
}
# shellcheck disable=SC2317
tests() {
    REEL_SOAK=1
    export REEL_SOAK
    { [ -n "${SOAK_BUILT:-}" ] || make -j"$jobs" all tests; } && programs tests build/release
}
# With the schedules of make test, not of a soak.
# shellcheck disable=SC2317
mutations() {
    REEL_DONE=$kept/mutations
    export REEL_DONE
    mkdir -p "$REEL_DONE"
    { [ -n "${SOAK_BUILT:-}" ] || make -j"$jobs" tests; } && tools/mutations.sh build/release
}
# Without SmolLM2, and with fewer positions, draws and hours of sound (soaking_in_full in tests/support/sanitized.h),
# which take hours under the sanitizers.
# shellcheck disable=SC2317
sanitize() {
    REEL_SOAK=1
    export REEL_SOAK
    unset REEL_SMOLLM2
    # shellcheck disable=SC2046 # a list of words
    make -j"$jobs" config=sanitize CC=clang all tests && programs sanitize build/sanitize $(
        find build/sanitize/tests -type f -perm -u+x -name 'test_*' ! -name '*.*' ! -path '*/sim/*' | sort
        find build/sanitize/tests/sim -type f -perm -u+x -name 'test_cuda_*' ! -name '*.*' | sort)
}
# Kernels are never sanitized, so the schedules of those that are about kernels are as few as without REEL_SOAK.
# shellcheck disable=SC2317
sanitize_sim() {
    REEL_TURN=all
    export REEL_TURN
    # shellcheck disable=SC2046
    make -j"$jobs" config=sanitize CC=clang all tests && programs sanitize-sim build/sanitize $(
        grep -l 'support/sim_model.h' tests/sim/test_*.c | grep -v '_orders\|/test_cuda_' | sed 's|^|build/sanitize/|; s|\.c$||')
}
# What rotates in make check, with the lengths of there.
# shellcheck disable=SC2317
thread() {
    mkdir -p "$kept/thread"
    REEL_DONE=$kept/thread REEL_TURN=all CHECK_ALL=1 tools/check.sh thread && return
    read -r code _ <build/check/thread.code
    return "$code"
}
# shellcheck disable=SC2317
tidy() { make -k -j"$jobs" TIDY_NODES=225000 tidy && echo "nothing found"; }
# Exit status 77 without nvcc.
# shellcheck disable=SC2317
kernels() { tools/compile_kernels.sh; }
# shellcheck disable=SC2317
fuzz() { make -j"$jobs" config=fuzz fuzz SECONDS="$FUZZ_SECONDS"; }
# Clients that leave at random, read slowly, say half of a request or flood, for an hour.
# shellcheck disable=SC2317
server() {
    { [ -n "${SOAK_BUILT:-}" ] || make -j"$jobs" build/release/bench/server_soak; } &&
        build/release/bench/server_soak "${SERVER_SECONDS:-3600}"
}

good=0
record() { # record NAME COMMAND...
    name=$1
    shift
    case $wanted in "  " | *" $name "*) ;; *) return ;; esac
    if [ ! -e "$kept/$name.passed" ] && [ -n "${REEL_UNTIL:-}" ] && [ "$(date +%s)" -ge "$REEL_UNTIL" ]; then
        printf '%-12s left for the next call\n' "$name" | tee -a "$kept/soak.txt"
        good=75
        return
    fi
    if [ ! -e "$kept/$name.passed" ]; then
        begin=$(date +%s)
        ("$@") >"$kept/$name.log" 2>&1
        code=$?
        printf '%-12s exit %d, %d s: %s\n' "$name" $code $(($(date +%s) - begin)) \
            "$(tail -n 1 "$kept/$name.log")" >"$kept/$name.said"
        # Where a step's time went.
        sed -n 's/^ok   \([^ ]*\) .* \([0-9]*\) s, CPU .*/\2 \1/p' "$kept/$name.log" | sort -rn |
            awk '$1 >= 60 { printf "             %5d s %s\n", $1, $2 }' >>"$kept/$name.said"
        # 77: skipped, and its last line says why
        if [ $code -eq 0 ] || [ $code -eq 77 ]; then : >"$kept/$name.passed"; else good=1; fi
    fi
    tee -a "$kept/soak.txt" <"$kept/$name.said"
}
machine="machine $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $jobs cores"
grep -qsxF "$machine" "$kept/machines" || echo "$machine" >>"$kept/machines"
{
    echo "commit  $commit"
    cat "$kept/machines"
    echo "command make soak; $FUZZ_SECONDS s of fuzzing a target, at most $REEL_TEST_SECONDS s a program"
    if [ -n "${REEL_SMOLLM2:-}" ]; then echo "SmolLM2 given"; else echo "SmolLM2 not given: its slice only"; fi
} | tee "$kept/soak.txt"
# Seconds of a step that was interrupted are those of its last part; those of its programs are whole.
record tests tests
record mutations mutations
record sanitize sanitize
record sanitize-sim sanitize_sim
record thread thread
record tidy tidy
record kernels kernels
record fuzz fuzz
record server server
[ -n "$*" ] || cp "$kept/soak.txt" bench/results/soak.txt
exit $good
