"""Synthesised speech for tools/train_asr.py: what is said, by which voices, and how it is packed.

A pack is one file: MAGIC, the length of a JSON text (8 bytes, little endian), the JSON, and the
clips one after the other, a byte a sample at 16 kHz. A byte is the mu-law code of the difference
x[t] - EMPHASIS x[t-1]: so the noise of coding falls with frequency as speech does. Each clip starts
from silence and has the largest sample PEAK.
"""

import io
import json
import subprocess
import wave
import zlib

import numpy as np

RATE = 16000
MAGIC = b"speech1\n"
EMPHASIS = 0.95
EMPHASIS_STEPS = 8     # undone over 2^8 samples, what is older is 2e-6
PEAK = 0.45         # the difference of two samples is then at most 0.88
MARGIN = 320        # samples kept around what is heard
HELD_OUT_SHARE = 8  # one text of so many is kept out of the training

DIGITS = "zero one two three four five six seven eight nine".split()
TEENS = ("ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen").split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
COLOURS = "red green blue yellow white black orange brown pink grey".split()
DEVICES = "light lamp fan heater radio".split()
OPENED = "door window gate".split()
WAYS = "left right up down back forward".split()
OTHERS = ("turn on off the open close play stop pause music set a timer for minutes seconds hours "
          "volume to it is half past quarter o'clock what time go call mother father doctor home "
          "yes please no thank you good morning evening night hello plus minus and hundred").split()
WORDS = DIGITS + TEENS + TENS + COLOURS + DEVICES + OPENED + WAYS + OTHERS

# Effects rather than speakers.
NO_SPEAKERS = ("whisper", "robo", "robot", "demonic", "croak")
HELD_OUT_VARIANTS = ("f4", "m5", "Andrea", "linda", "edward2", "klatt3", "Michael", "steph2",
                     "grandpa", "Diogo")
ACCENTS = ("en-us", "en-gb", "en-gb-x-rp", "en-gb-scotland", "en-gb-x-gbclan", "en-gb-x-gbcwmd",
           "en-029", "en-us-nyc")
FLITE_TRAIN = ("kal16", "awb", "slt")
FLITE_HELD_OUT = ("rms",)


# ---- what is said --------------------------------------------------------------------------------

def pick(rng, items):
    return items[int(rng.integers(len(items)))]


def number(rng):
    """1 to 99, and whole hundreds."""
    kind = rng.random()
    if kind < 0.3:
        return pick(rng, DIGITS[1:])
    if kind < 0.55:
        return pick(rng, TEENS)
    if kind < 0.7:
        return pick(rng, TENS)
    if kind < 0.92:
        return pick(rng, TENS) + " " + pick(rng, DIGITS[1:])
    return pick(rng, DIGITS[1:]) + " hundred"


def clock(rng):
    hour = pick(rng, DIGITS[1:] + TEENS[:3])
    kind = int(rng.integers(4))
    if kind == 0:
        return hour + " o'clock"
    if kind == 1:
        return "half past " + hour
    if kind == 2:
        return f"quarter {pick(rng, ('past', 'to'))} {hour}"
    minutes = pick(rng, ("five", "ten", "twenty", "twenty five"))
    return f"{minutes} {pick(rng, ('past', 'to'))} {hour}"


PHRASES = (
    lambda r: f"turn {pick(r, ('on', 'off'))} the {pick(r, DEVICES)}",
    lambda r: f"turn {pick(r, ('on', 'off'))} the {pick(r, COLOURS)} {pick(r, DEVICES)}",
    lambda r: f"{pick(r, ('open', 'close'))} the {pick(r, OPENED)}",
    lambda r: f"{pick(r, ('open', 'close'))} the {pick(r, COLOURS)} {pick(r, OPENED)} please",
    lambda r: f"{pick(r, ('play', 'stop', 'pause'))} the {pick(r, ('music', 'radio', 'timer'))}",
    lambda r: f"set a timer for {number(r)} {pick(r, ('minutes', 'seconds', 'hours'))}",
    lambda r: f"set the volume to {number(r)}",
    lambda r: f"it is {clock(r)}",
    lambda r: clock(r),
    lambda r: number(r),
    lambda r: f"what is {number(r)} {pick(r, ('plus', 'minus'))} {number(r)}",
    lambda r: f"go {pick(r, WAYS)}",
    lambda r: f"go {pick(r, WAYS)} and {pick(r, WAYS)}",
    lambda r: f"{pick(r, COLOURS)} and {pick(r, COLOURS)}",
    lambda r: f"the {pick(r, DEVICES + OPENED)} is {pick(r, COLOURS)}",
    lambda r: "call " + pick(r, ("mother", "father", "the doctor", "home")),
    lambda r: pick(r, ("what time is it", "yes please", "no thank you", "thank you", "hello")),
    lambda r: "good " + pick(r, ("morning", "evening", "night")),
)


def said(rng, kind):
    if kind == "digits":
        return " ".join(pick(rng, DIGITS) for _ in range(int(rng.integers(1, 9))))
    if kind == "phrase":
        return pick(rng, PHRASES)(rng)
    return " ".join(pick(rng, WORDS) for _ in range(int(rng.integers(1, 5))))  # "words"


