#!/usr/bin/env python3
"""Answers of a speech model and how Qwen3-ASR's published programs read them.

usage: make_answer_goldens.py tests/fixtures/asr/answers.json.xz

The rules are those of qwen_asr/inference/utils.py, written down again with Python's own text functions;
one differs: white space that a removed loop leaves around a transcript goes too, also when the language
was given. Each case is [raw answer, language given or null, language, text].
"""
import json
import lzma
import random
import sys

REPEATS = 20
LONGEST = 20


def one_of_each_run(text):
    out, i = "", 0
    while i < len(text):
        end = i
        while end < len(text) and text[end] == text[i]:
            end += 1
        out += text[i] if end - i > REPEATS else text[i:end]
        i = end
    return out


def one_of_each_pattern(text):
    if len(text) < 2 * REPEATS:
        return text
    out, i = "", 0
    while i <= len(text) - 2 * REPEATS:
        for k in range(1, LONGEST + 1):
            pattern = text[i:i + k]
            if text[i:i + k * REPEATS] == pattern * REPEATS:
                end = i + k * REPEATS
                while text[end:end + k] == pattern:
                    end += k
                return out + pattern + one_of_each_pattern(text[end:])
        out += text[i]
        i += 1
    return out + text[i:]


def read(raw, given):
    text = one_of_each_pattern(one_of_each_run(raw.strip()))
    if given is not None:
        return given, text.strip()
    if "<asr_text>" not in text:
        return "", text.strip()
    before, text = text.split("<asr_text>", 1)
    text = text.strip()
    if "language none" in before.lower():
        return "", text
    for line in before.splitlines():
        line = line.strip()
        if line.lower().startswith("language "):
            name = line[len("language "):].strip()
            return name[:1].upper() + name[1:].lower(), text
    return "", text


WRITTEN = [
    "", " ", "<asr_text>", "language None<asr_text>", "language none<asr_text>heard after all",
    "language English<asr_text>Hello there.", " language English<asr_text> Hello there. \n",
    "LANGUAGE ENGLISH<asr_text>x", "language\tEnglish<asr_text>x", "language English", "Hello <asr_text> there",
    "noise\nlanguage chinese\nlanguage English\n<asr_text>\u4f60\u597d", "language <asr_text>x", "language  <asr_text>x",
    "noise\r\nlanguage gERMAN\r\n<asr_text>a<asr_text>b", "xlanguage English<asr_text>a", "language \u00c9COSSAIS<asr_text>a",
    "the language None of us knew<asr_text>a", "language Chinese\u3000<asr_text>\u3000\u4f60\u3000", "language English<ASR_TEXT>a",
    "language English\u2028noise<asr_text>a", "language English\x1cmore<asr_text>\x1fa\x1f",
]


def made(rng):
    letters = rng.choice(["ab", "ab ", "\u4f60\u597d\uff0c", "a\U0001f600", "xyz ."])
    out = ""
    for _ in range(rng.randrange(1, 5)):
        out += "".join(rng.choice(letters) for _ in range(rng.randrange(0, 12)))
        pattern = "".join(rng.choice(letters) for _ in range(rng.choice([1, 1, 1, 2, 3, 5, 10, 19, 20, 21])))
        out += pattern * rng.choice([1, 2, 10, 18, 19, 20, 21, 22, 40, 100]) + pattern[:rng.randrange(0, len(pattern) + 1)]
    if rng.random() < 0.6:
        out = rng.choice(["language English<asr_text>", "language None<asr_text>", "language a" + "b" * 30 + "<asr_text>"]) + out
    return out


rng = random.Random(6)
raws = WRITTEN + ["a" * n for n in range(18, 62)] + ["ab" * n + "a" for n in range(18, 32)] + [made(rng) for _ in range(400)]
cases = [[raw, given, *read(raw, given)] for raw in raws for given in (None, "Korean")]
with lzma.open(sys.argv[1], "wt", encoding="utf-8", preset=9) as out:
    json.dump(cases, out, ensure_ascii=False, indent=0)
print(f"{len(cases)} cases")
