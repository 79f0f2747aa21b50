"""LangChain's ChatOpenAI."""
# packages: langchain-openai
import os
import subprocess
import sys

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAI

from trials import ARGUMENTS, CALL, CALL_BODY, KEY, MODEL, ROOT, TOOL, TOOLS_URL, URL, WHAT, answer_of, client, equal, finish, trial

N = 12
client("langchain-openai")
chat = ChatOpenAI(model=MODEL, base_url=URL + "/v1", api_key=KEY, temperature=0, max_tokens=N)
text = WHAT[0]["content"]


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


def caller():
    model = ChatOpenAI(model="tools", base_url=TOOLS_URL + "/v1", api_key=KEY, extra_body=CALL_BODY, **CALL)
    return model.bind_tools([{"type": "function", "function": TOOL}])


@trial("tools bound, a call and its answer")
def _():
    answer = caller().invoke(text)
    equal([(call["name"], call["args"]) for call in answer.tool_calls], [("weather", ARGUMENTS)])
    conversation = [HumanMessage(text), answer, ToolMessage("rain", tool_call_id=answer.tool_calls[0]["id"])]
    assert isinstance(caller().invoke(conversation), AIMessage)


@trial("tools bound, a call in a stream")
def _():
    parts = list(caller().stream(text))
    whole = parts[0]
    for part in parts[1:]:
        whole += part
    equal([(call["name"], call["args"]) for call in whole.tool_calls], [("weather", ARGUMENTS)])


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


@trial("examples/clients/langchain_chat.py")
def _():
    done = subprocess.run([sys.executable, os.path.join(ROOT, "examples", "clients", "langchain_chat.py"), MODEL, URL],
                          capture_output=True, text=True, timeout=100)
    equal(done.returncode, 0)
    said = [{"role": "system", "content": "You answer in one sentence."}, {"role": "user", "content": "What is a tape reel?"}]
    assert done.stdout.startswith(answer_of(said, 64)), done.stdout


finish()
