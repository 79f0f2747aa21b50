#!/bin/sh
# try_packages.sh [FOLDER] [SUITE] [MIRROR] [KEYRING]
# Installs the packages of FOLDER (build/dist) with apt in a bare root of Debian (bookworm; any suite that debootstrap knows),
# booted by systemd-nspawn with no network: the demo model answers, man page and completions are there, the service starts,
# answers with the key that it was handed, reloads and stops, and what is removed and purged leaves no file behind.
# Needs root, debootstrap and systemd-container; bare roots are kept (bare_root.sh).
#   BUILD=1    builds the packages in the root from FOLDER's source package first, for suites whose libraries have other names
#   TESTS=1    runs debian/tests of FOLDER's source package with autopkgtest in the booted root, too (the root fetches what they need)
#   BOOT_SECONDS  most seconds of one boot (300)
# Prints what was shown, a line each. FOLDER/try-SUITE.log has all of it.
set -eu
cd "$(dirname "$0")/.."
from=$(cd "${1:-build/dist}" && pwd)
suite=${2:-bookworm}
log=$from/try-$suite.log
version=$(tools/version.sh)
# shellcheck source=tools/bare_root.sh
. tools/bare_root.sh
bare_root "$suite" used "${3:-}" "${4:-}"
mkdir -p "$root/proof/source"
inside apt-get update || die "apt-get update failed"
inside apt-get install -y --no-install-recommends systemd systemd-sysv dbus curl || die "no systemd"

# ---- packages ----
cp "$from/reel_$version"* "$root/proof/source"
if [ -n "${BUILD:-}" ]; then
    inside apt-get install -y --no-install-recommends dpkg-dev debhelper fakeroot
    inside sh -c "cd /proof/source && dpkg-source -x reel_$version-*.dsc tree && cd tree && apt-get build-dep -y --no-install-recommends ./"
    # builds without any network
    systemd-nspawn -q --register=no --keep-unit --timezone=off -D "$root" --pipe --private-network --setenv=LC_ALL=C.UTF-8 \
        --setenv=DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS:-noautodbgsym parallel=$(nproc)}" \
        sh -c 'cd /proof/source/tree && dpkg-buildpackage -us -uc -b && cp ../*.deb /proof/debs' </dev/null >>"$log" 2>&1 ||
        die "the packages do not build on $suite"
    echo "$suite: built without a network: $(cd "$root/proof/debs" && echo *.deb)"
    rm -rf "$root/proof/source/tree"
