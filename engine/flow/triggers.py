"""Patterns of triggers: words, and inputs in braces (`rollback {service} in {region}`)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from engine.faults import Fault, suggest

_PLACE = re.compile(r"\{([^{}]*)\}")


def trigger_inputs(mention: str) -> tuple[str, ...]:
    """The inputs that a pattern fills, in order."""
    return tuple(place.strip() for place in _PLACE.findall(mention))


def check_mention(mention: str, inputs: Collection[str]) -> Iterator[Fault]:
    """What is wrong with a pattern, given the inputs that the flow has."""
    words = _PLACE.sub("\0", mention)
    if "{" in words or "}" in words:
        yield Fault((), "a brace without its partner", "an input stands in the pattern as {name}")
        return
    if not words.replace("\0", "").strip():
        yield Fault((), "a trigger needs at least one word beside its inputs")
    if re.search("\0\\s*\0", words):
        yield Fault(
            (), "two inputs follow each other", "put a word between them, so that it is clear which is which"
        )
    named = trigger_inputs(mention)
    for place in dict.fromkeys(named):
        if place not in inputs:
            hint = suggest(place, inputs, "name one of the flow's inputs")
            yield Fault((), f"the flow has no input `{place}`", hint, offset=0, snippet="{" + place + "}")
        elif named.count(place) > 1:
            yield Fault((), f"the input `{place}` stands here twice")
