#!/bin/sh
# The source archive: is made, is unpacked by pip away from this tree, and compiles there with the machine's C compiler; the
# package and the command of that build answer. Needs pip's index and what the library and the command link (make deps).
# usage: sdist.sh [FOLDER]; FOLDER keeps the environment and the archive, default build/sdist
set -eu
cd "$(dirname "$0")/../.."
folder=${1:-build/sdist}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
version=$(tools/version.sh)
if [ ! -e "$folder/venv/.installed" ]; then
    python3 -m venv "$folder/venv"
    "$folder/venv/bin/pip" install --quiet --disable-pip-version-check build
    : >"$folder/venv/.installed"
fi
rm -rf "$folder/dist" "$folder/fresh" "$folder/empty"
"$folder/venv/bin/python" -m build --sdist --outdir "$folder/dist" python >"$folder/sdist.log" 2>&1 || {
    tail -n 30 "$folder/sdist.log" >&2
    exit 1
}
archive=$folder/dist/reel-$version.tar.gz
# No environment, no build folder and no git of this tree takes part.
python3 -m venv "$folder/fresh"
mkdir "$folder/empty"
cd "$folder/empty"
env -u REEL_LIBRARY -u REEL_STAGED -u REEL_WHEEL_PLATFORM -u PYTHONPATH TMPDIR="$folder/empty" \
    "$folder/fresh/bin/pip" install --disable-pip-version-check --no-cache-dir "$archive" >"$folder/install.log" 2>&1 || {
    tail -n 30 "$folder/install.log" >&2
    exit 1
}
env -u REEL_LIBRARY -u PYTHONPATH "$folder/fresh/bin/python" - "$folder/fresh" "$version" <<'END'
import sys

import reel

folder, version = sys.argv[1:]
assert reel.library_path.startswith(folder), reel.library_path
assert reel.__version__ == version, reel.__version__
with reel.Model("demo") as model:
    print(model.generate("Emma", max_tokens=8, temperature=0).text())
END
command="no: libcurl or libmicrohttpd is not installed"
if find "$folder/fresh" -path '*/reel/bin/reel' | grep -q .; then
    [ "$("$folder/fresh/bin/reel" --version)" = "reel $version" ]
    "$folder/fresh/bin/reel" run demo "Emma" -n 8 --temp 0
    command=yes
fi
echo "ok: $(basename "$archive"), $(wc -c <"$archive") bytes; compiled by $(cc --version | head -n 1); command: $command"
