"""Metrics for Prometheus, liveness (`/healthz`) and readiness (`/readyz`) of the bot, and webhooks, over HTTP. Off
unless `SAYSO_METRICS` names an address.

Activity is counted from committed events, never by the code that runs: rolled-back work does not count. Waiting work is
counted in the store on request. Labels are names of flows, node types and Slack methods; no label holds a session or a
person.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from typing import NamedTuple

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from bot.compose.listening import Listener
from bot.config.settings import Address
from bot.serve.hooks import MOST_BYTES, Hooks
from bot.serve.identity import StartFailed
from engine.journal import events as ev
from engine.journal.events import Event
from engine.journal.records import NANO, Counts
from engine.journal.state import Asked, State
from engine.language import timestamps
from engine.language.errors import SaysoError, StorageError
from engine.run.engine import Engine
from engine.run.stored import stored_state
from engine.storage.store import Store
from prompt_state import question_row

_WAITS = (10, 30, 60, 300, 900, 3600, 4 * 3600, 86400, 3 * 86400, 7 * 86400)
READ_SECONDS = 8.0
"""Seconds for which a reading may wait for the store; Prometheus gives up after ten."""
MOST_GROUPS = 100
"""Most groups counted by name: an input may choose the group that is asked."""
_MOST_UNREADABLE = 100
_STOP_SECONDS = 1.0
"""Seconds for which a stop waits for requests in progress; requests stored then stay stored."""
HEARD: tuple[type[Event], ...] = (ev.AttemptOver, ev.Closing, ev.Boundary)
"""The kinds of event that are counted."""


class Sources(NamedTuple):
    """Sources of a reading besides the events."""

    engine: Engine
    refusals: Mapping[str, int]
    """Calls that Slack refused for their rate so far, by method."""
    connected: Callable[[], Awaitable[int]]
    """Returns the number of open sockets."""
    day_cap: Decimal | None
    now: Callable[[], str]


class Metrics:
    """Counts activity, and reads waiting work."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._known: dict[str, int] = {}
        self._groups: set[str] = set()
        self.registry = registry = CollectorRegistry(auto_describe=True)

        def gauge(name: str, what: str, *labels: str) -> Gauge:
            return Gauge(f"sayso_{name}", what, labels, registry=registry)

        self._started = Counter("sayso_sessions_started", "Sessions started.", ["flow"], registry=registry)
        self._ended = Counter(
            "sayso_sessions_ended", "Sessions ended.", ["flow", "status"], registry=registry
        )
        self._steps = Counter("sayso_steps", "Nodes ended.", ["flow", "outcome"], registry=registry)
        self._wait = Histogram(
            "sayso_prompt_wait_seconds",
            "Time from a question to its end.",
            ["flow", "group", "outcome"],
            buckets=_WAITS,
            registry=registry,
        )
        self._refused = Counter(
            "sayso_slack_refused",
            "Calls that Slack refused because of rate limits.",
            ["method"],
            registry=registry,
        )
        self._open = gauge("sessions_open", "Open sessions.", "status")
        self._prompts = gauge("prompts_open", "Open questions.", "flow")
        self._oldest_prompt = gauge("prompt_oldest_seconds", "Age of the oldest open question.")
        self._inbox = gauge("inbox_rows", "Inbox rows that are not handled yet.")
        self._oldest_inbox = gauge("inbox_oldest_seconds", "Age of the oldest of them.")
        self._outbox = gauge("outbox_rows", "Outbox rows to send to Slack.")
        self._oldest_outbox = gauge("outbox_oldest_seconds", "Age of the oldest of them.")
        self._dead = gauge("dead_letters", "Dead letters: sayso inbox list.")
        self._quarantined = gauge("sessions_quarantined", "Sessions whose records do not verify.")
        self._suspended = gauge("store_suspended", "1 while the store is suspended: sayso doctor.")
        self._connected = gauge("slack_sockets", "Open connections to Slack.")
        self._unsent = gauge("spans_dropped", "Trace spans that could not be sent since the start.")
        self._spent = gauge("spend_today_dollars", "Cost of model calls today (UTC).")
        self._cap = gauge("spend_cap_dollars", "Cap for a day (SAYSO_MAX_COST_PER_DAY).")
        if sources.day_cap is not None:
            self._cap.set(float(sources.day_cap))
        sources.engine.subscribe(self.happened, *HEARD)

    def happened(self, state: State, events: Sequence[Event]) -> None:
        """Count committed events."""
        flow = state.flow_name
        for event in events:
            if isinstance(event, ev.AttemptOver) and event.result:
                self._steps.labels(flow, event.result).inc()
            elif isinstance(event, ev.Closing):
                asked = state.prompts.get(event.prompt_id)
                if asked is not None:
                    waited = timestamps.seconds_between(asked.requested_at, event.timestamp)
                    group = group_of(asked)
                    if len(self._groups) < MOST_GROUPS:
                        self._groups.add(group)
                    group = group if group in self._groups else "other"
                    # Only decisions are told apart, since choices are a flow's own text.
                    said = event.answer.get("value") if isinstance(event, ev.PromptAnswered) else None
                    decided = said in ("approve", "reject")
                    outcome = str(said) if decided else event.type.partition(":")[2]
                    self._wait.labels(flow, group, outcome).observe(max(0.0, waited))
            elif isinstance(event, ev.Boundary) and event.status is not None:
                self._ended.labels(flow, event.status).inc()
            elif event.seq == 1:
                self._started.labels(flow).inc()

    async def read(self) -> bytes:
        """The text that Prometheus reads. Raises `StorageError`."""
        sources, now = self._sources, self._sources.now()
        counts, oldest, spent, suspended = await sources.engine.writer.call(_look, sources.engine.store, now)
        for status in ("running", "paused"):
            self._open.labels(status).set(counts.sessions.get(status, 0))
        self._prompts.clear()
        for flow, number in counts.prompts.items():
            self._prompts.labels(flow).set(number)
        self._oldest_prompt.set(_age(oldest, now))
        for number, gauge in (
            (counts.inbox, self._inbox),
            (counts.outbox, self._outbox),
            (counts.dead, self._dead),
        ):
            gauge.set(number)
        self._oldest_inbox.set(_age(counts.oldest_inbox, now))
        self._oldest_outbox.set(_age(counts.oldest_outbox, now))
        self._quarantined.set(counts.quarantined)
        self._suspended.set(suspended)
        if sources.engine.dropped_spans is not None:
            self._unsent.set(sources.engine.dropped_spans())
        self._spent.set(spent / NANO)
        self._connected.set(await sources.connected())
        for method, number in sources.refusals.items():
            self._refused.labels(method).inc(number - self._known.get(method, 0))
            self._known[method] = number
        return generate_latest(self.registry)


