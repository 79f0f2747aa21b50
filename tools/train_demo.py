#!/usr/bin/env python3
"""Makes the demo model that the `reel` program carries: a small Qwen3 trained on Jane Austen.

    train_demo.py prepare --data UNPACKED_DEB [--deb FILE.deb] [--out .demo]
        reads the six novels out of Debian's r-cran-janeaustenr, writes corpus.txt.xz and one
        byte-level BPE tokenizer a vocabulary size. Needs `tokenizers`.
    train_demo.py train [--in .demo] --out DIR [--minutes 6] [--only NAME] [--jobs N]
        trains every candidate of CANDIDATES (or one), keeps the one with the lowest held-out loss
        and writes config.json, generation_config.json, model.safetensors, tokenizer.json,
        tokenizer_config.json, PROVENANCE.json and train.log to DIR. Needs `torch`, `tokenizers`,
        `safetensors`, `transformers`; a CUDA device makes it minutes, a CPU hours.

A million tokens are few for five million parameters, so every candidate over-fits in the end:
dropout, weight decay and an average over recent weights hold that off, and the weights kept are
those with the best held-out loss. Candidates with different vocabularies are compared in bits per
byte of held-out text, the one unit that they share.
"""

import argparse
import hashlib
import json
import lzma
import math
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import r_data  # noqa: E402

PUBLISHED = ["sensesensibility", "prideprejudice", "mansfieldpark", "emma", "northangerabbey",
             "persuasion"]  # in this order; the last is the one whose end is held out
VOCABULARIES = (2048, 4096, 8192)
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# Qwen2's and Qwen3's pre-tokenizer, part of the file format.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
HELD_OUT = 0.05
WINDOW = 1024      # positions a training example spans, and the model's stated context
SEED = 1813
MAX_BYTES = 12_000_000
HEAD_DIM = 64

# Widths are multiples of 256, so that every block format can hold them.
CANDIDATES = {
    #  name          vocab hidden layers heads kv inter dropout epochs
    "v2-d10":       (2048, 256, 6, 4, 2, 768, 0.1, 30),
    "v2-d20":       (2048, 256, 6, 4, 2, 768, 0.2, 40),
    "v2-d30":       (2048, 256, 6, 4, 2, 768, 0.3, 60),
    "v4-d10":       (4096, 256, 6, 4, 2, 768, 0.1, 30),
    "v4-d20":       (4096, 256, 6, 4, 2, 768, 0.2, 40),
    "v4-d30":       (4096, 256, 6, 4, 2, 768, 0.3, 60),
    "v4-deep-d20":  (4096, 256, 8, 4, 2, 512, 0.2, 40),
    "v8-d30":       (8192, 256, 4, 4, 2, 768, 0.3, 50),
    "tiny":         (2048, 64, 2, 2, 1, 256, 0.1, 1),  # for trying the script, never chosen
}
FIELDS = ("vocab", "hidden", "layers", "heads", "kv_heads", "intermediate", "dropout", "epochs")


def sha256(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def write_json(path, value):
    Path(path).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


# ---- prepare -------------------------------------------------------------------------------------

HEADING = re.compile(r"^\s*(VOLUME|CHAPTER|Volume|Chapter) [IVXL0-9]+\.?\s*$")
ENDING = re.compile(r"^\s*(FINIS|Finis|THE END)\s*$")


def prose(lines):
    """A novel's paragraphs, one a line: no title page, headings, notes or emphasis marks."""
    paragraphs, open_paragraph, in_body = [], [], False
    for line in list(lines) + [""]:
        if HEADING.match(line):
            in_body = True
            line = ""
        elif ENDING.match(line) or line.startswith("A NOTE ON THE TEXT"):
            if in_body:
                break
        if not in_body:
            continue
        if line.strip():
            open_paragraph.append(line)
        elif open_paragraph:
            text = re.sub(r"\s+", " ", " ".join(open_paragraph)).strip()
            paragraphs.append(text.replace("_", ""))
            open_paragraph = []
    if open_paragraph:
        paragraphs.append(re.sub(r"\s+", " ", " ".join(open_paragraph)).strip().replace("_", ""))
    return "\n\n".join(paragraphs)


def train_tokenizer(text, vocab):
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
    from tokenizers import pre_tokenizers, processors, trainers

    level = dict(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tok = Tokenizer(models.BPE(continuing_subword_prefix="", end_of_word_suffix=""))
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(**level)])
    tok.decoder = decoders.ByteLevel(**level)
    tok.post_processor = processors.ByteLevel(**level)
    trainer = trainers.BpeTrainer(vocab_size=vocab - len(CONTROL), show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tok.train_from_iterator(text.split(CONTROL[0]), trainer)
    tok.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in CONTROL])
    assert tok.get_vocab_size() == vocab, tok.get_vocab_size()
    return tok


