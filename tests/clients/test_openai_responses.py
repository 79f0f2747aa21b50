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
    with to.responses.stream(model=MODEL, input=WHAT[0]["content"], max_output_tokens=16, temperature=0) as stream:
        kinds = [event.type for event in stream]
        answer = stream.get_final_response()
    equal(kinds[0], "response.created")
    equal(answer.output_text, answer_of(WHAT, 16))


finish()
