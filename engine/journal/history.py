"""A session as a tree, for people and programs: every node and every pass of its journal, including finished ones; and
the conversations of its agents. Pure.

The state keeps only the outputs of finished passes; the journal keeps everything. So a tree is drawn from the
journal, and its form at an earlier event from the events up to that one. With the flow, it includes the nodes that have
not begun, in the order of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import astuple

from engine.flow import Flow
from engine.journal import events as ev
from engine.journal.events import Event
from engine.journal.phases import REJECTED
from engine.journal.queries import is_rejected
from engine.journal.records import Head
from engine.journal.snapshot import to_json
from engine.journal.state import FINALLY, State, of_first_attempt, scope_of
from engine.language.codec import Json
from engine.language.timestamps import seconds_between

Span: TypeAlias = tuple[str, str | None]


def worked(spans: Iterable[Span], now: str) -> float:
    """Seconds of something that was under way several times, until `now` if it still is."""
    return sum(max(0.0, seconds_between(began, ended or now)) for began, ended in spans)


class Entry(Struct, rename="camel"):
    """A node (`kind` is `node`) or a pass through a list of nodes (`pass`: an item, a round, a branch, a case).

    `status` is `pending`, `started`, `waiting`, `retrying`, `interrupted`, `completed`, `failed`, `skipped`, or
    `stopped` if it had no outcome when its container ended. `path` of a pass is its scope. `prompts` are the ids of its
    open prompts, `until` is the due time of its timer. `tries` are the times between which a node was under way: it does
    not work while it waits for its next try.
    """

    kind: str
    path: str
    name: str
    type: str
    status: str = "pending"
    started_at: str | None = None
    ended_at: str | None = None
    attempts: int = 0
    output: Json = None
    error: dict[str, Json] | None = None
    reason: str | None = None
    item: Json = None
    prompts: list[str] = []
    until: str | None = None
    list_id: str | None = None
    broken: dict[str, Json] | None = None
    """In a pass, the unhandled error of a node, with which the pass will end."""
    tries: list[Span] = []
    children: list[Entry] = []

    @property
    def open(self) -> bool:
        """True if it has begun and has no outcome."""
        return self.status in ("started", "waiting", "retrying", "interrupted")

    @property
    def spans(self) -> Sequence[Span]:
        """The times between which it was under way; the last one has no end if it still is."""
        return self.tries or ([(self.started_at, self.ended_at)] if self.started_at else [])

    def begin_try(self, at: str) -> None:
        """Note that it is under way from now on."""
        if not self.tries or self.tries[-1][1] is not None:
            self.tries.append((at, None))

    def end_try(self, at: str) -> None:
        """Note that it is under way no more, if it was."""
        if self.tries and self.tries[-1][1] is None:
            self.tries[-1] = (self.tries[-1][0], at)

    def walk(self) -> Iterator[Entry]:
        """This entry and everything in it, as it is in the tree."""
        yield self
        for child in self.children:
            yield from child.walk()

    def to_json(self) -> dict[str, Json]:
        """Return the entry with its children, with the journal's names; unset fields are left out."""
        told = zip(self.__struct_encode_fields__, astuple(self), strict=True)
        fields = {name: value for name, value in told if value is not None and name not in _UNTOLD}
        fields["children"] = [child.to_json() for child in self.children]
        return {name: value for name, value in fields.items() if value or name not in _LISTS}


_UNTOLD = ("listId", "broken", "tries")
_LISTS = ("attempts", "prompts", "children")
"""Fields of an entry that are left out if empty."""


def tree(events: Iterable[Event], flow: Flow | None = None) -> Entry:
    """The tree of a journal, or of the beginning of one. Its root is the flow's own list of nodes."""
    builder = _Builder()
    for event in events:
        builder.take(event)
    if flow is not None:
        root = builder.root
        for entry in list(root.walk()):
            if entry.kind != "pass" or entry.list_id is None or entry.list_id not in flow.lists:
                continue
            nodes = flow.lists[entry.list_id].nodes
            begun = {child.name.partition("~")[0] for child in entry.children}
            if entry.ended_at is None or entry is root:
                entry.children += [
                    Entry("node", "", node.id, node.type) for node in nodes if node.id not in begun
                ]
            _sort(entry.children, {node.id: node.index for node in nodes})
    return builder.root


