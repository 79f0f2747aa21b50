#!/usr/bin/env python3
"""Looks for code that reads a pair of registers before the instruction that clears it is over.

ptxas 13.0 made such code of `pointer = condition ? base + offset : NULL; if (pointer) ...`: CS2R Rn, SRZ,
a predicated IMAD.WIDE of the same pair, and five cycles after the first a comparison, where it otherwise
leaves eleven or more. What was read then is what the registers held before, on some runs.

    tools/sass_hazards.py [--nvdisasm PATH] FILE.cubin...

Prints what it finds and ends with 1; follows code up to the next branch."""
import argparse
import re
import subprocess
import sys

LEAST = 11  # cycles from CS2R to a use in what ptxas makes else
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


def hazards(code):
    for i, (function, address, words, cycles) in enumerate(code):
        found = CLEARS.match(words)
        if not found:
            continue
        pair, passed = {int(found.group(1)), int(found.group(1)) + 1}, cycles
        for where, at, reader, more in code[i + 1 : i + 1 + LEAST]:
            if where != function or passed >= LEAST or "BRA" in reader:
                break
            if pair & sources(reader):
                yield function, address, words, at, reader, passed
                break
            passed += more


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nvdisasm", default="nvdisasm")
    parser.add_argument("cubins", nargs="+")
    args, n = parser.parse_args(), 0
    for cubin in args.cubins:
        text = subprocess.run([args.nvdisasm, "-c", "-hex", cubin], capture_output=True, text=True, check=True).stdout
        code = list(instructions(text))
        if not code:
            sys.exit(f"{cubin}: nvdisasm shows no code")
        for function, address, words, at, reader, cycles in hazards(code):
            n += 1
            print(f"{cubin}: {function}: {words} at {address} is read {cycles} cycles later at {at}: {reader}")
    sys.exit(n > 0)


if __name__ == "__main__":
    main()
