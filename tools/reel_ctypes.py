"""libreel.so from Python, for scripts that check or time it: the headers in include/ as far as they need them.

    import reel_ctypes as reel
    lib = reel.Library("build/release/libreel.so")
    with lib.open("models/demo", device="gpu") as model, model.session(256) as session:
        logits = session.eval([1, 2, 3], reel.ALL_LOGITS)     # float32 [3, vocab]
        ids = session.generate(100)
"""
import ctypes as c

import numpy as np

NO_OUTPUT, LAST_LOGITS, ALL_LOGITS, LAST_HIDDEN, ALL_HIDDEN = range(5)
STOPPED = ["running", "id", "string", "max_tokens", "context", "callback", "cancelled"]
UNSUPPORTED = 6


class Error(c.Structure):
    _fields_ = [("status", c.c_int), ("text", c.c_char * 500)]


PROGRESS = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.c_char_p, c.c_uint64, c.c_uint64)


class ModelOptions(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("device", c.c_char_p),
        ("cpu_path", c.c_char_p),
        ("n_threads", c.c_int),
        ("rounding", c.c_int),
        ("chat_template", c.c_char_p),
        ("cache_dir", c.c_char_p),
        ("progress", PROGRESS),
        ("progress_user", c.c_void_p),
        ("log", c.c_void_p),
        ("log_user", c.c_void_p),
        ("gpu_options", c.c_char_p),
        ("cuda_dir", c.c_char_p),
        ("nvrtc_dir", c.c_char_p),
        ("chat_template_from", c.c_char_p),
        ("prompt_slice", c.c_int),
        ("weights", c.c_char_p),
        ("kv", c.c_char_p),
    ]


class ModelInfo(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        *((name, c.c_char_p) for name in ("name", "family", "weight_type", "backend",
                                          "backend_path")),
        *((name, c.c_uint64) for name in ("n_parameters", "weight_bytes", "token_bytes",
                                          "kv_token_bytes")),
        *((name, c.c_int) for name in ("n_threads", "n_layers", "hidden", "n_heads", "n_kv_heads",
                                       "head_dim", "intermediate", "vocab", "max_context",
                                       "n_stop_ids")),
        ("stop_ids", c.c_void_p), ("chat_template", c.c_char_p),
        ("chat_template_sha256", c.c_char_p),
        *((name, c.c_double) for name in ("driver_ms", "compile_ms", "load_ms")),
    ]


class SessionOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("max_context", c.c_int), ("progress", PROGRESS),
                ("progress_user", c.c_void_p)]


class Eval(c.Structure):
    _fields_ = [("size", c.c_size_t), ("n", c.c_int), ("ids", c.c_void_p),
                ("embeddings", c.c_void_p), ("output", c.c_int), ("out", c.c_void_p),
                ("out_floats", c.c_size_t)]


class Embed(c.Structure):
    _fields_ = [("size", c.c_size_t), ("ids", c.c_void_p), ("lengths", c.c_void_p), ("n_texts", c.c_int),
                ("dimensions", c.c_int), ("no_normalise", c.c_bool), ("out", c.c_void_p),
                ("out_floats", c.c_size_t)]


class LogitBias(c.Structure):
    _fields_ = [("id", c.c_int32), ("bias", c.c_float)]


class Sampling(c.Structure):
    _fields_ = [("size", c.c_size_t), ("temperature", c.c_float), ("top_k", c.c_int),
                ("top_p", c.c_float), ("min_p", c.c_float), ("repetition_penalty", c.c_float),
                ("presence_penalty", c.c_float), ("frequency_penalty", c.c_float),
                ("seed", c.c_uint64), ("bias", c.POINTER(LogitBias)), ("n_bias", c.c_int)]


class Token(c.Structure):
    _fields_ = [("size", c.c_size_t), ("id", c.c_int32), ("logprob", c.c_float),
                ("text", c.c_char_p), ("text_bytes", c.c_size_t)]


TOKEN = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.POINTER(Token))


class Generation(c.Structure):
    _fields_ = [("size", c.c_size_t), ("sampling", c.POINTER(Sampling)), ("max_tokens", c.c_int),
                ("stop_ids", c.c_void_p), ("n_stop_ids", c.c_int), ("ignore_stop_ids", c.c_bool),
                ("stop_strings", c.c_void_p), ("n_stop_strings", c.c_int), ("logprobs", c.c_bool),
                ("n_top_logprobs", c.c_int), ("on_token", TOKEN), ("user", c.c_void_p),
                ("speculation", c.c_int), ("most_drafts", c.c_int)]


class GenerationResult(c.Structure):
    _fields_ = [("size", c.c_size_t), ("reason", c.c_int), ("n_tokens", c.c_int),
                ("stop_string", c.c_int), ("first_token_ms", c.c_double), ("total_ms", c.c_double),
                ("n_passes", c.c_int), ("n_drafted", c.c_int), ("n_accepted", c.c_int),
                ("unused", c.c_char * 4), ("draft_problem", c.c_char_p)]


TEXT = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.POINTER(c.c_char), c.c_size_t, c.c_int)


class TranscriberOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("language", c.c_char_p), ("context", c.c_char_p),
                ("segment_seconds", c.c_double), ("max_tokens", c.c_int), ("past_text", c.c_bool),
                ("on_text", TEXT), ("user", c.c_void_p), ("progress", PROGRESS),
                ("progress_user", c.c_void_p), ("skip_silence", c.c_bool),
                ("stream_seconds", c.c_double), ("on_partial", TEXT),
                ("pause_seconds", c.c_double)]


class Segment(c.Structure):
    _fields_ = [("size", c.c_size_t), ("start", c.c_double), ("end", c.c_double), ("text", c.c_char_p),
                ("language", c.c_char_p), ("ids", c.POINTER(c.c_int32)), ("n_ids", c.c_int),
                ("cut_short", c.c_bool)]


class Transcript(c.Structure):
    _fields_ = [("size", c.c_size_t), ("text", c.c_char_p), ("language", c.c_char_p),
                ("segments", c.c_void_p),
                *((name, c.c_int) for name in ("n_segments", "n_audio_tokens", "n_prompt_tokens",
                                               "n_tokens")),
                *((name, c.c_double) for name in ("seconds", "features_ms", "encoder_ms",
                                                  "prompt_ms", "generate_ms", "first_text_ms")),
                ("stream_steps", c.c_int), ("stream_worst_ms", c.c_double)]


class ReelError(Exception):
    """A call of the library that failed; `status` is its enum reel_status."""

    def __init__(self, status, text):
        super().__init__(f"{text} (status {status})")
        self.status = status


def sized(kind, **fields):
    value = kind(**fields)
    value.size = c.sizeof(kind)
    return value


def text_of(value):
    return value.encode() if isinstance(value, str) else value


class Library:
    def __init__(self, path):
        self.lib = c.CDLL(str(path))
        for name in ("reel_session_length", "reel_session_max_context"):
            getattr(self.lib, name).argtypes = [c.c_void_p]
        self.lib.reel_transcript_segment.restype = c.POINTER(Segment)
        self.lib.reel_session_ids.argtypes = [c.c_void_p]
        self.lib.reel_session_ids.restype = c.POINTER(c.c_int32)
        self.lib.reel_session_snapshot_bytes.argtypes = [c.c_void_p]
        self.lib.reel_session_snapshot_bytes.restype = c.c_size_t

    def call(self, name, *args):
        err = Error()
        status = getattr(self.lib, name)(*args, c.byref(err))
        if status != 0:
            raise ReelError(status, err.text.decode(errors="replace"))

    def open(self, path, **options):
        return Model(self, path, options)


class Handle:
    """Closed by `with` or close()."""

    closer = None

    def close(self):
        if self.handle:
            getattr(self.library.lib, self.closer)(self.handle)
            self.handle = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Model(Handle):
    """options: device, cpu_path, n_threads, cache_dir, gpu_options, cuda_dir, nvrtc_dir, weights, kv."""

    closer = "reel_model_close"

    def __init__(self, library, path, options):
        self.library, self.handle = library, c.c_void_p()
        fields = {k: text_of(v) for k, v in options.items() if v is not None}
        library.call("reel_model_open", c.byref(self.handle), text_of(str(path)),
                     c.byref(sized(ModelOptions, **fields)))
        self.info = sized(ModelInfo)
        library.call("reel_model_get_info", self.handle, c.byref(self.info))
        self.vocab, self.hidden = self.info.vocab, self.info.hidden
        self.backend = self.info.backend.decode()
        self.path = self.info.backend_path.decode()

    def session(self, max_context=0):
        return Session(self, max_context)

    def transcriber(self, on_text=None, **options):
        return Transcriber(self, on_text, options)


