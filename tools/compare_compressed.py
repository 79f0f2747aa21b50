#!/usr/bin/env python3
"""Compares folders that `reel quantize` wrote with what transformers loads of them.

    compare_compressed.py FOLDER...

Needs torch, transformers and compressed-tensors. Every weight that transformers has in float32,
after its package took the codes apart, has to equal code times scale of the bytes in the files, bit
by bit. That those bytes are reel's codes and scales, tests/unit/test_quantized_folder.c holds.
"""
import glob
import json
import struct
import sys

import numpy as np
import torch
from transformers import AutoModelForCausalLM


def tensors(folder):
    out = {}
    for path in sorted(glob.glob(folder + "/*.safetensors")):
        with open(path, "rb") as f:
            data = f.read()
        (n,) = struct.unpack("<Q", data[:8])
        for name, t in json.loads(data[8 : 8 + n]).items():
            if name != "__metadata__":
                first, last = t["data_offsets"]
                out[name] = (t["shape"], np.frombuffer(data[8 + n + first : 8 + n + last], np.uint8))
    return out


def e4m3(x):
    exponent, fraction = (x >> 3) & 15, (x & 7).astype(np.float64)
    size = np.where(exponent == 0, fraction * 2.0**-9, (8 + fraction) * 2.0 ** (exponent - 10.0))
    return np.where(x & 128, -size, size).astype(np.float32)


def values(t, base):
    """code * scale as float32 [rows, columns]"""
    shape, scales = t[base + ".weight_scale"]
    scales = (scales.view("<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    if base + ".weight_packed" in t:
        rows, columns = t[base + ".weight_shape"][1].view("<i8")
        codes = t[base + ".weight_packed"][1].reshape(rows, -1)
        if codes.shape[1] < columns:
            codes = np.stack([codes & 15, codes >> 4], -1).reshape(rows, -1).astype(np.float32) - 8
        else:
            codes = codes.astype(np.float32) - 128
        codes = codes[:, :columns]
    else:
        shape, codes = t[base + ".weight"]
        codes = e4m3(codes).reshape(shape)
    return codes * np.repeat(scales, codes.shape[1] // scales.shape[1], 1)


def compare(folder):
    t = tensors(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model(torch.tensor([[1, 2, 3, 4]]))  # the package takes the codes apart at the first use
    ends = {name[: -len(".weight_scale")] for name in t if name.endswith(".weight_scale")}
    differing = 0
    for name, module in model.named_modules():
        base = next((e for e in ends if e.endswith(name.removeprefix("model."))), None)
        if not isinstance(module, torch.nn.Linear) or base is None:
            continue
        ends.remove(base)
        if not np.array_equal(values(t, base), module.weight.detach().numpy()):
            print(f"{folder}: {name} differs")
            differing += 1
    for base in sorted(ends):
        print(f"{folder}: {base} is nowhere in the model")
    n = sum(name.endswith(".weight_scale") for name in t)
    print(f"{folder}: {n} matrices, {differing} differ, {len(ends)} were not found")
    return differing == 0 and not ends


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(not all([compare(folder) for folder in sys.argv[1:]]))
