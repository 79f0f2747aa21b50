#!/usr/bin/env python3
"""oracle_layer.py FROM TO SHARE: makes of a folder that `reel synthesize FROM qwen3.5-0.8b` wrote one whose
draft layer guesses right with a given chance. For measuring what its guesses cost and are worth.

All layers add nothing, so what follows an id depends on that id alone: the output matrix, which is no longer
tied, has the embedding's rows in the order of one long cycle through the first ids. The draft layer hands the
embedding through and so guesses the same, but for the ids that are marked in their first number: there it adds
noise. Needs numpy."""
import json
import os
import shutil
import struct
import sys

import numpy as np

GUESSED = 65536  # ids that a draft layer guesses among
SPECIAL = range(250, 301)  # the tokenizer's own: they stay out of the cycle
EMBEDDING, FC = "model.language_model.embed_tokens.weight", "mtp.fc.weight"
NOTHING = ("out_proj.weight", "o_proj.weight", "down_proj.weight")


def bf16(x):
    return ((np.ascontiguousarray(x, np.float32).view(np.uint32) + 0x8000) >> 16).astype(np.uint16)


def widened(x):
    return (x.astype(np.uint32) << 16).view(np.float32)


def read(path):
    with open(path, "rb") as file:
        (n,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(n))
    header.pop("__metadata__", None)
    data = np.memmap(path, np.uint8, "r", 8 + n)
    return {name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])])
            for name, entry in header.items()}


def write(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + data.nbytes]}
        at += data.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(np.ascontiguousarray(data).tobytes())


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    source, folder, share = sys.argv[1], sys.argv[2], float(sys.argv[3])
    tensors, rng = read(source + "/model.safetensors"), np.random.default_rng(1)
    vocab, hidden = tensors[EMBEDDING][1]
    embedding = tensors[EMBEDDING][2].view(np.uint16).reshape(vocab, hidden).copy()
    one = float(np.std(widened(embedding[:1000])))
    marked = rng.random(vocab) >= share
    embedding[:, 0] = bf16(np.where(marked, 40 * one, 0))
    ids = np.setdiff1d(np.arange(GUESSED), SPECIAL)
    cycle, before = rng.permutation(ids), np.arange(vocab)
    before[np.roll(cycle, -1)] = cycle
    head = embedding[before]
    head[:, 0] = bf16(np.where(marked[before], one, 0))
    fc = np.zeros((hidden, 2 * hidden), np.float32)
    fc[np.arange(hidden), np.arange(hidden)] = 1
    fc[1:, 0] = 3 * rng.standard_normal(hidden - 1)
    for name, (dtype, shape, data) in tensors.items():
        if name.endswith(NOTHING):
            tensors[name] = (dtype, shape, np.zeros_like(data))
    tensors[EMBEDDING] = ("BF16", (vocab, hidden), embedding)
    tensors[FC] = ("BF16", fc.shape, bf16(fc))
    tensors["lm_head.weight"] = ("BF16", (vocab, hidden), head)
    os.makedirs(folder)
    with open(source + "/config.json") as file:
        config = file.read().replace('"tie_word_embeddings": true', '"tie_word_embeddings": false')
    with open(folder + "/config.json", "w") as file:
        file.write(config)
    shutil.copy(source + "/tokenizer.json", folder)
    write(folder + "/model.safetensors", tensors)


main()
