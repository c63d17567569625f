"""Documents about one session: where it stood at an event, its graph, its steps, one of them in full, its journal, and
how it differs from another one. What is stored has no secrets in it (`engine.nodes.runtime.redact`), and nothing else is told.

Whatever people and programs wrote is cleaned: characters that hide or reorder others are spelled out.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from difflib import SequenceMatcher
from functools import cached_property
from typing import TypeAlias
from urllib.parse import urlencode

from bot.faces.places import item_label
from bot.faces.tools import brief_input
from bot.faces.words import When
from bot.rendering.prompts import session_face
from bot.rendering.text import for_reader, plain, read
from bot.terminal.console import clean, one_line
from bot.terminal.lists import head_json
from bot.terminal.narration import error_of, error_text, prompt_json, runs_lines, told
from bot.web.index import ON_HOLD
from bot.web.markup import spans
from bot.web.names import Names
from engine.decide.commands import Action
from engine.decide.decide import starters
from engine.decide.limits import standing
from engine.decide.past import failed_at
from engine.flow import Flow
from engine.flow.docs.diagram import placed
from engine.forms.question import Question
from engine.journal import events as ev
from engine.journal.events import Event, decode_event
from engine.journal.fold import derive_state
from engine.journal.history import Entry, Turn, marks, status_of, transcript, tree
from engine.journal.phases import standing as standing_word
from engine.journal.queries import is_rejected, is_rejection, is_retry, next_try
from engine.journal.records import Head
from engine.journal.state import Asked, State
from engine.language.codec import Json, encode
from engine.language.errors import FlowError, SaysoError, SessionError, StorageError, UnknownSession
from engine.nodes.types.registry import spec_of
from engine.run.stored import stored_flow
from engine.storage.store import Store

_KEPT = 6
"""Journals that are kept decoded: the slider asks for one again and again."""
_MOST_STEPS = 3_000
_MOST_TURNS = 1_000
_MOST_TEXT = 200_000
_PREVIEW = 160
PAGE = 250
"""The number of events that a journal shows at first, and adds with each press of *More*."""


class Past:
    """The journal of a session, decoded, with the flow that it has."""

    def __init__(self, head: Head, events: Sequence[Event], flow: Flow | None, unread: str | None) -> None:
        self.head = head
        self.events = events
        self.flow = flow
        self.unread = unread
        """The reason why its flow cannot be read here, if it cannot."""

    @cached_property
    def picture(self) -> dict[str, Json]:
        """The graph of its flow: where boxes and arrows are, and what they say."""
        return {"boxes": [], "arrows": []} if self.flow is None else placed(self.flow)

    def until(self, at: int | None) -> Sequence[Event]:
        """The events up to that one; all of them without a number, or beyond the last."""
        return self.events if at is None else self.events[: max(1, at)]


class Pasts:
    """The journals that were looked at last. On the thread of the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[str, Past] = OrderedDict()

    def of(self, session_id: str) -> Past:
        """A session's journal, verified when it was read. Raises `UnknownSession`, `Corrupt`, `Erased`."""
        head = self._store.sessions.head(session_id)
        if head is None:
            raise UnknownSession(f"There is no session {session_id}.")
        past = self._kept.pop(session_id, None)
        if past is None or past.head.but(owner=None, epoch=0) != head.but(owner=None, epoch=0):
            events = [decode_event(row) for row in self._store.sessions.journal(head.session_id)]
            past = Past(head, events, None, None)
            try:
                past.flow, _ = stored_flow(self._store, head.flow_digest)
            except FlowError as error:
                past.unread = error.problems[0].message
            except StorageError as error:
                past.unread = str(error)
        else:
            self._store.sessions.opening(session_id)  # what was erased since leaves its head as it was
        self._kept[session_id] = past
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return past


# --- one session -------------------------------------------------------------------------------------------


def slack_link(thread: Mapping[str, Json]) -> str:
    """The address that opens a thread in Slack, for whoever is a member of its workspace."""
    query = {
        "team": thread.get("team"),
        "channel": thread.get("channel"),
        "message_ts": thread.get("threadTs"),
    }
    return (
        f"https://slack.com/app_redirect?{urlencode({name: value for name, value in query.items() if value})}"
    )


