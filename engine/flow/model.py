"""A checked flow: frozen values, ready to run.

Its nodes are in lists: the flow's own, `finally`, and those inside containers and `on_failure`. `Flow.lists` has all of
them by id, including those of called flows, so that a running session needs no search:

| id | list |
|---|---|
| `""` | the flow's `nodes` |
| `rollout` | the `body` of the node `rollout` |
| `fan:left`, `pick:eu`, `pick:` | a branch, a case, the `default` of a `switch` |
| `apply!` | the `on_failure` of the node `apply` |
| `diagnose:turn`, `diagnose:tools` | the model calls of an agent (one node represents all), its tools |
| `finally` | the nodes that run at the end |
| `@other/`, `@other/rollout` | the lists of the called flow `other`, under that prefix |

A session pins its flow: `Flow.body()` is the text with its file's name, and those of the flows that it calls, `digest`
the SHA-256 of those bytes, and `flow_from_body` reads it back into an equal flow, even if the files have changed.
"""

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Literal, Self, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from engine.flow import reachability
from engine.flow.node import ROOT, Gate, Node
from engine.language.codec import Json, canonical
from engine.language.expressions import Compiled
from engine.nodes.types.registry import END, code_key

InputType: TypeAlias = Literal["string", "number", "integer", "boolean", "array", "object"]
DEFAULT_DEADLINE = 30 * 86400.0
"""Default time in seconds for which a question stays open."""

BODY_VERSION = 1
"""Version of the format of `Flow.body()`."""


FINALLY = "finally"
"""The id of the list that a flow ends with."""


class Input(Struct, frozen=True, omit_defaults=True):
    """An input of a flow. `items` is the type of an array's items."""

    name: str
    type: InputType = "string"
    description: str | None = None
    default: Json = None
    required: bool = True
    choices: tuple[Json, ...] | None = None
    items: InputType | None = None


TriggerKind: TypeAlias = Literal["mention", "message", "reaction", "shortcut", "schedule", "webhook"]


class Trigger(Struct, frozen=True, omit_defaults=True):
    """Trigger of a flow. `pattern` is the value of the kind in the file: words, an emoji, a name in a list, a cron
    expression, the name of a webhook; `inputs` are those that words fill, in order, `values` those of the file.

    `dedupe` and `missed` are in seconds.
    """

    kind: TriggerKind
    pattern: str
    inputs: tuple[str, ...] = ()
    values: Mapping[str, Json] = field(default_factory=dict)
    channels: tuple[str, ...] | None = None
    from_bots: bool | tuple[str, ...] = False
    dedupe: float | None = None
    dedupe_by: tuple[str, ...] | None = None
    message_as: str | None = None
    link_as: str | None = None
    channel: str | None = None
    timezone: str = "UTC"
    missed: float = 3600.0
    verify: str = "github"
    secret: str | None = None
    body_as: str | None = None
    events: tuple[str, ...] | None = None


class Limits(Struct, frozen=True, omit_defaults=True):
    """Limits of a run. `deadline` is in seconds; `max_cost` (dollars), `max_tokens_total` and `max_turns` apply to all
    agents of a run together, and at them people are asked."""

    deadline: float = DEFAULT_DEADLINE
    max_open_prompts: int = 50
    max_node_runs: int = 10_000
    max_depth: int = 16
    concurrency: int = 8
    max_cost: float | None = None
    max_tokens_total: int | None = None
    max_turns: int | None = None


class Edge(Struct, frozen=True, omit_defaults=True):
    """An edge between two nodes of one list. `gate` is that of the target; `max_iterations` is the number of times that
    a loop edge may be taken, and `on_limit` the action at that limit."""

    from_: str
    to: str
    when: Compiled | None = None
    type: Literal["forward", "loop"] = "forward"
    max_iterations: int | None = None
    gate: Gate = "all"
    on_limit: Literal["fail", "continue", "ask"] = "fail"


