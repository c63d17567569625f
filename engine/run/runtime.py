"""A runtime for programs: a store, an engine over it, and everything that keeps its sessions going.

While a runtime is open it carries out requests, fires timers, claims sessions that a crash left behind, and hands
questions and messages to its frontend. All defaults are safe: the strict policy, runners for every type of node, Claude
for agents, and a frontend that shows nothing and says so.

The SDK that talks to MCP servers is loaded by the first agent that has one of their tools.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self
from weakref import WeakValueDictionary

from engine.decide.agents.listings import ListingRows
from engine.decide.agents.memory import NoteRows
from engine.decide.agents.spend_projection import SpendRows
from engine.decide.agents.wide_grants import GrantRows
from engine.decide.commands import Policy, no_manager
from engine.decide.policy import Gate
from engine.flow import Flow
from engine.journal.events import Event
from engine.journal.queries import TURN
from engine.journal.records import InboxRow
from engine.journal.state import State
from engine.language.actors import Actor
from engine.language.codec import Json
from engine.language.errors import SaysoError
from engine.messages.model_limits import AgentFacts
from engine.models.model_turns import ModelTurns
from engine.nodes.runtime.runner import NodeContext, Outcome, Runner
from engine.nodes.runtime.secrets import SecretSource, unset
from engine.nodes.runtime.table import runners as all_runners
from engine.nodes.runtime.table import with_runner
from engine.run.dispatcher import Dispatcher
from engine.run.engine import Engine
from engine.run.executor import random_text
from engine.run.frontend import (
    UNSEEN,
    Frontend,
    FrontendLock,
    FrontendWorker,
    NoFrontend,
    may_have_rows,
    question_rows,
)
from engine.run.hub import Hub
from engine.run.memory import descriptions, places
from engine.run.session import NewsWait, Session, check_actor
from engine.run.stored import utc_now
from engine.run.supervision import supervised, wait_at_most
from engine.storage.leases import holder_of
from engine.storage.open import open_store
from engine.storage.store import Store

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

    from engine.messages.turns import Tool
    from engine.models.provider import Provider
    from engine.nodes.runtime.mcp import McpServers

log = logging.getLogger("sayso")


class NotOpen(SaysoError):
    """A runtime is used outside of `async with Runtime(...)`, or opened twice."""

    code = "not_open"


class Runtime:
    """Runs flows in a program of one's own: `async with Runtime("sqlite:///deploy.db") as runtime`."""

    def __init__(
        self,
        store: str | Store = "memory:",
        *,
        frontend: Frontend | None = None,
        policy: Policy | None = None,
        home: Path | str | None = None,
        secret: Callable[[str], str] | None = None,
        secret_key: bytes | None = None,
        encryption_keys: Sequence[bytes] = (),
        provider: Provider | None = None,
        manager_of: Callable[[str], str | None] = no_manager,
        mcp_file: Path | str | None = None,
        link_hosts: Iterable[str] = (),
        runners: Mapping[str, Runner] | None = None,
        snapshot_dir: Path | None = None,
        label: str = "runtime",
        now: Callable[[], str] = utc_now,
        entropy: Callable[[], str] = random_text,
    ) -> None:
        """`store` is a store, or the URL of one (`sqlite:///relative.db`, `sqlite:////absolute.db`, `memory:`), signed
        with `secret_key` or a key file beside it, and encrypted with the first of `encryption_keys`, of 32 bytes each.
        `home` is the folder for the files of sessions and for `mcp.json`: by default that of the database. `policy`
        authorizes actions: by default those of the people that a flow names, and of the requester. `secret` returns the
        values of secrets: by default `SAYSO_SECRET_NAME`. `provider` answers agents: by default Claude, with the key in
        the environment. `manager_of` returns the manager of a person, both by id or e-mail address, for flows that ask
        a `manager`. MCP servers may send people to `link_hosts` only."""
        if not isinstance(store, str) and not hasattr(store, "register"):
            raise TypeError(
                f"A store is a URL (sqlite:///deploy.db) or the result of open_store, not {store!r}."
            )
        self._where = store
        self._shows = frontend is not None
        self._frontend = NoFrontend() if frontend is None else _checked_frontend(frontend)
        self._policy = policy or Gate(None)
        self._home = None if home is None else Path(home)
        self._secret = secret or SecretSource(os.environ, None).get
        self._secret_key = secret_key
        self._encryption_keys = tuple(encryption_keys)
        self._provider = provider
        self._manager_of = manager_of
        self._link_hosts = tuple(link_hosts)
        self._mcp_file = None if mcp_file is None else Path(mcp_file)
        self._runners = runners
        self._snapshot_dir = snapshot_dir
        self._label = label
        self._now = now
        self._entropy = entropy
        self._news = News()
        self._failed: BaseException | None = None
        self._engine: Engine | None = None
        self._opened = contextlib.AsyncExitStack()

    @property
    def engine(self) -> Engine:
        """Return the engine, for operations that a runtime does not offer. Raises `NotOpen`."""
        if self._engine is None:
            raise NotOpen("Use a runtime inside `async with Runtime(...) as runtime:`.")
        return self._engine

    # --- life --------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._engine is not None:
            raise NotOpen("This runtime is already open; create another Runtime for another `async with`.")
        self._failed = None
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._close)
            store = self._where
            if isinstance(store, str):
                store = await asyncio.to_thread(open_store, store, self._secret_key, self._encryption_keys)
                stack.callback(store.close)
            database = store.file
            home = self._home or (database and database.parent) or Path(stack.enter_context(_folder()))
            self._lock = FrontendLock(store, holder_of(self._label, self._now()), keeps=self._shows)
            self._engine = self._composed(store, home)
            await self._engine.open()
            stack.push_async_callback(self._engine.close)
            # Start the tasks that wake sessions; at the end the dispatcher finishes its work in hand.
            self._dispatcher = Dispatcher(self.engine, handled=self._handled)
            self._worker = FrontendWorker(self.engine, self._frontend, self._lock, self._dispatcher.notify)
            work = supervised("the dispatcher", self._dispatcher.run, self._dispatcher.is_over)
            serving = asyncio.create_task(work, name="dispatcher")
            showing = asyncio.create_task(supervised("the frontend", self._worker.run), name="frontend")
            for task in (serving, showing):
                task.add_done_callback(self._ended)

            async def stop() -> None:
                self._dispatcher.stop()
                showing.cancel()
                await asyncio.gather(serving, showing, return_exceptions=True)

            stack.push_async_callback(stop)
            self._opened = stack.pop_all()
        return self

    def _composed(self, store: Store, home: Path) -> Engine:
        servers = ToolServers(self._mcp_file or home / "mcp.json", self._secret, self._link_hosts)
        turns = ModelTurns(
            os.environ,
            servers.mcp_tools,
            lambda ctx: self._provider,
            places(lambda: engine),
            descriptions(lambda: engine),
        )
        runners = self._runners or all_runners()
        engine = Engine(
            store,
            policy=self._policy,
            runners=with_runner(with_runner(runners, TURN, turns), "mcp", servers),
            home=home,
            secret=self._secret,
            extensions=[SpendRows(None), NoteRows(), GrantRows(), ListingRows(), question_rows],
            agents=AgentFacts(),
            snapshot_dir=self._snapshot_dir,
            shown=None if self._shows else self._unseen,
            label=self._label,
            now=self._now,
            entropy=self._entropy,
        )
        engine.stepper.manager_of = self._manager_of
        engine.closing += [turns.close, servers.close]
        engine.subscribe(self._committed)
        return engine

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._opened.__aexit__(kind, error, traceback)

    def _close(self) -> None:
        self._engine = None

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._failed = task.exception()
            self._news.tell_all()

    def _unseen(self) -> dict[str, Json] | None:
        """Return the place for unshown questions, or None if another process shows those of this database."""
        if not self._lock.take():
            return None
        self._lock.pause()
        return UNSEEN

    def _committed(self, state: State, events: Sequence[Event]) -> None:
        self._news.tell(state.session_id)
        if may_have_rows(state, events):
            self._worker.notify()
        if events:
            self._frontend.observe(state, events)

    def _handled(self, row: InboxRow) -> None:
        if row.session_id is not None:
            self._news.tell(row.session_id)

    def _news_of(self, session_id: str) -> NewsWait:
        """Return a function that waits, up to so many seconds, for news of a session from now on. It raises fatal
        errors."""
        event = self._news.of(session_id)

        async def look(seconds: float) -> None:
            if self._failed is not None:
                raise self._failed
            await wait_at_most(seconds, event)

        return look

    # --- sessions ----------------------------------------------------------------------------------------------

    async def start(
        self,
        flow: Flow,
        inputs: Mapping[str, Json] | None = None,
        *,
        actor: Actor,
        session_id: str | None = None,
    ) -> Session:
        """Start a session; durable when this returns. Raises as `Engine.start`. Secrets that
        are not set are logged first: they may be set before they are needed."""
        if not isinstance(flow, Flow):
            raise TypeError(f"A flow must be the result of load_flow, not {type(flow).__name__}.")
        check_actor(actor)
        if flow.secrets:
            secret = self.engine.executor.jobs.secret
            for told in await asyncio.to_thread(lambda: [*unset(flow.secrets, secret)]):
                log.warning("flow %s: %s", flow.name, told)
        return await self.session(
            await self.engine.start(flow, inputs or {}, actor=actor, session_id=session_id)
        )

    async def session(self, session_id: str) -> Session:
        """A session that was started at any time. Raises `UnknownSession`."""
        state = await self.engine.verified_state(session_id)
        return Session(self.engine, state, self._dispatcher.notify, self._news_of, self._dispatcher.at_once)

    def wake(self) -> None:
        """Look at the store and the clock at once, instead of at the next poll."""
        self._dispatcher.notify()
        self._worker.notify()

    def hub(self, session_id: str, actor: Actor) -> Hub:
        """Return a hub with the session's live events and the requests that this actor can make."""
        return Hub(self.engine, session_id, actor)


