#!/usr/bin/env python3
"""gpu_samples.py SAMPLES.csv KERNELS US [DEPTH [ONLY]]: where the warps of a persistent kernel spend their time.

Sums up samples of the program counter by the functions that the code was inlined from. SAMPLES.csv is what ncu says of
one launch, KERNELS the file of the compiled kernels' cache that has the kernel, US how long a token or a pass takes.
A row has microseconds of a pass, as if each of WARPS warps of a block were a consumer (environment, 8 of 12), how many
instructions, the functions from the kernel down to DEPTH (4), and why warps stood there. ONLY: rows whose functions
have that text in them. For one launch, the 21st of decode:

    ncu --section SourceCounters --warp-sampling-interval 5 --warp-sampling-buffer-size 1073741824 -k decode -s 20 -c 1 \\
        -o launch build/release/decode_bench MODEL gpu CACHE lineinfo=1
    ncu --import launch.ncu-rep --page source --csv --print-source sass >launch.csv
    tools/gpu_samples.py launch.csv CACHE/kernels-....bin 335

Needs nvdisasm, and kernels compiled with --gpu-option lineinfo=1 from these sources.
"""
import collections
import csv
import os
import re
import subprocess
import sys
import tempfile

KERNELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "kernels")
LINE = re.compile(r'\s*//## File "([^"]+)", line (\d+)(?: inlined at "([^"]+)", line (\d+))?')
INSTRUCTION = re.compile(r"\s+/\*([0-9a-f]{4,})\*/\s")
FUNCTION = re.compile(r"(?:DEV|KERNEL)\b.*?(\w+)\(")


def instructions(path):
    """The frames (file, line) of each instruction, innermost first."""
    with open(path, "rb") as f:
        image = f.read()
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(image[image.index(b"\x7fELF"):])
        cubin.flush()
        text = subprocess.run(["nvdisasm", "-c", "-gi", cubin.name], check=True, capture_output=True, text=True).stdout
    frames, fresh, found = [], True, []
    for line in text.splitlines():
        match = LINE.match(line)
        if match:
            frames = [] if fresh else frames
            fresh = False
            frames.append((match[1], int(match[2])))
            outer = (match[3], int(match[4])) if match[3] else None
        elif INSTRUCTION.match(line):
            if not fresh and outer:
                frames.append(outer)
            fresh = True
            found.append(frames)
    return found


def function_of(frame, names={}):
    """The function of these sources that a line belongs to."""
    name = os.path.basename(frame[0])
    if name not in names:
        lines, now = [], "?"
        try:
            with open(os.path.join(KERNELS, name)) as f:
                for text in f:
                    match = FUNCTION.match(text)
                    now = match[1] if match else now
                    lines.append(now)
        except OSError:
            pass
        names[name] = lines
    lines = names[name]
    return lines[frame[1] - 1] if frame[1] <= len(lines) else "?"


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__.split("\n", 1)[0])
    us, depth = float(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 4
    only = sys.argv[5] if len(sys.argv) > 5 else ""
    warps = int(os.environ.get("WARPS", "8"))
    with open(sys.argv[1]) as f:
        rows = list(csv.reader(f))
    names = rows[1]
    reasons = [(i, n[6:]) for i, n in enumerate(names) if n.startswith("stall_") and "Not" not in n]
    at = names.index("# Samples")
    samples = [row for row in rows[2:] if len(row) == len(names) and row[0].startswith("0x")]
    code = instructions(sys.argv[2])
    if len(code) < len(samples) or len(code) > len(samples) + 64:
        sys.exit(f"{sys.argv[2]} has {len(code)} instructions, of which {len(samples)} were sampled: another kernel's?")
    all_warps = warps * 3 // 2
    scale = us * all_warps / warps / max(1, sum(int(row[at]) for row in samples))
    sums = collections.defaultdict(lambda: [0, 0, collections.Counter()])
    for row, frames in zip(samples, code):
        path = "/".join(reversed([function_of(frame) for frame in frames])) or "?"
        if only not in path:
            continue
        entry = sums["/".join(path.split("/")[:depth])]
        entry[0] += int(row[at])
        entry[1] += 1
        for i, reason in reasons:
            entry[2][reason] += int(row[i])
    for path, (n, instructions_of, why) in sorted(sums.items(), key=lambda item: -item[1][0]):
        if n * scale < 0.05:
            break
        stood = ", ".join(f"{reason} {count * scale:.1f}" for reason, count in why.most_common(4) if count)
        print(f"{n * scale:8.2f} {instructions_of:6d}  {path}  ({stood})")


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        sys.stderr.close()
