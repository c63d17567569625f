"""Structs of JSON, read by any thread.

msgspec learns a class the first time that it reads one, and other threads see what it has learned so far: a thread that
reads the class meanwhile follows a null pointer, and the process ends with SIGSEGV. Here one thread at a time learns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec.json import Decoder

T = TypeVar("T")
_learning = threading.Lock()
_known: dict[Any, Decoder[Any]] = {}


def decoder(kind: type[T]) -> Decoder[T]:
    """The decoder of JSON text into a type."""
    known = _known.get(kind)
    if known is None:
        with _learning:
            known = _known[kind] = Decoder(kind)
    return known


def convert(value: Any, kind: type[T], dec_hook: Callable[[type, Any], Any] | None = None) -> T:
    """Return decoded JSON as a value of a type; `dec_hook` is msgspec's. Raises `msgspec.ValidationError`."""
    decoder(kind)
    return msgspec.convert(value, kind, dec_hook=dec_hook)
