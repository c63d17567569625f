"""Checks of lists of nodes: ids, types, the fields of each type, and the names that expressions may use.

Works on the raw data, as `engine.flow.checks.all` does; the lists that a node holds are checked right after it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import ValidationError

from engine.flow import reachability
from engine.flow.checks.agents import AgentContext, check_agent, check_unused_tools, check_used_tools
from engine.flow.checks.edges import check_covers, check_edges, sound_pairs
from engine.flow.checks.shape import (
    Part,
    as_list,
    as_mapping,
    ids,
    items,
    parts,
    places,
    schema_faults,
    spec_at,
    talks,
    unfit,
)
from engine.flow.checks.visibility import (
    ENDED,
    UNDER_WAY,
    Level,
    Output,
    Scope,
    check_condition,
    check_values,
    name_hint,
)
from engine.flow.document import RetryDoc
from engine.flow.outputs import at_end, first_sight, output_of
from engine.flow.reached import NOWHERE, Reached, approved, condition_facts, covering, reached
from engine.language.codec import Json
from engine.language.diagnostics import Fault, Path, faults_of, faults_under, kind_of, suggest
from engine.language.elsewhere import ours
from engine.language.expressions import below
from engine.language.template import has_expression
from engine.nodes.types.names import MAX_NAME, NAME, RESERVED_WORDS
from engine.nodes.types.prompts import GOTO
from engine.nodes.types.registry import END, node_types, unusable_type
from engine.nodes.types.spec import GUARD, NOT_LEFT_OUT, PARTS, Known, NodeSpec
from engine.types.facts import NOTHING, Fact, not_null
from engine.types.lattice import ANY, Type, because, list_of
from engine.types.pieces import Pieces, single, type_of


class Site(Struct, frozen=True):
    """Place of a list of nodes: its path, the names visible to all of it, and whether its nodes may ask people."""

    path: Path
    scope: Scope
    line_of: Callable[[Path], int]
    tools: Mapping[str, Any] = field(default_factory=dict)
    """The tools that the file makes for agents."""
    asks: bool = True

    def inside(self, path: Path, scope: Scope) -> Site:
        """The site of a list further in."""
        return replace(self, path=path, scope=scope)


def check_nodes(data: Mapping[str, Any], scope: Scope, line_of: Callable[[Path], int]) -> Iterator[Fault]:
    """Yield the faults of a flow's nodes and edges. `scope` holds the names known everywhere in it."""
    scope = replace(scope, places=places(data), items=items(data))
    nodes, last = as_list(data.get("nodes")), as_list(data.get("finally"))
    site = Site(("nodes",), scope, line_of, as_mapping(data.get("tools")))
    ended = yield from _list(nodes, as_list(data.get("edges")), site, ("edges",))
    # The flow may end at any time, and `finally` runs all the same.
    outputs = {
        name: output._replace(null=_ENDED_EARLY, held=None, statuses=ENDED | UNDER_WAY | {""})
        for name, output in ended.outputs.items()
    }
    everything = scope.at(None, Level(outputs, ids(nodes), (1 << len(nodes)) - 1, reached=_ALL))
    yield from _list(last, [], replace(site, path=("finally",), scope=everything, asks=False), ())
    complete = scope.at(None, Level(ended.outputs, ids(nodes), (1 << len(nodes)) - 1, reached=_ALL))
    yield from faults_under(("tools",), check_unused_tools(data, complete))


_ENDED_EARLY = "the flow may end before it"
_ALL = Reached(-1, NOTHING)


class _Ended(NamedTuple):
    """Result of checking a list: the known facts about its nodes, and the types of their outputs at its end."""

    outputs: Mapping[str, Output]
    types: Mapping[str, Type]
    end: Reached