Refuses: TypeAlias = Callable[[Action, State, Question | None], str | None]
"""Says why whoever looks may not do something to a session, or about one of its questions."""


def session(
    store: Store,
    past: Past,
    at: int | None,
    names: Names,
    link_to: Callable[[Mapping[str, Json]], str] = slack_link,
    refuses: Refuses = lambda *_: None,
) -> dict[str, Json]:
    """A session as it stood at an event; at the last one with what only the store knows. `link_to` gives the address of a
    thread."""
    events = past.until(at)
    state, root = derive_state(events), tree(events, past.flow)
    now = len(events) == len(past.events)
    queue = store.locks.rows(state.lock.name) if now and state.lock is not None and not state.ended else []
    behind = standing(queue, state.session_id)
    places = places_of(root, past.flow)
    steps = list(_steps(root, past.flow, places, 0))
    return {
        **head_json(past.head, []),
        "status": ON_HOLD if now and past.head.quarantined else state.status,
        "standing": ON_HOLD
        if now and past.head.quarantined
        else standing_word(state.status, state.phase, state.error),
        "phase": state.phase,
        "at": state.seq,
        "last": len(past.events),
        "atTime": events[-1].timestamp,
        "actor": state.actor,
        "thread": state.thread,
        "threadLink": link_to(state.thread) if state.thread else None,
        "channel": names.of(str((state.thread or {}).get("channel") or "")),
        "parent": state.parent_session_id,
        "isRetry": is_retry(state.session_id, state.parent_session_id),
        "inputs": {
            name: preview(names.within(value) if isinstance(value, str) else value)
            for name, value in (state.inputs or state.given).items()
        },
        "error": names.within(error_text(error_of(state))) if state.error else None,
        "pause": state.pause_reason if state.paused_at else None,
        "lock": None
        if state.lock is None
        else {"name": state.lock.name, "has": state.lock.acquired_at is not None},
        "behind": None if behind is None else list(behind),
        "spent": {"cost": state.spent.cost, "turns": state.spent.turns},
        "prompts": [
            {
                **prompt(state, asked, past.flow, names),
                "place": places.get(asked.path, asked.path),
                "refused": _why_not(refuses(asked.rules.action, state, asked), names),
            }
            for asked in (state.prompts[each] for each in state.open_prompts)
        ],
        "timers": [
            {
                "path": timer.path,
                "place": places.get(timer.path or "", timer.path),
                "due": timer.due_at,
                "purpose": timer.purpose,
            }
            for timer in state.timers.values()
        ],
        "steps": steps[:_MOST_STEPS],
        "failing": _failing(root) if state.status == "failed" else "",
        "more": max(0, len(steps) - _MOST_STEPS),
        "marks": _marks(root, state),
        "talks": any(isinstance(event, ev.CallOutcome) for event in events),
        "unread": past.unread,
        "again": False,
        **(_again(store, past, state, refuses) if now and state.status == "failed" else {}),
    }


def _why_not(reason: str | None, names: Names) -> str | None:
    """A reason of the policy, with people by their names."""
    return reason and names.asked(plain(for_reader(reason)))


def _again(store: Store, past: Past, state: State, refuses: Refuses) -> dict[str, Json]:
    """Say if a failed session can be tried again, as which one it was, or why it cannot."""
    tried, asked = next_try(state.session_id), starters(past.flow) if past.flow else None
    if is_rejection(state.error) or store.sessions.head(tried) is not None:
        return {"triedAgain": None if is_rejection(state.error) else tried}
    try:
        failed_at(past.events)
    except SessionError as error:
        return {"again": True, "noRetry": str(error)}
    return {"again": True, "noRetry": refuses("start", state, asked)}


