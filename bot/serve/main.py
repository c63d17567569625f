"""The bot as a process: check the preconditions, assemble the parts, serve, and drain when told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from bot.compose.comparing import Comparing
from bot.compose.environment import THIS_MACHINE, Machine, look_after, make_engine
from bot.compose.lacks import Lacks
from bot.compose.suspension import until_released
from bot.config.directory import Directory
from bot.config.library import Library
from bot.config.profiles import Profiles
from bot.config.session_files import SessionFiles
from bot.config.settings import Settings, slack_tokens
from bot.gate.requests import Requests
from bot.gate.rules import RulesFile
from bot.handlers.agent_surface import AgentSurface
from bot.handlers.catchup import INSTALLED, CatchUp
from bot.handlers.channel_changes import ChannelChanges, DeadLetters, newer_rows, quarantine_rows
from bot.handlers.clicks import Presses
from bot.handlers.delivered import Delivered
from bot.handlers.replies import Conversation, Replies
from bot.handlers.web_requests import WebRequests
from bot.inbound import decisions
from bot.inbound.triggers import Listening, read_by_people
from bot.outbound.calls import AGENT_REFUSED, Modals
from bot.outbound.destinations import Names
from bot.outbound.notices import Notices, held
from bot.outbound.outbox_worker import Outbound
from bot.outbound.progress import Meters, Queues
from bot.outbound.streams import STREAM_EVENTS
from bot.serve import chores
from bot.serve.bolt import SlackApp
from bot.serve.gaps import Gaps
from bot.serve.identity import Identity, StartFailed, identify
from bot.serve.roles import Replica
from bot.start.form import FlowChoice, StartForm
from bot.start.from_slack import MessageStarts, SessionStatus, TriggerStarts
from bot.start.grants import WideGrants
from bot.start.memory import Notes
from bot.start.schedules import WANTED_ROOTED, Schedules
from bot.start.starter import RateLimits, Starter, ThreadStarts
from bot.views.forms import Change, Fill
from bot.views.home import HomeKind, Together
from bot.views.kinds import Always, Decide, FullText, HandOverForm, PromptLookup
from bot.views.me import Me
from bot.views.service import Kind, Views
from bot.views.waiting_for import WaitingFor
from bot.wire.budget import Budget, limits_of
from bot.wire.channel_aliases import Aliases
from bot.wire.client import AuthLost, IncomingFiles, bot_client, passing
from bot.wire.said import Said
from bot.wire.sockets import HEARD
from bot.wire.users import Channels, Links, LookupFailed, People, UnknownPerson
from engine.decide.policy import Gate
from engine.journal.events import Event, SessionReachable
from engine.journal.records import Head, InboxRow
from engine.journal.state import State
from engine.language import timestamps
from engine.language.errors import StorageError
from engine.run.dispatcher import Dispatcher, LocalWakeups, RowHandler
from engine.run.engine import DRAIN_SECONDS
from engine.run.shared_lanes import LOOK_SECONDS
from engine.run.supervision import supervised
from engine.storage.backoff import is_busy, waited_out
from engine.storage.lanes import CHORES, SEND
from engine.storage.store import Store

log = logging.getLogger("sayso")
P = ParamSpec("P")
T = TypeVar("T")

LEARN_SECONDS = 5.0
"""Seconds between reads of what other processes learned about channels and people."""
HEARD_SECONDS = 5.0
"""Seconds between two notes that events came."""


class Bot:
    """All parts of the running bot."""

    def __init__(
        self,
        settings: Settings,
        *,
        flows: Sequence[Path] = (),
        machine: Machine = THIS_MACHINE,
        role: str = "all",
    ) -> None:
        """`role`: one of `ROLES`; where only one process can serve the store it is `all`."""
        self.settings = settings
        self.role = role
        self.machine = machine
        self.library = Library(*(flows or [settings.flows]))
        self.stopping = asyncio.Event()
        self._ready = False
        self._heard = 0
        self.metrics_at: str | None = None
        """The address at which metrics are served."""
        self.gate_at: str | None = None
        """The address at which agents ask."""

    @cached_property
    def lacks(self) -> Lacks:
        """The needs of flows that this machine does not meet."""
        return Lacks(self.settings, self.engine.executor.jobs.secret, self.machine.steady)

    async def run(self, on_ready: Callable[[Identity], None] | None = None) -> None:
        """Serve until `stop()`. Raises `StartFailed`, `SettingsError`, `StorageError`."""
        bot_token, app_token = slack_tokens(self.settings)
        self.budget = budget = Budget(
            limits_of(self.settings.slack_limits), chance=self.machine.tuning.jitter
        )
        bot = bot_client(bot_token, self.settings.api_url, self.machine.session, budget)
        app = bot_client(app_token, self.settings.api_url, self.machine.session, budget)
        flows = list(self.library.refresh().values())
        identity = await identify(bot, app, self.settings.api_url, flows)
        if identity.report.fatal:
            raise StartFailed(identity.report.text())
        if identity.report.missing:
            log.warning("%s", identity.report.text())
        store = await waited_out(
            lambda: self._opened(identity), "the start", lambda: not self.stopping.is_set(), is_busy
        )
        try:
            self._assemble(store, identity, bot, app, app_token)
            async with contextlib.AsyncExitStack() as stack:
                await self._measured(stack)
                await self._gated(stack)
                await self._serve(identity, on_ready)
        finally:
            store.close()

    def stop(self) -> None:
        """Begin to drain: no new work is taken; running work finishes or is cut."""
        self.stopping.set()

    async def _opened(self, identity: Identity) -> Store:
        """Return the store, bound to this workspace for good. Raises `StorageError`."""
        settings = self.settings
        store = self.machine.open_store(settings.database_url, settings.secret_key, settings.encryption_keys)
        try:
            store.bind(identity.team_id, identity.app_id or "")
            if store.marks.ts(INSTALLED) is None:
                store.marks.move(INSTALLED, f"{self.machine.seconds():.6f}")
            if store.marks.ts(AGENT_REFUSED):
                # The workspace may take it by now.
                store.marks.move(AGENT_REFUSED, "")
        except BaseException:
            store.close()
            raise
        return store

    def _assemble(self, store: Store, identity: Identity, bot: Any, app: Any, app_token: str) -> None:
        settings, machine = self.settings, self.machine
        self._bot = bot
        self.aliases: Aliases = bot.aliases
        gate = Gate(
            identity.team_id,
            settings.admins,
            settings.allow_guests,
            allow_local=True,
            users=settings.users,
        )
        home = decisions.Home(identity.team_id, identity.app_id, identity.bot_user_id, identity.agent)
        said = Said(bot, identity.bot_user_id, lambda user: self.people.name(user), read_by_people)
        self.channels = Channels(bot, machine.steady)
        self.engine = make_engine(
            settings,
            store,
            gate,
            label="bot",
            slack=True,
            machine=machine,
            said_in=said,
            public=self.channels.readable,
        )
        files = SessionFiles(settings.home, self.engine.files)
        self.engine.sessions.on_quarantine = quarantine_rows
        self.engine.sessions.on_newer = newer_rows
        starts, handlers = self._handlers(bot, gate, home, IncomingFiles(bot, files))
        self.replica = replica = Replica(self.engine.writer, self.role, settings.listen_url)
        # If several serve a store, the others announce their commits (`Store.listen`).
        wakeups = LocalWakeups(partial(self.engine.writer.call, store.changed), machine.poll_seconds)
        if replica.shared:
            wakeups = LocalWakeups(_never, float("inf"))
        self.service = Dispatcher(
            self.engine,
            handlers=handlers,
            wants=in_slack,
            order=said_at,
            tell=DeadLetters(self.engine).told,
            wakeups=wakeups,
        )
        self.queues = Queues(self.engine)
        self.delivered = Delivered(self.engine.writer, machine.steady)
        self.outbound = self._telling(bot, home, files)
        self.slack = self._hearing(bot, app, app_token, home, starts)
        self._finding(bot, home)
        replica.on_look = self._look

    def _handlers(
        self, bot: Any, gate: Gate, home: decisions.Home, incoming: IncomingFiles
    ) -> tuple[MessageStarts, dict[str, RowHandler]]:
        """Return the handler of slash commands, and handlers by kind of inbox row."""
        settings, engine, steady = self.settings, self.engine, self.machine.steady
        self.profiles = Profiles(engine.writer, self.machine.now)
        people = self.people = People(
            bot,
            home.team_id,
            steady,
            always=settings.users | settings.admins,
            directory=Directory(settings.people_file, self.machine.now, steady),
            profiles=self.profiles,
        )
        channels, links = self.channels, Links(bot)
        self.comparing = Comparing(engine, self._stored)
        self.notices = notices = Notices(engine, gate, self.comparing.prompt)
        status = SessionStatus(notices, self.budget.full, lambda: self.catchup.progress(), links)
        limits = RateLimits(settings.rates, steady)
        starter = Starter(notices, self.library, people, channels, limits, settings)
        threads = ThreadStarts(starter, channels, notices, home.team_id, settings.admins)
        self.requests = Requests(
            notices,
            people,
            channels,
            starter,
            RulesFile(settings.gate_file),
            home.team_id,
            self.machine.now,
            lambda: self.service.notify(),
            steady,
        )
        engine.subscribe(self.requests.heard)
        triggers = TriggerStarts(
            notices, self.library, channels, starter, links, bot, lambda: self.service.notify()
        )
        kept = Notes(notices, channels, people), WideGrants(notices)
        starts = MessageStarts(self.library, people, starter, threads, status, notices, *kept)
        replies = Replies(people, notices, incoming)
        talk = Conversation(people, home, self.library, starts, replies, status, notices)
        presses = Presses(people, home, notices, replies, lambda: self.service.notify())
        lookup = PromptLookup(engine, people, gate, self.comparing.prompt)
        form = StartForm(self.library, lookup, threads.begin, triggers.about, self.lacks, starter.inputs_of)
        waiting, screen = WaitingFor(engine.writer, people, gate), Modals(bot)
        names = Names(bot, steady)
        self.homes = HomeKind(
            engine, self.library, people, waiting, links, screen, steady, self.profiles, names
        )
        engine.subscribe(self.homes.happened)
        kinds: list[Kind] = [
            *(kind(lookup, replies.carry_out) for kind in (Decide, Fill, Change, Always, HandOverForm)),
            FullText(lookup),
            form,
            FlowChoice(self.library, form),
            self.homes,
            Me(self.profiles, people, engine.writer, self.machine.now, self.homes.look_again),
            Together(notices, waiting, lookup, lambda: self.service.notify()),
        ]
        self.views = Views(screen, kinds, engine.writer, self.machine.now)
        handled: dict[str, RowHandler] = {
            decisions.MESSAGE: talk.message,
            decisions.CLICK: presses.click,
            decisions.SLASH: starts.slash,
            decisions.EDITED: talk.edited,
            **threads.handlers(),
            **triggers.handlers(),
            **self.views.handlers(),
            **ChannelChanges(notices, self._reachable_again).handlers(),
            **AgentSurface(people, starter, replies, notices).handlers(),
            **WebRequests(engine, people).handlers(),
            **self.requests.handlers(),
        }
        for kind in (decisions.ROOTED, WANTED_ROOTED):
            handled[kind] = self._then_read(handled[kind])
        return starts, {kind: self._after_catch_up(handler) for kind, handler in handled.items()}

    def _telling(self, bot: Any, home: decisions.Home, files: SessionFiles) -> Outbound:
        """The worker of the outbox, which looks whenever a session took a step."""
        tuning, engine, writer = self.machine.tuning, self.engine, self.engine.writer
        if self.replica.shared:
            tuning = replace(tuning, poll_seconds=LOOK_SECONDS)
        outbound = Outbound(
            writer,
            bot,
            engine.verified_state,
            engine.flow_of,
            home.bot_user_id,
            taken=self.service.notify,
            now=self.machine.now,
            tuning=tuning,
            files=files,
            meters=lambda session_id: engine.executor.meters.get(session_id) or {},
            lacks=self.lacks,
            posting=lambda: self.slack.sockets.posting(),
            link_hosts=self.settings.agents.link_hosts,
            agent=home.agent,
            room=self.settings.web.url,
            sends=lambda: SEND in self.replica.has,
            still=partial(self.replica.still, SEND),
        )
        engine.subscribe(outbound.happened)
        engine.subscribe(outbound.streams.happened, *STREAM_EVENTS)
        engine.subscribe(self._regained, SessionReachable)
        engine.executor.on_stream = outbound.streams.heard
        Meters(engine, outbound.notify)
        return outbound

    def _finding(self, bot: Any, home: decisions.Home) -> None:
        """Create the parts that find undelivered work: missed messages, and schedules."""
        machine = self.machine
        self.catchup = CatchUp(
            bot,
            self.engine.writer,
            home,
            now=machine.now,
            taken=self.service.notify,
            clock=machine.seconds,
            hears=self._listening,
            first=self.aliases.first,
            delivered=self.delivered,
        )
        if self.replica.shared:
            self.slack.sockets.alone = self.replica.alone
        self.gaps = Gaps(
            self.replica,
            self.engine.writer,
            self.slack,
            self.catchup,
            clock=machine.seconds,
            taken=self.service.notify,
        )
        self.schedules = Schedules(
            self.library,
            self.engine.writer,
            now=machine.now,
            taken=self.service.notify,
            jumped=self.engine.clock_jumped,
        )

    def _hearing(
        self, bot: Any, app: Any, app_token: str, home: decisions.Home, starts: MessageStarts
    ) -> SlackApp:
        """The sockets to Slack, with all that takes from them."""
        make: Callable[..., SlackApp] = self.machine.slack_app or SlackApp
        return make(
            bot,
            app,
            app_token=app_token,
            home=home,
            writer=self.engine.writer,
            now=self.machine.now,
            answer=starts.ask,
            taken=self.service.notify,
            views=self.views,
            hears=self._listening,
            aliases=self.aliases,
            renamed=self._reachable_again,
            delivered=self.delivered,
            connections=self.settings.connections,
            quiet_seconds=self.settings.quiet_seconds,
        )

    async def _reachable_again(self, channel: str) -> None:
        """React to an invitation, or a channel that is no longer archived: post waiting messages, read missed ones."""
        await self.outbound.hurry(channel)
        await self.catchup.again(channel)
        self.gaps.unread()

    def _regained(self, state: State, events: Sequence[Event]) -> None:
        """Something could be posted in a thread again, although no event said why."""
        if state.thread:
            self.catchup.regained(str(state.thread["key"]))
            self.gaps.unread()

    def _listening(self) -> Listening:
        return Listening(self.library.refresh)

    def _after_catch_up(self, handler: Any) -> Any:
        """Wrap a handler with a read of the thread: missed messages are older than new ones."""

        async def handle(row: InboxRow) -> bool:
            if row.thread_key is not None and row.kind in (decisions.MESSAGE, decisions.OVERHEARD):
                self.outbound.said(row.thread_key, row.key.rsplit(":", 1)[1])
            if self.slack.reconnected():
                await self.gaps.reopened()
            if self.replica.shared:
                await self.gaps.hear()
            if await self.catchup.ensure(row.thread_key):
                return False
            await self.comparing.of_thread(row.thread_key)
            try:
                return bool(await handler(row))
            except UnknownPerson as error:
                return await self.notices.nobody(row, error)
            except Exception as error:
                if not isinstance(error, LookupFailed) and not passing(error):
                    raise
                return held(row, error)

        return handle

    def _then_read(self, handler: Any) -> Any:
        """The handler with a read of the thread behind it: replies may have come before the session was known."""

        async def handle(row: InboxRow) -> bool:
            done = bool(await handler(row))
            if done and row.thread_key is not None:
                await self.catchup.read(row.thread_key)
                if self.catchup.unread(row.thread_key):
                    self.gaps.unread()
            return done

        return handle

    def _look(self) -> None:
        """Another process may have committed."""
        turn = self.replica.turn(self.service.in_hand)
        asyncio.get_running_loop().call_later(turn, self.service.look)
        self.outbound.notify()
        self.homes.look_around()

    async def _learn(self) -> None:
        """Learn what other processes know about channels and people."""
        while True:
            await asyncio.sleep(LEARN_SECONDS)
            self.profiles.forget()
            await waited_out(partial(self.aliases.load, self.engine.writer), "names of channels")

    async def _serve(self, identity: Identity, on_ready: Callable[[Identity], None] | None) -> None:
        self.library.refresh()
        await self.engine.open()
        await self.aliases.load(self.engine.writer)
        parts: list[asyncio.Task[None]] = []
        if self.replica.works:
            parts.append(self._task("outbound", partial(self.replica.hold, SEND, self.outbound.run)))
        try:
            await self.replica.join()
            await until_released(self.engine.writer, self.machine.now(), self.stopping)
            if self.replica.first():
                await self.comparing.first(whole=self.replica.shared)
            else:
                self.comparing.done.set()
            if self.replica.works:
                await look_after(self.engine, in_slack)
        except BaseException:
            await self._drain(parts, [])
            raise
        if self.replica.works:
            parts.append(self._task("service", self.service.run))
        listen = asyncio.create_task(self._listen(identity, on_ready), name="listen")
        others = [listen, *(self._task(name, work) for name, work in self._others())]
        stop = asyncio.create_task(self.stopping.wait())
        done, _ = await asyncio.wait([*parts, *others, stop], return_when=asyncio.FIRST_COMPLETED)
        await self._drain(parts, others)
        stop.cancel()
        for task in done - {stop}:
            task.result()

    def _task(self, name: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        return asyncio.create_task(supervised(name, work, self._is_over), name=name)

    def _is_over(self, error: BaseException) -> bool:
        """True if the bot cannot continue after this error."""
        return isinstance(error, AuthLost) or self.service.is_over(error)

    def _others(self) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        """Yield the tasks of a process of this role, beside listening, its lanes and its outbox."""
        if self.replica.works:
            yield "chores", partial(self.replica.hold, CHORES, self._lead)
        if self.replica.shared:
            yield "learning", self._learn
        yield "token", partial(chores.watch_token, self._bot)
        yield "limits", partial(chores.note_limits, self.budget, self.engine, self.machine.seconds)
        if self.replica.takes:
            yield "sockets", self.slack.sockets.watch
            yield "homes", self.homes.run

    async def _lead(self) -> None:
        """Run the tasks that one process has for all."""
        house = partial(chores.keep_house, self.settings, self.engine, self.machine.now)
        attest = partial(chores.attest, self.settings, self.engine, self.machine.now, self.machine.seconds)
        async with asyncio.TaskGroup() as group:
            for name, work in (
                ("catch-up", self.gaps.lead),
                ("schedules", self.schedules.run),
                ("housekeeping", house),
                ("checkpoints", attest),
            ):
                group.create_task(supervised(name, work, self._is_over), name=name)

    async def _measured(self, stack: contextlib.AsyncExitStack) -> None:
        """Serve metrics and health from here on, where an address is set for them. Raises `StartFailed`."""
        if self.settings.metrics is None:
            return
        from bot.serve.hooks import Hooks
        from bot.serve.metrics import Metrics, Sources, served

        cap, refusals = self.settings.agents.day_cap, self.budget.refusals
        metrics = Metrics(Sources(self.engine, refusals, self.slack.sockets.open, cap, self.machine.now))
        secret, stopping = self.engine.executor.jobs.secret, self.stopping.is_set
        hooks = Hooks(
            self.library, self.engine.writer, secret, self.machine.now, self.service.notify, stopping
        )
        served_at = served(self.settings.metrics, metrics, self._unready, hooks)
        self.metrics_at = await stack.enter_async_context(served_at)

    async def _gated(self, stack: contextlib.AsyncExitStack) -> None:
        """Answer agents from here on, where an address is set for them. Raises `StartFailed`."""
        if self.settings.gate is None:
            return
        from bot.gate.server import served

        try:
            served_at = served(self.settings.gate, self.requests, self.stopping.is_set)
            self.gate_at = await stack.enter_async_context(served_at)
        except OSError as error:
            where = f"{self.settings.gate.host}:{self.settings.gate.port}"
            raise StartFailed(f"SAYSO_GATE: cannot listen on {where}: {error.strerror}.") from error

    def _unready(self) -> str | None:
        """Return why the bot is not ready, for monitoring; None if it is."""
        if self.stopping.is_set():
            return "it is stopping"
        if not self._ready:
            return "it is starting: it has no connection to Slack yet, or its store is suspended"
        return "no connection to Slack is open" if self.slack.sockets.down() else None

    async def _listen(self, identity: Identity, on_ready: Callable[[Identity], None] | None) -> None:
        """Connect, if that is part of the role, and look at the sockets."""
        if self.replica.takes and not self.replica.shared:
            await self.gaps.note()
        self.machine.started()
        if self.replica.takes:
            await self.gaps.connect()
        self._ready = True
        if on_ready is not None:
            on_ready(identity)
        comparing = self._task("comparing rows", self.comparing.rest)
        try:
            if self.replica.takes:
                await supervised("noticing gaps", self._look_at_sockets, self._is_over)
            await self.stopping.wait()
        finally:
            comparing.cancel()

    async def _look_at_sockets(self) -> None:
        """Notice gaps, and keep what the sockets delivered."""
        waited = 0.0
        while True:
            await asyncio.sleep(1.0)  # the SDK tells nobody when it reconnects
            if self.slack.reconnected():
                await self.gaps.reopened()
            waited += 1.0
            if waited % HEARD_SECONDS == 0:
                await self._note_heard()
            await self._stored_marks()

    async def _note_heard(self) -> None:
        """Keep when the last event came, for `sayso doctor`."""
        if self.slack.sockets.heard > self._heard:
            self._heard = self.slack.sockets.heard
            heard = f"{self.machine.seconds():.6f}"
            await self._stored("the time of the last event", self.engine.store.marks.move, HEARD, heard)

    async def _stored_marks(self) -> None:
        """Store the marks of delivered messages, unless other processes receive them too."""
        if self.replica.shared and not self.replica.alone():
            self.delivered.lost()
            return
        settle = partial(self.delivered.settle, self.catchup.unread, self.slack.sockets.carried)
        await waited_out(settle, "the marks of what was delivered")

    async def _stored(self, what: str, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a method of the store, or of a function over it; waits while the store refuses."""
        return await waited_out(lambda: self.engine.writer.call(method, *args, **kwargs), what)

    async def _drain(self, parts: Sequence[asyncio.Task[None]], others: Sequence[asyncio.Task[None]]) -> None:
        """End the `others`, then let the `parts` finish their work in hand."""
        log.info("stopping: no new work is accepted; running nodes have %g s", DRAIN_SECONDS)
        with contextlib.suppress(StorageError):
            await self.replica.leave()
        for task in others:
            task.cancel()
        if self.replica.takes:
            await self.slack.close()
        self.service.stop()
        if self.replica.relieved():
            self.outbound.stop()  # what the nodes in hand still say is posted by another process
        await self.engine.drain()
        self.outbound.stop()
        tasks = [*parts, *others]
        if tasks:
            await asyncio.wait(tasks, timeout=5)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.engine.close()


async def _never() -> bool:
    return False


def in_slack(head: Head) -> bool:
    """True if a session lives in a Slack thread; sessions of the terminal are left to the terminal."""
    return head.thread_key is not None


def said_at(row: InboxRow) -> float:
    """The time at which a row was said or pressed, in seconds since 1970: a thread is read in this order."""
    if row.kind in (decisions.MESSAGE, decisions.OVERHEARD):
        return float(row.key.rsplit(":", 1)[1])
    if row.kind == decisions.EDITED:
        # An edit comes after its message, even if a clock was set back in between.
        return float(row.key.rsplit(":", 1)[1]) + 5e-7
    if row.kind in (decisions.ROOTED, WANTED_ROOTED) and row.thread_key is not None:
        # The first message of a thread is older than all replies.
        return float(row.thread_key.rsplit(":", 1)[1])
    return timestamps.from_text(row.received_at).timestamp()
