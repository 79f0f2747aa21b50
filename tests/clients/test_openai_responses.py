"""openai-python: the responses interface."""
# packages: openai[realtime]
import openai

from trials import KEY, MODEL, URL, WHAT, answer_of, client, equal, finish, trial

client("openai")
to = openai.OpenAI(base_url=URL + "/v1", api_key=KEY, max_retries=0)


@trial("responses")
def _():
    answer = to.responses.create(model=MODEL, input=WHAT[0]["content"], max_output_tokens=16, temperature=0)
    equal(answer.output_text, answer_of(WHAT, 16))


@trial("responses, stream helper")
def _():
    # The helper knows no end but "completed", so a stop text ends the answer; OpenAI's interface has none here.
    stop = answer_of(WHAT, 16).split()[3]
    with to.responses.stream(model=MODEL, input=WHAT[0]["content"], max_output_tokens=16, temperature=0,
                             extra_body={"stop": stop}) as stream:
        kinds = [event.type for event in stream]
        answer = stream.get_final_response()
    equal(kinds[0], "response.created")
    equal(answer.output_text, answer_of(WHAT, 16).split(stop)[0])


@trial("responses, the length ends a stream")
def _():
    events = list(to.responses.create(model=MODEL, input=WHAT[0]["content"], max_output_tokens=16, temperature=0,
                                      stream=True))
    equal("".join(e.delta for e in events if e.type == "response.output_text.delta"), answer_of(WHAT, 16))
    equal((events[-1].type, events[-1].response.incomplete_details.reason), ("response.incomplete", "max_output_tokens"))


@trial("responses, log-probabilities")
def _():
    asked = dict(model=MODEL, input=WHAT[0]["content"], max_output_tokens=16, temperature=0,
                 include=["message.output_text.logprobs"], top_logprobs=3)
    part = to.responses.create(**asked).output[0].content[0]
    equal("".join(one.token for one in part.logprobs), part.text)
    equal({len(one.top_logprobs) for one in part.logprobs}, {3})
    deltas = [e for e in to.responses.create(stream=True, **asked) if e.type == "response.output_text.delta"]
    equal("".join(one.token for e in deltas for one in e.logprobs), part.text)
    equal([one.logprob for e in deltas for one in e.logprobs], [one.logprob for one in part.logprobs])


finish()
