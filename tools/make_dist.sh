#!/bin/sh
# make_dist.sh [FOLDER]
# Writes reel-VERSION.tar.xz to FOLDER (build/dist). In a git checkout it holds the files of the last commit;
# elsewhere, in an unpacked archive, the files that lie there but build/. The same commit gives the same bytes anywhere: names
# in order, root's, all as old as the commit. xz is asked for one thread, as its blocks depend on how many there are; another
# version of xz may pack the same archive otherwise.
set -eu
cd "$(dirname "$0")/.."
out=${1:-build/dist}
version=$(tools/version.sh)
name=reel-$version
mkdir -p "$out"
work=$(mktemp -d "$out/dist.XXXXXX")
trap 'rm -rf "$work"' EXIT
tree=$work/$name
mkdir "$tree"
if [ -e .git ] && git rev-parse --verify -q HEAD >/dev/null; then
    changed=$(git status --porcelain | grep -c . || true)
    [ "$changed" -eq 0 ] || echo "make dist: $changed changed files are not committed and not in the archive" >&2
    time=$(git log -1 --format=%ct)
    # By its hash: an archive of a name would say the name in its head, and export-subst is not used.
    git archive "$(git rev-parse HEAD)" | tar -x -C "$tree"
else
    time=$(stat -c %Y include/reel.h)
    find . -mindepth 1 -maxdepth 1 ! -name build ! -name .git -exec cp -a {} "$tree" \;
    find "$tree" -name '__pycache__' -prune -exec rm -rf {} +
    find "$tree" -name '*.o' -delete
fi
# u=rwX,go=rX: a umask that hides files from others changes nothing.
LC_ALL=C tar --sort=name --format=ustar --mtime="@$time" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
    -C "$work" -cf - "$name" | xz -6 -T1 -c >"$work/archive"
mv "$work/archive" "$out/$name.tar.xz"
(cd "$out" && sha256sum "$name.tar.xz")
