"""Conversations: messages, pieces, calls of tools."""
import json
import unittest

import support
from reel._chat import ChatStream, Prompt
from support import reel

TOOLS = [{"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}}}}]
ANSWER = ("<think>\nThe city is Paris.\n</think>\n\nI look it up.\n<tool_call>\n"
          '{"name": "weather", "arguments": {"city": "Paris, \\"75\\""}}\n</tool_call>\n<tool_call>\n'
          '{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>')


class Written:
    """A generation of tokens that are given."""

    finish_reason, usage = "stop", reel.Usage(1, 0, 1)

    def __init__(self, parts):
        self.parts = iter(parts)

    def __next__(self):
        return reel.Token(1, next(self.parts))

    def close(self):
        pass


class Chats(support.Case):
    model_options = {"chat_template": (support.ROOT / "tests/fixtures/templates/qwen3.jinja").read_text()}

    def stream(self, text, size, **options):
        prompt = Prompt("What is the weather?", TOOLS, None, True, False)
        parts = [text[i: i + size] for i in range(0, len(text), size)]
        return ChatStream(self.model._core, prompt, Written(parts), options.get("stream_calls", False))

    def test_pieces_put_together_are_the_answer(self):
        whole = self.model.read_answer(ANSWER, tools=TOOLS)
        self.assertEqual(whole.reasoning, "The city is Paris.")
        self.assertEqual([json.loads(one.arguments)["city"] for one in whole.tool_calls],
                         ['Paris, "75"', "Köln"])
        for stream_calls in (False, True):
            for size in (1, 3, 7, 1000):
                stream = self.stream(ANSWER, size, stream_calls=stream_calls)
                pieces = list(stream)
                self.assertEqual("".join(p.content for p in pieces), whole.content)
                self.assertEqual("".join(p.reasoning for p in pieces), whole.reasoning)
                self.assertEqual([(c.name, json.loads(c.arguments)) for c in stream.tool_calls],
                                 [(c.name, json.loads(c.arguments)) for c in whole.tool_calls])
                deltas = [delta for piece in pieces for delta in piece.tool_calls]
                self.assertEqual({delta.index for delta in deltas}, {0, 1})
                self.assertEqual(sum(delta.done for delta in deltas), 2)
                self.assertEqual(stream.finish_reason, "tool_calls")
                self.assertEqual(stream.message["tool_calls"][0]["name"], "weather")

    def test_calls_come_whole_or_as_they_are_written(self):
        template = support.ROOT / "tests/fixtures/templates/meta-llama-llama-3.1-8b-instruct.jinja"
        text = '{"name": "weather", "parameters": {"city": "Paris, Texas"}}'
        with support.demo(chat_template=template.read_text()) as model:
            for stream_calls in (False, True):
                prompt = Prompt("What is the weather?", TOOLS, None, True, False)
                parts = Written([text[i: i + 3] for i in range(0, len(text), 3)])
                stream = ChatStream(model._core, prompt, parts, stream_calls)
                deltas = [delta for piece in stream for delta in piece.tool_calls]
                told = sum(delta.arguments != "" for delta in deltas)
                self.assertEqual(told > 1, stream_calls)
                self.assertEqual(json.loads(stream.tool_calls[0].arguments), {"city": "Paris, Texas"})
                self.assertEqual(stream.content, "")

    def test_a_turn_goes_on_behind_the_answer(self):
        stream = self.stream(ANSWER, 9)
        stream.text()
        messages = [{"role": "user", "content": "What is the weather?"}, stream.message,
                    {"role": "tool", "name": "weather", "content": "rain"}]
        text = self.model.chat_text(messages, tools=TOOLS)
        self.assertIn('{"name": "weather", "arguments": {"city": "Köln"}}', text)
        theirs = dict(stream.message, tool_calls=[
            {"id": "1", "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in stream.tool_calls])
        self.assertEqual(self.model.chat_text([messages[0], theirs, messages[2]], tools=TOOLS), text)

    def test_content_may_be_a_list_of_texts(self):
        parts = [{"type": "text", "text": "Em"}, {"type": "text", "text": "ma"}]
        self.assertEqual(self.model.chat_ids([{"role": "user", "content": parts}]),
                         self.model.chat_ids("Emma"))
        with self.assertRaisesRegex(reel.ArgumentError, "message 0.*image_url"):
            self.model.chat([{"role": "user", "content": [{"type": "image_url"}]}])

    def test_wrong_messages_are_named(self):
        for messages, word in [([{"role": "wizard", "content": "x"}], "wizard"), (["text"], "message 0"),
                               ([{"role": "user", "content": 3}], "message 0"), ([], ""),
                               ([{"role": "user", "content": "a\0b"}], "zero")]:
            with self.assertRaisesRegex(reel.ReelError, word):
                self.model.chat(messages)
        with self.assertRaisesRegex(TypeError, "role"):
            self.model.chat([{"role": 3, "content": "x"}])

    def test_thinking_and_prompts(self):
        self.assertIn("<think>\n\n</think>", self.model.chat_text("hi", thinking=False))
        self.assertNotEqual(self.model.chat_text("hi", thinking=True),
                            self.model.chat_text("hi", thinking=False))
        self.assertFalse(self.model.chat_text("hi", generation_prompt=False).endswith("assistant\n"))
        begun = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Emma was"}]
        self.assertTrue(self.model.chat_text(begun, continue_final_message=True).endswith("Emma was"))

    def test_an_answer_streams(self):
        stream = self.model.chat("Emma", max_tokens=20, temperature=0, ignore_stop_ids=True, top_logprobs=2)
        pieces = list(stream)
        self.assertEqual(sum(len(piece.tokens) for piece in pieces), 20)
        self.assertEqual(len(pieces[0].tokens[0].top), 2)
        self.assertEqual(stream.content, "".join(piece.content for piece in pieces))
        self.assertEqual((stream.finish_reason, stream.usage.completion_tokens), ("length", 20))
        self.assertEqual(list(stream), [])

    def test_a_model_without_a_template_says_so(self):
        with support.demo() as model, self.assertRaisesRegex(reel.UnsupportedError, "chat_template"):
            model.chat("hi")


if __name__ == "__main__":
    unittest.main()
