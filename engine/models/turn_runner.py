"""One call of a model, as the runner of the inner node type `turn`; what it sees of a session's files.

It gets the whole turn as JSON (see `request_from`), asks the provider once, and reports how that ended as a value: what
the model said, or why there is no answer and whether trying again can help. It decides nothing about what follows and
keeps nothing, so that the next turn may run in another process.

Nothing is redacted here: secrets are references in everything that is journaled, and what tools gave back was freed of
them before it was journaled, so a conversation that is built from the journal has none.

The first call of a conversation builds its request; its answer carries the request's body back (`opened`), and every later
call sends that as it is: no word of ours, of a docstring or of a server reaches a conversation that is in progress. Pictures,
PDFs and text are read by the first call that sends them, kept by their digest (`engine.nodes.runtime.kept_files`), and sent
from there forever. What a file is, its first bytes say; its name and its described type prove nothing.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

from msgspec import structs

from engine.decide.agents.tool_results import attribute, wrapped
from engine.language.codec import Json, copy, encode
from engine.language.errors import SaysoError
from engine.messages.errors import InvalidRequest, PrefixMismatch, ProviderError
from engine.messages.files import files_in, filled, hollow, kept, with_files
from engine.messages.messages import (
    IMAGE_TYPES,
    Message,
    image_block,
    pdf_block,
    text_block,
    text_document_block,
)
from engine.messages.models import ModelFacts, shipped
from engine.messages.request import is_about_search, looked_for, server_tools, settings_for
from engine.messages.turns import Finished, Tool, TurnRequest, TurnResult, Usage
from engine.models.function_tools import with_functions
from engine.models.provider import Abortable, Aborted, Provider
from engine.models.turn_outcome import completed, failed, no_details, unsent
from engine.nodes.runtime.effects import before_effect
from engine.nodes.runtime.folder import FileRefused, read_inside, sniffed
from engine.nodes.runtime.kept_files import keep, kept_bytes
from engine.nodes.runtime.runner import Completed, Failed, Interrupted, NodeContext, Outcome
from engine.nodes.runtime.user_code import NodeError

log = logging.getLogger("sayso.agent")


McpTools: TypeAlias = Callable[[str, Sequence[str]], Awaitable[Sequence[Tool]]]
"""The tools of a server that are wanted, by the server's name and theirs, named as the model is to know them."""

ProviderOf: TypeAlias = Callable[[NodeContext], Provider]
"""Returns the provider for the turn of this context. Raises `ProviderError` if there is none."""


class Unsent(SaysoError):
    """A part of a request is unavailable, so it was not sent. `lasting`: until somebody changes the setup."""

    def __init__(self, message: str, *, lasting: bool = False) -> None:
        self.lasting = lasting
        super().__init__(message)


class McpUnavailable(Unsent):
    """An MCP server did not list its tools."""

    code = "mcp"


class PlaceUnread(Unsent):
    """The messages of a thread or channel cannot be read now."""

    code = "context"


_LASTING = ("mcp_config", "secret")
"""Errors of the setup of a server, by their codes."""


SaidIn: TypeAlias = Callable[[Mapping[str, Json]], Awaitable[Sequence[str]]]
"""Returns the messages of a place `{channel, thread, most, since}`, a line for each, the newest last; or the notes of a
place `{channel, memory}` (`engine.run.memory`). Raises `SaysoError` if it may be readable at another time."""


async def nothing_said(place: Mapping[str, Json]) -> Sequence[str]:
    """Return no messages."""
    return ()


_LISTED_WITHIN = 1.0
"""Seconds for which an answer waits for what servers list."""
_DESCRIBED = ("description", "input_schema")

Approved: TypeAlias = Callable[[str], Awaitable[Sequence[Json]]]
"""The descriptions of a server's tools that conversations may begin with, the newest last."""


async def nothing_approved(server: str) -> Sequence[Json]:
    """Return no approved descriptions."""
    return ()


def _same(one: Mapping[str, Json], other: Mapping[str, Json]) -> bool:
    return all(one.get(part) == other.get(part) for part in _DESCRIBED)


def _of(tool: Tool, known: Sequence[Json]) -> list[Json]:
    return [each for each in known if each["name"] == tool.name]


