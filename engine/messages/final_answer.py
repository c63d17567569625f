"""The last answer of an agent that has to be JSON: found in its text, and checked. Pure."""

from __future__ import annotations

import re

from engine.language.codec import Json, decode
from engine.language.errors import NotJson
from engine.language.json_schema import problems

_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?```", re.DOTALL)
_MOST = 600


def data_in(text: str) -> tuple[Json, str | None]:
    """The JSON that a text is, or has in its last fence; and what is wrong where there is none."""
    fences = _FENCE.findall(text)
    for candidate in (text.strip(), *reversed(fences)):
        try:
            return decode(candidate.encode()), None
        except NotJson:
            continue
    return None, "it is no JSON"


def problem_of(schema: Json, text: str) -> str | None:
    """What keeps a text from being the answer that was asked for; None where nothing does."""
    data, problem = data_in(text)
    if problem is not None:
        return problem
    return "; ".join(problems(schema, data))[:_MOST] or None
