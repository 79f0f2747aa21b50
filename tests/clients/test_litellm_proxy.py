"""LiteLLM's proxy in front of the server, asked as OpenAI would be."""
# packages: litellm[proxy]
import importlib.metadata
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from trials import KEY, MODEL, SPEECH, URL, WHAT, answer_of, client, clip, equal, finish, trial, wav

MASTER = "sk-of-this-run-alone"  # the proxy does not start without one
N = 12
SAID = {"model": "little", "messages": WHAT, "max_tokens": N, "temperature": 0}
client("litellm proxy", importlib.metadata.version("litellm"))

with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    PORT = s.getsockname()[1]
CONFIG = {"model_list": [
    {"model_name": name, "litellm_params": {"model": "openai/" + model, "api_base": URL + "/v1", "api_key": KEY},
     "model_info": {"mode": mode}}
    for name, model, mode in (("little", MODEL, "chat"), ("ear", SPEECH, "audio_transcription"))]}


def post(path, body, kind="application/json"):
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", body, {
        "Content-Type": kind, "Authorization": "Bearer " + MASTER})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


def wait(process):
    until = time.monotonic() + 90
    while time.monotonic() < until:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health/liveliness", timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            assert process.poll() is None, "the proxy ended"
            time.sleep(0.3)
    raise AssertionError("the proxy does not listen")


def try_all(process):
    @trial("start")
    def _():
        wait(process)

    @trial("chat")
    def _():
        answer = json.loads(post("/v1/chat/completions", json.dumps(SAID).encode()))
        equal(answer["choices"][0]["message"]["content"], answer_of(WHAT, N))
        equal(answer["usage"]["completion_tokens"], N)

    @trial("chat, stream with usage")
    def _():
        body = {**SAID, "stream": True, "stream_options": {"include_usage": True}}
        text = post("/v1/chat/completions", json.dumps(body).encode()).decode()
        events = [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")]
        said = "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e["choices"])
        equal(said, answer_of(WHAT, N))
        equal([e["usage"]["completion_tokens"] for e in events if e.get("usage")], [N])

    @trial("transcription")
    def _():
        samples, words = clip()
        line = "--boundary\r\nContent-Disposition: form-data; name="
        body = (f'{line}"model"\r\n\r\near\r\n{line}"file"; filename="clip.wav"\r\n'
                "Content-Type: audio/wav\r\n\r\n").encode() + wav(samples) + b"\r\n--boundary--\r\n"
        answer = json.loads(post("/v1/audio/transcriptions", body, "multipart/form-data; boundary=boundary"))
        equal(answer["text"].strip(), words)


with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, "config.yaml"), "w", encoding="utf-8") as f:
        json.dump(CONFIG, f)  # JSON is YAML
    with open(os.path.join(folder, "log"), "w", encoding="utf-8") as log:
        proxy = subprocess.Popen(
            [sys.executable, "-c", "from litellm import run_server; run_server()", "--config", f.name, "--port",
             str(PORT), "--host", "127.0.0.1", "--telemetry", "False"],
            env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MASTER_KEY": MASTER}, stdout=log, stderr=subprocess.STDOUT)
        try:
            try_all(proxy)
        finally:
            proxy.terminate()
            proxy.wait()
    with open(log.name, encoding="utf-8") as f:
        print(f.read()[-3000:], file=sys.stderr)

finish()
