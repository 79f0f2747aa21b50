"""Steps of tools/gpu_check.py: reel against transformers, and against itself."""
import json
import lzma
import re
import shutil
import struct
import subprocess
import time
from pathlib import Path

import numpy as np
import reel_ctypes as reel
from gpu_check_base import (LAST_EPOCHS, MINIATURES, ROOT, continued, digest, first_difference,
                            last_logits, only_gpu)
from gpu_check_models import synthesized, token_ids

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
    try:
        words = subprocess.run([check.args.reel, "doctor"], capture_output=True, text=True, timeout=20)
        print(words.stdout, words.stderr)
    except subprocess.TimeoutExpired:
        print("reel doctor was not over in 20 s")


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
    with check.open(folder, gpu_options) as model:
        import gpu_check_hf as hf  # after opening: what is refused costs no time
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


def splits(check):
    """Every position around the one from which attention is split, wherever that is."""
    if not only_gpu(check):
        return
    for split_from, end in ((1, 80), (16, 80), (17, 96), (100, 180), (1 << 20, 1200)):
        begin = 0 if end < 1000 else end - 40
        logits_case(check, f"from {split_from}", check.main_model(), [(begin, end)],
                    f"split_from={split_from}")


def greedy(check, case, folder, prompts, n_tokens, gpu_options=""):
    context = max(len(prompt) for prompt in prompts) + n_tokens + 1
    with check.open(folder, gpu_options) as model, model.session(context) as session:
        import gpu_check_hf as hf
        judge = hf.Greedy(folder, check.torch_device)

        def make(ids, n):
            session.sync(ids)
            return session.generate(n)

        for i, prompt in enumerate(prompts):
            judge.judge(prompt, make, n_tokens, f"prompt {i}")
    fine, words, figures = judge.verdict()
    check.row(case, fine, words, **figures)


def trained_models():
    """Folders of models trained for this project that continue texts; models/hybrid where it is there."""
    return sorted(path.parent for path in (ROOT / "models").glob("*/golden.json")
                  if "continuations" in json.loads(path.read_text()))


def demo_prompts(folder=ROOT / "models/demo"):
    """The golden's that have the longest continuations: without a hybrid's questions."""
    entries = json.loads((folder / "golden.json").read_text())["continuations"]
    longest = max(len(entry["ids"]) for entry in entries)
    return [entry["prompt_ids"] for entry in entries if len(entry["ids"]) == longest]


def greedy_demo(check):
    for folder in trained_models():
        n = {"full": 900 if folder.name == "demo" else 1000, "tiny": 60, "sim": 3}[check.args.size]
        try:
            greedy(check, f"{folder.name}, {n} ids a prompt", folder, demo_prompts(folder), n)
        except reel.ReelError as e:
            check.row(folder.name, "refused" if e.status == reel.UNSUPPORTED else False, str(e))


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
    if check.args.size != "full":
        prompts, n = prompts[:2], 20
    greedy(check, f"{len(prompts)} prompts, {n} ids each", folder, prompts, n)


