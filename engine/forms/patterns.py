"""Patterns that answer soon: a regular expression that could take for ever on some text is refused with the flow.

A bot that compares what people type has no time limit for it. What costs without bound is a repeat inside a repeat
(`(a+)+`), or alternatives inside one (`(a|aa)+`), where the same text can be split in many ways. A repeat inside a
repeat is sound where each round begins or ends with a character that the inner repeat cannot take: `(-[a-z]+)*`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any

from engine.language.codec import Json
from engine.language.diagnostics import kind_of

MOST_PATTERN = 500

_parser: Any = importlib.import_module("re._parser")
"""Python's own parser of patterns. It is not documented, so what it cannot say is treated as unsound."""
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT")
_MANY = 10
"""Rounds of a repeat that cost nothing to speak of, however they are split."""


def pattern_problem(pattern: Json) -> str | None:
    """Why a text cannot be a field's pattern; None where it can."""
    if not isinstance(pattern, str) or not pattern:
        return f"expected a regular expression, not {kind_of(pattern)}"
    if len(pattern) > MOST_PATTERN:
        return f"a pattern has at most {MOST_PATTERN} characters"
    try:
        re.compile(pattern)
        tree = _parser.parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"this is no regular expression: {error}"
    if any(_splits(inner) for most, inner in _repeats(tree) if most > _MANY):
        return "this pattern could take for ever on some texts: it repeats what repeats itself"
    return None


def _repeats(tree: Any) -> Iterator[tuple[int, Any]]:
    """Every repeat in a pattern, with the most rounds that it takes."""
    for operator, argument in tree:
        if str(operator) in _REPEATS:
            yield int(argument[1]), argument[2]
        for part in _parts(argument):
            yield from _repeats(part)


def _parts(argument: Any) -> Iterator[Any]:
    """The patterns inside an operator's argument."""
    if isinstance(argument, _parser.SubPattern):
        yield argument
    elif isinstance(argument, tuple | list):
        for part in argument:
            yield from _parts(part)


def _flat(tree: Any) -> list[tuple[str, Any]]:
    """A sequence with its plain groups opened."""
    found: list[tuple[str, Any]] = []
    for operator, argument in tree:
        if str(operator) == "SUBPATTERN":
            found += _flat(argument[-1])
        else:
            found.append((str(operator), argument))
    return found


def _splits(tree: Any) -> bool:
    """Whether rounds of this can share out one text in many ways."""
    sequence = _flat(tree)
    if any(operator in ("BRANCH", "GROUPREF", "GROUPREF_EXISTS") for operator, _ in sequence):
        return True
    inner = [
        argument for operator, argument in sequence if operator in _REPEATS and argument[0] != argument[1]
    ]
    if not inner:
        return False
    taken = [part for argument in inner for part in _flat(argument[2])]
    if any(operator not in ("LITERAL", "IN", "NOT_LITERAL", "ANY") for operator, _ in taken):
        return True
    ends = [sequence[0], sequence[-1]]
    fixed = [chr(argument) for operator, argument in ends if operator == "LITERAL"]
    return not any(not any(_one(*part, char) for part in taken) for char in fixed)


def _one(operator: str, argument: Any, char: str) -> bool:
    if operator == "LITERAL":
        return chr(argument) == char
    if operator == "NOT_LITERAL":
        return chr(argument) != char
    if operator == "ANY":
        return True
    negated = any(str(kind) == "NEGATE" for kind, _ in argument)
    return negated != any(_member(str(kind), value, char) for kind, value in argument)


def _member(kind: str, value: Any, char: str) -> bool:
    if kind == "LITERAL":
        return chr(value) == char
    if kind == "RANGE":
        return bool(value[0] <= ord(char) <= value[1])
    if kind == "CATEGORY":
        name = str(value)
        sign = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}.get(name.rsplit("_", 1)[-1], ".")
        return bool(re.fullmatch(sign, char)) != ("NOT" in name)
    return False
