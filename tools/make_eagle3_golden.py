#!/usr/bin/env python3
"""An EAGLE-3 head of random weights for a miniature model, and what it tells: tests/golden/eagle3.safetensors.xz.

usage: make_eagle3_golden.py tests/golden

Composed from the definition in numpy (arXiv 2503.01840 and the layer of the files that are published): slot t takes the
residual stream in front of three of the model's layers at position t, joined and multiplied by fc, and the embedding of
the id of position t + 1; both are normed and go side by side into q, k and v; the rest is a layer of Llama on the former.
A further step takes what the layer made of the slot before, not normed, in place of fc's product. The model is
tests/golden/models/q3-b.json with the weights of synthetic.py (seed 1). In float64, and once more with every result
rounded to bf16, as PyTorch computes in bf16. The file is the head's model.safetensors (config.json: tests/golden/
test_eagle3.c), and has beside its tensors

  golden.ids     i32 [N]        the tokens
  golden.logits  f32 [N - 1, V] of slots 0 to N - 2, among the head's V ids
  golden.steps   f32 [P, 2, V]  of the two steps behind slots golden.at [P]: the ids are the likeliest before
  golden.error   f32 [2]        rms of the bf16 run's error of the former and of the latter
"""
import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import synthetic

SEED, N_IDS, TAPS = 1, 64, (1, 1, 2)
HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE, IDS, EPS, THETA = 4, 2, 32, 160, 300, 1e-5, 10000.0
STEPS_AT = list(range(2, N_IDS - 1, 6))


