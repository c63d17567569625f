"""What makes something of what people say and press, and what answers them in Slack, put together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from bot.compose.environment import Machine
from bot.compose.lacks import Lacks
from bot.config.directory import Directory
from bot.config.library import Library
from bot.config.profiles import Profiles
from bot.config.session_files import SessionFiles
from bot.config.settings import Settings
from bot.handlers.agent_surface import AgentSurface
from bot.handlers.catchup import CatchUp
from bot.handlers.channel_changes import ChannelChanges
from bot.handlers.clicks import Presses
from bot.handlers.replies import Conversation, Replies, edited
from bot.handlers.web_requests import WebRequests
from bot.inbound import decisions
from bot.outbound.calls import Modals
from bot.outbound.notices import Notices
from bot.outbound.outbox_worker import Outbound
from bot.outbound.progress import Meters
from bot.outbound.shards import Shards
from bot.outbound.streams import STREAM_EVENTS
from bot.serve.roles import SWEEP_SECONDS as SHARED_SWEEP_SECONDS
from bot.serve.roles import Replica
from bot.start.form import FlowChoice, StartForm
from bot.start.from_slack import MessageStarts, SessionStatus, TriggerStarts
from bot.start.grants import WideGrants
from bot.start.memory import Notes
from bot.start.schedules import WANTED_ROOTED
from bot.start.starter import RateLimits, Starter, ThreadStarts
from bot.views.forms import Change, Fill
from bot.views.home import HomeKind, Together
from bot.views.kinds import (
    Always,
    FullText,
    HandOverForm,
    InPlace,
    PromptLookup,
    Reject,
    Told,
    Words,
)
from bot.views.me import Me
from bot.views.service import Kind, Views
from bot.views.waiting_for import WaitingFor
from bot.wire.budget import Budget
from bot.wire.client import (
    IncomingFiles,
)
from bot.wire.users import Channels, Links, People
from engine.decide.policy import Gate
from engine.journal.events import Event, SessionReachable
from engine.journal.state import State
from engine.nodes.types.spec import Meter
from engine.run.dispatcher import Dispatcher, RowHandler
from engine.run.engine import Engine


class Understanding(ABC):
    """The parts of the bot that understand people and speak to them. The others are those of `bot.serve.main`."""

    settings: Settings
    machine: Machine
    library: Library
    budget: Budget
    engine: Engine
    channels: Channels
    service: Dispatcher
    catchup: CatchUp
    replica: Replica

    @cached_property
    def lacks(self) -> Lacks:
        """What flows need that this machine does not have."""
        return Lacks(self.settings, self.engine.executor.jobs.secret, self.machine.steady)

    @abstractmethod
    def _after_catch_up(self, handler: Any) -> Any:
        """The handler, for when what was missed in the thread is read."""

    @abstractmethod
    def _then_read(self, handler: Any) -> Any:
        """The handler, and a read of the thread after it."""

    @abstractmethod
    def _posted(self) -> None:
        """Slack has taken a message, which comes back as an event."""

    @abstractmethod
    def _meters(self, session_id: str) -> Mapping[str, Meter]:
        """How far running nodes are."""

    @abstractmethod
    def _regained(self, state: State, events: Sequence[Event]) -> None:
        """Something could be posted in a thread again."""

    @abstractmethod
    async def _reachable_again(self, channel: str) -> None:
        """The bot can read and post in a channel again."""

    def _understanding(
        self, bot: Any, gate: Gate, home: decisions.Home, incoming: IncomingFiles
    ) -> tuple[MessageStarts, dict[str, RowHandler]]:
        """What makes something of what people say and press: the answers to commands, and handlers by kind of row."""
        settings, engine, steady = self.settings, self.engine, self.machine.steady
        people = self.people = self._people(bot, home.team_id)
        channels, links = self.channels, Links(bot)
        self.notices = notices = Notices(engine, gate)
        status = SessionStatus(notices, self.budget.full, lambda: self.catchup.progress())
        limits = RateLimits(settings.rates, steady)
        starter = Starter(notices, self.library, people, channels, limits, settings)
        threads = ThreadStarts(starter, channels, notices, home.team_id, settings.admins)
        triggers = TriggerStarts(
            notices, self.library, channels, starter, links, bot, lambda: self.service.notify()
        )
        kept = Notes(notices, channels, people), WideGrants(notices)
        starts = MessageStarts(self.library, people, home, starter, threads, status, notices, *kept)
        replies = Replies(people, notices, incoming)
        agents = replies.agents
        talk = Conversation(people, home, starts, replies, agents, status, notices)
        presses = Presses(people, home, notices, replies, lambda: self.service.notify(), agents)
        lookup = PromptLookup(engine, people, gate)
        form = StartForm(self.library, lookup, threads.begin, triggers.about, self.lacks)
        waiting, screen = WaitingFor(engine.writer, people, gate), Modals(bot)
        self.homes = HomeKind(engine, self.library, people, waiting, links, screen, steady, self.profiles)
        engine.subscribe(self.homes.happened)
        kinds: list[Kind] = [
            *(kind(lookup, replies) for kind in (Fill, Change, Reject, InPlace, Always, Told, Words)),
            HandOverForm(lookup, replies),
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
            decisions.EDITED: partial(edited, notices),
            **threads.handlers(),
            **triggers.handlers(),
            **self.views.handlers(),
            **ChannelChanges(notices, self._reachable_again).handlers(),
            **AgentSurface(people, starter, replies, notices).handlers(),
            **WebRequests(engine, people).handlers(),
        }
        for kind in (decisions.ROOTED, WANTED_ROOTED):
            handled[kind] = self._then_read(handled[kind])
        return starts, {kind: self._after_catch_up(handler) for kind, handler in handled.items()}

    def _people(self, bot: Any, team_id: str) -> People:
        """Who is who: in Slack, in the file about people, and as they said themselves."""
        settings, machine = self.settings, self.machine
        directory = Directory(settings.people_file, machine.now, machine.steady)
        self.profiles = Profiles(self.engine.writer, machine.now)
        always = settings.users | settings.admins
        return People(
            bot, team_id, machine.steady, always=always, directory=directory, profiles=self.profiles
        )

    def _telling(self, bot: Any, home: decisions.Home, files: SessionFiles) -> Outbound:
        """What says everything in Slack, and looks whenever a session took a step."""
        shards, tuning, writer = None, self.machine.tuning, self.engine.writer
        if self.replica.shared:
            shards = Shards(
                writer, self.replica.posters, lambda session_id: writer.call(writer.store.head, session_id)
            )
            tuning = replace(tuning, poll_seconds=SHARED_SWEEP_SECONDS)
            self.replica.on_word.append(
                lambda word: shards.look_again() if word in ("all", "peers") else None
            )
        outbound = Outbound(
            self.engine.writer,
            bot,
            self.engine.verified_state,
            self.engine.flow_of,
            home.bot_user_id,
            taken=self.service.notify,
            now=self.machine.now,
            tuning=tuning,
            files=files,
            meters=self._meters,
            lacks=self.lacks,
            posted=self._posted,
            link_hosts=self.settings.agents.link_hosts,
            agent=home.agent,
            shards=shards,
        )
        self.engine.subscribe(outbound.happened)
        self.engine.subscribe(outbound.streams.happened, *STREAM_EVENTS)
        self.engine.subscribe(self._regained, SessionReachable)
        self.engine.executor.on_stream = outbound.streams.heard
        Meters(self.engine, outbound.notify)
        return outbound
