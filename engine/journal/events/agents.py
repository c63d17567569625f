"""Events of conversations with models: messages, tool requests and results, and the handling of calls without an
answer."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from immutables import Map
from msgspec.structs import replace

from engine.journal.agent_runs import said_in, set_aside, spend, with_agent
from engine.journal.events.base import ALWAYS, ANY_OPEN, OUTCOMES, NodeEvent
from engine.journal.events.nodes import AttemptOver
from engine.journal.grammar import agent_around, run_at, same
from engine.journal.passes import drop_passes, finish, without
from engine.journal.queries import LISTING, OUTCOME, PLAN, TURN, agent_at, agent_of, asks_for_more, rest_id
from engine.journal.state import RETRY, AgentRun, Asked, Call, Frame, NodeRun, Owed, State, scope_of
from engine.language.codec import Json, encode
from engine.language.errors import MalformedJournal
from engine.messages.files import files_in, kept, with_files


class CallOutcome(NodeEvent):
    """The outcome of a model call, where `turn` says of which: its answer, or a summary."""

    if TYPE_CHECKING:
        turn: str | None
        content: list[dict[str, Json]]
        usage: dict[str, int] | None = None
        cost: str | None = None
        model: str | None = None

    @property
    def stop_reason(self) -> str | None:
        """Why the model stopped."""
        return None

    @property
    def answer(self) -> list[dict[str, Json]]:
        """The blocks that the model said to people."""
        return []

    @property
    def note(self) -> str | None:
        """Return a note on how the call ended, or None for a whole answer."""
        return None

    @property
    def sure(self) -> bool:
        """True if the cost is known."""
        return True


class AgentOpened(NodeEvent, tag="agent:opened", phases=OUTCOMES):
    """The part of a request that stays the same for its conversation, recorded when the model call `turn` was answered.

    `body` is the request without its messages, once per conversation: every later call sends it unchanged, even if a
    release, a docstring or a server has changed since. `files` are the files that the call read, in their order in the
    conversation: the `digest` under which the bytes are kept, and the `block` in which they are sent. With `drop`, the
    API leaves out thinking bound to another beginning from now on, because the conversation is older than this event,
    or the API refused it once. `listed` are its tools described by MCP servers. Without a `turn` it records a person's
    decision: the tools of a server are offered as they are described now.
    """

    turn: str | None = None
    body: dict[str, Json] | None = None
    files: list[dict[str, Json]] | None = None
    drop: bool | None = None
    listed: list[str] | None = None

    def fold(self, state: State) -> State:
        """Record the call's body, once, and the files that had no digest before."""
        path = self.at
        agent = agent_at(state, path)
        same(self.node_id, state.nodes[path].node_id, "agent")
        if self.turn is None:
            # People let a server's tools be offered as they are now.
            offered = (
                prompt.listing
                for prompt in state.prompts.values()
                if (prompt.kind, prompt.path) == (LISTING, path)
                and (prompt.answer or {}).get("value") == "offer"
            )
            tools = (self.body or {}).get("tools") or []
            if not any(all(tool in tools for tool in listing["tools"]) for listing in offered if listing):
                raise MalformedJournal(f"nobody accepted the new version of the tools of {path}")
            more = len(encode(self.body)) if agent.context else 0
            return with_agent(
                state, path, replace(agent, body=self.body, drop=True, context=agent.context + more)
            )
        _answers(state, path, self.turn)
        if self.body is not None and agent.body is not None:
            raise MalformedJournal(f"the conversation of {path} was opened before")
        if self.body is None and agent.body is None:
            raise MalformedJournal(f"the conversation of {path} has no beginning")
        messages = agent.messages if self.files is None else _kept(agent.messages, self.files)
        body = agent.body if self.body is None else self.body
        drop = agent.drop or bool(self.drop)
        return with_agent(state, path, replace(agent, body=body, drop=drop, messages=messages))

    def owes(self, before: State) -> tuple[Owed, ...]:
        """The outcome of the call that it tells of."""
        return () if self.turn is None else (Owed(("agent:message", "agent:compacted"), self.path),)


