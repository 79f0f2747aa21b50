#!/usr/bin/env python3
"""Trains a small hybrid: Qwen3.5's architecture, three DeltaNet layers and one of attention, on
Jane Austen and on recalling pairs of words over up to 1,150 tokens.

    train_hybrid.py --out DIR [--in .demo] [--minutes 6] [--only NAME]

reads what `train_demo.py prepare` wrote and writes config.json, generation_config.json,
model.safetensors, tokenizer.json, tokenizer_config.json, recall.json, PROVENANCE.json and train.log
to DIR. Needs `torch`, `tokenizers`, `safetensors`, `transformers`; a CUDA device makes it minutes.

A recall example is prose with pairs in it, told as `<|im_start|> key value` and asked for later, in
another order, as `<|im_end|> key`. Attention alone could answer, so in most examples it sees only
the last few positions: the DeltaNet's state has to carry the pairs. Recall is reported as the
finished model answers, with that state emptied on the way, and with attention kept short.

The exported folder is compared with transformers' Qwen3.5 class in float32; differing logits are an
error.
"""

import argparse
import json
import math
import platform
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import train_demo as demo  # noqa: E402
from hybrid_model import CONTEXT, build_model, model_config  # noqa: E402

CANDIDATES = {
    #  name   vocab hidden layers heads kv head inter delta heads, dim  window prose recall dropout
    "hybrid": (4096, 256, 4, 4, 2, 64, 256, 4, 64, 1280, 8, 24, 0.15),
    "tiny":   (2048, 64, 4, 2, 1, 32, 96, 2, 32, 256, 2, 6, 0.0),  # for trying the script
}
FIELDS = ("vocab", "hidden", "layers", "heads", "kv_heads", "head_dim", "intermediate",
          "delta_heads", "delta_dim", "window", "prose_rows", "recall_rows", "dropout")
NEAR_SHARE = 0.75      # of the recall rows
WORDS = 512            # keys and values are drawn from these
PAIRS = (2, 12)
ASKED = 8              # pairs of an evaluated example
DISTANCES = (100, 300, 1000)
PEAK_RATE = 2e-3
MAX_BYTES = 7_000_000
MAX_LOGIT_ERROR = 2e-3  # of the largest logit, float32 here against float32 there


# ---- recall --------------------------------------------------------------------------------------

class Recall:
    """Makes examples out of a stream of prose ids. An example is (ids, [positions of answers])."""

    def __init__(self, tokenizer, vocab, prose, seed):
        import numpy as np

        self.rng, self.prose = np.random.default_rng(seed), prose
        self.told, self.asked = vocab - 2, vocab - 1  # <|im_start|>, <|im_end|>
        names = (tokenizer.id_to_token(i) for i in range(vocab))
        words = [i for i, name in enumerate(names)
                 if len(name) > 3 and name[0] == "\u0120" and name[1:].isalpha()
                 and name[1:].islower()]
        self.words = np.array(words[:WORDS])  # the most frequent, as merges come in that order

    def prose_ids(self, n):
        at = int(self.rng.integers(0, len(self.prose) - n))
        return self.prose[at : at + n]

    def episode(self, ids, answers, words, n_pairs, gap):
        """Adds pairs, prose and the questions to ids; takes the keys from words."""
        keys = [words.pop() for _ in range(n_pairs)]
        values = self.words[self.rng.integers(0, len(self.words), n_pairs)].tolist()
        for key, value in zip(keys, values):
            ids += [self.told, key, value]
        ids += self.prose_ids(gap)
        for i in self.rng.permutation(n_pairs):
            answers.append(len(ids) + 2)
            ids += [self.asked, keys[i], values[i]]

    def example(self, length):
        """`length` ids: as many episodes as fit, with gaps of about one size; no key twice."""
        rng, answers = self.rng, []
        words = rng.permutation(self.words).tolist()
        farthest = length - 6 * PAIRS[1] - 40  # so that all questions of the first pairs fit
        scale = math.exp(rng.uniform(math.log(24), math.log(max(25, farthest))))
        ids = list(self.prose_ids(int(rng.integers(0, 32))))
        while len(ids) < length and len(words) >= PAIRS[1]:
            self.episode(ids, answers, words, int(rng.integers(PAIRS[0], PAIRS[1] + 1)),
                         int(rng.uniform(scale / 2, scale)))
            ids += self.prose_ids(int(rng.integers(0, 16)))
        ids += self.prose_ids(max(0, length - len(ids)))
        return ids[:length], [a for a in answers if a < length]

    def question(self, distance):
        """ASKED pairs, `distance` tokens of prose, the questions, no more; always as long."""
        ids, answers = list(self.prose_ids(16)), []
        self.episode(ids, answers, self.rng.permutation(self.words).tolist(), ASKED, distance)
        return ids, answers


