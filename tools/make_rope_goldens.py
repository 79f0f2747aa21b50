#!/usr/bin/env python3
"""Writes tests/fixtures/rope/frequencies.txt: rotary frequencies as Hugging Face transformers computes
them in float32. Needs torch and transformers.

    tools/make_rope_goldens.py tests/fixtures/rope/frequencies.txt

A line is: theta, head_dim, factor, low, high, original context (factor 0: no scaling), then head_dim / 2
hexadecimal floats.
"""
import sys

import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

PLAIN = [(1e6, 128), (5e6, 128), (1e5, 64), (1e4, 64), (1e4, 16), (1e4, 2), (1e6, 256)]
LLAMA3 = [(5e5, 128, 8.0, 1.0, 4.0, 8192), (5e5, 64, 32.0, 1.0, 4.0, 8192), (1e4, 16, 8.0, 1.0, 4.0, 64),
          (1e4, 32, 2.5, 1.5, 3.0, 100)]


def line(out, head, values):
    out.write(" ".join([str(x) for x in head] + [float(x).hex() for x in values]) + "\n")


with open(sys.argv[1], "w") as out:
    for theta, dim in PLAIN:
        inv = 1.0 / (theta ** (torch.arange(0, dim, 2, dtype=torch.float) / dim))
        line(out, [theta, dim, 0, 0, 0, 0], inv)
    for theta, dim, factor, low, high, context in LLAMA3:
        config = LlamaConfig(hidden_size=2 * dim, num_attention_heads=2, head_dim=dim, rope_parameters={
            "rope_theta": theta, "rope_type": "llama3", "factor": factor, "low_freq_factor": low,
            "high_freq_factor": high, "original_max_position_embeddings": context})
        inv, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
        line(out, [theta, dim, factor, low, high, context], inv)
