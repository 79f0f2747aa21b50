#!/usr/bin/env python3
"""Words that a speech model gets wrong in recordings of people: those of two Debian packages whose
text is known. Neither trained nor tuned on; nothing of them is kept.

    apt-get install asterisk-core-sounds-en-wav pocketsphinx-testdata
    tools/human_clips.py [--reel PROGRAM] [--model MODEL] [--root FOLDER] [--show]

asterisk-core-sounds-en-wav (CC-BY-SA-3.0, Allison Smith): prompts of telephone exchanges, 8 kHz, one
speaker; a file's name is what it says. pocketsphinx-testdata (BSD-2-Clause, LibriVox in the public
domain): card games, digits and a novel, 16 kHz. FOLDER is where the packages are unpacked, / by
default; numpy is needed. Exit status 77: no package is there.
"""

import argparse
import array
import json
import re
import subprocess
import sys
import tempfile
import wave
from pathlib import Path
from random import Random

from asr_speech import DIGITS, TEENS, TENS, WORDS
from train_asr import distance

ASTERISK = "usr/share/asterisk/sounds/en_US_f_Allison"
SPHINX = "usr/share/pocketsphinx/test/data"
STRINGS, PAUSE = 50, 0.1  # strings of digits, seconds between two of them


def read_wav(path):
    with wave.open(str(path)) as f:
        return f.getframerate(), f.readframes(f.getnframes())


def write_wav(path, rate, data):
    with wave.open(str(path), "wb") as f:
        f.setnchannels(1)
        f.setsampwidth(2)
        f.setframerate(rate)
        f.writeframes(data)
    return path


def strings(sounds, work):
    """Digits one after the other, as an exchange says a number: [(file, text)]"""
    clips = [read_wav(sounds / f"digits/{i}.wav") for i in range(10)]
    rate, rng = clips[0][0], Random(0)
    pause = array.array("h", bytes(2 * int(PAUSE * rate))).tobytes()
    out = []
    for i in range(STRINGS):
        digits = [rng.randrange(10) for _ in range(rng.randint(2, 8))]
        path = write_wav(work / f"string{i}.wav", rate, pause.join(clips[d][1] for d in digits))
        out.append((path, " ".join(DIGITS[d] for d in digits)))
    return out


def asterisk(sounds, work):
    """[(name of a set, [(file, text)])]"""
    ones = [(sounds / f"digits/{i}.wav", word) for i, word in enumerate(DIGITS)]
    numbers = [(sounds / f"digits/{i}.wav", word) for i, word in
               [*enumerate(TEENS, 10), *((10 * i, word) for i, word in enumerate(TENS, 2))]]
    numbers = [clip for clip in numbers if clip[0].exists()]
    words = [(path, word) for word in WORDS if word not in DIGITS + TEENS + TENS
             for path in (sounds / f"{where}{word}.wav" for where in ("", "digits/", "letters/"))
             if path.exists()]
    return [("telephone, single digits", ones), ("telephone, strings of digits", strings(sounds, work)),
            ("telephone, 10 to 90", numbers), ("telephone, single words it knows", words)]


def transcribed(folder, name):
    """Sphinx's transcription file: <s> text </s> (file)"""
    found = re.findall(r"<s>(.*?)</s>\s*\((.*?)\)", (folder / name).read_text())
    return [(folder / f"{file}.wav", " ".join(text.split())) for text, file in found]


def sphinx(data, work):
    raw = write_wav(work / "dhd.wav", 16000, (data / "tidigits/dhd.2934z.raw").read_bytes())
    return [("microphone, a string of digits", [(raw, "two nine three four zero")]),
            ("microphone, card games", transcribed(data / "cards", "cards.transcription")),
            ("a novel", transcribed(data / "librivox", "transcription"))]


def hear(arguments, path):
    done = subprocess.run([arguments.reel, "transcribe", "-q", "-m", arguments.model, "--device",
                           "cpu", "--format", "json", str(path)], capture_output=True, text=True,
                          check=False)
    if done.returncode:
        raise SystemExit(f"{path}: {done.stderr.strip()}")
    return re.sub(r"[^a-z' ]", " ", json.loads(done.stdout)["text"].lower()).split()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--reel", default="build/release/reel")
    parser.add_argument("--model", default="demo-speech")
    parser.add_argument("--root", type=Path, default=Path("/"))
    parser.add_argument("--show", action="store_true", help="every clip, and what was heard")
    arguments = parser.parse_args()
    sources = [(ASTERISK, asterisk, "asterisk-core-sounds-en-wav"),
               (SPHINX, sphinx, "pocketsphinx-testdata")]
    n_found = 0
    print("set,clips,words,words_wrong,percent,clips_right")
    with tempfile.TemporaryDirectory() as work:
        for folder, make, package in sources:
            if not (arguments.root / folder).is_dir():
                print(f"# skipped: {package} is not installed below {arguments.root}")
                continue
            n_found += 1
            for name, clips in make(arguments.root / folder, Path(work)):
                n_words = wrong = right = 0
                for path, text in clips:
                    heard, said = hear(arguments, path), text.split()
                    errors = distance(heard, said)
                    n_words, wrong, right = n_words + len(said), wrong + errors, right + (not errors)
                    if arguments.show:
                        print(f"# {path.name}: {text} -> {' '.join(heard)}")
                print(f"\"{name}\",{len(clips)},{n_words},{wrong},{100 * wrong / n_words:.1f},{right}",
                      flush=True)
    sys.exit(0 if n_found else 77)


main()
