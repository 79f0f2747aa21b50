#!/usr/bin/env python3
"""SentencePiece tokenizers and hashes of the ids that Hugging Face and SentencePiece give for them.

    pip install sentencepiece protobuf tokenizers transformers
    pip install --no-deps mistral-common==1.13.1
    tools/make_spm_goldens.py

Writes to tests/fixtures/tokenizers: mistral/tokenizer.model.xz, the file of Mistral 7B v0.3 as
mistral-common carries it; spm-small/tokenizer.model.xz, trained here, with tokens that have a space
inside; spm-goldens.bin.xz. The same bytes every time, as long as the packages are the same.

The strings are those of goldens.bin and then GENERATED more, put together from them and BITS by a
generator that tests/golden/test_spm.c repeats. What the file holds for each of the two models:

    for each of LAYOUTS: a hash of ids for each block of strings, then a hash of decoded texts
    a hash for each block of what the sentencepiece package gives
    decodings of broken bytes: u32 number, then each u16 ids, u16 bytes, u32 ids, text

A hash is the 32-bit FNV-1a of a block's ids (and a mark behind each string), or of its texts.
"""
import io
import json
import lzma
import os
import random
import struct
import sys

import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2
from transformers.convert_slow_tokenizer import generate_merges

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "fixtures", "tokenizers")
MISTRAL = "mistral_instruct_tokenizer_240323.model.v3"
LAYOUTS = ["prepend", "first", "always", "never", "first split"]
BLOCK = 256
GENERATED = 20000
BITS = ["<s>", "</s>", "<unk>", "[INST]", "[/INST]", "[TOOL_CALLS]", "<tag>", "<0x41>", " ", "  ", "   ", " " * 17,
        " " * 40, "\u2581", "\u2581\u2581", "\u2581the", "\n", "\n\n", "\t", "\u3000", "\u0f40", "\U0001f600",
        "\U0001f9d1\u200d\U0001f4bb", "e\u0301", "\x7f", "the the", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]


def read_strings():
    data = lzma.open(os.path.join(HERE, "goldens.bin.xz")).read()
    n = struct.unpack_from("<I", data, 8)[0]
    lengths = struct.unpack_from(f"<{n}I", data, 12)
    at, out = 12 + 4 * n, []
    for length in lengths:
        out.append(data[at : at + length].decode())
        at += length
    return out


def generated(base):
    state = 1

    def draw(n):
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (state >> 33) % n

    for _ in range(GENERATED):
        text = ""
        for _ in range(1 + draw(7)):
            if draw(5) < 3:
                text += BITS[draw(len(BITS))]
            else:
                whole = base[draw(len(base))]
                text += whole[: 1 + draw(30)]
        yield text


def fnv(data, h=0x811C9DC5):
    for byte in data:
        h = (h ^ byte) * 0x01000193 & 0xFFFFFFFF
    return h


def blocks(rows):
    """rows: bytes for each string."""
    hashes = [fnv(b"".join(rows[i : i + BLOCK])) for i in range(0, len(rows), BLOCK)]
    return struct.pack(f"<{len(hashes)}I", *hashes)


def packed_ids(ids):
    return struct.pack(f"<{len(ids) + 1}I", *ids, 0xFFFFFFFF)


def metaspace(layout):
    scheme = layout.split()[0]
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": "split" in layout}


def tokenizer_json(model, layout):
    """What transformers' converters write for Llama: `prepend` with "legacy", otherwise Metaspace."""
    vocab = {p.piece: i for i, p in enumerate(model.pieces)}
    merges = generate_merges(vocab, [(p.piece, p.score) for p in model.pieces])
    added = [{"id": i, "content": p.piece, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": p.type != 4}
             for i, p in enumerate(model.pieces) if p.type in (2, 3, 4)]
    prepend = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "\u2581"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}
    decoders = [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
                {"type": "Fuse"}]
    if layout != "never":
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": prepend if layout == "prepend" else None,
        "pre_tokenizer": None if layout == "prepend" else metaspace(layout),
        "post_processor": None, "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                  "vocab": vocab, "merges": merges}})


