#!/bin/sh
# Installs what `build` or `test` needs and is missing, through apt when that is possible without a
# question (root or passwordless sudo); otherwise prints the one command to type and fails.
set -eu

build='pkg-config:pkg-config libpcre2-8:libpcre2-dev libutf8proc:libutf8proc-dev jansson:libjansson-dev nettle:nettle-dev'
cli='libcurl:libcurl4-gnutls-dev libedit:libedit-dev'
tests='cmocka:libcmocka-dev'

want="$build"
[ -n "${MINIMAL:-}" ] || want="$want $cli"
[ "${1:-build}" = build ] || want="$want $tests"

missing=''
for pair in $want; do
    probe=${pair%%:*}
    package=${pair#*:}
    if [ "$probe" = pkg-config ]; then
        command -v pkg-config >/dev/null 2>&1 || missing="$missing $package"
    elif ! pkg-config --exists "$probe" 2>/dev/null; then
        missing="$missing $package"
    fi
done
if [ "${1:-build}" = test ] && ! command -v xz >/dev/null 2>&1; then missing="$missing xz-utils"; fi
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "reel needs these Debian packages or their like:$missing" >&2
    exit 1
fi
if [ "$(id -u)" = 0 ]; then
    sudo=''
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    sudo='sudo -n'
else
    echo "reel needs packages that are not installed. Type:" >&2
    echo "  sudo apt-get install -y$missing" >&2
    exit 1
fi
echo "installing$missing" >&2
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # both are lists of words
$sudo apt-get install -y --no-install-recommends $missing >/dev/null 2>&1 || {
    $sudo apt-get update >/dev/null
    $sudo apt-get install -y --no-install-recommends $missing >/dev/null
}
