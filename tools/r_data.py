"""Reads character vectors out of an R lazy-load database (NAME.rdx and NAME.rdb).

The index is a serialised list of (offset, length) pairs, one a variable; each variable lies in the
.rdb file as a 4-byte big-endian size and a zlib stream of R's XDR serialisation (R Internals,
section 1.8, "Serialization Formats"). Only what string data needs is understood; anything else is
refused by its type number.
"""

import gzip
import struct
import zlib
from pathlib import Path

NIL, REFERENCE = 254, 255
SYMBOL, PAIR_LIST, CHARACTERS, LOGICALS, INTEGERS, STRINGS, LIST = 1, 2, 9, 10, 13, 16, 19


class Reader:
    def __init__(self, data):
        self.data, self.at, self.symbols = data, 0, []
        if self.take(2) != b"X\n":
            raise ValueError("not an XDR serialisation")
        version = self.integer()
        self.take(8)  # the R versions that wrote it and can read it
        if version == 3:
            self.take(self.integer())  # native encoding
        elif version != 2:
            raise ValueError(f"serialisation version {version}, 2 and 3 are known")

    def take(self, n):
        if n < 0 or self.at + n > len(self.data):
            raise ValueError("ends early")
        self.at += n
        return self.data[self.at - n : self.at]

    def integer(self):
        return struct.unpack(">i", self.take(4))[0]

    def item(self):
        flags = self.integer()
        kind, has_attributes, has_tag = flags & 255, flags & 0x200, flags & 0x400
        if kind == NIL:
            return None
        if kind == REFERENCE:
            return self.symbols[(flags >> 8) - 1]
        if kind == SYMBOL:
            self.symbols.append(self.item())
            return self.symbols[-1]
        if kind == PAIR_LIST:
            return self.pair_list(flags)
        if kind == CHARACTERS:
            n = self.integer()
            return None if n == -1 else self.take(n).decode("utf-8")
        if has_tag:
            raise ValueError(f"type {kind} with a tag is not read")
        n = self.integer()
        if kind in (LOGICALS, INTEGERS):
            value = list(struct.unpack(f">{n}i", self.take(4 * n)))
        elif kind in (STRINGS, LIST):
            value = [self.item() for _ in range(n)]
        else:
            raise ValueError(f"type {kind} is not read")
        if has_attributes:
            attributes = self.item()
            if kind == LIST and "names" in attributes:
                value = dict(zip(attributes["names"], value))
        return value

    def pair_list(self, flags):
        pairs = {}
        while flags & 255 == PAIR_LIST:
            if flags & 0x200:
                self.item()
            tag = self.item() if flags & 0x400 else None
            pairs[tag] = self.item()
            flags = self.integer()
        return pairs


def load(stem):
    """{variable: list of strings} of stem.rdx and stem.rdb."""
    index = Reader(gzip.decompress(Path(f"{stem}.rdx").read_bytes())).item()
    store = Path(f"{stem}.rdb").read_bytes()
    variables = {}
    for name, (offset, length) in index["variables"].items():
        chunk = store[offset : offset + length]
        data = zlib.decompress(chunk[4:])
        if len(data) != struct.unpack(">I", chunk[:4])[0]:
            raise ValueError(f"{name}: size differs from the one stored")
        variables[name] = Reader(data).item()
    return variables
