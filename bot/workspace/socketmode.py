"""Socket Mode: envelopes to the app over WebSockets, acknowledgements back, events delivered again.

Each envelope goes to one of the connected sockets, in turn. An event that is not acknowledged in time, or
whose socket closed first, is delivered again with the same event id and a new envelope, at most three times.
Interactions (clicks, slash commands, submitted views) are sent once: the person who acted sees the failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import WSMsgType, web

from bot.workspace import payloads
from bot.workspace.faults import CountedFault, DisconnectMode, Faults
from bot.workspace.payloads import Changes
from bot.workspace.state import Json, NotAcknowledged, State

MAX_CONNECTIONS = 10
CLOSE_SECONDS = 0.5  # how long to wait for the app to say goodbye too
PING_EVERY = 30.0  # seconds between pings to the app
DISPATCH_FAILED = "The app is not connected, so this was not handled. Try again when it is connected."
TIMED_OUT = "The app did not answer within {seconds:g} s. Try again."

DeliveryState = Literal["pending", "sent", "acked", "failed", "dropped"]


@dataclass(slots=True)
class Attempt:
    """One envelope on one socket."""

    envelope_id: str
    connection: int
    sent_at: float
    retry_attempt: int = 0
    retry_reason: str = ""
    repeated: int = 0
    acked_at: float | None = None
    payload: Json | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Delivery:
    """Something the app should hear of, over all its attempts. `dropped` means no socket was there for it."""

    type: Literal["events_api", "interactive", "slash_commands"]
    payload: Json
    accepts_response_payload: bool
    state: DeliveryState = "pending"
    attempts: list[Attempt] = field(default_factory=list)
    ack_latency: float | None = None
    ack_payload: Json | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def event_id(self) -> str:
        """The id of the event, the same in every attempt; empty for interactions."""
        return str(self.payload.get("event_id", ""))

    @property
    def envelope_id(self) -> str:
        """The id of the last envelope; empty before the first was sent."""
        return self.attempts[-1].envelope_id if self.attempts else ""

    def to_json(self) -> Json:
        """Return the record for other processes."""
        return {
            "type": self.type,
            "event_id": self.event_id,
            "state": self.state,
            "payload": self.payload,
            "ack_latency": self.ack_latency,
            "ack_payload": self.ack_payload,
            "attempts": [
                {
                    "envelope_id": a.envelope_id,
                    "connection": a.connection,
                    "retry_attempt": a.retry_attempt,
                    "retry_reason": a.retry_reason,
                    "acked": a.acked_at is not None,
                }
                for a in self.attempts
            ],
        }


class Connection:
    """One WebSocket of the app."""

    def __init__(self, number: int, socket: web.WebSocketResponse, request: web.Request) -> None:
        self.number = number
        self.socket = socket
        self.request = request
        self.silent = False
        self.deaf = False
        self.draining = False
        self.heard_at = asyncio.get_running_loop().time()

    async def send(self, frame: Json) -> None:
        """Send one frame; a socket that is closing or plays dead swallows it."""
        if self.silent or self.deaf:
            return
        with contextlib.suppress(ConnectionError, RuntimeError):
            await self.socket.send_str(json.dumps(frame))

    def cut(self) -> None:
        """End the TCP connection without a goodbye."""
        if self.request.transport is not None:
            self.request.transport.abort()


class SocketMode:
    """All sockets of the app and everything that was or will be delivered to it."""

    def __init__(self, state: State, faults: Faults, changes: Changes, clock: Callable[[], float]) -> None:
        self.state, self.faults, self.changes, self.clock = state, faults, changes, clock
        self.connections: list[Connection] = []
        self.deliveries: list[Delivery] = []
        self.tickets: set[str] = set()
        self._attempts: dict[str, tuple[Delivery, Attempt]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._turn = 0
        self._serial = 0
        faults.on_disconnect = self.disconnect

    # -- sockets

    def issue_ticket(self) -> str:
        """A ticket that opens one WebSocket."""
        ticket = self._next("ticket")
        self.tickets.add(ticket)
        return ticket

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One WebSocket of the app, from handshake to close."""
        if self.faults.away:
            raise web.HTTPServiceUnavailable(text="the local workspace is set to be away")
        ticket = request.query.get("ticket", "")
        if ticket not in self.tickets:
            raise web.HTTPUnauthorized(text="This ticket is unknown or was used: call apps.connections.open")
        # Pongs are sent by hand, so that a silent connection can leave pings unanswered.
        socket = web.WebSocketResponse(autoping=False, max_msg_size=0, timeout=CLOSE_SECONDS)
        await socket.prepare(request)
        self.tickets.discard(ticket)
        self._serial += 1
        connection = Connection(self._serial, socket, request)
        if len(self.connections) >= MAX_CONNECTIONS:
            await connection.send(self._goodbye("too_many_websockets"))
            await socket.close()
            return socket
        self.connections.append(connection)
        await connection.send(self._hello())
        self._announce_sockets()
        pinger = asyncio.create_task(self._ping(connection))
        try:
            async for message in connection.socket:
                connection.heard_at = asyncio.get_running_loop().time()
                if connection.silent:
                    continue
                if message.type is WSMsgType.PING:
                    await connection.socket.pong(message.data)
                elif message.type is WSMsgType.TEXT:
                    self._receive(message.data)
        finally:
            pinger.cancel()
            self._leave(connection)
        return socket

    async def _ping(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(PING_EVERY)
            if loop.time() - connection.heard_at > 2 * PING_EVERY:
                connection.cut()
                return
            if not connection.silent:
                with contextlib.suppress(ConnectionError, RuntimeError):
                    await connection.socket.ping(b"Ping from the local workspace")

    def _leave(self, connection: Connection) -> None:
        if connection in self.connections:
            self.connections.remove(connection)
        for _, attempt in list(self._attempts.values()):
            if attempt.connection == connection.number:
                attempt.over.set()
        self._announce_sockets()

    def _announce_sockets(self) -> None:
        self.changes.tell({"type": "socket_status", "connected_sockets": len(self.connections)})

    def _hello(self) -> Json:
        return {
            "type": "hello",
            "num_connections": len(self.connections),
            "debug_info": {
                "host": "local-workspace",
                "started": "2026-01-01 00:00:00.000",
                "build_number": 1,
                "approximate_connection_time": 18060,
            },
            "connection_info": {"app_id": self.state.app_id},
        }

    @staticmethod
    def _goodbye(reason: str) -> Json:
        return {"type": "disconnect", "reason": reason, "debug_info": {"host": "local-workspace"}}

    def disconnect(self, mode: DisconnectMode, place: int | None = None) -> None:
        """End or silence the sockets that are connected now, or one of them (see `Faults.disconnect_all`)."""
        chosen = self.connections if place is None else self.connections[place : place + 1]
        for connection in list(chosen):
            if mode == "abrupt":
                connection.cut()
            elif mode == "silent":
                connection.silent = True
            elif mode == "deaf":
                connection.deaf = True
            else:
                connection.draining = True
                self._spawn(connection.send(self._goodbye("refresh_requested")))

    async def close(self) -> None:
        """Cancel what is being delivered and close all sockets."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in list(self.connections):
            if connection.silent:
                connection.cut()
            else:
                await connection.socket.close()

    # -- delivering

    def event(self, event: Json) -> Delivery:
        """Deliver an event in the background; returns its record at once."""
        event_id = self._next("Ev0LOCAL")
        payload = payloads.event_callback(self.state, event, event_id, self.clock())
        delivery = Delivery("events_api", payload, accepts_response_payload=False)
        self.deliveries.append(delivery)
        if not self.connections and not self.faults.deliver_after_reconnect:
            self._finish(delivery, "dropped")
        else:
            self._spawn(self._deliver_event(delivery))
        return delivery

    async def interaction(self, kind: Literal["interactive", "slash_commands"], payload: Json) -> Json | None:
        """Deliver an interaction once and return the payload of its acknowledgement; NotAcknowledged."""
        delivery = Delivery(kind, payload, accepts_response_payload=True)
        self.deliveries.append(delivery)
        connection = self._pick()
        if connection is None:
            self._finish(delivery, "dropped")
            raise NotAcknowledged("dispatch_failed", DISPATCH_FAILED)
        if await self._attempt(delivery, connection, 0, ""):
            return delivery.ack_payload
        self._finish(delivery, "failed")
        raise NotAcknowledged("operation_timeout", TIMED_OUT.format(seconds=self.faults.ack_timeout))

    async def _deliver_event(self, delivery: Delivery) -> None:
        reason = ""
        for number, delay in enumerate((0.0, *self.faults.redelivery_delays)):
            if delay:
                await asyncio.sleep(delay)
            # A socket; waits for a reconnect when there is none, None when nobody comes in time.
            with contextlib.suppress(TimeoutError):
                await self.changes.wait_for(lambda: bool(self.connections), self.faults.reconnect_window)
            connection = self._pick()
            if connection is None:
                break
            if await self._attempt(delivery, connection, number, reason):
                return
            closed = connection not in self.connections
            reason = "connection_failed" if closed else "timeout"
        self._finish(delivery, "failed" if delivery.attempts else "dropped")

    def usable(self) -> list[Connection]:
        """The sockets that will take an envelope."""
        return [c for c in self.connections if not (c.draining or c.silent or c.deaf)]

    def _pick(self) -> Connection | None:
        fresh = [c for c in self.connections if not c.draining] or self.connections
        if not fresh:
            return None
        self._turn += 1
        return fresh[self._turn % len(fresh)]

    async def _attempt(self, delivery: Delivery, connection: Connection, number: int, reason: str) -> bool:
        """Send one envelope and wait; whether it was acknowledged in time."""
        attempt = Attempt(self._next("envelope"), connection.number, self.clock(), number, reason)
        delivery.attempts.append(attempt)
        delivery.state = "sent"
        self._attempts[attempt.envelope_id] = (delivery, attempt)
        frame = {
            "envelope_id": attempt.envelope_id,
            "type": delivery.type,
            "payload": delivery.payload,
            "accepts_response_payload": delivery.accepts_response_payload,
        }
        if delivery.type == "events_api":
            frame["retry_attempt"] = attempt.retry_attempt
            frame["retry_reason"] = attempt.retry_reason
        await connection.send(frame)
        if self._strikes("duplicates", delivery):
            attempt.repeated += 1
            await (self._pick() or connection).send(frame)
        self.changes.touch()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.faults.ack_timeout):
                await attempt.over.wait()
        # An acknowledgement that comes later than this counts for nothing, as in Slack.
        del self._attempts[attempt.envelope_id]
        if attempt.acked_at is None:
            return False
        if self._strikes("redeliveries", delivery):
            attempt.repeated += 1
            await (self._pick() or connection).send(frame)
        self._finish(delivery, "acked")
        return True

    def _strikes(self, fault: CountedFault, delivery: Delivery) -> bool:
        """True if a counted fault strikes this delivery; echoes of the app's own acts are left alone."""
        event = delivery.payload.get("event", {})
        is_echo = self.state.bot_user_id in (event.get("user"), event.get("message", {}).get("user"))
        return not is_echo and self.faults.take_count(fault, event_id=delivery.event_id)

    def _receive(self, text: str) -> None:
        """Take an acknowledgement: `{"envelope_id": ..., "payload"?: ...}`; anything else is ignored."""
        try:
            frame = json.loads(text)
        except ValueError:
            return
        known = self._attempts.get(frame.get("envelope_id", "")) if isinstance(frame, dict) else None
        if known is None:
            return
        delivery, attempt = known
        if attempt.acked_at is not None:
            return
        if self._strikes("lost_acks", delivery):
            return
        attempt.acked_at = self.clock()
        attempt.payload = frame.get("payload")
        if delivery.state != "acked":
            delivery.ack_latency = attempt.acked_at - attempt.sent_at
            delivery.ack_payload = attempt.payload
        attempt.over.set()

    def _finish(self, delivery: Delivery, state: DeliveryState) -> None:
        delivery.state = state
        delivery.done.set()
        self.changes.touch()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _next(self, prefix: str) -> str:
        self._serial += 1
        separator = "" if prefix.startswith("Ev") else "-"
        return f"{prefix}{separator}{self._serial:06d}"
