#!/usr/bin/env python3
"""A Qwen3.5 model folder as GGUF, by llama.cpp's own converter: tests/golden/q35-g.gguf.xz.

    reel synthesize /tmp/q35-g tests/golden/models/q35-g.json --seed 1
    make_qwen35_gguf.py /tmp/q35-g tests/golden/q35-g.gguf.xz --llama-cpp LLAMA_CPP_SOURCES

A draft layer of zeros is added, as published folders have one, and three merges. The converter
knows pre-tokenizers by a hash over a real vocabulary; that of a synthetic folder is said to be
Qwen3.5's. Needs what the converter needs: torch, transformers, safetensors, numpy.
"""

import argparse
import json
import lzma
import shutil
import sys
import tempfile
from pathlib import Path


def add_draft_layer(folder):
    import torch
    from safetensors.torch import load_file, save_file

    config = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    attention = f"model.layers.{config['layer_types'].index('full_attention')}."
    for name, value in list(tensors.items()):
        if name.startswith(attention):
            tensors["mtp.layers.0." + name[len(attention):]] = torch.zeros_like(value)
    hidden = config["hidden_size"]
    tensors["mtp.fc.weight"] = torch.zeros(hidden, 2 * hidden, dtype=torch.bfloat16)
    for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        tensors[f"mtp.{name}.weight"] = torch.zeros(hidden, dtype=torch.bfloat16)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config["mtp_num_hidden_layers"] = 1
    (folder / "config.json").write_text(json.dumps(config))


def add_merges(folder):
    """A synthetic folder's tokenizer has none, and gguf-py leaves an empty list out. Control tokens
    come behind all others, as in a published vocabulary."""
    merges = (["t", "h"], ["th", "e"], ["i", "n"])
    tokenizer, config = (json.loads((folder / f"{name}.json").read_text())
                         for name in ("tokenizer", "config"))
    model = tokenizer["model"]
    for pair in merges:
        model["vocab"]["".join(pair)] = len(model["vocab"])
        model["merges"].append(pair)
    for token in tokenizer["added_tokens"]:
        token["id"] += len(merges)
    config["eos_token_id"] += len(merges)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "config.json").write_text(json.dumps(config))


def prepared(folder, work):
    """A copy with what is missing in it, the tokenizer_config.json that transformers wants too."""
    copy = Path(work) / "model"
    shutil.copytree(folder, copy)
    add_draft_layer(copy)
    add_merges(copy)
    added = json.loads((copy / "tokenizer.json").read_text())["added_tokens"]
    (copy / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "added_tokens_decoder": {str(token.pop("id")): token for token in added}}))
    return copy


def convert(folder, out, sources):
    sys.path.insert(0, str(Path(sources) / "gguf-py"))
    sys.path.insert(0, str(sources))
    import convert_hf_to_gguf
    from conversion.base import TextModel

    TextModel.get_vocab_base_pre = lambda self, tokenizer: "qwen35"
    sys.argv = ["convert_hf_to_gguf.py", str(folder), "--outfile", str(out), "--outtype", "bf16"]
    convert_hf_to_gguf.main()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("out", help="ends in .xz: packed")
    parser.add_argument("--llama-cpp", required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        made = Path(work) / "model.gguf"
        convert(prepared(args.folder, work), made, args.llama_cpp)
        data = made.read_bytes()
    if args.out.endswith(".xz"):
        data = lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)
    Path(args.out).write_bytes(data)
    print(f"{args.out}: {len(data):,} bytes")


if __name__ == "__main__":
    main()
