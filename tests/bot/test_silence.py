"""Silence on all sockets after the bot posted something, which should have come back as an event."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from bot.wire.sockets import UNHEARD_POST_SECONDS, Sockets


class Line:
    """Sockets with one connection, and a clock that stands."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self._listeners: list[Callable[..., Awaitable[None]]] = []
        handler: Any = SimpleNamespace(client=SimpleNamespace(message_listeners=self._listeners))
        self.sockets = Sockets(lambda: handler, 1, steady=lambda: self.now)

    async def carries(self) -> None:
        """An event comes."""
        for listen in self._listeners:
            await listen(None, {"envelope_id": "1", "type": "events_api"}, "")

    def silence(self) -> str | None:
        """What the watch says when the post should have come back."""
        self.now += UNHEARD_POST_SECONDS + 1
        return self.sockets._silence()


async def test_a_post_that_never_comes_back_is_a_fault() -> None:
    """Nothing came since."""
    line = Line()
    await line.carries()
    with line.sockets.posting():
        pass
    assert line.silence() is not None


async def test_a_post_that_came_back_before_its_answer_is_none() -> None:
    """Slack may send the event while it still answers the request."""
    line = Line()
    with line.sockets.posting():
        await line.carries()
    assert line.silence() is None


async def test_a_post_that_came_back_afterwards_is_none() -> None:
    """As usual."""
    line = Line()
    with line.sockets.posting():
        pass
    await line.carries()
    assert line.silence() is None
