"""Resources that a flow uses and this installation lacks: secrets, MCP servers, the key for Claude. They are reported
before any question, and block nothing: they may be added before they are needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from bot.compose.environment import key_variable, needs_model, scripted
from bot.config.settings import Settings
from engine.flow import Flow
from engine.language.errors import SaysoError
from engine.models.keys import KEY_VARIABLES
from engine.nodes.runtime.secrets import unset

KEPT_SECONDS = 5.0
"""Seconds for which a result is cached: a card that is drawn often does not look up secrets more often."""
PATIENCE_SECONDS = 1.0
"""Seconds for which a card waits for a program that supplies secrets; a later result appears on the next card."""


def lacks(flow: Flow, settings: Settings, secret: Callable[[str], str]) -> Iterator[str]:
    """Yield the resources missing here for this flow, a sentence each. May run a program for each secret."""
    yield from unset(flow.secrets, secret)
    if not needs_model(flow):
        return
    from engine.nodes.runtime.mcp_servers import find, resolved  # only agents have such tools

    for name in sorted(flow.mcp_servers):
        try:
            server = find(settings.mcp_file, name)
            resolved({**server.env, **server.headers, **server.oauth}, secret, {})
        except SaysoError as error:
            yield f"MCP server {name}: {error}"
    if key_variable(settings) is None and not scripted(settings):
        yield f"no key for Claude is set: set {' or '.join(KEY_VARIABLES)}"


class Lacks:
    """The same for the cards of a bot, found by one thread at a time."""

    def __init__(self, settings: Settings, secret: Callable[[str], str], steady: Callable[[], float]) -> None:
        self._settings, self._secret, self._steady = settings, secret, steady
        self._one = asyncio.Lock()
        self._asked: dict[str, tuple[float, asyncio.Task[Sequence[str]]]] = {}

    async def __call__(self, flow: Flow) -> Sequence[str]:
        """Return the resources missing for this flow, as far as known in time."""
        if not (flow.secrets or needs_model(flow)):
            return ()
        until, task = self._asked.get(flow.digest, (0.0, None))
        if task is None or (task.done() and self._steady() >= until):
            task = asyncio.create_task(self._find(flow))
            self._asked[flow.digest] = (self._steady() + KEPT_SECONDS, task)
        await asyncio.wait({task}, timeout=PATIENCE_SECONDS)
        return task.result() if task.done() else ()

    async def _find(self, flow: Flow) -> Sequence[str]:
        async with self._one:
            return await asyncio.to_thread(lambda: tuple(lacks(flow, self._settings, self._secret)))
