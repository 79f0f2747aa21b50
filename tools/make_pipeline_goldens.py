#!/usr/bin/env python3
"""Makes the small tokenizers of tests/fixtures/tokenizers/pipelines, and what Hugging Face
`tokenizers` makes of the strings of goldens.bin.xz with each of them: pipelines.bin.xz.

    pip install tokenizers
    tools/make_pipeline_goldens.py                    # hashes, of the tokenizers that are there
    tools/make_pipeline_goldens.py --train [TEKKEN]   # the tokenizers as well
    tools/make_pipeline_goldens.py --compare LIBREEL FOLDER...

Each has the pipeline of a family of models, as its tokenizer.json writes it, and 2,000 tokens that are
trained here on the goldens' sentences. "tekken" has the first 4,000 ranks of Mistral's own vocabulary
instead (TEKKEN is tekken_240911.json of the package mistral-common). --compare runs all strings, and 5,000 with
the vocabulary's own added tokens, through libreel.so and the reference, for vocabularies that are too large to keep
(tools/package_tokenizers.py).

pipelines.bin, little-endian: "RTOKPIPE", u32 number of strings, of strings a block, of pipelines; then
for each pipeline, in the order of their names, u32 a block (FNV-1a over the number of ids of each string
and its ids, with what the post-processor adds, all as 4 bytes), and a bit a string, lowest first: whether
decoding gives the string back.
"""
import argparse
import base64
import ctypes
import hashlib
import itertools
import json
import lzma
import os
import random
import struct
import sys

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
HERE = os.path.join(ROOT, "tests", "fixtures", "tokenizers")
BLOCK = 64

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
END = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + END
QWEN2 = LLAMA3.replace("{1,3}", "")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + r"+|[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER +
          r"*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + END)
O200K = (r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+" + CONTRACTIONS + r"?|[^\r\n\p{L}\p{N}]?" + UPPER + "+" +
         LOWER + "*" + CONTRACTIONS + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + END)
DEEPSEEK3 = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+""" +
             r"| ?[\p{P}\p{S}]+[\r\n]*" + END)
CJK = "[一-龥ࠀ-一가-\ud7ff]+"
LETTERS = ("A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿ\u0386\u0388-\u038a\u038c\u038e-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-Ჺ"
           "Ჽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ\u1f5f-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌ\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0"
           "-\u1fecῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮ\u2cf2\u2cf3Ꙁ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿ"
           "ﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃")
BAILING = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*" +
           r"|\s*[\r\n]|\s+(?!\S)|\s+")
EXAONE = (CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}" +
          r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+")


def split(regex, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: regex}, "behavior": behavior, "invert": invert}


def byte_level(use_regex, prefix=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": use_regex}


def digits(individual):
    return {"type": "Digits", "individual_digits": individual}


def punctuation(behavior):
    return {"type": "Punctuation", "behavior": behavior}


def around(before, after=""):
    tokens = [t for t in (before, after) if t]
    single = ([{"SpecialToken": {"id": before, "type_id": 0}}] if before else []) + [
        {"Sequence": {"id": "A", "type_id": 0}}] + ([{"SpecialToken": {"id": after, "type_id": 0}}] if after else [])
    return {"type": "TemplateProcessing", "single": single, "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {t: {"id": t, "ids": [t], "tokens": [t]} for t in tokens}}


def token(content, special=True, **conditions):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": not special,
            "special": special, **conditions}


ENDS = [token("<|endoftext|>"), token("<|im_start|>"), token("<|im_end|>")]
RUNS = [token(" " * n, False) for n in range(24, 1, -1)]
NFC = {"type": "NFC"}

# name: normalizer, pre-tokenizers, post-processor, ignore_merges, added tokens
PIPELINES = {
    "bailing": (None, [split(BAILING), byte_level(False)], None, False, ENDS),
    "command-r": (NFC, [digits(True), byte_level(True)], around("<|im_start|>"), False, ENDS),
    "deepseek-coder": (None, [split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(CJK), digits(True),
                              byte_level(False)], around("<|im_start|>"), False, ENDS),
    "deepseek-llm": (None, [split("[\r\n]"), split(r"\s?[" + LETTERS + "]+"),
                            split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"), split(r"\s+$"), split(CJK), digits(True),
                            byte_level(False)], around("<|im_start|>"), False, ENDS),
    "deepseek-v3": (None, [split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK3), byte_level(False)], None,
                    False, ENDS + [token("<think>", False), token("</think>", False)]),
    "exaone": (None, [split(EXAONE), byte_level(False)], None, False, ENDS),
    "falcon": (None, [punctuation("Contiguous"), byte_level(True), digits(False), split("[0-9][0-9][0-9]")], None, False,
               ENDS),
    "gpt-2": (None, [byte_level(True)], byte_level(True), False, ENDS[:1]),
    "gpt-4o": (None, [split(O200K), byte_level(False)], None, False, ENDS),
    "llama-3": (None, [split(LLAMA3), byte_level(False)],
                {"type": "Sequence", "processors": [byte_level(True, True), around("<|im_start|>")]}, True, ENDS),
    "neox": (NFC, [byte_level(True)], None, False, ENDS[:1] + RUNS),
    "phi": (None, [byte_level(True)], None, False,
            [token("<|endoftext|>", rstrip=True), token("<|im_start|>", lstrip=True, rstrip=True),
             token("<|im_end|>", lstrip=True), token("<think>", False, single_word=True),
             token("</think>", False, rstrip=True)] + RUNS),
    "prefix": (None, [byte_level(True, True)], around("<|im_start|>", "<|im_end|>"), False, ENDS),
    "qwen-embedding": (NFC, [split(QWEN2), byte_level(False)],
                       {"type": "Sequence", "processors": [byte_level(True), around("", "<|endoftext|>")]}, False, ENDS),
    "stages": (None, [split(" ", "MergedWithNext", kind="String"), split(r"\p{Lu}", "MergedWithPrevious"),
                      split(r"[^.,]+", "MergedWithNext", True), digits(False), punctuation("Isolated"),
                      split(r"\p{Han}", "Contiguous"), {"type": "WhitespaceSplit"}, byte_level(False)], None, False,
               ENDS),
    "tekken": (None, [split(TEKKEN), byte_level(False)], around("<|im_start|>"), True, ENDS),
}


def goldens():
    """The strings of goldens.bin."""
    with lzma.open(os.path.join(HERE, "goldens.bin.xz")) as f:
        data = f.read()
    n = struct.unpack_from("<I", data, 8)[0]
    at, texts = 12 + 4 * n, []
    for length in struct.unpack_from("<%dI" % n, data, 12):
        texts.append(data[at : at + length].decode())
        at += length
    return texts


def corpus():
    names = {}
    source = open(os.path.join(ROOT, "tools", "make_tokenizer_goldens.py")).read()
    exec(source[source.index("SENTENCES = ") : source.index("def fragments")], names)
    rnd = random.Random("reel pipelines 1")
    return [" ".join(rnd.choice(names["SENTENCES"] + names["CODE"]) for _ in range(3)) for _ in range(4000)]


def alphabet():
    """The character that each byte is written as."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in printable]
    return {b: chr(c) for b, c in [*zip(printable, printable), *zip(rest, itertools.count(0x100))]}


