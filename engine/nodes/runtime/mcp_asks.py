"""Questions of an MCP server to people in the middle of a call (elicitation): forms and addresses, converted to our
prompts, and the answers, converted for the server.

A call that asks leaves its node (`Interrupted("asks")`). Its state is journaled, and its next attempt gets it with the
answers: the server receives only what is in the journal. `{server, asks, answers, state, rounds, before}`: `asks` are
the questions of this round, `{key, message, form, names}` or `{key, message, url}`; `answers` people's by key,
`{action, values}`, put there by the fold; `state` is the server's own and goes back unchanged; `before` are earlier
rounds, `{digest, answers}`. With `open` the call itself is still open in the process that made it.

A server forgets its state after some minutes. The call is then made again, without one; a question that is the same as
before has its answer already (`again` counts them), any other one is asked, with the reason.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import chain, count
from typing import Any

from engine.forms import normalize_form
from engine.forms.formats import FORMATS
from engine.language.codec import Json, canonical
from engine.nodes.runtime.runner import Failed, Interrupted, Outcome
from engine.nodes.types.addresses import host_allowed, is_disguised, parsed

MOST_ROUNDS = 10
"""Most rounds of questions in one call."""
OPEN_SECONDS = 120
"""Seconds for which a call stays open while people are asked."""

_MOST_FORGOTTEN = 3
"""Number of times the server may forget its state before people have answered a new question."""

FORGOTTEN = "The server lost its earlier request and now asks for something else."


class Unaskable(Exception):
    """A request that cannot be put to people; the message says why."""


def asks(requests: Mapping[str, Any], hosts: Iterable[str], told: Callable[[str], str]) -> list[Json]:
    """Convert a server's questions to prompts; `told` cleans its text for display. Raises `Unaskable`."""
    for method in (request.method for request in requests.values()):
        if method != "elicitation/create":
            raise Unaskable(f"it asks for {told(method)}, which is refused: a server can only ask people")
    return [question(key, request.params, tuple(hosts), told) for key, request in requests.items()]


def question(key: str, params: Any, hosts: tuple[str, ...], told: Callable[[str], str]) -> dict[str, Json]:
    """Convert one question."""
    asked: dict[str, Json] = {"key": key, "message": told(params.message)[:3_000]}
    if params.mode == "url":
        # The whole address, with nothing that could hide a part of it.
        try:
            url = parsed(params.url)
            host = url.host or ""
        except ValueError as error:
            raise Unaskable(f"it asks to open an invalid address: {error}") from error
        if url.scheme not in ("https", "http") or url.user is not None or is_disguised(host):
            raise Unaskable("it asks to open something other than a plain web address")
        if not host_allowed(host, url.port, hosts):
            raise Unaskable(
                f"it asks to open a page of {host[:200]}, but SAYSO_LINK_HOSTS does not list that host"
            )
        link = str(url).translate({ord(sign): f"%{ord(sign):02X}" for sign in "<>|`"})
        return {**asked, "url": link}
    form, names = _form(params.requested_schema, told)
    return {**asked, "form": form, "names": names}


_PLAIN = (
    "type",
    "title",
    "description",
    "default",
    "minLength",
    "maxLength",
    "pattern",
    "minimum",
    "maximum",
)
_CHOICE = ("enum", "enumNames", "oneOf", "minItems", "maxItems")


_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9_]+")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)


def _form(schema: Mapping[str, Any], told: Callable[[str], str]) -> tuple[Json, dict[str, Json]]:
    """Return the form for a flat schema, and the server's name of each field."""
    properties = schema.get("properties") or {}
    if not properties:
        return None, {}
    names = dict[str, str]()
    for number, name in enumerate(properties, 1):
        plain = _HUMP.sub("_", name).lower()
        wanted = chain([plain] if _NAME.fullmatch(plain) else [], map("field_{}".format, count(number)))
        names[name] = next(each for each in wanted if each not in names.values())
    required = [names[name] for name in schema.get("required") or () if name in names]
    try:
        fields = {names[name]: _field(name, body) for name, body in properties.items()}
        form = normalize_form(_shown({"properties": fields, "required": required}, told))
    except (ValueError, AttributeError, TypeError) as error:
        raise Unaskable(f"it asks for a form that cannot be shown: {told(str(error))}") from error
    return form, {field: name for name, field in names.items()}


