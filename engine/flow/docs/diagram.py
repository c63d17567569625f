"""A flow as a picture: Mermaid text, and SVG of our own layout. Pure.

Marks say what became of nodes in a session: `(list id, node id)` → a status of `engine.journal.history`. They are shown as words
and as colour, so that the picture can be read without seeing colours.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from engine.flow.model import Edge, Flow, NodeList
from engine.flow.node import ROOT, Node

Marks: TypeAlias = Mapping[tuple[str, str], str]


@dataclass(frozen=True)
class Look:
    """How a status is drawn: its words, and the colours of ground, line and text (at least 7 : 1)."""

    words: str
    fill: str
    stroke: str
    text: str


LOOKS: Mapping[str, Look] = {
    "waiting": Look("● waits here", "#fff3bf", "#8a6100", "#3d2b00"),
    "held": Look("‖ held here", "#fff3bf", "#8a6100", "#3d2b00"),
    "interrupted": Look("! interrupted", "#ffe3c2", "#a34700", "#4a2000"),
    "retrying": Look("↻ tried again later", "#ffe3c2", "#a34700", "#4a2000"),
    "rejected": Look("🚫 rejected", "#f3e6e6", "#8c1d1d", "#4d0f0f"),
    "failed": Look("✗ failed", "#ffdede", "#b00020", "#5c0011"),
    "started": Look("▸ runs", "#dbeaff", "#1259b5", "#06244d"),
    "stopped": Look("■ left", "#ececec", "#595959", "#262626"),
    "completed": Look("✓ done", "#dcf5e0", "#1d7a34", "#0b3316"),
    "skipped": Look("– skipped", "#f2f2f2", "#767676", "#404040"),
}
"""The statuses that are marked, those first that count most where a node has run several times."""

PLAIN = Look("", "#ffffff", "#5b6573", "#1a2029")


@dataclass(frozen=True)
class Column:
    """A list of nodes inside a node: its title and its id; `again` when it is one that stands around it already."""

    title: str
    list_id: str
    again: bool


def columns(flow: Flow, node: Node, around: tuple[str, ...]) -> Iterator[Column]:
    """The lists that a node holds, as they are titled. What an agent does is its own affair: it is drawn as one node."""
    for key, list_id in node.lists.items() if node.agent is None else ():
        title = key if "branches" in node.spec.parts else ""
        if "cases" in node.spec.parts:
            title = f"case {key}" if key else "otherwise"
        if node.calls is not None:
            title = f"flow {node.calls}"
        yield Column(title, list_id, list_id in around)
    if node.on_failure is not None:
        yield Column("on failure", node.on_failure, node.on_failure in around)


def facts(node: Node) -> list[str]:
    """What a drawing says about a node beside its name."""
    lines = [node.type if node.as_ is None else f"{node.type} {node.as_}"]
    if node.condition is not None:
        lines.append(f"if {bare(node.if_)}")
    for word, compiled in (("while", node.while_), ("until", node.until_)):
        if compiled is not None:
            lines.append(f"{word} {bare(compiled.raw)}")
    if "cases" in node.spec.parts:
        lines.append(f"on {bare(node.config.get('on'))}")
    if node.agent is not None and node.agent.tools:
        lines.append(bare(f"with {', '.join(tool.name for tool in node.agent.tools)}"))
    if node.goto is not None:
        lines.append(f"on error: go to {node.goto}")
    on_reject = str(node.config.get("on_reject") or "stop")
    if node.spec.mode == "prompt" and on_reject != "stop":
        lines.append(f"on reject: {on_reject.replace('goto:', 'go to ')}")
    return lines


def bare(value: object, most: int = 44) -> str:
    """An expression without its braces, cut where it is long."""
    text = " ".join(str(value).split())
    if text.startswith("{{") and text.endswith("}}") and text.count("{{") == 1:
        text = text[2:-2].strip()
    return text if len(text) <= most else text[: most - 1] + "…"


def edges_of(nodes: NodeList) -> list[Edge]:
    """The edges of a list: those it has, or one node after the other."""
    if nodes.is_graph:
        return list(nodes.edges)
    return [Edge(one.id, two.id) for one, two in zip(nodes.nodes, nodes.nodes[1:], strict=False)]


def edge_label(edge: Edge) -> str:
    """What an edge says."""
    parts = []
    if edge.when is not None:
        parts.append(bare(edge.when.raw))
    if edge.type == "loop":
        parts.append(f"again, at most {edge.max_iterations}×" if edge.max_iterations else "again")
        parts += [f"then {edge.on_limit}"] if edge.on_limit != "fail" else []
    if edge.gate == "any":
        parts.append("any")
    return ", ".join(parts)


# --- Mermaid -----------------------------------------------------------------------------------------------


def mermaid(flow: Flow, marks: Marks | None = None) -> str:
    """The flow as a Mermaid flowchart: containers are subgraphs, conditions stand in the nodes and on the edges."""
    return "\n".join(_Mermaid(flow, marks or {}).lines()) + "\n"


class _Mermaid:
    def __init__(self, flow: Flow, marks: Marks) -> None:
        self._flow = flow
        self._marks = marks
        self._names = 0
        self._classes: dict[str, list[str]] = {}

    def lines(self) -> Iterator[str]:
        yield "flowchart TD"
        last = yield from self._list(ROOT, (), 1)
        if self._flow.finally_list is not None:
            name = self._name()
            yield f'    subgraph {name}["finally"]'
            yield from self._list(self._flow.finally_list, (), 2)
            yield "    end"
            if last is not None:
                yield f"    {last} -.-> {name}"
        for status, names in self._classes.items():
            look = LOOKS[status]
            yield f"    classDef {status} fill:{look.fill},stroke:{look.stroke},stroke-width:2px,color:{look.text}"
            yield f"    class {','.join(names)} {status}"

    def _name(self) -> str:
        self._names += 1
        return f"n{self._names}"

    def _list(self, list_id: str, around: tuple[str, ...], depth: int) -> Generator[str, None, str | None]:
        """The lines of a list; returns the name of its last node."""
        nodes, lead = self._flow.lists[list_id], "    " * depth
        names: dict[str, str] = {}
        for node in nodes.nodes:
            names[node.id] = self._name()
            yield from self._node(names[node.id], node, (*around, list_id), depth)
        for edge in edges_of(nodes):
            arrow = "-.->" if edge.type == "loop" else "-->"
            label = edge_label(edge)
            said = f'|"{_quoted(label)}"|' if label else ""
            yield f"{lead}{names[edge.from_]} {arrow}{said} {names[edge.to]}"
        return names[nodes.nodes[-1].id] if nodes.nodes else None

    def _node(self, name: str, node: Node, around: tuple[str, ...], depth: int) -> Iterator[str]:
        lead = "    " * depth
        status = self._marks.get((node.list_id, node.id))
        said = [node.id, *facts(node)] + ([LOOKS[status].words] if status else [])
        label = "<br>".join(_quoted(line) for line in said)
        if status:
            self._classes.setdefault(status, []).append(name)
        held = list(columns(self._flow, node, around))
        if not held:
            shape = ("{{", "}}") if node.spec.mode == "prompt" else ("[", "]")
            yield f'{lead}{name}{shape[0]}"{label}"{shape[1]}'
            return
        yield f'{lead}subgraph {name}["{label}"]'
        for column in held:
            yield from self._column(column, around, depth + 1)
        yield f"{lead}end"

    def _column(self, column: Column, around: tuple[str, ...], depth: int) -> Iterator[str]:
        lead, name = "    " * depth, self._name()
        if column.again:
            yield f'{lead}{name}(["{_quoted(column.title)}, again"])'
        elif column.title:
            yield f'{lead}subgraph {name}["{_quoted(column.title)}"]'
            yield from self._list(column.list_id, around, depth + 1)
            yield f"{lead}end"
        else:
            yield from self._list(column.list_id, around, depth)


def _quoted(text: str) -> str:
    """Text inside a quoted Mermaid label: what could end it, or begin markup, is spelled as an entity."""
    replaced = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;"}
    return "".join(replaced.get(char, char) for char in text)
