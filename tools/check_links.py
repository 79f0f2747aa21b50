#!/usr/bin/env python3
"""Links in Markdown: every file that one names is in the tree, and every heading behind a # is in that file. Prints
file:line of each that is not; exits 1 when there is one. Addresses of other sites are not asked.

usage: check_links.py [FILE.md...]    default: all Markdown files that git knows

Headings are turned into anchors as GitHub does: letters, digits, '-' and '_' stay, blanks become '-', and the
second of two equal ones gets "-1".
"""
import re
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
INLINE = re.compile(r"\]\(\s*<?([^)<>\s]+)>?(?:\s+[\"'][^)]*)?\)")
REFERENCE = re.compile(r"^\s{0,3}\[[^\]]+\]:\s+<?(\S+?)>?(?:\s|$)")
HTML = re.compile(r"<(?:a|img|source)\b[^>]*?\b(?:href|src|srcset)=[\"']([^\"']+)[\"']")
HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*\s*$")


def text_lines(path):
    """(number, line) outside of code blocks, with `code` blanked."""
    fence = None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        mark = re.match(r"\s*(`{3,}|~{3,})", line)
        if mark and fence is None:
            fence = mark.group(1)
        elif mark and mark.group(1).startswith(fence):
            fence = None
        elif fence is None:
            yield number, line


def anchor(heading):
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"[*`]|<[^>]+>", "", text).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@lru_cache(maxsize=None)
def anchors(path):
    found = {}
    for _, line in text_lines(path):
        heading = HEADING.match(line)
        if heading:
            name = anchor(heading.group(2))
            n = found.get(name, 0)
            found[name] = n + 1
            if n:
                found[f"{name}-{n}"] = 1
        for name in re.findall(r"<a (?:id|name)=[\"']([^\"']+)", line):
            found[name] = 1
    return found


def links(path):
    for number, line in text_lines(path):
        bare = re.sub(r"(`+).+?\1", lambda m: " " * len(m.group()), line)
        for pattern in (INLINE, REFERENCE, HTML):
            for link in pattern.findall(bare):
                yield number, link


def problem(page, link, known):
    """What is wrong with it, or None."""
    if re.match(r"[a-z][a-z0-9+.-]*:", link, re.I):
        return None
    name, _, heading = unquote(link).partition("#")
    target = page if not name else (page.parent / name).resolve()
    if not target.is_relative_to(ROOT):
        return f"{link} leaves the tree"
    inside = str(target.relative_to(ROOT))
    if inside not in known and not any(k.startswith(inside + "/") for k in known):
        return f"there is no {link}"
    if heading and target.suffix == ".md" and heading not in anchors(target):
        return f"{name or page.name} has no heading #{heading}"
    return None


def is_page(name):
    """tests/page has Markdown that is to be dangerous, for the server's page."""
    return name.endswith(".md") and not name.startswith("tests/page/")


def git(*arguments):
    said = subprocess.run(["git", "ls-files", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return said.stdout.split("\n")[:-1]


def main():
    known = set(git("--cached", "--others", "--exclude-standard"))
    pages = [Path(a).resolve() for a in sys.argv[1:]] or sorted(ROOT / k for k in known if is_page(k))
    n = bad = 0
    for page in pages:
        for number, link in links(page) if page.is_file() else ():
            n += 1
            wrong = problem(page, link, known)
            if wrong:
                bad += 1
                print(f"{page.relative_to(ROOT)}:{number}: {wrong}")
    print(f"{n} links in {len(pages)} pages, {bad} that lead nowhere")
    return 1 if bad or not n else 0


if __name__ == "__main__":
    sys.exit(main())
