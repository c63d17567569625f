"""Preview of a node's action, for people to check beforehand: the text of an approval that covers it. Pure.

Each part is on a line of its own after its name, texts of several lines are indented, and invisible characters in a
value (line ends, control and bidi characters, unusual spaces) are spelled out, so that no value can pose as another
part. Secrets appear by name. Parts that cannot be shown are called uninspectable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from engine.language.codec import Json, encode
from engine.nodes.types.registry import spec_of
from engine.nodes.types.spec import NodeSpec

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+", re.ASCII)

_SENSITIVE = re.compile(r"auth|cookie|credential|key|pass|private|secret|signature|token", re.IGNORECASE)

_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", "'": "\\'"}


def action_text(kind: str, config: Mapping[str, Json]) -> str:
    """Return the action of a node of this type with this evaluated configuration, as text."""
    spec = spec_of(kind)
    lines = [*_told(spec, config), *([f"{spec.uninspectable}: uninspectable"] if spec.uninspectable else [])]
    text = "\n".join(lines)
    most = spec.most_shown
    if len(text) <= most:
        return text
    return f"{text[:most]}\nuninspectable: the other {len(text) - most:,} characters are too many to be shown"


def _told(spec: NodeSpec, config: Mapping[str, Json]) -> Iterator[str]:
    """Yield the lines of the type's own preview, then the remaining fields that differ from their default: nothing that
    matters is left out."""
    if spec.preview is None:
        yield spec.name
        for name, value in config.items():
            yield f"{quoted(name)}: {as_json(without_secrets(value) if name in spec.secret_fields else value)}"
        return
    yield from spec.preview(config)
    fields = spec.config.model_fields
    defaults = {
        field.alias or name: field.get_default(call_default_factory=True) for name, field in fields.items()
    }
    for name, value in config.items():
        if name not in spec.previewed and value != defaults.get(name):
            yield f"{name}: {as_json(value)}"


def quoted(text: str) -> str:
    """A text as a shell would read it, so that different texts always look different."""
    if _PLAIN.fullmatch(text):
        return text
    if text.isprintable():
        return "'" + text.replace("'", "'\\''") + "'"
    return "$'" + "".join(_ESCAPES.get(char) or _spelled(char) for char in text) + "'"


def _spelled(char: str) -> str:
    if char.isprintable():
        return char
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"


def named(what: str, values: Mapping[str, Json]) -> Iterator[str]:
    """Yield environment variables or headers. Values named like a credential are hidden even if written in plain text."""
    for name, value in values.items():
        told = without_secrets(value)
        if told is value and _SENSITIVE.search(name):
            told = "(not shown)"
        elif told is value:
            told = quoted(str(value))
        yield f"{what} {quoted(name)}: {told}"


def without_secrets(value: Json) -> Json:
    """Replace references to secrets with their names; returns the same object if there are none."""
    if isinstance(value, dict) and "$secret" in value:
        return f"(secret {value['$secret']})"
    if isinstance(value, dict) and "$secret_text" in value:
        parts = value["$secret_text"]
        return " ".join(quoted(part) if isinstance(part, str) else without_secrets(part) for part in parts)
    if isinstance(value, dict):
        return {key: without_secrets(item) for key, item in value.items()}
    return [without_secrets(item) for item in value] if isinstance(value, list) else value


def block(name: str, text: str) -> list[str]:
    """Return a text after its name, indented if it has several lines."""
    lines = text.split("\n")
    if len(lines) == 1:
        return [f"{name}: {seen(text)}"]
    return [f"{name}:", *(f"    {seen(line)}" for line in lines)]


def seen(line: str) -> str:
    """Spell out the invisible characters of a line, except tabs."""
    return "".join(char if char == "\t" else _spelled(char) for char in line)


def as_json(value: Json) -> str:
    """A value as JSON, with all that cannot be seen spelled out."""
    return seen(encode(value).decode())
