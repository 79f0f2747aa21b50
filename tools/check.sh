#!/bin/sh
# What `make check` does beyond `make test`. Every step runs, also after a failure; build/check/STEP.log
# holds what it printed. Beside its seconds stand those of the processors. Name steps to run only those.
#
# What takes long for every run rotates over days: a step says which share of it ran. `make soak` runs all.
#   CHECK_DAY=n  the shares of that day    CHECK_ALL=1  all of them
set -u
cd "$(dirname "$0")/.." || exit 1
logs=build/check
mkdir -p "$logs"
rm -f "$logs/kernels.code"
jobs=$(nproc)
CI=1 # warnings are errors
export CI
# Links programs with sanitizers in half the time.
fast=$(command -v ld.gold >/dev/null && echo -fuse-ld=gold)
passed=0
failed=0
skipped=0
wanted=" $* "
day=${CHECK_DAY:-$(($(date +%s) / 86400))}

wants() { case $wanted in "  " | *" $1 "*) ;; *) return 1 ;; esac; }
work() { # work NAME COMMAND...
    name=$1
    shift
    begin=$(date +%s)
    (
        "$@" >"$logs/$name.log" 2>&1
        code=$?
        times >"$logs/$name.times" # its second line: what this shell's children took
        cpu=$(awk -F '[ms ]+' 'NR == 2 { printf "%.0f", $1 * 60 + $2 + $3 * 60 + $4 }' "$logs/$name.times")
        echo $code $(($(date +%s) - begin)) "$cpu" >"$logs/$name.code"
    )
}
tell() { # tell NAME
    name=$1
    read -r code seconds cpu <"$logs/$name.code"
    if [ "$code" -eq 0 ]; then
        passed=$((passed + 1))
        printf 'ok   %-16s %4d s, CPU %4d s  %s\n' "$name" "$seconds" "$cpu" "$(tail -n 1 "$logs/$name.log" | cut -c1-70)"
        sed -n 's/^share /     &/p' "$logs/$name.log"
    elif [ "$code" -eq 77 ]; then
        skipped=$((skipped + 1))
        printf 'skip %-16s         %s\n' "$name" "$(tail -n 1 "$logs/$name.log")"
    else
        failed=$((failed + 1))
        printf 'FAIL %-16s %4d s\n' "$name" "$seconds"
        tail -n 60 "$logs/$name.log"
    fi
}
step() { # step NAME COMMAND...
    wants "$1" || return
    work "$@"
    tell "$1"
}
# What waits, or has one core at a time, goes on beside the steps that follow, until told.
beside() { # beside NAME COMMAND...
    ! wants "$1" || work "$@" &
}
told() { # told NAME...
    wait
    for one; do ! wants "$one" || tell "$one"; done
}
skip() {
    echo "$*"
    return 77
}
# Steps that take turns: the days of three on which a run of all steps has this one. Its name alone runs it on any day.
due() { # due DAYS NAME
    ! wants "$2" && return 1
    [ "$wanted" = "  " ] && [ -z "${CHECK_ALL:-}" ] || return 0
    case $1 in *$((day % 3))*) return 0 ;; esac
    next=$((day + 1))
    case $1 in *$((next % 3))*) ;; *) next=$((day + 2)) ;; esac
    printf 'left %-16s         for another day: CHECK_DAY=%d\n' "$2" $next
    return 1
}
# Of the lines that come in, those of this day's share; the share stays for so many days. In a build of its own each
# test program takes halves, thirds or quarters of itself by turns of one day (tests/support/shares.h), so programs have
# five or seven shares, and the paths of kernels, which are looked at with all of them, change every sixth day.
share() { # share SHARES WHAT [DAYS]
    [ -z "${CHECK_ALL:-}" ] || exec cat
    turn=$((day / ${3:-1} % $1))
    echo "share $((turn + 1)) of $1 of $2; CHECK_DAY=$day repeats it" >&2
    awk -v n="$1" -v turn=$turn '(NR - 1) % n == turn'
}

