"""The sockets of Socket Mode, and a watch over them.

The SDK opens a socket again when it is closed or no pong comes. Three things it does not notice: that one of its own
tasks has died, that a socket answers pings and carries nothing, and that opening hangs. So whatever comes through each
socket is noted here, and a socket that seems deaf is replaced as a whole: the new one first, then the old one is closed,
so that there is no gap. Reading what was missed follows, as after any other reconnect.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler

log = logging.getLogger("sayso.slack")

PING_SECONDS = 5
"""Seconds between pings of a socket; the SDK reopens one that is silent for four times as long."""

STALE_SECONDS = 8.0 * PING_SECONDS
"""After so long without a pong the SDK has had its time: the socket is replaced."""

DOWN_SECONDS = 60.0
"""A socket that the SDK could not open again for so long is replaced."""

OPEN_SECONDS = 30.0
CLOSE_SECONDS = 15.0
LOOK_SECONDS = 1.0
UNHEARD = 32
"""Envelopes that came through the other sockets since this one carried one. Slack chooses by chance."""

UNHEARD_POST_SECONDS = 60.0
"""The bot's posts come back as events. If none has arrived for so many seconds since one, the connection is faulty."""

HEARD = "heard"
"""Mark of the last event that came, in seconds since 1970, as far as it was noted."""

QUIET_SECONDS = 600.0
MOST_DOUBLINGS = 4


@dataclass(eq=False)
class Socket:
    """One connection, with what was noted of it. Times are of a clock that only goes forward."""

    handler: AsyncSocketModeHandler
    others: int = 0
    """Envelopes that the others carried since this one did."""
    carried_at: float | None = None
    """Time of its last envelope."""
    down_since: float | None = None
    greeted: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def client(self) -> Any:
        """The SDK's client."""
        return self.handler.client


class Sockets:
    """Opens connections, keeps watch over them, and says when one was opened again."""

    def __init__(
        self,
        make: Callable[[], AsyncSocketModeHandler],
        connections: int,
        *,
        quiet_seconds: float = QUIET_SECONDS,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._quiet_seconds = quiet_seconds
        self._unheard_post_seconds = min(UNHEARD_POST_SECONDS, quiet_seconds)
        self._steady = steady
        self.sockets = [self._new() for _ in range(connections)]
        self._known: list[Any] | None = None
        self._heard_at = steady()
        self._posted_at: float | None = None
        self._in_vain = 0
        self._closing: set[asyncio.Task[None]] = set()
        self.alone: Callable[[], bool] = lambda: True
        """True if everything from Slack comes through these sockets: posts may come back to another process."""
        self.heard = 0
        """Envelopes so far."""
        self.replaced = 0
        """Sockets that this watch has replaced so far."""

    def _new(self) -> Socket:
        socket = Socket(self._make())

        async def listen(_: Any, message: dict[str, Any], raw: str) -> None:
            if message.get("type") == "hello":
                socket.greeted.set()
            if not message.get("envelope_id"):
                return
            self.heard += 1
            self._heard_at, self._posted_at, self._in_vain = self._steady(), None, 0
            for other in self.sockets:
                other.others += 1
            socket.others, socket.carried_at = 0, self._heard_at

        socket.client.message_listeners.append(listen)
        return socket

    # --- life ----------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Open all of them."""
        for socket in self.sockets:
            await socket.client.connect()
        self._heard_at = self._steady()
        self._known = self._sessions()

    async def close(self) -> None:
        """Close all of them."""
        await asyncio.gather(*map(_close, self.sockets), *self._closing)

    def reconnected(self) -> bool:
        """True if a socket was reopened since the last call: time for a catch-up read."""
        if self._known is None:
            return False
        now = self._sessions()
        changed = any(session is not before for session, before in zip(now, self._known, strict=True))
        self._known = now
        return changed

    async def open(self) -> int:
        """Return the number of connected sockets."""
        return sum([await socket.client.is_connected() for socket in self.sockets])

    def down(self) -> bool:
        """True if all of them were found without a connection."""
        return all(socket.down_since is not None for socket in self.sockets)

    def _sessions(self) -> list[Any]:
        return [socket.client.current_session for socket in self.sockets]

    def carried(self, since: float) -> bool:
        """True if each socket has delivered something since then, so that earlier events were not lost."""
        return all(socket.carried_at is not None and socket.carried_at >= since for socket in self.sockets)

    @contextmanager
    def posting(self) -> Iterator[None]:
        """Around a request that posts something, which will come back as an event. It may come before the answer."""
        before = self.heard
        yield
        if self._posted_at is None and self.heard == before:
            self._posted_at = self._steady()

    # --- the watch -----------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Look at all sockets now and then, and replace those that seem deaf. Never returns."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for place in range(len(self.sockets)):
                reason = await self.ailing(self.sockets[place])
                if reason is not None:
                    log.warning("reopening a socket: %s", reason)
                    await self._replace(place)
            reason = self._silence()
            if reason is not None:
                log.log(
                    logging.WARNING if self._posted_at else logging.INFO,
                    "reopening all sockets: %s",
                    reason,
                )
                for place in range(len(self.sockets)):
                    await self._replace(place)
                self._in_vain += self._posted_at is not None
                self._heard_at, self._posted_at = self._steady(), None

    async def ailing(self, socket: Socket) -> str | None:
        """Return a socket's fault that the SDK does not repair, or None."""
        client = socket.client
        for task in (client.current_session_monitor, client.message_receiver, client.message_processor):
            if task is not None and task.done() and client.current_session is not None:
                return "a task of the SDK has ended"
        pong = client.last_ping_pong_time
        if pong is not None and time.time() - pong > STALE_SECONDS:
            return f"no pong for {time.time() - pong:.0f} s"
        if socket.others >= UNHEARD and len(self.sockets) > 1:
            return f"{socket.others} envelopes came, and none through it"
        if await client.is_connected():
            socket.down_since = None
        elif socket.down_since is None:
            socket.down_since = self._steady()
        elif self._steady() - socket.down_since > DOWN_SECONDS:
            return f"not connected for {self._steady() - socket.down_since:.0f} s"
        return None

    def _silence(self) -> str | None:
        """Why silence on all sockets is not a good sign; None where it is as it should be."""
        now = self._steady()
        if any(socket.down_since is not None for socket in self.sockets):
            return None
        # Where nothing ever comes, as without subscriptions to events, that is not said every minute.
        patience = self._unheard_post_seconds * 2 ** min(self._in_vain, MOST_DOUBLINGS)
        if self._posted_at is not None and self.alone() and now - self._posted_at > patience:
            return f"nothing has come for {now - self._posted_at:.0f} s, not even what was posted"
        if self.sockets and now - self._heard_at > self._quiet_seconds:
            return f"nothing has come for {now - self._heard_at:.0f} s"
        return None

    async def _replace(self, place: int) -> None:
        """Open a socket instead of another; where that does not succeed the other one stays."""
        old, new = self.sockets[place], self._new()
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await new.client.connect()
                await new.greeted.wait()
        except TimeoutError:
            log.warning("no new socket within %g s", OPEN_SECONDS)
            old.down_since, old.others = self._steady(), 0
            self._let_go(new)
            return
        self.replaced += 1
        self.sockets[place] = new
        self._let_go(old)

    def _let_go(self, socket: Socket) -> None:
        task = asyncio.create_task(_close(socket))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _close(socket: Socket) -> None:
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await socket.client.close()
    except Exception as error:
        log.info("a socket did not close: %s", error)
