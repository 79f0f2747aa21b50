#!/usr/bin/env python3
"""A Llama-family GGUF file as a model folder: weights dequantised and rounded to bf16 in one
model.safetensors, with config.json and tokenizer.json. Then transformers and reel can be asked
about the very same weights.

usage: gguf_to_bf16.py MODEL.gguf FOLDER

Reads F32, F16, Q8_0 and Q4_1, the types that SmolLM2-135M-Instruct.Q4_1.gguf holds. Needs numpy.
"""
import json
import struct
import sys
from pathlib import Path

import numpy as np

F32, F16, Q4_1, Q8_0 = 0, 1, 3, 8
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
CONTROL, USER_DEFINED = 3, 4
HF_NAMES = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
              "use_regex": True}


class Gguf:
    """fields: metadata by name; tensors: name -> (shape, type, bytes), shape with rows first."""

    def __init__(self, path):
        self.data = np.memmap(path, np.uint8, "r")
        self.at = 0
        magic, version = self.read("4s"), self.read("I")
        assert magic == b"GGUF" and version in (2, 3), f"{path}: not GGUF 2 or 3"
        n_tensors, n_fields = self.read("Q"), self.read("Q")
        self.fields = {self.text(): self.value(self.read("I")) for _ in range(n_fields)}
        entries = [self.entry() for _ in range(n_tensors)]
        align = self.fields.get("general.alignment", 32)
        start = (self.at + align - 1) // align * align
        self.tensors = {name: (shape, kind, self.data[start + offset :])
                        for name, shape, kind, offset in entries}

    def read(self, code):
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def text(self):
        n = self.read("Q")
        self.at += n
        return self.data[self.at - n : self.at].tobytes().decode()

    def value(self, kind):
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            return self.read(SCALARS[kind])
        of, n = self.read("I"), self.read("Q")
        return [self.value(of) for _ in range(n)]

    def entry(self):
        name = self.text()
        shape = [self.read("Q") for _ in range(self.read("I"))][::-1]
        return name, shape, self.read("I"), self.read("Q")

    def values(self, name):
        """float32 [shape]"""
        shape, kind, data = self.tensors[name]
        n = int(np.prod(shape))
        if kind in (F32, F16):
            width, code = (4, "<f4") if kind == F32 else (2, "<f2")
            return data[: n * width].view(code).astype(np.float32).reshape(shape)
        if kind == Q8_0:
            blocks = data[: n // 32 * 34].reshape(-1, 34)
            scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
            return (blocks[:, 2:].view(np.int8).astype(np.float32) * scale).reshape(shape)
        if kind == Q4_1:
            blocks = data[: n // 32 * 20].reshape(-1, 20)
            scales = blocks[:, :4].copy().view("<f2").astype(np.float32)
            quants = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], 1)
            return (quants.astype(np.float32) * scales[:, :1] + scales[:, 1:]).reshape(shape)
        raise SystemExit(f"{name}: GGUF type {kind} is none of F32, F16, Q8_0, Q4_1")


def bf16_bits(values):
    """Rounded to nearest, ties to even; uint16."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16).astype("<u2")


def rotate_halves(rows, n_heads):
    """GGUF stores the rows of q and k so that pairs are (2i, 2i+1); back to (i, i + half)."""
    pairs = rows.reshape(n_heads, -1, 2, rows.shape[1])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def hf_name(name):
    plain = {"token_embd.weight": "model.embed_tokens.weight", "output.weight": "lm_head.weight",
             "output_norm.weight": "model.norm.weight"}
    if name in plain:
        return plain[name]
    _, layer, kind, _ = name.split(".")
    return f"model.layers.{layer}.{HF_NAMES[kind]}.weight"


def hf_values(gguf, name):
    heads = {"attn_q": "head_count", "attn_k": "head_count_kv"}
    kind = name.split(".")[-2]
    values = gguf.values(name)
    if kind not in heads:
        return values
    return rotate_halves(values, gguf.fields["llama.attention." + heads[kind]])


def write_weights(gguf, path):
    header, at = {}, 0
    for name, (shape, _, _) in gguf.tensors.items():
        n = 2 * int(np.prod(shape))
        header[hf_name(name)] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name in gguf.tensors:
            out.write(bf16_bits(hf_values(gguf, name)).tobytes())


def config_of(gguf):
    field = lambda name: gguf.fields["llama." + name]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": field("embedding_length"),
        "num_hidden_layers": field("block_count"),
        "num_attention_heads": field("attention.head_count"),
        "num_key_value_heads": field("attention.head_count_kv"),
        "intermediate_size": field("feed_forward_length"),
        "vocab_size": field("vocab_size"),
        "max_position_embeddings": field("context_length"),
        "rms_norm_eps": field("attention.layer_norm_rms_epsilon"),
        "rope_theta": field("rope.freq_base"),
        "tie_word_embeddings": "output.weight" not in gguf.tensors,
        "hidden_act": "silu",
        "bos_token_id": gguf.fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": gguf.fields["tokenizer.ggml.eos_token_id"],
        "torch_dtype": "bfloat16",
    }


def tokenizer_of(gguf):
    read = lambda key: gguf.fields["tokenizer.ggml." + key]
    assert read("model") == "gpt2" and read("pre") == "smollm", "a tokenizer unlike SmolLM2's"
    tokens, types = read("tokens"), read("token_type")
    added = [
        {"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": kind == CONTROL}
        for i, (token, kind) in enumerate(zip(tokens, types)) if kind in (CONTROL, USER_DEFINED)
    ]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True}, BYTE_LEVEL]},
        "post_processor": None,
        "decoder": BYTE_LEVEL,
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {token: i for i, token in enumerate(tokens)},
                  "merges": read("merges")},
    }


def main(path, folder):
    gguf, folder = Gguf(path), Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(gguf, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config_of(gguf), indent=2))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_of(gguf), ensure_ascii=False))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
