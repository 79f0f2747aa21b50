"""The steps of tools/gpu_check.py. A step is a function of a Check; what it finds goes into rows."""
import hashlib
import json
import lzma
import os
import re
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import reel_ctypes as reel
from gpu_check_models import synthesized, token_ids, winner_model

ROOT = Path(__file__).resolve().parent.parent
MINIATURES = ROOT / "tests/golden/models"
SIZES = {
    "full": {"shape": "qwen3-0.6b", "seed": 0, "windows": "0-2048,4064-4128,32736-32800",
             "repeats": 1000, "long": 1500, "tokens": 200, "vocab": 151936, "hidden": 1024},
    "tiny": {"shape": MINIATURES / "q3-w.json", "seed": 1, "windows": "0-80,200-216",
             "repeats": 5, "long": 150, "tokens": 24, "vocab": 1200, "hidden": 128},
}
LAST_EPOCHS = 2**32 - 100


class Check:
    def __init__(self, args):
        self.args, self.step = args, args.run
        self.size = SIZES[args.size]
        self.library = reel.Library(args.library)
        self.models = Path(args.models)
        self.models.mkdir(parents=True, exist_ok=True)
        self.rows = open(Path(args.out) / "rows.jsonl", "a")
        self.gpu = args.device.startswith("gpu")
        given = os.environ.get("XDG_CACHE_HOME")
        self.cache = Path(given) / "reel" if given else self.models / "cache"
        self.cache.mkdir(parents=True, exist_ok=True)

    def row(self, case, fine, words, **figures):
        """fine: True, False, or a word of its own."""
        result = fine if isinstance(fine, str) else "ok" if fine else "FAILED"
        record = {"step": self.step, "case": case, "result": result, "words": words, **figures}
        self.rows.write(json.dumps(record) + "\n")
        self.rows.flush()
        print(record, flush=True)

    def open(self, folder, gpu_options="", cache=None):
        options = ",".join(o for o in (self.args.gpu_options, gpu_options) if o)
        return self.library.open(folder, device=self.args.device, gpu_options=options or None,
                                 cache_dir=str(cache or self.cache))

    def folder(self, name):
        path = self.models / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def main_model(self):
        size = self.size
        name = Path(size["shape"]).stem
        return synthesized(self.args.reel, self.models / name, size["shape"], size["seed"])

    @property
    def torch_device(self):
        import torch
        return "cuda" if torch.cuda.is_available() else "cpu"


def digest(*parts):
    h = hashlib.sha256()
    for part in parts:
        h.update(np.ascontiguousarray(part).tobytes())
    return h.hexdigest()[:16]


def last_logits(session):
    """Of the last position, evaluated again: they depend on every cached row."""
    ids = list(session.ids)
    session.truncate(len(ids) - 1)
    return session.eval(ids[-1:], reel.LAST_LOGITS)


def first_difference(a, b):
    if a == b:
        return "the same"
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return f"they differ from id {at} of {len(a)} and {len(b)} on"


def continued(model, prompt, n, context=0, **settings):
    with model.session(context or len(prompt) + n + 1) as session:
        session.sync(prompt)
        return session.generate(n, **settings)


# ---- opening -------------------------------------------------------------------------------------

def device(check):
    folder, cache = check.main_model(), check.folder("fresh-cache")
    shutil.rmtree(cache)
    for case in ("first open", "second open"):
        cache.mkdir(exist_ok=True)
        start = time.monotonic()
        with check.open(folder, cache=cache) as model:
            opened = time.monotonic() - start
            with model.session(256) as session:
                session.eval([1])
                session.generate(1)
            whole = time.monotonic() - start
            right = model.backend == ("cuda" if check.gpu else "cpu")
            check.row(case, right, f"{model.backend} {model.path}: opened in {opened:.2f} s, first "
                      f"id after {whole:.2f} s (driver start-up and compiling included)",
                      seconds=opened, first_id_s=whole)
    words = subprocess.run([check.args.reel, "doctor"], capture_output=True, text=True)
    print(words.stdout, words.stderr)


# ---- against transformers ------------------------------------------------------------------------

