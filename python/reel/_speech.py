"""Speech to text: recordings in memory, files, and streams while they are spoken."""
from __future__ import annotations

import asyncio
import json
import os
import weakref
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import (Any, AsyncIterable, AsyncIterator, Callable, Dict, Iterable, Iterator, List,
                    NamedTuple, Optional, Tuple, Type, Union)

import numpy as np
import numpy.typing as npt

from ._handles import Handle, close_at_exit
from ._library import (NULL, Keeper, Listener, call, check, ffi, lib, on_partial, on_progress, on_text,
                       optional_text, refuse, sized, taken_text, text_of, wrong_state)
from ._model import Model
from ._session import Progress, floats_pointer

Samples = "npt.ArrayLike"
Path = Union[str, "os.PathLike[str]"]
TextFunction = Callable[[str, int], Optional[bool]]

#: Samples a second that speech models hear.
AUDIO_RATE = int(lib.REEL_AUDIO_RATE)
#: Rates that `Transcriber.push` takes.
RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
_FULL_SCALE = {np.dtype(np.int8): 2.0**7, np.dtype(np.int16): 2.0**15, np.dtype(np.int32): 2.0**31}


def samples_of(audio: Any) -> "npt.NDArray[np.float32]":
    """float32 [n], mono, full scale 1, of an array [n] or [n, channels] of floats or whole numbers."""
    array = np.asarray(audio)
    if array.ndim not in (1, 2) or (array.ndim == 2 and not 1 <= array.shape[1] <= 64):
        raise refuse(f"audio: an array [n] or [n, channels] is wanted, not {list(array.shape)}")
    if array.dtype in _FULL_SCALE:
        array = array.astype(np.float32) / np.float32(_FULL_SCALE[array.dtype])
    elif array.dtype == np.uint8:
        array = (array.astype(np.float32) - 128) / 128
    elif array.size == 0:
        array = array.astype(np.float32)
    elif not np.issubdtype(array.dtype, np.floating):
        raise refuse(f"audio: samples of {array.dtype}; floats, int8, int16, int32 and uint8 are taken")
    if array.ndim == 2:
        array = array.mean(axis=1)
    return np.ascontiguousarray(array, np.float32)


class Resampler:
    """Samples of another rate to 16,000 Hz as they come: `run` a chunk, `finish` at the end."""

    def __init__(self, rate: int) -> None:
        out = ffi.new("struct reel_resampler **")
        call(lib.reel_resampler_open, out, rate)
        self.rate = rate
        self._pointer = ffi.gc(out[0], lib.reel_resampler_close)

    def run(self, samples: Any) -> "npt.NDArray[np.float32]":
        """float32 [m] at 16,000 Hz of the next samples [n]."""
        return self._through(samples_of(samples))

    def finish(self) -> "npt.NDArray[np.float32]":
        """The last samples; the resampler ends."""
        made = self._through(None)
        ffi.release(self._pointer)
        self._pointer = None
        return made

    def _through(self, samples: "Optional[npt.NDArray[np.float32]]") -> "npt.NDArray[np.float32]":
        if self._pointer is None:
            raise wrong_state("the resampler has finished")
        n = 0 if samples is None else len(samples)
        out = np.empty(max(4096, int(n * AUDIO_RATE / self.rate) + 64), np.float32)
        parts: List["npt.NDArray[np.float32]"] = []
        taken, given, done = ffi.new("size_t *"), ffi.new("size_t *"), 0
        while samples is None or done < n:
            source = NULL if samples is None else floats_pointer(samples[done:])
            call(lib.reel_resampler_run, self._pointer, source, n - done, taken, floats_pointer(out),
                 out.size, given)
            done += taken[0]
            if given[0]:
                parts.append(out[: given[0]].copy())
            elif samples is None or taken[0] == 0:
                break
        return np.concatenate(parts) if parts else np.empty(0, np.float32)


