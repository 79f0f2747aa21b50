#!/bin/sh
# checksums.sh [FOLDER]
# Writes FOLDER/SHA256SUMS (build/dist) of all that a release publishes and lies there: archive, bill of materials, Debian and
# RPM packages, wheels and the Python package's sources. What is not there is not listed; docs/PACKAGES.md says how the file is
# signed and checked.
set -eu
cd "${1:-$(dirname "$0")/../build/dist}"
list=$(find . -maxdepth 1 -type f \( -name 'reel-*.tar.xz' -o -name 'reel-*.tar.gz' -o -name '*.cdx.json' -o -name '*.deb' -o -name '*.dsc' \
    -o -name '*.orig.tar.xz' -o -name '*.debian.tar.xz' -o -name '*.rpm' -o -name '*.whl' \) | sed 's|^\./||' | LC_ALL=C sort)
[ -n "$list" ] || { echo "checksums.sh: $(pwd) holds nothing to publish" >&2; exit 1; }
# shellcheck disable=SC2086 # names without spaces
sha256sum $list >SHA256SUMS.new
mv SHA256SUMS.new SHA256SUMS
echo "$(pwd)/SHA256SUMS: $(wc -l <SHA256SUMS) files"
