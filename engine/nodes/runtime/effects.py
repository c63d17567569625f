"""The check right before every effect: may this piece of work still have it?

Code that begins work sets its permit (`under`); it holds for everything inside, including tasks that begin there. Each
kind of effect has one place that all of its kind pass, and that place awaits `before_effect` last: programs, requests
(every redirect too), functions and node types of users, files, calls of MCP servers, of models and of Slack. Work
without a permit belongs to no other process and is always allowed.
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
        """True if it is held at this moment. Does not wait."""

    async def ask(self) -> None:
        """Return if the permit is held. Raises `FenceLost`."""


class _Free:
    def holds(self) -> bool:
        return True

    async def ask(self) -> None:
        return


FREE: Permit = _Free()
"""Permit for work that no other process could take over."""
_permit: ContextVar[Permit] = ContextVar("permit", default=FREE)


@contextmanager
def under(permit: Permit) -> Iterator[None]:
    """Put all effects in this context, and in tasks that begin in it, under this permit."""
    token = _permit.set(permit)
    try:
        yield
    finally:
        _permit.reset(token)


async def before_effect() -> None:
    """Await this right before an effect. Raises `FenceLost` if another process may have taken over the work."""
    await _permit.get().ask()


async def unless_lost(work: Awaitable[None], permit: Permit) -> None:
    """Do this under a permit; it ends where that is lost."""
    with under(permit), suppress(FenceLost):
        await work


def permitted() -> bool:
    """True if this context may still have effects."""
    return _permit.get().holds()
