"""One call of a model, as the runner of the inner node type `turn`; what the model is told of Python
functions that are tools, and what it sees of a session's files.

It gets the whole turn as JSON (see `request_from`), asks the provider once, and reports how that ended as a value: what
the model said, or why there is no answer and whether trying again can help. It decides nothing about what follows and
keeps nothing, so that the next turn may run in another process.

Nothing is redacted here: secrets are references in everything that is journaled, and what tools gave back was freed of
them before it was journaled, so a conversation that is built from the journal has none.

A flow is loaded without importing anything, so a function is asked when the model is told of it: in the runner of the
model call. That is also where a function that is not there shows itself.

Pictures, PDFs and text are read when the turn is asked for. The journal names a file (`sayso_file`) and does
not hold it: what a conversation weighs does not grow with every turn. What a file is, its first bytes say;
its name and its described type prove nothing. A picture that a tool has read has a `digest` too: what is
shown as the result of a call is what that call saw, or nothing.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import structs
from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from engine.decide.agents.budget import Part, file_part, marks, too_little, tool_part
from engine.decide.agents.tool_results import attribute
from engine.language.codec import Json, copy
from engine.language.errors import NotJson, SaysoError
from engine.messages.errors import BadResponse, ProviderError
from engine.messages.messages import (
    IMAGE_TYPES,
    Message,
    image_block,
    pdf_block,
    text_block,
    text_document_block,
)
from engine.messages.models import shipped
from engine.messages.request import settings_for
from engine.messages.turns import Finished, Tool, TurnRequest, TurnResult, Usage
from engine.models.provider import Abortable, Aborted, Provider
from engine.nodes.runtime.folder import FileRefused, fingerprint, read_inside, sniffed
from engine.nodes.runtime.python import CTX, GATHERING, load, signature_of
from engine.nodes.runtime.runner import Completed, Failed, Interrupted, NodeContext, Outcome
from engine.nodes.runtime.user_code import NodeError

log = logging.getLogger("sayso.agent")


McpTools: TypeAlias = Callable[[str, Sequence[str]], Awaitable[Sequence[Tool]]]
"""The tools of a server that are wanted, by the server's name and theirs, named as the model is to know them."""

ProviderOf: TypeAlias = Callable[[NodeContext], Provider]
"""Who answers the turn of this context. Raises `ProviderError` where nobody can."""


class McpUnavailable(SaysoError):
    """A server of tools did not say what its tools are. `lasting`: nor will it, before somebody changes its setup."""

    code = "mcp"

    def __init__(self, message: str, *, lasting: bool = False) -> None:
        self.lasting = lasting
        super().__init__(message)


_LASTING = ("mcp_config", "secret")
"""Errors of the setup of a server, by their codes."""


async def no_mcp(server: str, names: Sequence[str]) -> Sequence[Tool]:
    """Where no servers of tools are configured."""
    text = f"no MCP server is configured here, so {server} cannot be asked for its tools"
    raise McpUnavailable(text, lasting=True)


def request_from(config: Json) -> TurnRequest:
    """The request that a turn's config describes, without the tools of MCP servers; files are still named only.

    `{model, system, maxTokens, temperature, messages: [{role, content}], tools: [{name, description, input_schema}],
    mcp: [{server, tools}], room, weighed}`. A tool with `call` is a Python function. `room` are the
    tokens that are set aside for files and tools that are known here only, beside those with the marks `weighed`.
    """
    return TurnRequest(
        model=config["model"],
        messages=tuple(Message.from_json(message) for message in config["messages"]),
        max_tokens=config["maxTokens"],
        system=config.get("system") or "",
        tools=tuple(
            Tool(tool["name"], tool.get("description") or "", tool["input_schema"])
            for tool in config.get("tools") or ()
        ),
        settings=settings_for(config.get("asks") or {}, shipped(config["model"])),
        cache=config.get("cache") or "5m",
        user=config.get("user") or "",
    )


class _TooLittle(Exception):
    """More would be sent than is set aside for: nothing is. Carries what the core is to know."""

    def __init__(self, saved: Json) -> None:
        self.saved = saved
        super().__init__("more would be sent than what is set aside for")


