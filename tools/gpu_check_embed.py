"""Steps of tools/gpu_check.py: vectors of texts that share passes, against transformers'. bench/gpu/embed.py times them."""
import time

import numpy as np
from gpu_check_base import MINIATURES
from gpu_check_models import synthesized, token_ids

SIZES = {  # long: lengths of a few texts among short ones; timed: texts of 8 to 64 ids
    "full": {"texts": 300, "long": (128, 129, 2047, 2048, 2049), "timed": 2000},
    "tiny": {"texts": 60, "long": (128, 129), "timed": 0},
    "sim": {"texts": 12, "long": (100,), "timed": 0},
}
COSINE = 0.9999    # to transformers in float32
BESIDE = 0.999     # to transformers in bf16: each lies some 0.01 from the float32 run, in its own direction
BATCHES = (32, 256, 2048)  # texts of transformers' batches; the first is what is usual
SHORTEST, LONGEST = 8, 64


def texts_of(lengths, vocab):
    return [token_ids(int(length), vocab, 977 * (i + 1)) for i, length in enumerate(lengths)]


def even_texts(n, shortest, longest, vocab):
    """n texts of ids, of all lengths from shortest to longest alike often, in no order."""
    return texts_of(shortest + token_ids(n, longest - shortest + 1, 3), vocab)


def mixed_texts(size, vocab):
    """Tiny ones, ones of all lengths to 64, a few long ones among them."""
    lengths = [1 + int(x) for x in token_ids(size["texts"], 64, 5)]
    lengths[: size["texts"] // 4] = [1 + int(x) for x in token_ids(size["texts"] // 4, 3, 6)]
    for i, length in enumerate(size["long"]):
        lengths.insert(len(lengths) * (i + 1) // (len(size["long"]) + 1), length)
    return texts_of(lengths, vocab)


class Theirs:
    """transformers, as fast as it goes without packing: batches of texts that are sorted by length, padded on the
    right. Their causal model does not see that, so no mask slows its attention down. Vectors stay on the device until
    the last batch."""

    def __init__(self, folder, dtype, device, attention="sdpa"):
        import gpu_check_hf as hf
        import torch
        self.torch, self.device = torch, device
        self.model = hf.load(folder, dtype, device, attention)

    def vectors(self, texts, most_texts=BATCHES[0], most_ids=65536):
        """float32 [len(texts), hidden], of length 1. most_ids: of a batch, with its padding."""
        torch = self.torch
        out = torch.empty((len(texts), self.model.config.hidden_size), device=self.device)
        with torch.inference_mode():
            for some in batches(texts, most_texts, most_ids):
                rows = np.zeros((len(some), len(texts[some[-1]])), np.int64)
                for row, i in zip(rows, some):
                    row[: len(texts[i])] = texts[i]
                ends = torch.tensor([len(texts[i]) - 1 for i in some], device=self.device)
                made = self.model.model(input_ids=torch.tensor(rows, device=self.device), use_cache=False)
                last = made.last_hidden_state[torch.arange(len(some), device=self.device), ends].float()
                out[torch.tensor(some, device=self.device)] = torch.nn.functional.normalize(last, dim=-1)
        return out.cpu().numpy()


def batches(texts, most_texts, most_ids):
    """Lists of places in texts, sorted by length."""
    some = []
    for i in sorted(range(len(texts)), key=lambda i: len(texts[i])):
        if some and (len(some) == most_texts or (len(some) + 1) * len(texts[i]) > most_ids):
            yield some
            some = []
        some.append(i)
    yield some


def lowest_cosine(a, b):
    """The lowest of any text, and which."""
    with np.errstate(divide="ignore", invalid="ignore"):
        cosines = (a.astype(np.float64) * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    cosines = np.nan_to_num(cosines, nan=-1)
    return float(cosines.min()), int(cosines.argmin())


def seconds(call, rounds=3):
    """Of each round, behind one that warms up."""
    made = []
    for _ in range(rounds + 1):
        start = time.monotonic()
        call()
        made.append(time.monotonic() - start)
    return made[1:]


def compare(check, case, folder, size):
    """Vectors of texts that share passes against transformers' in float32; its own bf16 run is named beside."""
    import torch
    with check.open(folder) as model, model.session(min(model.info.max_context, 8192)) as session:
        texts = [t for t in mixed_texts(size, model.vocab) if len(t) <= session.max_context]
        made = session.embed(texts)
        again = session.embed(texts[::-1])[::-1]
        few = [session.embed([text])[0] for text in texts[::9]]  # alone: without neighbours
        backend = model.backend
    exact = Theirs(folder, torch.float32, check.torch_device).vectors(texts, most_ids=16384)
    rounded = Theirs(folder, torch.bfloat16, check.torch_device).vectors(texts, most_ids=16384)
    lowest, at = lowest_cosine(made, exact)
    turned, _ = lowest_cosine(again, exact)
    alone, _ = lowest_cosine(np.stack(few), exact[::9])
    beside, _ = lowest_cosine(made, rounded)
    own, _ = lowest_cosine(rounded, exact)
    check.row(case, min(lowest, turned, alone) >= COSINE,
              f"{backend}: {len(texts)} texts, lowest cosine {lowest:.6f} ({len(texts[at])} ids), from the last to the "
              f"first {turned:.6f}, each alone {alone:.6f}; to the bf16 run {beside:.6f}, which is at {own:.6f} itself",
              cosine=lowest, cosine_bf16=beside, their_cosine=own)


def race(check, folder, n):
    """Many short texts: tokens a second of both in bf16, from ids to vectors on the host."""
    import torch
    with check.open(folder) as model, model.session(min(model.info.max_context, 16384)) as session:
        texts = even_texts(n, SHORTEST, LONGEST, model.vocab)
        n_ids = sum(map(len, texts))
        ours = min(seconds(lambda: session.embed(texts)))
        made = session.embed(texts)
    theirs, right, their = Theirs(folder, torch.bfloat16, check.torch_device), None, {}
    for most in BATCHES:
        their[most] = min(seconds(lambda: theirs.vectors(texts, most), 2))
        right = theirs.vectors(texts, most)
    best = min(their, key=their.get)
    cosine, _ = lowest_cosine(made, right)
    words = ", ".join(f"{n_ids / s:,.0f} ({most})" for most, s in their.items())
    fine = "FAILED" if cosine < BESIDE else "ok" if ours < their[best] else "slower"
    check.row("speed", fine,
              f"{n} texts of {SHORTEST}-{LONGEST} ids, {n_ids / ours:,.0f} tokens/s, {n / ours:,.0f} texts/s; transformers "
              f"bf16 in batches of so many texts {words} tokens/s; lowest cosine to it {cosine:.6f}",
              tokens_s=n_ids / ours, their_tokens_s=n_ids / their[best], cosine_bf16=cosine)


def embed_quick(check):
    """Vectors of a tiny model and of one of a whole shape, and how fast they come."""
    size = SIZES[check.args.size]
    tiny = synthesized(check.args.reel, check.models / "q3-c", MINIATURES / "q3-c.json", 1)
    compare(check, "tiny", tiny, size)
    if check.args.size == "sim":
        return
    main = check.main_model()
    compare(check, "main", main, size)
    if size["timed"]:
        race(check, main, size["timed"])