ALPHABET = alphabet()


def to_alphabet(data):
    return "".join(ALPHABET[b] for b in data)


def tiktoken_model(ranks):
    """As transformers converts such ranks: every pair that makes a token, in the order of the token's rank."""
    merges = []
    for text, rank in ranks.items():
        pairs = [(text[:i], text[i:]) for i in range(1, len(text)) if text[:i] in ranks and text[i:] in ranks]
        merges += sorted(pairs, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
    return ({to_alphabet(text): rank for text, rank in ranks.items()},
            [[to_alphabet(a), to_alphabet(b)] for a, b in merges])


def trained(normalizer, steps):
    tok = tokenizers.Tokenizer(models.BPE())
    whole = json.loads(tok.to_str())
    whole["normalizer"] = normalizer
    whole["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
    tok = tokenizers.Tokenizer.from_str(json.dumps(whole))
    trainer = trainers.BpeTrainer(vocab_size=2000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tok.train_from_iterator(corpus(), trainer)
    model = json.loads(tok.to_str())["model"]
    return model["vocab"], model["merges"]


def described(name, tekken):
    normalizer, steps, post, ignore_merges, added = PIPELINES[name]
    if name == "tekken":
        with open(tekken) as f:
            entries = json.load(f)["vocab"][:4000]
        vocab, merges = tiktoken_model({base64.b64decode(e["token_bytes"]): e["rank"] for e in entries})
    else:
        vocab, merges = trained(normalizer, steps)
    if name == "llama-3":  # some words that no merge gives: what ignore_merges is for
        merges = [m for i, m in enumerate(merges) if i % 7]
    ids = {t["content"]: len(vocab) + i for i, t in enumerate(added)}
    post = json.loads(json.dumps(post)) if post else None
    for step in (post or {}).get("processors", [post] if post else []):
        for special in step.get("special_tokens", {}).values():
            special["ids"] = [ids[special["id"]]]
    pre = steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": ids[t["content"]], **t} for t in added],
        "normalizer": normalizer, "pre_tokenizer": pre, "post_processor": post,
        "decoder": byte_level(True, True),
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "ignore_merges": ignore_merges, "vocab": vocab, "merges": merges},
    }


def train(tekken):
    for name in PIPELINES:
        if name == "tekken" and not tekken:
            continue
        folder = os.path.join(HERE, "pipelines-" + name)
        os.makedirs(folder, exist_ok=True)
        text = json.dumps(described(name, tekken), ensure_ascii=False, indent=0).encode()
        with open(os.path.join(folder, "tokenizer.json.xz"), "wb") as f:
            f.write(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))


