"""The snippets of docs/PYTHON.md, and the examples."""
import contextlib
import io
import re
import subprocess
import sys
import unittest
import wave
from pathlib import Path
from tempfile import TemporaryDirectory

import support
from support import reel

PAGE = support.ROOT / "docs/PYTHON.md"
EXAMPLES = support.TESTS.parent / "examples"


class Page(unittest.TestCase):
    def test_every_snippet_runs(self):
        template = (support.ROOT / "tests/fixtures/templates/qwen3.jinja").read_text()
        snippets = re.findall(r"```python ?(\w*)\n(.*?)```", PAGE.read_text(), re.S)
        self.assertGreater(len(snippets), 12)
        with support.demo(chat_template=template) as model:
            for kind, code in snippets:
                names = {"reel": reel, "model": model}
                if kind == "speech":
                    names["samples"] = support.spoken()[0][0]
                out = io.StringIO()
                with self.subTest(code=code), contextlib.redirect_stdout(out):
                    exec(compile(code, str(PAGE), "exec"), names)
                if "print(" in code and "tool_calls" not in code:
                    self.assertTrue(out.getvalue().strip(), code)

    def test_every_exception_stands_in_the_table(self):
        text = PAGE.read_text()
        for name in dir(reel):
            made = getattr(reel, name)
            if isinstance(made, type) and issubclass(made, reel.ReelError) and made is not reel.ReelError:
                others = [base.__name__ for base in made.__bases__ if base is not reel.ReelError]
                wanted = f"| `{name}` | " + (f"`{others[0]}` |" if others else "|")
                self.assertIn(wanted, text)


class Examples(unittest.TestCase):
    def run_example(self, name, *words, stdin=""):
        import os

        env = dict(os.environ, PYTHONPATH=str(support.TESTS.parent))
        return subprocess.run([sys.executable, str(EXAMPLES / name), *words], input=stdin, text=True,
                              capture_output=True, env=env, timeout=60)

    def test_many_at_once(self):
        done = self.run_example("many_at_once.py", "demo", stdin="Emma\nMr. Knightley\n")
        self.assertEqual(done.stderr, "")
        self.assertEqual([line.split()[0] for line in done.stdout.splitlines() if line][0], "Emma")
        self.assertIn("\nMr. Knightley", done.stdout)

    def test_transcribe_files(self):
        samples, said = support.spoken()[0]
        with TemporaryDirectory() as folder:
            path = Path(folder, "said.wav")
            with wave.open(str(path), "wb") as file:
                file.setnchannels(1), file.setsampwidth(2), file.setframerate(16000)
                file.writeframes((samples * 32767).astype("<i2").tobytes())
            done = self.run_example("transcribe_files.py", "demo-speech", folder + "/none.wav", str(path))
            self.assertIn("none.wav", done.stderr)
            self.assertEqual(done.returncode, 1)
            self.assertIn(said, done.stdout)
            self.assertIn(said, path.with_suffix(".srt").read_text())

    def test_chat(self):
        """On the demo with a template beside it. Its answers fill the context, so that the second turn begins anew."""
        with TemporaryDirectory() as folder:
            for file in (support.ROOT / "models/demo").iterdir():
                Path(folder, file.name).symlink_to(file)
            Path(folder, "chat_template.jinja").symlink_to(support.ROOT / "tests/fixtures/templates/chatml.jinja")
            done = self.run_example("chat.py", folder, stdin="Who is Emma?\nAnd Harriet?\nWho is Harriet?\n")
            self.assertEqual(done.stderr, "")
            first, full, third = done.stdout.split("\n> ")[:3]
            for turn in first, third:
                self.assertRegex(turn, r"(?s)\w.*\n\[\d+ tokens, \d+ of \d+ read before\]$")
            self.assertRegex(full, r"\[.* context of 1024: a new conversation begins\]$")

    def test_chat_without_a_template(self):
        """The demo alone has none, and the example says so."""
        done = self.run_example("chat.py", "demo", stdin="hello\n")
        self.assertIn("no chat template", done.stderr)


if __name__ == "__main__":
    unittest.main()