def _as_approved(tool: Tool, known: Sequence[Json]) -> Tool:
    """A tool as its server describes it, where that was approved or nothing was; else as it was approved last."""
    own = _of(tool, known)
    if not own or any(_same(each, copy(tool.to_json())) for each in own):
        return tool
    return Tool(tool.name, own[-1]["description"] or "", own[-1]["input_schema"])


async def no_mcp(server: str, names: Sequence[str]) -> Sequence[Tool]:
    """Raise: no MCP servers are configured."""
    text = f"no MCP server is configured here, so the tools of {server} are unknown"
    raise McpUnavailable(text, lasting=True)


def request_from(config: Json, facts: ModelFacts | None = None) -> TurnRequest:
    """The request that a turn's config describes, without the tools of MCP servers; files are still named only.

    `{model, maxTokens, messages: [{role, content}], body, drop, mcp: [{server, tools}]}`; without a `body` the
    conversation is not opened yet, and there are `system`, `asks` and `tools: [{name, description, input_schema}]`. A
    tool with `call` is a Python function. `facts` are what the model takes.
    """
    facts = facts or shipped(config["model"])
    longest = min(config["maxTokens"], facts.max_tokens or config["maxTokens"])
    messages = tuple(Message.from_json(message) for message in config["messages"])
    off = {"thinking": "off"} if config.get("plain") else {}
    if config.get("body") is not None:
        body = {**config["body"], **settings_for(off, facts)} if off else config["body"]
        request = TurnRequest.opened(body, config["model"], messages, longest)
    else:
        request = TurnRequest(
            model=config["model"],
            messages=messages,
            max_tokens=longest,
            system=config.get("system") or "",
            tools=tuple(
                Tool(tool["name"], tool.get("description") or "", tool["input_schema"])
                for tool in config.get("tools") or ()
            )
            + tuple(server_tools(config.get("serverTools") or {}, facts)),
            settings=settings_for({**(config.get("asks") or {}), **off}, facts),
        )
    return replace(
        request,
        cache=config.get("cache") or "5m",
        user=config.get("user") or "",
        drop=bool(config.get("drop")),
        container=config.get("container"),
    )


class _Made(NamedTuple):
    """A request as it is sent, and what is to be journaled of it with its answer."""

    request: TurnRequest
    opened: dict[str, Json]


