#!/usr/bin/env python3
"""Greedy continuations of SmolLM2-135M-Instruct by Hugging Face transformers in float32, from the
weights of a GGUF file, dequantised.

usage: make_smollm2_goldens.py MODEL.gguf tests/golden/smollm2

Reads prompts.txt in the output folder (one user message a line), renders each with the chat
template of the file, and continues it by 200 tokens, stop tokens included, one token at a time.
Writes tokens.safetensors.xz. For prompt P, all as f32 (exact for ids):
  P.prompt   [n]    ids of the rendered prompt
  P.ids      [200]  the id with the largest logit, lowest id on ties (see WALK)
  P.logprob  [200]  its natural log-probability
  P.logit    [200]  its logit
  P.near     [200, 3]  the ids with the next three logits
  P.margin   [200, 3]  how far those are below
Needs numpy, torch, transformers, tokenizers, gguf, jinja2, safetensors and the xz program.
"""
import hashlib
import subprocess
import sys
from pathlib import Path

import gguf
import jinja2
import numpy as np
import safetensors.numpy
import tokenizers
import torch
import transformers

N_TOKENS = 200
N_NEAR = 3
# Continue by the best id that the continuation does not have yet, for models that would repeat one for ever;
# P.best is then the id with the largest logit, and what is said above holds for P.best instead of P.ids.
WALK = False

HF_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def rotate_halves(rows, n_heads):
    """GGUF stores the rows of q and k so that pairs are (2i, 2i+1); back to (i, i + half)."""
    pairs = rows.reshape(n_heads, -1, 2, rows.shape[1])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def load_model(reader):
    field = lambda name: reader.fields[name].contents()
    config = transformers.LlamaConfig(
        hidden_size=field("llama.embedding_length"),
        num_hidden_layers=field("llama.block_count"),
        num_attention_heads=field("llama.attention.head_count"),
        num_key_value_heads=field("llama.attention.head_count_kv"),
        intermediate_size=field("llama.feed_forward_length"),
        vocab_size=field("llama.vocab_size"),
        max_position_embeddings=field("llama.context_length"),
        rms_norm_eps=field("llama.attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": field("llama.rope.freq_base")},
        tie_word_embeddings=True,
    )
    n_heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    state = {}
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if tensor.name == "token_embd.weight":
            name = "model.embed_tokens.weight"
        elif tensor.name == "output_norm.weight":
            name = "model.norm.weight"
        else:
            _, layer, kind, _ = tensor.name.split(".")
            if kind in n_heads:
                values = rotate_halves(values, n_heads[kind])
            name = f"model.layers.{layer}.{HF_NAMES[kind]}.weight"
        state[name] = torch.from_numpy(np.ascontiguousarray(values))
    model = transformers.LlamaForCausalLM(config).eval()
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    return model


def load_tokenizer(reader):
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    merges = reader.fields["tokenizer.ggml.merges"].contents()
    types = reader.fields["tokenizer.ggml.token_type"].contents()
    assert reader.fields["tokenizer.ggml.pre"].contents() == "smollm"
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            vocab={token: i for i, token in enumerate(tokens)},
            merges=[tuple(merge.split(" ")) for merge in merges],
        )
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Digits(individual_digits=True),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    control = int(gguf.TokenType.CONTROL)
    tokenizer.add_special_tokens([t for t, kind in zip(tokens, types) if kind == control])
    return tokenizer


@torch.inference_mode()
def continue_prompt(model, prompt):
    out = {name: [] for name in ("ids", "logprob", "logit", "near", "margin")}
    if WALK:
        out["best"] = []
    ids, cache = torch.tensor([prompt]), None
    for _ in range(N_TOKENS):
        step = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache, logits = step.past_key_values, step.logits[0, -1]
        best = int(torch.argmax(logits))
        near = torch.topk(logits.index_fill(0, torch.tensor([best]), -torch.inf), N_NEAR)
        follows = best
        if WALK:
            out["best"].append(best)
            follows = int(torch.argmax(logits.index_fill(0, torch.tensor(out["ids"], dtype=int), -torch.inf)))
        out["ids"].append(follows)
        out["logprob"].append(float(torch.log_softmax(logits.double(), -1)[best]))
        out["logit"].append(float(logits[best]))
        out["near"].append(near.indices.tolist())
        out["margin"].append((logits[best] - near.values).tolist())
        ids = torch.tensor([[follows]])
    return out


def write(gguf_path, prompts, path):
    """The goldens of `prompts`, continued by the model of a GGUF file, to path and the .xz behind it."""
    torch.set_num_threads(1)
    reader = gguf.GGUFReader(gguf_path)
    model, tokenizer = load_model(reader), load_tokenizer(reader)
    template = jinja2.Template(reader.fields["tokenizer.chat_template"].contents())
    tensors = {}
    for i, line in enumerate(prompts):
        text = template.render(
            messages=[{"role": "user", "content": line}], add_generation_prompt=True
        )
        prompt = tokenizer.encode(text, add_special_tokens=False).ids
        result = continue_prompt(model, prompt)
        print(f"{i}: {line}\n{tokenizer.decode(result['ids'])!r}", flush=True)
        tensors[f"{i}.prompt"] = np.array(prompt, np.float32)
        for name, values in result.items():
            tensors[f"{i}.{name}"] = np.array(values, np.float32)
    metadata = {
        "model_sha256": hashlib.sha256(gguf_path.read_bytes()).hexdigest(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    safetensors.numpy.save_file(tensors, path, metadata)
    path.chmod(0o644)
    subprocess.run(["xz", "-9e", "--force", str(path)], check=True)


def main():
    model, folder = Path(sys.argv[1]), Path(sys.argv[2])
    prompts = (folder / "prompts.txt").read_text().splitlines()
    write(model, prompts, folder / "tokens.safetensors")


if __name__ == "__main__":
    main()
