#!/usr/bin/env python3
"""Makes the Python module that tells cffi what libreel exports, from the headers in include/.

usage: make_bindings.py HEADER_FOLDER OUTPUT.py

cffi reads declarations in C, but no preprocessor lines. So comments, include guards and attributes
are dropped here, the list of statuses becomes an enumeration, and constants of one number stay. The
module that comes out is out-of-line ABI mode: plain Python that needs no compiler, and that belongs
to these headers. Needs the package cffi.
"""
import os
import re
import sys
from pathlib import Path

HEADERS = ["reel.h", "reel_speech.h", "reel_measure.h"]
NUMBER = re.compile(r"#define\s+(REEL_[A-Z_0-9]+)\s+(\d+)$")
STATUS = re.compile(r"X\((REEL_\w+), (\d+), \"([^\"]*)\"\)")


def statuses(text):
    """(name, value, meaning) of REEL_STATUS_LIST."""
    return [(name, int(value), meaning) for name, value, meaning in STATUS.findall(text)]


def declarations(text):
    """What of a header cffi is to read."""
    listed = statuses(text)
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = text.replace("\\\n", " ")
    if listed:
        members = ", ".join(f"{name} = {value}" for name, value, _ in listed)
        text = re.sub(r"enum reel_status \{.*?\n\};", f"enum reel_status {{ {members} }};", text,
                      flags=re.S)
    lines = []
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("#"):
            found = NUMBER.match(line)
            if found:
                lines.append(f"#define {found[1]} {found[2]}")
        elif line and line not in ('extern "C" {', "}"):
            lines.append(line)
    text = "\n".join(lines)
    return re.sub(r"\bREEL_(API|MUST_USE)\b", "", text)


def constant(text, name):
    return int(re.search(rf"#define {name} (\d+)", text)[1])


def make(folder, output):
    from cffi import FFI

    ffi = FFI()
    sources = [(Path(folder) / name).read_text(encoding="utf-8") for name in HEADERS]
    ffi.cdef("\n".join(declarations(text) for text in sources))
    version = ".".join(str(constant(sources[0], f"REEL_VERSION_{part}"))
                       for part in ("MAJOR", "MINOR", "PATCH"))
    output = Path(output)
    ffi.set_source(output.stem, None)
    made = output.with_suffix(f".{os.getpid()}.new")
    ffi.emit_python_code(str(made))
    functions = re.findall(r"\b(reel_\w+)\s*\([^;{}()]*(?:\([^()]*\)[^;{}()]*)*\)\s*;",
                           "\n".join(declarations(text) for text in sources))
    functions = sorted({name for name in functions if not name.endswith("_fn")})
    with open(made, "a", encoding="utf-8") as out:
        out.write(f"VERSION = {version!r}\n")
        out.write(f"FUNCTIONS = {functions!r}\n")
        out.write(f"STATUSES = {statuses(sources[0])!r}\n")
    os.replace(made, output)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    make(sys.argv[1], sys.argv[2])