class _Builder:
    """Takes events one after the other. An event without a node changes nothing."""

    def __init__(self) -> None:
        self.root = Entry("pass", "", "", "flow", list_id="")
        self._passes: dict[str, Entry] = {"": self.root}
        self._nodes: dict[str, Entry] = {}
        self._items: dict[str, list[Json]] = {}
        self._prompts: dict[str, Entry] = {}
        self._timers: dict[str, Entry] = {}
        self._handling: set[str] = set()

    def take(self, event: Event) -> None:
        """Apply one event."""
        match event:
            case ev.SessionStarted():
                self.root.name, self.root.status = event.flow_name, "started"
                self.root.started_at = event.timestamp
            case ev.Start():
                entry = self._node(event, event.own_id, event.node_type)
                entry.type = event.node_type
                entry.status, entry.reason, entry.until = "started", None, None
                entry.started_at = entry.started_at or event.timestamp
                entry.begin_try(event.timestamp)
                entry.attempts = event.attempt
            case ev.Completion():
                self._end(event, "completed").output = event.output
            case ev.NodeFailed():
                entry = self._end(event, "failed")
                entry.error = event.error
                _stop_inside(entry, event.timestamp)
                if not event.contained:
                    self._around(scope_of(event.path or "")).broken = event.error
            case ev.NodeSkipped():
                entry = self._node(event, event.node_id, event.node_type)
                entry.status, entry.reason, entry.ended_at = "skipped", event.reason, event.timestamp
            case ev.NodeRetried():
                entry = self._nodes[event.path or ""]
                entry.status, entry.error, entry.until = "retrying", event.error, event.due_at
                entry.end_try(event.timestamp)
                self._timers[event.timer_id] = entry
            case ev.NodeInterrupted():
                entry = self._nodes[event.path or ""]
                entry.status, entry.reason = "interrupted", event.reason
                entry.end_try(event.timestamp)
            case ev.NodeFailing():
                # Handle a failure without retries left: its `on_failure` becomes a pass inside the node, whose
                # outcome comes later.
                entry = self._nodes[event.path or ""]
                entry.error = event.error
                entry.end_try(event.timestamp)
                if event.scope is not None and event.list_id is not None:
                    self._handling.add(entry.path)
                    self._add_pass(entry, event.scope, "on_failure", event.list_id, event.timestamp)
            case ev.ContainerStarted():
                self._items[event.path or ""] = event.items or []
            case ev.IterationStarted():
                self._pass(event)
            case ev.IterationCompleted():
                entry = self._passes[event.scope]
                entry.status = "completed" if event.error is None else "failed"
                entry.error, entry.ended_at = event.error, event.timestamp
                _stop_inside(entry, event.timestamp)
            case ev.ContainerCompleted() if event.path in self._handling:
                self._handling.discard(event.path)
            case ev.ContainerCompleted():
                self._end(event, "completed")
            case ev.PromptRequested():
                self._asked(event)
            case ev.Closing():
                entry = self._prompts.pop(event.prompt_id)
                entry.prompts = [known for known in entry.prompts if known != event.prompt_id]
                if entry.status == "waiting" and not entry.prompts:
                    entry.status = "completed" if entry.type == "input" else "started"
            case ev.TimerSet(purpose="wait"):
                entry = self._nodes[event.path or ""]
                entry.status, entry.until = "waiting", event.due_at
                self._timers[event.timer_id] = entry
            case ev.TimerFired() if event.timer_id in self._timers:
                entry = self._timers.pop(event.timer_id)
                entry.until = None
                entry.status = "started" if entry.status == "waiting" else entry.status
            case ev.AgentToolRequested():
                # A tool call may wait for people before it begins; it is under the model's name for it.
                path = event.path or ""
                entry = Entry("node", path, event.name, "tool", started_at=event.timestamp)
                entry.begin_try(event.timestamp)
                self._nodes[path] = entry
                self._around(scope_of(path)).children.append(entry)
            case ev.AgentToolResult():
                entry = self._end(event, "failed" if event.is_error else "completed")
                said = [str(block["text"]) for block in event.content if block.get("type") == "text"]
                entry.output, entry.error = "\n".join(said) or None, event.error
                _stop_inside(entry, event.timestamp)
            case ev.CallOutcome(turn=str(turn)):
                entry = self._nodes[turn]
                entry.end_try(event.timestamp)
                entry.status, entry.ended_at, entry.until = "completed", event.timestamp, None
                entry.reason = event.note
                entry.output = (
                    "".join(block["text"] for block in event.answer if block["type"] == "text") or None
                )
            case ev.FlowFinalizing() if event.list_id is not None:
                self._add_pass(self.root, FINALLY, "finally", event.list_id, event.timestamp)
            case ev.FlowFailed():
                self.root.error = event.error
            case ev.SessionAborted():
                self.root.reason = event.reason
            case ev.SessionEnd():
                self.root.status = {"complete": "completed"}.get(event.status, event.status)
                self.root.ended_at = event.timestamp
                # No event of its own tells that `finally` is over.
                ended = self._passes.get(FINALLY)
                if ended is not None and not any(child.open for child in ended.children):
                    ended.status, ended.error = _ended(ended, "completed"), ended.broken
                    ended.ended_at = event.timestamp
                _stop_inside(self.root, event.timestamp)

    def _node(self, event: Event, node_id: str, node_type: str) -> Entry:
        """Return the entry of the node at an event's path, created if missing."""
        path = event.path or ""
        if path not in self._nodes:
            # A later visit (`build~2`) shows which it is.
            name = path.rpartition("/")[2]
            entry = Entry("node", path, name if name.startswith(node_id) else node_id, node_type)
            self._nodes[path] = entry
            self._around(scope_of(path)).children.append(entry)
        return self._nodes[path]

    def _around(self, scope: str) -> Entry:
        """Return the parent of the nodes of a scope: a pass, or a node of an agent that has children without passes."""
        found = self._passes.get(scope)
        if found is not None:
            return found
        return self._nodes[of_first_attempt(scope)]

    def _end(self, event: Event, status: str) -> Entry:
        entry = self._nodes[event.path or ""]
        entry.status, entry.ended_at, entry.until = status, event.timestamp, None
        entry.end_try(event.timestamp)
        entry.reason = None
        entry.prompts.clear()
        return entry

    def _add_pass(self, around: Entry, scope: str, name: str, list_id: str, at: str) -> None:
        entry = Entry("pass", scope, name, name, "started", started_at=at, list_id=list_id)
        self._passes[scope] = entry
        around.children.append(entry)

    def _pass(self, event: ev.IterationStarted) -> None:
        container = self._nodes[event.path or ""]
        items = self._items.get(container.path, [])
        name = event.key if event.key is not None else str(event.index)
        entry = Entry(
            "pass",
            event.scope,
            name or "default",
            container.type,
            "started",
            started_at=event.timestamp,
            item=items[event.index] if event.index < len(items) else None,
            list_id=event.list_id,
        )
        self._passes[event.scope] = entry
        container.children.append(entry)

    def _asked(self, event: ev.PromptRequested) -> None:
        path = event.path or ""
        if path not in self._nodes:
            # The question for an input of the flow belongs to no node.
            entry = Entry("node", path, path, "input", started_at=event.timestamp)
            self._nodes[path] = entry
            self.root.children.append(entry)
        entry = self._nodes[path]
        entry.prompts.append(event.prompt_id)
        # A node with an outcome keeps it: the question is about the edges after it.
        if entry.status != "interrupted" and entry.ended_at is None:
            entry.status = "waiting"
        self._prompts[event.prompt_id] = entry