class AgentMessage(CallOutcome, tag="agent:message", phases=ALWAYS, audit="content"):
    """A message of an agent's conversation. `content` are blocks of the Messages API, those of the model verbatim.

    The model's (`source: model`) is the outcome of the model call `turn`: with its usage and cost (dollars), its stop
    reason, whether it was `interrupted` by a pause, and whether it is the `final` one. Others become part of the next
    call: the flow's prompt (`prompt`), a person's message (`person`, `key` is the inbox key that carried it;
    `overheard` if the text is data and not an instruction), a fault of the last answer (`engine`). `price` holds the
    rates of the cost, `context` the number of tokens of the conversation with its answer if that is not the sum of
    `usage`, `container` the provider's container that ran the model's code, `dropped` the number of earlier thinking
    blocks that the API left out, by reason.
    """

    role: Literal["user", "assistant"]
    source: Literal["prompt", "person", "engine", "model"]
    content: list[dict[str, Json]]
    turn: str | None = None
    actor: dict[str, Json] | None = None
    key: str | None = None
    usage: dict[str, int] | None = None
    cost: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    interrupted: bool | None = None
    final: bool | None = None
    price: dict[str, Json] | None = None
    context: int | None = None
    overheard: bool | None = None
    container: dict[str, Json] | None = None
    dropped: dict[str, int] | None = None

    def fold(self, state: State) -> State:
        path = self.at
        agent = agent_at(state, path)
        same(self.node_id, state.nodes[path].node_id, "agent")
        same(self.role, "assistant" if self.source == "model" else "user", "role")
        if self.source == "model":
            _answers(state, path, self.turn)
            _says_no_more_than(self, "turn")
            return _answered(state, path, self, self.turn or "")
        told = ("actor", "key") if self.source == "person" else ()
        if self.overheard and self.source != "person":
            raise MalformedJournal("only messages of people can be overheard")
        _says_no_more_than(self, *told)
        if self.source == "person" and self.key in agent.heard:
            raise MalformedJournal(f"the message {self.key} was already received")
        if self.source != "person":
            _follows_an_answer(state, agent, path, self)
        agent = replace(
            agent,
            pending=(*agent.pending, *self.content),
            heard=(*agent.heard, self.key) if self.key and not self.overheard else agent.heard,
            final=agent.final and bool(self.overheard),
            corrections=agent.corrections + (self.source == "engine"),
        )
        state = with_agent(state, path, agent)
        if self.overheard:
            return replace(state, seen=state.seen.set(self.key or "", None))
        if self.source == "person":
            who = str((self.actor or {}).get("id"))
            state = with_agent(state, path, replace(agent, spoke=agent.spoke.set(who, self.timestamp)))
        return replace(state, timers=without(state.timers, rest_id(state, path)))

    def owes(self, before: State) -> tuple[Owed, ...]:
        """Return the tool calls of an answer, or what follows an unusable one that is not the last."""
        uses = sum(block.get("type") == "tool_use" for block in self.content) if self.source == "model" else 0
        container = before.containers[self.path or ""]
        heard = container.agent is not None and container.agent.pending
        settled = self.final or self.interrupted or heard or container.error is not None
        if self.source == "model" and not (uses or settled):
            return (Owed(("agent:outcome", "agent:message", "node:failing", "node:error"), self.path),)
        return tuple(Owed(("agent:toolRequested",), f"{self.turn}/tool[{number}]") for number in range(uses))

    @property
    def answer(self) -> list[dict[str, Json]]:
        """The blocks that the model said to people."""
        return self.content if self.source == "model" else []

    @property
    def note(self) -> str | None:
        """Return a note on how the call ended, or None for a whole answer."""
        return "interrupted" if self.interrupted else None

    @property
    def sure(self) -> bool:
        """True if the cost is known: an interrupted answer lacks its last count."""
        return not self.interrupted

    @property
    def audited(self) -> bool:
        """True if a person said it."""
        return self.source == "person"