scripts() {
    command -v shellcheck >/dev/null || skip "shellcheck is not installed" || return
    shellcheck tools/*.sh .ci/run || return
    # sass_hazards.py finds what it looks for, a cycle too early, and nothing else.
    command -v python3 >/dev/null || return 0
    tools/sass_hazards.py --listing tests/fixtures/sass/late_*.txt || return
    for f in tests/fixtures/sass/early_*.txt; do ! tools/sass_hazards.py --listing "$f" >/dev/null || return; done
}
figures() {
    command -v python3 >/dev/null || skip "no python3" || return
    tools/check_figures.py && bench/plot.py --check
}
links() {
    command -v python3 >/dev/null || skip "no python3" || return
    tools/check_links.py
}
# For warnings: those of the release build that `make test` runs, or of a build for them where cc is not gcc.
build_gcc() {
    case $(cc -v 2>&1) in
    *"gcc version"*) make -j"$jobs" all tests || return ;;
    *) make -j"$jobs" B=build/check-gcc CC=gcc CFLAGS=-g0 objects || return ;;
    esac
    said=$(cd build/release && find . -name '*.o.said' | while read -r f; do
        [ ! -e "../../${f%.o.said}.c" ] || echo "build/release/$f"
    done)
    [ -z "$said" ] && echo "no warnings" && return
    # shellcheck disable=SC2086 # a list of words
    cat $said
    return 1
}
# A third of the sources a day; make soak looks at all, and further.
tidy() {
    first='src/model/% src/jinja/% src/asr/%' second='src/plan/% src/cuda/% src/runtime/% src/server/%'
    printf '%s\n' "TIDY_ONLY=$first" "TIDY_ONLY=$second" "TIDY_BUT=$first $second" | share 3 "the sources" | {
        good=0
        while read -r which; do make -k -j"$jobs" tidy "$which" </dev/null || good=1; done
        [ $good -eq 0 ]
    }
}
# The path whose kernels are sanitized today; nothing for all.
kernels_today() {
    [ -z "${CHECK_ALL:-}" ] || return 0
    paths=portable
    for isa in avx2 avx512f asimd; do grep -qsw $isa /proc/cpuinfo && paths="$paths $isa"; done
    # shellcheck disable=SC2086 # a list of words
    printf '%s\n' $paths | sed 's/avx512f/avx512/; s/asimd/neon/' | share "$(echo "$paths" | wc -w)" "the paths of kernels" 6
}
# The programs of a build that sources are made into.
built() { sed "s|^\(.*\)\.c$|build/$1/\1|"; }
# The tests again, built by clang with its sanitizers: this is also the clang -Werror build. Kernels and the
# simulator are never sanitized, so those of tests/sim that are about kernels, or measure them, are left to `make test`
# and `make soak`: the host's code for the GPU is what test_cuda_* go through. The corpora of tests/fuzz are read by
# the step fuzz, under the same sanitizers. sanitized_briefly() and SANITIZED say what programs leave
# out: the first but for make soak, which also runs the programs that are not named here.
# Every day: readers of what others wrote, threads that meet. Of the programs in which every call fails once, which have
# no turns inside, a third. Of the others a seventh.
sanitize() {
    # Nor what is long and whose code others go through.
    all=$( (find tests/unit tests/golden tests/failure tests/cli tests/server -name 'test_*.c' | sort
        grep -l 'support/sim_model.h' tests/sim/test_cuda_*.c) |
        grep -v '/test_\(cuda_prefill_profile\|trained_hybrid\|trained_speech\|stream_speech\|reference\|cpu_paths\)\.c')
    daily='/server/|/unit/.*(json|gguf|safetensors|tokenizer|spm|snapshot|wav|sndfile|pcm|audio_source|jinja'
    daily="$daily|template|model_config|model_source|quantised_files|quantized_folder|answer_reader|thread_pool|joins|passes)"
    daily="$daily|/cli/test_(hub|pull|history|page)"
    programs=$( (echo "$all" | grep -E "$daily"
        echo "$all" | grep /failure/ | share 3 "the calls that fail"
        echo "$all" | grep -vE "$daily|/failure/" | share 7 "the other programs") | built sanitize)
    # Of the others what a compiler warns of.
    seen=$(find tests -name 'test_*.c' | built sanitize | grep -vxF "$programs" | sed 's/$/.seen/')
    # shellcheck disable=SC2086 # a list of words
    make -j"$jobs" config=sanitize CC=clang LDFLAGS="$fast" KERNELS="$(kernels_today)" build/sanitize/reel fakes \
        build/sanitize/tests/fuzz/replay.seen $programs $seen || return 1
    # shellcheck disable=SC2086 # a list of words
    ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 tools/run_tests.sh build/sanitize $programs
}
# Every third day. Each time: the threads of the pool, of passes and of the server. Of the others a fifth. These and the
# programs count the turns of this step, not days.
thread() {
    # Not those with the fake GPU: its fibers are nothing that the thread sanitizer knows. Nor those that run the
    # program, which is not built with it.
    others=$(grep -lE 'pthread|n_threads|thread_pool|_cancel' tests/unit/test_*.c tests/cli/test_*.c |
        xargs grep -LE 'sim_gpu|fake_cuda|cuda_dir|support/shell.h' | grep -vE '/test_(thread_pool.*|passes|joins)\.c')
    # The real backend on two threads, every path; a thread that does not start; the server's threads.
    # shellcheck disable=SC2086 # a list of words
    programs=$( (printf '%s\n' tests/golden/test_cpu_paths.c tests/failure/test_whole_path.c tests/server/test_speech.c $others |
        share 5 "the other programs" 3
        printf 'tests/%s.c\n' unit/test_thread_pool unit/test_thread_pool_late unit/test_passes unit/test_joins \
            server/test_http server/test_realtime server/test_rude_clients server/test_apart) | built thread)
    # shellcheck disable=SC2086 # a list of words
    make -j"$jobs" config=thread CC=clang LDFLAGS="$fast" KERNELS="$(kernels_today)" $programs || return
    REEL_TURN=$([ -n "${CHECK_ALL:-}" ] && echo all || echo $((day / 3)))
    export REEL_TURN
    # shellcheck disable=SC2086 # a list of words
    TSAN_OPTIONS=halt_on_error=1 tools/run_tests.sh build/thread $programs
}
# Every third day, as neon.
fuzz() { make -j"$jobs" config=fuzz QUICK=1 LDFLAGS="$fast" KERNELS="$(kernels_today)" fuzz SECONDS=1; }
install_twice() { make -j"$jobs" all && tools/check_install.sh; }
# The commands alone: the library knows nothing of curl.
minimal() {
    make -j"$jobs" lib &&
        make -j"$jobs" B=build/minimal INTERNAL=build/release/libinternal.a MINIMAL=1 CFLAGS=-O0 build/minimal/reel
}
# Exit status 77 without nvcc: skipped. The whole list takes long: make soak.
kernels() { KERNELS_DAY=$day tools/compile_kernels.sh --few; }
generated() {
    reel=build/release/reel
    make -j"$jobs" "$reel" || return
    "$reel" help --man >"$logs/reel.1" && "$reel" help --completion bash >"$logs/reel.bash" &&
        "$reel" help --completion zsh >"$logs/_reel" || return
    bash -n "$logs/reel.bash" || return
    if command -v zsh >/dev/null; then zsh -n "$logs/_reel" || return; fi
    if command -v mandoc >/dev/null; then mandoc -Tlint -W error "$logs/reel.1"; fi
}
# Seconds, and no more where pip finds nobody: the clients are kept in build/clients. The others: make check-clients.
clients() {
    command -v python3 >/dev/null || skip "no python3" || return
    make -j"$jobs" build/release/reel && PIP_SECONDS=20 tools/check_clients.sh curl openai openai_speech
}
# The package reel of Python, by the Python of the system's packages, as it would be installed.
python() {
    /usr/bin/python3 -c 'import cffi, numpy' 2>/dev/null || skip "no python3-cffi or no python3-numpy" || return
    make -j"$jobs" all package fakes && make python PYTHON=/usr/bin/python3 &&
        /usr/bin/python3 -m unittest discover -s python/tests 2>&1
}
# What the package promises to programs that are checked (py.typed), by mypy's strictest rules. Older ones than 1.14 lack some of them.
types() {
    mypy=$(command -v mypy || echo build/clients/mypy/bin/mypy)
    if [ "$( (echo 1.14 && "$mypy" --version 2>/dev/null | cut -d' ' -f2) | sort -V | tail -n 1)" = 1.14 ]; then
        mypy=build/clients/mypy/bin/mypy
        [ -x $mypy ] || { python3 -m venv build/clients/mypy &&
            timeout 60 build/clients/mypy/bin/pip install --quiet --retries 1 mypy numpy types-cffi; } >/dev/null 2>&1 ||
            skip "no mypy 1.14 or newer, and pip found none" || return
    fi
    "$mypy" --config-file python/pyproject.toml python/reel
}
neon() {
    command -v aarch64-linux-gnu-gcc >/dev/null || skip "no aarch64-linux-gnu-gcc" || return
    command -v qemu-aarch64 >/dev/null || skip "no qemu-aarch64" || return
    [ -x tools/check_neon.sh ] || skip "no NEON test yet" || return
    tools/check_neon.sh
}

step format make format-check
beside links links
beside scripts scripts
beside access tools/check_access.sh
beside scopes tools/check_access.sh --mutate
beside macros tools/check_macros.sh
beside layers tools/check_layers.sh
beside memory tools/check_memory.sh
beside packages tools/check_packages.sh
beside figures figures
step gcc build_gcc
step minimal minimal
told scripts access scopes macros layers memory packages figures
step tidy tidy
told links
# What those beside take is built before, not by two at a time.
if wants clients || wants python; then make -s -j"$jobs" all package fakes >"$logs/all.log" 2>&1; fi
beside clients clients # these wait for pip
beside python python
beside types types
step sanitize sanitize
told clients python types
if due 12 kernels; then beside kernels kernels; fi # one plan is alone in the end
if due 0 thread; then step thread thread; fi
if due 1 fuzz; then step fuzz fuzz; fi
if due 2 neon; then step neon neon; fi
wait
! [ -e "$logs/kernels.code" ] || told kernels
step install install_twice
step generated generated
step deploy tools/check_deploy.sh --files
printf 'check: %d passed, %d failed, %d skipped\n' $passed $failed $skipped
[ $failed -eq 0 ] && [ $passed -gt 0 ]
