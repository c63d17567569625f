"""Names of places in a session, as plain text on one line, and what a flow has at them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import unquote

from bot.faces.words import one_line
from engine.flow import Flow, Node
from engine.journal.state import Asked, State, visit_of
from engine.language.codec import Json
from engine.nodes.types.registry import spec_of

CONTAINERS = ("foreach", "loop", "parallel", "switch", "flow", "agent")
WITHOUT_EFFECT = ("ask", "approval", "wait", "turn", "read_file", *CONTAINERS)
"""Types of nodes without effects of their own: interrupted, they leave no unknown outcome."""

_SEGMENT = re.compile(r"(?P<id>[^\[\]~!]+)(?:~(?P<visit>\d+))?(?:\[(?P<key>[^\[\]]*)\]|!(?P<failed>\d*))?")
_OF_AGENT = re.compile(r"(turn|tool)\[\d+\]")
"""A model call or a tool call of an agent: to people it is the agent."""
_NAMES_OF_ITEM = ("name", "id", "title", "host", "key")
_ITEM_MOST = 40
_PLACE_MOST = 160


class Segment(NamedTuple):
    """One part of a path: a node, and its pass that contains the next part."""

    path: str
    node_id: str
    visit: int
    key: str | None
    node: Node | None
    failed: bool = False
    """True if the next part is its `on_failure`."""


def segments(flow: Flow, path: str) -> list[Segment]:
    """A path part by part, each with its node as far as the flow has one."""
    found: list[Segment] = []
    nodes: Sequence[Node] = flow.nodes
    before = ""
    for part in path.split("/"):
        owner = found[-1].node if found else None
        if owner is not None and spec_of(owner.type).talks and _OF_AGENT.fullmatch(part):
            before = f"{before}{part}/"
            continue
        match = _SEGMENT.fullmatch(part.partition("#")[0])
        node_id, visit, key = (match["id"], match["visit"], match["key"]) if match else (part, None, None)
        node = next((node for node in nodes if node.id == node_id), None)
        failed = match is not None and match["failed"] is not None
        here = f"{before}{part.partition('!')[0].partition('[')[0]}"
        found.append(Segment(here, node_id, int(visit or 1), key, node, failed))
        nodes = _inside(flow, found[-1])
        before = f"{before}{part}/"
    return found


def _inside(flow: Flow, part: Segment) -> Sequence[Node]:
    """The nodes that are in a pass of a node, or follow its failure."""
    node = part.node
    if node is None:
        # `finally/tell`: no node owns the list.
        list_id: str | None = part.node_id
    elif part.failed:
        list_id = node.on_failure
    elif node.calls is not None:
        list_id = f"@{node.calls}/"
    else:
        list_id = node.lists.get("body") or node.lists.get(unquote(part.key or ""))
    found = flow.lists.get(list_id) if list_id is not None else None
    return found.nodes if found is not None else ()


def latest_visits(state: State) -> dict[str, str]:
    """The path of each of the flow's own nodes that began, by its id; that of the latest visit, where a loop edge led back."""
    own = (path for path in state.nodes if "/" not in path)
    return {path.partition("~")[0]: path for path in sorted(own, key=visit_of)}


def node_of(flow: Flow, path: str) -> Node | None:
    """Return the node at a path, or None if the flow has none."""
    return segments(flow, path)[-1].node


def label_of(flow: Flow, path: str) -> str:
    """Return a node's name or id; the path itself if the flow has no such node."""
    last = segments(flow, path)[-1]
    if last.node is None:
        return one_line(path, 60)
    again = f" ({last.visit})" if last.visit > 1 else ""
    return one_line(last.node.name or last.node.id, 60) + again


def place_of(state: State, flow: Flow, path: str) -> str:
    """Return the place of a node, outermost first: `rollout › us › Confirm`. Two passes of one node differ by their
    items."""
    return " › ".join([*around(state, flow, path), label_of(flow, path)])


def asks_for(state: State, prompt: Asked, flow: Flow) -> str:
    """Return the name of a prompt with its place: `rollout › us › Confirm`."""
    label = one_line(prompt.node_name or "", 60) or label_of(flow, prompt.path)
    return label if prompt.input else " › ".join([*around(state, flow, prompt.path), label])


def items_around(state: State, path: str) -> dict[str, str]:
    """Return the passes of loops around a node with the labels of their items (`around` takes them as `items`): the
    state drops them when the loop ends."""
    found = {}
    for passed in re.finditer(r"\[(\d+)\]/", path):
        owner = path[: passed.start()]
        container = state.containers.get(owner)
        if container is not None and container.items:
            found[f"{owner}[{passed[1]}]"] = pass_label(state, owner, passed[1], keyed=False)
    return found


def around(state: State, flow: Flow, path: str, items: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """Return the containers and passes around a node, outermost first. Of many levels the innermost are kept: they tell
    two places apart."""
    parts: list[str] = []
    for part in segments(flow, path)[:-1]:
        name = part.node.name if part.node is not None else ""
        parts.append(one_line(name or part.node_id, _ITEM_MOST))
        if part.failed:
            parts.append("after its failure")
        if part.key is not None:
            keyed = part.node is not None and bool(
                spec_of(part.node.type).parts.keys() & {"branches", "cases"}
            )
            known = items.get(f"{part.path}[{part.key}]")
            parts.append(known or pass_label(state, part.path, part.key, keyed=keyed))
    kept: list[str] = []
    room = _PLACE_MOST
    for word in reversed(parts):
        room -= len(word)
        if room < 0 and kept:
            return ["…", *kept]
        kept.insert(0, word)
    return kept


def pass_label(state: State, path: str, key: str, *, keyed: bool) -> str:
    """Return the label of a pass of the container at `path`: its item, its branch or case (`keyed`), else its number,
    from 1. `key` is the text in brackets in paths."""
    if keyed or not key.isdecimal():
        return one_line(unquote(key), _ITEM_MOST) or "default"
    container = state.containers.get(path)
    items = container.items if container is not None else None
    index = int(key)
    item = items[index] if items and index < len(items) else _failed_item(state, f"{path}[{key}]")
    return one_line(item_label(item), _ITEM_MOST) or str(index + 1)


def _failed_item(state: State, scope: str) -> Json:
    """Return the item of a pass in which a finished loop failed."""
    kept = (run.passes["items"] for run in state.nodes.values() if run.passes is not None)
    return next((items[scope] for items in kept if scope in items), None)


def item_label(item: Json) -> str:
    """Return an item in a few words: a text or number, or the name of an object; empty if it has none."""
    if isinstance(item, str):
        return item
    if isinstance(item, int | float) and not isinstance(item, bool):
        return str(item)
    if isinstance(item, dict):
        named = (item.get(name) for name in _NAMES_OF_ITEM)
        return next((str(value) for value in named if isinstance(value, str | int) and value != ""), "")
    return ""