class AgentToolRequested(NodeEvent, tag="agent:toolRequested", phases=OUTCOMES, audit="input"):
    """The model requests a tool, as the `index`-th call of its message. `tool` is the tool's place in the agent's list,
    or None for an unknown tool."""

    tool_use_id: str
    name: str
    input: Json = None
    tool: int | None = None

    @property
    def call(self) -> Call:
        """The call that the model asks for."""
        return Call(self.tool_use_id, self.name, self.input, self.tool)

    def fold(self, state: State) -> State:
        """Record a call that the answer owes, and that repeats its block."""
        path = self.at
        if not state.owed:
            raise MalformedJournal(f"no answer of the model calls {path}")
        scope = scope_of(path)
        owner = agent_around(state, scope)
        agent = agent_at(state, owner)
        same(self.node_id, state.nodes[owner].node_id, "agent")
        blocks = [
            block
            for block in agent.messages[len(agent.messages) - 1]["content"]
            if block["type"] == "tool_use"
        ]
        block = blocks[len(agent.order)]
        same((self.tool_use_id, self.name, self.input), (block["id"], block["name"], block["input"]), "call")
        if self.tool_use_id in agent.order:
            raise MalformedJournal(f"the tool call {self.tool_use_id} was already requested")
        agent = replace(agent, calls=agent.calls.set(path, self.call), order=(*agent.order, self.tool_use_id))
        state = with_agent(state, owner, agent)
        if scope in state.frames:
            return state
        frame = Frame(agent.lists[1], owner, agent.spent.turns)
        return replace(state, frames=state.frames.set(scope, frame))

    def columns(self, known: Mapping[str, Any]) -> dict[str, Any]:
        return {"tool": self.name}


class AgentToolResult(AttemptOver, tag="agent:toolResult", phases=ALWAYS, audit="content"):
    """The result of a tool call for the model: its outcome, or the reason why there is none. A call that ran never runs
    again."""

    tool_use_id: str
    content: list[dict[str, Json]]
    is_error: bool | None = None
    error: dict[str, Json] | None = None

    @property
    def failed(self) -> bool:
        """True if it gave no usable result."""
        return bool(self.is_error)

    @property
    def done(self) -> bool:
        """See `Event.done`."""
        return not self.is_error

    def fold(self, state: State) -> State:
        path = self.at
        owner = agent_around(state, path)
        agent = agent_at(state, owner)
        call = agent.calls.get(path)
        if call is None:
            raise MalformedJournal(f"{path} is not a tool call that waits for its result")
        same((self.node_id, self.tool_use_id), (state.nodes[owner].node_id, call.tool_use_id), "call")
        if call.prompt_id in state.open_prompts:
            raise MalformedJournal(f"the question {call.prompt_id} about it is not decided")
        _has_result(state, path, self)
        block: dict[str, Json] = {
            "type": "tool_result",
            "tool_use_id": self.tool_use_id,
            "content": self.content,
            **({"is_error": True} if self.is_error else {}),
        }
        plan = agent.plan
        if call.name == PLAN and not self.is_error:
            plan = {"turn": plan["turn"] if plan else scope_of(path), "input": call.input}
        agent = replace(
            agent,
            calls=agent.calls.delete(path),
            results=agent.results.set(self.tool_use_id, block),
            plan=plan,
        )
        state = with_agent(state, owner, agent)
        run = state.nodes.get(path)
        if run is None or path not in state.active:
            return state
        if path in state.containers:
            state = drop_passes(state, path)
        run = replace(run, input=None, saved=None, error=self.error, ended_at=self.timestamp)
        return finish(state, path, replace(run, status="failed" if self.error else "completed"))


