"""Steps of tools/gpu_check.py for hybrids (Qwen3.5): the full size of the 0.8B with synthetic weights, or
the folder that --hybrid names. What they show beyond the other models' steps is the DeltaNets' state:
that its error does not grow, and that it belongs to one session and one position."""
import csv
from pathlib import Path

import numpy as np
import reel_ctypes as reel
from gpu_check_base import MINIATURES, continued, digest, first_difference, last_logits, only_gpu
from gpu_check_models import synthesized, token_ids
from gpu_check_faults import faults
from gpu_check_prefill import random_prompts, settle, their_logits
from gpu_check_steps import launches, logits_case, poison, repeats, stops

SIZES = {
    "full": {"shape": "qwen3.5-0.8b", "seed": 0, "end": 576, "lengths": range(1, 201), "first": 200,
             "longest": 512, "quick": (1, 16, 64, 520), "long": 700, "tokens": 200, "repeats": 300,
             "curve": (0, 1, 64, 100, 256, 512, 768, 1024, 1536, 2048, 2560, 3072, 4095, 5120, 6144,
                       7168, 8191)},
    "tiny": {"shape": MINIATURES / "q35-a.json", "seed": 1, "end": 96, "lengths": range(1, 21),
             "first": 8, "longest": 60, "quick": (1, 16, 40), "long": 300, "tokens": 24, "repeats": 3,
             "curve": (0, 1, 64, 100, 256, 400, 519)},
    "sim": {"shape": MINIATURES / "q35-a.json", "seed": 1, "end": 12, "lengths": (1, 2, 9), "first": 2,
            "longest": 12, "quick": (1, 9), "long": 20, "tokens": 6, "repeats": 2,
            "curve": (0, 1, 8, 16)},
}
AFTER = 3          # positions decoded after each prompt
GROWTH_FROM = 64   # positions before are left out where growth is judged: few errors have met
GROWTH_BOUND = 1.25
DECODED = "prefill_from=0"  # prompts position by position, too


def size_of(check):
    return SIZES[check.args.size]


def hybrid_model(check):
    if check.args.hybrid:
        return Path(check.args.hybrid)
    size = size_of(check)
    name = Path(size["shape"]).stem
    return synthesized(check.args.reel, check.models / name, size["shape"], size["seed"])


# ---- against transformers ------------------------------------------------------------------------

def hybrid_logits(check):
    logits_case(check, "logits", hybrid_model(check), [(0, size_of(check)["end"])])


class Lengths:
    """Prompts of many lengths, each with a few positions decoded after it, against transformers and
    against the same positions decoded from the start."""

    def __init__(self, check, folder, end):
        with check.open(folder, DECODED) as model, model.session(end + 1) as session:
            import gpu_check_hf as hf  # after opening: what is refused costs no time
            self.ids = token_ids(end, model.vocab)
            self.alone = [session.eval(self.ids[i : i + 1], reel.LAST_LOGITS) for i in range(end)]
        self.folder = folder
        self.errors = hf.Errors(*hf.runs(folder, self.ids, list(range(end)), check.torch_device))
        self.relative, self.same, self.n = [], 0, 0

    def add(self, position, logits):
        wanted = self.alone[position].astype(np.float64)
        self.relative.append(float(np.sqrt(np.mean((logits - wanted) ** 2) / np.mean(wanted**2))))
        self.same += digest(logits) == digest(self.alone[position])
        self.n += 1
        self.errors.add([position], logits[None])

    def read(self, model, length, after):
        with model.session(length + after + 1) as session:
            self.add(length - 1, session.eval(self.ids[:length], reel.LAST_LOGITS))
            for i in range(length, length + after):
                self.add(i, session.eval(self.ids[i : i + 1], reel.LAST_LOGITS))

    def write(self, check, case):
        fine, words, figures = self.errors.verdict()
        words += f"; from decoding alone {np.median(self.relative):.4f} rms in the middle, " \
                 f"{max(self.relative):.4f} at worst, the same bits {self.same} of {self.n} times"
        check.row(case, fine, words, **figures)


def read_lengths(check, case, lengths, after, options=""):
    folder = hybrid_model(check)
    run = Lengths(check, folder, max(lengths) + after)
    with check.open(folder, options) as model:
        for n in lengths:
            run.read(model, n, after)
    run.write(check, case)


