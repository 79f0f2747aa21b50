#!/usr/bin/env python3
"""Looks for code that reads a pair of registers before the instruction that clears it is over.

ptxas 13.0 made such code of `pointer = condition ? base + offset : NULL; if (pointer) ...`: CS2R Rn, SRZ,
a predicated IMAD.WIDE of the same pair, and five cycles after the first a comparison. What was read then is
what the registers held before, on some runs.

How long CS2R takes is read off what ptxas makes elsewhere: it leaves seven cycles or more on sm_90 and sm_100,
six or more on sm_75 to sm_89.

    tools/sass_hazards.py [--nvdisasm PATH] FILE.cubin...
    tools/sass_hazards.py --listing FILE.txt...

Prints what it finds and ends with 1; follows code up to the next branch. A listing is what
`nvdisasm -c -hex` prints."""
import argparse
import re
import subprocess
import sys

TARGET = re.compile(r"\s*\.target\s+sm_(\d+)")
LINE = re.compile(r"\s*/\*([0-9a-f]+)\*/\s+(.*?);\s+/\* (0x[0-9a-f]+) \*/")
SECOND = re.compile(r"\s+/\* (0x[0-9a-f]+) \*/")
CLEARS = re.compile(r"(?:@\S+ )?CS2R R(\d+), SRZ")
STORES = re.compile(r"(?:@\S+ )?(ST|STG|STS|STL|RED|ATOM\w*|BAR)\b")


def instructions(text):
    """(function, address, words, cycles until the next one may be issued), in order."""
    function, at = "", None
    for line in text.splitlines():
        if line.startswith(".text."):
            function = line[6:].rstrip(":")
        found = LINE.match(line)
        if found:
            at = found.group(1), found.group(2).strip()
            continue
        found = SECOND.match(line)
        if found and at:
            yield function, at[0], at[1], int(found.group(1), 16) >> 41 & 15
            at = None


def sources(words):
    operands = words.split(",")
    text = words if STORES.match(words) else ",".join(operands[1:])
    return {int(n) for n in re.findall(r"\bR(\d+)\b", text)}


def least_cycles(text):
    """Cycles from CS2R to the first use of what it clears, on the listing's target."""
    found = TARGET.search(text)
    return 7 if found and int(found.group(1)) >= 90 else 6


def hazards(code, least):
    for i, (function, address, words, cycles) in enumerate(code):
        found = CLEARS.match(words)
        if not found:
            continue
        pair, passed = {int(found.group(1)), int(found.group(1)) + 1}, cycles
        for where, at, reader, more in code[i + 1 : i + 1 + least]:
            if where != function or passed >= least or "BRA" in reader:
                break
            if pair & sources(reader):
                yield function, address, words, at, reader, passed
                break
            passed += more


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nvdisasm", default="nvdisasm")
    parser.add_argument("--listing", action="store_true", help="the files are listings")
    parser.add_argument("files", nargs="+")
    args, n = parser.parse_args(), 0
    for file in args.files:
        if args.listing:
            with open(file, encoding="utf-8") as listing:
                text = listing.read()
        else:
            disassemble = [args.nvdisasm, "-c", "-hex", file]
            text = subprocess.run(disassemble, capture_output=True, text=True, check=True).stdout
        code = list(instructions(text))
        if not code:
            sys.exit(f"{file}: no code in it")
        for function, address, words, at, reader, cycles in hazards(code, least_cycles(text)):
            n += 1
            print(f"{file}: {function}: {words} at {address} is read {cycles} cycles later at {at}: {reader}")
    sys.exit(n > 0)


if __name__ == "__main__":
    main()
