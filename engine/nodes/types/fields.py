"""Names, and the kinds of fields of configurations; `Config` is their base class.

A model describes the values after every `{{ }}` was evaluated; `engine.nodes.types.spec` accepts expressions in their
places while a flow is loaded. `conflicts` checks several fields together; it sees the raw mapping, in which any field
may be missing, of the wrong type, or still an expression.
"""

from __future__ import annotations

import ast
import inspect
import keyword
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    RootModel,
    WithJsonSchema,
    WrapValidator,
)
from pydantic_core import CoreSchema

from engine.language.codec import Json
from engine.language.diagnostics import Fault, Path, kind_of
from engine.language.template import MARKS, has_expression, is_blank, is_marker_key
from engine.language.timestamps import (
    DURATION_PATTERN,
    SIZE_PATTERN,
    parse_duration,
    parse_moment,
    parse_size,
)
from engine.nodes.types.names import MAX_NAME, NAME

_PERSON = re.compile(
    r"[UW][A-Z0-9]{2,}|[^@\s]+@[^@\s]+\.[^@\s]+|@[A-Za-z0-9][A-Za-z0-9._-]*|channel|requester|local:[^\s:]+"
    r"|manager|rota:[A-Za-z0-9][A-Za-z0-9._-]*",
    re.ASCII,
)
ONE_PERSON = re.compile(r"[UW][A-Z0-9]{2,}|[^@\s:]+@[^@\s]+\.[^@\s]+|requester", re.ASCII)
ROTA = re.compile(r"rota:[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
DM = "dm:"
"""Prefix of a place that is a direct message to a person."""
_CALLABLE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#%&'*+.^_`|~-]+", re.ASCII)

_RESERVED_ENV = ("SAYSO_IDEMPOTENCY_KEY", "SAYSO_SESSION_ID", "SAYSO_EXECUTION")


def listed(value: Any) -> Any:
    """Return a single text as a list of one."""
    return [value] if isinstance(value, str) else value


def _duration(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"expected a duration such as 30m, not {kind_of(value)}")
    return parse_duration(str(value))


def _positive(value: Any) -> float:
    seconds = _duration(value)
    if seconds <= 0:
        raise ValueError("expected a duration longer than zero, such as 30m")
    return seconds


def _size_up_to(most: int, written: str) -> BeforeValidator:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise ValueError(f"expected a size such as 64KiB, not {kind_of(value)}")
        size = value if isinstance(value, int) else parse_size(value)
        if not 1 <= size <= most:
            raise ValueError(f"expected a size from 1B to {written}, not {value}")
        return size

    return BeforeValidator(check)


def _moment(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a moment such as 2026-11-21T22:40:00Z, not {kind_of(value)}")
    return parse_moment(value)


def text_like(pattern: re.Pattern[str], wrong: str, most: int = sys.maxsize) -> BeforeValidator:
    """Require text of this form, of at most so many characters; `wrong` is the error, with `{}` for the value."""

    def check(value: Any) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value) or len(value) > most:
            raise ValueError(wrong.format(kind_of(value)))
        return value

    return BeforeValidator(check)


def _scalar(value: Any) -> str | dict[str, Json]:
    """Convert a scalar to text for a process or a server; references to secrets stay unchanged."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, dict) and len(value) == 1 and is_marker_key(next(iter(value))):
        return value
    raise ValueError(f"expected text, not {kind_of(value)}")


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


_AS_TEXT = frozenset({_scalar, _query, _plain_scalar})


def kind_at(annotation: Any, path: Path) -> Literal["text", "any"] | None:
    """Return how a model treats a number at this path: `text` if it is converted for a program or a server, `any` if
    values of any kind pass, None if it must have its own kind."""
    if any(getattr(each, "func", None) in _AS_TEXT for each in getattr(annotation, "__metadata__", ())):
        return "text"
    if annotation is Any or annotation is Json:
        return "any"
    if not get_args(annotation) and hasattr(annotation, "model_fields"):
        fields = {field.alias or name: field for name, field in annotation.model_fields.items()}
        if annotation.__pydantic_root_model__:
            return kind_at(fields["root"].annotation, path)
        field = fields.get(str(path[0])) if path else None
        return (
            None if field is None else kind_at(Annotated[field.annotation, *field.metadata, None], path[1:])
        )
    inner = get_args(annotation)
    if get_origin(annotation) in (list, dict):
        return kind_at(inner[-1], path[1:]) if path else None
    return next((found for each in inner if (found := kind_at(each, path)) is not None), None)


def _callable(value: Any) -> str:
    words = re.split(r"[.:]", value) if isinstance(value, str) else []
    if not isinstance(value, str) or not _CALLABLE.fullmatch(value) or any(map(keyword.iskeyword, words)):
        raise ValueError(f"expected `module:function` such as `checks.disk:free`, not {kind_of(value)}")
    return value


def _schema(kind: str, **more: Any) -> WithJsonSchema:
    return WithJsonSchema({"type": kind, **more})


Duration: TypeAlias = Annotated[
    float, BeforeValidator(_positive), _schema("string", pattern=DURATION_PATTERN, title="duration")
]
"""Seconds, written `30m`."""

Span: TypeAlias = Annotated[
    float, BeforeValidator(_duration), _schema("string", pattern=DURATION_PATTERN, title="duration")
]
"""Seconds, possibly zero: `0s`."""

_SIZE_SCHEMA = WithJsonSchema(
    {"anyOf": [{"type": "string", "pattern": SIZE_PATTERN}, {"type": "integer"}], "title": "size"}
)

Size: TypeAlias = Annotated[int, _size_up_to(16 * 2**20, "16MiB"), _SIZE_SCHEMA]
"""Bytes, written `64KiB` or as a number."""

FileSize: TypeAlias = Annotated[int, _size_up_to(2**30, "1GiB"), _SIZE_SCHEMA]
"""Size in bytes, for files."""

Moment: TypeAlias = Annotated[str, BeforeValidator(_moment), _schema("string", title="moment")]

Person: TypeAlias = Annotated[
    str,
    text_like(
        _PERSON,
        "{} does not name a person or group: write a user id (U012ABCDEF), an e-mail address, a user group (@sre), "
        "a rota (rota:payments), manager, channel, requester or local:<user>",
    ),
    _schema("string", title="person"),
]

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


def _seen(value: str) -> str:
    if is_blank(value):
        raise ValueError("expected text that is not blank")
    return value


def _seen_in_markup(value: str) -> str:
    # A value's `>` is written as Slack wants it by now, and is a mark all the same.
    return _seen("" if is_blank(value.replace("&gt;", ">"), MARKS) else value)


SEEN = AfterValidator(_seen)

Shown: TypeAlias = Annotated[Text, SEEN]
"""Text for people, in which something can be seen."""

Marked: TypeAlias = Annotated[Text, AfterValidator(_seen_in_markup)]
"""The same with marks of `mrkdwn` or Markdown."""

Label: TypeAlias = Annotated[str, Field(min_length=1, max_length=75), SEEN]
NodeId: TypeAlias = Annotated[
    str,
    text_like(NAME, "expected the id of a node, not {}", MAX_NAME),
    _schema("string", pattern=f"^{NAME.pattern}$"),
]
Callable_: TypeAlias = Annotated[
    str, BeforeValidator(_callable), WithJsonSchema({"type": "string", "pattern": r"^[\w.]+:\w+$"})
]


# Not a union with the word: pydantic's errors for a union name all of its members.
OR_ANY = WrapValidator(lambda value, check: value if value == "any" else check(value))

AS_IT_IS = PlainSerializer(lambda value: value)


def codes(least: int, most: int) -> WithJsonSchema:
    """The JSON Schema of such a list, or the word `any`."""
    numbers = {
        "type": "array",
        "minItems": 1,
        "items": {"type": "integer", "minimum": least, "maximum": most},
    }
    return WithJsonSchema({"anyOf": [{"enum": ["any"]}, numbers]})


class Config(BaseModel):
    """Base of all configurations: no unknown fields, no silent conversion of types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    @classmethod
    def conflicts(cls, raw: Mapping[str, Json]) -> Iterator[Fault]:
        """Yield faults between fields; `raw` may hold anything."""
        yield from ()

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in _docstrings(cls.__module__).get(cls.__name__, {}).items():
            properties[cls.model_fields[name].alias or name].setdefault("description", text)
        return schema


@cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """The docstrings below the fields of a module's classes, as only a reference and a schema need them: pydantic would
    read the source at each start."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError):
        return {}
    return {
        each.name: {
            field.target.id: " ".join(text.value.value.split())
            for field, text in pairwise(each.body)
            if isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        }
        for each in ast.walk(tree)
        if isinstance(each, ast.ClassDef)
    }


class AnyNames(RootModel[dict[str, Any]]):
    """A configuration whose fields have any names."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    @classmethod
    def conflicts(cls, raw: Mapping[str, Json]) -> Iterator[Fault]:
        """Names must be such that expressions can use them."""
        for name in raw:
            if not NAME.fullmatch(name) and not has_expression(name):
                hint = "use lowercase letters, digits and _, starting with a letter"
                yield Fault((name,), f"{name!r} is not a valid name for a value", hint, on_key=True)


def one_of(raw: Mapping[str, Json], first: str, second: str) -> Iterator[Fault]:
    """Report a fault unless exactly one of two fields is given."""
    if first in raw and second in raw:
        yield Fault(
            (second,), f"`{first}` and `{second}` cannot be used together", "keep one of them", on_key=True
        )
    elif first not in raw and second not in raw:
        yield Fault((), f"`{first}` or `{second}` is missing")


def check_env(raw: Mapping[str, Json]) -> Iterator[Fault]:
    """Yield faults in the names of environment variables under `env`."""
    env = raw.get("env")
    if isinstance(env, dict):
        yield from _name_conflicts("env", env, _ENV_NAME, "an environment variable")
        for name in _RESERVED_ENV:
            if name in env:
                yield Fault(("env", name), f"`{name}` is set by the engine", on_key=True)


def check_headers(raw: Mapping[str, Json]) -> Iterator[Fault]:
    """Yield faults in the names of headers under `headers`."""
    headers = raw.get("headers")
    if isinstance(headers, dict):
        yield from _name_conflicts("headers", headers, _HEADER_NAME, "a header")


def _name_conflicts(
    field: str, names: Mapping[str, Json], allowed: re.Pattern[str], what: str
) -> Iterator[Fault]:
    for name in names:
        if not allowed.fullmatch(name) and not has_expression(name):
            yield Fault((field, name), f"{name!r} is not a valid name for {what}", on_key=True)
