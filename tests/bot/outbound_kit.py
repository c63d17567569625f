"""A real engine, a real store and the real slack_sdk against the local workspace, with the outbox between them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from bot.config.session_files import SessionFiles
from bot.config.tuning import Tuning
from bot.intents.session_rows import slack_intents
from bot.outbound.outbox_worker import Outbound
from bot.wire.budget import Budget, limits_of
from bot.wire.client import bot_client
from engine.decide.commands import Answer
from engine.decide.policy import Gate
from engine.flow.load import load_flow
from engine.journal.events import Event
from engine.journal.records import OutboxRow, PutOutbox, Row
from engine.journal.state import Asked, State
from engine.language import timestamps
from engine.language.actors import Actor
from engine.language.codec import decode
from engine.nodes.runtime.runner import Completed, NodeContext
from engine.run.dispatcher import Dispatcher
from engine.run.engine import Engine
from engine.run.stored import utc_now
from engine.storage.group_commit import Writer
from engine.storage.open import open_store
from prompt_state.question_row import project, thread_key
from tests.support.acting import Workspace
from tests.support.workspace import Json, running_workspace

APPROVAL = """
flow: rollback
inputs:
  service: {type: string, default: checkout}
nodes:
  - id: gate
    type: approval
    with: {message: "Roll back *{{ inputs.service }}*?", approvers: ["@sre", "ben@example.com"]}
  - id: tell
    type: message
    with: {text: "Done with {{ inputs.service }}"}
"""
ASK = """
flow: checkin
nodes:
  - id: how
    type: ask
    with: {message: "How does it look?"}
"""
TELL = """
flow: tell
nodes:
  - id: first
    type: message
    with: {text: "first"}
  - id: second
    type: message
    with: {text: "second"}
