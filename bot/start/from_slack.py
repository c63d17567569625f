"""Flows that people start from Slack: by a message to the bot, a slash command, words, a reaction, or the
message shortcut. Who only asks gets told how sessions stand.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from slack_sdk.web.async_client import AsyncWebClient

from bot.config.library import Library
from bot.faces.places import around
from bot.inbound import decisions
from bot.inbound.lines import BadLine, StartLine, parse
from bot.inbound.meaning import Inform, Memory, OwnWish, RevokeGrant
from bot.inbound.triggers import Listening, Overheard, said_in, shown
from bot.intents.slots import ALIKE, SHOW
from bot.outbound.notices import Notices
from bot.outbound.progress import behind
from bot.rendering import phrases
from bot.rendering.blocks import rendered
from bot.rendering.grants import line
from bot.rendering.notes import note, start_blocks
from bot.rendering.text import safe
from bot.start.form import shortcut_of
from bot.start.grants import WideGrants
from bot.start.memory import Notes
from bot.start.starter import (
    Refusal,
    Starter,
    ThreadStarts,
    Wish,
    in_thread,
    to_author,
    to_presser,
    to_speaker,
)
from bot.wire.budget import Full
from bot.wire.users import Channels, Links, LookupFailed, People
from engine.decide.agents.grants import standing
from engine.flow import Flow
from engine.flow.model import Trigger
from engine.journal.phases import ENDED
from engine.journal.records import Head, InboxItem, InboxRow, PutOutbox
from engine.journal.state import State
from engine.language.actors import Actor
from engine.language.codec import Json, canonical, decode, encode
from engine.language.counting import plural
from engine.language.errors import SchemaTooNew
from prompt_state.question_row import PromptState, thread_key
from prompt_state.slack_text import text_in

_MOST_SHOWN = 30
T = TypeVar("T")


@dataclass(eq=False, repr=False)
class SessionStatus:
    """Reads sessions; writes nothing. `links` are to messages. `full` are the methods of Slack that are used up now;
    `catching_up` says how far the read of what was missed has come."""

    notices: Notices
    full: Callable[[], Sequence[Full]]
    catching_up: Callable[[], str | None]
    links: Links

    async def of(self, heads: Sequence[Head]) -> str:
        """The status of these sessions as text; those on hold are left out."""
        sound = [head for head in heads if head.quarantined is None]
        found = [
            (state, await self.notices.engine.flow_of(state.session_id))
            for state in await self._states(sound)
        ]
        queued = {state.session_id: await behind(self.notices.engine.writer, state) for state, _ in found}
        return phrases.status_text(found, self.notices.engine.now(), queued)

    async def places(self, meant: Sequence[PromptState]) -> dict[str, str]:
        """The places of these prompts in their sessions, as mrkdwn."""
        places = {}
        for prompt in meant:
            state = await self.notices.engine.verified_state(prompt.session_id)
            flow = await self.notices.engine.flow_of(prompt.session_id)
            places[prompt.prompt_id] = safe(" › ".join(around(state, flow, prompt.path)))
        return places

    async def running(self, channel: str) -> str:
        """The runs of a channel as text."""
        here = (await self._living_in(channel))[:_MOST_SHOWN]
        states = await self._states(here)
        found = [(state, await self.notices.engine.flow_of(state.session_id)) for state in states]
        spots = {
            state.session_id: (str(state.thread["channel"]), str(state.thread["threadTs"]))
            for state in states
            if state.thread
        }
        known = await self.links.those_known(spots.values())
        links = {session_id: known[spot] for session_id, spot in spots.items() if spot in known}
        text = phrases.running_text(found, links)
        limits = [phrases.limit_text(full.method, full.waiting, full.seconds) for full in self.full()]
        reading = self.catching_up()
        return "\n".join([text, *limits, *([reading] if reading else [])])

    async def allowed(self, channel: str, wider: Sequence[str]) -> str:
        """Return the calls of agents that are always allowed in a channel, and the place to revoke them."""
        now, states = self.notices.engine.now(), await self._states(await self._living_in(channel))
        lines = [
            f"{line(grant)} · used {plural(grant.used, 'time')} · {safe(state.flow_name)}"
            for state in states
            for grant in standing(state, now)
        ]
        lines = [*wider, *lines]
        if not lines:
            return "No calls are always allowed here."
        return "\n".join(
            [
                *lines[:_MOST_SHOWN],
                "_To revoke one, use Revoke on the message of its approval or on my Home tab._",
            ]
        )

    async def _states(self, heads: Sequence[Head]) -> list[State]:
        """The states of these sessions, without those that are left to a newer release."""
        found = []
        for head in heads:
            with suppress(SchemaTooNew):
                found.append(await self.notices.engine.verified_state(head.session_id))
        return found

    async def threads(self, channel: str) -> list[str]:
        """The threads of a conversation in which something goes on."""
        return list(dict.fromkeys(str(head.thread_key) for head in await self._living_in(channel)))

    async def _living_in(self, channel: str) -> list[Head]:
        return [head for head in await self.notices.living(channel) if head.quarantined is None]


@dataclass(eq=False, repr=False)
class MessageStarts:
    """Begins flows for inbox rows, or says why not."""

    library: Library
    people: People
    starter: Starter
    threads: ThreadStarts
    status: SessionStatus
    notices: Notices
    notes: Notes
    grants: WideGrants

    # --- messages ------------------------------------------------------------------------------------------

    async def by_message(self, row: InboxRow, data: dict[str, Json], wish: OwnWish) -> bool:
        """Begin what a message names, or say what it asks for."""
        if isinstance(wish, StartLine | BadLine):
            thread_ts = data["threadTs"] or data["ts"]
            told = in_thread(row, data, thread_ts)
            if isinstance(wish, BadLine):
                return await self.starter.refuse(row, Refusal(wish.message), told)
            wanted = Wish(wish.flow, wish.inputs, data, in_channel=True, message_ts=data["ts"])
            return await self.starter.start(row, wanted, thread_ts, told)
        actor = await self.people.actor(data, in_channel=True)
        match wish:
            case Memory():
                return await self.notes.asked(row, data, wish, actor)
            case RevokeGrant(grant_id):
                return await self.grants.revoke(row, data, grant_id, actor)
            case Inform("running"):
                text = await self.status.running(data["channel"])
            case Inform("grants"):
                text = await self._allowed(data["channel"])
            case Inform(about):
                flows = self.library.refresh()
                text = phrases.help_text(flows) if about == "help" else phrases.flows_text(flows)
        return await self.notices.look(row, data, actor, text)

    async def _allowed(self, channel: str) -> str:
        return await self.status.allowed(channel, await self.grants.listed(channel))

    # --- slash commands ------------------------------------------------------------------------------------

    async def slash(self, row: InboxRow) -> bool:
        """`/sayso run NAME ...`: a message that the bot posts becomes the thread; the session starts there."""
        data = decode(row.payload)
        line = parse(data["text"], self.library.refresh(), self.library.faults())
        if isinstance(line, BadLine):
            return await self.starter.refuse(row, Refusal(line.message), to_presser(row, data))
        return await self.threads.begin(row, data, line.flow, dict(line.inputs))

    async def ask(self, decision: decisions.Ask) -> dict[str, Json]:
        """The answer to a slash command that changes nothing, as a message."""
        flows = self.library.refresh()
        if decision.word == "status":
            return {"text": note(await self.status.running(decision.data["channel"])).text}
        if decision.word == "grants":
            return {"text": note(await self._allowed(decision.data["channel"])).text}
        if decision.word == "memory":
            return {"text": note(await self.notes.listed(decision.data["channel"])).text}
        listed = decision.word in ("list", "flows")
        text = phrases.flows_text(flows) if listed else phrases.slash_help(flows, decision.word)
        blocks = start_blocks(text, flows)
        return {"text": rendered(text, blocks).text, "blocks": blocks}


# --- triggers ----------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class TriggerStarts:
    """Handlers for the inbox rows of triggers. What cannot be looked up now is tried again."""

    notices: Notices
    library: Library
    channels: Channels
    starter: Starter
    links: Links
    client: AsyncWebClient
    taken: Callable[[], None]
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict, init=False)

    def handlers(self) -> dict[str, Callable[[InboxRow], Awaitable[bool]]]:
        """By kind of inbox row."""
        return {decisions.OVERHEARD: self.overheard, decisions.REACTION: self.reacted}

    # --- words in a channel --------------------------------------------------------------------------------

    async def overheard(self, row: InboxRow) -> bool:
        """A message that has the words of triggers: it starts each flow that listens to them in its channel."""
        data = decode(row.payload)
        app = None if data["app"] is None else tuple(data["app"])
        heard = Listening(self.library.refresh).messages(data["text"], app)
        # Of a flow's triggers the most telling one counts.
        telling = sorted(heard, key=lambda found: len(found.trigger.pattern), reverse=True)
        fitting = await self._fitting(data, [(found, found.flow, found.trigger) for found in telling])
        if len(fitting) != 1:
            return await self._for_each(row, data, fitting)
        (chosen,) = fitting.values()
        inputs = {**chosen.inputs, **await self._filled(chosen.trigger, data, data["text"])}
        window = chosen.trigger.dedupe
        if window is None:
            return await self._start_heard(row, data, chosen, inputs)
        # It starts, unless one like it started a run within the window: same flow, pattern and channel, and the same values
        # that tell them apart.
        names = chosen.trigger.dedupe_by or chosen.trigger.inputs
        told_apart = {name: inputs.get(name) for name in names}
        digest = hashlib.sha256(canonical([chosen.trigger.pattern, told_apart])).hexdigest()[:24]
        scope = f"alike:{chosen.flow.name}:{data['channel']}:{digest}"
        async with self._locks.setdefault(scope, asyncio.Lock()):
            own, place = str(data["ts"]), scope
            marks, call = self.notices.engine.store.marks, self.notices.engine.writer.call
            while (before := await call(marks.ts, place)) not in (None, own):
                if abs(float(own) - float(before)) >= window:
                    break
                if await self._heads(thread_key(data["team"], data["channel"], before), chosen.flow.name):
                    return await self._count_one_more(row, data, before)
                alike = row.key.removeprefix(f"{chosen.flow.name}:").replace(own, before)
                if await self._pending(alike) or await self._pending(f"{chosen.flow.name}:{alike}"):
                    return False  # that one starts the run, as soon as it can
                # It came to nothing: its start was refused. A mark never goes back, so the next one has its own place.
                place = f"{scope}:{before}"
            await call(marks.move, place, own)
            return await self._start_heard(row, data, chosen, inputs)

    async def _fitting(
        self, data: Mapping[str, Json], found: Iterable[tuple[T, Flow, Trigger]]
    ) -> dict[str, T]:
        """The first find for each flow that listens in this channel; for one flow alone, if the row is for it."""
        fitting: dict[str, T] = {}
        for each, flow, trigger in found:
            is_meant = data.get("flow") in (None, flow.name) and flow.name not in fitting
            if is_meant and await self.channels.among(data["channel"], trigger.channels):
                fitting[flow.name] = each
        return fitting

    async def _for_each(self, row: InboxRow, data: Mapping[str, Json], flows: Iterable[str]) -> bool:
        """A row for each of these flows; none where there are none."""
        items = [
            InboxItem(
                f"{flow}:{row.key}", row.kind, encode({**data, "flow": flow}), thread_key=row.thread_key
            )
            for flow in flows
        ]
        if not items:
            return await self.notices.consume(row, "ignored")
        done = await self.notices.split(row, items)
        self.taken()
        return done

    async def _pending(self, key: str) -> bool:
        """True if an inbox row is there and not done."""
        row = await self.notices.stored(key)
        return row is not None and row.outcome is None

    async def _count_one_more(self, row: InboxRow, data: dict[str, Json], before: str) -> bool:
        """One more like that which runs already: its thread says how many there were."""
        thread = thread_key(data["team"], data["channel"], before)
        key = f"{ALIKE}:{thread}" + (f":{data['flow']}" if "flow" in data else "")
        said = PutOutbox(
            key=key,
            lane=key,
            kind=SHOW,
            payload=encode({"channel": data["channel"], "threadTs": before, "latest": data["ts"]}),
            replace=True,
        )
        return await self.notices.consume(row, "alike", said)

    async def _start_heard(
        self, row: InboxRow, data: dict[str, Json], heard: Overheard, inputs: dict[str, Json]
    ) -> bool:
        # An app is nobody's requester.
        actor = None if data.get("app") is None else Actor.itself("message", "an app's message")
        wish = Wish(heard.flow.name, inputs, data, actor, in_channel=True, message_ts=data["ts"])
        return await self.starter.start(row, wish, data["ts"], to_speaker(row, data))

    # --- reactions and the message shortcut ----------------------------------------------------------------

    async def reacted(self, row: InboxRow) -> bool:
        """A reaction to a message: starts its flows in that message's thread, but for those that run there already."""
        data = decode(row.payload)
        found = Listening(self.library.refresh).reactions(data["reaction"])
        fitting = await self._fitting(data, [(pair, *pair) for pair in found])
        message = await self._message(data["channel"], data["ts"]) if len(fitting) == 1 else None
        if message is None:
            return await self._for_each(row, data, fitting if len(fitting) > 1 else ())
        ((flow, trigger),) = fitting.values()
        root = str(message.get("thread_ts") or data["ts"])
        if await self._runs(thread_key(data["team"], data["channel"], root), flow.name):
            return await self.notices.consume(row, "runs already")
        inputs = {**trigger.values, **await self._filled(trigger, data, said_in(message))}
        wish = Wish(flow.name, inputs, data, message_ts=data["ts"])
        return await self.starter.start(row, wish, root, to_author(row, data, root))

    async def about(self, row: InboxRow, data: dict[str, Json]) -> bool:
        """A flow that somebody starts from a message, with a form: it lives in that message's thread."""
        data = {**data, "ts": data["about"]["ts"]}
        flow = self.library.refresh().get(data["flow"])
        trigger = None if flow is None else shortcut_of(flow)
        message = await self._message(data["channel"], data["ts"])
        if flow is None or trigger is None or message is None:
            gone = "That message is gone." if message is None else "This flow is no longer available here."
            return await self.starter.refuse(row, Refusal(gone), to_author(row, data, None))
        filled = await self._filled(trigger, data, said_in(message))
        root = str(message.get("thread_ts") or data["ts"])
        inputs = {**data["inputs"], **trigger.values, **filled}
        wish = Wish(flow.name, inputs, data, message_ts=data["ts"])
        return await self.starter.start(row, wish, root, to_author(row, data, root))

    # --- reading -------------------------------------------------------------------------------------------

    async def _filled(self, trigger: Trigger, data: Mapping[str, Json], said: str) -> dict[str, Json]:
        """The inputs that a trigger fills from the message that it is about, and from what that says."""
        found: dict[str, Json] = {}
        if trigger.message_as is not None:
            found[trigger.message_as] = shown(said, text_in)
        if trigger.link_as is not None:
            found[trigger.link_as] = await self.links.to(data["channel"], data["ts"])
        return found

    async def _message(self, channel: str, ts: str) -> dict[str, Any] | None:
        """One message, wherever it stands; None where it is gone."""
        try:
            answer = await self.client.conversations_replies(
                channel=channel, ts=ts, latest=ts, oldest=ts, inclusive=True, limit=1
            )
        except Exception as error:
            reason = getattr(getattr(error, "response", None), "data", None)
            if isinstance(reason, dict) and reason.get("error") in ("thread_not_found", "message_not_found"):
                return None
            raise LookupFailed(f"the message that was reacted to could not be read: {error}") from error
        return next((message for message in answer["messages"] if message["ts"] == ts), None)

    async def _heads(self, key: str, flow: str) -> list[Head]:
        return [head for head in await self.notices.heads(key) if head.flow_name == flow]

    async def _runs(self, key: str, flow: str) -> bool:
        return any(head.status not in ENDED for head in await self._heads(key, flow))
