#!/bin/sh
# Installs wheels in a fresh environment and runs python/tests against what lies there: of this tree only the tests and the files
# that they read take part. Needs pip's index for numpy and cffi.
# usage: installed.sh WHEEL...; PYTHON is the interpreter (python3); the environment is left in build/installed
set -eu
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || { echo "usage: installed.sh WHEEL..." >&2; exit 2; }
folder=$(pwd)/build/installed
rm -rf "$folder"
mkdir -p build
"${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/pip" install --quiet --disable-pip-version-check "$@"
unset REEL_LIBRARY REEL_COMMAND PYTHONPATH
REEL_TEST_INSTALLED=1
export REEL_TEST_INSTALLED
"$folder/bin/python" - "$folder" <<'END'
import sys

import reel
from reel._names import command

for path in (reel.__file__, reel.library_path, *command()):
    assert path.startswith(sys.argv[1]), path
print(f"Python {sys.version.split()[0]}, reel {reel.__version__}, {reel.library_path}")
END
exec "$folder/bin/python" -m unittest discover -s python/tests
