"""Spans of OpenTelemetry, derived from the events of a committed step. Pure.

A trace is a session, and its id and those of its spans are derived from the session's id, the path and the attempt. So
another process continues the trace, and work repeated after a crash keeps its ids. A span is made when its end is
committed, with a start in the past; its parent is made later, under an id that is known already.

Names and attributes are those of the conventions for generative AI and for messaging; ours begin with `sayso.`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TypeAlias

from engine.journal import events as ev
from engine.journal.events import Event
from engine.journal.state import State, scope_of
from engine.language import timestamps
from engine.language.codec import Json, encode

Told: TypeAlias = dict[str, str | int | float | list[str]]
"""Attributes of a span."""
MOST_CONTENT = 8192
"""Characters of an attribute that holds content."""
_TOOL = re.compile(r"tool\[\d+\]$")
_PASS = re.compile(r"[\[!#][^/]*$")
_SAID = re.compile(r"(?:message|click):.*:(\d{1,11}\.\d+)$")
_STOPS = (
    ev.SessionEnd,
    ev.Failure,
    ev.IterationCompleted,
    ev.AgentOutcome,
)
"""After these, nodes can be over of which no event says so."""


@dataclass(eq=False)
class Span:
    """A finished span. Times are those of events; `error` is a type of error, never its text."""

    name: str
    id: int
    parent: int | None
    start: str
    end: str
    kind: str = "internal"
    error: str | None = None
    attributes: Told = field(default_factory=dict)


@dataclass(eq=False)
class _Begun:
    """An attempt of a node that is in progress."""

    node_id: str
    type: str
    attempt: int
    at: str
    input: Json


@dataclass(eq=False)
class _Call:
    """A tool that a model called."""

    name: str
    use: str
    at: str


def trace_id(session_id: str) -> int:
    """The id of a session's trace: 128 bits."""
    return _number(session_id, 16)


def span_id(session_id: str, path: str, attempt: int | str) -> int:
    """Return the id of the span of an attempt: 64 bits. That of the session itself has no path, and 0 for attempt."""
    return _number(f"{session_id}\n{path}\n{attempt}", 8)


def _number(text: str, size: int) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=size).digest()) or 1


class Spans:
    """Derives spans from steps. What it keeps between them is when attempts after the first began, which a state does
    not say: where a restart loses that, such a span begins with the node."""

    def __init__(self, content: bool = False) -> None:
        """With `content`, attributes also hold texts of flows, people and models, as in the journal: without secrets."""
        self._content = content
        self._again: dict[str, dict[str, str]] = {}

    def of(self, before: State, after: State, events: Sequence[Event]) -> list[Span]:
        """The spans that end with a step."""
        again = self._again.setdefault(after.session_id, {})
        step = _Step(before, after, again, self._content)
        for event in events:
            step.take(event)
        if any(isinstance(event, _STOPS) for event in events):
            step.stop(events[-1].timestamp)
        for path, begun in step.begun.items():
            if begun.attempt > 1:
                again[path] = begun.at
        if not again or after.ended:
            del self._again[after.session_id]
        return step.spans


