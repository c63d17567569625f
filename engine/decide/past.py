"""A past under a text: the events with which a session continues from its earlier work. Pure.

It has two uses. A *fork* is a past in a new session, under its own text or another one. A *migration* is a past in the
same session under another text. `Past.under` has the rules about the text for both.

**In a new session** the journal begins with a copy of the parent's up to the chosen event, under the fork's own ids. As
it is a copy and not a reference, the fork can be read, exported and reaped without its parent, and every reader of a
journal works on it unchanged. Its chain of MACs begins at the parent's journal row of that event, which proves its
origin.

* Completed nodes stay completed, with their outputs and times, and do not run again.
* Open questions are open again but not shown yet, so that their clocks start again.
* The fork cannot know the outcome of a node that was running. The node is recorded as interrupted, and `on_crash` decides as
  after a crash: it runs again, or people are asked.
* Waits keep their time. A hold is lifted, since a fork is made to continue. An unreachable thread concerns only the parent.
* Usage of agents counts on, against caps as people raised them. A permission to pass the cap of the day does not carry over.
* A lock is not inherited: the fork requests it again, and starts nothing before it has it.
* The working folder begins as a copy of the parent's current one; paths into the parent's folder name the copy. A model's
  conversation stays byte for byte, unless it has such a path: then the API is asked to drop the thinking bound to it.
* The person who forks is the requester: `exclude_requester` is about them. A fork belongs to no thread, unless it is the next
  try of a session that failed: then it continues in that session's thread, and the node that failed begins again.

**Under another text** completed nodes keep their outcomes, even if the text no longer has them. Everything in progress
must be in the text, in the same list and with the same type. In a list, the session continues after the last node with an
outcome: nodes that the text adds before that place do not run any more. Lists with edges must have the same nodes and
edges, and a called flow that is in progress the inputs that it was called with. An approval covers the same node as
before.

A node that was not launched because its type is not available here is in progress in name only: it begins as the new
text's node in its place, or is left out if there is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from msgspec.structs import replace

from engine.decide import prompt_timers
from engine.decide.limits import pending
from engine.flow import Flow, coerce_inputs
from engine.flow.model import NodeList
from engine.journal import events as ev
from engine.journal.events import Event, decode_event
from engine.journal.fold import derive_state, evolve
from engine.journal.queries import TURN, is_rejection
from engine.journal.state import LEFT, Frame, NodeRun, State, in_finally, scope_of
from engine.language import codec
from engine.language.actors import Actor
from engine.language.codec import Json, encode
from engine.language.errors import InvalidAnswer, InvalidInputs, SessionEnded, SessionError, SessionRunning
from engine.nodes.types.registry import mode_of


class MigrationRefused(SessionError):
    """The session cannot continue with the new text; says each reason."""

    code = "migration_refused"


class TriedAgain(SessionError):
    """The session is tried again already."""

    code = "tried_again"


@dataclass
class Past:
    """The state to continue from, and the events that were written to get there. For a fork `seq` is the parent's event that it
    follows, and `copied` how many of the events are the parent's."""

    state: State
    now: str
    events: list[Event] = field(default_factory=list)
    seq: int = 0
    copied: int = 0

    def add(self, event: Event) -> None:
        """Write an event that was made elsewhere."""
        self.events.append(event)
        self.state = evolve(self.state, event)

    def write(self, kind: Callable[..., Event], **fields: Any) -> None:
        """Write a new event."""
        self.add(kind(seq=self.state.seq + 1, timestamp=self.now, **fields))

    def under(self, old: Flow, new: Flow, actor: Actor) -> Plan:
        """Continue with `new` instead of `old`; writes nothing if they are the same.

        Raises `SessionEnded`, `SessionRunning`, `MigrationRefused`.
        """
        state = self.state
        if state.ended or state.phase == "finalizing":
            raise SessionEnded(f"Session {state.session_id} is {state.stands}; there is nothing left to run.")
        if state.phase not in ("waiting", "held") and not (self.copied and state.phase == "running"):
            remedy = "fork at another event" if self.copied else "pause it first (sayso sessions pause)"
            raise SessionRunning(f"Session {state.session_id} is running; {remedy}.")
        made = plan(old, new, state)
        if made.problems:
            raise MigrationRefused(
                f"Session {state.session_id} cannot continue with this version: {'; '.join(made.problems)}."
            )
        if new.digest == old.digest:
            return made
        places = {"frames": made.frames, "nodes": made.nodes}
        self.write(ev.FlowMigrated, flow_digest=new.digest, actor=actor.record(), input=made.inputs, **places)
        return made