def _list(nodes: list[Any], edges: list[Any], site: Site, edges_path: Path) -> Generator[Fault, None, _Ended]:
    """Check the nodes of one list, each with those before it, then its edges."""
    positions, typed = ids(nodes), site.scope.typed
    outputs: dict[str, Output] = {}
    count = len(nodes)
    # The positions in the order of execution, and for each the set of those that surely ran before it.
    order = list(range(count))
    seen = [(1 << position) - 1 for position in order]
    if edges:
        pairs = sound_pairs(edges, positions)
        order, seen = reachability.topological(count, pairs), reachability.ancestors(count, pairs)
        for position in set(range(count)).difference(order):
            # On or after a circle the order is unknown. Reporting the circle is enough.
            seen[position] = (1 << count) - 1
    gates = covering(nodes)
    states = reached(nodes, edges, positions) if typed else [NOWHERE] * (len(nodes) + 1)
    for target in gates.keys() & positions.keys() if typed else ():
        states[positions[target]] = approved(states[positions[target]], gates[target])
    levels = [
        Level(outputs, positions, before, bool(edges), state)
        for before, state in zip(seen, states, strict=False)
    ]
    # Those on a circle follow as they are written.
    for position in dict.fromkeys([*order, *range(count)]):
        node = nodes[position]
        if isinstance(node, dict):
            if node.get("type") == END and (edges or site.path[-1] == "on_failure"):
                if edges:
                    message, hint = "a graph has no `end`", "it ends at the nodes without an outgoing edge"
                else:
                    message = "an `end` in `on_failure` does not undo the failure"
                    hint = "write `on_error: goto:<id>` to continue, and an `end` there"
                yield Fault((*site.path, position, "type"), message, hint)
            found = yield from _node(node, replace(site, path=(*site.path, position)), levels[position])
            if positions.get(str(node.get("id"))) == position:
                covers = gates.get(node["id"], ())
                outputs[node["id"]] = (
                    output_of(node, found, states[position], covers) if typed else Output(ANY)
                )
    yield from faults_under(site.path, check_covers(nodes, positions, seen, site.scope, levels))
    if edges:
        scopes = {}
        for name, position in positions.items():
            level = levels[position]
            state = Reached(level.reached.ran | 1 << position, level.reached.facts)
            scopes[name] = site.scope.at(name, level._replace(seen=level.seen | 1 << position, reached=state))
        yield from faults_under(edges_path, check_edges(edges, positions, scopes, site.line_of, edges_path))
    return _Ended(outputs, at_end(outputs, positions, states[-1]), states[-1])


def _node(node: Mapping[str, Any], site: Site, level: Level) -> Generator[Fault, None, Type]:
    """Check a node and its children; returns the type of its output."""
    name = node.get("id")
    scope = site.scope.at(name if isinstance(name, str) else None, level)
    record: dict[Path, Pieces] = {}
    yield from faults_under(site.path, _fields(node, site, scope, level.positions, record))
    scope = scope.holding(condition_facts(node.get("if"))) if scope.typed else scope
    if talks(node):
        yield from faults_under(("tools",), check_used_tools(node, site.tools, scope))
    with_, inner = as_mapping(node.get("with")), dict[str, Mapping[str, Type]]()
    collected: Type | None = None
    within = type_of(with_, ("with",), record) if scope.typed else None
    spec = spec_at(node)
    for part in parts(node):
        known = scope.knowing(_variables(node, part, within))
        if spec is not None and "while" in spec.condition_fields:
            known = known.holding(condition_facts(with_.get("while")))
        path, edges = (*site.path, *part.path), as_list(node.get("edges")) if part.key == "body" else []
        ended = yield from _list(part.nodes, edges, site.inside(path, known), (*site.path, "edges"))
        inner[part.key] = ended.types
        if spec is not None and "collect" in spec.verbatim_fields and with_.get("collect") is not None:
            end = Level(ended.outputs, ids(part.nodes), (1 << len(part.nodes)) - 1, reached=ended.end)
            collected = yield from _collect(with_["collect"], site.path, known.at(None, end))
    yield from _on_failure(node, site, level)
    return ANY if spec is None else spec.output_type(Known(with_, within, inner, collected, scope.sources))


def _collect(written: Json, path: Path, scope: Scope) -> Generator[Fault, None, Type]:
    """Check `collect` of a `foreach`; returns the type of the collected list."""
    record: dict[Path, Pieces] = {}
    yield from faults_under(
        path, check_values(written, ("with", "collect"), scope, secrets=False, record=record)
    )
    return list_of(type_of(written, ("with", "collect"), record))


def _on_failure(node: Mapping[str, Any], site: Site, level: Level) -> Iterator[Fault]:
    """The nodes that run when this one has failed."""
    listed = as_list(node.get("on_failure"))
    if not listed:
        return
    name = node.get("id")
    own = level.positions.get(name, -1) if isinstance(name, str) else -1
    bit, ran = (1 << own if own >= 0 else 0), level.reached
    failed = frozenset({Fact("is", ("status", str(name)), "failed")})
    here = site.scope.at(
        None, level._replace(seen=level.seen | bit, reached=Reached(ran.ran | bit, ran.facts | failed))
    )
    yield from _list(listed, [], site.inside((*site.path, "on_failure"), here), ())


