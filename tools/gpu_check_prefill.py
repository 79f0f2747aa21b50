"""Steps of tools/gpu_check.py: prompts read by the prefill kernels, against transformers and against
the decode kernel (prefill_from=0)."""
import json
import struct

import numpy as np
import reel_ctypes as reel
from gpu_check_base import MINIATURES, ROOT, digest, only_gpu
from gpu_check_models import synthesized, token_ids
from gpu_check_steps import smollm2_folder, smollm2_prompts

SIZES = {
    "full": {"lengths": range(1, 301), "chunk_lengths": (127, 128, 129, 255, 256, 257, 300),
             "appended": (2, 40, 129), "positions": (1, 15, 16, 17, 100), "embedded": (1, 16, 40, 41, 200),
             "again": (1, 2, 5, 7, 8, 9, 15, 17, 31, 33, 39, 40, 41, 63, 65, 100, 127, 129, 200, 255, 257, 300),
             "greedy": (1, 2, 15, 16, 17, 31, 33, 40, 41, 64, 100, 127, 128, 129, 200, 256, 257, 300),
             "first": 200, "longest": 512, "long": (4096, 4097, 8191, 8192, 8193), "quick": (1, 16, 64, 512)},
    "sim": {"lengths": (1, 2, 7, 8, 9, 15, 16, 17, 40, 41), "chunk_lengths": (128, 130),
            "appended": (2, 20), "positions": (1, 16, 17), "embedded": (1, 16, 41), "again": (1, 5, 17, 40), "greedy": (2, 17, 41),
            "first": 12, "longest": 40, "long": (129, 140), "quick": (1, 16, 60)},
}
SIZES["tiny"] = SIZES["sim"]
PREFILLED = {"sim": "q3-c"}  # the main model there has a head_dim that prefill does not take
CHUNK = "prefill_from=1,prefill_tokens=128"
QUEUE = "prefill_from=1,short_positions=0"  # no launch of their own for short prompts
PIECE = 16  # positions of the cache that lie together
HEADER = struct.Struct("<8sII64s32s8iQQ8s")  # struct snapshot_header of src/runtime/snapshot.c


def trained(check):
    """(name, folder, a text's ids) of models whose winners mean something."""
    golden = json.loads((ROOT / "models/demo/golden.json").read_text())
    text = sum((entry["prompt_ids"] + entry["ids"] for entry in golden["continuations"]), [])
    out = [("demo", ROOT / "models/demo", text)]
    folder = smollm2_folder(check) if check.args.size == "full" else None
    if folder:
        out.append(("SmolLM2", folder, sum(smollm2_prompts(), [])))
    return out


def main_model(check):
    name = PREFILLED.get(check.args.size)
    if not name or check.args.model:
        return check.main_model()
    return synthesized(check.args.reel, check.models / name, MINIATURES / f"{name}.json", 1)


def models(check):
    return [("main", main_model(check))] + [(name, folder) for name, folder, _ in trained(check)]


# ---- the KV cache --------------------------------------------------------------------------------

