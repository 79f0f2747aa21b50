#!/usr/bin/env python3
"""Lays out build/docs for mkdocs: the tree's Markdown where it stands, the files that it links, and pages made of
include/*.h and of the Python package's docstrings. `make docs` runs it, then mkdocs.

usage: make_docs.py [OUT]    default: build/docs

In a header a comment belongs to what follows it until the next blank line or comment. Only the standard library is
needed here.
"""
import ast
import re
import shutil
import sys
from pathlib import Path
from urllib.parse import unquote

import check_links

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
HEADERS = ["reel.h", "reel_speech.h", "reel_measure.h"]

# ---- C headers -------------------------------------------------------------------------------------------------------


def plain(comment):
    """The lines of a comment without its frame."""
    text = comment.strip()[2:-2]
    return [re.sub(r"^\s*\* ?", "", line) if i else line.strip() for i, line in enumerate(text.split("\n"))]


def marked(text):
    """Names of the API as code; what Markdown would take for marks is escaped."""
    text = re.sub(r"(?<![\w.])(_?[a-z]\w*\(\)|[A-Za-z]\w*_\w*(?:\.h)?\*?|_[a-z]\w*|reel\.h)", lambda m: f"\0{m.group()}\0", text)
    text = re.sub(r"([<>*_\[\]])", r"\\\1", text)
    return re.sub("\0(.*?)\0", lambda m: "`" + m.group(1).replace("\\", "") + "`", text)


def prose(lines):
    """Comment lines as Markdown: paragraphs, lists, and what is indented as it stands."""
    out, fenced = [], False
    for line in [*lines, ""]:
        table = line.startswith("  ") and not (out and out[-1].startswith(("- ", "  ")) and not fenced)
        if table != fenced:
            out += ["", "```text"] if table else ["```", ""]
            fenced = table
        if table:
            out.append(line)
        elif line.startswith("- ") and out and out[-1] and not out[-1].startswith(("- ", "  ")):
            out += ["", "- " + marked(line[2:])]
        elif line.startswith("- "):
            out.append("- " + marked(line[2:]))
        elif out and out[-1].startswith(("- ", "  ")) and line.strip():
            out.append("  " + marked(line.strip()))
        else:
            out.append(marked(line))
    return "\n".join(out).strip()


def blocks(text):
    """(comment or None, code) of each declaration, and (section title, None)."""
    text = re.sub(r"^#ifdef __cplusplus\n.*?^#endif\n", "", text, flags=re.M | re.S)
    text = re.sub(r"^#if defined\(__GNUC__\)\n.*?^#endif\n", "", text, flags=re.M | re.S)
    comment, code, depth = None, [], 0

    def entry():
        nonlocal comment, code
        if any(line.strip() for line in code):
            yield comment, "\n".join(code).strip("\n")
        comment, code = None, []

    # The same lines without comments and strings, for counting braces.
    code_alone = re.sub(r"/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", lambda m: "\n" * m.group().count("\n"), text, flags=re.S).split("\n")
    lines, i = text.split("\n"), 0
    while i < len(lines):
        line = lines[i]
        if depth == 0 and line.startswith("/*"):
            yield from entry()
            whole = line
            while "*/" not in whole:
                i += 1
                whole += "\n" + lines[i]
            section = re.match(r"/\* -{4,} (.*?)\s*-{4,}", whole, re.S)
            if section:
                yield "section", section.group(1)
                rest = re.sub(r"^/\* -{4,}.*?-{4,}\s*", "/* ", whole, flags=re.S)
                comment = rest if rest.strip("/* \n") else None
            else:
                comment = whole
        elif depth == 0 and not line.strip() and code:
            yield from entry()
        elif depth == 0 and re.match(r"#\s*(include|ifndef|endif|define REEL_\w*H$)", line):
            pass
        else:
            code.append(line)
            depth += code_alone[i].count("{") - code_alone[i].count("}")
        i += 1
    yield from entry()


def names(code):
    code = re.sub(r"/\*.*?\*/", "", code, flags=re.S)
    found = re.findall(r"^#define (REEL_\w+)|^(?:struct|enum) (\w+)(?= \{|;)|typedef [^;]*?\(\*(\w+)\)|^typedef .*?(\w+)\(", code, re.M)
    out = [next(n for n in f if n) for f in found]
    if not out or re.match(r"enum \w+ \{", code):
        out = out[:1]
    if not out:
        out = re.findall(r"\b(reel_\w+)\(", code)
    return list(dict.fromkeys(out))


