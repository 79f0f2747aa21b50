"""Exceptions: one class for each status of the library."""
from __future__ import annotations

from typing import Any, Dict, Type


class ReelError(Exception):
    """A call of the library that failed. Its text is one line that names what was found.

    Attributes:
        status: the number of ``enum reel_status``; 0 never occurs.
        status_name: its name, such as ``"REEL_E_FORMAT"``.
    """

    status: int = -1
    status_name: str = "REEL_E"


class MismatchError(ReelError):
    """A check ran and did not hold."""


class ArgumentError(ReelError, ValueError):
    """An argument is outside what is allowed."""


class NotFoundError(ReelError, FileNotFoundError):
    """A file, model or name does not exist."""


class InputOutputError(ReelError, OSError):
    """Reading or writing failed."""


class FormatError(ReelError, ValueError):
    """A file breaks the rules of its format."""


class UnsupportedError(ReelError, NotImplementedError):
    """Well-formed, but not something reel runs."""


class LimitError(ReelError, ValueError):
    """Larger than a stated limit."""


class OutOfMemoryError(ReelError, MemoryError):
    """There is not enough memory."""


class ContextFullError(ReelError, ValueError):
    """The session's context is full, or too small for a prompt."""


class StateError(ReelError, RuntimeError):
    """The call is not allowed now: something is closed, or in use by another thread."""


class DeviceError(ReelError, RuntimeError):
    """The device or its driver failed."""


class NetworkError(ReelError, ConnectionError):
    """A download failed."""


class Cancelled(ReelError):
    """Ended by ``cancel()`` or by a callback that returned False."""


_CLASSES: Dict[str, Type[ReelError]] = {
    "REEL_E_MISMATCH": MismatchError,
    "REEL_E_ARGUMENT": ArgumentError,
    "REEL_E_NOT_FOUND": NotFoundError,
    "REEL_E_IO": InputOutputError,
    "REEL_E_FORMAT": FormatError,
    "REEL_E_UNSUPPORTED": UnsupportedError,
    "REEL_E_LIMIT": LimitError,
    "REEL_E_MEMORY": OutOfMemoryError,
    "REEL_E_CONTEXT": ContextFullError,
    "REEL_E_STATE": StateError,
    "REEL_E_DEVICE": DeviceError,
    "REEL_E_NETWORK": NetworkError,
    "REEL_E_CANCELLED": Cancelled,
}
_BY_STATUS: Dict[int, Type[ReelError]] = {}


def set_statuses(statuses: Any) -> None:
    """Gives each class its number, from the headers' list of (name, value, meaning)."""
    for name, value, _ in statuses:
        found = _CLASSES.get(name)
        if found is not None:
            found.status, found.status_name = value, name
            _BY_STATUS[value] = found


def error_of(status: int, text: str) -> ReelError:
    """The exception for a status; a number that this package does not know makes a ReelError."""
    found = _BY_STATUS.get(status)
    if found is not None:
        return found(text)
    made = ReelError(text)
    made.status, made.status_name = status, f"status {status}"
    return made
