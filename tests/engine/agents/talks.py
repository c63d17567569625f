"""Conversations in the pure core: a scenario in which the test speaks for the model, and what is sent is always legal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import pytest

from engine.decide.agents.model_request import request
from engine.decide.commands import Answer, Due, Facts, NodeBroke, NodeDone
from engine.journal.agent_runs import with_agent
from engine.journal.events import EVENTS
from engine.journal.queries import TURN
from engine.journal.state import AgentRun, Asked, State
from engine.language.actors import Actor
from engine.language.codec import Json
from engine.messages.messages import Message, legal, text_document_block
from engine.messages.model_limits import AgentFacts
from tests.support.engine import ANA, Scenario, flow_of

HEAD = """
nodes:
  - id: helper
    type: agent
    with:
      prompt: "Why is {{ inputs.service }} down?"
"""

SERVICE = """
inputs:
  service: {type: string, default: db}
"""
PAGE = {"text": "x", "first_line": 1, "last_line": 1, "total_lines": 1, "more": False}
"""What `read_file` gives."""
DONE = {"stdout": "done", "stderr": "", "exit_code": 0, "seconds": 1.0}
"""What `shell` gives."""


class Talk(Scenario):
    """A session with one agent, whose answers the test gives."""

    facts: AgentFacts = AgentFacts()
    pausing = False

    def _facts(self) -> Facts:
        plain = super()._facts()
        return Facts(plain.now, plain.epoch, plain.entropy, plain.policy, self.facts, self.pausing)

    def _take(self, command: Any) -> None:
        super()._take(command)
        for path in self.state.launched:
            if self.state.nodes[path].type == TURN:
                messages = [Message.from_json(_sent(said)) for said in self.request(path)["messages"]]
                assert not legal(messages), legal(messages)

    def request(self, path: str | None = None) -> dict[str, Any]:
        """What is sent for a model call; without a path for the one that runs."""
        return request(self.flow, self.state, path or self.calling)

    @property
    def calling(self) -> str:
        """The path of the one model call that runs."""
        (path,) = [path for path in self.state.launched if self.state.nodes[path].type == TURN]
        return path

    @property
    def agent(self) -> AgentRun:
        """The one conversation that is in progress."""
        (found,) = [container.agent for container in self.state.containers.values() if container.agent]
        return found

    @property
    def sent(self) -> list[Json]:
        """The last message that is sent with the model call that runs."""
        return list(self.request()["messages"][-1]["content"])

    def said(self) -> str:
        """All text of that message, with what tools gave."""
        return "\n".join(_text(block) for block in self.sent)

    def model(
        self,
        text: str = "",
        *tools: tuple[str, dict[str, Json]],
        stop: str | None = None,
        interrupted: bool = False,
        usage: dict[str, int] | None = None,
    ) -> Self:
        """The model answers: a text, and calls of tools."""
        return self.when(self.reply(text, *tools, stop=stop, interrupted=interrupted, usage=usage))

    def reply(
        self,
        text: str = "",
        *tools: tuple[str, dict[str, Json]],
        stop: str | None = None,
        interrupted: bool = False,
        usage: dict[str, int] | None = None,
    ) -> NodeDone:
        """The same as a command."""
        path = self.calling
        content: list[Json] = [{"type": "text", "text": text}] if text else []
        number = len(self.state.frames[path.rpartition("/")[0]].nodes)
        for place, (name, given) in enumerate(tools):
            use = {"type": "tool_use", "id": f"toolu_{number}_{place}", "name": name, "input": given}
            content.append(use)
        reason = None if interrupted else stop or ("tool_use" if tools else "end_turn")
        output = {
            "content": content,
            "stopReason": reason,
            "usage": usage or {"input_tokens": 100, "output_tokens": 20},
            "model": self.agent.model,
            "interrupted": interrupted,
            "requestId": None,
        }
        return NodeDone(path, self.state.nodes[path].attempt, output)

    def broke(self, kind: str = "overloaded", **details: Json) -> NodeBroke:
        """The model call that runs has failed."""
        told = {"retryable": True, "retryAfter": None, **details}
        error = {"type": kind, "message": "too much to do", "details": told}
        return NodeBroke(self.calling, self.state.nodes[self.calling].attempt, error)

    def tool(self, name: str, output: Json) -> Self:
        """The tool call of that name (`turn[1]/tool[0]`) gives this."""
        path = next(path for path in self.state.launched if path.endswith(name))
        return self.when(NodeDone(path, self.state.nodes[path].attempt, output))

    def due(self, purpose: str) -> Self:
        """The time of the timer with this purpose comes."""
        timer = next(timer for timer in self.state.timers.values() if timer.purpose == purpose)
        self.now = max(self.now, timer.due_at)
        return self.when(Due(timer.timer_id))

    def decide(self, value: str, *, prompt: Asked | None = None, **more: Any) -> Self:
        """A person decides the open question."""
        asked = prompt or self.prompt
        self._turns += 1
        fields = {"actor": ANA, "key": f"key-{self._turns}", **more}
        return self.when(Answer(asked.prompt_id, value=value, **fields))


def _sent(value: Json) -> Json:
    """A message with a document in the place of each file, as the runner sends it."""
    if isinstance(value, list):
        return [_sent(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") == "sayso_file":
        return text_document_block("what it says")
    return {name: _sent(each) for name, each in value.items()}


def _text(block: Json) -> str:
    if block["type"] == "tool_result":
        return "\n".join(_text(part) for part in block["content"])
    return str(block.get("text") or "")


def talk(with_: str = "", *, rest: str = "", head: str = SERVICE, actor: Actor = ANA) -> Talk:
    """A session that has begun, of a flow with one agent; `with_` is what it has beside its prompt, `rest` what the
    node has beside `with`, or the nodes after it."""
    lines = "".join(f"      {line}\n" for line in with_.strip("\n").splitlines())
    scenario = Talk(flow_of(head + HEAD.strip("\n").replace("\n\n", "\n") + "\n" + lines + rest))
    return scenario.started(actor)


def folds_otherwise(
    patch: pytest.MonkeyPatch, kind: str, change: Callable[[AgentRun, AgentRun], AgentRun]
) -> None:
    """A seeded fault: the fold of events of this type makes something else of a conversation, from what it was and what it
    should be."""
    real = EVENTS[kind].fold

    def folded(event: Any, state: State) -> State:
        after = real(event, state)
        was, now = state.containers[event.path].agent, after.containers[event.path].agent
        assert was is not None
        assert now is not None
        return with_agent(after, event.path, change(was, now))

    patch.setattr(EVENTS[kind], "fold", folded)
