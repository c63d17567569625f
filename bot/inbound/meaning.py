"""The meaning of what people say and edit in Slack: `understand`, a pure function of a stored payload and of the
situation. Whatever a message may mean is decided here and in `prompt_state.routing`, which it asks in threads.

Nothing is read here. Where the meaning depends on what is not known yet, the result is a `Needs`: its caller reads that
and asks again with more in the situation. So nobody is looked up whose words start a flow, and a process that is
killed in between asks once more.

The steps for a message, in order:

1. Too long for anything: its author is told.
2. A direct message outside of every thread that is no wish of its own: it is meant for the only thread of that
   conversation in which something goes on.
3. The bot is called, and no session lives here or the words are about flows: help, lists, notes, grants, or a start.
4. All else is for the thread (`route`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from bot.inbound import payloads
from bot.inbound.decisions import Home
from bot.inbound.lines import BadLine, StartLine
from bot.inbound.triggers import Listening
from bot.rendering import phrases
from engine.journal.records import Head, InboxRow
from engine.language.codec import Json, decode
from prompt_state.question_row import TooLong
from prompt_state.routing import Hold, Ignore, Message, Route, Thread, control_word, route

_MEMORY = re.compile(
    r"memory(?:\s+(?:(?P<forget>forget)\s+(?P<id>n[0-9a-f]{10})|edit\s+(?P<edited>n[0-9a-f]{10})\s+(?P<text>\S.*)))?",
    re.IGNORECASE | re.DOTALL,
)
_GRANTS = re.compile(r"grants(?:\s+revoke\s+(?P<id>prompt-[0-9a-z]+))?", re.IGNORECASE)


# --- what is known ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Said:
    """The situation of a message. What is None is not known yet."""

    home: Home
    sessions: Sequence[Head]
    """Those of its thread."""
    listening: Listening | None = None
    """The served flows."""
    faults: Mapping[str, str] = field(default_factory=dict)
    """Why files of flows are not served, by name; known with the flows."""
    elsewhere: Sequence[str] | None = None
    """The threads of its conversation in which something goes on."""
    thread: Thread | None = None
    """What its thread waits for, and what its author may do about that."""


@dataclass(frozen=True, slots=True)
class Edited:
    """The situation of an edit: what was stored of the message before."""

    before: InboxRow | None


Situation: TypeAlias = Said | Edited


# --- meanings -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Needs:
    """The meaning depends on this part of the situation."""

    part: Literal["listening", "elsewhere", "thread"]


@dataclass(frozen=True, slots=True)
class Explain:
    """Nothing is done, and its author reads why."""

    text: str
    outcome: str
    """What is kept of the row."""


@dataclass(frozen=True, slots=True)
class MeantFor:
    """It was said outside of this thread and belongs into it."""

    thread_key: str


@dataclass(frozen=True, slots=True)
class Inform:
    """How flows and sessions are, what is always allowed, or how all this works."""

    about: Literal["running", "grants", "flows", "help"]


@dataclass(frozen=True, slots=True)
class RevokeGrant:
    """A call that is always allowed here is asked about again."""

    grant_id: str


@dataclass(frozen=True, slots=True)
class Memory:
    """What is noted here is listed; with an id, this note gets another text, and without a text it is forgotten."""

    kept_id: str | None
    text: str = ""


OwnWish: TypeAlias = Inform | RevokeGrant | Memory | StartLine | BadLine
"""Meanings that concern no session of the thread."""
Meaning: TypeAlias = Needs | Explain | MeantFor | OwnWish | Route


# --- understanding ------------------------------------------------------------------------------------------


def understand(data: Mapping[str, Json], situation: Situation) -> Meaning:
    """The meaning of a stored payload in this situation; the same for one that is handled again."""
    match situation:
        case Said():
            return _said(data, situation)
        case Edited(before):
            return _edited(data, before)


def _said(data: Mapping[str, Json], known: Said) -> Meaning:
    try:
        said = payloads.said(data, known.home)
    except TooLong as error:
        return Explain(str(error), "too_long")
    outside = data["direct"] and not data["threadTs"] and not known.sessions
    # In the thread of a direct message an answer may well begin with the name of a flow: only a mention is a call there.
    mention = f"<@{known.home.bot_user_id}" in data["text"]
    calls_us = mention if data["direct"] and data["threadTs"] else said.mentions_bot
    if calls_us:
        if known.listening is None:
            return Needs("listening")
        asked = asks(said, known.listening.flows)
        names_flow = _names_flow(said, known.listening)
        if outside and asked is None and not names_flow and (said.text or said.has_files):
            # People answer where they are, and on a phone a thread is far away.
            if known.elsewhere is None:
                return Needs("elsewhere")
            if len(known.elsewhere) > 1:
                return Explain(phrases.SEVERAL_HERE, "told")
            if known.elsewhere:
                return MeantFor(known.elsewhere[0])
        anywhere = names_flow or isinstance(asked, Memory | RevokeGrant) or asked == Inform("grants")
        if (anywhere or not known.sessions) and not said.edited:
            if asked is None and said.text:
                return known.listening.line(said.shown, known.faults)
            return asked or Inform("help")
    return Needs("thread") if known.thread is None else route(said, known.thread)


def _names_flow(said: Message, listening: Listening) -> bool:
    """True if a message begins with the name of a flow, or is words for which one listens."""
    first = said.shown.split(maxsplit=1)[0].lower() if said.shown else ""
    return first == "run" or first in listening.flows or listening.mentioned(said.shown) is not None


def asks(said: Message, flows: Collection[str]) -> Inform | RevokeGrant | Memory | None:
    """The question about flows, notes or grants that is the whole of a message. A flow that is called so has `memory`."""
    text = said.text.strip()
    if (found := _MEMORY.fullmatch(text)) is not None and "memory" not in flows:
        kept_id = found["id"] or found["edited"]
        return Memory(kept_id and kept_id.lower(), (found["text"] or "").strip())
    if (found := _GRANTS.fullmatch(text)) is not None:
        return RevokeGrant(found["id"]) if found["id"] else Inform("grants")
    match control_word(said.text):
        case "status":
            return Inform("running")
        case "help":
            return Inform("help")
    return Inform("flows") if said.text.lower() in ("list", "flows") else None


def _edited(data: Mapping[str, Json], before: InboxRow | None) -> Meaning:
    """An edit changes nothing. Whoever edits what was used is told so; while that is not decided, the edit waits. What was
    missed and read later with these very words is no edit to anybody here."""
    outcome = None
    if before is not None:
        if before.outcome is None:
            return Hold(())
        stored = decode(before.payload)
        # An edit that adds a mention comes as a mention too, which counts for nothing.
        if not stored.get("edited"):
            if stored.get("text") == data.get("text") or payloads.read_before(data, stored):
                return Ignore("read with these words")
            outcome = before.outcome
    text = phrases.edited_text(outcome)
    return Ignore("an edit of what was not used") if text is None else Explain(text, "told")