def train_small(strings):
    """Few tokens, so that many characters become bytes; tokens may have spaces inside."""
    out = io.BytesIO()
    latin = [s for s in strings if len(s) > 8 and max(s) < "\u0250" and "\0" not in s]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(latin), model_writer=out, model_type="bpe", vocab_size=1500,
        byte_fallback=True, character_coverage=0.999, split_by_whitespace=False, split_digits=True,
        allow_whitespace_only_pieces=True, remove_extra_whitespaces=False, normalization_rule_name="identity",
        user_defined_symbols=["<tag>", "[INST]"], control_symbols=["[/INST]"], num_threads=1,
        max_sentence_length=1000000, minloglevel=2)
    return out.getvalue()


def broken_decodings(model, tokenizer, rnd):
    """Rows of byte tokens that are whole characters, or that hold no character at all. In a row of
    both the reference takes the whole characters back, which a stream cannot."""
    byte_id = {int(p.piece[3:5], 16): i for i, p in enumerate(model.pieces) if p.type == 6}
    words = [i for i, p in enumerate(model.pieces) if p.type == 1]
    out = []
    for _ in range(400):
        ids = []
        for _ in range(rnd.randint(1, 6)):
            kind = rnd.randint(0, 3)
            if kind == 0:
                ids += [byte_id[b] for b in chr(rnd.choice([0x20, 0x41, 0xE9, 0x20AC, 0x1F600, 0x10FFFF])).encode()]
            elif kind == 1:
                whole = chr(rnd.choice([0xE9, 0x20AC, 0x1F600, 0x10FFFF])).encode()
                ids += [byte_id[b] for b in whole[: rnd.randint(1, len(whole) - 1)]]
            elif kind == 2:
                ids += [byte_id[rnd.choice([0x80, 0xBF, 0xC0, 0xC1, 0xF5, 0xFF])] for _ in range(rnd.randint(1, 3))]
            ids += [rnd.choice(words) for _ in range(rnd.randint(1, 3))]
        if rnd.randint(0, 2) == 0:
            ids += [byte_id[b] for b in "\U0001f600".encode()[: rnd.randint(1, 3)]]
        out.append((ids, tokenizer.decode(ids).encode()))
    data = struct.pack("<I", len(out))
    for ids, text in out:
        data += struct.pack(f"<HH{len(ids)}I", len(ids), len(text), *ids) + text
    return data


def goldens_of(serialized, strings):
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(serialized)
    data = b""
    for layout in LAYOUTS:
        tokenizer = tokenizers.Tokenizer.from_str(tokenizer_json(model, layout))
        ids = [e.ids for e in tokenizer.encode_batch(strings, add_special_tokens=False)]
        data += blocks([packed_ids(i) for i in ids])
        data += blocks([tokenizer.decode(i, skip_special_tokens=True).encode() + b"\xff" for i in ids])
    processor = sentencepiece.SentencePieceProcessor(model_proto=serialized)
    data += blocks([packed_ids(i) for i in processor.encode(strings)])
    tokenizer = tokenizers.Tokenizer.from_str(tokenizer_json(model, "prepend"))
    return data + broken_decodings(model, tokenizer, random.Random(1))


def write(name, data):
    os.makedirs(os.path.dirname(os.path.join(HERE, name)), exist_ok=True)
    with open(os.path.join(HERE, name + ".xz"), "wb") as f:
        f.write(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))


def main():
    import importlib.util

    folder = importlib.util.find_spec("mistral_common").submodule_search_locations[0]
    with open(os.path.join(folder, "data", MISTRAL), "rb") as f:
        mistral = f.read()
    strings = read_strings()
    small = train_small(strings)
    strings += generated(list(strings))
    write("mistral/tokenizer.model", mistral)
    write("spm-small/tokenizer.model", small)
    data = b"RSPMGOLD" + struct.pack("<II", len(strings), BLOCK)
    for serialized in (mistral, small):
        data += goldens_of(serialized, strings)
    write("spm-goldens.bin", data)
    print(len(strings), "strings,", len(small), "bytes of small model,", len(data), "bytes of goldens", file=sys.stderr)


if __name__ == "__main__":
    main()
