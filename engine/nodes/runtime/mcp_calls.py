"""Calls of an MCP server in progress over one connection, and the server's questions meanwhile.

Servers of the protocol of 2025-11-25 ask within the open call without naming it: people are asked only if a single call
is open. The call then outlives its node: the node leaves with the question, and its next attempt finds the call again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from engine.language.codec import Json
from engine.nodes.runtime.mcp_asks import OPEN_SECONDS

if TYPE_CHECKING:
    from mcp.types import ElicitResult

_log = logging.getLogger("sayso.mcp")

_KEPT_SECONDS = 600.0
"""Seconds for which the result of a call is kept without anybody waiting for it."""


class Question:
    """A server's question within an open call."""

    def __init__(self, params: Any) -> None:
        self.params = params
        self.answer: asyncio.Future[Mapping[str, Json]] = asyncio.get_running_loop().create_future()


class OpenCall:
    """One call; see `next`."""

    def __init__(self, sent: Coroutine[Any, Any, Any]) -> None:
        self.task = asyncio.ensure_future(sent)
        self._asked = asyncio.Event()
        self._open: list[Question] = []
        self._shown: Question | None = None

    async def next(self) -> Any:
        """Return the result of the call, or a `Question`, which keeps the call open until it is answered. Raises the
        errors of the call."""
        while not self.task.done() and not self._open:
            waiting = asyncio.ensure_future(self._asked.wait())
            try:
                await asyncio.wait({self.task, waiting}, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                self.task.cancel()
                raise
            finally:
                waiting.cancel()
        if self.task.done():
            return self.task.result()
        self._shown = self._open[0]
        return self._shown

    async def ask(self, params: Any) -> ElicitResult:
        """Return people's answer; `cancel` if nobody answers in time."""
        from mcp.types import ElicitResult

        question = Question(params)
        self._open.append(question)
        self._asked.set()
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                told: Any = await question.answer
        except TimeoutError:
            told = {"action": "cancel"}
        finally:
            self._over(question)
        return ElicitResult(action=told["action"], content=told.get("content"))

    def answer(self, told: Mapping[str, Json]) -> None:
        """Give the server the answer to the latest question from `next`, if it still waits for that one."""
        if self._shown is not None:
            self._over(self._shown)
            if not self._shown.answer.done():
                self._shown.answer.set_result(told)

    def _over(self, question: Question) -> None:
        self._open = [each for each in self._open if each is not question]
        if not self._open:
            self._asked.clear()


class OpenCalls(dict[str, OpenCall]):
    """The calls of one connection, by their idempotency keys."""

    def begin(self, key: str, sent: Coroutine[Any, Any, Any]) -> OpenCall:
        """Make a call."""
        call = self[key] = OpenCall(sent)
        call.task.add_done_callback(lambda task: self._ended(key, call))
        return call

    async def asked(self, context: Any, params: Any) -> ElicitResult:
        """Handle a server's question within an open call."""
        from mcp.types import ElicitResult

        calls = [call for call in self.values() if not call.task.done()]
        if len(calls) == 1:
            return await calls[0].ask(params)
        _log.warning("an MCP server asks for something during one of %d calls: it is refused", len(calls))
        return ElicitResult(action="cancel")

    def _ended(self, key: str, call: OpenCall) -> None:
        if not call.task.cancelled():
            call.task.exception()  # it is no news where nobody waits any more
        asyncio.get_running_loop().call_later(_KEPT_SECONDS, self._forget, key, call)

    def _forget(self, key: str, call: OpenCall) -> None:
        if self.get(key) is call:
            del self[key]
