"""From a document that has passed every check to the frozen flow, agents and all. Called flows come in later
(`engine.flow.subflows`).

An agent becomes its plan and its lists: one node for all its model calls, one for each tool. Both lists stand
in `Flow.lists` like any other, so that the nodes are found where those of a body would be. Their ids have a
dot, which no id of a file has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from engine.flow.agent_document import TOOLS, RuleDoc, ToolDoc
from engine.flow.builtin_tools import (
    BUILTIN,
    RESOURCES,
    UNDECIDED,
    Entry,
    agents,
    described,
    entry_of,
    named_rules,
    tool_names,
)
from engine.flow.document import EdgeDoc, FlowDoc, NodeDoc, RetryDoc
from engine.flow.input_document import InputDoc
from engine.flow.model import FINALLY, Edge, Flow, Input, Limits, NodeList
from engine.flow.node import ROOT, AgentPlan, Gate, Memory, Node, Retry, Rule, ToolPlan
from engine.flow.triggers import trigger_of
from engine.language.codec import Json
from engine.language.diagnostics import Path
from engine.language.expressions import Compiled, compile_condition, compile_config, compile_value
from engine.language.yaml import Located
from engine.nodes.types.agent import MemoryConfig, contexts
from engine.nodes.types.prompts import CLOCKS
from engine.nodes.types.registry import TYPES, absent_spec, node_types, package_of
from engine.nodes.types.spec import InvalidConfig, NodeSpec, OnCrash


def build(document: FlowDoc, located: Located, pinned: Mapping[str, str], absent: Mapping[str, str]) -> Flow:
    """The flow of a document that has passed every check. `pinned` are the packages that a session's text names for its
    node types, `absent` those of the types that cannot be used here, with why."""
    builder = _Builder(
        BuildContext(document.tools, _kept(located.data), document.flow, located, frozenset(absent))
    )
    builder.add(ROOT, document.nodes, ("nodes",), document.edges)
    if document.finally_ is not None:
        builder.add(FINALLY, document.finally_, ("finally",), None)
    # The packages that the types of nodes and tools come from.
    kinds = {node.type for nodes in builder.lists.values() for node in nodes.nodes}
    kinds |= {tool.type for tool in document.tools.values()}
    found = {kind: pinned[kind] if kind in absent else package_of(kind) for kind in sorted(kinds)}
    packages = {kind: package for kind, package in found.items() if package is not None}
    return Flow(
        name=document.flow,
        file=located.file,
        text=located.text,
        lists=builder.lists,
        description=document.description,
        inputs=_inputs_of(document.inputs),
        triggers=tuple(trigger_of(entry) for entry in document.triggers),
        allowed_to_start=None if document.allowed_to_start is None else tuple(document.allowed_to_start),
        channels=None if document.channels is None else tuple(document.channels),
        limits=Limits(**document.limits.model_dump()),
        lock=None if document.lock is None else compile_value(document.lock, exact=("",)),
        on_conflict=document.on_conflict,
        packages=packages,
        absent=absent,
    )


class _Held(NamedTuple):
    """A list that a node holds: its key and id, its path inside the node, its nodes and edges."""

    key: str
    list_id: str
    path: Path
    nodes: Sequence[NodeDoc]
    edges: Sequence[EdgeDoc] = ()


def _held(document: NodeDoc) -> Iterator[_Held]:
    """The lists that a node holds beside `on_failure`."""
    if document.body is not None:
        yield _Held("body", document.id, ("body",), document.body, document.edges or ())
    for name, nodes in (document.branches or {}).items():
        yield _Held(name, f"{document.id}:{name}", ("branches", name), nodes)
    for value, nodes in (document.cases or {}).items():
        yield _Held(value, f"{document.id}:{value}", ("cases", value), nodes)
    if document.default is not None:
        yield _Held("", f"{document.id}:", ("default",), document.default)


class _Builder:
    """Builds lists of nodes, each before those inside it, so that the flow's own list is first."""

    def __init__(self, context: BuildContext) -> None:
        self.context = context
        self.lists: dict[str, NodeList] = {}
        self._held: list[NodeList] = []

    def add(
        self, list_id: str, documents: Sequence[NodeDoc], path: Path, edges: Sequence[EdgeDoc] | None
    ) -> None:
        """Build a list and the lists inside it."""
        nodes = (self._node(list_id, document, n, (*path, n)) for n, document in enumerate(documents))
        gates: dict[str, Gate] = {edge.to: edge.gate for edge in edges or () if edge.gate is not None}
        built = (
            Edge(
                from_=edge.from_,
                to=edge.to,
                when=_condition(edge.when),
                type=edge.type,
                max_iterations=edge.max_iterations,
                gate=gates.get(edge.to, "all"),
                on_limit=edge.on_limit or "fail",
            )
            for edge in edges or ()
        )
        self.lists[list_id] = NodeList(list_id, tuple(nodes), tuple(built), self.context.flow)
        self.lists |= {held.id: held for held in self._held}
        self._held.clear()
        for index, document in enumerate(documents):
            here = (*path, index)
            for held in _held(document):
                self.add(held.list_id, held.nodes, (*here, *held.path), held.edges)
            if document.on_failure is not None:
                self.add(f"{document.id}!", document.on_failure, (*here, "on_failure"), None)

    def _node(self, list_id: str, document: NodeDoc, index: int, path: Path) -> Node:
        config = document.with_ or {}
        spec, compiled = self.context.compiled(document.type, config)
        conditions = {name: _condition(config.get(name)) for name in spec.condition_fields}
        on_crash = document.on_crash
        if isinstance(document.retry, str):
            on_crash = "again" if document.retry == "safe" else "ask"
        node = Node(
            id=document.id,
            type=document.type,
            name=document.name or document.id,
            index=index,
            config=config,
            compiled=compiled,
            condition=_condition(document.if_),
            timeout=document.timeout if document.timeout is not None else spec.timeout,
            on_crash=on_crash,
            on_error=document.on_error,
            secrets=compiled.secrets,
            settled=_settled(spec, compiled),
            line=self.context.located.spans[path][0].line,
            list_id=list_id,
            lists={held.key: held.list_id for held in _held(document)},
            retry=Retry(**RetryDoc.model_validate(document.retry).model_dump())
            if isinstance(document.retry, dict)
            else None,
            on_failure=None if document.on_failure is None else f"{document.id}!",
            as_=None if spec.item_name is None else spec.item_name(config),
            calls=config["flow"] if spec.calls else None,
            collect=compile_value(config["collect"])
            if spec.parts and config.get("collect") is not None
            else None,
            while_=conditions.get("while"),
            until_=conditions.get("until"),
        )
        if not spec.talks:
            return node
        # A call without an answer asks people, unless the file handles failures.
        on_error = document.on_error if "on_error" in document.model_fields_set else "ask"
        agent, lists = _with_agent(node, on_error, path, self.context)
        self._held += lists
        return agent


