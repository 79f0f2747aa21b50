"""Models that tools/gpu_check.py runs: synthetic shapes, and models whose winners are known."""
import json
import struct
import subprocess
from pathlib import Path

import numpy as np

ONE, MINUS_ONE = 0x3F80, 0xBF80  # bf16
PART = 16384  # rows written at a time


def token_ids(n, vocab, start=0):
    """As tools/make_goldens.py draws them."""
    x = np.arange(start + 1, start + n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) % np.uint64(vocab)).astype(np.int32)


def synthesized(reel, folder, shape, seed=0):
    """The folder of a synthetic model, made when it is not there; shape is a name or a config."""
    folder = Path(folder)
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(shape, dict):
        config = folder.with_name(folder.name + ".config.json")
        config.write_text(json.dumps(shape))
        shape = config
    subprocess.run([str(reel), "synthesize", str(folder), str(shape), "--seed", str(seed)],
                   check=True, stdout=subprocess.DEVNULL)
    return folder


class Weights:
    """A safetensors file's bf16 tensors, mapped for writing: weights[name] is uint16 [shape]."""

    def __init__(self, path):
        with open(path, "rb") as file:
            (n_header,) = struct.unpack("<Q", file.read(8))
            self.header = json.loads(file.read(n_header))
        self.header.pop("__metadata__", None)
        self.bytes = np.memmap(path, np.uint8, "r+")[8 + n_header :]

    def __getitem__(self, name):
        entry = self.header[name]
        begin, end = entry["data_offsets"]
        return self.bytes[begin:end].view(np.uint16).reshape(entry["shape"])

    def names(self, part):
        return [name for name in self.header if part in name]


def fill_codes(rows):
    """Random +1 and -1 in a bf16 matrix: any two rows are far from equal."""
    random = np.random.default_rng(7)
    for at in range(0, len(rows), PART):
        bits = random.integers(0, 2, rows[at : at + PART].shape, np.uint8)
        rows[at : at + PART] = np.where(bits, np.uint16(ONE), np.uint16(MINUS_ONE))


def winner_model(reel, folder, config, duplicates=0):
    """A model whose layers add nothing (out and down projections are 0), so that the final hidden
    state is the token's embedding, a row of +1 and -1.

    Tied: the winner after id t is t. Untied: the head's row next(t) is t's embedding, so the winner
    after t is next(t) = (t + step) mod n, which visits all n = vocab - duplicates slots in turn;
    the last `duplicates` rows equal the first ones, and must lose to them as the lowest id wins."""
    fresh = not Path(folder).exists()
    folder = synthesized(reel, folder, config)
    n = config["vocab_size"] - duplicates
    step = next_step(n)
    if fresh:
        weights = Weights(folder / "model.safetensors")
        for name in weights.names("o_proj") + weights.names("down_proj"):
            weights[name][:] = 0
        weights["model.norm.weight"][:] = ONE
        embedding = weights["model.embed_tokens.weight"]
        fill_codes(embedding)
        if not config["tie_word_embeddings"]:
            head = weights["lm_head.weight"]
            source = (np.arange(len(head)) % n - step) % n
            for at in range(0, len(head), PART):
                head[at : at + PART] = embedding[source[at : at + PART]]
    return folder, n, step


def next_step(n):
    """Below n and without a common factor, far from 1."""
    step = int(n * 0.618) | 1
    while np.gcd(step, n) != 1:
        step += 1
    return step
