"""The outbox rows of agents: what stays in the thread of what they say and do. Pure.

An agent's turn has up to three kinds of entries, each a slot: parts of its text, its tool calls, and notes. A row is put
when a text begins to stream, replaced when the text is whole, and so posted once whatever is killed; that of the calls is
replaced with each result. Which entries are in one message is decided when they are sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, to_builtins

from bot.faces.places import items_around
from bot.faces.tools import Steps, brief_input, has_line, plan_steps
from bot.intents.slots import SHOW, SPEECH
from bot.rendering.agents import noted_text, split_text, text_of
from engine.decide.agents.grants import used_by
from engine.decide.question import in_place
from engine.journal import queries
from engine.journal.events import (
    AgentCompacted,
    AgentMessage,
    AgentToolResult,
    CallOutcome,
    Closure,
    Event,
    Setback,
    Start,
)
from engine.journal.queries import PLAN, TURN
from engine.journal.records import OutboxRow, PutOutbox
from engine.journal.state import AgentRun, State, scope_of
from engine.language.codec import Json, decode, encode
from engine.language.structs import convert

ABOUT_AGENTS = (
    AgentMessage,
    AgentToolResult,
    AgentCompacted,
    Start,
    Setback,
    Closure,
)
"""The events from which rows of agents, and marks, may follow."""


def agent_rows(before: State, after: State, event: Event, events: Sequence[Event]) -> list[PutOutbox]:
    """The rows of an event of a step that is about an agent, for a session that lives in a thread; without the marks on
    people's messages (`marks`). What a turn says is told with what stood around it while it was in progress."""
    match event:
        case AgentMessage(source="model", turn=str(turn)):
            container = before.containers.get(event.path or "")
            agent = None if container is None else container.agent
            data = agent is not None and agent.structured and bool(event.final)
            # What an agent answers that another one has called is not for people.
            final, cut = bool(event.final) and "/tool[" not in turn, bool(event.interrupted)
            rows = said_rows(before, turn, event.content, interrupted=cut, structured=data, final=final)
            rows += [dropped_row(before, turn)] if event.dropped else []
            return rows
        case AgentToolResult(path=str(path), is_error=None | False) if steps := _stated(before, path, events):
            return [_plan_row(before, scope_of(path), steps)]
        case AgentCompacted():
            return [compacted_row(before, event.turn, event.replaced)]
        case Setback(path=str(path), result="failed") if _is_turn(before, path):
            return [cut_row(before, path)]
        case Closure():
            ended = {event.turn for event in events if isinstance(event, CallOutcome)}
            turns = [path for path in before.active if _is_turn(before, path) and path not in ended]
            return [*_plans_over(before, None), *(cut_row(before, path) for path in sorted(turns))]
        case _:
            return []


def _is_turn(state: State, path: str) -> bool:
    return path in state.nodes and state.nodes[path].type == TURN


def marks(before: State, after: State, events: Sequence[Event]) -> tuple[list[str], list[str]]:
    """The keys of people's messages that an agent has kept for its next call, and of those that are part of it now."""
    kept: dict[str, list[str]] = {}
    read: list[str] = []
    for event in events:
        if isinstance(event, AgentMessage) and event.source == "person" and event.key and not event.overheard:
            kept.setdefault(event.path or "", []).append(event.key)
        elif isinstance(event, Start) and event.node_type == TURN:
            scope = scope_of(event.path or "")
            frame = after.frames.get(scope) or before.frames.get(scope)
            owner = (frame.owner if frame is not None else None) or ""
            agent = before.containers[owner].agent if owner in before.containers else None
            read += [*(agent.heard if agent is not None else ()), *kept.pop(owner, [])]
    return [key for keys in kept.values() for key in keys], list(dict.fromkeys(read))


def text_key(session_id: str, turn: str, part: int = 0) -> str:
    """The key of a part of a turn's text."""
    return f"{SPEECH}:{session_id}:{turn}:{part}"


def tools_key(session_id: str, turn: str) -> str:
    """The key of a turn's calls."""
    return f"{SPEECH}:{session_id}:{turn}:tools"


def agent_of(turn: str) -> str:
    """The path of the agent that a turn belongs to."""
    return turn.rpartition("/")[0]


