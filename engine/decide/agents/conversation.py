"""Advance an agent's conversation: the first message, model calls and their answers, messages from people. Pure.

Nothing here waits. `startable` derives from the state what may begin: the tool calls of the last answer, or the next
model call once each of them has a result. `begin_turn` checks the caps before it asks for a model call: at a cap people
are asked.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.decide.agents import budget, grants, listings, outcomes, people, tool_calls
from engine.decide.agents import memory as notes
from engine.decide.agents.model_request import (
    SUMMED,
    compacted,
    model_of,
    spoken,
    stays,
    transcript,
    unsent,
)
from engine.decide.agents.people import try_now
from engine.decide.agents.tool_results import unposed
from engine.decide.begin import launch, over_limit
from engine.decide.commands import Revoke, Steer
from engine.decide.kinds import Passes
from engine.decide.step import Step, Work, named_path, node_at
from engine.flow import Flow, Node
from engine.flow.node import plan_of
from engine.journal import events as ev
from engine.journal.queries import (
    ASKED_OR_RUN,
    LISTING,
    OUTCOME,
    TURN,
    agent_at,
    agent_of,
    asks_for_more,
    doomed,
    held_up,
    holds,
    is_outage,
)
from engine.journal.state import LEFT, AgentRun, Asked, NodeRun, State, in_finally, scope_of
from engine.language.codec import Json
from engine.messages.messages import problem_of
from engine.nodes.types.agent import PLACE

# --- the beginning ---------------------------------------------------------------------------------------------


def _place(state: State, name: str) -> list[Json]:
    """Return a placeholder for the messages of the session's channel or thread, read with the first call; empty without
    a channel."""
    thread = state.thread or {}
    if not thread.get("channel"):
        return []
    _, _, most = name.partition(":")
    place: dict[str, Json] = {"channel": thread["channel"], "thread": None, "since": state.created_at}
    if most:
        place["most"] = int(most)
    else:
        place["thread"] = str(thread["key"]).rpartition(":")[2]
    return [_read_later(name, place)]


def _read_later(name: str, place: Json) -> Json:
    """Return a file block that is read with the first model call and frozen then."""
    return {"type": "sayso_file", "path": "", "name": name, "mediaType": None, "place": place}


def _file_block(given: Json) -> Json:
    if isinstance(given, str):
        return {"type": "sayso_file", "path": given, "name": given.rpartition("/")[2], "mediaType": None}
    return {
        "type": "sayso_file",
        "path": given["path"],
        "name": given.get("name") or given["path"],
        "mediaType": given.get("type"),
    }


def _say(step: Step, path: str, source: str, content: list[Json]) -> None:
    step.emit_at(path, ev.AgentMessage, role="user", source=source, content=content)


# --- what may begin --------------------------------------------------------------------------------------------


def _number(path: str) -> int:
    return int(path.rpartition("[")[2].removesuffix("]"))


def _decided(state: State, agent: AgentRun, path: str) -> bool:
    """True if this call needs no decision by people, or has one."""
    prompt_id = agent.calls[path].prompt_id
    prompt = None if prompt_id is None else state.prompts[prompt_id]
    return prompt is None or not prompt.open


def _mode(flow: Flow, state: State, owner: str, agent: AgentRun, path: str) -> str:
    plan, call = plan_of(node_at(flow, state, owner)), agent.calls[path]
    if call.tool is None:
        return "pure"
    mode = str(plan.tools[call.tool].node.spec.mode)
    rules = (
        [] if tool_calls.asked_here(state, call) else [rule for rule in plan.rules if rule.tool == call.name]
    )
    if not rules:
        return mode
    # A rule with a condition, and grants, are looked at when the call begins: it asks, or the call runs.
    asks = plan.grants == "off" and any(rule.when is None for rule in rules)
    return "prompt" if mode != "run" or asks else ASKED_OR_RUN


# --- model calls -----------------------------------------------------------------------------------------------


def begin_turn(step: Step, scope: str, key: str) -> None:
    """Begin a model call, or begin one again; at a cap ask people."""
    owner = step.state.frames[scope].owner
    assert owner is not None
    path = f"{scope}/{key}"
    before = step.state.nodes.get(path)
    agent = agent_at(step.state, owner)
    unpriced = budget.unpriced(step, owner, agent)
    if unpriced is not None and budget.caps_cost(step, agent):
        message = f"there is no price for {unpriced}, so its cost cannot be capped: set SAYSO_PRICES"
        outcomes.stuck(step, owner, {"type": "price_unknown", "message": message})
        return
    least = budget.estimate(step, owner, agent)
    cap = budget.passed(step, owner, agent, least)
    if cap is not None:
        _at_cap(step, owner, cap)
        return
    held = holds(agent)
    waits = before is None and not unsent(agent) and not agent.resends and not held
    if waits and spoken(agent)[-1]["role"] == "assistant":
        # The answer was interrupted, and no message has arrived since.
        _say(step, owner, "prompt", [{"type": "text", "text": "Go on."}])
        agent = agent_at(step.state, owner)
    purpose = _purpose(agent, before, least.full)
    config: dict[str, Json] = {
        "purpose": purpose,
        "model": agent.model,
        "reserved": None if least.cost is None else format(least.cost, "f"),
        "tokens": least.tokens,
        # Written only when true, so that journals of older releases fold as before.
        **({"held": True} if held else {"anew": True} if agent.heard else {}),
        **({"cut": True} if agent.cut and purpose == "compact" else {}),
        **({"maxTokens": agent.max_tokens} if agent.max_tokens else {}),
        **({"exempt": True} if agent.caps.get("day") else {}),
    }
    attempt = 1 if before is None else before.attempt + 1
    step.start(path, key, TURN, 0, config, attempt)


def _at_cap(step: Step, owner: str, cap: budget.Cap) -> None:
    """Ask people whether the agent may continue; `finally` cannot ask people."""
    node = step.node(owner)
    if not in_finally(owner):
        outcomes.withdraw_outage(step, owner, "it is at a cap")
        step.ask(owner, budget.cap_prompt(node, cap))
        return
    used = f"{cap.used} of {cap.cap} are used" if cap.used else f"{cap.cap} are left"
    message = (
        f"node {node.id}: {used}, the next call may use up to {cap.next_}, and `finally` cannot ask people"
    )
    step.fail(owner, {"type": "budget", "message": message})


def _purpose(agent: AgentRun, before: NodeRun | None, full: bool) -> str:
    """Return the purpose of the next model call. A repeated call keeps its purpose, unless the conversation is too
    long."""
    if agent.compacts:
        return "compact"
    if before is not None and before.input:
        return str(before.input["purpose"])
    return "compact" if full and len(agent.messages) > 1 and not holds(agent) else "answer"


def answered(step: Step, path: str, output: Json) -> None:
    """A model call has ended with an answer, or was stopped in the middle of one."""
    owner = agent_of(step.state, path)
    assert owner is not None
    _answered(step, owner, path, output)
    if owner in step.state.containers:
        listings.noticed(step, owner, output.get("changed") or ())


def _answered(step: Step, owner: str, path: str, output: Json) -> None:
    run, content = step.state.nodes[path], list(output["content"])
    outcomes.withdraw_outage(step, owner)
    if output.get("interrupted"):
        _stopped(step, owner, path, run, output)
        return
    uses = [block for block in content if block["type"] == "tool_use"]
    if (run.input or {}).get("purpose") == "compact":
        _compact(step, owner, path, output)
        return
    ids = {block["id"] for block in uses}
    if len(ids) < len(uses) or _known_ids(agent_at(step.state, owner)) & ids:
        message = "a tool call of the answer has the id of another one"
        step.break_(path, {"type": "bad_response", "message": message})
        return
    stayed = outcomes.kept(output, agent_at(step.state, owner).structured)
    if stayed is not None:
        _record(step, owner, path, output, stayed)
        outcomes.unusable(step, owner, output, stayed, (run.input or {}).get("model"))
    elif uses:
        _record(step, owner, path, output, content)
        places = {tool.name: tool.node.index for tool in plan_of(step.node(owner)).tools}
        for number, block in enumerate(uses):
            step.emit(
                ev.AgentToolRequested,
                path=f"{path}/tool[{number}]",
                node_id=step.state.nodes[owner].node_id,
                tool_use_id=block["id"],
                name=block["name"],
                input=block["input"],
                tool=places.get(block["name"]),
            )
    else:
        # An answer without tool calls: the last one, unless somebody spoke meanwhile or its form is wrong.
        agent = agent_at(step.state, owner)
        schema = plan_of(step.node(owner)).output
        text = agent.cut + "".join(block["text"] for block in content if block["type"] == "text")
        spoke = asks_for_more(agent.pending)
        problem = None if schema is None or spoke else problem_of(schema, text)
        # Content that ends in thinking, with no text, could not be sent back.
        _record(step, owner, path, output, stays(content), final=problem is None and not spoke)
        if spoke or problem is None:
            return
        if agent.corrections:
            message = f"the answer has not the form that `output` asks for: {problem}"
            outcomes.stuck(step, owner, {"type": "output", "message": message, "details": {"text": text}})
        else:
            wrong = {"type": "text", "text": outcomes.WRONG.format(problem=problem)}
            _say(step, owner, "engine", [wrong])


def _known_ids(agent: AgentRun) -> set[str]:
    """The ids of all tool calls of the conversation."""
    said = (block for message in agent.messages.values() for block in message["content"])
    return {block["id"] for block in said if block["type"] == "tool_use"}


def _record(
    step: Step, owner: str, path: str, output: Json, content: list[Json], *, final: bool = False
) -> None:
    _opened(step, owner, path, output)
    step.emit_at(
        owner,
        ev.AgentMessage,
        **_outcome(step, owner, path, output),
        role="assistant",
        source="model",
        content=content,
        stop_reason=output.get("stopReason"),
        interrupted=True if output.get("interrupted") else None,
        context=output.get("context"),
        container=output.get("container"),
        dropped=output.get("dropped"),
        final=True if final else None,
    )


def _opened(step: Step, owner: str, path: str, output: Json) -> None:
    """Journal what the call was made of, now that it is answered."""
    told = output.get("opened")
    if told:
        step.emit_at(owner, ev.AgentOpened, turn=path, **told)


def _outcome(step: Step, owner: str, path: str, output: Json) -> dict[str, Json]:
    """Return the fields shared by all outcomes of a model call: its usage and its cost."""
    usage = {name: number for name, number in (output.get("usage") or {}).items() if number}
    return {
        "turn": path,
        "usage": usage,
        **budget.paid(step, model_of(step.state, path), output),
        "model": output.get("model"),
    }


def _stopped(step: Step, owner: str, path: str, run: NodeRun, output: Json) -> None:
    """Handle an answer that was cut off. If people wanted that, the text so far stays; if only this process ends,
    another one repeats the call."""
    goes_on = step.state.phase == "running" or (
        step.state.phase == "finalizing" and in_finally(path) and not step.state.finally_skipped
    )
    wanted = step.facts.pausing or not goes_on or doomed(step.state, path)
    if not wanted:
        step.interrupt(path, LEFT)
        return
    # Half a summary is not an answer: it was not meant for people, nor is it part of the conversation.
    summing = (run.input or {}).get("purpose") == "compact"
    _record(step, owner, path, output, [] if summing else stays(output["content"]))


def _compact(step: Step, owner: str, path: str, output: Json) -> None:
    """A summary takes the place of everything that was said, once it is whole: one that the API has signed as it came, else one
    in words."""
    block, reason = _signed(output), str(output.get("stopReason"))
    summary = "".join(block["text"] for block in output["content"] if block["type"] == "text")
    in_words = summary.strip() and reason in ("end_turn", "stop_sequence") and not output.get("signed")
    if block is not None or in_words:
        _opened(step, owner, path, output)
        agent = agent_at(step.state, owner)
        made = {"content": compacted(agent, SUMMED if block else summary), "replaced": len(agent.messages)}
        step.emit_at(owner, ev.AgentCompacted, **_outcome(step, owner, path, output), **made, block=block)
        return
    _record(step, owner, path, output, [])
    error = {"type": "summary", "message": f"the summary of the conversation cannot be used ({reason})"}
    if reason == "max_tokens":
        outcomes.more_room(step, owner, "compact", error)
    elif output.get("signed"):
        outcomes.in_words(step, owner)
    else:
        outcomes.stuck(step, owner, error)


def _signed(output: Json) -> Json:
    """Return the API's summary, or None. A summary without text or with another stop reason does not count: the model
    is then asked for one in words."""
    blocks = output["content"] if output.get("stopReason") == "compaction" else []
    return next((block for block in blocks if block["type"] == "compaction" and block.get("content")), None)


def ended(step: Step, path: str) -> bool:
    """True if the agent at `path` has given its last answer and nothing of it is still running."""
    container = step.state.containers[path]
    agent = container.agent
    assert agent is not None
    busy = any(frame.owner == path and frame.running for frame in step.state.frames.values())
    return agent.final and not agent.calls and not busy


def cap_decided(step: Step, prompt: Asked) -> None:
    """A person let the agent continue at a cap, or did not."""
    run = step.state.nodes[prompt.path]
    if (prompt.answer or {}).get("value") == "raise":
        by = prompt.actor or {}
        step.emit_at(prompt.path, ev.AgentBudget, scope=prompt.scope, caps=prompt.caps, actor=by)
        return
    message = f"node {run.node_id}: it was stopped at its cap"
    if prompt.status == "expired":
        message = f"node {run.node_id}: nobody decided in time whether it may continue past its cap"
    step.fail(prompt.path, {"type": "budget", "message": message})


def outcome_decided(step: Step, prompt: Asked) -> None:
    """Apply the decision (or its timeout) on how an agent without a usable answer continues."""
    outcomes.decided(step, prompt, prompt.answer_key)
    if is_outage(prompt):
        try_now(step, prompt.path)


# --- what the core asks ----------------------------------------------------------------------------------------


class Agent(Passes):
    """A conversation with a model. Its children are model calls and tool calls."""

    def frozen(self, step: Step, path: str, node: Node, config: dict[str, Json]) -> dict[str, Json]:
        """Its model, its caps, and whether it continues with its own conversation."""
        plan = plan_of(node)
        return {
            "agent": {
                "model": config.get("model") or step.facts.agents.default_model,
                "turnList": node.lists["turn"],
                "toolList": node.lists["tools"],
                "maxCost": None if config.get("max_cost") is None else str(config["max_cost"]),
                "maxTokensTotal": config.get("max_tokens_total"),
                "maxTurns": config.get("max_turns"),
                "structured": plan.output is not None,
                "keeps": plan.keeps,
                **({} if step.state.nodes[path].kept is None else {"goesOn": True}),
            }
        }

    def opened(self, step: Step, path: str, node: Node, config: dict[str, Json]) -> None:
        """The first message."""
        if agent_at(step.state, path).messages:
            return
        blocks: list[Json] = []
        for name in plan_of(node).context:
            earlier = named_path(step.state, path, name)
            said = step.state.conversations.get(earlier or "")
            if said:
                blocks.append({"type": "text", "text": transcript(name, said)})
            elif earlier is None and PLACE.fullmatch(name):
                blocks += _place(step.state, name)
        memory = plan_of(node).memory
        if memory is not None:
            blocks.append(_read_later("memory", notes.place(step.state, memory.scope)))
        blocks += [_file_block(given) for given in config.get("files") or ()]
        blocks.append({"type": "text", "text": unposed(config["prompt"])})
        _say(step, path, "prompt", blocks)

    def startable(self, flow: Flow, state: State, scope: str) -> Iterator[tuple[Work, str]]:
        """The tool calls of the last answer, or the next model call."""
        frame = state.frames[scope]
        owner = frame.owner
        assert owner is not None
        container = state.containers[owner]
        agent = container.agent
        assert agent is not None
        if container.error is not None or agent.stuck or held_up(state, owner) or doomed(state, owner):
            return
        if frame.list_id == agent.lists[0]:
            if not frame.running and not agent.calls and not agent.final:
                yield Work(scope, node=f"turn[{len(frame.nodes) + 1}]"), "run"
            return
        for path in sorted(agent.calls, key=_number):
            if scope_of(path) == scope and path not in state.nodes and _decided(state, agent, path):
                yield Work(scope, node=path.rpartition("/")[2]), _mode(flow, state, owner, agent, path)

    def begin(self, step: Step, item: Work) -> None:
        """Begin a model call, which checks the caps first, or a tool call, which may need an approval."""
        path = item.path if item.again else f"{item.path}/{item.node}"
        scope, key = scope_of(path), path.rpartition("/")[2]
        if item.again:
            if step.state.nodes[path].type == TURN:
                begin_turn(step, scope, key)
            else:
                super().begin(step, item)
            return
        owner = agent_of(step.state, path) or ""
        if over_limit(step, owner, step.node(owner)):
            return
        if key.startswith(TURN):
            begin_turn(step, scope, key)
        elif (begun := tool_calls.begin_call(step, path)) is not None:
            launch(step, path, *begun, node_id=key)

    def child_ended(
        self, step: Step, path: str, output: Json = None, error: dict[str, Json] | None = None
    ) -> bool:
        """The outcome of a call is for the conversation. A model call that fails for good fails the agent."""
        turn = step.state.nodes[path].type == TURN
        if error is not None:
            if not turn:
                tool_calls.failed(step, path, error)
            return not turn
        (answered if turn else tool_calls.done)(step, path, output)
        return True

    def child_failed(self, step: Step, path: str) -> None:
        """Ask people how the agent continues if a model call failed."""
        if step.state.nodes[path].type == TURN:
            outcomes.turn_failed(step, path)
        else:
            super().child_failed(step, path)

    def progress(self, step: Step, path: str) -> None:
        """Settle calls of flows, ask people, and close the agent once it is done, unless it listens for follow-ups."""
        tool_calls.settle_containers(step, path)
        outcomes.ask(step, path)
        if ended(step, path) and not people.rests(step, path):
            step.close(path)

    def keeps(self, step: Step, path: str) -> bool:
        """Its conversation."""
        container = step.state.containers.get(path)
        if container is None or container.agent is None or not container.agent.messages:
            return False
        for call_path in sorted(container.agent.calls, key=_number):
            tool_calls.cut_off(step, call_path)
        return True

    def decided(self, step: Step, prompt: Asked) -> None:
        """Apply a decision on a tool call, a cap, changed tool descriptions, a missing answer, or the outcome of a
        call."""
        _DECIDED[prompt.kind](step, prompt)

    def heard(self, step: Step, said: Steer, *, aside: bool) -> bool:
        """The agents of the session take it: instructions the one that is meant, the rest all that listen."""
        if aside:
            return people.overhear(step, said)
        people.hear(step, said)
        return True

    def covered(self, step: Step, prompt: Asked, values: dict[str, Json]) -> dict[str, Json] | None:
        """The call itself."""
        return (tool_calls.covered_after if prompt.tool else super().covered)(step, prompt, values)

    def granted(self, step: Step, prompt: Asked, always: Json) -> dict[str, Json]:
        """Calls like this one, where the agent's `grants` says so."""
        offered = prompt.tool is not None and "always" in prompt.tool
        return (tool_calls.grant_checked if offered else super().granted)(step, prompt, always)

    def revoked(self, step: Step, command: Revoke) -> None:
        """Revoke a grant; the people who could give it may do so."""
        grants.revoke(step, command)


_DECIDED = {
    "approval": tool_calls.decided,
    "interrupted": tool_calls.told,
    "budget": cap_decided,
    LISTING: listings.decided,
    OUTCOME: outcome_decided,
}

AGENT = Agent()
