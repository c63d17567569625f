"""What a node is about to do, in words that a person can check before it does: the text of an approval that covers it.
Pure.

Each part stands on a line of its own behind its name, texts of several lines are indented, and everything in a value
that cannot be seen (line ends, control and bidi characters, unusual spaces) is spelled out, so that no value can pose as
another part. Secrets appear by name. What cannot be shown is called uninspectable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from engine.language.codec import Json, encode
from engine.nodes.types.registry import node_types

MOST = 20_000
"""Characters of the text; what is longer is cut, and says so."""

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+", re.ASCII)
_SENSITIVE = re.compile(r"auth|cookie|credential|key|pass|private|secret|signature|token", re.IGNORECASE)
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", "'": "\\'"}


def action_text(kind: str, config: Mapping[str, Json]) -> str:
    """What a node of this type does with this evaluated configuration."""
    lines = _KINDS.get(kind, _own)(kind, config)
    text = "\n".join(lines)
    if len(text) <= MOST:
        return text
    return f"{text[:MOST]}\nuninspectable: the other {len(text) - MOST:,} characters are too many to be shown"


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


def _shell(kind: str, config: Mapping[str, Json]) -> Iterator[str]:
    if config.get("run") is not None:
        yield " ".join(quoted(str(argument)) for argument in config["run"])
    else:
        yield from _block("script (sh -eu)", str(config.get("script")))
    if config.get("cwd") is not None:
        yield f"in: {quoted(config['cwd'])}"
    yield from _named("env", config.get("env") or {})
    if config.get("stdin") is not None:
        yield from _block("stdin", config["stdin"])
    yield from _others(kind, config, ("run", "script", "cwd", "env", "stdin"))


def _http(kind: str, config: Mapping[str, Json]) -> Iterator[str]:
    url, body = config["url"], config.get("body")
    yield f"{config['method']} {quoted(url) if isinstance(url, str) else _without_secrets(url)}"
    for name, value in (config.get("query") or {}).items():
        yield f"query {quoted(name)}: {_without_secrets(value) if isinstance(value, dict) else _json(value)}"
    yield from _named("header", config.get("headers") or {})
    if isinstance(body, dict):
        yield f"body: {_without_secrets(body)}"
    elif body is not None:
        yield from _block("body", body)
    yield from _others(kind, config, ("method", "url", "query", "headers", "body"))


def _message(kind: str, config: Mapping[str, Json]) -> Iterator[str]:
    yield from _block("message", str(config.get("text")))
    yield from _others(kind, config, ("text",))


def _python(kind: str, config: Mapping[str, Json]) -> Iterator[str]:
    yield f"python {config['call']}"
    for name, value in (config.get("args") or {}).items():
        yield f"{name}: {_json(value)}"
    yield from _others(kind, config, ("call", "args"))
    yield "what the function does with that: uninspectable"


def _read_file(kind: str, config: Mapping[str, Json]) -> Iterator[str]:
    yield f"read file {quoted(config['path'])}"
    yield from _others(kind, config, ("path",))


def _write_file(kind: str, config: Mapping[str, Json]) -> Iterator[str]:
    yield f"write file {quoted(config['path'])}"
    yield from _block("content", config["content"])


def _mcp(kind: str, config: Mapping[str, Json]) -> Iterator[str]:
    yield f"{quoted(config['tool'])} of the MCP server {quoted(config['server'])}"
    for name, value in (config.get("arguments") or {}).items():
        yield f"{quoted(name)}: {_json(value)}"
    yield "what the server does with that: uninspectable"


def _own(kind: str, config: Mapping[str, Json]) -> Iterator[str]:
    yield kind
    spec = node_types().get(kind)
    secret = spec.secret_fields if spec is not None else frozenset()
    for name, value in config.items():
        yield f"{quoted(name)}: {_json(_without_secrets(value) if name in secret else value)}"
    yield "what this type does with that: uninspectable"


_KINDS: Mapping[str, Callable[[str, Mapping[str, Json]], Iterator[str]]] = {
    "shell": _shell,
    "http": _http,
    "message": _message,
    "python": _python,
    "read_file": _read_file,
    "write_file": _write_file,
    "mcp": _mcp,
}


def _named(what: str, values: Mapping[str, Json]) -> Iterator[str]:
    """Environment variables or headers. What is called like a credential is not shown even where it is written out."""
    for name, value in values.items():
        told = _without_secrets(value)
        if told is value and _SENSITIVE.search(name):
            told = "(not shown)"
        elif told is value:
            told = quoted(str(value))
        yield f"{what} {quoted(name)}: {told}"


def _without_secrets(value: Json) -> Json:
    """A value in which references to secrets are their names; the very same value where there are none."""
    if isinstance(value, dict) and "$secret" in value:
        return f"(secret {value['$secret']})"
    if isinstance(value, dict) and "$secret_text" in value:
        parts = value["$secret_text"]
        return " ".join(quoted(part) if isinstance(part, str) else _without_secrets(part) for part in parts)
    if isinstance(value, dict):
        return {key: _without_secrets(item) for key, item in value.items()}
    return [_without_secrets(item) for item in value] if isinstance(value, list) else value


def _block(name: str, text: str) -> list[str]:
    lines = text.split("\n")
    if len(lines) == 1:
        return [f"{name}: {_seen(text)}"]
    return [f"{name}:", *(f"    {_seen(line)}" for line in lines)]


def _seen(line: str) -> str:
    return "".join(char if char == "\t" else _spelled(char) for char in line)


def _json(value: Json) -> str:
    return _seen(encode(value).decode())


def _others(kind: str, config: Mapping[str, Json], told: tuple[str, ...]) -> Iterator[str]:
    """The fields that have a value of their own and were not told of: nothing that counts is left out."""
    fields = node_types()[kind].config.model_fields
    defaults = {
        field.alias or name: field.get_default(call_default_factory=True) for name, field in fields.items()
    }
    for name, value in config.items():
        if name not in told and value != defaults.get(name):
            yield f"{name}: {_json(value)}"
