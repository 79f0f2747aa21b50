"""The request functions of `vllm bench serve`, one file out of vllm's wheel."""
# packages: aiohttp tqdm regex soundfile numpy
# from wheel vllm: vllm/benchmarks/lib/endpoint_request_func.py
import asyncio
import os

import aiohttp
import endpoint_request_func as vllm

from trials import MODEL, SPEECH, URL, WHAT, answer_of, client, clip, equal, finish, trial

N = 24
with open(os.path.join(os.path.dirname(vllm.__file__), "wheel_version"), encoding="utf-8") as version:
    client("vllm bench serve", version.read())


def measure(function, path, **fields):
    async def run():
        asked = vllm.RequestFuncInput(**{"prompt": WHAT[0]["content"], "api_url": URL + path, "prompt_len": 0,
                                         "output_len": N, "model": MODEL, "ignore_eos": True, **fields})
        async with aiohttp.ClientSession() as session:
            return await function(asked, session)

    out = asyncio.run(run())
    assert out.success, out.error
    assert out.ttft > 0 and out.latency >= out.ttft and out.prompt_len > 0
    # Every token is a chunk of its own, and its time is measured.
    equal((out.output_tokens, len(out.itl)), (fields.get("output_len", N), fields.get("output_len", N) - 1))
    return out


@trial("chat/completions")
def _():
    out = measure(vllm.async_request_openai_chat_completions, "/v1/chat/completions", extra_body={"temperature": 0})
    equal(out.generated_text, answer_of(WHAT, N))
    return "success, ttft, output_tokens of usage, one interval a token"


@trial("completions")
def _():
    measure(vllm.async_request_openai_completions, "/v1/completions", extra_body={"temperature": 0})
    return "success, ttft, output_tokens of usage, one interval a token"


@trial("completions, ids")
def _():
    measure(vllm.async_request_openai_completions, "/v1/completions", prompt=[40, 41, 42, 43], logprobs=2)


@trial("responses")
def _():
    measure(vllm.async_request_openai_responses, "/v1/responses", extra_body={"temperature": 0})


@trial("audio/transcriptions")
def _():
    import numpy

    samples, words = clip()
    sound = numpy.frombuffer(samples, "<i2").astype("float32") / 32768

    async def run():
        asked = vllm.RequestFuncInput(prompt="", api_url=URL + "/v1/audio/transcriptions", prompt_len=0, output_len=N,
                                      model=SPEECH, multi_modal_content={"audio": (sound, 16000)}, language="en")
        async with aiohttp.ClientSession() as session:
            return await vllm.async_request_openai_audio(asked, session)

    out = asyncio.run(run())
    assert out.success, out.error
    equal(out.generated_text.strip(), words)
    assert out.output_tokens > 0 and out.ttft > 0
    return f"{len(out.itl) + 1} chunks, {out.output_tokens} tokens of usage"


finish()
