"""Checks of the names in expressions against the values that surely exist when the node runs, with messages for the
author of the flow.

Surely before a node: in a list the nodes above; in a graph those from which edges lead here; and everything before the
containers around it. Such a node may have been skipped, or left out by an edge: its output is null then. Nodes inside
another container are not visible: its output has theirs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from engine.flow.checks.shape import Place
from engine.flow.reached import NOWHERE, Reached
from engine.language.codec import Json
from engine.language.diagnostics import Fault, Path, suggest
from engine.language.errors import ExpressionError
from engine.language.expressions import Places, below, compile_condition, inspect_text, only_expression
from engine.language.template import BadExpression, Names, Reference, Segment, has_expression, split_text
from engine.nodes.types.names import FLOW_NAME, MAX_NAME
from engine.nodes.types.spec import ERROR, MESSAGES, REQUESTER
from engine.types.annotations import Sources, no_source
from engine.types.facts import NOTHING, Facts, not_null, present
from engine.types.lattice import (
    ANY,
    BOOLEAN,
    LIST,
    MAPPING,
    MISSING,
    MOMENTS,
    NULL,
    NUMBER,
    TEXT,
    TEXTS,
    Type,
    because,
    mapping_of,
    union,
    words,
)
from engine.types.pieces import Pieces

SESSION_FIELDS = ("id", "requester", "flow")
"""Fields of `session`: the session's id, the requester, the flow's name."""

ROOTS: Mapping[str, str] = {
    "inputs": "the inputs, `inputs.<name>`",
    "nodes": "the outputs of earlier nodes, `nodes.<id>`; null for a node that was skipped or failed",
    "status": "the outcomes of earlier nodes, `status.<id>`: `completed`, `skipped` or `failed`; null for one that did "
    "not run",
    "errors": "the errors of earlier nodes, `errors.<id>`: `{type, message}`, of a rejected approval also `by`, "
    "`reason`, `at` and `values`; else null",
    "messages": "people's messages that answered no question, as a list of `{text, by, at}`; `by` is `{id, name, "
    "email}`",
    "session": "`session.id`, `session.requester` (`{id, name, email, manager, timezone}`, null where unknown) and `session.flow`",
    "now": "the time of this step, in UTC: `2026-11-21T22:40:00.000Z`",
    "secrets": "`secrets.NAME`, in `env` of shell and in requests of http only",
}
"""Names known to all expressions, with their descriptions for the flow reference."""

VARIABLES: Mapping[str, str] = {
    "index": "in the body of `foreach` and `loop`: the number of the iteration, from 0",
    "last": "in the body and the conditions of `loop`: the outputs of the previous iteration, `last.<id>`; null at "
    "first",
}
"""The names that bodies know; a `foreach` gives its item a name beside them."""


class Output(NamedTuple):
    """Known facts about a node for those after it.

    `type` is that of its output when it completed, `null` the reason why it may be null nevertheless. If that is only
    its `if`, `held` are the facts of this `if`; `ran` are the facts at the time it ran.
    """

    type: Type
    null: str | None = None
    held: Facts | None = None
    ran: Facts = NOTHING
    statuses: frozenset[str] = frozenset({"completed"})


NEVER_RUN = Output(ANY, null="it may not have run")


class Level(NamedTuple):
    """A list of nodes as seen by one of them, or from inside it: `seen` is the set of earlier positions, `graph` is
    True if edges define the order, `reached` holds the nodes that surely ran, and the facts."""

    outputs: Mapping[str, Output]
    positions: Mapping[str, int]
    seen: int
    graph: bool = False
    reached: Reached = NOWHERE

    def visible(self) -> list[str]:
        """The ids that came before."""
        return [name for name, position in self.positions.items() if self.seen >> position & 1]


ENDED = frozenset({"completed", "failed", "skipped"})
"""Possible statuses of an ended node."""
UNDER_WAY = frozenset({"started", "interrupted", "retrying"})
"""Further statuses that `finally` may see."""


class Scope(Struct, frozen=True):
    """Names for an expression. `levels` are the lists around it, innermost last; `variables` those of bodies; `current`
    the id of the node; `places` the places of all nodes of the flow, `items` the foreach of each item name.

    `facts` hold here. Without `typed` only names are checked: that is for a text that a session has pinned.
    """

    inputs: Type
    places: Mapping[str, Place]
    levels: tuple[Level, ...] = ()
    variables: Mapping[str, Type] = field(default_factory=dict)
    current: str | None = None
    items: Mapping[str, str] = field(default_factory=dict)
    facts: Facts = NOTHING
    typed: bool = True
    sources: Sources = no_source
    timeless: bool = False
    """True if expressions here are evaluated more than once, and must give the same value each time."""

    def at(self, current: str | None, level: Level) -> Scope:
        """The scope of a node in a list."""
        facts = self.facts | level.reached.facts
        return replace(self, current=current, levels=(*self.levels, level), facts=facts)

    def knowing(self, variables: Mapping[str, Type]) -> Scope:
        """The scope with more variables; the inner ones win."""
        return replace(self, variables={**self.variables, **variables})

    def holding(self, facts: Facts) -> Scope:
        """The scope where these facts hold too."""
        return self if facts <= self.facts else replace(self, facts=self.facts | facts)

    def visible(self) -> list[str]:
        """Return all earlier ids."""
        return [name for level in self.levels for name in level.visible()]

    def find(self, name: str) -> tuple[Output, bool] | None:
        """Return an earlier node, and True with it if it was surely not left out; None if it does not surely come
        before."""
        for level in reversed(self.levels):
            position = level.positions.get(name)
            if position is not None and level.seen >> position & 1:
                return level.outputs.get(name, NEVER_RUN), bool(level.reached.ran >> position & 1)
        return None

    # --- types, for `engine.types.inference` -----------------------------------------------------------------

    def root(self, name: str) -> Type:
        """Return the type of a name; for `nodes` and the like, the parts below count."""
        if name in self.variables:
            return self.variables[name]
        return self.inputs if name == "inputs" else _KNOWN.get(name, ANY)

    def narrowed(self, path: Names, found: Type, facts: Facts) -> Type:
        """Return the type of a path under these facts and those of this place."""
        if len(path) == 2 and path[0] in ("nodes", "status", "errors") and path[0] not in self.variables:
            facts = self._grown(facts)
            found = self._of_node(path[0], path[1], facts)
        elif found.nullable or found.variants or found.kinds & MISSING:
            facts = self._grown(facts)
        if found.variants:
            tag = (*path[:-1], "case")
            found = union(each for case, each in found.variants if _possible(case, tag, facts))
        if found.kinds & MISSING and present(path) in facts:
            found = found.without(MISSING)
        if found.nullable and not_null(path) in facts:
            return found.without(NULL)
        return found

    def _of_node(self, root: str, name: str, facts: Facts) -> Type:
        node = self.find(name)
        if node is None:
            return ANY
        output, reached = node
        statuses = self._statuses(name, node, facts)
        if root == "status":
            known = statuses - {""} if UNDER_WAY & statuses else ENDED
            return Type(TEXT | (NULL if "" in statuses else 0), known, why="it may not have run")
        if root == "errors":
            certain = statuses == {"failed"} or not_null((root, name)) in facts
            return ERROR if certain else ERROR.or_null(f"`{name}` may not have failed")
        if statuses == {"failed"}:
            return Type(NULL, why=f"`{name}` has failed")
        if self._completed(name, node, facts):
            return output.type
        return output.type.or_null(output.null if reached and output.null else f"`{name}` may be left out")

    def _statuses(self, name: str, node: tuple[Output, bool], facts: Facts) -> frozenset[str]:
        """Return the possible statuses of the node; empty text if it may not have run."""
        output, reached = node
        known = output.statuses if reached else output.statuses | {"skipped", ""}
        for fact in facts:
            if fact.path == ("status", name):
                value = "" if fact.value is None else str(fact.value)
                if fact.kind == "is":
                    return frozenset({value})
                known = known - {value}
        return known

    def _completed(self, name: str, node: tuple[Output, bool], facts: Facts) -> bool:
        output, reached = node
        if not_null(("nodes", name)) in facts or self._statuses(name, node, facts) == {"completed"}:
            return True
        return reached and (output.null is None or (output.held is not None and output.held <= facts))

    def _grown(self, facts: Facts) -> Facts:
        """Return these facts, those of this place, and those at the time the surely completed nodes ran."""
        facts |= self.facts
        pending, seen = [*facts], set[str]()
        while pending:
            fact = pending.pop()
            done = fact.kind == "not" and fact.value is None and fact.path[:1] in (("nodes",), ("errors",))
            ended = (
                fact.kind == "is" and fact.path[:1] == ("status",) and fact.value in ("completed", "failed")
            )
            if not (done or ended) or len(fact.path) < 2 or fact.path[1] in seen:
                continue
            seen.add(fact.path[1])
            node = self.find(fact.path[1])
            more = (node[0].ran - facts) if node is not None else NOTHING
            facts |= more
            pending += more
        return facts


def _possible(value: Json, path: Names, facts: Facts) -> bool:
    """True if a path can have this value where these facts hold."""
    return not any(
        fact.path == path
        and ((fact.kind == "is" and fact.value != value) or (fact.kind == "not" and fact.value == value))
        for fact in facts
    )


_SESSION = mapping_of({"id": TEXTS, "requester": REQUESTER, "flow": TEXTS})
_KNOWN: Mapping[str, Type] = {"session": _SESSION, "messages": MESSAGES, "now": MOMENTS}


def _check_names(used: Iterable[tuple[Segment, Reference]], path: Path, scope: Scope) -> Iterator[Fault]:
    """The names that the text at this path uses although they do not exist, or not yet."""
    for segment, reference in used:
        found = _check(reference, scope)
        if found is not None:
            yield _fault_in(segment, path, *found)


def _fault_in(
    segment: Segment, path: Path, message: str, hint: str | None, name: str, doubt: bool = False
) -> Fault:
    """Return the fault of a name, or another part of an expression, in the text at a path."""
    # Place of the name in the text; the whole expression if it is written with brackets.
    inside = segment.text.find(name) if name else -1
    offset, snippet = (segment.offset + inside, name) if inside >= 0 else (segment.offset, segment.text)
    return Fault(path, message, hint, offset=offset, snippet=snippet, doubt=doubt)


Wrong: TypeAlias = tuple[str, str | None, str]
"""Message, hint and the name at fault."""


def _check(reference: Reference, scope: Scope) -> Wrong | None:
    root, *rest = reference.path
    if root in scope.variables:
        return None
    match root:
        case "inputs":
            return _known(root, rest, scope.inputs.fields or (), "the flow has no input")
        case "session":
            return _known(root, rest, SESSION_FIELDS, "`session` has no field")
        case "nodes" | "status" | "errors":
            if not rest:
                message = f"`{root}` must be followed by the id of a node"
                return message, f"write `{root}.<id>`; a computed id cannot be checked", root
            return None if scope.find(rest[0]) is not None else _not_before(root, rest[0], scope)
        case "now" if scope.timeless:
            return "`now` cannot be used in a tool", "people approve a tool call exactly as it will run", root
        case "messages" | "secrets" | "now":
            return None
    return f"unknown name `{root}`", _root_hint(root, scope), root


def _known(root: str, rest: list[str], known: Any, message: str) -> Wrong | None:
    if not rest or rest[0] in known:
        return None
    close = suggest(rest[0], known)
    return f"{message} `{rest[0]}`", close, f"{root}.{rest[0]}"


def _root_hint(root: str, scope: Scope) -> str | None:
    if root in VARIABLES:
        return f"`{root}` can be used {VARIABLES[root].split(':')[0]}"
    if root in scope.places:
        return f"write `nodes.{root}`"
    if root in (scope.inputs.fields or ()):
        return f"write `inputs.{root}`"
    if root in scope.items:
        return f"it can be used in the body of `{scope.items[root]}`"
    if root in ("env", "secret"):
        return "secrets are written {{ secrets.NAME }}"
    return suggest(root, [*ROOTS, *scope.variables])


# --- why a node cannot be named --------------------------------------------------------------------------


def _not_before(root: str, name: str, scope: Scope) -> Wrong:
    where = f"{root}.{name}"
    place = scope.places.get(name)
    if place is None:
        known = scope.visible()
        hint = suggest(name, known, None if known else "no node comes before this one")
        return f"there is no node `{name}`", hint, where
    if name == scope.current:
        return f"`{name}` is this node itself", "only nodes before it can be used", where
    mine = scope.places.get(scope.current or "")
    here = () if mine is None else mine.around
    if name in (container for container, _ in here):
        return f"`{name}` contains this node", "it has an output only once it has ended", where
    told = _apart(name, place, here)
    if told is None and any(name in level.positions and level.graph for level in scope.levels):
        told = f"`{name}` may not run before this node", "an edge must lead from it to here"
    message, hint = told or (f"`{name}` runs after this node", "move it up, or use a node before this one")
    if "last" in scope.variables and name in (scope.variables["last"].fields or ()):
        hint = f"use the previous round: `last.{name}`"
    return message, hint, where


def _apart(name: str, place: Place, here: tuple[tuple[str, str], ...]) -> tuple[str, str] | None:
    """Return the reason and hint why a node in other containers is not visible here; None if they surround both."""
    for depth, (container, key) in enumerate(place.around):
        mine = here[depth] if depth < len(here) else ("", "")
        if mine == (container, key):
            continue
        if container == "finally":
            return f"`{name}` runs after this node", "`finally` runs last"
        if key == "!":
            return f"`{name}` runs only when `{container}` fails", "it can be used only in that `on_failure`"
        if mine[0] == container and mine[1] != "!":
            return f"`{name}` is in another part of `{container}`", "a node sees only its own part"
        hint = f"`nodes.{container}` has its output, or this node belongs inside too"
        return f"`{name}` is inside `{container}` and cannot be used outside it", hint
    return None


# --- texts -------------------------------------------------------------------------------------------------


def name_hint(name: str, filler: str) -> str:
    """Suggest a spelling for the name, or describe valid names."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    fixed = re.sub(r"[^a-z0-9]+", filler, words.lower().replace("_", filler)).strip(filler)
    if FLOW_NAME.fullmatch(fixed) and len(fixed) <= MAX_NAME:
        return f"write `{fixed}`"
    also = ", `_` and `-`" if filler == "-" else " and `_`"
    return f"lowercase letters, digits{also}, starting with a letter, at most {MAX_NAME} characters"


