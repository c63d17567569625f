"""What hangs together in a flow: names, ids, node types, and every name that an expression uses.

Works on the raw data, in which anything may be missing or of the wrong type: the shape was checked elsewhere,
and a problem there must not hide the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from engine.codec import Json
from engine.errors import ExpressionError
from engine.expression_text import BadExpression, has_expression
from engine.expressions import compile_condition, inspect_text
from engine.faults import Fault, Path, suggest
from engine.flow.document import InputDoc
from engine.flow.inputs import check_value
from engine.flow.model import Input
from engine.flow.names import Scope, check_names
from engine.flow.triggers import check_mention
from engine.nodes.configs import NAME
from engine.nodes.specs import NodeSpec, node_types

FLOW_NAME = re.compile(r"[a-z][a-z0-9_-]*", re.ASCII)

_ROOT_WORDS = {"nodes", "inputs", "status", "errors", "messages", "secrets", "session"}
_BODY_WORDS = {"index", "item", "last", "finally"}
_LANGUAGE_WORDS = {"range", "true", "false", "none", "null", "not", "and", "or", "in", "is", "if", "else"}
RESERVED_IDS = frozenset(_ROOT_WORDS | _BODY_WORDS | _LANGUAGE_WORDS)
"""Words that mean something in expressions or paths and cannot be the id of a node."""

MAX_NAME = 64


def check_flow(data: Mapping[str, Any]) -> Iterator[Fault]:
    """Everything that is wrong beyond the shape of the document."""
    yield from _flow_name(data.get("flow"))
    inputs = _mapping(data.get("inputs"))
    for name, entry in inputs.items():
        yield from _input(name, entry)
    for index, trigger in enumerate(_list(data.get("triggers"))):
        mention = _mapping(trigger).get("mention")
        if isinstance(mention, str) and mention:
            for fault in check_mention(mention, inputs):
                yield fault.under(("triggers", index, "mention"))
    yield from _nodes(_list(data.get("nodes")), inputs)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _flow_name(name: Any) -> Iterator[Fault]:
    if isinstance(name, str) and name and (not FLOW_NAME.fullmatch(name) or len(name) > MAX_NAME):
        yield Fault(("flow",), f"{name[:80]!r} is no name for a flow", _name_hint(name, "-"))


def _name_hint(name: str, filler: str) -> str:
    """How the name could be written, or what a name is."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    fixed = re.sub(r"[^a-z0-9]+", filler, words.lower().replace("_", filler)).strip(filler)
    if FLOW_NAME.fullmatch(fixed) and len(fixed) <= MAX_NAME:
        return f"write `{fixed}`"
    also = ", `_` and `-`" if filler == "-" else " and `_`"
    return f"small letters, digits{also}, a letter first, at most {MAX_NAME} characters"


# --- inputs ----------------------------------------------------------------------------------------------


def _input(name: str, entry: Any) -> Iterator[Fault]:
    path: Path = ("inputs", name)
    if not NAME.fullmatch(name) or len(name) > MAX_NAME:
        yield Fault(path, f"{name[:80]!r} is no name for an input", _name_hint(name, "_"), on_key=True)
    try:
        document = InputDoc.model_validate(entry)
    except ValueError:
        # Its shape is wrong, which is reported already.
        return
    yield from _input_values(path, name, document)


def _input_values(path: Path, name: str, document: InputDoc) -> Iterator[Fault]:
    given = document.model_fields_set
    items = document.items.type if document.items is not None else None
    if items is not None and document.type != "array":
        yield Fault(
            (*path, "items"), f"`items` is for arrays, and this input is of type {document.type}", on_key=True
        )
    if document.required and "default" in given:
        yield Fault(
            (*path, "required"), "an input with a `default` is never missing, so it cannot be required"
        )
    choices = _choices(document)
    for position, choice in enumerate(choices or ()):
        kind = (items or "string") if document.type == "array" else document.type
        problem = check_value(Input(name, kind), choice)
        if problem is not None:
            yield Fault((*path, "choices", position), problem)
    if "default" not in given or (document.default is None and document.required is False):
        return
    if has_expression(document.default):
        yield Fault((*path, "default"), "a default is not evaluated", "compute it in a node of type `set`")
        return
    problem = check_value(Input(name, document.type, items=items, choices=choices), document.default)
    if problem is not None:
        yield Fault((*path, "default"), f"the default does not fit: {problem}")


def _choices(document: InputDoc) -> tuple[Json, ...] | None:
    return None if document.choices is None else tuple(document.choices)


