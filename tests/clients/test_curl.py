"""curl: event streams, uploads, HTTP/1.0, connections that are kept."""
import json
import os
import subprocess
import tempfile

from trials import MODEL, SPEECH, URL, WHAT, answer_of, client, clip, equal, finish, trial, wav

N = 12
SAID = {"model": MODEL, "messages": WHAT, "max_tokens": N, "temperature": 0}
client("curl", subprocess.run(["curl", "--version"], capture_output=True, text=True, check=True).stdout.split()[1])


def curl(*arguments):
    done = subprocess.run(["curl", "-sS", "--max-time", "60", *arguments], capture_output=True, check=False)
    equal((done.returncode, done.stderr), (0, b""))
    return done.stdout.decode()


def post(body, *arguments):
    return curl("-H", "Content-Type: application/json", "-d", json.dumps(body), *arguments,
                URL + "/v1/chat/completions")


def events(text):
    """The JSON of each event of a stream, after which comes data: [DONE]."""
    assert "\r" not in text
    parts = text.split("\n\n")
    equal(parts[-2:], ["data: [DONE]", ""])
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-2]]


def said(text):
    return "".join(e["choices"][0]["delta"].get("content", "") for e in events(text))


@trial("GET /v1/models")
def _():
    names = [model["id"] for model in json.loads(curl(URL + "/v1/models"))["data"]]
    assert {MODEL, SPEECH} <= set(names)


@trial("chat")
def _():
    answer = json.loads(post(SAID))
    equal(answer["choices"][0]["message"]["content"], answer_of(WHAT, N))
    equal(answer["usage"]["completion_tokens"], N)


@trial("chat, stream")
def _():
    head, _, body = post({**SAID, "stream": True}, "-N", "-i").replace("\r\n", "\n").partition("\n\n")
    assert "\nContent-Type: text/event-stream" in head, head
    equal(said(body), answer_of(WHAT, N))


@trial("a stream comes as it is made")
def _():
    # At two threads' worth of other work a token takes longer, never less: 400 tokens are many writes.
    with subprocess.Popen(["curl", "-sSN", "-H", "Content-Type: application/json", "-d",
                           json.dumps({**SAID, "max_tokens": 400, "ignore_eos": True, "stream": True}),
                           URL + "/v1/chat/completions"], stdout=subprocess.PIPE) as process:
        first = os.read(process.stdout.fileno(), 1 << 20)
        rest = process.stdout.read()
    assert first.startswith(b"data: ") and b"[DONE]" not in first and rest.endswith(b"[DONE]\n\n")


@trial("HTTP/1.0")
def _():
    equal(json.loads(post(SAID, "--http1.0"))["choices"][0]["message"]["content"], answer_of(WHAT, N))


@trial("HTTP/1.0, stream")
def _():
    head, _, body = post({**SAID, "stream": True}, "-N", "-i", "--http1.0").partition("\r\n\r\n")
    assert "chunked" not in head.lower(), head
    equal(said(body), answer_of(WHAT, N))


@trial("connection kept")
def _():
    whole = ["-o", os.devnull, "-w", "%{num_connects}\n", "-d", json.dumps(SAID), URL + "/v1/chat/completions"]
    stream = [*whole[:5], json.dumps({**SAID, "stream": True}), whole[-1]]
    refused = [*whole[:5], "{", whole[-1]]
    calls = [whole, stream, refused, whole, ["-o", os.devnull, "-w", "%{num_connects}\n", URL + "/health"]]
    arguments = calls[0]
    for call in calls[1:]:
        arguments = [*arguments, "--next", "-sS", *call]
    equal(curl(*arguments).split(), ["1", "0", "0", "0", "0"])


@trial("body in chunks")
def _():
    equal(json.loads(post(SAID, "-H", "Transfer-Encoding: chunked"))["usage"]["completion_tokens"], N)


@trial("large body, Expect: 100-continue")
def _():
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump({**SAID, "user": "x" * 3_000_000}, f)
        f.flush()
        answer = curl("-H", "Content-Type: application/json", "-H", "Expect: 100-continue", "--data-binary",
                      "@" + f.name, "-w", "\n%{time_total}", URL + "/v1/chat/completions")
    body, _, seconds = answer.rpartition("\n")
    equal(json.loads(body)["usage"]["completion_tokens"], N)
    assert float(seconds) < 5, seconds  # curl waits a second where nobody says 100


@trial("--compressed, --http2")
def _():
    equal(json.loads(post(SAID, "--compressed", "--http2"))["usage"]["completion_tokens"], N)


@trial("errors")
def _():
    code = ["-w", "\n%{http_code}"]
    for answer, expected, param in (
        (post({**SAID, "model": "other"}, *code), "404", "model"),
        (post({**SAID, "temperature": "warm"}, *code), "400", "temperature"),
        (curl("-d", "{", *code, URL + "/v1/chat/completions"), "400", None),
        (curl(*code, URL + "/v1/nothing"), "404", None),
        (curl(*code, URL + "/v1/chat/completions"), "405", None),
    ):
        body, _, got = answer.rpartition("\n")
        equal((got, json.loads(body)["error"]["param"]), (expected, param))


@trial("transcription")
def _():
    samples, words = clip()
    with tempfile.NamedTemporaryFile(suffix=".wav") as f:
        f.write(wav(samples))
        f.flush()
        form = ["-F", "file=@" + f.name, "-F", "model=" + SPEECH]
        to = URL + "/v1/audio/transcriptions"
        equal(json.loads(curl(*form, to))["text"], words)
        equal(curl(*form, "-F", "response_format=text", to).strip(), words)
        assert words in curl(*form, "-F", "response_format=srt", to)
        assert curl(*form, "-F", "response_format=vtt", to).startswith("WEBVTT")
        equal(json.loads(curl(*form, "-F", "response_format=verbose_json", to))["text"], words)


@trial("transcription, stream")
def _():
    samples, words = clip()
    with tempfile.NamedTemporaryFile(suffix=".wav") as f:
        f.write(wav(samples))
        f.flush()
        answer = curl("-N", "-F", "file=@" + f.name, "-F", "model=" + SPEECH, "-F", "stream=true",
                      URL + "/v1/audio/transcriptions")
    parsed = [json.loads(line[6:]) for line in answer.split("\n") if line.startswith("data: {")]
    equal("".join(e["delta"] for e in parsed if e["type"] == "transcript.text.delta"), words)
    equal([e["text"] for e in parsed if e["type"] == "transcript.text.done"], [words])


finish()
