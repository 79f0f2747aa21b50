#!/usr/bin/env python3
"""Synthetic weights, the same bits as kernels/synthetic.h and src/model/synthetic.c.

usage: synthetic.py              prints the list that tests/golden/test_synthetic.c checks:
                                 seed, tensor name, rows, columns, SHA-256 of the bf16 bytes
"""
import hashlib

import numpy as np

DEVIATION = 75674.0
GAIN_SCALE = np.float32(1.5 / 1048576.0)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MASK = (1 << 64) - 1


def mix(x):
    """SplitMix64's finaliser of a uint64 array."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def mix_one(x):
    return int(mix(np.array([x & MASK], np.uint64))[0])


def key(seed, name):
    fnv = 0xCBF29CE484222325
    for byte in name.encode():
        fnv = ((fnv ^ byte) * 0x100000001B3) & MASK
    return np.uint64(mix_one(seed ^ mix_one(fnv)))


def draws(tensor_key, n):
    index = np.arange(1, n + 1, dtype=np.uint64)
    x = mix(tensor_key + index * GOLDEN)
    total = sum(((x >> np.uint64(s)) & np.uint64(0xFFFF)).astype(np.int64) for s in (0, 16, 32, 48))
    return 2 * total - 262139


def recipe(name, columns, centred):
    """(offset, scale) of a tensor, float32. `centred`: a model whose gains are stored less 1."""
    if name.endswith("linear_attn.A_log"):
        return np.float32(-1.5), np.float32(10.0 / 1048576.0)
    if name.endswith("linear_attn.dt_bias"):
        return np.float32(-1.5), np.float32(20.0 / 1048576.0)
    if name.endswith(("q_proj.bias", "k_proj.bias", "v_proj.bias")) and "audio_tower" not in name:
        return np.float32(0), np.float32(10.0 / 1048576.0)
    if name.endswith(".bias"):
        return np.float32(0), GAIN_SCALE
    if name.endswith(("norm.weight", "ln_post.weight")) or "_norm_" in name:
        plain = name.endswith("linear_attn.norm.weight") or not centred
        return np.float32(1 if plain else 0), GAIN_SCALE
    spread = 1.0 if name.endswith(("embed_tokens.weight", "lm_head.weight")) else 0.75
    if ".conv2d" in name or ".conv_out." in name:
        spread = 1.5
    return np.float32(0), np.float32(spread / np.sqrt(np.float64(columns)) / DEVIATION)


def tensor_bits(seed, name, shape, centred=False):
    """The tensor as bf16 bits, uint16 [shape]."""
    columns = int(np.prod(shape[1:])) if len(shape) == 4 else shape[-1]
    offset, scale = recipe(name, columns, centred)
    values = offset + draws(key(seed, name), int(np.prod(shape))).astype(np.float32) * scale
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return rounded.astype(np.uint16).reshape(shape)


def main():
    for seed in (0, 1, 0xFEDCBA9876543210):
        for name, shape in (
            ("model.embed_tokens.weight", (320, 64)),
            ("model.layers.0.self_attn.q_proj.weight", (128, 64)),
            ("model.layers.27.mlp.down_proj.weight", (96, 200)),
            ("model.layers.1.self_attn.q_norm.weight", (32,)),
            ("model.norm.weight", (1024,)),
            ("lm_head.weight", (1003, 96)),
        ):
            digest = hashlib.sha256(tensor_bits(seed, name, shape).astype("<u2").tobytes())
            rows = shape[0] if len(shape) == 2 else 1
            print(f"{seed:016x} {name} {rows} {shape[-1]} {digest.hexdigest()}")


if __name__ == "__main__":
    main()
