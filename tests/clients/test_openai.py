"""openai-python: text."""
# packages: openai[realtime]
import asyncio
import json

import openai

from trials import ARGUMENTS, CALL, CALL_BODY, KEY, MODEL, SPEECH, TOOL, TOOLS_URL, URL, WHAT, answer_of, client, equal, finish, trial

N = 12
client("openai")
to = openai.OpenAI(base_url=URL + "/v1", api_key=KEY, max_retries=0)
said = {"model": MODEL, "messages": WHAT, "max_tokens": N, "temperature": 0}


@trial("models")
def _():
    assert {MODEL, SPEECH} <= {model.id for model in to.models.list()}
    equal(to.models.retrieve(MODEL).id, MODEL)


@trial("chat")
def _():
    answer = to.chat.completions.create(**said)
    equal(answer.choices[0].message.content, answer_of(WHAT, N))
    equal((answer.choices[0].finish_reason, answer.usage.completion_tokens), ("length", N))


@trial("chat, stream with usage")
def _():
    chunks = list(to.chat.completions.create(**said, stream=True, stream_options={"include_usage": True}))
    equal("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices), answer_of(WHAT, N))
    equal([chunk.usage.completion_tokens for chunk in chunks if chunk.usage], [N])
    equal(chunks[-2].choices[0].finish_reason, "length")


@trial("chat, stream helper")
def _():
    # The helper raises where the length ends an answer, so a stop text does.
    stop = answer_of(WHAT, N).split()[3]
    with to.chat.completions.stream(**said, stop=stop) as stream:
        kinds = {event.type for event in stream}
    assert {"content.delta", "content.done"} <= kinds, kinds
    choice = stream.get_final_completion().choices[0]
    equal((choice.message.content, choice.finish_reason), (answer_of(WHAT, N).split(stop)[0], "stop"))


@trial("chat, log-probabilities, 2 answers, stop")
def _():
    answer = to.chat.completions.create(**said, logprobs=True, top_logprobs=3, n=2, seed=1, stop=["\u00a4"])
    equal(len(answer.choices), 2)
    for choice in answer.choices:
        equal("".join(token.token for token in choice.logprobs.content), choice.message.content)
        assert all(len(token.top_logprobs) == 3 for token in choice.logprobs.content)


@trial("chat, the client leaves a stream")
def _():
    for _ in range(8):
        stream = to.chat.completions.create(**{**said, "max_tokens": 400}, stream=True)
        next(iter(stream))
        stream.close()
    equal(to.chat.completions.create(**said).choices[0].message.content, answer_of(WHAT, N))


@trial("chat, 16 at once")
def _():
    async def all_():
        many = openai.AsyncOpenAI(base_url=URL + "/v1", api_key=KEY, max_retries=0)
        return await asyncio.gather(*[many.chat.completions.create(**said) for _ in range(16)])

    equal({answer.choices[0].message.content for answer in asyncio.run(all_())}, {answer_of(WHAT, N)})


def call(**more):
    caller = openai.OpenAI(base_url=TOOLS_URL + "/v1", api_key=KEY, max_retries=0)
    return caller.chat.completions.create(
        model="tools", messages=WHAT, tools=[{"type": "function", "function": TOOL}], extra_body=CALL_BODY, **CALL, **more)


@trial("chat, a tool call")
def _():
    choice = call().choices[0]
    equal(choice.finish_reason, "tool_calls")
    equal([(made.function.name, json.loads(made.function.arguments)) for made in choice.message.tool_calls],
          [("weather", ARGUMENTS)])
    equal(call(tool_choice="none").choices[0].message.tool_calls, None)


@trial("chat, a tool call in a stream")
def _():
    chunks = list(call(stream=True))
    for chunk in chunks:  # LangChain takes two pieces of one chunk for two calls
        indices = [made.index for made in chunk.choices[0].delta.tool_calls or []]
        equal(len(indices), len(set(indices)))
    calls = [made for chunk in chunks for made in chunk.choices[0].delta.tool_calls or []]
    equal((calls[0].function.name, bool(calls[0].id)), ("weather", True))
    equal(json.loads("".join(made.function.arguments or "" for made in calls)), ARGUMENTS)
    equal(chunks[-1].choices[0].finish_reason, "tool_calls")
    return f"{len(calls)} pieces"


@trial("errors")
def _():
    for more, kind, param in (({"temperature": -1}, openai.BadRequestError, "temperature"),
                              ({"model": "other"}, openai.NotFoundError, "model"),
                              ({"response_format": {"type": "json_object"}}, openai.BadRequestError, "response_format")):
        try:
            to.chat.completions.create(**{**said, **more})
        except kind as error:
            equal(error.param, param)
        else:
            raise AssertionError(f"{more} was taken")


@trial("completions")
def _():
    answer = to.completions.create(model=MODEL, prompt=["Once upon", [40, 41, 42]], max_tokens=N, temperature=0)
    equal([choice.index for choice in answer.choices], [0, 1])
    echo = to.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=0, logprobs=2, echo=True)
    equal((echo.choices[0].text, "".join(echo.choices[0].logprobs.tokens)), ("Once upon a time",) * 2)
    parts = to.completions.create(model=MODEL, prompt="Once upon", max_tokens=N, temperature=0, stream=True)
    equal("".join(part.choices[0].text for part in parts if part.choices), answer.choices[0].text)


finish()
