#!/usr/bin/env python3
"""Vectors of many short texts: tokens a second of reel, where texts share passes, beside transformers' in bf16 (sdpa,
texts sorted by length, the best of several batch sizes), on one GPU, in one run, from ids to vectors on the host.

usage: embed.py MODEL --library libreel.so [--device gpu] [--texts 10000] [--lengths 8-64,...] [...]

Prints CSV rows: texts,ids,lengths,peer,version,batch,tokens_s,texts_s,slowest,fastest,rounds,cosine_f32,cosine_bf16.
Nothing is timed unless reel's vectors are right: of a part of the texts the lowest cosine to transformers' in float32 at
least 0.9999; and no speed is printed unless that to transformers' in bf16 is at least 0.999 for all. (Two evaluations
in bf16 lie some 0.01 each from the float32 run, in different directions.)
"""
import argparse
import csv
import os
import statistics
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import reel_ctypes as reel  # noqa: E402
from gpu_check_embed import BESIDE, COSINE, Theirs, even_texts, lowest_cosine, seconds  # noqa: E402

COLUMNS = ("texts", "ids", "lengths", "peer", "version", "batch", "tokens_s", "texts_s", "slowest", "fastest", "rounds",
           "cosine_f32", "cosine_bf16")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--library", default="build/release/libreel.so")
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--torch-device", default="")
    parser.add_argument("--gpu-options", default="")
    parser.add_argument("--cache", default="")
    parser.add_argument("--texts", type=int, default=10000)
    parser.add_argument("--checked", type=int, default=500, help="texts that are compared with float32")
    parser.add_argument("--lengths", default="8-64,160-480",
                        help="shortest and longest text in ids, evenly spread; the second is as prompts of reranking are")
    parser.add_argument("--batches", default="32,128,512,2048", help="texts of transformers' batches")
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


class Race:
    """Texts of one kind of length. Longer ones are fewer, so that each kind has as many ids."""

    def __init__(self, args, writer, lengths, vocab):
        self.args, self.writer, self.lengths = args, writer, lengths
        shortest, longest = (int(x) for x in lengths.split("-"))
        n = max(args.texts * (8 + 64) // (shortest + longest), 8)
        self.texts = even_texts(n, shortest, longest, vocab)
        self.n_ids = sum(map(len, self.texts))
        self.part = range(0, n, max(n * (shortest + longest) // 72 // args.checked, 1))
        self.exact = None

    def row(self, peer, version, batch, taken, cosine_f32, cosine_bf16=""):
        """taken: seconds of each round; or why nothing was timed."""
        n, timed = len(self.texts), not isinstance(taken, str)
        speeds = sorted(self.n_ids / s for s in taken) if timed else []
        median = statistics.median(speeds) if timed else 0
        figures = (f"{median:.0f}", f"{median * n / self.n_ids:.0f}", f"{speeds[0]:.0f}", f"{speeds[-1]:.0f}",
                   len(speeds)) if timed else (taken, "", "", "", 0)
        self.writer.writerow((n, self.n_ids, self.lengths, peer, version, batch, *figures, cosine_f32, cosine_bf16))
        sys.stdout.flush()

    def make_exact(self, theirs):
        self.exact = theirs.vectors([self.texts[i] for i in self.part], most_ids=16384)

    def time_ours(self, session):
        """Vectors of the last round, how near they are, and seconds; no seconds where they are wrong."""
        made = session.embed(self.texts)
        cosine, _ = lowest_cosine(made[self.part], self.exact)
        if cosine < COSINE:
            return made, cosine, None
        return made, cosine, seconds(lambda: session.embed(self.texts), self.args.rounds)

    def time_theirs(self, theirs, made, batches):
        """(rows, lowest cosine of ours to theirs)"""
        rows, nearest = [], 1.0
        for most in batches:
            vectors = theirs.vectors(self.texts, most)
            beside, _ = lowest_cosine(made, vectors)
            own, _ = lowest_cosine(vectors[self.part], self.exact)
            nearest = min(nearest, beside)
            rows.append((most, seconds(lambda most=most: theirs.vectors(self.texts, most), self.args.rounds), own))
        return rows, nearest


def race(args, writer):
    import torch
    import transformers
    device = args.torch_device or ("cuda" if torch.cuda.is_available() else "cpu")
    batches = [int(x) for x in args.batches.split(",")]
    library, given, wrong = reel.Library(args.library), args.gpu_options or None, False
    version = f"reel {os.environ.get('REEL_COMMIT', 'unknown')}"
    hf_version = f"transformers {transformers.__version__} torch {torch.__version__}"
    exact = Theirs(args.model, torch.float32, device)
    races = [Race(args, writer, lengths, exact.model.config.vocab_size) for lengths in args.lengths.split(",")]
    for one in races:
        one.make_exact(exact)
    exact = None
    results = []
    with library.open(args.model, device=args.device, gpu_options=given, cache_dir=args.cache or None) as model, \
            model.session(min(model.info.max_context, 16384)) as session:
        version = f"{version} {model.backend}"
        results = [one.time_ours(session) for one in races]
    theirs = Theirs(args.model, torch.bfloat16, device)
    for one, (made, cosine, taken) in zip(races, results):
        if taken is None:
            one.row("reel", version, "packed", f"wrong: the lowest cosine to float32 is below {COSINE}", f"{cosine:.6f}")
            wrong = True
            continue
        rows, beside = one.time_theirs(theirs, made, batches)
        if beside < BESIDE:
            taken, wrong = f"wrong: the lowest cosine to bf16 is below {BESIDE}", True
        one.row("reel", version, "packed", taken, f"{cosine:.6f}", f"{beside:.6f}")
        for most, their, own in rows:
            one.row("transformers bf16 sdpa", hf_version, most, their, f"{own:.6f}")
    return wrong


def main():
    np.seterr(all="ignore")
    args = arguments()
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    sys.exit(race(args, writer))


if __name__ == "__main__":
    main()