def entry_row(
    state: State, key: str, turn: str, payload: Mapping[str, Json], *, replace: bool = True
) -> PutOutbox:
    """An entry for a session's thread. `state` is one in which the turn is in progress: what is around the agent then, and
    whether others are at work too (`beside`), stays with the entry."""
    thread, agent = state.thread or {}, agent_of(turn)
    beside = any(one.agent is not None and path != agent for path, one in state.containers.items())
    whole: dict[str, Json] = {
        "sessionId": state.session_id,
        "turn": turn,
        "channel": thread["channel"],
        "threadTs": thread["threadTs"],
        "items": dict(items_around(state, agent)),
        "beside": beside,
        **payload,
    }
    return PutOutbox(key, str(thread["key"]), SHOW, encode(whole), state.session_id, replace=replace)


def writing_row(state: State, turn: str, part: int) -> PutOutbox:
    """A part of a text begins to come. What it says is only in the memory of this process until it is whole."""
    payload: dict[str, Json] = {"part": part, "ending": "writing"}
    return entry_row(state, text_key(state.session_id, turn, part), turn, payload, replace=False)


def said_rows(
    state: State,
    turn: str,
    content: Sequence[Mapping[str, Json]],
    *,
    interrupted: bool,
    structured: bool = False,
    final: bool = False,
) -> list[PutOutbox]:
    """Return the text and tool calls of a turn. An empty text removes what a broken attempt has shown. An answer that
    is data is for later nodes, and not shown. The end of a `final` one gets the feedback buttons."""
    parts = split_text("" if structured else text_of(content))
    rows = []
    for number, text in enumerate(parts):
        last = number == len(parts) - 1
        ending = "stopped" if interrupted and last else ""
        payload: dict[str, Json] = {"part": number, "text": text, "ending": ending, "last": last}
        if final and last:
            payload["final"] = True
        rows.append(entry_row(state, text_key(state.session_id, turn, number), turn, payload))
    return rows if interrupted else rows + tools_rows(state, turn, content, {})


FEEDBACK = "feedback:"
"""Prefix of the keys of feedback rows."""


class Feedback(Struct, frozen=True):
    """One person's latest feedback on an answer, `good` or `bad`. `turn` is the path of the answer."""

    turn: str
    value: str
    person: dict[str, Json]
    at: str


def feedback_row(answer: OutboxRow, where: Mapping[str, Json], said: Feedback) -> PutOutbox:
    """Return the row for feedback on an answer: kept with its session, one row a person, the latest counts. Sending it
    confirms the feedback to that person. `where` is the channel and the thread."""
    key, user = f"{FEEDBACK}{answer.key}:{said.person['id']}", said.person["id"]
    payload: dict[str, Json] = {"channel": where["channel"], "threadTs": where["threadTs"], "user": user}
    payload |= {"text": noted_text(said.value), "feedback": to_builtins(said)}
    return PutOutbox(key, key, "ephemeral", encode(payload), answer.session_id, replace=True)


def feedback_in(rows: Sequence[OutboxRow]) -> list[Feedback]:
    """Return the feedback on the answers of a session, from its rows of that kind."""
    return [convert(decode(row.payload)["feedback"], Feedback) for row in rows]


def tools_rows(
    state: State, turn: str, content: Sequence[Mapping[str, Json]], results: Mapping[str, Json]
) -> list[PutOutbox]:
    """Return the tool calls of a turn, as one entry, with what is known of the results of these paths; none for a turn without
    calls that have a line."""
    calls = [block for block in content if block.get("type") == "tool_use"]
    tools: list[Json] = [
        {
            "name": name,
            "brief": brief_input(name, call.get("input")),
            **results.get(f"{turn}/tool[{number}]", {}),
        }
        for number, call in enumerate(calls)
        if has_line(name := str(call.get("name")), call.get("input"))
    ]
    return [entry_row(state, tools_key(state.session_id, turn), turn, {"tools": tools})] if tools else []


