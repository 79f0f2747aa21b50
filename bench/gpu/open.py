#!/usr/bin/env python3
"""How long it takes until a model's first token, each time in a new process.

usage: open.py open|compile MODEL --library libreel.so [--device gpu] [--cache FOLDER] [--runs 5]

open     the driver's start-up (cuInit and a context) by itself, and after it: opening the model, a
         session, a prompt of 16 ids and the first id; kernels compiled before, file in page cache
compile  what compiling the kernels takes when neither reel nor NVRTC has kept them: since CUDA 12.9
         NVRTC keeps what it compiled in the driver's cache, which is disabled here
Prints lines of CASE,MEDIAN,UNIT.
"""
import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))


def start_driver():
    """Seconds; the context stays, so that reel finds the driver up. 0 without a driver."""
    start = time.perf_counter()
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0.0
    context = ctypes.c_void_p()
    if cuda.cuInit(0) != 0 or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) != 0:
        raise SystemExit("the CUDA driver does not start")
    return time.perf_counter() - start


def once(args):
    """In this process: {"driver", "open", "compile", "session", "first"} in seconds."""
    import reel_ctypes as reel
    from gpu_check_models import token_ids
    times = {"driver": start_driver() if args.device != "cpu" else 0.0}
    library = reel.Library(args.library)
    start = time.perf_counter()
    with library.open(args.model, device=args.device, cache_dir=args.cache) as model:
        times["open"] = time.perf_counter() - start
        times["compile"] = model.info.compile_ms * 1e-3
        with model.session(args.context) as session:
            times["session"] = time.perf_counter() - start
            session.sync(token_ids(16, model.vocab))
            session.generate(1)
            times["first"] = time.perf_counter() - start
    print(json.dumps(times))


def runs(args, cache, n, **environment):
    command = [sys.executable, __file__, "once", args.model, "--library", args.library, "--device",
               args.device, "--cache", str(cache)]
    out = []
    for _ in range(n):
        done = subprocess.run(command, capture_output=True, text=True,
                              env={**os.environ, **environment})
        if done.returncode != 0:
            raise SystemExit(done.stderr.strip().splitlines()[-1])
        out.append(json.loads(done.stdout))
    return {name: statistics.median(run[name] for run in out) for name in out[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["open", "compile", "once"])
    parser.add_argument("model")
    parser.add_argument("--library", required=True)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--cache", default="")
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    if args.what == "once":
        return once(args)
    if args.what == "compile":
        with tempfile.TemporaryDirectory() as empty:
            cold = runs(args, empty, 1, CUDA_CACHE_DISABLE="1")
            warm = runs(args, empty, 1, CUDA_CACHE_DISABLE="1")
            kept = [path.stat().st_size for path in Path(empty).glob("kernels-*.bin")]
        if args.device != "cpu" and (cold["compile"] == 0 or warm["compile"] != 0 or not kept):
            raise SystemExit(f"nothing was measured: compiling took {cold['compile']:.3f} s with an "
                             f"empty cache, {warm['compile']:.3f} s after it, {len(kept)} kernels "
                             "were kept")
        print(f"first compile,{cold['compile']:.2f},s")
        print(f"open with an empty cache,{cold['open']:.2f},s")
        print(f"open with a full one,{warm['open']:.2f},s")
        return
    cache = Path(args.cache or tempfile.mkdtemp())
    cache.mkdir(parents=True, exist_ok=True)
    runs(args, cache, 1)
    median = runs(args, cache, args.runs)
    print(f"open to first token,{median['first']:.3f},s")
    print(f"of it: open the model,{median['open']:.3f},s")
    print(f"of it: open a session,{median['session'] - median['open']:.3f},s")
    print(f"driver start-up,{median['driver']:.3f},s")


if __name__ == "__main__":
    main()
