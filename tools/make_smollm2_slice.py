#!/usr/bin/env python3
"""A slice of SmolLM2-135M-Instruct that tests can carry, and its goldens.

usage: make_smollm2_slice.py MODEL.gguf tests/golden/smollm2

Keeps the first N_LAYERS layers with all their heads, the first INTERMEDIATE rows of gate and up (columns of
down), and the first VOCAB tokens with the merges that make them, all in the bytes of the file: whole blocks of
Q4_1 and Q8_0 are copied, none is computed. What is left writes no sense, but it is read, tokenised and evaluated
by the code that the whole model takes. Writes slice.gguf.xz, and slice-tokens.safetensors.xz as
make_smollm2_goldens.py makes it, for the first N_PROMPTS prompts and N_TOKENS tokens each: no token twice in a
continuation, since so little of a model repeats one for ever.
"""
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np

import make_smollm2_goldens as goldens

N_LAYERS = 2
INTERMEDIATE = 128
VOCAB = 512
N_PROMPTS = 6
N_TOKENS = 60


def cut(tensor):
    """The bytes kept of a tensor, [rows, bytes of a row]."""
    kind = tensor.name.split(".")[-2]
    data = tensor.data
    if kind == "token_embd":
        return data[:VOCAB]
    if kind in ("ffn_gate", "ffn_up"):
        return data[:INTERMEDIATE]
    if kind == "ffn_down":
        block, size = gguf.GGML_QUANT_SIZES[tensor.tensor_type]
        return data[:, : INTERMEDIATE // block * size]
    return data


def write_slice(reader, path):
    writer = gguf.GGUFWriter(path, "llama")
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()[:VOCAB]
    merges = reader.fields["tokenizer.ggml.merges"].contents()
    changed = {
        "llama.block_count": N_LAYERS,
        "llama.feed_forward_length": INTERMEDIATE,
        "llama.vocab_size": VOCAB,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": reader.fields["tokenizer.ggml.token_type"].contents()[:VOCAB],
        "tokenizer.ggml.merges": [m for m in merges if m.replace(" ", "") in set(tokens)],
        "general.name": "a slice of SmolLM2 135M Instruct",
    }
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        types = field.types + [None]
        writer.add_key_value(name, changed.get(name, field.contents()), types[0], types[1])
    for tensor in reader.tensors:
        parts = tensor.name.split(".")
        if parts[0] != "blk" or int(parts[1]) < N_LAYERS:
            writer.add_tensor(tensor.name, np.ascontiguousarray(cut(tensor)), raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    model, folder = Path(sys.argv[1]), Path(sys.argv[2])
    path = folder / "slice.gguf"
    write_slice(gguf.GGUFReader(model), path)
    goldens.N_TOKENS, goldens.WALK = N_TOKENS, True
    prompts = (folder / "prompts.txt").read_text().splitlines()[:N_PROMPTS]
    goldens.write(path, prompts, folder / "slice-tokens.safetensors")
    path.chmod(0o644)
    subprocess.run(["xz", "-9e", "--force", str(path)], check=True)


if __name__ == "__main__":
    main()
