#!/usr/bin/env python3
"""What speculation is worth on texts: `reel run --json` with --speculate off and with others, in turn.

    bench/speculation.py MODEL [-n TOKENS] [-r ROUNDS] [-o FILE.csv] [--kinds auto,ngram] [-- OPTIONS OF REEL RUN]

Prints a CSV row for each text and kind of sampling: tokens a second without and with, their quotient (median of
rounds; each round runs all kinds one after the other), tokens a pass, drafts and right ones. Ids have to be those
without speculation, else no speed is printed and the exit status is 1.
"""
import argparse
import csv
import json
import os
import platform
import statistics
import subprocess
import sys

TEXTS = ("edit", "quotes", "records", "chat")
HERE = os.path.dirname(os.path.abspath(__file__))


def run(args, model, text, sampling, kind):
    raw = os.path.join(HERE, "texts", text + ".raw.txt")
    given = [raw, "--raw"] if os.path.exists(raw) else [os.path.join(HERE, "texts", text + ".txt")]
    command = [args.reel, "run", model, "--json", "-q", "-n", str(args.tokens), "--speculate", kind,
               "-f", *given, *sampling, *args.options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=args.timeout)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def commit():
    done = subprocess.run(["git", "-C", HERE, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def processor():
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model")
    parser.add_argument("-n", "--tokens", type=int, default=200)
    parser.add_argument("-r", "--rounds", type=int, default=5)
    parser.add_argument("-o", "--output")
    parser.add_argument("--kinds", default="auto,ngram")
    parser.add_argument("--texts", default=",".join(TEXTS))
    parser.add_argument("--reel", default=os.path.join(HERE, "..", "build", "release", "reel"))
    parser.add_argument("--timeout", type=int, default=600)
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:at])
    args.options = sys.argv[at + 1:]
    kinds = ["off", *args.kinds.split(",")]
    samplings = {"greedy": ["--temp", "0"],
                 "drawn": ["--temp", "0.8", "--top-k", "50", "--top-p", "0.9", "--seed", "1"]}
    out = csv.writer(open(args.output, "w", newline="") if args.output else sys.stdout, lineterminator="\n")
    out.writerow(["text", "sampling", "kind", "tokens", "plain_tok_s", "tok_s", "times", "tokens_a_pass", "drafted",
                  "accepted", "backend", "threads", "processor", "commit", "command"])
    wrong = False
    for text in args.texts.split(","):
        for name, sampling in samplings.items():
            speeds = {kind: [] for kind in kinds}
            last = {}
            for _ in range(args.rounds):
                for kind in kinds:
                    last[kind] = run(args, args.model, text, sampling, kind)
                    speeds[kind].append(last[kind]["timings"]["tokens_per_s"])
            plain = statistics.median(speeds["off"])
            for kind in kinds[1:]:
                t = last[kind]["timings"]
                if last[kind]["ids"] != last["off"]["ids"]:
                    print(f"{text}, {name}, {kind}: other ids than without", file=sys.stderr)
                    wrong = True
                    continue
                times = statistics.median(a / b for a, b in zip(speeds[kind], speeds["off"]))
                out.writerow([text, name, kind, t["tokens"], f"{plain:.1f}", f"{statistics.median(speeds[kind]):.1f}",
                              f"{times:.3f}", f"{t['tokens'] / t['passes']:.2f}", t["drafted"], t["accepted"],
                              f"{last[kind]['backend']} {last[kind]['backend_path']}",
                              " ".join(args.options) or "all cores", processor(), commit(),
                              f"bench/speculation.py {os.path.basename(args.model)} -n {args.tokens} -r {args.rounds}"])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
