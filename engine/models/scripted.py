"""A provider that says what a script says: for tests, for a first try without a key, and for users' own
tests.

A script is a list of turns, used up one after the other. It is strict: a turn that expected something else, a tool
that the request does not offer, and a turn after the last one are errors that say what came instead.

Instead of Claude, which turn of a script is said follows from the place of the turn in its session and from
nothing else, so a process that continues after another one was killed says what that one would have said. The
n-th model call of an agent gets the n-th answer of its script; an error, and a stream that is cut, stand
before the answer that is given after trying again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from engine.language.codec import Json
from engine.language.errors import FlowError
from engine.messages import errors
from engine.messages.errors import ProviderError, ScriptError
from engine.messages.messages import Message
from engine.messages.models import ModelFacts, shipped
from engine.messages.stream import Assembly
from engine.messages.turns import Finished, TurnEvent, TurnRequest
from engine.models.provider import Provider, refuse_illegal
from engine.nodes.runtime.runner import NodeContext

CHUNK = 16
"""Characters in a piece of a scripted stream."""

_ERRORS: dict[str, type[ProviderError]] = {
    kind.code: kind
    for kind in (
        errors.RateLimited,
        errors.Overloaded,
        errors.Unavailable,
        errors.BadResponse,
        errors.InvalidRequest,
        errors.ContextTooLong,
        errors.PrefixMismatch,
        errors.AccessDenied,
        errors.SpendLimit,
        errors.ModelGone,
    )
}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Expected(_Strict):
    """Required parts of the conversation's last message: words of the user, and words of tools' results."""

    user: str | None = None
    result: str | None = None


class ToolCall(_Strict):
    """A tool that the model asks for. Left out, the id is made from the turn's and the call's number."""

    name: str
    input: dict[str, Any] = Field(default_factory=dict)
    id: str | None = None


class Failure(_Strict):
    """An error instead of an answer, by its code: `rate_limited`, `overloaded`, `unavailable`, ..."""

    kind: Literal[
        "rate_limited",
        "overloaded",
        "unavailable",
        "bad_response",
        "request_invalid",
        "context_too_long",
        "prefix_mismatch",
        "access_denied",
        "spend_limit",
        "model_not_found",
    ]
    message: str = "scripted"
    retry_after: Annotated[float, Field(ge=0)] | None = None
    error_code: str | None = None
    told: dict[str, Any] = Field(default_factory=dict)


class Tokens(_Strict):
    """The usage to report; left out, it is counted from the texts, four characters a token."""

    input_tokens: Annotated[int, Field(ge=0)] = 0
    output_tokens: Annotated[int, Field(ge=0)] = 0
    cache_read_input_tokens: Annotated[int, Field(ge=0)] = 0
    cache_creation_input_tokens: Annotated[int, Field(ge=0)] = 0


class Turn(_Strict):
    """One answer: thinking, then text, other `blocks` as the wire has them, then tool calls; or a failure. `cut` ends it
    without a stop reason, `dropped` is how many blocks of earlier thinking the API left out. `or` has the answers in its
    place where what it expects did not come: the first of them that fits is given."""

    expect: Expected | None = None
    thinking: str | None = None
    text: str | None = None
    blocks: tuple[dict[str, Any], ...] = ()
    tools: tuple[ToolCall, ...] = ()
    dropped: Annotated[int, Field(ge=0)] = 0
    stop_reason: str | None = None
    stop_details: dict[str, Any] | None = None
    usage: Tokens | None = None
    cut: bool = False
    error: Failure | None = None
    others: tuple[Turn, ...] = Field(default=(), alias="or")

    @model_validator(mode="after")
    def _says_one_thing(self) -> Turn:
        says = bool(self.thinking or self.text or self.blocks or self.tools)
        if self.error is not None and (says or self.cut or self.stop_reason or self.usage):
            raise ValueError("a turn with an error cannot have anything else")
        if self.error is None and not says and self.stop_reason is None:
            raise ValueError("a turn says something, calls a tool, or is an error")
        if self.others and self.expect is None:
            raise ValueError("`or` is used when `expect` does not match, but there is no `expect`")
        if any(other.others or other.error or other.cut for other in self.others):
            raise ValueError("`or` can only have answers: no errors, no cut answers, and no other `or`")
        return self


class Script(_Strict):
    """A whole script: `turns` are those of every agent that `agents` does not name. `pace` is how many seconds lie between
    two pieces of a stream, of 16 characters each: what is looked at should not be there all at once."""

    pace: Annotated[float, Field(ge=0, le=5)] = 0.0
    turns: tuple[Turn, ...] = ()
    agents: dict[str, tuple[Turn, ...]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _says_something(self) -> Script:
        if "turns" not in self.model_fields_set and not self.agents:
            raise ValueError("a script has turns, or agents with turns")
        return self

    def turns_of(self, agent: str) -> tuple[Turn, ...]:
        """The turns of an agent, by its node's id. Raises `ScriptError` where there are none."""
        if agent in self.agents:
            return self.agents[agent]
        if "turns" not in self.model_fields_set:
            raise ScriptError(f"the script has no turns for agent {agent}: {', '.join(sorted(self.agents))}")
        return self.turns