def windows_of(text):
    return [tuple(int(x) for x in part.split("-")) for part in text.split(",")]


PIECES = [1, 1, 1, 2, 16, 17, 64, 5]  # positions a call, in turn


def add_windows(session, ids, windows, errors):
    pieces = iter(PIECES * 10000)
    for begin, end in windows:
        while len(session) < begin:
            session.eval(ids[len(session) : min(begin, len(session) + 512)])
        while len(session) < end:
            at = len(session)
            n = min(next(pieces), end - at)
            logits = session.eval(ids[at : at + n], reel.ALL_LOGITS)
            errors.add(list(range(at, at + n)), logits)


def logits_case(check, case, folder, windows, gpu_options=""):
    import gpu_check_hf as hf
    with check.open(folder, gpu_options) as model:
        end = windows[-1][1]
        ids = token_ids(end, model.vocab)
        positions = [p for begin, end in windows for p in range(begin, end)]
        runs = hf.runs(folder, ids, positions, check.torch_device)
        with model.session(end + 1) as session:
            for begin, end in windows:
                errors = hf.Errors(*runs)
                add_windows(session, ids, [(begin, end)], errors)
                fine, words, figures = errors.verdict()
                check.row(f"{case} {begin}-{end}", fine, words, **figures)


def logits(check):
    logits_case(check, "logits", check.main_model(), windows_of(check.size["windows"]))


def greedy(check, case, folder, prompts, n_tokens, gpu_options=""):
    import gpu_check_hf as hf
    judge = hf.Greedy(folder, check.torch_device)
    with check.open(folder, gpu_options) as model, model.session(1024) as session:
        def make(ids, n):
            session.sync(ids)
            return session.generate(n)

        for i, prompt in enumerate(prompts):
            judge.judge(prompt, make, n_tokens, f"prompt {i}")
    fine, words, figures = judge.verdict()
    check.row(case, fine, words, **figures)


def demo_prompts():
    golden = json.loads((ROOT / "models/demo/golden.json").read_text())
    return [entry["prompt_ids"] for entry in golden["continuations"]]


def greedy_demo(check):
    n = 900 if check.args.size == "full" else 60
    prompts = demo_prompts()
    greedy(check, f"{n} ids a prompt", ROOT / "models/demo", prompts, n)


def smollm2_prompts():
    packed = lzma.open(ROOT / "tests/golden/smollm2/tokens.safetensors.xz").read()
    (n,) = struct.unpack_from("<Q", packed)
    header = json.loads(packed[8 : 8 + n])
    prompts = {}
    for name, entry in header.items():
        if name.endswith(".prompt"):
            begin, end = entry["data_offsets"]
            values = np.frombuffer(packed[8 + n + begin : 8 + n + end], "<f4")
            prompts[int(name.split(".")[0])] = [int(v) for v in values]
    return [prompts[i] for i in sorted(prompts)]


def smollm2_folder(check):
    """The bf16 folder, made from the GGUF where that is what there is; None: neither."""
    given = Path(check.args.smollm2) if check.args.smollm2 else check.models / "smollm2-bf16"
    if given.suffix != ".gguf":
        return given if given.exists() else None
    folder = check.models / "smollm2-bf16"
    if given.exists() and not folder.exists():
        import gguf_to_bf16
        gguf_to_bf16.main(given, folder)
    return folder if folder.exists() else None


def greedy_smollm2(check):
    folder = smollm2_folder(check)
    if not folder:
        check.row("", "skipped", "no SmolLM2: name its GGUF or folder with --smollm2")
        return
    prompts, n = smollm2_prompts(), 200
    if check.args.size == "tiny":
        prompts, n = prompts[:2], 20
    greedy(check, f"{len(prompts)} prompts, {n} ids each", folder, prompts, n)


def demo(check):
    args = [check.args.reel, "verify", str(ROOT / "models/demo"), "--golden",
            str(ROOT / "models/demo/golden.json"), "--device", check.args.device, "-n", "64"]
    done = subprocess.run(args, capture_output=True, text=True)
    print(done.stdout, done.stderr)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("golden", "reference"))]
    words = "; ".join(re.sub(" +", " ", line) for line in lines) or done.stderr.strip()[-200:]
    check.row("reel verify", done.returncode == 0, words)


