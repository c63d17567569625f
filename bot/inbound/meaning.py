"""The meaning of what people say, edit and press in Slack: `understand`, a pure function of a stored payload and of the
situation. Whatever a message may mean is decided here and in `prompt_state.routing`, which it asks in threads.

Nothing is read here. Where the meaning depends on what is not known yet, the result is a `Needs`: its caller reads that
and asks again with more in the situation. So nobody is looked up whose words start a flow, and a process that is
killed in between asks once more.

The steps for a message, in order:

1. Too long for anything: its author is told.
2. A direct message outside of every thread that is not a wish of its own: it is meant for the only thread of that
   conversation in which something goes on.
3. The bot is called, and no session lives here or the words are about flows: help, lists, notes, grants, or a start.
4. All else is for the thread (`route`).

A press means what its button carries, if the button is in the message that shows the question, or in a copy elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from bot.inbound import payloads
from bot.inbound.decisions import MESSAGE, Home
from bot.inbound.lines import BadLine, StartLine
from bot.inbound.triggers import Listening
from bot.rendering import phrases
from bot.rendering.agents import NOTED, RATE
from bot.rendering.calls import ALL, pairs
from bot.rendering.card import CANCEL
from bot.rendering.forms import INLINE, read_control
from bot.rendering.grants import REVOKE
from bot.rendering.notes import AGENTS, MENU, RETRY
from engine.journal.records import Head, InboxItem, InboxRow
from engine.language.codec import Json, decode
from prompt_state.question_row import PromptState, TooLong
from prompt_state.routing import Hold, Ignore, Message, Route, Thread, control_word, route

_MEMORY = re.compile(
    r"memory(?:\s+(?:(?P<forget>forget)\s+(?P<id>n[0-9a-f]{10})|edit\s+(?P<edited>n[0-9a-f]{10})\s+(?P<text>\S.*)))?",
    re.IGNORECASE | re.DOTALL,
)
_GRANTS = re.compile(r"grants(?:\s+revoke\s+(?P<id>prompt-[0-9a-z]+))?", re.IGNORECASE)

_PROMPT, _PLACE = r"[^|\n]+\|[^|\n]+", r"\|[^|\n]+\|[^|\n]+"
"""A prompt with its nonce; where a button outside of a thread belongs, and who wrote what."""

PRESS = re.compile(
    rf"(?P<cancel>({CANCEL}|{phrases.CANCEL_THIS}(:\d+)?)\n[^|]+)"
    rf"|(?P<retry>{RETRY}\n[^|]+)"
    rf"|(?P<keep>{phrases.KEEP}\n[^|]+)"
    rf"|(?P<revoke>{REVOKE}\n({_PROMPT}|[^|]+\|\|{_PLACE}))"
    rf"|(?P<rate>{RATE}\n({'|'.join(NOTED)})\|.+)"
    rf"|(?P<all>{ALL}\n[^|]+)"
    rf"|(?P<menu>{MENU}\d+\n{_PROMPT}{_PLACE})"
    rf"|(?P<agents>{AGENTS}\d+\n{_PROMPT}{_PLACE})"
    rf"|(?P<option>sayso:option:(select\n{_PROMPT}\|\d+|(?P<index>\d+)\n{_PROMPT}\|(?P=index)({_PLACE})?))"
    rf"|(?P<field>{INLINE}{_PROMPT}\n.*)",
    re.ASCII,
)
"""Our buttons and controls: an action, and a value that belongs to it. Nothing else is a press of ours."""

GONE = "This button no longer exists."
UNKNOWN = "This question no longer exists."
OLDER = "This has changed since you opened it. Please review the current version."
NOT_THE_AUTHOR = "Only the person who wrote the reply can do this."
UNWRITTEN = "Your reply no longer exists. Please write it again."
COPY = "This button is out of date. Please use the latest message."


# --- what is known ------------------------------------------------------------------------------------------


class Said(Struct, frozen=True):
    """The situation of a message. What is None is not known yet."""

    home: Home
    sessions: Sequence[Head]
    """Those of its thread."""
    listening: Listening | None = None
    """The served flows."""
    faults: Mapping[str, str] = {}
    """Why files of flows are not served, by name; known with the flows."""
    elsewhere: Sequence[str] | None = None
    """The threads of its conversation in which something goes on."""
    thread: Thread | None = None
    """Questions and agents of its thread, with what its author may do about them."""


class Edited(Struct, frozen=True):
    """The situation of an edit: what was stored of the message before."""

    before: InboxRow | None


class Pressed(Struct, frozen=True):
    """The situation of a press: what was found of the things that it names, each in the thread of the press or not at all."""

    home: Home
    found: Mapping[Needs, Any] = {}


Situation: TypeAlias = Said | Edited | Pressed


# --- meanings -----------------------------------------------------------------------------------------------


class Needs(Struct, frozen=True):
    """The meaning depends on this part of the situation. Of a press, that is the question, the session or the stored message
    with this key."""

    part: Literal["listening", "elsewhere", "thread", "prompt", "session", "written"]
    key: str = ""


class Explain(Struct, frozen=True):
    """Does nothing, and tells its author why."""

    text: str
    outcome: str = "refused"
    """The outcome that is kept of the row."""


class MeantFor(Struct, frozen=True):
    """The message was sent outside of this thread and belongs to it."""

    thread_key: str


class Inform(Struct, frozen=True):
    """An overview: of runs, of calls that are always allowed, of flows, or of all that the bot understands."""

    about: Literal["running", "grants", "flows", "help"]


class RevokeGrant(Struct, frozen=True):
    """Revokes a call that is always allowed in this channel."""

    grant_id: str


class Memory(Struct, frozen=True):
    """Lists the notes of this channel; with an id, gives this note another text, and without a text forgets it."""

    kept_id: str | None
    text: str = ""


class EndRun(Struct, frozen=True):
    """Ends a run; `asked` if this answers the question that `cancel` asks first."""

    head: Head
    asked: bool


class KeepRun(Struct, frozen=True):
    """Lets a run continue that somebody wanted to cancel."""

    head: Head


class TryAgain(Struct, frozen=True):
    """A run that failed is tried again at the step that failed."""

    head: Head


class TakeBack(Struct, frozen=True):
    """Revokes what this approval always allows. Of a run that is gone there is no question."""

    prompt_id: str
    prompt: PromptState | None


class Rate(Struct, frozen=True):
    """A judgement of an agent's answer, the one that the outbox row with this key shows."""

    value: str
    key: str