@dataclass(frozen=True)
class TurnRunner:
    """Runs nodes of type `turn`; see `Runner`. The provider is chosen for each turn."""

    provider: ProviderOf
    mcp_tools: McpTools = no_mcp

    async def __call__(self, config: dict[str, Json], ctx: NodeContext) -> Outcome:
        """The answer as `{content, stopReason, usage, model, interrupted, requestId, weighed}`, or why there is none; see
        `failed`. A turn that was told to leave is complete, with what was said until then. One for which too little is
        set aside leaves before anything is sent (`engine.decide.agents.budget`)."""
        limit = asyncio.timeout(ctx.timeout)
        try:
            async with limit:
                return completed(*await self._result(config, ctx))
        except _TooLittle as found:
            return Interrupted("left", str(found), found.saved)
        except ProviderError as error:
            return failed(error)
        except NodeError as error:
            return Failed(error.type, str(error), _details())
        except McpUnavailable as error:
            return Failed(error.code, str(error), _details(retryable=not error.lasting))
        except FileRefused as error:
            return Failed(error.code, str(error), _details())
        except Exception as error:
            if limit.expired():
                return Interrupted("timeout", f"the model had not answered after {ctx.timeout:g} s")
            log.exception("%s %s: a turn raised", ctx.session_id, ctx.path)
            return Failed("internal", f"{type(error).__name__}: {error}", _details())

    async def _result(self, config: dict[str, Json], ctx: NodeContext) -> tuple[TurnResult, Sequence[Part]]:
        abortable = Abortable(ctx.aborted)
        try:
            request, parts = await abortable.run(self._request(config, ctx))
        except Aborted:
            return TurnResult((), None, Usage(), config["model"], interrupted=True), ()
        finally:
            abortable.close()
        missing = too_little(parts, config, ctx.saved)
        if missing is not None:
            raise _TooLittle(missing)
        provider = self.provider(ctx)
        async with aclosing(provider.stream(request, ctx.aborted)) as events:
            async for event in events:
                ctx.stream(event)
                if isinstance(event, Finished):
                    return event.result, parts
        raise RuntimeError(f"{type(provider).__name__} ended a turn without Finished and without an error")

    async def _request(self, config: dict[str, Json], ctx: NodeContext) -> tuple[TurnRequest, Sequence[Part]]:
        """What is sent, and what of it the core could not know."""
        functions = {tool["name"] for tool in config.get("tools") or () if "call" in tool}
        if functions:
            tools = await asyncio.to_thread(with_functions, config["tools"], ctx.flow_dir)
            config = {**config, "tools": tools}
        request, parts = request_from(config), list[Part]()
        request = replace(request, messages=_with_latest(request.messages))
        if any(_names_files(message.content) for message in request.messages):
            request, parts = await asyncio.to_thread(_with_all_files, request, ctx)
        offered = list(request.tools)
        found = [tool for tool in offered if tool.name in functions]
        for server in config.get("mcp") or ():
            told = await self._tools_of(server["server"], server["tools"])
            offered, found = [*offered, *told], [*found, *told]
        return replace(request, tools=tuple(offered)), [*parts, *map(tool_part, found)]

    async def _tools_of(self, server: str, names: Sequence[str]) -> Sequence[Tool]:
        try:
            return await self.mcp_tools(server, names)
        except McpUnavailable:
            raise
        except Exception as error:
            lasting = isinstance(error, SaysoError) and error.code in _LASTING
            message = f"the MCP server {server} did not say what its tools are: {error}"
            raise McpUnavailable(message, lasting=lasting) from error


def _with_all_files(request: TurnRequest, ctx: NodeContext) -> tuple[TurnRequest, list[Part]]:
    folder, made = ctx.folder(), list[Json]()
    messages = tuple(
        structs.replace(each, content=tuple(_with_files(block, folder, made) for block in each.content))
        for each in request.messages
    )
    return replace(request, messages=messages), [file_part(block) for block in made]


def completed(result: TurnResult, parts: Sequence[Part]) -> Outcome:
    """An answer as an outcome; see `TurnRunner.__call__`."""
    output = {
        "content": list(result.content),
        "stopReason": result.stop_reason,
        "usage": result.usage.to_json(),
        "model": result.model,
        "interrupted": result.interrupted,
        "requestId": result.request_id,
        "weighed": marks(parts),
        **({"stopDetails": result.stop_details} if result.stop_details else {}),
        **({"transformations": list(result.transformations)} if result.transformations else {}),
        **({"container": result.container} if result.container else {}),
        **({"parts": list(result.parts)} if result.parts else {}),
        **({"context": result.context} if result.context is not None else {}),
        **({"searches": result.searches} if result.searches else {}),
    }
    try:
        return Completed(copy(output))
    except NotJson as error:
        return failed(BadResponse(f"the answer cannot be stored ({error})", usage=result.usage))