def _calls_changed(before: State, after: State, events: Sequence[Event]) -> list[PutOutbox]:
    """Return the calls of each turn of which some have their result now, or will have none any more: their agent, or the session, is
    over."""
    failed = {event.path: bool(event.is_error) for event in events if isinstance(event, AgentToolResult)}
    over = {
        path
        for at, container in before.containers.items()
        if container.agent is not None and (at not in after.containers or after.phase == "ended")
        for path in container.agent.calls
    }
    said = {event.turn: event.content for event in events if isinstance(event, AgentMessage) and event.turn}
    rows = []
    for turn in dict.fromkeys(scope_of(path) for path in (*failed, *sorted(over)) if path):
        agent = _agent(before, turn)
        if agent is None:
            continue
        content = said.get(turn) or agent.messages[len(agent.messages) - 1]["content"]
        ids = [block["id"] for block in content if block.get("type") == "tool_use"]
        results = {}
        for path, tool_id in ((f"{turn}/tool[{number}]", tool_id) for number, tool_id in enumerate(ids)):
            known = agent.results.get(tool_id)
            if path in failed or known is not None:
                is_error = failed[path] if known is None else bool(known.get("is_error"))
                # `ran` is what a call was made with, where that is not what the model asked for.
                result: dict[str, Json] = {"isError": is_error}
                if ran := _as_edited(after, path):
                    result["ran"] = ran
                if in_place(after, path):
                    result["inPlace"] = True
                if (grant := used_by(after, path)) is not None:
                    names = (str(person.get("name") or person.get("id")) for person in grant.by)
                    result["allowedBy"] = " and ".join(names)
                results[path] = result
            elif path in over:
                results[path] = {"over": True}
        rows += tools_rows(before, turn, content, results)
    return rows


def _as_edited(state: State, path: str) -> str | None:
    """Return a call's input in a few words if people changed it before they approved it, else None."""
    for prompt in state.prompts.values():
        if prompt.path == path and prompt.tool and prompt.editors:
            if not prompt.approved:
                return None
            values = prompt.values
            return brief_input("", {name: value for name, value in values.items() if value not in (None, "")})
    return None


def changed_rows(before: State, after: State, events: Sequence[Event]) -> list[PutOutbox]:
    """Return the plans and the calls that a step has changed, or ended with their agent or session."""
    plans = _plans_over(before, after) if after.phase != "ended" else []
    return plans + _calls_changed(before, after, events)


# --- plans -------------------------------------------------------------------------------------------------


def _plan_row(state: State, turn: str, steps: Steps, *, over: bool = False) -> PutOutbox:
    """The plan of an agent: one entry until its answer, which each call replaces. The next question has its own."""
    agent = _agent(state, turn)
    first = agent.plan["turn"] if agent is not None and agent.plan else turn
    payload: dict[str, Json] = {"plan": [list(step) for step in steps], "over": over}
    return entry_row(state, f"{SPEECH}:{state.session_id}:{first}:plan", turn, payload)


def _stated(before: State, path: str, events: Sequence[Event]) -> Steps:
    """The steps that a call states which has its result, requested in this step or before."""
    for event in events:
        if event.call is not None and event.path == path:
            return plan_steps(event.call.name, event.call.input)
    agent = _agent(before, path)
    call = agent.calls.get(path) if agent is not None else None
    return () if call is None else plan_steps(call.name, call.input)


def _agent(state: State, path: str) -> AgentRun | None:
    """The agent in progress of a model call, or of a call of a tool."""
    owner = queries.agent_of(state, path)
    return None if owner is None else state.containers[owner].agent


def _plans_over(before: State, after: State | None) -> list[PutOutbox]:
    """Plans with a step at which an agent was at work when it gave its answer, or when it was over; without `after` all are."""
    rows = []
    for path, container in sorted(before.containers.items()):
        plan = container.agent.plan if container.agent is not None else None
        now = None if after is None else after.containers.get(path)
        if plan is None or (now is not None and now.agent and now.agent.plan):
            continue
        steps = plan_steps(PLAN, plan["input"])
        if any(status == "in_progress" for _, status in steps):
            rows.append(_plan_row(before, plan["turn"], steps, over=True))
    return rows


def cut_row(state: State, turn: str) -> PutOutbox:
    """A turn ended without an answer. Sending it shows nothing new: what is there already is marked."""
    payload: dict[str, Json] = {"part": 0, "ending": "cut", "last": True}
    return entry_row(state, text_key(state.session_id, turn), turn, payload)


def compacted_row(state: State, turn: str, replaced: int) -> PutOutbox:
    """The beginning of a long conversation became a summary."""
    what = "1 earlier message is" if replaced == 1 else f"{replaced:,} earlier messages are"
    note = f"🗜️ _The conversation became too long: {what} now kept as a summary._"
    key = f"{SPEECH}:{state.session_id}:{turn}:compacted"
    return entry_row(state, key, turn, {"note": note})


def dropped_row(state: State, turn: str) -> PutOutbox:
    """Thinking of a conversation was left out of what was sent; the API says so with every answer, and people read it once."""
    note = "💭 _Claude's earlier thinking in this conversation was dropped. All messages are still there._"
    key = f"{SPEECH}:{state.session_id}:{agent_of(turn)}:dropped"
    return entry_row(state, key, turn, {"note": note}, replace=False)
