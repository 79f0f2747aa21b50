"""What the steps of tools/gpu_check.py share."""
import hashlib
import json
import os
from pathlib import Path

import numpy as np
import reel_ctypes as reel
from gpu_check_models import synthesized

ROOT = Path(__file__).resolve().parent.parent
MINIATURES = ROOT / "tests/golden/models"
SIZES = {
    "full": {"shape": "qwen3-0.6b", "seed": 0, "windows": "0-2048,4064-4128,32736-32800",
             "repeats": 1000, "long": 1500, "tokens": 200, "vocab": 151936, "hidden": 1024},
    "tiny": {"shape": MINIATURES / "q3-w.json", "seed": 1, "windows": "0-80,200-216",
             "repeats": 5, "long": 150, "tokens": 24, "vocab": 1200, "hidden": 128},
    "sim": {"shape": MINIATURES / "q3-a.json", "seed": 1, "windows": "0-6,18-20",
            "repeats": 2, "long": 20, "tokens": 6, "vocab": 300, "hidden": 128},
}
LAST_EPOCHS = 2**32 - 100
POISONED = ("logits", "prefill", "prefill-first", "prefill-long", "prefill-quick", "embed-quick", "pieces", "splits",
            "sessions", "shapes", "large-shapes", "qwen2-quick", "families", "hybrid-logits", "hybrid-lengths", "hybrid-sessions",
            "hybrid-snapshots")  # KV caches of NaN
NO_LIMITS = "patience=2147483647,hang_ms=1000000"


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
        poison = "poison=1" if self.gpu and self.step in POISONED else ""
        options = ",".join(o for o in (self.args.gpu_options, gpu_options, poison) if o)
        return self.library.open(folder, device=self.args.device, gpu_options=options or None,
                                 cache_dir=str(cache or self.cache))

    def folder(self, name):
        path = self.models / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def main_model(self):
        if self.args.model:
            return Path(self.args.model)
        size = self.size
        name = Path(size["shape"]).stem
        return synthesized(self.args.reel, self.models / name, size["shape"], size["seed"])

    @property
    def torch_device(self):
        import torch
        if self.args.torch_device:
            return self.args.torch_device
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


def only_gpu(check):
    """False, said in a row, without one."""
    if not check.gpu:
        check.row("", "skipped", "only on a GPU")
    return check.gpu


def gpus_of(check):
    """Numbers of the GPUs that --device names; none without a GPU."""
    kind, _, given = check.args.device.partition(":")
    if given == "all":
        import torch
        return list(range(torch.cuda.device_count()))
    return [int(gpu) for gpu in given.split(",")] if given else [0] if kind == "gpu" else []