def script_from(data: Json, *, file: str = "script") -> Script:
    """A script from JSON data: `{turns: [...]}`, `{agents: {<id>: [...]}}`, or the list alone. Raises `ScriptError` that says where."""
    try:
        return Script.model_validate({"turns": data} if isinstance(data, list) else data)
    except ValidationError as error:
        lines = []
        for each in error.errors(include_url=False):
            place = ".".join(str(part) for part in each["loc"])
            lines.append(f"{file}: {place}: {each['msg']}" if place else f"{file}: {each['msg']}")
        raise ScriptError("\n".join(lines)) from None


def load_script(path: Path) -> Script:
    """A script from a file of YAML (so of JSON too), read as flows are. Raises `ScriptError`."""
    from engine.language.yaml import decode_source, load_located

    try:
        located = load_located(decode_source(path.read_bytes(), path.name), path.name)
    except OSError as error:
        raise ScriptError(f"the script {path.name} cannot be read: {error}") from error
    except FlowError as error:
        raise ScriptError(str(error)) from error
    if located.problems or located.doubts:
        raise ScriptError("\n".join(map(str, located.problems + located.doubts)))
    return script_from(located.data, file=path.name)


@dataclass
class ScriptedProvider:
    """Answers from a script. `position` is the next turn (from 0): a new process continues where another one was.

    With `label` answers name that as their model, and cost nothing unless the script says what they used.
    """

    script: Script
    position: int = 0
    label: str | None = None

    async def stream(
        self, request: TurnRequest, abort: asyncio.Event | None = None
    ) -> AsyncGenerator[TurnEvent, None]:
        """One turn; see `Provider.stream`. Each piece is given on its own, with a chance for others in between."""
        refuse_illegal(request)
        number, turn = self._take(request)
        if turn.error is not None:
            failure = turn.error
            more = failure.model_dump(include={"retry_after", "error_code", "told"})
            raise _ERRORS[failure.kind](f"turn {number}: {failure.message}", **more)
        assembly = Assembly(f"req_script_{number}", model=request.model)
        for event in _wire(turn, number, request, self.label):
            await _pause(self.script.pace if event["type"] == "content_block_delta" else 0, abort)
            if abort is not None and abort.is_set():
                yield Finished(assembly.interrupted())
                return
            for told in assembly.take(event):
                yield told
        yield Finished(assembly.finish())

    async def facts(self, model: str) -> ModelFacts:
        """See `Provider`."""
        return shipped(model)

    async def close(self) -> None:
        """Nothing is held."""

    def done(self) -> None:
        """Raise `ScriptError` where turns are left: a test calls it at its end."""
        left = len(self.script.turns) - self.position
        if left:
            raise ScriptError(f"{left} of {len(self.script.turns)} turns of the script were not used")

    def _take(self, request: TurnRequest) -> tuple[int, Turn]:
        """The next turn and its number, from 1, once the request is what it expects; else it stays the next."""
        number = self.position + 1
        if self.position >= len(self.script.turns):
            last = _excerpt(request.messages[-1])
            raise ScriptError(f"the script ended after {self.position} turns, but another call came: {last}")
        turn = _fitting(number, self.script.turns[self.position], request.messages[-1])
        offered = [tool.name for tool in request.tools]
        for call in turn.tools:
            if call.name not in offered:
                listed = ", ".join(offered) or "none"
                raise ScriptError(f"turn {number} calls {call.name}, but the tools offered are: {listed}")
        self.position += 1
        return number, turn


