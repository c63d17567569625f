"""What is asked right before every effect: may this piece of work still have it?

Whoever begins work says under which permit (`under`); it holds for all that happens inside, also in tasks that begin there.
Each kind of effect has one place through which all of that kind pass, and that place awaits `before_effect` as the last
thing: programs, requests (each of a redirect too), functions and node types of users, files, calls of MCP servers, calls of
models, calls of Slack. Work without a permit is nobody else's: it is always allowed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Protocol

from engine.language.errors import FenceLost


class Permit(Protocol):
    """The right of a piece of work to have effects."""

    def holds(self) -> bool:
        """True if it is held at this moment. Asks nobody."""

    async def ask(self) -> None:
        """Return at once where it has it. Raises `FenceLost`."""


class _Free:
    def holds(self) -> bool:
        return True

    async def ask(self) -> None:
        return


FREE: Permit = _Free()
"""For what no other process could do in this one's place."""
_permit: ContextVar[Permit] = ContextVar("permit", default=FREE)


@contextmanager
def under(permit: Permit) -> Iterator[None]:
    """All effects in here, and of tasks that begin in here, are under this permit."""
    token = _permit.set(permit)
    try:
        yield
    finally:
        _permit.reset(token)


async def before_effect() -> None:
    """To be awaited right before an effect. Raises `FenceLost` where another process may have taken the work over."""
    await _permit.get().ask()


async def unless_lost(work: Awaitable[None], permit: Permit) -> None:
    """Do this under a permit; it ends where that is lost."""
    with under(permit), suppress(FenceLost):
        await work


def permitted() -> bool:
    """True if what happens here may still have effects."""
    return _permit.get().holds()