def recall_accuracy(torch, logits_of, maker, distance, n_examples, device, short=False,
                    empty=False):
    """Share of answers that are the model's first choice. `short`: attention sees NEAR positions;
    `empty`: the DeltaNets forget everything half way to the questions."""
    right = total = 0
    for start in range(0, n_examples, 16):
        examples = [maker.question(distance) for _ in range(min(16, n_examples - start))]
        ids = torch.tensor([e[0] for e in examples], device=device)
        places = torch.tensor(examples[0][1], device=device)
        half_way = examples[0][1][0] - 2 - distance // 2
        with torch.no_grad():
            logits = logits_of(ids, near_rows=len(examples) if short else 0,
                               empty_at=half_way if empty else None)
        right += int((logits[:, places - 1].argmax(-1) == ids[:, places]).sum())
        total += ids[:, places].numel()
    return right / total


# ---- train ---------------------------------------------------------------------------------------

class Run:
    """The training, from random weights to the best averaged weights."""

    def __init__(self, torch, name, folder, minutes, most_steps, say):
        from tokenizers import Tokenizer

        self.torch, self.minutes, self.most_steps, self.say = torch, minutes, most_steps, say
        self.shape = dict(zip(FIELDS, CANDIDATES[name]))
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.manual_seed(demo.SEED)
        self.seen, self.held, self.held_bytes = demo.load_tokens(folder, self.shape["vocab"])
        self.tokenizer = Tokenizer.from_file(str(folder / f"tokenizer-{self.shape['vocab']}.json"))
        self.maker = Recall(self.tokenizer, self.shape["vocab"], self.seen, demo.SEED)
        self.seen_tensor = torch.tensor(self.seen, device=self.device)
        self.distances = [d for d in DISTANCES if d + 6 * ASKED + 32 < self.shape["window"]]
        positions = max(self.shape["window"], demo.WINDOW) + 64
        self.model = build_model(torch, self.shape, positions).to(self.device)
        self.average = {k: v.detach().clone() for k, v in self.model.named_parameters()}

    def rate(self, progress):
        warm = 0.03
        if progress < warm:
            return PEAK_RATE * max(0.02, progress / warm)
        left = (progress - warm) / (1 - warm)
        return PEAK_RATE * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, left))))

    def batch(self, generator):
        """ids [prose rows + recall rows, window + 1], and where answers are: rows, positions."""
        torch, s = self.torch, self.shape
        n = s["window"] + 1
        start = torch.randint(0, len(self.seen) - n, (s["prose_rows"],), generator=generator)
        index = start.to(self.device)[:, None] + torch.arange(n, device=self.device)
        prose = self.seen_tensor[index]
        examples = [self.maker.example(n) for _ in range(s["recall_rows"])]
        recall = torch.tensor([e[0] for e in examples], device=self.device)
        rows = [s["prose_rows"] + i for i, e in enumerate(examples) for _ in e[1]]
        places = [a for e in examples for a in e[1]]
        answers = torch.tensor((rows, places), dtype=torch.long, device=self.device)
        return torch.cat((prose, recall)), answers

    def loss(self, ids, answers):
        """(nats a token of prose, nats an answer)"""
        torch, s = self.torch, self.shape
        near = round(NEAR_SHARE * s["recall_rows"])
        cross_entropy = torch.nn.functional.cross_entropy
        with torch.autocast(self.device, dtype=torch.bfloat16):
            hidden = self.model.hidden(ids[:, :-1], near)
            prose = self.model.head(hidden[: s["prose_rows"]])
            answered = self.model.head(hidden[answers[0], answers[1] - 1])
        prose = cross_entropy(prose.float().flatten(0, 1), ids[: s["prose_rows"], 1:].flatten())
        return prose, cross_entropy(answered.float(), ids[answers[0], answers[1]])

    def judge(self, n_examples):
        """(bits per byte of held-out text, {distance: recall}) under the averaged weights."""
        torch = self.torch
        now = {k: v.detach().clone() for k, v in self.model.named_parameters()}
        self.put(self.average)
        self.model.eval()
        maker = Recall(self.tokenizer, self.shape["vocab"], self.held, 7)
        with torch.no_grad(), torch.autocast(self.device, dtype=torch.bfloat16):
            nats = demo.held_out_nats(torch, self.model, self.held, self.device, 16)
            recall = {d: recall_accuracy(torch, self.model, maker, d, n_examples, self.device)
                      for d in self.distances}
        self.model.train()
        self.put(now)
        return nats / math.log(2) / self.held_bytes, recall

    def put(self, values):
        with self.torch.no_grad():
            for k, v in self.model.named_parameters():
                v.copy_(values[k])

    def optimizer(self):
        matrices = [p for p in self.model.parameters() if p.dim() == 2]
        others = [p for p in self.model.parameters() if p.dim() != 2]
        return self.torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
            betas=(0.9, 0.98), fused=self.device == "cuda")

    def step(self, optimizer, generator, n_done):
        torch = self.torch
        prose, answered = self.loss(*self.batch(generator))
        optimizer.zero_grad(set_to_none=True)
        (prose + answered).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            live = dict(self.model.named_parameters())
            names = list(self.average)
            torch._foreach_lerp_([self.average[k] for k in names], [live[k] for k in names],
                                 1.0 / min(n_done + 1, 100))
        return prose, answered

    def fit(self, evaluations=24):
        """The schedule follows the clock, so that any machine ends it in the minutes given."""
        optimizer, generator = self.optimizer(), self.torch.Generator().manual_seed(demo.SEED)
        best, best_weights, curve, step, judged = math.inf, None, [], 0, 0
        begin, limit = time.time(), self.minutes * 60
        while True:
            progress = max(step / self.most_steps, (time.time() - begin) / limit)
            if progress * evaluations >= judged + 1 or progress >= 1:
                judged = int(progress * evaluations)
                bits, recall = self.judge(16)
                curve.append([step, round(prose.item(), 4), round(answered.item(), 4),
                              round(bits, 4), [round(r, 3) for r in recall.values()]])
                self.say(f"step {step} prose {prose.item():.3f}, answers {answered.item():.3f} "
                         f"nats; held out {bits:.4f} bits/byte, recall {curve[-1][-1]}; "
                         f"{time.time() - begin:.0f} s")
                # A bit per byte counts as much as all answers: both settle within tenths.
                score = bits + 1 - sum(recall.values()) / max(1, len(recall))
                if score < best:
                    best, best_weights = score, {k: v.clone() for k, v in self.average.items()}
                if progress >= 1:
                    break
            for group in optimizer.param_groups:
                group["lr"] = self.rate(progress)
            prose, answered = self.step(optimizer, generator, step)
            step += 1
        self.put(best_weights)
        return {"shape": self.shape, "steps": step, "seconds": round(time.time() - begin, 1),
                "curve_step_prose_answer_nats_held_bits_recall": curve}


