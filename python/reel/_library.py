"""Finds libreel, opens it and calls it.

``_bindings`` is made from the C headers when the package is built (make_bindings.py). cffi gives
the interpreter's lock back during every call into the library.
"""
from __future__ import annotations

import ctypes.util
import logging
import os
import sys
from pathlib import Path
from typing import Any, Callable, List, Optional, Tuple

from ._errors import ReelError, error_of, set_statuses

try:
    from . import _bindings  # type: ignore[attr-defined, unused-ignore]
except ImportError as missing:
    raise ImportError(
        "reel._bindings is missing: it is made from the C headers when the package is built "
        "(in a source tree: make python)"
    ) from missing

ffi: Any = _bindings.ffi
#: The package's version.
VERSION: str = _bindings.VERSION
PACKAGE = Path(__file__).resolve().parent

logger = logging.getLogger("reel")


def _series(version: str) -> str:
    """What of a version programs depend on: before 1.0 the minor number, too."""
    parts = version.split(".")
    return ".".join(parts[:2]) if parts[0] == "0" else parts[0]


def _candidates() -> List[Tuple[str, str]]:
    """(path, where it was found), the first of which counts."""
    given = os.environ.get("REEL_LIBRARY")
    if given:
        return [(given, "REEL_LIBRARY")]
    name = f"libreel.so.{_series(VERSION)}"
    found = [(str(PACKAGE / "libreel.so"), "the package")] if (PACKAGE / "libreel.so").exists() else []
    return found + [(name, "the system")]


def _has(lib: Any, name: str) -> bool:
    try:
        getattr(lib, name)
    except (AttributeError, ffi.error):
        return False
    return True


def _open() -> Tuple[Any, str]:
    path, where = _candidates()[0]
    if "/" not in path and where != "REEL_LIBRARY":
        found = ctypes.util.find_library("reel") if sys.platform != "linux" else None
        path = found or path
    try:
        lib = ffi.dlopen(path)
    except OSError as error:
        raise ImportError(
            f"{path} (from {where}) cannot be loaded: {error}. REEL_LIBRARY names another file."
        ) from error
    try:
        version = ffi.string(lib.reel_version()).decode()
    except (AttributeError, ffi.error) as error:
        raise ImportError(f"{path} (from {where}) is no libreel: {error}") from error
    missing = [name for name in _bindings.FUNCTIONS if not _has(lib, name)]
    if _series(version) != _series(VERSION) or missing:
        lacks = f"; it lacks {', '.join(missing[:3])}" if missing else ""
        raise ImportError(
            f"{path} (from {where}) is libreel {version}, but this package was made for "
            f"{_series(VERSION)}{lacks}. REEL_LIBRARY names another file."
        )
    return lib, path


set_statuses(_bindings.STATUSES)
#: The file of the library that is in use.
lib, LIBRARY_PATH = _open()
#: That library's version.
LIBRARY_VERSION: str = ffi.string(lib.reel_version()).decode()
NULL: Any = ffi.NULL


def text_of(value: Any) -> str:
    """A C string as str; "" for NULL."""
    if value == NULL:
        return ""
    made: str = ffi.string(value).decode("utf-8", "replace")
    return made


def optional_text(value: Any) -> Optional[str]:
    """A C string as str; None for NULL."""
    return None if value == NULL else text_of(value)


def taken_text(value: Any) -> str:
    """A C string that the caller has to free."""
    try:
        return text_of(value)
    finally:
        lib.reel_free(value)


def sized(name: str) -> Any:
    """A zeroed struct with its size set."""
    made = ffi.new(f"struct {name} *")
    made.size = ffi.sizeof(f"struct {name}")
    return made


class Keeper:
    """Makes C values of Python's and keeps them alive as long as it lives."""

    def __init__(self) -> None:
        self.kept: List[Any] = []

    def text(self, value: Optional[str], what: str) -> Any:
        if value is None:
            return NULL
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if not isinstance(value, str):
            raise TypeError(f"{what}: a str is wanted, not {type(value).__name__}")
        data = value.encode("utf-8", "surrogateescape" if what == "path" else "strict")
        if b"\0" in data:
            raise error_of(lib.REEL_E_ARGUMENT, f"{what}: has a zero character in it")
        made = ffi.new("char[]", data)
        self.kept.append(made)
        return made

    def texts(self, values: List[str], what: str) -> Any:
        made = ffi.new("const char *[]", [self.text(value, what) for value in values])
        self.kept.append(made)
        return made

    def keep(self, value: Any) -> Any:
        self.kept.append(value)
        return value


