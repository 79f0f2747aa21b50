#!/usr/bin/env python3
"""Writes tests/fixtures/dtype/blocks.bin: random blocks of every stored type and the float32 values
that the `gguf` package (and numpy, for the scalar types) gives them. Needs numpy, torch and gguf.

    tools/make_dtype_goldens.py tests/fixtures/dtype/blocks.bin

A record is: name (8 bytes, zero padded), number of elements (u32), number of bytes (u32), the bytes,
the elements (f32). A name with a + has blocks whose scales are the largest, the smallest, 0 and subnormal.
"f16<" and "bf16<" hold the other direction: f32 in, rounded scalars out.
"""
import struct
import sys

import gguf
import numpy as np
import torch

rng = np.random.default_rng(20251)
T = gguf.GGMLQuantizationType
# type -> (blocks, byte offsets of its f16 scales)
BLOCKS = {
    "q8_0": (T.Q8_0, 12, [0]), "q4_0": (T.Q4_0, 12, [0]), "q4_1": (T.Q4_1, 12, [0, 2]),
    "q5_0": (T.Q5_0, 12, [0]), "q5_1": (T.Q5_1, 12, [0, 2]), "q4_k": (T.Q4_K, 3, [0, 2]),
    "q5_k": (T.Q5_K, 3, [0, 2]), "q6_k": (T.Q6_K, 3, [208]),
}
LATER = {
    "q2_k": (T.Q2_K, 3, [80, 82]), "q3_k": (T.Q3_K, 3, [108]), "iq4_nl": (T.IQ4_NL, 12, [0]),
    "iq4_xs": (T.IQ4_XS, 3, [0]), "mxfp4": (T.MXFP4, 256, []), "nvfp4": (T.NVFP4, 64, []),
}
EDGES = np.array([0.0, -0.0, 2.0 ** -24, -(2.0 ** -24), 1023 * 2.0 ** -24, 2.0 ** -14, 65504, -65504], dtype=np.float16)


def record(out, name, n, raw, values):
    out.write(struct.pack("<8sII", name.encode(), n, len(raw)))
    out.write(raw)
    out.write(values)


def later_types(out):
    """Random blocks, those of MXFP4 and NVFP4 with every code of a scale, then blocks with scales at the edges."""
    later = np.random.default_rng(20252)
    for name, (kind, n_blocks, scales) in LATER.items():
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        raw = later.integers(0, 256, (n_blocks, size), dtype=np.uint8)
        for at in scales:
            raw[:, at:at + 2] = (later.standard_normal(n_blocks) * 0.03).astype(np.float16).view(np.uint8).reshape(n_blocks, 2)
        if kind in (T.MXFP4, T.NVFP4):
            raw[:, :256 // n_blocks] = np.arange(256, dtype=np.uint8).reshape(n_blocks, -1)
        values = gguf.quants.dequantize(raw.reshape(-1), kind).astype(np.float32)
        record(out, name, n_blocks * elements, raw.tobytes(), values.tobytes())
    for name, (kind, _, scales) in {**BLOCKS, **LATER}.items():
        if not scales:
            continue
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        raw = later.integers(0, 256, (len(EDGES), size), dtype=np.uint8)
        for i, at in enumerate(scales):
            raw[:, at:at + 2] = np.roll(EDGES, i).view(np.uint8).reshape(-1, 2)
        values = gguf.quants.dequantize(raw.reshape(-1), kind).astype(np.float32)
        record(out, name + "+", len(EDGES) * elements, raw.tobytes(), values.tobytes())


def main():
    with open(sys.argv[1], "wb") as out:
        for name, (kind, n_blocks, scales) in BLOCKS.items():
            elements, size = gguf.GGML_QUANT_SIZES[kind]
            raw = rng.integers(0, 256, (n_blocks, size), dtype=np.uint8)
            for at in scales:
                scale = (rng.standard_normal(n_blocks) * 0.03).astype(np.float16)
                scale[0] = 2.0 ** -24  # a subnormal scale
                raw[:, at:at + 2] = scale.view(np.uint8).reshape(n_blocks, 2)
            values = gguf.quants.dequantize(raw.reshape(-1), kind).astype(np.float32)
            record(out, name, n_blocks * elements, raw.tobytes(), values.tobytes())

        f32 = rng.standard_normal(64).astype(np.float32)
        record(out, "f32", 64, f32.tobytes(), f32.tobytes())
        bits = np.concatenate([np.arange(0, 65536, 61), [0, 1, 0x3ff, 0x400, 0x7bff, 0x7c00, 0x8000, 0xfc00]])
        bits = bits.astype(np.uint16)
        bits = bits[~np.isnan(bits.view(np.float16))]
        record(out, "f16", len(bits), bits.tobytes(), bits.view(np.float16).astype(np.float32).tobytes())
        wide = bits.astype(np.uint32) << 16
        keep = ~np.isnan(wide.view(np.float32))
        record(out, "bf16", int(keep.sum()), bits[keep].tobytes(), wide[keep].tobytes())

        # Random bit patterns around the ranges that matter, and exact halves between neighbours.
        x = (rng.standard_normal(500) * 10.0 ** rng.uniform(-9, 6, 500)).astype(np.float32)
        ties = (rng.integers(0, 0x7bff, 200).astype(np.uint16)).view(np.float16).astype(np.float32)
        following = np.nextafter(ties.astype(np.float16), np.float16(np.inf)).astype(np.float32)
        edges = np.array([65504, 65519.996, 65520, 65536, 1e38, -1e38, np.inf, -np.inf, 2.0 ** -25, 2.0 ** -24,
                          3 * 2.0 ** -25, 2.0 ** -14, 2.0 ** -14 - 2.0 ** -26, 0.0, -0.0], dtype=np.float32)
        x = np.concatenate([x, (ties + following) / 2, edges]).astype(np.float32)
        with np.errstate(over="ignore"):
            half = x.astype(np.float16)
        record(out, "f16<", len(x), half.tobytes(), x.tobytes())
        ties = (rng.integers(0, 1 << 31, 200).astype(np.uint32) & 0x7f7f0000 | 0x8000).view(np.float32)
        x = np.concatenate([x, ties]).astype(np.float32)
        brain = torch.from_numpy(x).to(torch.bfloat16).view(torch.int16).numpy()
        record(out, "bf16<", len(x), brain.tobytes(), x.tobytes())
        later_types(out)


main()
