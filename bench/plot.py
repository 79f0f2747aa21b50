#!/usr/bin/env python3
"""The pictures of README.md and docs/, drawn from bench/results/*.csv into docs/img/*.svg. Standard library only;
the same files give the same bytes.

usage: plot.py [--check]    --check writes nothing and exits 1 when a picture is not what its files make

Colours follow the reader's light or dark setting by a media query inside each file. A file's last line of text
names the results it was made from, with card, commit and date.
"""
import csv
import math
import sys
from pathlib import Path
from statistics import median
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results"
WIDTH = 600

STYLE = """
text{font:15px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#1f2328}
.title{font-size:18px;font-weight:600}.soft{fill:#59636e}.small{font-size:12px}.strong{font-weight:600}
.white{fill:#fff}.end{text-anchor:end}.mid{text-anchor:middle}
.grid{stroke:#d1d9e0;stroke-width:1;fill:none}
.line{fill:none;stroke-width:2;stroke:#8c959f}.dot{fill:#8c959f;stroke:none}
.first{stroke:#0969da;stroke-width:3}.dot.first,.bar.first{fill:#0969da;stroke:none}
.bar{fill:#afb8c1}.b0{fill:#0969da}.b1{fill:#8250df}.b2{fill:#9a6700}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.soft{fill:#9198a1}.white{fill:#fff}.grid{stroke:#3d444d}
.line{stroke:#7d8590}.dot{fill:#7d8590}.first{stroke:#58a6ff}.dot.first,.bar.first{fill:#58a6ff}.bar{fill:#57606a}
.b0{fill:#1f6feb}.b1{fill:#8957e5}.b2{fill:#9e6a03}}
"""


def rows(name, header=None):
    """The rows of a file of results as dictionaries, without its comments."""
    lines = [line for line in (RESULTS / name).read_text().splitlines() if line and not line.startswith("#")]
    return list(csv.DictReader(lines, fieldnames=header))


def number(v):
    return f"{v:,.0f}" if v >= 100 else f"{v:.1f}".rstrip("0").rstrip(".") if v >= 10 else f"{v:.2g}"


def place(v):
    return f"{v:.1f}".rstrip("0").rstrip(".")


class Picture:
    def __init__(self, height, title, description):
        self.height, self.parts = height, []
        self.head = f"<title>{escape(title)}</title><desc>{escape(description)}</desc>"

    def text(self, x, y, text, classes=""):
        kind = f' class="{classes}"' if classes else ""
        self.parts.append(f'<text x="{place(x)}" y="{place(y)}"{kind}>{escape(text)}</text>')

    def line(self, points, classes):
        path = " ".join(f"{place(x)},{place(y)}" for x, y in points)
        self.parts.append(f'<polyline class="{classes}" points="{path}"/>')

    def dot(self, x, y, classes, r=4):
        self.parts.append(f'<circle class="{classes}" cx="{place(x)}" cy="{place(y)}" r="{r}"/>')

    def bar(self, x, y, width, height, classes):
        self.parts.append(f'<rect class="{classes}" x="{place(x)}" y="{place(y)}" width="{place(max(width, 0.5))}" '
                          f'height="{place(height)}" rx="2"/>')

    def svg(self):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{self.height}" '
                f'viewBox="0 0 {WIDTH} {self.height}" role="img" aria-labelledby="t d">'
                + self.head.replace("<title>", '<title id="t">').replace("<desc>", '<desc id="d">')
                + f"\n<style>{STYLE}</style>\n" + "\n".join(self.parts) + "\n</svg>\n")