# --- in a new session ----------------------------------------------------------------------------------------------


def seam(journal: Sequence[Event], at: int) -> int:
    """Return the event after which a fork at event `at` begins: `at`, or the end of the step that contains it.

    Raises `SessionError` for an event that does not exist, `SessionEnded` where nothing is left to run.
    """
    if not 1 <= at <= len(journal):
        raise SessionError(f"There is no event {at} to fork at; the journal has events 1 to {len(journal)}.")
    state = derive_state(journal[:at])
    while not state.ended and state.phase != "finalizing":
        if _between_steps(state, journal[state.seq - 1]):
            return state.seq
        if state.seq == len(journal):
            break
        state = evolve(state, journal[state.seq])
    raise SessionEnded(f"Nothing runs after event {at}. Fork at an earlier event.")


def _between_steps(state: State, last: Event) -> bool:
    """True if a step may have ended with this event: no event is owed, and everything that waited for this one has
    taken it."""
    begun = state.inputs is not None or state.open_prompts or pending(state)
    in_between = "prompt:answered", "prompt:expired", "timer:fired", "session:start"
    return bool(begun) and not state.owed and last.type not in in_between


class Failed(NamedTuple):
    """Place at which a failed session can be tried again: after event `seq`, at the node `path`."""

    seq: int
    path: str


def failed_at(journal: Sequence[Event]) -> Failed:
    """Return the place at which a failed session is tried again: right before the node that failed it.

    Raises `SessionError`, with a sentence for the person who asked, if it has not failed, if no node failed it, or if
    something completed after the failure, which would run a second time.
    """
    end = next((event for event in reversed(journal) if isinstance(event, ev.Closure)), None)
    state = derive_state(journal)
    if end is None or end.status != "failed":
        raise SessionError(f"Session {state.session_id} has not failed, so there is nothing to retry.")
    if is_rejection(state.error):
        raise SessionError(
            "People's decision ended it, and decisions are not retried. Start a new run to ask again."
        )
    done = _last_done(journal)
    failures = [event for event in journal if isinstance(event, ev.Failure) and not in_finally(event.at)]
    broken = [event for event in failures if event.spreads]
    first = next((event for event in broken if event.seq > done), None)
    if first is None:
        why = (
            f"{broken[0].at} failed, and other steps completed after that" if broken else "no step failed it"
        )
        raise SessionError(f"It cannot be retried where it stopped: {why}. Start a new run.")
    begun = [event for event in journal[: first.seq] if isinstance(event, ev.Start)]
    under = [
        one for one in begun if one.at == first.at or one.at.startswith((f"{first.at}/", f"{first.at}["))
    ]
    turns = [one for one in under if one.node_type == TURN]
    # An agent failed by its last model call, which is repeated.
    if turns and under[0].node_type in ("agent", TURN):
        if done > turns[-1].seq:
            raise SessionError(
                f"It cannot be retried where it stopped: tools called by {turns[-1].at} have run. Start a "
                "new run."
            )
        return Failed(seam(journal, turns[-1].seq), turns[-1].at)
    if len(under) > 1 and under[-1].at != first.at:
        raise SessionError(
            f"It cannot be retried where it stopped: {first.at} failed together with its steps. Start a new "
            "run."
        )
    # It may have failed before that, and its `on_failure` ran.
    at = min(one.seq for one in failures if one.at == first.at and one.seq > under[-1].seq)
    before, one = 0, State()
    for event in journal[: at - 1]:
        one = evolve(one, event)
        before = one.seq if _between_steps(one, event) else before
    return Failed(before, first.at)