# --- nodes -----------------------------------------------------------------------------------------------


def _nodes(nodes: list[Any], inputs: Mapping[str, Any]) -> Iterator[Fault]:
    scope = Scope(inputs=frozenset(inputs))
    scope.later = _all_ids(nodes)
    for index, node in enumerate(nodes):
        if not isinstance(node, dict):
            continue
        path: Path = ("nodes", index)
        for fault in _node(node, scope):
            yield fault.under(path)
        scope.passed(node)


def _all_ids(nodes: list[Any]) -> dict[str, int]:
    return {
        node["id"]: index
        for index, node in reversed(list(enumerate(nodes)))
        if isinstance(node, dict) and isinstance(node.get("id"), str)
    }


def _node(node: Mapping[str, Any], scope: Scope) -> Iterator[Fault]:
    yield from _node_id(node.get("id"), scope)
    if node.get("retry") is not None and node.get("on_crash") is not None:
        yield Fault(("retry",), "`retry` is short for `on_crash`", "keep one of them", on_key=True)
    for field in ("name", "timeout"):
        if has_expression(node.get(field)):
            yield Fault(
                (field,),
                f"`{field}` of a node is not evaluated",
                "expressions stand under `with` and in `if`",
            )
    if node.get("if") is not None:
        yield from _condition(node["if"], scope)
    kind = node.get("type")
    if not isinstance(kind, str) or not kind:
        return
    spec = node_types().get(kind)
    if spec is None:
        yield Fault(("type",), f"unknown node type `{kind[:80]}`", suggest(kind, node_types()))
        return
    if node.get("timeout") is not None and spec.mode != "run":
        hint = "write it under `with`" if "timeout" in spec.field_names() else None
        yield Fault(("timeout",), f"a node of type `{kind}` takes no `timeout` here", hint, on_key=True)
    yield from _with(node, spec, scope)


def _node_id(name: Any, scope: Scope) -> Iterator[Fault]:
    if not isinstance(name, str) or not name:
        return
    if not NAME.fullmatch(name) or len(name) > MAX_NAME:
        yield Fault(("id",), f"{name[:80]!r} is no id for a node", _name_hint(name, "_"))
    elif name in RESERVED_IDS:
        yield Fault(
            ("id",), f"`{name}` is a word of the flow language and cannot be an id", f"write `{name}_step`"
        )
    elif name in scope.before:
        yield Fault(("id",), f"the id `{name}` is taken by a node before", "give it another one")


def _with(node: Mapping[str, Any], spec: NodeSpec, scope: Scope) -> Iterator[Fault]:
    raw = node.get("with")
    if raw is not None and not isinstance(raw, dict):
        return
    with_: Mapping[str, Json] = raw or {}
    for fault in spec.check(with_):
        yield (
            fault.under(("with",))
            if raw is not None
            else replace(fault, message=f"{fault.message} under `with`")
        )
    for field, value in with_.items():
        if field not in spec.verbatim_fields:
            yield from _expressions(value, ("with", field), scope, secrets=field in spec.secret_fields)


def _expressions(value: Json, path: Path, scope: Scope, *, secrets: bool) -> Iterator[Fault]:
    """What is wrong with the expressions in a value, and with the names that they use."""
    if isinstance(value, str):
        if "{{" in value or "{%" in value:
            yield from _text(value, path, scope, secrets=secrets)
    elif isinstance(value, dict):
        for key, item in value.items():
            if has_expression(key):
                yield Fault(
                    (*path, key), "a key is not evaluated", "expressions stand in values", on_key=True
                )
            yield from _expressions(item, (*path, key), scope, secrets=secrets)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _expressions(item, (*path, index), scope, secrets=secrets)


def _text(text: str, path: Path, scope: Scope, *, secrets: bool) -> Iterator[Fault]:
    bad, references = inspect_text(text, secrets=secrets)
    for error in bad:
        yield _bad(error, path)
    yield from check_names(references, path, scope)


def _condition(value: Json, scope: Scope) -> Iterator[Fault]:
    try:
        compile_condition(value)
    except BadExpression as error:
        yield _bad(error, ("if",))
        return
    except ExpressionError as error:
        yield Fault(("if",), str(error))
        return
    if isinstance(value, str):
        yield from check_names(inspect_text(value)[1], ("if",), scope)


def _bad(error: BadExpression, path: Path) -> Fault:
    return Fault(path, error.message, error.hint, offset=error.offset, snippet=error.snippet or None)