class AgentCompacted(CallOutcome, tag="agent:compacted", phases=OUTCOMES):
    """The conversation came near the model's limit: from now on `content` replaces all of it (`replaced` messages). It
    is the outcome of the model call `turn`. `block` is the summary if the API made and signed it: it precedes
    `content`, as the model's, and is sent back unchanged.
    """

    turn: str
    content: list[dict[str, Json]]
    replaced: int
    usage: dict[str, int] | None = None
    cost: str | None = None
    model: str | None = None
    price: dict[str, Json] | None = None
    block: dict[str, Json] | None = None

    @property
    def note(self) -> str | None:
        """Return a note on how the call ended."""
        return "compacted the conversation"

    def fold(self, state: State) -> State:
        path = self.at
        agent = agent_at(state, path)
        same(self.node_id, state.nodes[path].node_id, "agent")
        _answers(state, path, self.turn)
        same((state.nodes[self.turn].input or {}).get("purpose"), "compact", "purpose")
        same(self.replaced, len(agent.messages), "number of messages")
        run = state.nodes[self.turn]
        state = _settle(state, self.turn, run, self)
        agent = agent_at(state, path)
        usage = self.usage or {}
        # The conversation from here on: a summary that the API has signed is the model's, and the first that is
        # sent.
        said: list[dict[str, Json]] = [{"role": "user", "content": self.content}]
        if self.block is not None:
            said.insert(0, {"role": "assistant", "content": [self.block]})
        agent = replace(
            agent,
            messages=Map(dict(enumerate(said))),
            plain=min(agent.plain, 1),
            usage={name: agent.usage.get(name, 0) + number for name, number in usage.items()},
            context=0,
            counted=0,
            compacts=None,
        )
        return _turn_ends(with_agent(state, path, agent), self.turn, run, self.timestamp)


class AgentOutcome(NodeEvent, tag="agent:outcome", phases=ALWAYS, audit="content"):
    """The handling of a model call without a usable answer. `ask`: people are asked, about this `error`. All others
    continue, automatically or by decision of `actor`: the call is repeated (`again`), with more `room` (`max_tokens`
    from now on) or by another `model`; the conversation is compacted first (`compact`, with `brief` shortened results);
    a text that was cut is continued (`go_on`), a paused one sent back (`resend`); `said` adds text for the model
    (`content`). `text` is the answer so far. A call repeated by a person may have another `model`, other `max_tokens`
    and no thinking (`plain`), now and later. `stop`: a person gave up the agent."""

    how: Literal["ask", "again", "room", "model", "compact", "go_on", "resend", "said", "stop"]
    error: dict[str, Json] | None = None
    actor: dict[str, Json] | None = None
    model: str | None = None
    max_tokens: int | None = None
    plain: bool | None = None
    brief: bool | None = None
    content: list[dict[str, Json]] | None = None
    text: str | None = None
    key: str | None = None

    def fold(self, state: State) -> State:
        path = self.at
        run = run_at(state, path, "started")
        same(self.node_id, run.node_id, "agent")
        agent = agent_at(state, path)
        if agent.calls or agent.final:
            raise MalformedJournal(
                f"{path} cannot continue: tool calls are unfinished, or it has given its final answer"
            )
        needs, may = _NEEDS.get(self.how, ()), _MAY.get(self.how, ())
        if self.actor is not None and self.how != "stop":
            may = (*may, *_CHANGES)
        for name in ("error", "brief", "content", "text", "key", *_CHANGES):
            told = getattr(self, name) is not None
            if (told and name not in (*needs, *may)) or (not told and name in needs):
                raise MalformedJournal(f"{self.how} says {', '.join(needs) or 'nothing'}: {name}")
        if _more_for_summary(self) and self.text is not None:
            raise MalformedJournal("more room for a summary does not continue a cut answer")
        if agent.stuck is not None and not state.owed:
            raise MalformedJournal(f"{path} is already stuck, and nobody decided how it continues")
        due = state.owed or _failing_turns(state, path) or _spoken_over(state, path, agent, self)
        if self.how != "ask" and not due:
            raise MalformedJournal(f"{path} needs no correction")
        if self.how == "ask":
            return with_agent(state, path, replace(agent, stuck=self.error))
        if self.actor is None:
            alone = {**agent.alone, self.how: agent.alone.get(self.how, 0) + 1}
            agent = replace(agent, alone=alone)
        else:
            prompt = state.prompts.get(run.prompt_id or "")
            if prompt is None or prompt.kind != OUTCOME or prompt.open:
                raise MalformedJournal("nobody decided how it continues")
            if self.how != "stop":
                _as_told(prompt, run.input.get("retry_with") or {}, self)
            agent = replace(agent, alone={}, corrections=0)
        state = with_agent(state, path, _gone_on(agent, self))
        if self.how == "stop":
            container = state.containers[path]
            container = replace(container, error=container.error or self.error)
            return replace(state, containers=state.containers.set(path, container))
        # The model call that failed begins again, where one did.
        for turn in _failing_turns(state, path):
            run = replace(state.nodes[turn], status="interrupted", reason=RETRY)
            state = replace(state, nodes=state.nodes.set(turn, run))
        return state

    @property
    def audited(self) -> bool:
        """True if a person decided how it continues."""
        return self.actor is not None

    def columns(self, known: Mapping[str, Any]) -> dict[str, Any]:
        return {"decision": self.how}