def _ended(entry: Entry, otherwise: str) -> str:
    """Return the status of a pass whose end no event tells: failed if one of its nodes was."""
    return otherwise if entry.broken is None else "failed"


def _stop_inside(around: Entry, at: str) -> None:
    """Stop open entries inside: they will get no outcome."""
    for entry in around.walk():
        if entry is not around and entry.open:
            entry.status, entry.ended_at, entry.until = _ended(entry, "stopped"), at, None
            entry.end_try(at)
            entry.error = entry.error or entry.broken
            entry.prompts.clear()


def _sort(children: list[Entry], places: dict[str, int]) -> None:
    """Sort by the order of the file; a later visit of a node follows the earlier one, `finally` comes last."""

    def place(child: Entry) -> int:
        return len(places) if child.kind == "pass" else places.get(child.name.partition("~")[0], -1)

    children.sort(key=place)


# --- conversations of agents ------------------------------------------------------------------------------


class Turn(Struct, rename="camel"):
    """Something said or done in an agent's conversation.

    `who` is `flow` (what the flow asks), `person`, `model`, `tool` or `sayso`; `name` is the person, the model or the tool.
    A tool's `input` is what it was called with, `text` its result, and `path` its place; `decided` says what people
    decided about the call. `aside` marks thinking of the model, and words that an agent overheard. `ending` says how an
    answer ended that is not whole.
    """

    agent: str
    seq: int
    at: str
    who: str
    name: str
    text: str = ""
    path: str = ""
    input: Json = None
    failed: bool = False
    done: bool = True
    """False for a call that has no result yet."""
    waits: bool = False
    """True for a call about which people are asked."""
    decided: str = ""
    aside: bool = False
    ending: str = ""

    def to_json(self) -> dict[str, Json]:
        """The turn in the journal's manner of naming; what is not set is left out."""
        told = zip(self.__struct_encode_fields__, astuple(self), strict=True)
        return {name: value for name, value in told if value not in (None, "", False)}