def prompt(state: State, asked: Asked, flow: Flow | None, names: Names) -> dict[str, Json]:
    """An open question, with what its answer has to fit. Its lines are parts: texts, and times as `{at}`."""
    said = session_face(state, asked, flow)
    return {
        **prompt_json(said, state.session_id, state.flow_name),
        "message": clean(names.within(read(asked.message))),
        "words": [[clean(names.within(plain(span.text))), span.style] for span in spans(asked.message)],
        "values": [names.within(one_line(each.text, 300)) for each in said.values],
        "runs": runs_lines(said),
        "lines": [
            [{"at": part.at} if isinstance(part, When) else names.asked(told((part,))) for part in line]
            for line in (said.lead, *said.lines)
        ],
        "reason": any(each.asks for each in said.controls),
        "nonce": asked.nonce,
        "since": asked.requested_at,
    }


def places_of(root: Entry, flow: Flow | None) -> dict[str, str]:
    """The names of the steps and passes of a tree, by path, each behind those around it: `Roll out › web-2 › Check`."""
    return {path: " › ".join(words) for path, words in _places(root, flow, ())}


def _places(
    around: Entry, flow: Flow | None, words: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    for child in around.children:
        is_told = (child.kind, child.type) != ("pass", "flow")  # the step that calls a flow says which
        here = (*words, called(child, around, flow)) if is_told else words
        if child.path:
            yield child.path, here
        yield from _places(child, flow, here)


def called(entry: Entry, around: Entry, flow: Flow | None) -> str:
    """The name of a step or a pass for people: that of the flow's file, and of a pass its item, round, branch or case."""
    if entry.kind == "pass":
        return one_line(_pass(entry))
    own, _, visit = entry.name.partition("~")
    nodes = flow.lists.get(around.list_id or "") if flow is not None and around.list_id is not None else None
    node = nodes.by_id.get(own) if nodes is not None else None
    if node is None:
        own = entry.path.rpartition("/")[2] if entry.type == "input" else own
        return one_line(_CALL.sub(r"model call \1", own) if entry.type == "turn" else own)
    return one_line(node.name or own) + (f" ({visit})" if visit else "")


_CALL = re.compile(r"turn\[(\d+)\]")


def _pass(entry: Entry) -> str:
    match entry.type:
        case "foreach":
            return item_label(entry.item) or f"item {int(entry.name) + 1}"
        case "loop":
            return f"round {int(entry.name) + 1}"
        case "switch":
            return f"case {entry.name}"
        case "flow":
            return "its steps"
        case _:
            return entry.name.replace("_", " ") if entry.type in _AFTERWARDS else entry.name


def _steps(
    entry: Entry, flow: Flow | None, places: Mapping[str, str], depth: int
) -> Iterator[dict[str, Json]]:
    """The nodes and passes of a tree as rows, each with how deep it stands."""
    for child in entry.children:
        name = called(child, entry, flow)
        yield {
            "path": child.path,
            "list": entry.list_id if child.kind == "node" else child.list_id,
            "node": child.name.partition("~")[0] if child.kind == "node" else None,
            "name": clean(child.name),
            "called": name,
            "place": places.get(child.path, name),
            "type": child.type,
            "status": status_of(child),
            "started": child.started_at,
            "ended": child.ended_at,
            "tries": child.spans,
            "attempts": child.attempts,
            "reason": child.reason,
            "until": child.until,
            "depth": depth,
        }
        yield from _steps(child, flow, places, depth + 1)


def _failing(root: Entry) -> str:
    """The path of the innermost step that failed last; empty where none did. Steps of `finally` and `on_failure` run because
    another one failed, and count where none did."""
    entry, path = root, ""
    while failed := [child for child in entry.children if child.status == "failed" or is_rejected(child)]:
        entry = max(reversed(failed), key=lambda child: (child.type not in _AFTERWARDS, child.ended_at or ""))
        if entry.type in _AFTERWARDS and path:
            return path
        path = entry.path if entry.kind == "node" else path
    return path


_AFTERWARDS = ("finally", "on_failure")
"""Passes that are no part of what the flow does where all goes well."""


def _marks(root: Entry, state: State) -> list[Json]:
    """The state of each node of the graph: its list, its id, the status, how often it ran, and the path of its last run."""
    ran: dict[tuple[str, str], int] = {}
    last: dict[tuple[str, str], str] = {}
    for entry in root.walk():
        for child in entry.children if entry.kind == "pass" and entry.list_id is not None else ():
            key = (entry.list_id or "", child.name.partition("~")[0])
            ran[key] = ran.get(key, 0) + (child.started_at is not None)
            last[key] = child.path or last.get(key, "")
    held = state.phase == "held"
    told: list[Json] = []
    for key, status in marks(root).items():
        shown = "held" if held and status == "waiting" else status
        told.append([*key, shown, ran.get(key, 0), last.get(key, "")])
    return told


def preview(value: Json) -> str:
    """A value on one line."""
    return one_line(value if isinstance(value, str) else encode(value).decode(), _PREVIEW)


def text_of(value: Json) -> str:
    """A value as people read it, cut where it is very long."""
    text = clean(value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False))
    return (
        text
        if len(text) <= _MOST_TEXT
        else text[:_MOST_TEXT] + f"\n… {len(text) - _MOST_TEXT} characters more"
    )


