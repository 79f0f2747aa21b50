"""The golden part of tools/train_asr.py: a trained folder beside transformers' Qwen3-ASR class."""

import json
import sys
from pathlib import Path

import numpy as np

import asr_speech as speech
from asr_batches import CONTROL, SPEECH_CONTROL, Prompts, write_json
from asr_model import BINS, HOP, RATE, build_model, log_mel, mel_filters, tokens

SEED = 1879
MAX_LOGIT_ERROR = 2e-3  # of the largest logit, float32 here against float32 there
MAX_FEATURE_ERROR = 1e-4


def transformers_model(out):
    """transformers' class with the folder's weights, float32."""
    import torch
    from gpu_check_speech import load

    return load(out, torch.float32, "cpu"), torch


ULAW_BIAS = 33


def ulaw_encode(x):
    """G.711 mu-law bytes of samples in [-1, 1]."""
    v = np.clip(np.round(np.abs(x) * 8192), 0, 8158).astype(np.int64) + ULAW_BIAS
    exponent = np.maximum(0, np.floor(np.log2(v)).astype(np.int64) - 5)
    code = (exponent << 4) | ((v >> (exponent + 1)) & 15)
    return (~(code | np.where(x < 0, 128, 0)) & 255).astype(np.uint8)


def ulaw_decode(codes):
    c = ~codes.astype(np.int64) & 255
    v = (((c & 15) * 2 + ULAW_BIAS) << ((c >> 4) & 7)) - ULAW_BIAS
    return (np.where(c & 128, -v, v) / 8192).astype(np.float32)


def stored_weights(out):
    from safetensors.torch import load_file

    return {k.removeprefix("thinker."): v.float()
            for k, v in load_file(str(out / "model.safetensors")).items()}


def golden(args):
    import transformers

    out = Path(args.out)
    model, torch = transformers_model(out)
    features = transformers.models.qwen3_asr.feature_extraction_qwen3_asr.Qwen3ASRFeatureExtractor(
        feature_size=BINS)
    record = json.loads((out / "PROVENANCE.json").read_text())
    own = build_model(torch, record["shape"])
    own.load_state_dict({**own.state_dict(), **stored_weights(out)}, strict=False)
    own.eval()
    from tokenizers import Tokenizer

    tok = Tokenizer.from_file(str(out / "tokenizer.json"))
    ids = {c: tok.token_to_id(c) for c in CONTROL + SPEECH_CONTROL}
    prompts = Prompts(torch, tok, ids, "cpu")
    filters = torch.tensor(mel_filters(np), dtype=torch.float32)
    tests = speech.pack_read(Path(args.data[0]) / "test.pack")
    rng = np.random.default_rng(SEED)
    tests = [tests[i] for i in rng.permutation(len(tests))]
    lead, clips, audio, worst = RATE // 20, [], b"", 0.0
    tests = [t for t in tests if RATE // 2 < len(t[0]) < 1.2 * RATE and t[1].count(" ") >= 1]
    for codes, text, voice, kind in tests[: args.clips]:
        x = np.concatenate((np.zeros(lead), speech.decode(codes), np.zeros(lead)))
        coded = ulaw_encode(x)
        x = torch.from_numpy(ulaw_decode(coded))
        f = features(x.numpy(), sampling_rate=RATE, padding="longest", return_tensors="pt",
                     return_attention_mask=True)
        mel, mask = f["input_features"], f["attention_mask"]
        n = torch.tensor([len(x)])
        n_tokens = tokens(n // HOP)
        seconds = mel.shape[2] // 100
        padded = torch.nn.functional.pad(x, (0, seconds * RATE - len(x)))[None]
        mine = log_mel(torch, padded, n, filters)
        mel_error = (mine - mel).abs().max().item()
        answer = []
        with torch.no_grad():
            heard = own.audio_tower(mine, n_tokens)
            vectors = own.audio_tower.project(heard)[:, : int(n_tokens)]
            prompt = prompts.before.tolist() + [ids["<|audio_pad|>"]] * int(n_tokens)
            prompt += prompts.after.tolist()
            while len(answer) < 64 and (not answer or answer[-1] not in (
                    ids["<|im_end|>"], ids["<|endoftext|>"])):
                whole = torch.tensor([prompt + answer])
                theirs = model(input_ids=whole, input_features=mel, input_features_mask=mask,
                               attention_mask=torch.ones_like(whole)).logits[0]
                answer.append(int(theirs[-1].argmax()))
            padding = torch.full((1, len(answer) - 1), -1)
            padding[0] = torch.tensor(answer[:-1])
            arranged = prompts.arranged(n_tokens, padding, int(n_tokens))
            assert arranged[0].tolist() == whole.tolist()
            ours = own.head(own.hidden(arranged[0], vectors, *arranged[1:3]))[0]
        error = ((ours - theirs).abs().max() / theirs.abs().max()).item()
        worst = max(worst, error)
        if not error <= MAX_LOGIT_ERROR or not mel_error <= 1e-4:
            sys.exit(f"{text!r}: features differ from transformers' by {mel_error:.2g}, logits by "
                     f"{error:.2g} of the largest")
        said = tok.decode(answer, skip_special_tokens=True)
        print(f"{voice} {text!r} -> {said!r}; features {mel_error:.1g}, logits {error:.1g}")
        clips.append({"at": len(audio), "samples": len(coded), "voice": voice, "said": text,
                      "ids": answer, "text": said,
                      "top_gap": round(float((lambda t: t[..., 0] - t[..., 1])(
                          theirs[-len(answer):].topk(2).values).min()), 4)})
        audio += coded.tobytes()
    (out / "golden.ulaw").write_bytes(audio)
    lines = [json.dumps(c, ensure_ascii=False) for c in clips]
    (out / "golden.json").write_text(
        '{"what": "greedy ids of transformers\' Qwen3ASRForConditionalGeneration, float32, and the '
        'least gap of its two largest logits on the way",\n'
        f'"transformers": "{transformers.__version__}", "torch": "{torch.__version__}", '
        '"audio": "golden.ulaw", "encoding": "G.711 mu-law of 14 bits, by 8192; 16 kHz, mono",\n'
        '"clips": [\n' + ",\n".join(lines) + "\n]}\n")
    record["logits_against_transformers"] = worst
    write_json(out / "PROVENANCE.json", record)
    print(f"{len(clips)} clips, {len(audio):,} bytes; logits within {worst:.2g} of the largest")