# ---- against itself ------------------------------------------------------------------------------

def pieces(check):
    """The same positions evaluated in other pieces, and decoded: the same bits."""
    n = check.size["long"]
    with check.open(check.main_model()) as model, model.session(n + 301) as session:
        ids = token_ids(n, model.vocab)
        hashes = {}
        for name, sizes in (("one by one", [1]), ("16", [16]), ("mixed", PIECES), ("64", [64])):
            session.truncate(0)
            hashes[name], turn = [], 0
            while len(session) < n:
                take = min(sizes[turn % len(sizes)], n - len(session))
                rows = session.eval(ids[len(session) : len(session) + take], reel.ALL_LOGITS)
                hashes[name] += [digest(row) for row in rows]
                turn += 1
        for name, found in hashes.items():
            same = sum(a == b for a, b in zip(found, hashes["one by one"]))
            fine = same == n or (check.gpu is False and "not asked")
            check.row(f"pieces of {name}", fine, f"{same} of {n} positions have the same bits")
        session.truncate(0)
        session.sync(ids[:50])
        made = session.generate(min(300, n))
        session.truncate(0)
        session.sync(ids[:49])
        wrong = 0
        for i, wanted in enumerate(made):
            row = session.eval([([*ids[49:50], *made])[i]], reel.LAST_LOGITS)
            wrong += int(row.argmax()) != wanted
        check.row("decoded ids are the logits' winners", wrong == 0,
                  f"{len(made)} ids, {wrong} are not")


def repeats(check):
    wanted = check.args.repeats or check.size["repeats"]
    limit = time.monotonic() + 130
    with check.open(check.main_model()) as model:
        prompt = token_ids(32, model.vocab)
        seen, done = {}, 0
        session = model.session(256)
        start = time.monotonic()
        while done < wanted and time.monotonic() < limit:
            if done % 100 == 99:
                session.close()
                session = model.session(256)
            session.truncate(0)
            session.sync(prompt)
            ids = session.generate(100)
            key = digest(np.array(ids, np.int32), last_logits(session))
            seen[key] = seen.get(key, 0) + 1
            done += 1
        session.close()
    fine = len(seen) == 1 and done == wanted
    check.row("100 ids and the last logits", fine, f"{done} of {wanted} repeats, "
              f"{len(seen)} different results, {time.monotonic() - start:.0f} s")


def sessions(check):
    n, long = check.size["tokens"], check.size["long"]
    with check.open(check.main_model()) as model:
        prompts = [token_ids(17, model.vocab), token_ids(long, model.vocab, 5000),
                   token_ids(3, model.vocab, 9000)]
        context = long + n + 1
        alone = [continued(model, p, n, context) for p in prompts]
        open_ones = [model.session(context) for _ in prompts]
        for session, prompt in zip(open_ones, prompts):
            session.sync(prompt)
        made = [[] for _ in prompts]
        takes = [7, 1, 12, 5, 3]
        turn = 0
        while any(len(ids) < n for ids in made):
            for ids, session in zip(made, open_ones):
                take = min(takes[turn % len(takes)], n - len(ids))
                if take:
                    ids += session.generate(take)
                turn += 1
        for i, (a, b) in enumerate(zip(alone, made)):
            check.row(f"session {i} of 3 interleaved", a == b, first_difference(a, b))
        hashes = []
        for i, session in enumerate(open_ones):
            with model.session(context) as fresh:
                fresh.sync(session.ids)
                hashes.append(digest(last_logits(fresh)) == digest(last_logits(session)))
        check.row("their last logits", all(hashes) or (not check.gpu and "not asked"),
                  f"{sum(hashes)} of 3 have the bits of a fresh session")
        for session in open_ones:
            session.close()


