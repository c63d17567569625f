"""What must be true at the end of every run, read from Slack and from the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from typing import Any

from bot.faces.run import Facts, run
from bot.rendering.card import card
from engine.flow.load import flow_from_body
from engine.journal.events import Event, decode_event
from engine.journal.fold import derive_state
from engine.journal.state import State
from engine.language import timestamps
from engine.language.codec import decode
from engine.language.errors import MalformedJournal
from engine.run.stored import utc_now
from engine.storage.sqlite import open_sqlite
from tests.simulation import errand_checks, file_flows, form_checks
from tests.simulation.file_flows import ALL
from tests.simulation.flows import NOBODY, Answers
from tests.simulation.life import KEY
from tests.simulation.people import Said, live_buttons
from tests.simulation.slack import CHANNEL, by_keys, key_of
from tests.simulation.world import EPOCH, World

TEAM = "T0LOCAL01"
READING = 60.0
"""Seconds within which what was missed is read again, whatever fails meanwhile."""
SLACK = 6.0
"""Seconds by which a timer may be late: a commit that takes long, a process that has just started."""
_COUNTED = (
    "prompt:answered",
    "session:message",
    "prompt:voted",
    "prompt:edited",
    "prompt:handed",
)
_VISIBLE = ("applied", "told", "refused", "too_long", "help", "started")


_flow = cache(flow_from_body)


class Session:
    """A session as the store has it."""

    def __init__(self, store: Any, head: Any) -> None:
        self.head = head
        self.events: list[Event] = [decode_event(row) for row in store.sessions.journal(head.session_id)]
        self.state: State = derive_state(self.events)
        self.flow = _flow(store.flows.text(head.flow_digest))

    def of(self, kind: str) -> list[Any]:
        """The events of a type."""
        return [event for event in self.events if event.type == kind]


def check(world: World) -> Iterator[str]:
    """Everything that is wrong, in words."""
    store = open_sqlite(world.database, key=KEY, encryption_keys=world.encryption_keys)
    try:
        heads = store.sessions.heads(limit=100)
        damaged = [head for head in heads if head.quarantined is not None]
        yield from (f"{head.session_id} was set aside: {head.quarantined}" for head in damaged)
        try:
            sessions = [Session(store, head) for head in heads if head.quarantined is None]
        except MalformedJournal as error:
            yield f"a journal does not fit together: {error}"
            return
        yield from _counted(world, sessions)
        yield from errand_checks.started(world, sessions)
        for session in sessions:
            yield from _of_session(world, store, session)
        yield from _keys_used_once(sessions)
        yield from _locked(world, sessions)
        yield from _replies(world, store, sessions)
        yield from _offered_words(world, sessions)
        yield from _presses(world, store, sessions)
        yield from form_checks.submissions(world, store, TEAM)
        yield from _messages(world, store, sessions)
        if store.outbox.due(now="9999-01-01T00:00:00.000Z"):
            yield "the outbox is not empty"
    finally:
        store.close()


def _counted(world: World, sessions: list[Session]) -> Iterator[str]:
    """Each start made one session."""
    least = world.people.expected()
    most = least + world.people.unsure + world.people.errands.unsure()
    if not least <= len(sessions) <= most:
        yield f"{least} starts made {len(sessions)} sessions"
    twice = [key for key, times in Counter(s.head.thread_key for s in sessions).items() if times > 1]
    reacted = world.people.errands.reacted
    yield from (f"{key} has several sessions" for key in twice if key.rsplit(":", 1)[1] not in reacted)


# --- sessions ----------------------------------------------------------------------------------------------


def _of_session(world: World, store: Any, session: Session) -> Iterator[str]:
    name = session.head.session_id
    if session.head.status != "complete":
        yield f"{name} ({session.head.flow_name}) is {session.head.status} {session.state.error}"
        return
    answered = Counter(event.prompt_id for event in session.of("prompt:answered"))
    yield from (f"{prompt} was answered {times} times" for prompt, times in answered.items() if times > 1)
    yield from _voted(world, session)
    yield from _truly_said(world, session)
    yield from file_flows.kept(world, session)
    yield from form_checks.Decisions(world, session).wrong()
    yield from form_checks.told(world, store, session)
    answers = {**_answers(session), **errand_checks.inputs(world, session)}
    yield from _said(world, session, answers)
    yield from _ran(world, session, answers)
    yield from form_checks.arguments(world, session, answers)


def _answers(session: Session) -> Answers:
    """What the journal has as the answer of each question, by its place; `-` where its time ran out."""
    places = {e.prompt_id: _place(e) for e in session.of("prompt:requested") if _asks(e)}
    found = dict.fromkeys(places.values(), NOBODY)
    for event in session.of("prompt:answered"):
        if event.prompt_id in places:
            place = places[event.prompt_id]
            found[place] = str(event.answer["text"])
            values = event.answer.get("values") or {}
            found.update({f"{place}.{name}": str(value) for name, value in values.items()})
            found.update(file_flows.answered(place, event.answer))
            if event.answer.get("reason"):
                found[f"{place}.reason"] = event.answer["reason"]
    return found


def _asks(event: Any) -> bool:
    return event.prompt["kind"] in ("ask", "approval", "input")


def _place(event: Any) -> str:
    return str(event.prompt["nodeId"] if event.prompt["kind"] == "input" else event.path)


def _truly_said(world: World, session: Session) -> Iterator[str]:
    """Each answer is what that person wrote or pressed, for that prompt."""
    pressed = {press.delivery.body["actions"][0]["action_ts"]: press for press in world.people.pressed}
    for event in session.of("prompt:answered"):
        kind, *_, last = event.key.split(":")
        if kind == "message":
            said = world.people.said[last]
            wrote = said.text.split(": ", 1)[-1] if said.number else said.text
            # Words that were changed before anybody heard them count as they are then.
            if event.answer["text"] not in ([wrote, f"{wrote} edited".strip()] if said.edited else [wrote]):
                yield f"{said.text!r} became the answer {event.answer['text']!r}"
        elif kind == "click":
            press = pressed[last]
            if (press.prompt, press.label) != (event.prompt_id, event.answer["label"]):
                yield f"{press.label!r} for {press.prompt} became {event.answer} of {event.prompt_id}"
        elif kind != "view":  # which is looked at with what was filled in
            yield f"{event.prompt_id} was answered by {event.key}"


def _voted(world: World, session: Session) -> Iterator[str]:
    """Each vote is one that was pressed; what needs two people was approved by two."""
    pressed = {press.delivery.body["actions"][0]["action_ts"]: press for press in world.people.pressed}
    votes: dict[str, dict[str, str]] = {}
    for event in session.events:
        if event.type == "prompt:voted":
            press = pressed.get(
                event.key.rsplit(":", 1)[1]
            )  # one with a reason is looked at with what was filled in
            if press and (press.prompt, press.label.lower()) != (event.prompt_id, event.vote):
                yield f"{press.label!r} for {press.prompt} became a vote to {event.vote} {event.prompt_id}"
            votes.setdefault(event.prompt_id, {})[event.actor["id"]] = event.vote
        elif event.type == "prompt:handed":
            votes.get(event.prompt_id, {}).pop(event.actor["id"], None)
        elif event.type == "prompt:answered" and session.head.flow_name == "quorum":
            cast = {**votes.get(event.prompt_id, {}), event.actor["id"]: event.answer["value"]}
            agreed = [person for person, vote in cast.items() if vote == event.answer["value"]]
            if event.answer["value"] == "approve" and len(agreed) != 2:
                yield f"{event.prompt_id} was approved by {agreed}"


def _locked(world: World, sessions: list[Session]) -> Iterator[str]:
    """What one session does under a lock has ended before the next begins."""
    locked = {session.head.session_id for session in sessions if session.head.flow_name == "booking"}
    row = [name for name, _ in groupby(session_id for session_id, _ in world.ran) if name in locked]
    row = [name for name, _ in groupby(row)]
    yield from (f"{name} had the lock {times} times" for name, times in Counter(row).items() if times > 1)


def _said(world: World, session: Session, answers: Answers) -> Iterator[str]:
    """The thread shows what the model says, each once and in order."""
    wanted = ALL[session.head.flow_name].says(answers)
    root = session.head.thread_key.rsplit(":", 1)[1]
    thread = world.slack.thread(root)
    shown = [m["text"] for m in thread if key_of(m).startswith(f"message:{session.head.session_id}")]
    if shown != wanted:
        yield f"{session.head.session_id} says {shown}, not {wanted}"


def _ran(world: World, session: Session, answers: Answers) -> Iterator[str]:
    """Commands ran at least once unless somebody said they are done, and never again unasked."""
    asked = {e.prompt_id: e.path for e in session.of("prompt:requested") if e.prompt["kind"] == "interrupted"}
    again, done = Counter[str](), Counter[str]()
    for event in session.of("prompt:answered"):
        if event.prompt_id in asked:
            (again if event.answer["value"] == "again" else done)[asked[event.prompt_id]] += 1
    ran = Counter(path for session_id, path in world.ran if session_id == session.head.session_id)
    wanted = ALL[session.head.flow_name].shells(answers)
    for path in {*wanted, *ran}:
        least = 0 if done[path] else 1
        if path not in wanted:
            yield f"{path} ran {ran[path]} times and should not"
        elif not least <= ran[path] <= 1 + again[path]:
            yield f"{path} ran {ran[path]} times, and {again[path]} times somebody wanted it again"


def _keys_used_once(sessions: list[Session]) -> Iterator[str]:
    """No reply and no press counts twice, wherever."""
    keys = Counter[tuple[str, str]]()
    for session in sessions:
        for event in session.events:
            key = getattr(event, "key", None)
            if key is not None and event.type in _COUNTED:
                # The vote that decides is a vote and, in the same commit, the answer.
                kind = "vote" if event.type == "prompt:voted" else "any"
                keys[kind, key.rsplit(":", 1)[-1]] += 1
    yield from (f"{key} counts {times} times" for (_, key), times in keys.items() if times > 1)


# --- people ------------------------------------------------------------------------------------------------


def _replies(world: World, store: Any, sessions: list[Session]) -> Iterator[str]:
    """Every reply that was acknowledged, or can be read in the thread, is done, and its author can see it."""
    heard = {_message_ts(d.body) for d in world.slack.deliveries if d.acknowledged}
    ends = {s.head.thread_key: s.state.updated_at for s in sessions}
    used = {e.key for s in sessions for e in s.of("prompt:answered")}
    for said in world.people.said.values():
        key = f"message:{TEAM}:{CHANNEL}:{said.ts}"
        row = store.inbox.row(key)
        if row is None:
            if _too_early(world, said):
                continue
            end = ends.get(f"{TEAM}:{CHANNEL}:{said.root}")
            if said.ts in heard or (end is not None and not said.deleted and _was_read(world, said, end)):
                yield f"the reply {said.text!r} ({said.ts}) is lost"
        elif row.outcome is None:
            yield f"the reply {said.text!r} ({said.ts}) was not handled"
        else:
            yield from _answered_for(said, row, used, store)
            yield from _obeyed(world, said, row, ends)


def _offered_words(world: World, sessions: list[Session]) -> Iterator[str]:
    """A word that an open question offers never means the whole run: nobody else said it, so nothing was paused."""
    for session in sessions:
        root = session.head.thread_key.rsplit(":", 1)[1]
        said = [each for each in world.people.said.values() if each.root == root]
        if any(each.text in ("pause", "stop") and not each.choice for each in said):
            continue
        open_now: set[str] = set()
        for event in session.events:
            if event.type == "prompt:requested":
                open_now.add(event.prompt_id)
            elif event.type == "prompt:answered":
                open_now.discard(event.prompt_id)
            elif event.transition in ("flow:paused(held)", "flow:pausing") and any(
                each.choice in open_now for each in said
            ):
                yield f"{session.head.session_id} was paused by a word that a question offers"


def _too_early(world: World, said: Said) -> bool:
    """Whether it was said before the session spoke for the first time: to a thread that was none yet."""
    spoke = [m["ts"] for m in world.slack.thread(said.root) if key_of(m).startswith("card:")]
    return not spoke or float(said.ts) < float(spoke[0])


def _was_read(world: World, said: Said, end: str) -> bool:
    """Whether the thread was read after the reply, long enough before its session ended: afterwards nobody reads it."""
    ended = timestamps.from_text(end).timestamp() - EPOCH
    wrote = float(said.ts) - EPOCH
    return not world.jumped and any(wrote < gap < ended - READING for gap in world.gaps)


def _answered_for(said: Said, row: Any, used: set[str], store: Any) -> Iterator[str]:
    if (row.key in used) and row.outcome != "applied":
        yield f"the reply {said.text!r} was applied, and its row says {row.outcome}"
    if row.outcome in ("told", "refused") and not _told(store, row):
        yield f"the reply {said.text!r} was {row.outcome} without a word"


def _obeyed(world: World, said: Said, row: Any, ends: dict[str, str]) -> Iterator[str]:
    """A control word of the one who may say it is obeyed or answered, unless all was over by then."""
    if said.text not in ("pause", "stop", "resume") or said.user != "ana" or said.edited:
        return
    if said.choice or _too_early(world, said):
        return
    ended = timestamps.from_text(ends[f"{TEAM}:{CHANNEL}:{said.root}"]).timestamp()
    if row.outcome not in _VISIBLE and not world.jumped and float(said.ts) < ended - READING:
        yield f"{said.text!r} ({said.ts}) was {row.outcome}"


def _told(store: Any, row: Any) -> bool:
    return bool(store.outbox.row(f"note:{row.key}") or store.outbox.row(f"ephemeral:{row.key}"))


def _message_ts(body: dict[str, Any]) -> str:
    event = body.get("event") or {}
    return str(event.get("ts", "")) if not event.get("subtype") else ""


def _presses(world: World, store: Any, sessions: list[Session]) -> Iterator[str]:
    """Every press that was acknowledged is applied, or refused with a word to its author, and never both."""
    used = {
        event.key for s in sessions for kind in ("prompt:answered", "prompt:voted") for event in s.of(kind)
    }
    for press in world.people.pressed:
        body = press.delivery.body
        ts, user = body["actions"][0]["action_ts"], body["user"]["id"]
        row = store.inbox.row(f"click:{TEAM}:{body['container']['message_ts']}:{user}:{ts}")
        if row is None:
            if press.delivery.acknowledged:
                yield f"the press {press.label!r} at {ts} is lost"
        elif row.outcome not in ("applied", "refused"):
            yield f"the press {press.label!r} at {ts} is {row.outcome}"
        elif row.outcome == "refused" and row.key in used:
            yield f"the press {press.label!r} at {ts} was applied, and its row says {row.outcome}"
        elif row.outcome == "refused" and not _told(store, row):
            yield f"the press {press.label!r} at {ts} was refused without a word"


# --- messages ----------------------------------------------------------------------------------------------


def _messages(world: World, store: Any, sessions: list[Session]) -> Iterator[str]:
    """Nothing stands twice, nothing can be pressed any more, and each card shows the end."""
    ours = world.slack.by_bot()
    times = Counter(key_of(message) for message in ours if key_of(message))
    yield from (f"{key} stands {number} times" for key, number in times.items() if number > 1)
    yield from (f"{key_of(m) or m['text']!r} can still be pressed" for m in ours if live_buttons(m))
    by_key = by_keys(ours)
    for session in sessions:
        wanted = card(run(session.state, session.flow, Facts()), utc_now()).text
        shown = by_key.get(f"card:{session.head.session_id}")
        if shown is None or not shown["text"].startswith(wanted):
            yield f"the card of {session.head.session_id} shows {shown and shown['text']!r}, not {wanted!r}"
    for session in sessions:
        for event in session.of("prompt:answered"):
            row = store.outbox.row(f"prompt:{event.prompt_id}")
            message = by_key.get(f"prompt:{event.prompt_id}")
            if row is not None and message is None and "dropped" not in decode(row.result or b"{}"):
                yield f"{event.prompt_id} is not shown any more"
