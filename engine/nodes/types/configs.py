"""What may stand under `with:`, one model per node type. The flow reference and the JSON Schema come from here.
Questions for people are in `engine.nodes.types.prompt_configs`.

A model describes the values after every `{{ }}` was evaluated; `engine.nodes.types.spec` lets expressions stand in
their places while a flow is loaded. `conflicts` holds what concerns several fields at once; it sees the raw
mapping, in which any field may be missing, of the wrong type, or still an expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    RootModel,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)

from engine.language.codec import Json
from engine.language.diagnostics import Fault, kind_of
from engine.language.durations import DURATION_PATTERN, SIZE_PATTERN, parse_duration, parse_moment, parse_size
from engine.language.template import has_expression, is_marker_key

NAME = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
"""Ids, inputs and output names."""

FLOW_NAME = re.compile(r"[a-z][a-z0-9_-]*", re.ASCII)
MAX_NAME = 64
"""The most characters of a name in a flow file."""

_ROOT_WORDS = {"nodes", "inputs", "status", "errors", "messages", "secrets", "session"}
_BODY_WORDS = {"index", "item", "last", "finally"}
_LANGUAGE_WORDS = {
    "finally",
    "range",
    "true",
    "false",
    "none",
    "null",
    "not",
    "and",
    "or",
    "in",
    "is",
    "if",
    "else",
}
RESERVED_WORDS = frozenset(_ROOT_WORDS | _BODY_WORDS | _LANGUAGE_WORDS)
"""Words that mean something in expressions or paths and cannot be the id of a node."""

_PERSON = re.compile(
    r"[UW][A-Z0-9]{2,}|[^@\s]+@[^@\s]+\.[^@\s]+|@[A-Za-z0-9][A-Za-z0-9._-]*|channel|requester|local:[^\s:]+",
    re.ASCII,
)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#%&'*+.^_`|~-]+", re.ASCII)
_RESERVED_ENV = ("SAYSO_IDEMPOTENCY_KEY", "SAYSO_SESSION_ID")


# --- field types -----------------------------------------------------------------------------------------


def _duration(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"expected a duration such as 30m, not {kind_of(value)}")
    return parse_duration(str(value))


def _positive(value: Any) -> float:
    seconds = _duration(value)
    if seconds <= 0:
        raise ValueError("expected a duration of more than nothing, such as 30m")
    return seconds


def _size(value: Any) -> int:
    return _size_up_to(value, 16 * 2**20, "16MiB")


def _file_size(value: Any) -> int:
    return _size_up_to(value, 2**30, "1GiB")


def _size_up_to(value: Any, most: int, written: str) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"expected a size such as 64KiB, not {kind_of(value)}")
    size = value if isinstance(value, int) else parse_size(value)
    if not 1 <= size <= most:
        raise ValueError(f"expected a size from 1B to {written}, not {value}")
    return size


def _moment(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a moment such as 2026-11-21T22:40:00Z, not {kind_of(value)}")
    return parse_moment(value)


def _person(value: Any) -> str:
    if not isinstance(value, str) or not _PERSON.fullmatch(value):
        raise ValueError(
            f"{kind_of(value)} names nobody: write a user id (U012ABCDEF), an e-mail address, "
            "a user group (@sre), channel, requester or local:<user>"
        )
    return value


def _scalar(value: Any) -> str | dict[str, Json]:
    """Text as it goes to a process or a server; references to secrets stay what they are."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, dict) and len(value) == 1 and is_marker_key(next(iter(value))):
        return value
    raise ValueError(f"expected text, not {kind_of(value)}")


def _or_reference(value: Any, handler: Callable[[Any], Any]) -> Any:
    """Lets a reference to a secret through where text is wanted: it is text once the request leaves."""
    return (
        value
        if isinstance(value, dict) and len(value) == 1 and is_marker_key(next(iter(value)))
        else handler(value)
    )