"""
FAST = Tuning(
    look_delays=(0.02, 0.05),
    card_seconds=0.0,
    mark_seconds=0.0,
    backoff=(0.01, 0.05),
    poll_seconds=0.2,
    jitter=lambda: 0.5,
)
"""Waits short enough for tests."""


class WatchedWriter(Writer):
    """A writer that tells whenever something was done with the store."""

    def __init__(self, store: Any, done: Callable[[], None]) -> None:
        super().__init__(store)
        self._done = done
        self.before: Callable[[str], Awaitable[None]] | None = None

    async def call(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a method of the store, and tell."""
        if self.before is not None:
            await self.before(method.__name__)
        try:
            return await super().call(method, *args, **kwargs)
        finally:
            self._done()

    async def peek(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        """The same without telling, for whoever waits."""
        return await super().call(method, *args, **kwargs)


class Rig:
    """The bot without its ears: sessions run, the outbox is sent, and what happens is seen in the workspace."""

    def __init__(self, workspace: Workspace, home: Path, url: str) -> None:
        self.workspace = workspace
        self.home = home
        self.budget = Budget(limits_of(None))
        self.client = bot_client(workspace.bot_token, workspace.api_url, budget=self.budget)
        self.store = open_store(url)
        self.ahead = 0.0
        self.changed = asyncio.Event()
        gate = Gate(workspace.team_id, allow_local=True)
        self.writer = WatchedWriter(self.store, self.tell)
        self.engine = Engine(
            self.store,
            policy=gate,
            runners={"shell": _nothing},
            home=home,
            extensions=[_projection, slack_intents],
            now=self.now,
            writer=self.writer,
        )
        self.service = Dispatcher(self.engine, wants=lambda head: head.thread_key is not None)
        self.engine.subscribe(self._happened)
        self.load_state: Callable[[str], Awaitable[State]] = self.engine.state
        self.outbound: Outbound | None = None
        self.sending: asyncio.Task[None] | None = None
        self.serving: asyncio.Task[None] | None = None

    def now(self) -> str:
        """The time, as far ahead of this machine's as the test has moved it."""
        return timestamps.after(utc_now(), self.ahead)

    def later(self, seconds: float) -> None:
        """Let so much time pass at once."""
        self.ahead += seconds
        # What Slack stamps from here on is as late.
        self.workspace.state.last_micros = int(timestamps.from_text(self.now()).timestamp() * 1_000_000)
        self.service.notify()
        if self.outbound is not None:
            self.outbound.notify()

    def tell(self) -> None:
        """Something was done: whoever waits looks again."""
        self.changed.set()
        self.changed = asyncio.Event()

    def _happened(self, state: State, events: Any) -> None:
        self.tell()
        if self.outbound is not None:
            self.outbound.notify()

    # --- life ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Start the engine and its service, but not the outbox."""
        await self.engine.open()
        self.serving = asyncio.create_task(self.service.run())

    def send(
        self, *, limits: dict[str, dict[str, float]] | None = None, at_once: int = 8, **tuning: Any
    ) -> Outbound:
        """Start sending, with a new `Outbound` as after a start of the process; without limits of our own unless told
        otherwise."""
        self.client.budget = self.budget = Budget(limits_of(limits), at_once=at_once)
        self.outbound = Outbound(
            self.writer,
            self.client,
            self.load_state,
            self.engine.flow_of,
            self.workspace.bot_user_id,
            taken=self.service.notify,
            now=self.now,
            tuning=replace(FAST, **tuning),
            files=SessionFiles(self.home),
        )
        self.sending = asyncio.create_task(self.outbound.run())
        return self.outbound

    async def crash(self) -> None:
        """Stop sending in the middle of whatever it is doing: nothing more is recorded."""
        assert self.sending is not None
        assert self.outbound is not None
        self.outbound.streams.stop()
        for _, task, _ in self.outbound._lanes.values():
            task.cancel()
        self.sending.cancel()
        with suppress(asyncio.CancelledError):
            await self.sending
        self.outbound = None

    async def close(self) -> None:
        """Stop everything."""
        self.service.stop()
        if self.outbound is not None and self.sending is not None:
            self.outbound.stop()
            await asyncio.wait([self.sending])
            if not self.sending.cancelled():
                self.sending.exception()
        if self.serving is not None:
            await asyncio.wait([self.serving])
        await self.engine.drain(0)
        await self.engine.close()
        self.store.close()

    # --- doing ---------------------------------------------------------------------------------------------

    def actor(self, name: str) -> Actor:
        """Somebody with all facts looked up."""
        user = self.workspace.user(name)
        groups = frozenset(g.handle for g in self.workspace.state.groups.values() if user.id in g.users)
        return Actor(
            user.id,
            name=user.real_name,
            team_id=self.workspace.team_id,
            email=user.email,
            groups=groups,
            in_channel=True,
            facts_known=True,
        )

    async def start(self, text: str, channel: str = "ops", **inputs: Any) -> str:
        """Start a flow as Ana in a thread of her message; the session's id."""
        ts = await self.workspace.post("ana", channel, "please")
        place = self.workspace.channel(channel).id
        key = thread_key(self.workspace.team_id, place, ts)
        thread = {"team": self.workspace.team_id, "channel": place, "threadTs": ts, "key": key}
        flow = load_flow(text, "flow.yml")
        return await self.engine.start(flow, inputs, actor=self.actor("ana"), thread=thread)

    async def answer(
        self,
        session_id: str,
        who: str,
        *,
        value: Any = None,
        text: str | None = None,
        key: str | None = None,
    ) -> None:
        """Answer the session's first prompt; `key` is that of what it came with."""
        state = await self.engine.state(session_id)
        prompt_id = next(iter(state.prompts))
        key = key or f"test:{prompt_id}:{who}"
        command = Answer(prompt_id, self.actor(who), key, value=value, text=text)
        await self.engine.apply(session_id, command)

    async def put(self, *rows: Row) -> None:
        """Write rows as the bot does beside a session's steps."""
        await self.writer.peek(self.store.consume, [], utc_now(), list(rows))
        if self.outbound is not None:
            self.outbound.notify()

    # --- seeing --------------------------------------------------------------------------------------------

    async def until(self, predicate: Callable[[], Awaitable[Any]], timeout: float = 10) -> Any:
        """The first true value of `predicate`, asked again after everything that is done with the store."""
        async with asyncio.timeout(timeout):
            while True:
                changed = self.changed
                if found := await predicate():
                    return found
                await changed.wait()

    async def comes(self, session_id: str, so: Callable[[State], object]) -> State:
        """The session's state, once it is so."""

        async def there() -> State | None:
            state = await self.engine.state(session_id)
            return state if so(state) else None

        found: State = await self.until(there)
        return found

    async def row(self, key: str) -> OutboxRow:
        """A row of the outbox."""
        row: OutboxRow = await self.writer.peek(self.store.outbox.row, key)
        return row

    async def settled(self, key: str) -> Json:
        """Wait until a row is sent or failed; its recorded result with its state."""

        async def done() -> Json | None:
            row = await self.row(key)
            if row is None or row.state == "pending":
                return None
            return {"state": row.state, **(decode(row.result) if row.result else {})}

        found: Json = await self.until(done)
        return found

    async def shown(self, session_id: str) -> str:
        """Wait until the session knows that its first prompt is in front of people; the prompt's id."""
        state = await self.comes(session_id, lambda state: any(map(shown, state.prompts.values())))
        return next(key for key, prompt in state.prompts.items() if shown(prompt))

    async def thread(self, session_id: str) -> list[Json]:
        """The bot's messages in the session's thread, oldest first."""
        thread = (await self.engine.state(session_id)).thread
        assert thread is not None
        messages = self.workspace.messages(thread["channel"], thread["threadTs"])
        return [message for message in messages if message.get("bot_id")]

    def posts(self, text: str) -> list[Json]:
        """Every message of the bot, in any channel or thread, whose text or blocks contain this."""
        found = []
        for channel in self.workspace.state.channels:
            for root in self.workspace.messages(channel):
                thread = self.workspace.messages(channel, root["ts"])
                found += [m for m in thread if m.get("bot_id") and text in f"{m['text']}{m.get('blocks')}"]
        return found

    def calls(self, method: str) -> int:
        """How often a method of the Web API was called."""
        return len(self.workspace.calls_to(method))


def shown(prompt: Asked) -> bool:
    """Whether a question is in front of people."""
    return prompt.shown is not None


async def _nothing(config: dict[str, Any], ctx: NodeContext) -> Completed:
    return Completed({"stdout": "", "stderr": "", "exit_code": 0, "seconds": 0.0})


def _projection(before: State, after: State, events: Any) -> list[Row]:
    listed: list[Event] = list(events)
    return list(project(after, listed))


@asynccontextmanager
async def running_rig(tmp_path: Path, url: str | None = None) -> AsyncIterator[Rig]:
    """A rig that serves but does not send yet."""
    logging.getLogger("slack_sdk").setLevel(logging.ERROR)
    async with running_workspace() as workspace:
        rig = Rig(workspace, tmp_path / "home", url or f"sqlite:///{tmp_path / 'store' / 'sayso.db'}")
        await rig.open()
        try:
            yield rig
        finally:
            await rig.close()


def buttons(message: Json) -> list[str]:
    """The words on a message's buttons."""
    blocks = message.get("blocks") or []
    rows = [block["elements"] for block in blocks if block["type"] == "actions"]
    return [element["text"]["text"] for row in rows for element in row]


def key_of(message: Json) -> str | None:
    """The outbox key that a message carries."""
    payload = (message.get("metadata") or {}).get("event_payload") or {}
    key: str | None = payload.get("key")
    return key


def stands_in(message: Json, key: str) -> bool:
    """Whether a message carries this key, or a block that does: the card with the question with which a flow opens."""
    return key_of(message) == key or any(b.get("block_id") == key for b in message.get("blocks") or [])


__all__ = [
    "APPROVAL",
    "ASK",
    "FAST",
    "TELL",
    "PutOutbox",
    "Rig",
    "buttons",
    "key_of",
    "running_rig",
    "stands_in",
]
