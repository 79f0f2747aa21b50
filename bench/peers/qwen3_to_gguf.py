#!/usr/bin/env python3
"""Writes a bf16 Qwen3 folder (config.json, model.safetensors) as GGUF without a tokenizer, the same
bits, for llama-bench: bench/peers/qwen3_to_gguf.py FOLDER OUT.gguf. Needs numpy and gguf."""
import json
import struct
import sys

import gguf
import numpy as np

NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
}  # fmt: skip
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_name(name):
    stem = name.removesuffix(".weight")
    if stem in WHOLE:
        return WHOLE[stem] + ".weight"
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{NAMES[rest]}.weight"


def main(folder, out):
    config = json.load(open(f"{folder}/config.json"))
    data = np.memmap(f"{folder}/model.safetensors", dtype=np.uint8, mode="r")
    (size,) = struct.unpack("<Q", data[:8].tobytes())
    header = json.loads(data[8 : 8 + size].tobytes())
    header.pop("__metadata__", None)

    writer = gguf.GGUFWriter(out, "qwen3")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    for name, entry in header.items():
        if entry["dtype"] != "BF16":
            sys.exit(f"{name} is {entry['dtype']}, only BF16 is converted")
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        bits = data[begin:end].view(np.uint16).reshape(entry["shape"])
        if bits.ndim == 1:
            writer.add_tensor(gguf_name(name), (bits.astype(np.uint32) << 16).view(np.float32))
        else:
            writer.add_tensor(gguf_name(name), bits, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
