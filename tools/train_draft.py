#!/usr/bin/env python3
"""Trains a draft layer (multi-token prediction) for the small hybrid of train_hybrid.py.

    train_draft.py --model models/hybrid --out DIR [--in .demo] [--minutes 8] [--threads 1]

The model stays as it is: DIR receives a copy of its folder whose model.safetensors has the tensors `mtp.*` too, whose
config.json has one draft layer, and whose PROVENANCE.json says how the layer was trained. Reads what `train_demo.py
prepare` wrote. Needs `torch`, `transformers`, `safetensors`, `tokenizers`; made for minutes of a CPU.

The layer learns from windows of prose and of the hybrid's recall examples, each step from the model's own hidden states:
first the id two positions on, then, fed with what it made itself, the one behind that. How many guesses of each step are
the model's own choice is reported for held-out texts.
"""

import argparse
import json
import math
import shutil
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import train_demo as demo  # noqa: E402
import train_hybrid as hybrid  # noqa: E402
from make_draft_golden import DraftLayer  # noqa: E402

WINDOW, ROWS, RECALL_ROWS = 192, 3, 1
PEAK_RATE = 3e-3
WEIGHTS = (1, 0.5)  # of the steps that are learned
STEPS = 3           # that are judged


def fresh_layer(torch, model):
    layer = DraftLayer(model)
    for name, value in layer.named_parameters():
        if value.dim() == 1:
            torch.nn.init.zeros_(value)  # gains are stored less 1
        else:
            torch.nn.init.normal_(value, std=0.02 if name.endswith(("o_proj.weight", "down_proj.weight"))
                                  else value.shape[1] ** -0.5)
    # At first the layer hands on the hidden state.
    with torch.no_grad():
        layer.fc.weight[:, layer.fc.out_features :] += torch.eye(layer.fc.out_features)
    return layer


def told(torch, model, layer, hidden, next_ids):
    """What is behind the layer's norm, for rows [B, T, hidden] and the ids behind them [B, T]."""
    n = next_ids.shape[1]
    embedding = layer.pre_fc_norm_embedding(model.model.embed_tokens(next_ids))
    x = layer.fc(torch.cat([embedding, layer.pre_fc_norm_hidden(hidden)], dim=-1))
    positions = torch.arange(n)[None]
    turns = model.model.rotary_emb(x, positions)
    out = layer.layers[0](x, position_embeddings=turns, attention_mask=None, position_ids=positions)
    return layer.norm(out[0] if isinstance(out, tuple) else out)


def steps_of(torch, model, layer, ids, n_steps):
    """Logits of each step, and the ids that each position should tell, of windows ids [B, T]."""
    with torch.no_grad():
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    for step in range(n_steps):
        n = ids.shape[1] - 2 - step
        hidden = told(torch, model, layer, hidden[:, :n], ids[:, 1 + step : 1 + step + n])
        yield model.lm_head(hidden), ids[:, 2 + step :]


def right_shares(torch, model, layer, rows):
    """Of each step: how often it tells the id that the model itself holds likeliest, all steps before being right."""
    right, tried = [0] * STEPS, [0] * STEPS
    with torch.no_grad():
        for ids in rows:
            ids = torch.tensor([ids])
            choice = model(input_ids=ids, use_cache=False).logits.argmax(-1)  # of the next id
            alive = torch.ones_like(ids[:, 2:], dtype=torch.bool)
            for step, (logits, _) in enumerate(steps_of(torch, model, layer, ids, STEPS)):
                n = logits.shape[1]
                good = logits.argmax(-1) == choice[:, 1 + step : 1 + step + n]
                tried[step] += int(alive[:, :n].sum())
                alive = alive[:, :n] & good
                right[step] += int(alive.sum())
    return [round(r / max(1, t), 4) for r, t in zip(right, tried)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--in", dest="input", default=".demo")
    parser.add_argument("--model", default="models/hybrid")
    parser.add_argument("--out", required=True)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    import numpy as np
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
    from tokenizers import Tokenizer

    torch.set_num_threads(args.threads)
    torch.manual_seed(demo.SEED)
    source, folder, out = Path(args.input), Path(args.model), Path(args.out)
    model = transformers.AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32).eval()
    model.requires_grad_(False)
    vocab = model.config.vocab_size
    seen, held, _ = demo.load_tokens(source, vocab)
    tokenizer = Tokenizer.from_file(str(source / f"tokenizer-{vocab}.json"))
    maker = hybrid.Recall(tokenizer, vocab, seen, demo.SEED)
    rng = np.random.default_rng(demo.SEED)
    layer = fresh_layer(torch, model)
    matrices = [p for p in layer.parameters() if p.dim() == 2]
    others = [p for p in layer.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}],
                                  betas=(0.9, 0.98))
    average = {k: v.detach().clone() for k, v in layer.named_parameters()}
    begin, n_steps = time.time(), 0
    while (progress := (time.time() - begin) / (60 * args.minutes)) < 1:
        rate = PEAK_RATE * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress))) * min(1, (n_steps + 1) / 30)
        starts = rng.integers(0, len(seen) - WINDOW, ROWS)
        rows = [list(seen[s : s + WINDOW]) for s in starts]
        rows += [maker.example(WINDOW)[0] for _ in range(RECALL_ROWS)]
        loss, nats = 0, []
        for step, (logits, ids) in enumerate(steps_of(torch, model, layer, torch.tensor(rows), len(WEIGHTS))):
            n = logits.shape[1]
            nats.append(torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, :n].flatten()))
            loss = loss + nats[-1] * WEIGHTS[step]
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            for k, v in layer.named_parameters():
                average[k].lerp_(v, 1 / min(n_steps + 1, 50))
        if n_steps % 50 == 0:
            print(f"step {n_steps}: {' '.join(f'{x.item():.3f}' for x in nats)} nats, {time.time() - begin:.0f} s", flush=True)
        n_steps += 1
    weights = {"mtp." + k: v.to(torch.bfloat16).contiguous() for k, v in average.items()}
    layer.load_state_dict({k.removeprefix("mtp."): v.float() for k, v in weights.items()})
    held_maker = hybrid.Recall(tokenizer, vocab, held, 7)
    judged = {
        "held-out prose": right_shares(torch, model, layer, [list(held[i * 512 : (i + 1) * 512]) for i in range(24)]),
        "recall of pairs": right_shares(torch, model, layer, [held_maker.example(512)[0] for _ in range(24)]),
    }
    print(json.dumps(judged))
    shutil.copytree(folder, out, dirs_exist_ok=True)
    tensors = load_file(str(folder / "model.safetensors")) | weights
    save_file(tensors, str(out / "model.safetensors"), metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    demo.write_json(out / "config.json", config | {"mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False})
    record = json.loads((folder / "PROVENANCE.json").read_text())
    record["draft_layer"] = {
        "what": "trained by tools/train_draft.py on the same texts, the rest of the model unchanged",
        "steps": n_steps, "seconds": round(time.time() - begin, 1), "threads": args.threads,
        "parameters": sum(v.numel() for v in weights.values()),
        "right_of_those_tried_by_step": judged,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__}}
    record["model_bytes"] = (out / "model.safetensors").stat().st_size
    record["model_sha256"] = demo.sha256(out / "model.safetensors")
    demo.write_json(out / "PROVENANCE.json", record)


if __name__ == "__main__":
    main()