def _kept(data: Mapping[str, Any]) -> frozenset[str]:
    """Return the agents whose conversations are passed to later ones."""
    return frozenset(name for node in agents(data) for name in contexts(node["with"].get("context")))


def _condition(written: Json) -> Compiled | None:
    return None if written is None else compile_condition(written)


def _settled(spec: NodeSpec, compiled: Compiled) -> dict[str, Json] | None:
    """Return the `with` of a sayso type that has no expressions, as a node begins with it; otherwise None."""
    if not compiled.constant or spec.name not in TYPES:
        return None
    try:
        return spec.normalize(compiled.raw)
    except InvalidConfig:
        return None  # said when the node begins


# --- agents ------------------------------------------------------------------------------------------------


TURN_RETRY = Retry(
    attempts=5, backoff="exponential", delay=2.0, max_delay=300.0, jitter=0.2, until_deadline=True
)
"""Default `retry` of model calls; an outage is waited out."""

_PLAIN = ("name", "description", "input", "timeout", "on_crash")
"""Settings that every tool may have, which are not part of its plan."""


class BuildContext(Struct, frozen=True):
    """Context for building a node: the tools of the file, the agents whose conversation a later one gets, the flow's
    name, the places, and the node types that are not available here."""

    tools: Mapping[str, ToolDoc]
    kept: frozenset[str]
    flow: str
    located: Located
    absent: frozenset[str] = frozenset()

    def compiled(self, kind: str, config: Mapping[str, Json]) -> tuple[NodeSpec, Compiled]:
        """Return the spec of a node's type, and its `with` ready to evaluate."""
        if kind in self.absent:
            # The fields with secrets are unknown, so none is evaluated.
            return absent_spec(kind), compile_config(config, frozenset(config), frozenset())
        spec = node_types()[kind]
        return spec, compile_config(config, spec.secret_fields, spec.verbatim_fields, spec.markup, spec.exact)