class Audio:
    """A recording in a file, read in pieces as speech models hear it: mono float32 at 16,000 Hz.

    Args:
        source: a path of a WAV file, or of any file that libsndfile reads where that is installed; or
            the bytes of such a file.
        encoding: None: the file says what it is; ``"s16le"``, ``"s24le"``, ``"s32le"``, ``"f32le"``: raw
            samples without a header.
        rate, channels: of raw samples; 0: 16000 and 1.
        most_seconds: a longer recording is refused with `LimitError`; 0: no limit.
    """

    _ENCODINGS = {None: lib.REEL_AUDIO_FILE, "s16le": lib.REEL_AUDIO_S16LE,
                  "s24le": lib.REEL_AUDIO_S24LE, "s32le": lib.REEL_AUDIO_S32LE,
                  "f32le": lib.REEL_AUDIO_F32LE}

    def __init__(self, source: Union[Path, bytes, bytearray, memoryview], *, encoding: Optional[str] = None, rate: int = 0,
                 channels: int = 0, most_seconds: float = 0) -> None:
        if encoding not in self._ENCODINGS:
            raise refuse(f"encoding: {encoding!r}; there are s16le, s24le, s32le, f32le and None")
        keeper = Keeper()
        options = sized("reel_audio_options")
        options.encoding = self._ENCODINGS[encoding]
        options.rate, options.channels, options.most_seconds = rate, channels, most_seconds
        out = ffi.new("struct reel_audio **")
        self._kept: Any = None
        if isinstance(source, (bytes, bytearray, memoryview)):
            self._kept = ffi.from_buffer(source)
            call(lib.reel_audio_open_memory, out, keeper.text("audio", "name"), self._kept,
                 len(self._kept), options)
        else:
            call(lib.reel_audio_open, out, keeper.text(os.fspath(source), "path"), options)
        self._pointer = ffi.gc(out[0], lib.reel_audio_close)

    @property
    def seconds(self) -> Optional[float]:
        """Of the whole recording; None where its header does not say."""
        seconds = float(lib.reel_audio_seconds(self._open()))
        return None if seconds < 0 else seconds

    @property
    def warning(self) -> Optional[str]:
        """What was wrong with the file and did not stop it, or None."""
        return optional_text(lib.reel_audio_warning(self._open()))

    def read(self, n: int = 16000) -> "npt.NDArray[np.float32]":
        """float32 [up to n]; none at the end alone."""
        out, got = np.empty(max(n, 1), np.float32), ffi.new("size_t *")
        call(lib.reel_audio_read, self._open(), floats_pointer(out), out.size, got)
        return out[: got[0]]

    def __iter__(self) -> Iterator["npt.NDArray[np.float32]"]:
        while len(piece := self.read()):
            yield piece

    def _open(self) -> Any:
        if self._pointer is None:
            raise wrong_state("the recording is closed")
        return self._pointer

    def close(self) -> None:
        pointer, self._pointer = self._pointer, None
        if pointer is not None:
            ffi.release(pointer)

    def __enter__(self) -> "Audio":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def load_audio(source: Union[Path, bytes, bytearray, memoryview], **options: Any) -> "npt.NDArray[np.float32]":
    """float32 [n] at 16,000 Hz: a whole file; the options are those of `Audio`."""
    with Audio(source, **options) as audio:
        parts = list(audio)
    return np.concatenate(parts) if parts else np.empty(0, np.float32)


class Segment(NamedTuple):
    """A part of a recording, cut in pauses.

    Attributes:
        start, end: seconds, of the cuts: words begin later and end earlier.
        text: without white space around it; may be "".
        language: "English"; "": unknown, or nothing was said.
        ids: as generated, with language tag and stop id.
        cut_short: `max_tokens` ended it.
    """

    start: float
    end: float
    text: str
    language: str
    ids: Tuple[int, ...]
    cut_short: bool


