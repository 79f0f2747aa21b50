#!/usr/bin/env python3
"""Greedy continuations of a model folder by Hugging Face transformers in float32, as the golden
file that `reel verify` reads (src/cli/check.h describes it).

    make_greedy_golden.py MODEL_FOLDER OUT.json [--tokens 200] [--prompt TEXT ...] [--recall [24]]

--recall adds the questions of the folder's recall.json (tools/train_hybrid.py), that many ids each:
the answer and some prose after it, which loops less than long continuations do.
"""

import argparse
import json
import math

import torch
import transformers
from tokenizers import Tokenizer

PROMPTS = [
    "It was a truth",
    "\"My dear Mr. Darcy,\" said she,",
    "The morning after the ball, Emma",
    "Mrs. Dashwood could not help smiling at",
    "Captain Wentworth had no fortune.",
]
TEXTS = ["Hello world", " Hello  world\n\n", "I was born in 1775.", "caf\u00e9 cafe\u0301", "\u751f\u6d3b",
         "it's THEY'LL I'd", "\t\t x = [1, 2]; // y", "\U0001f60a\u200d", "", "<|endoftext|>"]


def ulp(x):
    """Spacing of bf16 values around x."""
    return math.ldexp(1.0, math.frexp(x)[1] - 8)


def continuation(model, ids, n_tokens):
    entry = {"prompt_ids": ids, "ids": [], "logprobs": [], "margin_ulps": []}
    past, step = None, torch.tensor([ids])
    for _ in range(n_tokens):
        with torch.no_grad():
            out = model(step, past_key_values=past, use_cache=True)
        past, logits = out.past_key_values, out.logits[0, -1]
        top = torch.topk(logits, 2)
        best = int(top.indices[0])
        entry["ids"].append(best)
        entry["logprobs"].append(round(float(torch.log_softmax(logits, -1)[best]), 5))
        gap = float(top.values[0] - top.values[1])
        entry["margin_ulps"].append(round(gap / ulp(float(top.values[0])), 2))
        step = torch.tensor([[best]])
    return entry


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--prompt", action="append")
    parser.add_argument("--recall", type=int, nargs="?", const=24, default=0)
    args = parser.parse_args()
    tok = Tokenizer.from_file(f"{args.model}/tokenizer.json")
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
    model.eval()
    prompts = [(tok.encode(p).ids, args.tokens) for p in args.prompt or PROMPTS]
    if args.recall:
        with open(f"{args.model}/recall.json") as f:
            prompts += [(question["prompt_ids"], args.recall) for question in json.load(f)]
    golden = {
        "made_with": f"transformers {transformers.__version__}, torch {torch.__version__}, float32",
        # bf16 matrix inputs move a log-probability by less than this on a model this small.
        "logprob_bound": 0.1,
        # Control tokens in text are not recognised in these vectors.
        "tokenizer": [{"text": t, "ids": tok.encode(t).ids} for t in TEXTS if "<|" not in t],
        "continuations": [continuation(model, ids, n) for ids, n in prompts],
    }
    with open(args.out, "w") as f:
        json.dump(golden, f, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