@dataclass(frozen=True)
class TurnRunner:
    """Runs nodes of type `turn`; see `Runner`. The provider is chosen for each turn."""

    provider: ProviderOf
    mcp_tools: McpTools = no_mcp
    said_in: SaidIn = nothing_said
    approved: Approved = nothing_approved

    async def __call__(self, config: dict[str, Json], ctx: NodeContext) -> Outcome:
        """The answer as `{content, stopReason, usage, model, interrupted, requestId, opened}`, or why there is none; see
        `failed`. A turn that was told to leave is complete, with what was said until then."""
        limit = asyncio.timeout(ctx.timeout)
        try:
            async with limit:
                return await self._result(config, ctx)
        except ProviderError as error:
            return failed(error)
        except NodeError as error:
            return unsent(error.type, str(error))
        except Unsent as error:
            return unsent(error.code, str(error), retryable=not error.lasting)
        except FileRefused as error:
            return unsent(error.code, str(error))
        except Exception as error:
            if limit.expired():
                return Interrupted("timeout", f"the model did not answer within {ctx.timeout:g} s")
            log.exception("%s %s: a turn raised", ctx.session_id, ctx.path)
            return Failed("internal", f"{type(error).__name__}: {error}", no_details())

    async def _result(self, config: dict[str, Json], ctx: NodeContext) -> Outcome:
        try:
            return await self._once(config, ctx)
        except InvalidRequest as error:
            if config.get("body") is not None or not (config.get("search") and is_about_search(str(error))):
                raise
            log.warning("%s %s: the model cannot look for tools: %s", ctx.session_id, ctx.path, error)
            return await self._once({**config, "search": None}, ctx)

    async def _once(self, config: dict[str, Json], ctx: NodeContext) -> Outcome:
        abortable = Abortable(ctx.aborted)
        try:
            made = await abortable.run(self._made(config, ctx))
        except Aborted:
            return completed(TurnResult((), None, Usage(), config["model"], interrupted=True))
        finally:
            abortable.close()
        looking = asyncio.ensure_future(self._changed(config))
        try:
            try:
                outcome = await self._asked(made, config, ctx)
            except PrefixMismatch:
                if made.request.drop:
                    raise
                log.warning(
                    "%s %s: thinking is bound to another beginning and is dropped", ctx.session_id, ctx.path
                )
                made = made._replace(
                    request=replace(made.request, drop=True), opened={**made.opened, "drop": True}
                )
                outcome = await self._asked(made, config, ctx)
            # It was asked for as long as the model thought; nobody waits for a server that says nothing.
            await asyncio.wait({looking}, timeout=_LISTED_WITHIN)
            changed = looking.result() if looking.done() else []
        finally:
            looking.cancel()
        if changed and isinstance(outcome, Completed):
            return Completed({**outcome.output, "changed": changed})
        return outcome

    async def _changed(self, config: Mapping[str, Json]) -> list[Json]:
        """Tools that their servers describe in other words than the conversation has, and nobody has approved. One that is gone,
        or whose server is away, is told of by its next call."""
        if config.get("body") is None:
            return []
        told = {tool["name"]: tool for tool in config["body"].get("tools") or ()}
        found: list[Json] = []
        for server in config.get("mcp") or ():
            known = await self.approved(server["server"])
            for tool in await self._listed(server["server"], server["tools"]):
                now, before = copy(tool.to_json()), told.get(tool.name)
                if before is not None and not any(_same(each, now) for each in (before, *_of(tool, known))):
                    found.append(now)
        return found

    async def _listed(self, server: str, names: Sequence[str]) -> Sequence[Tool]:
        """Those of the tools that the server lists now."""
        try:
            return await self.mcp_tools(server, names)
        except Exception as error:
            if len(names) > 1:
                return [tool for name in names for tool in await self._listed(server, [name])]
            log.info("%s of the MCP server %s is not listed: %s", names[0], server, error)
            return []

    async def _asked(self, made: _Made, config: dict[str, Json], ctx: NodeContext) -> Outcome:
        """The answer; a summary that the API will not make is asked for in words."""
        signed = bool(made.request.summing)
        try:
            result = await self._told(made.request, ctx)
        except InvalidRequest as error:
            if type(error) is not InvalidRequest or not signed:
                raise
            log.warning("%s %s: the API makes no summary: %s", ctx.session_id, ctx.path, error)
            signed = False
            result = await self._told(_summing(made.request, config["summary"], signed=False), ctx)
        return completed(result, made.opened, signed=signed)

    async def _told(self, request: TurnRequest, ctx: NodeContext) -> TurnResult:
        provider = self.provider(ctx)
        await before_effect()
        async with aclosing(provider.stream(request, ctx.aborted)) as events:
            async for event in events:
                ctx.stream(event)
                if isinstance(event, Finished):
                    return event.result
        raise RuntimeError(f"{type(provider).__name__} ended a turn without Finished or an error")

    async def _made(self, config: dict[str, Json], ctx: NodeContext) -> _Made:
        opened = dict[str, Json]()
        facts = await self.provider(ctx).facts(config["model"])
        if config.get("body") is None:
            first = await self._first(config, ctx, facts)
            # As a reader of the journal will see it: the first call sends nothing else than the second.
            opened = {"body": copy(first.frame())} | ({"drop": True} if first.drop else {})
            names = [
                f"{server['server']}__{name}"
                for server in config.get("mcp") or ()
                for name in server["tools"]
            ]
            opened |= {"listed": names} if names else {}
            config = {**config, **opened}
        request = request_from(config, facts)
        if config.get("summary"):
            request = _summing(request, config["summary"], signed=facts.compaction)
        if any(True for message in request.messages for _ in files_in(message.content)):
            # The messages of the places that were not read yet.
            files = [block for message in request.messages for block in files_in(message.content)]
            places = [block["place"] for block in files if not kept(block) and "place" in block]
            try:
                told = {_place_key(place): said_text(place, await self.said_in(place)) for place in places}
            except SaysoError as error:
                raise PlaceUnread(f"earlier messages cannot be read right now: {error}") from error
            messages, read = await asyncio.to_thread(_with_all_files, request.messages, ctx, told)
            request = replace(request, messages=messages)
            opened |= {"files": read} if read else {}
        return _Made(request, opened)

    async def _first(self, config: dict[str, Json], ctx: NodeContext, facts: ModelFacts) -> TurnRequest:
        """The request of a conversation that is not opened."""
        if any("call" in tool for tool in config.get("tools") or ()):
            tools = await asyncio.to_thread(with_functions, config["tools"], ctx.flow_dir)
            config = {**config, "tools": tools}
        request = request_from(config, facts)
        served = list[Tool]()
        for server in config.get("mcp") or ():
            told = await self._tools_of(server["server"], server["tools"])
            known = await self.approved(server["server"])
            served += [_as_approved(tool, known) for tool in told]
        if served and config.get("search"):
            served = looked_for(served, config["search"])
        return replace(request, tools=(*request.tools, *served))

    async def _tools_of(self, server: str, names: Sequence[str]) -> Sequence[Tool]:
        try:
            return await self.mcp_tools(server, names)
        except McpUnavailable:
            raise
        except Exception as error:
            lasting = isinstance(error, SaysoError) and error.code in _LASTING
            message = f"the MCP server {server} did not list its tools: {error}"
            raise McpUnavailable(message, lasting=lasting) from error