def widened(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def bf16_bits(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def rounded(x):
    return widened(bf16_bits(x))


def exactly(x):
    return x


class Maths:
    """What layers are made of; `to` rounds every result."""

    def __init__(self, to):
        self.to = to

    def norm(self, x, gain, eps):
        return self.to(self.to(x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)) * gain)

    def product(self, x, w):
        return self.to(x @ w.T)

    def turn(self, x, theta, position):
        half = x.shape[-1] // 2
        inv = (1 / np.float32(theta) ** (np.arange(0, 2 * half, 2, dtype=np.float32) / np.float32(2 * half)))
        angle = (np.asarray(position, np.float32)[:, None, None] * inv.astype(np.float32)).astype(np.float64)
        cos, sin = self.to(np.cos(angle)), self.to(np.sin(angle))
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([self.to(self.to(a * cos) - self.to(b * sin)),
                               self.to(self.to(b * cos) + self.to(a * sin))], -1)

    def attend(self, q, k, v):
        """[n, heads, dim] of positions 0 .. n - 1."""
        group, n = q.shape[1] // k.shape[1], len(q)
        k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
        scores = self.to(np.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[-1]))
        scores = np.where(np.arange(n)[:, None] >= np.arange(n), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights = self.to(weights / weights.sum(-1, keepdims=True))
        return self.to(np.einsum("hqk,khd->qhd", weights, v)).reshape(n, -1)

    def mlp(self, x, w, name):
        gate, up = self.product(x, w[name + "gate_proj.weight"]), self.product(x, w[name + "up_proj.weight"])
        gated = self.to(self.to(gate / (1 + np.exp(-gate))) * up)
        return self.product(gated, w[name + "down_proj.weight"])


class Model:
    def __init__(self, path):
        self.c = c = json.loads(path.read_text())
        hidden, dim = c["hidden_size"], c["head_dim"]
        q, kv, ffn = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim, c["intermediate_size"]
        self.w = {}
        self.make("model.embed_tokens.weight", c["vocab_size"], hidden)
        for i in range(c["num_hidden_layers"]):
            layer = f"model.layers.{i}."
            for name, *shape in (("input_layernorm", hidden), ("post_attention_layernorm", hidden),
                                 ("self_attn.q_norm", dim), ("self_attn.k_norm", dim),
                                 ("self_attn.q_proj", q, hidden), ("self_attn.k_proj", kv, hidden),
                                 ("self_attn.v_proj", kv, hidden), ("self_attn.o_proj", hidden, q),
                                 ("mlp.gate_proj", ffn, hidden), ("mlp.up_proj", ffn, hidden),
                                 ("mlp.down_proj", hidden, ffn)):
                self.make(f"{layer}{name}.weight", *shape)

    def make(self, name, *shape):
        self.w[name] = widened(synthetic.tensor_bits(SEED, name, shape))

    def taps(self, m, ids):
        """[n, 3 hidden]"""
        c, w, n = self.c, self.w, len(ids)
        x, kept, dim, eps = w["model.embed_tokens.weight"][ids], {}, c["head_dim"], c["rms_norm_eps"]
        for i in range(c["num_hidden_layers"]):
            layer = f"model.layers.{i}."
            kept[i] = x
            normed = m.norm(x, w[layer + "input_layernorm.weight"], eps)
            q, k, v = (m.product(normed, w[f"{layer}self_attn.{p}_proj.weight"]).reshape(n, -1, dim) for p in "qkv")
            q, k = (m.turn(m.norm(y, w[f"{layer}self_attn.{p}_norm.weight"], eps), c["rope_theta"], range(n))
                    for p, y in (("q", q), ("k", k)))
            x = m.to(x + m.product(m.attend(q, k, v), w[layer + "self_attn.o_proj.weight"]))
            x = m.to(x + m.mlp(m.norm(x, w[layer + "post_attention_layernorm.weight"], eps), w, layer + "mlp."))
        return np.concatenate([kept[i] for i in TAPS], -1)


class Head:
    def __init__(self, model):
        hidden = model.c["hidden_size"]
        self.embedding = model.w["model.embed_tokens.weight"]
        self.bits = {}
        for name, *shape in (("fc", hidden, 3 * hidden), ("midlayer.hidden_norm", hidden), ("norm", hidden),
                             ("midlayer.input_layernorm", hidden), ("midlayer.post_attention_layernorm", hidden),
                             ("midlayer.self_attn.q_proj", HEADS * HEAD_DIM, 2 * hidden),
                             ("midlayer.self_attn.k_proj", KV_HEADS * HEAD_DIM, 2 * hidden),
                             ("midlayer.self_attn.v_proj", KV_HEADS * HEAD_DIM, 2 * hidden),
                             ("midlayer.self_attn.o_proj", hidden, HEADS * HEAD_DIM),
                             ("midlayer.mlp.gate_proj", INTERMEDIATE, hidden),
                             ("midlayer.mlp.up_proj", INTERMEDIATE, hidden),
                             ("midlayer.mlp.down_proj", hidden, INTERMEDIATE), ("lm_head", IDS, hidden)):
            self.bits[name + ".weight"] = synthetic.tensor_bits(SEED, name + ".weight", tuple(shape))
        self.w = {name: widened(bits) for name, bits in self.bits.items()}
        self.ids = np.arange(IDS) * 3 + np.arange(IDS) % 2  # the model's id of each

    def tell(self, m, x, next_ids):
        """What the layer makes of its inputs x [n, hidden] of slots 0 .. n - 1."""
        w, layer, n = self.w, "midlayer.", len(x)
        both = np.concatenate([m.norm(self.embedding[next_ids], w[layer + "input_layernorm.weight"], EPS),
                               m.norm(x, w[layer + "hidden_norm.weight"], EPS)], -1)
        q, k, v = (m.product(both, w[f"{layer}self_attn.{p}_proj.weight"]).reshape(n, -1, HEAD_DIM) for p in "qkv")
        mixed = m.attend(m.turn(q, THETA, range(n)), m.turn(k, THETA, range(n)), v)
        x = m.to(x + m.product(mixed, w[layer + "self_attn.o_proj.weight"]))
        return m.to(x + m.mlp(m.norm(x, w[layer + "post_attention_layernorm.weight"], EPS), w, layer + "mlp."))

    def logits(self, m, x):
        return m.product(m.norm(x, self.w["norm.weight"], EPS), self.w["lm_head.weight"])


def run(model, head, m, ids, told=None):
    """Logits of all slots and of two steps behind some; told: the ids that these follow, or None."""
    inputs = m.product(model.taps(m, ids)[:-1], head.w["fc.weight"])
    made = head.tell(m, inputs, ids[1:])
    logits, steps, followed = head.logits(m, made), [], []
    for i, t in enumerate(STEPS_AT):
        x, following, row, last = inputs[: t + 1], list(ids[1 : t + 2]), [], made[t]
        for step in range(2):
            before = head.logits(m, last[None])[0]
            following.append(head.ids[before.argmax()] if told is None else told[i][step])
            x = np.concatenate([x, last[None]])
            last = head.tell(m, x, np.array(following))[-1]
            row.append(head.logits(m, last[None])[0])
        steps.append(row)
        followed.append(following[-2:])
    return logits, np.array(steps), followed


def write(path, tensors):
    header, at = {}, 0
    for name, (dtype, array) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())


def main(folder):
    model = Model(folder / "models" / "q3-b.json")
    head = Head(model)
    draws = synthetic.mix(np.arange(1, N_IDS + 1, dtype=np.uint64) * synthetic.GOLDEN)
    ids = (draws % np.uint64(model.c["vocab_size"])).astype(np.int64)
    logits, steps, told = run(model, head, Maths(exactly), ids)
    off, steps_off, _ = run(model, head, Maths(rounded), ids, told)
    error = [np.sqrt(((off - logits) ** 2).mean()), np.sqrt(((steps_off - steps) ** 2).mean())]
    tensors = {name: ("BF16", bits) for name, bits in head.bits.items()}
    tensors["d2t"] = ("I64", head.ids - np.arange(IDS))
    tensors["golden.ids"] = ("F32", ids.astype(np.float32))
    tensors["golden.at"] = ("F32", np.array(STEPS_AT, np.float32))
    tensors["golden.logits"] = ("F32", logits.astype(np.float32))
    tensors["golden.steps"] = ("F32", steps.astype(np.float32))
    tensors["golden.error"] = ("F32", np.array(error, np.float32))
    path = folder / "eagle3.safetensors"
    write(path, tensors)
    subprocess.run(["xz", "-9e", "--force", str(path)], check=True)
    print(json.dumps({"logits to": round(float(np.abs(logits).max()), 2), "bf16 rms errors": [float(e) for e in error],
                      "different ids": len({int(i) for row in told for i in row})}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
