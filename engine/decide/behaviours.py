"""What the core asks of agents: conversations with a model as part of a flow. Pure.

The core names no module of `engine.decide.agents`. Most processes meet only flows without an agent, so what it asks here is
loaded by the first flow that has one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any, Protocol, TypeVar, cast

from engine.decide.commands import Revoke, Steer
from engine.flow import Flow, Node
from engine.journal.state import Asked, State
from engine.language.codec import Json

Step_contra = TypeVar("Step_contra", contravariant=True)


class Conversations(Protocol[Step_contra]):
    """The behaviour of agents in a step (`engine.decide.step.Step`). `path` is that of the agent, of a model call, or of a
    tool call."""

    def frozen(self, step: Step_contra, path: str, node: Node, config: dict[str, Json]) -> dict[str, Json]:
        """What `container:started` says of an agent."""

    def open_conversation(self, step: Step_contra, path: str, node: Node, config: dict[str, Json]) -> None:
        """The first message; nothing where the agent goes on with its own conversation."""

    def startable(self, flow: Flow, state: State, scope: str) -> Iterator[tuple[str, str]]:
        """What of an agent may begin in the pass `scope`: its child's id, with the mode of what it is."""

    def begin_turn(self, step: Step_contra, scope: str, key: str) -> None:
        """Begin a model call, or begin one again; at a cap ask people."""

    def answered(self, step: Step_contra, path: str, output: Json) -> None:
        """A model call has ended with an answer, or was stopped in the middle of one."""

    def ended(self, step: Step_contra, path: str) -> bool:
        """Whether the agent has given its last answer and nothing of it runs any more."""

    def may_go_on(self, step: Step_contra, path: str) -> bool:
        """Whether an agent that fails keeps its conversation for another try."""

    def hear(self, step: Step_contra, said: Steer) -> None:
        """A message of who may steer is for the agent that it names, else for the one that began last."""

    def overhear(self, step: Step_contra, said: Steer) -> bool:
        """A message of somebody else is data for the agents that listen to their thread; whether there are any."""

    def rests(self, step: Step_contra, path: str) -> bool:
        """Whether an agent that has answered listens for what follows."""

    def end_rest(self, step: Step_contra, path: str) -> None:
        """It listens no more."""

    def cap_decided(self, step: Step_contra, prompt: Asked, value: Json) -> None:
        """A person let the agent go on at a cap, or did not."""

    def begin_call(self, step: Step_contra, path: str) -> tuple[Node, Json] | None:
        """Begin a tool call: its node with its configuration where it runs now. Else it is asked about, or refused."""

    def call_decided(self, step: Step_contra, prompt: Asked) -> None:
        """People decided a tool call. Approved ones begin by themselves."""

    def call_read(self, step: Step_contra, prompt: Asked) -> dict[str, Json]:
        """The input of a call that people decide, as it would run now."""

    def grant_checked(self, step: Step_contra, prompt: Asked, asked: Json) -> dict[str, Json]:
        """The grant that goes with the approval of a call, as it is voted on. Raises `InvalidAnswer`."""

    def grant_revoked(self, step: Step_contra, command: Revoke) -> None:
        """A person takes a grant back."""

    def call_covered(self, step: Step_contra, prompt: Asked, values: dict[str, Json]) -> dict[str, Json]:
        """What would run if this call were approved with these values. Raises `SaysoError` where it could not run."""

    def call_done(self, step: Step_contra, path: str, output: Json) -> None:
        """A tool call has its output: what the model is told of it."""

    def call_told(self, step: Step_contra, prompt: Asked) -> None:
        """A person said that a tool call that was interrupted is done, and perhaps what came out of it."""

    def call_failed(self, step: Step_contra, path: str, error: dict[str, Json]) -> None:
        """A tool call failed for good: that is for the model to know, and fails nothing else."""

    def progress(self, step: Step_contra, path: str) -> None:
        """What follows for an agent that is under way: results of calls that were flows, and what people are asked."""

    def turn_failed(self, step: Step_contra, path: str) -> None:
        """A model call failed, and no try is left."""

    def listing_decided(self, step: Step_contra, prompt: Asked) -> None:
        """People decided whether tools are offered in the words of now."""

    def listings_idle(self, step: Step_contra) -> None:
        """Ask no more about the tools of agents that have ended."""

    def outcome_decided(self, step: Step_contra, prompt: Asked, key: str | None) -> None:
        """People said, or nobody did in time, how an agent goes on without an answer of the model."""

    def request(self, flow: Flow, state: State, path: str) -> dict[str, Json]:
        """What the runner of the model call at `path` gets."""


@cache
def conversations() -> Conversations[Any]:
    """The behaviour of agents, loaded by the first who asks."""
    return cast(Conversations[Any], import_module("engine.decide.agents.conversation"))
