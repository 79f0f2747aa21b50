"""Steps of tools/gpu_check.py: two processes, memory checkers, and what goes wrong."""
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import reel_ctypes as reel
from gpu_check_base import (MINIATURES, NO_LIMITS, ROOT, continued, first_difference, gpus_of,
                            only_gpu)
from gpu_check_models import synthesized, token_ids

# ---- around it -----------------------------------------------------------------------------------

SOLO = """
import sys, time, json
sys.path.insert(0, {tools!r})
import reel_ctypes as reel
from gpu_check_models import token_ids
model = reel.Library({library!r}).open({folder!r}, device={device!r}, cache_dir={cache!r},
                                        gpu_options={options!r})
with model, model.session(512) as session:
    session.sync(token_ids(9, model.vocab))
    start = time.monotonic()
    made = [session.generate(100) for _ in range({rounds})]
    print(json.dumps([made, time.monotonic() - start]))
"""


def two_processes(check):
    code = SOLO.format(tools=str(ROOT / "tools"), library=str(Path(check.args.library).resolve()),
                       folder=str(check.main_model()), device=check.args.device,
                       cache=str(check.cache), options=None, rounds=4)
    start = lambda: subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, text=True)
    finish = lambda child: child.communicate(timeout=100)
    results = []
    for group in (1, 2):
        children = [start() for _ in range(group)]
        for child in children:
            out, err = finish(child)
            if child.returncode != 0:
                check.row(f"{group} at once", False, err.strip()[-200:])
                return
            results.append(json.loads(out))
    seconds = [f"{r[1]:.2f}" for r in results]
    check.row("two at once", all(r[0] == results[0][0] for r in results),
              f"400 ids took {seconds[0]} s alone, {seconds[1]} and {seconds[2]} s together")


CHECKED = """
import sys
sys.path.insert(0, {tools!r})
import reel_ctypes as reel
from gpu_check_models import token_ids
options = {options!r}
with reel.Library({library!r}).open({folder!r}, device={device!r}, cache_dir={cache!r},
                                    gpu_options=options) as model:
    with model.session(128) as session, model.session(128) as copy:
        copy.eval(token_ids(70, model.vocab), reel.LAST_LOGITS)
        session.eval(token_ids(19, model.vocab), reel.ALL_LOGITS)
        ids = session.generate(4)
        session.generate(4, temperature=0.9, top_k=20, top_p=0.9, repetition_penalty=1.2)
        copy.copy_from(session)
        copy.restore(session.snapshot())
        copy.generate(2, temperature=1.3, top_p=0.999)
print("checked", ids)
"""
# A window and a part of the next, in steps and at once.
CHECKED_SPEECH = """
import sys
sys.path.insert(0, {tools!r})
import numpy as np
import reel_ctypes as reel
sounds = np.random.default_rng(1).normal(0, 0.1, 9 * 16000 + 123).astype(np.float32)
with reel.Library({library!r}).open({folder!r}, device={device!r}, cache_dir={cache!r},
                                    gpu_options={options!r}) as model:
    for seconds in (0, 3):
        with model.transcriber(stream_seconds=seconds, max_tokens=6) as transcriber:
            print("checked", transcriber.hear(sounds).text.encode())
"""
# KV caches are filled when they are made: a piece of 16 positions is fetched as a whole, and of rows
# that are not written yet nothing is used, which the step poison shows. What stays to be found is
# everything else: tapes, tables, exchange words, given ids, penalties.
CHECKED_OPTIONS = NO_LIMITS + ",poison=1,warps=4,tuned=0,split_from=20"
SANITIZERS = ("memcheck", "initcheck", "synccheck")
TOOL_LIMIT_S = 50


def sanitized(check, tool, kind, checked, folder, compute):
    """False when it was not over in time, as the next tool would not be either."""
    code = checked.format(tools=str(ROOT / "tools"),
                          library=str(Path(check.args.library).resolve()), folder=str(folder),
                          device=check.args.device, cache=str(check.cache),
                          options=CHECKED_OPTIONS + (f",compute={compute}" if compute else ""))
    command = [tool, "--tool", kind, "--error-exitcode", "9", "--print-limit", "10"]
    if kind == "memcheck":  # of calls that may fail reel has its own opinion
        command += ["--report-api-errors", "no"]
    case = f"{kind}, compute {compute}" if compute else kind
    child = subprocess.Popen([*command, sys.executable, "-c", code], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, start_new_session=True)
    in_time = True
    try:
        out, _ = child.communicate(timeout=TOOL_LIMIT_S)
    except subprocess.TimeoutExpired:
        in_time = False
        os.killpg(child.pid, 9)  # the tool and what it checks
        out, _ = child.communicate()
        out += f"\nnot over in {TOOL_LIMIT_S} s"
    print(out[-6000:])
    lines = [line.strip("= ") for line in out.splitlines() if line.strip("= ")]
    summary = [line for line in lines if line.startswith("ERROR SUMMARY")]
    fine = (child.returncode == 0 and summary == ["ERROR SUMMARY: 0 errors"] and
            any(line.startswith("checked") for line in lines))
    first = [line for line in lines if not line.startswith(("COMPUTE-SANITIZER", "checked"))][:2]
    words = "; ".join((summary if fine else first + summary or lines[-1:]))
    check.row(case, fine, words or f"no output, status {child.returncode}")
    return in_time


