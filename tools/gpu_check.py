#!/usr/bin/env python3
"""Full-size checks of reel on a GPU, against Hugging Face transformers on the same GPU.

usage: gpu_check.py [--device gpu] [--size full|tiny|sim] [--steps NAME,...] [--out FOLDER] [options]

Each step is a process of its own with a time limit, so that a hang or a crash costs one line of the
table. Writes check.json and check.csv into --out; the table comes last. The exit status is 1 when
anything failed. On a machine without a GPU, `--size tiny --device cpu` tries the steps themselves, and
`--size sim --torch-device cpu` with the fake driver of tests/sim in LD_LIBRARY_PATH the kernels too.
"""
import argparse
import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path

STEPS = {  # name: seconds it may take; in this order
    "device": 60,
    "demo": 120,
    "logits": 240,
    "prefill": 300,
    "prefill-first": 150,
    "prefill-long": 120,
    "prefill-quick": 60,
    "embed-quick": 240,
    "greedy-demo": 120,
    "greedy-smollm2": 180,
    "pieces": 90,
    "splits": 120,
    "launches": 120,
    "repeats": 150,
    "sessions": 90,
    "poison": 90,
    "stops": 90,
    "snapshots": 90,
    "sampling": 120,
    "epoch": 90,
    "paths": 240,
    "slots": 200,
    "lookups": 120,
    "two-processes": 120,
    "qwen2-quick": 180,
    "families": 300,
    "repositories": 300,
    "hybrid-logits": 200,
    "hybrid-lengths": 240,
    "hybrid-quick": 90,
    "hybrid-first": 180,
    "hybrid-curve": 240,
    "hybrid-snapshots": 120,
    "hybrid-sessions": 90,
    "hybrid-repeats": 120,
    "hybrid-stops": 90,
    "hybrid-launches": 120,
    "hybrid-poison": 90,
    "hybrid-faults": 180,
    "hybrid-sanitizer": 160,
    "speech": 120,
    "speech-trained": 90,
    "speech-logits": 120,
    "speech-quick": 90,
    "speech-clips": 60,
    "speech-stream": 170,
    "speech-stream-trained": 60,
    "speech-sanitizer": 160,
    "several": 400,
    "faults": 180,
    "sanitizer": 310,
    "shapes": 400,
    "large-shapes": 400,
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--size", choices=["full", "tiny", "sim"], default="full")
    parser.add_argument("--steps", default=",".join(STEPS), help="default: all: %(default)s")
    parser.add_argument("--reel", default="build/release/reel")
    parser.add_argument("--library", default="build/release/libreel.so")
    parser.add_argument("--out", default=os.environ.get("OUT", "build/gpu-check"))
    parser.add_argument("--models", default="build/gpu-check-models",
                        help="folder for models that are made here")
    parser.add_argument("--model", default="", help="folder, in place of the main synthetic model")
    parser.add_argument("--hybrid", default="", help="folder, in place of the synthetic hybrid")
    parser.add_argument("--speech", default="", help="folder, in place of the synthetic speech model")
    parser.add_argument("--smollm2", default="", help="folder or GGUF of SmolLM2-135M-Instruct")
    parser.add_argument("--torch-device", default="", help="default: cuda where there is one")
    parser.add_argument("--gpu-options", default="", help="given to every model that is opened")
    parser.add_argument("--repeats", type=int, default=0, help="of the step repeats")
    parser.add_argument("--budget", type=float, default=0, help="seconds for all steps together")
    parser.add_argument("--compute", default="75,80", help="older GPUs of the step paths")
    parser.add_argument("--run", help=argparse.SUPPRESS)  # one step, in this process
    return parser.parse_args()


def run_step(name, limit, out):
    """Runs one step; its rows: {"step", "case", "result", "words", ...}."""
    rows_path = out / "rows.jsonl"
    rows_path.unlink(missing_ok=True)
    log = open(out / "check.log", "a")
    print(f"---- {name}", file=log, flush=True)
    start = time.monotonic()
    command = [sys.executable, __file__, *sys.argv[1:], "--run", name, "--out", str(out)]
    child = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    ending = ""
    try:
        if child.wait(timeout=limit) != 0:
            ending = f"ended with status {child.returncode}"
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, 9)
        child.wait()
        ending = f"did not end in {limit:.0f} s"
    seconds = time.monotonic() - start
    rows = [json.loads(line) for line in open(rows_path)] if rows_path.exists() else []
    if ending:
        tail = (out / "check.log").read_text(errors="replace").strip().splitlines()
        rows.append({"step": name, "case": "the step", "result": "FAILED",
                     "words": f"{ending}; {tail[-1][:160] if tail else 'no output'}"})
    if not rows:
        rows.append({"step": name, "case": "the step", "result": "FAILED", "words": "no result"})
    rows_path.unlink(missing_ok=True)
    return rows, seconds