class News:
    """Wakes code that waits for news of a session."""

    def __init__(self) -> None:
        self._waited_for: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()

    def of(self, session_id: str) -> asyncio.Event:
        """Set by the next thing that happens to the session."""
        return self._waited_for.setdefault(session_id, asyncio.Event())

    def tell(self, session_id: str) -> None:
        """Something happened to the session."""
        event = self._waited_for.pop(session_id, None)
        if event is not None:
            event.set()

    def tell_all(self) -> None:
        """Something happened to every session."""
        for session_id in list(self._waited_for):
            self.tell(session_id)


def _checked_frontend(frontend: Frontend) -> Frontend:
    names = ("ask", "close", "deliver", "observe")
    missing = [name for name in names if not callable(getattr(frontend, name, None))]
    if missing or isinstance(frontend, type):
        lacks = f"has no `{missing[0]}`" if missing else "is a class: give an instance of it"
        raise TypeError(f"A frontend has the methods {', '.join(names)}; {frontend!r} {lacks}.")
    return frontend


def _folder() -> TemporaryDirectory[str]:
    import tempfile  # for a store in memory

    return tempfile.TemporaryDirectory(prefix="sayso-")


# --- MCP servers -------------------------------------------------------------------------------------------


class ToolServers:
    """The runner of nodes of type `mcp`, over the servers that a file names."""

    def __init__(self, file: Path, secret: Callable[[str], str], hosts: Iterable[str] = ()) -> None:
        self._file, self._secret, self._hosts = file, secret, hosts

    @cached_property
    def _servers(self) -> McpServers:
        from engine.nodes.runtime.mcp import McpServers

        return McpServers(self._file, self._secret, self._hosts)

    async def __call__(self, config: dict[str, Json], ctx: NodeContext) -> Outcome:
        """Call a tool; see `Runner`."""
        return await self._servers(config, ctx)

    async def mcp_tools(self, server: str, names: Sequence[str]) -> list[Tool]:
        """See `McpServers`."""
        return await self._servers.mcp_tools(server, names)

    async def close(self) -> None:
        """Close all connections."""
        if "_servers" in vars(self):
            await self._servers.close()