def _last_done(journal: Sequence[Event]) -> int:
    """Return the number of the last event of work that must not be repeated, apart from `finally`; 0 if there is none."""
    return max((event.seq for event in journal if event.done and not in_finally(event.path or "")), default=0)


def latest(journal: Sequence[Event]) -> int:
    """Return the event at which a fork begins by default: the last one, or in a failed session the last model call, which
    is repeated, unless work was done since that must not be repeated."""
    failed = [event for event in journal if isinstance(event, ev.Closure) and event.status == "failed"]
    calls = [
        event.seq
        for event in journal
        if isinstance(event, ev.Start) and event.node_type == TURN and not in_finally(event.path or "")
    ]
    return calls[-1] if failed and calls and calls[-1] > _last_done(journal) else len(journal)


def fork(
    journal: Sequence[Event],
    at: int,
    session_id: str,
    actor: Actor,
    now: str,
    entropy: str,
    folders: tuple[str, str] | None = None,
    again: str | None = None,
) -> Past:
    """Return the beginning of a fork of this journal; `folders` are the parent's working folder and its copy. With
    `again` it is the session's next try, in its thread: the failed node of that path begins once more without a
    question. Raises the errors of `seam`."""
    seq = seam(journal, at)
    copier = _Copier(derive_state(journal[:seq]), session_id, actor, entropy, again is not None)
    past = Past(State(), now, seq=seq)
    # A conversation that names the folder: the fork's names the copy, and the API drops thinking bound to the other words.
    said = (event for event in journal[:seq] if event.type.startswith("agent:"))
    drop = folders is not None and any(_moved(event, *folders) is not event for event in said)
    for event in journal[:seq]:
        copied = copier.copy(event, past.state.seq + 1)
        if drop and isinstance(copied, ev.AgentOpened):
            copied = replace(copied, drop=True)
        if copied is not None:
            past.add(copied if folders is None else _moved(copied, *folders))
    past.copied = len(past.events)
    if past.state.phase == "held":
        past.write(ev.FlowResumed, injected_messages=0)
    elif past.state.phase == "unreachable":
        past.write(ev.SessionReachable)
    for path in sorted(past.state.active):
        run = past.state.nodes[path]
        if run.status == "started" and mode_of(run.type) in ("run", "delivery"):
            reason = LEFT if path == again else "cut"
            past.write(ev.NodeInterrupted, path=path, node_id=run.node_id, reason=reason)
    return past


def _moved(event: Event, old: str, new: str) -> Event:
    """The event with paths in one folder as paths in another one, wherever they are in it."""
    was, becomes = (encode(folder)[1:-1] for folder in (old, new))
    data = event.to_bytes()
    if was not in data:
        return event
    # Match whole names only; a path ends at a slash, or at a character that cannot continue it.
    return decode_event(re.sub(re.escape(was) + rb"(?![\w.-])", lambda _: becomes, data))


def answered(state: State, past: State, answers: Mapping[str, Json]) -> dict[str, Json]:
    """Answers by the id of the prompt that each is for; a key is a path, a node's id or an id in the parent.

    Raises `InvalidAnswer` for a key that names no open prompt, or several.
    """
    asked = [state.prompts[prompt_id] for prompt_id in state.open_prompts]
    there: dict[str, list[str]] = {}
    for prompt_id in past.open_prompts:
        there.setdefault(past.prompts[prompt_id].path, []).append(prompt_id)
    found: dict[str, Json] = {}
    for key, answer in answers.items():
        named = [
            prompt
            for prompt in asked
            if key in (prompt.path, prompt.node_id, prompt.prompt_id) or key in there.get(prompt.path, ())
        ]
        if len(named) != 1:
            paths = ", ".join(prompt.path for prompt in asked) or "none"
            raise InvalidAnswer(
                f"{key!r} names {len(named) or 'no'} open question{'s' if len(named) != 1 else ''}; "
                f"open at that event: {paths}."
            )
        found[named[0].prompt_id] = answer
    return found


