"""One call of a model, as the runner of the inner node type `turn`.

It gets the whole turn as JSON (see `request_from`), asks the provider once, and reports how that ended as a value: what
the model said, or why there is no answer and whether trying again can help. It decides nothing about what follows and
keeps nothing, so that the next turn may run in another process.

Nothing is redacted here: secrets are references in everything that is journaled, and what tools gave back was freed of
them before it was journaled, so a conversation that is built from the journal has none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TypeAlias

from engine.decide.agents.token_estimates import Part, file_part, marks, too_little, tool_part
from engine.language.codec import Json, copy
from engine.language.errors import NotJson, SaysoError
from engine.messages.errors import BadResponse, ProviderError
from engine.messages.messages import Message
from engine.messages.turns import Finished, Tool, TurnRequest, TurnResult, Usage
from engine.models.abort import Abortable, Aborted
from engine.models.attachments import names_files, with_files, with_latest
from engine.models.provider import Provider
from engine.models.python_tools import with_functions
from engine.nodes.runtime.folder import FileRefused
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
    mcp: [{server, tools}], room, weighed}`. A tool with `call` is a function; see `engine.models.python_tools`. `room` are the
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
        temperature=config.get("temperature"),
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
        set aside leaves before anything is sent (`engine.decide.agents.token_estimates`)."""
        limit = asyncio.timeout(ctx.timeout)
        try:
            async with limit:
                return _completed(*await self._result(config, ctx))
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
        request = replace(request, messages=with_latest(request.messages))
        if any(names_files(message.content) for message in request.messages):
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
        replace(each, content=with_files(each.content, folder, made)) for each in request.messages
    )
    return replace(request, messages=messages), [file_part(block) for block in made]


def _completed(result: TurnResult, parts: Sequence[Part]) -> Outcome:
    output = {
        "content": list(result.content),
        "stopReason": result.stop_reason,
        "usage": result.usage.to_json(),
        "model": result.model,
        "interrupted": result.interrupted,
        "requestId": result.request_id,
        "weighed": marks(parts),
    }
    try:
        return Completed(copy(output))
    except NotJson as error:
        return failed(BadResponse(f"the answer cannot be stored ({error})", usage=result.usage))


def failed(error: ProviderError) -> Failed:
    """An error as an outcome; its details are `{retryable, retryAfter, usage, requestId}`, `retryAfter` in seconds."""
    return Failed(
        error.code,
        str(error),
        {
            "retryable": error.retryable,
            "retryAfter": error.retry_after,
            "usage": error.usage.to_json(),
            "requestId": error.request_id,
        },
    )


def _details(*, retryable: bool = False) -> Json:
    return {"retryable": retryable, "retryAfter": None, "usage": Usage().to_json(), "requestId": None}
