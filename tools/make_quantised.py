#!/usr/bin/env python3
"""Small models in every quantised format of safetensors that reel reads, and what each weight is worth.

    PYTHONPATH=compressed_tensors:bitsandbytes:autoawq python3 tools/make_quantised.py tests/golden/quantised

Each folder gets a config.json, a model.safetensors and an expected.json. The last has, for each layer
with codes, a hash (FNV-1a, 64 bits) of its dequantised weights as float32, row by row, and the first
four of them. The formats' own packages make codes and values: compressed-tensors 0.20.0, bitsandbytes
0.50.2, and autoawq 0.2.7's packing_utils. GPTQModel and ModelOpt do not install without a GPU: their
part is written here from gptqmodel/nn_modules/qlinear/__init__.py (dequantize_weight), utils/model.py
(convert_gptq_v2_to_v1_format_module) and modelopt's NVFP4QTensor.dequantize. Qwen's FP8 is
transformers' Fp8Dequantize: e4m3 times the scale of the block.

Packages compute in the dtype of the scales and then round to it. Here scales are widened to float32
first, so that no value is rounded below its definition.
"""

import importlib.util
import json
import os
import sys

import torch
from safetensors.torch import save_file

HIDDEN, INTER, HEADS, KV_HEADS, DIM, VOCAB = 64, 96, 2, 1, 32, 32
generator = torch.Generator()


def shapes():
    kv = KV_HEADS * DIM
    layer = "model.layers.0."
    return {
        layer + "self_attn.q_proj": (HEADS * DIM, HIDDEN),
        layer + "self_attn.k_proj": (kv, HIDDEN),
        layer + "self_attn.v_proj": (kv, HIDDEN),
        layer + "self_attn.o_proj": (HIDDEN, HEADS * DIM),
        layer + "mlp.gate_proj": (INTER, HIDDEN),
        layer + "mlp.up_proj": (INTER, HIDDEN),
        layer + "mlp.down_proj": (HIDDEN, INTER),
    }


def random(rows, columns):
    return torch.randn(rows, columns, generator=generator) * 0.1


def hash_of(w):
    assert w.dtype == torch.float32, w.dtype
    value = 0xCBF29CE484222325
    for byte in w.contiguous().numpy().tobytes():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


class Model:
    """Tensors of one folder; layers that are not quantised stay bf16."""

    def __init__(self, seed):
        generator.manual_seed(seed)
        self.tensors, self.expected = {}, {}

    def quantise(self, name, maker, shape=None, **how):
        """maker(weights) gives tensors by suffix, and the dequantised weights in float32."""
        rows, columns = shape or shapes()[name]
        parts, value = maker(random(rows, columns), **how)
        assert value.shape == (rows, columns)
        for suffix, tensor in parts.items():
            self.tensors[name + suffix] = tensor.contiguous()
        self.expected[name] = {
            "hash": hash_of(value),
            "first": [float(x) for x in value.flatten()[:4]],
        }

    def all(self, maker, **how):
        for name in shapes():
            if name not in self.expected:
                self.quantise(name, maker, **how)

    def save(self, folder, quantization, file="config.json"):
        for name, shape in shapes().items():
            if name not in self.expected:
                self.tensors[name + ".weight"] = random(*shape).bfloat16()
        for name in ("lm_head", "model.embed_tokens"):
            if name not in self.expected:
                self.tensors[name + ".weight"] = random(VOCAB, HIDDEN).bfloat16()
        norms = {"model.norm": HIDDEN, "model.layers.0.input_layernorm": HIDDEN,
                 "model.layers.0.post_attention_layernorm": HIDDEN,
                 "model.layers.0.self_attn.q_norm": DIM, "model.layers.0.self_attn.k_norm": DIM}
        for name, n in norms.items():
            self.tensors[name + ".weight"] = (1 + random(1, n)[0]).bfloat16()
        config = {"model_type": "qwen3", "hidden_size": HIDDEN, "num_hidden_layers": 1,
                  "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": DIM,
                  "intermediate_size": INTER, "vocab_size": VOCAB, "rms_norm_eps": 1e-6,
                  "max_position_embeddings": 64, "tie_word_embeddings": False,
                  "rope_theta": 10000, "eos_token_id": 31}
        os.makedirs(folder, exist_ok=True)
        if file == "config.json":
            config["quantization_config"] = quantization
        else:
            write(folder, file, quantization)
        write(folder, "config.json", config)
        write(folder, "expected.json", self.expected)
        save_file(self.tensors, os.path.join(folder, "model.safetensors"))