# --- conversations of agents --------------------------------------------------------------------------------


def conversation(past: Past, at: int | None, names: Names, path: str = "") -> dict[str, Json]:
    """Return agents' texts and actions in a session, the last turns; with a path those of one agent, or of one model
    call."""
    turns = [turn for turn in transcript(past.until(at)) if not path or path in (turn.agent, turn.path)]
    return {
        "turns": [_said(turn, names) for turn in turns[-_MOST_TURNS:]],
        "earlier": max(0, len(turns) - _MOST_TURNS),
    }


def _said(turn: Turn, names: Names) -> dict[str, Json]:
    told = {**turn.to_json(), "text": text_of(names.within(turn.text)), "name": one_line(names.of(turn.name))}
    if turn.who == "tool":
        told |= {"brief": brief_input(turn.name, turn.input), "input": text_of(turn.input)}
    return told


# --- values -------------------------------------------------------------------------------------------------


def parts(value: Json, name: str = "") -> list[dict[str, str]]:
    """A value as people read it: each text of several lines by itself, as lines, and before them what else is set, a line each."""
    if not isinstance(value, dict) or not value:
        return [{"name": name, "text": text_of(value)}]
    lines, texts = list[str](), list[dict[str, str]]()
    for key, each in value.items():
        inner = f"{name}.{key}" if name else str(key)
        if isinstance(each, str) and ("\n" in each or key in _OUTPUTS):
            texts += [{"name": inner, "text": text_of(each.rstrip("\n"))}] if each.strip() else []
        elif each is None or each in ({}, []):
            continue
        elif isinstance(each, dict) and "\n" in json.dumps(each).replace("\\n", "\n"):
            texts += parts(each, inner)
        else:
            lines.append(f"{key}: {_inline(each)}")
    return [*([{"name": name, "text": "\n".join(lines)}] if lines else []), *texts]


def _inline(value: Json) -> str:
    """A value on its line; people by their names."""
    people = value if isinstance(value, list) else [value]
    if people and all(isinstance(one, dict) and {"id", "name"} <= one.keys() <= _PERSON for one in people):
        return ", ".join(clean(str(one["name"] or one["id"])) for one in people)
    return text_of(value) if isinstance(value, str) else clean(encode(value).decode())


_PERSON = {"id", "name", "email", "at"}
_OUTPUTS = ("stdout", "stderr")
_VOLATILE = frozenset({"seconds", "duration", "elapsed", "ts", "permalink"})
"""Parts of outputs that say when, how long or where, and so are others in every run."""
_ID = re.compile(
    r"\b(?:session|prompt)-[0-9a-f]{6,}\b"
    r"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
    r"|\b\d{10}\.\d{6}\b"
    r"|\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
    r"|\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?\b"
)
_DURATION = re.compile(r"\b\d+(?:\.\d+)? ?(?:ms|s|secs?|seconds?)\b")
_LINK = re.compile(r"https?://\S+")
_NUMBER = re.compile(r"p?\d{5,}")