def check_values(
    value: Json,
    path: Path,
    scope: Scope,
    *,
    secrets: bool,
    record: dict[Path, Pieces] | None = None,
    exact: Places = (),
    handed_on: bool = False,
) -> Iterator[Fault]:
    """Yield the faults of expressions in a value, their names and types; in `exact` places null is an error inside a
    text, and in `handed_on` values a doubt."""
    inner = partial(check_values, scope=scope, secrets=secrets, record=record, handed_on=handed_on)
    if isinstance(value, str):
        if "{" in value or "$" in value:
            yield from check_text(
                value, path, scope, secrets=secrets, record=record, exact="" in exact, handed_on=handed_on
            )
    elif isinstance(value, dict):
        for key, item in value.items():
            if has_expression(key):
                yield Fault(
                    (*path, key),
                    "a key cannot contain expressions",
                    "use expressions in values only",
                    on_key=True,
                )
            yield from inner(item, (*path, key), exact=below(exact, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from inner(item, (*path, index), exact=exact)


def check_text(
    text: str,
    path: Path,
    scope: Scope,
    *,
    secrets: bool = False,
    only: Collection[str] = (),
    record: dict[Path, Pieces] | None = None,
    exact: bool = False,
    handed_on: bool = False,
) -> Iterator[Fault]:
    """Yield the faults of expressions in a text; with `only`, just these names may begin them."""
    bad, references = inspect_text(text, secrets=secrets)
    for error in bad:
        yield _bad(error, path)
    for segment, reference in references:
        if only and reference.path[0] not in only:
            known = " and ".join(f"`{name}`" for name in only)
            message = f"`{reference.path[0]}` cannot be used here"
            yield Fault(
                path, message, f"only {known} can be used", offset=segment.offset, snippet=segment.text
            )
        else:
            yield from _check_names([(segment, reference)], path, scope)
    for found in _FOREIGN.finditer(text):
        if found["sign"]:
            message, hint = (
                "the `$` before `{{` stays in the text",
                "expressions are written {{ ... }}; a dollar sign {{ '$' }}",
            )
        elif name := found["name"] or found["bare"]:
            message, hint = f"`{found[0]}` is not an expression and stays as it is", f"write {{{{ {name} }}}}"
        else:
            message, hint = (
                "`{# #}` is not a comment here: it stays in the text",
                "a comment of YAML begins with ` # `",
            )
        yield Fault(path, message, hint, offset=found.start(), snippet=found[0], doubt=True)
    if scope.typed and not bad:
        yield from _typed(text, path, scope, record, exact, handed_on and not exact)


_FOREIGN = re.compile(
    r"(?P<sign>\$(?=\{\{))|(?<!\$)\{#.*?#\}"
    r"|(?<!\{)[$#%]?\{ ?(?P<name>(?:inputs|nodes|status|errors|session)\.\w[\w.]*) ?\}(?!\})|\$(?P<bare>(?:inputs|nodes|status)\.\w[\w.]*)",
    re.DOTALL,
)
"""`${{ }}`, as GitHub's workflows have it, the comments of Jinja, and one of our names in the braces of others."""


def check_condition(value: Json, path: Path, scope: Scope) -> Iterator[Fault]:
    """Yield the faults of a condition and its names."""
    try:
        compile_condition(value)
    except BadExpression as error:
        yield _bad(error, path)
        return
    except ExpressionError as error:
        yield Fault(path, str(error))
        return
    if isinstance(value, str):
        yield from _check_names(inspect_text(value)[1], path, scope)
        if scope.typed:
            # The same for a condition, which must be true or false.
            from engine.language.jinja import parse_expression
            from engine.types.inference import Inference

            for part in split_text(value):
                if not isinstance(part, Segment):
                    continue
                inference = Inference(scope)
                found = inference.condition(parse_expression(part.source), NOTHING)
                for wrong in inference.wrong:
                    yield _fault_in(part, path, *wrong)
                if (
                    found.unknown
                    or not found.kinds & ~(BOOLEAN | MISSING)
                    or any(not wrong.doubt for wrong in inference.wrong)
                ):
                    continue
                may = "may give" if found.kinds & BOOLEAN else "gives"
                told = words(found.without(BOOLEAN))
                reason = because(found) if found.nullable else ""
                message = f"the condition {may} {told}{reason}, and must be true or false"
                yield _fault_in(part, path, message, _to_flag(found), "")


def _bad(error: BadExpression, path: Path) -> Fault:
    return Fault(path, error.message, error.hint, offset=error.offset, snippet=error.snippet or None)


def _typed(
    text: str, path: Path, scope: Scope, record: dict[Path, Pieces] | None, exact: bool, handed_on: bool
) -> Iterator[Fault]:
    """Yield the type faults of expressions in a text; `record` collects their types."""
    from engine.language.jinja import parse_expression
    from engine.types.inference import NO_PART_OF_TEXT, Inference

    pieces: Pieces = []
    parts = split_text(text)
    for part in parts:
        if not isinstance(part, Segment):
            pieces.append(part)
            continue
        inference, tree = Inference(scope, exact=exact or handed_on), parse_expression(part.source)
        found = inference.of(tree)
        if (exact or handed_on) and (record is None or only_expression(parts) is None):
            found = inference.present(tree, found, NO_PART_OF_TEXT)
        pieces.append(found)
        for wrong in inference.wrong:
            if handed_on and wrong.message.endswith(NO_PART_OF_TEXT):
                message = wrong.message.replace(NO_PART_OF_TEXT, "then appears in the text as `null`")
                wrong = wrong._replace(message=message, doubt=True)
            yield _fault_in(part, path, *wrong)
    if record is not None:
        record[path] = pieces


def _to_flag(found: Type) -> str | None:
    if found.kinds & (LIST | MAPPING):
        return "test how much is in it: `... | length > 0`"
    if found.kinds & TEXT and found.nullable:
        return "test whether it is set: `... is not none`"
    if found.kinds & TEXT:
        return "compare it: `... == 'yes'`, `... != ''`"
    return "compare it: `... > 0`" if found.kinds & NUMBER else "compare it with true: `... == true`"