class Session(Handle):
    closer = "reel_session_close"

    def __init__(self, model, max_context):
        self.model, self.library, self.handle = model, model.library, c.c_void_p()
        options = sized(SessionOptions, max_context=max_context)
        self.library.call("reel_session_open", c.byref(self.handle), model.handle,
                          c.byref(options))

    def __len__(self):
        return self.library.lib.reel_session_length(self.handle)

    @property
    def max_context(self):
        return self.library.lib.reel_session_max_context(self.handle)

    @property
    def ids(self):
        return self.library.lib.reel_session_ids(self.handle)[: len(self)]

    def sync(self, ids):
        """Returns how many positions needed no evaluation."""
        array, reused = np.ascontiguousarray(ids, np.int32), c.c_int()
        self.library.call("reel_session_sync", self.handle, c.c_void_p(array.ctypes.data),
                          len(array), c.byref(reused))
        return reused.value

    def eval(self, ids, output=NO_OUTPUT, embeddings=None):
        """What `output` names, float32: [vocab], [n, vocab], [hidden] or [n, hidden]; or None."""
        given = (np.ascontiguousarray(ids, np.int32) if embeddings is None
                 else np.ascontiguousarray(embeddings, np.float32))
        n = len(given)
        width = self.model.vocab if output in (LAST_LOGITS, ALL_LOGITS) else self.model.hidden
        rows = n if output in (ALL_LOGITS, ALL_HIDDEN) else 1
        out = np.full((rows, width), np.nan, np.float32) if output else None
        request = sized(Eval, n=n, output=output)
        if embeddings is None:
            request.ids = given.ctypes.data
        else:
            request.embeddings = given.ctypes.data
        if output:
            request.out, request.out_floats = out.ctypes.data, out.size
        self.library.call("reel_session_eval", self.handle, c.byref(request))
        return out[0] if output in (LAST_LOGITS, LAST_HIDDEN) else out

    def embed(self, texts, no_normalise=False):
        """float32 [len(texts), hidden] for lists of ids."""
        ids = np.concatenate([np.asarray(text, np.int32) for text in texts])
        lengths = np.array([len(text) for text in texts], np.int32)
        out = np.full((len(texts), self.model.hidden), np.nan, np.float32)
        request = sized(Embed, ids=ids.ctypes.data, lengths=lengths.ctypes.data, n_texts=len(texts),
                        no_normalise=no_normalise, out=out.ctypes.data, out_floats=out.size)
        self.library.call("reel_session_embed", self.handle, c.byref(request))
        return out

    def truncate(self, n):
        self.library.call("reel_session_truncate", self.handle, n)

    def copy_from(self, other):
        self.library.call("reel_session_copy", self.handle, other.handle)

    def snapshot(self):
        n = self.library.lib.reel_session_snapshot_bytes(self.handle)
        out = np.empty(n, np.uint8)
        self.library.call("reel_session_snapshot", self.handle, c.c_void_p(out.ctypes.data),
                          c.c_size_t(n))
        return out

    def restore(self, bytes_):
        self.library.call("reel_session_restore", self.handle, c.c_void_p(bytes_.ctypes.data),
                          c.c_size_t(len(bytes_)))

    def cancel(self):
        self.library.lib.reel_session_cancel(self.handle)

    def generate(self, max_tokens, on_id=None, stop_ids=(), logprobs=False, result=None, bias=(),
                 speculation=0, **sampling):
        """Ids made; the model's own stop ids are ignored. on_id(id) returning False stops. Names of
        struct reel_sampling are passed on; `result`, a list, receives the reason, then how many guesses were right."""
        ids, stops = [], np.ascontiguousarray(stop_ids, np.int32)

        def take(_, token):
            ids.append(token.contents.id)
            return on_id is None or bool(on_id(ids[-1]))

        settings = sized(Sampling, **sampling)
        if len(bias):
            settings.bias, settings.n_bias = (LogitBias * len(bias))(*bias), len(bias)
        request = sized(Generation, sampling=c.pointer(settings), max_tokens=max_tokens,
                        ignore_stop_ids=len(stops) == 0, logprobs=logprobs, on_token=TOKEN(take),
                        speculation=speculation)
        if len(stops):
            request.stop_ids, request.n_stop_ids = stops.ctypes.data, len(stops)
        done = sized(GenerationResult)
        self.library.call("reel_generate", self.handle, c.byref(request), c.byref(done))
        if result is not None:
            result += [STOPPED[done.reason], done.n_accepted]
        return ids


class Heard:
    """A transcript's figures, under the names of struct reel_transcript, and copies of its texts."""

    def __init__(self, lib, made):
        for name, kind in Transcript._fields_:
            if kind in (c.c_int, c.c_double):
                setattr(self, name, getattr(made, name))
        self.text, self.language = made.text.decode(), made.language.decode()
        parts = [lib.reel_transcript_segment(c.byref(made), i).contents
                 for i in range(made.n_segments)]
        self.ids = [part.ids[: part.n_ids] for part in parts]
        self.times = [(part.start, part.end) for part in parts]


class Transcriber(Handle):
    """options: language, context, segment_seconds, max_tokens, past_text, skip_silence,
    stream_seconds, pause_seconds. on_text(text, segment), and on_partial likewise; returning False stops."""

    closer = "reel_transcriber_close"

    def __init__(self, model, on_text, options):
        self.library, self.handle = model.library, c.c_void_p()
        calls = {"on_text": on_text, "on_partial": options.pop("on_partial", None)}
        fields = {k: text_of(v) for k, v in options.items() if v is not None}
        self.kept = {name: self.taker(call) for name, call in calls.items() if call}
        fields.update(self.kept)
        self.library.call("reel_transcriber_open", c.byref(self.handle), model.handle,
                          c.byref(sized(TranscriberOptions, **fields)))

    @staticmethod
    def taker(call):
        return TEXT(lambda _, text, n, segment: call(text[:n].decode(), segment) is not False)

    def push(self, samples):
        """float32 at 16,000 Hz."""
        array = np.ascontiguousarray(samples, np.float32)
        self.library.call("reel_transcriber_push", self.handle, c.c_void_p(array.ctypes.data),
                          c.c_size_t(len(array)))

    def finish(self):
        made = sized(Transcript)
        self.library.call("reel_transcriber_finish", self.handle, c.byref(made))
        return Heard(self.library.lib, made)

    def hear(self, samples):
        self.push(samples)
        return self.finish()