class AgentBudget(NodeEvent, tag="agent:budget", phases=ANY_OPEN, audit="caps"):
    """A person let an agent continue at a cap: these caps apply from now on. `scope` names the cap: that of the agent
    (`node`), of the flow, or of the day, which then no longer applies to this agent."""

    scope: Literal["node", "flow", "day"]
    caps: dict[str, Json]
    actor: dict[str, Json]

    def fold(self, state: State) -> State:
        """Apply the caps that the question proposed."""
        path = self.at
        run = run_at(state, path, "started")
        same(self.node_id, run.node_id, "agent")
        prompt = state.prompts.get(run.prompt_id or "")
        if prompt is None or prompt.kind != "budget" or (prompt.answer or {}).get("value") != "raise":
            raise MalformedJournal(f"nobody let {path} continue past its cap")
        same((self.scope, self.caps), (prompt.scope, prompt.caps), "cap")
        caps = state.caps if self.scope == "flow" else agent_at(state, path).caps
        if all(caps.get(name) == cap for name, cap in self.caps.items()) and not _raised_by_another(
            state, prompt
        ):
            raise MalformedJournal(f"{path} was already allowed to continue past its cap")
        if self.scope == "flow":
            return replace(state, caps={**state.caps, **self.caps})
        agent = agent_at(state, path)
        return with_agent(state, path, replace(agent, caps={**agent.caps, **self.caps}))


def _settle(state: State, path: str, run: NodeRun, event: CallOutcome) -> State:
    amount, tokens = set_aside(run)
    used = sum((event.usage or {}).values())
    # An unknown cost keeps its reservation, as it may have been charged.
    cut = not event.sure
    return spend(
        state,
        path,
        turns=1,
        tokens=used,
        cost="0" if cut else event.cost or "0",
        unsure=amount if cut else "0",
        reserved=f"-{amount}",
        reserved_tokens=-tokens,
        unsure_tokens=max(0, tokens - used) if cut else 0,
    )


def _kept(messages: Map[int, dict[str, Json]], read: list[dict[str, Json]]) -> Map[int, dict[str, Json]]:
    """The messages with the digests of the files in them that were only named."""
    left = iter(read)

    def known(block: Json) -> Json:
        return block if kept(block) else {**block, **next(left)}

    wanted = sum(
        not kept(block) for number in range(len(messages)) for block in files_in(messages[number]["content"])
    )
    same(len(read), wanted, "number of files")
    for number in range(len(messages)):
        content = messages[number]["content"]
        if any(not kept(block) for block in files_in(content)):
            messages = messages.set(number, {**messages[number], "content": with_files(content, known)})
    return messages


