"""LiteLLM's SDK: its provider openai/ with an address of its own."""
# packages: litellm mcp
import io
import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise it asks GitHub at start
import litellm

litellm.suppress_debug_info = True

from trials import ARGUMENTS, CALL, CALL_BODY, KEY, MODEL, SPEECH, TOOL, TOOLS_URL, URL, WHAT, answer_of, client, clip, equal, finish, trial, wav

N = 12
client("litellm")
to = {"api_base": URL + "/v1", "api_key": KEY}


@trial("completion")
def _():
    answer = litellm.completion(model="openai/" + MODEL, messages=WHAT, max_tokens=N, temperature=0, **to)
    equal(answer.choices[0].message.content, answer_of(WHAT, N))
    equal(answer.usage.completion_tokens, N)


@trial("completion, stream with usage")
def _():
    chunks = list(litellm.completion(model="openai/" + MODEL, messages=WHAT, max_tokens=N, temperature=0, stream=True,
                                     stream_options={"include_usage": True}, **to))
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    equal(said, answer_of(WHAT, N))
    whole = litellm.stream_chunk_builder(chunks)
    equal(whole.choices[0].message.content, said)
    equal(whole.usage.completion_tokens, N)
    equal(whole.choices[0].finish_reason, "length")


@trial("completion, a tool call")
def _():
    given = {"model": "openai/tools", "messages": WHAT, "tools": [{"type": "function", "function": TOOL}],
             "api_base": TOOLS_URL + "/v1", "api_key": KEY, "extra_body": CALL_BODY, **CALL}
    answer = litellm.completion(**given)
    streamed = litellm.stream_chunk_builder(list(litellm.completion(**given, stream=True)))
    for made in answer, streamed:
        function = made.choices[0].message.tool_calls[0].function
        equal((function.name, json.loads(function.arguments)), ("weather", ARGUMENTS))
        equal(made.choices[0].finish_reason, "tool_calls")


@trial("text_completion")
def _():
    answer = litellm.text_completion(model="text-completion-openai/" + MODEL, prompt="Once upon", max_tokens=N,
                                     temperature=0, **to)
    assert answer.choices[0].text
    equal(answer.usage.completion_tokens, N)


@trial("responses")
def _():
    answer = litellm.responses(model="openai/" + MODEL, input=WHAT[0]["content"], max_output_tokens=16, temperature=0, **to)
    equal(answer.output[0].content[0].text, answer_of(WHAT, 16))


@trial("transcription")
def _():
    samples, words = clip()
    file = io.BytesIO(wav(samples))
    file.name = "clip.wav"
    answer = litellm.transcription(model="openai/" + SPEECH, file=file, **to)
    equal(answer.text.strip(), words)


finish()
