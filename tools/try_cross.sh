#!/bin/sh
# try_cross.sh [ARCHITECTURE] [FOLDER]
# Packages for another architecture (arm64), built and tried on this one: FOLDER's source package (build/dist) is compiled
# by the cross-compiler in a bare Debian 12 with no network. There apt installs the packages beside that architecture's
# libraries, and an emulator runs what they bring: the demo model writes the text that this machine's program writes, and
# examples/generate.c does, linked with the shared and with the static library. What is purged leaves no file behind.
# Needs root, debootstrap and systemd-container; bare roots are kept (bare_root.sh).
# Prints what was shown, a line each. FOLDER/cross-ARCHITECTURE.log has all of it; the packages are left in FOLDER.
set -eu
cd "$(dirname "$0")/.."
architecture=${1:-arm64}
from=$(cd "${2:-build/dist}" && pwd)
log=$from/cross-$architecture.log
version=$(tools/version.sh)
# shellcheck source=tools/bare_root.sh
. tools/bare_root.sh
bare_root bookworm "$architecture"
cp "$from/reel_$version"[-.]*.dsc "$from/reel_$version"[-.]*.tar.xz "$root/proof"
inside sh -c "dpkg --add-architecture $architecture && apt-get update" || die "apt-get update failed"
inside apt-get install -y --no-install-recommends "crossbuild-essential-$architecture" fakeroot || die "no cross-compiler"
inside sh -c "cd /proof && dpkg-source -x reel_$version-*.dsc tree && cd tree &&
    apt-get build-dep -y --no-install-recommends -a$architecture -Pcross,nocheck,nopython ./" || die "what the build needs cannot be installed"
inside --private-network --setenv=DEB_BUILD_OPTIONS="noautodbgsym parallel=$(nproc)" --setenv=ARCHITECTURE="$architecture" \
    sh -c "cd /proof/tree && make deb && cp build/dist/*_$architecture.deb ../debs" || die "the packages do not build for $architecture"
echo "$architecture: built without a network: $(cd "$root/proof/debs" && echo *.deb)"

# This machine's own program says what text is right.
want=$("${REEL:-build/release/reel}" run demo --temp 0 -n 12 "The morning after the ball, Emma" 2>/dev/null)
[ -n "$want" ] || die "${REEL:-build/release/reel} is not built"
printf '%s\n' "$want" >"$root/proof/want"
cat >"$root/proof/run" <<'END'
set -eu
say() { echo "shown: $*"; }
files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /dev -o -path /tmp -o -path /proof -o -path /var/log \
        -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache -o -path /root \) -prune -o -print | LC_ALL=C sort
}
machine=$(dpkg-architecture -a"$1" -q DEB_HOST_GNU_CPU)
triplet=$(dpkg-architecture -a"$1" -q DEB_HOST_GNU_TYPE)
files >/proof/before
apt-get install -y --no-install-recommends /proof/debs/*.deb
say "apt installed $(dpkg-query -W -f '${Package}:${Architecture} ${Version}, ' '*reel*' | sed 's/, $//')"
readelf -h /usr/bin/reel | grep -q 'Machine: *AArch64' || [ "$1" != arm64 ]
"qemu-$machine" /usr/bin/reel run demo --temp 0 -n 12 "The morning after the ball, Emma" 2>/dev/null >/proof/got
diff /proof/want /proof/got
say "reel run demo under qemu-$machine, the text of this machine's program: $(cat /proof/got)"
gzip -dc /usr/share/man/man1/reel.1.gz | grep -q '^\.TH REEL 1'
for how in shared static; do
    link=$("$triplet-pkg-config" --cflags --libs reel)
    # shellcheck disable=SC2086 # a list of words
    [ $how = shared ] || link="$("$triplet-pkg-config" --cflags --libs --static reel | sed 's/-lreel/-l:libreel.a/')"
    "$triplet-gcc" -o "/proof/generate-$how" /proof/tree/examples/generate.c $link
    "qemu-$machine" "/proof/generate-$how" /proof/tree/models/demo "The morning after the ball, Emma" >"/proof/said-$how"
    [ -s "/proof/said-$how" ]
done
cmp /proof/said-shared /proof/said-static
say "examples/generate.c, linked with the shared and with the static library, writes the same text"
names=$(dpkg-query -W -f '${binary:Package}\n' '*reel*')
# shellcheck disable=SC2086 # a list of words
dpkg --purge $names
files >/proof/after
diff /proof/before /proof/after
say "purge left no file and took no other ($(grep -c . /proof/after) compared)"
END
inside --private-network sh -c "apt-get install -s --no-install-recommends /proof/debs/*.deb | awk '/^Inst/ { print \$2 }' |
    grep -v -E '^(reel|libreel)' >/proof/needs" || true
# shellcheck disable=SC2046 # a list of words
[ ! -s "$root/proof/needs" ] || inside apt-get install -y --no-install-recommends $(cat "$root/proof/needs") || die "what the packages depend on cannot be installed"
inside --private-network sh -c "sh /proof/run $architecture >/proof/log 2>&1; echo \$? >/proof/code; cat /proof/log" || true
[ "$(cat "$root/proof/code")" = 0 ] || die "it did not go through"
sed -n "s/^shown: /$architecture: /p" "$root/proof/log"
cp "$root"/proof/debs/*.deb "$from"
