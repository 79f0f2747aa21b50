#!/usr/bin/env python3
"""Conversations from a seed and what jinja2 renders for them, as one JSON object a line.

  make_template_goldens.py                        writes tests/fixtures/chat/goldens.jsonl.xz
  make_template_goldens.py --count 8000 --seed 2 --out FILE    more of them, for a longer run

Jinja runs with the settings Hugging Face transformers gives it (utils/chat_template_utils.py):
trim_blocks, lstrip_blocks, loop controls, a sandbox, tojson = json.dumps(ensure_ascii=False).
"""
import argparse
import json
import lzma
import os
import random

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

FOLDER = os.path.join(os.path.dirname(__file__), "..", "tests", "fixtures", "chat")
TEMPLATES = {"qwen3": "qwen3.jinja", "qwen3-2": "qwen3-2.jinja", "smollm2": "smollm2.jinja",
             "qwen3.5": "qwen3.5.jinja", "qwen3.5-4b": "qwen3.5-4b.jinja"}

WORDS = (
    "the weather in Paris tomorrow please find 3 cheap flights and book one then tell me why "
    "it's so <b>hot</b> & \"quoted\" 'single' back\\slash tab\there naïve façade Zürich Ωmega "
    "привет мир 你好 世界 日本語 한국어 مرحبا שלום 🙂 👩‍👩‍👧 é e\u0301 \u200b \u00a0 \ufeff \u2028 "
    "\x7f \x01 {{ messages }} {% raw %} {# no #} {\"a\": 1} None True 0 -0.0 # * - ``` $x^2$"
).split(" ")
MARKS = [
    "<|im_start|>", "<|im_end|>", "<|im_start|>system\n", "<|endoftext|>", "<think>", "</think>",
    "<think>\n\n</think>\n\n", "<tool_call>", "</tool_call>", "<tool_response>",
    "</tool_response>", "<tools>", "</tools>", "\n<think>\nhm\n</think>\n", "/no_think", "/think",
]
SPACES = ["", "", "", "\n", "\n\n", " ", "  ", "\t", "\r\n", "\n \n", " \n"]
EDGES = list("\x0b\x0c\x1c\x1f\x85\xa0\u1680\u180e\u2000\u200a\u200b\u2028\u2029\u202f\u205f\u2060\u3000"
             "\ufeff\u0301\x00\x08\x1b\x7f")  # white space to Python, or nearly
NUMBERS = [
    "0", "-0", "7", "-12", "123456789012345678", "18446744073709551615", "-9223372036854775809",
    "123456789012345678901234567890", "0.0", "-0.0", "1.0", "0.1", "1e2", "1E+2", "1e15", "1e16",
    "1e-4", "1e-5", "123456.789", "0.00012345", "1.7976931348623157e308", "5e-324", "1e-400",
    "5.6843418860808015e-14", "9007199254740993.0", "2.5e-7", "1234567890123456.7", "3.0e22",
    "0.30000000000000004", "100000000000000000000.0", "4.35", "2e-3",
]


def text(rng, empty=0.06):
    """Words, white space of all kinds and look-alikes of control tokens."""
    if rng.random() < empty:
        return ""
    parts = [rng.choice(SPACES)]
    for _ in range(rng.choice([1, 2, 3, 5])):
        parts.append(rng.choice(MARKS) if rng.random() < 0.07 else rng.choice(WORDS))
        parts.append(rng.choice(SPACES) if rng.random() < 0.2 else " ")
    parts.append(rng.choice(SPACES))
    return "".join(parts)


def space(rng):
    return rng.choice(["", "", "", " ", "\n", "\t", "  ", " \r\n "])


def json_string(rng, value):
    """A JSON string, its characters escaped or not in all the ways JSON allows."""
    out = ['"']
    for c in value:
        code = ord(c)
        if code < 0x20 or c in '"\\':
            out.append(json.dumps(c)[1:-1] if rng.random() < 0.8 else "\\u%04X" % code)
        elif rng.random() < 0.05 and code < 0x10000:
            out.append("\\u%04x" % code)
        elif rng.random() < 0.3 and code >= 0x10000:
            high, low = divmod(code - 0x10000, 0x400)
            out.append("\\u%04x\\u%04x" % (0xD800 + high, 0xDC00 + low))
        elif c == "/" and rng.random() < 0.5:
            out.append("\\/")
        else:
            out.append(c)
    return "".join(out) + '"'