def write(folder, name, value):
    with open(os.path.join(folder, name), "w") as file:
        json.dump(value, file, indent=1)
        file.write("\n")


# ---- Qwen's FP8 and ModelOpt's: scales of blocks, rows or the whole matrix ----


def e4m3(w, block=None, scale_type=torch.float32, suffix=".weight_scale", per=None):
    rows, columns = w.shape
    br, bc = block or (rows if per == "tensor" else 1, columns)
    down, across = -(-rows // br), -(-columns // bc)
    scale = torch.empty(down, across)
    for i in range(down):
        for j in range(across):
            scale[i, j] = w[i * br:(i + 1) * br, j * bc:(j + 1) * bc].abs().max() / 448
    scale = scale.to(scale_type)
    wide = scale.float().repeat_interleave(br, 0)[:rows].repeat_interleave(bc, 1)[:, :columns]
    codes = (w / wide).clamp(-448, 448).to(torch.float8_e4m3fn)
    stored = scale.reshape(()) if per == "tensor" else scale
    return {".weight": codes, suffix: stored}, codes.float() * wide


# ---- compressed-tensors ----


def compressed(w, format, num_bits, type, strategy, group_size=None, symmetric=True,
               block_structure=None, scale_type=torch.bfloat16, actorder=False):
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    args = QuantizationArgs(num_bits=num_bits, type=type, strategy=strategy, symmetric=symmetric,
                            group_size=group_size, block_structure=block_structure)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    rows, columns = w.shape
    br, bc = block_structure or (1, group_size or columns)
    if strategy == "tensor":
        br = rows
    order = torch.randperm(columns, generator=generator) if actorder else torch.arange(columns)
    index = torch.empty(columns, dtype=torch.int32)
    index[order] = torch.arange(columns, dtype=torch.int32) // bc
    across = -(-columns // bc)
    grouped = w[:, order]
    low = torch.stack([grouped[:, j * bc:(j + 1) * bc].amin(1) for j in range(across)], 1)
    high = torch.stack([grouped[:, j * bc:(j + 1) * bc].amax(1) for j in range(across)], 1)
    low = torch.stack([x.amin(0) for x in low.split(br)])
    high = torch.stack([x.amax(0) for x in high.split(br)])
    most = torch.maximum(-low, high)
    state, zero, global_scale = {}, None, None
    if type == "int" and symmetric:
        scale = (most / (2 ** (num_bits - 1) - 1)).to(scale_type)
    elif type == "int":
        scale = ((high - low) / (2 ** num_bits - 1)).to(scale_type)
        zero = (-(2 ** (num_bits - 1)) - (low / scale.float()).round()).clamp(
            -(2 ** (num_bits - 1)), 2 ** (num_bits - 1) - 1).to(torch.int8)
    elif num_bits == 8 and format != "mxfp8-quantized":
        scale = (most / 448).to(scale_type)
    elif format == "nvfp4-pack-quantized":
        global_scale = (torch.tensor([448.0 * 6]) / w.abs().max()).float()
        scale = (most / 6 * global_scale).to(torch.float8_e4m3fn).float()
    else:
        scale = torch.exp2(torch.floor(torch.log2(most / (448 if num_bits == 8 else 6))) + 1)
    state = {"weight": w[:, order].float(), "weight_scale": scale.float()}
    if zero is not None:
        state["weight_zero_point"] = zero
    if global_scale is not None:
        state["weight_global_scale"] = global_scale
    compressor = BaseCompressor.get_value_from_registry(format)
    packed = compressor.compress(state, scheme)
    value = compressor.decompress(dict(packed), scheme)["weight"].float()
    if global_scale is not None:  # the same steps as decompress takes, in float32
        from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
        from compressed_tensors.quantization.lifecycle.forward import dequantize
        codes = unpack_fp4_from_uint8(packed["weight_packed"], rows, columns).float()
        value = dequantize(x_q=codes, scale=packed["weight_scale"].float(), args=args,
                           global_scale=global_scale, dtype=torch.float32)
    if type == "int" or format == "float-quantized":
        packed["weight_scale"] = packed["weight_scale"].to(scale_type)
        if strategy == "tensor":
            packed["weight_scale"] = packed["weight_scale"].reshape(1)
    if actorder:  # codes are stored as the columns of the model have it
        from compressed_tensors.compressors.pack_quantized.helpers import (pack_to_int32,
                                                                           unpack_from_int32)
        codes = unpack_from_int32(packed["weight_packed"], num_bits, w.shape)
        back = torch.argsort(order)
        packed["weight_packed"] = pack_to_int32(codes[:, back].contiguous(), num_bits)
        packed["weight_g_idx"] = index
        value = value[:, back]
    return {"." + key: tensor for key, tensor in packed.items()}, value


def group(**weights):
    return {"targets": ["Linear"], "weights": weights}


def compressed_config(format, groups, ignore):
    return {"quant_method": "compressed-tensors", "format": format, "ignore": ignore,
            "quantization_status": "compressed",
            "config_groups": {f"group_{i}": g for i, g in enumerate(groups)}}


# ---- GPTQ ----


def unsigned(w, bits, size, symmetric, groups):
    """Codes [columns, rows], zero points and f16 scales [groups, rows]."""
    turned, most = w.t(), 2 ** bits - 1
    n = int(groups.max()) + 1
    scale, zero = torch.empty(n, w.shape[0]), torch.empty(n, w.shape[0], dtype=torch.int64)
    for g in range(n):
        part = turned[groups == g]
        if symmetric:
            scale[g] = 2 * part.abs().amax(0) / most
            zero[g] = 2 ** (bits - 1)
        else:
            scale[g] = (part.amax(0) - part.amin(0)) / most
            zero[g] = (-part.amin(0) / scale[g]).round().clamp(1, most)
    scale = scale.half()
    codes = (turned / scale.float()[groups] + zero[groups]).round().clamp(0, most).long()
    value = (scale.float()[groups] * (codes - zero[groups])).t().contiguous()
    return codes, zero, scale, value


def words(codes, bits, dim):
    """Packs along dim, lowest bits first."""
    a_word = 32 // bits
    codes = codes.movedim(dim, -1)
    codes = codes.reshape(*codes.shape[:-1], -1, a_word)
    shifts = torch.arange(0, 32, bits)
    packed = (codes << shifts).sum(-1)
    packed = torch.where(packed >= 2 ** 31, packed - 2 ** 32, packed).to(torch.int32)
    return packed.movedim(-1, dim).contiguous()


def gptq(w, bits, size, symmetric, version, desc_act=False):
    columns = w.shape[1]
    groups = torch.arange(columns) // size
    if desc_act:
        groups = groups[torch.randperm(columns, generator=generator)]
    codes, zero, scale, value = unsigned(w, bits, size, symmetric, groups)
    zeros = words(zero, bits, 1)
    if version == 1:
        zeros -= 0x11111111 if bits == 4 else 0x01010101
    return {".qweight": words(codes, bits, 0), ".qzeros": zeros, ".scales": scale,
            ".g_idx": groups.to(torch.int32)}, value


# ---- AWQ ----


def awq(w, size):
    # the package itself wants a GPU; only this file is read
    path = next(p for p in (os.path.join(d, "awq/utils/packing_utils.py") for d in sys.path)
                if os.path.exists(p))
    spec = importlib.util.spec_from_file_location("packing_utils", path)
    packing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(packing)
    codes, zero, scale, value = unsigned(w, 4, size, False, torch.arange(w.shape[1]) // size)
    order = torch.arange(w.shape[0]).reshape(-1, 8)[:, packing.AWQ_ORDER].flatten()
    qweight, qzeros = words(codes[:, order], 4, 1), words(zero[:, order], 4, 1)
    theirs = packing.dequantize_gemm(qweight, qzeros, scale.float(), 4, size).t().float()
    assert torch.equal(theirs, value)
    return {".qweight": qweight, ".qzeros": qzeros, ".scales": scale}, theirs


# ---- NVFP4 as ModelOpt has it, and bitsandbytes ----


def modelopt_nvfp4(w):
    parts, _ = compressed(w, "nvfp4-pack-quantized", 4, "float", "tensor_group", group_size=16)
    second = (1 / parts.pop(".weight_global_scale")).reshape(())
    codes = parts.pop(".weight_packed")
    table = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6])
    both = torch.stack([codes & 15, codes >> 4], -1).flatten(1).long()
    scale = (parts[".weight_scale"].float() * second).repeat_interleave(16, 1)
    return {".weight": codes, ".weight_scale": parts[".weight_scale"],
            ".weight_scale_2": second, ".input_scale": torch.tensor(1.0)}, table[both] * scale


def bitsandbytes(w, quant_type, nested, blocksize=64):
    import bitsandbytes.functional as functional
    codes, state = functional.quantize_4bit(w, blocksize=blocksize, quant_type=quant_type,
                                            compress_statistics=nested)
    # its CPU code makes -0 of fp4's code 8, for which the table in the file has 0
    value = functional.dequantize_4bit(codes, state).float() + 0.0
    parts = {".weight." + key: tensor for key, tensor in state.as_dict(packed=True).items()}
    parts[".weight"] = codes
    return parts, value


def main(folder):
    def at(name):
        return os.path.join(folder, name)

    layer, head = "model.layers.0.", (VOCAB, HIDDEN)

    m = Model(1)
    inverse = {"suffix": ".weight_scale_inv"}
    m.quantise(layer + "self_attn.o_proj", e4m3, block=(48, 32), **inverse)
    m.all(e4m3, block=(48, 32), scale_type=torch.bfloat16, **inverse)
    m.save(at("fp8"), {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                       "weight_block_size": [48, 32], "modules_to_not_convert": ["lm_head"]})

    m = Model(2)
    how = {"format": "float-quantized", "num_bits": 8, "type": "float"}
    m.quantise(layer + "self_attn.q_proj", compressed, strategy="tensor", **how)
    m.quantise(layer + "mlp.up_proj", compressed, strategy="block", block_structure=[32, 16],
               scale_type=torch.float32, **how)
    m.quantise("lm_head", compressed, shape=head, strategy="channel", **how)
    m.quantise("model.embed_tokens", compressed, shape=head, strategy="channel", **how)
    how8 = {"num_bits": 8, "type": "float", "symmetric": True}
    m.quantise(layer + "mlp.down_proj", compressed, format="mxfp8-quantized", num_bits=8,
               type="float", strategy="group", group_size=32)
    m.all(compressed, strategy="channel", scale_type=torch.float16, **how)
    m.save(at("float-quantized"), compressed_config("float-quantized", [
        group(strategy="tensor", **how8), group(strategy="channel", **how8),
        group(strategy="group", group_size=32, **how8),
        group(strategy="block", block_structure=[32, 16], **how8)], ["re:.*vision.*"]))

    m = Model(3)
    how = {"format": "int-quantized", "num_bits": 8, "type": "int", "strategy": "channel"}
    m.quantise(layer + "mlp.up_proj", compressed, symmetric=False, **how)
    m.all(compressed, **how)
    m.save(at("int-quantized"), compressed_config("int-quantized", [
        group(num_bits=8, type="int", strategy="channel", symmetric=True),
        group(num_bits=8, type="int", strategy="channel", symmetric=False)], ["lm_head"]))

    m = Model(4)
    how = {"format": "pack-quantized", "type": "int", "strategy": "group", "group_size": 32}
    m.quantise(layer + "self_attn.k_proj", compressed, num_bits=4, symmetric=False, **how)
    m.quantise(layer + "mlp.gate_proj", compressed, num_bits=4, actorder=True, symmetric=False,
               **how)
    m.quantise(layer + "mlp.up_proj", compressed, num_bits=8, **how)
    m.quantise(layer + "mlp.down_proj", compressed, num_bits=8, symmetric=False, **how)
    m.quantise("lm_head", compressed, shape=head, format="pack-quantized", type="int",
               strategy="channel", num_bits=8)
    m.quantise("model.embed_tokens", compressed, shape=head, num_bits=4, **how)
    m.all(compressed, num_bits=4, **how)
    kinds = [group(num_bits=b, type="int", strategy="group", group_size=32, symmetric=s)
             for b in (4, 8) for s in (True, False)]
    kinds.append(group(num_bits=8, type="int", strategy="channel", symmetric=True))
    m.save(at("pack-quantized"), compressed_config("pack-quantized", kinds, ["re:.*linear_attn.*"]))

    m = Model(5)
    how = {"num_bits": 4, "type": "float"}
    m.quantise(layer + "mlp.down_proj", compressed, format="mxfp4-pack-quantized",
               strategy="group", group_size=32, **how)
    m.quantise(layer + "mlp.gate_proj", compressed, format="mxfp4-pack-quantized",
               strategy="group", group_size=32, **how)
    m.all(compressed, format="nvfp4-pack-quantized", strategy="tensor_group", group_size=16, **how)
    m.save(at("fp4-pack-quantized"), compressed_config("mixed-precision", [
        group(strategy="tensor_group", group_size=16, symmetric=True, **how),
        group(strategy="group", group_size=32, symmetric=True, **how)], ["lm_head"]))

    m = Model(6)
    m.quantise(layer + "self_attn.q_proj", gptq, bits=4, size=32, symmetric=True, version=1)
    m.quantise(layer + "mlp.down_proj", gptq, bits=4, size=32, symmetric=True, version=1,
               desc_act=True)
    m.all(gptq, bits=4, size=32, symmetric=False, version=1, desc_act=True)
    m.save(at("gptq-int4"), {"bits": 4, "group_size": 32, "desc_act": True, "sym": False,
                             "checkpoint_format": "gptq"}, "quantize_config.json")

    m = Model(7)
    m.quantise(layer + "self_attn.q_proj", gptq, bits=8, size=32, symmetric=False, version=2)
    m.all(gptq, bits=8, size=32, symmetric=True, version=2)
    m.save(at("gptq-v2-int8"), {"quant_method": "gptq", "bits": 8, "group_size": 32, "sym": True,
                                "desc_act": False, "checkpoint_format": "gptq_v2"})

    m = Model(8)
    m.all(awq, size=32)
    m.save(at("awq"), {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True,
                       "version": "gemm", "modules_to_not_convert": None})

    m = Model(9)
    m.quantise(layer + "mlp.up_proj", e4m3, per="tensor")
    m.quantise("lm_head", e4m3, shape=head)
    m.all(modelopt_nvfp4)
    m.save(at("modelopt"), {"producer": {"name": "modelopt"}, "quantization": {
        "quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": None, "exclude_modules": []}},
        "hf_quant_config.json")

    m = Model(10)
    m.quantise(layer + "mlp.up_proj", bitsandbytes, quant_type="nf4", nested=False)
    m.quantise(layer + "mlp.down_proj", bitsandbytes, quant_type="fp4", nested=False)
    m.all(bitsandbytes, quant_type="nf4", nested=True)
    m.save(at("bitsandbytes"), {"quant_method": "bitsandbytes", "load_in_4bit": True,
                                "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True})


if __name__ == "__main__":
    main(sys.argv[1])
