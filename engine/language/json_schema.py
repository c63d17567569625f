"""JSON Schema: what is wrong with a value that should fit one, in words for whoever gave it. Pure.

The library for it is loaded by the first use. It fetches nothing: a `$ref` leads to a place in the same schema.
"""

from __future__ import annotations

import json
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from engine.language.codec import Json, canonical

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator, ValidationError

MOST_PROBLEMS = 5
_LONGEST = 300


def problems(schema: Json, value: Json) -> list[str]:
    """Why a value does not fit a schema: a few short sentences, the outermost first; nothing when it fits."""
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    found: list[ValidationError] = []
    try:
        found.extend(islice(_validator(canonical(schema)).iter_errors(value), 50))
    except (Unresolvable, RecursionError) as error:
        return [f"the schema cannot be used: {str(error)[:_LONGEST]}"]
    found.sort(key=lambda error: (len(error.path), [str(part) for part in error.path]))
    told = [_problem(best_match([error]) or error) for error in found[:MOST_PROBLEMS]]
    more = len(found) - MOST_PROBLEMS
    return [*dict.fromkeys(told), *([f"and {more} more"] if more > 0 else [])]


@lru_cache(maxsize=64)
def _validator(schema: bytes) -> Draft202012Validator:
    from jsonschema import Draft202012Validator
    from referencing import Registry

    # An empty registry: without one the library would fetch what a `$ref` names.
    return Draft202012Validator(json.loads(schema), registry=Registry())


def _problem(error: ValidationError) -> str:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    text: str = " ".join(error.message.split())
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"
    return f"{where.lstrip('.')[:100]}: {text}" if where else text
