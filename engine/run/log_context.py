"""What a line of the log is about: the session, the path of the node, and the thread, for logs that machines read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_ABOUT: ContextVar[Mapping[str, str]] = ContextVar("about", default={})  # noqa: B039 - never changed


@contextmanager
def about(**names: str | None) -> Iterator[None]:
    """Lines that are logged in here, and in tasks that begin in here, are about these: `session`, `path`, `thread`."""
    token = _ABOUT.set(
        {**_ABOUT.get(), **{name: value for name, value in names.items() if value is not None}}
    )
    try:
        yield
    finally:
        _ABOUT.reset(token)


def current() -> Mapping[str, str]:
    """What is logged here is about these."""
    return _ABOUT.get()
