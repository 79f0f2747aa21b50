"""Models' names, errors and the library itself."""
import os
import subprocess
import sys
import unittest
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import support
from reel import _library
from support import command, reel

TREE = [
    "reel/models/own/folder/config.json", "reel/models/own/one/Model-Q4_K_M.gguf",
    "reel/models/own/two/Model-Q4_K_M.gguf", "reel/models/own/two/Model-Q8_0.gguf",
    "reel/models/own/two/mmproj-Model.gguf", "reel/models/own/near/M-Q8_0.gguf",
    "reel/models/own/near/M-XX_Q8_0.gguf", "reel/models/own/proj/M-Q4_0.gguf",
    "reel/models/own/proj/mmproj-M.gguf", "reel/models/own/inner/sub/config.json",
    "reel/models/own/deep/a/Model.IQ4_XS.gguf", "reel/models/own/parts/M-Q4_0-00001-of-00002.gguf",
    "huggingface/hub/models--their--folder/snapshots/abc1/config.json",
    "huggingface/hub/models--their--main/snapshots/abc2/x-F16.gguf",
    "huggingface/hub/models--their--main/snapshots/abc3/x-F16.gguf",
    "huggingface/hub/models--their--both/snapshots/abc4/config.json",
    "huggingface/hub/models--their--both/snapshots/abc5/config.json", "here/lone/a.gguf",
    "here/pair/a.gguf", "here/pair/b.gguf",
]
NAMES = ["own/near:Q8_0", "own/proj", "own/folder", "own/one", "own/one:Q4_K_M", "own/one:q4_k_m", "own/one:Q8_0", "own/two", "own/two:Q8_0",
         "own/two:Model-Q8_0.gguf", "own/two:model-q8_0", "own/two:8_0", "own/two:0", "own/inner:sub",
         "own/inner", "own/deep:IQ4_XS", "own/deep:a/Model.IQ4_XS.gguf", "own/parts:Q4_0",
         "their/folder", "their/main", "their/main:F16", "their/both", "their/none", "no such/name", "nothing",
         "own/two:../x", "own/.two", "x.gguf", "here/lone", "here/pair", "here/lone/a.gguf", "own/x.gguf"]


class Names(unittest.TestCase):
    def test_names_mean_what_they_mean_to_the_command(self):
        """Every name leads both to the same file, or to errors of the same status."""
        with TemporaryDirectory() as folder:
            for path in TREE:
                file = Path(folder, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text("not a model")
            main = Path(folder, "huggingface/hub/models--their--main/refs/main")
            main.parent.mkdir()
            main.write_text("abc3\n")
            env = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
            env["XDG_CACHE_HOME"] = folder
            found = 0
            with mock.patch.dict(os.environ, env, clear=True):
                for name in NAMES:
                    name = f"{folder}/{name}" if name.startswith("here/") else name
                    said = command("inspect", name, cwd=folder, stdin=subprocess.DEVNULL)
                    try:
                        path = reel.find_model(name)
                        found += 1
                        self.assertTrue(said.stderr.startswith(f"reel: {path}"), (name, path, said.stderr))
                    except reel.ReelError as error:
                        self.assertEqual(said.returncode, error.status, (name, error, said.stderr))
                        self.assertNotIn("not a model", str(error))
            self.assertGreater(found, 12)

    def test_what_is_missing_says_how_to_get_it(self):
        with TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"XDG_CACHE_HOME": folder}):
            with self.assertRaisesRegex(reel.NotFoundError, "pull=True.*reel pull no/model"):
                reel.Model("no/model")
            with self.assertRaises(FileNotFoundError):
                reel.Model("/nowhere/at/all")
            with mock.patch.dict(os.environ, {"HF_ENDPOINT": "http://127.0.0.1:9"}):
                with self.assertRaises(reel.NetworkError) as caught:
                    reel.Model("no/model", pull=True)
            self.assertNotIn("reel: ", str(caught.exception))

    def test_what_was_pulled_is_opened(self):
        """With a command that does what reel pull does when the hub answers: it fills the cache."""
        with TemporaryDirectory() as folder:
            program = Path(folder, "command")
            program.write_text('#!/bin/sh\n[ "$1 $2" = "pull own/pulled" ] || exit 2\n'
                               f'mkdir -p "{folder}/reel/models/own"\n'
                               f'cp -r "{support.ROOT}/models/demo" "{folder}/reel/models/own/pulled"\n')
            program.chmod(0o755)
            with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": folder, "REEL_COMMAND": str(program)}):
                with self.assertRaises(reel.NotFoundError):
                    reel.Model("own/pulled")
                with reel.Model("own/pulled", "cpu", pull=True) as model:
                    self.assertEqual(len(model.generate("Emma", max_tokens=2).ids()), 2)
                with self.assertRaises(reel.ArgumentError):
                    reel.Model("own/other", pull=True)

    def test_every_status_has_its_class(self):
        from reel._bindings import STATUSES
        from reel._errors import error_of

        for name, value, _ in STATUSES[1:]:
            error = error_of(value, "text")
            self.assertIsNot(type(error), reel.ReelError, name)
            self.assertEqual((error.status, error.status_name, str(error)), (value, name, "text"))
        for made, built_in in [(reel.OutOfMemoryError, MemoryError), (reel.ArgumentError, ValueError),
                               (reel.InputOutputError, OSError), (reel.NetworkError, ConnectionError)]:
            self.assertTrue(issubclass(made, built_in))
        self.assertEqual(error_of(77, "x").status, 77)

    def test_broken_files_and_wrong_options_are_refused(self):
        with TemporaryDirectory() as folder:
            file = Path(folder, "broken.gguf")
            file.write_bytes(b"GGUF" + bytes(20))
            with self.assertRaisesRegex(reel.ReelError, "broken.gguf"):
                reel.Model(file)
        for options in [{"device": "abacus"}, {"sessions": 0}, {"rounding": "up"}, {"max_context": -1},
                        {"cpu_path": "neverland"}, {"weights": "int3"}, {"kv": "int3"}]:
            with self.assertRaises(reel.ArgumentError, msg=str(options)):
                reel.Model("demo", **options)
        with self.assertRaises(TypeError):
            reel.Model(b"demo")

    def test_loading_tells_its_progress_and_can_be_ended(self):
        stages = []
        reel.Model("demo", "cpu", progress=lambda *told: stages.append(told)).close()
        if stages:
            self.assertIsInstance(stages[0][0], str)
            with self.assertRaises(reel.Cancelled):
                reel.Model("demo", "cpu", progress=lambda *_: False)


