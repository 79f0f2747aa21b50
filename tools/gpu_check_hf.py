"""Logits and greedy ids of Hugging Face transformers, and how far reel's may be from them."""
import math

import numpy as np
import torch
import transformers

BOUND = 1.25  # times the error of transformers' own bf16 run, at every position
NEAR = 8      # a hybrid's errors are held to transformers' largest within so many positions
TIE_ULPS = 2
CHUNK = 512  # positions transformers evaluates at a time
ROWS = 64    # rows of logits compared at a time

torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
transformers.utils.logging.set_verbosity_error()


def load(folder, dtype, device, attention="sdpa"):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation=attention)
    return model.to(device).eval()


def is_hybrid(model):
    return "linear_attention" in (getattr(model.config, "layer_types", None) or [])


class Hidden:
    """The final hidden states of a run at the wanted positions; rows of logits on demand. `kept`:
    with its KV cache, float32 [layers, 2, kv_heads, n, head_dim]: rotated keys, then values. A
    hybrid is run in one go: not every transformers continues a DeltaNet's state."""

    @torch.inference_mode()
    def __init__(self, model, ids, positions, kept=False):
        self.head, self.place = model.lm_head, {p: i for i, p in enumerate(positions)}
        self.hybrid = is_hybrid(model)
        if self.hybrid:
            return self.run_whole(model, ids, positions)
        device, cache, rows = self.head.weight.device, transformers.DynamicCache(), []
        tokens, wanted = torch.tensor(np.asarray(ids, np.int64), device=device), np.array(positions)
        for start in range(0, int(wanted.max()) + 1, CHUNK):
            piece = tokens[None, start : start + CHUNK]
            out = model.model(input_ids=piece, past_key_values=cache, use_cache=True)
            here = wanted[(wanted >= start) & (wanted < start + CHUNK)] - start
            if len(here):
                rows.append(out.last_hidden_state[0, torch.tensor(here, device=device)])
        self.rows = torch.cat(rows)
        if kept:
            self.kv = torch.stack([torch.stack((layer.keys[0], layer.values[0])).float()
                                   for layer in cache.layers])

    def run_whole(self, model, ids, positions):
        device = self.head.weight.device
        tokens = torch.tensor(np.asarray(ids[: max(positions) + 1], np.int64), device=device)[None]
        out = model.model(input_ids=tokens, use_cache=False).last_hidden_state
        self.rows = out[0, torch.tensor(positions, device=device)]

    @torch.inference_mode()
    def logits(self, positions):
        """f32 [len(positions), vocab]"""
        at = [self.place[p] for p in positions]
        return self.head(self.rows[at]).float()


def runs(folder, ids, positions, device, kept=False):
    """Exact run, and the bf16 runs under both attentions."""
    out = []
    for dtype, attention in ((torch.float32, "eager"), (torch.bfloat16, "eager"),
                             (torch.bfloat16, "sdpa")):
        model = load(folder, dtype, device, attention)
        out.append(Hidden(model, ids, positions, kept))
    return out


