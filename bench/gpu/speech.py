#!/usr/bin/env python3
"""What a speech model takes for clips of some lengths, in one process by the C API, and for files one
after the other by the whole command.

usage: speech.py MODEL --library libreel.so --reel reel [--device gpu] [--runs 20] [--files 12] [...]

Prints CSV rows: case,quantity,median,min,max,unit,passes,reaches,runs,note. "PCM to first id" is the time from the first
push of a whole clip to an answer of one id in the caller's hands; to the last id likewise. Nothing is
printed of a clip whose ids are not the same in every run, nor of the command when its texts are not
those of the API.
"""
import argparse
import csv
import json
import re
import statistics
import subprocess
import sys
import time
import wave
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import reel_ctypes as reel  # noqa: E402

SECONDS = (2, 8, 30)
IDS = 100
WARM_UP = 2  # runs that do not count
FLOORS = {  # of a clip of 30 s: most that passes, and to reach for
    "features": (8, None), "encoder": (6, 3), "prompt": (5, 2.5), "PCM to first id": (20, 10),
    f"PCM to the last of {IDS} ids": (70, 50), "files": (400, 600)}


def made_clip(seconds):
    """Two gliding tones that rise and fall a few times a second, over noise; 16 bits."""
    t = np.arange(int(seconds * 16000)) / 16000
    tones = np.sin(2 * np.pi * (140 * t + 3 * np.sin(4 * t))) + 0.5 * np.sin(2 * np.pi * 900 * t)
    noise = np.random.default_rng(1).standard_normal(len(t))
    x = 0.25 * tones * (0.6 + 0.4 * np.sin(2 * np.pi * 2.3 * t)) + 0.01 * noise
    return np.clip(np.round(x * 32767), -32768, 32767).astype("<i2")


def write_wav(path, samples):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(samples.tobytes())


class Rows:
    def __init__(self, args):
        self.writer, self.args = csv.writer(sys.stdout, lineterminator="\n"), args

    def row(self, case, quantity, values, unit, note=""):
        passes, reaches = FLOORS.get(quantity, ("", "")) if case in ("30 s", "files") else ("", "")
        figures = [statistics.median(values), min(values), max(values)] if values else [""] * 3
        self.writer.writerow([case, quantity, *(f"{x:.3f}" if values else x for x in figures), unit,
                              passes, reaches or "", len(values), note])
        sys.stdout.flush()


def time_clip(model, clip, runs):
    """(runs of an answer of one id, of IDS ids), each [(ms, what was heard)]"""
    samples, out = clip.astype(np.float32) / np.float32(32768), ([], [])
    with model.transcriber(lambda *_: True, max_tokens=1) as one, \
            model.transcriber(lambda *_: True, max_tokens=IDS) as many:
        for _ in range(runs + WARM_UP):
            for transcriber, to in zip((one, many), out):
                start = time.perf_counter()
                heard = transcriber.hear(samples)
                to.append(((time.perf_counter() - start) * 1e3, heard))
    return out


def different(one, many):
    """What is wrong with the ids of runs, or nothing."""
    wanted = many[0][1].ids
    if any(heard.ids != wanted for _, heard in many):
        return "ids differ between runs"
    if any(heard.ids != [wanted[0][:1]] for _, heard in one):
        return "an answer of one id has another"
    return ""


def clip_rows(rows, model, seconds, runs):
    """The text of its answer."""
    case, (one, many) = f"{seconds} s", time_clip(model, made_clip(seconds), runs)
    wrong = different(one, many)
    if wrong:
        rows.row(case, "all", [], "", f"{wrong}: nothing was timed")
        return None
    one, many = one[WARM_UP:], many[WARM_UP:]
    n, heard = len(many[0][1].ids[0]), many[0][1]
    for part in ("features", "encoder", "prompt"):
        both = [getattr(h, part + "_ms") for _, h in one + many]
        rows.row(case, part, both, "ms",
                 f"{heard.n_prompt_tokens + heard.n_audio_tokens} tokens" if part == "prompt" else "")
    rows.row(case, f"{n} ids", [h.generate_ms for _, h in many], "ms")
    rows.row(case, "PCM to first text", [h.first_text_ms for _, h in many], "ms")
    rows.row(case, "PCM to first id", [ms for ms, _ in one], "ms")
    rows.row(case, f"PCM to the last of {n} ids", [ms for ms, _ in many], "ms")
    return heard.text


def objects(text):
    """JSON objects one after the other."""
    decoder, at, out = json.JSONDecoder(), 0, []
    while at < len(text.rstrip()):
        found, end = decoder.raw_decode(text[at:].lstrip())
        at += len(text[at:]) - len(text[at:].lstrip()) + end
        out.append(found)
    return out


def file_rows(rows, args, text):
    """The command on files one after the other, as it says itself; and all of it."""
    path = Path(args.folder) / f"clip-{SECONDS[-1]}.wav"
    write_wav(path, made_clip(SECONDS[-1]))
    command = [args.reel, "transcribe", "-m", args.model, "-n", str(IDS), "--device", args.device,
               "--format", "json", *(o for option in args.gpu_option for o in ("--gpu-option", option)),
               *[str(path)] * args.files]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=args.limit)
    whole = time.perf_counter() - start
    texts = [object_["text"] for object_ in objects(done.stdout)]
    rates = [float(x) for x in re.findall(r"([0-9.]+)x real time", done.stderr)]
    if done.returncode or len(rates) != args.files:
        words = (done.stderr.strip().splitlines() or ["no output"])[-1]
        rows.row("files", "all", [], "", words[-200:].replace(",", ";"))
    elif texts != [text] * args.files:
        rows.row("files", "all", [], "", "the command's texts are not the API's: nothing was timed")
    else:
        rows.row("files", "files", rates, "x real time", "each by itself, reading and JSON included")
        rows.row("files", "all files", [SECONDS[-1] * args.files / whole], "x real time",
                 "starting, opening the model and ending included")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--library", required=True)
    parser.add_argument("--reel", required=True)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--cache", default="")
    parser.add_argument("--gpu-option", action="append", default=[])
    parser.add_argument("--folder", default="/tmp", help="for recordings that are made")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--files", type=int, default=12)
    parser.add_argument("--limit", type=float, default=60, help="seconds of the command")
    args = parser.parse_args()
    rows, text = Rows(args), None
    with reel.Library(args.library).open(
            args.model, device=args.device, cache_dir=args.cache or None,
            gpu_options=",".join(args.gpu_option) or None) as model:
        for seconds in SECONDS:
            text = clip_rows(rows, model, seconds, args.runs)
    if text is not None:
        file_rows(rows, args, text)


if __name__ == "__main__":
    main()
