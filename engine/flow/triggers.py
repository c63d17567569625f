"""Triggers of a flow: patterns (`rollback {service} in {region}`), reactions, schedules, webhooks. Checks them, and
converts each to the value that the flow carries."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from engine.flow.document import TriggerDoc
from engine.flow.input_document import InputDoc
from engine.flow.inputs import check_value, to_text
from engine.flow.model import Trigger, TriggerKind
from engine.language.codec import Json
from engine.language.diagnostics import Fault, faults_under, suggest
from engine.language.template import has_expression
from engine.language.working_hours import known_zone

KINDS: tuple[TriggerKind, ...] = ("mention", "message", "reaction", "shortcut", "schedule", "webhook")
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "channels": ("message", "reaction"),
    "from_bots": ("message",),
    "dedupe": ("message",),
    "dedupe_by": ("message",),
    "message_as": ("message", "reaction", "shortcut"),
    "link_as": ("message", "reaction", "shortcut"),
    "channel": ("schedule", "webhook"),
    "timezone": ("schedule",),
    "missed": ("schedule",),
    "verify": ("webhook",),
    "secret": ("webhook",),
    "body_as": ("webhook",),
    "events": ("webhook",),
}
"""Kinds that a field belongs to; `inputs` belongs to all."""

_PLACE = re.compile(r"\{([^{}]*)\}")
_EMOJI = re.compile(r"[a-z0-9_+'-]{1,100}", re.ASCII)
_HOOK = re.compile(r"[a-z0-9][a-z0-9-]{0,63}", re.ASCII)
_WORDS = ("mention", "message")
_ALONE = ("schedule", "webhook")
"""Kinds that start the flow without a requester."""


class Given(NamedTuple):
    """Inputs of a flow's file: all names, and the documents of the valid ones."""

    names: Collection[str]
    documents: Mapping[str, InputDoc]


def trigger_of(document: TriggerDoc) -> Trigger:
    """The trigger of a document that has passed every check."""
    kind = next(kind for kind in KINDS if getattr(document, kind) is not None)
    pattern = str(getattr(document, kind))
    said: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in document.model_dump(include=set(_FIELDS)).items()
    }
    inputs = trigger_inputs(pattern) if kind in _WORDS else ()
    return Trigger(kind, pattern, inputs, document.inputs, **said)


def trigger_inputs(pattern: str) -> tuple[str, ...]:
    """The inputs that a pattern fills, in order."""
    return tuple(place.strip() for place in _PLACE.findall(pattern))


def words_of(pattern: str, place: str = "") -> str:
    """A pattern with this instead of its places."""
    return _PLACE.sub(place, pattern)


def check_trigger(raw: Mapping[str, Any], given: Given) -> Iterator[Fault]:
    """Yield the faults of a trigger beyond the shape of its fields."""
    kinds = [kind for kind in KINDS if raw.get(kind) is not None]
    if len(kinds) != 1:
        message = "a trigger needs one of " + ", ".join(f"`{kind}`" for kind in KINDS)
        yield Fault((kinds[1],) if kinds else (), message, on_key=bool(kinds))
        return
    kind = kinds[0]
    for field, owners in _FIELDS.items():
        if field in raw and kind not in owners:
            right = "it is for " + " and ".join(f"`{name}`" for name in owners)
            yield Fault((field,), f"`{field}` is not for `{kind}`", right, on_key=True)
    pattern = raw[kind]
    filled: set[str] = set()
    if isinstance(pattern, str) and pattern:
        yield from faults_under((kind,), _PATTERNS[kind](pattern, given.names))
        if kind in _WORDS:
            filled = set(trigger_inputs(pattern))
    # Check that every input a trigger fills is one of the flow's, of a fitting type, and filled once.
    for field in ("message_as", "link_as"):
        text_input = raw.get(field)
        if isinstance(text_input, str):
            yield from _typed_input(field, text_input, "string", filled, given)
            filled.add(text_input)
    if isinstance(raw.get("body_as"), str):
        yield from _typed_input("body_as", raw["body_as"], "object", filled, given)
        filled.add(raw["body_as"])
    by = raw.get("dedupe_by")
    for index, alike in enumerate(by if isinstance(by, list) else []):
        if isinstance(alike, str) and alike not in filled:
            hint = suggest(alike, filled, "name an input that the trigger sets")
            yield Fault(("dedupe_by", index), f"the trigger does not set an input `{alike[:80]}`", hint)
    if by is not None and raw.get("dedupe") is None:
        yield Fault(("dedupe_by",), "`dedupe_by` needs `dedupe`, a time", on_key=True)
    values = raw.get("inputs")
    for name, value in values.items() if isinstance(values, dict) else ():
        yield from _value(name, value, filled, given)
    if kind == "schedule":
        # A schedule has a known time zone.
        zone = raw.get("timezone")
        if isinstance(zone, str) and not known_zone(zone):
            yield Fault(
                ("timezone",), f"{zone[:80]!r} is not a time zone", "write one such as `Europe/Berlin`"
            )
    if kind == "webhook" and raw.get("secret") is None:
        yield Fault((), "a webhook needs `secret`, the name of a secret", "write `secret: DEPLOY_HOOK`")
    if kind in _ALONE:
        yield from _alone(kind, raw, given)


