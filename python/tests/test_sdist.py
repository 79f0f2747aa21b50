"""What the source archive holds: make finds there all that it builds from, with git and without. sdist.sh builds it."""
import importlib.util
import shutil
import subprocess
import sys
import unittest
from pathlib import Path
from tempfile import TemporaryDirectory

import support

BACKEND = support.TESTS.parent / "backend.py"


def backend():
    spec = importlib.util.spec_from_file_location("backend", BACKEND)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@unittest.skipUnless(BACKEND.exists() and shutil.which("git") and (support.ROOT / ".git").exists(), "no git checkout")
class Archive(unittest.TestCase):
    def setUp(self):
        try:
            self.backend = backend()
        except ImportError as error:
            self.skipTest(str(error))
        self.folder = TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.top = Path(self.folder.name, "tree")
        self.names = self.backend.files(support.ROOT)
        for name in self.names:
            (self.top / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(support.ROOT / name, self.top / name)

    def plan(self):
        """What make would do for a wheel's library and command; nothing is built."""
        return subprocess.run(["make", "-n", "-s", "B=build/python", "DEMO_FILES=python/demo_beside.c", "PKG_CFLAGS=", "PKG_LIBS=",
                               "build/python/package/libreel.so", "build/python/package/bin/reel"], cwd=self.top, text=True, capture_output=True)

    def test_make_finds_all_that_it_builds_from(self):
        done = self.plan()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("src/cli/main.c", done.stdout)
        for name in self.names:
            if name.startswith("tools/") and name != "tools/embed_demo.sh":  # a wheel has the demo's files beside it
                (self.top / name).unlink()
                self.assertIn(name, self.plan().stderr)
                shutil.copy2(support.ROOT / name, self.top / name)

    def test_a_tree_without_git_gives_the_same_files(self):
        self.assertEqual(sorted(self.backend.files(self.top)), sorted(self.names))


if __name__ == "__main__":
    unittest.main()
