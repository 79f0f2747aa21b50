#!/usr/bin/env python3
"""reel beside other ways to decode the same model on the same GPU: Hugging Face generate, its static
cache in a CUDA graph, torch.compile in a CUDA graph, llama.cpp's CUDA backend. bf16, batch 1, greedy.

usage: gpu.py MODEL [--out gpu-peers.csv] [--depths 0,4046,32718] [--tokens 100] [--runs 5]
              [--reel reel] [--llama-bench FILE] [--gguf-py FOLDER] [--peers NAME,...]

MODEL is a Qwen3 folder, as `reel synthesize` writes. Each peer and depth is a process of its own
with a time limit. A run is --tokens ids from --depth cached positions on; the table gives the median
run. Energy is NVML's counter over all timed runs. llama-bench comes from bench/peers/llama_cuda.sh.
"""
import argparse
import csv
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMITS = {"reel": 150, "llama.cpp": 120, "hf-generate": 120, "hf-static-graph": 90,
          "hf-compile-graph": 240}
COLUMNS = ["peer", "version", "depth", "tokens", "runs", "tok_s", "slowest", "fastest",
           "joules_token", "seconds", "words"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--out", default=os.path.join(os.environ.get("OUT", "."), "gpu-peers.csv"))
    parser.add_argument("--depths", default="0,4046,32718")
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--reel", default=os.environ.get("REEL", "build/release/reel"))
    parser.add_argument("--device", default="gpu", help="of reel")
    parser.add_argument("--llama-bench", default="")
    parser.add_argument("--gguf-py", default="", help="folder that holds llama.cpp's gguf package")
    parser.add_argument("--peers", default=",".join(LIMITS))
    parser.add_argument("--budget", type=float, default=0, help="seconds for all peers together")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--depth", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


# ---- in a process of its own ---------------------------------------------------------------------

class Energy:
    """Joules since it was made; None where NVML counts none."""

    def __init__(self):
        try:
            import pynvml
            pynvml.nvmlInit()
            self.device = pynvml.nvmlDeviceGetHandleByIndex(0)
            self.read = lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(self.device) / 1e3
            self.start = self.read()
        except Exception:  # no package, no driver, no counter
            self.read = None

    def joules(self):
        return self.read() - self.start if self.read else None


def repeated(args, run):
    """Calls run() once untimed and --runs times; prints the figures of this process."""
    run()
    energy, seconds = Energy(), []
    for _ in range(args.runs):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    joules = energy.joules()
    rates = [args.tokens / s for s in seconds]
    return {"tok_s": statistics.median(rates), "slowest": min(rates), "fastest": max(rates),
            "joules_token": joules / (args.runs * args.tokens) if joules else None}


def load(args):
    import torch
    import transformers
    transformers.utils.logging.set_verbosity_error()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16)
    model = model.to(device).eval()
    ids = torch.randint(0, model.config.vocab_size, (1, max(args.depth, 1)), device=device,
                        generator=torch.Generator(device).manual_seed(1))
    version = f"transformers {transformers.__version__}, torch {torch.__version__}"
    return model, ids, device, version


def sync(device):
    if device == "cuda":
        import torch
        torch.cuda.synchronize()


def prefill(model, cache, ids):
    """In pieces, so that a long prompt's logits and scores stay small."""
    for at in range(0, ids.shape[1], 512):
        out = model(input_ids=ids[:, at : at + 512], past_key_values=cache, use_cache=True,
                    logits_to_keep=1)
    return out.logits[:, -1].argmax(-1, keepdim=True)


def hf_generate(args):
    """model.generate with its default cache, from a copy of the filled cache."""
    import torch
    import transformers
    with torch.inference_mode():
        model, ids, device, version = load(args)
        cache = transformers.DynamicCache()
        first = prefill(model, cache, ids)
        given = torch.cat([ids, first], 1)
        mask = torch.ones_like(given)

        def run():
            if cache.get_seq_length() > ids.shape[1]:
                cache.crop(ids.shape[1] - cache.get_seq_length())
            made = model.generate(given, attention_mask=mask, past_key_values=cache,
                                  max_new_tokens=args.tokens, min_new_tokens=args.tokens,
                                  do_sample=False, pad_token_id=0)
            assert made.shape[1] == given.shape[1] + args.tokens
            sync(device)

        return {**repeated(args, run), "version": version}


def static_step(args, compiled):
    """One step (forward, argmax, next id) on a static cache; a CUDA graph where there is a GPU."""
    import torch
    import transformers
    model, ids, device, version = load(args)
    room = (max(args.depth, 1) + args.tokens + 63) // 64 * 64
    cache = transformers.StaticCache(config=model.config, max_cache_len=room)
    first = prefill(model, cache, ids)
    token = first.clone()
    lengths = [layer.cumulative_length for layer in cache.layers]

    def forward():
        return model(input_ids=token, past_key_values=cache, use_cache=True).logits

    if compiled:
        forward = torch.compile(forward, fullgraph=True, dynamic=False,
                                mode="max-autotune-no-cudagraphs")

    def step():
        token.copy_(forward()[:, -1].argmax(-1, keepdim=True))

    def restart():
        token.copy_(first)
        for length in lengths:
            length.fill_(max(args.depth, 1))

    for _ in range(3):
        step()
    if device == "cuda":
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            restart()
            step()
        torch.cuda.current_stream().wait_stream(stream)
        restart()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        step = graph.replay
    return step, restart, token, device, version + f", static cache of {room}"


