"""Steps of tools/gpu_check.py: each id wins once, and each id's embedding is found."""
import time

import numpy as np
import reel_ctypes as reel
from gpu_check_models import Weights, winner_model

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
