"""Starts flows, for every way in: the same checks, and the same words for whoever is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bot.config.library import Library
from bot.config.settings import Settings
from bot.intents.session_rows import note_row
from bot.rendering import phrases
from bot.rendering.text import escape
from bot.start.rate_limits import RateLimits
from bot.wire.channels import Channels
from bot.wire.users import LookupFailed
from engine.flow import Flow
from engine.journal.records import Consumed, InboxRow
from engine.language.actors import Actor
from engine.language.codec import Json
from engine.language.errors import SaysoError, StorageError, UnknownFlow
from engine.run.engine import Engine
from prompt_state.policy import Gate, authorize
from prompt_state.question_row import thread_key
from prompt_state.target import AskedSpec


@dataclass(frozen=True, slots=True)
class Refusal:
    """Nothing was started; `text` (mrkdwn) says why. `quiet`: this was said a moment ago already."""

    text: str
    quiet: bool = False


class Starter:
    """Starts sessions in threads."""

    def __init__(
        self,
        engine: Engine,
        library: Library,
        channels: Channels,
        limits: RateLimits,
        settings: Settings,
        gate: Gate,
    ) -> None:
        self._engine = engine
        self._gate = gate
        self._library = library
        self._channels = channels
        self._limits = limits
        self._places = settings.channels

    def entries(self, flow: str) -> tuple[str, ...]:
        """Who may start a flow, as far as groups have to be looked up for it."""
        found = self._library.refresh().get(flow)
        return (found.allowed_to_start or ()) if found is not None else ()

    async def refusal(self, data: Mapping[str, Json], actor: Actor, name: str) -> Refusal | None:
        """Why this would not be started, asked before a message for it is posted; whether it is, `start` decides. `data`
        has the channel. Raises `LookupFailed` and `StorageError`."""
        try:
            flow = self._library.get(name)
        except UnknownFlow as error:
            return Refusal(escape(str(error)))
        asked = AskedSpec("start", who=flow.allowed_to_start)
        reason = authorize(actor, "start", self._gate.target({}, True, asked)).reason
        if reason is not None:
            return Refusal(escape(reason))
        return await self._place(flow, data["channel"]) or self._rate(actor, data["channel"])

    async def start(
        self,
        row: InboxRow,
        data: Mapping[str, Json],
        actor: Actor,
        name: str,
        inputs: Mapping[str, Json],
        thread_ts: str,
    ) -> Refusal | None:
        """Start a flow in a thread and consume the row with it, or say why not; the row is the caller's then. `data` has
        the team and the channel. Raises `LookupFailed` and `StorageError`."""
        try:
            flow = self._library.get(name)
            refusal = await self._place(flow, data["channel"]) or self._rate(actor, data["channel"])
            if refusal is not None:
                return refusal
            thread: dict[str, Json] = {
                "team": data["team"],
                "channel": data["channel"],
                "threadTs": thread_ts,
                "key": thread_key(data["team"], data["channel"], thread_ts),
            }
            consumed = [Consumed(row.id, "started")]
            await self._engine.start(flow, inputs, actor=actor, thread=thread, consumed=consumed)
        except (LookupFailed, StorageError):
            raise
        except (SaysoError, UnknownFlow) as error:
            return Refusal(escape(str(error)))
        self._limits.count(_person(actor), data["channel"])
        await self._tell_stale(row, thread, name)
        return None

    async def _tell_stale(self, row: InboxRow, thread: Mapping[str, Json], name: str) -> None:
        """A run of a flow whose file was broken since says that it is of the version before."""
        fault = self._library.faults().get(name)
        if fault is not None:
            text = phrases.stale_flow_text(name, fault)
            said = note_row(f"stale:{row.key}", thread["key"], thread["channel"], thread["threadTs"], text)
            await self._engine.writer.call(self._engine.store.consume, [], self._engine.now(), [said])

    async def _place(self, flow: Flow, channel: str) -> Refusal | None:
        direct = channel.startswith("D")
        if self._places and channel not in self._places and not (direct and "dm" in self._places):
            return Refusal("Flows are not started here: SAYSO_CHANNELS does not list this channel.")
        if not await self._channels.among(channel, flow.channels):
            places = ", ".join(_place(entry) for entry in flow.channels or ())
            return Refusal(f"`{flow.name}` is not started here, but in {places}.")
        return None

    def _rate(self, actor: Actor, channel: str) -> Refusal | None:
        over = self._limits.over(_person(actor), channel)
        return None if over is None else Refusal(escape(over.text), quiet=not over.first)


def _person(actor: Actor) -> str | None:
    return None if actor.kind == "system" else actor.id


def _place(entry: str) -> str:
    return escape(entry) if entry.startswith("#") else f"<#{entry}>"
