"""Models: opening them, and everything that is asked of one."""
from __future__ import annotations

import os
from dataclasses import dataclass
from types import TracebackType
from typing import (TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence,
                    Tuple, Type, Union)

import numpy as np
import numpy.typing as npt

from ._chat import Answer, ChatStream, Messages, Prompt, read_answer
from ._generation import Generation, GenerationOptions, Request
from ._handles import ModelCore, Using
from ._library import (Keeper, Listener, call, check, ffi, lib, on_log, on_progress,
                       optional_text, refuse, sized, text_of, wrong_state)
from ._names import cache_folder, find_model
from ._pool import Pool
from ._session import (Ids, Progress, Session, floats_pointer, id_array, ids_pointer)
from ._tokenizer import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._speech import Transcriber

TextOrIds = Union[str, Ids]
_ROUNDINGS = {"fast": lib.REEL_ROUNDING_FAST, "faithful": lib.REEL_ROUNDING_FAITHFUL,
              "exact": lib.REEL_ROUNDING_EXACT}
_WEB_SEARCH = "Given a web search query, retrieve relevant passages that answer the query"
_ROWS = 128  # positions whose logits are made at once where only sums of them are kept


@dataclass(frozen=True)
class ModelInfo:
    """What an opened model is. Bytes, counts of positions and milliseconds are whole or real numbers."""

    name: str  #: from the file, or the last part of its path
    family: str  #: "qwen3", "llama", "qwen3_5", "qwen3_asr"
    weight_type: str  #: "bf16", "q4_1", ...: the type that most bytes have
    backend: str  #: "cpu" or "cuda"
    backend_path: str  #: "avx2", "avx512", ..., or the GPU's name
    n_parameters: int
    weight_bytes: int
    token_bytes: int  #: weight bytes that one decoded token reads
    kv_token_bytes: int  #: KV cache bytes a position
    n_threads: int
    n_layers: int
    hidden: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int  #: the length of a logits vector
    max_context: int  #: positions that the model was made for
    stop_ids: Tuple[int, ...]
    chat_template: Optional[str]  #: "evaluated", a built-in one's name, or None
    chat_template_sha256: Optional[str]
    chat_template_problem: Optional[str]  #: why its own template cannot be evaluated
    chat_thinks: bool
    device_weight_type: Optional[str]
    kv_type: str  #: "bf16", "int8" or "fp8"
    most_columns: int  #: sessions that one reading of the weights serves at most
    token_weight_bits: float
    driver_ms: float
    compile_ms: float
    load_ms: float


def _info(pointer: Any) -> ModelInfo:
    c = sized("reel_model_info")
    call(lib.reel_model_get_info, pointer, c)
    texts: Dict[str, Any] = {name: text_of(getattr(c, name)) for name in
                             ("name", "family", "weight_type", "backend", "backend_path", "kv_type")}
    optional: Dict[str, Any] = {name: optional_text(getattr(c, name)) for name in
                                ("chat_template", "chat_template_sha256", "chat_template_problem",
                                 "device_weight_type")}
    numbers: Dict[str, Any] = {name: getattr(c, name) for name in
                               ("n_parameters", "weight_bytes", "token_bytes", "kv_token_bytes",
                                "n_threads", "n_layers", "hidden", "n_heads", "n_kv_heads", "head_dim",
                                "intermediate", "vocab", "max_context", "most_columns", "driver_ms",
                                "compile_ms", "load_ms", "token_weight_bits", "chat_thinks")}
    stops = tuple(c.stop_ids[i] for i in range(c.n_stop_ids))
    return ModelInfo(stop_ids=stops, **texts, **optional, **numbers)


class LogLikelihood(NamedTuple):
    """How likely a model finds a continuation.

    Attributes:
        logprob: natural log of its probability, the sum over its tokens.
        greedy: whether each of its tokens is the most likely one.
        n_tokens: of the continuation.
    """

    logprob: float
    greedy: bool
    n_tokens: int


@dataclass(frozen=True)
class Ranked:
    """A document as `Model.rerank` judged it."""

    index: int  #: of the document in the list that was given
    score: float  #: 0 to 1: how likely it is that it answers the query
    truncated: bool  #: whether its end was cut off


class EmbedInfo(NamedTuple):
    """What a model's files say of embedding with it."""

    stated: bool  #: they say that it was made for that
    prompts: Dict[str, str]  #: texts that go before a query or a document, by name
    default_prompt: Optional[str]  #: the name of that which goes before every text