def demo(check):
    for folder in trained_models():
        args = [check.args.reel, "verify", str(folder), "--golden", str(folder / "golden.json"),
                "--device", check.args.device, "-n", "64"]
        done = subprocess.run(args, capture_output=True, text=True)
        print(done.stdout, done.stderr)
        lines = [line for line in done.stdout.splitlines()
                 if line.startswith(("golden", "reference"))]
        words = "; ".join(re.sub(" +", " ", line) for line in lines) or done.stderr.strip()[-200:]
        refused = done.returncode == reel.UNSUPPORTED
        check.row(f"reel verify {folder.name}", "refused" if refused else done.returncode == 0, words)


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
        prompt = ids[: min(50, n // 2)]
        session.truncate(0)
        session.sync(prompt)
        made = session.generate(min(300, n))
        session.truncate(0)
        session.sync(prompt[:-1])
        wrong = 0
        for given, wanted in zip([prompt[-1], *made], made):
            row = session.eval([given], reel.LAST_LOGITS)
            wrong += int(row.argmax()) != wanted
        check.row("decoded ids are the logits' winners", wrong == 0,
                  f"{len(made)} ids, {wrong} are not")


def launches(check):
    """However the ids are cut into launches and the stream is held back: the same ids and logits. Without
    prefill, whose sums are added up in an order that depends on how many tokens it is given."""
    if not only_gpu(check):
        return
    results = {}
    for options in ("", "launch_tokens=1", "launch_tokens=7", "lead=1", "launch_ms=2", "cap_layers=1",
                    "cap_head=1", "cap_kv=1", "spin_us=0"):
        untuned = ",".join(filter(None, (options, "prefill_from=0", "tuned=0")))  # cap_* would be, alone
        with check.open(check.main_model(), untuned) as model, model.session(1024) as session:
            session.sync(token_ids(min(300, check.size["long"]), model.vocab))
            ids = session.generate(check.size["tokens"])
            results[options] = ids, digest(last_logits(session))
            same = results[options] == results[""]
            check.row(options or "as it comes", same, first_difference(ids, results[""][0]) +
                      f", last logits {'the same' if same else 'differ'}")


def poison(check):
    """KV rows that nothing wrote hold NaN, or what the memory held before: the same bits."""
    if not only_gpu(check):
        return
    long, n, found = check.size["long"], check.size["tokens"], {}
    for case, options in (("as it comes", "poison=0"), ("rows of NaN", "poison=1"),
                          ("rows of NaN, split", "poison=1,split_from=1"),
                          ("as it comes, split", "poison=0,split_from=1")):
        with check.open(check.main_model(), options) as model:
            parts = []
            for prompt in (1, 15, 16, 17, long):
                with model.session(prompt + n + 40) as session:
                    session.sync(token_ids(prompt, model.vocab, prompt))
                    ids = session.generate(n)
                    parts += [np.array(ids, np.int32), last_logits(session)]
            found[case] = digest(*parts), all(np.isfinite(part).all() for part in parts)
    for case, other in (("rows of NaN", "as it comes"), ("rows of NaN, split", "as it comes, split")):
        same = found[case][0] == found[other][0]
        check.row(case, same and found[case][1], f"ids and last logits of 5 prompts are "
                  f"{'the same' if same else 'others'}, {'all' if found[case][1] else 'NOT ALL'} finite")


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
    with check.open(check.main_model(), "prefill_from=0") as model:  # the same bits however prompts are cut
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
    n = 9 if check.args.size == "sim" else 40
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
    seeds = [1] if check.args.size == "sim" else [1, 2, 2**63 + 5]
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
                for seed in seeds:
                    ours = made(seed=seed, **settings)
                    host = made(seed=seed, logprobs=True, **settings)
                    again = made(seed=seed, **settings)
                    distinct.add(tuple(ours))
                    if ours != host or ours != again:
                        wrong += 1
                        words = "; " + first_difference(ours, host if ours != host else again)
                check.row(f"{name}: {case}", wrong == 0, f"{len(seeds)} seeds of {n} ids, {len(distinct)} "
                          f"different, {wrong} wrong{words}")


def epoch(check):
    """Epochs that come round in the first token."""
    if not only_gpu(check):
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
    if not only_gpu(check):
        return
    for compute in check.args.compute.split(","):
        options = f"compute={compute}"
        greedy(check, f"compute {compute}, demo", ROOT / "models/demo", demo_prompts(), 200,
               options)
        logits_case(check, f"compute {compute}", check.main_model(), [(0, 192)], options)


# ---- other shapes --------------------------------------------------------------------------------

def one_shape(check, name, shape, seed, windows):
    try:
        start = time.monotonic()
        folder = synthesized(check.args.reel, check.models / name, shape, seed)
        logits_case(check, name, folder, windows)
        print(name, time.monotonic() - start, "s")
    except reel.ReelError as e:
        check.row(name, "refused" if e.status == reel.UNSUPPORTED else False, str(e))


def shapes(check):
    windows = [(0, 576)] if check.args.size == "full" else [(0, 40)]
    for path in sorted(MINIATURES.glob("*.json")):
        # the language models of asr-* are those of q3-*
        if path.stem != "q3-long" and not path.stem.startswith("asr-"):
            one_shape(check, path.stem, path, 1, windows)


def large_shapes(check):
    if check.args.size != "full":
        check.row("", "skipped", "only in full size")
        return
    for shape in ("smollm2-135m", "qwen3-1.7b", "qwen3-4b", "qwen3-8b"):
        one_shape(check, shape, shape, 0, [(0, 128)])
        if shape != "qwen3-1.7b":
            shutil.rmtree(check.models / shape, ignore_errors=True)