# ---- export --------------------------------------------------------------------------------------

def stored(torch, name, value):
    """bf16, but what published checkpoints have as float32 stays so."""
    exact = name.endswith(("A_log", "linear_attn.norm.weight"))
    return value.detach().to(torch.float32 if exact else torch.bfloat16).cpu().contiguous()


def against_transformers(torch, run, model):
    """Largest difference of logits to transformers' class, of the largest logit, both float32."""
    torch.backends.cuda.matmul.allow_tf32 = False
    run.model.eval()
    ids = torch.tensor([run.held[:300]], device=run.device)
    with torch.no_grad():
        ours, theirs = run.model(ids), model(ids).logits
    error = ((ours - theirs).abs().max() / theirs.abs().max()).item()
    if not error <= MAX_LOGIT_ERROR:
        sys.exit(f"logits differ from transformers' by {error:.2g} of the largest")
    return error


def recall_table(torch, run, n_examples):
    """{distance: {as it is, DeltaNet emptied, attention short}}, float32."""
    ways = {"recall": {}, "recall_without_delta_state": {"empty": True},
            "recall_with_short_attention": {"short": True}}
    table = {}
    for distance in run.distances:
        table[str(distance)] = {}
        for name, how in ways.items():
            maker = Recall(run.tokenizer, run.shape["vocab"], run.held, 1815)  # the same for each
            table[str(distance)][name] = round(recall_accuracy(
                torch, run.model, maker, distance, n_examples, run.device, **how), 4)
        run.say(f"recall over {distance}: {table[str(distance)]}")
    return table


