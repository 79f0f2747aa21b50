#!/usr/bin/env python3
"""A Qwen3 folder (bf16 safetensors, one file) as a GGUF file, so that llama-bench runs the very weights that
`reel bench` runs, and llama-quantize makes others of them that both open. Of the tokenizer only the words are
written, not the merges: what a benchmark reads is ids. Needs numpy and PyPI's gguf.

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


def add_words(w, folder, n):
    """Words of tokenizer.json as those of a byte-level BPE, and one merge, which GGUF wants; filled up to n."""
    tokenizer = json.loads((Path(folder) / "tokenizer.json").read_text())
    words, types = [f"[filler {i}]" for i in range(n)], [gguf.TokenType.UNUSED] * n
    for word, i in tokenizer["model"]["vocab"].items():
        words[i], types[i] = word, gguf.TokenType.NORMAL
    for added in tokenizer["added_tokens"]:
        words[added["id"]], types[added["id"]] = added["content"], gguf.TokenType.CONTROL
    if "ab" not in words:
        words[-1], types[-1] = "ab", gguf.TokenType.NORMAL
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(words)
    w.add_token_types(types)
    w.add_token_merges(["a b"])
    w.add_eos_token_id(words.index("<|im_end|>"))


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
    add_words(w, folder, config["vocab_size"])
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
