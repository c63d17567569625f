"""`@sayso memory`: the notes that agents read in a channel; members edit and forget those that were made there."""

from __future__ import annotations

from bot.inbound.meaning import Memory
from bot.intents.session_rows import note_to
from bot.outbound.notices import Notices
from bot.rendering.text import date, one_line, person, safe
from bot.wire.users import Channels, People
from engine.decide.agents import memory
from engine.decide.policy import authorize
from engine.journal.records import InboxRow, KeptRow
from engine.language.actors import Actor
from engine.language.codec import Json
from engine.language.errors import Corrupt, KeptMoved
from engine.run.memory import UnknownNote, notes_of, stored_note
from prompt_state.question_row import thread_key

_MOST_LISTED = 30
_HOW = "`memory edit ID new text` changes one, `memory forget ID` deletes it."


class Notes:
    """The notes for the agents of a channel."""

    def __init__(self, notices: Notices, channels: Channels, people: People) -> None:
        self._notices, self._channels, self._people = notices, channels, people

    async def listed(self, channel: str) -> str:
        """The notes that agents may read there, as mrkdwn."""
        engine = self._notices.engine
        rows = await notes_of(engine, None, channel, self._channels.readable)
        rows = [
            row for row in rows if not row.scope.startswith("channel:") or row.scope == f"channel:{channel}"
        ]
        if not rows:
            return "There are no notes here."
        left = len(rows) - _MOST_LISTED
        more = [f"_and {left} older ones: `sayso memory list`_"] if left > 0 else []
        return "\n".join([*map(_line, rows[-_MOST_LISTED:]), *more, f"_{_HOW}_"])

    async def asked(self, row: InboxRow, data: dict[str, Json], wish: Memory, actor: Actor) -> bool:
        """Answer a message about notes, and carry out what it says."""
        if wish.kept_id is None:
            return await self._notices.look(row, data, actor, await self.listed(data["channel"]))
        verdict = authorize(actor, "status", self._notices.gate.target({}, True))
        if not verdict.allowed:
            return await self._notices.whisper(row, data, verdict.reason or "", "refused")
        engine, channel, kept_id, text = self._notices.engine, data["channel"], wish.kept_id, wish.text
        while True:
            try:
                stored = await engine.writer.call(stored_note, engine.store, kept_id, engine.now())
                if memory.note(stored).get("channel") != channel:
                    raise UnknownNote(f"The note {kept_id} belongs to another place: change it there.")
                # Whether this person may change the note, as Slack knows them now.
                entries = memory.note(stored).get("approvers") or ()
                problem = None
                if text:
                    now = await self._people.actor(data, entries=entries, in_channel=actor.in_channel)
                    problem = memory.refusal(stored, now, self._notices.gate)
                if problem is not None:
                    return await self._notices.whisper(row, data, problem, "refused")
                changed = memory.changed(stored, text, actor.record(), engine.now())
                done = f"Noted: {_line(changed)}" if text else f"`{kept_id}` was deleted."
                thread_ts = str(data.get("threadTs") or data["ts"])
                lane = thread_key(data["team"], channel, thread_ts)
                told = note_to(lane, f"note:{row.key}", done)
                return await self._notices.consume(row, "applied", changed, told)
            except (UnknownNote, Corrupt, memory.TooLong) as error:
                return await self._notices.whisper(row, data, str(error), "refused")
            except KeptMoved:
                continue


def _line(row: KeptRow) -> str:
    told = memory.note(row)
    people = ", ".join(person(actor) for actor in told["by"]) or "nobody"
    where = "this channel" if row.scope.startswith("channel:") else f"flow {told['flow']}"
    text = safe(one_line(str(told["text"]), 300))
    about = f"{safe(where)} · approved by {people} · until {date(row.expires_at)}"
    changes = told["changes"]
    edited = f" · changed by {person(changes[-1]['by'])}" if changes else ""
    return f"• `{row.kept_id}` {text} _({about}{edited})_"
