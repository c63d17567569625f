"""Why nothing was started, and the ways in which that is told. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bot.intents.session_rows import ephemeral_row, note_row, reaction_row, respond_row
from bot.rendering.text import for_reader, plain
from engine.journal.records import InboxRow, Row
from engine.language.codec import Json
from prompt_state.question_row import thread_key


@dataclass(frozen=True, slots=True)
class Refusal:
    """Nothing was started; `text` (mrkdwn) says why. `quiet`: this was said a moment ago already."""

    text: str
    quiet: bool = False


Told: TypeAlias = Callable[[Refusal], Sequence[Row]]
"""The rows that tell a refusal."""


def nowhere(refusal: Refusal) -> Sequence[Row]:
    """Nobody in Slack is told; the inbox row has the reason."""
    return ()


def in_thread(row: InboxRow, data: Mapping[str, Json], thread_ts: str) -> Told:
    """A message in the thread, for everybody."""
    return lambda refusal: [_note(row, data, thread_ts, refusal.text)]


def to_presser(row: InboxRow, data: Mapping[str, Json]) -> Told:
    """The answer to a slash command; to whoever pressed a button, words that only this person sees."""

    def told(refusal: Refusal) -> Sequence[Row]:
        if data.get("responseUrl"):
            return [respond_row(f"respond:{row.key}", data["responseUrl"], refusal.text)]
        text = for_reader(plain(refusal.text))
        return [_ephemeral(row, data, data.get("threadTs"), text)]

    return told


def to_author(row: InboxRow, data: Mapping[str, Json], thread_ts: str | None) -> Told:
    """Words that only whoever did it sees; where an app or sayso itself did it, words on the message."""
    if data.get("user") and data.get("app") is None:
        return lambda refusal: [_ephemeral(row, data, thread_ts, refusal.text)]
    return on_message(row, data, data["ts"])


def to_speaker(row: InboxRow, data: Mapping[str, Json]) -> Told:
    """Somebody happened to say the words, and may not even know that a flow listens: told once in a while."""
    told = to_author(row, data, None)
    return lambda refusal: (
        () if refusal.quiet and data.get("user") and data.get("app") is None else told(refusal)
    )


def on_message(row: InboxRow, data: Mapping[str, Json], ts: str) -> Told:
    """A message in the thread of the message with which a start began; a mark on that one where this was said already."""

    def told(refusal: Refusal) -> Sequence[Row]:
        if refusal.quiet:
            return [reaction_row(f"refused:{row.key}", data["channel"], ts, "no_entry")]
        return [_note(row, data, ts, f"⛔ Nothing was started. {refusal.text}")]

    return told


def _note(row: InboxRow, data: Mapping[str, Json], thread_ts: str, text: str) -> Row:
    lane = thread_key(data["team"], data["channel"], thread_ts)
    return note_row(f"note:{row.key}", lane, data["channel"], thread_ts, text)


def _ephemeral(row: InboxRow, data: Mapping[str, Json], thread_ts: str | None, text: str) -> Row:
    return ephemeral_row(f"ephemeral:{row.key}", data["channel"], data["user"], thread_ts, text)