def _field(name: str, body: Mapping[str, Any]) -> dict[str, Json]:
    found = {word: body[word] for word in (*_PLAIN, *_CHOICE) if body.get(word) is not None}
    found["title"] = str(body.get("title") or name)[:150]
    if body.get("format") in FORMATS[:4]:
        found["format"] = body["format"]
    if body.get("type") == "array":
        items = body.get("items") or {}
        offered = items.get("oneOf") or items.get("anyOf")
        found["items"] = {
            "type": "string",
            **({"oneOf": offered} if offered else {"enum": items.get("enum")}),
        }
    return found


def _shown(value: Json, told: Callable[[str], str]) -> Json:
    if isinstance(value, dict):
        return {name: _shown(each, told) for name, each in value.items()}
    if isinstance(value, list):
        return [_shown(each, told) for each in value]
    return told(value) if isinstance(value, str) else value


# --- rounds ----------------------------------------------------------------------------------------------


def digest(asked: Json) -> str:
    """Return a digest that is equal for equal questions."""
    return hashlib.sha256(canonical(asked)).hexdigest()


def left(
    server: str, asked: list[Json], state: str | None, saved: Mapping[str, Json], *, still_open: bool = False
) -> Outcome:
    """Return the outcome of a node whose server asks these questions; `saved` is the state it left with before, or
    empty."""
    before, again, rounds = list(saved.get("before") or ()), saved.get("again"), int(saved.get("rounds") or 0)
    found: dict[str, Json] = {"server": server, "asks": asked, "answers": {}, "state": state}
    found |= {"open": OPEN_SECONDS} if still_open else {}
    if again is not None and again < len(before):
        if before[again]["digest"] == digest(asked):
            counts = {"rounds": rounds, "again": again + 1, "forgot": saved.get("forgot")}
            return Interrupted(
                "left", "", {**found, "answers": before[again]["answers"], "before": before, **counts}
            )
        before, found = before[:again], {**found, "why": FORGOTTEN}
    if rounds >= MOST_ROUNDS:
        return Failed("mcp_asks", f"the MCP server {server} asked {MOST_ROUNDS} times without finishing")
    return Interrupted("asks" if asked else "left", "", {**found, "rounds": rounds + 1, "before": before})


def answered(saved: Mapping[str, Json]) -> dict[str, Json]:
    """Return the state for the next attempt after answers were sent: the answered round joins those before."""
    if not saved.get("asks") or saved.get("again") is not None:
        return dict(saved)
    made = {"digest": digest(saved["asks"]), "answers": saved["answers"]}
    return {**saved, "before": [*(saved.get("before") or ()), made]}


def forgotten(saved: Mapping[str, Json]) -> dict[str, Json] | None:
    """Return the state for a new call after the server forgot its own; None if that happened too often."""
    often = int(saved.get("forgot") or 0) + 1
    return None if often > _MOST_FORGOTTEN else {**answered(saved), "again": 0, "forgot": often}


def responses(saved: Mapping[str, Json]) -> dict[str, Json] | None:
    """People's answers as the server gets them."""
    if not saved.get("asks"):
        return None
    return {ask["key"]: _response(ask, saved["answers"][ask["key"]]) for ask in saved["asks"]}


def _response(ask: Mapping[str, Json], answer: Mapping[str, Json]) -> dict[str, Json]:
    if answer["action"] != "accept" or ask.get("url"):
        return {"action": answer["action"]}
    names = ask.get("names") or {}
    values = answer.get("values") or {}
    content = {names[name]: value for name, value in values.items() if name in names and value is not None}
    return {"action": "accept", "content": content}