def failed(error: ProviderError) -> Failed:
    """An error as an outcome; its details are `{retryable, retryAfter, usage, requestId}`, `retryAfter` in seconds, and
    `status`, `errorCode` and `told` where the provider said them (see `ProviderError`)."""
    said = {"status": error.status, "errorCode": error.error_code, "told": error.told}
    return Failed(
        error.code,
        str(error),
        {
            "retryable": error.retryable,
            "retryAfter": error.retry_after,
            "usage": error.usage.to_json(),
            "requestId": error.request_id,
            **{name: value for name, value in said.items() if value},
        },
    )


def _details(*, retryable: bool = False) -> Json:
    return {"retryable": retryable, "retryAfter": None, "usage": Usage().to_json(), "requestId": None}


# --- Python tools ------------------------------------------------------------------------------------------


MOST_TOLD = 2_000
"""Characters of what a function says of itself that the model is told."""


def with_functions(tools: list[Json], folder: Path | None) -> list[Json]:
    """The tools of a model call, those that are functions (`call`) with their descriptions and schemas. Imports their
    modules; `folder` is that of the flow file. Raises `NodeError`."""
    return [_described(tool, folder) if tool.get("call") is not None else tool for tool in tools]


def _described(tool: Mapping[str, Json], folder: Path | None) -> dict[str, Json]:
    function = load(tool["call"], folder)
    described = {
        "name": tool["name"],
        "description": tool["description"],
        "input_schema": tool["input_schema"],
    }
    if not described["description"]:
        described["description"] = described_by(function) or f"Calls {tool['call']}."
    if described["input_schema"] is None:
        try:
            described["input_schema"] = schema_by_hints(function)
        except NodeError as error:
            raise NodeError(f"the tool {tool['name']} ({tool['call']}): {error}", error.type) from error
    return described


def described_by(function: Callable[..., Any]) -> str:
    """The docstring of a function; nothing where it has none of its own."""
    text = inspect.getdoc(function) if inspect.isroutine(function) or inspect.isclass(function) else None
    return (text or "").strip()[:MOST_TOLD]


def schema_by_hints(function: Callable[..., Any]) -> dict[str, Json]:
    """The JSON Schema of what a function takes: a parameter without a type hint takes anything, `ctx` is not the model's
    to give. Raises `NodeError` for a hint that JSON has nothing for."""
    signature, hints = signature_of(function)
    properties: dict[str, Json] = {}
    definitions: dict[str, Json] = {}
    required: list[str] = []
    for name, parameter in signature.parameters.items():
        if name == CTX or parameter.kind in GATHERING:
            continue
        schema = _schema(name, hints.get(name, Any))
        definitions |= schema.pop("$defs", {})
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
        else:
            schema = _with_default(schema, parameter.default)
        properties[name] = schema
    takes_any = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
    whole = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": takes_any,
    }
    return {**whole, "$defs": definitions} if definitions else whole


def _schema(name: str, hint: Any) -> dict[str, Json]:
    try:
        schema: dict[str, Json] = TypeAdapter(hint).json_schema()
    except PydanticUserError as error:
        text = f"its parameter `{name}` has the type hint {hint!r}, for which there is nothing in JSON"
        raise NodeError(f"{text}; say under `input` of the tool what it takes", "args") from error
    return schema


def _with_default(schema: dict[str, Json], default: Any) -> dict[str, Json]:
    try:
        return {**schema, "default": copy(default)}
    except NotJson:
        return schema


# --- files -------------------------------------------------------------------------------------------------


FILE_BLOCK = "sayso_file"
"""The type of a block that stands for a file: `{type, path, name, mediaType}`, with `digest` and `size` for a picture that
a tool has read."""

MOST_BYTES = 10 * 2**20
"""Of one file."""

MOST_SHOWN = 20
"""Pictures of tools in one request: with more of them, the API takes only small ones."""
MOST_SHOWN_BYTES = 15 * 2**20
"""Bytes of them together; a request has 32 MB at most, as base64."""

