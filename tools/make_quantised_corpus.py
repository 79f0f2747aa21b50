#!/usr/bin/env python3
"""Seeds of tests/fuzz/fuzz_codes.c: single layers of the models that make_quantised.py makes.

    python3 tools/make_quantised_corpus.py tests/golden/quantised tests/fuzz/corpus/codes
"""

import json
import os
import struct
import sys

LAYERS = ("self_attn.k_proj", "mlp.up_proj", "mlp.down_proj")


def main(models, corpus):
    os.makedirs(corpus, exist_ok=True)
    for name in sorted(os.listdir(models)):
        folder = os.path.join(models, name)
        with open(os.path.join(folder, "model.safetensors"), "rb") as file:
            data = file.read()
        length = struct.unpack("<Q", data[:8])[0]
        header, payload = json.loads(data[8:8 + length]), data[8 + length:]
        with open(os.path.join(folder, "config.json")) as file:
            quantization = json.load(file).get("quantization_config")
        for other, method in (("quantize_config.json", "gptq"), ("hf_quant_config.json", "modelopt")):
            if os.path.exists(os.path.join(folder, other)):
                with open(os.path.join(folder, other)) as file:
                    found = json.load(file)
                quantization = dict(found.get("quantization", found), quant_method=method)
        config = json.dumps({"quantization_config": quantization}, separators=(",", ":")).encode()
        for layer in LAYERS:
            prefix, out, body = f"model.layers.0.{layer}.", {}, b""
            for key, entry in header.items():
                if not key.startswith(prefix):
                    continue
                begin, end = entry["data_offsets"]
                out["x." + key[len(prefix):]] = dict(entry, data_offsets=[len(body),
                                                                          len(body) + end - begin])
                body += payload[begin:end]
            rows, columns = {"self_attn.k_proj": (32, 64), "mlp.up_proj": (96, 64),
                             "mlp.down_proj": (64, 96)}[layer]
            text = json.dumps(out, separators=(",", ":")).encode()
            seed = bytes([rows // 8 - 1, columns // 8 - 1]) + struct.pack("<H", len(config))
            seed += config + struct.pack("<Q", len(text)) + text + body
            with open(os.path.join(corpus, f"{name}-{layer.split('.')[-1]}"), "wb") as file:
                file.write(seed)


if __name__ == "__main__":
    main(*sys.argv[1:])
