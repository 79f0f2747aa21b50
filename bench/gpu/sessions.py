#!/usr/bin/env python3
"""What many opened sessions take of a GPU's memory before and after they are used.

usage: sessions.py MODEL --library libreel.so [--sessions 100] [--context 32768] [--used 8] [--device gpu] [--cache FOLDER]

Opens so many sessions of the full context, which hold nothing, then lets some of them read a prompt of 1,000 ids
and generate 16. Prints lines of WHAT,VALUE,UNIT: nvidia-smi's memory before, between and after; without a GPU the process's own.
"""
import argparse
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import reel_ctypes as reel
from gpu_check_models import token_ids


def used_mb(device):
    if device == "cpu":
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))
    out = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                         capture_output=True, text=True, check=True).stdout
    return float(out.splitlines()[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--library", required=True)
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--context", type=int, default=32768)
    parser.add_argument("--used", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=1000)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--cache", default="")
    args = parser.parse_args()
    library = reel.Library(args.library)
    with library.open(args.model, device=args.device, cache_dir=args.cache) as model:
        with model.session(256) as first:  # what the first launch of all takes is no session's
            first.sync(token_ids(16, model.vocab))
            first.generate(1)
        before = used_mb(args.device)
        print(f"memory with the model open,{before:.0f},MB", flush=True)
        start = time.perf_counter()
        sessions = []
        try:
            for _ in range(args.sessions):
                sessions.append(model.session(args.context))
        except reel.ReelError as why:
            print(f"session {len(sessions) + 1} of {args.sessions} refused: {str(why).replace(',', ';')},{len(sessions)},sessions")
        took = time.perf_counter() - start
        opened = used_mb(args.device)
        print(f"{len(sessions)} sessions of {args.context} positions opened,{opened - before:.0f},MB")
        print(f"time to open them,{took:.3f},s", flush=True)
        for i, session in enumerate(sessions[:args.used]):
            session.sync(token_ids(args.prompt + i, model.vocab))
            session.generate(16)
        print(f"{args.used} of them used for {args.prompt + 16} positions,{used_mb(args.device) - before:.0f},MB")
        whole = len(sessions) == args.sessions
        for session in sessions:
            session.close()
        print(f"all closed,{used_mb(args.device) - before:.0f},MB")
    return not whole


if __name__ == "__main__":
    sys.exit(main())
