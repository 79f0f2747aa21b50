#!/usr/bin/env python3
"""What the first sessions that decode together wait for: nothing that they need is compiled yet.

usage: first.py MODEL --library libreel.so --cache FOLDER [--sessions 8] [--tokens 4000] [--device gpu]

The sessions begin one after the other, a tenth of a second apart, as in a server that has just been started. FOLDER should be
empty: what one session needs is compiled by a model that is opened before, and nothing of several. Prints lines of
WHAT,VALUE,UNIT: the longest time between two tokens of a session, when one was over 30 ms for the last time, and when
all were over.
"""
import argparse
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import reel_ctypes as reel
from gpu_check_models import token_ids


def tell(model, i, tokens, times):
    with model.session(tokens + 64) as session:
        session.sync(token_ids(32 + i, model.vocab))
        session.generate(tokens, on_id=lambda *_: times.append(time.perf_counter()) or True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--library", required=True)
    parser.add_argument("--cache", required=True)
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--device", default="gpu")
    args = parser.parse_args()
    library = reel.Library(args.library)
    with library.open(args.model, device=args.device, cache_dir=args.cache) as model:
        tell(model, 0, 100, [])
    with library.open(args.model, device=args.device, cache_dir=args.cache) as model:
        times = [[] for _ in range(args.sessions)]
        threads = [threading.Thread(target=tell, args=(model, i, args.tokens, times[i])) for i in range(args.sessions)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
            time.sleep(0.1)
        for thread in threads:
            thread.join()
    gaps = sorted(((b - a) * 1e3, b - start) for own in times for a, b in zip(own, own[1:]))
    print(f"longest time between two tokens,{gaps[-1][0]:.1f},ms")
    print(f"that ended after,{gaps[-1][1]:.2f},s")
    slow = max([0] + [at for gap, at in gaps if gap > 30])
    print(f"last time over 30 ms between two tokens,{slow:.2f},s")
    print(f"all over after,{max(own[-1] for own in times) - start:.2f},s")
    print(f"tokens of all,{sum(len(own) for own in times)},")


main()
