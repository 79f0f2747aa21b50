"""Steps of tools/gpu_check.py for speech models: the audio tower's vectors and the logits behind them
against transformers' Qwen3-ASR class on the same machine, and what a trained model writes down."""
import difflib
import json
import shutil
import statistics
import subprocess
import time
from pathlib import Path

import numpy as np
import reel_ctypes as reel
import synthetic
from asr_golden import ulaw_decode
from gpu_check_base import MINIATURES, ROOT, digest
from gpu_check_models import synthesized, token_ids

SIZES = {
    "full": {"shape": "qwen3-asr-0.6b", "seed": 0, "decoded": (101, 900, 3000), "clips": 20,
             "frames": (1, 7, 99, 100, 101, 799, 800, 801, 1650, 3000, 4130), "quick": (3000,),
             "minutes": 62, "part": 5, "answer": 150, "trained": {"minutes": 10, "part": 2}},
    "tiny": {"shape": MINIATURES / "asr-a.json", "seed": 1, "decoded": (101, 350), "clips": 20,
             "frames": (1, 7, 99, 100, 101, 799, 800, 801, 1650), "quick": (350,),
             "minutes": 6, "part": 1, "answer": 150, "trained": {"minutes": 4, "part": 1}},
    "sim": {"shape": ROOT / "tests/sim/models/asr-p.json", "seed": 1, "decoded": (101,), "clips": 1,
            "frames": (1, 7, 99, 101), "quick": (101,),
            "minutes": 4 / 60, "part": 2 / 60, "answer": 6, "trained": {"minutes": 4 / 60, "part": 2 / 60}},
}
TRAINED = ROOT / "models/speech"
SAVED = (("thinker.audio_tower.proj", "model.multi_modal_projector.linear_"),
         ("thinker.audio_tower.", "model.audio_tower."), ("thinker.model.", "model.language_model."),
         ("thinker.lm_head.", "lm_head."))
CHUNK = 100
BEFORE, AFTER, DECODED, FORCED = 9, 6, 8, 24  # ids around the audio; of FORCED, so many one by one
MOST_APART = 0.02  # rms of GPU and CPU, of their size
# Golden ids whose lead is less may be others: two steps of bf16 where logits are 8 to 16.
TIE = 0.125
RATE = 16000
STEP_MS, GROWTH_MB, LIVE_SECONDS = 150, 16, 60  # at most, of a stream
MOST_ALIKE = 0.9
STREAM_SECONDS = 140  # after which a stream ends early, and fails


def size_of(check):
    return SIZES[check.args.size]


def speech_model(check):
    if check.args.speech:
        return Path(check.args.speech)
    size = size_of(check)
    return synthesized(check.args.reel, check.models / Path(size["shape"]).stem, size["shape"],
                       size["seed"])


def thinker(folder):
    return json.loads((Path(folder) / "config.json").read_text())["thinker_config"]


# ---- transformers --------------------------------------------------------------------------------

def load(folder, dtype, device):
    """Its class with the folder's weights, whose names differ. Rotation stays in float32, as it does
    where a checkpoint is loaded in bf16."""
    import torch
    import transformers
    from safetensors.torch import load_file
    keys = thinker(folder)
    text, audio = dict(keys["text_config"]), keys["audio_config"]
    text["rope_parameters"] = {"rope_type": "default", "rope_theta": text.pop("rope_theta")}
    text.pop("rope_scaling", None)  # three equal streams of positions are one
    eos = text["eos_token_id"]
    config = transformers.Qwen3ASRConfig(
        audio_config={**audio, "model_type": "qwen3_asr_encoder"}, text_config=text,
        audio_token_id=keys["audio_token_id"], eos_token_id=eos,
        pad_token_id=eos[0] if isinstance(eos, list) else eos,
        tie_word_embeddings=text["tie_word_embeddings"])
    with torch.device(device):
        model = transformers.Qwen3ASRForConditionalGeneration(config)
    weights = {}
    for name, value in load_file(str(Path(folder) / "model.safetensors"), device=device).items():
        old, new = next(pair for pair in SAVED if name.startswith(pair[0]))
        weights[new + name.removeprefix(old)] = value
    if text["tie_word_embeddings"]:
        weights["lm_head.weight"] = weights["model.language_model.embed_tokens.weight"]
    model.load_state_dict(weights, strict=True)
    model.tie_weights()
    rotation = model.model.language_model.rotary_emb.inv_freq.clone()
    model = model.to(device=device, dtype=dtype).eval()
    model.model.language_model.rotary_emb.inv_freq = rotation.to(device)
    return model