async def _pause(seconds: float, abort: asyncio.Event | None) -> None:
    """Let so much time pass; less when the turn is to end."""
    if not seconds or abort is None:
        await asyncio.sleep(seconds)
        return
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(abort.wait(), seconds)


def _fitting(number: int, turn: Turn, message: Message) -> Turn:
    """The turn, or the first of those in its place whose expectations the message meets. Raises `ScriptError`."""
    for each in (turn, *turn.others):
        try:
            _check_expected(number, each.expect, message)
        except ScriptError:
            continue
        return each
    _check_expected(number, turn.expect, message)
    return turn


def _check_expected(number: int, expected: Expected | None, message: Message) -> None:
    if expected is None:
        return
    found = {"user": _texts(message, "text"), "result": _texts(message, "tool_result")}
    for name, words in (("user", expected.user), ("result", expected.result)):
        if words is not None and not any(words in text for text in found[name]):
            what = "the user's words" if name == "user" else "a tool's result"
            raise ScriptError(f"turn {number} expected {words!r} in {what}, and got: {_excerpt(message)}")


def _texts(message: Message, kind: str) -> list[str]:
    """The texts of a message, or of its tools' results."""
    texts = []
    for block in message.content:
        if block["type"] == kind == "text":
            texts.append(block["text"])
        elif block["type"] == kind:
            content = block.get("content", "")
            parts = [{"text": content}] if isinstance(content, str) else content
            texts += [part["text"] for part in parts if isinstance(part.get("text"), str)]
    return texts


def _excerpt(message: Message) -> str:
    text = " | ".join(_texts(message, "text") + _texts(message, "tool_result"))
    return repr(text if len(text) <= 200 else text[:200] + "…")


# --- the turn as the wire would have it ------------------------------------------------------------------------


def _wire(turn: Turn, number: int, request: TurnRequest, label: str | None) -> Iterator[Json]:
    usage = Tokens().model_dump() if label and turn.usage is None else _usage(turn, request)
    dropped = [{"type": "thinking_dropped", "reason": "prefix_binding_mismatch"}] * turn.dropped
    message = {"model": label or request.model, "usage": {**usage, "output_tokens": 0}}
    yield {"type": "message_start", "message": {**message, "input_transformations": dropped}}
    for index, (block, deltas) in enumerate(_blocks(turn, number)):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    if not turn.cut:
        reason = turn.stop_reason or ("tool_use" if turn.tools else "end_turn")
        ended = {"stop_reason": reason, "stop_details": turn.stop_details}
        yield {"type": "message_delta", "delta": ended, "usage": usage}
        yield {"type": "message_stop"}