class _Step:
    """The spans of one step."""

    def __init__(self, before: State, after: State, again: dict[str, str], content: bool) -> None:
        self.before, self.after, self.again, self.content = before, after, again, content
        self.session_id = after.session_id
        self.spans: list[Span] = []
        self.begun: dict[str, _Begun] = {}
        self._calls: dict[str, _Call] = {}
        self._over: set[str] = set()
        self._attempts: dict[str, int] = {}
        self._models: dict[str, str] = {}

    def take(self, event: Event) -> None:
        """End the spans that one event ends."""
        path, at = event.path or "", event.timestamp
        match event:
            case ev.Start():
                self._over.discard(path)
                self._attempts[path] = event.attempt
                self.begun[path] = _Begun(event.own_id, event.node_type, event.attempt, at, event.input)
            case ev.Completion():
                self._end(path, at, output=event.output)
            case ev.ContainerStarted(agent=dict(agent)):
                self._models[path] = str(agent["model"])
            case ev.ContainerCompleted():
                self._end(path, at)
            case ev.Failure():
                self._end(path, at, event.error)
            case ev.NodeInterrupted(reason="left" | "changed" | "asks"):
                self._end(path, at, more={"sayso.interrupted": event.reason})
            case ev.NodeInterrupted():
                self._end(path, at, {"type": event.reason})
            case _:
                self._of_agents(event, path, at)

    def _of_agents(self, event: Event, path: str, at: str) -> None:
        match event:
            case ev.CallOutcome(turn=str(turn)):
                self._end(turn, at, output=event.content, more=_usage(event))
            case ev.AgentToolRequested():
                self._calls[path] = _Call(event.name, event.tool_use_id, at)
            case ev.AgentToolResult():
                error = {"type": "tool_error", **(event.error or {})} if event.is_error else None
                self._end(path, at, error, output=event.content)
            case _:
                self._of_people(event, at)

    def _of_people(self, event: Event, at: str) -> None:
        match event:
            case ev.PromptShown():
                # A question was sent.
                path, since = self._question(event)
                span = self._add(
                    "send outbox",
                    path,
                    f"shown {event.seq}",
                    since,
                    event.timestamp,
                    _messaging("send", "outbox"),
                )
                span.kind = "producer"
            case ev.Closing():
                self._decided(event)
            case ev.FlowPaused():
                told: Told = {"sayso.pause": "held" if event.held else "waiting"}
                self._add("pause", None, f"pause {event.seq}", at, at, told)
            case ev.SessionMessage():
                self._received(event, None, event.key)
            case ev.SessionEnd():
                self._session(event)

    def stop(self, at: str) -> None:
        """End activities that will never have an outcome."""
        if self.before.active is not self.after.active:
            for path in {*self.before.active, *self.begun}:
                if path not in self.after.active:
                    self._end(path, at, more={"sayso.interrupted": "stopped"})

    # --- nodes ----------------------------------------------------------------------------------------------

    def _end(
        self,
        path: str,
        at: str,
        error: Mapping[str, Json] | None = None,
        *,
        output: Json = None,
        more: Told | None = None,
    ) -> None:
        """The span of the attempt that is in progress at a path, if one is."""
        begun = self._running(path)
        call = self._call(path)
        if begun is None and (call is None or path in self._over):
            return
        self._over.add(path)
        self.begun.pop(path, None)
        self.again.pop(path, None)
        begun = begun or _Begun(path, "tool", 1, call.at if call else at, None)
        name, kind, told = self._told(path, begun, call)
        told |= {"sayso.node.path": path, "sayso.node.type": begun.type, "sayso.attempt": begun.attempt}
        told |= more or {}
        if self.content:
            ours = call is None
            told |= _content("sayso.node.input" if ours else "gen_ai.tool.call.arguments", begun.input)
            told |= _content("sayso.node.output" if ours else "gen_ai.tool.call.result", output)
            told |= _content("sayso.error", error)
        number = span_id(self.session_id, path, begun.attempt)
        kept = self._span(name, number, self._around(path), (begun.at, at), told)
        kept.kind, kept.error = kind, str(error.get("type") or "error") if error is not None else None

    def _running(self, path: str) -> _Begun | None:
        if path in self.begun or path in self._over:
            return self.begun.get(path)
        run = self.before.nodes.get(path)
        if run is None or run.status != "started":
            return None
        since = self.again.get(path) or run.started_at or self.before.created_at
        return _Begun(run.node_id, run.type, run.attempt, since, run.input)

    def _call(self, path: str) -> _Call | None:
        if path in self._calls or not _TOOL.search(path):
            return self._calls.get(path)
        container = self.before.containers.get(_owner(path))
        known = container.agent.calls.get(path) if container and container.agent else None
        return _Call(known.name, known.tool_use_id, self.before.updated_at) if known else None

    def _model(self, path: str) -> str:
        """The model of the agent at a path."""
        container = self.before.containers.get(path) or self.after.containers.get(path)
        return container.agent.model if container and container.agent else self._models.get(path, "")

    def _told(self, path: str, begun: _Begun, call: _Call | None) -> tuple[str, str, Told]:
        """Return name, kind and attributes of a node's span, by the kind of node."""
        if call is not None:
            tool = {"gen_ai.tool.name": call.name, "gen_ai.tool.call.id": call.use}
            return f"execute_tool {call.name}", "internal", {"gen_ai.operation.name": "execute_tool", **tool}
        match begun.type:
            case "agent":
                told = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": begun.node_id}
                return f"invoke_agent {begun.node_id}", "internal", {**told, **_model(self._model(path))}
            case "turn":
                model = str((begun.input or {}).get("model") or self._model(_owner(path)))
                return f"chat {model}", "client", {"gen_ai.operation.name": "chat", **_model(model)}
            case "message":
                return "send outbox", "producer", _messaging("send", "outbox")
            case _:
                return f"{begun.type} {begun.node_id}", "internal", {}

    def _around(self, path: str) -> int:
        """The id of the span around that of a node: its container's, or the session's."""
        owner = _owner(path)
        if not owner:
            return span_id(self.session_id, "", 0)
        return span_id(self.session_id, owner, self._attempt(owner) or 1)

    def _attempt(self, path: str) -> int:
        """Return the current or last attempt of the node at a path; 0 if none has begun."""
        run = self.before.nodes.get(path) or self.after.nodes.get(path)
        return self._attempts.get(path) or (run.attempt if run else 0)

    # --- people and the session -----------------------------------------------------------------------------

    def _decided(self, event: ev.Closing) -> None:
        """People were waited for, until now."""
        path, since = self._question(event)
        told: Told = {"sayso.outcome": event.type.partition(":")[2]}
        asked = self.after.prompts.get(event.prompt_id)
        if asked is not None:
            told["sayso.prompt.kind"] = asked.kind
            told |= _content("sayso.prompt.message", asked.message) if self.content else {}
        span = self._add("await_human", path, f"{event.prompt_id} {event.seq}", since, event.timestamp, told)
        if isinstance(event, ev.PromptAnswered):
            told |= _content("sayso.answer", event.answer) if self.content else {}
            self._received(event, span.id, event.key)

    def _question(self, event: ev.PromptEvent) -> tuple[str | None, str]:
        """Return the path of a question, and the time at which it was asked."""
        asked = self.after.prompts.get(event.prompt_id)
        return (asked.path, asked.requested_at) if asked else (event.path, event.timestamp)

    def _received(self, event: Event, parent: int | None, key: str | None) -> None:
        """Add the span of a message or click taken from the inbox. Slack's key has its time."""
        found = _SAID.match(key or "")
        if found is None:
            return
        said = min(timestamps.clock(lambda: float(found[1]))(), event.timestamp)
        span = self._add(
            "process inbox", None, f"inbox {event.seq}", said, event.timestamp, _messaging("process", "inbox")
        )
        span.kind, span.parent = "consumer", parent or span.parent

    def _session(self, event: ev.SessionEnd) -> None:
        state = self.after
        told: Told = {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.workflow.name": state.flow_name,
            "sayso.flow.digest": state.flow_digest,
            "sayso.status": event.status,
        }
        if state.flow_revision:
            told["sayso.flow.revision"] = state.flow_revision
        number = span_id(self.session_id, "", 0)
        times = (state.created_at, event.timestamp)
        span = self._span(f"invoke_workflow {state.flow_name}", number, None, times, told)
        if event.status == "failed":
            span.error = str((state.error or {}).get("type") or "error")

    def _add(
        self,
        name: str,
        path: str | None,
        key: str,
        start: str,
        end: str,
        told: Told,
    ) -> Span:
        """A span below that of the node at `path`, where one runs there, else below the session's."""
        attempt = self._attempt(path) if path else 0
        if path and not attempt and _TOOL.search(path):
            attempt = 1  # a call that waits for people before it begins
        parent = span_id(self.session_id, path if path and attempt else "", attempt)
        return self._span(name, span_id(self.session_id, path or "", key), parent, (start, end), told)

    def _span(
        self,
        name: str,
        number: int,
        parent: int | None,
        times: tuple[str, str],
        told: Told,
    ) -> Span:
        told |= {"sayso.session.id": self.session_id, "sayso.flow": self.after.flow_name}
        self.spans.append(Span(name, number, parent, *times, attributes=told))
        return self.spans[-1]