def commit():
    given = os.environ.get("REEL_COMMIT")
    if given:
        return given
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def gpu_words():
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version",
                               "--format=csv,noheader"], capture_output=True, text=True)
        return done.stdout.strip() or "no GPU"
    except OSError:
        return "no GPU"


def run_here(args):
    import gpu_check_embed
    import gpu_check_families
    import gpu_check_faults
    import gpu_check_hybrid
    import gpu_check_prefill
    import gpu_check_several
    import gpu_check_speech
    import gpu_check_steps
    import gpu_check_vocabulary
    import reel_ctypes
    from gpu_check_base import Check
    name = args.run.replace("-", "_")
    modules = (gpu_check_steps, gpu_check_prefill, gpu_check_embed, gpu_check_families, gpu_check_hybrid,
               gpu_check_vocabulary, gpu_check_speech, gpu_check_several, gpu_check_faults)
    step = next(getattr(module, name) for module in modules if hasattr(module, name))
    check = Check(args)
    try:
        step(check)
    except reel_ctypes.ReelError as e:
        refused = e.status == reel_ctypes.UNSUPPORTED and name.startswith("hybrid")
        check.row("the step", "refused" if refused else False, str(e))


def write_results(out, head, rows):
    """Anew after each step, so that they are there also when this process is stopped."""
    (out / "check.json").write_text(json.dumps({**head, "rows": rows}, indent=1))
    columns = ["step", "case", "result", "words", "step_seconds"]
    with open(out / "check.csv", "w", newline="") as file:
        for key, value in head.items():
            file.write(f"# {key}: {value}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([row.get(column, "") for column in columns] for row in rows)


def print_step(rows):
    """A line each, or one for all of many that went well."""
    good = [row for row in rows if row["result"] in ("ok", "not asked")]
    shown = rows
    if len(good) > 4:
        shown = [row for row in rows if row not in good]
        cases = f"{len(good)} cases"
        shown.insert(0, {**good[0], "result": "ok", "case": cases, "words": good[-1]["words"]})
    for row in shown:
        seconds = f"{row['step_seconds']:6.1f}" if "step_seconds" in row else "      "
        print(f"{row['result']:8} {row['step']:14} {row['case'][:26]:26} {seconds} "
              f"{row['words'][:200]}")


def main():
    args = arguments()
    if args.run:
        return run_here(args)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    names = [name for name in args.steps.split(",") if name]
    unknown = [name for name in names if name not in STEPS]
    if unknown:
        sys.exit(f"step {unknown[0]!r} is unknown; allowed are {', '.join(STEPS)}")
    head = {"gpu": gpu_words(), "commit": commit(), "device": args.device, "size": args.size,
            "command": " ".join(["tools/gpu_check.py", *sys.argv[1:]])}
    (out / "check.log").unlink(missing_ok=True)
    start, rows = time.monotonic(), []
    for name in names:
        left = args.budget - (time.monotonic() - start) if args.budget else STEPS[name]
        if left < 10:
            rows.append({"step": name, "case": "", "result": "skipped", "words": "no time left"})
            continue
        made, seconds = run_step(name, min(left, STEPS[name]), out)
        for row in made:
            row["step_seconds"] = round(seconds, 1)
            if row["result"] == "FAILED":
                print(f"FAILED {row['step']} {row['case']}: {row['words']}", flush=True)
        rows += made
        write_results(out, head, rows)
    print(f"\n{head['gpu']}, reel {head['commit']}, {head['device']}, {head['size']}")
    for name in names:
        print_step([row for row in rows if row["step"] == name])
    failed = sum(row["result"] == "FAILED" for row in rows)
    print(f"{len(rows)} results, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