def graph_run(args, compiled):
    import torch
    with torch.inference_mode(not compiled), torch.no_grad():
        step, restart, token, device, version = static_step(args, compiled)
        made = torch.zeros(args.tokens, dtype=torch.long, device=device)

        def run():
            restart()
            for i in range(args.tokens):
                step()
                made[i].copy_(token[0, 0])
            made.cpu()

        figures = repeated(args, run)
        again = made.tolist()
        run()
        words = "" if made.tolist() == again else "ids differ between runs"
        return {**figures, "version": version, "words": words}


def hf_static_graph(args):
    return graph_run(args, False)


def hf_compile_graph(args):
    return graph_run(args, True)


def reel(args):
    """`reel bench`, whose runs are --tokens ids from the depth on too."""
    energy = Energy()
    done = subprocess.run([args.reel, "bench", args.model, "-p", "0", "-n", str(args.tokens), "-d",
                           str(args.depth), "-r", str(args.runs), "--device", args.device, "-o",
                           "csv"], capture_output=True, text=True)
    del energy  # the fill is inside: no figure
    if done.returncode != 0:
        raise SystemExit(done.stderr.strip().splitlines()[-1])
    row = next(csv.DictReader(done.stdout.splitlines()))
    return {"tok_s": float(row["median_ts"]), "version": f"reel {commit()}, {row['backend']} "
            f"{row['path']}", "words": f"sd {row['stddev_ts']}"}


def llama_cpp(args):
    gguf = Path(args.model) / "model.gguf"
    if not gguf.exists():
        env = {**os.environ, "PYTHONPATH": args.gguf_py}
        subprocess.run([sys.executable, str(ROOT / "bench/peers/qwen3_to_gguf.py"), args.model,
                        str(gguf) + ".part"], check=True, env=env)
        os.rename(str(gguf) + ".part", gguf)
    gpu = [] if args.device == "cpu" else ["-ngl", "99"]
    done = subprocess.run([args.llama_bench, "-m", str(gguf), "-p", "0", "-n", str(args.tokens),
                           "-d", str(args.depth), "-r", str(args.runs), "-fa", "1", *gpu, "-o",
                           "json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit((done.stderr.strip().splitlines() or ["llama-bench failed"])[-1])
    row = json.loads(done.stdout)[0]
    rates = row["samples_ts"]
    return {"tok_s": statistics.median(rates), "slowest": min(rates), "fastest": max(rates),
            "version": f"llama.cpp {row['build_commit']}, {row['backends']}, flash attention"}


# ---- all of them ---------------------------------------------------------------------------------

def commit():
    return os.environ.get("REEL_COMMIT") or subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()


def run_peer(peer, depth, limit):
    with tempfile.NamedTemporaryFile("r", suffix=".json") as result:
        command = [sys.executable, __file__, *sys.argv[1:], "--run", peer, "--depth", str(depth),
                   "--out", result.name]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 text=True, start_new_session=True)
        try:
            text, _ = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, 9)
            child.communicate()
            return {"words": f"not over in {limit:.0f} s"}
        found = result.read()
        if child.returncode == 0 and found:
            return json.loads(found)
        print(text[-3000:], file=sys.stderr)
        lines = [line for line in text.splitlines() if line.strip()]
        return {"words": f"failed: {lines[-1][:150] if lines else child.returncode}"}


def shown(value):
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


def main():
    args = arguments()
    if args.run:
        figures = globals()[args.run.replace("-", "_").replace(".", "_")](args)
        Path(args.out).write_text(json.dumps(figures))
        return
    gpu = subprocess.run("nvidia-smi --query-gpu=name,driver_version --format=csv,noheader",
                         shell=True, capture_output=True, text=True).stdout.strip() or "no GPU"
    rows, start = [], time.monotonic()
    for depth in (int(d) for d in args.depths.split(",")):
        for peer in args.peers.split(","):
            if peer == "llama.cpp" and not args.llama_bench:
                continue
            left = args.budget - (time.monotonic() - start) if args.budget else LIMITS[peer]
            began = time.monotonic()
            figures = (run_peer(peer, depth, min(left, LIMITS[peer])) if left > 5
                       else {"words": "no time left"})
            rows.append({"peer": peer, "depth": depth, "tokens": args.tokens, "runs": args.runs,
                         "seconds": round(time.monotonic() - began, 1), **figures})
            print(f"{peer} at {depth}: {shown(figures.get('tok_s'))} {figures.get('words', '')}",
                  file=sys.stderr, flush=True)
            with open(args.out, "w", newline="") as file:
                file.write(f"# {gpu}, {datetime.date.today()}, {Path(args.model).name}, bf16, batch "
                           f"1, greedy\n# bench/peers/gpu.py {' '.join(sys.argv[1:])}\n")
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(COLUMNS)
                writer.writerows([shown(row.get(name)) for name in COLUMNS] for row in rows)
    ours = {row["depth"]: row.get("tok_s") for row in rows if row["peer"] == "reel"}
    print(f"\n{gpu}, {Path(args.model).name}\n{'peer':18} {'depth':>6} {'tok/s':>8} {'reel is':>8}  version")
    for row in rows:
        rate, mine = row.get("tok_s"), ours.get(row["depth"])
        times = f"{mine / rate:.2f} x" if rate and mine and row["peer"] != "reel" else ""
        print(f"{row['peer']:18} {row['depth']:6} {rate or 0:8.1f} {times:>8}  "
              f"{row.get('version', '')} {row.get('words', '')}")


if __name__ == "__main__":
    main()
