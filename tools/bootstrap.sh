#!/bin/sh
# bootstrap.sh build|test|check
# Installs what is needed and missing, through apt when that is possible without a question (root or
# passwordless sudo); otherwise prints the one command to type and fails.
set -eu
for_what=${1:-build}

# library: pkg-config name and Debian package; command: a program and its package.
missing=''
library() { pkg-config --exists "$1" 2>/dev/null || missing="$missing $2"; }
program() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }

program cc gcc
program make make
program pkg-config pkg-config
library libutf8proc libutf8proc-dev
library jansson libjansson-dev
library nettle nettle-dev
if [ -z "${MINIMAL:-}" ]; then
    library libcurl libcurl4-gnutls-dev
    library libedit libedit-dev
fi
# A C compiler without its headers is common in containers.
[ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
if [ "$for_what" != build ]; then
    library cmocka libcmocka-dev
    library libpcre2-8 libpcre2-dev
    program xz xz-utils
fi
if [ "$for_what" = check ]; then
    program git git
    program g++ g++
    program clang clang
    program clang-tidy-14 clang-tidy-14
    program clang-format-14 clang-format-14
    program shellcheck shellcheck
    program mandoc mandoc
    program aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
    [ -e /usr/aarch64-linux-gnu/include/stdio.h ] || missing="$missing libc6-dev-arm64-cross"
    program qemu-aarch64 qemu-user
fi
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
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086 # lists of words
$sudo apt-get install -y --no-install-recommends $missing >"$log" 2>&1 || {
    $sudo apt-get update >>"$log" 2>&1 || true
    $sudo apt-get install -y --no-install-recommends $missing >>"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        echo "apt-get could not install:$missing" >&2
        exit 1
    }
}
