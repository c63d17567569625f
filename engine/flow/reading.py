"""Reads flow files: text in, `Flow` out, or one `FlowError` with all that is wrong and where."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any

from msgspec.structs import replace
from pydantic import ValidationError

from engine.flow.agent_document import TOOLS
from engine.flow.build import build
from engine.flow.checks.all import check_flow
from engine.flow.checks.all import warnings as flow_warnings
from engine.flow.checks.shape import as_mapping, spec_at
from engine.flow.document import FlowDoc, NodeDoc
from engine.flow.model import BODY_VERSION, Flow
from engine.flow.subflows import link as link
from engine.language.codec import decode
from engine.language.diagnostics import MAX_FAULTS, QUOTE_IT, Fault, Path, faults_of, field_names, kind_of
from engine.language.elsewhere import ours
from engine.language.errors import FlowError, Problem, SchemaTooNew
from engine.language.yaml import SECOND, Located, load_located
from engine.nodes.types.fields import kind_at
from engine.nodes.types.registry import node_types, unusable_type, why_missing
from engine.nodes.types.spec import NOT_LEFT_OUT, PARTS
from engine.types.annotations import Sources, no_source

_LIKE_TEXT = re.compile(
    r"[+-]?0[0-9]+|\+[0-9.]+|[0-9]+\.[0-9]*0|0[ox][0-9a-fA-F]+|[0-9]+[eE][0-9]+", re.ASCII
)
"""Numbers that are written as versions, codes, modes, hashes and phone numbers are."""


def flow_from_body(body: bytes) -> Flow:
    """See `engine.flow.load.flow_from_body`."""
    pinned = decode(body)
    version = pinned.get("version") if isinstance(pinned, dict) else None
    if isinstance(version, int) and version > BODY_VERSION:
        raise SchemaTooNew(
            f"The flow was pinned in version {version}, and this release reads up to {BODY_VERSION}."
        )
    if version != BODY_VERSION:
        raise FlowError([Problem("pinned flow", 1, 1, f"it is not of version {BODY_VERSION}")])
    called, packages = pinned.get("flows", {}), pinned.get("types", {})

    def find(name: str) -> Flow | None:
        if name not in called:
            return None
        return _read_pinned(called[name]["text"], called[name]["file"], packages)[0]

    flow, located = _read_pinned(pinned["text"], pinned["file"], packages)
    return link(flow, located, find, called)


def read(text: str, file: str, *, sources: Sources = no_source) -> tuple[Flow, Located]:
    """The flow of a text without those that it calls; `sources` gives the texts of Python modules. Raises `FlowError`."""
    located = load_located(text, file)
    return _sound(located, *_checked(located, sources, typed=True), {}, {})


def warnings(flow: Flow, sources: Sources = no_source) -> list[Problem]:
    """Return the warnings about a flow's own file, in the order of its lines."""
    located = load_located(flow.text, flow.file)
    doubts = [located.problem(fault) for fault in _checked(located, sources, typed=True)[1] if fault.doubt]
    return _in_order([*located.doubts, *doubts, *flow_warnings(flow)])


def _read_pinned(text: str, file: str, packages: Mapping[str, str]) -> tuple[Flow, Located]:
    """Read a text that a session pinned, with the packages of its node types. It was valid then, so its expressions are
    not type-checked: their errors appear when they are evaluated. Raises `FlowError`."""
    located, absent = load_located(text, file), dict[str, str]()
    document, found = _checked(located, no_source, typed=False)
    faults = _without_absent(found, located.data, packages, absent)
    return _sound(located, document, faults, packages, absent)


def _sound(
    located: Located,
    document: FlowDoc | None,
    found: Iterator[Fault],
    packages: Mapping[str, str],
    absent: dict[str, str],
) -> tuple[Flow, Located]:
    faults = (fault for fault in found if not fault.doubt and fault.path not in located.empty)
    told = map(located.problem, islice(faults, MAX_FAULTS + 1))
    problems = _in_order([*located.problems, *told])
    if len(problems) > MAX_FAULTS:
        last = problems[MAX_FAULTS - 1]
        more = "there are more problems than listed here"
        problems[MAX_FAULTS:] = [Problem(located.file, last.line, last.column, more, "correct these first")]
    if problems:
        raise FlowError(problems)
    assert document is not None, "what has no document has problems"
    return build(document, located, packages, absent), located