def _answered(state: State, path: str, event: AgentMessage, turn: str) -> State:
    run = state.nodes[turn]
    state = _settle(state, turn, run, event)
    agent = agent_at(state, path)
    usage = event.usage or {}
    messages = agent.messages
    if event.content:
        messages = said_in(messages, "assistant", list(event.content))
    counted = (agent.context, agent.counted)
    compacts = (run.input or {}).get("purpose") == "compact"
    if not event.interrupted and not compacts:
        counted = (event.context or sum(usage.values()), len(messages))
    # More room would not give the summary that is missing.
    no_summary = compacts and not event.interrupted and event.stop_reason != "max_tokens"
    said = [block["text"] for block in event.content if block["type"] == "text"]
    calls = any(block["type"] == "tool_use" for block in event.content)
    cut = agent.cut and "".join([agent.cut, *said])
    agent = replace(
        agent,
        messages=messages,
        usage={name: agent.usage.get(name, 0) + number for name, number in usage.items()},
        context=counted[0],
        counted=counted[1],
        text="".join([agent.cut, *said]),
        plan=None if event.final else agent.plan,
        cut=cut if event.interrupted or (run.input or {}).get("cut") else "",
        container=event.container or agent.container,
        final=bool(event.final),
        alone={} if calls else agent.alone,
        unsigned=agent.unsigned or no_summary,
    )
    return _turn_ends(with_agent(state, path, agent), turn, run, event.timestamp)


def _says_no_more_than(event: AgentMessage, *names: str) -> None:
    for name in ("turn", "actor", "key"):
        if (getattr(event, name) is not None) != (name in names):
            raise MalformedJournal(
                f"a message of the {event.source} has {' and '.join(names) or 'none of these'}: {name}"
            )
    if event.source != "model" and (event.interrupted or event.final):
        raise MalformedJournal("only answers of the model can be interrupted or final")


def _follows_an_answer(state: State, agent: AgentRun, path: str, event: AgentMessage) -> None:
    """Check that a message may come here: the flow's prompt begins the conversation, an interrupted agent is told to go
    on, and one with an unusable answer is told the fault."""
    if state.owed and event.source == "prompt" and not agent.messages:
        return
    last = agent.messages[len(agent.messages) - 1] if agent.messages else {"role": "user"}
    whole = agent.counted == len(agent.messages)
    # An answer of thoughts alone is nowhere: then the last message is not the model's.
    again = state.nodes[path].attempt > 1
    cut = last["role"] == "assistant" and (again or not whole)
    fits = whole and agent.messages if event.source == "engine" else cut and not state.owed
    if asks_for_more(agent.pending) or agent.order or not fits:
        raise MalformedJournal(f"the {event.source} owes {path} no message now")


def _answers(state: State, path: str, turn: str | None) -> None:
    """The outcome of a model call that is in progress."""
    run = run_at(state, turn or "", "started")
    if run.type != TURN or agent_around(state, turn or "") != path:
        raise MalformedJournal(f"{turn} is not a model call of {path}")


def _turn_ends(state: State, path: str, run: NodeRun, at: str) -> State:
    return finish(state, path, replace(run, status="completed", input=None, saved=None, ended_at=at))


def _has_result(state: State, path: str, event: AgentToolResult) -> None:
    run = state.nodes.get(path)
    if event.error is not None and not event.is_error:
        raise MalformedJournal(f"{path} failed, so its result must be an error")
    if run is None:
        if event.error is not None or not (event.is_error or _answered_in_place(state, path)):
            raise MalformedJournal(f"{path} has a result but was never started")
        return
    if run.prompt_id in state.open_prompts:
        raise MalformedJournal(f"{path} has a result without an answer")
    if event.error is None and (run.status == "retrying" or path in state.containers):
        raise MalformedJournal(f"{path} has not finished")


