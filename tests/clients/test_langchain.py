"""LangChain's ChatOpenAI."""
# packages: langchain-openai
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI

from trials import KEY, MODEL, URL, WHAT, answer_of, client, equal, finish, trial

N = 12
client("langchain-openai")
chat = ChatOpenAI(model=MODEL, base_url=URL + "/v1", api_key=KEY, temperature=0, max_tokens=N)
text = WHAT[0]["content"]


@tool
def weather(city: str) -> str:
    """What the weather is in a city."""
    return f"rain in {city}"


@trial("invoke")
def _():
    answer = chat.invoke(text)
    equal(answer.content, answer_of(WHAT, N))
    equal(answer.usage_metadata["output_tokens"], N)
    equal(answer.response_metadata["finish_reason"], "length")


@trial("stream with usage")
def _():
    parts = list(chat.stream(text, stream_usage=True))
    equal("".join(part.text for part in parts), answer_of(WHAT, N))
    usage = [part.usage_metadata for part in parts if part.usage_metadata]
    equal(len(usage), 1)
    equal(usage[0]["output_tokens"], N)
    whole = parts[0]
    for part in parts[1:]:
        whole += part
    equal(whole.response_metadata["finish_reason"], "length")


@trial("log-probabilities")
def _():
    answer = chat.bind(logprobs=True, top_logprobs=2).invoke(text)
    equal(len(answer.response_metadata["logprobs"]["content"]), N)


@trial("tools bound")
def _():
    # The demo model makes no calls; the template chatml passes the list over. The request must be understood all the same.
    bound = chat.bind_tools([weather])
    answer = bound.invoke([HumanMessage(text)])
    assert isinstance(answer, AIMessage)
    call = {"name": "weather", "args": {"city": "Rome"}, "id": "call_1", "type": "tool_call"}
    conversation = [HumanMessage(text), AIMessage("", tool_calls=[call]), ToolMessage("rain", tool_call_id="call_1")]
    assert isinstance(bound.invoke(conversation), AIMessage)
    return "the demo model makes no calls of its own"


@trial("refused value")
def _():
    try:
        chat.bind(temperature=-3).invoke(text)
    except Exception as error:
        equal(error.status_code, 400)
        equal(error.param, "temperature")
    else:
        raise AssertionError("temperature -3 was taken")


@trial("batch of 8")
def _():
    answers = chat.batch([text] * 8)
    equal({answer.content for answer in answers}, {answer_of(WHAT, N)})


@trial("responses API")
def _():
    answer = ChatOpenAI(model=MODEL, base_url=URL + "/v1", api_key=KEY, temperature=0, max_tokens=N,
                        use_responses_api=True).invoke(text)
    equal(answer.text, answer_of(WHAT, N))


@trial("completions (OpenAI)")
def _():
    llm = OpenAI(model=MODEL, base_url=URL + "/v1", api_key=KEY, temperature=0, max_tokens=N)
    whole = llm.invoke(text)
    assert whole
    equal("".join(llm.stream(text)), whole)


finish()
