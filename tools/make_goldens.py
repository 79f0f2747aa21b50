#!/usr/bin/env python3
"""What Hugging Face transformers computes for the miniature models of tests/golden/models.

usage: make_goldens.py tests/golden [ID ...]

Weights come from synthetic.py (seed 1), so no weights are stored: C makes the same bits. Each model
is run in float32 and in bf16 on the CPU, and <ID>.safetensors.xz receives, all f32 unless said
otherwise:

  ids              [N]       the tokens; every run below is a prefix of them
  at               [P]       positions with logits; below, p is an entry of it
  logits           [P, 16]   float32 run (sdpa), columns (16 p + j) mod vocab
  logits_max       [P]       largest absolute logit of the float32 run
  top, margin      [P]       its largest logit's id, and the distance to the second
  bf16.rms, .max   [P]       error of the bf16 runs against the float32 run, whole vocabulary: the
                             larger of sdpa and eager, as either alone is small by luck at some
                             positions (each is over 1.25 times the other at 1 in 8). Hybrids:
                             also of the 8 positions before and after, as the two kinds hardly
                             differ there (docs/MODEL_qwen35.md)
  bf16.whole       [1]       the larger of the two kinds' RMS error over all of `at`
  f32.PHASE        [3, E]    float32 run (eager): what PHASE made at positions 0, 5, 129; E sampled
  bf16.PHASE       bf16        entries i * width / E of the row; the same of the bf16 run (eager)
                             PHASE is "embed", "0.attn_norm", ...: see src/cpu/reference_model.h
  at5.PHASE        bf16 [E]  the bf16 run (eager) at position 5, whole rows: what goes into a phase
                             and what comes out of it
  at5.L.keys, .values  bf16 [6, kv_heads * head_dim]  the cache of layer L up to there
  at5.L.rows.PHASE bf16 [6, width]  of the small hybrids' DeltaNet layers, what a position needs of
                             those before it; decay is f32
  far.OFFSET.*               as the above without phases, 16 tokens at positions OFFSET + 0..15

Before anything is written, prefixes of each tested length with 8 decode steps, and a split prefill,
are checked to give the float32 logits of the one long run.
"""
import copy
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import safetensors.torch
import synthetic
import torch
import transformers

SEED = 1
N_TOKENS = 576
LONG_AT = {
    "q3-long": [0, 1, 100, 4000, 4094, 4095, 4096, 4097, 4099, 8192, 16384, 32766, 32767, 32768, 32799],
    "q35-long": [0, 1, 100, 256, 512, 768, 1024, 1536, 2048, 2560, 3072, 4095, 5120, 6144, 7168, 8191],
}
N_COLUMNS = 16
LENGTHS = [1, 2, 3, 4, 5, 63, 64, 65, 127, 130, 257]
PHASE_TOKENS = 130
PHASE_AT = [0, 5, 129]
PHASE_ENTRIES = 96
WHOLE_AT = 5
NEAR = 8
WHOLE_LAYERS = {"q35-c": [0, 3]}
FAR = {"q3-a": [4090, 32760], "ll-b": [4090, 32760, 130000]}


def stored_name(name, nested):
    """The name in a checkpoint of a larger model, of which this one is the text part."""
    if nested and name.startswith("model."):
        return "model.language_model." + name.removeprefix("model.")
    return name


def build(config_path):
    keys = json.loads(config_path.read_text())
    nested = "text_config" in keys
    config = transformers.AutoConfig.for_model(**keys.get("text_config", keys))
    centred = config.model_type == "qwen3_5_text"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    state = {}
    for name, values in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        stored = stored_name(name, nested)
        bits = synthetic.tensor_bits(SEED, stored, tuple(values.shape), centred)
        state[name] = torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).float()
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    half = copy.deepcopy(model).to(torch.bfloat16)
    # Loading a checkpoint in bf16 keeps the rotation frequencies in float32; .to() does not.
    half.model.rotary_emb.inv_freq = model.model.rotary_emb.inv_freq.clone()
    return model, half


def token_ids(n, vocab):
    draws = synthetic.mix(np.arange(1, n + 1, dtype=np.uint64) * synthetic.GOLDEN)
    return torch.from_numpy((draws % np.uint64(vocab)).astype(np.int64))


def use_attention(model, kind):
    model.set_attn_implementation(kind)


@torch.inference_mode()
def run(model, ids, offset=0):
    positions = torch.arange(offset, offset + len(ids))[None]
    return model(input_ids=ids[None], position_ids=positions, use_cache=False).logits[0].float()


@torch.inference_mode()
def run_pieces(model, ids, pieces):
    """Logits of all positions, evaluated piece by piece on one cache."""
    cache, out, start = transformers.DynamicCache(config=model.config), [], 0
    for n in pieces:
        step = model(input_ids=ids[None, start : start + n], past_key_values=cache, use_cache=True)
        out.append(step.logits[0].float())
        start += n
    return torch.cat(out)