def _variables(node: Mapping[str, Any], part: Part, within: Type | None) -> dict[str, Type]:
    """Return the variables of a node's body."""
    spec = spec_at(node)
    if spec is None or spec.variables is None:
        return {}
    return spec.variables(Known(as_mapping(node.get("with")), within), lambda: first_sight(part.nodes))


# --- one node --------------------------------------------------------------------------------------------


def _fields(
    node: Mapping[str, Any],
    site: Site,
    scope: Scope,
    siblings: Mapping[str, int],
    record: dict[Path, Pieces],
) -> Iterator[Fault]:
    yield from _id(node.get("id"), site)
    yield from _retry(node)
    on_error = node.get("on_error", "fail")
    jump = GOTO.fullmatch(on_error) if isinstance(on_error, str) else None
    if jump is None and on_error not in _ON_ERROR:
        message = f"expected fail, continue, ask or goto:<id>, not {kind_of(on_error)}"
        yield Fault(
            ("on_error",),
            message,
            suggest(on_error, _ON_ERROR, "") or None if isinstance(on_error, str) else None,
        )
    if jump is not None:
        yield from _goto(jump[1], ("on_error",), site, siblings)
    if on_error == "ask" and not site.asks:
        yield Fault(("on_error",), "`finally` cannot ask people", "write `continue`")
    for name in ("name", "timeout"):
        if has_expression(node.get(name)):
            hint = "use expressions under `with` and in `if`"
            yield Fault((name,), f"`{name}` of a node cannot contain expressions", hint)
    if node.get("if") is not None:
        yield from check_condition(node["if"], ("if",), scope)
        scope = scope.holding(condition_facts(node["if"])) if scope.typed else scope
    kind = node.get("type")
    if not isinstance(kind, str) or not kind:
        return
    spec = node_types().get(kind)
    if spec is None or spec.internal:
        broken = unusable_type(kind)
        advice = suggest(kind, node_types()) if broken is None else "repair or reinstall that package"
        yield Fault(("type",), broken or f"unknown node type `{kind[:80]}`", advice)
        return
    yield from _of_type(node, spec, site)
    if spec.mode == "prompt":
        # The `goto` targets of a question's timeout and rejection.
        for key in ("on_timeout", "on_reject"):
            value = as_mapping(node.get("with")).get(key)
            goto = GOTO.fullmatch(value) if isinstance(value, str) else None
            if goto is not None:
                yield from _goto(goto[1], ("with", key), site, siblings)
    yield from _with(node, spec, scope, record)
    for name in spec.schema_fields:
        schema = as_mapping(node.get("with")).get(name)
        yield from faults_under(("with", name), schema_faults(schema) if isinstance(schema, dict) else ())
    if spec.talks:
        yield from check_agent(node, AgentContext(scope, site.tools, site.asks))


def _of_type(node: Mapping[str, Any], spec: NodeSpec, site: Site) -> Iterator[Fault]:
    """Yield fields beside `with` that the type does not take, or requires and lacks."""
    if spec.mode == "prompt" and not site.asks:
        message = f"`finally` cannot ask people: it cannot have a node of type `{spec.name}`"
        yield Fault(("type",), message, "the nodes of `finally` must run even when nobody is there to answer")
    misplaced = [name for name in PARTS if node.get(name) is not None and name not in spec.parts]
    if node.get("timeout") is not None and spec.mode not in ("run", "container"):
        misplaced.append("timeout")
    for name in misplaced:
        hint = "write it under `with`" if name in spec.field_names() else None
        yield Fault((name,), f"a node of type `{spec.name}` takes no `{name}` here", hint, on_key=True)
    for name in spec.required_parts:
        if node.get(name) is None:
            about = spec.parts[name].rstrip(".")
            yield Fault((), f"`{name}` is missing", f"beside `with`: {about[:1].lower()}{about[1:]}")
    for name in as_mapping(node.get("branches")) if "branches" in spec.parts else ():
        if not NAME.fullmatch(name) or len(name) > MAX_NAME:
            message = f"{name[:80]!r} is not a valid branch name"
            yield Fault(("branches", name), message, name_hint(name, "_"), on_key=True)
    for value in as_mapping(node.get("cases")) if "cases" in spec.parts else ():
        if has_expression(value):
            hint = "put the expression under `with`, in `on`"
            yield Fault(("cases", value), "a case cannot contain expressions", hint, on_key=True)