class Transcript(NamedTuple):
    """What was said in a recording.

    Attributes:
        text: of all segments.
        language: those of the segments, joined by commas.
        seconds: of audio.
        n_audio_tokens, n_prompt_tokens, n_tokens: of all answers: vectors of audio, ids read, generated.
        features_ms, encoder_ms, prompt_ms, generate_ms: where the time went.
        first_text_ms: from the end of the audio that the first text was made of; 0: no text came.
        stream_steps: answers; 0 without `stream_seconds`.
        stream_worst_ms: the slowest, from when its audio was there to its text.
    """

    text: str
    language: str
    segments: Tuple[Segment, ...]
    seconds: float
    n_audio_tokens: int
    n_prompt_tokens: int
    n_tokens: int
    features_ms: float
    encoder_ms: float
    prompt_ms: float
    generate_ms: float
    first_text_ms: float
    stream_steps: int
    stream_worst_ms: float

    def srt(self) -> str:
        """As SubRip subtitles."""
        return self._written(lib.REEL_TRANSCRIPT_SRT)

    def vtt(self) -> str:
        """As WebVTT subtitles."""
        return self._written(lib.REEL_TRANSCRIPT_VTT)

    def json(self, verbose: bool = True) -> str:
        """As OpenAI's JSON: {"text"}, or with task, language, duration and segments."""
        return self._written(lib.REEL_TRANSCRIPT_VERBOSE_JSON if verbose else lib.REEL_TRANSCRIPT_JSON)

    def dict(self) -> Dict[str, Any]:
        """What `json` writes, as a dict."""
        made: Dict[str, Any] = json.loads(self.json())
        return made

    def _written(self, form: int) -> str:
        keeper, c = Keeper(), sized("reel_transcript")
        listed = keeper.keep(ffi.new("struct reel_segment[]", len(self.segments)))
        for i, one in enumerate(self.segments):
            made = listed[i]
            made.size = ffi.sizeof("struct reel_segment")
            made.start, made.end, made.cut_short = one.start, one.end, one.cut_short
            made.text = keeper.text(one.text, "text")
            made.language = keeper.text(one.language, "language")
            made.ids = keeper.keep(ffi.new("int32_t[]", list(one.ids)))
            made.n_ids = len(one.ids)
        c.text, c.language = keeper.text(self.text, "text"), keeper.text(self.language, "language")
        c.segments, c.n_segments = listed, len(self.segments)
        for name in _FIGURES:
            setattr(c, name, getattr(self, name))
        out, n = ffi.new("char **"), ffi.new("size_t *")
        call(lib.reel_transcript_text, c, form, out, n)
        return taken_text(out[0])


_FIGURES = Transcript._fields[3:]


def _transcript(c: Any) -> Transcript:
    segments = []
    for i in range(c.n_segments):
        one = lib.reel_transcript_segment(c, i)
        segments.append(Segment(one.start, one.end, text_of(one.text), text_of(one.language),
                                tuple(ffi.unpack(one.ids, one.n_ids)) if one.n_ids else (),
                                bool(one.cut_short)))
    figures = [getattr(c, name) for name in _FIGURES]
    return Transcript(text_of(c.text), text_of(c.language), tuple(segments), *figures)


class Heard(NamedTuple):
    """What a chunk of a stream made of a recording.

    Attributes:
        text: new text that nothing changes any more; all of a recording's, joined, is its transcript's.
        partial: what the model takes the rest for so far; stands behind the text, and each takes the
            place of the one before.
        segment: counted from 0.
    """

    text: str
    partial: str
    segment: int