class Errors:
    """Of logits against the exact run: per position, as ratios to the bf16 runs' (the larger of the
    two attentions'; for hybrids, of which attention is only a part, the largest nearby)."""

    def __init__(self, exact, *rounded):
        self.exact, self.rounded = exact, rounded
        self.positions, self.rms, self.max, self.agree = [], [], [], 0
        self.own = []  # rms, absolute
        self.near = self.largest_near() if exact.hybrid else None

    def largest_near(self):
        """{position: (rms, max) that its error is held to}"""
        known = np.array(sorted(self.exact.place))
        parts = [self.their(known[at : at + ROWS].tolist()) for at in range(0, len(known), ROWS)]
        rms, largest = (torch.cat([part[i] for part in parts]).cpu().numpy() for i in range(2))
        out = {}
        for p in known.tolist():
            a, b = np.searchsorted(known, (p - NEAR, p + NEAR + 1))
            out[p] = float(rms[a:b].max()), float(largest[a:b].max())
        return out

    @torch.inference_mode()
    def their(self, positions, exact=None):
        """(rms, max) of the worse bf16 run at each position."""
        if exact is None:
            exact = self.exact.logits(positions)
        theirs = [self.of(run.logits(positions), exact) for run in self.rounded]
        return tuple(torch.stack([t[i] for t in theirs]).amax(0) for i in range(2))

    def bounds(self, positions, exact):
        if self.near is None:
            return self.their(positions, exact)
        pairs = torch.tensor([self.near[p] for p in positions], dtype=torch.float64,
                             device=exact.device)
        return pairs[:, 0], pairs[:, 1]

    @torch.inference_mode()
    def add(self, positions, logits):
        for at in range(0, len(positions), ROWS):
            part = positions[at : at + ROWS]
            exact = self.exact.logits(part)
            made = torch.tensor(logits[at : at + ROWS], device=exact.device)
            rms, largest = self.of(made, exact)
            their_rms, their_max = self.bounds(list(part), exact)
            self.rms += (rms / their_rms).tolist()
            self.max += (largest / their_max).tolist()
            self.own += rms.tolist()
            self.agree += int((made.argmax(1) == exact.argmax(1)).sum())
            self.positions += list(part)

    @staticmethod
    def of(made, exact):
        error = (made - exact).double()
        return error.square().mean(1).sqrt(), error.abs().amax(1)

    def verdict(self):
        """(fine, words, figures)"""
        rms, largest = np.array(self.rms), np.array(self.max)
        above = int((~(rms <= BOUND)).sum()), int((~(largest <= BOUND)).sum())  # NaN is above
        figures = {
            "positions": len(rms), "rms_worst": float(rms.max()), "rms_mean": float(rms.mean()),
            "max_worst": float(largest.max()), "max_mean": float(largest.mean()),
            "rms_above": above[0], "max_above": above[1], "same_winner": self.agree,
            "rms_worst_at": self.positions[int(rms.argmax())],
            "max_worst_at": self.positions[int(largest.argmax())],
        }
        words = ("{positions} positions: rms {rms_mean:.2f} on average, {rms_worst:.2f} at worst "
                 "(at {rms_worst_at}); max {max_mean:.2f}, {max_worst:.2f} (at {max_worst_at}); "
                 "same winner at {same_winner}").format(**figures)
        if sum(above):
            words += f"; above {BOUND}: rms {above[0]}, max {above[1]} positions"
        return sum(above) == 0, words, figures


def ulp(x):
    """Spacing of bf16 values around x."""
    return math.ldexp(1.0, math.frexp(x)[1] - 8)


class Greedy:
    """Judges greedy ids against an exact model under the tie rule."""

    def __init__(self, folder, device):
        self.model = load(folder, torch.float32, device)
        self.folder, self.device = folder, device
        self.n_ids = self.n_ties = 0
        self.unexplained = []

    @torch.inference_mode()
    def judge(self, prompt, make, n_tokens, name=""):
        """make(ids, n) continues ids by n greedy ones. After a tie it goes on with the model's."""
        ids = list(prompt)
        while len(ids) < len(prompt) + n_tokens:
            n = len(prompt) + n_tokens - len(ids)
            made = make(ids, n)
            if len(made) != n:
                self.unexplained.append(f"{name}: {len(made)} of {n} ids were made")
                return ids
            tokens = torch.tensor([ids + made], device=self.device)
            logits = self.model(tokens).logits[0, len(ids) - 1 : -1].float()
            differs = (logits.argmax(1).cpu() != torch.tensor(made)).nonzero()
            same = int(differs[0]) if len(differs) else n
            self.n_ids += same
            ids += made[:same]
            if same < n:
                ids.append(self.settle(ids, logits[same], made[same], f"{name} position {len(ids)}"))
        return ids

    @torch.inference_mode()
    def their_gap(self, ids, wanted, found):
        """By how much transformers' bf16 run prefers one id to another behind ids."""
        model = load(self.folder, torch.bfloat16, self.device)
        logits = model(torch.tensor([ids], device=self.device)).logits[0, -1].float()
        return float(logits[wanted] - logits[found])

    def settle(self, ids, logits, found, where):
        wanted = int(logits.argmax())
        best = float(logits[wanted])
        gap = (best - float(logits[found])) / ulp(best)
        self.n_ids += 1
        if gap <= TIE_ULPS:
            self.n_ties += 1
        else:
            theirs = self.their_gap(ids, wanted, found) / ulp(best)
            self.unexplained.append(f"{where}: {found} for {wanted}, {gap:.1f} ulp below "
                                    f"(in transformers' bf16 {theirs:.1f})")
        return wanted

    def verdict(self):
        words = f"{self.n_ids} ids, {self.n_ties} ties, {len(self.unexplained)} unexplained"
        figures = {"ids": self.n_ids, "ties": self.n_ties, "unexplained": self.unexplained}
        return not self.unexplained, "; ".join([words, *self.unexplained[:3]]), figures
