#!/usr/bin/env python3
"""Encoding speed and start-up of reel against Hugging Face tokenizers, one thread each.

    pip install tokenizers sentencepiece protobuf transformers
    make
    bench/tokenizer.py --austen .../janeaustenr/data/Rdata --out bench/results/tokenizer.csv

Texts: the six novels of Austen (Debian's r-cran-janeaustenr), source code and headers of this
repository, and the goldens' sentences in some forty scripts in random order. Each text is cut into documents of
4,000 characters; reel and the reference take turns over the whole text, and the medians of their
times are compared. "one document" is the three texts as one. Nothing is printed for a text whose ids differ.
--families takes names of tests/fixtures/tokenizers, and folders (tools/package_tokenizers.py).

"mistral" is SentencePiece's: reel reads tokenizer.model, the reference a tokenizer.json made of it
as transformers does. The row "mistral, sentencepiece" compares with the package of that name.
"""
import argparse
import csv
import ctypes
import glob
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers  # after the settings above

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, os.path.join(ROOT, "tools"))
import r_data

FAMILIES = ["qwen3", "smollm2", "mistral"]
DOCUMENT = 4000


class Reel:
    def __init__(self, library, path, cache=None):
        self.lib = ctypes.CDLL(library)
        self.handle, self.error = ctypes.c_void_p(), ctypes.create_string_buffer(512)
        self.room = (ctypes.c_int32 * (12 * DOCUMENT))()
        self.n = ctypes.c_size_t()
        self.control = 1
        cache = cache.encode() if cache else None
        if self.lib.reel_tokenizer_open(ctypes.byref(self.handle), path.encode(), cache, self.error):
            raise SystemExit(self.error.raw[4:].split(b"\0")[0].decode())

    def encode(self, text):
        if 3 * len(text) > len(self.room):
            self.room = (ctypes.c_int32 * (3 * len(text)))()
        if self.lib.reel_encode(self.handle, text, ctypes.c_size_t(len(text)), self.control, self.room,
                                ctypes.c_size_t(len(self.room)), ctypes.byref(self.n), self.error):
            raise SystemExit(self.error.raw[4:].split(b"\0")[0].decode())

    def ids(self, text):
        self.encode(text)
        return self.room[: self.n.value]

    def close(self):
        self.lib.reel_tokenizer_close(self.handle)


def many_scripts():
    names = {}
    source = open(os.path.join(ROOT, "tools", "make_tokenizer_goldens.py")).read()
    start = source.index("SENTENCES = ")
    exec(source[start : source.index("CODE = ")], names)
    rnd = random.Random(1)
    return "\n".join(rnd.choice(names["SENTENCES"]) for _ in range(7000))


def texts(austen):
    novels = r_data.load(austen)
    code = "".join(open(path).read() for folder in ("src", "include", "tests", "kernels")
                   for path in sorted(glob.glob(os.path.join(ROOT, folder, "**", "*.[ch]"), recursive=True)))
    return {
        "austen": "\n".join("\n".join(novels[name]) for name in sorted(novels)),
        "code": code,
        "scripts": many_scripts(),
    }


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class SentencePiece:
    """The package, asked as tokenizers is asked."""

    class Encoding:
        def __init__(self, ids):
            self.ids = ids

    def __init__(self, path):
        import sentencepiece
        self.processor = sentencepiece.SentencePieceProcessor(model_file=path)

    def encode(self, text, add_special_tokens=False):
        return self.Encoding(self.processor.encode(text, num_threads=1))


def reference_file(folder):
    """tokenizer.json; for tokenizer.model one that is made beside the folder."""
    if not os.path.exists(folder + "/tokenizer.model"):
        return folder + "/tokenizer.json"
    import make_spm_goldens
    from sentencepiece import sentencepiece_model_pb2
    model = sentencepiece_model_pb2.ModelProto()
    with open(folder + "/tokenizer.model", "rb") as f:
        model.ParseFromString(f.read())
    with open(folder + ".json", "w") as f:
        f.write(make_spm_goldens.tokenizer_json(model, "prepend"))
    return folder + ".json"


