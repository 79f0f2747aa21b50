#!/usr/bin/env python3
"""What Hugging Face transformers' Qwen3-ASR computes for the speech miniatures of tests/golden/models.

usage: make_asr_golden.py tests/golden [ID ...]

Weights come from synthetic.py (seed 1) under their published names, so none are stored. Features are
made likewise: bf16 [bins, F] of the tensor name "features.F", 0 + draw * 0.5 / deviation. Windows
are blocks in this class, whatever the attention (the original package's sdpa attends over the whole
clip). <ID>.safetensors.xz receives, f32, for each F of LENGTHS ("enc.F.") and DECODED ("dec.F."):

  at, logits, logits_max, top, margin, bf16.rms, bf16.max, bf16.whole    as in make_goldens.py; of
             "enc." a row is an audio vector, of "dec." the logits of a position; errors also of the
             8 rows before and after
  rows       [n, output_dim]  asr-w, asr-f, instead: the float32 run's vectors as they are
  dec.F.ids  [N]    the prompt with F frames of audio spliced, and 24 more ids

and of asr-a, for the clips of CLIPS seconds (tests/support/speech_clip.h makes the same samples):

  greedy.seed, greedy.samples  [C]
  greedy.I.prompt, greedy.I.ids [12]  of clip I: prompt ids, and what greedy decoding gave in float32
             and in bf16 alike. Clips are those whose winners lead by LEAD at every step; of the
             first TRIES, the one with the most different ids.
"""
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import safetensors.torch
import synthetic
import torch
import transformers
from make_goldens import both_attentions, figures, token_ids, use_attention
from transformers.models.qwen3_asr.feature_extraction_qwen3_asr import Qwen3ASRFeatureExtractor

SEED = 1
CHUNK = 100
LENGTHS = [1, 9, 37, 99, 100, 101, 230, 350, 800, 801, 1650]
DECODED = [9, 101, 350, 900]
WHOLE = {"asr-w": [37, 101], "asr-f": [230]}
FORCED = 24
CLIPS = [0.1, 0.5, 0.6, 0.7, 0.8, 1, 1.1, 1.3, 1.5, 1.9, 2, 2.3, 2.5, 3, 3.5, 4, 5, 6, 8, 12]
N_GREEDY = 12
LEAD = 0.02
DISTINCT = 6
TRIES = 60
SAVED_NAMES = [
    ("model.multi_modal_projector.linear_1.", "thinker.audio_tower.proj1."),
    ("model.multi_modal_projector.linear_2.", "thinker.audio_tower.proj2."),
    ("model.audio_tower.", "thinker.audio_tower."),
    ("model.language_model.", "thinker.model."),
    ("lm_head.", "thinker.lm_head."),
]


def published_name(name):
    for saved, published in SAVED_NAMES:
        if name.startswith(saved):
            return published + name.removeprefix(saved)
    raise ValueError(name)


def bf16_tensor(bits):
    return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).float()


def build(config_path):
    """The model in float32, in bf16, and its config file."""
    keys = json.loads(config_path.read_text())["thinker_config"]
    text = dict(keys["text_config"])
    tied = text["tie_word_embeddings"]
    config = transformers.Qwen3ASRConfig(
        audio_config={"model_type": "qwen3_asr_encoder", **keys["audio_config"]},
        text_config=text,
        audio_token_id=keys["audio_token_id"],
        eos_token_id=text["eos_token_id"],
        pad_token_id=256,
        tie_word_embeddings=tied,
    )
    assert config.text_config.rope_parameters["rope_theta"] == text["rope_theta"]
    halves = []
    for kind in (torch.float32, torch.bfloat16):
        model = transformers.Qwen3ASRForConditionalGeneration(config).eval()
        state = {}
        for name, values in model.state_dict().items():
            if name == "lm_head.weight" and tied:
                continue
            bits = synthetic.tensor_bits(SEED, published_name(name), tuple(values.shape))
            state[name] = bf16_tensor(bits)
        missing, unexpected = model.load_state_dict(state, strict=False)
        assert not unexpected and set(missing) <= {"lm_head.weight"}
        model.tie_weights()
        rotation = model.model.language_model.rotary_emb.inv_freq.clone()
        halves.append(model.to(kind))
        # Loading a checkpoint in bf16 keeps the rotation frequencies in float32; .to() does not.
        model.model.language_model.rotary_emb.inv_freq = rotation
    return halves[0], halves[1], keys