def spread(places, gap):
    """The places moved apart so that none is nearer than `gap` to another, each as little as may be."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    out = list(places)
    for _ in range(200):
        for a, b in zip(order, order[1:]):
            lack = gap - (out[b] - out[a])
            if lack > 1e-9:
                out[a] -= lack / 2
                out[b] += lack / 2
    return out


def decode_speed():
    """Tokens a second against position, beside peers of the same card and day."""
    name = "gpu-peers.csv"
    labels = {"reel": "reel", "llama.cpp": "llama.cpp", "hf-compile-graph": "transformers, compiled",
              "hf-static-graph": "transformers, static cache", "hf-generate": "transformers, generate()"}
    speed = {}
    for row in rows(name):
        speed.setdefault(row["peer"], []).append((int(row["depth"]), float(row["tok_s"])))
    depths = [d for d, _ in speed["reel"]]
    assert set(speed) == set(labels) and all([d for d, _ in s] == depths for s in speed.values())
    ends = ", ".join(f"{labels[p]} {number(s[0][1])} and {number(s[-1][1])}" for p, s in speed.items())
    p = Picture(396, "Decode speed against position", "Tokens a second of one session, Qwen3-0.6B in bf16 on an H200, "
                f"with {depths[0]} tokens in the context and with {depths[-1]:,}: {ends}.")
    left, right, top, bottom = 56, 336, 76, 306
    low, high = 40, 4000
    y = lambda v: bottom - (math.log(v) - math.log(low)) / (math.log(high) - math.log(low)) * (bottom - top)
    x = lambda i: left + 24 + i * (right - left - 48) / (len(depths) - 1)
    p.text(0, 20, "Decode speed of one session", "title")
    p.text(0, 44, "Qwen3-0.6B bf16, NVIDIA H200; tokens/s, logarithmic", "soft")
    for tick in (50, 100, 200, 500, 1000, 2000):
        p.line([(left, y(tick)), (right, y(tick))], "grid")
        p.text(left - 8, y(tick) + 5, number(tick), "soft end")
    for i, depth in enumerate(depths):
        p.text(x(i), bottom + 20, f"{depth:,}", "soft mid")
    p.text((left + right) / 2, bottom + 41, "tokens in the context before", "soft mid")
    order = sorted(speed, key=lambda k: k != "reel", reverse=True)
    heights = dict(zip(order, spread([y(speed[k][-1][1]) for k in order], 20)))
    best_peer = max((k for k in order if k != "reel"), key=lambda k: speed[k][0][1])
    for peer in order:
        kind = " first" if peer == "reel" else ""
        points = [(x(i), y(v)) for i, (_, v) in enumerate(speed[peer])]
        p.line(points, "line" + kind)
        for px, py in points:
            p.dot(px, py, "dot" + kind)
        strong = " strong" if kind else ""
        p.text(right + 8, heights[peer] + 5, f"{labels[peer]} {number(speed[peer][-1][1])}", strong.strip())
        if peer in ("reel", best_peer):
            p.text(points[0][0], points[0][1] - 10, number(speed[peer][0][1]), ("mid" + strong).strip())
    p.text(0, 374, f"bench/results/{name}, 2026-11-21: 100 tokens, median of 5 runs, synthetic weights;",
           "soft small")
    p.text(0, 390, "reel c64f9ee, llama.cpp with flash attention (version not recorded), transformers 5.17.0, torch 2.11", "soft small")
    return p


def token_time():
    """What of a token's time memory needs, and what is left, at three positions."""
    name, shapes = "gpu-decode.csv", "gpu-shapes-layer.csv"
    stream_us = next(float(r["us_token"]) for r in rows(shapes) if r["bench"] == "no_wait")
    cases = [("positions 0-200", "around 100"), ("around 4096", "around 4,096"), ("around 32768", "around 32,768")]
    found = {r["case"]: r for r in rows(name)}
    bytes_a_token = {}
    for case, _ in cases:
        r = found[case]
        bytes_a_token[case] = float(r["gb_per_s"]) * 1e9 / float(r["value"])
    # A position's K and V: what two depths differ by. The weights: what is left without.
    middle = {"positions 0-200": 100, "around 4096": 4096, "around 32768": 32768}
    near, far = cases[0][0], cases[-1][0]
    kv = (bytes_a_token[far] - bytes_a_token[near]) / (middle[far] - middle[near])
    weights = bytes_a_token[near] - kv * middle[near]
    parts = []
    for case, label in cases:
        total = 1e6 / float(found[case]["value"])
        cache = stream_us * kv * middle[case] / weights
        parts.append((label, total, (stream_us, cache, total - stream_us - cache)))
    said = "; ".join(f"{label} {total:.0f} us: {a:.0f} weights, {b:.0f} K and V, {c:.0f} the rest"
                     for label, total, (a, b, c) in parts)
    p = Picture(278, "Where a token's time goes", f"Qwen3-0.6B in bf16 on an H200, microseconds a token. {said}.")
    p.text(0, 20, "Where a token's time goes", "title")
    p.text(0, 44, "Qwen3-0.6B bf16, NVIDIA H200; microseconds a token, by position", "soft")
    left, right = 130, WIDTH - 62
    scale = (right - left) / max(total for _, total, _ in parts)
    for i, (label, total, pieces) in enumerate(parts):
        at, y = left, 60 + 44 * i
        p.text(left - 10, y + 20, label, "end")
        for k, piece in enumerate(pieces):
            width = piece * scale
            p.bar(at, y, width - 1, 30, f"b{k}")
            if width > 20:
                p.text(at + width / 2, y + 20, f"{piece:.0f}", "white mid strong" + (" small" if width < 40 else ""))
            at += width
        p.text(at + 6, y + 20, f"{total:,.0f}", "strong")
    y = 60 + 44 * len(parts) + 14
    for k, (word, at) in enumerate((("weights", 0), ("K and V", 100), ("the rest: other SMs, attention, the pick", 200))):
        p.bar(at, y - 10, 11, 11, f"b{k}")
        p.text(at + 18, y, word, "soft")
    p.text(0, 248, f"Totals: bench/results/{name}, reel f269f97, 2026-11-21. Weights: what they take when", "soft small")
    p.text(0, 264, f"nothing waits ({shapes}, 4fe0529); K and V: at that rate; the rest: the difference.", "soft small")
    return p


