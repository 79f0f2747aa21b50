# bare_root.sh: a used-up copy of a bare root of Debian, for scripts that try packages there. They set `log`, a file, and source
# it; then
#   bare_root SUITE AS [MIRROR] [KEYRING]   makes `root`, a copy of a bare SUITE (any that debootstrap knows) with /proof in it.
#                                           Bare ones are kept in ROOTS (/var/tmp/reel-roots), for as often as they are wanted;
#                                           the copy, SUITE.AS there, goes with the script, unless KEEP is set
#   inside [OPTION...] COMMAND...           runs a command in it, by the host's network; its output goes to the log
#   die TEXT                                says it and the log's end, and ends the script
# Needs root, debootstrap and systemd-container.
# shellcheck shell=sh

name=$(basename "$0")
: "${log:?a file for what the commands say}"
die() {
    echo "$name: $*; the end of $log:" >&2
    tail -n 40 "$log" >&2
    exit 1
}

bare_root() {
    [ "$(id -u)" = 0 ] || { echo "$name: only root can make and boot a root" >&2; exit 1; }
    for program in debootstrap systemd-nspawn; do
        command -v $program >/dev/null || { echo "$name: there is no $program" >&2; exit 1; }
    done
    roots=${ROOTS:-/var/tmp/reel-roots}
    mkdir -p "$roots"
    : >"$log"
    bare=$roots/$1
    if [ ! -e "$bare/etc/debian_version" ]; then
        echo "debootstrap $1" >&2
        # Ubuntu's suites are not all known by name to Debian's debootstrap; gutsy's script is every later one's.
        script=
        [ -e "/usr/share/debootstrap/scripts/$1" ] || script=/usr/share/debootstrap/scripts/gutsy
        components=
        [ -z "$script" ] && [ "$(readlink "/usr/share/debootstrap/scripts/$1")" != gutsy ] || components=--components=main,universe
        # shellcheck disable=SC2086 # words or none
        debootstrap --variant=minbase $components ${4:+--keyring="$4"} "$1" "$bare.new" \
            "${3:-http://deb.debian.org/debian}" $script >>"$log" 2>&1 || die "debootstrap failed"
        mv "$bare.new" "$bare"
    fi
    root=$bare.$2
    rm -rf "$root"
    cp -a "$bare" "$root"
    [ -n "${KEEP:-}" ] || trap 'rm -rf "$root"' EXIT
    cp -L /etc/resolv.conf "$root/etc/resolv.conf"
    mkdir -p "$root/proof/debs"
}

# The zone is the root's: a file that is mounted over its own cannot be replaced by tzdata.
inside() {
    systemd-nspawn -q --register=no --keep-unit --timezone=off -D "$root" --pipe \
        --setenv=DEBIAN_FRONTEND=noninteractive --setenv=LC_ALL=C.UTF-8 "$@" </dev/null >>"$log" 2>&1
}