def open_ms(library, path, cache):
    def work():
        Reel(library, path, cache).close()
    return 1e3 * timed(work)


def start_up(library, folder, path, rounds):
    with tempfile.TemporaryDirectory() as cache:
        first = open_ms(library, folder, cache)
        cached = statistics.median(open_ms(library, folder, cache) for _ in range(rounds))
    plain = statistics.median(open_ms(library, folder, None) for _ in range(3))
    theirs = statistics.median(
        1e3 * timed(lambda: tokenizers.Tokenizer.from_file(path)) for _ in range(3))
    return first, cached, plain, theirs


def commit():
    out = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return out.stdout.strip() or "unknown"


def cpu_model():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def encoding_rows(family, reel, reference, args):
    of_kinds = texts(args.austen)
    of_kinds["one document"] = "\n".join(of_kinds.values())
    for name, text in of_kinds.items():
        step = DOCUMENT if name != "one document" else len(text)
        documents = [text[i : i + step] for i in range(0, len(text), step)]
        encoded = [d.encode() for d in documents]
        n_bytes = sum(map(len, encoded))
        if any(reel.ids(e) != reference.encode(d, add_special_tokens=False).ids
               for d, e in zip(documents, encoded)):
            raise SystemExit(f"{family}, {name}: the ids differ")
        ours, theirs = [], []
        for _ in range(args.rounds):
            ours.append(timed(lambda: [reel.encode(e) for e in encoded]))
            theirs.append(timed(lambda: [reference.encode(d, add_special_tokens=False) for d in documents]))
        a, b = n_bytes / 1e6 / statistics.median(ours), n_bytes / 1e6 / statistics.median(theirs)
        row = [family, "encode " + name, n_bytes, "MB/s", f"{a:.1f}", f"{b:.1f}", f"{a / b:.1f}"]
        print(*row, file=sys.stderr)
        yield row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--austen", required=True, help="Rdata of r-cran-janeaustenr, without its ending")
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("--families", nargs="+", default=FAMILIES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    library = os.path.join(args.build, "libreel.so")
    rows = []
    for family in args.families:
        folder = os.path.join(args.build, "fixtures", "tokenizers", family)  # unpacked by make test
        if os.sep in family:
            folder, family = family, os.path.basename(os.path.normpath(family)) + ", whole"
        path = reference_file(folder)
        reel = Reel(library, folder)
        rows += encoding_rows(family, reel, tokenizers.Tokenizer.from_file(path), args)
        if path != folder + "/tokenizer.json":
            reel.control = 0  # the package finds no control tokens in a text
            rows += encoding_rows(family + ", sentencepiece", reel, SentencePiece(folder + "/tokenizer.model"), args)
        reel.close()
        first, cached, plain, theirs = start_up(library, folder, path, 2 * args.rounds + 1)
        size = os.path.getsize(path)
        rows.append([family, "start, cache written", size, "ms", f"{first:.1f}", "", ""])
        rows.append([family, "start, no cache", size, "ms", f"{plain:.1f}", f"{theirs:.1f}", f"{theirs / plain:.1f}"])
        rows.append([family, "start, cached", size, "ms", f"{cached:.1f}", f"{theirs:.1f}", f"{theirs / cached:.1f}"])
    with open(args.out, "w", newline="") as f:
        f.write(f"# {cpu_model()}; reel {commit()}; tokenizers {tokenizers.__version__}, one thread; "
                f"medians of {args.rounds} interleaved rounds\n")
        families = "" if args.families == FAMILIES else " --families " + " ".join(
            "FOLDER/" + os.path.basename(os.path.normpath(f)) if os.sep in f else f for f in args.families)
        f.write(f"# bench/tokenizer.py --austen Rdata{families} --out bench/results/{os.path.basename(args.out)}\n")
        out = csv.writer(f, lineterminator="\n")
        out.writerow(["tokenizer", "what", "bytes", "unit", "reel", "tokenizers", "ratio"])
        out.writerows(rows)
    print(open(args.out).read(), end="")


main()
