"""From a document that has passed every check to the frozen flow. Called flows come in later (`engine.flow.subflows`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from engine.flow.build_agents import BuildContext, inputs_of, with_agent
from engine.flow.document import EdgeDoc, FlowDoc, NodeDoc, RetryDoc
from engine.flow.model import FINALLY, Edge, Edition, Flow, Limits, NodeList
from engine.flow.node import ROOT, Gate, Node, Retry
from engine.flow.raw_tools import agents
from engine.flow.triggers import trigger_of
from engine.language.codec import Json
from engine.language.diagnostics import Path
from engine.language.expressions import Compiled, compile_condition, compile_value
from engine.language.yaml import Located
from engine.nodes.types.registry import package_of
from engine.nodes.types.spec import OnCrash


def build(
    document: FlowDoc,
    located: Located,
    pinned: Mapping[str, str],
    absent: Mapping[str, str],
    edition: Edition,
) -> Flow:
    """The flow of a document that has passed every check. `pinned` are the packages that a session's text names for its
    node types, `absent` those of the types that cannot be used here, with why; `edition` is that of the text."""
    builder = _Builder(
        BuildContext(document.tools, _kept(located.data), document.flow, located, frozenset(absent))
    )
    builder.add(ROOT, document.nodes, ("nodes",), document.edges)
    if document.finally_ is not None:
        builder.add(FINALLY, document.finally_, ("finally",), None)
    return Flow(
        name=document.flow,
        file=located.file,
        text=located.text,
        lists=builder.lists,
        description=document.description,
        inputs=inputs_of(document.inputs),
        triggers=tuple(trigger_of(entry) for entry in document.triggers),
        allowed_to_start=None if document.allowed_to_start is None else tuple(document.allowed_to_start),
        channels=None if document.channels is None else tuple(document.channels),
        limits=Limits(**document.limits.model_dump()),
        lock=None if document.lock is None else compile_value(document.lock),
        on_conflict=document.on_conflict,
        packages=_packages(builder.lists, document, pinned, absent),
        absent=absent,
        edition=edition,
    )


def _packages(
    lists: Mapping[str, NodeList], document: FlowDoc, pinned: Mapping[str, str], absent: Mapping[str, str]
) -> dict[str, str]:
    """The packages that the types of nodes and tools come from."""
    kinds = {node.type for nodes in lists.values() for node in nodes.nodes}
    kinds |= {tool.type for tool in document.tools.values()}
    found = {kind: pinned[kind] if kind in absent else package_of(kind) for kind in sorted(kinds)}
    return {kind: package for kind, package in found.items() if package is not None}


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
    """Builds lists of nodes, each before those inside it, so that the flow's own list stands first."""

    def __init__(self, context: BuildContext) -> None:
        self.context = context
        self.lists: dict[str, NodeList] = {}
        self._held: list[NodeList] = []

    def add(
        self, list_id: str, documents: Sequence[NodeDoc], path: Path, edges: Sequence[EdgeDoc] | None
    ) -> None:
        """Builds a list and what is inside it."""
        nodes = (self._node(list_id, document, n, (*path, n)) for n, document in enumerate(documents))
        self.lists[list_id] = NodeList(list_id, tuple(nodes), _edges(edges or ()), self.context.flow)
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
        node = Node(
            id=document.id,
            type=document.type,
            name=document.name or document.id,
            index=index,
            config=config,
            compiled=compiled,
            condition=_condition(document.if_),
            timeout=document.timeout if document.timeout is not None else spec.timeout,
            on_crash=_on_crash(document),
            on_error=document.on_error,
            pin=document.pin,
            secrets=compiled.secrets,
            line=self.context.located.spans[path][0].line,
            list_id=list_id,
            lists={held.key: held.list_id for held in _held(document)},
            retry=_retry(document.retry),
            on_failure=None if document.on_failure is None else f"{document.id}!",
            as_=None if spec.item_name is None else spec.item_name(config),
            calls=config["flow"] if spec.calls else None,
            collect=_value(config.get("collect")) if spec.parts else None,
            while_=conditions.get("while"),
            until_=conditions.get("until"),
        )
        if not spec.talks:
            return node
        agent, lists = with_agent(node, node.retry, path, self.context)
        self._held += lists
        return agent


def _kept(data: Mapping[str, Any]) -> frozenset[str]:
    """The agents whose conversations later ones are given."""
    return frozenset(name for node in agents(data) for name in node["with"].get("context") or ())


def _condition(written: Json) -> Compiled | None:
    return None if written is None else compile_condition(written)


def _value(written: Json) -> Compiled | None:
    return None if written is None else compile_value(written)


def _on_crash(document: NodeDoc) -> OnCrash | None:
    if isinstance(document.retry, str):
        return "again" if document.retry == "safe" else "ask"
    return document.on_crash


def _retry(written: Json) -> Retry | None:
    return Retry(**RetryDoc.model_validate(written).model_dump()) if isinstance(written, dict) else None


def _edges(documents: Sequence[EdgeDoc]) -> tuple[Edge, ...]:
    gates: dict[str, Gate] = {edge.to: edge.gate for edge in documents if edge.gate is not None}
    return tuple(
        Edge(
            from_=edge.from_,
            to=edge.to,
            when=_condition(edge.when),
            type=edge.type,
            max_iterations=edge.max_iterations,
            gate=gates.get(edge.to, "all"),
            on_limit=edge.on_limit or "fail",
        )
        for edge in documents
    )