def hybrid_lengths(check):
    read_lengths(check, "prompt, then decoding", size_of(check)["lengths"], AFTER)
    if check.gpu:
        read_lengths(check, "prompts decoded, too", size_of(check)["lengths"][::20], AFTER, DECODED)


def hybrid_quick(check):
    """A few lengths as the options given have them: what a benchmark asks before it measures."""
    read_lengths(check, "lengths", size_of(check)["quick"], 0, "")


# ---- the error over a long run -------------------------------------------------------------------

def curve_of(session, ids, at, piece, errors):
    """Adds the logits at positions `at`; between them, calls of `piece` positions."""
    for p in at:
        while len(session) < p:
            session.eval(ids[len(session) : min(p, len(session) + piece)])
        errors.add([p], session.eval(ids[p : p + 1], reel.LAST_LOGITS)[None])


def growth(at, rms):
    """RMS error of the later half of the positions as a multiple of the earlier half's."""
    pairs = [(p, e) for p, e in zip(at, rms) if p >= GROWTH_FROM]
    middle = (at[-1] + GROWTH_FROM) / 2
    halves = [[e * e for p, e in pairs if (p >= middle) == late] for late in (False, True)]
    if not all(halves):
        return 1.0
    early, late = (float(np.sqrt(np.mean(half))) for half in halves)
    return late / early


