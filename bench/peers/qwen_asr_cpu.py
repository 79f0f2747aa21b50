"""The runs of qwen_asr_cpu.sh, which describes them: WORK MODEL THREADS ROUNDS SECONDS ..."""

import array
import json
import math
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import time
import wave

RATE = 16000
STAGES = ("features_ms", "encoder_ms", "prompt_ms", "decode_ms")
COLUMNS = ("clip_s", "round", "program", "audio_tokens", "prompt_tokens", *STAGES, "ms_per_step",
           "stages_ms", "wall_s", "cpu_s", "load_average")


def write_clip(path, seconds):
    """A tone in noise: what is heard decides nothing here."""
    rng = random.Random(0)
    samples = array.array("h", (int(8000 * math.sin(2 * math.pi * 440 * i / RATE) +
                                    rng.uniform(-2000, 2000)) for i in range(seconds * RATE)))
    with wave.open(path, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE)
        out.writeframes(samples.tobytes())


def link_model(model, folder):
    """The peer's folder: the same weights, and the tokenizer in the files that it reads."""
    os.mkdir(folder)
    for name in os.listdir(model):
        os.symlink(os.path.join(model, name), os.path.join(folder, name))
    with open(os.path.join(model, "tokenizer.json")) as f:
        bpe = json.load(f)["model"]
    with open(os.path.join(folder, "vocab.json"), "w") as f:
        json.dump(bpe["vocab"], f)
    with open(os.path.join(folder, "merges.txt"), "w") as f:
        f.write("#version: 0.2\n")
        f.writelines((m if isinstance(m, str) else " ".join(m)) + "\n" for m in bpe["merges"])


def figures(text, pattern, names):
    found = re.search(pattern, text, re.S)
    if not found:
        raise SystemExit(f"no figures in:\n{text}")
    return {name: float(value) for name, value in zip(names, found.groups())}


def read_reel(text):
    got = figures(text, r"features ([\d.]+) ms, encoder ([\d.]+) ms, prompt (\d+) tokens "
                        r"([\d.]+) ms, text (\d+) tokens ([\d.]+) ms",
                  ("features_ms", "encoder_ms", "prompt_tokens", "prompt_ms", "ids", "decode_ms"))
    got["steps"] = got.pop("ids") - 1  # the first id is the prompt's
    return got


def read_peer(text):
    return figures(text, r"Mel: \d+ frames \((\d+) ms\).*Encoder: (\d+) tokens \((\d+) ms\).*"
                         r"Prefill: (\d+) tokens \((\d+) ms\).*Decode: (\d+) tokens \((\d+) ms",
                   ("features_ms", "audio_tokens", "encoder_ms", "prompt_tokens", "prompt_ms",
                    "steps", "decode_ms"))


def run(command, environment, read):
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, check=False)
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    text = done.stderr.decode(errors="replace")
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{text}")
    got = read(text)
    got["stages_ms"] = sum(got[stage] for stage in STAGES)
    got["ms_per_step"] = got["decode_ms"] / got["steps"]
    got["wall_s"] = wall
    got["cpu_s"] = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
    got["load_average"] = os.getloadavg()[0]
    return got


def programs(work, model, threads, clip):
    """[(name, command, environment, reader)]"""
    prefix = os.environ.get("PREFIX", "").split()
    reel = os.environ.get("REEL", "build/release/reel")
    plain = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    out = []
    for path in os.environ.get("PATHS", "").split(","):
        command = [*prefix, reel, "transcribe", "-m", model, clip, "-t", threads, "-n",
                   os.environ["TOKENS"], "--device", "cpu", *(["--cpu-path", path] if path else [])]
        out.append(("reel" + (f" {path}" if path else ""), command, plain, read_reel))
    command = [*prefix, f"{work}/source/qwen_asr", "-d", f"{work}/model", "-i", clip, "-t", threads,
               "--debug"]
    for core in os.environ.get("CORES", "").split(","):
        extra = {"OPENBLAS_CORETYPE": core} if core else {}
        out.append(("qwen_asr" + (f" {core}" if core else ""), command,
                    {**plain, "OPENBLAS_NUM_THREADS": threads, **extra}, read_peer))
    return out


def first_line(pattern, path):
    with open(path) as f:
        return re.search(pattern, f.read()).group(1)


def put_header(work, threads, rounds, seconds):
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                            check=True).stdout.strip()
    link = first_line(r"(gcc [^\n]*-o qwen_asr) ", f"{work}/build.log")
    print(f"# {first_line(r'model name.*: (.*)', '/proc/cpuinfo')}, {threads} threads; reel "
          f"{commit}; antirez/qwen-asr {os.environ['PEER_COMMIT'][:7]}, {link}")
    set_here = " ".join(f'{name}="{os.environ[name]}"' for name in
                        ("PREFIX", "MARCH", "CORES", "PATHS") if name in os.environ)
    print(f"# {set_here} bench/peers/qwen_asr_cpu.sh qwen-asr qwen3-asr-0.6b {threads} {rounds} "
          f"{' '.join(seconds)}")
    print(f"# {os.environ['TOKENS']} ids a clip")
    print(",".join(COLUMNS), flush=True)


def put_row(row):
    print(",".join(f"{v:.1f}" if isinstance(v, float) and v % 1 else
                   str(int(v)) if isinstance(v, float) else str(v)
                   for v in (row.get(c, "") for c in COLUMNS)), flush=True)


def put_medians(rows):
    wanted = (*STAGES, "ms_per_step", "stages_ms", "wall_s", "cpu_s")
    medians = {}
    for row in rows:
        medians.setdefault((row["clip_s"], row["program"]), []).append([row[c] for c in wanted])
    medians = {k: [statistics.median(column) for column in zip(*v)] for k, v in medians.items()}
    print("# medians: clip_s,program," + ",".join(wanted))
    for (clip, program), values in medians.items():
        print(f"# {clip},{program}," + ",".join(f"{v:.1f}" for v in values))
    print("# times as fast as the peer, of the medians")
    for (clip, program), values in medians.items():
        for (other_clip, ours), mine in medians.items():
            if clip == other_clip and ours.startswith("reel") and not program.startswith("reel"):
                print(f"# {clip},{ours} : {program}," +
                      ",".join(f"{t / o:.2f}" for o, t in zip(mine, values)))


def main():
    work, model, threads, rounds, *seconds = sys.argv[1:]
    link_model(model, f"{work}/model")
    put_header(work, threads, rounds, seconds)
    rows = []
    for s in seconds:
        write_clip(f"{work}/{s}.wav", int(s))
    for i in range(1, int(rounds) + 1):
        for s in seconds:
            for name, command, environment, read in programs(work, model, threads,
                                                             f"{work}/{s}.wav"):
                row = {"clip_s": s, "round": i, "program": name,
                       **run(command, environment, read)}
                rows.append(row)
                put_row(row)
    put_medians(rows)


main()
