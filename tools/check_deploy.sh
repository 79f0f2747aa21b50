#!/bin/sh
# Engines that spread requests over several servers, run for real in front of replicas whose model keeps time:
# tests/deploy/test_NAME.py for each, and deploy/'s files.
#   tools/check_deploy.sh            all; writes bench/results/deploy.csv and ray.csv
#   tools/check_deploy.sh NAME...    these; writes nothing there
#   tools/check_deploy.sh --files    only what takes seconds and needs no pip: deploy/'s files, by their own programs where those are here
# A script's line "# packages:" says what pip installs for it, into a folder of build/clients, once.
#   PIP_SECONDS    most seconds for one installation (900)
set -u
cd "$(dirname "$0")/.." || exit 1
PATH=$PATH:/usr/sbin
at=build/deploy
rows=$at/rows.csv
mkdir -p "$at"
: >"$rows"

row() { # row NAME WHAT RESULT NOTE
    printf '%s,,%s,%s,"%s"\n' "$1" "$2" "$3" "$4" >>"$rows"
    printf '%-8s%s: %s%s\n' "$3" "$1" "$2" "${4:+: $4}"
}

# check NAME WHAT COMMAND...: by a program that may be absent
check() {
    name=$1
    what=$2
    shift 2
    if ! command -v "$1" >/dev/null; then
        row "$name" "$what" skipped "$1 is not installed"
    elif "$@" >"$at/said" 2>&1; then
        row "$name" "$what" passed ""
    else
        row "$name" "$what" failed "$(tail -n 1 "$at/said" | tr '",' "' " | cut -c1-200)"
        cat "$at/said"
    fi
}

nginx_test() { # the files as they are, but for where pid and logs lie
    folder=$(mktemp -d)
    cp deploy/nginx/*.conf "$folder"
    sed -i "s#/run/nginx.pid#$folder/pid#; s#/var/log/nginx#$folder#" "$folder"/*.conf
    "$nginx" -t -q -p "$folder" -c "$folder/nginx.conf" -e "$folder/error.log"
    code=$?
    rm -rf "$folder"
    return $code
}

files() {
    nginx=$(command -v nginx)
    if [ -z "$nginx" ]; then
        row nginx "nginx -t" skipped "nginx is not installed"
    elif nginx_test >"$at/said" 2>&1; then
        row nginx "nginx -t" passed ""
    else
        row nginx "nginx -t" failed "$(tail -n 1 "$at/said" | tr '",' "' " | cut -c1-200)"
    fi
    check caddy "caddy adapt" caddy adapt --config deploy/caddy/Caddyfile --adapter caddyfile
    if python3 -c 'import yaml' 2>/dev/null; then
        check kubernetes "YAML is read" python3 tests/deploy/manifests.py deploy
    else
        row kubernetes "YAML is read" skipped "python3-yaml is not installed"
    fi
}

install() { # install FOLDER PACKAGES
    [ ! -e "$1/.installed" ] || return 0
    rm -rf "$1"
    mkdir -p "$(dirname "$1")"
    # shellcheck disable=SC2086 # a list of words
    python3 -m venv "$1" >"$1.log" 2>&1 &&
        timeout "${PIP_SECONDS:-900}" nice "$1/bin/python" -m pip install --quiet --no-compile --retries 1 $2 >>"$1.log" 2>&1 &&
        touch "$1/.installed"
}

try() { # try SCRIPT
    name=$(basename "$1" .py)
    name=${name#test_}
    packages=$(sed -n 's/^# packages: //p' "$1")
    folder=build/clients/$(printf %s "$packages" | tr -c 'a-zA-Z0-9' _)
    install "$folder" "$packages" || {
        row "$name" all skipped "pip could not install $packages: $(tail -n 1 "$folder.log" | tr ',"' '  ' | cut -c1-120)"
        return
    }
    case $packages in *cffi*) make -s python PYTHON="$folder/bin/python" >"$at/said" || cat "$at/said" ;; esac
    REEL_LIBRARY=$PWD/build/release/libreel.so PYTHONPATH=$PWD/tests/clients:$PWD/tests/deploy:$PWD/python timeout 580 "$folder/bin/python" "$1" 2>"$at/$name.err"
    code=$?
    [ $code -le 1 ] || row "$name" all failed "exit status $code"
    [ $code -eq 0 ] || tail -n 15 "$at/$name.err"
}

files
if [ "${1:-}" != --files ]; then
    REEL_PACED=build/release/bench/paced_reel
    REEL_TRIALS=$rows
    REEL_RAY_CSV=$at/ray.csv
    export REEL_PACED REEL_TRIALS REEL_RAY_CSV
    : >"$REEL_RAY_CSV"
    make -s "$REEL_PACED" build/release/libreel.so || exit 1
    commit=$(git rev-parse --short HEAD)
    git diff --quiet HEAD -- . ':!bench/results' || commit="$commit and uncommitted changes"
    for script in tests/deploy/test_*.py; do
        name=$(basename "$script" .py)
        case " $* " in "  " | *" ${name#test_} "*) try "$script" ;; esac
    done
    machine="# $(uname -sm), $(nproc) cores of $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1); reel $commit; $(date -u +%Y-%m-%d)"
    if [ $# -eq 0 ]; then
        {
            echo "$machine"
            echo "# tools/check_deploy.sh; replicas are bench/paced_reel.c, 100 tokens a second and session"
            echo "engine,version,tried,result,note"
            cat "$rows"
        } >bench/results/deploy.csv
        {
            echo "$machine"
            echo "# tools/check_deploy.sh; servers are bench/paced_reel.c, 100 tokens a second and session; direct: one of them without Ray"
            echo "transport,what,value,unit"
            cat "$REEL_RAY_CSV"
        } >bench/results/ray.csv
    fi
fi
passed=$(grep -c ',passed,' "$rows")
failed=$(grep -c ',failed,' "$rows")
skipped=$(grep -c ',skipped,' "$rows")
echo "deploy: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] || exit 1
[ "$passed" -gt 0 ] || exit 77