@torch.inference_mode()
def run_long(model, ids, at, chunk=512):
    """Logits at positions `at` of a long run, in chunks on one cache."""
    cache, rows = transformers.DynamicCache(config=model.config), []
    for start in range(0, len(ids), chunk):
        piece = ids[None, start : start + chunk]
        logits = model(input_ids=piece, past_key_values=cache, use_cache=True).logits[0].float()
        rows += [logits[p - start] for p in at if start <= p < start + chunk]
    return torch.stack(rows)


def both_attentions(model, make):
    """What `make` returns under each attention; sdpa is left in place."""
    out = []
    for kind in ("eager", "sdpa"):
        use_attention(model, kind)
        out.append(make())
    return torch.stack(out)


def near(at, n_tokens):
    """Positions of a hybrid's run whose errors count for one of `at`."""
    return sorted({q for p in at for q in range(p - NEAR, p + NEAR + 1) if 0 <= q < n_tokens})


def figures(exact, rounded, at, seen=None):
    """`rounded` is [runs, P, vocab] and `exact` [P, vocab] at positions `seen`, None: `at`."""
    error = (rounded - exact).double()
    rms, worst = error.square().mean(2).sqrt().amax(0), error.abs().amax(2).amax(0)
    if seen is not None:
        row = {p: i for i, p in enumerate(seen)}
        around = [[row[q] for q in near([p], seen[-1] + 1)] for p in at]
        rms = torch.stack([rms[rows].amax() for rows in around])
        worst = torch.stack([worst[rows].amax() for rows in around])
        exact, error = (x[..., [row[p] for p in at], :] for x in (exact, error))
    vocab = exact.shape[1]
    columns = (torch.tensor(at)[:, None] * N_COLUMNS + torch.arange(N_COLUMNS)[None]) % vocab
    best = torch.topk(exact, 2, dim=1)
    return {
        "at": torch.tensor(at, dtype=torch.float32),
        "logits": torch.gather(exact, 1, columns).contiguous(),
        "logits_max": exact.abs().amax(1),
        "top": best.indices[:, 0].float(),
        "margin": best.values[:, 0] - best.values[:, 1],
        "bf16.rms": rms.float(),
        "bf16.max": worst.float(),
        "bf16.whole": error.square().mean((1, 2)).sqrt().amax()[None].float(),
    }


def record_phases(model, ids):
    """Name of each phase -> its values [T, width], from hooks on one eager run."""
    phases, handles = {}, []

    def keep(name, pick):
        def hook(module, args, out=None):
            phases[name] = pick(args, out)[0].detach().clone().flatten(1)

        return hook

    def after(module, name):
        handles.append(module.register_forward_hook(keep(name, lambda args, out: out)))

    def before(module, name):
        handles.append(module.register_forward_pre_hook(keep(name, lambda args, out: args[0])))

    after(model.model.embed_tokens, "embed")
    after(model.model.norm, "final_norm")
    after(model.lm_head, "logits")
    for i, layer in enumerate(model.model.layers):
        after(layer.input_layernorm, f"{i}.attn_norm")
        if hasattr(layer, "linear_attn"):
            delta = layer.linear_attn
            for name in ("qkv", "z", "b", "a"):
                after(getattr(delta, "in_proj_" + name), f"{i}.delta_{name}")
            before(delta.out_proj, f"{i}.delta_norm")
            after(delta.out_proj, f"{i}.out_proj")
        else:
            attention = layer.self_attn
            after(attention.q_proj, f"{i}.q")
            after(attention.k_proj, f"{i}.k")
            after(attention.v_proj, f"{i}.v")
            if hasattr(attention, "q_norm"):
                after(attention.q_norm, f"{i}.q_norm")
                after(attention.k_norm, f"{i}.k_norm")
            gated = attention.q_proj.out_features > attention.o_proj.in_features
            before(attention.o_proj, f"{i}.attention_gate" if gated else f"{i}.attention")
            after(attention.o_proj, f"{i}.out_proj")
        before(layer.post_attention_layernorm, f"{i}.attn_residual")
        after(layer.post_attention_layernorm, f"{i}.ffn_norm")
        after(layer.mlp.gate_proj, f"{i}.gate")
        after(layer.mlp.up_proj, f"{i}.up")
        before(layer.mlp.down_proj, f"{i}.swiglu")
        after(layer.mlp.down_proj, f"{i}.down")
        after(layer, f"{i}.ffn_residual")

    # q and k after rotation are arguments of the module's attention function.
    code = sys.modules[type(model).__module__]
    eager = code.eager_attention_forward

    def eager_recorded(module, query, key, value, *args, **kwargs):
        for name, heads in (("q_rope", query), ("k_rope", key)):
            phases[f"{module.layer_idx}.{name}"] = heads[0].transpose(0, 1).flatten(1).clone()
        out = eager(module, query, key, value, *args, **kwargs)
        phases[f"{module.layer_idx}.attention"] = out[0][0].flatten(1).clone()
        return out

    # So are q, k and v after the convolution, and the gates, of the delta rule's.
    deltas = [i for i, layer in enumerate(model.model.layers) if hasattr(layer, "linear_attn")]
    rule = getattr(code, "torch_chunk_gated_delta_rule", None)

    def rule_recorded(query, key, value, g, beta, **kwargs):
        i = deltas.pop(0)
        out = rule(query, key, value, g=g, beta=beta, **kwargs)
        phases[f"{i}.delta_conv"] = torch.cat([x[0].flatten(1) for x in (query, key, value)], 1)
        phases[f"{i}.delta_decay"] = g[0].clone()
        phases[f"{i}.delta_beta"] = beta[0].clone()
        phases[f"{i}.delta_rule"] = out[0][0].flatten(1).clone()
        return out

    code.eager_attention_forward = eager_recorded
    code.torch_chunk_gated_delta_rule = rule_recorded
    use_attention(model, "eager")
    run(model, ids)
    use_attention(model, "sdpa")
    code.eager_attention_forward = eager
    code.torch_chunk_gated_delta_rule = rule
    assert not deltas
    for handle in handles:
        handle.remove()
    return phases