def header_page(name):
    text = (ROOT / "include" / name).read_text()
    opening = re.match(r"/\*.*?\*/", text, re.S).group()
    out = [f"# {name}", "", prose(plain(opening)), ""]
    for comment, code in blocks(text[len(opening):]):
        if comment == "section":
            out += [f"## {code[0].upper()}{code[1:]}", ""]
            continue
        called = names(code)
        if not called or all(n in ("REEL_H", "REEL_API", "REEL_MUST_USE") for n in called):
            continue
        code = re.sub(r"REEL_API (?:REEL_MUST_USE )?", "", code)
        out += ["### " + ", ".join(f"`{n}`" for n in called[:4]) + (" and others" if len(called) > 4 else ""), ""]
        if comment:
            out += [prose(plain(comment)), ""]
        out += ["```c", code, "```", ""]
    return "\n".join(out)


# ---- Python ----------------------------------------------------------------------------------------------------------


WIDEST = 100  # of a signature in one line


class Unquoted(ast.NodeTransformer):
    """Annotations that are strings, as what they say."""

    def visit_Constant(self, node):
        return ast.parse(node.value, mode="eval").body if isinstance(node.value, str) else node


def annotation(node):
    return ast.unparse(Unquoted().visit(node))


def parameters(arguments):
    """Each parameter with annotation and default, and the marks / and *."""

    def one(arg, default, mark=""):
        text = mark + arg.arg + (f": {annotation(arg.annotation)}" if arg.annotation else "")
        return text + (f"{' = ' if arg.annotation else '='}{ast.unparse(default)}" if default else "")

    given = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(given) - len(arguments.defaults)) + arguments.defaults
    out = [one(arg, default) for arg, default in zip(given, defaults)]
    if arguments.posonlyargs:
        out.insert(len(arguments.posonlyargs), "/")
    if arguments.vararg:
        out.append(one(arguments.vararg, None, "*"))
    elif arguments.kwonlyargs:
        out.append("*")
    out += [one(arg, default) for arg, default in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    return out + ([one(arguments.kwarg, None, "**")] if arguments.kwarg else [])


def called(words, arguments, returns="", bound=False):
    """A signature, in a line or, where that is long, with a line for each parameter."""
    listed = parameters(arguments)[bound:]
    line = f"{words}({', '.join(listed)}){returns}"
    return line if len(line) <= WIDEST else words + "(\n" + "".join(f"    {one},\n" for one in listed) + f"){returns}"


def decorated(node, name):
    return any(isinstance(d, ast.Name) and d.id == name for d in node.decorator_list)


def signature(node, bound):
    """bound: a method's; who calls it does not write self or cls."""
    returns = f" -> {annotation(node.returns)}" if node.returns else ""
    if decorated(node, "property"):
        return node.name + returns.replace(" ->", ":")
    kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    return called(f"{kind} {node.name}", node.args, returns, bound and not decorated(node, "staticmethod"))


def assigned(statement, of=ast.Name):
    """The public names that a statement gives values, or annotations, to; ast.Attribute: of an object, which is self."""
    targets = [statement.target] if isinstance(statement, ast.AnnAssign) else statement.targets if isinstance(statement, ast.Assign) else []
    flat = [one for target in targets for one in (target.elts if isinstance(target, ast.Tuple) else [target])]
    names = [one.id if isinstance(one, ast.Name) else one.attr for one in flat if isinstance(one, of)]
    return [name for name in names if not name.startswith("_")]


def told_before(statement, lines):
    """The comment "#:" that stands above a statement, and above those between that stand right on each other."""
    at, out = statement.lineno - 2, []
    while lines[at].strip().startswith("#:"):
        out.insert(0, lines[at].strip()[2:].strip())
        at -= 1
    return " ".join(out)


def fields(node, lines):
    """The lines of a class's annotated fields, each with its comment "#:"."""
    out = []
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and assigned(statement):
            above = told_before(statement, lines)
            value = f" = {ast.unparse(statement.value)}" if statement.value else ""
            behind = lines[statement.end_lineno - 1][statement.end_col_offset:].strip()
            out += [f"    # {above}"] * bool(above)
            out.append(f"    {statement.target.id}: {annotation(statement.annotation)}{value}" + (f"  {behind.replace('#:', '#')}" if behind else ""))
    return out


def attributes(node, lines):
    """(names, comment) of what a class's own functions give self with a comment "#:", which may be that of several in a row."""
    out, last = [], None
    inside = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name.startswith("_")]
    for statement in (one for function in inside for one in function.body):
        found, comment = assigned(statement, ast.Attribute), told_before(statement, lines)
        if found and comment:
            out.append((found, comment))
            last = statement
        elif found and last is not None and statement.lineno == last.end_lineno + 1:
            out[-1][0].extend(found)
            last = statement
        else:
            last = None
    return out


