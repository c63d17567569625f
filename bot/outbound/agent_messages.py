"""Agents' texts and actions in messages: the entries of each message, and that each is there once.

An entry (a part of a text, a turn's calls, a note) is a row. Several entries of one agent share one message as long as
no other message came below it and there is room: a *piece*. A row's result records the message, and the piece up to
that entry, before the message is changed, so a crash repeats an edit and never a post. Each change of a message draws
all of its content: the longest piece that a row of it has recorded. Text still being written is only in memory
(`LiveText`); when its process dies, the row knows the message, and the whole text or a later attempt replaces it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field

from bot.intents.agent_rows import agent_of, text_key
from bot.intents.slots import SHOW, SPEECH
from bot.outbound.calls import DELETED, EDIT, Calls, Hold, Place, Posted
from bot.outbound.destinations import Speakers
from bot.outbound.posts import (
    DROPPED,
    Ledger,
    Outcome,
    Poster,
    Sent,
    is_uncertain,
    position,
    posted_of,
    result_of,
)
from bot.rendering.agents import (
    MOST_JOINED,
    Entry,
    ToolLine,
    agent_message,
    entry_weight,
    split_text,
)
from bot.rendering.blocks import Rendered
from bot.rendering.card import look_of
from bot.wire.client import Permanent
from engine.journal.records import OutboxRow, PutOutbox
from engine.language.codec import Json, decode, encode

log = logging.getLogger("sayso.outbound")

_MOST_IN_PIECE = 40
_DATA = ("{", "[", "```")
"""Beginnings of an answer that is JSON."""


@dataclass(slots=True)
class LiveText:
    """A turn's text while it comes."""

    session_id: str
    turn: str
    channel: str = ""
    structured: bool = False
    """True if the last answer is data, which is not for people."""
    blocks: dict[int, str] = field(default_factory=dict)
    over: set[int] = field(default_factory=set)
    """Parts whose row says what stays: nothing more is shown of them from here."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False

    @property
    def text(self) -> str:
        """All of it so far."""
        text = "\n\n".join(self.blocks[index] for index in sorted(self.blocks) if self.blocks[index])
        return "" if self.structured and text.lstrip().startswith(_DATA) else text

    @property
    def parts(self) -> list[str]:
        """The text in parts of one message each."""
        return split_text(self.text)


@dataclass(frozen=True, slots=True)
class _Tail:
    """The last message of a thread, which an agent wrote, and about how much its entries take."""

    where: Posted
    agent: tuple[str, str]
    weight: int


@dataclass(eq=False, repr=False)
class Pieces:
    """Sends the rows of agents. See `bot.outbound.senders.Rows` for what its methods raise."""

    ledger: Ledger
    calls: Calls
    poster: Poster
    _: KW_ONLY
    clock: Callable[[], float]
    speakers: Speakers
    hosts: frozenset[str] = frozenset()
    lives: dict[tuple[str, str], LiveText] = field(default_factory=dict, init=False)
    _tails: dict[str, _Tail] = field(default_factory=dict, init=False)
    _floors: dict[str, float] = field(default_factory=dict, init=False)
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict, init=False)

    def below(self, lane: str, ts: str) -> None:
        """Something else is in this thread, at `ts`: nothing is added to what is above it."""
        if len(self._floors) > 10_000:
            self._floors.clear()
        self._floors[lane] = max(self._floors.get(lane, 0.0), float(ts))
        tail = self._tails.get(lane)
        if tail is not None and float(tail.where.ts) < self._floors[lane]:
            del self._tails[lane]

    def lock(self, lane: str) -> asyncio.Lock:
        """Held while a message of this thread is changed and that is recorded, so that what is older never comes last."""
        if len(self._locks) > 1_000:
            self._locks = {name: lock for name, lock in self._locks.items() if lock.locked()}
        return self._locks.setdefault(lane, asyncio.Lock())

    # --- rows ----------------------------------------------------------------------------------------------

    async def entry(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """Show an entry: in the message where it is already, in the last one of its agent, or in a new one."""
        live = self.lives.get((data["sessionId"], data["turn"]))
        if data.get("ending") != "writing" and live is not None and "part" in data:
            live.over.add(data["part"])
        show = self._show if self._says(data, live) else self._nothing
        result = await show(row, data, live)
        if live is not None:
            # More may have come while it was posted.
            live.changed.set()
        if data.get("last"):
            await self._withdraw_later_parts(row, data)
            self.lives.pop((data["sessionId"], data["turn"]), None)
            if live is not None:
                live.closed = True
                live.changed.set()
        return Sent(result)

    def _says(self, data: Mapping[str, Json], live: LiveText | None) -> bool:
        """True if there is anything to show: a mark alone needs a text that it marks."""
        if data.get("tools") or data.get("note") or data.get("plan") or str(data.get("text") or "").strip():
            return True
        return data.get("ending") in ("writing", "cut") and live is not None and bool(live.text.strip())

    async def _nothing(self, row: OutboxRow, data: dict[str, Json], live: LiveText | None) -> dict[str, Json]:
        """Nothing is to be seen of this entry. What a broken attempt showed is taken away, or marked."""
        place = Place(data["channel"], data["threadTs"])
        where = posted_of(row)
        if where is None and is_uncertain(row):
            where = await self.poster.adopt(row, place)
        if where is None:
            return DROPPED
        if data.get("ending") == "writing":
            known = result_of(row)
            return known if "ts" in known else {**position(where), "piece": [row.key]}
        piece = await self.standing(row)
        others = tuple(key for key in piece if key != row.key)
        try:
            if data.get("ending") == "cut":
                return _record(row, where, piece, await self.draw(where, piece, again=True))
            if others:
                await self.draw(where, others)
            else:
                self._forget(row.lane, where)
                await self.calls.delete(where)
        except Permanent as fault:
            if fault.reason not in DELETED:
                raise
        return DROPPED

    async def _show(self, row: OutboxRow, data: dict[str, Json], live: LiveText | None) -> dict[str, Json]:
        where, look = posted_of(row), None
        if where is None:
            where, piece, look = await self._place(row, data, live)
        else:
            piece = await self.standing(row)
        if look is None:
            # The message is what its entries say; one that somebody deleted is posted again with this entry alone.
            try:
                look = await self.draw(where, piece)
            except Permanent as fault:
                if fault.reason not in DELETED:
                    raise
                self._forget(row.lane, where)
                result: dict[str, Json] = {"refused": fault.reason, "attempt": row.attempts}
                await self.ledger.keep(row, result)
                raise Hold(0.0, f"{row.key} was deleted and is posted again") from fault
        await self._note_tail(row, data, where, piece)
        return _record(row, where, piece, look)

    async def _place(
        self, row: OutboxRow, data: dict[str, Json], live: LiveText | None
    ) -> tuple[Posted, tuple[str, ...], str | None]:
        """Return the message for a new entry; how it looks if it was just posted."""
        tail = self._tails.get(row.lane)
        agent = (data["sessionId"], agent_of(data["turn"]))
        # Where edits are used up it does not wait for one: it gets a message of its own.
        free = not data.get("part") and self.calls.budget.fits(EDIT)
        fits = tail is not None and tail.agent == agent and free
        if tail is not None and fits and not is_uncertain(row) and tail.weight <= MOST_JOINED:
            piece = (*await self._at(tail.where, data), row.key)
            if len(piece) <= _MOST_IN_PIECE:
                # Recorded before it is seen, or a crash in between would show it twice.
                await self.ledger.keep(row, {**position(tail.where), "piece": list(piece)})
                return tail.where, piece, None
        place = Place(data["channel"], data["threadTs"])
        message = await self._message((row.key,))
        posted = await self.poster.once(row, place, message)
        if is_uncertain(row):
            # It may be the copy of an earlier process, with other words.
            await self.ledger.keep(row, {**position(posted), "piece": [row.key]})
            raise Hold(0.0, f"{row.key} was found")
        return posted, (row.key,), look_of(message)

    async def _note_tail(
        self,
        row: OutboxRow,
        data: dict[str, Json],
        where: Posted,
        piece: tuple[str, ...],
    ) -> None:
        """Remember the last message of the thread; nothing is added to one whose text is in no row."""
        known = self._tails.get(row.lane)
        if known is not None and float(known.where.ts) > float(where.ts):
            return
        if data.get("ending") == "cut" or float(where.ts) < self._floors.get(row.lane, 0.0):
            self._tails.pop(row.lane, None)
            return
        weight = sum(map(entry_weight, await self._entries(piece)))
        agent = (data["sessionId"], agent_of(data["turn"]))
        self._tails[row.lane] = _Tail(where, agent, weight)

    def _forget(self, lane: str, where: Posted) -> None:
        """A message is there no more."""
        tail = self._tails.get(lane)
        if tail is not None and tail.where == where:
            del self._tails[lane]

    async def _withdraw_later_parts(self, row: OutboxRow, data: dict[str, Json]) -> None:
        """A broken attempt may have written more than the one that counts: what is too much is taken away."""
        part = int(data.get("part") or 0) + 1
        while True:
            key = text_key(data["sessionId"], data["turn"], part)
            later = await self.ledger.row(key)
            if later is None:
                return
            if decode(later.payload).get("ending") == "writing":
                payload: dict[str, Json] = {**data, "part": part, "text": "", "ending": "", "last": False}
                put = PutOutbox(key, row.lane, SHOW, encode(payload), data["sessionId"], replace=True)
                await self.ledger.put([put])
            part += 1

    # --- drawing -------------------------------------------------------------------------------------------

    async def standing(self, row: OutboxRow) -> tuple[str, ...]:
        """All entries of the message in which a row is shown, in their order."""
        where = posted_of(row)
        return _piece(row) if where is None else await self._at(where, decode(row.payload)) or _piece(row)

    async def _at(self, where: Posted, data: Mapping[str, Json]) -> tuple[str, ...]:
        """The entries of an agent's message. An entry that came later knows of those before it."""
        session_id, agent = data["sessionId"], agent_of(data["turn"])
        rows = await self.ledger.of(session_id, f"{SPEECH}:{session_id}:{agent}")
        return max((_piece(row) for row in rows if posted_of(row) == where), key=len, default=())

    async def draw(self, where: Posted, piece: tuple[str, ...], *, again: bool = False) -> str | None:
        """Edit a message to what its entries are now; not where it is that already, nor while the words of one are known to
        Slack alone, because the process that wrote them is gone: what becomes of them draws it. Return how it looks, which
        stands with its first entry."""
        first = await self.ledger.row(piece[0])
        known: str | None = None if first is None else result_of(first).get("look")
        if not again and await self._is_half(piece):
            return known
        message = await self._message(piece)
        look = look_of(message)
        if again or look != known:
            if first is not None:
                await self.ledger.unknown_look(first)
            await self.calls.edit(where, message)
            if first is not None:
                await self.ledger.keep(first, {**result_of(first), "look": look})
        return look

    async def _is_half(self, piece: tuple[str, ...]) -> bool:
        rows = [await self.ledger.row(key) for key in piece]
        told: list[dict[str, Json]] = [decode(row.payload) for row in rows if row is not None]
        writing = [(data["sessionId"], data["turn"]) for data in told if data.get("ending") == "writing"]
        return any(turn not in self.lives for turn in writing)

    async def _message(self, piece: tuple[str, ...]) -> Rendered:
        """A message with these entries, which are of one agent."""
        row = await self.ledger.row(piece[0])
        speaker = "" if row is None else await self.speakers.of(decode(row.payload))
        return agent_message(await self._entries(piece), piece[0], self.hosts, speaker=speaker)

    async def _entries(self, piece: tuple[str, ...]) -> list[Entry]:
        found: list[Entry] = []
        for key in piece:
            row = await self.ledger.row(key)
            if row is not None:
                data: dict[str, Json] = decode(row.payload)
                live = self.lives.get((data["sessionId"], data["turn"]))
                tools = tuple(map(_tool, data.get("tools") or ()))
                text, ending = str(data.get("text") or ""), str(data.get("ending") or "")
                if ending in ("writing", "cut") and live is not None:
                    parts, part = live.parts, int(data.get("part") or 0)
                    text = parts[part] if part < len(parts) else ""
                    if ending == "writing" and part < len(parts) - 1:
                        ending = ""
                rated = (
                    text_key(data["sessionId"], data["turn"], data["part"])
                    if data.get("final") and text
                    else ""
                )
                plan = tuple((str(title), str(status)) for title, status in data.get("plan") or ())
                note, over = str(data.get("note") or ""), bool(data.get("over"))
                entry = Entry(text, tools, note, ending, rated, plan, over)
                found.append(entry)
        return found


def _record(row: OutboxRow, where: Posted, piece: tuple[str, ...], look: str | None) -> dict[str, Json]:
    """The record of an entry; that of the first one of a message says how it looks."""
    result: dict[str, Json] = {**position(where), "piece": list(piece)}
    return {**result, "look": look} if piece[0] == row.key else result


def _piece(row: OutboxRow) -> tuple[str, ...]:
    """The entries of the message in which a row is shown, as it has recorded them: those that came before it, and itself."""
    return tuple(result_of(row).get("piece") or (row.key,))


def _tool(tool: Mapping[str, Json]) -> ToolLine:
    """Return the line of a call: with its result, `over` if it will have none, or in progress."""
    return ToolLine(
        tool["name"],
        tool.get("ran") or tool["brief"],
        None if "isError" not in tool else not tool["isError"],
        over=bool(tool.get("over")),
        edited=bool(tool.get("ran")),
        in_place=bool(tool.get("inPlace")),
        allowed_by=str(tool.get("allowedBy") or ""),
    )
