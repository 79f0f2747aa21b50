"""lm-evaluation-harness's model local-completions over /v1/completions. Its tasks fetch data sets from a hub; here its requests are made by hand."""
# packages: lm_eval[api] transformers
import json
import logging
import os
import subprocess
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
logging.disable(logging.INFO)

from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalChatCompletion, LocalCompletionsAPI

from trials import MODEL, PROGRAM, ROOT, URL, answer_of, ask, client, equal, finish, trial

TEXTS = [("Once upon a time there was", " a king who lived in a castle."),
         ("She was not at all", " surprised to see him standing at the door of the house."),
         ("The morning after the ball", ", zebra quantum 42")]
client("lm_eval")


def scored(text):
    """The sum of the log-probabilities of all tokens but the first, by the program and not the server."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
        f.write(text)
        f.flush()
        done = subprocess.run([PROGRAM, "score", "demo", f.name, "--json"], capture_output=True, check=True)
    answer = json.loads(done.stdout)
    return -answer["nats_per_token"] * answer["tokens_scored"]


def model(kind="huggingface", **more):
    tokenizer = {"tokenizer": os.path.join(ROOT, "models", "demo")} if kind == "huggingface" else {}
    return LocalCompletionsAPI(model=MODEL, base_url=URL + "/v1/completions", tokenizer_backend=kind, max_length=512,
                               max_retries=1, **tokenizer, **more)


def requests(kind, arguments):
    return [Instance(kind, {}, a, i) for i, a in enumerate(arguments)]


def check_loglikelihood(lm):
    got = lm.loglikelihood(requests("loglikelihood", TEXTS), disable_tqdm=True)
    most = 0
    for (context, rest), (sum_, _) in zip(TEXTS, got):
        most = max(most, abs(sum_ - (scored(context + rest) - scored(context))))
    assert most < 2e-3, most
    return f"within {most:.1e} of reel score"


@trial("loglikelihood, ids")
def _():
    return check_loglikelihood(model())


@trial("loglikelihood, texts")
def _():
    return check_loglikelihood(model(tokenized_requests=False))


@trial("loglikelihood, batches of 3")
def _():
    return check_loglikelihood(model(batch_size=3))


@trial("loglikelihood, 4 at once")
def _():
    return check_loglikelihood(model(num_concurrent=4))


@trial("loglikelihood, the server's tokenizer")
def _():
    return check_loglikelihood(model("remote"))


@trial("is_greedy")
def _():
    context = TEXTS[0][0]
    body = {"model": MODEL, "prompt": context, "max_tokens": 5, "temperature": 0}
    likeliest = ask("/v1/completions", body)["choices"][0]["text"]
    got = model().loglikelihood(requests("loglikelihood", [(context, likeliest), TEXTS[2]]), disable_tqdm=True)
    equal([greedy for _, greedy in got], [True, False])


@trial("loglikelihood_rolling")
def _():
    text = "".join(TEXTS[0])
    (got,) = model().loglikelihood_rolling(requests("loglikelihood_rolling", [(text,)]), disable_tqdm=True)
    # It begins after the end-of-text token, which reel score does not: one token more.
    assert got < scored(text), got


@trial("generate_until")
def _():
    until = {"until": [" king"], "max_gen_toks": 24, "temperature": 0}
    got = model().generate_until(requests("generate_until", [(text, until) for text, _ in TEXTS]), disable_tqdm=True)
    for (text, _), answer in zip(TEXTS, got):
        body = {"model": MODEL, "prompt": text, "max_tokens": 24, "temperature": 0, "stop": " king"}
        equal(answer, ask("/v1/completions", body)["choices"][0]["text"])


@trial("local-chat-completions, generate_until")
def _():
    lm = LocalChatCompletion(model=MODEL, base_url=URL + "/v1/chat/completions", max_retries=1)
    chat = [{"role": "user", "content": TEXTS[0][0]}]
    (got,) = lm.generate_until(requests("generate_until", [
        (lm.apply_chat_template(chat), {"until": ["\n\n\n"], "max_gen_toks": 12, "temperature": 0})]), disable_tqdm=True)
    equal(got, answer_of(chat, 12))


finish()
