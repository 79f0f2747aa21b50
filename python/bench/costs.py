#!/usr/bin/env python3
"""What Python adds to the C API, and what it leaves behind. Prints CSV for bench/results/python.csv.

    python/bench/costs.py [--library build/release/libreel.so] [--wheel FILE.whl ...] [--sessions 10000]

Cost of a token: python/bench/paced.c stands before libreel and makes tokens that cost nothing. The same tokens are
taken by a loop in C, by a Python iterator and by an asynchronous one; what is above the loop in C is Python's, per
token: the median of the runs, each of many tokens. Then tokens that take 500 us each (setting), as a small model's do:
from when a token was made to when Python's loop body has it.

Memory: sessions of the demo model, opened, used for a prompt and a token, and closed; resident memory of the process.
At once: 64 asynchronous generations on 4 sessions; each has to equal what the same prompt makes alone.
"""
import argparse
import asyncio
import csv
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUNS, TOKENS, PACED = 21, 20000, 1500
PACE_NS = 500_000


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=str(ROOT / "build/release/libreel.so"))
    parser.add_argument("--wheel", nargs="*", default=[])
    parser.add_argument("--sessions", type=int, default=10000)
    parser.add_argument("--part", choices=["tokens", "real"])
    return parser.parse_args()


def row(what, value, unit, note=""):
    csv.writer(sys.stdout, lineterminator="\n").writerow([what, value, unit, note])
    sys.stdout.flush()


def percentile(values, share):
    return sorted(values)[int(share * (len(values) - 1))]


# ---- tokens of python/bench/paced.c ----


def tokens():
    import reel
    import cffi
    from reel._library import ffi

    extra = cffi.FFI()
    extra.cdef("void paced_set(long ns); double paced_loop(void *session, int n);")
    paced = extra.dlopen(reel.library_path)
    model = reel.Model("demo", "cpu", n_threads=1)
    session = model.session(64)
    session.sync([1, 2, 3])
    pointer = extra.cast("void *", int(ffi.cast("uintptr_t", session._handle.pointer)))

    def in_c():
        return paced.paced_loop(pointer, TOKENS)

    def iterated():
        made = session.generate(max_tokens=TOKENS)
        next(made)
        start, n = time.perf_counter(), 0
        for _ in made:
            n += 1
        seconds = time.perf_counter() - start
        assert n == TOKENS - 1
        return seconds

    async def awaited():
        steps = session.generate(max_tokens=TOKENS).__aiter__()
        await steps.__anext__()
        start, n = time.perf_counter(), 0
        async for _ in steps:
            n += 1
        seconds = time.perf_counter() - start
        assert n == TOKENS - 1
        return seconds

    async def gaps(made):
        late = []
        async for token in made:
            late.append((time.monotonic_ns() - int(token.text)) / 1000)
        return late

    base = statistics.median(in_c() for _ in range(RUNS)) / TOKENS * 1e6
    row("loop in C, tokens that cost nothing", round(base, 3), "us a token", f"median of {RUNS} runs")
    for name, run in [("iterator", iterated), ("asynchronous iterator", lambda: asyncio.run(awaited()))]:
        costs = [run() / TOKENS * 1e6 - base for _ in range(RUNS)]
        row(f"{name}, above the loop in C", round(statistics.median(costs), 2), "us a token",
            f"{min(costs):.2f} to {max(costs):.2f} in {RUNS} runs of {TOKENS} tokens")
    paced.paced_set(PACE_NS)

    def processor(run):
        before = time.process_time()
        run()
        return (time.process_time() - before) / PACED * 1e6

    async def consumed():
        async for _ in session.generate(max_tokens=PACED):
            pass

    in_loop = min(processor(lambda: paced.paced_loop(pointer, PACED)) for _ in range(3))
    for name, run in [("iterator", lambda: list(session.generate(max_tokens=PACED))),
                      ("asynchronous iterator", lambda: asyncio.run(consumed()))]:
        costs = [processor(run) - in_loop for _ in range(3)]
        row(f"{name}, tokens of {PACE_NS // 1000} us, processor time above the loop in C",
            round(statistics.median(costs), 1), "us a token", f"median of 3 runs of {PACED} tokens")
    late = [(time.monotonic_ns() - int(token.text)) / 1000 for token in session.generate(max_tokens=PACED)]
    row("iterator, from a token's making to the loop's body", round(statistics.median(late), 1), "us",
        f"median of {PACED} tokens of {PACE_NS // 1000} us; 99% are below {percentile(late, 0.99):.1f}")
    late = asyncio.run(gaps(session.generate(max_tokens=PACED)))
    row("asynchronous iterator, from a token's making to the loop's body", round(statistics.median(late), 1), "us",
        f"median of {PACED} tokens of {PACE_NS // 1000} us; 99% are below {percentile(late, 0.99):.1f}")