def _query(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        return [_scalar(item) for item in value]
    return _scalar(value)


def _plain_scalar(value: Any) -> str:
    text = _scalar(value)
    if not isinstance(text, str):
        raise ValueError("expected text, not a mapping")
    return text


def _schema(kind: str, **more: Any) -> WithJsonSchema:
    return WithJsonSchema({"type": kind, **more})


Duration: TypeAlias = Annotated[
    float, BeforeValidator(_positive), _schema("string", pattern=DURATION_PATTERN, title="duration")
]
"""Seconds, written `30m`."""
Span: TypeAlias = Annotated[
    float, BeforeValidator(_duration), _schema("string", pattern=DURATION_PATTERN, title="duration")
]
"""Seconds, which may be none at all: `0s`."""
_SIZE_SCHEMA = WithJsonSchema(
    {"anyOf": [{"type": "string", "pattern": SIZE_PATTERN}, {"type": "integer"}], "title": "size"}
)
Size: TypeAlias = Annotated[int, BeforeValidator(_size), _SIZE_SCHEMA]
"""Bytes, written `64KiB` or as a number."""
FileSize: TypeAlias = Annotated[int, BeforeValidator(_file_size), _SIZE_SCHEMA]
"""The same for what is kept in files."""
Moment: TypeAlias = Annotated[str, BeforeValidator(_moment), _schema("string", title="moment")]
Person: TypeAlias = Annotated[str, BeforeValidator(_person), _schema("string", title="person")]
Scalar: TypeAlias = Annotated[
    Any, BeforeValidator(_scalar), WithJsonSchema({"type": ["string", "number", "boolean"], "title": "text"})
]
Argument: TypeAlias = Annotated[
    Any,
    BeforeValidator(_plain_scalar),
    WithJsonSchema({"type": ["string", "number", "boolean"], "title": "text"}),
]
Query: TypeAlias = Annotated[
    Any,
    BeforeValidator(_query),
    WithJsonSchema(
        {"type": ["string", "number", "boolean", "array", "null"], "title": "text or list of text"}
    ),
]
Text: TypeAlias = Annotated[str, Field(min_length=1)]
_REFERABLE = WrapValidator(_or_reference)
Label: TypeAlias = Annotated[str, Field(min_length=1, max_length=75)]


class Config(BaseModel):
    """What all configurations share: no unknown fields, no silent conversion of types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    @classmethod
    def conflicts(cls, raw: Mapping[str, Json]) -> Iterator[Fault]:
        """What is wrong between fields; `raw` may hold anything."""
        yield from ()


def _one_of(raw: Mapping[str, Json], first: str, second: str) -> Iterator[Fault]:
    if first in raw and second in raw:
        yield Fault(
            (second,), f"`{first}` and `{second}` exclude each other", "keep one of them", on_key=True
        )
    elif first not in raw and second not in raw:
        yield Fault((), f"`{first}` or `{second}` is missing")


# --- messages ------------------------------------------------------------------------------------------


# --- effects ---------------------------------------------------------------------------------------------


def _or_any(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    return value if value == "any" else check(value)


# Not a union with the word: what pydantic says of a union names all of its members.
_OR_ANY = WrapValidator(_or_any)
_AS_IT_IS = PlainSerializer(lambda value: value)


def _codes(least: int, most: int) -> WithJsonSchema:
    numbers = {
        "type": "array",
        "minItems": 1,
        "items": {"type": "integer", "minimum": least, "maximum": most},
    }
    return WithJsonSchema({"anyOf": [{"enum": ["any"]}, numbers]})


class ShellConfig(Config):
    """Runs a program, or a script with `sh`, on the machine of the bot.

    The environment is `PATH`, `HOME`, `LANG`, `SAYSO_IDEMPOTENCY_KEY`, `SAYSO_SESSION_ID` and what `env` names.
    A program given with a relative path is found beside the flow file. A code that is not in `ok_codes` fails
    the node.
    """

    run: Annotated[list[Argument], Field(min_length=1)] | None = Field(
        None,
        description="The program and its arguments, as a list; no shell reads them. Either this or `script`.",
    )
    script: Text | None = Field(
        None,
        description="A script for `sh -eu`. It has no `{{ }}`: values come in through `env`, where no shell "
        "can take them for code.",
    )
    env: dict[str, Scalar] = Field(
        default_factory=dict, description="Environment variables; `{{ secrets.NAME }}` may stand in them."
    )
    cwd: Text | None = Field(
        None,
        description="Where to run; a relative path begins at the folder of the flow file. Left out: the session's own folder.",
    )
    ok_codes: Annotated[
        list[Annotated[int, Field(ge=0, le=255)]], Field(min_length=1), _OR_ANY, _AS_IT_IS, _codes(0, 255)
    ] = Field([0], description="Exit codes that are no failure; `any`: however it ends by itself.")
    max_output: Size = Field(
        256 * 1024,
        description="How much of `stdout`, and of `stderr`, is kept: head and tail, and a line between them that "
        "says how much was left out.",
    )
    progress: bool = Field(
        False,
        description="The program says how far it is: a line `::progress 3/10 text` (or `::progress 30% text`) on its "
        "standard output is shown as a bar and is no part of `stdout`.",
    )
    stdin: str | None = Field(
        None, description="What the program reads. Left out: nothing, an input that is closed."
    )

    @classmethod
    def conflicts(cls, raw: Mapping[str, Json]) -> Iterator[Fault]:
        """One of `run` and `script`; no expressions in a script; sound names in `env`."""
        yield from _one_of(raw, "run", "script")
        script = raw.get("script")
        if isinstance(script, str) and "{{" in script:
            yield Fault(
                ("script",),
                "a script has no `{{ }}`: a value could be taken for code",
                'put the value under `env` and write "$NAME" in the script',
                offset=script.index("{{"),
                snippet="{{",
            )
        yield from check_env(raw)


def check_env(raw: Mapping[str, Json]) -> Iterator[Fault]:
    """What is wrong with the names of environment variables under `env`."""
    env = raw.get("env")
    if isinstance(env, dict):
        yield from _name_conflicts("env", env, _ENV_NAME, "an environment variable")
        for name in _RESERVED_ENV:
            if name in env:
                yield Fault(("env", name), f"`{name}` is set by the engine", on_key=True)


def check_headers(raw: Mapping[str, Json]) -> Iterator[Fault]:
    """What is wrong with the names of headers under `headers`."""
    headers = raw.get("headers")
    if isinstance(headers, dict):
        yield from _name_conflicts("headers", headers, _HEADER_NAME, "a header")


def _name_conflicts(
    field: str, names: Mapping[str, Json], allowed: re.Pattern[str], what: str
) -> Iterator[Fault]:
    for name in names:
        if not allowed.fullmatch(name) and not has_expression(name):
            yield Fault((field, name), f"{name!r} is no name for {what}", on_key=True)


class HttpConfig(Config):
    """Sends a request. A status of 400 or more, or one that `ok_status` does not have, fails the node.

    `{{ secrets.NAME }}` may stand anywhere in the request. Redirects are followed, up to five, without credentials across
    hosts. Everything but `GET`, `HEAD` and
    `OPTIONS` carries an `Idempotency-Key`. Link-local and metadata addresses are refused unless `allow_hosts`
    names their host.
    """

    method: Literal["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"] = Field(
        "GET", description="The method."
    )
    url: Annotated[Text, _REFERABLE, _AS_IT_IS] = Field(
        description="Where to, beginning with http:// or https://. A secret that begins it stands as it is; further on its "
        "value is quoted for URLs."
    )
    headers: dict[str, Scalar] = Field(default_factory=dict, description="Headers.")
    query: dict[str, Query] = Field(
        default_factory=dict,
        description="What is added to the URL behind `?`, quoted; a list gives a name repeatedly, null leaves it out.",
    )
    body: Annotated[str | None, _REFERABLE, _AS_IT_IS] = Field(
        None, description="The body as text. Either this or `json`."
    )
    json_: Json = Field(None, alias="json", description="The body as JSON.")
    ok_status: (
        Annotated[
            list[Annotated[int, Field(ge=100, le=599)]],
            Field(min_length=1),
            _OR_ANY,
            _AS_IT_IS,
            _codes(100, 599),
        ]
        | None
    ) = Field(
        None,
        description="Statuses that are no failure. Left out: everything below 400. A redirect that is no failure is not "
        "followed; `any`: every status.",
    )
    max_body: Size = Field(
        256 * 1024, description="How much of the answer is read; a longer one fails the node."
    )
    schema_: dict[str, Any] | None = Field(
        None,
        alias="schema",
        description="The JSON Schema of the answer's JSON: an answer that does not fit it fails the node, and expressions are "
        "checked against it. Written out.",
    )
    allow_hosts: list[Text] = Field(
        default_factory=list, description="Hosts that may be reached although they are link-local."
    )

    @classmethod
    def conflicts(cls, raw: Mapping[str, Json]) -> Iterator[Fault]:
        """One body at most, an http address, sound header names."""
        if "body" in raw and "json" in raw:
            yield Fault(("json",), "`body` and `json` exclude each other", "keep one of them", on_key=True)
        url = raw.get("url")
        if (
            isinstance(url, str)
            and url
            and not url.startswith("{{")
            and not re.match(r"https?://", url, re.I)
        ):
            yield Fault(
                ("url",), f"expected an address that begins with http:// or https://, not {url[:60]!r}"
            )
        yield from check_headers(raw)


# --- the engine's own ------------------------------------------------------------------------------------


class SetConfig(RootModel[dict[str, Any]]):
    """Gives names to values; each key under `with` is a field of the output."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    @classmethod
    def conflicts(cls, raw: Mapping[str, Json]) -> Iterator[Fault]:
        """Names must be such that expressions can use them."""
        for name in raw:
            if not NAME.fullmatch(name) and not has_expression(name):
                hint = "use small letters, digits and _, a letter first"
                yield Fault((name,), f"{name!r} is no name for a value", hint, on_key=True)


class WaitConfig(Config):
    """Waits for a time. No process waits with it: the timer is in the store."""

    for_: Span | None = Field(
        None, alias="for", description="How long, such as `10m`. Either this or `until`."
    )
    until: Moment | None = Field(
        None,
        description="Until when: ISO-8601 with an offset, `2026-11-21T22:40:00Z`. A moment that has passed is over.",
    )

    @classmethod
    def conflicts(cls, raw: Mapping[str, Json]) -> Iterator[Fault]:
        """One of `for` and `until`."""
        yield from _one_of(raw, "for", "until")


class FailConfig(Config):
    """Fails the flow, on purpose."""

    message: Text = Field(description="Why, for the people in the thread.")


class NoopConfig(Config):
    """Does nothing. A place to hang an `if` on, or to keep an id."""