def _steady(value: Json, *, given: bool) -> Json:
    """A value without times, ids and numbers in links, and if no person gave it without durations: equal for two runs that did
    the same."""
    if isinstance(value, str):
        text = _LINK.sub(lambda found: _NUMBER.sub("#", found[0]), _ID.sub("#", value))
        return text if given else _DURATION.sub("#", text)
    if isinstance(value, Mapping):
        return {name: _steady(each, given=given) for name, each in value.items()}
    if isinstance(value, list):
        return [_steady(each, given=given) for each in value]
    return value


def _compared(value: Json) -> Json:
    """A value in the order of its names, without the parts that are others in every run."""
    if isinstance(value, Mapping):
        return {name: _compared(value[name]) for name in sorted(value) if name not in _VOLATILE}
    return [_compared(each) for each in value] if isinstance(value, list | tuple) else value


# --- one step, the journal ----------------------------------------------------------------------------------


def step(past: Past, path: str, at: int | None, names: Names) -> dict[str, Json]:
    """One node in full: what it was given, what it gave, its attempts, what it cost, and the events about it."""
    about = [event for event in past.until(at) if event.path == path]
    starts = [event for event in about if isinstance(event, ev.Start)]
    ends = [event for event in about if isinstance(event, ev.Completion)]
    errors = [event for event in about if isinstance(event, ev.Failure)]
    inside = (f"{path}/", f"{path}[", f"{path}#")
    costs = [
        Decimal(event.cost)
        for event in past.until(at)
        if isinstance(event, ev.CallOutcome)
        and event.cost
        and (event.turn or event.path or "").startswith(inside)
    ]
    given: Json = starts[-1].input if starts else None
    if starts and isinstance(given, dict):
        # Its fields in mrkdwn are told as people read them.
        marked = [name for name, kind in spec_of(starts[-1].node_type).markup.items() if kind == "mrkdwn"]
        given = given | {name: read(given[name]) for name in marked if isinstance(given.get(name), str)}
    failed: Mapping[str, Json] = errors[-1].error if errors else {}
    # The message comes first, the type last.
    order = sorted(failed, key=lambda name: (name != "message", name == "type"))
    return {
        "input": parts(given) if starts else [],
        "output": parts(ends[-1].output) if ends else [],
        "error": parts({name: failed[name] for name in order}) if errors and not ends else [],
        "cost": format(sum(costs), "f") if costs else None,
        "events": [_line(event) for event in about],
        **conversation(past, at, names, path),
    }


def journal(past: Past, number: int) -> dict[str, Json]:
    """So many events of the journal, and how many more are shown next."""
    return {"events": [_line(event) for event in past.events[:number]], "more": number + PAGE}


def event_in_full(past: Past, seq: int) -> dict[str, Json]:
    """One event with all that it says."""
    if not 1 <= seq <= len(past.events):
        raise UnknownSession(f"{past.head.session_id} has events 1 to {len(past.events)}.")
    return {**_line(past.events[seq - 1]), "text": text_of(past.events[seq - 1].to_wire())}


def _line(event: Event) -> dict[str, Json]:
    who = getattr(event, "actor", None)
    return {
        "seq": event.seq,
        "at": event.timestamp,
        "type": event.type,
        "path": event.path,
        "who": (who.get("name") or who.get("id")) if isinstance(who, dict) else None,
    }


# --- two sessions -------------------------------------------------------------------------------------------


def comparison(one: Past, two: Past) -> dict[str, Json]:
    """Two sessions side by side, what they were given and did, and the first step at which they went different ways."""
    (left, places), (right, others) = _done(one), _done(two)
    places = {**others, **places}
    rows = [
        {"place": places[path], **_beside(path, left.get(path), right.get(path))}
        for path in dict.fromkeys([*left, *right])
    ]
    states = [derive_state(past.events) for past in (one, two)]
    given = [state.inputs or state.given for state in states]
    return {
        "sessions": [
            {
                **head_json(past.head, []),
                "standing": standing_word(state.status, state.phase, state.error),
                "events": len(past.events),
            }
            for past, state in zip((one, two), states, strict=True)
        ],
        "sameFlow": one.head.flow_digest == two.head.flow_digest,
        "inputs": [
            {"name": name, "sides": _marked(*(text_of(inputs.get(name)).split("\n") for inputs in given))}
            for name in dict.fromkeys([*given[0], *given[1]])
            if given[0].get(name) != given[1].get(name)
        ],
        "rows": rows,
        "same": sum(not row["differs"] for row in rows),
        "first": next((row["path"] for row in rows if row["differs"]), None),
    }


