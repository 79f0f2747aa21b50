"""The snippets of docs/PYTHON.md, and the examples."""
import contextlib
import importlib.util
import inspect
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
MAKER = support.ROOT / "tools/make_docs.py"
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


@unittest.skipUnless(MAKER.exists(), "no tools/make_docs.py")
class Reference(unittest.TestCase):
    """The page that tools/make_docs.py makes of the package's sources, against what Python says of the package that runs."""

    @classmethod
    def setUpClass(cls):
        sys.path.insert(0, str(MAKER.parent))
        try:
            spec = importlib.util.spec_from_file_location("make_docs", MAKER)
            maker = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(maker)
        finally:
            sys.path.remove(str(MAKER.parent))
        page = maker.python_page(support.TESTS.parent / "reel")
        # A heading of the second level is a name of the package, one of the third a member of it.
        cls.sections = {part.split("`")[1]: part for part in page.split("\n## ")[1:]}

    def code(self, name, member=None):
        """The first block of code of a section."""
        self.assertIn(name, self.sections)
        section = self.sections[name]
        if member is not None:
            parts = [part for part in section.split("\n### ") if part.startswith(f"`{member}`")]
            self.assertEqual(len(parts), 1, f"{name}.{member} stands there once")
            section = parts[0]
        return re.search(r"```python\n(.*?)\n```", section, re.S)[1]

    def wants_parameters(self, function, code):
        """Each parameter, with its default where it has one."""
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name in ("self", "cls"):
                continue
            default = ""
            if parameter.default is not parameter.empty:
                named = [name for name in reel.__all__ if getattr(reel, name) is parameter.default]
                default = f" = ({'|'.join([re.escape(repr(parameter.default)), *named])})"
            self.assertRegex(code, rf"[(, *]{parameter.name}: [^=]*?{default}[,)]")

    def test_every_name_is_there(self):
        self.assertEqual([name for name in reel.__all__ if name not in self.sections], [])

    def test_every_field_is_there(self):
        for name in reel.__all__:
            made = getattr(reel, name)
            if isinstance(made, type):
                for field in made.__dict__.get("__annotations__", {}):
                    if not field.startswith("_"):
                        with self.subTest(name=name, field=field):
                            self.assertRegex(self.code(name), rf"\n    {field}: \w")
        for name, field in (("GenerationOptions", "top_k: Optional[int]  # 0: off"), ("GenerationOptions", "stop: "),
                            ("ModelInfo", "hidden: int"), ("Usage", "cached_tokens: "), ("Ranked", "score: "), ("EmbedInfo", "prompts: ")):
            self.assertIn(f"\n    {field}", self.code(name))

    def test_every_parameter_is_there(self):
        for made in (reel.Model, reel.Tokenizer, reel.Transcriber, reel.Audio, reel.Resampler):
            with self.subTest(made=made):
                self.wants_parameters(made.__init__, self.code(made.__name__))
        for made in (reel.Model, reel.Session, reel.Generation, reel.ChatStream, reel.Transcriber, reel.Transcript, reel.Tokenizer):
            for name, member in vars(made).items():
                if name.startswith("_"):
                    continue
                if isinstance(member, property):
                    self.assertRegex(self.code(made.__name__, name), rf"^{name}: ")
                elif callable(getattr(made, name)):
                    with self.subTest(made=made, name=name):
                        self.wants_parameters(getattr(made, name), self.code(made.__name__, name))
        for name in reel.__all__:
            if inspect.isfunction(getattr(reel, name)):
                with self.subTest(name=name):
                    self.wants_parameters(getattr(reel, name), self.code(name))

    def test_what_an_instance_holds_is_there(self):
        self.assertIn("- `n_passes`, `n_drafted`, `n_accepted`: Passes over the weights", self.sections["Generation"])
        self.assertIn("- `info`: What it is", self.sections["Model"])
        self.assertIn("- `info`: What its model is", self.sections["Transcriber"])
        self.assertIn("- `on_text`, `on_partial`: called with", self.sections["Transcriber"])

    def test_what_the_package_makes_itself_shows_no_constructor(self):
        for name in ("Session", "Generation", "ChatStream"):
            self.assertEqual(self.code(name), f"class {name}")


class Examples(unittest.TestCase):
    def run_example(self, name, *words, stdin=""):
        import os

        env = dict(os.environ, PYTHONPATH=str(Path(reel.__file__).parent.parent))
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
