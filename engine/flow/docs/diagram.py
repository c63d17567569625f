"""Diagrams of a flow: Mermaid text, and SVG with our own layout. Pure.

Marks show the status of nodes in a session: `(list id, node id)` → a status of `engine.journal.history`. They appear as
words and as colour, so that the picture can be read without seeing colours.

The layout of the SVG goes from the inside out. A list of nodes is a column of boxes, or, if it has edges, rows of
boxes: each node is one row below the last of those that lead to it. A node that holds lists is a box around them, side
by side. Text is measured by a conservative table of widths, so the picture needs no fonts to be drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from html import escape
from typing import NamedTuple, TypeAlias

from engine.flow.model import FINALLY, Edge, Flow, NodeList
from engine.flow.node import ROOT, Node
from engine.language.codec import Json
from engine.nodes.types.registry import END

Marks: TypeAlias = Mapping[tuple[str, str], str]


@dataclass(frozen=True)
class Look:
    """Style of a status: its words, and the colours of ground, line and text (at least 7 : 1)."""

    words: str
    fill: str
    stroke: str
    text: str


LOOKS: Mapping[str, Look] = {
    "waiting": Look("… waits here", "#fff3bf", "#8a6100", "#3d2b00"),
    "held": Look("‖ paused here", "#fff3bf", "#8a6100", "#3d2b00"),
    "interrupted": Look("! interrupted", "#ffe3c2", "#a34700", "#4a2000"),
    "retrying": Look("↻ tried again later", "#ffe3c2", "#a34700", "#4a2000"),
    "rejected": Look("⊘ rejected", "#f3e6e6", "#8c1d1d", "#4d0f0f"),
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


def _columns(flow: Flow, node: Node, around: tuple[str, ...]) -> Iterator[Column]:
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


def _facts(node: Node, called: Callable[[str], str] = lambda node_id: node_id) -> list[str]:
    """Return the lines about a node below its name; `called` says what other nodes of its list are called."""
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
        lines.append(f"on error: go to {called(node.goto)}")
    for word in ("reject", "timeout") if node.spec.mode == "prompt" else ():
        then, goto, target = str(node.config.get(f"on_{word}") or "stop").partition("goto:")
        if goto:
            lines.append(f"on {word}: go to {called(target)}")
        elif word == "reject" and then != "stop":
            lines.append(f"on reject: {then}")
    return lines


def bare(value: object, most: int = 44) -> str:
    """Return an expression without its braces, shortened if it is long."""
    text = " ".join(str(value).split())
    if text.startswith("{{") and text.endswith("}}") and text.count("{{") == 1:
        text = text[2:-2].strip()
    return text if len(text) <= most else text[: most - 1] + "…"


def _edges_of(nodes: NodeList) -> list[Edge]:
    """The edges of a list: those it has, or one node after the other."""
    if nodes.is_graph:
        return list(nodes.edges)
    return [
        Edge(one.id, two.id)
        for one, two in zip(nodes.nodes, nodes.nodes[1:], strict=False)
        if one.type != END or one.condition is not None
    ]


def _edge_label(edge: Edge) -> str:
    """Return the label of an edge."""
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
    """The flow as a Mermaid flowchart: containers are subgraphs, conditions are in the nodes and on the edges."""
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
        for edge in _edges_of(nodes):
            arrow = "-.->" if edge.type == "loop" else "-->"
            label = _edge_label(edge)
            said = f'|"{_quoted(label)}"|' if label else ""
            yield f"{lead}{names[edge.from_]} {arrow}{said} {names[edge.to]}"
        return names[nodes.nodes[-1].id] if nodes.nodes else None

    def _node(self, name: str, node: Node, around: tuple[str, ...], depth: int) -> Iterator[str]:
        lead = "    " * depth
        status = self._marks.get((node.list_id, node.id))
        said = [node.id, *_facts(node)] + ([LOOKS[status].words] if status else [])
        label = "<br>".join(_quoted(line) for line in said)
        if status:
            self._classes.setdefault(status, []).append(name)
        held = list(_columns(self._flow, node, around))
        if not held:
            shape = ("{{", "}}") if node.spec.mode == "prompt" else ("[", "]")
            yield f'{lead}{name}{shape[0]}"{label}"{shape[1]}'
            return
        yield f'{lead}subgraph {name}["{label}"]'
        for column in held:
            deeper = depth + 1
            indent, title = "    " * deeper, self._name()
            if column.again:
                yield f'{indent}{title}(["{_quoted(column.title)}, again"])'
            elif column.title:
                yield f'{indent}subgraph {title}["{_quoted(column.title)}"]'
                yield from self._list(column.list_id, around, deeper + 1)
                yield f"{indent}end"
            else:
                yield from self._list(column.list_id, around, deeper)
        yield f"{lead}end"


def _quoted(text: str) -> str:
    """Escape text for a quoted Mermaid label: characters that could end it, or begin markup, become entities."""
    replaced = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;"}
    return "".join(replaced.get(char, char) for char in text)


# --- SVG ---------------------------------------------------------------------------------------------------


_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_LINE = 17
_PAD = 12
_GAP = 34
_BESIDE = 24
_LOOP_ROOM = 46
_MARGIN = 16


@dataclass
class _Box:
    """A box with a size, and its content at places of its own. `lines` are its words, the first one bold."""

    width: float
    height: float
    look: Look | None = None
    lines: list[str] = field(default_factory=list)
    inside: list[tuple[float, float, _Box]] = field(default_factory=list)
    edges: list[tuple[Edge, int, int]] = field(default_factory=list)
    """Edges between boxes inside, by their numbers."""
    dashed: bool = False
    node: Node | None = None
    """Node of the box, if any."""


class _Placed(NamedTuple):
    """A box at its place in the whole picture."""

    box: _Box
    x: float
    y: float


class _Arrow(NamedTuple):
    """An edge at its place in the whole picture, with where its words stand."""

    edge: Edge
    around: Node | None
    """A node at one of its ends: both are in the same list."""
    path: str
    x: float
    y: float
    anchor: str


def svg(flow: Flow, marks: Marks | None = None, title: str | None = None) -> str:
    """The flow as an SVG document; with marks, as a session stands."""
    body = _body(flow, marks or {})
    head = title or flow.name
    width = max(body.width, _width([head])) + 2 * _BESIDE
    height = body.height + 2 * _BESIDE + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}"'
        f' viewBox="0 0 {width:.0f} {height:.0f}" font-family="{escape(_FONT)}" font-size="13" role="img">',
        f"<title>{escape(head)}</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"'
        ' orient="auto-start-reverse"><path d="M0,0 L8,4 L0,8 z" fill="#5b6573"/></marker></defs>',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        f'<text x="{_BESIDE}" y="{_BESIDE + 8}" font-size="16" font-weight="700" fill="{PLAIN.text}">'
        f"{escape(head)}</text>",
        *(line for shape in _shapes(body, (width - body.width) / 2, _BESIDE + 30) for line in _draw(shape)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def placed(flow: Flow) -> dict[str, Json]:
    """Return the same picture for other renderers, with the nodes' names for people in place of their ids: boxes, outer
    ones first, and arrows, with their places and words. The boxes of nodes have the ids of their list and node."""
    body = _body(flow, {}, by_name=True)
    boxes, arrows = [], []
    for shape in _shapes(body, _MARGIN, _MARGIN):
        if isinstance(shape, _Arrow):
            label = _edge_label(shape.edge)
            where = {
                "list": shape.around.list_id if shape.around else "",
                "from": shape.edge.from_,
                "to": shape.edge.to,
            }
            words = {"label": label, "x": shape.x, "y": shape.y, "anchor": shape.anchor} if label else {}
            arrows.append({**where, **words, "path": shape.path, "loop": shape.edge.type == "loop"})
        elif shape.box.look is not None:
            box, node = shape.box, shape.box.node
            whose: dict[str, Json] = {}
            if node is not None:
                name = node.name or node.id
                whose = {"list": node.list_id, "node": node.id, "name": name, "type": node.type}
            size = {"x": shape.x, "y": shape.y, "width": box.width, "height": box.height}
            boxes.append({**whose, **size, "lines": box.lines, "holds": bool(box.inside)})
    width, height = body.width + 2 * _MARGIN, body.height + 2 * _MARGIN
    return {"width": width, "height": height, "boxes": boxes, "arrows": arrows}


def _body(flow: Flow, marks: Marks, *, by_name: bool = False) -> _Box:
    """Everything that is drawn of a flow; `by_name` for people, who know nodes by their names."""
    drawer = _Drawer(flow, marks, by_name=by_name)
    body = drawer.list(ROOT, ())
    if flow.finally_list is not None:
        body = _stack([body, drawer.column(Column("finally", FINALLY, again=False), ())], [])
    return body


# --- layout ------------------------------------------------------------------------------------------------


class _Drawer:
    def __init__(self, flow: Flow, marks: Marks, *, by_name: bool) -> None:
        self._flow = flow
        self._marks = marks
        self._by_name = by_name

    def list(self, list_id: str, around: tuple[str, ...]) -> _Box:
        """A list of nodes."""
        nodes = self._flow.lists[list_id]
        boxes = [self._node(node, (*around, list_id)) for node in nodes.nodes]
        if nodes.is_graph:
            return _rows(nodes, boxes)
        return _stack(boxes, _edges_of(nodes))

    def column(self, column: Column, around: tuple[str, ...]) -> _Box:
        """A list inside a node, with its title."""
        if column.again:
            return _text_box([f"{column.title}, again"], PLAIN)
        inner = self.list(column.list_id, around)
        if not column.title:
            return inner
        width = max(inner.width, _width([column.title])) + 2 * _PAD
        box = _Box(width, inner.height + _LINE + 2 * _PAD + 4, PLAIN, [column.title], dashed=True)
        box.inside.append(((width - inner.width) / 2, _LINE + _PAD + 4, inner))
        return box

    def _called(self, list_id: str, node_id: str) -> str:
        node = self._flow.lists[list_id].by_id.get(node_id) if self._by_name else None
        return bare(node.name or node_id) if node is not None else node_id

    def _node(self, node: Node, around: tuple[str, ...]) -> _Box:
        status = self._marks.get((node.list_id, node.id))
        look = LOOKS[status] if status else PLAIN
        called = partial(self._called, node.list_id)
        lines = [called(node.id), *_facts(node, called)] + ([look.words] if look.words else [])
        held = [self.column(column, around) for column in _columns(self._flow, node, around)]
        head = _text_box(lines, look)
        head.node = node
        if self._by_name:  # beside the name stand how often it ran, and its sign
            head.width = max(head.width, _width(lines[:1]) + 2 * _BESIDE + _PAD)
        if not held:
            return head
        inner = sum(box.width for box in held) + _BESIDE * (len(held) - 1)
        width = max(head.width, inner + 2 * _PAD)
        box = _Box(width, head.height + max(box.height for box in held) + _PAD, look, lines)
        box.node = node
        x = (width - inner) / 2
        for column in held:
            box.inside.append((x, head.height, column))
            x += column.width + _BESIDE
        return box


def _text_box(lines: list[str], look: Look) -> _Box:
    return _Box(max(130.0, _width(lines) + 2 * _PAD), len(lines) * _LINE + 2 * _PAD - 4, look, lines)


def _width(lines: list[str]) -> float:
    """Return the largest width of these lines: wide letters count more, the first line is bold."""
    return max((sum(_letter(char) for char in line) for line in lines), default=0)


def _letter(char: str) -> float:
    if char in "iljtf.,:;'|!()[] ":
        return 4.6
    if char in "mwMW@%—…":
        return 12.0
    return 8.9 if char.isupper() or ord(char) > 0x2000 else 7.9


def _stack(boxes: list[_Box], edges: list[Edge]) -> _Box:
    """Boxes below each other, an arrow between each and the next."""
    width = max((box.width for box in boxes), default=0)
    whole, y = _Box(width, 0), 0.0
    for box in boxes:
        whole.inside.append(((width - box.width) / 2, y, box))
        y += box.height + _GAP
    whole.height = max(0.0, y - _GAP)
    whole.edges = [(edge, number, number + 1) for number, edge in enumerate(edges)]
    return whole


def _rows(nodes: NodeList, boxes: list[_Box]) -> _Box:
    """Return boxes in rows, each below all that lead to it."""
    rows: dict[int, list[int]] = {}
    row_of: dict[str, int] = {}
    for node_id in nodes.order:
        before = [row_of[edge.from_] for edge in nodes.incoming[node_id]]
        row_of[node_id] = max(before, default=-1) + 1
        rows.setdefault(row_of[node_id], []).append(nodes.by_id[node_id].index)
    widths = {
        row: sum(boxes[at].width for at in found) + _BESIDE * (len(found) - 1) for row, found in rows.items()
    }
    room = sum(_LOOP_ROOM for edge in nodes.edges if edge.type == "loop")
    labels = [_width([_edge_label(edge)]) for edge in nodes.edges if edge.type == "loop"]
    width = max(widths.values())
    whole, y = _Box(width, 0), 0.0
    places: dict[int, tuple[float, float]] = {}
    for row in sorted(rows):
        x = (width - widths[row]) / 2
        for at in rows[row]:
            places[at] = (x, y)
            x += boxes[at].width + _BESIDE
        y += max(boxes[at].height for at in rows[row]) + _GAP + 14
        y += _LINE * sum(_is_worded(edge) for at in rows[row] for edge in nodes.outgoing[nodes.nodes[at].id])
    whole.inside = [(*places[at], box) for at, box in enumerate(boxes)]
    whole.edges = [(edge, nodes.by_id[edge.from_].index, nodes.by_id[edge.to].index) for edge in nodes.edges]
    whole.height = max(
        place[1] + box.height for place, box in ((places[at], box) for at, box in enumerate(boxes))
    )
    # The way back runs at the right; its words are beside it.
    whole.width = width + (room + max(labels) if labels else 0)
    return whole


def _is_worded(edge: Edge) -> bool:
    return edge.type == "forward" and bool(_edge_label(edge))


# --- drawing -----------------------------------------------------------------------------------------------


def _shapes(box: _Box, x: float, y: float) -> Iterator[_Placed | _Arrow]:
    """A box with all that is in it, each at its place."""
    yield _Placed(box, x, y)
    for inner_x, inner_y, inner in box.inside:
        yield from _shapes(inner, x + inner_x, y + inner_y)
    loops = 0
    worded: dict[float, int] = {}
    for edge, source, target in box.edges:
        loops += edge.type == "loop"
        # Words of edges that leave one row are below each other: side by side they would meet.
        row = box.inside[source][1] + box.inside[source][2].height
        worded[row] = worded.get(row, -1) + _is_worded(edge)
        yield _arrow(box, edge, source, target, (x, y), (loops, worded[row]))


def _arrow(
    box: _Box, edge: Edge, source: int, target: int, at: tuple[float, float], number: tuple[int, int]
) -> _Arrow:
    (from_x, from_y, one), (to_x, to_y, two) = box.inside[source], box.inside[target]
    if edge.type == "loop":
        right = at[0] + max(place[0] + place[2].width for place in box.inside) + number[0] * _LOOP_ROOM - 16
        start = (at[0] + from_x + one.width, at[1] + from_y + one.height / 2)
        end = (at[0] + to_x + two.width, at[1] + to_y + two.height / 2 + (8 if source == target else 0))
        path = f"M{start[0]:.1f},{start[1]:.1f} H{right:.1f} V{end[1]:.1f} H{end[0] + 2:.1f}"
        return _Arrow(edge, one.node, path, right + 6, (start[1] + end[1]) / 2, "start")
    start = (at[0] + from_x + one.width / 2, at[1] + from_y + one.height)
    end = (at[0] + to_x + two.width / 2, at[1] + to_y - 2)
    middle = (start[1] + end[1]) / 2
    path = (
        f"M{start[0]:.1f},{start[1]:.1f} C{start[0]:.1f},{middle:.1f} {end[0]:.1f},{middle:.1f}"
        f" {end[0]:.1f},{end[1]:.1f}"
    )
    y = min(start[1] + 20 + _LINE * number[1], end[1] - 14)
    part = (y - start[1]) / max(1.0, end[1] - start[1])
    x = start[0] + (end[0] - start[0]) * part * part * (3 - 2 * part)
    return _Arrow(edge, one.node, path, x, y, "middle")


def _draw(shape: _Placed | _Arrow) -> Iterator[str]:
    """A shape as SVG."""
    if isinstance(shape, _Arrow):
        dash = ' stroke-dasharray="5 4"' if shape.edge.type == "loop" else ""
        yield f'<path d="{shape.path}" fill="none" stroke="#5b6573" stroke-width="1.4" marker-end="url(#tip)"{dash}/>'
        label = _edge_label(shape.edge)
        if label:
            yield (
                f'<text x="{shape.x:.1f}" y="{shape.y + 4:.1f}" text-anchor="{shape.anchor}" font-size="12" fill="{PLAIN.text}"'
                f' stroke="#ffffff" stroke-width="4" paint-order="stroke">{escape(label)}</text>'
            )
        return
    box, x, y = shape
    if box.look is not None:
        stroke = 2.5 if box.look.words else 1.2
        dash = ' stroke-dasharray="5 4"' if box.dashed else ""
        yield (
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="8"'
            f' fill="{box.look.fill}" stroke="{box.look.stroke}" stroke-width="{stroke}"{dash}/>'
        )
    for number, line in enumerate(box.lines):
        marked = box.look is not None and line == box.look.words
        weight = "700" if marked or (number == 0 and not box.dashed) else "400"
        color = box.look.text if box.look is not None else PLAIN.text
        yield (
            f'<text x="{x + box.width / 2:.1f}" y="{y + _PAD + 9 + number * _LINE:.1f}" text-anchor="middle"'
            f' font-weight="{weight}" fill="{color}">{escape(line)}</text>'
        )