def features(n_bins, n_frames):
    scale = np.float32(np.float64(0.5) / synthetic.DEVIATION)
    draws = synthetic.draws(synthetic.key(SEED, f"features.{n_frames}"), n_bins * n_frames)
    values = torch.from_numpy(draws.astype(np.float32) * scale)
    return values.to(torch.bfloat16).float().reshape(n_bins, n_frames)


def padded(values):
    """[1, bins, whole chunks] and its mask."""
    n = values.shape[1]
    whole = -(-n // CHUNK) * CHUNK
    mask = (torch.arange(whole) < n).long()
    return torch.nn.functional.pad(values, (0, whole - n))[None], mask[None]


@torch.inference_mode()
def encode(model, values):
    batch, mask = padded(values)
    return model.get_audio_features(batch.to(model.dtype), mask).pooler_output.float()


def byte_ids(text):
    """Ids of the byte-level tokenizer that reel synthesize writes: GPT-2's order of bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    order = printable + [b for b in range(256) if b not in printable]
    return [order.index(b) for b in text.encode()]


def prompt(keys, n_audio):
    start, end = 257, 258
    return (
        [start, *byte_ids("system\n"), end, *byte_ids("\n"), start, *byte_ids("user\n")]
        + [keys["audio_start_token_id"]]
        + [keys["audio_token_id"]] * n_audio
        + [keys["audio_end_token_id"], end, *byte_ids("\n"), start, *byte_ids("assistant\n")]
    )


@torch.inference_mode()
def decode(model, ids, values):
    batch, mask = padded(values)
    out = model(input_ids=ids[None], input_features=batch.to(model.dtype), input_features_mask=mask)
    return out.logits[0].float()


def compared(model, half, run):
    exact = run(model)
    rounded = both_attentions(half, lambda: run(half))
    at = list(range(len(exact)))
    return figures(exact, rounded, at, at)


# ---- greedy ids ------------------------------------------------------------------------------------


def triangle(phase):
    """Period 65536, from -16384 to 16384."""
    return np.abs((phase & 0xFFFF) - 32768) - 16384


def speech_clip(seed, n):
    """Whole-number arithmetic, so that C makes the same samples: two gliding tones that rise and fall
    a few times a second, over noise."""
    i = np.arange(n, dtype=np.int64)
    loudness = triangle(i * (8 + seed % 7)) + 16384
    glide = triangle(i * (3 + seed % 5)) >> 4
    low = triangle(i * (480 + 37 * (seed % 11)) + glide * 16)
    high = triangle(i * (2900 + 211 * (seed % 13)) - glide * 64) >> 1
    x = synthetic.mix(np.uint64(seed) + (i + 1).astype(np.uint64) * synthetic.GOLDEN)
    noise = (x >> np.uint64(52)).astype(np.int64) - 2048
    return ((((low + high) * loudness) >> 15) + (noise >> 2)).astype(np.float32) / np.float32(32768)


@torch.inference_mode()
def greedy(model, keys, samples):
    """(prompt, ids, smallest lead) or None when it stops early."""
    extractor = Qwen3ASRFeatureExtractor(feature_size=model.config.audio_config.num_mel_bins)
    made = extractor(
        samples, sampling_rate=16000, padding="longest", return_attention_mask=True
    )
    mask = made["attention_mask"]
    n_frames = int(mask.sum())
    values = made["input_features"].to(model.dtype)
    n_audio = model.get_audio_features(values, mask).pooler_output.shape[0]
    ids = prompt(keys, n_audio)
    out = model.generate(
        input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        input_features=values, input_features_mask=mask, do_sample=False,
        max_new_tokens=N_GREEDY, output_logits=True, return_dict_in_generate=True,
    )
    made = out.sequences[0, len(ids) :]
    if len(made) < N_GREEDY:
        return None
    best = torch.stack([step[0].float().topk(2).values for step in out.logits])
    assert n_frames == max(len(samples), 8000) // 160
    return ids, made, float((best[:, 0] - best[:, 1]).min())


def find_clip(model, half, keys, first_seed, n_samples):
    """(different ids, seed, prompt, ids) of the best clip."""
    best, seed = (0,), first_seed
    while best[0] < DISTINCT and (seed < first_seed + TRIES or not best[0]):
        samples = speech_clip(seed, n_samples)
        exact = greedy(model, keys, samples)
        seed += 1
        if not exact or exact[2] < LEAD or len(set(exact[1].tolist())) <= best[0]:
            continue
        rounded = greedy(half, keys, samples)
        if rounded and torch.equal(rounded[1], exact[1]):
            best = (len(set(exact[1].tolist())), seed - 1, *exact[:2])
    return best


def find_clips(model, half, keys):
    tensors, seeds, counts = {}, [], []
    for i, seconds in enumerate(CLIPS):
        counts.append(int(seconds * 16000) + 7 * i)
        distinct, seed, ids, made = find_clip(model, half, keys, 1000 * i + 1, counts[-1])
        print(f"  clip of {seconds} s: seed {seed}, {distinct} different ids", flush=True)
        seeds.append(seed)
        tensors[f"greedy.{i}.prompt"] = torch.tensor(ids, dtype=torch.float32)
        tensors[f"greedy.{i}.ids"] = made.float()
    tensors["greedy.seed"] = torch.tensor(seeds, dtype=torch.float32)
    tensors["greedy.samples"] = torch.tensor(counts, dtype=torch.float32)
    return tensors


# ---- files -----------------------------------------------------------------------------------------


def make_rows(model, half, n_bins, lengths):
    tensors = {}
    for n in lengths:
        values = features(n_bins, n)
        made = compared(model, half, lambda m: encode(m, values))
        tensors |= {f"enc.{n}.{key}": value for key, value in made.items()}
        rms, largest = made["bf16.rms"], made["logits_max"]
        print(f"  {n} frames: {len(rms)} vectors to {float(largest.max()):.2f}, bf16 error"
              f" {float(rms.mean()):.4f}", flush=True)
    return tensors


def make_whole(model, half, n_bins, lengths):
    tensors = make_rows(model, half, n_bins, lengths)
    for n in lengths:
        del tensors[f"enc.{n}.logits"]
        tensors[f"enc.{n}.rows"] = encode(model, features(n_bins, n))
    return tensors


def make_decoded(model, half, keys, n_bins):
    tensors = {}
    for n in DECODED:
        values = features(n_bins, n)
        n_audio = len(encode(model, values))
        ids = torch.cat([torch.tensor(prompt(keys, n_audio)), token_ids(FORCED, 256)])
        made = compared(model, half, lambda m: decode(m, ids, values))
        tensors |= {f"dec.{n}.{key}": value for key, value in made.items()}
        tensors[f"dec.{n}.ids"] = ids.float()
    return tensors


def make(folder, name):
    model, half, keys = build(folder / "models" / f"{name}.json")
    n_bins = model.config.audio_config.num_mel_bins
    use_attention(model, "sdpa")
    use_attention(half, "sdpa")
    print(name, flush=True)
    if name in WHOLE:
        tensors = make_whole(model, half, n_bins, WHOLE[name])
    else:
        tensors = make_rows(model, half, n_bins, LENGTHS)
        tensors |= make_decoded(model, half, keys, n_bins)
    if name == "asr-a":
        tensors |= find_clips(model, half, keys)
    path = folder / f"{name}.safetensors"
    metadata = {"torch": torch.__version__, "transformers": transformers.__version__}
    safetensors.torch.save_file(tensors, path, metadata)
    path.chmod(0o644)
    subprocess.run(["xz", "-9e", "--force", str(path)], check=True)
    print(f"  {path.with_suffix('.safetensors.xz').stat().st_size} bytes", flush=True)


def main():
    folder = Path(sys.argv[1])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for name in sys.argv[2:] or ["asr-a", "asr-b", "asr-w", "asr-f"]:
        make(folder, name)


if __name__ == "__main__":
    main()