def _owner(path: str) -> str:
    """The path of the container that a node is in; of a tool call that of the agent."""
    scope = scope_of(path)
    return _PASS.sub("", scope_of(scope) if _TOOL.search(path) else scope)


def _model(name: str) -> Told:
    return {"gen_ai.provider.name": "anthropic", "gen_ai.request.model": name}


def _messaging(what: str, where: str) -> Told:
    told = {"messaging.system": "sayso", "messaging.destination.name": where}
    return {**told, "messaging.operation.name": what, "messaging.operation.type": what}


_TOKENS = {
    "output_tokens": "gen_ai.usage.output_tokens",
    "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
}


def _usage(event: ev.CallOutcome) -> Told:
    usage = event.usage or {}
    told: Told = {name: usage[ours] for ours, name in _TOKENS.items() if ours in usage}
    # The convention counts cached input too.
    told["gen_ai.usage.input_tokens"] = sum(usage.values()) - usage.get("output_tokens", 0)
    if event.model:
        told["gen_ai.response.model"] = event.model
    if event.cost:
        told["sayso.cost.dollars"] = float(event.cost)
    if event.stop_reason:
        told["gen_ai.response.finish_reasons"] = [event.stop_reason]
    return told


def _content(name: str, value: Json | Mapping[str, Json]) -> Told:
    if value is None:
        return {}
    text = value if isinstance(value, str) else encode(value).decode()
    return {name: text[:MOST_CONTENT]}
