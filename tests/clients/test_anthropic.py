"""Anthropic's package: /v1/messages."""
# packages: anthropic
import anthropic

from trials import ARGUMENTS, CALL, CALL_BODY, KEY, MODEL, TOOLS_URL, URL, WHAT, answer_of, client, equal, finish, trial

N = 12
client("anthropic")
api = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0)
# Some versions of the package have no temperature any more.
GIVEN = {"model": MODEL, "max_tokens": N, "messages": WHAT, "extra_body": {"temperature": 0}}
WEATHER = {
    "name": "weather",
    "description": "The weather of a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def refused(field, error=anthropic.BadRequestError, **given):
    try:
        api.messages.create(**{**GIVEN, **given})
    except error as e:
        assert field in str(e), e
        return
    raise AssertionError(f"{field} was not refused")


@trial("message")
def _():
    message = api.messages.create(**GIVEN)
    equal([block.type for block in message.content], ["text"])
    equal(message.content[0].text, answer_of(WHAT, N))
    equal((message.stop_reason, message.stop_sequence), ("max_tokens", None))
    equal(message.usage.output_tokens, N)


@trial("stream")
def _():
    with api.messages.stream(**GIVEN) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    equal(text, answer_of(WHAT, N))
    equal(final.content[0].text, text)
    equal(final.usage.output_tokens, N)


@trial("raw events")
def _():
    kinds = [event.type for event in api.messages.create(stream=True, **GIVEN)]
    equal(kinds[0], "message_start")
    equal(kinds[-3:], ["content_block_stop", "message_delta", "message_stop"])


@trial("stop sequence")
def _():
    stop = answer_of(WHAT, N)[6:10]
    message = api.messages.create(stop_sequences=["@@", stop], **GIVEN)
    equal((message.stop_reason, message.stop_sequence), ("stop_sequence", stop))


@trial("tokens counted")
def _():
    counted = api.messages.count_tokens(model=MODEL, messages=WHAT)
    usage = api.messages.create(**GIVEN).usage
    equal(counted.input_tokens, usage.input_tokens + usage.cache_read_input_tokens)


@trial("system and blocks")
def _():
    message = api.messages.create(
        model=MODEL,
        max_tokens=4,
        system=[{"type": "text", "text": "Be short."}],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "What is the weather?"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "Where?"}]},
            {"role": "user", "content": "In Rome"},
        ],
    )
    assert message.usage.output_tokens >= 1


@trial("a call and its answer")
def _():
    caller = anthropic.Anthropic(base_url=TOOLS_URL, api_key=KEY, max_retries=0)
    given = {"model": "tools", "max_tokens": CALL["max_tokens"], "tools": [WEATHER],
             "extra_body": {**CALL, **CALL_BODY}}
    message = caller.messages.create(messages=WHAT, **given)
    (used,) = [block for block in message.content if block.type == "tool_use"]
    equal((message.stop_reason, used.name, used.input), ("tool_use", "weather", ARGUMENTS))
    with caller.messages.stream(messages=WHAT, **given) as stream:
        streamed = stream.get_final_message()
    equal([block.input for block in streamed.content if block.type == "tool_use"], [ARGUMENTS])
    answer = {"type": "tool_result", "tool_use_id": used.id, "content": "rain"}
    after = caller.messages.create(messages=[*WHAT, {"role": "assistant", "content": message.content},
                                             {"role": "user", "content": [answer]}], **given)
    assert after.usage.output_tokens >= 1


@trial("refused values")
def _():
    refused("none", anthropic.NotFoundError, model="none")
    refused("max_tokens", max_tokens=0)
    refused("tool_choice", tools=[WEATHER], tool_choice={"type": "any"})
    refused("messages", messages=[{"role": "user", "content": [{"type": "image", "source": {}}]}])


finish()
