#!/usr/bin/env python3
"""What the draft layer (multi-token prediction) of a miniature Qwen3.5 tells, in PyTorch.

usage: make_draft_golden.py tests/golden [ID]

transformers skips the layer's tensors, so it is composed here of that package's decoder layer and norms, as vLLM and
llama.cpp wire it: slot t takes the hidden state of position t behind the model's final norm and the id of position
t + 1, embedding half first, turns by position t, sees slots 0 to t, and tells the id of position t + 2 by the model's
own head. A further step takes what the layer made in place of the hidden state. Weights come from synthetic.py (seed 1),
ids are those of make_goldens.py. <ID>.safetensors.xz (ID: q35-d) receives, f32:

  ids              [N]       the tokens
  at, logits, ...            as in make_goldens.py, of slots 0 to N - 2
  second.first     [P]       of some slots: the likeliest id that the first step told,
  second.at, .logits, ...    and logits of the step behind it, in slot `at` + 1
"""
import json
import subprocess
import sys
from pathlib import Path

import make_goldens as goldens
import numpy as np
import safetensors.torch
import synthetic
import torch
import transformers
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5DecoderLayer, Qwen3_5RMSNorm

N_TOKENS = 96
SECOND_AT = list(range(0, 95, 6))


class DraftLayer(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        config = type(model.config)(**(model.config.to_dict() | {
            "num_hidden_layers": 1, "layer_types": ["full_attention"]}))
        config._attn_implementation = "sdpa"
        hidden = config.hidden_size
        self.config = config
        self.pre_fc_norm_embedding = Qwen3_5RMSNorm(hidden, eps=config.rms_norm_eps)
        self.pre_fc_norm_hidden = Qwen3_5RMSNorm(hidden, eps=config.rms_norm_eps)
        self.fc = torch.nn.Linear(2 * hidden, hidden, bias=False)
        self.layers = torch.nn.ModuleList([Qwen3_5DecoderLayer(config, 0)])
        self.norm = Qwen3_5RMSNorm(hidden, eps=config.rms_norm_eps)
        state = {}
        for name, values in self.state_dict().items():
            bits = synthetic.tensor_bits(goldens.SEED, "mtp." + name, tuple(values.shape), True)
            state[name] = torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).float()
        self.load_state_dict(state)

    def forward(self, model, hidden, next_ids):
        """What is behind the norm in each slot, of hidden states [T, hidden] of positions 0 .. T - 1."""
        n = len(next_ids)
        embedding = self.pre_fc_norm_embedding(model.model.embed_tokens(next_ids))
        x = self.fc(torch.cat([embedding, self.pre_fc_norm_hidden(hidden)], dim=-1))[None]
        positions = torch.arange(n)[None]
        mask = torch.full((n, n), torch.finfo(x.dtype).min, dtype=x.dtype).triu(1)[None, None]
        turns = model.model.rotary_emb(x, positions)
        out = self.layers[0](x, position_embeddings=turns, attention_mask=mask, position_ids=positions)
        return self.norm(out[0] if isinstance(out, tuple) else out)[0]


@torch.inference_mode()
def first_step(model, draft, kind, ids):
    model.set_attn_implementation(kind)
    draft.config._attn_implementation = kind
    hidden = model.model(input_ids=ids[None], use_cache=False).last_hidden_state[0]
    told = draft(model, hidden[:-1], ids[1:])
    return hidden, told, model.lm_head(told).float()


@torch.inference_mode()
def second_step(model, draft, kind, ids, first):
    hidden, told, _ = first_step(model, draft, kind, ids)
    rows = []
    for t, id in zip(SECOND_AT, first):
        states = torch.cat([hidden[: t + 1], told[t : t + 1]])
        out = draft(model, states, torch.cat([ids[1 : t + 2], torch.tensor([id])]))
        rows.append(model.lm_head(out[-1]).float())
    return torch.stack(rows)


def main(folder, name="q35-d"):
    model, half = goldens.build(folder / "models" / f"{name}.json")
    draft = DraftLayer(model).eval()
    half_draft = DraftLayer(model).eval().to(torch.bfloat16)
    ids = goldens.token_ids(N_TOKENS, model.config.vocab_size)
    kinds = ("eager", "sdpa")
    exact = first_step(model, draft, "sdpa", ids)[2]
    goldens.close(first_step(model, draft, "eager", ids)[2], exact, "the other kind of attention")
    rounded = torch.stack([first_step(half, half_draft, kind, ids)[2] for kind in kinds])
    at = list(range(N_TOKENS - 1))
    tensors = goldens.figures(exact, rounded, at, at) | {"ids": ids.float()}
    first = [int(exact[t].argmax()) for t in SECOND_AT]
    second = second_step(model, draft, "sdpa", ids, first)
    rounded = torch.stack([second_step(half, half_draft, kind, ids, first) for kind in kinds])
    told = goldens.figures(second, rounded, SECOND_AT)
    tensors |= {f"second.{key}": value for key, value in told.items()}
    tensors["second.first"] = torch.tensor(first, dtype=torch.float32)
    path = folder / f"{name}.safetensors"
    metadata = {"torch": torch.__version__, "transformers": transformers.__version__}
    safetensors.torch.save_file(tensors, path, metadata)
    path.chmod(0o644)
    subprocess.run(["xz", "-9e", "--force", str(path)], check=True)
    print(json.dumps({"logits to": round(float(exact.abs().max()), 2), "different first ids": len(set(first)),
                      "bf16 rms error": round(float(tensors["bf16.rms"].mean()), 4),
                      "of second steps": round(float(told["bf16.rms"].mean()), 4)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