_WRAPPED = re.compile(r"<(tool_output|message|overheard|reason)\b[^>]*>\n(.*?)\n</\1>", re.DOTALL)
_BEFORE = re.compile(r'<earlier_conversation agent="([^"]*)">.*?</earlier_conversation>', re.DOTALL)
"""A model is told in marks what is from whom; people read the words alone, and an earlier conversation where it was."""


def transcript(events: Iterable[Event]) -> list[Turn]:
    """The conversations of a journal's agents, or of its beginning, in the order in which things were said."""
    turns: list[Turn] = []
    calls: dict[str, Turn] = {}
    for event in events:
        match event:
            case ev.AgentMessage(source="model"):
                turns += _of_model(event)
            case ev.AgentMessage():
                told = event.actor or {}
                names = {
                    "person": str(told.get("name") or told.get("id") or "somebody"),
                    "prompt": "the flow",
                }
                who = {"prompt": "flow", "engine": "sayso"}.get(event.source, event.source)
                words = _words(event.content)
                turns.append(
                    _turn(event, who, names.get(event.source, "sayso"), words, aside=bool(event.overheard))
                )
            case ev.AgentToolRequested():
                call = _turn(
                    event, "tool", event.name, "", path=event.path or "", input=event.input, done=False
                )
                # The path of the agent of a call at `agent/turn[1]/tool[0]`, also of its later attempts
                # (`agent#2/turn[1]`).
                call.agent = of_first_attempt(scope_of(scope_of(call.path)))
                calls[call.path] = call
                turns.append(call)
            case ev.AgentToolResult():
                call = calls[event.path or ""]
                call.text, call.failed, call.done = _words(event.content), bool(event.is_error), True
            case ev.AgentCompacted():
                turns.append(
                    _turn(
                        event,
                        "sayso",
                        "sayso",
                        f"The conversation so far was summed up:\n\n{_words(event.content)}",
                    )
                )
            case ev.AgentOutcome(error=dict() as error) if event.how in ("ask", "stop"):
                turns.append(
                    _turn(
                        event, "sayso", "sayso", str(error.get("message") or error.get("type")), failed=True
                    )
                )
            case ev.PromptRequested() if event.path in calls:
                calls[event.path].waits = True
            case ev.Closing() if event.path in calls:
                calls[event.path].waits, calls[event.path].decided = False, _decision(event)
    return turns


def _turn(event: Event, who: str, name: str, text: str, **more: Json) -> Turn:
    return Turn(event.path or "", event.seq, event.timestamp, who, name, text, **more)