def number(rng):
    if rng.random() < 0.6:
        return rng.choice(NUMBERS)
    if rng.random() < 0.5:
        return repr(rng.randrange(-(10**rng.randrange(1, 30)), 10**rng.randrange(1, 30)))
    value = rng.choice([rng.random(), rng.lognormvariate(0, 40), 2.0 ** rng.randrange(-1000, 1000)])
    return rng.choice(["%r", "%.17g", "%.20e", "%.3e"]) % value


def json_text(rng, depth=0):
    """A JSON value as text, loosely spaced."""
    kind = rng.random() * (1.0 if depth < 4 else 0.6)
    if kind < 0.25:
        return json_string(rng, text(rng))
    if kind < 0.45:
        return number(rng)
    if kind < 0.6:
        return rng.choice(["true", "false", "null", "[]", "{}", "[ ]", "{\n}"])
    if kind < 0.8:
        items = [json_text(rng, depth + 1) for _ in range(rng.randrange(1, 4))]
        return "[" + ",".join(space(rng) + i + space(rng) for i in items) + "]"
    return json_object(rng, {k: json_text(rng, depth + 1) for k in keys(rng)})


def keys(rng):
    pool = ["type", "name", "city", "größe", "a b", "日付", "x/y", "unit", "", "arguments", "n"]
    return rng.sample(pool, rng.randrange(0, 4))


def json_object(rng, members):
    body = ",".join(
        space(rng) + json_string(rng, k) + space(rng) + ":" + space(rng) + v + space(rng)
        for k, v in members.items()
    )
    return "{" + (body or space(rng)) + "}"


def tool_text(rng):
    if rng.random() < 0.2:
        return json_object(rng, {k: json_text(rng) for k in keys(rng)})
    function = {
        "name": json_string(rng, rng.choice(["get_weather", "search", "发送", "a\"b"])),
        "description": json_string(rng, text(rng)),
        "parameters": json_object(
            rng,
            {
                "type": '"object"',
                "properties": json_object(rng, {k: json_text(rng, 1) for k in keys(rng)}),
                "required": json_text(rng, 3),
            },
        ),
    }
    return json_object(rng, {"type": '"function"', "function": json_object(rng, function)})


def call_text(rng):
    arguments = json_text(rng, 1) if rng.random() < 0.5 else json_string(rng, json_text(rng, 2))
    name = rng.choice(["get_weather", "search", "发送", "a\"b", ""])
    call = {"name": json_string(rng, name), "arguments": arguments}
    if rng.random() < 0.15:
        call["id"] = '"call_1"'
    if rng.random() < 0.4:
        call = {"type": '"function"', "function": json_object(rng, call)}
    return json_object(rng, call)


def list_text(rng, items):
    return "[" + ",".join(space(rng) + i + space(rng) for i in items) + "]"


def assistant(rng, tools):
    m = {"role": "assistant", "content": text(rng, 0.15)}
    kind = rng.random()
    if kind < 0.2:
        m["reasoning"] = text(rng, 0.2)
    elif kind < 0.45:
        m["content"] = rng.choice(["<think>", "<think>\n", "", "\n"]) + text(rng) + \
            rng.choice(["</think>", "\n</think>\n\n", "\n\n</think>"]) + text(rng)
    if tools and rng.random() < 0.5:
        calls = [call_text(rng) for _ in range(rng.choice([0, 1, 1, 1, 2, 3]))]
        m["tool_calls"] = list_text(rng, calls)
    return m


def tool_responses(rng):
    return [{"role": "tool", "content": text(rng)} for _ in range(rng.choice([1, 1, 2, 3]))]


def user(rng):
    content = text(rng)
    if rng.random() < 0.08:
        content = "<tool_response>" + content + rng.choice(["</tool_response>", "</tool_response>\n"])
    return {"role": "user", "content": content}


def conversation(rng, template):
    """Mostly turns as people make them, sometimes roles in any order."""
    tools = template != "smollm2"
    messages = []
    if rng.random() < 0.5:
        messages.append({"role": "system", "content": text(rng)})
    if rng.random() < 0.15:
        makers = [user, lambda r: assistant(r, tools), lambda r: tool_responses(r)[0],
                  lambda r: {"role": "system", "content": text(r)}]
        messages += [rng.choice(makers)(rng) for _ in range(rng.randrange(1, 7))]
    else:
        for _ in range(rng.choice([1, 1, 2, 3])):
            messages.append(user(rng))
            for _ in range(rng.choice([0, 0, 1, 2]) if tools else 0):
                messages.append(assistant(rng, tools))
                messages += tool_responses(rng)
            if rng.random() < 0.8:
                messages.append(assistant(rng, tools))
    if template == "qwen3-2" and rng.random() < 0.2:
        m = rng.choice(messages)
        if m is not messages[0] or m["role"] != "system":  # there the template fails
            m["content"] = None
    return {
        "template": template,
        "messages": messages,
        "tools": list_text(rng, [tool_text(rng) for _ in range(rng.choice([0, 1, 1, 2, 3]))])
        if tools and rng.random() < 0.4 else None,
        "thinking": rng.choice([None, None, True, False]),
        "generate": rng.random() < 0.75,
    }


