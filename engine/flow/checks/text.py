"""Names, and expressions in texts: what is wrong with them, in the words that a flow's author reads."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from engine.flow.checks.visibility import Scope, check_names, fault_in
from engine.language.codec import Json
from engine.language.diagnostics import Fault, Path
from engine.language.errors import ExpressionError
from engine.language.expressions import compile_condition, inspect_text
from engine.language.template import BadExpression, Segment, has_expression, split_text
from engine.nodes.types.fields import FLOW_NAME, MAX_NAME
from engine.types.facts import NOTHING
from engine.types.lattice import BOOLEAN, LIST, MAPPING, MISSING, NUMBER, TEXT, Type, words
from engine.types.pieces import Pieces


def name_hint(name: str, filler: str) -> str:
    """How the name could be written, or what a name is."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    fixed = re.sub(r"[^a-z0-9]+", filler, words.lower().replace("_", filler)).strip(filler)
    if FLOW_NAME.fullmatch(fixed) and len(fixed) <= MAX_NAME:
        return f"write `{fixed}`"
    also = ", `_` and `-`" if filler == "-" else " and `_`"
    return f"small letters, digits{also}, a letter first, at most {MAX_NAME} characters"


def check_values(
    value: Json, path: Path, scope: Scope, *, secrets: bool, record: dict[Path, Pieces] | None = None
) -> Iterator[Fault]:
    """What is wrong with the expressions in a value, with the names that they use and with their types."""
    if isinstance(value, str):
        if "{{" in value or "{%" in value:
            yield from check_text(value, path, scope, secrets=secrets, record=record)
    elif isinstance(value, dict):
        for key, item in value.items():
            if has_expression(key):
                yield Fault(
                    (*path, key), "a key is not evaluated", "expressions stand in values", on_key=True
                )
            yield from check_values(item, (*path, key), scope, secrets=secrets, record=record)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from check_values(item, (*path, index), scope, secrets=secrets, record=record)


def check_text(
    text: str,
    path: Path,
    scope: Scope,
    *,
    secrets: bool = False,
    only: Collection[str] = (),
    record: dict[Path, Pieces] | None = None,
) -> Iterator[Fault]:
    """What is wrong with the expressions of a text; `only` these names may stand at their beginnings, if it is given."""
    bad, references = inspect_text(text, secrets=secrets)
    for error in bad:
        yield _bad(error, path)
    for segment, reference in references:
        if only and reference.path[0] not in only:
            known = " and ".join(f"`{name}`" for name in only)
            message = f"`{reference.path[0]}` is not known here"
            yield Fault(path, message, f"only {known} are", offset=segment.offset, snippet=segment.text)
        else:
            yield from check_names([(segment, reference)], path, scope)
    if scope.typed and not bad:
        yield from _typed(text, path, scope, record)


def check_condition(value: Json, path: Path, scope: Scope) -> Iterator[Fault]:
    """What is wrong with a condition, and with the names that it uses."""
    try:
        compile_condition(value)
    except BadExpression as error:
        yield _bad(error, path)
        return
    except ExpressionError as error:
        yield Fault(path, str(error))
        return
    if isinstance(value, str):
        yield from check_names(inspect_text(value)[1], path, scope)
        if scope.typed:
            yield from _typed_condition(value, path, scope)


def _bad(error: BadExpression, path: Path) -> Fault:
    return Fault(path, error.message, error.hint, offset=error.offset, snippet=error.snippet or None)


def _typed(text: str, path: Path, scope: Scope, record: dict[Path, Pieces] | None) -> Iterator[Fault]:
    """What is wrong with the types in the expressions of a text; `record` is told what they give."""
    from engine.language.jinja import parse_expression
    from engine.types.inference import Inference

    pieces: Pieces = []
    for part in split_text(text):
        if not isinstance(part, Segment):
            pieces.append(part)
            continue
        inference = Inference(scope)
        pieces.append(inference.of(parse_expression(part.source)))
        for wrong in inference.wrong:
            yield fault_in(part, path, *wrong)
    if record is not None:
        record[path] = pieces


def _typed_condition(text: str, path: Path, scope: Scope) -> Iterator[Fault]:
    """The same for a condition, which must be true or false."""
    from engine.language.jinja import parse_expression
    from engine.types.inference import Inference

    for part in split_text(text):
        if not isinstance(part, Segment):
            continue
        inference = Inference(scope)
        found = inference.condition(parse_expression(part.source), NOTHING)
        for wrong in inference.wrong:
            yield fault_in(part, path, *wrong)
        if found.unknown or not found.kinds & ~(BOOLEAN | MISSING) or inference.wrong:
            continue
        may = "may give" if found.kinds & BOOLEAN else "gives"
        told = words(found.without(BOOLEAN))
        because = f" ({found.why})" if found.nullable and found.why else ""
        message = f"the condition {may} {told}{because}, and must be true or false"
        yield fault_in(part, path, message, _to_flag(found), "")


def _to_flag(found: Type) -> str | None:
    if found.kinds & (LIST | MAPPING):
        return "ask how much is in it: `... | length > 0`"
    if found.kinds & TEXT:
        return "compare it: `... == 'yes'`, `... != ''`"
    return "compare it: `... > 0`" if found.kinds & NUMBER else "compare it with true: `... == true`"
