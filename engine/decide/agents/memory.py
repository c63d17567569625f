"""Notes that agents keep for later runs: the rows that a step leaves, who reads them, how people change them. Pure.

A note is stored in the commit in which its call ends, so it exists exactly once even if a process dies. It belongs to a
channel or to a flow. An agent reads the notes of its scope once, as data, when its conversation begins; notes from a
private channel are read only in that channel. Its row says who approved, changed or deleted it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from msgspec import Struct

from engine.decide.agents.tool_results import person
from engine.decide.policy import Gate, authorize
from engine.decide.question import deciders
from engine.forms.question import Question
from engine.journal.events import AttemptOver, Event, Start
from engine.journal.queries import agent_of
from engine.journal.records import KeptRow, Row
from engine.journal.state import Asked, State
from engine.language import timestamps
from engine.language.actors import Actor
from engine.language.codec import Json, decode, encode
from engine.language.errors import InvalidAnswer

NOTE = "note"
"""The kind of these rows."""
REMEMBER = "remember"
"""The type of the nodes that make them."""
MOST = 2000
"""Characters of a note."""


_MOST_BEFORE = 10
"""The latest texts before an edit that are kept."""


class TooLong(InvalidAnswer):
    """A note is longer than one may be."""


MOST_NOTES = 100
"""Notes that an agent reads at most, the newest; see also `engine.models.turn_runner.MOST_SAID`."""


class NoteRows(Struct, frozen=True):
    """The extension that writes them."""

    def __call__(self, before: State, after: State, events: Sequence[Event]) -> Sequence[Row]:
        """Return the notes kept in this step; none for an imported journal."""
        if not before.seq:
            return ()
        ended = {each.path: each for each in events if isinstance(each, AttemptOver) and not each.failed}
        return [
            _row(after, each, ended[each.path])
            for each in events
            if isinstance(each, Start) and each.node_type == REMEMBER and each.path in ended
        ]

    about = (Start,)
    """Events that can produce rows."""


def _row(state: State, begun: Start, event: AttemptOver) -> KeptRow:
    told, path = begun.input, str(event.path)
    owner = agent_of(state, path) or ""
    channel = (state.thread or {}).get("channel")
    asked = [prompt for prompt in state.prompts.values() if prompt.path == path and prompt.answer]
    by: list[Json] = [actor for prompt in asked for actor in deciders(prompt)]
    body: dict[str, Json] = {
        "text": told["text"],
        "flow": state.flow_name,
        "agent": state.nodes[owner].node_id,
        "channel": channel,
        "session": state.session_id,
        "path": path,
        "at": event.timestamp,
        "by": by,
        "changes": [],
        **(_approval(asked[-1], state) if asked else {}),
    }
    number = hashlib.blake2b(f"{state.session_id}:{event.seq}".encode(), digest_size=5).hexdigest()
    expires_at = timestamps.after(event.timestamp, float(told["keep"]))
    scope = scope_of(str(told["scope"]), state.flow_name, channel)
    return KeptRow(f"n{number}", NOTE, scope, 1, expires_at, encode(body))


def _approval(prompt: Asked, state: State) -> dict[str, Json]:
    """Return who approved a note, so that editing it takes the same approval."""
    told: dict[str, Json] = {"approvers": list(prompt.approvers or ()), "required": prompt.required}
    return {**told, "requester": {"id": state.actor.get("id")}, "excludeRequester": prompt.exclude_requester}


# --- who reads them ------------------------------------------------------------------------------------------------


def scope_of(scope: str, flow: str, channel: Json) -> str:
    """Return the scope of a note; without a channel, the flow's."""
    return f"channel:{channel}" if scope == "channel" and channel else f"flow:{flow}"


def place(state: State, scope: str) -> dict[str, Json]:
    """Return the scope and channel that a session reads notes from."""
    channel = (state.thread or {}).get("channel")
    return {"memory": scope_of(scope, state.flow_name, channel), "channel": channel}


