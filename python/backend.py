"""setuptools, with the C sources in an sdist: they lie above this folder, or in it as `source`."""
import shutil
import subprocess
from pathlib import Path

from setuptools.build_meta import *  # noqa: F401,F403
from setuptools.build_meta import build_sdist as _build_sdist

HERE = Path(__file__).resolve().parent
#: What a build needs of the repository.
PARTS = ["Makefile", "LICENSE", "include", "src", "kernels", "tools/embed_*.sh", "models/demo", "python/python.mk",
         "python/demo_beside.c"]


def files(top):
    """The files of PARTS in the tree at `top`: those that git knows, or all where git knows nothing of the tree."""
    # An unpacked archive may lie inside somebody else's checkout.
    try:
        said = subprocess.run(["git", "rev-parse", "--show-toplevel"], cwd=top, check=True, capture_output=True, text=True)
        ours = Path(said.stdout.rstrip("\n")).resolve() == Path(top).resolve()
    except (OSError, subprocess.CalledProcessError):
        ours = False
    if ours:
        listed = subprocess.run(["git", "ls-files", "-z", "--"] + PARTS, cwd=top, check=True, capture_output=True)
        return [name for name in listed.stdout.decode().split("\0") if name]
    found = [path for part in PARTS for one in sorted(Path(top).glob(part)) for path in ([one] if one.is_file() else sorted(one.rglob("*")))]
    return [str(path.relative_to(top)) for path in found if path.is_file()]


def build_sdist(sdist_directory, config_settings=None):
    source = HERE / "source"
    if source.exists():  # of an sdist itself
        return _build_sdist(sdist_directory, config_settings)
    try:
        for name in files(HERE.parent):
            to = source / name
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(HERE.parent / name, to)
        return _build_sdist(sdist_directory, config_settings)
    finally:
        shutil.rmtree(source, ignore_errors=True)