_EARLIER = "(The picture that was shown here is not sent any more, since there are many later ones.)"
_CHANGED = (
    "(The picture {name} cannot be shown here any more: the file was changed or removed after it was read.)"
)


def _with_latest(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages with as many pictures of tools as a request has room for, the latest ones; text in place of others."""
    places = [
        ((number, at, inside), _shown_bytes(part))
        for number, message in enumerate(messages)
        for at, block in enumerate(message.content)
        for inside, part in enumerate(_parts(block))
    ]
    pictures = [(place, size) for place, size in reversed(places) if size]
    room, gone = MOST_SHOWN_BYTES, set[tuple[int, int, int]]()
    for count, (place, size) in enumerate(pictures, 1):
        room -= size
        if room < 0 or count > MOST_SHOWN:
            gone.add(place)
    return tuple(_without(message, number, gone) for number, message in enumerate(messages))


def _without(message: Message, number: int, gone: set[tuple[int, int, int]]) -> Message:
    if not any(place[0] == number for place in gone):
        return message
    blocks = []
    for at, block in enumerate(message.content):
        kept = [
            text_block(_EARLIER) if (number, at, inside) in gone else part
            for inside, part in enumerate(_parts(block))
        ]
        blocks.append({**block, "content": kept} if kept else block)
    return structs.replace(message, content=tuple(blocks))


def _parts(block: Json) -> list[Json]:
    """The blocks in a tool's result."""
    content = block.get("content")
    return content if block["type"] == "tool_result" and isinstance(content, list) else []


def _shown_bytes(part: Json) -> int:
    """Bytes of a picture; 0 for anything else."""
    if part["type"] == "image":
        return len(str(part["source"].get("data") or "")) * 3 // 4
    return int(part.get("size") or 0) if part["type"] == FILE_BLOCK else 0


def _names_files(content: Sequence[Json]) -> bool:
    """Whether a message has any such block."""
    return any(
        block.get("type") == FILE_BLOCK
        or (isinstance(block.get("content"), list) and _names_files(block["content"]))
        for block in content
        if isinstance(block, dict)
    )


def _with_files(block: Json, folder: Path, made: list[Json]) -> Json:
    """A block with the file of this folder in place of what names it, in tools' results too; `made` gets what stands for
    files. Raises `FileRefused`."""
    if block.get("type") == FILE_BLOCK:
        made.append(file_block(block, folder))
        return made[-1]
    if block.get("type") == "tool_result" and isinstance(block.get("content"), list):
        return {**block, "content": [_with_files(part, folder, made) for part in block["content"]]}
    return block


def file_block(named: Mapping[str, Json], folder: Path) -> Json:
    """The file that a `sayso_file` block names, as a block of the Messages API. Raises `FileRefused`."""
    path = str(named.get("path") or "")
    # Whoever sent the file chose its name.
    name = attribute(str(named.get("name") or Path(path).name))
    if named.get("digest"):
        return _as_read(named, folder, name)
    data = read_inside(folder, path, MOST_BYTES)
    kind = sniffed(data[:4096])
    if str(named.get("mediaType")).startswith("image/") and kind not in IMAGE_TYPES:
        # What it may cost was reckoned by what it said it was.
        raise FileRefused(f"{name} was sent as a picture and is {kind}; send it again as what it is")
    if kind in IMAGE_TYPES:
        return image_block(kind, base64.b64encode(data).decode())
    if kind == "application/pdf":
        return pdf_block(base64.b64encode(data).decode(), title=name)
    try:
        text = data.decode() if kind == "text/plain" else None
    except UnicodeDecodeError:
        text = None
    if text is None:
        raise FileRefused(
            f"{name} is neither text nor a picture ({', '.join(each.removeprefix('image/') for each in IMAGE_TYPES)}) "
            f"nor a PDF, but {kind}: Claude cannot read it"
        )
    if not text.strip():
        return text_block(f"The file {name} is empty.")
    return text_document_block(text, title=name)


def _as_read(named: Mapping[str, Json], folder: Path, name: str) -> Json:
    """A picture as it was when a tool read it; words where it is another one by now."""
    try:
        data = read_inside(folder, str(named.get("path") or ""), MOST_BYTES)
    except FileRefused:
        return text_block(_CHANGED.format(name=name))
    if fingerprint(data) != named["digest"]:
        return text_block(_CHANGED.format(name=name))
    return image_block(str(named["mediaType"]), base64.b64encode(data).decode())