def _id(name: Any, site: Site) -> Iterator[Fault]:
    if not isinstance(name, str) or not name:
        return
    first = site.scope.places.get(name)
    if not NAME.fullmatch(name) or len(name) > MAX_NAME:
        yield Fault(("id",), f"{name[:80]!r} is not a valid node id", name_hint(name, "_"))
    elif name in RESERVED_WORDS:
        message = f"`{name}` is a reserved word and cannot be an id"
        yield Fault(("id",), message, f"write `{name}_step`")
    elif first is not None and first.path != site.path:
        line = site.line_of((*first.path, "id"))
        yield Fault(
            ("id",),
            f"the id `{name}` is already taken",
            f"by the node on line {line}; choose another id",
        )


def _retry(node: Mapping[str, Any]) -> Iterator[Fault]:
    retry = node.get("retry")
    if isinstance(retry, dict):
        try:
            document = RetryDoc.model_validate(retry)
        except ValidationError as error:
            for fault, _ in faults_of(error, RetryDoc):
                yield fault.under(("retry",))
            return
        if document.delay > document.max_delay:
            yield Fault(("retry",), "`delay` is longer than `max_delay`", "write a longer `max_delay`")
        return
    if retry is None:
        return
    if retry not in ("safe", "never"):
        message = f"expected safe, never, or a mapping with `attempts`, not {kind_of(retry)}"
        yield Fault(("retry",), message, "write {attempts: 3}")
    if node.get("on_crash") is not None:
        yield Fault(("retry",), "`retry` is short for `on_crash`", "keep one of them", on_key=True)


_BESIDE = ("if", "name", "on_crash", "on_error", "on_failure", "retry", "timeout")
"""Fields that every node has beside `with`."""
_ON_ERROR = ("fail", "continue", "ask")


def _goto(target: str, path: Path, site: Site, siblings: Mapping[str, int]) -> Iterator[Fault]:
    if target not in siblings:
        hint = suggest(target, siblings)
        if target in site.scope.places:
            hint = "it is in another list; a jump cannot leave its list"
        yield Fault(path, f"there is no node `{target}` in this list", hint)


def _with(
    node: Mapping[str, Any], spec: NodeSpec, scope: Scope, record: dict[Path, Pieces]
) -> Iterator[Fault]:
    raw = node.get("with")
    if raw is not None and not isinstance(raw, dict):
        return
    with_: Mapping[str, Json] = raw or {}
    for fault in spec.check(with_):
        wrong = str(fault.path[0]) if fault.on_key and len(fault.path) == 1 else ""
        part = ours(wrong, (*spec.parts, *_BESIDE)) if ours(wrong, spec.field_names()) is None else None
        if part is not None:
            fault = replace(fault, hint=f"write `{part}` beside `with`")
        yield (
            fault.under(("with",))
            if raw is not None
            else replace(fault, message=f"{fault.message} under `with`")
        )
    # These must name a node of that type that surely came before.
    for name, kind in spec.node_fields.items():
        named = with_.get(name)
        if isinstance(named, str) and scope.find(named) is None:
            message = f"no node `{named[:80]}` comes before this one"
            yield Fault(("with", name), message, suggest(named, scope.visible()))
        elif isinstance(named, str) and scope.places[named].type != kind:
            yield Fault(("with", name), f"`{named}` is no `{kind}` node")
    for name, value in with_.items():
        path: Path = ("with", name)
        if name in spec.condition_fields and value is not None:
            yield from check_condition(value, path, _round_scope(node, scope, name))
        elif name not in spec.verbatim_fields:
            secrets = name in spec.secret_fields
            exact = below(spec.exact, name)
            yield from check_values(
                value, path, scope, secrets=secrets, record=record, exact=exact, handed_on=spec.hands_on
            )
    if record:
        yield from unfit(spec, with_, record)
    if scope.typed:
        # Fields that must have a value, and are or may be null.
        for name in spec.exact:
            if name in with_ and with_[name] is None:
                yield Fault(("with", name), NOT_LEFT_OUT, "write a value, or leave the key out")
        for path, pieces in record.items():
            alone = single(pieces)
            may = alone is not None and alone.nullable and len(path) == 2 and not spec.required(str(path[1]))
            if alone is not None and may and path[1] in spec.exact:
                yield Fault(path, f"this may be null{because(alone)}, and {NOT_LEFT_OUT}", GUARD)
    if scope.typed and spec.fits is not None:
        yield from spec.fits(node, record, scope.sources)


def _round_scope(node: Mapping[str, Any], scope: Scope, condition: str) -> Scope:
    """Return the scope of a loop's conditions: the loop's own, and its rounds. `until` is evaluated after a round."""
    body = Part("body", ("body",), as_list(node.get("body")))
    known = scope.knowing(_variables(node, body, None))
    return known.holding(frozenset({not_null(("last",))})) if condition == "until" and scope.typed else known
