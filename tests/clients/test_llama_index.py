"""LlamaIndex's OpenAILike, and the example that uses it."""
# packages: llama-index-llms-openai-like
import asyncio
import os
import subprocess
import sys
import tempfile

from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

from trials import KEY, MODEL, ROOT, URL, WHAT, answer_of, ask, client, equal, finish, trial

N = 12
client("llama-index-llms-openai-like")
llm = OpenAILike(model=MODEL, api_base=URL + "/v1", api_key=KEY, is_chat_model=True, context_window=1024, max_tokens=N, temperature=0)
said = [ChatMessage(role="user", content=WHAT[0]["content"])]


@trial("chat")
def _():
    equal(llm.chat(said).message.content, answer_of(WHAT, N))


@trial("stream_chat")
def _():
    equal("".join(piece.delta or "" for piece in llm.stream_chat(said)), answer_of(WHAT, N))


@trial("achat, 8 at once")
def _():
    async def go():
        return await asyncio.gather(*(llm.achat(said) for _ in range(8)))
    for answer in asyncio.run(go()):
        equal(answer.message.content, answer_of(WHAT, N))


@trial("complete, not as a chat")
def _():
    plain = OpenAILike(model=MODEL, api_base=URL + "/v1", api_key=KEY, is_chat_model=False, max_tokens=N, temperature=0)
    body = {"model": MODEL, "prompt": WHAT[0]["content"], "max_tokens": N, "temperature": 0}
    equal(plain.complete(WHAT[0]["content"]).text, ask("/v1/completions", body)["choices"][0]["text"])


@trial("examples/clients/llama_index_chat.py")
def _():
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
        f.write("Reels hold tape.\n\nTape holds sound.\n")
        f.flush()
        done = subprocess.run([sys.executable, os.path.join(ROOT, "examples", "clients", "llama_index_chat.py"), MODEL, f.name, URL],
                              capture_output=True, text=True, timeout=100)
    equal(done.returncode, 0)
    assert answer_of([{"role": "user", "content": "Who are you?"}], 48) in done.stdout, done.stdout


finish()
