"""What the tests share: models of the tree, the command, recordings."""
import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent.parent
BUILD = ROOT / os.environ.get("REEL_BUILD", "build/release")
if (ROOT / "include/reel.h").exists() and "REEL_TEST_INSTALLED" not in os.environ:
    os.environ.setdefault("REEL_LIBRARY", str(BUILD / "libreel.so"))
    os.environ.setdefault("REEL_COMMAND", str(BUILD / "reel"))
    sys.path.insert(0, str(TESTS.parent))

import numpy as np  # noqa: E402

import reel  # noqa: E402


def command(*words, **options):
    from reel._names import command as found

    return subprocess.run(found() + list(words), capture_output=True, text=True, **options)


def demo(**options):
    return reel.Model("demo", "cpu", **options)


def spoken():
    """[(float32 samples at 16,000 Hz, what was said)] of the speech model's golden."""
    folder = ROOT / "models/speech"
    golden = json.loads((folder / "golden.json").read_text())
    codes = ~np.frombuffer((folder / golden["audio"]).read_bytes(), np.uint8)
    exponent, mantissa = (codes >> 4) & 7, codes & 15
    size = ((2 * mantissa.astype(np.int32) + 33) << exponent) - 33
    samples = (np.where(codes & 128, -size, size) / 8192).astype(np.float32)
    return [(samples[c["at"]: c["at"] + c["samples"]], c["said"]) for c in golden["clips"]]


class Case(unittest.TestCase):
    """With the demo model as self.model, opened once for a class."""

    model_options = {}

    @classmethod
    def setUpClass(cls):
        cls.model = demo(**cls.model_options)

    @classmethod
    def tearDownClass(cls):
        cls.model.close()
