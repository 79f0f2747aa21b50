"""Streams from a reel server, as a program would read them, beside what the server itself says.

    serve.py PORT MODEL RUNS TOKENS     prints one JSON object
"""
import json
import re
import socket
import statistics
import sys
import time

port, model, runs, tokens = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])


def ask(path, body):
    data = json.dumps(body).encode()
    s = socket.create_connection(("127.0.0.1", port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    start = time.perf_counter()
    s.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
              % (path.encode(), len(data), data))
    first = last = None
    got = bytearray()
    while True:
        piece = s.recv(1 << 16)
        now = time.perf_counter()
        if not piece:
            break
        if b"data: {" in piece:
            first = first or now
            last = now
        got += piece
        if b"[DONE]" in piece:
            break
    s.close()
    return bytes(got), start, first, last


def run():
    body = {"model": model, "prompt": [11, 12, 13, 14], "max_tokens": tokens, "ignore_eos": True,
            "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
    got, start, first, last = ask("/v1/completions", body)
    events = [json.loads(e) for e in re.findall(rb"data: (\{.*\})\n", got)]
    n = sum(bool(e["choices"]) for e in events)
    timings, said = events[-1].get("timings", {}), events[-1]["usage"]
    if said["completion_tokens"] != tokens:
        sys.exit(f"{said['completion_tokens']} tokens of {tokens} came")
    if n < 0.9 * tokens:
        sys.exit(f"{n} events for {tokens} tokens: the model's tokenizer has no text for them")
    return {"events": n, "client": (tokens - 1) / (last - first), "whole": tokens / (last - start),
            "server": timings.get("predicted_per_second", 0), "first_ms": (first - start) * 1e3}


run()
each = [run() for _ in range(runs)]
print(json.dumps({k: statistics.median(r[k] for r in each) for k in each[0]}))
