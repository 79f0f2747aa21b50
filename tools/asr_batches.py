"""Batches for tools/train_asr.py: which clips make an utterance, and the device's making of them;
and the tokens of a prompt around audio."""

import json
import math
from pathlib import Path

import numpy as np

import asr_speech as speech
from asr_model import BINS, CONTEXT, RATE

SECONDS = {"short": 6, "long": 20}   # of a batch's utterances at most
TARGETS = {"short": 48, "long": 144}  # ids of an answer at most
CLIPS = {"short": 4, "long": 24}     # clips an utterance at most
LONG_SHARE, LONG_FROM = 0.12, 0.25   # of the batches, from this part of the training on
SILENT_SHARE = 0.05

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]  # that the tokenizer has already
SPEECH_CONTROL = (["<|audio_start|>", "<|audio_end|>", "<tts_pad>", "<tts_text_bos>",
                   "<tts_text_eod>", "<tts_text_bos_single>", "<non_speech>", "<|audio_pad|>"]
                  + [f"<blank{i}>" for i in range(1, 28)] + ["<asr_text>"])
NOT_SPECIAL = ("<non_speech>", "<asr_text>")
BEFORE = "<|im_start|>system\n<|im_end|>\n<|im_start|>user\n<|audio_start|>"
AFTER = "<|audio_end|><|im_end|>\n<|im_start|>assistant\n"
HEARD, NOTHING = "language English<asr_text>{}<|im_end|>", "language None<asr_text><|im_end|>"


def write_json(path, value):
    Path(path).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


# ---- tokenizer -----------------------------------------------------------------------------------

def make_tokenizer(source, out):
    """The demo model's tokenizer and the tokens that Qwen3-ASR adds to Qwen3's."""
    from tokenizers import Tokenizer

    demo = json.loads((source / "tokenizer.json").read_text())
    config = json.loads((source / "tokenizer_config.json").read_text())
    first = 1 + max(t["id"] for t in demo["added_tokens"])
    for i, content in enumerate(SPEECH_CONTROL):
        how = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
               "special": content not in NOT_SPECIAL}
        demo["added_tokens"].append({"id": first + i, "content": content, **how})
        config["added_tokens_decoder"][str(first + i)] = {"content": content, **how}
    config.update(model_max_length=CONTEXT, eos_token=CONTROL[2])
    (out / "tokenizer.json").write_text(
        json.dumps(demo, ensure_ascii=False, separators=(",", ":")))
    write_json(out / "tokenizer_config.json", config)
    tok = Tokenizer.from_file(str(out / "tokenizer.json"))
    ids = {c: tok.token_to_id(c) for c in CONTROL + SPEECH_CONTROL}
    assert ids["<asr_text>"] == first + len(SPEECH_CONTROL) - 1, ids
    return tok, ids


# ---- batches -------------------------------------------------------------------------------------