# ---- the real library ----


def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def real(n_sessions):
    import reel

    with reel.Model("demo", "cpu", n_threads=1) as model:
        marks = {}
        for i in range(1, n_sessions + 1):
            with model.session(64) as session:
                session.sync([1, 2, 3])
                next(session.generate(max_tokens=4))
            if i in (n_sessions // 10, n_sessions // 2, n_sessions):
                marks[i] = resident()
        for i, size in marks.items():
            row(f"resident memory after {i} sessions", round(size / 1e6, 2), "MB")
        first = marks[n_sessions // 10]
        row("growth over the last nine tenths", round((marks[n_sessions] - first) / 1e6, 3), "MB")

    with reel.Model("demo", "cpu", sessions=4) as model:
        prompts = [f"Emma {'and Harriet ' * (i % 7)}{i}" for i in range(64)]
        start = time.perf_counter()
        wanted = [model.generate(p, max_tokens=64, temperature=0, ignore_stop_ids=True).ids() for p in prompts]
        alone = time.perf_counter() - start

        async def one(prompt):
            return [t.id async for t in model.generate(prompt, max_tokens=64, temperature=0, ignore_stop_ids=True)]

        async def every():
            return await asyncio.gather(*[one(prompt) for prompt in prompts])

        start = time.perf_counter()
        got = asyncio.run(every())
        together = time.perf_counter() - start
        row("64 generations of 64 tokens at once that equal those alone", sum(a == b for a, b in zip(got, wanted)),
            "of 64", f"{together:.2f} s together on 4 sessions, {alone:.2f} s one after the other")


def main():
    options = arguments()
    if options.part:
        sys.path.insert(0, str(ROOT / "python"))
        tokens() if options.part == "tokens" else real(options.sessions)
        return
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True).stdout
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    import cffi

    print(f"# {cpu}, {os.cpu_count()} cores, which other programs used at the same time; CPython "
          f"{platform.python_version()}, cffi {cffi.__version__} in ABI mode; niceness {os.nice(0)}, load "
          f"{os.getloadavg()[0]:.0f}; reel {commit.strip()}")
    print(f"# python/bench/costs.py {' '.join(Path(word).name if word.endswith('.whl') else word for word in sys.argv[1:])}")
    print("what,value,unit,note", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        library = Path(options.library).resolve()
        paced = f"{folder}/libpaced.so"
        subprocess.run(["cc", "-std=c17", "-D_POSIX_C_SOURCE=200809L", "-O2", "-shared", "-fPIC",
                        f"-I{ROOT}/include", str(Path(__file__).with_name("paced.c")), "-o", paced,
                        "-Wl,--no-as-needed", str(library), f"-Wl,-rpath,{folder}"], check=True)
        soname = subprocess.run(["readelf", "-d", str(library)], capture_output=True, text=True).stdout
        soname = soname.split("soname: [")[1].split("]")[0]
        os.symlink(library, f"{folder}/{soname}")
        for part, path in [("tokens", paced), ("real", str(library))]:
            subprocess.run([sys.executable, __file__, "--part", part, "--sessions", str(options.sessions)],
                           env=dict(os.environ, REEL_LIBRARY=path), check=True)
    for wheel in options.wheel:
        row(Path(wheel).name, round(os.path.getsize(wheel) / 1e6, 2), "MB")


if __name__ == "__main__":
    main()
