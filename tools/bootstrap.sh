#!/bin/sh
# bootstrap.sh build|test|check
# Installs what is needed and missing, through apt when that is possible without a question (root or
# passwordless sudo); otherwise prints the one command to type and fails.
set -eu
for_what=${1:-build}

# library: pkg-config name and Debian package; shared: a library opened at run time and its package;
# program: a command and its package.
library() { pkg-config --exists "$1" 2>/dev/null || missing="$missing $2"; }
shared() {
    for file in /usr/lib/*/"$1" /usr/lib/"$1" /usr/lib64/"$1"; do
        [ ! -e "$file" ] || return 0
    done
    missing="$missing $2"
}
program() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }

# The runtimes of clang's sanitizers: a package of their own, named after the version, in most
# releases.
clang_runtime() {
    command -v clang >/dev/null 2>&1 || return 0 # comes with the second look
    echo 'int main(void) { return 0; }' |
        clang -fsanitize=address -x c - -o /dev/null 2>/dev/null && return 0
    missing="$missing libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"
}

look() {
    missing=''
    program cc gcc
    program make make
    program pkg-config pkg-config
    library libutf8proc libutf8proc-dev
    library jansson libjansson-dev
    library nettle nettle-dev
    library soxr libsoxr-dev
    if [ -z "${MINIMAL:-}" ]; then
        library libcurl libcurl4-gnutls-dev
        library libmicrohttpd libmicrohttpd-dev
        [ -e /usr/include/wslay/wslay.h ] || missing="$missing libwslay-dev"
    fi
    # A C compiler without its headers is common in containers.
    [ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
    [ "$for_what" != build ] || return 0
    library cmocka libcmocka-dev
    library libpcre2-8 libpcre2-dev
    library vterm libvterm-dev
    shared libsndfile.so.1 libsndfile1
    program xz xz-utils
    program patch patch
    [ "$for_what" = check ] || return 0
    program git git
    program g++ g++
    program clang clang
    clang_runtime
    program clang-tidy-14 clang-tidy-14
    program clang-format-14 clang-format-14
    program shellcheck shellcheck
    program python3 python3
    python3 -c 'import ensurepip' 2>/dev/null || missing="$missing python3-venv"
    for name in cffi numpy; do
        /usr/bin/python3 -c "import $name" 2>/dev/null || missing="$missing python3-$name"
    done
    program curl curl
    program mandoc mandoc
    program aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
    [ -e /usr/aarch64-linux-gnu/include/stdio.h ] || missing="$missing libc6-dev-arm64-cross"
    program qemu-aarch64 qemu-user
}

get() {
    echo "installing$missing" >&2
    # shellcheck disable=SC2086 # lists of words
    $sudo apt-get install -y --no-install-recommends $missing >"$log" 2>&1 || {
        $sudo apt-get update >>"$log" 2>&1 || true
        $sudo apt-get install -y --no-install-recommends $missing >>"$log" 2>&1 || {
            tail -n 20 "$log" >&2
            echo "apt-get could not install:$missing" >&2
            exit 1
        }
    }
}

look
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
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
get
look
[ -z "$missing" ] || get