def tokenizer_config(vocab):
    first = vocab - len(CONTROL)
    return {
        "add_bos_token": False, "add_prefix_space": False,
        "added_tokens_decoder": {
            str(first + i): {"content": t, "lstrip": False, "normalized": False, "rstrip": False,
                             "single_word": False, "special": True}
            for i, t in enumerate(CONTROL)},
        "bos_token": None, "eos_token": CONTROL[0], "pad_token": CONTROL[0], "unk_token": None,
        "clean_up_tokenization_spaces": False, "errors": "replace", "model_max_length": WINDOW,
        "split_special_tokens": False, "tokenizer_class": "Qwen2Tokenizer",
    }


def data_package(data, deb):
    """Name, version and check sums of what was read, for the record."""
    changelog = list(Path(data).rglob("changelog.Debian.gz"))
    version = "unknown"
    if changelog:
        import gzip
        version = re.search(r"\(([^)]+)\)", gzip.open(changelog[0], "rt").readline()).group(1)
    rdb = next(Path(data).rglob("Rdata.rdb"))
    return {"package": "r-cran-janeaustenr", "version": version,
            "licence": "MIT (Julia Silge); the novels are in the public domain",
            "deb_sha256": sha256(deb) if deb else None, "rdb_sha256": sha256(rdb)}


def prepare(args):
    import tokenizers

    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    package = data_package(args.data, args.deb)
    novels = r_data.load(next(Path(args.data).rglob("Rdata.rdb")).with_suffix(""))
    text = "".join(prose(novels[name]) + CONTROL[0] for name in PUBLISHED)
    cut = text.index("\n\n", int(len(text) * (1 - HELD_OUT))) + 2
    (out / "corpus.txt.xz").write_bytes(lzma.compress(text.encode(), preset=9))
    seen = text[:cut]  # the tokenizer never sees held-out text either
    counts = {}
    for vocab in VOCABULARIES:
        tok = train_tokenizer(seen, vocab)
        tok.save(str(out / f"tokenizer-{vocab}.json"), pretty=False)
        counts[vocab] = len(tok.encode(text).ids)
        assert tok.decode(tok.encode(text).ids, skip_special_tokens=False) == text
    write_json(out / "prepare.json", {
        "data": package, "bytes": len(text.encode()), "held_out_from_byte": len(text[:cut].encode()),
        "corpus_sha256": hashlib.sha256(text.encode()).hexdigest(), "tokens": counts,
        "tokenizers": tokenizers.__version__})
    print(f"{out}: {len(text.encode()):,} bytes, tokens by vocabulary {counts}")


# ---- model ---------------------------------------------------------------------------------------

