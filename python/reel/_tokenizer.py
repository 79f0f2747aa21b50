"""Text to token ids and back."""
from __future__ import annotations

import os
from typing import Any, List, Optional, Sequence, Union

from ._handles import ModelCore, Using
from ._library import NULL, Keeper, call, ffi, lib, refuse
from ._names import cache_folder, find_model


class Tokenizer:
    """A tokenizer: a model's own (`Model.tokenizer`), or ``Tokenizer("OWNER/NAME")`` without weights.

    Any number of threads may use it.
    """

    def __init__(self, name: Union[str, "os.PathLike[str]"], *, pull: bool = False) -> None:
        keeper = Keeper()
        cache = cache_folder()
        out = ffi.new("struct reel_tokenizer **")
        path = find_model(name, pull)
        call(lib.reel_tokenizer_open, out, keeper.text(path, "path"),
             keeper.text(str(cache), "path") if cache is not None and cache.is_dir() else NULL)
        self._core: Any = _Own(ffi.gc(out[0], lib.reel_tokenizer_close))
        self._size = int(lib.reel_tokenizer_size(out[0]))

    @classmethod
    def _of_model(cls, core: ModelCore) -> "Tokenizer":
        made = cls.__new__(cls)
        made._core = _OfModel(core)
        with made._core.using() as pointer:
            made._size = int(lib.reel_tokenizer_size(pointer))
        return made

    def __len__(self) -> int:
        """Ids are below this."""
        return self._size

    def encode(self, text: str, *, special: bool = False, control: bool = False) -> List[int]:
        """The ids of a text.

        Args:
            special: with what the model's post-processor puts around a text, such as a token that begins
                every text.
            control: what looks like a control token, such as ``<|im_end|>``, becomes that token. Leave it
                off for text from others.
        """
        if not isinstance(text, str):
            raise TypeError(f"encode: a str is wanted, not {type(text).__name__}")
        data = text.encode("utf-8")
        flags = (lib.REEL_ENCODE_SPECIAL if special else 0) | (lib.REEL_ENCODE_CONTROL if control else 0)
        room, n = len(data) + 32, ffi.new("size_t *")
        while True:
            ids = ffi.new("int32_t[]", room)
            err = ffi.new("struct reel_error *")
            with self._core.using() as pointer:
                status = lib.reel_encode(pointer, data, len(data), flags, ids, room, n, err)
            if status == lib.REEL_E_LIMIT and n[0] > room:
                room = n[0]
                continue
            if status != 0:
                from ._library import check

                check(status, err)
            return list(ffi.unpack(ids, n[0]))

    def token_bytes(self, id: int) -> bytes:
        """The bytes of one id, not necessarily whole characters; b"" for an id without text."""
        n = ffi.new("size_t *")
        with self._core.using() as pointer:
            text = lib.reel_token_bytes(pointer, self._checked(id), n)
            return b"" if text == NULL else bytes(ffi.unpack(text, n[0]))

    def decode_bytes(self, ids: Sequence[int], *, control: bool = True) -> bytes:
        """The bytes of ids, joined; without `control` those of control tokens are left out."""
        parts = []
        n = ffi.new("size_t *")
        with self._core.using() as pointer:
            for id in ids:
                id = self._checked(int(id))
                if not control and lib.reel_token_is_control(pointer, id):
                    continue
                text = lib.reel_token_bytes(pointer, id, n)
                if text != NULL:
                    parts.append(ffi.unpack(text, n[0]))
        return b"".join(parts)

    def decode(self, ids: Sequence[int], *, control: bool = True) -> str:
        """The text of ids. Bytes that are no UTF-8, such as half a character, become U+FFFD."""
        return self.decode_bytes(ids, control=control).decode("utf-8", "replace")

    def is_control(self, id: int) -> bool:
        """Whether the id is a control token, such as the one that ends an answer."""
        with self._core.using() as pointer:
            return bool(lib.reel_token_is_control(pointer, self._checked(id)))

    def find(self, text: str) -> Optional[int]:
        """The id whose bytes are exactly this text, or None."""
        data = text.encode("utf-8")
        with self._core.using() as pointer:
            found = int(lib.reel_token_find(pointer, data, len(data)))
        return None if found < 0 else found

    def _checked(self, id: int) -> int:
        if not 0 <= id < self._size:
            raise refuse(f"id {id}: ids are 0 to {self._size - 1}")
        return id


class _OfModel:
    """The tokenizer that a model lends."""

    def __init__(self, core: ModelCore) -> None:
        self.core = core

    def using(self) -> Any:
        return _Lent(self.core)


class _Lent(Using):
    __slots__ = ()

    def __enter__(self) -> Any:
        return lib.reel_model_tokenizer(super().__enter__())


class _Own:
    """A tokenizer by itself, closed when nobody refers to it any more."""

    def __init__(self, pointer: Any) -> None:
        self.pointer = pointer

    def using(self) -> "_Own":
        return self

    def __enter__(self) -> Any:
        return self.pointer

    def __exit__(self, *_: Any) -> None:
        pass