def sampled(values):
    width = values.shape[1]
    entries = min(PHASE_ENTRIES, width)
    columns = torch.arange(entries) * width // entries
    return values[PHASE_AT][:, columns].contiguous()


def whole_rows(phases, layers):
    """`layers`: None for all."""
    out = {}
    for name, values in phases.items():
        layer = name.partition(".")[0]
        skipped = layers is not None and layer.isdigit() and int(layer) not in layers
        if skipped and not name.endswith(".ffn_residual"):
            continue
        out[f"at5.{name}"] = values[WHOLE_AT].clone()
        phase = name.partition(".")[2]
        if layers is None and phase in ("delta_qkv", "delta_conv", "delta_decay", "delta_beta"):
            out[f"at5.{layer}.rows.{phase}"] = values[: WHOLE_AT + 1].clone()
        for phase, cache in ((".k_rope", ".keys"), (".v", ".values")):
            if name.endswith(phase):
                rows = values[: WHOLE_AT + 1].clone()
                out["at5." + name.removesuffix(phase) + cache] = rows
    return out


def check_lengths(model, ids, logits):
    for n in LENGTHS:
        close(run_pieces(model, ids[: n + 8], [n] + [1] * 8), logits[: n + 8], f"length {n}")
    close(run_pieces(model, ids[:138], [1, 63, 2, 64] + [1] * 8), logits[:138], "split 130")


def close(a, b, what):
    error = float((a - b).abs().max() / b.abs().max())
    # 2e-6 for attention alone; a delta rule's chunks and its recurrence differ by more
    assert error < 2e-5, f"{what}: relative error {error}"


def make(folder, name):
    model, half = build(folder / "models" / f"{name}.json")
    vocab = model.config.vocab_size
    hybrid = "linear_attention" in (getattr(model.config, "layer_types", None) or [])
    use_attention(model, "sdpa")
    use_attention(half, "sdpa")
    if name in LONG_AT:
        at = LONG_AT[name]
        ids = token_ids(at[-1] + 1, vocab)
        seen = near(at, len(ids)) if hybrid else at
        rounded = both_attentions(half, lambda: run_long(half, ids, seen))
        tensors = figures(run_long(model, ids, seen), rounded, at, seen if hybrid else None)
        tensors["ids"] = ids.float()
    else:
        ids = token_ids(N_TOKENS, vocab)
        logits = run(model, ids)
        check_lengths(model, ids, logits)
        rounded = both_attentions(half, lambda: run(half, ids))
        at = list(range(N_TOKENS))
        tensors = figures(logits, rounded, at, at if hybrid else None)
        tensors["ids"] = ids.float()
        for prefix, which in (("f32", model), ("bf16", half)):
            phases = record_phases(which, ids[:PHASE_TOKENS])
            tensors |= {f"{prefix}.{phase}": sampled(values) for phase, values in phases.items()}
        tensors |= whole_rows(phases, WHOLE_LAYERS.get(name))
        for offset in FAR.get(name, []):
            rounded = both_attentions(half, lambda: run(half, ids[:16], offset))
            far = figures(run(model, ids[:16], offset), rounded, list(range(16)))
            tensors |= {f"far.{offset}.{key}": value for key, value in far.items()}
    path = folder / f"{name}.safetensors"
    metadata = {"torch": torch.__version__, "transformers": transformers.__version__}
    safetensors.torch.save_file(tensors, path, metadata)
    path.chmod(0o644)
    subprocess.run(["xz", "-9e", "--force", str(path)], check=True)
    rms = tensors["bf16.rms"]
    print(
        f"{name}: {path.with_suffix('.safetensors.xz').stat().st_size} bytes, logits to"
        f" {float(tensors['logits_max'].max()):.2f}, bf16 rms error {float(rms.mean()):.4f}",
        flush=True,
    )


def main():
    folder = Path(sys.argv[1])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    known = (p.stem for p in (folder / "models").glob("*.json"))
    names = sys.argv[2:] or sorted(name for name in known if not name.startswith("asr-"))
    for name in names:
        make(folder, name)


if __name__ == "__main__":
    main()