def _blocks(turn: Turn, number: int) -> Iterator[tuple[Json, list[Json]]]:
    """The blocks of a turn as they begin, each with its deltas."""
    if turn.thinking:
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(turn.thinking)]
        deltas.append({"type": "signature_delta", "signature": f"script-{number}"})
        yield {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if turn.text:
        yield (
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": piece} for piece in _pieces(turn.text)],
        )
    yield from ((block, []) for block in turn.blocks)
    for place, call in enumerate(turn.tools, 1):
        block = {"type": "tool_use", "id": call.id or f"toolu_script_{number}_{place}", "name": call.name}
        pieces = _pieces(json.dumps(call.input, ensure_ascii=False))
        yield (
            {**block, "input": {}},
            [{"type": "input_json_delta", "partial_json": piece} for piece in pieces],
        )


def _pieces(text: str) -> list[str]:
    return [text[start : start + CHUNK] for start in range(0, len(text), CHUNK)]


def _usage(turn: Turn, request: TurnRequest) -> dict[str, int]:
    if turn.usage is not None:
        return turn.usage.model_dump()
    said = (turn.thinking or "") + (turn.text or "")
    said += "".join(json.dumps(call.input) for call in turn.tools)
    sent = sum(len(json.dumps(message.to_json(), ensure_ascii=False)) for message in request.messages)
    return {"input_tokens": sent // 4 + 1, "output_tokens": len(said) // 4 + 1}


# --- scripts instead of Claude ----------------------------------------------------------------------------


SCRIPTED = "scripted"
"""Model name noted for a script's answers."""

SUFFIXES = (".script.yml", ".script.yaml")
"""Suffixes of the script that belongs to a flow: `incident.script.yml` beside `incident.yml`."""

_PLACE = re.compile(r"(?:^|/)(?P<agent>[^/~#\[\]]+)(?:[~#\[][^/]*)?/turn\[(?P<number>\d+)\]$")

_ECHO = (
    "This answer is scripted: no key for Claude is set here (ANTHROPIC_API_KEY), so no model has read your "
    "question. With a key, Claude answers here; without one, a script beside the flow ({file}) can set this "
    "text."
)


def place_of(path: str) -> tuple[str, int]:
    """The id of the agent whose model call this is, and the call's number, from 1. Raises `ScriptError`."""
    found = _PLACE.search(path)
    if found is None:
        raise ScriptError(f"{path} is not a model call of an agent, so no script has an answer for it")
    return found["agent"], int(found["number"])


def position_of(turns: Sequence[Turn], number: int, attempt: int) -> int:
    """Return the index in a script of the `attempt`-th try of the `number`-th call of an agent."""
    answers = [index for index, turn in enumerate(turns) if turn.error is None and not turn.cut]
    if number > len(answers) + 1:
        return len(turns)
    first = answers[number - 2] + 1 if number > 1 else 0
    last = answers[number - 1] if number <= len(answers) else len(turns) - 1
    return min(first + attempt - 1, max(first, last))


def provider_for(script: Script, ctx: NodeContext, *, label: str | None = None) -> Provider:
    """Says what the script has for the model call of this context. With `label` that is noted as the model, and the
    call costs nothing unless the script says what it used. Raises `ScriptError`."""
    agent, number = place_of(ctx.path)
    turns = script.turns_of(agent)
    return ScriptedProvider(
        Script(turns=turns, pace=script.pace), position_of(turns, number, ctx.attempt), label
    )


def script_file(ctx: NodeContext) -> Path | None:
    """The script that lies beside the flow of this context."""
    flow = ctx.flow_file
    if flow is None:
        return None
    return next((file for suffix in SUFFIXES if (file := flow.with_suffix(suffix)).is_file()), None)


def scripted_provider(ctx: NodeContext, file: Path | None = None) -> Provider:
    """Return the provider without a key: the script of `file`, else the one beside the flow, else the same text each
    time. Raises `ScriptError`."""
    found = file or script_file(ctx)
    if found is not None:
        return provider_for(load_script(found), ctx, label=SCRIPTED)
    name = ctx.flow_file.with_suffix(SUFFIXES[0]).name if ctx.flow_file is not None else "<flow>.script.yml"
    return ScriptedProvider(Script(turns=(Turn(text=_ECHO.format(file=name)),)), 0, SCRIPTED)