def group_of(asked: Asked) -> str:
    """Return the first group that the question names, else an empty text. Never a person."""
    names = asked.approvers or asked.who or ()
    return next((name for name in names if name.startswith(("@", "rota:")) or name == "channel"), "")


def _look(store: Store, now: str) -> tuple[Counts, str | None, int, bool]:
    return store.counts(), _oldest_question(store), store.spend.on(now[:10]), store.suspended() is not None


def _oldest_question(store: Store) -> str | None:
    """Return the time of the oldest open question; those of unreadable sessions do not count."""
    for row in store.prompts.rows(statuses=question_row.OPEN_STATUSES, limit=_MOST_UNREADABLE):
        with suppress(SaysoError):
            head = store.sessions.head(row.session_id)
            if head is not None and head.quarantined is None:
                asked = stored_state(store, row.session_id).prompts.get(row.prompt_id)
                if asked is not None:
                    return asked.requested_at
    return None


def _age(since: str | None, now: str) -> float:
    return 0.0 if since is None else max(0.0, timestamps.seconds_between(since, now))


# --- over HTTP -----------------------------------------------------------------------------------------------


@asynccontextmanager
async def served(
    address: Address, metrics: Metrics, unready: Callable[[], str | None], hooks: Hooks
) -> AsyncIterator[str]:
    """Answer at this address meanwhile; the URL of the metrics. `unready` says why the bot is not ready. Raises `StartFailed`."""

    async def read(request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(READ_SECONDS):
                body = await metrics.read()
            return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})
        except (StorageError, TimeoutError) as error:
            return web.Response(status=503, text=f"The store cannot be read: {error}\n")

    async def healthy(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(request: web.Request) -> web.Response:
        why = unready()
        told = json.dumps({"ready": why is None, "why": why})
        return web.Response(status=503 if why else 200, text=told, content_type="application/json")

    app = web.Application(client_max_size=MOST_BYTES)
    app.add_routes([web.get("/metrics", read), web.get("/healthz", healthy), web.get("/readyz", ready)])
    app.add_routes([web.post("/hooks/{name}", hooks.post)])
    listener = Listener(app, _STOP_SECONDS)
    try:
        try:
            host, port = await listener.start(address.host, address.port)
        except OSError as error:
            where = f"{address.host}:{address.port}"
            why = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
            raise StartFailed(f"SAYSO_METRICS: cannot listen on {where}: {why}.") from error
        yield f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"
    finally:
        await listener.stop()