def cpu_speed():
    """Two threads of a processor, beside llama.cpp: medians of the rounds."""
    name = "cpu-llama-cpp.csv"
    groups = {}
    for row in rows(name):
        groups.setdefault((row["model"], row["test"]), []).append((float(row["reel_ts"]), float(row["llama_cpp_ts"])))
    titles = {"pp512": "reads a prompt of 512", "tg128": "makes 128 tokens"}
    models = {"SmolLM2-135M-Instruct.Q4_1.gguf": "SmolLM2-135M Q4_1", "qwen3-0.6b": "Qwen3-0.6B bf16"}
    values = {k: (median(a for a, _ in v), median(b for _, b in v)) for k, v in groups.items()}
    said = "; ".join(f"{models[m]} {titles[t]}: reel {number(a)}, llama.cpp {number(b)}" for (m, t), (a, b) in values.items())
    p = Picture(334, "Speed on a processor beside llama.cpp", f"Two threads of an AMD EPYC, tokens a second. {said}.")
    p.text(0, 20, "Two threads of an AMD EPYC, tokens/s", "title")
    left, right, y = 92, WIDTH - 58, 36
    for test in titles:
        scale = (right - left) / max(max(v) for (_, t), v in values.items() if t == test)
        for model, label in models.items():
            mine, other = values[model, test]
            p.text(0, y + 10, f"{label} {titles[test]}", "soft")
            for k, (who, v, kind) in enumerate((("reel", mine, "bar first"), ("llama.cpp", other, "bar"))):
                top = y + 18 + 19 * k
                strong = "strong" if k == 0 else ""
                p.text(left - 10, top + 12, who, ("end " + strong).strip())
                p.bar(left, top, v * scale, 14, kind)
                p.text(left + v * scale + 6, top + 12, number(v), strong)
            y += 67
    p.text(0, 312, f"bench/results/{name}: medians of 5 rounds taken in turns, nothing else running;", "soft small")
    p.text(0, 328, "reel bb4a1d9, llama.cpp 0c1e570. Prompts and generated tokens have scales of their own.", "soft small")
    return p


PICTURES = {"decode-speed.svg": decode_speed, "token-time.svg": token_time, "cpu-speed.svg": cpu_speed}


def main():
    folder, check, bad = ROOT / "docs/img", "--check" in sys.argv[1:], []
    if not check:
        folder.mkdir(exist_ok=True)
    for name, make in PICTURES.items():
        text, path = make().svg(), folder / name
        if not check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            bad.append(name)
    for name in bad:
        print(f"docs/img/{name} is not what bench/plot.py makes of bench/results: run it and commit the picture")
    if check and not bad:
        print(f"{len(PICTURES)} pictures are what their results make")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
