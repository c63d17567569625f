"""The kind of node that is an agent: what the core asks of it, with what the room's other modules say. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from engine.decide.agents import conversation, grants, listings, outcomes, people, tool_calls
from engine.decide.begin import launch, over_limit
from engine.decide.commands import Revoke, Steer
from engine.decide.kinds import Passes
from engine.decide.step import Step, Work
from engine.flow import Flow, Node
from engine.journal.queries import LISTING, OUTCOME, TURN, agent_of
from engine.journal.state import Asked, State, scope_of
from engine.language.codec import Json


class Agent(Passes):
    """A conversation with a model. Its children are model calls and tool calls."""

    def frozen(self, step: Step, path: str, node: Node, config: dict[str, Json]) -> dict[str, Json]:
        """Its model, its caps, and whether it goes on with its own conversation."""
        return conversation.frozen(step, path, node, config)

    def opened(self, step: Step, path: str, node: Node, config: dict[str, Json]) -> None:
        """The first message."""
        conversation.open_conversation(step, path, node, config)

    def startable(self, flow: Flow, state: State, scope: str) -> Iterator[tuple[Work, str]]:
        """The tool calls of the last answer, or the next model call."""
        for key, mode in conversation.startable(flow, state, scope):
            yield Work(scope, node=key), mode

    def begin(self, step: Step, item: Work) -> None:
        """A model call looks at the caps first, a tool call at what people have to approve."""
        path = item.path if item.again else f"{item.path}/{item.node}"
        scope, key = scope_of(path), path.rpartition("/")[2]
        if item.again:
            if step.state.nodes[path].type == TURN:
                conversation.begin_turn(step, scope, key)
            else:
                super().begin(step, item)
            return
        owner = agent_of(step.state, path) or ""
        if over_limit(step, owner, step.node(owner)):
            return
        if key.startswith(TURN):
            conversation.begin_turn(step, scope, key)
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
        (conversation.answered if turn else tool_calls.done)(step, path, output)
        return True

    def child_failed(self, step: Step, path: str) -> None:
        """Of a model call people are asked how the agent goes on."""
        if step.state.nodes[path].type == TURN:
            outcomes.turn_failed(step, path)
        else:
            super().child_failed(step, path)

    def progress(self, step: Step, path: str) -> None:
        """Results of calls that were flows, what people are asked, and its end, unless it listens for what follows."""
        tool_calls.settle_containers(step, path)
        outcomes.ask(step, path)
        if conversation.ended(step, path) and not people.rests(step, path):
            step.close(path)

    def keeps(self, step: Step, path: str) -> bool:
        """Its conversation."""
        return conversation.may_go_on(step, path)

    def decided(self, step: Step, prompt: Asked) -> None:
        """A tool call, a cap, tools in other words, how it goes on without an answer, or what came out of a call."""
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
        """By whoever could give it."""
        grants.revoke(step, command)


_DECIDED = {
    "approval": tool_calls.decided,
    "interrupted": tool_calls.told,
    "budget": conversation.cap_decided,
    LISTING: listings.decided,
    OUTCOME: conversation.outcome_decided,
}

AGENT = Agent()
