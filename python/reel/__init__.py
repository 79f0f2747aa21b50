"""reel: small language and speech models at the lowest latency one machine allows.

    import reel

    with reel.Model("Qwen/Qwen3-0.6B", pull=True) as model:
        for piece in model.chat("What is the capital of France?"):
            print(piece.content, end="", flush=True)

`Model` answers, continues, embeds and ranks; `Session` is one timeline of tokens; `Transcriber` turns
speech to text. docs/PYTHON.md goes the whole way.
"""
from ._chat import Answer, ChatPiece, ChatStream, ToolCall, ToolCallDelta
from ._errors import (ArgumentError, Cancelled, ContextFullError, DeviceError, FormatError,
                      InputOutputError, LimitError, MismatchError, NetworkError, NotFoundError,
                      OutOfMemoryError, ReelError, StateError, UnsupportedError)
from ._generation import Generation, GenerationOptions, Token, TopLogprob, Usage
from ._library import LIBRARY_PATH as library_path
from ._library import LIBRARY_VERSION as library_version
from ._library import VERSION as __version__
from ._machine import devices, inspect, plan, quantize, synthesize
from ._model import EmbedInfo, LogLikelihood, Model, ModelInfo, Ranked
from ._names import find_model
from ._session import Session
from ._speech import (AUDIO_RATE, RATES, Audio, Heard, Resampler, Segment, Transcriber, Transcript,
                      load_audio, transcribe)
from ._tokenizer import Tokenizer

__all__ = [
    "AUDIO_RATE", "Answer", "ArgumentError", "Audio", "Cancelled", "ChatPiece", "ChatStream",
    "ContextFullError", "DeviceError", "EmbedInfo", "FormatError", "Generation", "GenerationOptions",
    "Heard", "InputOutputError", "LimitError", "LogLikelihood", "MismatchError", "Model", "ModelInfo",
    "NetworkError", "NotFoundError", "OutOfMemoryError", "RATES", "Ranked", "ReelError", "Resampler",
    "Segment", "Session", "StateError", "Token", "Tokenizer", "ToolCall", "ToolCallDelta", "TopLogprob",
    "Transcriber", "Transcript", "UnsupportedError", "Usage", "__version__", "devices", "find_model",
    "inspect", "library_path", "library_version", "load_audio", "plan", "quantize", "synthesize",
    "transcribe",
]
