#!/usr/bin/env python3
"""Log-mel features of 100 made clips by Hugging Face's Qwen3ASRFeatureExtractor.

usage: make_mel_golden.py tests/golden           writes mel.safetensors.xz
       make_mel_golden.py --compare FEATURES     every value of all clips, as the test dumps them with
                                                 REEL_MEL_DUMP=FEATURES, against the extractor

The clips come from formulas that tests/golden/test_mel.c repeats, so only features are stored: of each
clip the number of frames, the mean of each bin, and up to six frames (the first, the last, four between)
as integers of 2^-17. Needs torch, transformers, safetensors, numpy and xz.
"""
import subprocess
import sys
from pathlib import Path

import numpy as np
import safetensors.numpy
import torch
import transformers
from transformers.models.qwen3_asr.feature_extraction_qwen3_asr import Qwen3ASRFeatureExtractor

CLIPS = 100
KINDS = 12
ROWS = 6
STEP = 2.0**-17
EDGE_LENGTHS = [1, 2, 159, 160, 161, 199, 200, 201, 202, 319, 320, 321, 399, 400, 401, 559, 560, 561, 639, 640,
                679, 680, 7999, 8000, 8001, 16000, 16159, 16160, 16161, 560000]


def mix(x):
    """32 bits that look random, of 32 bits (numpy wraps)."""
    x = x.astype(np.uint32)
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x7FEB352D)
    x ^= x >> np.uint32(15)
    x *= np.uint32(0x846CA68B)
    x ^= x >> np.uint32(16)
    return x


def length(clip):
    if clip < len(EDGE_LENGTHS):
        return EDGE_LENGTHS[clip]
    if clip == CLIPS - 1:
        return 35 * 16000 + 77
    return 300 + int(mix(np.array([clip * 9 + 1]))[0] % np.uint32(64000))


def noise(clip, i):
    """In [-1, 1), 24 bits."""
    bits = mix(i.astype(np.uint32) + np.uint32(clip * 0x9E3779B9 & 0xFFFFFFFF))
    return (bits >> np.uint32(8)).astype(np.float64) / 8388608.0 - 1.0


def tone(hz, i):
    turns = hz * i / 16000.0
    return np.sin(2 * np.pi * (turns - np.floor(turns)))


def pcm16(x):
    return np.rint(x * 32767.0) / 32768.0


def voice(clip, i):
    x = np.zeros(len(i))
    for h in range(1, 21):
        x = x + tone((95.0 + clip) * h, i) / h
    return x * (0.2 - 0.2 * tone(3.0, i))


def samples(clip):
    i = np.arange(length(clip), dtype=np.float64)
    n = len(i)
    kind = clip % KINDS
    if kind == 0:
        x = np.zeros(n)
    elif kind == 1:
        x = np.full(n, 0.3)
    elif kind == 2:
        x = 0.5 * noise(clip, i)
    elif kind == 3:
        x = pcm16(0.001 * noise(clip, i))
    elif kind == 4:
        x = 0.5 * tone(110.0 + 37.0 * clip, i)
    elif kind == 5:
        turns = 4000.0 * i * i / (16000.0 * n)
        x = 0.7 * np.sin(2 * np.pi * (turns - np.floor(turns)))
    elif kind == 6:
        x = np.clip(4.0 * tone(97.0 + clip, i), -1.0, 1.0)
    elif kind == 7:
        x = np.where(noise(clip, i) < 0.0, -1.0, 1.0)
    elif kind == 8:
        x = (i == n // 2).astype(np.float64)
    elif kind == 9:
        x = pcm16(voice(clip, i) + 0.001 * noise(clip, i))
    elif kind == 10:
        x = np.where(i < 0.7 * n, 0.0001, 0.9) * noise(clip, i)
    else:
        x = pcm16(0.1 + 0.02 * voice(clip, i))
    return x.astype(np.float32)


def least_samples(clip):
    """Every other clip is padded as the extractor does by default; the rest only as the reflection needs."""
    return 8000 if clip % 2 else 201


def features(clip):
    extract = Qwen3ASRFeatureExtractor(min_length=least_samples(clip))
    out = extract(samples(clip), sampling_rate=16000, padding="do_not_pad", n_window=0, return_tensors="np")
    return np.asarray(out["input_features"], dtype=np.float32)[0]


def stored_frames(n_frames):
    if n_frames <= ROWS:
        return list(range(n_frames))
    between = [1 + (n_frames - 2) * (k + 1) // (ROWS - 1) for k in range(ROWS - 2)]
    return [0] + between + [n_frames - 1]


def compare(path):
    made = np.fromfile(path, dtype=np.float32)
    at, worst, worst_clip, total = 0, 0.0, 0, 0.0
    for clip in range(CLIPS):
        want = features(clip)
        got = made[at:at + want.size].reshape(want.shape)
        at += want.size
        difference = np.abs(got.astype(np.float64) - want)
        total += difference.sum()
        if difference.max() > worst:
            worst, worst_clip = difference.max(), clip
    if at != made.size:
        sys.exit(f"{path}: {made.size} values, {at} are expected")
    print(f"{CLIPS} clips, {at} values: difference at most {worst:.2e} (clip {worst_clip}), on average {total / at:.1e}")


def write(folder):
    frames, rows, means = [], [], []
    for clip in range(CLIPS):
        f = features(clip)
        frames.append(f.shape[1])
        means.append(f.astype(np.float64).mean(axis=1))
        rows += [np.rint(f[:, at].astype(np.float64) / STEP) for at in stored_frames(f.shape[1])]
    tensors = {
        "frames": np.array(frames, dtype=np.float32),
        "rows": np.array(rows, dtype=np.float32),
        "means": np.array(means, dtype=np.float32),
    }
    note = {"made_by": "tools/make_mel_golden.py", "transformers": transformers.__version__, "torch": torch.__version__}
    path = Path(folder) / "mel.safetensors"
    safetensors.numpy.save_file(tensors, path, metadata=note)
    subprocess.run(["xz", "-f", "--check=crc32", "--lzma2=preset=9e,lc=0,lp=2,pb=2", path], check=True)
    print(f"{path}.xz: {Path(f'{path}.xz').stat().st_size} bytes, {len(rows)} frames of {CLIPS} clips")


torch.set_num_threads(1)
if len(sys.argv) == 3 and sys.argv[1] == "--compare":
    compare(sys.argv[2])
elif len(sys.argv) == 2:
    write(sys.argv[1])
else:
    sys.exit(__doc__)
