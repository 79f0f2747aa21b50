#!/usr/bin/env python3
"""Every measured figure in README.md and docs/*.md names a file of bench/results (or a model's PROVENANCE.json)
that holds it, or says that it was not kept. Prints each figure that does neither; exits 1 when there is one.

usage: check_figures.py [--list | --mutate] [PAGE...]

A figure is a number with a unit of speed, power or short time behind it (tokens/s, ms, us, GB/s, TB/s,
MB/s, W, tokens per joule, times real time, %), or a number in a table whose cell, row, column, first head or
caption says such a unit. What stands in `code` or in a link is none.

A figure's sources are the files of bench/results/ named
  - in its own paragraph, list item or table, or in the paragraph before the table (its caption), or
  - in the paragraph that begins with "Figures:" of its section, or else of the nearest section around it.
A source holds a figure when one of its numbers, rounded as the figure is, equals it; milliseconds may be
microseconds or seconds in the file, and GB/s TB/s. "about" and "some" allow two digits.

A figure without such a source needs one of these marks in its own sentence, table row or caption:
  not kept     measured, but there is no record of it
  predicted    said before it was measured
  setting      no measurement but a limit or a length that the code sets
  computed     follows from other figures of the same place
In docs/ a "Figures:" paragraph may carry a mark for its whole section ("what they lack was not kept"). In
README.md it may not.

--list shows every figure and where it was found. --mutate changes the last digit of each figure that a
file holds and no mark excuses, one after the other, and says how many of these changes are noticed: small numbers
have namesakes in long files.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results"
NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
UNITS = {
    r"(?:thousand )?tok(?:en)?s?(?:/s|/second| a second| per second)": (1, 1e-3),
    r"tok(?:en)?s?(?:/J| a joule| per joule)": (1,),
    r"ms|milliseconds?": (1, 1e3, 1e-3),
    r"us|microseconds?": (1, 1e3, 1e6),
    r"[GTM]B/s": (1, 1e3, 1e-3),
    r"W|watts?": (1,),
    r"times real time|x real time": (1,),
    r"%": (1, 100),
}
UNIT = "|".join(UNITS)
# "3,020 to 3,040 tokens/s", "1,040, 22.8 and 7 ms", "5.71 -> 5.18 ms": the unit belongs to all of them.
RUN = re.compile(rf"(?<![\w.,-])((?:{NUMBER})(?:(?: ?%?,| to| and| or| against| ->| ?-| for| at worst,)? (?:{NUMBER}))*) ?({UNIT})(?![\w/-])")
# Watts and per cent are looked for behind numbers only.
HEAD = re.compile(rf"(?:^|[\s,(])({'|'.join(list(UNITS)[:4])})(?=$|[\s,;:).|])")
MARK = re.compile(r"\b(?:not kept|predict\w*|setting|computed)\b", re.I)
FILE = re.compile(r"(models/[a-z]+/PROVENANCE\.json)|(?:bench/results/)?([a-z0-9*-]+\.(?:csv|txt))")


def scales(unit):
    return next(s for pattern, s in UNITS.items() if re.fullmatch(pattern, unit))


def plain(text):
    """Without code, links' addresses and comments, at the same places."""
    blank = lambda m: " " * len(m.group())
    return re.sub(r"`[^`]*`|\]\([^)]*\)|<!--.*?-->", blank, text)


_numbers = {}


def numbers(name):
    """All numbers of a file of results, sorted."""
    if name not in _numbers:
        text = (RESULTS / name).read_text()
        found = re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w|\.\d)", text)
        _numbers[name] = sorted({float(v) for v in found})
    return _numbers[name]


class Figure:
    def __init__(self, line, text, unit, place, sources, about):
        self.line, self.text, self.unit, self.place, self.sources = line, text, unit, place, sources
        self.about = about

    def held_by(self, text=None):
        text = (text or self.text).replace(",", "")
        value = float(text)
        step = 10.0 ** -len(text.partition(".")[2])
        if self.about:
            digits = text.replace(".", "").lstrip("0")
            step *= 10.0 ** max(len(digits) - 2, 0)
        for name in self.sources:
            for scale in scales(self.unit):
                for v in numbers(name):
                    if abs(v * scale - value) <= 0.5 * step * (1 + 1e-9) + 1e-12:
                        return name
        return None


def files_in(text, page):
    found = []
    for model, name in FILE.findall(text):
        if model:
            found.append(f"../../{model}")
            continue
        matches = sorted(RESULTS.glob(name))
        if not matches and f"bench/results/{name}" in text:
            print(f"{page}: there is no bench/results/{name}")
            global bad
            bad = True
        found += [m.name for m in matches]
    return found


