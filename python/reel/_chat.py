"""Conversations: messages in, the pieces of an answer out."""
from __future__ import annotations

import json
import weakref
from dataclasses import dataclass
from types import TracebackType
from typing import (TYPE_CHECKING, Any, AsyncIterator, Callable, Dict, Iterable, List, Mapping, NamedTuple,
                    Optional, Sequence, Tuple, Type, Union)

from ._feed import Feed
from ._generation import Generation, Token, Usage
from ._handles import Handle, ModelCore, Using, close_at_exit
from ._library import (NULL, Keeper, Listener, call, check, ffi, lib, on_piece, refuse, sized)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Message = Mapping[str, Any]
Messages = Union[str, Sequence[Message]]


class ToolCall(NamedTuple):
    """A call of a tool that the model wrote: the tool's name, and a JSON object as text."""

    name: str
    arguments: str


@dataclass(frozen=True)
class ToolCallDelta:
    """News of a call.

    Attributes:
        index: which call, counted from 0.
        name: of the tool, where the call begins; else "".
        arguments: the next part of its arguments, a JSON object as text; may be "".
        done: the call ends here.
        broken: it ends, and was no well-formed call after all; its text follows as content. Only with
            `stream_calls`.
    """

    index: int
    name: str = ""
    arguments: str = ""
    done: bool = False
    broken: bool = False


class ChatPiece(NamedTuple):
    """What one token made certain.

    Attributes:
        content: more of the answer.
        reasoning: more of the thinking before it.
        tool_calls: news of calls.
        tokens: the tokens it was made of, with log-probabilities where they were asked for.
    """

    content: str = ""
    reasoning: str = ""
    tool_calls: Tuple[ToolCallDelta, ...] = ()
    tokens: Tuple[Token, ...] = ()


