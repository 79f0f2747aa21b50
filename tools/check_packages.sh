#!/bin/sh
# What of the packages can be looked at in seconds: one version everywhere, the list of exported functions, the syntax of what
# no compiler reads, what the workflows name, which files SHA256SUMS lists, and that the archive's bytes do not depend on where,
# when and by whom it is packed.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tools/version.sh --check
# --set writes every place that --check looks at but the list of changes, and --check notices each place that says another
# version. The copy lies in the folder that is deleted at the end.
places="include debian dist deploy CHANGELOG.md docs/PACKAGES.md docs/PYTHON.md tools/version.sh"
mkdir "$work/set"
# shellcheck disable=SC2086 # a list of words
tar -cf - $places | tar -xf - -C "$work/set"
if "$work/set/tools/version.sh" --set 98.7.6 >"$work/said"; then echo "version.sh lets an old CHANGELOG.md pass" && exit 1; fi
[ "$(cut -d' ' -f1 "$work/said")" = CHANGELOG.md, ] || { cat "$work/said" && exit 1; }
sed -i '0,/^## /s/^## .*/## 98.7.6/' "$work/set/CHANGELOG.md"
"$work/set/tools/version.sh" --check >/dev/null
(cd "$work/set" && grep -rlE '98\.7\.6|libreel(\.so\.)?98' . | grep -v '^./include/') >"$work/places"
# The files that name the version, and the list of symbols; the header is what they are compared with.
[ "$(grep -c . "$work/places")" -ge 11 ] || { cat "$work/places" && exit 1; }
while read -r place; do
    cp "$work/set/$place" "$work/kept"
    sed -i -E '0,/98\.7\.6|libreel(\.so\.)?98/s/98/97/' "$work/set/$place"
    if "$work/set/tools/version.sh" --check >/dev/null; then echo "version.sh lets another version in $place pass" && exit 1; fi
    cp "$work/kept" "$work/set/$place"
done <"$work/places"
find debian/tests -type f ! -name control ! -perm -u+x -print | grep . && echo "cannot be executed" && exit 1
! command -v shellcheck >/dev/null || find debian/tests debian/reel.postrm -type f ! -name control -exec shellcheck {} +

# The unit by systemd, YAML by Python, each where it is there.
if command -v systemd-analyze >/dev/null; then
    mkdir -p "$work/bin"
    printf '#!/bin/sh\n' >"$work/bin/reel"
    chmod 755 "$work" "$work/bin/reel"
    sed "s|@BINDIR@|$work/bin|" dist/reel.service >"$work/reel.service"
    # A line that systemd does not understand is one that it leaves out: exit status 0, but words.
    said=$(systemd-analyze --man=no verify "$work/reel.service" 2>&1 | grep reel.service || true)
    [ -z "$said" ] || { echo "$said"; exit 1; }
fi
if python3 -c 'import yaml' 2>/dev/null; then
    python3 - .github/workflows/*.yml .gitlab-ci.yml <<'END'
import os
import re
import subprocess
import sys

import yaml

for name in sys.argv[1:]:
    try:
        with open(name, encoding="utf-8") as file:
            jobs = yaml.safe_load(file)
    except (OSError, yaml.YAMLError) as error:
        sys.exit(f"{name}: {error}")
    if not isinstance(jobs, dict):
        sys.exit(f"{name}: no mapping of jobs")
    if ".github" not in name:
        continue
    # What a forge would say first: an action that may change, a job or file that is not there, a shell's syntax.
    steps = []
    for job, held in jobs["jobs"].items():
        needs = held.get("needs", [])
        for needed in [needs] if isinstance(needs, str) else needs:
            if needed not in jobs["jobs"]:
                sys.exit(f"{name}: {job} needs {needed}, which is no job")
        steps += [held] if "uses" in held else held["steps"]
    for step in steps:
        uses, run = step.get("uses"), step.get("run", "")
        if uses and not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", uses) and not (uses.startswith("./") and os.path.isfile(uses)):
            sys.exit(f"{name}: {uses} is not pinned by a hash, and no file of this tree")
        for script in re.findall(r"(?:tools|python)/[\w/]+\.(?:sh|py)\b", run):
            if not os.access(script, os.X_OK):
                sys.exit(f"{name}: {script} cannot be run")
        said = subprocess.run(["sh", "-n"], input=run, text=True, capture_output=True).stderr
        if said or "${{" in run:
            sys.exit(f"{name}: {said or 'an expression in a command'}: {run}")
END
fi

# SHA256SUMS lists each kind of file that a release publishes, and no other.
mkdir "$work/sums"
for file in reel-1.tar.xz reel-1.tar.gz reel-1.cdx.json reel-1-py3-none-any.whl reel_1-1.dsc reel_1-1_amd64.deb reel_1.orig.tar.xz \
    reel_1-1.debian.tar.xz reel-1.x86_64.rpm; do
    echo "$file" >"$work/sums/$file"
    echo "$file" >>"$work/published"
done
echo x >"$work/sums/try-bookworm.log"
tools/checksums.sh "$work/sums" >/dev/null
LC_ALL=C sort "$work/published" >"$work/wanted"
cut -c67- "$work/sums/SHA256SUMS" | cmp - "$work/wanted"
(cd "$work/sums" && sha256sum --quiet --check SHA256SUMS)

# The same files from another folder, by another umask and in another order of time: the same bytes. A small tree stands for
# the whole one, which takes half a minute to pack.
make_tree() {
    mkdir -p "$1/include" "$1/tools" "$1/docs"
    cp tools/make_dist.sh tools/version.sh "$1/tools"
    cp include/reel.h "$1/include"
    for page in docs/A*.md LICENSE; do cp "$page" "$1/$page"; done
}
make_tree "$work/one"
(umask 077 && make_tree "$work/another")
touch -d @1700000000 "$work/one/include/reel.h" "$work/another/include/reel.h"
mkdir -p "$work/another/build" && echo x >"$work/another/build/x"
"$work/one/tools/make_dist.sh" >/dev/null
(umask 077 && TZ=Asia/Tokyo LC_ALL=C "$work/another/tools/make_dist.sh" >/dev/null)
name=reel-$(tools/version.sh).tar.xz
cmp "$work/one/build/dist/$name" "$work/another/build/dist/$name"
# and from a git checkout of that time what an unpacked archive of it gives
if command -v git >/dev/null; then
    cd "$work/one"
    rm -rf build
    export GIT_AUTHOR_DATE=@1700000000 GIT_COMMITTER_DATE=@1700000000 GIT_CONFIG_GLOBAL=/dev/null
    git init -q . && git add . && git -c user.name=x -c user.email=x commit -q -m x
    tools/make_dist.sh >/dev/null
    cmp "build/dist/$name" "$work/another/build/dist/$name"
fi
echo "versions agree, the archive's bytes are its files'"
