#!/usr/bin/env python3
"""Trains a small speech model: Qwen3-ASR's architecture on synthesised digits and phrases.

    train_asr.py prepare --out DIR [--parts N] [--mib M] [--seconds S] [--jobs J] [--no-test]
        lets espeak-ng and flite speak, writes packs DIR/part1.pack, ... of at most M MiB, and
        DIR/test.pack of voices and texts that no other pack has.
    train_asr.py train --data DIR [DIR ...] --out DIR [--minutes 2.5]
        trains on all packs; writes config.json, generation_config.json, model.safetensors,
        tokenizer.json, tokenizer_config.json, PROVENANCE.json and train.log to DIR. Needs `torch`,
        `tokenizers`, `safetensors`; a CUDA device makes it minutes.
    train_asr.py golden --data DIR --out DIR [--clips 20]
        compares the folder with transformers' Qwen3-ASR class in float32 on held-out clips (other
        logits are an error) and writes golden.json and golden.ulaw: clips (mu-law, 16 kHz) and the
        greedy ids of that class.

An utterance of the training is one clip or several, made on the device: other speed and pitch by
resampling, silence around, an echo, another spectrum, noise, another level, 16 bits. Beside the
decoder's loss the audio tower learns to name words by itself (CTC); that head is not kept.
"""

import argparse
import json
import math
import multiprocessing
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import asr_speech as speech  # noqa: E402
from asr_batches import (  # noqa: E402
    LONG_FROM, SECONDS, Bank, Planner, Prompts, make_tokenizer, masked, spoiled, write_json)
from asr_golden import golden  # noqa: E402
from asr_model import (  # noqa: E402
    CHUNK_TOKENS, HOP, RATE, build_model, log_mel, mel_filters, model_config, tokens)

SEED = 1877
SHAPES = {
    #        vocab hidden layers heads kv inter channels audio: hidden layers inter
    "speech": (4160, 256, 3, 4, 2, 256, 48, 192, 4, 256),
    "tiny":   (4160, 64, 2, 1, 1, 128, 16, 64, 2, 128),  # for trying the script
}
FIELDS = ("vocab", "hidden", "layers", "heads", "kv_heads", "intermediate", "channels",
          "audio_hidden", "audio_layers", "audio_intermediate")
CTC_WEIGHT = 0.3
PEAK_RATE = 1.5e-3
MAX_BYTES = 7_500_000

# ---- prepare -------------------------------------------------------------------------------------

def version_of(program):
    line = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    return " ".join(line.split("Data at")[0].split()) or "unknown"


def spoken(pool, jobs, until):
    """Clips in the jobs' order, until a time."""
    for clip in pool.imap(speech.speak, jobs, chunksize=4):
        if clip is not None:
            yield clip
        if time.time() > until:
            return


def prepare(args):
    out, until = Path(args.out), time.time() + args.seconds
    out.mkdir(parents=True, exist_ok=True)
    seen, held = speech.espeak_variants()
    train, test = {"espeak": seen}, {"espeak": held}
    if shutil.which("flite"):
        train["flite"], test["flite"] = list(speech.FLITE_TRAIN), list(speech.FLITE_HELD_OUT)
    kinds = ("digits", "digits", "phrase", "phrase", "words")
    record = {"synthesisers": {"espeak-ng": version_of("espeak-ng"),
                               **({"flite": version_of("flite")} if "flite" in train else {})},
              "seed": args.seed, "packs": {}}

    def note(name, clips):
        speech.pack_write(out / name, clips)
        record["packs"][name] = {
            "clips": len(clips), "voices": len({c[2] for c in clips}),
            "seconds": round(sum(len(c[0]) for c in clips) / RATE, 1),
            "bytes": (out / name).stat().st_size}
        print(f"{out / name}: {record['packs'][name]}", flush=True)

    seed = args.seed * 1_000_000
    with multiprocessing.Pool(args.jobs) as pool:
        if not args.no_test:
            groups = [({engine: voices}, (kind,)) for engine, voices in test.items()
                      for kind in ("digits", "phrase")]
            jobs = [(seed + 1000 * g + i, *group, True) for g, group in enumerate(groups)
                    for i in range(args.test_clips)]
            note("test.pack", list(spoken(pool, jobs, math.inf)))
        # Voices of flite come from people, and are few: each says more than one of espeak-ng.
        def engine(i):
            return "flite" if "flite" in train and i % 8 < 3 else "espeak"

        jobs = ((seed + 10_000 + i, {engine(i): train[engine(i)]}, kinds, False)
                for i in range(10**9))
        clips, size, part = [], 0, 1
        stream = spoken(pool, jobs, until)
        for clip in stream:
            if size + len(clip[0]) + 80 * (len(clips) + 1) > args.mib << 20:
                note(f"part{part}.pack", clips)
                clips, size, part = [], 0, part + 1
                if part > args.parts:
                    break
            clips.append(clip)
            size += len(clip[0])
        if clips and part <= args.parts:
            note(f"part{part}.pack", clips)
        pool.terminate()
    write_json(out / "prepare.json", record)