def _content(value: Any, which: str) -> Optional[str]:
    """A message's content: a text, None, or a list of text parts as OpenAI's clients send."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        parts = []
        for part in value:
            text = part if isinstance(part, str) else part.get("text")
            if not isinstance(text, str):
                kind = part.get("type", "?") if isinstance(part, Mapping) else type(part).__name__
                raise refuse(f"{which}: has a content part of type {kind!r}; reel reads 'text' alone")
            parts.append(text)
        return "".join(parts)
    raise refuse(f"{which}: its content is a {type(value).__name__}; a text or a list of parts is wanted")


def _calls(value: Any, which: str) -> Optional[str]:
    """Calls as OpenAI's clients write them, or as plain {"name", "arguments"}, to the library's JSON."""
    if not value:
        return None
    if isinstance(value, str):
        return value
    plain = []
    for one in value:
        if isinstance(one, ToolCall):
            one = {"name": one.name, "arguments": one.arguments}
        function = one.get("function", one)
        name, arguments = function.get("name"), function.get("arguments", {})
        if not isinstance(name, str):
            raise refuse(f"{which}: has a tool call without a name")
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except ValueError:
                pass
        plain.append({"name": name, "arguments": arguments})
    return json.dumps(plain, ensure_ascii=False)


class Prompt:
    """The C structs of a conversation."""

    def __init__(self, messages: Messages, tools: Union[str, Sequence[Mapping[str, Any]], None],
                 thinking: Optional[bool], generation_prompt: bool,
                 continue_final_message: bool) -> None:
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        keeper = self.keeper = Keeper()
        self.messages = keeper.keep(ffi.new("struct reel_message[]", len(messages)))
        self.n = len(messages)
        for i, message in enumerate(messages):
            which = f"message {i}"
            if not isinstance(message, Mapping):
                raise refuse(f"{which}: a mapping with \"role\" and \"content\" is wanted, not a "
                             f"{type(message).__name__}")
            c = self.messages[i]
            c.size = ffi.sizeof("struct reel_message")
            reasoning = message.get("reasoning", message.get("reasoning_content"))
            c.role = keeper.text(message.get("role"), f"{which}: role")
            c.content = keeper.text(_content(message.get("content"), which), f"{which}: content")
            c.reasoning = keeper.text(reasoning or None, f"{which}: reasoning")
            c.tool_calls = keeper.text(_calls(message.get("tool_calls"), which), f"{which}: tool_calls")
            c.name = keeper.text(message.get("name"), f"{which}: name")
            c.tool_call_id = keeper.text(message.get("tool_call_id"), f"{which}: tool_call_id")
        self.options = keeper.keep(sized("reel_chat_options"))
        if thinking is not None:
            self.options.thinking = lib.REEL_THINKING_ON if thinking else lib.REEL_THINKING_OFF
        if tools:
            text = tools if isinstance(tools, str) else json.dumps(list(tools), ensure_ascii=False)
            self.options.tools = keeper.text(text, "tools")
        self.options.no_generation_prompt = not generation_prompt
        self.options.continue_final_message = continue_final_message

    def text(self, core: ModelCore) -> str:
        out, n = ffi.new("char **"), ffi.new("size_t *")
        with Using(core) as pointer:
            call(lib.reel_chat_text, pointer, self.messages, self.n, self.options, out, n)
        try:
            made: str = ffi.unpack(out[0], n[0]).decode("utf-8", "replace")
            return made
        finally:
            lib.reel_free(out[0])

    def ids(self, core: ModelCore) -> "npt.NDArray[np.int32]":
        import numpy

        out, n = ffi.new("int32_t **"), ffi.new("size_t *")
        with Using(core) as pointer:
            call(lib.reel_chat_ids, pointer, self.messages, self.n, self.options, out, n)
        try:
            return numpy.frombuffer(bytes(ffi.buffer(out[0], n[0] * 4)), numpy.int32)
        finally:
            lib.reel_free(out[0])


def _teller(told: List[Tuple[int, str, int, bool]]) -> Callable[[Any], None]:
    def take(piece: Any) -> None:
        data = ffi.unpack(piece.text, piece.text_bytes) if piece.text_bytes else b""
        told.append((piece.kind, data.decode("utf-8", "replace"), piece.call, bool(piece.broken)))

    return take


class _Reader:
    """The library's reader of answers."""

    def __init__(self, core: ModelCore, prompt: Prompt, stream_calls: bool) -> None:
        self.listener = Listener()
        self.told: List[Tuple[int, str, int, bool]] = []
        self.listener.on_piece = _teller(self.told)  # refers to the list alone, not back to self
        options = sized("reel_answer_reader_options")
        options.chat = prompt.options
        options.whole_calls = not stream_calls
        options.on_piece, options.user = on_piece, self.listener.handle
        self.handle = Handle("reader", core, lib.reel_answer_reader_close, self.listener)
        out = ffi.new("struct reel_answer_reader **")
        pointer = core.enter(self.handle)
        try:
            call(lib.reel_answer_reader_open, out, pointer, options)
        except BaseException:
            core.leave(self.handle)
            raise
        self.handle.pointer = out[0]
        self.finalizer = weakref.finalize(self, close_at_exit, self.handle)

    def push(self, text: str) -> None:
        data = text.encode("utf-8")
        self._run(lib.reel_answer_reader_push, data, len(data))

    def finish(self) -> None:
        self._run(lib.reel_answer_reader_finish)
        self.close()

    def _run(self, function: Any, *args: Any) -> None:
        err = ffi.new("struct reel_error *")
        with self.handle as pointer:
            status = function(pointer, *args, err)
            self.listener.raise_caught()
            check(status, err)

    def close(self) -> None:
        self.handle.close(self.finalizer, cancel=False)