def _answered_in_place(state: State, path: str) -> bool:
    call = agent_at(state, agent_of(state, path) or "").calls.get(path)
    prompt = state.prompts.get((call.prompt_id if call is not None else None) or "")
    return prompt is not None and (prompt.answer or {}).get("value") == "answer"


def _raised_by_another(state: State, prompt: Asked) -> bool:
    """True if the flow's cap was raised by the same amount for another agent that was at it."""
    return prompt.scope == "flow" and any(
        other is not prompt
        and other.kind == "budget"
        and (other.answer or {}).get("value") == "raise"
        and (other.scope, other.caps) == ("flow", prompt.caps)
        for other in state.prompts.values()
    )


_NEEDS = {
    "ask": ("error",),
    "stop": ("error",),
    "room": ("max_tokens",),
    "model": ("model",),
    "go_on": ("content", "text"),
    "said": ("content",),
}


_MAY = {
    "again": ("text",),
    "room": ("text",),
    "model": ("error", "text"),
    "compact": ("brief", "max_tokens", "text"),
    "resend": ("text",),
    "go_on": ("key",),
    "said": ("key",),
}
"""Allowed fields of an outcome beside its author, by `how`."""


_CHANGES = ("model", "max_tokens", "plain")
"""Changes to a call that a person repeated."""


def _spoken_over(state: State, path: str, agent: AgentRun, event: AgentOutcome) -> bool:
    """True if an answer has just ended during which people spoke, and nothing followed: it owes nothing, since their
    messages may be all that follows."""
    attempt = state.nodes[path].attempt
    scope = path if attempt == 1 else f"{path}#{attempt}"
    last = state.nodes.get(f"{scope}/turn[{len(state.frames[scope].nodes)}]")
    texts = [block["text"] for block in agent.pending if block["type"] == "text"]
    spoken = bool(texts) and all(text.startswith(("<message", "<overheard")) for text in texts)
    ended = last is not None and (last.status, last.ended_at) == ("completed", event.timestamp)
    return event.actor is None and spoken and ended


_ABOUT = {
    "resend": ("pause_turn",),
    "compact": ("summary", "context_too_long", "model_context_window_exceeded"),
}
"""Scopes of questions that can be answered in this way, if not all can."""


def _as_told(prompt: Asked, retry_with: dict[str, Json], event: AgentOutcome) -> None:
    """Check that *Other model* uses the chosen model, *Try again* the flow's settings, and words change nothing."""
    answer = prompt.answer or {}
    value = answer.get("value")
    same(event.how == "model", value == "model", "model")
    if prompt.scope not in _ABOUT.get(event.how, (prompt.scope,)):
        raise MalformedJournal(f"{event.how} is not an answer to a question about {prompt.scope}")
    told = {"model": answer.get("words")} if value == "model" else retry_with if value == RETRY else {}
    changes = (told.get("model"), told.get("max_tokens"), True if told.get("thinking") else None)
    same((event.model, event.max_tokens, event.plain), changes, "changes")


def _more_for_summary(event: AgentOutcome) -> bool:
    return event.how == "compact" and event.max_tokens is not None and event.actor is None


def _gone_on(agent: AgentRun, event: AgentOutcome) -> AgentRun:
    """Return the conversation as it continues: text for the model becomes part of its next call."""
    compacts = ("brief" if event.brief else "all") if event.how == "compact" else agent.compacts
    return replace(
        agent,
        stuck=None,
        model=event.model or agent.model,
        max_tokens=event.max_tokens or agent.max_tokens,
        compacts=compacts,
        resends=event.how == "resend",
        plain=len(agent.messages) if event.plain else agent.plain,
        cut=agent.cut if _more_for_summary(event) else event.text or "",
        pending=(*agent.pending, *(event.content or ())),
        heard=(*agent.heard, event.key) if event.key else agent.heard,
    )


def _failing_turns(state: State, owner: str) -> list[str]:
    found = [path for path in state.active if state.nodes[path].type == TURN]
    return [
        path for path in found if state.nodes[path].status == "failing" and agent_of(state, path) == owner
    ]
