#!/bin/sh
# make_deb.sh [FOLDER]
# Builds the Debian packages of the last commit (of the files that lie here, where there is no git) from their source package,
# in build/deb, and puts them in FOLDER (build/dist). What is missing to build them is named, nothing is fetched.
#   ARCHITECTURE=arm64  for another one than this machine's, by its compiler and an emulator; without tests and python3-reel, which
#                       is the same for all
#   DEB_BUILD_OPTIONS=nocheck, parallel=N, terse, noautodbgsym   DEB_BUILD_PROFILES=nocheck, nopython
set -eu
cd "$(dirname "$0")/.."
top=$(pwd)
out=${1:-build/dist}
mkdir -p "$out" build
out=$(cd "$out" && pwd)
for program in dpkg-buildpackage dh; do
    command -v $program >/dev/null || {
        echo "make deb: there is no $program: apt-get install dpkg-dev debhelper" >&2
        exit 1
    }
done
version=$(tools/version.sh)
tools/version.sh --check
work=$top/build/deb
rm -rf "$work"
mkdir -p "$work"
tools/make_dist.sh "$work" >/dev/null
mv "$work/reel-$version.tar.xz" "$work/reel_$version.orig.tar.xz"
tar -xf "$work/reel_$version.orig.tar.xz" -C "$work"
cd "$work/reel-$version"
# The system's programs and no others: a Python of the user's own would be taken for Debian's.
export PATH="${CCACHE_DIR:+/usr/lib/ccache:}/usr/sbin:/usr/bin:/sbin:/bin"
: "${DEB_BUILD_OPTIONS:=parallel=$(nproc)}"
export DEB_BUILD_OPTIONS
cross=
if [ -n "${ARCHITECTURE:-}" ] && [ "$ARCHITECTURE" != "$(dpkg --print-architecture)" ]; then
    cross="-a$ARCHITECTURE -B"
    DEB_BUILD_OPTIONS="nocheck $DEB_BUILD_OPTIONS"
    DEB_BUILD_PROFILES="cross nocheck nopython"
fi
# All packages of a build carry the time of the newest entry in debian/changelog.
# shellcheck disable=SC2086 # words or none
dpkg-buildpackage -us -uc $cross ${DEB_BUILD_PROFILES:+-P"$(echo "$DEB_BUILD_PROFILES" | tr ' ' ,)"} --changes-option=-DDistribution=unstable
cd "$work"
find . -maxdepth 1 -type f -exec cp {} "$out" \;
cd "$out"
ls -l -- *"${version}"-*.deb