@dataclass
class _Copier:
    """Gives events the ids of the fork. Ids are derived, so that each old one has one new one."""

    _past: State
    _session_id: str
    _actor: Actor
    _entropy: str
    _keeps_thread: bool

    def copy(self, event: Event, seq: int) -> Event | None:
        """Return the event under that number, or None if it does not apply to the fork: the message of an open
        question, the parent's lock, a permission to pass the daily cap."""
        match event:
            case ev.SessionStarted():
                return replace(
                    event,
                    session_id=self._session_id,
                    parent_session_id=event.session_id,
                    actor=self._actor.record(),
                    thread=event.thread if self._keeps_thread else None,
                )
            case ev.LockAcquired():
                return None
            case ev.PromptShown() if event.prompt_id in self._past.open_prompts:
                return None
            case ev.TimerSet() | ev.TimerFired() if self._is_clock_of_an_open_prompt(event.timer_id):
                return None
            case ev.PromptReminded() | ev.PromptEscalated() if event.prompt_id in self._past.open_prompts:
                return None
            case ev.PromptVoted() if event.prompt_id in self._past.open_prompts:
                # The votes were for another session, and the person who forks it may be one of the voters.
                return None
            case ev.AgentBudget() if event.scope == "day":
                # The daily cap belongs to the installation: permission to pass it is for one agent only.
                return None
        return replace(event, seq=seq, **self._ids(event))

    def _ids(self, event: Event) -> dict[str, Any]:
        new: dict[str, Any] = {}
        prompt_id = getattr(event, "prompt_id", None)
        if prompt_id is not None:
            new["prompt_id"] = self._prompt(prompt_id)
        timer_id = getattr(event, "timer_id", None)
        if timer_id is not None:
            # Timers are named after their session, and those of a prompt after that as well.
            rest = timer_id.removeprefix(f"{self._past.session_id}:")
            name, colon, word = rest.partition(":")
            if name in self._past.prompts:
                rest = f"{self._prompt(name)}{colon}{word}"
            new["timer_id"] = f"{self._session_id}:{rest}"
        if isinstance(event, ev.PromptRequested):
            nonce = self._random(f"nonce {event.prompt_id}")
            new["prompt"] = {**event.prompt, **self._covers(event.prompt_id, event.prompt), "nonce": nonce}
        elif isinstance(event, ev.PromptEdited):
            new |= self._covers(event.prompt_id, {"covers": event.covers})
            new["nonce"] = self._random(f"nonce {event.prompt_id} {event.seq}")
        return new

    def _is_clock_of_an_open_prompt(self, timer_id: str) -> bool:
        """True if this timer starts again when its question is shown in the fork."""
        name, _, word = timer_id.removeprefix(f"{self._past.session_id}:").partition(":")
        return name in self._past.open_prompts and word.rstrip("0123456789") in prompt_timers.PURPOSES

    def _covers(self, prompt_id: str, told: Mapping[str, Json]) -> dict[str, Json]:
        """Return the coverage of an approval that is still open in the fork; a given approval counts only in its own
        session."""
        covers = told.get("covers")
        if covers is None or prompt_id not in self._past.open_prompts:
            return {}
        return {"covers": {**covers, "sessionId": self._session_id}}

    def _prompt(self, prompt_id: str) -> str:
        return "prompt-" + self._random(prompt_id)

    def _random(self, salt: str) -> str:
        material = f"{self._entropy}|{self._session_id}|{salt}"
        return blake2b(material.encode(), digest_size=6).hexdigest()