class Model:
    """An opened model; any number of threads may use it.

    Args:
        name: a folder with config.json and safetensors, a ``.gguf`` file, ``"OWNER/NAME"`` or
            ``"OWNER/NAME:QUANTISATION"`` in reel's cache or Hugging Face's, ``"demo"`` or
            ``"demo-speech"``.
        device: ``"auto"`` (a GPU that runs the model, else the CPU), ``"cpu"``, ``"gpu"``, ``"gpu:N"``.
        pull: fetch what is not here from the hub, as the command ``reel pull`` does.
        sessions: requests that are worked on at once, at most; more wait in line.
        max_context: positions of each of these sessions; 0: 16384, or what the model was made for where
            that is less.
        cpu_path: ``"auto"``, ``"portable"``, ``"avx2"``, ``"avx512"``, ..., ``"reference"``.
        n_threads: 0: one for each core that the process may use.
        rounding: ``"fast"``; ``"faithful"`` or ``"exact"`` to compare with, slow, on the CPU alone.
        chat_template: a built-in one's name (``"chatml"``, ``"qwen3"``, ...) or a template in Jinja.
        chat_template_from: where that text is from, for messages.
        cache_dir: folder for tokenizer tables and compiled kernels; None: reel's cache folder;
            False: none is read or written.
        progress: called with (stage, done, total) while it loads; total is 0 when unknown. Returning
            False ends it with `Cancelled`.
        gpu_options: settings for experiments: a mapping, or "key=value,key=value".
        cuda_dir: the only folder to look for the NVIDIA driver in.
        nvrtc_dir: the only folder to look for NVRTC in, the compiler of kernels. None: where
            ``reel[cuda12]`` and ``reel[cuda13]`` put it beside this package, and where the system does.
        prompt_slice: positions of a prompt that are read in one turn; 0: as many as are fastest.
        weights: ``"int8"``, ``"int4"``, ``"fp8"``, ``"bf16"``: what wide weights become while loading.
        kv: ``"bf16"``, ``"int8"`` or ``"fp8"``: what sessions keep keys and values in.
        draft_model: a smaller `Model` with the same vocabulary that guesses what comes next; the text
            stays the same. It may guess for several models. Closing it forbids its use by itself; it stays
            in memory until they are closed, too.
        draft_head: the folder of an EAGLE-3 head that was trained for this model, which guesses for it.

    What the library warns of goes to the logger ``"reel"``.
    """

    _core: ModelCore

    def __init__(self, name: Union[str, "os.PathLike[str]"], device: str = "auto", *,
                 pull: bool = False, sessions: int = 4, max_context: int = 0,
                 cpu_path: Optional[str] = None, n_threads: int = 0, rounding: str = "fast",
                 chat_template: Optional[str] = None, chat_template_from: Optional[str] = None,
                 cache_dir: Union[str, "os.PathLike[str]", None, bool] = None,
                 progress: Optional[Progress] = None,
                 gpu_options: Union[str, Mapping[str, int], None] = None,
                 cuda_dir: Union[str, "os.PathLike[str]", None] = None,
                 nvrtc_dir: Union[str, "os.PathLike[str]", None] = None, prompt_slice: int = 0,
                 weights: Optional[str] = None, kv: Optional[str] = None,
                 draft_model: Optional["Model"] = None,
                 draft_head: Union[str, "os.PathLike[str]", None] = None) -> None:
        self._open(None, name, device, pull, sessions, max_context, cpu_path, n_threads, rounding,
                   chat_template, chat_template_from, cache_dir, progress, gpu_options, cuda_dir,
                   nvrtc_dir, prompt_slice, weights, kv, draft_model, draft_head)

    @classmethod
    def from_memory(cls, name: str, files: Mapping[str, bytes], device: str = "auto", *,
                    sessions: int = 4, max_context: int = 0, cpu_path: Optional[str] = None,
                    n_threads: int = 0, rounding: str = "fast", chat_template: Optional[str] = None,
                    chat_template_from: Optional[str] = None,
                    cache_dir: Union[str, "os.PathLike[str]", None, bool] = None,
                    progress: Optional[Progress] = None,
                    gpu_options: Union[str, Mapping[str, int], None] = None,
                    cuda_dir: Union[str, "os.PathLike[str]", None] = None,
                    nvrtc_dir: Union[str, "os.PathLike[str]", None] = None, prompt_slice: int = 0,
                    weights: Optional[str] = None, kv: Optional[str] = None,
                    draft_model: Optional["Model"] = None,
                    draft_head: Union[str, "os.PathLike[str]", None] = None) -> "Model":
        """A model of files that are in memory: their contents by the names they would have in a folder."""
        made = cls.__new__(cls)
        made._open(files, name, device, False, sessions, max_context, cpu_path, n_threads, rounding,
                   chat_template, chat_template_from, cache_dir, progress, gpu_options, cuda_dir,
                   nvrtc_dir, prompt_slice, weights, kv, draft_model, draft_head)
        return made

    def _open(self, files: Optional[Mapping[str, bytes]], name: Any, device: str, pull: bool,
              sessions: int, max_context: int, cpu_path: Optional[str], n_threads: int, rounding: str,
              chat_template: Optional[str], chat_template_from: Optional[str], cache_dir: Any,
              progress: Optional[Progress], gpu_options: Any, cuda_dir: Any, nvrtc_dir: Any,
              prompt_slice: int, weights: Optional[str], kv: Optional[str],
              draft_model: Optional["Model"], draft_head: Any) -> None:
        if sessions < 1:
            raise refuse(f"sessions: {sessions}; at least 1 is wanted")
        if max_context < 0:
            raise refuse(f"max_context: {max_context}; 0 or more is wanted")
        if rounding not in _ROUNDINGS:
            raise refuse(f"rounding: {rounding!r}; there are {', '.join(_ROUNDINGS)}")
        if draft_model is not None and draft_model.closed:
            raise wrong_state("the draft model is closed")
        self._draft = draft_model._core if draft_model is not None else None
        keeper, listener = Keeper(), Listener()
        listener.progress = progress
        options = sized("reel_model_options")
        if not isinstance(gpu_options, str) and gpu_options is not None:
            gpu_options = ",".join(f"{key}={value}" for key, value in gpu_options.items())
        texts = {"device": device, "cpu_path": cpu_path, "chat_template": chat_template,
                 "chat_template_from": chat_template_from, "gpu_options": gpu_options,
                 "weights": weights, "kv": kv}
        for key, text in texts.items():
            setattr(options, key, keeper.text(text, key))
        for key, path in {"cache_dir": _cache(cache_dir), "cuda_dir": cuda_dir,
                          "nvrtc_dir": nvrtc_dir, "draft_head": draft_head}.items():
            setattr(options, key, keeper.text(None if path is None else os.fspath(path), "path"))
        options.n_threads, options.prompt_slice = n_threads, prompt_slice
        options.rounding = _ROUNDINGS[rounding]
        options.progress, options.progress_user = on_progress, listener.handle
        options.log = on_log
        out, err = ffi.new("struct reel_model **"), ffi.new("struct reel_error *")
        if files is None:
            path = keeper.text(find_model(name, pull), "path")
            status = lib.reel_model_open(out, path, options, err)
        else:
            status = lib.reel_model_open_memory(out, keeper.text(name, "name"),
                                                _memory_files(files, keeper), len(files), options, err)
        caught, listener.caught = listener.caught, None
        if status == 0:
            self._core = ModelCore(ffi.gc(out[0], lib.reel_model_close), (keeper, listener, options),
                                   self._draft)
        if caught is not None:
            raise caught
        check(status, err)
        listener.progress = None
        #: What it is: a `ModelInfo`.
        self.info = _info(out[0])
        #: The model's `Tokenizer`.
        self.tokenizer = Tokenizer._of_model(self._core)
        self._context = max_context or min(16384, self.info.max_context)
        self._pool = Pool(_opener(self._core, self.info, self._context, self._draft), sessions)

    # ---- generating ----

    def generate(self, prompt: TextOrIds, *, special: bool = True,
                 **options: "Unpack[GenerationOptions]") -> Generation:
        """Continues a prompt; an iterator of `Token`, also for ``async for``.

        Args:
            prompt: text, or ids [n] as they are.
            special: whether a text gets what the model's post-processor puts around one, such as a
                token that begins every text.
            options: see `GenerationOptions`.
        """
        return self._generation(self._ids(prompt, special), options)

    def chat(self, messages: Messages, *,
             tools: Union[str, Sequence[Mapping[str, Any]], None] = None,
             thinking: Optional[bool] = None, continue_final_message: bool = False,
             stream_calls: bool = False, **options: "Unpack[GenerationOptions]") -> ChatStream:
        """Answers a conversation; an iterator of `ChatPiece`, also for ``async for``.

        Args:
            messages: mappings with "role" and "content", and, where they have them, "reasoning",
                "tool_calls", "name", "tool_call_id", as OpenAI's clients write them; or one text of
                the user's.
            tools: descriptions of tools, as OpenAI's clients write them.
            thinking: whether to think first; None: as the template does by itself.
            continue_final_message: the last message is the assistant's, and the answer goes on behind it.
            stream_calls: tell a call's arguments as they come, and not each call when it is complete.
            options: see `GenerationOptions`.
        """
        prompt = Prompt(messages, tools, thinking, not continue_final_message, continue_final_message)
        generation = self._generation(prompt.ids(self._core), options)
        return ChatStream(self._core, prompt, generation, stream_calls)

    def chat_text(self, messages: Messages, *,
                  tools: Union[str, Sequence[Mapping[str, Any]], None] = None,
                  thinking: Optional[bool] = None, generation_prompt: bool = True,
                  continue_final_message: bool = False) -> str:
        """The conversation as the model's template writes it."""
        return Prompt(messages, tools, thinking, generation_prompt and not continue_final_message,
                      continue_final_message).text(self._core)

    def chat_ids(self, messages: Messages, *,
                 tools: Union[str, Sequence[Mapping[str, Any]], None] = None,
                 thinking: Optional[bool] = None, generation_prompt: bool = True,
                 continue_final_message: bool = False) -> List[int]:
        """The same as ids. Control tokens come from the template alone, never from a message."""
        made = Prompt(messages, tools, thinking, generation_prompt and not continue_final_message,
                      continue_final_message).ids(self._core)
        return [int(i) for i in made]

    def read_answer(self, text: str, *, tools: Union[str, Sequence[Mapping[str, Any]], None] = None,
                    thinking: Optional[bool] = None) -> Answer:
        """Takes the whole text of an answer apart: content, reasoning, calls."""
        return read_answer(self._core, Prompt([], tools, thinking, True, False), text)

    def _generation(self, ids: "npt.NDArray[np.int32]", options: Mapping[str, Any]) -> Generation:
        if len(ids) == 0:
            raise refuse("the prompt has no tokens")
        request = Request(self._core, options)
        pool = self._pool

        def begin(generation: Generation) -> Session:
            session = generation._session
            if session is None:
                session = generation._session = pool.take(ids)
            listener = session._handle.listener
            listener.progress = lambda *_: not generation._cancelled
            try:
                began = _clock_ms()
                generation.n_prompt = len(ids)
                generation.n_reused = session.sync(ids)
                generation.prompt_ms = _clock_ms() - began
            finally:
                listener.progress = None
            return session

        async def begin_async(generation: Generation) -> None:
            generation._session = await pool.take_async(ids)

        return Generation(request, begin, pool.give_back, begin_async)

    def _ids(self, prompt: TextOrIds, special: bool) -> "npt.NDArray[np.int32]":
        if isinstance(prompt, str):
            return np.asarray(self.tokenizer.encode(prompt, special=special), np.int32)
        return id_array(prompt, "prompt")

    # ---- logits ----

    def logits(self, prompt: TextOrIds, *, special: bool = True) -> "npt.NDArray[np.float32]":
        """float32 [n, vocab]: the logits after each token of a text or of ids [n]."""
        ids = self._ids(prompt, special)
        if len(ids) == 0:
            raise refuse("the prompt has no tokens")
        with self._leased(ids) as session:
            session.truncate(0)
            out = session.eval(ids, "all_logits")
            assert out is not None
            return out

    def loglikelihood(self, context: TextOrIds, continuation: TextOrIds) -> LogLikelihood:
        """How likely the model finds `continuation` after `context`.

        Texts are encoded together, and cut where the context's tokens end, as evaluation harnesses do:
        white space at the context's end counts to the continuation. An empty context is the token that
        begins every text, or else the one that ends one.
        """
        return self.loglikelihoods([(context, continuation)])[0]

    def loglikelihoods(self, pairs: Iterable[Tuple[TextOrIds, TextOrIds]]) -> List[LogLikelihood]:
        """The same of many pairs, in their order. Pairs with a common beginning share its evaluation."""
        encoded = [self._pair(context, continuation) for context, continuation in pairs]
        made: List[Optional[LogLikelihood]] = [None] * len(encoded)
        for i in sorted(range(len(encoded)), key=lambda i: encoded[i][0] + encoded[i][1]):
            made[i] = self._likelihood(*encoded[i])
        return [one for one in made if one is not None]

    def _pair(self, context: TextOrIds, continuation: TextOrIds) -> Tuple[List[int], List[int]]:
        if isinstance(context, str) != isinstance(continuation, str):
            raise refuse("loglikelihood: context and continuation are two texts, or two lists of ids")
        if isinstance(context, str) and isinstance(continuation, str):
            kept = context.rstrip()
            continuation, context = context[len(kept):] + continuation, kept
            whole = self.tokenizer.encode(context + continuation, special=bool(context))
            first = self.tokenizer.encode(context, special=True) if context else []
            if whole[: len(first)] != first:  # what the post-processor puts behind a text
                first = self.tokenizer.encode(context)
                whole = self.tokenizer.encode(context + continuation)
            given, rest = whole[: len(first)], whole[len(first):]
        else:
            given = [int(i) for i in id_array(context, "context")]  # type: ignore[arg-type]
            rest = [int(i) for i in id_array(continuation, "continuation")]  # type: ignore[arg-type]
        if not rest:
            raise refuse("loglikelihood: the continuation has no tokens of its own")
        return given or [self._beginning()], rest

    def _beginning(self) -> int:
        special = self.tokenizer.encode("a", special=True)
        plain = self.tokenizer.encode("a")
        if len(special) > len(plain) and special[0] != plain[0]:
            return special[0]
        if not self.info.stop_ids:
            raise refuse("loglikelihood: the context is empty, and the model has no token that begins or "
                         "ends a text")
        return self.info.stop_ids[0]

    def _likelihood(self, context: List[int], continuation: List[int]) -> LogLikelihood:
        ids = np.asarray(context + continuation, np.int32)
        first = len(context) - 1  # the position whose logits the first token is judged by
        total, greedy = 0.0, True
        with self._leased(ids[:first]) as session:
            if first:
                session.sync(ids[:first])
            else:
                session.truncate(0)
            for start in range(first, len(ids) - 1, _ROWS):
                end = min(start + _ROWS, len(ids) - 1)
                logits = session.eval(ids[start:end], "all_logits")
                assert logits is not None
                wanted = ids[start + 1: end + 1]
                most = logits.max(axis=1)
                sums = np.exp(logits - most[:, None], dtype=np.float32).sum(axis=1, dtype=np.float64)
                chosen = logits[np.arange(len(wanted)), wanted]
                total += float((chosen.astype(np.float64) - most - np.log(sums)).sum())
                greedy = greedy and bool((logits.argmax(axis=1) == wanted).all())
        return LogLikelihood(total, greedy, len(continuation))

    # ---- embedding and reranking ----

    @property
    def embed_info(self) -> EmbedInfo:
        """What the model's files say of embedding with it."""
        c = sized("reel_embed_info")
        text = ffi.new("const char **")
        with Using(self._core) as pointer:
            call(lib.reel_model_get_embed_info, pointer, c)
            prompts = {}
            for i in range(c.n_prompts):
                name = text_of(lib.reel_model_embed_prompt(pointer, i, text))
                prompts[name] = text_of(text[0])
            return EmbedInfo(bool(c.stated), prompts, optional_text(c.default_prompt))

    def embed(self, texts: Union[str, Sequence[TextOrIds]], *, query: bool = False,
              instruction: Optional[str] = None, prompt_name: Optional[str] = None,
              dimensions: int = 0, normalise: bool = True, truncate: bool = False
              ) -> "npt.NDArray[np.float32]":
        """float32 [n, dimensions]: a vector for each text.

        Args:
            texts: texts, or lists of ids as they are; one text alone gives [1, dimensions].
            query: the texts are queries: the model's own prompt for them goes before each, or
                "Instruct: ..." of a web search where it has none.
            instruction: the texts are queries for this task.
            prompt_name: the model's prompt of this name goes before each; see `embed_info`.
            dimensions: the first so many values, for models that were trained so (Matryoshka); 0: all.
            normalise: make the vectors' length 1.
            truncate: cut the end of texts that are longer than the context; else they are refused.
        """
        given: Sequence[TextOrIds] = [texts] if isinstance(texts, str) else texts
        if not 0 <= dimensions <= self.info.hidden:
            raise refuse(f"dimensions: {dimensions}; 0 to {self.info.hidden} are allowed")
        width = dimensions or self.info.hidden
        out = np.empty((len(given), width), np.float32)
        if len(given) == 0:
            return out
        prompt = self._embed_prompt(query, instruction, prompt_name)
        encoded = [self._embed_ids(one, prompt, i, truncate) for i, one in enumerate(given)]
        lengths = np.asarray([len(ids) for ids in encoded], np.intc)
        ids = np.concatenate(encoded)
        request = sized("reel_embed")
        kept = ids_pointer(ids), ffi.from_buffer("int[]", lengths), floats_pointer(out)
        request.ids, request.lengths, request.out = kept
        request.n_texts, request.dimensions = len(given), dimensions
        request.no_normalise, request.out_floats = not normalise, out.size
        with self._leased(np.empty(0, np.int32)) as session:
            session._run(lib.reel_session_embed, request)
        return out

    def _embed_prompt(self, query: bool, instruction: Optional[str], name: Optional[str]) -> str:
        info = self.embed_info
        if name is not None and (query or instruction is not None):
            raise refuse("prompt_name excludes query and instruction")
        if name is not None and name not in info.prompts:
            known = ", ".join(info.prompts) or "no named prompts"
            raise refuse(f"prompt_name: {name!r}; {self.info.name} has {known}")
        if name is None and instruction is None:
            if query and "query" in info.prompts:
                name = "query"
            elif not query:
                name = info.default_prompt
        if name is not None:
            return info.prompts[name]
        if query or instruction is not None:
            return f"Instruct: {instruction if instruction is not None else _WEB_SEARCH}\nQuery:"
        return ""

    def _embed_ids(self, text: TextOrIds, prompt: str, index: int, truncate: bool
                   ) -> "npt.NDArray[np.int32]":
        if not isinstance(text, str):
            ids = id_array(text, f"text {index}")
        else:
            ids = np.asarray(self.tokenizer.encode(prompt + text, special=True), np.int32)
        if len(ids) == 0:
            raise refuse(f"text {index}: an empty text has no tokens")
        if len(ids) > self._context:
            if not truncate:
                from ._errors import error_of

                raise error_of(lib.REEL_E_CONTEXT, f"text {index}: {len(ids)} tokens, the context holds "
                               f"{self._context}; truncate=True cuts its end off")
            ids = self._cut(ids, prompt + text if isinstance(text, str) else None)
        return ids

    def _cut(self, ids: "npt.NDArray[np.int32]", text: Optional[str]) -> "npt.NDArray[np.int32]":
        """Without the end of the text, but with what the post-processor puts behind it."""
        plain = len(ids) if text is None else len(self.tokenizer.encode(text))
        around = len(ids) - plain
        if around >= self._context:
            raise refuse(f"max_context: {self._context} positions hold no text")
        behind = 0
        if around and text is not None:
            start = np.asarray(self.tokenizer.encode(text)[:1], np.int32)
            before = 0
            while before < around and ids[before] != start[0]:
                before += 1
            behind = around - before
        return np.concatenate([ids[: self._context - behind], ids[len(ids) - behind:]])

    def rerank(self, query: str, documents: Sequence[str], *, instruction: Optional[str] = None,
               max_tokens: int = 0) -> List[Ranked]:
        """Which documents answer a query, the best first, judged as Qwen3-Reranker was trained to.

        Args:
            instruction: what makes a document a good one; None: that it answers a web search.
            max_tokens: of the query, a document and the words around them; the end of a longer document
                is cut off. 0: 8192, or the context where that is less.
        """
        n = len(documents)
        if n == 0:
            return []
        keeper = Keeper()
        request = sized("reel_rerank")
        request.query = keeper.text(query, "query")
        request.instruction = keeper.text(instruction, "instruction")
        request.documents = keeper.texts(list(documents), "document")
        request.n_documents, request.max_tokens = n, max_tokens
        scores, cut = ffi.new("float[]", n), ffi.new("bool[]", n)
        request.scores, request.truncated = scores, cut
        with self._leased(np.empty(0, np.int32)) as session:
            session._run(lib.reel_session_rerank, request)
        ranked = [Ranked(i, float(scores[i]), bool(cut[i])) for i in range(n)]
        return sorted(ranked, key=lambda one: -one.score)

    # ---- sessions ----

    def session(self, max_context: int = 0, progress: Optional[Progress] = None,
                speculation: Optional[str] = None, draft_model: Optional["Model"] = None) -> Session:
        """A new session, apart from those that requests share.

        Args:
            max_context: positions to hold; 0: what the model was made for, or less where memory is short.
            progress: called with ("evaluating", positions, positions) by `sync` and `eval`; returning
                False ends the call with `Cancelled`.
            speculation: "mtp" or "eagle3": the model's draft layer or head reads prompts as well, so that
                generations with the same option guess better.
            draft_model: guesses for this session; None: the one that guesses for the model, if any.
        """
        draft = draft_model._core if draft_model is not None else self._draft
        return Session(self._core, self.info, max_context, progress, speculation, draft)

    def transcriber(self, **options: Any) -> "Transcriber":
        """A `Transcriber` of this model; the options are that class's."""
        from ._speech import Transcriber

        return Transcriber(self, **options)

    def _leased(self, ids: "npt.NDArray[np.int32]") -> "_Leased":
        return _Leased(self._pool, ids)

    # ---- writing, planning ----

    def quantize(self, folder: Union[str, "os.PathLike[str]"], weights: str = "int8", *,
                 n_threads: int = 0, shard_bytes: int = 0, progress: Optional[Progress] = None
                 ) -> Dict[str, Any]:
        """Writes a model folder in which the layers' matrices are quantised.

        Args:
            folder: new; it appears when it is whole.
            weights: ``"int8"``, ``"int4"`` or ``"fp8"``.
            shard_bytes: a file of weights ends before it is longer; 0: 5,000,000,000.

        Returns:
            "n_matrices", "n_files", "n_weights", "matrix_bytes", "bytes", and "error": the root of the
            sum of squared errors, as a share of the root of the sum of squares.
        """
        keeper, listener = Keeper(), Listener()
        listener.progress = progress
        options, result = sized("reel_quantize_options"), sized("reel_quantize_result")
        options.weights = keeper.text(weights, "weights")
        options.n_threads, options.shard_bytes = n_threads, shard_bytes
        options.progress, options.progress_user = on_progress, listener.handle
        err = ffi.new("struct reel_error *")
        with Using(self._core) as pointer:
            status = lib.reel_model_quantize(pointer, keeper.text(os.fspath(folder), "path"), options,
                                             result, err)
        listener.raise_caught()
        check(status, err)
        return {name: getattr(result, name) for name in
                ("n_matrices", "n_files", "n_weights", "matrix_bytes", "bytes", "error")}

    # ---- closing ----

    @property
    def closed(self) -> bool:
        return self._core.closed

    def close(self) -> None:
        """Closes its sessions and transcribers, cancelling what runs on them, and then the model."""
        self._pool.close()
        for child in list(self._core.children):
            child.close()
        self._core.close()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close()

    def __repr__(self) -> str:
        info = self.info
        closed = ", closed" if self.closed else ""
        return f"<reel.Model {info.name} ({info.family}, {info.backend} {info.backend_path}{closed})>"


