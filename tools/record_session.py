#!/usr/bin/env python3
"""Records docs/img/session.svg: the commands below, typed into a shell on a pseudo-terminal, with what the programs
really print and when they print it. Only the typing and the pauses between commands are made. Needs pyte (PyPI),
bash, espeak-ng, curl, a built reel, and the model that README.md fetches.

usage: record_session.py --model SmolLM2-135M-Instruct.Q4_1.gguf [--reel build/release/reel] [--out FILE.svg]
                         [--log FILE.json]    keeps what was read, for drawing again with --from FILE.json

The picture moves by CSS alone and stands still, at its last screen, where the reader's settings ask for less motion.
"""
import argparse
import base64
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import sys
import tempfile
import time
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
# As many columns as can be read where the picture is as wide as a phone.
COLUMNS, ROWS = 64, 24
KEY_S, PAUSE_S, END_S = 0.035, 1.3, 6.0
PROMPT = "$ "
FRAME_S = 0.05  # what changes within this is one picture

# What is typed, and what the screen shows before the next one: a prompt, or a text.
STEPS = [
    ('reel run demo "The morning after the ball, Emma" -n 48 --temp 0.7 --seed 7', PROMPT),
    ("reel chat SmolLM2.gguf --temp 0", "> "),
    ("What is the capital of France?", "> "),
    ("\x04", PROMPT),
    ('espeak-ng --stdout "half past twelve" | reel transcribe -m demo-speech --stream -', PROMPT),
    ("reel serve SmolLM2.gguf demo-speech --log none &", "demo-speech is ready"),
    ("", PROMPT),
    ("curl -s localhost:8080/v1/audio/transcriptions -F file=@spoken.wav -F response_format=text", PROMPT),
    ("curl -s localhost:8080/v1/chat/completions -d @ask.json >a.json & sleep 2; reel top --once", PROMPT),
]


# ---- recording -------------------------------------------------------------------------------------------------------

class Terminal:
    """A shell on a pseudo-terminal, and what it wrote with the time of each piece."""

    def __init__(self, folder, environment):
        self.pieces, self.start = [], time.monotonic()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "+m", "-i"], environment)
        import fcntl
        import termios
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    def read(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self.fd], [], [], left)[0]:
                data = os.read(self.fd, 65536)
                self.pieces.append((time.monotonic() - self.start, data))

    def wait(self, screen_ends_with, seen, most=60):
        """`seen` pieces were there before what it waits for was typed."""
        begin = time.monotonic()
        while time.monotonic() - begin < most:
            self.read(0.05)
            said = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", b"".join(d for _, d in self.pieces[seen:])).decode(errors="replace")
            if screen_ends_with in (PROMPT, "> "):
                if said.endswith(screen_ends_with) and "\n" in said:
                    return
            elif screen_ends_with in said:
                self.read(0.3)
                return
        raise SystemExit(f"{screen_ends_with!r} was not shown; what was:\n{said}")

    def type(self, text):
        for c in text:
            os.write(self.fd, c.encode())
            self.read(KEY_S)


def record(reel, model):
    folder = tempfile.mkdtemp(prefix="reel-session-")
    os.symlink(model, f"{folder}/SmolLM2.gguf")
    os.makedirs(f"{folder}/bin")
    os.symlink(reel, f"{folder}/bin/reel")
    os.system(f"espeak-ng -w '{folder}/spoken.wav' 'three one four one five nine'")
    Path(f"{folder}/ask.json").write_text('{"model": "SmolLM2", "max_tokens": 600, "messages": [{"role": "user", '
                                          '"content": "Tell me a long story about a lighthouse."}]}')
    environment = {"PATH": f"{folder}/bin:/usr/bin:/bin", "HOME": folder, "TERM": "xterm-256color", "LANG": "C.UTF-8",
                   "PS1": PROMPT, "HISTFILE": "", "BASH_SILENCE_DEPRECATION_WARNING": "1"}
    os.system(f"HOME={folder} '{reel}' run '{model}' -n 1 x >/dev/null 2>&1")  # a tokenizer is parsed once
    terminal = Terminal(folder, environment)
    terminal.read(1)
    terminal.pieces, terminal.start = [], time.monotonic()
    os.write(terminal.fd, b"\x0c")  # a clean screen
    try:
        for typed, then in STEPS:
            terminal.read(PAUSE_S)
            seen = len(terminal.pieces)
            terminal.type(typed)
            if typed != "\x04":
                terminal.read(0.25)
                os.write(terminal.fd, b"\r")
            terminal.wait(then, seen)
        terminal.read(0.5)
    finally:
        os.write(terminal.fd, b"\x03\nkill %1 2>/dev/null; exit\n")
        terminal_pieces = list(terminal.pieces)
        time.sleep(1)
        os.kill(terminal.pid, signal.SIGHUP)
        shutil.rmtree(folder, ignore_errors=True)
    return terminal_pieces


# ---- drawing ---------------------------------------------------------------------------------------------------------

def frames(pieces):
    """(seconds, rows, cursor) for each picture; a row is a tuple of (text, style)."""
    import pyte
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    out, last = [], -1.0
    for at, data in pieces:
        stream.feed(data.replace(b"\x1b[2m", b"\x1b[90m"))  # pyte knows no dim text
        shot = (tuple(row_of(screen, y) for y in range(ROWS)),
                (screen.cursor.x, screen.cursor.y) if not screen.cursor.hidden else None)
        if out and at - last < FRAME_S:
            out[-1] = (out[-1][0], *shot)
        elif not out or shot != out[-1][1:]:
            out.append((at, *shot))
            last = at
    return out