class Transcriber:
    """One recording after the other through a speech model; one thread at a time.

    Args:
        model: a `Model` that hears, or the name of one, which is then opened and closed with it.
        language: a name or code, "English" or "en"; None: the model finds out, for each segment.
        context: names and words to expect, or what is spoken about.
        segment_seconds: 1 to 1200; 0: 30. Without a pause a segment is cut about there.
        max_tokens: of a segment's answer; 0: 8 a second, at least 512, at most 4096.
        past_text: the end of the text so far is context of the next segment.
        skip_silence: what is little louder than the noise is silence, too.
        stream_seconds: 0.5 to 10: how often a segment is answered while it is spoken; 0: when it ends.
        pause_seconds: 0.3 to 10: a pause that ends a segment of any length; 0: 2.
        on_text, on_partial: called with (text, segment) as `Heard` says; returning False ends the call
            with `Cancelled`.
        progress: called with ("transcribing", milliseconds of audio, 0).
        options: of `Model`, where `model` is a name.
    """

    def __init__(self, model: Union[Model, Path], *, language: Optional[str] = None,
                 context: Optional[str] = None, segment_seconds: float = 0, max_tokens: int = 0,
                 past_text: bool = False, skip_silence: bool = False, stream_seconds: float = 0,
                 pause_seconds: float = 0, on_text: Optional[TextFunction] = None,
                 on_partial: Optional[TextFunction] = None, progress: Optional[Progress] = None,
                 **options: Any) -> None:
        self._own = None if isinstance(model, Model) else Model(model, **options)
        if self._own is None and options:
            raise TypeError(f"{sorted(options)[0]}: an option of a model that is opened here, and this "
                            "one is open already")
        try:
            self._open(self._own or model, language, context, segment_seconds, max_tokens, past_text,
                       skip_silence, stream_seconds, pause_seconds, on_text, on_partial, progress)
        except BaseException:
            if self._own is not None:
                self._own.close()
            raise

    def _open(self, model: Any, language: Optional[str], context: Optional[str], segment_seconds: float,
              max_tokens: int, past_text: bool, skip_silence: bool, stream_seconds: float,
              pause_seconds: float, user_text: Optional[TextFunction],
              user_partial: Optional[TextFunction], progress: Optional[Progress]) -> None:
        #: What its model is: a `ModelInfo`.
        self.info = model.info
        core = model._core
        listener, keeper = Listener(), Keeper()
        self._news = _News(user_text, user_partial)
        listener.on_text, listener.on_partial = self._news.take_text, self._news.take_partial
        listener.progress = progress
        c = keeper.keep(sized("reel_transcriber_options"))
        c.language = keeper.text(language, "language")
        c.context = keeper.text(context, "context")
        c.segment_seconds, c.max_tokens, c.past_text = segment_seconds, max_tokens, past_text
        c.skip_silence, c.stream_seconds, c.pause_seconds = skip_silence, stream_seconds, pause_seconds
        c.on_text, c.user = on_text, listener.handle
        if stream_seconds:
            c.on_partial = on_partial
        c.progress, c.progress_user = on_progress, listener.handle
        handle = Handle("transcriber", core, lib.reel_transcriber_close, listener)
        out = ffi.new("struct reel_transcriber **")
        pointer = core.enter(handle)
        try:
            call(lib.reel_transcriber_open, out, pointer, c)
        except BaseException:
            core.leave(handle)
            raise
        handle.pointer = out[0]
        self._handle = handle
        self._kept = keeper
        self._finalizer = weakref.finalize(self, close_at_exit, handle)
        self._resampler: Optional[Resampler] = None
        self._rate = 0
        self._thread: Optional[ThreadPoolExecutor] = None
        core.children.add(self)

    # ---- a live recording ----

    @property
    def text(self) -> str:
        """The text so far of the recording that goes on; nothing changes it any more."""
        return "".join(self._news.all)

    @property
    def partial(self) -> str:
        """What the model takes the rest for so far; only with `stream_seconds`."""
        return self._news.partial

    def push(self, samples: Any, rate: int = AUDIO_RATE) -> Heard:
        """The next samples of a recording; transcribes what is complete.

        Args:
            samples: [n] or [n, channels]: floats of full scale 1, int8, int16, int32 or uint8.
            rate: of them, one of `RATES`; the same for all of a recording.
        """
        array = samples_of(samples)
        if self._rate not in (0, rate):
            raise refuse(f"rate: {rate}; this recording began with {self._rate}")
        if rate != AUDIO_RATE and self._resampler is None:
            self._resampler = Resampler(rate)
        self._rate = rate
        if self._resampler is not None:
            array = self._resampler.run(array)
        return self._push(array)

    def _push(self, array: "npt.NDArray[np.float32]") -> Heard:
        if len(array):
            self._run(lib.reel_transcriber_push, floats_pointer(array), len(array))
        return self._news.told()

    def finish(self) -> Transcript:
        """The recording ends. The next push begins another."""
        if self._resampler is not None:
            resampler, self._resampler = self._resampler, None
            self._push(resampler.finish())
        self._rate = 0
        c = sized("reel_transcript")
        made: List[Transcript] = []
        self._run(lib.reel_transcriber_finish, c, after=lambda: made.append(_transcript(c)))
        self._news.clear()
        return made[0]

    def so_far(self) -> Transcript:
        """The segments that are whole so far, also after a failure."""
        c = sized("reel_transcript")
        made: List[Transcript] = []
        self._run(lib.reel_transcriber_so_far, c, after=lambda: made.append(_transcript(c)))
        return made[0]

    def reset(self) -> None:
        """Forgets the recording; the next push begins another. Needed after a failure."""
        with self._handle as pointer:
            lib.reel_transcriber_reset(pointer)
        self._resampler, self._rate = None, 0
        self._news.clear()

    def stream(self, chunks: Iterable[Any], rate: int = AUDIO_RATE) -> Iterator[Heard]:
        """Pushes chunks as they come, and yields what they made where they made something. The
        recording ends with them; the last `Heard` holds the rest of the text."""
        for chunk in chunks:
            heard = self.push(chunk, rate)
            if heard.text or heard.partial != self._news.last_partial:
                self._news.last_partial = heard.partial
                yield heard
        said = self.text
        whole = self.finish().text
        yield Heard(whole[len(said):], "", self._news.segment)

    # ---- whole recordings ----

    def transcribe(self, audio: Any, rate: int = AUDIO_RATE, **options: Any) -> Transcript:
        """A whole recording: an array with its rate, a path, or a file's bytes.

        options: those of `Audio`, for a path or bytes.
        """
        self.reset()
        try:
            if isinstance(audio, (str, os.PathLike, bytes, bytearray, memoryview)):
                with Audio(audio, **options) as source:
                    for piece in source:
                        self._push(piece)
            else:
                if options:
                    raise TypeError(f"{sorted(options)[0]}: an option of files, and this is an array")
                self.push(audio, rate)
            return self.finish()
        except BaseException:
            if not self.closed:
                self.reset()
            raise

    # ---- asyncio ----

    async def apush(self, samples: Any, rate: int = AUDIO_RATE) -> Heard:
        """As `push`, in this transcriber's own thread. Cancelling it ends the recording."""
        heard: Heard = await self._apart(self.push, samples, rate)
        return heard

    async def afinish(self) -> Transcript:
        """As `finish`, in this transcriber's own thread."""
        made: Transcript = await self._apart(self.finish)
        return made

    async def atranscribe(self, audio: Any, rate: int = AUDIO_RATE, **options: Any) -> Transcript:
        """As `transcribe`, in this transcriber's own thread."""
        made: Transcript = await self._apart(lambda: self.transcribe(audio, rate, **options))
        return made

    async def astream(self, chunks: AsyncIterable[Any], rate: int = AUDIO_RATE) -> AsyncIterator[Heard]:
        """As `stream`, of chunks that come asynchronously."""
        async for chunk in chunks:
            heard = await self.apush(chunk, rate)
            if heard.text or heard.partial != self._news.last_partial:
                self._news.last_partial = heard.partial
                yield heard
        said = self.text
        whole = (await self.afinish()).text
        yield Heard(whole[len(said):], "", self._news.segment)

    async def _apart(self, function: Callable[..., Any], *args: Any) -> Any:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "reel-transcriber")
        working = asyncio.get_running_loop().run_in_executor(self._thread, function, *args)
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            self._handle.listener.stopped = True  # the next report of progress ends the call
            await asyncio.wait([working])
            working.exception()  # that it was cancelled is known
            if not self.closed:
                self.reset()
            raise

    # ---- closing ----

    def _run(self, function: Any, *args: Any, after: Optional[Callable[[], None]] = None) -> None:
        err = ffi.new("struct reel_error *")
        with self._handle as pointer:
            listener = self._handle.listener
            listener.caught, listener.stopped = None, False
            status = function(pointer, *args, err)
            listener.raise_caught()
            check(status, err)
            if after is not None:
                after()

    @property
    def closed(self) -> bool:
        return self._handle.pointer is None

    def close(self) -> None:
        """Closes it, and the model where it was opened by name; ends what another thread has running."""
        self._handle.close(self._finalizer, cancel=False)
        if self._thread is not None:
            self._thread.shutdown(wait=False)
        own, self._own = self._own, None
        if own is not None:
            own.close()  # which closes its children, of which this is one

    def __enter__(self) -> "Transcriber":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close()