class ChatStream:
    """An answer to a conversation as an iterator of `ChatPiece`, also with ``async for``.

    As a `Generation` it does nothing before it is asked for its first piece, and ends when it is dropped.
    After the last piece `content`, `reasoning` and `tool_calls` hold all of it.
    """

    def __init__(self, core: ModelCore, prompt: Prompt, generation: Generation, stream_calls: bool) -> None:
        #: The tokens behind it, and their figures: `Generation.usage`, `Generation.reason`.
        self.generation = generation
        self._reader = _Reader(core, prompt, stream_calls)
        self._content: List[str] = []
        self._reasoning: List[str] = []
        self._calls: Dict[int, List[str]] = {}
        self._ended = False

    # ---- iterating ----

    def __iter__(self) -> "ChatStream":
        return self

    def __next__(self) -> ChatPiece:
        tokens: List[Token] = []
        while not self._ended:
            try:
                token = next(self.generation)
            except StopIteration:
                self._ended = True
                self._reader.finish()
                break
            tokens.append(token)
            if token.text:
                self._reader.push(token.text)
            if self._reader.told or token.logprob is not None:
                break
        if not tokens and not self._reader.told:
            raise StopIteration
        return self._piece(tokens)

    def _piece(self, tokens: Iterable[Token]) -> ChatPiece:
        told = list(self._reader.told)
        self._reader.told.clear()
        content, reasoning, calls = "", "", []
        for kind, text, call, broken in told:
            if kind == lib.REEL_ANSWER_CONTENT:
                content += text
            elif kind == lib.REEL_ANSWER_REASONING:
                reasoning += text
            elif kind == lib.REEL_ANSWER_CALL:
                self._calls[call] = [text, ""]
                calls.append(ToolCallDelta(call, name=text))
            elif kind == lib.REEL_ANSWER_ARGUMENTS:
                self._calls[call][1] += text
                calls.append(ToolCallDelta(call, arguments=text))
            else:
                if broken:
                    self._calls.pop(call, None)
                calls.append(ToolCallDelta(call, done=True, broken=broken))
        self._content.append(content)
        self._reasoning.append(reasoning)
        return ChatPiece(content, reasoning, tuple(calls), tuple(tokens))

    def __aiter__(self) -> AsyncIterator[ChatPiece]:
        return Feed(self, self.generation._prepare)

    # ---- what is known of it ----

    @property
    def content(self) -> str:
        """The answer so far."""
        return "".join(self._content)

    @property
    def reasoning(self) -> str:
        """The thinking so far."""
        return "".join(self._reasoning)

    @property
    def tool_calls(self) -> List[ToolCall]:
        """The calls so far."""
        return [ToolCall(*parts) for _, parts in sorted(self._calls.items())]

    @property
    def finish_reason(self) -> Optional[str]:
        """ "stop", "length", "tool_calls" or "cancelled"; None while it runs."""
        reason = self.generation.finish_reason
        return "tool_calls" if reason == "stop" and self._calls else reason

    @property
    def usage(self) -> Usage:
        return self.generation.usage

    @property
    def message(self) -> Dict[str, Any]:
        """The answer as a message, to put behind the conversation for the next turn."""
        made: Dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning:
            made["reasoning"] = self.reasoning
        if self._calls:
            made["tool_calls"] = [{"name": one.name, "arguments": one.arguments}
                                  for one in self.tool_calls]
        return made

    # ---- all of it ----

    def text(self) -> str:
        """Waits for the rest, and returns the whole content."""
        for _ in self:
            pass
        return self.content

    async def atext(self) -> str:
        """As `text`, for asyncio."""
        async for _ in self:
            pass
        return self.content

    # ---- ending ----

    def cancel(self) -> None:
        """Ends it within a token; from any thread."""
        self.generation.cancel()

    def close(self) -> None:
        """Ends it now, and frees its session."""
        self.generation.close()
        self._ended = True
        self._reader.close()

    def __enter__(self) -> "ChatStream":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close()


class Answer(NamedTuple):
    """A whole text that a model wrote, taken apart."""

    content: str
    reasoning: str
    tool_calls: Tuple[ToolCall, ...]


def read_answer(core: ModelCore, prompt: Prompt, text: str) -> Answer:
    data = text.encode("utf-8")
    answer = sized("reel_answer")
    with Using(core) as pointer:
        call(lib.reel_chat_read_answer, pointer, prompt.options, data, len(data), answer)
    try:
        def taken(value: Any) -> str:
            return "" if value == NULL else ffi.string(value).decode("utf-8", "replace")

        calls = json.loads(taken(answer.tool_calls) or "[]")
        return Answer(taken(answer.content), taken(answer.reasoning),
                      tuple(ToolCall(one["name"], json.dumps(one["arguments"], ensure_ascii=False))
                            for one in calls))
    finally:
        lib.reel_answer_release(answer)
