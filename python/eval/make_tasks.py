#!/usr/bin/env python3
"""Writes the data of the tasks beside it: tasks/NAME.jsonl, from the lists below and the project's own pages.

usage: make_tasks.py

lm_eval's own tasks fetch their data from a hub. These are small, the project's own, and need no network: general knowledge
to choose from (reel_facts), rows to go on with (reel_rows), and paragraphs whose likelihood is summed (reel_text).
What is committed is what was measured; run again, it writes reel_text from the pages as they are then.
"""
import json
import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent
CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid", "Portugal": "Lisbon", "Greece": "Athens",
    "Austria": "Vienna", "Poland": "Warsaw", "Hungary": "Budapest", "Norway": "Oslo", "Sweden": "Stockholm", "Finland": "Helsinki",
    "Denmark": "Copenhagen", "Ireland": "Dublin", "Russia": "Moscow", "Japan": "Tokyo", "China": "Beijing", "India": "New Delhi",
    "Egypt": "Cairo", "Kenya": "Nairobi", "Cuba": "Havana", "Peru": "Lima", "Chile": "Santiago", "Canada": "Ottawa"}
OPPOSITES = {
    "hot": "cold", "big": "small", "fast": "slow", "old": "young", "dark": "light", "wet": "dry", "hard": "soft", "full": "empty",
    "rich": "poor", "strong": "weak", "early": "late", "happy": "sad", "open": "closed", "high": "low", "near": "far", "loud": "quiet",
    "heavy": "light in weight", "clean": "dirty", "deep": "shallow", "wide": "narrow", "up": "down", "left": "right",
    "day": "night", "winter": "summer"}
KINDS = {
    "dog": "animal", "rose": "flower", "hammer": "tool", "violin": "musical instrument", "apple": "fruit", "carrot": "vegetable",
    "chair": "piece of furniture", "gold": "metal", "Mars": "planet", "January": "month", "Monday": "day of the week", "blue": "color",
    "eagle": "bird", "oak": "tree", "salmon": "fish", "ant": "insect", "Europe": "continent", "Pacific": "ocean", "shirt": "piece of clothing",
    "triangle": "shape", "milk": "drink", "French": "language", "football": "sport", "doctor": "profession"}
ROWS = [
    "one, two, three, four, five, six, seven, eight, nine, ten", "first, second, third, fourth, fifth, sixth, seventh, eighth",
    "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday", "January, February, March, April, May, June, July, August",
    "A, B, C, D, E, F, G, H, I, J", "2, 4, 6, 8, 10, 12, 14, 16", "10, 20, 30, 40, 50, 60, 70, 80", "5, 10, 15, 20, 25, 30, 35, 40",
    "1, 2, 3, 4, 5, 6, 7, 8", "do, re, mi, fa, sol, la, ti, do", "red, green, blue, red, green, blue, red, green", "100, 200, 300, 400, 500, 600, 700, 800"]
PAGES = ["ARCHITECTURE.md", "SERVER.md", "CHAT.md", "TOKENIZERS.md", "KV.md", "WEIGHTS.md"]
A_PAGE = 4  # paragraphs


def choices(right, others, at):
    """Four, the right one at one of four places in turn."""
    wrong = [o for o in others if o != right]
    some = [wrong[(7 * at + 5 * i) % len(wrong)] for i in range(3)]
    return some[:at % 4] + [right] + some[at % 4:]


def facts():
    for name, pairs, question in (("capital", CAPITALS, "The capital of {} is"), ("opposite", OPPOSITES, "The opposite of {} is"),
                                  ("kind", KINDS, "What kind of thing is it? {} is the name of one")):
        for at, (key, right) in enumerate(pairs.items()):
            yield {"kind": name, "question": question.format(key), "choices": choices(right, list(pairs.values()), at), "answer": at % 4}


def rows():
    for text in ROWS:
        words = text.split(", ")
        for n in (4, 5, 6):
            yield {"begin": ", ".join(words[:n]) + ",", "next": words[n]}


def paragraphs():
    for page in PAGES:
        text = (HERE.parent.parent / "docs" / page).read_text()
        plain = [re.sub(r"\s+", " ", p) for p in re.split(r"\n\s*\n", text) if not re.match(r"\s*[#|`<\-]", p)]
        long = [p for p in plain if 300 <= len(p) <= 700 and "|" not in p and "](" not in p]
        for p in long[:A_PAGE]:
            yield {"page": page, "text": p}


def main():
    for name, items in (("reel_facts", facts()), ("reel_rows", rows()), ("reel_text", paragraphs())):
        with open(HERE / "tasks" / f"{name}.jsonl", "w") as f:
            n = 0
            for item in items:
                f.write(json.dumps(item) + "\n")
                n += 1
        print(name, n)


if __name__ == "__main__":
    main()