def build_model(torch, shape):
    """Qwen3 with transformers' parameter names, plus dropout, which is off outside training."""
    nn, F = torch.nn, torch.nn.functional

    class Norm(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(n))

        def forward(self, x):
            y = x.float()
            y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
            return (self.weight * y).to(x.dtype)

    def rotate(x, cos, sin):
        a, b = x.float().chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)

    class Attention(nn.Module):
        def __init__(self, s):
            super().__init__()
            self.heads, self.kv_heads, self.p = s["heads"], s["kv_heads"], s["dropout"]
            self.q_proj = nn.Linear(s["hidden"], s["heads"] * HEAD_DIM, bias=False)
            self.k_proj = nn.Linear(s["hidden"], s["kv_heads"] * HEAD_DIM, bias=False)
            self.v_proj = nn.Linear(s["hidden"], s["kv_heads"] * HEAD_DIM, bias=False)
            self.o_proj = nn.Linear(s["heads"] * HEAD_DIM, s["hidden"], bias=False)
            self.q_norm, self.k_norm = Norm(HEAD_DIM), Norm(HEAD_DIM)

        def forward(self, x, cos, sin):
            b, t, _ = x.shape
            split = lambda y, n: y.view(b, t, n, HEAD_DIM).transpose(1, 2)
            q = rotate(self.q_norm(split(self.q_proj(x), self.heads)), cos, sin)
            k = rotate(self.k_norm(split(self.k_proj(x), self.kv_heads)), cos, sin)
            v = split(self.v_proj(x), self.kv_heads)
            group = self.heads // self.kv_heads
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
            y = F.scaled_dot_product_attention(q, k.to(v.dtype), v, is_causal=True,
                                               dropout_p=self.p if self.training else 0.0)
            return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))

    class Mlp(nn.Module):
        def __init__(self, s):
            super().__init__()
            self.gate_proj = nn.Linear(s["hidden"], s["intermediate"], bias=False)
            self.up_proj = nn.Linear(s["hidden"], s["intermediate"], bias=False)
            self.down_proj = nn.Linear(s["intermediate"], s["hidden"], bias=False)

        def forward(self, x):
            return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))

    class Layer(nn.Module):
        def __init__(self, s):
            super().__init__()
            self.self_attn, self.mlp = Attention(s), Mlp(s)
            self.input_layernorm = Norm(s["hidden"])
            self.post_attention_layernorm = Norm(s["hidden"])
            self.drop = nn.Dropout(s["dropout"])

        def forward(self, x, cos, sin):
            x = x + self.drop(self.self_attn(self.input_layernorm(x), cos, sin))
            return x + self.drop(self.mlp(self.post_attention_layernorm(x)))

    class Body(nn.Module):
        def __init__(self, s):
            super().__init__()
            self.embed_tokens = nn.Embedding(s["vocab"], s["hidden"])
            self.layers = nn.ModuleList([Layer(s) for _ in range(s["layers"])])
            self.norm = Norm(s["hidden"])

    class Qwen3(nn.Module):
        def __init__(self, s):
            super().__init__()
            self.model, self.drop = Body(s), nn.Dropout(s["dropout"])
            for name, p in self.named_parameters():
                if p.dim() == 2:
                    scale = 0.02
                    if name.endswith(("o_proj.weight", "down_proj.weight")):
                        scale /= math.sqrt(2 * s["layers"])
                    nn.init.normal_(p, std=scale)
            inverse = 1.0 / 1e6 ** (torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM)
            angle = torch.outer(torch.arange(WINDOW).float(), inverse)
            self.register_buffer("cos", angle.cos(), persistent=False)
            self.register_buffer("sin", angle.sin(), persistent=False)

        def forward(self, ids):
            n = ids.shape[1]
            x = self.drop(self.model.embed_tokens(ids))
            for layer in self.model.layers:
                x = layer(x, self.cos[:n], self.sin[:n])
            return F.linear(self.model.norm(x), self.model.embed_tokens.weight)

    return Qwen3(shape)


def model_config(shape):
    eos = shape["vocab"] - len(CONTROL)
    return {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
        "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": eos, "eos_token_id": eos,
        "head_dim": HEAD_DIM, "hidden_act": "silu", "hidden_size": shape["hidden"],
        "initializer_range": 0.02, "intermediate_size": shape["intermediate"],
        "max_position_embeddings": WINDOW, "max_window_layers": shape["layers"],
        "num_attention_heads": shape["heads"], "num_hidden_layers": shape["layers"],
        "num_key_value_heads": shape["kv_heads"], "rms_norm_eps": 1e-6, "rope_scaling": None,
        "rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": True,
        "torch_dtype": "bfloat16", "use_cache": True, "use_sliding_window": False,
        "vocab_size": shape["vocab"],
    }


# ---- train ---------------------------------------------------------------------------------------

