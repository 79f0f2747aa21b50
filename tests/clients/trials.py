"""What the scripts here share: the server's address, recordings with their words, and the table of what was tried.

A script names its trials with @trial("what") and ends with finish(). Each trial is one row of the table; a script's exit
status is 1 where a trial failed. tools/check_clients.sh sets what is read from the environment:
  REEL_URL      http://127.0.0.1:PORT of a server with the models demo (a template given) and demo-speech
  REEL_TOOLS_URL  the same of a server with the model of tool_model.py, "tools"
  REEL_PROGRAM  the program, to compare with
  REEL_TRIALS   a file to which rows are appended: client,version,tried,result,note
"""
import csv
import importlib.metadata
import io
import json
import os
import sys
import traceback
import urllib.request
import wave

URL = os.environ.get("REEL_URL", "http://127.0.0.1:8080")
PROGRAM = os.environ.get("REEL_PROGRAM", "build/release/reel")
TOOLS_URL = os.environ.get("REEL_TOOLS_URL", URL)
MODEL = "demo"
SPEECH = "demo-speech"
KEY = "none-is-set"
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
WHAT = [{"role": "user", "content": "Once upon a time there was"}]
# A request with CALL to the model "tools" is answered with this call: its three tokens are likely one after the other.
TOOL = {"name": "weather", "description": "What the weather will be in a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}
ARGUMENTS = {"city": "Rome", "days": 2}
CALL = {"logit_bias": {"4093": 100, "4094": 85, "4095": 70}, "max_tokens": 3, "temperature": 0}
CALL_BODY = {"repetition_penalty": 100, "chat_template_kwargs": {"enable_thinking": False}}  # no fields of OpenAI's

_rows = []
_client = ["", ""]


def client(package, version=None):
    """Whose trials follow. The version is of the Python package unless given."""
    _client[:] = [package, version or importlib.metadata.version(package)]


class Skip(Exception):
    """A trial that cannot be made here, with the reason."""


def trial(what):
    def run(function):
        try:
            note = function() or ""
            result = "passed"
        except Skip as reason:
            result, note = "skipped", str(reason)
        except Exception as error:  # a client's errors are of its own classes
            traceback.print_exc()
            result, note = "failed", f"{type(error).__name__}: {error}".split("\n")[0][:200]
        _rows.append([*_client, what, result, note])
        print(f"{result:8}{' '.join(_client):28}{what}{': ' + note if note else ''}", flush=True)
        return function

    return run


def finish():
    if os.environ.get("REEL_TRIALS"):
        with open(os.environ["REEL_TRIALS"], "a", newline="", encoding="utf-8") as f:
            csv.writer(f, lineterminator="\n").writerows(_rows)
    sys.stdout.flush()
    failed = any(row[3] == "failed" for row in _rows)
    os._exit(1 if failed or not _rows else 0)  # some clients leave threads that never end


def equal(a, b):
    assert a == b, f"{a!r} is not {b!r}"


def ask(path, body):
    """The plain answer of the server, with no client: what clients must make of it too."""
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def answer_of(messages, n):
    """The demo model's greedy answer."""
    body = {"model": MODEL, "messages": messages, "max_tokens": n, "temperature": 0}
    return ask("/v1/chat/completions", body)["choices"][0]["message"]["content"]


def _from_mu_law(code):
    """G.711, of 14 bits, as a 16-bit sample."""
    bits = code ^ 0xFF
    size = ((2 * (bits & 15) + 33) << (bits >> 4 & 7)) - 33
    return (-size if bits & 0x80 else size) * 4


def clip(index=0):
    """A held-out clip of models/speech: its 16-bit samples, 16 kHz and mono, and the words in it."""
    folder = os.path.join(ROOT, "models", "speech")
    with open(os.path.join(folder, "golden.json"), encoding="utf-8") as f:
        said = json.load(f)["clips"][index]
    with open(os.path.join(folder, "golden.ulaw"), "rb") as f:
        f.seek(said["at"])
        codes = f.read(said["samples"])
    samples = b"".join(_from_mu_law(code).to_bytes(2, "little", signed=True) for code in codes)
    return samples, said["text"].split("<asr_text>")[1]


def wav(samples, rate=16000):
    out = io.BytesIO()
    with wave.open(out, "wb") as f:
        f.setnchannels(1)
        f.setsampwidth(2)
        f.setframerate(rate)
        f.writeframes(samples)
    return out.getvalue()