def _in_order(problems: list[Problem]) -> list[Problem]:
    unique = dict.fromkeys(problems)
    return sorted(unique, key=lambda problem: (problem.line, problem.column))


# --- checking --------------------------------------------------------------------------------------------


def _checked(located: Located, sources: Sources, *, typed: bool) -> tuple[FlowDoc | None, Iterator[Fault]]:
    """Return the document, if its shape is right, and all faults, found lazily: first those of the shape, then of the
    meaning."""
    data = located.data
    if not isinstance(data, dict):
        return None, iter([Fault((), f"a flow is a mapping with `flow` and `nodes`, not {kind_of(data)}")])
    meaning = check_flow(data, located.line, sources, typed=typed)
    if typed:
        meaning = chain(_unlike(located), _nulls(located), meaning)
    try:
        return FlowDoc.model_validate(data), meaning
    except ValidationError as error:
        shape = (_advised(fault, data) for fault, _ in faults_of(error, FlowDoc))
        return None, chain((fault for fault in shape if fault is not None), meaning)


def _unlike(located: Located) -> Iterator[Fault]:
    """The numbers, and `true` and `false`, that would be read as other text than was written where text is wanted; and
    those that may be text where anything is."""
    for path, text in located.written.items():
        if _is_second(path):
            continue
        node, rest = _node_or_tool_at(located.data, path)
        spec = spec_at(node)
        if _is_in_input(located.data, path) and _LIKE_TEXT.fullmatch(text):
            yield _like_text(path, text, located.value(path))
        if spec is None or rest[:1] != ("with",):
            continue
        kinds: Mapping[Any, Any] = TOOLS if spec.talks and rest[1] == "tools" and len(rest) > 3 else {}
        settings = kinds.get(rest[3]) if kinds else None
        kind = kind_at(spec.config, rest[1:]) if settings is None else kind_at(settings, rest[4:])
        if kind == "text":
            yield Fault(path, f"`{text}` would arrive as {str(located.value(path)).lower()}", QUOTE_IT)
        elif kind == "any" and _LIKE_TEXT.fullmatch(text):
            yield _like_text(path, text, located.value(path))


def _like_text(path: Path, written: str, value: Any) -> Fault:
    return Fault(path, f"`{written}` is the number {value} here", f"{QUOTE_IT} if it is text", doubt=True)


def _is_in_input(data: Mapping[str, Any], path: Path) -> bool:
    """True if this is in the list or mapping of an input whose items were not declared as numbers."""
    if path[0] == "triggers":
        return path[2:3] == ("inputs",) and len(path) > 4
    if path[0] != "inputs" or path[2:3] != ("default",) or len(path) < 4:
        return False
    told = as_mapping(as_mapping(data["inputs"]).get(str(path[1])))
    of = as_mapping(told.get("items")).get("type", told.get("type"))
    return of in ("array", "object")


RESTRICTIONS = frozenset(
    [
        "allowed_to_start",
        "approvers",
        "channels",
        "choices",
        "code_execution",
        "covers",
        "dedupe",
        "dedupe_by",
        "edges",
        "events",
        "finally",
        "form",
        "guests",
        "if",
        "items",
        "listen",
        "lock",
        "max_cost",
        "max_tokens_total",
        "max_turns",
        "memory",
        "ok_status",
        "on_crash",
        "on_failure",
        "output",
        "retry",
        "schema",
        "secret",
        "server_tools",
        "timeout",
        "web_fetch",
        "web_search",
        "when",
        "who",
    ]
)
"""Fields that null does not leave out, outside of data; those of a node type that are `exact` are such, too."""