class ApproveAll(Struct, frozen=True):
    """Approves all of these calls, as far as this person may."""

    prompts: list[PromptState]


class Choose(Struct, frozen=True):
    """Answers a question with one of its choices, or with what was picked in the only control of its form."""

    prompt: PromptState
    nonce: str
    value: Json


class WrittenBefore(Struct, frozen=True):
    """A message that its author wrote before, at `ts`, is for this question, or for an agent of this session."""

    to: PromptState | Head
    detail: str
    """The question's nonce, or the agent's path."""
    ts: str
    text: str
    files: list[dict[str, Json]]


OwnWish: TypeAlias = Inform | RevokeGrant | Memory | StartLine | BadLine
"""Meanings that concern no session of the thread."""
Press: TypeAlias = EndRun | KeepRun | TryAgain | TakeBack | Rate | ApproveAll | Choose | WrittenBefore
Meaning: TypeAlias = Needs | Explain | MeantFor | OwnWish | Route | Press


# --- understanding ------------------------------------------------------------------------------------------


def understand(data: Mapping[str, Json], situation: Situation) -> Meaning:
    """The meaning of a stored payload in this situation; the same for one that is handled again."""
    match situation:
        case Said():
            return _said(data, situation)
        case Edited(before):
            # An edit changes nothing. The author of a used message is told so; until its use is decided, the edit waits.
            if before is not None and before.outcome is None:
                return Hold(())
            stored = {} if before is None else decode(before.payload)
            outcome = None
            # An edit that adds a mention comes as a mention too, which counts for nothing.
            if before is not None and not stored.get("edited"):
                # What was missed and read later with these very words is not an edit to anybody here.
                if stored.get("text") == data.get("text") or payloads.read_before(data, stored):
                    return Ignore("read with these words")
                outcome = before.outcome
            text = phrases.edited_text(outcome)
            return Ignore("an edit of an unused message") if text is None else Explain(text, "told")
        case Pressed():
            return _pressed(data, situation)


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
        first = said.shown.split(maxsplit=1)[0].lower() if said.shown else ""
        named = first == "run" or first in known.listening.flows
        names_flow = named or known.listening.mentioned(said.shown) is not None
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