# --- patterns --------------------------------------------------------------------------------------------


def check_words(pattern: str, inputs: Collection[str]) -> Iterator[Fault]:
    """Yield the faults of a pattern of words, given the inputs of the flow."""
    words = _PLACE.sub("\0", pattern)
    if "{" in words or "}" in words:
        yield Fault((), "a brace without its counterpart", "write an input in the pattern as {name}")
        return
    if not words.replace("\0", "").replace("*", "").strip():
        yield Fault((), "a trigger needs at least one word beside its inputs")
    if re.search("\0\\s*[\0*]|\\*\\s*\0", words):
        between = "put a word between them, so that it is clear where one ends"
        yield Fault((), "two inputs follow each other", between)
    named = trigger_inputs(pattern)
    for place in dict.fromkeys(named):
        if place not in inputs:
            hint = suggest(place, inputs, "use the name of one of the flow's inputs")
            yield Fault((), f"the flow has no input `{place}`", hint, offset=0, snippet="{" + place + "}")
        elif named.count(place) > 1:
            yield Fault((), f"the input `{place}` appears twice")


def _emoji(name: str, inputs: Collection[str]) -> Iterator[Fault]:
    if not _EMOJI.fullmatch(name):
        yield Fault((), f"{name[:80]!r} is not an emoji name", "write it without colons: `rotating_light`")


def _anything(pattern: str, inputs: Collection[str]) -> Iterator[Fault]:
    if len(pattern) > 75:
        yield Fault((), "the name shown in the shortcut's list can have at most 75 characters")


def _hook(name: str, inputs: Collection[str]) -> Iterator[Fault]:
    if not _HOOK.fullmatch(name):
        yield Fault(
            (),
            f"{name[:80]!r} is not a valid webhook name",
            "use letters, digits and -; the name becomes part of the URL, /hooks/NAME",
        )


def _cron(expression: str, inputs: Collection[str]) -> Iterator[Fault]:
    from cronsim import CronSim, CronSimError

    hint = "minute hour day-of-month month day-of-week, such as `0 9 * * mon-fri`"
    if len(expression.split()) != 5:
        yield Fault((), f"a schedule has five fields, but this one has {len(expression.split())}", hint)
        return
    try:
        next(CronSim(expression, datetime(2026, 1, 1, tzinfo=UTC)))
    except CronSimError as error:
        yield Fault((), f"not a valid schedule: {error}", hint)
    except StopIteration:
        yield Fault((), "this schedule never occurs", hint)


_PATTERNS = {
    "mention": check_words,
    "message": check_words,
    "reaction": _emoji,
    "shortcut": _anything,
    "schedule": _cron,
    "webhook": _hook,
}


# --- inputs ----------------------------------------------------------------------------------------------


def _typed_input(field: str, name: str, kind: str, filled: set[str], given: Given) -> Iterator[Fault]:
    if name not in given.names:
        hint = suggest(name, given.names, "use the name of one of the flow's inputs")
        yield Fault((field,), f"the flow has no input `{name[:80]}`", hint)
    elif name in filled:
        yield Fault((field,), f"the input `{name}` is already set")
    elif name in given.documents and given.documents[name].type != kind:
        gives = "text" if kind == "string" else "an object"
        yield Fault((field,), f"`{field}` gives {gives}, and the input `{name}` takes something else")


def _value(name: str, value: Json, filled: set[str], given: Given) -> Iterator[Fault]:
    path = ("inputs", name)
    if name not in given.names:
        hint = suggest(name, given.names, "use the name of one of the flow's inputs")
        yield Fault(path, f"the flow has no input `{name[:80]}`", hint, on_key=True)
        return
    if name in filled:
        yield Fault(path, f"the input `{name}` is already set", on_key=True)
    if has_expression(value):
        yield Fault(
            path, "a value of a trigger cannot contain expressions", "compute it in a node of type `set`"
        )
        return
    document = given.documents.get(name)
    if document is not None:
        problem = check_value(document.as_input(name), value)
        if problem is not None:
            yield Fault(path, problem, to_text(problem, value))


def _alone(kind: str, raw: Mapping[str, Any], given: Given) -> Iterator[Fault]:
    """Check that a trigger without a person has a channel, and gives every required input."""
    if raw.get("channel") is None:
        yield Fault((), f"a {kind} needs `channel`, the channel of its runs", 'write `channel: "#ops"`')
    values = raw.get("inputs") if isinstance(raw.get("inputs"), dict) else {}
    for name, document in given.documents.items():
        if document.is_required and name not in (values or {}) and name != raw.get("body_as"):
            hint = f"write it under `inputs` of the trigger, or give `{name}` a default"
            yield Fault((kind,), f"nothing sets the input `{name}`", hint)
