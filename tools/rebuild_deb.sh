#!/bin/sh
# rebuild_deb.sh [FOLDER]
# Builds the Debian packages of the last commit twice and compares them byte for byte: in two folders whose names differ in
# length, with other homes, users' masks, time zones, languages, host names and numbers of jobs, and, where faketime is, 400
# days apart. FOLDER (/var/tmp/reel-rebuild) is emptied first. Exits with 1 where two packages differ; diffoscope, where it is,
# says how.
set -eu
cd "$(dirname "$0")/.."
folder=${1:-/var/tmp/reel-rebuild}
version=$(tools/version.sh)
rm -rf "$folder"
one=$folder/one
two=$folder/a-longer-name/two
mkdir -p "$one" "$two"
tools/make_dist.sh "$folder" >/dev/null
for at in "$one" "$two"; do
    cp "$folder/reel-$version.tar.xz" "$at/reel_$version.orig.tar.xz"
    tar -xf "$folder/reel-$version.tar.xz" -C "$at"
    mkdir "$at/home"
done
# The system's programs and no others: a Python of the user's own would be taken for Debian's.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
options="nocheck ${DEB_BUILD_OPTIONS:-}"
echo "first build in $one" >&2
(cd "$one/reel-$version" && HOME=$one/home LC_ALL=C.UTF-8 TZ=UTC DEB_BUILD_OPTIONS="$options parallel=2" \
    dpkg-buildpackage -us -uc >"$one/log" 2>&1) || { tail -n 30 "$one/log"; exit 1; }
later=
! command -v faketime >/dev/null || later='faketime -m -f +400d'
host=
[ "$(id -u)" != 0 ] || host='unshare --uts'
echo "second build in $two" >&2
# shellcheck disable=SC2086 # words or none
(cd "$two/reel-$version" && umask 002 && HOME=$two/home LC_ALL=C TZ=Pacific/Auckland DEB_BUILD_OPTIONS="$options parallel=1" \
    $host sh -c "[ -z '$host' ] || hostname elsewhere; exec $later dpkg-buildpackage -us -uc" >"$two/log" 2>&1) ||
    { tail -n 30 "$two/log"; exit 1; }
differ=0
for file in "$one"/*.deb "$one"/*.dsc "$one"/*.tar.xz; do
    name=$(basename "$file")
    if cmp "$file" "$two/$name"; then
        echo "same: $name, $(wc -c <"$file") bytes, $(sha256sum <"$file" | cut -c 1-16)"
    else
        differ=1
        ! command -v diffoscope >/dev/null || diffoscope --max-report-size 4000 "$file" "$two/$name" || true
    fi
done
[ $differ -eq 0 ] && echo "two builds of reel $version, ${later:+400 days apart, }the same bytes"
