#!/usr/bin/env python3
"""What an EAGLE-3 head tells, beside the same composed in PyTorch.

usage: eagle3.py MODEL HEAD TOLD [--device cuda]

MODEL is a folder of weights, HEAD one that bench/eagle3_head.c wrote, TOLD what it wrote with `tell` of both. The model
is run by transformers, whose hidden states are what the head sees; the head is composed here from its definition
(docs/SPECULATION.md). Both in float32, and once more in bf16, as models are run there. Prints for first guesses and for
further ones how far reel's logits are off float32's, and how far those of bf16 are (root of the mean square, over all
logits). The exit status is 0 when the former is at most 1.25 of the latter.
"""
import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file

BOUND = 1.25


class Head:
    def __init__(self, folder, model, dtype, device):
        self.c = json.loads((folder / "config.json").read_text())
        tensors = load_file(folder / "model.safetensors")
        self.meant = torch.arange(len(tensors["d2t"])) + tensors["d2t"]
        self.w = {name: t.to(device, dtype) for name, t in tensors.items() if name != "d2t"}
        self.embedding = self.w.get("embed_tokens.weight", model.get_input_embeddings().weight)
        self.dtype, self.device = dtype, device

    def norm(self, x, name):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.c["rms_norm_eps"])
        return wide.to(self.dtype) * self.w[name]

    def turn(self, x):
        """x [n, heads, dim] of positions 0 to n - 1."""
        dim = x.shape[-1]
        inverse = self.c["rope_theta"] ** (-torch.arange(0, dim, 2, device=x.device, dtype=torch.float64) / dim)
        angle = torch.arange(len(x), device=x.device)[:, None] * inverse
        cos, sin = (f(angle)[:, None].to(x.dtype) for f in (torch.cos, torch.sin))
        a, b = x[..., : dim // 2], x[..., dim // 2 :]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def tell(self, x, ids):
        """What the layer makes of its inputs [n, hidden] and the ids behind them."""
        c, w, layer, dim = self.c, self.w, "midlayer.", self.c["head_dim"]
        embedded = self.norm(self.embedding[ids], layer + "input_layernorm.weight")
        both = torch.cat([embedded, self.norm(x, layer + "hidden_norm.weight")], -1)
        q, k, v = ((both @ w[f"{layer}self_attn.{p}_proj.weight"].T).view(len(x), -1, dim) for p in "qkv")
        q, k = self.turn(q), self.turn(k)
        group = c["num_attention_heads"] // c["num_key_value_heads"]
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        mixed = F.scaled_dot_product_attention(q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), is_causal=True)
        x = x + mixed.transpose(0, 1).reshape(len(x), -1) @ w[layer + "self_attn.o_proj.weight"].T
        y = self.norm(x, layer + "post_attention_layernorm.weight")
        gated = F.silu(y @ w[layer + "mlp.gate_proj.weight"].T) * (y @ w[layer + "mlp.up_proj.weight"].T)
        return x + gated @ w[layer + "mlp.down_proj.weight"].T

    def logits(self, x):
        return self.norm(x, "norm.weight") @ self.w["lm_head.weight"].T


def read_told(path, n_logits):
    kind = np.dtype([("facts", "<i4", 5), ("logits", "<f4", n_logits)])
    return [(int(r["facts"][0]), int(r["facts"][1]), r["facts"][2:].tolist(), r["logits"]) for r in np.fromfile(path, kind)]


@torch.no_grad()
def compute(model_folder, head_folder, told, dtype, device):
    """The logits behind each piece, of the guess asked last."""
    model = transformers.AutoModelForCausalLM.from_pretrained(model_folder, dtype=dtype).to(device).eval()
    head = Head(head_folder, model, dtype, device)
    n, layers = told[-1][0] + 1, model.config.num_hidden_layers
    i = torch.arange(n, dtype=torch.int64, device=device)
    ids = (37 * i * i + 11 * i + 5) % model.config.vocab_size
    states = model.model(ids[None], output_hidden_states=True).hidden_states
    taps = torch.cat([states[t][0] for t in (2, layers // 2, layers - 3)], -1)
    inputs, out = taps @ head.w["fc.weight"].T, []
    for position, guesses, guessed, _ in told:
        x, following = inputs[:position], ids[1 : position + 1]
        for step in range(guesses):
            made = head.tell(x, following)[-1:]
            x = torch.cat([x, made])
            following = torch.cat([following, torch.tensor(guessed[step : step + 1], device=device)])
        out.append(head.logits(made)[0].float().cpu().numpy())
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("head", type=Path)
    parser.add_argument("told", type=Path)
    parser.add_argument("--device", default="cuda")
    a = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    told = read_told(a.told, json.loads((a.head / "config.json").read_text())["draft_vocab_size"])
    exact, off = (compute(a.model, a.head, told, dtype, a.device) for dtype in (torch.float32, torch.bfloat16))
    good = True
    for further in (False, True):
        some = [i for i, t in enumerate(told) if (t[1] > 1) == further]
        rms = [float(np.sqrt(np.mean([np.mean((logits[i] - exact[i]) ** 2) for i in some])))
               for logits in ([t[3] for t in told], off)]
        agree = sum(int(told[i][3].argmax()) == int(exact[i].argmax()) for i in some)
        print(f"{'further' if further else 'first'},{len(some)},{rms[0]:.6f},{rms[1]:.6f},{rms[0] / rms[1]:.3f},{agree}")
        good = good and rms[0] <= BOUND * rms[1]
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