def elsewhere(rows: Sequence[KeptRow], channel: Json) -> set[str]:
    """The channels, other than this one, in which some of these were noted."""
    found = {note(row).get("channel") for row in rows}
    return {str(each) for each in found if each and each != channel}


def note(row: KeptRow) -> dict[str, Json]:
    """Return the decoded body of a note."""
    found: dict[str, Json] = decode(row.body)
    return found


def current(row: KeptRow, now: str) -> bool:
    """True if the note has neither expired nor been deleted."""
    return row.expires_at > now and bool(note(row)["text"])


def lines(rows: Sequence[KeptRow]) -> list[str]:
    """Notes as an agent reads them, each with its author, source and end."""
    found: list[str] = []
    for row in rows:
        told = note(row)
        # Indented, so that no line of a note can pass for the first line of another.
        text = "\n    ".join(str(told["text"]).splitlines())
        found.append(f"[{about(row)}] {text}")
    return found


def about(row: KeptRow) -> str:
    """Describe the origin and expiry of a note."""
    told = note(row)
    people = ", ".join(person(actor) for actor in told["by"])
    parts = [
        row.kept_id,
        f"agent {told['agent']} of the flow {told['flow']}",
        f"approved by {people}" if people else "approved by nobody",
        *(f"changed by {person(change['by'])}" for change in told["changes"][-1:]),
        timestamps.told(str(told["at"])),
        f"until {timestamps.told(row.expires_at)}",
    ]
    return "; ".join(parts)


# --- what people do with them ---------------------------------------------------------------------------------------


def refusal(row: KeptRow, actor: Actor, gate: Gate) -> str | None:
    """Return why this person may not change the text of a note now, or None if they may, as one of its approvers.
    Anyone may delete it."""
    told = note(row)
    asked = Question(
        kind="approval",
        approvers=tuple(told.get("approvers") or ("channel",)),
        exclude_requester=bool(told.get("excludeRequester")),
    )
    target = gate.target(told.get("requester") or {}, bool(told.get("channel")), asked)
    return may_edit(row, actor.id) or authorize(actor, "decide", target).reason


def may_edit(row: KeptRow, who: Json) -> str | None:
    """Return why this person cannot have approved the text of a note; None if they did, or if any member of its channel
    may."""
    told = note(row)
    approvers = told.get("approvers") or ["channel"]
    if told.get("required", 1) > 1:
        return "Several people approved this note together, so no single person can change it. It can be deleted."
    everyone = "channel" in approvers and row.scope.startswith("channel:")
    if everyone or who in [actor.get("id") for actor in told["by"]]:
        return None
    if not told["by"]:
        return "Nobody approved this note, and it is read in other channels too, so nobody can change it. It can be deleted."
    people = ", ".join(person(actor) for actor in told["by"])
    return f"Only {people}, who approved this note, can change it. It can be deleted."


def changed(row: KeptRow, text: str, by: Mapping[str, Json], now: str) -> KeptRow:
    """The note with another text; without one it is forgotten, and so is every text that it had. Raises `TooLong`."""
    if len(text) > MOST:
        raise TooLong(f"A note has at most {MOST:,} characters; this one has {len(text):,}.")
    told = note(row)
    forgotten = not text
    entry: dict[str, Json] = {"at": now, "by": dict(by), "did": "forgot" if forgotten else "edited"}
    changes = [*told["changes"], entry if forgotten else {**entry, "before": told["text"]}]
    wordless = len(changes) - (0 if forgotten else _MOST_BEFORE)
    changes = [
        {name: value for name, value in each.items() if name != "before" or at >= wordless}
        for at, each in enumerate(changes)
    ]
    body = encode({**told, "text": text, "changes": changes})
    return row.but(rev=row.rev + 1, body=body, expires_at=now if forgotten else row.expires_at)