def load_tokens(folder, vocab):
    """(ids seen, ids held out, bytes held out)."""
    from tokenizers import Tokenizer

    record = json.loads((folder / "prepare.json").read_text())
    text = lzma.decompress((folder / "corpus.txt.xz").read_bytes())
    if hashlib.sha256(text).hexdigest() != record["corpus_sha256"]:
        sys.exit(f"{folder}/corpus.txt.xz is not the corpus that prepare.json describes")
    cut = record["held_out_from_byte"]
    tok = Tokenizer.from_file(str(folder / f"tokenizer-{vocab}.json"))
    seen, held = text[:cut].decode(), text[cut:].decode()
    return tok.encode(seen).ids, tok.encode(held).ids, len(held.encode())


def held_out_nats(torch, logits_of, ids, device, batch):
    """Total negative log-likelihood of ids[1:], every position scored once with at least half a
    window before it (except in the first half window)."""
    half, n = WINDOW // 2, len(ids) - 1
    all_ids = torch.tensor(ids, device=device)
    first = all_ids[: WINDOW + 1][None]
    total = torch.nn.functional.cross_entropy(logits_of(first[:, :-1])[0].float(), first[0, 1:],
                                              reduction="sum").item()
    # Window i ends where its last half window has been scored; the last one is padded.
    starts = list(range(half, n - half, half))
    padded = torch.cat([all_ids, all_ids.new_zeros(WINDOW)])
    for at in range(0, len(starts), batch):
        some = starts[at : at + batch]
        piece = torch.stack([padded[s : s + WINDOW + 1] for s in some])
        logits = logits_of(piece[:, :-1])[:, half:].float()
        targets = piece[:, half + 1 :].clone()
        for row, s in enumerate(some):
            targets[row, max(0, n - s - half) :] = -100
        total += torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(),
                                                   ignore_index=-100, reduction="sum").item()
    return total


class Run:
    """One candidate's training, from random weights to the best averaged weights."""

    def __init__(self, torch, name, folder, minutes, batch_size, say):
        self.torch, self.name, self.minutes, self.say = torch, name, minutes, say
        self.batch_size = batch_size
        self.shape = dict(zip(FIELDS, CANDIDATES[name]))
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.manual_seed(SEED)
        seen, self.held, self.held_bytes = load_tokens(folder, self.shape["vocab"])
        self.seen = torch.tensor(seen, device=self.device)
        self.model = build_model(torch, self.shape).to(self.device)
        self.average = {k: v.detach().clone() for k, v in self.model.named_parameters()}
        self.steps = max(20, self.shape["epochs"] * len(seen) // (batch_size * WINDOW))
        self.peak_rate = 2e-3

    def rate(self, step):
        warm = max(1, self.steps // 20)
        if step < warm:
            return self.peak_rate * (step + 1) / warm
        progress = (step - warm) / max(1, self.steps - warm)
        return self.peak_rate * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))

    def batch(self, generator):
        torch = self.torch
        start = torch.randint(0, len(self.seen) - WINDOW - 1, (self.batch_size,), generator=generator)
        index = start.to(self.device)[:, None] + torch.arange(WINDOW + 1, device=self.device)
        ids = self.seen[index]
        return ids[:, :-1], ids[:, 1:]

    def held_bits(self):
        """Bits per byte of held-out text under the averaged weights."""
        torch = self.torch
        now = {k: v.detach().clone() for k, v in self.model.named_parameters()}
        self.put(self.average)
        self.model.eval()
        with torch.no_grad(), torch.autocast(self.device, dtype=torch.bfloat16):
            nats = held_out_nats(torch, self.model, self.held, self.device, self.batch_size)
        self.model.train()
        self.put(now)
        return nats / math.log(2) / self.held_bytes

    def put(self, values):
        with self.torch.no_grad():
            for k, v in self.model.named_parameters():
                v.copy_(values[k])

    def fit(self):
        torch = self.torch
        matrices = [p for p in self.model.parameters() if p.dim() == 2]
        vectors = [p for p in self.model.parameters() if p.dim() != 2]
        optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
            betas=(0.9, 0.98), fused=self.device == "cuda")
        generator = torch.Generator().manual_seed(SEED)
        best, best_weights, begin, curve = math.inf, None, time.time(), []
        every, step = max(10, self.steps // 40), 0
        names = list(self.average)
        while step < self.steps:
            for group in optimizer.param_groups:
                group["lr"] = self.rate(step)
            ids, targets = self.batch(generator)
            with torch.autocast(self.device, dtype=torch.bfloat16):
                logits = self.model(ids)
            loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1),
                                                     targets.flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimizer.step()
            step += 1
            with torch.no_grad():
                live = dict(self.model.named_parameters())
                torch._foreach_lerp_([self.average[k] for k in names], [live[k] for k in names],
                                     1.0 / min(step, 100))
            if step == 30:
                self.fit_into_time(time.time() - begin)
            if step % every == 0 or step == self.steps:
                bits = self.held_bits()
                curve.append([step, round(loss.item(), 4), round(bits, 4)])
                self.say(f"{self.name} step {step}/{self.steps} train {loss.item():.3f} nats/token, "
                         f"held out {bits:.4f} bits/byte, {time.time() - begin:.0f} s")
                if bits < best:
                    best = bits
                    best_weights = {k: v.clone() for k, v in self.average.items()}
        self.put(best_weights)
        return {"name": self.name, "shape": self.shape, "steps": self.steps,
                "held_out_bits_per_byte": best, "seconds": round(time.time() - begin, 1),
                "curve_step_train_nats_held_bits": curve}

    def fit_into_time(self, seconds_for_30):
        """Shortens the schedule when the machine is too slow for it."""
        possible = int(30 * self.minutes * 60 * 0.9 / seconds_for_30)
        if possible < self.steps:
            self.say(f"{self.name}: {self.steps} steps do not fit in {self.minutes} min, "
                     f"{possible} do")
            self.steps = max(40, possible)