# --- under another text --------------------------------------------------------------------------------------------


@dataclass
class Plan:
    """Effects of a migration. Each of the `problems` is a sentence that stands against it.

    `waits` are the waiting paths, with the new text's node at that place. `gone` are nodes with an outcome that the new
    text no longer has, `passed_over` new nodes before the place that the session has reached.
    """

    problems: list[str] = field(default_factory=list)
    waits: dict[str, str] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    inputs: dict[str, Json] | None = None
    frames: dict[str, int] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        """The plan for a machine."""
        return {
            "possible": not self.problems,
            "problems": self.problems,
            "waits": self.waits,
            "gone": self.gone,
            "passedOver": self.passed_over,
        }


def plan(old: Flow, new: Flow, state: State) -> Plan:
    """Return the effects of continuing this session with `new` instead of `old`."""
    made = Plan()
    if new.digest != old.digest:
        made.problems += new.absent.values()
    _plan_inputs(made, old, new, state)
    for scope in sorted(state.frames):
        frame = state.frames[scope]
        owner = state.containers.get(frame.owner or "")
        if owner is not None and owner.kind == "agent":  # a part of a conversation is no node of the file
            continue
        there = new.lists.get(frame.list_id)
        if there is None:
            made.problems.append(f"{scope or 'the flow'}: the new version has no such list of nodes")
            continue
        _plan_frame(made, scope, frame, state, (old.lists[frame.list_id], there))
    # Called flows in progress have their inputs already, so the new text must take the same ones.
    for path, container in sorted(state.containers.items()):
        if container.kind != "flow" or path not in state.nodes:
            continue
        nodes = new.lists.get(state.frames[scope_of(path)].list_id)
        node = None if nodes is None else nodes.by_id.get(state.nodes[path].node_id)
        called = None if node is None or node.calls is None else new.flows.get(node.calls, new)
        lacking = (
            [] if called is None else [name for name in called.inputs if name not in (container.inputs or {})]
        )
        if lacking:
            names = ", ".join(f"`{name}`" for name in lacking)
            made.problems.append(f"{path}: is running, and the flow that it calls has new inputs: {names}")
    _plan_agents(made, old, new, state)
    return made


def _plan_inputs(made: Plan, old: Flow, new: Flow, state: State) -> None:
    asked = [state.prompts[key] for key in state.open_prompts if state.prompts[key].kind == "input"]
    for prompt in asked:
        name = prompt.input_name
        here = new.inputs.get(name)
        if here is None or here.type != old.inputs[name].type:
            made.problems.append(
                f"{prompt.path}: the new version has no such input of type {old.inputs[name].type}"
            )
        made.waits[prompt.path] = "input"
    if state.inputs is None:
        return
    try:
        values, missing = kept_inputs(new, state.inputs)
    except InvalidInputs as error:
        made.problems.append(f"inputs: {error}")
        return
    made.problems += [
        f"inputs: the new version needs `{name}`, which this session does not have" for name in missing
    ]
    made.inputs = codec.copy(values)


def kept_inputs(new: Flow, given: Mapping[str, Json]) -> tuple[dict[str, Json], list[str]]:
    """Return the inputs of a session under another text, and the names of those that are missing then. One that was left empty stays
    so, unless it is required now. Raises `InvalidInputs`."""
    empty = {name for name, value in given.items() if value is None and name in new.inputs}
    named = {name: value for name, value in given.items() if name in new.inputs and name not in empty}
    values, missing = coerce_inputs(new, named)
    return values | {name: None for name in empty if not new.inputs[name].required}, missing