def stops(check):
    n = 40
    with check.open(check.main_model()) as model, model.session(256) as session:
        prompt = token_ids(20, model.vocab)

        def from_start(**settings):
            session.sync(prompt)
            session.truncate(len(prompt))
            return session.generate(n, **settings)

        whole = from_start()
        for case in ("callback", "cancel", "stop id"):
            wrong, words = 0, ""
            for k in range(1, n):
                result, count = [], []
                if case == "callback":
                    first = from_start(on_id=lambda _: count.append(0) or len(count) < k,
                                       result=result)
                elif case == "cancel":
                    def cancel(_):
                        count.append(0)
                        if len(count) == k:
                            session.cancel()
                        return True
                    first = from_start(on_id=cancel, result=result)
                else:
                    first = from_start(stop_ids=[whole[k - 1]], result=result)
                    k = whole.index(whole[k - 1]) + 1
                held = session.ids[len(prompt) :]
                rest = session.generate(n - len(first)) if len(first) < n else []
                good = held == first and first + rest == whole and (case == "cancel" or
                                                                    len(first) == k)
                if not good:
                    wrong += 1
                    words = f"; at {k}: {result[0]}, {len(first)} ids, {len(held)} held"
            check.row(f"ended by {case}, then on", wrong == 0,
                      f"{n - 1} places, {wrong} wrong{words}")