class Rows:
    """Rows of one run, for gpu_check_hf.Errors. As in the goldens of the miniatures, an error is held
    to transformers' largest nearby."""

    hybrid = True

    def __init__(self, rows, head=None):
        self.rows, self.head, self.place = rows, head, {i: i for i in range(len(rows))}

    def logits(self, positions):
        rows = self.rows[positions]
        return (self.head(rows) if self.head else rows).float()


class Transformers:
    """The exact run and the bf16 runs under both attentions."""

    def __init__(self, check, folder):
        import gpu_check_hf as hf
        import torch
        self.hf, self.torch, self.device = hf, torch, check.torch_device
        self.exact = load(folder, torch.float32, self.device)
        self.rounded = load(folder, torch.bfloat16, self.device)

    def runs(self, make):
        """[what make(model) gives] of exact, eager, sdpa"""
        out = []
        with self.torch.inference_mode():
            for model, attention in ((self.exact, "eager"), (self.rounded, "eager"),
                                     (self.rounded, "sdpa")):
                model.set_attn_implementation(attention)
                out.append(make(model))
        return out

    def padded(self, model, features):
        n = features.shape[1]
        whole = -(-n // CHUNK) * CHUNK
        values = self.torch.zeros((1, len(features), whole), dtype=model.dtype, device=self.device)
        values[0, :, :n] = self.torch.from_numpy(features).to(self.device, model.dtype)
        mask = (self.torch.arange(whole, device=self.device) < n).long()
        return {"input_features": values, "input_features_mask": mask[None]}

    def vectors(self, features):
        return self.runs(lambda m: Rows(m.get_audio_features(
            **self.padded(m, features)).pooler_output.float()))

    def logits(self, ids, features):
        tokens = self.torch.tensor(np.asarray(ids, np.int64), device=self.device)[None]
        return self.runs(lambda m: Rows(m.model(
            input_ids=tokens, **self.padded(m, features)).last_hidden_state[0], m.lm_head))

    def sees_windows(self, keys, n_bins):
        """Whether a first window's vectors are those of the window alone, as they should be."""
        window = keys["audio_config"]["n_window_infer"]
        features = drawn(n_bins, 2 * window)
        with self.torch.inference_mode():
            whole, alone = (self.exact.get_audio_features(
                **self.padded(self.exact, part)).pooler_output
                for part in (features, features[:, :window]))
        difference = (whole[: len(alone)] - alone).abs().max() / alone.abs().max()
        return float(difference) < 1e-4


# ---- features, and reel's vectors of them --------------------------------------------------------

def rounded_to_bf16(values):
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    bits = bits + 0x7FFF + ((bits >> 16) & 1) & np.uint32(0xFFFF0000)
    return bits.view(np.float32)


def drawn(n_bins, n_frames):
    """bf16 values, as tools/make_asr_golden.py draws them."""
    scale = np.float32(np.float64(0.5) / synthetic.DEVIATION)
    draws = synthetic.draws(synthetic.key(1, f"features.{n_frames}"), n_bins * n_frames)
    return rounded_to_bf16(draws.astype(np.float32) * scale).reshape(n_bins, n_frames)


def golden_clips():
    """[(samples, what golden.json says)]"""
    audio = np.frombuffer((TRAINED / "golden.ulaw").read_bytes(), np.uint8)
    clips = json.loads((TRAINED / "golden.json").read_text())["clips"]
    return [(ulaw_decode(audio[clip["at"] : clip["at"] + clip["samples"]]), clip) for clip in clips]


def spoken(n_frames):
    """Features of the golden clips one after the other, again and again."""
    from transformers.models.qwen3_asr.feature_extraction_qwen3_asr import Qwen3ASRFeatureExtractor
    samples = np.concatenate([samples for samples, _ in golden_clips()])
    samples = np.tile(samples, -(-n_frames * 160 // len(samples)))[: n_frames * 160]
    made = Qwen3ASRFeatureExtractor(feature_size=128)(samples, sampling_rate=16000,
                                                      padding="longest")
    return rounded_to_bf16(np.asarray(made["input_features"][0], np.float32)[:, :n_frames])


def n_vectors(n_frames):
    rest = n_frames % CHUNK
    for _ in range(3 if rest else 0):
        rest = (rest - 1) // 2 + 1
    return n_frames // CHUNK * 13 + rest


def tower(check, folder, clips, device):
    """(where it ran, f32 [vectors, width] of each clip), by reel's own program for that."""
    program = Path(check.args.reel).with_name("audio_vectors")
    given, made = check.models / "features.bin", check.models / "vectors.bin"
    with open(given, "wb") as file:
        for clip in clips:
            file.write(np.int32(clip.shape[1]).tobytes() + np.ascontiguousarray(clip).tobytes())
    options = check.args.gpu_options if device.startswith("gpu") else ""
    done = subprocess.run([program, folder, device, options, check.cache, given, made],
                          capture_output=True, text=True, timeout=100)
    if done.returncode:
        raise reel.ReelError(done.returncode, done.stderr.strip()[-200:])
    width = thinker(folder)["audio_config"]["output_dim"]
    counts = [n_vectors(clip.shape[1]) for clip in clips]
    rows = np.fromfile(made, np.float32).reshape(sum(counts), width)
    return done.stdout.strip(), np.split(rows, np.cumsum(counts)[:-1])


# ---- vectors -------------------------------------------------------------------------------------

def apart(a, b):
    return float(np.sqrt(np.mean((a - b) ** 2) / np.mean(b**2)))


def judge_vectors(check, case, theirs, made, clips):
    """One row for all clips; errors are of each vector."""
    worst, mean, n, fine, figures = {"rms": (0, ""), "max": (0, "")}, [], 0, True, {}
    for rows, clip, runs in zip(made, clips, theirs):
        errors = check.hf.Errors(*runs)
        errors.add(list(range(len(rows))), rows)
        right, _, found = errors.verdict()
        fine, n = fine and right and bool(np.isfinite(rows).all()), n + len(rows)
        mean += errors.rms
        figures[clip.shape[1]] = found
        for key in worst:
            value = found[f"{key}_worst"]
            if not value <= worst[key][0]:
                worst[key] = value, f"{clip.shape[1]} frames, vector {found[f'{key}_worst_at']}"
    words = f"{n} vectors of {len(clips)} clips: rms {np.mean(mean):.2f} of transformers' bf16 on " \
            f"average, {worst['rms'][0]:.2f} at worst ({worst['rms'][1]}); max {worst['max'][0]:.2f} " \
            f"({worst['max'][1]})"
    check.row(case, fine, words, by_frames=figures)


def compare_vectors(check, folder, clips):
    model = Transformers(check, folder)
    check.hf = model.hf
    keys = thinker(folder)
    windows = model.sees_windows(keys, len(clips[0]))
    if not windows:
        check.row("transformers", False, "attends beyond windows: nothing was compared")
        return
    theirs = [model.vectors(clip) for clip in clips]
    place, rows = tower(check, folder, [*clips, *clips[::-1]], check.args.device)
    made, again = rows[: len(clips)], rows[: len(clips) - 1 : -1]
    judge_vectors(check, f"by {place}", theirs, made, clips)
    if check.gpu and not place.startswith("cuda"):
        check.row("the tower", False, f"{place} was used, not the GPU")
    same = sum(digest(a) == digest(b) for a, b in zip(made, again))
    check.row("again, in another order", same == len(clips), f"{same} of {len(clips)} clips have the same bits")
    if not check.gpu:
        return
    place, rows = tower(check, folder, clips, "cpu")
    judge_vectors(check, f"by {place}", theirs, rows, clips)
    distances = [apart(a, b) for a, b in zip(made, rows)]
    at = int(np.argmax(distances))
    check.row("from the CPU's", max(distances) <= MOST_APART,
              f"{np.median(distances):.4f} rms in the middle, {distances[at]:.4f} at worst "
              f"({clips[at].shape[1]} frames)", distances=distances)


def speech(check):
    """Vectors of clips of odd lengths, synthetic weights."""
    n_bins = thinker(speech_model(check))["audio_config"]["num_mel_bins"]
    compare_vectors(check, speech_model(check), [drawn(n_bins, n) for n in size_of(check)["frames"]])


def speech_trained(check):
    """The same of trained weights and of real features."""
    compare_vectors(check, TRAINED, [spoken(n) for n in size_of(check)["frames"]])


# ---- logits --------------------------------------------------------------------------------------

def prompt_of(keys, n_audio, vocab):
    """(ids before the audio, behind it, whole); some of the ids behind are an answer's, given."""
    low = min(vocab, keys["audio_token_id"], 250)
    before = [*token_ids(BEFORE - 1, low).tolist(), keys["audio_start_token_id"]]
    behind = [keys["audio_end_token_id"], *token_ids(AFTER - 1 + FORCED, low, 50).tolist()]
    return before, behind, before + [keys["audio_token_id"]] * n_audio + behind


def session_logits(session, before, vectors, behind):
    """f32 [positions, vocab]: read as a transcriber reads a prompt, then ids one by one, then the rest."""
    parts = [session.eval(before, reel.ALL_LOGITS),
             session.eval(None, reel.ALL_LOGITS, embeddings=vectors),
             session.eval(behind[:AFTER], reel.ALL_LOGITS)]
    for i in range(AFTER, AFTER + DECODED):
        parts.append(session.eval(behind[i : i + 1], reel.ALL_LOGITS))
    return np.concatenate([*parts, session.eval(behind[AFTER + DECODED :], reel.ALL_LOGITS)])


def compare_logits(check, folder, lengths):
    keys = thinker(folder)
    clips = [drawn(keys["audio_config"]["num_mel_bins"], n) for n in lengths]
    place, rows = tower(check, folder, clips, check.args.device)
    if check.gpu and not place.startswith("cuda"):
        check.row("the tower", False, f"{place} was used, not the GPU")
    with check.open(folder) as model:
        theirs = Transformers(check, folder)
        for clip, vectors in zip(clips, rows):
            before, behind, ids = prompt_of(keys, len(vectors), model.vocab)
            with model.session(len(ids) + 1) as session:
                made = session_logits(session, before, vectors, behind)
            errors = theirs.hf.Errors(*theirs.logits(ids, clip))
            errors.add(list(range(len(ids))), made)
            fine, words, figures = errors.verdict()
            check.row(f"{clip.shape[1]} frames heard", fine, words, tower=place, **figures)


def speech_logits(check):
    """Of every position of prompts with audio, and of an answer that is given."""
    compare_logits(check, speech_model(check), size_of(check)["decoded"])


def speech_quick(check):
    """What a benchmark asks before it measures."""
    compare_logits(check, speech_model(check), size_of(check)["quick"])


# ---- a trained model -----------------------------------------------------------------------------

def judge_clip(clip, heard):
    """"same", "tie" or what is wrong."""
    wanted, said = clip["ids"], clip["text"].rpartition("<asr_text>")[2].strip()
    if heard.ids == [wanted] and heard.text == said:
        return "same"
    if clip["top_gap"] < TIE:
        return "tie"
    return f"{clip['said']!r}: {heard.text!r} of ids {heard.ids}, {wanted} wanted"


def speech_clips(check):
    """Ids and texts of golden.json, and how soon text comes: medians over clips of medians of runs."""
    clips, runs = golden_clips()[: size_of(check)["clips"]], 5 if check.args.size == "full" else 1
    found, first, whole, right = [], [], [], 0
    with check.open(TRAINED) as model, model.transcriber(lambda *_: True) as transcriber:
        for samples, clip in clips:
            several = [transcriber.hear(samples) for _ in range(runs)]
            found += [judge_clip(clip, heard) for heard in several]
            right += several[0].text == clip["said"]
            first.append(statistics.median(heard.first_text_ms for heard in several))
            whole.append(statistics.median(
                heard.features_ms + heard.encoder_ms + heard.prompt_ms + heard.generate_ms
                for heard in several))
        where = model.backend
    wrong = [words for words in found if words not in ("same", "tie")]
    check.row("ids and texts", not wrong, f"on {where}: {found.count('same')} of {len(found)} the same, "
              f"{found.count('tie')} ties, {len(wrong)} wrong; {right} of {len(clips)} are what was "
              f"said{''.join('; ' + words for words in wrong[:3])}"[:600])
    check.row("first text", "not asked", f"{statistics.median(first):.2f} ms after the clip's end "
              f"({min(first):.2f} to {max(first):.2f}), all of it {statistics.median(whole):.2f} ms",
              first_text_ms=first, whole_ms=whole)


# ---- streams -------------------------------------------------------------------------------------

def spoken_pieces(seconds, piece):
    """float32 arrays of `piece` seconds: the golden clips in changing order, pauses between."""
    random = np.random.default_rng(3)
    clips, held, left = [samples for samples, _ in golden_clips()], np.zeros(0, np.float32), seconds
    while left > 0:
        while len(held) < piece * RATE:
            pause = random.uniform(0.2, 1.2)
            quiet = random.standard_normal(int(pause * RATE)).astype(np.float32) * 1e-4
            held = np.concatenate((held, clips[random.integers(len(clips))], quiet))
        yield held[: int(piece * RATE)]
        held, left = held[int(piece * RATE) :], left - piece


def resident_mb():
    """Of this process."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def gpu_mb():
    done = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                          capture_output=True, text=True) if shutil.which("nvidia-smi") else None
    return float(done.stdout.split()[0]) if done and done.returncode == 0 else 0.0


class Stream:
    """A stream fed as fast as it goes: what each chunk took from its push to its text."""

    def __init__(self, check, folder, size, **options):
        self.chunk, self.ms, self.memory, self.texts = 2, [], [], []
        with check.open(folder) as model, model.transcriber(
                lambda text, _: self.texts.append(text), on_partial=lambda *_: True,
                stream_seconds=self.chunk, **options) as transcriber:
            limit = time.monotonic() + STREAM_SECONDS
            for samples in spoken_pieces(size["minutes"] * 60, self.chunk):
                start = time.perf_counter()
                transcriber.push(samples)
                self.ms.append((time.perf_counter() - start) * 1e3)
                self.end = len(self.ms) * self.chunk / 60
                if self.end == size["part"]:
                    self.memory.append((resident_mb(), gpu_mb()))
                if time.monotonic() > limit:
                    break
            self.memory.append((resident_mb(), gpu_mb()))
            self.heard = transcriber.finish()

    def minutes(self, first, last):
        return self.ms[int(first * 60 / self.chunk) : int(last * 60 / self.chunk)]


def judge_stream(check, case, stream, size):
    early, late = (0, size["part"]), (max(0, stream.end - size["part"]), stream.end)
    parts = [stream.minutes(*span) for span in (early, late)]
    words = "; ".join(f"minutes {a:.3g} to {b:.3g}: median {statistics.median(ms):.1f} ms, worst {max(ms):.1f}"
                      for (a, b), ms in zip((early, late), parts))
    words += f"; all {len(stream.ms)}: {statistics.median(stream.ms):.1f}, {max(stream.ms):.1f}"
    asked = check.gpu and check.args.size == "full"
    fine = max(stream.ms) <= STEP_MS if asked else "not asked"
    check.row(f"{case}, steps", fine, words, ms=[round(ms, 2) for ms in stream.ms],
              steps=stream.heard.stream_steps, worst_ms=stream.heard.stream_worst_ms)
    if not stream.heard.stream_steps:
        check.row(f"{case}, steps", False, "no step was made")
    if stream.end < size["minutes"]:
        check.row(f"{case}, minutes", False, f"only {stream.end:.1f} of {size['minutes']} in {STREAM_SECONDS} s")
    (a, gpu_a), (b, gpu_b) = stream.memory[0], stream.memory[-1]
    check.row(f"{case}, memory", b - a <= GROWTH_MB and gpu_b - gpu_a <= GROWTH_MB,
              f"{a:.1f} MB after minute {size['part']:.3g}, {b:.1f} after {stream.end:.3g}; of the GPU "
              f"{gpu_a:.0f} and {gpu_b:.0f}")
    times = stream.heard.times
    longest = max(end - start for start, end in times)
    together = all(a[1] == b[0] for a, b in zip(times, times[1:])) and times[0][0] == 0
    whole = "".join(stream.texts) == stream.heard.text
    check.row(f"{case}, segments", together and longest <= LIVE_SECONDS and whole,
              f"{len(times)} segments of {stream.heard.seconds / 60:.1f} minutes, the longest "
              f"{longest:.1f} s, {'one after the other' if together else 'NOT one after the other'}; text as "
              f"it came is {'' if whole else 'NOT '}the transcript's, {len(stream.heard.text)} bytes")


def words_heard(check, size, device, **options):
    with check.library.open(TRAINED, device=device, cache_dir=str(check.cache)) as model, \
            model.transcriber(**options) as transcriber:
        for samples in spoken_pieces(size["minutes"] * 60, 2):
            transcriber.push(samples)
        return transcriber.finish().text.split()


def command_stream(check, seconds):
    """Text and figures of `reel transcribe --stream` reading from a pipe."""
    command = [check.args.reel, "transcribe", "-m", str(TRAINED), "--device", check.args.device,
               "--stream", "--raw", "s16le", "-"]
    samples = np.concatenate(list(spoken_pieces(seconds, 2)))
    whole = np.round(samples * 32767).astype("<i2")
    done = subprocess.run(command, input=whole.tobytes(), capture_output=True, timeout=60)
    return done.stdout.decode().strip(), done.stderr.decode().strip(), whole


def compare_command(check, seconds):
    said, figures, samples = command_stream(check, seconds)
    with check.open(TRAINED) as model, model.transcriber(stream_seconds=2) as transcriber:
        heard = transcriber.hear(samples.astype(np.float32) / np.float32(32768))
    words = (figures.splitlines() or ["no figures"])[-1][-160:]
    check.row("reel transcribe --stream", said == heard.text != "",
              f"{len(said.split())} words, {'those' if said == heard.text else 'NOT those'} of the API; {words}")


def speech_stream(check):
    """An hour at once, 2 s at a time: each step's time, and memory."""
    size, folder = size_of(check), speech_model(check)
    if thinker(folder)["audio_config"]["num_mel_bins"] != 128:
        folder = TRAINED  # of a miniature no features are made
    judge_stream(check, folder.name, Stream(check, folder, size, max_tokens=size["answer"]), size)


def speech_stream_trained(check):
    """The same of a model whose text means something, beside that of the CPU. Words without steps are
    shown, not judged: this model, trained on single phrases, leaves out some of a long segment."""
    size = {**size_of(check), **size_of(check)["trained"]}
    stream = Stream(check, TRAINED, size)
    judge_stream(check, "trained", stream, size)
    for case, wanted in (("as on the CPU", words_heard(check, size, "cpu", stream_seconds=2)),
                         ("as without steps", words_heard(check, size, check.args.device))):
        made = stream.heard.text.split()
        blocks = difflib.SequenceMatcher(None, made, wanted, False).get_matching_blocks()
        same = sum(block.size for block in blocks)
        fine = same >= MOST_ALIKE * max(len(made), len(wanted)) if "CPU" in case else "not asked"
        check.row(f"trained, words {case}", fine, f"{same} the same, of {len(made)} and {len(wanted)}")
    compare_command(check, min(60, size["minutes"] * 60))