def _plan_frame(made: Plan, scope: str, frame: Frame, state: State, lists: tuple[NodeList, NodeList]) -> None:
    before, after = lists
    places = {node.id: node.index for node in after.nodes}
    done: list[int] = []
    active: list[int] = []
    for node_id, path in sorted(frame.nodes.items()):
        run = state.nodes[path]
        if path in state.active:
            here = after.by_id.get(node_id)
            stays = here is not None and here.type == run.type
            if here is None:
                made.problems.append(f"{path}: is running, and the new version does not have it")
            elif not stays:
                made.problems.append(
                    f"{path}: is running as {run.type}, and the new version has {here.type} there"
                )
            else:
                active.append(here.index)
                made.nodes[path] = here.index
            made.problems += _approves_less(path, run, state, after)
            if path not in state.containers:
                made.waits[path] = run.type if stays else "missing"
        elif node_id in places:
            made.problems += _approves_less(path, run, state, after)
            done.append(places[node_id])
            made.nodes[path] = places[node_id]
        else:
            made.gone.append(path)
    if before.is_graph or after.is_graph:
        if before.is_graph != after.is_graph or [n.id for n in before.nodes] != [n.id for n in after.nodes]:
            where = scope or "the flow"
            made.problems.append(f"{where}: a list with edges must have the same nodes in the new version")
        elif _edges(before) != _edges(after):
            where = scope or "the flow"
            made.problems.append(
                f"{where}: its nodes are running, and the new version has other edges between them"
            )
        return
    position = min(active) if active else max(done, default=-1) + 1
    late = [after.nodes[place].id for place in done if active and place > position]
    if late:
        made.problems.append(f"{scope or 'the flow'}: {', '.join(late)} is done and would run again")
    made.frames[scope] = position
    made.passed_over += [
        f"{scope}/{node.id}" if scope else node.id
        for node in after.nodes[:position]
        if node.id not in frame.nodes
    ]


def _edges(nodes: NodeList) -> list[tuple[str, str, str, int | None, str]]:
    """Return the edges in a comparable form; conditions may differ, as long as they have not been evaluated."""
    return sorted((edge.from_, edge.to, edge.type, edge.max_iterations, edge.gate) for edge in nodes.edges)


def _plan_agents(made: Plan, old: Flow, new: Flow, state: State) -> None:
    """Check agents in progress: a conversation keeps its tools, since the model was told about them and its calls refer
    to them by position."""
    for path, container in sorted(state.containers.items()):
        if container.kind != "agent" or path not in state.nodes:
            continue
        list_id = state.frames[scope_of(path)].list_id
        before = old.lists[list_id].by_id[container.node_id].agent
        there = new.lists[list_id].by_id.get(container.node_id) if list_id in new.lists else None
        # A node that is no longer an agent is reported elsewhere.
        if before is None or there is None or there.agent is None:
            continue
        tools = [
            [(tool.name, tool.kind, tool.node.type) for tool in plan.tools] for plan in (before, there.agent)
        ]
        if tools[0] != tools[1]:
            made.problems.append(f"{path}: is running, and the agent has other tools in the new version")
        made.waits.setdefault(path, "agent")


def _approves_less(path: str, run: NodeRun, state: State, after: NodeList) -> list[str]:
    """Check that an approval in progress covers the same node in the new text: what people were shown is what may run."""
    prompt = state.prompts.get(run.prompt_id or "")
    covers = None if prompt is None else prompt.covers
    here = after.by_id.get(run.node_id)
    if not covers or here is None or here.covers == covers["nodeId"] or covers["path"] in state.nodes:
        return []
    return [f"{path}: approves what `{covers['nodeId']}` does, which is not so in the new version"]


def lines(made: Plan) -> Iterator[str]:
    """The plan in words."""
    for path, kind in made.waits.items():
        yield f"waits at {path}: " + (
            "not in the new version" if kind == "missing" else f"{kind}, also in the new version"
        )
    for path in made.gone:
        yield f"{path} is done and not in the new version; its outcome is kept"
    for path in made.passed_over:
        yield f"{path} is new and comes before the session's position; it will not run"
    for problem in made.problems:
        yield f"cannot: {problem}"