def _of_model(event: ev.AgentMessage) -> Iterator[Turn]:
    """Yield the text of a model's answer and its use of the provider's tools; other tool calls have events of their own."""
    results = {str(block["tool_use_id"]): block for block in event.content if "tool_use_id" in block}
    said = []
    for block in event.content:
        kind = str(block.get("type"))
        if kind in ("text", "thinking") and str(block.get(kind) or "").strip():
            said.append(
                _turn(event, "model", event.model or "model", str(block[kind]), aside=kind == "thinking")
            )
        elif kind == "server_tool_use":
            result = results.get(str(block["id"]))
            text = "" if result is None else _words([result])
            given = block.get("input")
            said.append(_turn(event, "tool", str(block["name"]), text, input=given, done=result is not None))
    for turn in said:
        turn.path = event.turn or ""
    if said and (event.interrupted or event.stop_reason == "max_tokens"):
        said[-1].ending = "interrupted" if event.interrupted else "cut off"
    yield from said


def unwrapped(text: str) -> str:
    """Return a text as people read it, without the marks that tell a model what is from whom."""
    return _WRAPPED.sub(r"\2", text)


def _words(content: Sequence[Json]) -> str:
    """Return blocks as people read them: text without the marks around it, other blocks by their kind. A place that is read
    for the model (notes, the thread) stands there by name alone and is left out."""
    told = []
    for block in content:
        if block.get("place"):
            continue
        inner = block.get("content")
        if block.get("type") == "text":
            text = _BEFORE.sub(r"(The conversation of \1 comes before this.)", str(block["text"]))
            told.append(unwrapped(text))
        elif isinstance(inner, list):
            told.append(_words(inner))
        elif block.get("title") or block.get("url") or block.get("name"):
            told.append(" ".join(str(block[name]) for name in ("title", "url", "name") if block.get(name)))
        else:
            told.append(f"({str(block.get('type')).replace('_', ' ')})")
    return "\n".join(told)


def _decision(event: ev.Closing) -> str:
    """Describe the outcome of the question about a call."""
    actor, answer = (getattr(event, name, None) or {} for name in ("actor", "answer"))
    if not actor:
        return "nobody answered"
    said = {"approve": "approved", "reject": "rejected", "answer": "answered"}.get(
        str(answer.get("value")), "answered"
    )
    reason = answer.get("reason") or ""
    return f"{said} by {actor.get('name') or actor.get('id')}" + (f": {reason}" if reason else "")


WEIGHT = (
    "waiting",
    "interrupted",
    "retrying",
    "started",
    "rejected",
    "failed",
    "stopped",
    "completed",
    "skipped",
)
"""Statuses, that first which counts most where a node has run in several passes."""


def marks(root: Entry) -> dict[tuple[str, str], str]:
    """Return the status of each node of the flow over all passes: `(list id, node id)` → status. Nodes that never ran
    are missing."""
    found: dict[tuple[str, str], str] = {}
    for entry in root.walk():
        if entry.kind != "pass" or entry.list_id is None:
            continue
        for child in entry.children:
            key = (entry.list_id, child.name.partition("~")[0])
            if child.kind == "node" and child.status in WEIGHT and child.type != "input":
                seen = [*([found[key]] if key in found else []), status_of(child)]
                found[key] = min(seen, key=WEIGHT.index)
    return found


def status_of(entry: Entry) -> str:
    """Return the status of a node as it is shown: a rejection is no failure, and an agent waits where its open calls do."""
    if is_rejected(entry):
        return REJECTED
    if entry.type != "agent" or not entry.open:
        return entry.status
    return min((each.status for each in entry.walk() if each.open), key=WEIGHT.index)


def inspection(state: State, head: Head) -> dict[str, Json]:
    """Return the state's document with waiting nodes' outputs as `{awaiting: true, promptId}`, and its position in the
    store."""
    data = to_json(state)
    for prompt_id in state.open_prompts:
        prompt = state.prompts[prompt_id]
        data["outputs"][prompt.path] = {"awaiting": True, "promptId": prompt_id}
    data["code"] = (state.error or {}).get("type") if state.status == "failed" else None
    data["standing"] = "on hold" if head.quarantined else state.standing
    data["quarantined"] = head.quarantined
    data["epoch"] = head.epoch
    data["owner"] = head.owner
    if head.quarantined:
        data["phase"] = "quarantined"
    return data