def snapshots(check):
    n, long = check.size["tokens"], check.size["long"]
    with check.open(check.main_model()) as model, model.session(long + n + 1) as session:
        session.sync(token_ids(long, model.vocab))
        session.generate(5)
        held, snapshot = list(session.ids), session.snapshot()
        whole = session.generate(n - 5)
        with model.session(long + n + 1) as other:
            other.restore(snapshot)
            made = other.generate(n - 5)
            check.row("restored", made == whole, first_difference(made, whole))
            session.sync(held)
            other.copy_from(session)
            made = other.generate(n - 5)
            check.row("copied", made == whole, first_difference(made, whole))
        for keep in (1, 15, 16, 17, 31, 33, long // 2, long - 1):
            session.truncate(min(keep, len(session)))
            session.sync(held)
            made = session.generate(n - 5)
            check.row(f"cut to {keep} and grown again", made == whole or
                      (not check.gpu and "not asked"), first_difference(made, whole))


SAMPLINGS = {
    "temperature": dict(temperature=1.0),
    "top-k 50, top-p 0.9": dict(temperature=0.8, top_k=50, top_p=0.9),
    "top-k 1": dict(temperature=0.8, top_k=1),
    "top-k 1000": dict(temperature=1.5, top_k=1000),
    "top-p 0.5": dict(temperature=1.0, top_p=0.5),
    "top-p 0.999": dict(temperature=1.3, top_p=0.999),
    "min-p 0.1": dict(temperature=1.0, min_p=0.1),
    "all three": dict(temperature=0.7, top_k=20, top_p=0.8, min_p=0.02),
    "repetition": dict(temperature=0.7, top_k=40, repetition_penalty=1.3),
    "presence, frequency": dict(temperature=0.9, presence_penalty=0.7, frequency_penalty=0.4),
    "greedy, repetition": dict(repetition_penalty=1.5),
    "greedy, frequency": dict(frequency_penalty=2.0),
    "bias": dict(temperature=0.5, bias=[(3, 4.0), (7, -100.0), (11, -np.inf), (13, 9.0)]),
    "greedy, bias": dict(bias=[(3, 40.0), (5, 39.0)], presence_penalty=30.0),
}


def sampling(check):
    """Log-probabilities need the host's sampler: the same ids with and without them."""
    n = check.size["tokens"]
    folders = {"demo": ROOT / "models/demo", "main": check.main_model()}
    for name, folder in folders.items():
        with check.open(folder) as model, model.session(n + 64) as session:
            prompt = token_ids(32, model.vocab)

            def made(**settings):
                session.sync(prompt)
                session.truncate(len(prompt))
                return session.generate(n, **settings)

            for case, settings in SAMPLINGS.items():
                wrong, words, distinct = 0, "", set()
                for seed in (1, 2, 2**63 + 5):
                    ours = made(seed=seed, **settings)
                    host = made(seed=seed, logprobs=True, **settings)
                    again = made(seed=seed, **settings)
                    distinct.add(tuple(ours))
                    if ours != host or ours != again:
                        wrong += 1
                        words = "; " + first_difference(ours, host if ours != host else again)
                check.row(f"{name}: {case}", wrong == 0, f"3 seeds of {n} ids, {len(distinct)} "
                          f"different, {wrong} wrong{words}")


def epoch(check):
    """Epochs that come round in the first token."""
    if not check.gpu:
        check.row("", "skipped", "only on a GPU")
        return
    folder, results = check.main_model(), []
    for options in ("", f"epoch={LAST_EPOCHS}"):
        with check.open(folder, options) as model, model.session(256) as session:
            session.sync(token_ids(1, model.vocab))
            ids = session.generate(120)
            results.append((ids, digest(last_logits(session))))
    check.row(f"from {LAST_EPOCHS} on", results[0] == results[1],
              first_difference(results[0][0], results[1][0]) +
              f", last logits {'the same' if results[0][1] == results[1][1] else 'differ'}")


def paths(check):
    """Kernels compiled for older GPUs, run on this one."""
    if not check.gpu:
        check.row("", "skipped", "only on a GPU")
        return
    for compute in check.args.compute.split(","):
        options = f"compute={compute}"
        greedy(check, f"compute {compute}, demo", ROOT / "models/demo", demo_prompts(), 200,
               options)
        logits_case(check, f"compute {compute}", check.main_model(), [(0, 192)], options)


# ---- every slot of the vocabulary ----------------------------------------------------------------

def winner_config(hidden, vocab, tied):
    return {"model_type": "qwen3", "hidden_size": hidden, "num_hidden_layers": 1,
            "num_attention_heads": hidden // 64, "num_key_value_heads": hidden // 128,
            "head_dim": 128, "intermediate_size": 3 * hidden, "vocab_size": vocab,
            "tie_word_embeddings": tied, "rms_norm_eps": 1e-6, "rope_theta": 1000000,
            "max_position_embeddings": 4096, "eos_token_id": 1}


WALK = 2000  # ids made before the context is emptied


def walk(check, case, config, duplicates=0):
    name = f"winner-{config['hidden_size']}-{config['vocab_size']}-{duplicates}"
    folder, n, step = winner_model(check.args.reel, check.models / name, config, duplicates)
    wrong, first = 0, ""
    visited = np.zeros(n, bool)
    with check.open(folder) as model, model.session(WALK + 2) as session:
        at = 0
        while not visited.all() and time.monotonic() < check.limit:
            session.truncate(0)
            session.sync([at])
            take = min(WALK, n - int(visited.sum()))
            wanted = (at + step * np.arange(1, take + 1, dtype=np.int64)) % n
            made = np.array(session.generate(take))
            visited[wanted] = True
            bad = np.nonzero(made != wanted)[0]
            if len(bad) and not first:
                first = f"; id {wanted[bad[0]]} should win, {made[bad[0]]} did"
            wrong += len(bad)
            at = int(wanted[-1])
    left = n - int(visited.sum())
    check.row(case, wrong == 0 and left == 0, f"{n - left} of {n} slots, {wrong} wrong{first}",
              slots=n - left, wrong=wrong)


def slots(check):
    """The winner walks through every slot; the device picks it."""
    check.limit = time.monotonic() + 180
    hidden, vocab = check.size["hidden"], check.size["vocab"]
    walk(check, f"hidden 256, {1003} slots", winner_config(256, 1003, False))
    walk(check, "equal rows: the lower id wins", winner_config(256, 1003, False), 501)
    walk(check, f"hidden {hidden}, {vocab} slots", winner_config(hidden, vocab, False))


def lookups(check):
    """Tied: each id's embedding comes back as the final hidden state, and wins."""
    hidden, vocab = check.size["hidden"], check.size["vocab"]
    config = winner_config(hidden, vocab, True)
    folder, n, _ = winner_model(check.args.reel, check.models / f"tied-{hidden}-{vocab}", config)
    from gpu_check_models import Weights
    weights = Weights(folder / "model.safetensors")["model.embed_tokens.weight"]
    limit, wrong, seen = time.monotonic() + 100, 0, 0
    with check.open(folder) as model, model.session(600) as session:
        for at in range(0, n, 512):
            if time.monotonic() > limit:
                break
            ids = np.arange(at, min(at + 512, n))
            session.truncate(0)
            rows = session.eval(ids, reel.ALL_HIDDEN)
            wanted = np.where(weights[ids] >> 15, np.float32(-1), np.float32(1))
            wrong += int((~(np.abs(rows - wanted) < 0.01)).any(1).sum())
            seen += len(ids)
        check.row("hidden states", wrong == 0 and seen == n,
                  f"{seen} of {n} ids looked up, {wrong} wrong")
        stride = max(1, n // 1500)
        chosen = [*range(0, n, stride), *range(max(0, n - 40), n)]
        wrong = 0
        for id_ in chosen:
            session.sync([id_])
            wrong += session.generate(2) != [id_, id_]
            session.truncate(0)
        check.row("picked on the device", wrong == 0, f"{len(chosen)} ids, {wrong} wrong")


# ---- around it -----------------------------------------------------------------------------------

SOLO = """
import sys, time, json
sys.path.insert(0, {tools!r})
import reel_ctypes as reel
from gpu_check_models import token_ids
model = reel.Library({library!r}).open({folder!r}, device={device!r}, cache_dir={cache!r})
with model, model.session(512) as session:
    session.sync(token_ids(9, model.vocab))
    start = time.monotonic()
    made = [session.generate(100) for _ in range({rounds})]
    print(json.dumps([made, time.monotonic() - start]))
"""


def two_processes(check):
    code = SOLO.format(tools=str(ROOT / "tools"), library=str(Path(check.args.library).resolve()),
                       folder=str(check.main_model()), device=check.args.device,
                       cache=str(check.cache), rounds=4)
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


def sanitizer(check):
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not check.gpu or not Path(tool).exists():
        check.row("", "skipped", "no compute-sanitizer" if check.gpu else "only on a GPU")
        return
    folder = synthesized(check.args.reel, check.models / "q3-c", MINIATURES / "q3-c.json", 1)
    code = SOLO.replace("generate(100)", "generate(6)").format(
        tools=str(ROOT / "tools"), library=str(Path(check.args.library).resolve()),
        folder=str(folder), device=check.args.device, cache=str(check.cache), rounds=1)
    for kind in ("memcheck", "initcheck", "synccheck"):
        try:
            done = subprocess.run([tool, "--tool", kind, "--error-exitcode", "9", sys.executable,
                                   "-c", code], capture_output=True, text=True, timeout=60)
            last = [line for line in done.stdout.splitlines() if "ERROR SUMMARY" in line]
            words = (last[0].strip("= ") if last else
                     (done.stdout + done.stderr).strip()[-200:].replace("\n", " "))
            print(done.stdout[-3000:], done.stderr[-1000:])
            check.row(kind, done.returncode == 0, words)
        except subprocess.TimeoutExpired:
            check.row(kind, False, "not over in 60 s")


def one_shape(check, name, shape, seed, windows):
    try:
        start = time.monotonic()
        folder = synthesized(check.args.reel, check.models / name, shape, seed)
        logits_case(check, name, folder, windows)
        print(name, time.monotonic() - start, "s")
    except reel.ReelError as e:
        refused = e.status == reel.UNSUPPORTED
        check.row(name, "refused" if refused else False, str(e))


def shapes(check):
    windows = [(0, 576)] if check.args.size == "full" else [(0, 40)]
    for path in sorted(MINIATURES.glob("*.json")):
        if path.stem != "q3-long":
            one_shape(check, path.stem, path, 1, windows)


def large_shapes(check):
    if check.args.size == "tiny":
        check.row("", "skipped", "only in full size")
        return
    for shape in ("smollm2-135m", "qwen3-1.7b", "qwen3-4b", "qwen3-8b"):
        one_shape(check, shape, shape, 0, [(0, 128)])
        if shape != "qwen3-1.7b":
            shutil.rmtree(check.models / shape, ignore_errors=True)


def run(args):
    check = Check(args)
    step = globals()[args.run.replace("-", "_")]
    try:
        step(check)
    except reel.ReelError as e:
        check.row("the step", False, str(e))
    return 0