def docstring(node):
    """With sections such as "Attributes:" as lists."""
    out, inside = [], False
    for line in (ast.get_docstring(node) or "").split("\n"):
        if re.fullmatch(r"(Args|Attributes|Raises|Returns|Yields):", line):
            out += [f"*{line}*", ""]
            inside = True
        elif inside and (item := re.match(r"    (\*{0,2}\w+(?:, \w+)*)(?: \([^)]*\))?: (.*)", line)):
            out.append(f"- {', '.join(f'`{name}`' for name in item.group(1).split(', '))}: {item.group(2)}")
        elif inside and line.startswith("    "):
            out.append("  " + line.strip())
        else:
            inside = inside and not line.strip()
            out.append(line)
    return "\n".join(out)


def for_users(init, hidden):
    """Whether others than the package call a constructor: it asks for no class that the package keeps to itself."""
    asked = {n.id for arg in ast.walk(init.args) if isinstance(arg, ast.arg) and arg.annotation
             for n in ast.walk(Unquoted().visit(arg.annotation)) if isinstance(n, ast.Name)}
    return not asked & hidden


def entry(name, level, code, text):
    return [f"{'#' * level} `{name}`", "", "```python", code, "```", "", text, ""]


def described(node, level, lines, hidden, name=None):
    if not isinstance(node, ast.ClassDef):
        return entry(name or node.name, level, signature(node, level > 2), docstring(node))
    bases = ", ".join(ast.unparse(base) for base in [*node.bases, *node.keywords])
    held = fields(node, lines)
    code = "\n".join([f"class {node.name}" + (f"({bases})" if bases else "") + (":" if held else ""), *held])
    init = next((n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    if init and for_users(init, hidden):
        code += "\n\n" + called(node.name, init.args, bound=True)
    out = entry(node.name, level, code, docstring(node))
    told = attributes(node, lines)
    if told:
        out += ["*Attributes:*", "", *(f"- {', '.join(f'`{one}`' for one in names)}: {comment}" for names, comment in told), ""]
    for child in node.body:
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) and not child.name.startswith("_"):
            out += described(child, level + 1, lines, hidden)
    return out


def python_page(folder):
    top = ast.parse((folder / "__init__.py").read_text())
    out = ["# Python", "", ast.get_docstring(top) or "", ""]
    imports = [s for s in top.body if isinstance(s, ast.ImportFrom) and s.level and s.module]
    public = {alias.name for statement in imports for alias in statement.names}
    trees = {path: ast.parse(path.read_text()) for path in folder.glob("*.py")}
    hidden = {n.name for tree in trees.values() for n in tree.body if isinstance(n, ast.ClassDef)} - public
    for statement in imports:
        path = folder / f"{statement.module}.py"
        lines = path.read_text().split("\n")
        found = {n.name: n for n in trees[path].body if isinstance(n, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))}
        values = {name: n for n in trees[path].body for name in assigned(n)}
        for alias in statement.names:
            name = alias.asname or alias.name
            if alias.name in found:
                out += described(found[alias.name], 2, lines, hidden, name)
            elif alias.name in values:
                out += [f"## `{name}`", "", told_before(values[alias.name], lines), ""]
    return "\n".join(out)


# ---- all of it -------------------------------------------------------------------------------------------------------


def copy(name, out):
    source, target = ROOT / name, out / name
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
        if not (target / "README.md").exists():
            files = sorted(p.relative_to(target).as_posix() for p in target.rglob("*") if p.is_file())
            (target / "README.md").write_text(f"# {name}\n\n" + "\n".join(f"- [{f}]({f})" for f in files) + "\n")
    elif source.is_file() and not target.exists():
        shutil.copyfile(source, target)


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build/docs"
    shutil.rmtree(out, ignore_errors=True)
    waiting, seen = list(PAGES), set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        copy(name, out)
        if not name.endswith(".md") or not (ROOT / name).is_file():
            continue
        for _, link in check_links.links(ROOT / name):
            target = ((ROOT / name).parent / unquote(link).partition("#")[0]).resolve()
            if not re.match(r"[a-z]+:", link) and not link.startswith("#") and target.is_relative_to(ROOT):
                waiting.append(str(target.relative_to(ROOT)))
                if target.is_dir():  # a forge shows a folder, a site a page
                    page = (out / name).read_text()
                    (out / name).write_text(page.replace(f"]({link})", f"]({link.rstrip('/')}/README.md)"))
    (out / "api").mkdir()
    for name in HEADERS:
        (out / "api" / name.replace(".h", ".md")).write_text(header_page(name))
    package = ROOT / "python/reel"
    (out / "api/python.md").write_text(python_page(package) if (package / "__init__.py").exists()
                                       else "# Python\n\nThis tree has no Python package.\n")
    for page in ("docs/PYTHON.md", "docs/PACKAGES.md"):
        if not (out / page).exists():
            (out / page).write_text(f"# {page[5:-3].capitalize()}\n\nThis tree has no such page.\n")
    print(f"{out}: {sum(1 for _ in out.rglob('*.md'))} pages")


if __name__ == "__main__":
    main()
