#!/usr/bin/env python3
"""How long recordings of short phrases take, and what is heard in them: programs in turn on one file.

usage: phrases.py [--rounds N] SECONDS LEAST MOST NAME=PROGRAM...

The recording is made of the twenty clips of models/speech/golden.ulaw in a drawn order, with pauses of LEAST to
MOST seconds between them in which a noise of 9 steps of 16 bits is. It is the same for the same arguments.
Each round runs every program once, with demo-speech on one thread of the CPU. Prints CSV: user time of the whole
program, segments, words, and a hash of the text.
"""
import argparse
import array
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import wave
from pathlib import Path

RATE = 16000
SPEECH = Path(__file__).resolve().parent.parent / "models/speech"


def from_ulaw(byte):
    flipped = byte ^ 0xFF
    size = (((2 * (flipped & 15) + 33) << (flipped >> 4 & 7)) - 33) * 4
    return max(-32768, min(32767, size if flipped & 0x80 else -size))


def draws(seed):
    while True:
        seed = (seed * 1664525 + 1013904223) & 0xFFFFFFFF
        yield seed


def recording(seconds, least, most):
    table = [from_ulaw(b) for b in range(256)]
    coded = (SPEECH / "golden.ulaw").read_bytes()
    clips = [array.array("h", (table[b] for b in coded[c["at"]:c["at"] + c["samples"]]))
             for c in json.loads((SPEECH / "golden.json").read_text())["clips"]]
    order, noise, samples = draws(5), draws(1), array.array("h")
    while len(samples) < seconds * RATE:
        drawn = next(order)
        samples.extend(clips[(drawn >> 16) % len(clips)])
        pause = int((least + (most - least) * (drawn >> 8 & 255) / 255) * RATE)
        samples.extend(int(((next(noise) >> 16) - 32768) / 32768 * 9) for _ in range(pause))
    return samples[:seconds * RATE]


def write(path, samples):
    if sys.byteorder == "big":
        samples.byteswap()
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE)
        out.writeframes(samples.tobytes())


def run(program, path):
    command = [program, "transcribe", "-m", "demo-speech", "--device", "cpu", "--threads", "1", "-q",
               "--format", "verbose_json", str(path)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    made = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, json.loads(made)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("seconds", type=int)
    parser.add_argument("least", type=float)
    parser.add_argument("most", type=float)
    parser.add_argument("programs", nargs="+")
    args = parser.parse_args()
    programs = [p.split("=", 1) for p in args.programs]
    print("seconds,least_pause_s,most_pause_s,round,program,user_s,segments,words,text,load_average")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "phrases.wav"
        write(path, recording(args.seconds, args.least, args.most))
        for turn in range(args.rounds):
            for name, program in programs:
                user, told = run(program, path)
                print(f"{args.seconds},{args.least:g},{args.most:g},{turn + 1},{name},{user:.2f},"
                      f"{len(told['segments'])},{len(told['text'].split())},"
                      f"{hashlib.sha256(told['text'].encode()).hexdigest()[:8]},{os.getloadavg()[0]:.1f}",
                      flush=True)


if __name__ == "__main__":
    main()
