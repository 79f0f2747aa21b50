"""What pyproject.toml cannot say: the declarations made from the headers, the library, and a wheel's tag.

REEL_STAGED names a folder with what build_wheel.sh has compiled (libreel.so, bin, lib, models),
REEL_WHEEL_PLATFORM its platform and REEL_SBOM its bill of materials, which goes where PEP 770 wants it. Without them make compiles for this machine, against the system's
libraries; REEL_SYSTEM_LIBRARY=1 leaves the library to the system's package.
"""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py
from wheel.bdist_wheel import bdist_wheel

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "source" if (HERE / "source").exists() else HERE.parent
HEADER = (SOURCE / "include/reel.h").read_text()
VERSION = ".".join(re.search(rf"REEL_VERSION_{part} (\d+)", HEADER)[1] for part in ("MAJOR", "MINOR", "PATCH"))


def compiled():
    """{path in the package: file}, compiled by make; with the command where what it links is there."""
    command = all(subprocess.run(["pkg-config", "--exists", name]).returncode == 0
                  for name in ("libmicrohttpd", "libcurl"))
    built = "build/python"
    names = ["libreel.so"] + (["bin/reel"] if command else [])
    made = {name: SOURCE / built / "package" / name for name in names}
    subprocess.run(["make", "-C", str(SOURCE), f"-j{os.cpu_count()}", f"B={built}",
                    "DEMO_FILES=python/demo_beside.c"] + [f"{built}/package/{name}" for name in names], check=True)
    for file in (SOURCE / "models/demo").iterdir():
        made[f"models/demo/{file.name}"] = file
    return made


class Build(build_py):
    def run(self):
        super().run()
        package = Path(self.build_lib) / "reel"
        subprocess.run([sys.executable, str(HERE / "make_bindings.py"), str(SOURCE / "include"),
                        str(package / "_bindings.py")], check=True)
        staged = os.environ.get("REEL_STAGED")
        if staged:
            shutil.copytree(staged, package, dirs_exist_ok=True)
        elif not os.environ.get("REEL_SYSTEM_LIBRARY"):
            for name, file in compiled().items():
                (package / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, package / name)


class Wheel(bdist_wheel):
    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = bool(os.environ.get("REEL_SYSTEM_LIBRARY"))

    def get_tag(self):
        _, _, platform = super().get_tag()
        return "py3", "none", os.environ.get("REEL_WHEEL_PLATFORM", platform)

    def egg2dist(self, egginfo_path, distinfo_path):
        super().egg2dist(egginfo_path, distinfo_path)
        if os.environ.get("REEL_SBOM"):
            Path(distinfo_path, "sboms").mkdir()
            shutil.copy2(os.environ["REEL_SBOM"], Path(distinfo_path, "sboms"))


class Binary(Distribution):
    def has_ext_modules(self):
        return not os.environ.get("REEL_SYSTEM_LIBRARY")


setup(version=VERSION, packages=["reel"], py_modules=["reel_command"], package_data={"reel": ["py.typed", "*.pyi"]},
      distclass=Binary, cmdclass={"build_py": Build, "bdist_wheel": Wheel})
