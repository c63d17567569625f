"""A flow that was read and found sound: frozen values, ready to run.

A session pins its flow: `Flow.body()` is the text with its file's name, `digest` the SHA-256 of those bytes, and
`flow_from_body` reads it back into an equal flow, whatever has become of the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from engine.codec import Json, canonical
from engine.expressions import Compiled
from engine.flow.document import DEFAULT_DEADLINE, InputType
from engine.nodes.specs import NodeSpec, OnCrash, node_types

BODY_VERSION = 1
"""Version of what `Flow.body()` gives."""


@dataclass(frozen=True)
class Input:
    """An input of a flow. `items` is the type of an array's items."""

    name: str
    type: InputType = "string"
    description: str | None = None
    default: Json = None
    required: bool = True
    choices: tuple[Json, ...] | None = None
    items: InputType | None = None


@dataclass(frozen=True)
class Trigger:
    """Words after a mention that start the flow; `inputs` are those that it fills, in order."""

    mention: str
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Node:
    """One node. `config` is its `with` as written, `compiled` the same ready to evaluate, `condition` its `if`.

    `timeout` is in seconds, `on_crash` is None where the file leaves it to the type, `secrets` are the names of
    the secrets that it refers to, `line` is where it stands in the file.
    """

    id: str
    type: str
    name: str
    index: int
    config: Mapping[str, Json]
    compiled: Compiled
    condition: Compiled | None = None
    timeout: float | None = None
    on_crash: OnCrash | None = None
    on_error: Literal["fail", "continue"] = "fail"
    secrets: frozenset[str] = frozenset()
    line: int = 1

    @property
    def spec(self) -> NodeSpec:
        """What the engine knows about the node's type."""
        return node_types()[self.type]

    def crash_policy(self, evaluated: Json) -> OnCrash:
        """What an interruption of this node means, given its evaluated `with`: run it again, or ask a person."""
        if self.on_crash is not None:
            return self.on_crash
        return self.spec.on_crash(evaluated if isinstance(evaluated, dict) else {})

    @property
    def if_(self) -> Json:
        """The condition as written; None without one."""
        return None if self.condition is None else self.condition.raw


@dataclass(frozen=True)
class Flow:
    """A flow. `deadline` is in seconds; `file` is the name under which the text was read."""

    name: str
    file: str
    text: str
    nodes: tuple[Node, ...]
    description: str | None = None
    inputs: Mapping[str, Input] = field(default_factory=dict)
    triggers: tuple[Trigger, ...] = ()
    deadline: float = DEFAULT_DEADLINE

    def body(self) -> bytes:
        """What a session pins: canonical JSON of version, name, file and text."""
        return canonical({"version": BODY_VERSION, "name": self.name, "file": self.file, "text": self.text})

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the body, in hexadecimal."""
        return hashlib.sha256(self.body()).hexdigest()

    @cached_property
    def by_id(self) -> Mapping[str, Node]:
        """The nodes by id."""
        return {node.id: node for node in self.nodes}

    @property
    def secrets(self) -> frozenset[str]:
        """The names of all secrets that the flow refers to."""
        return frozenset().union(*(node.secrets for node in self.nodes))
