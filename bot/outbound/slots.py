"""Slots: the messages of a session that only change, each brought to how it is now.

A row of kind `show` is a slot. Its result says where the message stands (`channel`, `ts`) and how that looks (`look`, a
digest), so a slot is posted once and edited only where it would look different, by whatever process. A slot that stands
on the message of another one names it (`on`): the only question with which a session opens is on its card (`opens`),
and requests of an agent that come together are on the message of the first (`together`). Calls of one turn that are
asked about in one step are one slot.

Changes of one message share a lane, so none overtakes another (`bot.outbound.turns.lane_of`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from bot.faces.run import Behind, Facts, run
from bot.intents.session_rows import question_key, sharing, status_row
from bot.intents.slots import ALIKE, CARD, QUESTION, SHOW, SPEECH
from bot.outbound.agent_messages import Pieces
from bot.outbound.calls import DELETED, Hold, Place, Posted
from bot.outbound.posts import (
    DROPPED,
    Failed,
    Outcome,
    Sent,
    is_uncertain,
    opens,
    position,
    posted_of,
    result_of,
)
from bot.outbound.progress import behind
from bot.outbound.sender import STALE_SECONDS, Send, Sender, root_of, thread_of
from bot.outbound.turns import slot_of
from bot.rendering.blocks import Rendered
from bot.rendering.calls import MOST_TOGETHER, calls_message
from bot.rendering.card import card, card_key, look_of, with_question
from bot.rendering.notes import note
from bot.rendering.phrases import alike_text
from bot.rendering.prompts import prompt_key, question_message
from bot.wire.client import NotSent, Permanent, RateLimited, Unknown
from engine.flow import Flow
from engine.journal.records import InboxItem, OutboxRow
from engine.journal.state import Asked, State
from engine.language import timestamps
from engine.language.codec import Json, decode, encode
from engine.language.errors import SchemaTooNew
from engine.run import remote_commands
from prompt_state import question_row as prompts

log = logging.getLogger("sayso.outbound")

PRESS_SECONDS = 1500.0
"""Seconds for which a message can be replaced through a click: Slack allows half an hour."""
TOGETHER_SECONDS = 30.0
"""Requests of an agent that come within so many seconds share a message: an edit of an older one calls nobody."""
_MOST_PRESSES = 10_000


@dataclass(eq=False, repr=False)
class Slots(Sender):
    """Brings slots up to date."""

    turns: Pieces
    agent: bool = False
    """True if the app is a Slack agent, which shows the state of its sessions."""
    room: str | None = None
    """The address of the control room, where people can open it."""

    def __post_init__(self) -> None:
        self._presses: set[str] = set()
        self._slots: dict[str, Send] = {
            CARD: self._card,
            QUESTION: self._question,
            SPEECH: self.turns.entry,
            ALIKE: self._alike,
        }

    def kinds(self) -> dict[str, Send]:
        """By kind of row."""
        return {SHOW: self.show}

    async def show(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """Bring a slot to how it is now: post its message once, then edit it where it looks different."""
        if posted_of(row) is not None and result_of(row).get("gone"):
            return Failed(result_of(row))
        send = self._slots.get(slot_of(row) or "")
        if send is None:
            raise SchemaTooNew(f"This release has no slot of {row.key!r}.")
        return await send(row, data)

    # --- cards ---------------------------------------------------------------------------------------------

    async def _card(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        state = await self.state_at(data)
        flow = await self.sessions.flow(state.session_id)
        prompt = await self._opening(row, state)
        message = await self._card_message(state, flow, prompt)
        if posted_of(row) is None and opens(row) is None and prompt is not None and message.plain:
            # It has the question on it. Recorded before it is seen, or that would be posted once more after a crash.
            row = await self.ledger.keep(row, {**result_of(row), "opens": prompt.prompt_id})
        result = await self._bring(row, row, thread_of(state), message, data)
        if self.agent and result.get("status") != (status := _session_status(state)):
            # Slack shows how sessions stand: it is told what changed, in a row of its own.
            person, place = str(state.actor.get("id") or ""), thread_of(state)
            by = person if person[:1] in ("U", "W") else ""
            thread_ts = place.thread_ts or result["ts"]
            told = status_row(state.session_id, place.channel, thread_ts, status, state.flow_name, by)
            await self.ledger.put([told])
            result["status"] = status
        return Sent(result)

    async def _opening(self, row: OutboxRow, state: State) -> Asked | None:
        """The question that is on a session's card: the only one with which it opened, before the card was posted."""
        known = opens(row)
        if known is not None:
            found = state.prompts.get(known)
            return found if found is not None and not found.reposts else None
        if (
            posted_of(row) is not None
            or is_uncertain(row)
            or len(state.prompts) != 1
            or not state.open_prompts
        ):
            return None
        (prompt,) = state.prompts.values()
        asked = await self.ledger.row(prompt_key(prompt.prompt_id))
        return prompt if asked is not None and asked.state == "pending" and not asked.attempts else None

    async def _card_message(self, state: State, flow: Flow, prompt: Asked | None) -> Rendered:
        """A session's card as it is now, with the question with which it opened."""
        find = None if state.ended else self.sessions.lacks
        facts = Facts(
            ids=await self.ids(*(state.prompts[key] for key in state.open_prompts)),
            behind=await self._behind(state),
            meters=self.sessions.meters(state.session_id),
            lacks=() if find is None else await find(flow),
            room=self.room,
        )
        said = run(state, flow, facts, folded=prompt is not None and prompt.open)
        message = card(said, self.ledger.now())
        if prompt is not None:
            question = await self._question_message(state, flow, [prompt])
            message = with_question(message, question, is_open=prompt.open) or message
        return message

    async def _behind(self, state: State) -> Behind | None:
        """Return the session ahead in the queue for the lock, with a link to its thread."""
        found = await behind(self.ledger.writer, state)
        if found is None:
            return None
        head = await self.ledger.head(found.holder)
        return found._replace(link=await self.link(root_of(head.thread_key if head is not None else None)))

    # --- questions -----------------------------------------------------------------------------------------

    async def _question(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        state, flow, prompt = await self.about(data)
        if row.key != question_key(prompt):
            return Sent({**result_of(row), **DROPPED})  # its message was deleted: another slot shows it
        if posted_of(row) is None and prompt.shown is not None:
            # Its record was lost, and the journal knows where it is.
            place = {name: prompt.shown[name] for name in ("channel", "ts")}
            row = row.but(result=encode({**result_of(row), **place}))
        there = await self._message_of(row, state, prompt)
        asked = [(state.session_id, one) for one in sharing(state, prompt)]
        if there.key == card_key(state.session_id):
            message = await self._card_message(state, flow, prompt)
        else:
            asked = await self._together(there) or asked
            message = await self._question_message(state, flow, [one for _, one in asked], data.get("reason"))
        waiting = [(session_id, one) for session_id, one in asked if one.open]
        try:
            result = await self._bring(row, there, thread_of(state), message, data, wanted=bool(waiting))
        except Permanent as fault:
            where = posted_of(there)
            if where is None or fault.reason not in DELETED or not waiting:
                raise
            if prompt.shown is None and there.key != row.key:
                # It was to join a message that was deleted meanwhile.
                await self.ledger.keep(row, {"alone": True})
                raise Hold(0.0, f"{row.key} gets a message of its own") from fault
            lost = [_told("gone", session_id, one, where.ts, ts=where.ts) for session_id, one in waiting]
            return Sent({**result_of(row), **DROPPED}, lost)
        if "ts" not in result:
            return Sent(result)
        shown = {**{name: result[name] for name in ("channel", "ts")}, "threadTs": thread_of(state).thread_ts}
        news = [(session_id, one) for session_id, one in waiting if one.shown is None]
        items = [_told("shown", session_id, one, result["ts"], shown=shown) for session_id, one in news]
        return Sent(result, items)

    async def _message_of(self, row: OutboxRow, state: State, prompt: Asked) -> OutboxRow:
        """The slot whose message shows a question; its own, unless it is on another one's."""
        known = result_of(row)
        if "on" not in known:
            if known.get("alone") or prompt.reposts:
                return row
            top = await self.ledger.row(card_key(state.session_id))
            if top is not None and posted_of(top) is not None and opens(top) == prompt.prompt_id:
                return top
            if posted_of(row) is not None:
                return row
            lead = None if is_uncertain(row) or not prompt.is_request else await self._joinable(row, prompt)
            where = posted_of(lead)
            if lead is None or where is None:
                return row
            # What this one joins is kept before the other lists it: it stays there whatever happens in between.
            await self.ledger.keep(row, {**known, **position(where), "on": lead.key})
            raise Hold(0.0, f"{row.key} joins {lead.key}")
        there = await self.ledger.row(known["on"])
        if there is None or there.key == card_key(state.session_id):
            return there or row
        together = result_of(there).get("together") or [there.key]
        if row.key in together:
            return there
        return await self.ledger.keep(there, {**result_of(there), "together": [*together, row.key]})

    async def _joinable(self, row: OutboxRow, prompt: Asked) -> OutboxRow | None:
        """The message of a request of an agent that another one of the same thread may join now: that was made a moment
        before and is open."""
        writer = self.ledger.writer
        waiting = await writer.call(prompts.waiting, writer.store.prompts, thread_key=row.lane)
        others = [one for one in reversed(waiting) if one.prompt_id != prompt.prompt_id and one.is_request]
        rows = [(one, await self.ledger.row(prompt_key(one.prompt_id))) for one in others]
        leads = [
            (one, str(result_of(found).get("on") or found.key)) for one, found in rows if found is not None
        ]
        for other, key in leads:
            lead = await self.ledger.row(key)
            where = posted_of(lead)
            if lead is None or where is None or other.message_ts not in (None, where.ts):
                continue
            recent = timestamps.seconds_between(lead.created_at, row.created_at) <= TOGETHER_SECONDS
            # Some may have joined that it does not list yet.
            joined = [prompt_key(one.prompt_id) for one, there in leads if there == key]
            if recent and len({*(result_of(lead).get("together") or ()), *joined}) < MOST_TOGETHER:
                return lead
        return None

    async def _together(self, there: OutboxRow) -> list[tuple[str, Asked]]:
        """The requests that are on a message, each with its session."""
        found = []
        for number, key in enumerate(result_of(there).get("together", ()), 1):
            row = await self.ledger.row(key)
            if row is not None:
                other, _, one = await self.about(decode(row.payload))
                found.append((other.session_id, replace(one, number=number)))
        return [(session_id, one) for session_id, one in found if not one.reposts]

    async def _question_message(
        self, state: State, flow: Flow, asked: Sequence[Asked], reason: str | None = None
    ) -> Rendered:
        """The message of one question, or of several, as it is now; `reason` is why it was withdrawn, where it was."""
        # As it was posted: a deadline that only the session has is told when it is near.
        asked = [one if one.timeout_seconds else replace(one, deadline=None) for one in asked]
        ids, now = await self.ids(*asked), self.ledger.now()
        if len(asked) > 1:
            return calls_message(state, asked, flow, ids, now)
        return question_message(state, asked[0], flow, ids, now, reason or "")

    # --- others --------------------------------------------------------------------------------------------

    async def _alike(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """Show the number of similar messages after the one that began this thread: each of them replaced the row."""
        place, message = (
            Place(data["channel"], data["threadTs"]),
            note(alike_text(row.rev, data["latest"]), row.key),
        )
        return Sent(await self._bring(row, row, place, message, data))

    # --- reconciling ---------------------------------------------------------------------------------------

    async def _bring(
        self,
        row: OutboxRow,
        there: OutboxRow,
        place: Place,
        message: Rendered,
        data: dict[str, Json],
        *,
        wanted: bool = True,
    ) -> dict[str, Json]:
        """Bring a slot's message to how it is now, and return the slot's record. `there` is the slot whose message that is.
        Where it does not stand yet, it is posted if it is `wanted`."""
        known, where, look = result_of(row), posted_of(there), look_of(message)
        differs = result_of(there).get("look") != look
        if where is not None and there.key != row.key:
            known = {**known, **position(where), "on": there.key}
            if differs and posted_of(row) is None:
                await self.ledger.keep(row, known)
                raise Hold(0.0, f"{row.key} is shown in the lane of {there.key}")
            if differs:
                if result_of(there).get("gone"):
                    raise Permanent(result_of(there)["error"], result_of(there)["message"])
                await self._replace(there, where, message, data.get("press"))
                await self.ledger.keep(there, {**result_of(there), "look": look})
            return known
        if where is not None:
            if differs:
                await self._replace(row, where, message, data.get("press"))
            return {**known, "look": look}
        if wanted:
            where = await self.poster.once(row, place, message)
        elif is_uncertain(row):
            where = await self.poster.adopt(row, place)
        if where is None:
            return {**known, **DROPPED}
        if is_uncertain(row):
            # It may show what was true then. Where it stands is recorded before it is changed: a change that is refused
            # must not look like a post that was.
            await self.ledger.keep(row, {**known, **position(where)})
            raise Hold(STALE_SECONDS, f"{row.key} was found and is brought up to date")
        return {**known, **position(where), "look": look}

    async def _replace(self, there: OutboxRow, where: Posted, message: Rendered, key: str | None) -> None:
        """Change the message of a slot; through the press by which it changed where there was one, which is tried once."""
        await self.ledger.unknown_look(there)
        press = None if key is None or key in self._presses else await self.ledger.arrived(key)
        data: dict[str, Json] = {} if press is None else decode(press.payload)
        if press is not None and data.get("responseUrl") and data.get("messageTs") == where.ts:
            if len(self._presses) > _MOST_PRESSES:
                self._presses.clear()
            self._presses.add(press.key)
            if timestamps.seconds_between(press.received_at, self.ledger.now()) <= PRESS_SECONDS:
                try:
                    return await self.calls.replace(data["responseUrl"], where, message)
                except (Permanent, NotSent, RateLimited, Unknown) as fault:
                    log.info("%s is edited, not replaced through its press: %s", where.ts, fault)
        await self.calls.edit(where, message)


def _told(what: str, session_id: str, asked: Asked, at: str, **fields: Json) -> InboxItem:
    """Return what a session hears of the message of its question; `at` is the ts of that message."""
    key = f"{what}:{question_key(asked)}:{at}"
    return remote_commands.item(key, session_id, what, promptId=asked.prompt_id, **fields)


def _session_status(state: State) -> str:
    """Return the state of a session in Slack's terms for sessions of agents."""
    if state.ended:
        return "closed"
    if state.open_prompts or state.phase in ("held", "unreachable"):
        return "suspended"
    return "active" if state.phase == "waiting" else "processing"
