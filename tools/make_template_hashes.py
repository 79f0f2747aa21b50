#!/usr/bin/env python3
"""What transformers renders for generated conversations with the templates of tests/fixtures/templates.

  build/release/tests/unit/test_templates conversations 1000 > conversations.jsonl
  make_template_hashes.py conversations.jsonl                    writes tests/fixtures/templates/hashes.txt
  make_template_hashes.py conversations.jsonl --texts FILE NAME...   whole texts, for `test_templates texts FILE`

The environment is transformers' own (_compile_jinja_template); only strftime_now is replaced, by the moment
that the test has. A template that fails, in whatever way, counts as an error.
"""
import argparse
import datetime
import glob
import hashlib
import json
import os

from transformers.utils import chat_template_utils

FOLDER = os.path.join(os.path.dirname(__file__), "..", "tests", "fixtures", "templates")
BLOCK = 50
NOW = datetime.datetime(2024, 7, 26, 12, 34, 56)


def open_template(path):
    with open(path, encoding="utf-8", newline="") as f:
        template = chat_template_utils._compile_jinja_template(f.read())
    template.environment.globals["strftime_now"] = NOW.strftime
    return template


def render(template, conversation):
    """The text, or None and why there is none."""
    values = {"tools": None, "documents": None, **conversation}
    try:
        return template.render(**values), None
    except Exception as e:
        return None, f"{type(e).__name__}: {e}"


def hash_line(name, template, conversations):
    hashes, errors = [], 0
    for start in range(0, len(conversations), BLOCK):
        block = b""
        for conversation in conversations[start:start + BLOCK]:
            text, _ = render(template, conversation)
            errors += text is None
            data = b"" if text is None else text.encode("utf-8", "surrogatepass")
            block += b"error:" if text is None else b"%d:%s" % (len(data), data)
        hashes.append(hashlib.sha256(block).hexdigest()[:16])
    print(f"{name}: {errors} errors", flush=True)
    return " ".join([name, str(errors)] + hashes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("conversations")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--texts")
    args = parser.parse_args()
    with open(args.conversations, encoding="utf-8") as f:
        conversations = [json.loads(line) for line in f]
    paths = sorted(glob.glob(os.path.join(FOLDER, "*.jinja")))
    templates = {os.path.basename(p)[:-len(".jinja")]: p for p in paths}
    if args.texts:
        with open(args.texts, "w", encoding="utf-8") as out:
            for name in args.names or templates:
                template = open_template(templates[name])
                for number, conversation in enumerate(conversations):
                    text, error = render(template, conversation)
                    line = {"template": name, "number": number, "text": text, "error": error}
                    out.write(json.dumps(line) + "\n")
        return
    lines = ["# made by tools/make_template_hashes.py: template, failing conversations, a hash a block"]
    lines += [hash_line(name, open_template(path), conversations) for name, path in templates.items()]
    with open(os.path.join(FOLDER, "hashes.txt"), "w", encoding="utf-8") as out:
        out.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
