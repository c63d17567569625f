"""Sending of each kind of row. Rendered from the session as it is now, not as it was when the row was written."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from bot.intents.session_rows import status_row
from bot.outbound.calls import AGENT_REFUSED, Hold, Place, Posted
from bot.outbound.deliveries import undelivered
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
from bot.outbound.sender import STALE_SECONDS, Send, Sender, thread_of
from bot.rendering.approvals import is_request
from bot.rendering.blocks import Rendered, metadata
from bot.rendering.calls import MOST_TOGETHER, REQUESTS, beside, calls_message, tally
from bot.rendering.card import Behind, card, card_key, holder_thread, look_of, with_question
from bot.rendering.notes import end_note, note
from bot.rendering.phrases import alike_text
from bot.rendering.prompts import close_key, closed_prompt, closed_run, prompt_key, prompt_message
from bot.rendering.text import addresses, mentioning
from bot.wire.client import NotSent, Permanent, RateLimited, Unknown
from engine.decide.prompt_timers import MOST_REPOSTS
from engine.flow import Flow
from engine.journal.phases import ENDED
from engine.journal.records import InboxItem, OutboxRow
from engine.journal.state import Asked, State
from engine.language import timestamps
from engine.language.codec import Json, decode, encode
from engine.language.errors import SchemaTooNew
from engine.run import remote_commands
from prompt_state import question_row as prompts
from prompt_state.question_row import thread_key

log = logging.getLogger("sayso.outbound")

UNSHOWN_SECONDS = 5.0
"""Seconds between checks whether a changed prompt is shown by now; its own row reports it at once."""
PRESS_SECONDS = 1500.0
"""Seconds for which a message can be replaced through a click: Slack allows half an hour."""
TOGETHER_SECONDS = 30.0
"""Requests of an agent that come within so many seconds share a message: an edit of an older one calls nobody."""
_MOST_PRESSES = 10_000
_DELETED = ("message_not_found", "cant_update_message")
_GONE = ("message_not_found", "cant_update_message", "channel_not_found", "is_archived", "not_in_channel")


@dataclass(eq=False, repr=False)
class Rows(Sender):
    """Sends the rows of sessions, and all others through those whose kinds they are."""

    bot_user_id: str
    others: Mapping[str, Send]
    agent: bool = False
    """True if the app is a Slack agent, which shows the state of its sessions."""
    room: str | None = None
    """The address of the control room, where people can open it."""

    def __post_init__(self) -> None:
        self._presses: set[str] = set()
        self._looks: dict[Posted, Rendered] = {}
        self._kinds: dict[str, Send] = {
            "prompt": self._prompt,
            "close": self._close,
            "card": self._card,
            "note": self._note,
            "alike": self._alike,
            "edit": self._edit,
            "root": self._root,
            "tally": self._tally,
            "ephemeral": self._ephemeral,
            "respond": self._respond,
            "status": self._status,
            "suggest": self._suggest,
            **self.others,
        }

    async def send(self, row: OutboxRow) -> Outcome:
        """Do what the row says."""
        send = self._kinds.get(row.kind)
        if send is None:
            raise SchemaTooNew(f"This release sends no rows of kind {row.kind!r}.")
        return await send(row, decode(row.payload))

    def refused(self, row: OutboxRow, reason: str, message: str) -> Failed:
        """Return the effects of a row that Slack refuses for good."""
        kept = posted_of(row)
        result: dict[str, Json] = {"error": reason, "message": message}
        if kept is not None:
            result |= position(kept) | {"gone": reason in _GONE}
        if row.kind == "root":
            return Failed(result, [_rooted(decode(row.payload), {"refused": reason})])
        return Failed(result, undelivered(row, message) if row.kind == "message" else ())

    # --- prompts -------------------------------------------------------------------------------------------

    async def _prompt(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """Show a prompt, unless it was closed meanwhile. A copy that is there all the same is found: the row behind this
        one closes it."""
        state, flow, prompt = await self.about(data)
        place = thread_of(state)
        if row.key != prompt_key(prompt.prompt_id, prompt.reposts) and not is_uncertain(row):
            return Sent(DROPPED)
        calls: list[Json] = [one.prompt_id for one in beside(state, prompt)]
        told: dict[str, Json] = {"calls": calls} if calls else {}
        if not prompt.open:
            found = await self.poster.adopt(row, place) if is_uncertain(row) else None
            return Sent({**position(found), **told} if found is not None else DROPPED)
        posted = await self._on_card(prompt, state.session_id)
        shared = None if posted is not None else await self._shared(state, prompt)
        if shared is not None:
            posted, told = shared, {}
        lead = await self._lead(row, prompt)
        if lead is not None:
            posted, told = await self._join(row, lead, state, flow, prompt), {"lead": lead.key}
        if posted is None:
            told.pop("lead", None)
            message = await self._question(state, flow, prompt)
            posted = await self.poster.once(row, place, replace(message, metadata=metadata(row.key)))
        shown: dict[str, Json] = {**position(posted), "threadTs": place.thread_ts}
        key = f"shown:{row.key}:{posted.ts}"
        item = remote_commands.item(key, state.session_id, "shown", promptId=prompt.prompt_id, shown=shown)
        return Sent({**position(posted), **told}, [item])

    async def _shared(self, state: State, prompt: Asked) -> Posted | None:
        """Return the message on which another call shows this one too, or None."""
        for one in beside(state, prompt):
            row = await self.ledger.row(prompt_key(one.prompt_id))
            if row is not None and prompt.prompt_id in result_of(row).get("calls", ()):
                return posted_of(row)
        return None

    async def _lead(self, row: OutboxRow, prompt: Asked) -> OutboxRow | None:
        """The row of the message that a request of an agent joins: that of another request of the same thread, which was made
        a moment before and is open. It lists all that are on it. None for a request with a message of its own."""
        if not is_request(prompt) or prompt.reposts or is_uncertain(row):
            return None
        known = result_of(row).get("lead")
        lead = await self.ledger.row(known) if known else await self._joinable(row, prompt)
        if lead is None:
            return None
        together = result_of(lead).get("together") or [lead.key]
        if row.key not in together:
            # What this one joins is kept before the other lists it: it stays there whatever happens in between.
            await self.ledger.keep(row, {"lead": lead.key})
            result = encode({**result_of(lead), "together": [*together, row.key]})
            await self.ledger.finish(lead, "sent", result)
        return lead

    async def _join(
        self, row: OutboxRow, lead: OutboxRow, state: State, flow: Flow, prompt: Asked
    ) -> Posted | None:
        """Show a request on the message of others; None where that was deleted meanwhile."""
        where = posted_of(lead)
        assert where is not None, "only a message that stands is joined"
        try:
            await self._draw_together(where, state, flow, prompt)
        except Permanent as fault:
            if fault.reason not in _DELETED:
                raise
            await self.ledger.keep(row, {})
            return None
        return where

    async def _joinable(self, row: OutboxRow, prompt: Asked) -> OutboxRow | None:
        """The message of a request that another one of the same thread may join now."""
        writer = self.ledger.writer
        waiting = await writer.call(prompts.waiting, writer.store.prompts, thread_key=row.lane)
        for other in reversed(waiting):
            if other.prompt_id == prompt.prompt_id or not is_request(other):
                continue
            found = await self.ledger.row(prompt_key(other.prompt_id))
            lead = None if found is None else result_of(found).get("lead")
            found = found if lead is None else await self.ledger.row(lead)
            where = posted_of(found)
            if found is None or where is None or other.message_ts not in (None, where.ts):
                continue
            recent = timestamps.seconds_between(found.created_at, row.created_at) <= TOGETHER_SECONDS
            if recent and len(result_of(found).get("together") or ()) < MOST_TOGETHER:
                return found
        return None

    async def _together(self, state: State, prompt: Asked) -> list[tuple[str, Asked]]:
        """The questions that share a message with this one, itself among them, each with its session; none where it has its
        own message."""
        if not is_request(prompt):
            return [(state.session_id, one) for one in beside(state, prompt)]
        lead = await self.ledger.row(prompt_key(prompt.prompt_id))
        if lead is not None and result_of(lead).get("lead"):
            lead = await self.ledger.row(result_of(lead)["lead"])
        found = []
        for number, key in enumerate(result_of(lead).get("together", ()) if lead is not None else (), 1):
            row = await self.ledger.row(key)
            if row is not None:
                other, _, one = await self.about(decode(row.payload))
                found.append((other.session_id, replace(one, number=number)))
        return [] if prompt.reposts else [(session_id, one) for session_id, one in found if not one.reposts]

    async def _draw_together(
        self, where: Posted, state: State, flow: Flow, prompt: Asked, press: str | None = None
    ) -> None:
        """Show several requests on their message, until it shows all of them as they are: each changes by itself."""
        while self._looks.get(where) != look_of(message := await self._question(state, flow, prompt)):
            await self._replace(where, message, press)
            self._saw(where, message)
            press = None

    def _saw(self, where: Posted, message: Rendered) -> None:
        """Remember what a message shows now."""
        if len(self._looks) > _MOST_PRESSES:
            self._looks.clear()
        self._looks[where] = look_of(message)

    async def _close(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """Show a prompt as it is by now: changed, or closed, without buttons and with who, what and when. What was never
        shown needs neither."""
        state, flow, prompt = await self.about(data)
        on_card = await self._on_card(prompt, state.session_id)
        where = on_card or await self._shown_at(prompt) or await self._shared(state, prompt)
        if where is None:
            shown = await self.ledger.row(prompt_key(prompt.prompt_id, prompt.reposts))
            if shown is not None and shown.state == "pending":
                raise Hold(UNSHOWN_SECONDS, f"{prompt.prompt_id} is not shown yet")
            return Sent(DROPPED)
        try:
            if on_card is not None:
                await self._draw(on_card, state, flow, prompt, press=data.get("press"))
            elif is_request(prompt) and len(await self._together(state, prompt)) > 1:
                await self._draw_together(where, state, flow, prompt, press=data.get("press"))
            else:
                message = await self._question(state, flow, prompt, data.get("reason"))
                await self._replace(where, message, data.get("press"))
        except Permanent as fault:
            on_it = await self._together(state, prompt) or [(state.session_id, prompt)]
            lost = [_gone(session_id, one, where.ts) for session_id, one in on_it if one.open]
            if fault.reason not in _DELETED or not lost:
                raise
            return Sent(DROPPED, lost)
        return Sent(position(where))

    async def _question(self, state: State, flow: Flow, prompt: Asked, reason: str | None = None) -> Rendered:
        """The message of a prompt as it is now; `reason` is why it was withdrawn, where it was."""
        calls = [one for _, one in await self._together(state, prompt)]
        names = await self.ids(prompt, *calls)
        if len(calls) > 1:
            return calls_message(state, calls, flow, names=names, now=self.ledger.now())
        if prompt.open:
            return prompt_message(state, prompt, flow, names=names, now=self.ledger.now())
        return closed_prompt(state, prompt, flow, names=names, reason=reason)

    async def _replace(self, where: Posted, message: Rendered, press: str | None) -> None:
        """Change a message; through the press by which it changed, where there was one."""
        if not await self._by_press(press, where, message):
            await self.calls.edit(where, message)

    async def _by_press(self, key: str | None, where: Posted, message: Rendered) -> bool:
        """True if the message was replaced through the click that changed it, which is tried once."""
        press = None if key is None or key in self._presses else await self.ledger.arrived(key)
        data: dict[str, Json] = {} if press is None else decode(press.payload)
        if press is None or not data.get("responseUrl") or data.get("messageTs") != where.ts:
            return False
        if len(self._presses) > _MOST_PRESSES:
            self._presses.clear()
        self._presses.add(press.key)
        if timestamps.seconds_between(press.received_at, self.ledger.now()) > PRESS_SECONDS:
            return False
        try:
            await self.calls.replace(data["responseUrl"], where, message)
        except (Permanent, NotSent, RateLimited, Unknown) as fault:
            log.info("%s is edited, not replaced through its press: %s", where.ts, fault)
            return False
        return True

    async def _shown_at(self, prompt: Asked) -> Posted | None:
        """The message that shows a prompt: the latest, where earlier ones were deleted."""
        if prompt.shown:
            return Posted(prompt.shown["channel"], prompt.shown["ts"])
        for reposts in range(prompt.reposts if prompt.open else MOST_REPOSTS, -1, -1):
            where = posted_of(await self.ledger.row(prompt_key(prompt.prompt_id, reposts)))
            if where is not None or prompt.open:
                return where
        return None

    # --- cards ---------------------------------------------------------------------------------------------

    async def _card(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """Post the card once, and edit it from then on, always as the session is now."""
        where = posted_of(row)
        if where is not None and result_of(row).get("gone"):
            return Failed(result_of(row))
        state = await self._state_at(data)
        flow = await self.sessions.flow(state.session_id)
        prompt = await self._opening(row, state)
        on_it: dict[str, Json] = {"opens": opens(row)} if opens(row) is not None else {}
        if where is not None:
            closing = await self.ledger.row(close_key(prompt.prompt_id)) if prompt is not None else None
            if closing is not None and closing.state == "pending":
                raise Hold(STALE_SECONDS, f"{row.key} is drawn when its question is closed")
            await self._draw(where, state, flow, prompt)
            return await self._told(row, state, where, on_it)
        message = await self._card_message(state, flow, prompt)
        if not on_it and prompt is not None and message.plain:
            # It has the question on it. Recorded before it is seen, or that would be posted once more after a crash.
            on_it = {"opens": prompt.prompt_id}
            await self.ledger.keep(row, {**result_of(row), **on_it})
        where = await self.poster.once(row, thread_of(state), message)
        if is_uncertain(row):
            # It may show the session as it was then. Where it stands is recorded before it is edited: an edit that is
            # refused must not look like a post that was.
            await self.ledger.keep(row, {**position(where), **on_it})
            raise Hold(STALE_SECONDS, f"{row.key} was found and is brought up to date")
        self._saw(where, message)
        return await self._told(row, state, where, on_it)

    async def _told(self, row: OutboxRow, state: State, where: Posted, on_it: dict[str, Json]) -> Outcome:
        """The card stands; where Slack shows how sessions stand, it is told what changed, in a row of its own."""
        if not self.agent:
            return Sent({**position(where), **on_it})
        status, place = _session_status(state), thread_of(state)
        if result_of(row).get("status") != status:
            person = str(state.actor.get("id") or "")
            by = person if person[:1] in ("U", "W") else ""
            thread_ts = place.thread_ts or where.ts
            told = status_row(state.session_id, place.channel, thread_ts, status, state.flow_name, by)
            await self.ledger.put([told])
        return Sent({**position(where), **on_it, "status": status})

    async def _opening(self, row: OutboxRow, state: State) -> Asked | None:
        """The question that stands on a session's card: the only one with which it opened, before the card was posted."""
        known = opens(row)
        if known is not None:
            prompt = state.prompts.get(known)
            kept = None if prompt is not None else await self.stored_prompt(known)
            found = prompt or (closed_run(kept) if kept is not None else None)
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

    async def _on_card(self, prompt: Asked, session_id: str) -> Posted | None:
        """Return the location of the card that shows this prompt too; None for a prompt with a message of its own."""
        row = await self.ledger.row(card_key(session_id))
        on_it = row is not None and opens(row) == prompt.prompt_id and not prompt.reposts
        return posted_of(row) if on_it else None

    async def _draw(
        self, where: Posted, state: State, flow: Flow, prompt: Asked | None, press: str | None = None
    ) -> None:
        """Edit a card to how its session is now; not where it shows that already."""
        message = await self._card_message(state, flow, prompt)
        if self._looks.get(where) == look_of(message):
            return
        await self._replace(where, message, press)
        self._saw(where, message)

    async def _card_message(self, state: State, flow: Flow, prompt: Asked | None) -> Rendered:
        """A session's card as it is now, with the question with which it opened."""
        names = await self.ids(*(state.prompts[key] for key in state.open_prompts))
        behind, meters = await self._behind(state), self.sessions.meters(state.session_id)
        find = None if state.ended else self.sessions.lacks
        lacks = () if find is None else await find(flow)
        now, folded = self.ledger.now(), prompt is not None and prompt.open
        message = card(
            state,
            flow,
            now,
            names=names,
            behind=behind,
            meters=meters,
            lacks=lacks,
            folded=folded,
            room=self.room,
        )
        if prompt is not None:
            # As it was posted: a deadline that only the session has is told when it is near.
            question = await self._question(
                state, flow, prompt if prompt.timeout_seconds else replace(prompt, deadline=None)
            )
            message = with_question(message, question, is_open=prompt.open) or message
        return message

    async def _behind(self, state: State) -> Behind | None:
        """Return the session ahead in the queue for the lock, with a link to its thread."""
        found = await behind(self.ledger.writer, state)
        if found is None:
            return None
        head = await self.ledger.head(found.holder)
        return found._replace(link=await self.link(_root(head.thread_key if head is not None else None)))

    async def _state_at(self, data: dict[str, Json]) -> State:
        state = await self.sessions.state(data["sessionId"])
        if state.seq < data["seq"]:
            raise Hold(STALE_SECONDS, f"{state.session_id} is not at {data['seq']} yet")
        return state

    # --- messages ------------------------------------------------------------------------------------------

    async def _note(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        if "text" not in data:
            state = await self._state_at(data)
            flow = await self.sessions.flow(state.session_id)
            by, reason = data.get("by"), data.get("reason")
            link = await self.link(_root(holder_thread(state.error)))
            message = end_note(
                state, flow, row.key, by=by, reason=reason, bot_user_id=self.bot_user_id, link=link
            )
            return Sent(position(await self.poster.once(row, thread_of(state), message)))
        message = note(data["text"], row.key)
        if data.get("blocks"):
            message = Rendered(message.text, data["blocks"], message.metadata)
        place = Place(data["channel"], data.get("threadTs"))
        return Sent(position(await self.poster.once(row, place, message)))

    async def _edit(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        where = Posted(data["channel"], data["ts"])
        await self.calls.edit(where, note(data["text"]))
        return Sent(position(where))

    async def _alike(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """Show the number of similar messages after the one that began this thread: each of them replaced the row."""
        message = note(alike_text(row.rev, data["latest"]), row.key)
        where = posted_of(row)
        if where is None:
            where = await self.poster.once(row, Place(data["channel"], data["threadTs"]), message)
        else:
            await self.calls.edit(where, message)
        return Sent(position(where))

    async def _root(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """Post the message that a thread begins with, and go on with what was to happen in it."""
        posted = await self.poster.once(row, Place(data["channel"]), note(data["text"], row.key))
        return Sent(position(posted), [_rooted(data, {"posted": position(posted)})])

    async def _tally(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """Count the requests of a thread in the message that it begins with."""
        root = await self.ledger.row(data["root"])
        where, writer = posted_of(root), self.ledger.writer
        if root is None or where is None:
            return Sent(DROPPED)
        heads = await writer.call(writer.store.sessions.heads, thread_key=data["thread"], limit=None)
        asked = [head for head in heads if head.flow_name in REQUESTS]
        waiting = sum(head.status not in ENDED for head in asked)
        text = f"{decode(root.payload)['text']}\n{tally(len(asked), waiting)}"
        await self.calls.edit(where, note(text, root.key))
        return Sent(position(where))

    # --- what is seen by one person, or is no message ------------------------------------------------------

    async def _ephemeral(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        place = Place(data["channel"], data.get("threadTs"))
        text = mentioning(data["text"], await self.names(addresses(data["text"])))
        return await self._at_most_once(row, self.calls.whisper, place, data["user"], note(text))

    async def _respond(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        return await self._at_most_once(row, self.calls.respond, data["responseUrl"], note(data["text"]).text)

    async def _at_most_once(
        self, row: OutboxRow, send: Callable[..., Awaitable[None]], *args: object
    ) -> Outcome:
        """Nobody can look up what only one person sees, so what may have been seen is not sent again, unless it says
        something else now."""
        if is_uncertain(row):
            return Failed({"error": "outcome_unknown"})
        await self.ledger.attempt(row)
        await send(*args)
        return Sent({"done": True, "attempt": row.attempts + 1})

    async def _status(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        place = Place(data["channel"], data["threadTs"])
        tell = self.calls.set_status(place, data["status"], data["title"], data["by"])
        return await self._as_agent(tell)

    async def _suggest(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        return await self._as_agent(self.calls.suggest(data["channel"], data["prompts"]))

    async def _as_agent(self, call: Awaitable[None]) -> Outcome:
        """Make a call for agents only. A refusal by Slack is harmless and only noted."""
        try:
            await call
        except Permanent as fault:
            log.info("what agents may do is refused: %s", fault)
            await self.ledger.note(AGENT_REFUSED, str(fault))
        return Sent({"done": True})


def _session_status(state: State) -> str:
    """Return the state of a session in Slack's terms for sessions of agents."""
    if state.ended:
        return "closed"
    if state.open_prompts or state.phase in ("held", "unreachable"):
        return "suspended"
    return "active" if state.phase == "waiting" else "processing"


def _gone(session_id: str, prompt: Asked, ts: str) -> InboxItem:
    fields: dict[str, Json] = {"promptId": prompt.prompt_id, "ts": ts}
    return remote_commands.item(f"gone:{prompt.prompt_id}:{ts}", session_id, "gone", **fields)


def _root(thread: str | None) -> Posted | None:
    """The message that the thread with this key begins with."""
    return None if thread is None else Posted(*thread.split(":", 2)[1:])


def _rooted(data: dict[str, Json], outcome: dict[str, Json]) -> InboxItem:
    """Return the effect of a message that was to begin a thread: it was posted, or Slack refused it. In its thread's
    lane, so that replies there wait for it."""
    then, posted = data["then"], outcome.get("posted")
    payload = {**then.get("payload", {}), **outcome}
    team = payload.get("team")
    lane = thread_key(team, posted["channel"], posted["ts"]) if posted and team else None
    return InboxItem(then["key"], then["kind"], encode(payload), thread_key=lane)