def sanitize(check, checked, folder, computes):
    """Few tokens of a small shape, four warps so that the tools' own registers fit beside."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not check.gpu or not Path(tool).exists():
        check.row("", "skipped", "no compute-sanitizer" if check.gpu else "only on a GPU")
        return
    for compute in computes:
        for kind in SANITIZERS:
            if not sanitized(check, tool, kind, checked, folder, compute):
                break


def miniature(check, name):
    return synthesized(check.args.reel, check.models / name, MINIATURES / f"{name}.json", 1)


def sanitizer(check):
    sanitize(check, CHECKED, miniature(check, "q3-c"), ("", "80"))


def hybrid_sanitizer(check):
    sanitize(check, CHECKED, miniature(check, "q35-c"), ("",))


def speech_sanitizer(check):
    sanitize(check, CHECKED_SPEECH, ROOT / "models/speech", ("", "80"))


# ---- what goes wrong -----------------------------------------------------------------------------

def refused(check, case, run, limit_s=30, wanted=""):
    """run() ends in a message with the wanted words within the limit."""
    start, words, fine = time.monotonic(), "nothing was refused", False
    try:
        run()
    except reel.ReelError as e:
        words, fine = str(e), wanted in str(e)
    seconds = time.monotonic() - start
    check.row(case, fine and seconds < limit_s, f"after {seconds:.1f} s: {words}")


def damage(path, how):
    data = bytearray(path.read_bytes())
    if how == "cut":
        data = data[: len(data) // 2]
    elif how == "empty":
        data = b""
    else:
        for at in range(len(data) // 4, len(data), max(1, len(data) // 200)):
            data[at] ^= 0x5A
    path.write_bytes(data)


def damaged_cache(check, folder, wanted):
    cache = check.folder("damaged-cache")
    shutil.rmtree(cache)
    for how in ("nothing", "cut", "empty", "flipped"):
        cache.mkdir(exist_ok=True)
        files = [path for path in cache.rglob("*") if path.is_file()]
        for path in files:
            damage(path, how) if how != "nothing" else None
        start = time.monotonic()
        try:
            with check.open(folder, cache=cache) as model:
                made = continued(model, [5], 20)
            words, fine = first_difference(made, wanted), made == wanted
        except reel.ReelError as e:
            words, fine = str(e), False
        check.row(f"kernel cache, {how}", fine, f"{len(files)} files, {words}, "
                  f"{time.monotonic() - start:.1f} s")


def full_memory(check, folder):
    import torch
    if check.args.size == "sim":
        check.row("no memory left", "skipped", "not on the simulator")
        return
    for gpu in gpus_of(check):
        free, _ = torch.cuda.mem_get_info(gpu)
        hog = torch.empty(max(0, free - (400 << 20)), dtype=torch.uint8, device=f"cuda:{gpu}")
        refused(check, f"no memory left, GPU {gpu}", lambda: check.open(folder).close())
        del hog
        torch.cuda.empty_cache()


def cancelled(check, folder, wanted):
    with check.open(folder) as model, model.session(40000) as session:
        ids = token_ids(40000, model.vocab)
        timer = threading.Timer(0.1, session.cancel)
        timer.start()
        refused(check, "cancelled by another thread", lambda: session.sync(ids), 5)
        timer.join()
        kept = len(session)
        session.sync([5])
        made = session.generate(20)
        check.row("and then on", kept < len(ids) and made == wanted,
                  f"{kept} positions were kept; {first_difference(made, wanted)}")


def absent(check, folder, case, options, wanted):
    """Options that keep a block away; the model still closes, and what is opened next works."""
    with check.open(folder, options) as model:
        for again in ("", ", again"):
            refused(check, case + again, lambda: continued(model, [5], 20), wanted=wanted)


def faults(check):
    if not only_gpu(check):
        return
    folder = check.main_model()
    with check.open(folder) as model:
        wanted = continued(model, [5], 20)

    simulated = check.args.size == "sim"  # which calls a longer silence a deadlock
    on_each = [gpu * 132 + 5 for gpu in range(len(gpus_of(check)))]  # of an H100 or H200
    for block in (0, 5) if simulated else (0, *on_each):
        absent(check, folder, f"a wait that gives up on block {block}",
               f"absent={block},patience={500 if simulated else 20000}", "gave up waiting for")
    if not simulated:
        for block in on_each:
            absent(check, folder, f"a launch that is silent for block {block}",
                   f"absent={block},hang_ms=500,launch_ms=50", "silent for")
    refused(check, "more blocks than SMs",
            lambda: check.open(folder, "n_groups=8,group_sms=64").close())
    refused(check, "an option that does not exist", lambda: check.open(folder, "a=b").close())
    with check.open(folder) as model:
        made = continued(model, [5], 20)
        check.row("the next model works", made == wanted, first_difference(made, wanted))
    cancelled(check, folder, wanted)
    damaged_cache(check, folder, wanted)
    full_memory(check, folder)
    with check.open(folder) as model:
        made = continued(model, [5], 20)
        check.row("and the one after all this", made == wanted, first_difference(made, wanted))