class Planner:
    """Says what the utterances of a batch are made of; the device makes them. Iterates for ever."""

    def __init__(self, clips, starts, tok, rows, seed):
        self.clips, self.starts, self.tok, self.rows, self.seed = clips, starts, tok, rows, seed
        self.words = {w: i + 1 for i, w in enumerate(speech.WORDS)}  # 0 is CTC's blank
        self.voices = {}
        for i, (_, _, voice, _) in enumerate(clips):
            self.voices.setdefault(voice.split(":")[0], {}).setdefault(voice, []).append(i)

    def voice(self, rng):
        """Clips of one voice."""
        engines = sorted(self.voices)
        engine = "flite" if "flite" in engines and rng.random() < 0.3 else engines[0]
        return self.voices[engine][speech.pick(rng, list(self.voices[engine]))]

    def chosen(self, rng, kind):
        """Clips of an utterance: [(clip, speed, first sample)], samples, text."""
        limit = SECONDS[kind] * RATE - RATE // 10
        n_clips = 1 if rng.random() < 0.65 else int(rng.integers(2, CLIPS[kind] + 1))
        if kind == "long":
            n_clips = int(rng.integers(4, CLIPS[kind] + 1))
        mine, speed = self.voice(rng), math.exp(rng.uniform(-0.2, 0.2))
        at = 0 if rng.random() < 0.1 else int(rng.uniform(0, 0.6 if n_clips < 4 else 0.3) * RATE)
        placed, texts = [], []
        for _ in range(n_clips):
            if rng.random() < 0.05:
                mine = self.voice(rng)
            clip = speech.pick(rng, mine)
            own = speed * math.exp(rng.uniform(-0.04, 0.04))
            length = int(len(self.clips[clip][0]) / own)
            if at + length > limit:
                continue
            placed.append((clip, own, at))
            texts.append(self.clips[clip][1])
            at += length + int(rng.uniform(0.0, 0.5) ** 2 * 2 * RATE)
        return placed, min(limit, at + int(rng.uniform(0, 0.5) * RATE)), " ".join(texts)

    def row(self, rng, kind):
        if rng.random() < SILENT_SHARE:
            return [], int(rng.uniform(0.5, SECONDS[kind]) * RATE), ""
        while True:
            placed, n, text = self.chosen(rng, kind)
            if placed and not speech.is_held_out(text):
                return placed, n, text

    def batch(self, rng, kind):
        rows = self.rows if kind == "short" else max(1, self.rows // 4)
        k, length, n_words = CLIPS[kind], TARGETS[kind], TARGETS[kind]
        never = SECONDS[kind] * RATE + 1
        p = {"first": np.full((rows, k), never, np.int64), "start": np.zeros((rows, k), np.int64),
             "length": np.zeros((rows, k), np.int64), "speed": np.ones((rows, k), np.float32),
             "level": np.ones((rows, k), np.float32), "samples": np.zeros(rows, np.int64),
             "target": np.full((rows, length), -100, np.int64),
             "words": np.zeros((rows, n_words), np.int64), "n_words": np.zeros(rows, np.int64)}
        for r in range(rows):
            ids = words = None
            while ids is None or len(ids) > length or len(words) > n_words:
                placed, n, text = self.row(rng, kind)
                ids = self.tok.encode(HEARD.format(text) if text else NOTHING).ids
                words = [self.words[w] for w in text.split()]
            for i, (clip, speed, first) in enumerate(placed):
                p["first"][r, i], p["start"][r, i] = first, self.starts[clip]
                p["length"][r, i], p["speed"][r, i] = len(self.clips[clip][0]), speed
                p["level"][r, i] = math.exp(rng.uniform(-0.4, 0.4))
            p["samples"][r] = max(n, RATE // 2)
            p["target"][r, : len(ids)] = ids
            p["words"][r, : len(words)], p["n_words"][r] = words, len(words)
        return p

    def __iter__(self):
        import torch

        worker = torch.utils.data.get_worker_info()
        rng = np.random.default_rng([self.seed, worker.id if worker else 0])
        while True:
            kind = "long" if rng.random() < LONG_SHARE else "short"
            yield kind, {k: torch.from_numpy(v) for k, v in self.batch(rng, kind).items()}


class Bank:
    """All clips on the device as samples, silence between them."""

    GAP = 512

    def __init__(self, torch, clips, device):
        self.torch, self.device = torch, device
        lengths = np.array([len(c[0]) for c in clips])
        self.starts = self.GAP + np.concatenate(([0], np.cumsum(lengths + self.GAP)[:-1]))
        codes = np.full(int(lengths.sum()) + self.GAP * (len(clips) + 1), 128, np.uint8)
        for (clip, *_), start in zip(clips, self.starts):
            codes[start : start + len(clip)] = clip
        y = (torch.from_numpy(codes).to(device).float() - 128) / 127
        y = y.sign() * torch.expm1(y.abs() * math.log(256)) / 255
        for i in range(speech.EMPHASIS_STEPS):
            d = 1 << i
            y[d:] += speech.EMPHASIS**d * y[:-d].clone()
        self.samples = y

    def utterances(self, p, seconds):
        """[B, seconds * RATE]: a plan's clips, resampled by cubic interpolation."""
        torch = self.torch
        t = torch.arange(seconds * RATE, device=self.device)
        rows = p["first"].shape[0]
        which = torch.searchsorted(p["first"], t.expand(rows, -1).contiguous(), right=True) - 1
        some, which = which >= 0, which.clamp(min=0)
        source = (t - p["first"].gather(1, which)).float() * p["speed"].gather(1, which)
        whole = source.floor()
        f = source - whole
        inside = some & (whole < p["length"].gather(1, which) - 1)
        at = torch.where(inside, p["start"].gather(1, which) + whole.long(), 1)
        a, b, c, d = (self.samples[at + i] for i in (-1, 0, 1, 2))
        y = b + 0.5 * f * (c - a + f * (2 * a - 5 * b + 4 * c - d + f * (3 * (b - c) + d - a)))
        return torch.where(inside, y * p["level"].gather(1, which), 0.0)


def spoiled(torch, x, n_samples):
    """Rooms, microphones and noise. x [B, T], n_samples [B]."""
    rows, n = x.shape
    size = 1 << (n + RATE // 2 - 1).bit_length()
    device = x.device
    uniform = lambda low, high: torch.empty(rows, 1, device=device).uniform_(low, high)
    chance = lambda share: torch.rand(rows, 1, device=device) < share
    f = torch.linspace(0, RATE / 2, size // 2 + 1, device=device)[None]

    # an echo: noise that decays, after the sound itself
    t = torch.arange(RATE // 2, device=device)[None] / RATE
    echo = torch.randn(rows, RATE // 2, device=device) * torch.exp(-t / uniform(0.01, 0.12))
    echo = echo * (t > uniform(0.001, 0.01))
    echo = echo / echo.square().sum(1, keepdim=True).sqrt().clamp(min=1e-6)
    echo = echo * torch.where(chance(0.4), uniform(0.1, 0.9), 0.0)
    echo[:, 0] += 1
    # a spectrum: a slope of so many decibels an octave, and the two ends
    octaves = torch.log2((f + 50) / 1000)
    shape = 10 ** (torch.where(chance(0.6), uniform(-4, 4), 0.0) * octaves / 20)
    low, high = torch.where(chance(0.4), uniform(40, 350), 0.0), uniform(3000, 9000)
    high = torch.where(chance(0.5), high, 1e6)
    shape = shape / (1 + (low / (f + 1)) ** 4) / (1 + (f / high) ** 12)
    bumps = torch.randn(rows, 3, 1, device=device) * 3
    places = torch.rand(rows, 3, 1, device=device) * 6 + 7  # octaves of hertz
    bumps = bumps * torch.exp(-((torch.log2(f + 50)[:, None] - places) / 0.6) ** 2)
    shape = shape * 10 ** (bumps.sum(1) / 20)
    y = torch.fft.irfft(torch.fft.rfft(x, size) * torch.fft.rfft(echo, size) * shape, size)[:, :n]

    here = torch.arange(n, device=device)[None] < n_samples[:, None]
    y = y * here
    power = y.square().sum(1, keepdim=True) / (y.abs() > 1e-3).sum(1, keepdim=True).clamp(min=800)
    colour = ((f + 30) / 1000) ** uniform(-1.2, 0.2)
    noise = torch.fft.irfft(torch.fft.rfft(torch.randn(rows, n, device=device), size) * colour,
                            size)[:, :n]
    noise = noise / noise.square().mean(1, keepdim=True).sqrt()
    quiet = power == 0
    signal = torch.where(quiet, 0.01, power.sqrt())
    ratio = torch.where(quiet, uniform(-20, 60), uniform(5, 60))
    y = y + noise * signal * 10 ** (-ratio / 20) * torch.where(chance(0.75), 1.0, 0.0)
    most = y.abs().amax(1, keepdim=True).clamp(min=1e-4)
    y = y * torch.where(quiet, 1.0, 10 ** uniform(-1.7, 0.1) / most)
    y = torch.where(chance(0.9), (y * 32768).round() / 32768, y)
    return (y * here).clamp(-1, 1)


def masked(torch, mel):
    """Takes bands out of half of the clips."""
    rows, device = mel.shape[0], mel.device
    width = torch.randint(1, 20, (rows, 1), device=device)
    low = torch.randint(0, BINS - 20, (rows, 1), device=device)
    bins = torch.arange(BINS, device=device)[None]
    taken = (bins >= low) & (bins < low + width) & (torch.rand(rows, 1, device=device) < 0.5)
    return torch.where(taken[..., None], mel.mean((1, 2), keepdim=True), mel)


class Prompts:
    """Puts prompts around audio."""

    def __init__(self, torch, tok, ids, device):
        self.torch, self.device, self.ids = torch, device, ids
        self.before = torch.tensor(tok.encode(BEFORE).ids, device=device)
        self.after = torch.tensor(tok.encode(AFTER).ids, device=device)

    def arranged(self, n_tokens, answers, n_audio):
        """n_tokens [B] audio tokens; answers [B, L] ids, negative: none. Returns ids, is_audio,
        audio_row [B, S] and where each answer's first id stands [B]."""
        torch = self.torch
        n_before, n_after, most = len(self.before), len(self.after), answers.shape[1]
        at = torch.arange(n_before + n_audio + n_after + most, device=self.device)[None]
        rest = at - n_before - n_tokens[:, None]  # 0: the first after the audio
        is_audio = (at >= n_before) & (rest < 0)
        ids = torch.where(at < n_before, self.before[at.clamp(max=n_before - 1)],
                          self.ids["<|audio_pad|>"])
        ids = torch.where((rest >= 0) & (rest < n_after),
                          self.after[rest.clamp(0, n_after - 1)], ids)
        answer = answers.clamp(min=0).gather(1, (rest - n_after).clamp(0, most - 1))
        ids = torch.where(rest >= n_after, answer, ids)
        return (ids, is_audio, (at - n_before).clamp(0, n_audio - 1).expand(ids.shape),
                n_before + n_tokens + n_after)


