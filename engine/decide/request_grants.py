"""Calls of an agent outside of sayso that people allow for a time, as they approve one of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from engine.language.codec import Json, canonical
from engine.language.errors import InvalidAnswer
from engine.language.patterns import fits

SCOPES = ("place", "thread")
"""Scopes of such a grant: the folder from which the agent asked, or its session."""
MOST_SECONDS = 30 * 86400.0


def acted_on(tool: str, arguments: Mapping[str, Json]) -> dict[str, Json]:
    """The arguments without words that the agent writes about its call."""
    return {name: value for name, value in arguments.items() if (tool, name) != ("Bash", "description")}


def checked(given: Mapping[str, Json], asked: Json) -> dict[str, Json]:
    """Return the requested grant, `{seconds, patterns, scope}`, as it is voted on. Raises `InvalidAnswer` unless it matches
    the call being approved."""
    wanted = asked if isinstance(asked, dict) else {}
    seconds, patterns, scope = wanted.get("seconds"), wanted.get("patterns") or {}, wanted.get("scope")
    if not isinstance(seconds, int | float) or not 0 < seconds <= MOST_SECONDS or scope not in SCOPES:
        raise InvalidAnswer(
            "Calls are allowed for at most 30 days, for a place or a thread. Nothing was decided."
        )
    for name, pattern in patterns.items():
        value = given.get(name)
        says = isinstance(pattern, str) and pattern.replace("*", "").strip()
        if not says or not isinstance(value, str) or not fits(pattern, value, True):
            raise InvalidAnswer(f"`{name}`: this call does not match that pattern. Nothing was decided.")
    fields: dict[str, Json] = {name: {"is": value} for name, value in given.items() if name not in patterns}
    return {
        "seconds": seconds,
        "fields": fields | {n: {"like": p} for n, p in patterns.items()},
        "scope": scope,
    }


def matches(tool: str, fields: Mapping[str, Json], given: Mapping[str, Json]) -> bool:
    """True if each argument of a call is as it was allowed, and there is no other."""
    wanted, arguments = acted_on(tool, fields), acted_on(tool, given)
    return wanted.keys() == arguments.keys() and all(
        fits(one["like"], arguments[name], True)
        if "like" in one
        else canonical(one["is"]) == canonical(arguments[name])
        for name, one in wanted.items()
    )
