#!/usr/bin/env python3
"""A Qwen3 folder (bf16 safetensors, one file) as a GGUF file without a tokenizer, so that llama-bench
runs the very weights that `reel bench` runs. Needs numpy and PyPI's gguf.

    qwen3_to_gguf.py FOLDER OUT.gguf
"""

import json
import struct
import sys
from pathlib import Path

import gguf
import numpy as np

NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name):
    stem = name.removesuffix(".weight")
    if not stem.startswith("model.layers."):
        return f"{NAMES[stem]}.weight"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{NAMES[part]}.weight"


def main(folder, out):
    config = json.loads((Path(folder) / "config.json").read_text())
    data = np.memmap(Path(folder) / "model.safetensors", np.uint8, "r")
    n_header = struct.unpack("<Q", data[:8].tobytes())[0]
    header = json.loads(data[8 : 8 + n_header].tobytes())
    header.pop("__metadata__", None)
    rope = config.get("rope_parameters") or config

    w = gguf.GGUFWriter(out, "qwen3")
    w.add_block_count(config["num_hidden_layers"])
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(config["num_attention_heads"])
    w.add_head_count_kv(config["num_key_value_heads"])
    w.add_key_length(config["head_dim"])
    w.add_value_length(config["head_dim"])
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_rope_freq_base(rope["rope_theta"])
    w.add_vocab_size(config["vocab_size"])
    w.add_tokenizer_model("no_vocab")
    w.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        bits = data[8 + n_header + begin : 8 + n_header + end].view(np.uint16)
        if len(entry["shape"]) == 1:  # llama.cpp wants norms in float32
            w.add_tensor(gguf_name(name), (bits.astype(np.uint32) << 16).view(np.float32))
        else:
            w.add_tensor(gguf_name(name), bits.view(np.uint8).reshape(entry["shape"][0], -1),
                         raw_dtype=gguf.GGMLQuantizationType.BF16)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
