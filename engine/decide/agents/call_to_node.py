"""Turn a tool call of the model into the node that carries it out, or a refusal that tells the model why. Pure.

This does not rely on trust: a call becomes the configuration of a node, and that is what people approve, what is
journaled and what runs. Values from the model only appear where they are data: an argument of a program, a body, a path
that was checked. The model cannot change what the author of the flow set (`env`, `headers`, `query`, servers).
"""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Callable, Mapping

from engine.flow.builtin_tools import PATTERNS, allowed, may_read, split_command
from engine.flow.node import ToolPlan
from engine.language.codec import Json, encode, problems
from engine.language.errors import SaysoError, ToolRefused
from engine.language.template import escape_markup
from engine.nodes.types.addresses import host_allowed, is_disguised, parsed, why_refused
from engine.nodes.types.paths import BadPath, session_path
from engine.nodes.types.preview import action_text

__all__ = ["ToolRefused", "as_read", "call_text", "checked", "filled", "prepare"]

MOST_INPUT = 4 * 2**20
"""Largest input of a tool, in bytes."""

_SETTLED_BY_ENGINE = ("ok_codes", "ok_status")
_CREDENTIALS = frozenset({"authorization", "proxy-authorization", "cookie"})
_NOT_THEIRS = frozenset(
    {
        "host",
        "idempotency-key",
        "content-length",
        "transfer-encoding",
        "connection",
        # Servers that heed these take a POST for a DELETE, whatever `methods` and `when` say.
        "x-http-method-override",
        "x-http-method",
        "x-method-override",
    }
)


def prepare(tool: ToolPlan, given: Json, base: Mapping[str, Json] | None = None) -> dict[str, Json]:
    """The settled configuration of the node that a call becomes. Raises `ToolRefused`.

    `base` is the evaluated `with` of the tool's node, what the author of the flow set; left out, it is evaluated here,
    which works when it refers to secrets and to nothing else. Tools made of nodes and flows are not prepared here.
    """
    values = checked(tool, given)
    if base is None:
        base = tool.node.compiled.evaluate({})
    try:
        return tool.node.spec.normalize(_PREPARE[tool.kind](tool, values, base), tool.node.config)
    except ToolRefused:
        raise
    except (SaysoError, ValueError) as error:
        raise ToolRefused(f"{tool.name}: {error}") from error


def as_read(tool: ToolPlan, given: Json, config: Mapping[str, Json]) -> Json:
    """Return the input as a rule of `approvals` sees it: what will run, however the model wrote it. A command has only
    the quotes that it needs, addresses and paths are resolved, and defaults are filled in."""
    match tool.kind:
        case "shell":
            return {**given, "command": shlex.join(config["run"])}
        case "http":
            return {**given, "method": config["method"], "url": parsed(given["url"].strip()).human_repr()}
        case "read_file" | "write_file":
            return {**given, "path": config["path"]}
        case "python":
            return config["args"]
        case "node" | "flow":
            return filled(tool, given)
        case _:
            return given


def filled(tool: ToolPlan, given: Json) -> dict[str, Json]:
    """Return the input of a flow's tool, with defaults (or null) for the fields that the model left out."""
    known = (tool.input_schema or {}).get("properties") or {}
    return {name: given.get(name, field.get("default")) for name, field in known.items()}


def checked(tool: ToolPlan, given: Json) -> dict[str, Json]:
    """Return the model's input if it fits the tool's schema. Raises `ToolRefused`."""
    if not isinstance(given, dict):
        raise ToolRefused(
            f"{tool.name}: the input must be a JSON object with the fields of the tool's schema."
        )
    try:
        size = len(encode(given))
    except SaysoError as error:
        raise ToolRefused(f"{tool.name}: {error}") from error
    if size > MOST_INPUT:
        raise ToolRefused(f"{tool.name}: the input has {size:,} bytes; {MOST_INPUT:,} are possible.")
    found = [] if tool.input_schema is None else problems(tool.input_schema, given)
    if found:
        raise ToolRefused(f"{tool.name}: the input does not fit the tool's schema: {'; '.join(found)}.")
    return given


def call_text(tool: ToolPlan, config: Mapping[str, Json]) -> str:
    """Describe exactly what a call will do, as plain text for the people who decide."""
    # Which exit codes count as success is not something the call does.
    doing = {name: value for name, value in config.items() if name not in _SETTLED_BY_ENGINE}
    return action_text(tool.node.type, doing)


# --- tool by tool ----------------------------------------------------------------------------------------

_Base = Mapping[str, Json]


def _ask_human(tool: ToolPlan, given: dict[str, Json], base: _Base) -> dict[str, Json]:
    # A message is markup, the model's words are not: the author's text may mention people, the model's may not.
    config = {**base, "message": escape_markup(given["question"])}
    for name in ("choices", "form"):
        if given.get(name) is not None:
            config[name] = given[name]
    if "choices" in config and "form" not in config:
        config["own_words"] = given.get("own_words") is not False
    return config