def _summing(request: TurnRequest, asked: Mapping[str, Json], *, signed: bool) -> TurnRequest:
    """The request for a summary instead of an answer: by the API, which signs it, else in words at the end of what was said
    last."""
    if signed and asked["signed"]:
        own = asked.get("instructions")
        return replace(request, summing={"type": "summarize", **({"instructions": own} if own else {})})
    last = request.messages[-1]
    last = structs.replace(last, content=(*last.content, text_block(asked["words"])))
    return replace(request, messages=(*request.messages[:-1], last), summing={})


# --- files -------------------------------------------------------------------------------------------------


MOST_BYTES = 10 * 2**20
"""Of one file."""


MOST_SAID = 60_000
"""Characters of what was said in a place; the newest is kept."""


def said_text(place: Mapping[str, Json], lines: Sequence[str]) -> str:
    """Return the messages of a place, as one block of data."""
    room, newest = MOST_SAID, list[str]()
    for line in reversed(lines):
        room -= len(line) + 1
        if room < 0:
            newest.append("(What was said earlier is left out.)")
            break
        newest.append(line)
    if "memory" in place:
        return wrapped("memory", "\n".join(reversed(newest)) or "(there are no notes yet)")
    where = "channel" if place.get("thread") is None else "thread"
    return wrapped("thread", "\n".join(reversed(newest)) or "(nothing)", of=where)


def _place_key(place: Mapping[str, Json]) -> str:
    return encode(dict(place)).decode()


def _with_all_files(
    messages: Sequence[Message], ctx: NodeContext, told: Mapping[str, str]
) -> tuple[tuple[Message, ...], list[Json]]:
    """The messages with all files instead of what names them, and what is to be known of those that are sent for the first
    time. Raises `FileRefused`."""
    read = list[Json]()

    def made(named: Json) -> Json:
        if "place" in named and not kept(named):
            text = told[_place_key(named["place"])]
            read.append({"digest": keep(ctx.workdir, b""), "size": len(text), "block": text_block(text)})
            named = {**named, **read[-1]}
        elif not kept(named):
            # Whoever sent the file chose its name.
            name = attribute(str(named.get("name") or Path(str(named.get("path") or "")).name))
            data = read_inside(ctx.folder(), str(named.get("path") or ""), MOST_BYTES)
            block = file_block(named, data, name)
            read.append({"digest": keep(ctx.workdir, data), "size": len(data), "block": hollow(block)})
            named = {**named, **read[-1]}
        return filled(named, kept_bytes(ctx.workdir, named["digest"], str(named.get("name"))))

    sent = tuple(structs.replace(each, content=tuple(with_files(each.content, made))) for each in messages)
    return sent, read


def file_block(named: Mapping[str, Json], data: bytes, name: str) -> Json:
    """These bytes of the file that a `sayso_file` block names, as a block of the Messages API. Raises `FileRefused`."""
    kind = sniffed(data[:4096])
    if str(named.get("mediaType")).startswith("image/") and kind not in IMAGE_TYPES:
        # What it may cost was reckoned by what it said it was.
        raise FileRefused(f"{name} was sent as a picture but is {kind}; send it again as such a file")
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
