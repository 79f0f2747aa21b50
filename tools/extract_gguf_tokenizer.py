#!/usr/bin/env python3
"""Writes the tokenizer in a GGUF file's metadata as a tokenizer.json for Hugging Face tokenizers.

    pip install gguf
    tools/extract_gguf_tokenizer.py MODEL.gguf > tokenizer.json

For files whose tokenizer.ggml.pre is "smollm": each digit alone, then GPT-2's byte-level splitting.
"""
import json
import sys

from gguf import GGUFReader

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def main():
    fields = GGUFReader(sys.argv[1]).fields
    read = lambda key: fields["tokenizer.ggml." + key].contents()
    assert read("model") == "gpt2" and read("pre") == "smollm"
    tokens, types = read("tokens"), read("token_type")
    added = [
        {"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": kind == CONTROL}
        for i, (token, kind) in enumerate(zip(tokens, types)) if kind in (CONTROL, USER_DEFINED)
    ]
    assert set(types) <= {NORMAL, CONTROL, USER_DEFINED}
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True}, BYTE_LEVEL]},
        "post_processor": None,
        "decoder": BYTE_LEVEL,
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {token: i for i, token in enumerate(tokens)},
                  "merges": read("merges")},
    }
    json.dump(document, sys.stdout, ensure_ascii=False, indent=1)
    print()


main()