def fnv32(data):
    h = 0x811C9DC5
    for byte in data:
        h = (h ^ byte) * 0x01000193 & 0xFFFFFFFF
    return h


def hashes(tok, texts):
    out, bits = bytearray(), bytearray((len(texts) + 7) // 8)
    for first in range(0, len(texts), BLOCK):
        data = bytearray()
        for i in range(first, min(first + BLOCK, len(texts))):
            ids = tok.encode(texts[i]).ids
            data += struct.pack("<%dI" % (1 + len(ids)), len(ids), *ids)
            plain = tok.encode(texts[i], add_special_tokens=False).ids
            if tok.decode(plain, skip_special_tokens=False) == texts[i]:
                bits[i // 8] |= 1 << i % 8
        out += struct.pack("<I", fnv32(data))
    return bytes(out) + bytes(bits)


def make():
    texts = goldens()
    names = sorted(PIPELINES)
    out = bytearray(b"RTOKPIPE" + struct.pack("<III", len(texts), BLOCK, len(names)))
    for name in names:
        with lzma.open(os.path.join(HERE, "pipelines-" + name, "tokenizer.json.xz")) as f:
            tok = tokenizers.Tokenizer.from_buffer(f.read())
        out += hashes(tok, texts)
        print(name, file=sys.stderr)
    with open(os.path.join(HERE, "pipelines.bin.xz"), "wb") as f:
        f.write(lzma.compress(bytes(out), preset=9 | lzma.PRESET_EXTREME))


class Reel:
    """libreel.so's tokenizer of a folder."""

    def __init__(self, library, folder):
        self.lib, self.handle = ctypes.CDLL(library), ctypes.c_void_p()
        self.lib.reel_token_bytes.restype = ctypes.c_void_p
        self.room = (ctypes.c_int32 * (1 << 20))()
        self.n, self.error = ctypes.c_size_t(), ctypes.create_string_buffer(1024)
        self.must(self.lib.reel_tokenizer_open(ctypes.byref(self.handle), folder.encode(), None, self.error))

    def must(self, status):
        if status:
            raise SystemExit(self.error.raw[4:].split(b"\0")[0].decode())

    def ids(self, text):
        data = text.encode()
        self.must(self.lib.reel_encode(self.handle, data, ctypes.c_size_t(len(data)), 3, self.room,
                                       ctypes.c_size_t(len(self.room)), ctypes.byref(self.n), self.error))
        return self.room[: self.n.value]

    def text(self, ids):
        out = b""
        for i in ids:
            at = self.lib.reel_token_bytes(self.handle, ctypes.c_int32(i), ctypes.byref(self.n))
            out += ctypes.string_at(at, self.n.value) if at else b"?"
        return out.decode(errors="replace")


def with_added(tok, texts):
    """Two strings with one of the vocabulary's own added tokens between them, and sometimes spaces."""
    rnd = random.Random("reel pipelines 2")
    added = [t["content"] for t in json.loads(tok.to_str())["added_tokens"]]
    space = ["", "", " ", "\n", "  \t"]
    return [rnd.choice(texts) + rnd.choice(space) + rnd.choice(added) + rnd.choice(space) + rnd.choice(texts)
            for _ in range(5000)]


def compare(library, folders):
    print("# " + tokenizers.__version__ + " is the version of tokenizers; strings as tools/make_pipeline_goldens.py says")
    print("tokenizer,tokens,sha256,strings,ids differ,decoded to themselves by tokenizers,of these not by reel")
    for folder in folders:
        path = os.path.join(folder, "tokenizer.json")
        tok, reel = tokenizers.Tokenizer.from_file(path), Reel(library, folder)
        texts = goldens()
        texts += with_added(tok, texts)
        wrong = back = lost = 0
        around = len(tok.encode("").ids)
        for text in texts:
            ids, theirs = reel.ids(text), tok.encode(text).ids
            if ids != theirs:
                wrong += 1
                if wrong < 5:
                    print(repr(text[:200]), ids[:40], theirs[:40], file=sys.stderr)
            if tok.decode(tok.encode(text, add_special_tokens=False).ids, skip_special_tokens=False) == text:
                back += 1  # what the post-processors here add stands in front
                lost += reel.text(ids[around:]) != text
        with open(path, "rb") as f:
            digest = hashlib.sha256(f.read()).hexdigest()
        name = os.path.basename(os.path.normpath(folder))
        print("%s,%d,%s,%d,%d,%d,%d" % (name, tok.get_vocab_size(), digest, len(texts), wrong, back, lost), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train", nargs="?", const="", metavar="TEKKEN")
    parser.add_argument("--compare", nargs="+", metavar="PATH")
    args = parser.parse_args()
    if args.compare:
        compare(args.compare[0], args.compare[1:])
        return
    if args.train is not None:
        train(args.train)
    make()


if __name__ == "__main__":
    main()