# ---- train ---------------------------------------------------------------------------------------

class Run:
    def __init__(self, torch, args, out, say):
        self.torch, self.args, self.out, self.say = torch, args, out, say
        self.shape = dict(zip(FIELDS, SHAPES[args.only]))
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.manual_seed(SEED)
        self.tok, self.ids = make_tokenizer(Path(args.tokenizer), out)
        packs = [p for d in args.data for p in sorted(Path(d).glob("part*.pack"))]
        self.clips = [c for p in packs for c in speech.pack_read(p)][: args.most_clips]
        self.tests = speech.pack_read(next(Path(d) / "test.pack" for d in args.data
                                           if (Path(d) / "test.pack").exists()))
        self.prompts = Prompts(torch, self.tok, self.ids, self.device)
        self.bank = Bank(torch, self.clips, self.device)
        self.test_bank = Bank(torch, self.tests, self.device)
        self.filters = torch.tensor(mel_filters(np), dtype=torch.float32, device=self.device)
        self.model = build_model(torch, self.shape).to(self.device)
        self.ctc = torch.nn.Linear(self.shape["audio_hidden"], len(speech.WORDS) + 1)
        self.ctc.to(self.device)
        self.average = {k: v.detach().clone() for k, v in self.model.named_parameters()}
        seconds = sum(len(c[0]) for c in self.clips) / RATE
        say(f"{len(self.clips)} clips, {seconds / 3600:.2f} h, {len(self.tests)} for the test; "
            f"{sum(p.numel() for p in self.model.parameters()):,} parameters; {self.device}")

    def batches(self):
        torch = self.torch
        planner = Planner(self.clips, self.bank.starts, self.tok, self.args.rows, SEED)

        class Plans(torch.utils.data.IterableDataset):
            def __iter__(self):
                return iter(planner)

        jobs = self.args.jobs
        return iter(torch.utils.data.DataLoader(
            Plans(), batch_size=None, num_workers=jobs, pin_memory=self.device == "cuda",
            **({"prefetch_factor": 4} if jobs else {})))

    def loss(self, plan, seconds):
        """Cross entropy an id, CTC a word. Nothing here waits for the device: CTC, too, wants its
        lengths on the host."""
        torch, F = self.torch, self.torch.nn.functional
        p = {k: v.to(self.device, non_blocking=True) for k, v in plan.items()}
        lengths = tokens(plan["samples"] // HOP), plan["n_words"]
        with torch.no_grad():
            x = spoiled(torch, self.bank.utterances(p, seconds), p["samples"])
            mel = masked(torch, log_mel(torch, x, p["samples"], self.filters))
        n_tokens = tokens(p["samples"] // HOP)
        n_audio = seconds * CHUNK_TOKENS
        ids, is_audio, row, first = self.prompts.arranged(n_tokens, p["target"], n_audio)
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.device == "cuda"):
            heard = self.model.audio_tower(mel, n_tokens)
            names = self.ctc(heard)
            hidden = self.model.hidden(ids, self.model.audio_tower.project(heard), is_audio, row)
            at = first[:, None] - 1 + torch.arange(p["target"].shape[1], device=self.device)
            hidden = hidden.gather(1, at[..., None].expand(-1, -1, hidden.shape[-1]))
            logits = self.model.head(hidden)
        cross = F.cross_entropy(logits.float().flatten(0, 1), p["target"].flatten(),
                                ignore_index=-100)
        ctc = F.ctc_loss(names.float().log_softmax(-1).transpose(0, 1), p["words"], *lengths,
                         reduction="sum", zero_infinity=True)
        return cross, ctc / p["n_words"].sum().clamp(min=1)

    def rate(self, progress):
        warm = 0.04
        if progress < warm:
            return PEAK_RATE * max(0.02, progress / warm)
        left = (progress - warm) / (1 - warm)
        return PEAK_RATE * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, left))))

    def optimizer(self):
        named = list(self.model.named_parameters()) + list(self.ctc.named_parameters())
        return self.torch.optim.AdamW(
            [{"params": [p for _, p in named if p.dim() >= 2], "weight_decay": 0.05},
             {"params": [p for _, p in named if p.dim() < 2], "weight_decay": 0.0}],
            betas=(0.9, 0.98), fused=self.device == "cuda")

    def put(self, values):
        with self.torch.no_grad():
            for k, v in self.model.named_parameters():
                v.copy_(values[k])

    def fit(self, evaluations=10):
        """The schedule follows the clock, so that any machine ends it in the minutes given."""
        torch, optimizer, batches = self.torch, self.optimizer(), self.batches()
        curve, step, judged, counts = [], 0, 0, {"short": 0, "long": 0}
        begin, limit = time.time(), self.args.minutes * 60
        parameters = [p for g in optimizer.param_groups for p in g["params"]]
        live = [p for _, p in self.model.named_parameters()]
        average = list(self.average.values())
        while True:
            progress = max(step / self.args.steps, (time.time() - begin) / limit)
            if progress * evaluations >= judged + 1 or progress >= 1:
                judged = int(progress * evaluations)
                now = {k: v.detach().clone() for k, v in self.model.named_parameters()}
                self.put(self.average)
                wer = self.judge(self.tests[:: max(1, len(self.tests) // 64)])["all"]["wer"]
                save(self, self.out)  # in case the machine does not live to the end
                self.put(now)
                curve.append([step, round(cross.item(), 4), round(ctc.item(), 4), wer])
                self.say(f"step {step} {counts}: {cross.item():.3f} nats an id, {ctc.item():.3f} a "
                         f"word; held out {100 * wer:.1f} % of words wrong; "
                         f"{time.time() - begin:.0f} s")
                if progress >= 1:
                    break
            kind, plan = next(batches)
            if kind == "long" and progress < LONG_FROM:
                continue
            for group in optimizer.param_groups:
                group["lr"] = self.rate(progress)
            cross, ctc = self.loss(plan, SECONDS[kind])
            optimizer.zero_grad(set_to_none=True)
            (cross + CTC_WEIGHT * ctc).backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            with torch.no_grad():
                torch._foreach_lerp_(average, [p.detach() for p in live], 1 / min(step + 1, 100))
            step, counts[kind] = step + 1, counts[kind] + 1
        self.put(self.average)
        return {"shape": self.shape, "steps": step, "batches": counts, "rows": self.args.rows,
                "seconds": round(time.time() - begin, 1),
                "curve_step_nats_an_id_nats_a_word_held_out_wer": curve}

    # ---- how well it hears -----------------------------------------------------------------------

    def answers(self, x, n_samples, most=48):
        """Greedy ids of each clip. x [B, T]."""
        torch = self.torch
        seconds = x.shape[1] // RATE
        with torch.no_grad():
            n_tokens = tokens(n_samples // HOP)
            heard = self.model.audio_tower(log_mel(torch, x, n_samples, self.filters), n_tokens)
            audio = self.model.audio_tower.project(heard)
            answers = torch.full((len(x), most), -1, device=self.device)
            going = torch.ones(len(x), dtype=torch.bool, device=self.device)
            for i in range(most):
                ids, is_audio, row, first = self.prompts.arranged(
                    n_tokens, answers[:, : i + 1], seconds * CHUNK_TOKENS)
                hidden = self.model.hidden(ids, audio, is_audio, row)
                last = hidden[torch.arange(len(x), device=self.device), first + i - 1]
                answers[going, i] = self.model.head(last).argmax(-1)[going]
                going &= (answers[:, i] != self.ids["<|im_end|>"])
                going &= (answers[:, i] != self.ids["<|endoftext|>"])
                if not going.any():
                    break
        return [[i for i in row if i >= 0] for row in answers.tolist()]

    def text_of(self, ids):
        text = self.tok.decode(ids, skip_special_tokens=True)
        return text.split("<asr_text>", 1)[-1].strip()

    def judge(self, tests, noise=None):
        """{engine and kind: clips, words, wrong words' share, wrong clips' share}. Quarter of a
        second of silence around each clip; noise: so many dB below the speech."""
        torch, results = self.torch, []
        starts = {id(c): s for c, s in zip(self.tests, self.test_bank.starts)}
        self.model.eval()
        torch.manual_seed(SEED)
        for i in range(0, len(tests), 64):
            part = tests[i : i + 64]
            column = lambda values, kind: torch.tensor(values, dtype=kind,
                                                       device=self.device)[:, None]
            p = {"first": column([RATE // 4] * len(part), torch.int64),
                 "start": column([starts[id(c)] for c in part], torch.int64),
                 "length": column([len(c[0]) for c in part], torch.int64),
                 "speed": column([1.0] * len(part), torch.float32),
                 "level": column([1.0] * len(part), torch.float32)}
            x = self.test_bank.utterances(p, 9)
            n = torch.tensor([len(c[0]) + RATE // 2 for c in part], device=self.device)
            if noise is not None:
                power = x.square().sum(1, keepdim=True) / p["length"]
                x = x + torch.randn_like(x) * power.sqrt() * 10 ** (-noise / 20)
                x = x * (torch.arange(x.shape[1], device=self.device)[None] < n[:, None])
            results += zip(part, map(self.text_of, self.answers(x, n)))
        self.model.train()
        table = {}
        for (_, text, voice, kind), said in results:
            wrong = distance(text.split(), said.split())
            for name in ("all", f"{voice.split(':')[0]} {kind}"):
                row = table.setdefault(name, [0, 0, 0, 0])
                for j, v in enumerate((1, len(text.split()), wrong, wrong > 0)):
                    row[j] += v
        self.last = results
        return {k: {"clips": c, "words": w, "wer": round(e / w, 4), "clips_wrong": round(b / c, 4)}
                for k, (c, w, e, b) in table.items()}


def distance(a, b):
    """Words put in, left out or exchanged between two lists."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        above, row = row, [i + 1]
        for j, y in enumerate(b):
            row.append(min(above[j] + (x != y), above[j + 1] + 1, row[j] + 1))
    return row[-1]


# ---- export --------------------------------------------------------------------------------------

def save(run, out):
    """config.json, generation_config.json and model.safetensors; returns the stored weights."""
    import torch
    from safetensors.torch import save_file

    weights = {k: v.detach().to(torch.bfloat16).cpu().contiguous()
               for k, v in run.model.named_parameters()}
    save_file({"thinker." + k: v for k, v in weights.items()}, str(out / "model.safetensors"),
              metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)
    write_json(out / "config.json", model_config(run.shape, run.ids))
    write_json(out / "generation_config.json", {
        "do_sample": False, "eos_token_id": [run.ids["<|im_end|>"], run.ids["<|endoftext|>"]],
        "pad_token_id": run.ids["<|endoftext|>"]})
    return weights


def export(run, result, out):
    import safetensors
    import tokenizers
    import torch

    weights = save(run, out)
    prepared = [json.loads(p.read_text()) for p in
                (Path(d) / "prepare.json" for d in run.args.data) if p.exists()]
    record = {
        "what": "a Qwen3-ASR-architecture model trained from random weights by tools/train_asr.py",
        "data": prepared,
        "held_out_voices": {"espeak-ng": speech.HELD_OUT_VARIANTS, "flite": speech.FLITE_HELD_OUT},
        "seed": SEED, **result}
    write_json(out / "PROVENANCE.json", record)  # the whole of it when all below went well
    run.put({k: v.float().to(run.device) for k, v in weights.items()})  # as a reader will see them
    held = {"clean": run.judge(run.tests)}
    record["samples"] = [{"voice": c[2], "said": c[1], "heard": said}
                         for c, said in run.last[:: max(1, len(run.last) // 24)]]
    record["wrong"] = [{"voice": c[2], "said": c[1], "heard": said}
                       for c, said in run.last if c[1] != said][:40]
    held["noise 20 dB below"] = run.judge(run.tests, 20)
    held["noise 10 dB below"] = run.judge(run.tests, 10)
    silence = torch.zeros(4, 2 * RATE, device=run.device)
    silence[1:] = torch.randn_like(silence[1:]) * torch.tensor([[1e-3], [1e-2], [0.1]],
                                                               device=run.device)
    n = torch.full((4,), 2 * RATE, device=run.device)
    held["silence and noise"] = [run.tok.decode(a, skip_special_tokens=False)
                                 for a in run.answers(silence, n)]
    for name, table in held.items():
        run.say(f"{name}: {table}")
    record.update({
        "held_out": held, "parameters": sum(v.numel() for v in weights.values()),
        "model_bytes": (out / "model.safetensors").stat().st_size,
        "versions": {"python": platform.python_version(), "torch": torch.__version__,
                     "tokenizers": tokenizers.__version__, "safetensors": safetensors.__version__},
        "device": torch.cuda.get_device_name() if run.device == "cuda" else "cpu",
        "licence": "MIT, as the rest of reel; trained on the output of speech synthesisers"})
    write_json(out / "PROVENANCE.json", record)
    if record["model_bytes"] > MAX_BYTES:
        sys.exit(f"model.safetensors is {record['model_bytes']:,} bytes, {MAX_BYTES:,} are allowed")


def train(args):
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import torch

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    log = open(out / "train.log", "w")

    def say(line):
        print(line, flush=True)
        print(line, file=log, flush=True)

    run = Run(torch, args, out, say)
    result = run.fit()
    export(run, result, out)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    p = commands.add_parser("prepare")
    p.set_defaults(run=prepare)
    p.add_argument("--out", required=True)
    p.add_argument("--parts", type=int, default=1)
    p.add_argument("--mib", type=int, default=25, help="of a pack at most")
    p.add_argument("--seconds", type=float, default=math.inf, help="to speak at most")
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--test-clips", type=int, default=80, help="a synthesiser and kind")
    p.add_argument("--no-test", action="store_true")
    p = commands.add_parser("train")
    p.set_defaults(run=train)
    p.add_argument("--data", nargs="+", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--tokenizer", default="models/demo", help="a folder")
    p.add_argument("--minutes", type=float, default=2.5)
    p.add_argument("--steps", type=int, default=20000, help="at most")
    p.add_argument("--rows", type=int, default=256, help="utterances a batch")
    p.add_argument("--jobs", type=int, default=8, help="processes that plan batches")
    p.add_argument("--most-clips", type=int, default=None)
    p.add_argument("--only", choices=list(SHAPES), default="speech")
    p = commands.add_parser("golden")
    p.set_defaults(run=golden)
    p.add_argument("--data", nargs="+", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--clips", type=int, default=20)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