def kv_of(snapshot, device):
    """float32 [layers, 2, kv_heads, n, head_dim], as transformers holds it: see kernels/kv_layout.h."""
    import torch
    numbers = HEADER.unpack_from(snapshot)
    _, _, layers, heads, head_dim, length, n, n_logits = numbers[5:13]
    start = HEADER.size + 4 * (length + n_logits)
    size = layers * heads * -(-n // PIECE) * PIECE * head_dim * 2 * 2  # behind it: the prompt's last row
    state = torch.from_numpy(snapshot[start : start + size]).to(device)
    # a piece: K tiles, V^T tiles; a tile: row % 8, column % 8 / 2, column / 8, row / 8, column % 2
    tiles = state.view(torch.bfloat16).view(layers, heads, -1, 2, head_dim // 16, 8, 4, 2, 2, 2)
    k = tiles[:, :, :, 0].permute(0, 1, 2, 7, 4, 3, 6, 5, 8)
    v = tiles[:, :, :, 1].permute(0, 1, 2, 6, 5, 8, 3, 7, 4)
    parts = [part.reshape(layers, heads, -1, head_dim)[:, :, :n] for part in (k, v)]
    return torch.stack(parts, 1).float()


class KvErrors:
    """RMS errors of rows (of one layer, keys (part 0) or values (1), one position) against the exact run's, and
    against the decode kernel's, as ratios to those of transformers' bf16 runs (the larger of the two).
    The bound is for each position, over all layers, and for each layer, over all positions of a case; one
    row has few numbers, and transformers' error there may by chance be small: it is held to ROW."""

    ROW = 4

    def __init__(self, exact, *rounded):
        import torch
        self.exact = exact.kv
        self.theirs = torch.stack([self.rms(run.kv - exact.kv) for run in rounded]).amax(0)
        # rows of equal values are right however exact transformers was there
        self.theirs = self.theirs.clamp(min=1e-9)
        self.n, self.failed, self.worst = 0, [], {}
        self.sums = [torch.zeros_like(self.theirs[:, :, 0]) for _ in range(3)]

    @staticmethod
    def rms(error):
        return error.square().mean((2, 4)).sqrt()  # [layers, 2, n]

    def judge(self, what, ratios, bound, name, words):
        """The largest of an array of ratios; `words` says where that is."""
        import torch
        flat = torch.where(ratios.isnan(), np.inf, ratios)
        at, value = np.unravel_index(int(flat.argmax()), tuple(flat.shape)), float(flat.max())
        where = ", ".join(filter(None, (name, words.format(*at))))
        if value > self.worst.get(what, (-1,))[0]:
            self.worst[what] = value, where
        if not value <= bound:
            self.failed.append(f"{what} {value:.2f} ({where})")

    def add(self, name, made, decoded):
        import gpu_check_hf as hf
        n = made.shape[3]
        self.n += n
        theirs = self.theirs[:, :, :n]
        for i, (to, wanted) in enumerate((("exact", self.exact), ("decode", decoded))):
            error = self.rms(made - wanted[:, :, :, :n])
            rows = error / theirs
            self.judge(f"a row to {to}", rows, self.ROW, name, "layer {0} part {1} position {2}")
            self.judge(f"a position to {to}", rows.square().mean((0, 1)).sqrt(), hf.BOUND, name, "position {0}")
            self.sums[i] += error.square().sum(2)
        self.sums[2] += theirs.square().sum(2)

    def row(self, check, case):
        import gpu_check_hf as hf
        for to, sums in zip(("exact", "decode"), self.sums):
            self.judge(f"a layer to {to}", (sums / self.sums[2]).sqrt(), hf.BOUND, "", "layer {0} part {1}")
        words = f"{self.n} positions; rms at worst, in transformers' bf16: " + ", ".join(
            f"{what} {value:.2f} ({where})" for what, (value, where) in sorted(self.worst.items()))
        if self.failed:
            words = f"above the bound {len(self.failed)} times, first {self.failed[0]}; {words}"
        check.row(case, not self.failed and self.n > 0, words, worst=self.worst, failed=len(self.failed))


# ---- against transformers and the decode kernel --------------------------------------------------

class Reference:
    """What one timeline of ids gives: transformers' runs, and the decode kernel's logits and cache."""

    def __init__(self, check, folder, n):
        self.folder = folder
        with check.open(folder, "prefill_from=0") as model, model.session(n) as session:
            import gpu_check_hf as hf
            self.hf, self.device = hf, check.torch_device
            self.ids = token_ids(n, model.vocab)
            self.logits = session.eval(self.ids, reel.ALL_LOGITS)
            self.kv = kv_of(session.snapshot(), self.device)
        self.runs = hf.runs(folder, self.ids, list(range(n)), self.device, kept=True)

    def judge(self):
        return Judged(self)


class Judged:
    """Last logits and caches of prompts that begin the reference's timeline."""

    def __init__(self, reference):
        self.of, self.rows, self.relative = reference, {}, {}
        self.kv = KvErrors(*reference.runs)

    def add(self, session, logits, name=""):
        """After a call that left `session` at the prompt's end."""
        n = len(session)
        wanted = self.of.logits[n - 1].astype(np.float64)
        self.relative[n, name] = float(np.sqrt(np.mean((logits - wanted) ** 2) / np.mean(wanted**2)))
        self.rows[n, name] = logits
        self.kv.add(name or f"length {n}", kv_of(session.snapshot(), self.of.device), self.of.kv)

    def write(self, check, case):
        errors = self.of.hf.Errors(*self.of.runs)
        errors.add([n - 1 for n, _ in self.rows], np.stack(list(self.rows.values())))
        fine, words, figures = errors.verdict()
        relative = self.relative
        worst = max(relative, key=lambda key: (np.isnan(relative[key]), relative[key]))
        words += f"; from the decode kernel's {np.median(list(relative.values())):.4f} rms in the middle, " \
                 f"{relative[worst]:.4f} at worst (length {worst[0]}{', ' + worst[1] if worst[1] else ''})"
        if not any(relative.values()):
            fine, words = False, "the decode kernel's bits: no prompt was prefilled; " + words
        figures["relative"] = [[n, name, value] for (n, name), value in relative.items()]
        check.row(f"{case}: logits", fine, words, **figures)
        self.kv.row(check, f"{case}: cache")


def read_lengths(check, reference, case, lengths, options):
    """Each in a session of its own: what nothing wrote is NaN there."""
    judged = reference.judge()
    with check.open(reference.folder, options) as model:
        for n in lengths:
            with model.session(n + 1) as session:
                judged.add(session, session.eval(reference.ids[:n], reel.LAST_LOGITS))
    judged.write(check, case)


def read_appended(check, reference, case, positions, lengths, options):
    judged = reference.judge()
    with check.open(reference.folder, options) as model:
        for at in positions:
            for n in lengths:
                with model.session(at + n) as session:
                    session.eval(reference.ids[:at])
                    made = session.eval(reference.ids[at : at + n], reel.LAST_LOGITS)
                    judged.add(session, made, f"{n} at {at}")
    judged.write(check, case)


def read_embeddings(check, reference, case, lengths):
    import torch
    judged, same = reference.judge(), 0
    weights = reference.hf.load(reference.folder, torch.bfloat16, "cpu").get_input_embeddings().weight
    rows = weights.detach()[torch.from_numpy(reference.ids).long()].float().numpy()
    with check.open(reference.folder, "prefill_from=1") as model:
        for n in lengths:
            with model.session(n + 1) as session, model.session(n + 1) as by_ids:
                made = session.eval(None, reel.LAST_LOGITS, embeddings=rows[:n])
                judged.add(session, made)
                same += digest(made) == digest(by_ids.eval(reference.ids[:n], reel.LAST_LOGITS))
    judged.write(check, case)
    check.row(f"{case}: as ids", same == len(lengths), f"{same} of {len(lengths)} have the bits of ids")


def read_again(check, reference, case, lengths):
    """The scratch memory is of all sessions: a prompt of NaN, as long or longer, leaves no trace there."""
    same, finite = 0, True
    with check.open(reference.folder, "prefill_from=1") as model:
        for n in lengths:
            made = []
            for before in (None, np.full((max(lengths), model.hidden), np.nan, np.float32)):
                with model.session(max(lengths)) as other, model.session(n) as session:
                    if before is not None:
                        other.eval(None, embeddings=before)
                    made.append(session.eval(reference.ids[:n], reel.LAST_LOGITS))
            same += digest(made[0]) == digest(made[1])
            finite = finite and bool(np.isfinite(made).all())
    check.row(f"{case}: after a prompt of NaN", same == len(lengths) and finite,
              f"{same} of {len(lengths)} lengths have the same bits, {'all' if finite else 'NOT ALL'} finite")


def read_greedily(check, name, folder, text, lengths, n_ids=8):
    with check.open(folder, "prefill_from=1") as model, model.session(max(lengths) + n_ids + 1) as session:
        import gpu_check_hf as hf
        judge = hf.Greedy(folder, check.torch_device)

        def make(ids, n):
            session.truncate(0)
            session.sync(ids)
            return session.generate(n)

        for n in lengths:
            judge.judge(text[n : 2 * n], make, n_ids, f"length {n}")
    fine, words, figures = judge.verdict()
    check.row(f"{name}: {n_ids} ids after each", fine, words, **figures)


def prefill(check):
    """Every length, lengths around chunks, prompts after prompts, embeddings, the same again, ids after
    prompts."""
    if not only_gpu(check):
        return
    size = SIZES[check.args.size]
    ends = [*size["lengths"], *size["chunk_lengths"],
            max(size["positions"]) + max(size["appended"]), *size["embedded"]]
    for name, folder in models(check):
        reference = Reference(check, folder, max(ends))
        read_lengths(check, reference, f"{name}, lengths", size["lengths"], "prefill_from=1")
        short = [n for n in size["lengths"] if n <= 64]
        read_lengths(check, reference, f"{name}, short lengths as others", short, QUEUE)
        read_lengths(check, reference, f"{name}, chunks", size["chunk_lengths"], CHUNK)
        for case, options in (("appended", "prefill_from=1"), ("appended as others", QUEUE),
                              ("appended, chunks", CHUNK)):
            read_appended(check, reference, f"{name}, {case}", size["positions"], size["appended"], options)
        read_embeddings(check, reference, f"{name}, embeddings", size["embedded"])
        read_again(check, reference, name, size["again"])
    for name, folder, text in trained(check):
        read_greedily(check, name, folder, text, size["greedy"])


def prefill_quick(check):
    """A few lengths as the options given have them: what a benchmark asks before it measures."""
    if not only_gpu(check):
        return
    lengths = SIZES[check.args.size]["quick"]
    reference = Reference(check, main_model(check), max(lengths))
    read_lengths(check, reference, "lengths", lengths, "")


# ---- first tokens --------------------------------------------------------------------------------

def random_prompts(n, longest, vocab):
    """Lengths 1 to `longest`, ids of the model."""
    lengths = 1 + token_ids(n, longest, 77)
    return [token_ids(length, vocab, 1000 * (i + 1)) for i, length in enumerate(lengths)]


def their_logits(folder, dtype, device, prompts, batch=20):
    """Of each prompt's last position: padded on the right, which a causal model does not see."""
    import gpu_check_hf as hf
    import torch
    model, out = hf.load(folder, dtype, device), [None] * len(prompts)
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    for start in range(0, len(order), batch):
        some = order[start : start + batch]
        rows = np.zeros((len(some), len(prompts[some[-1]])), np.int64)
        for row, i in zip(rows, some):
            row[: len(prompts[i])] = prompts[i]
        with torch.inference_mode():
            hidden = model.model(input_ids=torch.tensor(rows, device=device)).last_hidden_state
            ends = [len(prompts[i]) - 1 for i in some]
            logits = model.lm_head(hidden[range(len(some)), ends]).float().cpu()
        for i, row in zip(some, logits):
            out[i] = row
    return out


def settle(ids, exact):
    """(equal, ties, unexplained) of first ids under the tie rule."""
    import gpu_check_hf as hf
    ties, unexplained = 0, []
    for i, (found, logits) in enumerate(zip(ids, exact)):
        best = float(logits.max())
        gap = (best - float(logits[found])) / hf.ulp(best)
        if found != int(logits.argmax()) and gap <= hf.TIE_ULPS:
            ties += 1
        elif found != int(logits.argmax()):
            unexplained.append(f"prompt {i}: {found} for {int(logits.argmax())}, {gap:.1f} ulp below")
    return len(ids) - ties - len(unexplained), ties, unexplained


def prefill_first(check):
    """The first id after random prompts: transformers' under the tie rule."""
    if not only_gpu(check):
        return
    size = SIZES[check.args.size]
    for name, folder in models(check):
        with check.open(folder) as model:
            import torch
            longest = min(size["longest"], model.info.max_context - 2)
            prompts, made = random_prompts(size["first"], longest, model.vocab), []
            with model.session(longest + 1) as session:
                for prompt in prompts:
                    session.truncate(0)
                    session.sync(prompt)
                    made += session.generate(1)
        exact = their_logits(folder, torch.float32, check.torch_device, prompts)
        theirs = their_logits(folder, torch.bfloat16, check.torch_device, prompts)
        equal, ties, unexplained = settle(made, exact)
        their = settle([int(row.argmax()) for row in theirs], exact)
        words = f"{len(prompts)} prompts of 1 to {longest}: {equal} equal, {ties} ties, {len(unexplained)} " \
                f"unexplained (transformers' bf16: {their[0]}, {their[1]}, {len(their[2])})"
        check.row(f"{name}, first ids", not unexplained, "; ".join([words, *unexplained[:3]]),
                  equal=equal, ties=ties, unexplained=unexplained)


# ---- long prompts --------------------------------------------------------------------------------

def prefill_long(check):
    if not only_gpu(check):
        return
    lengths, folder = SIZES[check.args.size]["long"], main_model(check)
    for case, options in (("chunks as they come", ""), ("chunks of 128", CHUNK)):
        with check.open(folder, options) as model:
            import gpu_check_hf as hf
            ids = token_ids(max(lengths), model.vocab)
            if case == "chunks as they come":
                runs = hf.runs(folder, ids, [n - 1 for n in lengths], check.torch_device)
            errors, rows = hf.Errors(*runs), []
            for n in lengths:
                with model.session(n) as session:
                    rows.append(session.eval(ids[:n], reel.LAST_LOGITS))
            errors.add([n - 1 for n in lengths], np.stack(rows))
            fine, words, figures = errors.verdict()
            check.row(f"lengths to {max(lengths)}, {case}", fine, words, **figures)
    refusals(check, folder)


def refusals(check, folder, context=100):
    """More than the context holds is refused with both numbers, and leaves the session as it was."""
    with check.open(folder) as model:
        ids = token_ids(3 * context, model.vocab)
        calls = {
            "sync": (lambda s: s.sync(ids[: context + 1]), (context + 1, context)),
            "eval": (lambda s: s.eval(ids[: context + 7]), (context + 7, context)),
            "eval after 60": (lambda s: s.eval(ids[60 : 60 + context]), (context, context)),
            "max_context": (lambda s: model.session(model.info.max_context + 1),
                            (model.info.max_context + 1, model.info.max_context)),
        }
        for case, (call, numbers) in calls.items():
            with model.session(context) as session:
                session.sync(ids[:60] if case == "eval after 60" else ids[:0])
                held, words = len(session), "nothing was refused"
                try:
                    call(session)
                except reel.ReelError as e:
                    words = str(e)
                named = all(str(n) in words.replace(",", "") for n in numbers)
                session.sync(ids[:context])
                check.row(f"too long: {case}", named and held in (0, 60) and len(session) == context, words)
