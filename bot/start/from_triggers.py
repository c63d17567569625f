"""What starts flows beside a mention and a slash command: words in a channel, reactions, schedules, `start-flow`."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.config.library import Library
from bot.inbound import decisions
from bot.inbound.triggers import Listening, Overheard, said_in
from bot.intents.session_rows import direct_row, ephemeral_row, note_row, reaction_row, root_row
from bot.rendering.phrases import not_begun_text
from bot.rendering.text import escape, plain
from bot.start.form import shortcut_of
from bot.start.rooted import WANTED, WANTED_ROOTED
from bot.start.starter import Refusal, Starter
from bot.wire.channels import Channels
from bot.wire.permalinks import Links
from bot.wire.users import LookupFailed, People, UnknownPerson
from engine.flow import Flow
from engine.flow.model import Trigger
from engine.journal.records import Consumed, Head, InboxRow, PutOutbox, Row
from engine.journal.transitions import ENDED
from engine.language.actors import Actor
from engine.language.codec import Json, canonical, decode, encode
from engine.run.engine import Engine
from prompt_state.question_row import thread_key

log = logging.getLogger("sayso.ways_in")


class WaysIn:
    """Handlers for the inbox rows of triggers."""

    def __init__(
        self,
        engine: Engine,
        library: Library,
        people: People,
        channels: Channels,
        starter: Starter,
        links: Links,
        client: AsyncWebClient,
        team: str,
        admins: Collection[str] = (),
    ) -> None:
        """`admins` are told what nobody else would notice."""
        self._engine = engine
        self._library = library
        self._people = people
        self._channels = channels
        self._starter = starter
        self._links = links
        self._client = client
        self._team = team
        self._admins = admins
        self._locks: dict[str, asyncio.Lock] = {}

    def handlers(self) -> dict[str, Callable[[InboxRow], Awaitable[bool]]]:
        """By kind of inbox row."""
        return {
            decisions.OVERHEARD: self._patient(self.overheard),
            decisions.REACTION: self._patient(self.reacted),
            WANTED: self._patient(self.wanted),
            WANTED_ROOTED: self._patient(self.wanted_rooted),
        }

    def _patient(
        self, handle: Callable[[InboxRow], Awaitable[bool]]
    ) -> Callable[[InboxRow], Awaitable[bool]]:
        """What cannot be looked up now is tried again."""

        async def handler(row: InboxRow) -> bool:
            try:
                return await handle(row)
            except UnknownPerson as error:
                log.warning("%s is ignored: %s", row.key, error)
                return await self._consume(row, "ignored")
            except LookupFailed as error:
                log.warning("%s is held: %s", row.key, error)
                return False

        return handler

    # --- words in a channel --------------------------------------------------------------------------------

    async def overheard(self, row: InboxRow) -> bool:
        """A message that has the words of a trigger: the most telling one of those whose channel it is starts."""
        data = decode(row.payload)
        app = None if data["app"] is None else tuple(data["app"])
        heard = [
            found
            for found in Listening(self._library.refresh()).messages(data["text"], app)
            if await self._channels.among(data["channel"], found.trigger.channels)
        ]
        if not heard:
            return await self._consume(row, "ignored")
        chosen = max(heard, key=lambda found: len(found.trigger.pattern))
        inputs = {**chosen.inputs, **await self._about(chosen.trigger, data, data["text"])}
        return await self._once(row, data, chosen, inputs)

    async def _about(self, trigger: Trigger, data: Mapping[str, Json], text: str) -> dict[str, Json]:
        """The inputs that a trigger fills from the message that it is about."""
        found: dict[str, Json] = {}
        if trigger.message_as is not None:
            found[trigger.message_as] = text
        if trigger.link_as is not None:
            found[trigger.link_as] = await self._links.to(data["channel"], data["ts"])
        return found

    async def _once(
        self, row: InboxRow, data: dict[str, Json], heard: Overheard, inputs: dict[str, Json]
    ) -> bool:
        """Start what was heard, unless one like it started a run within the trigger's time."""
        trigger = heard.trigger
        if trigger.dedupe is None:
            return await self._start_heard(row, data, heard.flow, inputs)
        scope = _alike(heard, data["channel"], inputs)
        async with self._locks.setdefault(scope, asyncio.Lock()):
            own = str(data["ts"])
            place = scope
            while (before := await self._engine.writer.call(self._engine.store.mark, place)) not in (
                None,
                own,
            ):
                if abs(float(own) - float(before)) >= trigger.dedupe:
                    break
                if await self._heads(thread_key(data["team"], data["channel"], before), heard.flow.name):
                    return await self._another(row, data, before)
                if await self._pending(row.key.replace(own, before)):
                    return False  # that one starts the run, as soon as it can
                # It came to nothing: its start was refused. A mark never goes back, so the next one has its own place.
                place = f"{scope}:{before}"
            await self._engine.writer.call(self._engine.store.set_mark, place, own)
            return await self._start_heard(row, data, heard.flow, inputs)

    async def _pending(self, key: str) -> bool:
        """Whether an inbox row is there and not done."""
        row = await self._engine.writer.call(self._engine.store.inbox_row, key)
        return row is not None and row.outcome is None

    async def _another(self, row: InboxRow, data: dict[str, Json], before: str) -> bool:
        """One more like that which runs already: its thread says how many there were."""
        key = thread_key(data["team"], data["channel"], before)
        said = PutOutbox(
            key=f"alike:{key}",
            lane=f"alike:{key}",
            kind="alike",
            payload=encode({"channel": data["channel"], "threadTs": before, "latest": data["ts"]}),
            replace=True,
        )
        return await self._consume(row, "alike", said)

    async def _start_heard(
        self, row: InboxRow, data: dict[str, Json], flow: Flow, inputs: dict[str, Json]
    ) -> bool:
        actor = await self._author(data, flow)
        refusal = await self._starter.start(row, data, actor, flow.name, inputs, data["ts"])
        return refusal is None or await self._refused(row, data, refusal, heard=True)

    async def _author(self, data: dict[str, Json], flow: Flow) -> Actor:
        """Whoever wrote it; an app is nobody's requester."""
        if data.get("app") is not None:
            return Actor.itself("message", "an app's message")
        entries = self._starter.entries(flow.name)
        return await self._people.actor({**data, "app": None}, entries=entries, in_channel=True)

    # --- reactions -----------------------------------------------------------------------------------------

    async def reacted(self, row: InboxRow) -> bool:
        """A reaction to a message: starts its flow in that message's thread, unless it runs there already."""
        data = decode(row.payload)
        fitting = [
            (flow, trigger)
            for flow, trigger in Listening(self._library.refresh()).reactions(data["reaction"])
            if await self._channels.among(data["channel"], trigger.channels)
        ]
        if not fitting:
            return await self._consume(row, "ignored")
        flow, trigger = fitting[0]
        message = await self._message(data["channel"], data["ts"])
        if message is None:
            return await self._consume(row, "ignored")
        root = str(message.get("thread_ts") or data["ts"])
        if await self._runs(thread_key(data["team"], data["channel"], root), flow.name):
            return await self._consume(row, "runs already")
        actor = await self._people.actor(data, entries=self._starter.entries(flow.name))
        inputs = {**trigger.values, **await self._about(trigger, data, said_in(message))}
        refusal = await self._starter.start(row, data, actor, flow.name, inputs, root)
        return refusal is None or await self._refused(row, data, refusal, thread_ts=root)

    async def _message(self, channel: str, ts: str) -> dict[str, Any] | None:
        """One message, wherever it stands; None where it is gone."""
        try:
            answer = await self._client.conversations_replies(
                channel=channel, ts=ts, latest=ts, oldest=ts, inclusive=True, limit=1
            )
        except Exception as error:
            reason = getattr(getattr(error, "response", None), "data", None)
            if isinstance(reason, dict) and reason.get("error") in ("thread_not_found", "message_not_found"):
                return None
            raise LookupFailed(f"the message that was reacted to could not be read: {error}") from error
        return next((message for message in answer["messages"] if message["ts"] == ts), None)

    # --- the message shortcut ------------------------------------------------------------------------------

    async def about(self, row: InboxRow, data: dict[str, Json]) -> bool:
        """A flow that somebody starts from a message: it lives in that message's thread."""
        made = {**data, "ts": data["about"]["ts"]}
        return await self._patient(lambda row: self._about_message(row, made))(row)

    async def _about_message(self, row: InboxRow, data: dict[str, Json]) -> bool:
        flow = self._library.refresh().get(data["flow"])
        trigger = None if flow is None else shortcut_of(flow)
        message = await self._message(data["channel"], data["ts"])
        if flow is None or trigger is None or message is None:
            gone = "That message is gone." if message is None else "This flow is not served here any more."
            return await self._refused(row, data, Refusal(gone))
        inputs = {
            **data["inputs"],
            **trigger.values,
            **await self._about(trigger, data, said_in(message)),
        }
        root = str(message.get("thread_ts") or data["ts"])
        actor = await self._people.actor(data, entries=self._starter.entries(flow.name))
        refusal = await self._starter.start(row, data, actor, flow.name, inputs, root)
        return refusal is None or await self._refused(row, data, refusal, thread_ts=root)

    # --- schedules and the command line --------------------------------------------------------------------

    async def wanted(self, row: InboxRow) -> bool:
        """A flow that is wanted in a channel: a message that the bot posts becomes its thread."""
        data = decode(row.payload)
        channel = await self._channels.id_of(data["place"])
        if channel is None:
            return await self._not_rooted(row, {**data, "channel": None, "refused": "not_in_channel"})
        payload = {**data, "team": self._team, "channel": channel}
        if data.get("local"):
            # Somebody waits for the answer at the terminal: nothing is posted for what is not started.
            refusal = await self._starter.refusal(payload, Actor.local(data["local"]), data["flow"])
            if refusal is not None:
                result = encode({"error": "refused", "message": plain(refusal.text)})
                consumed = [Consumed(row.id, "refused", result)]
                await self._engine.writer.call(self._engine.store.consume, consumed, self._engine.now())
                return True
        then: dict[str, Json] = {"kind": WANTED_ROOTED, "key": f"rooted:{row.key}", "payload": payload}
        text = f"{data['icon']} *{escape(data['flow'])}* · {escape(data['why'])}"
        return await self._consume(row, "rooting", root_row(f"root:{row.key}", channel, text, then))

    async def wanted_rooted(self, row: InboxRow) -> bool:
        """The message stands: start the flow in its thread."""
        data = decode(row.payload)
        if "refused" in data:
            return await self._not_rooted(row, data)
        actor = Actor.local(data["local"]) if data.get("local") else Actor.itself("schedule", "a schedule")
        ts = data["posted"]["ts"]
        refusal = await self._starter.start(row, data, actor, data["flow"], data["inputs"], ts)
        return refusal is None or await self._refused(row, {**data, "ts": ts, "user": None}, refusal)

    async def _not_rooted(self, row: InboxRow, data: Mapping[str, Json]) -> bool:
        """Slack refused the message: the command line reads it in the row, of a schedule the admins are told."""
        plain = not_begun_text(data["flow"], data["place"], data["refused"])
        log.error("%s", plain)
        told: list[Row] = []
        if not data.get("local"):
            channel, day = data["channel"], self._engine.now()[:10]
            place = f"<#{channel}>" if channel else escape(data["place"])
            text = not_begun_text(f"*{escape(data['flow'])}*", place, escape(data["refused"]))
            scope = f"{data['flow']}:{data['place']}:{day}"
            told = [
                direct_row(f"unrooted:{admin}:{scope}", admin, f"⛔ {text} ({escape(data['why'])})")
                for admin in sorted(self._admins)
                if not admin.startswith("@")
            ]
        result = encode({"error": "refused", "message": plain})
        await self._engine.writer.call(
            self._engine.store.consume, [Consumed(row.id, "refused", result)], self._engine.now(), told
        )
        return True

    # --- words ---------------------------------------------------------------------------------------------

    async def _refused(
        self,
        row: InboxRow,
        data: Mapping[str, Json],
        refusal: Refusal,
        *,
        heard: bool = False,
        thread_ts: str | None = None,
    ) -> bool:
        """Say why nothing was started: to whoever did it, or where nobody did, in the thread. People who only happened to
        say the words and may not start it are not bothered."""
        ts, user, app = data["ts"], data.get("user"), data.get("app")
        if heard and user and app is None:
            # They may not even know that a flow listens: a mark on the message is enough.
            if refusal.quiet:
                return await self._consume(row, "refused")
            said: Row = ephemeral_row(f"ephemeral:{row.key}", data["channel"], user, None, refusal.text)
        elif user and app is None:
            said = ephemeral_row(f"ephemeral:{row.key}", data["channel"], user, thread_ts, refusal.text)
        elif refusal.quiet:
            said = reaction_row(f"refused:{row.key}", data["channel"], ts, "no_entry")
        else:
            lane = thread_key(data["team"], data["channel"], ts)
            text = f"⛔ Nothing was started. {refusal.text}"
            said = note_row(f"note:{row.key}", lane, data["channel"], ts, text)
        result = encode({"error": "refused", "message": refusal.text})
        await self._engine.writer.call(
            self._engine.store.consume, [Consumed(row.id, "refused", result)], self._engine.now(), [said]
        )
        return True

    async def _consume(self, row: InboxRow, outcome: str, *rows: Row) -> bool:
        await self._engine.writer.call(
            self._engine.store.consume, [Consumed(row.id, outcome)], self._engine.now(), list(rows)
        )
        return True

    # --- reading -------------------------------------------------------------------------------------------

    async def _heads(self, key: str, flow: str) -> list[Head]:
        heads = await self._engine.writer.call(self._engine.store.heads, thread_key=key)
        return [head for head in heads if head.flow_name == flow]

    async def _runs(self, key: str, flow: str) -> bool:
        return any(head.status not in ENDED for head in await self._heads(key, flow))


def _alike(heard: Overheard, channel: str, inputs: Mapping[str, Json]) -> str:
    """The scope of messages that are alike: same flow, pattern and channel, and the same values that tell them apart."""
    names = heard.trigger.dedupe_by or heard.trigger.inputs
    told_apart = {name: inputs.get(name) for name in names}
    digest = hashlib.sha256(canonical([heard.trigger.pattern, told_apart])).hexdigest()[:24]
    return f"alike:{heard.flow.name}:{channel}:{digest}"