else
    cp "$from"/*"_$version-"*.deb "$root/proof/debs"
    rm -f "$root"/proof/debs/*-dbgsym_*
fi
# What the packages depend on is installed first: what apt brings for others is not theirs to remove.
inside sh -c "apt-get install -s --no-install-recommends /proof/debs/*.deb | awk '/^Inst/ { print \$2 }' |
    grep -v -x -E 'reel|libreel.*|python3-reel' >/proof/needs; apt-get install -y --no-install-recommends \$(cat /proof/needs)" ||
    die "what the packages depend on cannot be installed"
inside apt-mark manual '~i'  2>/dev/null || true

cat >"$root/proof/run" <<'END'
#!/bin/sh
# Runs inside the booted root, with no network.
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
say() { echo "shown: $*"; }
files() { # what is on the disk, but for the system's own journals and caches
    find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /dev -o -path /tmp -o -path /proof -o -path /var/tmp \
        -o -path /var/log -o -path /var/lib/apt -o -path /var/lib/dpkg -o -path /var/cache/apt -o -path /var/lib/systemd \
        -o -path /var/cache/ldconfig -o -path /root \) -prune -o -print | LC_ALL=C sort
}
get() { curl -s -m 10 -o /proof/body -w '%{http_code}' "$@"; }

files >/proof/before
apt-get install -y --no-install-recommends /proof/debs/*.deb
say "apt installed $(dpkg-query -W -f '${Package} ${Version}, ' '*reel*' | sed 's/, $//')"
[ "$(reel --version)" = "reel $(cat /proof/version)" ]
text=$(reel run demo --temp 0 -n 12 "The morning after the ball, Emma" 2>/dev/null)
[ -n "$text" ]
say "reel run demo: $text"
gzip -dc /usr/share/man/man1/reel.1.gz | grep -q '^\.TH REEL 1'
bash -n /usr/share/bash-completion/completions/reel
[ -s /usr/share/zsh/vendor-completions/_reel ] && [ -s /usr/share/fish/vendor_completions.d/reel.fish ]
bash -c '. /usr/share/bash-completion/completions/reel && complete -p reel' | grep -q reel
say "man page and completions are there"
ldconfig -p | grep -q libreel.so.0
[ ! -e /usr/lib/python3/dist-packages/reel ] || say "python3: $(cd / && python3 -c 'import reel; print(reel.__version__)')"

systemctl is-enabled --quiet reel
if systemctl is-active --quiet reel; then echo "the service runs without settings" && exit 1; fi
sed 's|^#api-key-file|api-key-file|; s|^#prefix-dir|prefix-dir|' /etc/reel/serve.conf.example >/etc/reel/serve.conf
(umask 077 && echo key-of-the-proof >/etc/reel/keys)
systemctl start reel || { journalctl -u reel --no-pager; exit 1; }
[ "$(get http://127.0.0.1:8080/health)" = 200 ]
[ "$(get http://127.0.0.1:8080/v1/models)" = 401 ]
[ "$(get -H 'Authorization: Bearer key-of-the-proof' http://127.0.0.1:8080/v1/models)" = 200 ]
[ "$(get -H 'Authorization: Bearer key-of-the-proof' http://127.0.0.1:8080/v1/completions \
    -d '{"model": "demo", "prompt": "The morning after", "max_tokens": 8}')" = 200 ]
grep -q '"text"' /proof/body
say "service: started, 200 on /health, 401 without a key, 200 with the key, completes a text"
user=$(ps -o user= -p "$(systemctl show -p MainPID --value reel)" 2>/dev/null || stat -c %u "/proc/$(systemctl show -p MainPID --value reel)")
[ "$user" != root ] && [ "$user" != 0 ]
systemctl reload reel
sleep 1
systemctl is-active --quiet reel
pid=$(systemctl show -p MainPID --value reel)
kill -KILL "$pid"
for _ in $(seq 100); do
    now=$(systemctl show -p MainPID --value reel)
    [ "$now" = 0 ] || [ "$now" = "$pid" ] || ! [ "$(get http://127.0.0.1:8080/health)" = 200 ] || break
    sleep 0.1
done
[ "$now" != 0 ] && [ "$now" != "$pid" ]
say "service: user $user, reloaded, back after kill -9"
systemctl stop reel
[ "$(systemctl show -p Result --value reel)" = success ]
if [ "$(get http://127.0.0.1:8080/health)" != 000 ]; then echo "something still listens" && exit 1; fi
say "service: stopped, result success; kept $(find /var/lib/private/reel /var/cache/private/reel -mindepth 1 | grep -c . || true) files of its own"
systemd-analyze security --no-pager reel | tail -n 1 | sed 's/^/shown: systemd-analyze security: /'
journalctl -u reel --no-pager >/proof/journal

rm /etc/reel/keys
names=$(dpkg-query -W -f '${Package}\n' '*reel*')
# shellcheck disable=SC2086 # a list of words
apt-get remove -y $names
[ ! -e /usr/bin/reel ] && [ -e /etc/reel/serve.conf ]
# shellcheck disable=SC2086
dpkg --purge $names
systemctl daemon-reload
files >/proof/after
if ! diff /proof/before /proof/after; then echo "files differ behind apt-get purge" && exit 1; fi
say "remove and purge left no file and took no other ($(grep -c . /proof/after) compared)"
END
chmod +x "$root/proof/run"
echo "$version" >"$root/proof/version"
cat >"$root/etc/systemd/system/proof.service" <<'END'
[Unit]
After=basic.target dbus.service
[Service]
Type=oneshot
ExecStart=/bin/sh -c '/proof/run >/proof/log 2>&1; echo $? >/proof/code'
ExecStopPost=/bin/systemctl --no-block exit 0
[Install]
WantedBy=multi-user.target
END
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -s ../proof.service "$root/etc/systemd/system/multi-user.target.wants/proof.service"
boot() { # boot SECONDS: /proof/run in the booted root, with no network
    rm -f "$root/proof/code" "$root/proof/log" "$root/proof/journal"
    timeout "$1" systemd-nspawn -q --register=no --keep-unit --timezone=off -D "$root" --private-network --boot --console=pipe \
        </dev/null >>"$log" 2>&1 || true
    for file in log journal; do [ ! -e "$root/proof/$file" ] || cat "$root/proof/$file" >>"$log"; done
    [ "$(cat "$root/proof/code" 2>/dev/null || echo 'did not boot')" = 0 ]
}
boot "${BOOT_SECONDS:-300}" || die "it did not go through"
sed -n "s/^shown: /$suite: /p" "$root/proof/log"

# ---- debian/tests, by Debian's own runner, in the booted root; what they depend on is fetched before ----
if [ -n "${TESTS:-}" ]; then
    needs=$(sed -n 's/^Depends: //p' debian/tests/control | tr ',' '\n' | sed 's/|.*//' | sort -u | grep -vE 'reel' | paste -sd' ')
    # shellcheck disable=SC2086 # a list of words
    inside apt-get install -y --no-install-recommends autopkgtest apt-utils dpkg-dev xz-utils $needs || die "no autopkgtest"
    # The root has an init of its own, so that the test of the service runs, too.
    cat >"$root/proof/run" <<'END'
#!/bin/sh
set -u
export HOME=/root
autopkgtest --no-built-binaries --summary-file /proof/summary /proof/debs/*.deb \
    /proof/source/reel_*.dsc -- null
END
    : >"$root/proof/summary"
    boot "${BOOT_SECONDS:-300}" && code=0 || code=$(cat "$root/proof/code" 2>/dev/null || echo "none: it did not boot")
    sed "s/^/$suite: debian\/tests: /" "$root/proof/summary"
    [ "$code" = 0 ] || die "debian/tests: autopkgtest's exit status is $code"
fi