def _pressed(data: Mapping[str, Json], known: Pressed) -> Meaning:
    action, value = str(data["actionId"]), str(data["value"] or "")
    press = None if data.get("stale") else PRESS.fullmatch(f"{action}\n{value}")
    kind = press and press.lastgroup
    named, *parts = (action.removeprefix(INLINE) if kind == "field" or not value else value).split("|")
    match kind:
        case "all":
            return _all(value, known)
        case "rate":
            return Rate(named, "|".join(parts))
        case "menu" | "agents" if parts[2] != data["user"]:
            return Explain(NOT_THE_AUTHOR)
    need = Needs("session" if kind in ("cancel", "keep", "retry", "agents") else "prompt", named)
    if need not in known.found:
        return need
    match kind, known.found[need]:
        case "revoke", None:
            return TakeBack(named, None)
        case "revoke", PromptState() as prompt:
            is_old = parts[0] and (parts[0] != prompt.nonce or not _stands_in(prompt, data))
            return Explain(COPY) if is_old else TakeBack(named, prompt)
        case "cancel", Head() as head:
            return EndRun(head, action == phrases.CANCEL_THIS)
        case "keep", Head() as head:
            return KeepRun(head)
        case "retry", Head() as head:
            return TryAgain(head)
        case "menu" | "agents", (PromptState() | Head()) as to:
            return _written(data, known, to, parts[0], parts[1])
        case "option" | "field", PromptState() as prompt:
            return _chosen(data, prompt, *parts[:2])
        case None, PromptState() as prompt if not prompt.open:
            return Explain(phrases.closed_text(prompt))
        case _:
            return Explain(GONE)


def _all(value: str, known: Pressed) -> Meaning:
    """Those of the calls of a message that are still asked about as they were shown."""
    prompts: list[PromptState] = []
    for prompt_id, nonce in pairs(value):
        need = Needs("prompt", prompt_id)
        if need not in known.found:
            return need
        prompt: PromptState | None = known.found[need]
        if prompt is not None and prompt.open and prompt.nonce == nonce:
            prompts.append(prompt)
    return ApproveAll(prompts) if prompts else Explain(COPY)


def _chosen(data: Mapping[str, Json], prompt: PromptState, nonce: str, index: str | None = None) -> Meaning:
    """The option at an index, or without one what was picked in the form's only control."""
    if nonce == prompt.nonce and not _stands_in(prompt, data):
        return Explain(COPY)
    alone = len(prompt.fields) == 1 and not prompt.options
    if not alone if index is None else int(index) >= len(prompt.options):
        return Explain(GONE)
    if not prompt.open:
        # Its row says how it was closed; the session may be over long since.
        return Explain(phrases.closed_text(prompt))
    if index is None:
        return Choose(prompt, nonce, read_control(data["picked"] or {}, prompt.fields[0]))
    return Choose(prompt, nonce, prompt.options[int(index)]["value"])


def _stands_in(prompt: PromptState, data: Mapping[str, Json]) -> bool:
    """True if what was pressed is the message that shows a prompt, or a copy outside of the thread. While that is being
    posted nobody knows yet which message it is."""
    return "from" in data or prompt.message_ts in (None, data["messageTs"])


def answerable(prompt: PromptState | None, nonce: str | None = None) -> PromptState | str:
    """The question, or the reason why it cannot be answered by somebody who saw the copy with this nonce."""
    if prompt is None:
        return UNKNOWN
    if not prompt.open:
        return phrases.closed_text(prompt)
    return OLDER if nonce is not None and nonce != prompt.nonce else prompt


def _written(
    data: Mapping[str, Json], known: Pressed, to: PromptState | Head, detail: str, ts: str
) -> Meaning:
    need = Needs("written", f"message:{data['team']}:{data['channel']}:{ts}")
    if need not in known.found:
        return need
    row: InboxRow | None = known.found[need]
    stored = decode(row.payload) if row is not None and row.kind == MESSAGE else {}
    if stored.get("user") != data["user"]:
        return Explain(UNWRITTEN)
    try:
        text = payloads.said(stored, known.home).text
    except TooLong:
        return Explain(UNWRITTEN)
    if isinstance(to, PromptState) and not to.open:
        return Explain(phrases.closed_text(to))
    return WrittenBefore(to, detail, ts, text, stored.get("files") or [])


# --- what was missed ----------------------------------------------------------------------------------------


class Missed(Struct, frozen=True):
    """A message that is found after a gap, and the edit of it, if it was edited. `new`: it was said since the last read."""

    item: InboxItem
    edit: InboxItem | None
    new: bool


def still_counts(missed: Missed, heard: InboxRow | None, told: InboxRow | None) -> InboxItem | None:
    """The part of a missed message that counts: the message with the words that it has now, or, where its first words were
    heard, only the edit. `heard` and `told` are what is stored of the message and of the edit."""
    if missed.edit is None:
        return missed.item
    if heard is not None:
        was_read = payloads.read_before(decode(missed.edit.payload), decode(heard.payload))
        return None if was_read else missed.edit
    if not missed.new:
        return None
    return missed.edit if told is not None and told.outcome is not None else missed.item