def blocks(text):
    """(first line, kind, lines) of each heading, paragraph, list item and table outside ``` code."""
    out, fenced, kind = [], False, None
    for i, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fenced, kind = not fenced, None
            continue
        if fenced or line.startswith("    ") and kind is None:
            continue
        if not line.strip():
            kind = None
            continue
        this = "head" if line.startswith("#") else "table" if line.startswith("|") else "text"
        item = re.match(r"\s*(?:[-*]|\d+\.) ", line)
        if this != kind or item or this == "head":
            out.append((i, this, []))
        kind = this
        out[-1][2].append(line)
    return out


def figures_of_text(first, lines, sources, excused, out):
    text = "\n".join(lines)
    bare = plain(text).replace("\n", " ")
    ends = [m.end() for m in re.finditer(r"[.!?]\)?(?= +[^ a-z])", bare)] + [len(bare)]
    for m in RUN.finditer(bare):
        begin = max([e for e in ends if e <= m.start()], default=0)
        sentence = text[begin : min(e for e in ends if e >= m.end())]
        about = re.search(r"\b(?:about|some)\s$", bare[max(0, m.start() - 7) : m.start()])
        for n in re.finditer(NUMBER, m.group(1)):
            at = m.start(1) + n.start()
            line = first + text.count("\n", 0, at)
            place = (line, at - (text.rfind("\n", 0, at) + 1))
            figure = Figure(line, n.group(), m.group(2), place, sources, bool(about))
            out.append((figure, excused or bool(MARK.search(sentence))))


def figures_of_table(first, lines, caption, sources, excused, out):
    if MARK.search(caption):
        excused = True
    heads = [HEAD.search(c) for c in plain(lines[0]).strip().strip("|").split("|")]
    whole = heads[0] or HEAD.search(plain(caption))
    for i, line in enumerate(lines[2:], first + 2):
        bare, at = plain(line), 0
        row = HEAD.search(bare.strip().strip("|").split("|")[0])
        marked = excused or bool(MARK.search(line))
        for c, cell in enumerate(bare.split("|")[1:-1]):
            at = bare.index("|", at) + 1
            own = RUN.search(cell) or HEAD.search(cell)
            unit = own.groups()[-1] if own else None
            unit = unit or (row and row.group(1)) or (c < len(heads) and heads[c] and heads[c].group(1))
            unit = unit or (whole and c > 0 and whole.group(1))
            if unit and c > 0:
                for n in re.finditer(rf"(?<![\w.,-])(?:{NUMBER})(?!\w)", cell):
                    out.append((Figure(i, n.group(), unit, (i, at + n.start()), sources, False), marked))


def figures_of_page(page):
    readme = page.name == "README.md"
    out, sections, caption = [], [], ""
    all_blocks = blocks(page.read_text())
    level, path = 0, []
    declared = {}  # index of a heading -> (sources, excused)
    owner = []
    for index, (_, kind, lines) in enumerate(all_blocks):
        if kind == "head":
            level = len(lines[0]) - len(lines[0].lstrip("#"))
            path = [p for p in path if p[0] < level] + [(level, index)]
        owner.append([p[1] for p in path])
        text = "\n".join(lines)
        if kind == "text" and text.startswith("Figures:"):
            declared[path[-1][1] if path else -1] = (files_in(text, page), bool(MARK.search(text)) and not readme)
    for (first, kind, lines), path in zip(all_blocks, owner):
        text = "\n".join(lines)
        own = files_in(text, page)
        around = [declared[p] for p in path if p in declared]
        files, excused = around[-1] if around else ([], False)
        sources = own + files
        if kind == "text":
            if not text.startswith("Figures:"):
                figures_of_text(first, lines, sources, excused, out)
            caption = text
        elif kind == "table":
            figures_of_table(first, lines, caption, sources + files_in(caption, page), excused, out)
            caption = ""
        else:
            caption = ""
    return out


def main():
    global bad
    arguments = sys.argv[1:]
    mode = arguments.pop(0) if arguments and arguments[0].startswith("--") else ""
    pages = [Path(a).resolve() for a in arguments] or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    n = held = marked = strict = noticed = 0
    for page in pages:
        name = page.relative_to(ROOT) if page.is_relative_to(ROOT) else page
        for figure, excused in figures_of_page(page):
            n += 1
            source = figure.held_by()
            if mode == "--list":
                print(f"{name}:{figure.line}: {figure.text} {figure.unit}: {source or ('marked' if excused else 'MISSING')}")
            if source:
                held += 1
                other = figure.text[:-1] + str((int(figure.text[-1]) + 1) % 10)
                strict += not excused
                noticed += not excused and not figure.held_by(other)
            elif excused:
                marked += 1
            else:
                bad = True
                if mode != "--list":
                    where = ", ".join(dict.fromkeys(figure.sources)) or "no file named"
                    print(f"{name}:{figure.line}: {figure.text} {figure.unit} ({where})")
    if mode == "--mutate":
        print(f"of {strict} figures whose place has no mark, {noticed} are refused when their last digit is changed")
    print(f"{n} figures: {held} in the files named, {marked} marked, {n - held - marked} without either")
    return 1 if bad or not n else 0


bad = False
if __name__ == "__main__":
    sys.exit(main())