def is_held_out(text):
    """Texts of three words and more: whether only the test has them."""
    return text.count(" ") >= 2 and zlib.crc32(text.encode()) % HELD_OUT_SHARE == 0


# ---- who says it ---------------------------------------------------------------------------------

def espeak_variants():
    """Names of espeak-ng's variants, (for training, held out)."""
    listed = subprocess.run(["espeak-ng", "--voices=variant"], capture_output=True, text=True,
                            check=True).stdout
    names = sorted({line.split("!v/")[1].split("  ")[0].strip() for line in listed.splitlines()
                    if "!v/" in line})
    speakers = [n for n in names if not any(e in n.lower() for e in NO_SPEAKERS)]
    held = [n for n in speakers if n in HELD_OUT_VARIANTS]
    return [n for n in speakers if n not in held], held


def resampled(x, rate):
    """Through the whole spectrum: no band is lost but what 16 kHz cannot hold."""
    if rate == RATE:
        return x
    n = len(x) // 2 * 2
    n_out = round(n * RATE / rate) // 2 * 2
    spectrum = np.fft.rfft(x[:n])
    out = np.zeros(n_out // 2 + 1, complex)
    m = min(len(out), len(spectrum)) - 1
    out[:m] = spectrum[:m]
    return np.fft.irfft(out, n_out) * (n_out / n)


def heard(wav_bytes):
    """The samples of a WAV file between its silences, None if there is nothing."""
    try:
        with wave.open(io.BytesIO(wav_bytes)) as w:
            rate = w.getframerate()
            raw = wav_bytes[44:]  # espeak-ng writes to a pipe and cannot give the length
    except (wave.Error, EOFError):
        return None
    x = np.frombuffer(raw[: len(raw) // 2 * 2], "<i2").astype(np.float64)
    if len(x) < rate // 20:
        return None
    x = resampled(x, rate)
    loud = np.flatnonzero(np.abs(x) > 0.01 * np.abs(x).max())
    if not len(loud):
        return None
    x = x[max(0, loud[0] - MARGIN) : loud[-1] + MARGIN]
    return x * (PEAK / np.abs(x).max())


def espeak(rng, text, variant):
    accent = pick(rng, ACCENTS)
    command = ["espeak-ng", "-v", f"{accent}+{variant}", "-s", str(int(rng.integers(110, 250))),
               "-p", str(int(rng.integers(15, 85))), "-g", str(int(rng.integers(0, 5))),
               "--stdout", text]
    return heard(subprocess.run(command, capture_output=True).stdout)


def flite(rng, text, voice):
    stretch = f"duration_stretch={rng.uniform(0.75, 1.35):.3f}"
    command = ["flite", "-voice", voice, "--setf", stretch, "-t", text, "-o", "/dev/stdout"]
    return heard(subprocess.run(command, capture_output=True).stdout)


# ---- packs ---------------------------------------------------------------------------------------

def encode(x):
    """Samples of a clip to bytes."""
    y = x - EMPHASIS * np.concatenate(([0.0], x[:-1]))
    y = np.sign(y) * np.log1p(255 * np.minimum(np.abs(y), 1)) / np.log(256)
    return (np.round(y * 127) + 128).astype(np.uint8)


def decode(codes):
    """Bytes of a clip to samples, float32."""
    y = (codes.astype(np.float64) - 128) / 127
    y = np.sign(y) * np.expm1(np.abs(y) * np.log(256)) / 255
    for i in range(EMPHASIS_STEPS):
        y[1 << i :] += EMPHASIS ** (1 << i) * y[: -(1 << i)].copy()
    return y.astype(np.float32)


def pack_write(path, clips):
    """clips: (codes, text, voice, kind)."""
    table = [[len(c), text, voice, kind] for c, text, voice, kind in clips]
    header = json.dumps({"clips": table}, separators=(",", ":")).encode()
    with open(path, "wb") as f:
        f.write(MAGIC + len(header).to_bytes(8, "little") + header)
        for c, *_ in clips:
            f.write(c.tobytes())


def pack_read(path):
    data = path.read_bytes()
    if data[: len(MAGIC)] != MAGIC:
        raise SystemExit(f"{path}: not a pack of speech")
    n = int.from_bytes(data[8:16], "little")
    codes, at, clips = np.frombuffer(data, np.uint8), 16 + n, []
    for length, text, voice, kind in json.loads(data[16 : 16 + n])["clips"]:
        clips.append((codes[at : at + length], text, voice, kind))
        at += length
    return clips


def speak(job):
    """job: (seed, engines, kinds, held out). One clip, or None. `engines`: {name: [voices]}."""
    seed, engines, kinds, held = job
    rng = np.random.default_rng(seed)
    kind = pick(rng, kinds)
    text = said(rng, kind)
    while is_held_out(text) != held and (not held or text.count(" ") >= 2 or rng.random() < 0.5):
        text = said(rng, kind)
    engine = pick(rng, sorted(engines))
    voice = pick(rng, engines[engine])
    x = (espeak if engine == "espeak" else flite)(rng, text, voice)
    if x is None or not 0.1 < len(x) / RATE < 8:
        return None
    return encode(x), text, f"{engine}:{voice}", kind
