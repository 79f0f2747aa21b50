"""A server that says what no real one can be made to say: hostile Markdown, thoughts, streams that
break, refusals, thousands of tokens a second. It serves the page's own files with the policy of
src/server/page_api.c; the words of a question choose the answer."""
import json
import pathlib
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "src/server/page"
TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
         ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}

SAMPLE = (pathlib.Path(__file__).parent / "sample.md").read_text()
HOSTILE = (pathlib.Path(__file__).parent / "hostile.md").read_text()
THOUGHT = "Let me *think* about this. " * 20


def policy():
    source = (ROOT / "src/server/page_api.c").read_text()
    text = re.search(r"policy\[\] =\s*((?:\"[^\"]*\"\s*)+);", source).group(1)
    return "".join(re.findall(r'"([^"]*)"', text))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, code, body, kind="application/json", headers=()):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(data))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, code, message, headers=()):
        self.answer(code, {"error": {"message": message, "type": "error"}}, headers=headers)

    def ended(self):
        self.close_connection = self.close_connection or self.server.ended
        return self.server.ended

    def do_GET(self):
        if self.ended():
            return
        path = self.path.split("?")[0]
        if path == "/" or path.startswith("/page/"):
            file = PAGE / ("index.html" if path == "/" else path[len("/page/"):])
            if not file.is_file():
                self.refuse(404, "there is no " + path)
                return
            self.answer(200, file.read_bytes(), TYPES[file.suffix],
                        [("Content-Security-Policy", policy())])
        elif path == "/v1/models":
            loading = self.server.loading_until > time.time()
            model = {"id": "stub", "object": "model", "status": "loading" if loading else "ready"}
            if not loading:
                model.update(capabilities=["completion", "chat"], max_model_len=4096)
            self.answer(200, {"object": "list", "data": [model]})
        else:
            self.refuse(404, "there is no " + path)

    def do_POST(self):
        if self.ended():
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.server.loading_until > time.time():
            self.refuse(503, "the model stub is loading", [("Retry-After", "1")])
            return
        request = json.loads(body)
        self.server.requests.append(request)
        question = request["messages"][-1]["content"]
        if "refuse" in question:
            self.refuse(400, "temperature is 9, at most 2 is allowed")
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            self.stream(question)
        except OSError:
            self.server.left += 1

    def event(self, value):
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")

    def delta(self, **delta):
        self.event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})

    def stream(self, question):
        text = SAMPLE
        if "hostile" in question:
            text = HOSTILE
        elif "long" in question:
            text = SAMPLE * 30
        elif "slow" in question or "break" in question or "fail" in question:
            text = "word " * 2000
        rate = 6000 if "long" in question else 1000
        rate = 100 if "slow" in question else 200 if "think" in question else rate
        parts = [("content", text[i:i + 4]) for i in range(0, len(text), 4)]
        if "think" in question:
            parts = [("reasoning_content", w + " ") for w in THOUGHT.split()] + parts
        start = time.time()
        self.delta(role="assistant", content="")
        for i, (kind, piece) in enumerate(parts):
            if i == 20 and "break" in question:
                return
            if i == 20 and "fail" in question:
                self.event({"error": {"message": "the engine failed", "type": "server_error"}})
                return
            self.delta(**{kind: piece})
            ahead = start + i / rate - time.time()
            if ahead > 0:
                time.sleep(ahead)
        if "tool" in question:
            self.delta(tool_calls=[{"index": 0, "function": {"name": "look", "arguments": "{\"at\""}}])
            self.delta(tool_calls=[{"index": 0, "function": {"arguments": ": 1}"}}])
        self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        ms = (time.time() - start) * 1000
        self.event({"choices": [], "usage": {"prompt_tokens": 21, "completion_tokens": len(parts)},
                    "timings": {"predicted_n": len(parts), "predicted_ms": ms,
                                "predicted_per_second": 1000 * len(parts) / ms}})
        self.wfile.write(b"data: [DONE]\n\n")


class Stub(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port=0):
        super().__init__(("127.0.0.1", port), Handler)
        self.loading_until = 0
        self.requests = []
        self.ended = False  # connections that are kept alive outlive the listener
        self.left = 0  # streams whose reader went away
        self.url = "http://127.0.0.1:%d/" % self.server_address[1]
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        pass

    def end(self):
        self.ended = True
        self.shutdown()
        self.server_close()