_Told = dict[str, list[tuple[str, str]]]
"""Values of a node, by name: lines as they are read, each with what is compared of it."""


def _done(past: Past) -> tuple[dict[str, tuple[Entry, _Told]], dict[str, str]]:
    """The nodes that have begun, by path, each with what it was given last, and what came of it; and what they are called."""
    given = {event.path: event.input for event in past.events if isinstance(event, ev.Start)}
    root = tree(past.events)
    found = {
        entry.path: (
            entry,
            {
                **_lines("input", given.get(entry.path)),
                **_lines("output", entry.output),
                **_lines("error", entry.error),
            },
        )
        for entry in root.walk()
        if entry.kind == "node"
    }
    return found, places_of(root, past.flow)


def _lines(name: str, value: Json) -> _Told:
    if value is None:
        return {}
    value = _compared(value)
    shown, compared = parts(value), parts(_steady(value, given=name == "input"))
    return {
        " ".join(filter(None, (name, part["name"]))): list(
            zip(part["text"].split("\n"), steady["text"].split("\n"), strict=False)
        )
        for part, steady in zip(shown, compared, strict=True)
    }


def _beside(path: str, one: tuple[Entry, _Told] | None, two: tuple[Entry, _Told] | None) -> dict[str, Json]:
    """A step of two sessions: the parts that differ, with the lines that do so marked. What differs is what is marked."""
    told = [found[1] if found else {} for found in (one, two)]
    words = [status_of(found[0]) if found else "" for found in (one, two)]
    shown: list[dict[str, Json]] = [{}, {}]
    for name in dict.fromkeys([*told[0], *told[1]]):
        sides = [side.get(name, []) for side in told]
        texts, compared = ([[line[part] for line in side] for side in sides] for part in (0, 1))
        if compared[0] != compared[1]:
            for side, marked in zip(shown, _marked(*texts, *compared), strict=True):
                side |= {name: marked} if marked else {}
    names = dict.fromkeys(name.partition(" ")[0] for side in shown for name in side)
    return {
        "path": path,
        "differs": [*(["status"] if words[0] != words[1] else []), *names],
        **{
            side: found
            and {
                "status": word,
                "started": found[0].started_at,
                "ended": found[0].ended_at,
                "tries": found[0].spans,
                "shown": lines,
            }
            for side, found, word, lines in zip(("left", "right"), (one, two), words, shown, strict=True)
        },
    }


def _marked(
    one: list[str], two: list[str], left: list[str] | None = None, right: list[str] | None = None
) -> list[list[list[Json]]]:
    """The lines of two texts, each with whether the other one lacks it: compared as they are, or as `left` and `right`."""
    found = SequenceMatcher(None, left or one, right or two).get_matching_blocks()
    same = [{block[side] + n for block in found for n in range(block.size)} for side in (0, 1)]
    return [
        [[line, number not in same[side]] for number, line in enumerate(lines)]
        for side, lines in enumerate((one, two))
    ]


# --- what was sent ------------------------------------------------------------------------------------------


def sent(store: Store, session_id: str) -> dict[str, Json]:
    """The rows of a session's outbox: what it has shown, or is to show, in Slack."""
    rows = store.outbox.of(session_id, "")
    return {
        "rows": [
            {
                "key": row.key,
                "kind": row.kind,
                "state": row.state,
                "attempts": row.attempts,
                "created": row.created_at,
            }
            for row in rows[-500:]
        ],
        "more": max(0, len(rows) - 500),
    }


def problem(error: SaysoError) -> dict[str, Json]:
    """An error of ours for the page."""
    return {"error": error.code, "message": one_line(str(error), 500)}