class NodeList(Struct, frozen=True, omit_defaults=True, dict=True):
    """A list of nodes, which is a graph when it has edges. `flow` is the name of the flow that it belongs to."""

    id: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...] = ()
    flow: str = ""

    @cached_property
    def is_graph(self) -> bool:
        """True if edges define the order, not the file."""
        return bool(self.edges)

    @cached_property
    def by_id(self) -> Mapping[str, Node]:
        """The nodes by id."""
        return {node.id: node for node in self.nodes}

    @cached_property
    def guards(self) -> Mapping[str, tuple[str, ...]]:
        """Return the ids of the approvals that cover a node, by the id of the node."""
        found: dict[str, tuple[str, ...]] = {}
        for node in self.nodes:
            if node.covers is not None:
                found[node.covers] = (*found.get(node.covers, ()), node.id)
        return found

    @cached_property
    def ends(self) -> tuple[str, ...]:
        """The ids of the nodes that end the list early."""
        return tuple(node.id for node in self.nodes if node.type == END)

    @cached_property
    def incoming(self) -> Mapping[str, tuple[Edge, ...]]:
        """The forward edges that lead to each node."""
        return self._edges_by("forward", "to")

    @cached_property
    def outgoing(self) -> Mapping[str, tuple[Edge, ...]]:
        """The forward edges that leave each node."""
        return self._edges_by("forward", "from_")

    @cached_property
    def loops(self) -> Mapping[str, tuple[Edge, ...]]:
        """The loop edges that leave each node, in the order of the file."""
        return self._edges_by("loop", "from_")

    @cached_property
    def finals(self) -> tuple[str, ...]:
        """Return the ids of a graph's final nodes, which no forward edge leaves."""
        return tuple(node.id for node in self.nodes if not self.outgoing[node.id]) if self.is_graph else ()

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Return the ids in topological order; otherwise as listed."""
        return tuple(
            self.nodes[position].id for position in reachability.topological(len(self.nodes), self._pairs)
        )

    @cached_property
    def rank(self) -> Mapping[str, int]:
        """The place of each node in `order`."""
        return {node_id: place for place, node_id in enumerate(self.order)}

    @cached_property
    def starts(self) -> tuple[str, ...]:
        """The ids of the nodes that no forward edge leads to; of a plain list, the first."""
        if not self.is_graph:
            return tuple(node.id for node in self.nodes[:1])
        return tuple(node.id for node in self.nodes if not self.incoming[node.id])

    def gate(self, node_id: str) -> Gate:
        """Return whether a node waits for `any` or `all` of its incoming edges."""
        edges = self.incoming[node_id]
        return edges[0].gate if edges else "all"

    def downstream(self, node_id: str) -> frozenset[str]:
        """The ids of all nodes that come after this one: in a graph those that edges lead to, else the rest."""
        position = self.by_id[node_id].index
        if not self.is_graph:
            return frozenset(node.id for node in self.nodes[position + 1 :])
        return frozenset(node.id for node in self.nodes if self._ancestors[node.index] >> position & 1)

    @cached_property
    def _pairs(self) -> list[reachability.Pair]:
        if not self.is_graph:
            return [(index, index + 1) for index in range(len(self.nodes) - 1)]
        ends = [(edge.from_, edge.to) for edge in self.edges if edge.type == "forward"]
        return [(self.by_id[source].index, self.by_id[target].index) for source, target in ends]

    @cached_property
    def _ancestors(self) -> list[int]:
        return reachability.ancestors(len(self.nodes), self._pairs)

    def _edges_by(
        self, kind: Literal["forward", "loop"], end: Literal["from_", "to"]
    ) -> dict[str, tuple[Edge, ...]]:
        found: dict[str, list[Edge]] = {node.id: [] for node in self.nodes}
        for edge in self.edges:
            if edge.type == kind:
                found[edge.to if end == "to" else edge.from_].append(edge)
        return {name: tuple(edges) for name, edges in found.items()}

    def under(self, prefix: str) -> Self:
        """The same list among those of a flow that calls its flow."""
        return replace(self, id=prefix + self.id, nodes=tuple(node.under(prefix) for node in self.nodes))


class Flow(Struct, frozen=True, omit_defaults=True, dict=True):
    """A flow. `file` is the name under which the text was read; `lists` has all lists of nodes by id.

    `flows` are the called flows by name, those that they call in turn included, and the flow itself when it is called
    again; each is there with its own lists only.

    `packages` are the installed packages that node types come from, by type, those of the called flows too; `absent` says of
    those types that cannot be used here why. Only a text that a session pinned has any.
    """

    name: str
    file: str
    text: str
    lists: Mapping[str, NodeList]
    description: str | None = None
    inputs: Mapping[str, Input] = field(default_factory=dict)
    triggers: tuple[Trigger, ...] = ()
    allowed_to_start: tuple[str, ...] | None = None
    channels: tuple[str, ...] | None = None
    limits: Limits = Limits()
    lock: Compiled | None = None
    on_conflict: Literal["queue", "refuse"] = "queue"
    flows: "Mapping[str, Flow]" = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes of the list that the flow begins with."""
        return self.lists[ROOT].nodes

    @property
    def finally_list(self) -> str | None:
        """The id of the list that the flow ends with."""
        return FINALLY if FINALLY in self.lists else None

    @property
    def deadline(self) -> float:
        """Default timeout of the flow's questions, in seconds."""
        return self.limits.deadline

    def body(self) -> bytes:
        """Return the bytes that a session pins: canonical JSON of version, name, file and text, of the called flows,
        and of the packages that provide node types."""
        pinned: dict[str, Json] = {
            "version": BODY_VERSION,
            "name": self.name,
            "file": self.file,
            "text": self.text,
        }
        called = {
            name: {"file": flow.file, "text": flow.text}
            for name, flow in self.flows.items()
            if name != self.name
        }
        if called:
            pinned["flows"] = called
        if self.packages:
            pinned["types"] = dict(self.packages)
        return canonical(pinned)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the body, in hexadecimal."""
        return hashlib.sha256(self.body()).hexdigest()

    @cached_property
    def own_lists(self) -> Mapping[str, NodeList]:
        """The lists of the flow's own file."""
        return {list_id: nodes for list_id, nodes in self.lists.items() if not list_id.startswith("@")}

    @cached_property
    def by_id(self) -> Mapping[str, Node]:
        """Return all nodes of the flow's own file by id, nested ones too."""
        return {node.id: node for nodes in self.own_lists.values() for node in nodes.nodes}

    @cached_property
    def calls(self) -> frozenset[str]:
        """Return the names of the flows that nodes of this file call."""
        return frozenset(node.calls for node in self.by_id.values() if node.calls is not None)

    @property
    def secrets(self) -> frozenset[str]:
        """The names of all secrets that the flow and those that it calls refer to."""
        return frozenset().union(*(node.secrets for nodes in self.lists.values() for node in nodes.nodes))

    @property
    def mcp_servers(self) -> Mapping[str, int]:
        """Return the MCP servers whose tools its agents use, each with the line of a node that uses it."""
        return {
            str(tool.node.config["server"]): node.line
            for each in self.lists.values()
            for node in each.nodes
            for tool in (node.agent.tools if node.agent is not None else ())
            if tool.kind == "mcp"
        }

    def alone(self) -> Self:
        """Return the flow as its own file defines it, without called flows."""
        return replace(self, lists=self.own_lists, flows={})

    @cached_property
    def runs_code(self) -> bool:
        """True if a node of the flow runs a module or a program of its own."""
        return any(code_key(node.type, node.config) for each in self.lists.values() for node in each.nodes)

    @cached_property
    def allows_wide(self) -> bool:
        """True if people can allow calls of an agent beyond one run."""
        nodes = (node for each in self.lists.values() for node in each.nodes)
        return any(node.agent is not None and node.agent.grants == "flow" for node in nodes)

    def with_flows(self, flows: "Mapping[str, Flow]") -> Self:
        """The flow together with all flows that are called, each as `alone` gives it."""
        called = {
            f"@{name}/{list_id}": nodes.under(f"@{name}/")
            for name, flow in flows.items()
            for list_id, nodes in flow.lists.items()
        }
        packages, absent = dict(self.packages), dict(self.absent)
        for flow in flows.values():
            packages |= flow.packages
            absent |= flow.absent
        lists = {**self.own_lists, **called}
        return replace(self, lists=lists, flows=dict(flows), packages=packages, absent=absent)