class _Leased:
    """`with` a session of the pool that nobody else has meanwhile."""

    def __init__(self, pool: Pool, ids: "npt.NDArray[np.int32]") -> None:
        self.pool = pool
        self.ids = ids

    def __enter__(self) -> Session:
        self.session = self.pool.take(self.ids)
        return self.session

    def __exit__(self, *_: Any) -> None:
        self.pool.give_back(self.session)


def _opener(core: ModelCore, info: ModelInfo, context: int,
            draft: Optional[ModelCore]) -> Callable[[], Session]:
    """Opens sessions for the pool, which refers to the cores alone: a model that is dropped goes at once."""
    return lambda: Session(core, info, context, draft=draft)


def _cache(given: Any) -> Optional[str]:
    """The folder, made where it is not there; None where there is none: it is a convenience."""
    if given is False:
        return None
    if given is not None and given is not True:
        return str(os.fspath(given))
    folder = cache_folder()
    if folder is None:
        return None
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
    except OSError:
        return None
    return str(folder)


def _memory_files(files: Mapping[str, bytes], keeper: Keeper) -> Any:
    made = keeper.keep(ffi.new("struct reel_memory_file[]", len(files)))
    for i, (name, data) in enumerate(files.items()):
        made[i].name = keeper.text(name, "name")
        made[i].bytes = keeper.keep(ffi.from_buffer(data))
        made[i].n_bytes = len(data)
    return made


def _clock_ms() -> float:
    import time

    return time.monotonic() * 1e3