class Library(unittest.TestCase):
    def test_declarations_are_those_of_the_compiler(self):
        """The sizes of all structs, and the values of all constants, as a C compiler sees them."""
        from shutil import which

        if not which("cc") or not (support.ROOT / "include/reel.h").exists():
            self.skipTest("no C compiler or no headers")
        ffi = _library.ffi
        names = [name for name in ffi.list_types()[1] if not name.startswith("$")]
        lines, wanted = [], []
        for name in sorted(names):
            kind = ffi.typeof(f"struct {name}")
            try:
                ffi.sizeof(kind)
            except ffi.error:  # only named in the headers
                continue
            lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
            wanted.append(f"{name} {ffi.sizeof(kind)}")
            for field, of in kind.fields:
                lines.append(f'printf("{name}.{field} %zu\\n", offsetof(struct {name}, {field}));')
                wanted.append(f"{name}.{field} {of.offset}")
        for name in ("REEL_E_IO", "REEL_STOP_MEMORY", "REEL_AUDIO_RATE", "REEL_ENCODE_SPECIAL",
                     "REEL_TRANSCRIPT_VTT", "REEL_MAX_TOP_LOGPROBS", "REEL_ANSWER_CALL_END"):
            lines.append(f'printf("{name} %d\\n", {name});')
            wanted.append(f"{name} {getattr(_library.lib, name)}")
        self.assertGreater(len(wanted), 200)
        with TemporaryDirectory() as folder:
            source = Path(folder, "sizes.c")
            source.write_text('#include <stdio.h>\n#include <reel_measure.h>\nint main(void) {\n'
                              + "\n".join(lines) + "\nreturn 0; }\n")
            subprocess.run(["cc", f"-I{support.ROOT}/include", str(source), "-o", folder + "/sizes"],
                           check=True)
            said = subprocess.run([folder + "/sizes"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(said.splitlines(), wanted)

    def test_another_library_is_refused_in_words(self):
        with TemporaryDirectory() as folder:
            for library, words in [("/nowhere/libreel.so", "cannot be loaded"), ("libm.so.6", "is no libreel")]:
                done = self.imported(library)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(words, done.stderr)
            bindings = Path(_library.PACKAGE, "_bindings.py").read_text()
            copy = Path(folder, "reel")
            subprocess.run(["cp", "-r", str(_library.PACKAGE), str(copy)], check=True)
            for old, new, words in [(f"VERSION = {_library.VERSION!r}", "VERSION = '0.1.9'", "made for 0.1"),
                                    ("FUNCTIONS = [", "FUNCTIONS = ['reel_session_open_door', ", "lacks")]:
                (copy / "_bindings.py").write_text(bindings.replace(old, new))
                done = self.imported(_library.LIBRARY_PATH, folder)
                self.assertIn(words, done.stderr)

    @staticmethod
    def imported(library, folder=str(_library.PACKAGE.parent)):
        env = dict(os.environ, REEL_LIBRARY=library, PYTHONPATH=folder)
        return subprocess.run([sys.executable, "-c", "import reel"], env=env, capture_output=True, text=True)


if __name__ == "__main__":
    unittest.main()