def train_one(args):
    import torch
    from safetensors.torch import save_file

    torch.backends.cuda.matmul.allow_tf32 = True
    run = Run(torch, args.only, Path(args.input), args.minutes, args.batch,
              lambda s: print(s, flush=True))
    result = run.fit()
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    weights = {k: v.detach().to(torch.bfloat16).cpu().contiguous()
               for k, v in run.model.named_parameters()}
    save_file(weights, str(out / "model.safetensors"), metadata={"format": "pt"})
    write_json(out / "result.json", result)


def export(args, folder, result):
    """Adds the text files, checks the folder with transformers, writes the record and samples."""
    import safetensors
    import tokenizers
    import torch
    import transformers

    out, shape = Path(args.out), result["shape"]
    source = Path(args.input)
    (out / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    (out / "tokenizer.json").write_bytes((source / f"tokenizer-{shape['vocab']}.json").read_bytes())
    write_json(out / "tokenizer_config.json", tokenizer_config(shape["vocab"]))
    write_json(out / "config.json", model_config(shape))
    eos = shape["vocab"] - len(CONTROL)
    write_json(out / "generation_config.json", {
        "bos_token_id": eos, "eos_token_id": eos, "pad_token_id": eos, "do_sample": True,
        "temperature": 0.8, "top_p": 0.95})

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = transformers.Qwen3ForCausalLM.from_pretrained(str(out), dtype=torch.bfloat16).to(device)
    model.eval()
    _, held, held_bytes = load_tokens(source, shape["vocab"])
    with torch.no_grad():
        nats = held_out_nats(torch, lambda ids: model(ids).logits, held, device, args.batch)
    bytes_used = (out / "model.safetensors").stat().st_size
    final = {"held_out_tokens": len(held) - 1, "held_out_bytes": held_bytes,
             "nats_per_token": round(nats / (len(held) - 1), 4),
             "perplexity_per_token": round(math.exp(nats / (len(held) - 1)), 2),
             "bits_per_byte": round(nats / math.log(2) / held_bytes, 4)}
    print(f"held out, bf16 weights in transformers: {final}")
    samples = sample_texts(torch, model, out, device)
    write_json(out / "PROVENANCE.json", {
        "what": "a Qwen3-architecture model trained from random weights by tools/train_demo.py",
        **json.loads((source / "prepare.json").read_text()),
        "seed": SEED, "window": WINDOW, "batch": args.batch, "chosen": result["name"],
        "shape": shape, "steps": result["steps"], "seconds": result["seconds"],
        "curve_step_train_nats_held_bits": result["curve_step_train_nats_held_bits"],
        "held_out": final, "candidates": args.ranking,
        "parameters": sum(p.numel() for p in model.parameters()),
        "model_bytes": bytes_used, "model_sha256": sha256(out / "model.safetensors"),
        "tokenizer_sha256": sha256(out / "tokenizer.json"),
        "versions": {"python": platform.python_version(), "torch": torch.__version__,
                     "transformers": transformers.__version__,
                     "tokenizers": tokenizers.__version__,
                     "safetensors": safetensors.__version__},
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "licence": "MIT, as the rest of reel; trained on texts in the public domain",
        "samples": samples})
    if bytes_used > MAX_BYTES:
        sys.exit(f"model.safetensors is {bytes_used:,} bytes, {MAX_BYTES:,} are allowed")


def sample_texts(torch, model, out, device):
    from tokenizers import Tokenizer

    tok = Tokenizer.from_file(str(out / "tokenizer.json"))
    torch.manual_seed(SEED)
    samples = []
    for prompt in ("The morning after the ball, Emma", '"My dear Mr. Darcy,"',
                   "It was a truth which nobody in Bath"):
        ids = torch.tensor([tok.encode(prompt).ids], device=device)
        made = model.generate(ids, max_new_tokens=160, do_sample=True, temperature=0.8, top_p=0.95,
                              top_k=0)[0].tolist()
        text = tok.decode(made, skip_special_tokens=True)
        samples.append({"prompt": prompt, "text": text})
        print("----", text, sep="\n")
    return samples


def train(args):
    if args.child:
        return train_one(args)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    work = Path(args.work)
    names = [args.only] if args.only else [n for n in CANDIDATES if n != "tiny"]
    jobs = args.jobs or len(names)
    log = open(out / "train.log", "w")
    waiting, running, results = list(names), [], []
    while waiting or running:
        while waiting and len(running) < jobs:
            name = waiting.pop(0)
            folder = work / name
            command = [sys.executable, __file__, "train", "--child", "--in", args.input, "--out",
                       str(folder), "--minutes", str(args.minutes), "--batch", str(args.batch),
                       "--only", name]
            running.append((name, folder, subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": str(max(1, os.cpu_count() // jobs))})))
        time.sleep(0.5)
        for entry in [r for r in running if r[2].poll() is not None]:
            running.remove(entry)
            name, folder, process = entry
            if process.returncode != 0:
                print(f"{name}: failed with {process.returncode}, see {out}/train.log")
                continue
            result = json.loads((folder / "result.json").read_text())
            print(f"{name}: held out {result['held_out_bits_per_byte']:.4f} bits/byte after "
                  f"{result['steps']} steps, {result['seconds']} s", flush=True)
            results.append((result["held_out_bits_per_byte"], name, folder, result))
    if not results:
        sys.exit(f"no candidate could be trained: see {out}/train.log")
    results.sort(key=lambda r: r[0])
    args.ranking = [{"name": r[1], "bits_per_byte": round(r[0], 4), "steps": r[3]["steps"]}
                    for r in results]
    export(args, results[0][2], results[0][3])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    p = commands.add_parser("prepare")
    p.add_argument("--data", required=True, help="folder the .deb was unpacked to")
    p.add_argument("--deb", help="the .deb itself, for its check sum")
    p.add_argument("--out", default=".demo")
    t = commands.add_parser("train")
    t.add_argument("--in", dest="input", default=".demo")
    t.add_argument("--out", required=True)
    t.add_argument("--minutes", type=float, default=6.0, help="limit for each candidate")
    t.add_argument("--only", choices=list(CANDIDATES))
    t.add_argument("--jobs", type=int, help="candidates at a time (default: all)")
    t.add_argument("--batch", type=int, default=16, help="windows a step")
    t.add_argument("--work", default="/tmp/reel-demo", help="folder for candidates' weights")
    t.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    (prepare if args.command == "prepare" else train)(args)


if __name__ == "__main__":
    main()