def row_of(screen, y):
    runs = []
    for x in range(COLUMNS):
        c = screen.buffer[y][x]
        style = "b" if c.bold else "d" if c.fg in ("brightblack", "bfbfbf") else "g" if c.fg == "green" else ""
        if runs and runs[-1][1] == style:
            runs[-1][0] += c.data
        else:
            runs.append([c.data, style])
    while runs and not runs[-1][0].strip():
        runs.pop()
    if runs:
        runs[-1][0] = runs[-1][0].rstrip()
    return tuple((t, s) for t, s in runs)


CELL_W, CELL_H, PAD, BAR = 8.4, 18, 14, 30


def svg(shots):
    length = shots[-1][0] + END_S
    pieces, rules = [], []
    alive = {}  # row -> (content, since)

    def percent(t):
        return f"{100 * t / length:.3f}".rstrip("0").rstrip(".")

    def put(element, since, until, last):
        name = f"f{len(rules)}"
        on, off = percent(since), percent(until)
        if last:
            rules.append(f"@keyframes {name}{{0%{{opacity:0}}{on}%,100%{{opacity:1}}}}")
        else:
            rules.append(f"@keyframes {name}{{0%{{opacity:0}}{on}%{{opacity:1}}{off}%,100%{{opacity:0}}}}")
        pieces.append(element.replace("@", f'class="{"l" if last else "f"}" style="animation-name:{name}"', 1))

    def text(row, y):
        spans, x = [], 0
        for words, style in row:
            kind = f' class="{style}"' if style else ""
            lead = len(words) - len(words.lstrip(" "))
            shown = words.strip(" ")
            if shown:
                spans.append(f'<tspan x="{PAD + CELL_W * (x + lead):.1f}"{kind}>{escape(shown)}</tspan>')
            x += len(words)
        return f'<text @ y="{BAR + PAD + CELL_H * y + 13}">{"".join(spans)}</text>'

    for i, (at, rows, cursor) in enumerate(shots):
        now = {y: row for y, row in enumerate(rows) if row}
        for y in list(alive):
            if now.get(y) != alive[y][0]:
                put(text(alive[y][0], y), alive[y][1], at, False)
                del alive[y]
        for y, row in now.items():
            alive.setdefault(y, (row, at))
    for y, (row, since) in sorted(alive.items()):
        put(text(row, y), since, length, True)
    cursor_frames = []
    for at, _, cursor in shots:
        x, y = cursor if cursor else (-2, -9)
        cursor_frames.append(f"{percent(at)}%{{transform:translate({CELL_W * x:.1f}px,{CELL_H * y}px)}}")
    x, y = shots[-1][2] or (-2, -9)
    width, height = round(2 * PAD + CELL_W * COLUMNS), BAR + 2 * PAD + CELL_H * ROWS
    style = f"""
text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#1f2328;white-space:pre}}
.w{{fill:#fff;stroke:#d1d9e0}}.t{{fill:#d1d9e0}}.d{{fill:#6e7781}}.b{{font-weight:600}}.g{{fill:#1a7f37}}.c{{fill:#57606a}}
@media(prefers-color-scheme:dark){{text{{fill:#e6edf3}}.w{{fill:#0d1117;stroke:#3d444d}}.t{{fill:#3d444d}}.d{{fill:#8b949e}}.g{{fill:#3fb950}}.c{{fill:#8b949e}}}}
.f,.l{{animation:{length:.2f}s step-end infinite}}.f{{opacity:0}}
#c{{animation:c {length:.2f}s step-end infinite;transform:translate({CELL_W * x:.1f}px,{CELL_H * y}px)}}
@keyframes c{{{"".join(cursor_frames)}}}
{chr(10).join(rules)}
@media(prefers-reduced-motion:reduce){{.f,.l,#c{{animation:none}}}}
"""
    dots = "".join(f'<circle class="t" cx="{PAD + 4 + 16 * i}" cy="{BAR // 2}" r="5"/>' for i in range(3))
    said = "A terminal in which " + "; ".join(t for t, _ in STEPS if t and t.isprintable()) + " are typed, with what they print."
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            f'role="img" aria-labelledby="t d"><title id="t">A recorded terminal session of reel</title>'
            f'<desc id="d">{escape(said)}</desc>\n<style>{style}</style>\n'
            f'<rect class="w" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8"/>{dots}\n'
            + "\n".join(pieces)
            + f'\n<rect id="c" class="c" x="{PAD}" y="{BAR + PAD}" width="{CELL_W}" height="17"/>\n</svg>\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--reel", default=str(ROOT / "build/release/reel"))
    parser.add_argument("--model")
    parser.add_argument("--out", default=str(ROOT / "docs/img/session.svg"))
    parser.add_argument("--log")
    parser.add_argument("--from", dest="source")
    given = parser.parse_args()
    if given.source:
        pieces = [(t, base64.b64decode(d)) for t, d in json.loads(Path(given.source).read_text())]
    elif given.model:
        pieces = record(os.path.abspath(given.reel), os.path.abspath(given.model))
    else:
        parser.error("--model FILE or --from LOG")
    if given.log:
        Path(given.log).write_text(json.dumps([(t, base64.b64encode(d).decode()) for t, d in pieces]))
    text = svg(frames(pieces))
    Path(given.out).write_text(text)
    print(f"{given.out}: {len(text) / 1e3:.0f} KB, {pieces[-1][0]:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