def _with_agent(node: Node, on_error: str, path: Path, context: BuildContext) -> tuple[Node, list[NodeList]]:
    """Return the node of an agent with its plan, and its two lists; `path` is the node's place, `on_error` that of its
    calls."""
    builder = _Tools(node, path, context)
    for index, item in enumerate(node.config.get("tools") or []):
        builder.add(entry_of(item), (*path, "with", "tools", index))
    written = node.config.get("memory")
    told = MemoryConfig.model_validate(
        {"write": written or "off"} if not isinstance(written, dict) else written
    )
    memory = None if told.write == "off" else Memory(told.scope, told.keep, told.write == "approve")
    if memory is not None:
        builder.add_memory(memory)
    rules = tuple(_rules(node.config.get("approvals") or {}, builder.plans))
    if memory is not None and memory.approved:
        # Notes that are read in all channels need approvers named in the flow, whatever the condition of their rule.
        named = tuple(who for rule in rules if rule.tool == REMEMBER for who in rule.approvers or ())
        rules += (
            NOTED if memory.scope == "channel" else replace(NOTED, approvers=tuple(dict.fromkeys(named))),
        )
    plan = AgentPlan(
        tools=tuple(builder.plans),
        rules=rules,
        memory=memory,
        output=node.config.get("output"),
        context=contexts(node.config.get("context")),
        keeps=node.id in context.kept,
        grants=node.config.get("grants") or "off",
    )
    turn_list, tools_list = f"{node.id}:turn", f"{node.id}:tools"
    turn = replace(
        _node(f"{node.id}.turn", "turn", {}, node.line, context),
        name=node.name,
        list_id=turn_list,
        retry=node.retry or TURN_RETRY,
        on_crash=node.on_crash,
        on_error="ask" if on_error == "ask" else "fail",
    )
    nodes = tuple(tool.node for tool in builder.plans)
    lists = [NodeList(turn_list, (turn,), (), context.flow), NodeList(tools_list, nodes, (), context.flow)]
    return replace(node, agent=plan, retry=None, lists={"turn": turn_list, "tools": tools_list}), lists


REMEMBER: Literal["remember"] = "remember"
NOTED = Rule(
    REMEMBER,
    ("approve", "edit", "reject"),
    approvers=("channel", "requester"),
    message="This is to be remembered for later runs:",
)
"""Default rule for approving notes."""


def _node(node_id: str, kind: str, config: Mapping[str, Json], line: int, context: BuildContext) -> Node:
    spec, compiled = context.compiled(kind, config)
    return Node(
        id=node_id,
        type=kind,
        name=node_id,
        index=0,
        config=config,
        compiled=compiled,
        timeout=spec.timeout,
        secrets=compiled.secrets,
        line=line,
    )


class _Tools:
    """Collects the tools of one agent, each in its place."""

    def __init__(self, agent: Node, path: Path, context: BuildContext) -> None:
        self.agent = agent
        self.context = context
        self.plans: list[ToolPlan] = []

    def add(self, entry: Entry, path: Path) -> None:
        """The tools that an entry of the list gives: one, or as many as it names of an MCP server."""
        if entry.name in self.context.tools and entry.settings is None:
            self._add_own(entry.name, self.context.tools[entry.name])
        else:
            line = self.context.located.spans[path][0].line
            kind: Any = entry.name
            given = entry.settings or {}
            tool = TOOLS[kind]
            model: Any = tool.model_validate({key: given[key] for key in given if key not in tool.evaluated})
            settled = model.model_dump(exclude_none=True)
            settings = {key: value for key, value in settled.items() if key not in (*_PLAIN, *tool.evaluated)}
            for name in tool_names(entry):
                config = {key: given[key] for key in given if key in tool.given} | model.shared(name)
                reads = RESOURCES[config["tool"]] if "resources" in config else None
                node = self._placed(
                    name,
                    tool.node_type,
                    config,
                    line,
                    getattr(model, "timeout", None) if kind != "ask_human" else None,
                    "again" if reads else getattr(model, "on_crash", None),
                )
                if reads:
                    told, schema = reads.description, reads.input_schema
                else:
                    own = given.get("description")
                    parts = [described(kind, settings)] if kind in BUILTIN else []
                    told, schema = " ".join([*parts, own] if isinstance(own, str) else parts), None
                    if kind in BUILTIN:
                        schema = BUILTIN[kind].input_schema
                    elif kind == "python" and model.input is not None:
                        schema = schema_of(_inputs_of(model.input))
                self.plans.append(ToolPlan(name, kind, told, schema, node, settings))

    def add_memory(self, memory: Memory) -> None:
        """The tool with which it keeps notes."""
        config: dict[str, Json] = {"scope": memory.scope, "keep": memory.keep}
        node = self._placed(REMEMBER, REMEMBER, config, self.agent.line, None, None)
        told = BUILTIN[REMEMBER]
        self.plans.append(ToolPlan(REMEMBER, REMEMBER, told.description, told.input_schema, node))

    def _add_own(self, name: str, document: ToolDoc) -> None:
        line = self.context.located.spans[("tools", name)][0].line
        config = document.with_ or {}
        node = self._placed(name, document.type, config, line, document.timeout, document.on_crash)
        is_flow = node.spec.calls
        node = replace(node, calls=config["flow"] if is_flow else None)
        schema = None if is_flow else schema_of(_inputs_of(document.input or {}))
        self.plans.append(
            ToolPlan(name, "flow" if is_flow else "node", document.description or "", schema, node)
        )

    def _placed(
        self,
        name: str,
        kind: str,
        config: Mapping[str, Json],
        line: int,
        timeout: float | None,
        on_crash: OnCrash | None,
    ) -> Node:
        made = _node(f"{self.agent.id}.{name}", kind, config, line, self.context)
        return replace(
            made,
            name=name,
            index=len(self.plans),
            list_id=f"{self.agent.id}:tools",
            timeout=made.timeout if timeout is None else timeout,
            on_crash=on_crash,
        )


