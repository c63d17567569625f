"""Configuration of MCP servers: a JSON file in the format that other programs use too.

```json
{"mcpServers": {
  "grafana": {"command": "mcp-grafana", "args": ["--read-only"], "env": {"TOKEN": "${SAYSO_SECRET_GRAFANA}"}},
  "tickets": {"url": "https://tickets.internal/mcp", "headers": {"Authorization": "Bearer ${SAYSO_SECRET_TICKETS}"}}
}}
```

A program runs in the folder of the file, and one with a relative path is found there. `${SAYSO_SECRET_NAME}` may stand in
values of `env`, `headers` and `oauth`, and is replaced when the server is started; nothing else is."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.language.codec import Json, decode
from engine.language.diagnostics import suggest
from engine.language.errors import NotJson, SaysoError
from engine.nodes.runtime.folder import content

SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
_LARGEST = 2**20
_SECRET = re.compile(r"\$\{SAYSO_SECRET_([A-Za-z][A-Za-z0-9_]*)\}")
_REFERENCE = re.compile(r"\$\{[^}]*\}?")


INSTALL = "pip install 'sayso[mcp]'"


def is_installed() -> bool:
    """True if the package that speaks to MCP servers is here."""
    return find_spec("mcp") is not None


class McpUnconfigured(SaysoError):
    """The MCP server is not configured, or its entry in the file is unusable."""

    code = "mcp_config"


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class _OAuth(_Entry):
    issuer: Annotated[str, Field(pattern=r"^https?://")]
    clientId: Annotated[str, Field(min_length=1)]
    clientSecret: Annotated[str, Field(min_length=1)]


class _Program(_Entry):
    type: Literal["stdio"] = "stdio"
    command: Annotated[str, Field(min_length=1)]
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None


class _Address(_Entry):
    type: Literal["http", "streamable-http"] = "http"
    url: Annotated[str, Field(pattern=r"^https?://")]
    headers: dict[str, str] = {}
    oauth: _OAuth | None = None


@dataclass(frozen=True)
class Server:
    """A server as the file has it: a program (`command`), or an address (`url`). Secrets are still references."""

    name: str
    folder: Path
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    oauth: Mapping[str, str] = field(default_factory=dict)
    """`issuer`, `clientId` and `clientSecret` of client credentials."""


def servers(file: Path) -> dict[str, Server]:
    """Return the servers of this file by name; empty without a file. Raises `McpUnconfigured`."""
    try:
        data = content(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), _LARGEST)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise McpUnconfigured(f"{file} cannot be read: {error.strerror}") from error
    if data is None or len(data) > _LARGEST:
        raise McpUnconfigured(f"{file} is {'no file' if data is None else 'larger than 1 MiB'}")
    try:
        listed = decode(data)
    except NotJson as error:
        raise McpUnconfigured(f"{file} is {error}") from error
    entries = listed.get("mcpServers") if isinstance(listed, dict) else None
    if not isinstance(entries, dict):
        raise McpUnconfigured(
            f'{file}: expected {{"mcpServers": {{name: {{"command": ...}} or {{"url": ...}}}}}}'
        )
    return {name: _server(name, entry, file) for name, entry in entries.items()}


def find(file: Path, name: str) -> Server:
    """Return the server of that name. Raises `McpUnconfigured`."""
    known = servers(file)
    if name not in known:
        hint = suggest(name, known)
        where = f"in {file}" if known else f"in {file}, which lists none"
        raise McpUnconfigured(f"there is no MCP server {name} {where}{f' ({hint})' if hint else ''}")
    return known[name]


def resolved(values: Mapping[str, str], secret: Callable[[str], str], used: dict[str, str]) -> dict[str, str]:
    """These values with their secrets in place; `used` notes the secrets by name. Raises `SaysoError`."""

    def put(match: re.Match[str]) -> str:
        used[match[1]] = secret(match[1])
        return used[match[1]]

    return {name: _SECRET.sub(put, value) for name, value in values.items()}


def _server(name: str, entry: Json, file: Path) -> Server:
    where = f"{file}: server {name}"
    if not SERVER_NAME.fullmatch(name):
        raise McpUnconfigured(f"{where}: use letters, digits, _ and - in the name")
    if not isinstance(entry, dict) or ("command" in entry) == ("url" in entry):
        raise McpUnconfigured(f"{where}: write either `command`, a program, or `url`, an address")
    try:
        kind = _Program if "command" in entry else _Address
        found: Any = kind.model_validate(entry)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise McpUnconfigured(f"{where}: {place}: {first['msg']}") from error
    folder = file.resolve().parent
    if isinstance(found, _Address):
        oauth = found.oauth.model_dump() if found.oauth else {}
        _refuse_references(where, {"url": found.url}, {**found.headers, **oauth})
        return Server(name, folder, url=found.url, headers=found.headers, oauth=oauth)
    _refuse_references(where, dict(enumerate([found.command, *found.args])), found.env)
    command = str(folder / found.command) if "/" in found.command else found.command
    cwd = folder / found.cwd if found.cwd else folder
    return Server(name, folder, command, tuple(found.args), found.env, cwd)


def _refuse_references(where: str, plain: Mapping[Any, str], values: Mapping[str, str]) -> None:
    for value in plain.values():
        if _REFERENCE.search(value):
            raise McpUnconfigured(f"{where}: ${{...}} is allowed only in values of `env` and `headers`")
    for name, value in values.items():
        for reference in _REFERENCE.findall(value):
            if not _SECRET.fullmatch(reference):
                raise McpUnconfigured(
                    f"{where}: {name}: {reference} is not supported; write ${{SAYSO_SECRET_NAME}}"
                )
