"""The extras cuda12 and cuda13: NVRTC is found where pip puts it, by the library and by the command alike.

A folder site-packages is laid out with what a package holds and with compilers that say a version and nothing more. The
driver is the one of tests/sim, of a GPU that is not there.
"""
import json
import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path
from tempfile import TemporaryDirectory

import support

OWN = support.TESTS.parent / "reel"
IMPORTED = Path(support.reel.__file__).parent
DRIVER = support.BUILD / "fake/libcuda.so.1"

#: Minor versions that no compiler of this machine has.
NVRTC = """
int nvrtcVersion(int *major, int *minor) { *major = MAJOR; *minor = 77; return 0; }
int nvrtcGetNumSupportedArchs(int *n) { *n = 1; return 0; }
int nvrtcGetSupportedArchs(int *list) { *list = 90; return 0; }
#define MISSING(name) int nvrtc##name(void) { return 1; }
MISSING(CreateProgram) MISSING(DestroyProgram) MISSING(CompileProgram) MISSING(GetProgramLogSize) MISSING(GetProgramLog)
MISSING(GetCUBINSize) MISSING(GetCUBIN) MISSING(GetPTXSize) MISSING(GetPTX)
"""


def compile_library(to, *options, text=None):
    to.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(to), *options], input=text, text=True, check=True)


def package_files():
    """(the library, the command, the library it brings along or None): the installed package's, or those that make links."""
    folder = support.BUILD / "package" if IMPORTED == OWN else IMPORTED
    beside = folder / "lib"
    return folder / "libreel.so", folder / "bin/reel", beside if beside.is_dir() else None


@unittest.skipUnless(DRIVER.exists() and shutil.which("cc"), "no compiler, or no libcuda.so.1 of the tests (make fakes)")
@unittest.skipUnless(all(path.exists() for path in package_files()[:2]),
                     "no package with library and command (make package)")
class Extras(unittest.TestCase):
    def setUp(self):
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.site, self.driver = Path(folder.name, "site-packages"), Path(folder.name, "driver")
        library, command, beside = package_files()
        (self.site / "reel/bin").mkdir(parents=True)
        for file in IMPORTED.glob("*.py"):
            shutil.copy2(file, self.site / "reel")
        shutil.copy2(library, self.site / "reel/libreel.so")
        shutil.copy2(command, self.site / "reel/bin/reel")
        if beside is not None:
            shutil.copytree(beside, self.site / "reel/lib")
        shutil.copy2(IMPORTED.parent / "reel_command.py", self.site)
        self.driver.mkdir()
        shutil.copy2(DRIVER, self.driver)
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith(("REEL_", "LD_"))}
        self.environment.update(LD_LIBRARY_PATH=str(self.driver), PYTHONPATH=str(self.site))

    def install(self, major):
        """What pip puts there for an extra."""
        own = {13: "cu13", 12: "cuda_nvrtc"}[major]
        compile_library(self.site / "nvidia" / own / "lib" / f"libnvrtc.so.{major}", f"-DMAJOR={major}", "-x", "c", "-", text=NVRTC)

    def make_driver_old(self):
        old = self.driver / "old.so"
        compile_library(old, f"-I{support.ROOT / 'tests'}", str(support.TESTS / "old_driver.c"), "-ldl")
        self.environment["LD_PRELOAD"] = str(old)

    def found(self):
        """The version of NVRTC as the package, the command, and the two that start the command see it; they agree."""
        said = []
        for words in ([sys.executable, "-c", "import json, reel; print(json.dumps(reel.devices()))"],
                      [str(self.site / "reel/bin/reel"), "devices", "--json"],
                      [sys.executable, "-m", "reel", "devices", "--json"],
                      [sys.executable, "-m", "reel_command", "devices", "--json"]):
            done = subprocess.run(words, env=self.environment, cwd=self.driver, text=True, capture_output=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""), words)
            gpus = json.loads(done.stdout)["gpus"]
            self.assertEqual(len(gpus), 1, done.stdout)
            said.append((gpus[0].get("nvrtc"), gpus[0]["usable"]))
        self.assertEqual(said, said[:1] * len(said))
        return said[0]

    def test_each_is_found(self):
        for major in 13, 12:
            with self.subTest(major):
                self.install(major)
                if major == 12:  # so that one of CUDA 13 that this machine may have is not preferred
                    self.make_driver_old()
                self.assertEqual(self.found(), (f"{major}.77", True))
                shutil.rmtree(self.site / "nvidia")
                self.assertNotEqual(self.found()[0], f"{major}.77")

    def test_of_both_the_newest_that_the_driver_can_load(self):
        self.install(12)
        self.install(13)
        self.assertEqual(self.found(), ("13.77", True))
        self.make_driver_old()
        self.assertEqual(self.found(), ("12.77", True))

    def test_a_folder_that_the_user_names_goes_first(self):
        self.install(13)
        compile_library(self.driver / "libnvrtc.so.13", "-DMAJOR=13", "-x", "c", "-", text=NVRTC.replace("77", "78"))
        self.assertEqual(self.found(), ("13.78", True))


if __name__ == "__main__":
    unittest.main()