def _shell(tool: ToolPlan, given: dict[str, Json], base: _Base) -> dict[str, Json]:
    words = split_command(given["command"])
    patterns = [str(pattern) for pattern in tool.settings.get("commands") or ()]
    if not allowed(words, patterns):
        listed = ", ".join(f"`{pattern}`" for pattern in patterns) or "nothing"
        raise ToolRefused(
            f"`{' '.join(words)[:200]}` is not allowed here. Allowed is {listed}: {PATTERNS}. Use one of these, or ask a "
            "person."
        )
    return {**base, "run": words, "ok_codes": "any"}


def _http(tool: ToolPlan, given: dict[str, Json], base: _Base) -> dict[str, Json]:
    methods = [str(method).upper() for method in tool.settings.get("methods") or ["GET"]]
    method = given.get("method") or ("GET" if "GET" in methods else methods[0])
    if method not in methods:
        raise ToolRefused(f"the method {method} is not allowed here, only {', '.join(methods)}.")
    # Only an address that the author of the flow named.
    text = given["url"]
    hosts = tool.settings.get("hosts") or ()
    listed = ", ".join(f"`{host}`" for host in hosts) or "none"
    try:
        url = parsed(text.strip())
        host, port = url.host or "", url.port
    except ValueError as error:
        raise ToolRefused(f"{text[:200]!r} is not a URL: {error}.") from error
    if url.scheme not in ("http", "https") or not host or not host.isprintable() or "\\" in text:
        raise ToolRefused("write a whole address that begins with https:// or http://.")
    if url.user is not None or url.password is not None:
        raise ToolRefused("a URL here has no user name and no password; credentials are added for you.")
    if is_disguised(host) or not host_allowed(host, port, hosts):
        raise ToolRefused(f"the host {host[:200]} is not allowed here. Allowed hosts: {listed}.")
    refused = why_refused(host, host, base.get("allow_hosts") or ()) if _is_address(host) else None
    if refused:
        raise ToolRefused(f"{refused}.")
    config = {**base, "method": method, "url": given["url"], "ok_status": "any"}
    config["headers"] = {**_headers(given.get("headers") or {}, base), **(base.get("headers") or {})}
    if given.get("body") is not None:
        config["body"] = given["body"]
    return config


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _headers(given: Mapping[str, str], base: _Base) -> dict[str, Json]:
    set_already = {name.lower() for name in base.get("headers") or {}}
    for name in given:
        if name.lower() in _CREDENTIALS | _NOT_THEIRS | set_already:
            why = "is set for you" if name.lower() not in _CREDENTIALS else "would carry credentials"
            raise ToolRefused(f"the header {name[:80]} {why}; leave it out.")
    return dict(given)


def _file(tool: ToolPlan, given: dict[str, Json], base: _Base) -> dict[str, Json]:
    try:
        path = "/".join(session_path(given["path"]))
    except BadPath as error:
        raise ToolRefused(f"{error}.") from error
    content = given.get("content")
    if isinstance(content, str) and len(content.encode("utf-8", "surrogatepass")) > 2**20:
        raise ToolRefused("files written here can have at most 1 MiB.")
    return {**base, **{name: value for name, value in given.items() if value is not None}, "path": path}


def _python(tool: ToolPlan, given: dict[str, Json], base: _Base) -> dict[str, Json]:
    # Defaults of the file; those of the function's own are its own affair.
    known = (tool.input_schema or {}).get("properties") or {}
    defaults = {name: field["default"] for name, field in known.items() if "default" in field}
    return {**base, "args": {**defaults, **given, **(base.get("args") or {})}}


def _mcp(tool: ToolPlan, given: dict[str, Json], base: _Base) -> dict[str, Json]:
    named = {name: tool.settings[name] for name in ("server", "tool") if name in tool.settings}
    patterns = base.get("resources")
    if patterns and "uri" in given and not may_read(given["uri"], patterns):
        listed = ", ".join(f"`{pattern}`" for pattern in patterns)
        raise ToolRefused(f"the resource {given['uri'][:200]} is not allowed here. Allowed are: {listed}.")
    return {**named, **base, "arguments": {**given, **(base.get("arguments") or {})}}


def _remember(tool: ToolPlan, given: dict[str, Json], base: _Base) -> dict[str, Json]:
    if not given["text"].strip():
        raise ToolRefused("the note is empty. Write what is to be remembered.")
    return {**base, "text": given["text"].strip()}


_PREPARE: Mapping[str, Callable[[ToolPlan, dict[str, Json], _Base], dict[str, Json]]] = {
    "ask_human": _ask_human,
    "plan": lambda tool, given, base: dict(base),
    "shell": _shell,
    "http": _http,
    "read_file": _file,
    "write_file": _file,
    "python": _python,
    "mcp": _mcp,
    "remember": _remember,
}