def recall_prompts(run, each=4):
    """Prompts that end in a question, for goldens."""
    maker = Recall(run.tokenizer, run.shape["vocab"], run.held, 1817)
    prompts = []
    for distance in run.distances:
        for _ in range(each):
            ids, answers = maker.question(distance)
            prompts.append({"distance": distance, "prompt_ids": ids[: answers[0]],
                            "answer": ids[answers[0]]})
    return prompts


def export(run, result, source, out, n_examples):
    import safetensors
    import tokenizers
    import torch
    import transformers
    from safetensors.torch import save_file

    shape = run.shape
    weights = {k: stored(torch, k, v) for k, v in run.model.named_parameters()}
    save_file(weights, str(out / "model.safetensors"), metadata={"format": "pt"})
    demo.write_json(out / "PROVENANCE.json", result)  # the whole of it when all below went well
    run.put({k: v.float().to(run.device) for k, v in weights.items()})  # as a reader will see them
    (out / "tokenizer.json").write_bytes((source / f"tokenizer-{shape['vocab']}.json").read_bytes())
    demo.write_json(out / "tokenizer_config.json",
                    {**demo.tokenizer_config(shape["vocab"]), "model_max_length": CONTEXT})
    eos = shape["vocab"] - len(demo.CONTROL)
    demo.write_json(out / "config.json", model_config(shape, eos))
    demo.write_json(out / "generation_config.json", {
        "eos_token_id": eos, "pad_token_id": eos, "do_sample": True, "temperature": 0.8,
        "top_p": 0.95})
    lines = [json.dumps(p, separators=(",", ":")) for p in recall_prompts(run)]
    (out / "recall.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")

    model = transformers.AutoModelForCausalLM.from_pretrained(str(out), dtype=torch.float32)
    model.to(run.device).eval()
    error = against_transformers(torch, run, model)
    run.say(f"logits within {error:.2g} of the largest of transformers', float32")
    with torch.no_grad():
        nats = demo.held_out_nats(torch, run.model, run.held, run.device, 16)
    held = {"held_out_tokens": len(run.held) - 1, "held_out_bytes": run.held_bytes,
            "nats_per_token": round(nats / (len(run.held) - 1), 4),
            "bits_per_byte": round(nats / math.log(2) / run.held_bytes, 4)}
    run.say(f"held out, stored weights: {held}")
    bytes_used = (out / "model.safetensors").stat().st_size
    record = {
        "what": "a Qwen3.5-architecture model trained from random weights by tools/train_hybrid.py",
        **json.loads((source / "prepare.json").read_text()),
        "seed": demo.SEED, **result, "held_out": held,
        "recall": recall_table(torch, run, n_examples),
        "recall_examples": f"{n_examples} a distance, {ASKED} pairs each, held-out prose between",
        "logits_against_transformers": error,
        "parameters": sum(v.numel() for v in weights.values()), "model_bytes": bytes_used,
        "model_sha256": demo.sha256(out / "model.safetensors"),
        "tokenizer_sha256": demo.sha256(out / "tokenizer.json"),
        "versions": {"python": platform.python_version(), "torch": torch.__version__,
                     "transformers": transformers.__version__,
                     "tokenizers": tokenizers.__version__, "safetensors": safetensors.__version__},
        "device": torch.cuda.get_device_name() if run.device == "cuda" else "cpu",
        "licence": "MIT, as the rest of reel; trained on texts in the public domain"}
    demo.write_json(out / "PROVENANCE.json", record)
    record["samples"] = demo.sample_texts(torch, model, out, run.device)
    demo.write_json(out / "PROVENANCE.json", record)
    if bytes_used > MAX_BYTES:
        sys.exit(f"model.safetensors is {bytes_used:,} bytes, {MAX_BYTES:,} are allowed")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--in", dest="input", default=".demo")
    parser.add_argument("--out", required=True)
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--steps", type=int, default=3000, help="at most")
    parser.add_argument("--only", choices=list(CANDIDATES), default="hybrid")
    parser.add_argument("--examples", type=int, default=64, help="a distance, for the final recall")
    args = parser.parse_args()
    import torch

    torch.backends.cuda.matmul.allow_tf32 = True
    source, out = Path(args.input), Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    log = open(out / "train.log", "w")

    def say(line):
        print(line, flush=True)
        print(line, file=log, flush=True)

    run = Run(torch, args.only, source, args.minutes, args.steps, say)
    result = run.fit()
    export(run, result, source, out, args.examples)


if __name__ == "__main__":
    main()
