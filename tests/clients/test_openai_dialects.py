"""OpenAI's package beside chat: completions and responses, and what they refuse."""
# packages: openai
import openai

from trials import KEY, MODEL, URL, WHAT, answer_of, client, equal, finish, trial

N = 12
client("openai")
api = openai.OpenAI(base_url=URL + "/v1", api_key=KEY, max_retries=0)
TEXT = WHAT[0]["content"]
CHAT = {"model": MODEL, "messages": WHAT, "max_tokens": N, "temperature": 0}
INPUT = {"model": MODEL, "input": TEXT, "max_output_tokens": N, "temperature": 0}


def refused(call, param, error=openai.BadRequestError, **given):
    try:
        call(**given)
    except error as e:
        equal(e.param, param)
        return
    raise AssertionError(f"{param} was not refused")


@trial("completions, echoed log-probabilities")
def _():
    answer = api.completions.create(model=MODEL, prompt=[TEXT, "She was"], max_tokens=0, echo=True, logprobs=1)
    equal([c.text for c in answer.choices], [TEXT, "She was"])
    first = answer.choices[0].logprobs
    equal(len(first.tokens), len(first.token_logprobs))
    assert first.token_logprobs[0] is None and all(p <= 0 for p in first.token_logprobs[1:])


@trial("completions, stream of ids")
def _():
    given = {"model": MODEL, "prompt": [70, 71, 72], "max_tokens": N, "temperature": 0}
    whole = api.completions.create(**given)
    chunks = list(api.completions.create(stream=True, **given))
    equal("".join(c.choices[0].text for c in chunks), whole.choices[0].text)
    equal(chunks[-1].choices[0].finish_reason, "length")


@trial("responses")
def _():
    answer = api.responses.create(metadata={"a": "b"}, **INPUT)
    equal(answer.output_text, answer_of(WHAT, N))
    equal((answer.status, answer.incomplete_details.reason), ("incomplete", "max_output_tokens"))
    equal((answer.usage.output_tokens, answer.metadata), (N, {"a": "b"}))


@trial("responses, events")
def _():
    events = list(api.responses.create(stream=True, **INPUT))
    equal([e.sequence_number for e in events], list(range(len(events))))
    equal("".join(e.delta for e in events if e.type == "response.output_text.delta"), answer_of(WHAT, N))
    equal(events[-1].type, "response.incomplete")


@trial("responses.stream")
def _():
    stop = answer_of(WHAT, N)[6:10]
    with api.responses.stream(extra_body={"stop": stop}, **INPUT) as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        final = stream.get_final_response()
    equal((final.status, final.output_text), ("completed", text))
    assert answer_of(WHAT, N).startswith(text) and stop not in text


@trial("responses of items")
def _():
    first = api.responses.create(**INPUT)
    items = [{"role": "user", "content": TEXT}, *first.output, {"role": "user", "content": "Go on"}]
    answer = api.responses.create(**{**INPUT, "input": items})
    assert answer.usage.input_tokens > first.usage.total_tokens


@trial("refused values")
def _():
    refused(api.chat.completions.create, "temperature", **{**CHAT, "temperature": -1})
    refused(api.chat.completions.create, "messages", **{**CHAT, "messages": []})
    refused(api.chat.completions.create, "model", openai.NotFoundError, **{**CHAT, "model": "none"})
    refused(api.chat.completions.create, "response_format", response_format={"type": "json_object"}, **CHAT)
    refused(api.completions.create, "best_of", model=MODEL, prompt="a", best_of=2)
    refused(api.responses.create, "previous_response_id", previous_response_id="resp_1", **INPUT)
    refused(api.embeddings.create, "model", model=MODEL, input="a")


finish()
