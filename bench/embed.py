#!/usr/bin/env python3
"""Vectors of many short texts on the CPU: `reel embed` beside llama.cpp's llama-embedding, the same GGUF file, texts and
threads, the last position's vector, runs in turn.

    bench/embed.py LLAMA_EMBEDDING GGUF ... [--texts 10000] [--threads 2] [--rounds 5] > bench/results/cpu-embed.csv

A text is some words in a row out of this repository's pages, 5 to 40 of them, evenly spread. A run is a command, from
text to vectors in a file. The seconds of the same command for one text are taken off: reading the model, mostly. With
--clock cpu they are those of the processor (user and system), which say more on a machine that others use; that wants
--threads 1, since threads that wait for each other spin. PREFIX, if set, goes before every timed command: on a machine
that others use, PREFIX="chrt -r 5" keeps them off the cores.

No speed is printed where the vectors are not alike: the lowest cosine of any text is at least --cosine. For
weights of 4 bits llama.cpp rounds activations to 8 bits, where reel keeps 16, so that wants a lower bound.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
PREFIX = os.environ.get("PREFIX", "").split()
FEWEST, MOST = 5, 40  # words of a text


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama_embedding")
    parser.add_argument("gguf", nargs="+")
    parser.add_argument("--reel", default="build/release/reel")
    parser.add_argument("--texts", type=int, default=10000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=2048, help="tokens of a batch and of a micro-batch of llama.cpp")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--cosine", type=float, default=0.999)
    parser.add_argument("--llama-version", default="unknown")
    return parser.parse_args()


def texts_of(n):
    words = " ".join(p.read_text() for p in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]).split()
    words = [word for word in words if word.isalpha()]
    texts, at = [], 0
    for i in range(n):
        many = FEWEST + i * 17 % (MOST - FEWEST + 1)
        texts.append(" ".join(words[(at + j) % len(words)] for j in range(many)))
        at += many
    return texts


class Ours:
    name = "reel embed"

    def __init__(self, args, gguf, folder):
        self.command = [args.reel, "embed", gguf, "--device", "cpu", "-t", str(args.threads), "-l"]
        self.out = folder / "ours.npy"

    def run(self, file):
        self.out.unlink(missing_ok=True)
        subprocess.run([*PREFIX, *self.command, file, "-o", self.out], check=True, stderr=subprocess.DEVNULL)

    def vectors(self):
        return np.load(self.out)


class Theirs:
    name = "llama-embedding"

    def __init__(self, args, gguf, folder):
        batch = str(args.batch)
        self.command = [args.llama_embedding, "-m", gguf, "-t", str(args.threads), "-tb", str(args.threads), "-c", batch,
                        "-b", batch, "-ub", batch, "--pooling", "last", "--embd-normalize", "2",
                        "--embd-output-format", "raw", "-f"]
        self.out = folder / "theirs.txt"

    def run(self, file):
        with open(self.out, "w") as out:
            subprocess.run([*PREFIX, *self.command, file], check=True, stdout=out, stderr=subprocess.DEVNULL)

    def vectors(self):
        rows = [line.split() for line in self.out.read_text().splitlines()]
        return np.array([row for row in rows if len(row) > 16], np.float32)


def clock(kind):
    if kind == "wall":
        return time.monotonic()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds(program, file, kind):
    start = clock(kind)
    program.run(file)
    return clock(kind) - start


def lengths_of(args, gguf, file):
    """Tokens of each text, as reel counts them."""
    command = [args.reel, "embed", gguf, "--device", "cpu", "-t", str(args.threads), "-l", file, "--format", "jsonl", "-d", "1"]
    made = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [json.loads(line)["tokens"] for line in made.splitlines() if '"tokens"' in line]


def lowest_cosine(programs):
    """Of the vectors that both have left of the same texts."""
    ours, theirs = (program.vectors() for program in programs)
    if ours.shape != theirs.shape:
        sys.exit(f"{ours.shape} vectors and {theirs.shape}")
    return float((ours.astype(np.float64) * theirs).sum(1).min())


def race(args, gguf, files, folder):
    name, (many, one) = Path(gguf).name, files
    lengths = lengths_of(args, gguf, many)
    programs = [Ours(args, gguf, folder), Theirs(args, gguf, folder)]
    taken = {program.name: ([], []) for program in programs}
    for i in range(args.rounds):
        rows = []
        for program in programs:
            alone = seconds(program, one, args.clock)
            whole = seconds(program, many, args.clock)
            taken[program.name][0].append(whole), taken[program.name][1].append(alone)
            speed = (sum(lengths) - lengths[0]) / max(whole - alone, 1e-9)
            rows.append(f"{name},{i + 1},{program.name},{whole:.2f},{alone:.2f},{speed:.0f},"
                        f"{(len(lengths) - 1) / max(whole - alone, 1e-9):.1f}")
        cosine = lowest_cosine(programs)
        if not cosine >= args.cosine:
            sys.exit(f"{name}: the lowest cosine is {cosine:.6f}; no speed is said below {args.cosine}")
        if i == 0:
            print(f"# {name}: {len(lengths)} texts, {sum(lengths)} tokens, {min(lengths)} to {max(lengths)} a text; lowest "
                  f"cosine of one to the other {cosine:.6f}")
        print("\n".join(rows), flush=True)
    speeds = []
    for program in programs:
        whole, alone = (statistics.median(x) for x in taken[program.name])
        speeds.append((sum(lengths) - lengths[0]) / (whole - alone))
        print(f"# medians: {name},{program.name},{whole:.2f} s, one text {alone:.2f} s,{speeds[-1]:.0f} tokens/s")
    print(f"# {name}: {speeds[0] / speeds[1]:.2f} times llama-embedding's tokens/s", flush=True)


def main():
    args = arguments()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT).stdout.strip()
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    load = os.getloadavg()[0]
    print(f"# {cpu}, {args.threads} threads; reel {commit}; {args.llama_version}; load before {load:.1f}")
    print(f"# PREFIX=\"{' '.join(PREFIX)}\" bench/embed.py llama-embedding {' '.join(Path(g).name for g in args.gguf)} "
          f"--texts {args.texts} --threads {args.threads} --rounds {args.rounds} --batch {args.batch} "
          f"--clock {args.clock} --cosine {args.cosine}")
    print("model,round,program,seconds,one_text_s,tokens_s,texts_s")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        files = folder / "many.txt", folder / "one.txt"
        texts = texts_of(args.texts)
        files[0].write_text("\n".join(texts) + "\n")
        files[1].write_text(texts[0] + "\n")
        for gguf in args.gguf:
            race(args, gguf, files, folder)
    print(f"# load afterwards {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