def check(status: int, err: Any) -> None:
    """Raises what the library said."""
    if status != 0:
        raise error_of(status, ffi.string(err.text).decode("utf-8", "replace"))


def call(function: Any, *args: Any) -> None:
    """Calls what ends in a struct reel_error, and raises when it fails."""
    err = ffi.new("struct reel_error *")
    status = function(*args, err)
    if status != 0:
        check(status, err)


def refuse(text: str) -> ReelError:
    """An ArgumentError of this package's own."""
    return error_of(lib.REEL_E_ARGUMENT, text)


def wrong_state(text: str) -> ReelError:
    """A StateError of this package's own."""
    return error_of(lib.REEL_E_STATE, text)


class Listener:
    """Python functions that the library calls, and what they raised.

    One C callback serves all of a kind; `handle` says which Listener is meant. What a function raises
    ends the library's work, and `raise_caught` raises it again once that has returned.
    """

    def __init__(self) -> None:
        self.progress: Optional[Callable[[str, int, int], Optional[bool]]] = None
        self.on_text: Optional[Callable[[str, int], Optional[bool]]] = None
        self.on_partial: Optional[Callable[[str, int], Optional[bool]]] = None
        self.on_piece: Optional[Callable[[Any], None]] = None
        self.caught: Optional[BaseException] = None
        self.stopped = False  # set by another thread: the next call of any function ends the work
        self.handle: Any = ffi.new_handle(self)

    def catch(self, _type: Any, value: Any, _traceback: Any) -> bool:
        if self.caught is None:
            self.caught = value
        return False

    def raise_caught(self) -> None:
        caught, self.caught = self.caught, None
        if caught is not None:
            raise caught


def _catch(kind: Any, value: Any, traceback: Any) -> bool:
    """For what is raised between the library and a Listener's own try: the next call ends it."""
    frame = traceback.tb_frame.f_locals if traceback is not None else {}
    listener = frame.get("listener")
    if listener is None and "user" in frame:
        listener = ffi.from_handle(frame["user"])
    if listener is not None:
        return bool(listener.catch(kind, value, traceback))
    return False


@ffi.callback("bool(void *, const char *, uint64_t, uint64_t)", error=False, onerror=_catch)  # type: ignore[untyped-decorator, unused-ignore]
def on_progress(user: Any, stage: Any, done: int, total: int) -> bool:
    listener: Listener = ffi.from_handle(user)
    if listener.caught is not None or listener.stopped:
        return False
    if listener.progress is None:
        return True
    return listener.progress(text_of(stage), done, total) is not False


@ffi.callback("bool(void *, const char *, size_t, int)", error=False, onerror=_catch)  # type: ignore[untyped-decorator, unused-ignore]
def on_text(user: Any, text: Any, n_bytes: int, segment: int) -> bool:
    listener: Listener = ffi.from_handle(user)
    if listener.caught is not None or listener.stopped:
        return False
    if listener.on_text is None:
        return True
    return listener.on_text(ffi.unpack(text, n_bytes).decode("utf-8", "replace"), segment) is not False


@ffi.callback("bool(void *, const char *, size_t, int)", error=False, onerror=_catch)  # type: ignore[untyped-decorator, unused-ignore]
def on_partial(user: Any, text: Any, n_bytes: int, segment: int) -> bool:
    listener: Listener = ffi.from_handle(user)
    if listener.caught is not None or listener.stopped:
        return False
    if listener.on_partial is None:
        return True
    return listener.on_partial(ffi.unpack(text, n_bytes).decode("utf-8", "replace"), segment) is not False


@ffi.callback("bool(void *, const struct reel_answer_piece *)", error=False, onerror=_catch)  # type: ignore[untyped-decorator, unused-ignore]
def on_piece(user: Any, piece: Any) -> bool:
    listener: Listener = ffi.from_handle(user)
    if listener.on_piece is not None:
        listener.on_piece(piece)
    return True


@ffi.callback("void(void *, enum reel_log_level, const char *)")  # type: ignore[untyped-decorator, unused-ignore]
def on_log(_user: Any, level: int, text: Any) -> None:
    logger.log(logging.WARNING if level == lib.REEL_LOG_WARNING else logging.INFO, "%s",
               text_of(text))