def edged(rng, content):
    """With characters at its ends that trimming takes or leaves."""
    ends = ["".join(rng.choice(EDGES + [" ", "\n"]) for _ in range(rng.randrange(4))) for _ in "ab"]
    return ends[0].replace("\0", "") + content + ends[1].replace("\0", "")


def call_text_35(rng):
    call = {"name": json_string(rng, rng.choice(["get_weather", "search", "发送", "a\"b", ""]))}
    if rng.random() < 0.93:
        members = {k: json_text(rng, rng.choice([1, 3, 4])) for k in keys(rng)}
        call["arguments"] = json_object(rng, members)
    if rng.random() < 0.01:
        call[rng.choice(["name", "arguments"])] = rng.choice(["null", "1", "[]", "true"])
    if rng.random() < 0.15:
        call["id"] = '"call_1"'
    if rng.random() < 0.4:
        call = {"type": '"function"', "function": json_object(rng, call)}
    return json_object(rng, call)


def conversation_35(rng, template):
    """As for Qwen3, with what trimming tells apart, and calls whose arguments are objects."""
    c = conversation(rng, template)
    for i, m in enumerate(c["messages"]):
        if m["role"] == "system" and i and rng.random() < 0.9:
            m["role"] = "user"
        if rng.random() < 0.2:
            m["content"] = edged(rng, m["content"])
        if m.get("reasoning") and rng.random() < 0.3:
            m["reasoning"] = edged(rng, m["reasoning"])
        if rng.random() < 0.02:
            m["content"] = None
        if "tool_calls" in m:
            m["tool_calls"] = list_text(rng, [call_text_35(rng) for _ in range(rng.choice([0, 1, 1, 1, 2, 3]))])
    return c


def environment():
    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


def as_passed(call):
    """A call as users of transformers pass it: arguments given as text are the object in it, missing ones empty."""
    call = call.get("function", call)
    arguments = call.get("arguments", {})
    try:
        inner = json.loads(arguments) if isinstance(arguments, str) else None
    except ValueError:
        inner = None
    return {"type": "function",
            "function": {"name": call["name"], "arguments": inner if isinstance(inner, dict) else arguments}}


def render(compiled, c):
    messages = []
    for m in c["messages"]:
        m = dict(m)
        if "reasoning" in m:
            m["reasoning_content"] = m.pop("reasoning")
        if "tool_calls" in m:
            m["tool_calls"] = [as_passed(call) for call in json.loads(m["tool_calls"])]
        messages.append(m)
    values = {} if c["thinking"] is None else {"enable_thinking": c["thinking"]}
    tools = None if c["tools"] is None else json.loads(c["tools"])
    return compiled.render(messages=messages, tools=tools, add_generation_prompt=c["generate"],
                           **values)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=1000, help="conversations a template")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default=os.path.join(FOLDER, "goldens.jsonl.xz"))
    args = parser.parse_args()
    rng = random.Random(args.seed)
    lines = []
    for template, name in TEMPLATES.items():
        with open(os.path.join(FOLDER, name), encoding="utf-8", newline="") as f:
            compiled = environment().from_string(f.read())
        for _ in range(args.count):
            if template.startswith("qwen3.5"):
                c = conversation_35(rng, template)
                try:
                    c["text"] = render(compiled, c)
                except (jinja2.exceptions.TemplateError, TypeError):
                    c["text"] = None  # the template fails
            else:
                c = conversation(rng, template)
                c["text"] = render(compiled, c)
            lines.append(json.dumps(c, ensure_ascii=False))
    data = ("\n".join(lines) + "\n").encode("utf-8")
    with open(args.out, "wb") as f:
        f.write(lzma.compress(data, preset=9))
    print(f"{args.out}: {len(lines)} conversations, {os.path.getsize(args.out)} bytes")


if __name__ == "__main__":
    main()