class _News:
    """What came since the last push. It refers to no transcriber, so that one can be dropped."""

    def __init__(self, user_text: Optional[TextFunction], user_partial: Optional[TextFunction]) -> None:
        self.user_text, self.user_partial = user_text, user_partial
        self.clear()

    def clear(self) -> None:
        self.all: List[str] = []
        self.new: List[str] = []
        self.partial = self.last_partial = ""
        self.segment = 0

    def take_text(self, text: str, segment: int) -> Optional[bool]:
        self.all.append(text)
        self.new.append(text)
        self.segment = segment
        return self.user_text(text, segment) if self.user_text is not None else None

    def take_partial(self, text: str, segment: int) -> Optional[bool]:
        self.partial, self.segment = text, segment
        return self.user_partial(text, segment) if self.user_partial is not None else None

    def told(self) -> Heard:
        text, self.new = "".join(self.new), []
        return Heard(text, self.partial, self.segment)


def transcribe(audio: Any, model: Union[Model, Path] = "Qwen/Qwen3-ASR-0.6B", rate: int = AUDIO_RATE,
               **options: Any) -> Transcript:
    """One recording through a model that is opened for it; the options are those of `Transcriber`."""
    with Transcriber(model, **options) as transcriber:
        return transcriber.transcribe(audio, rate)