def hybrid_curve(check):
    """RMS error of logits against float32, prompts and decoded, beside transformers' bf16."""
    at, folder = list(size_of(check)["curve"]), hybrid_model(check)
    ids, table = None, {"position": at}
    for case, piece in (("prompts", 1024), ("decoded", 1)):
        with check.open(folder) as model:
            import gpu_check_hf as hf
            if ids is None:
                ids = token_ids(at[-1] + 1, model.vocab)
                seen = sorted({q for p in at for q in range(p - hf.NEAR, p + hf.NEAR + 1)
                               if 0 <= q <= at[-1]})
                runs = hf.runs(folder, ids, seen, check.torch_device)
            errors = hf.Errors(*runs)
            with model.session(at[-1] + 2) as session:
                curve_of(session, ids, at, piece, errors)
        table[case] = errors.own
        table["transformers bf16"] = [errors.near[p][0] for p in at]
        fine, words, figures = errors.verdict()
        grows, theirs = growth(at, errors.own), growth(at, table["transformers bf16"])
        words = f"later half of {at[-1] + 1} positions {grows:.2f} times the earlier (transformers' " \
                f"bf16 {theirs:.2f}); {words}"
        check.row(case, fine and grows <= GROWTH_BOUND * max(1.0, theirs), words, growth=grows,
                  curve=[at, errors.own, table["transformers bf16"]], **figures)
    with open(Path(check.args.out) / "hybrid-curve.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table)
        writer.writerows(zip(*table.values()))


def hybrid_first(check):
    """The first id after random prompts: transformers' under the tie rule, but for no more prompts than
    its own bf16 run misses. With random weights the error of 18 DeltaNets is more than a tie; a trained
    model's ids are the step greedy-demo's."""
    size, folder = size_of(check), hybrid_model(check)
    with check.open(folder) as model:
        import torch
        prompts, made = random_prompts(size["first"], size["longest"], model.vocab), []
        with model.session(size["longest"] + 1) as session:
            for prompt in prompts:
                session.truncate(0)
                session.sync(prompt)
                made += session.generate(1)
    exact = their_logits(folder, torch.float32, check.torch_device, prompts)
    theirs = their_logits(folder, torch.bfloat16, check.torch_device, prompts)
    equal, ties, unexplained = settle(made, exact)
    their = settle([int(row.argmax()) for row in theirs], exact)
    words = f"{len(prompts)} prompts of 1 to {size['longest']}: {equal} equal, {ties} ties, " \
            f"{len(unexplained)} unexplained (transformers' bf16: {their[0]}, {their[1]}, {len(their[2])})"
    check.row("first ids", len(unexplained) <= len(their[2]), "; ".join([words, *unexplained[:3]]),
              equal=equal, ties=ties, unexplained=unexplained, theirs=len(their[2]))


# ---- the state -----------------------------------------------------------------------------------

def goes_on(session, n):
    """(ids, digest of the last logits) of n more ids."""
    ids = session.generate(n)
    return ids, digest(last_logits(session))


def compare(check, case, made, wanted):
    same = made == wanted
    check.row(case, same, first_difference(made[0], wanted[0]) +
              f", last logits {'the same' if made[1] == wanted[1] else 'differ'}")


def hybrid_snapshots(check):
    """A state that is saved, restored or copied goes on with the same bits."""
    size = size_of(check)
    n, long = size["tokens"], size["long"]
    with check.open(hybrid_model(check)) as model:
        context = long + 2 * n + 2
        for case, prompt, decoded in (("at the start", 1, 0), ("after a prompt", long, 0),
                                      ("while decoding", long, n // 2)):
            with model.session(context) as session, model.session(context) as other:
                session.sync(token_ids(prompt, model.vocab))
                if decoded:
                    session.generate(decoded)
                snapshot = session.snapshot()
                other.sync(token_ids(9, model.vocab, 777))  # what it held must not matter
                other.copy_from(session)
                whole = goes_on(session, n)
                compare(check, f"copied {case}", goes_on(other, n), whole)
                other.restore(snapshot)
                compare(check, f"restored {case}", goes_on(other, n), whole)
                session.restore(snapshot)
                compare(check, f"restored {case}, itself", goes_on(session, n), whole)
        if check.gpu:
            cut_and_grown(check, model, size)


def cut_and_grown(check, model, size):
    """Back to any position and evaluated again, one by one: the bits of a session never cut."""
    n, long = size["tokens"], size["long"]
    ids, wrong = token_ids(long, model.vocab), []
    places = sorted({1, 2, 15, 16, long // 3, 255, 256, 257, long // 2, long - 2, long - 1})
    with check.open(hybrid_model(check), DECODED) as model, model.session(long + n + 2) as session:
        session.sync(ids)
        whole = goes_on(session, n)
        for keep in (p for p in places if p < long):
            session.truncate(keep)
            session.sync(ids)
            session.truncate(long)
            if goes_on(session, n) != whole:
                wrong.append(keep)
    check.row("cut and grown again", not wrong, f"{len(places)} positions, other bits at {wrong or 'none'}")


def hybrid_sessions(check):
    """States are never mixed up: turns of three sessions are what each gives alone."""
    size = size_of(check)
    n, long = size["tokens"], size["long"]
    with check.open(hybrid_model(check), DECODED if check.gpu else "") as model:
        prompts = [token_ids(17, model.vocab), token_ids(long, model.vocab, 5000),
                   token_ids(3, model.vocab, 9000)]
        context = long + n + 2
        alone = [continued(model, p, n, context) for p in prompts]
        several = [model.session(context) for _ in prompts]
        for session, prompt in zip(several, prompts):
            session.sync(prompt)
        made = [[] for _ in prompts]
        while any(len(ids) < n for ids in made):
            for ids, session, take in zip(made, several, (7, 1, 5)):
                if len(ids) < n:
                    ids += session.generate(min(take, n - len(ids)))
        for i, (a, b) in enumerate(zip(alone, made)):
            check.row(f"session {i} of 3 in turn", a == b, first_difference(a, b))
        for session in several:
            session.close()


# ---- steps of the other models, on this one ------------------------------------------------------

def on_hybrid(step, options=""):
    def run(check):
        if not only_gpu(check):
            return
        size, given = size_of(check), check.args.gpu_options
        check.size = {**check.size, **{key: size[key] for key in ("long", "tokens", "repeats")}}
        check.main_model = lambda: hybrid_model(check)
        check.args.gpu_options = ",".join(o for o in (given, options) if o)
        try:
            step(check)
        finally:
            check.args.gpu_options = given
    return run


hybrid_repeats = on_hybrid(repeats)
# It goes back to a prompt's end again and again. A recurrent state goes back to before the last position
# only, which the decode kernel then evaluates: the same bits as the first time where it read the prompt.
hybrid_stops = on_hybrid(stops, DECODED)
hybrid_launches, hybrid_poison, hybrid_faults = on_hybrid(launches), on_hybrid(poison), on_hybrid(faults)