def _nulls(located: Located) -> Iterator[Fault]:
    """Yield restrictions that are null outside of data and would count as left out."""
    for path in located.spans:
        name = path[-1] if path else ""
        if name not in RESTRICTIONS or _is_second(path) or located.value(path) is not None:
            continue
        node, rest = _node_or_tool_at(located.data, path)
        spec = spec_at(node)
        if rest[:1] == ("with",):
            own = len(rest) == 2 and spec is not None and name in spec.field_names()
            data = kind_at(spec.config, rest[1:]) == "any" if own and spec else rest[1] not in _OF_AGENTS
        else:
            of_input = len(path) == 3 if path[0] == "inputs" else rest[:1] == ("input",) and len(rest) == 3
            data = not of_input and bool({"inputs", "input"} & {*path})
        if not data:
            yield Fault(path, NOT_LEFT_OUT, "write a value, or leave the key out")


_OF_AGENTS = ("tools", "approvals", "server_tools")


def _is_second(path: Path) -> bool:
    """True if this is under a key that is there twice, of which the first one counts."""
    return any(str(part).endswith(SECOND) for part in path)


def _without_absent(
    faults: Iterator[Fault], data: Any, packages: Mapping[str, str], absent: dict[str, str]
) -> Iterator[Fault]:
    """Yield the faults, except those of nodes whose package type is unavailable: their reasons go into `absent`. The
    text was valid when it was pinned, so the package has changed."""
    for fault in faults:
        # The type of the node or tool around this place.
        kind = str(_node_or_tool_at(data, fault.path)[0].get("type") or "") if packages else ""
        if kind not in packages:
            yield fault
        elif kind not in absent:
            changed = f"the node type `{kind}` of the package {packages[kind]} no longer takes this: "
            why = unusable_type(kind) or why_missing(kind, packages[kind])
            absent[kind] = changed + fault.message if kind in node_types() else why


def _advised(fault: Fault, data: dict[str, Any]) -> Fault | None:
    """Return the fault with a better hint for a field beside `with` that belongs into it; None for faults inside a
    misplaced field, which is reported elsewhere."""
    node, rest = _node_at(data, fault.path)
    spec = spec_at(node)
    if fault.on_key and len(fault.path) == 1:
        top, word = str(fault.path[0]), ours(str(fault.path[0]), field_names(NodeDoc))
        if word not in (None, "with", "id", "type") and ours(top, field_names(FlowDoc)) is None:
            return replace(fault, hint=f"write `{word}` in a node, beside its `with`")
    if spec is None or not rest:
        return fault
    name = str(rest[0])
    if name in PARTS and name not in spec.parts:
        return None
    if len(rest) == 1 and fault.on_key and ours(name, field_names(NodeDoc)) is None:
        word = ours(name, spec.field_names())
        return fault if word is None else replace(fault, hint=f"write `{word}` under `with`")
    return fault


def _node_at(data: dict[str, Any], path: Path) -> tuple[Mapping[str, Any], Path]:
    """The innermost node on the way to a place, and the rest of the way; an empty mapping outside of all nodes."""
    for depth in range(len(path), 1, -1):
        if isinstance(path[depth - 1], int) and _holds_nodes(path[: depth - 1]):
            node: Any = data
            for part in path[:depth]:
                node = node[part]
            return as_mapping(node), path[depth:]
    return {}, ()


def _node_or_tool_at(data: dict[str, Any], path: Path) -> tuple[Mapping[str, Any], Path]:
    """The node, or the tool of the file, on the way to a place, and the rest of the way."""
    if len(path) > 1 and path[0] == "tools":
        return as_mapping(as_mapping(data.get("tools")).get(str(path[1]))), path[2:]
    return _node_at(data, path)


def _holds_nodes(path: Path) -> bool:
    """True if a list in this place is one of nodes."""
    if path in (("nodes",), ("finally",)) or path[-1] in ("body", "default", "on_failure"):
        return True
    return len(path) > 1 and path[-2] in ("branches", "cases")