# --- inputs of tools ---------------------------------------------------------------------------------------


def _inputs_of(documents: Mapping[str, InputDoc]) -> dict[str, Input]:
    """Inputs by name."""
    return {name: document.as_input(name) for name, document in documents.items()}


def schema_of(inputs: Mapping[str, Input]) -> dict[str, Json]:
    """Return the JSON Schema for these inputs of a tool."""
    return {
        "type": "object",
        "properties": {name: _property(entry) for name, entry in inputs.items()},
        "required": [name for name, entry in inputs.items() if entry.required],
        "additionalProperties": False,
    }


def _property(entry: Input) -> dict[str, Json]:
    schema: dict[str, Json] = {"type": entry.type}
    if entry.description is not None:
        schema["description"] = entry.description
    choices = None if entry.choices is None else list(entry.choices)
    if entry.type == "array":
        items: dict[str, Json] = {} if entry.items is None else {"type": entry.items}
        schema["items"] = items if choices is None else {**items, "enum": choices}
    elif choices is not None:
        schema["enum"] = choices
    if entry.default is not None:
        schema["default"] = entry.default
    return schema


def with_flow_tools(flow: Flow, called: Mapping[str, Flow]) -> Flow:
    """Return the flow with the input schemas of the flows that its agents call as tools."""

    def described(node: Node) -> Node:
        if node.agent is None:
            return node
        tools = tuple(_described_tool(tool, called) for tool in node.agent.tools)
        return replace(node, agent=replace(node.agent, tools=tools))

    lists = {
        list_id: replace(nodes, nodes=tuple(map(described, nodes.nodes)))
        for list_id, nodes in flow.lists.items()
    }
    return replace(flow, lists=lists) if lists != flow.lists else flow


def _described_tool(tool: ToolPlan, called: Mapping[str, Flow]) -> ToolPlan:
    if tool.node.calls is None:
        return tool
    flow = called[tool.node.calls]
    told = tool.description or flow.description or f"Runs the flow {flow.name}."
    return replace(tool, description=told, input_schema=schema_of(flow.inputs))


# --- approvers ---------------------------------------------------------------------------------------------


def _rules(approvals: Mapping[str, Json], tools: Sequence[ToolPlan]) -> Iterator[Rule]:
    for name, written in approvals.items():
        documents = [RuleDoc.model_validate(rule) for rule in named_rules(written)]
        # Tools that only ask or inform people are never approved by default.
        others = [tool.name for tool in tools if tool.name not in approvals and tool.kind not in UNDECIDED]
        for tool in others if name == "*" else [name]:
            for document in documents:
                yield Rule(
                    tool=tool,
                    verdicts=tuple(document.verdicts),
                    when=_condition(document.when),
                    approvers=None if document.approvers is None else tuple(document.approvers),
                    required=document.required,
                    exclude_requester=document.exclude_requester,
                    require_reason=document.require_reason,
                    clocks=document.model_dump(
                        by_alias=True, include={*CLOCKS, "on_timeout"}, exclude_none=True
                    ),
                    message=document.message,
                )
