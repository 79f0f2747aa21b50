#!/usr/bin/env python3
"""Two builds of reel on one card: whether they pick the same ids, and how their speeds compare.

usage: compare.py --before REEL --after REEL --models FOLDER --names BEFORE,AFTER
                  [--case 0.6b,1.7b,0.8b,speech] [--rounds 3] [--device gpu]

Ids first: for each model several prompts (short ones, those of one launch, long ones) are continued greedily and with a
seed by both builds, and speech is transcribed; all ids must be equal. A model whose ids differ is not timed. Then
`reel bench` of both builds takes turns (before, after, after, before, ...), so that a card that warms up favours neither.
--rounds 0 compares ids alone.

Prints CSV rows: case,model,test,before,after,unit,ratio,spread_before,spread_after,runs. Each figure is the
median over the rounds of what `reel bench` gives; a spread is the largest over the smallest of the same build's rounds, less one: what
the noise is. A ratio above 1 means that the later build is faster. Exits with 1 when ids differ or a run fails.
"""
import argparse
import csv
import io
import json
import math
import random
import statistics
import struct
import subprocess
import sys
import wave
from pathlib import Path

SHAPES = {"0.6b": "qwen3-0.6b", "1.7b": "qwen3-1.7b", "0.8b": "qwen3.5-0.8b", "speech": "qwen3-asr-0.6b"}
BENCH = {  # arguments of reel bench; each list is one process
    "0.6b": [["-p", "16,64,512,4096", "-n", "200", "-d", "0"], ["-p", "0", "-n", "100", "-d", "4046"]],
    "1.7b": [["-p", "512", "-n", "200", "-d", "0"]],
    "0.8b": [["-p", "64,520,4096", "-n", "200", "-d", "0"]],
}
PROMPTS = (1, 3, 16, 50, 300, 2300)  # bytes, which are tokens of a synthetic model
LIMIT = 150  # seconds for one process


class Failed(Exception):
    pass


def run(words):
    try:
        done = subprocess.run(words, capture_output=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        raise Failed(f"not over in {LIMIT} s: {' '.join(words)}")
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise Failed(f"exit {done.returncode}: {said[-1] if said else ''}: {' '.join(words)}")
    return done.stdout


def text(n):
    rng = random.Random(n)
    return "".join(rng.choice("abcdefghij klmnop qrstu vwxyz") for _ in range(n))


def ids_of(reel, model, args):
    """Ids of every prompt, greedy and drawn, as one list of lists."""
    found = []
    for n in PROMPTS:
        for sampling in (["--temp", "0"], ["--temp", "0.8", "--top-k", "50", "--top-p", "0.9", "--seed", "7"]):
            out = run([reel, "run", model, "--raw", "-p", text(n), "-n", "150", "--ignore-eos", "--json", "-q",
                       "--device", args.device, *sampling])
            found.append(json.loads(out)["ids"])
    return found


def clip(path, seconds=9):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        rng = random.Random(1)
        for i in range(seconds * 16000):
            t = i / 16000
            x = 0.25 * math.sin(2 * math.pi * (140 * t + 3 * math.sin(4 * t))) * (0.6 + 0.4 * math.sin(14 * t))
            file.writeframesraw(struct.pack("<h", round(32767 * (x + 0.01 * rng.gauss(0, 1)))))


def speech_of(reel, model, args):
    path = Path(args.models) / "compare.wav"
    if not path.exists():
        clip(path)
    return [run([reel, "transcribe", str(path), "-m", model, "-n", "100", "-q", "--format", "verbose_json",
                 "--device", args.device, *more]).decode() for more in ([], ["--stream"])]


def timed(reel, model, words, args):
    out = run([reel, "bench", model, *words, "-r", str(args.runs), "--device", args.device, "-o", "csv"])
    figures = {}
    for row in csv.DictReader(io.StringIO(out.decode())):
        first_ms = float(row["first_token_ms"])
        figures[row["test"]] = 1000 / first_ms if row["n_gen"] == "0" else float(row["median_ts"])
    return figures


def compare(case, model, args, write):
    ids = speech_of if case == "speech" else ids_of
    before, after = ids(args.before, model, args), ids(args.after, model, args)
    same = before == after
    n = sum(len(x) for x in after)
    write.writerow([case, Path(model).name, "ids", len(before), len(after), "same" if same else "DIFFERENT", "", "", "", n])
    if not same:
        raise Failed(f"{case}: the builds pick different ids: nothing was timed")
    for words in BENCH.get(case, []) if args.rounds else []:
        rounds = {"before": [], "after": []}
        for i in range(args.rounds):
            for which in ("before", "after") if i % 2 == 0 else ("after", "before"):
                rounds[which].append(timed(getattr(args, which), model, words, args))
        for test in rounds["before"][0]:
            b, a = ([r[test] for r in rounds[which]] for which in ("before", "after"))
            unit = "prompts/s" if test.startswith("pp") else "tok/s"
            write.writerow([case, Path(model).name, test, f"{statistics.median(b):.2f}", f"{statistics.median(a):.2f}", unit,
                            f"{statistics.median(a) / statistics.median(b):.4f}", f"{max(b) / min(b) - 1:.4f}",
                            f"{max(a) / min(a) - 1:.4f}", args.rounds])
        sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser()
    for name in ("--before", "--after", "--models"):
        parser.add_argument(name, required=True)
    parser.add_argument("--case", default="0.6b,1.7b,0.8b,speech")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--shape", help="a shape or config.json in place of the case's, to try this without a GPU")
    args = parser.parse_args()
    write, good = csv.writer(sys.stdout, lineterminator="\n"), True
    for case in args.case.split(","):
        model = Path(args.models) / (SHAPES[case] if not args.shape else f"tried-{case}")
        try:
            if not model.exists():
                run([args.after, "synthesize", str(model), args.shape or SHAPES[case]])
            compare(case, str(model), args, write)
        except Failed as why:
            good = False
            write.writerow([case, model.name, "FAILED", "", "", str(why).replace(",", ";"), "", "", "", ""])
    return not good


if __name__ == "__main__":
    sys.exit(main())
