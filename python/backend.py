"""setuptools, with the C sources in an sdist: they lie above this folder, or in it as `source`."""
import shutil
import subprocess
from pathlib import Path

from setuptools.build_meta import *  # noqa: F401,F403
from setuptools.build_meta import build_sdist as _build_sdist

HERE = Path(__file__).resolve().parent
#: What a build needs of the repository.
PARTS = ["Makefile", "LICENSE", "include", "src", "kernels", "tools/embed_demo.sh", "tools/embed_kernels.sh",
         "tools/embed_page.sh", "models/demo", "python/python.mk", "python/demo_beside.c"]


def build_sdist(sdist_directory, config_settings=None):
    source = HERE / "source"
    if source.exists():  # of an sdist itself
        return _build_sdist(sdist_directory, config_settings)
    try:
        listed = subprocess.run(["git", "ls-files", "-z", "--"] + PARTS, cwd=HERE.parent, check=True,
                                capture_output=True).stdout.decode().split("\0")
        for name in filter(None, listed):
            to = source / name
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(HERE.parent / name, to)
        return _build_sdist(sdist_directory, config_settings)
    finally:
        shutil.rmtree(source, ignore_errors=True)
