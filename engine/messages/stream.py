"""Events of the Messages API's stream, folded into content. Pure: bytes and sockets are elsewhere.

The blocks are kept as on the wire, with the additions of deltas, whatever their type: any block that begins with an
`input` has it streamed. Unknown kinds of events, deltas and blocks are tolerated; a violation of the protocol is a
`BadResponse`.

The SDK's own accumulation does not do: it takes half an input at the end of a cut stream for a whole one, reads the
pieces of an input again with each delta, and would bring the SDK, which takes a second to load, to scripts and into the
core.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from engine.language.codec import Json
from engine.messages.errors import BadResponse, StreamCut
from engine.messages.messages import tool_use_flaw
from engine.messages.turns import (
    BlockDone,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
    ToolStarted,
    TurnEvent,
    TurnResult,
    Usage,
)
from engine.messages.usage import merged, parts_json, used

_CUT_SHORT = ("max_tokens", "model_context_window_exceeded", "refusal")
"""With these stop reasons the last tool call may have half an input: it cannot run, and is left out."""


class Assembly:
    """One turn as far as it has been received."""

    def __init__(self, request_id: str | None = None, *, model: str = "") -> None:
        """`model` is the one that was asked for."""
        self.request_id = request_id
        self._asked = model
        self._counted: dict[str, Any] = {}
        self._model: str | None = None
        self._stop_reason: str | None = None
        self._beside: dict[str, Any] = {}
        self._blocks: list[dict[str, Json]] = []
        self._open: dict[str, Json] | None = None
        self._pieces: list[str] = []
        self._broken: dict[str, Json] | None = None

    @property
    def usage(self) -> Usage:
        """Return the usage counted so far."""
        return used(self._counted, self._asked).total

    def take(self, event: Json) -> list[TurnEvent]:
        """Return the turn events of a wire event; unknown kinds are ignored, as the API asks."""
        kind = event.get("type") if isinstance(event, dict) else None
        if not isinstance(kind, str):
            raise self.bad("an event without a type")
        take = _TAKE.get(kind)
        if take is None:
            return []
        if (self._model is None) != (kind == "message_start"):
            raise self.bad(f"{kind} came {'before' if self._model is None else 'after'} message_start")
        try:
            return take(self, event)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise self.bad(f"{kind} is not as it should be: {type(error).__name__} {error}") from error

    def finish(self) -> TurnResult:
        """Return the whole turn, once the stream has ended. Raises `StreamCut` if it ended too early."""
        if self._stop_reason is None:
            heard = "before its first event" if self._model is None else "without a stop reason"
            raise StreamCut(f"the answer was cut off {heard}", request_id=self.request_id, usage=self.usage)
        if self._open is not None:
            raise self.bad("the last block has no end")
        if self._broken is not None and self._stop_reason not in _CUT_SHORT:
            raise self.bad(f"the input of the tool call {self._broken.get('id')} is no JSON object")
        result = self._result(self._blocks, self._stop_reason)
        for block in result.content:
            # The API would refuse each later call of a conversation that has it.
            if block["type"] == "tool_use" and (flaw := tool_use_flaw(block)):
                raise self.bad(flaw)
        return result

    def interrupted(self) -> TurnResult:
        """Return the part that may stay in the conversation if the turn is cut now: whole blocks and the text so far.

        Half a tool call, thinking without its signature, and thinking at the very end cannot be sent back.
        """
        blocks = list(self._blocks)
        if self._open is not None and self._open["type"] == "text":
            blocks.append({**self._open, "text": self._open["text"] + "".join(self._pieces)})
        while blocks and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
            blocks.pop()
        return replace(self._result(blocks, None), interrupted=True)

    def bad(self, text: str) -> BadResponse:
        """The error that says that the provider did not keep to the protocol."""
        return BadResponse(
            f"the provider's answer is broken: {text}", request_id=self.request_id, usage=self.usage
        )

    def _result(self, blocks: list[dict[str, Json]], stop_reason: str | None) -> TurnResult:
        # The API refuses blocks of blank text, even those that it sent itself.
        kept = tuple(
            block
            for block in _behind_seams(blocks)
            if block is not self._broken and (block["type"] != "text" or block["text"].strip())
        )
        known = used(self._counted, self._asked or self._model or "")
        spent: dict[str, Any] = {
            "parts": tuple(parts_json(known, self._asked or self._model or "")),
            "context": known.context,
            "searches": known.searches,
            "cut_call": self._broken is not None,
        }
        return TurnResult(
            kept, stop_reason, known.total, self._model or "", self.request_id, **self._beside, **spent
        )

    # --- one method for each event of the wire ---------------------------------------------------------------

    def _message_start(self, event: dict[str, Json]) -> list[TurnEvent]:
        message = event["message"]
        self._counted = merged({}, message["usage"])
        self._model = str(message["model"])
        self._tell_beside(message)
        return []

    def _block_start(self, event: dict[str, Json]) -> list[TurnEvent]:
        block = dict(event["content_block"])
        if self._open is not None or event["index"] != len(self._blocks):
            raise self.bad(f"block {event['index']} begins where block {len(self._blocks)} should")
        opening = {"text": "text", "thinking": "thinking", "tool_use": "name"}.get(str(block["type"]))
        if opening and not isinstance(block[opening], str):
            raise TypeError(f"{opening} is not text")
        self._open, self._pieces = block, []
        if block["type"] == "fallback" and isinstance(block.get("to"), dict):
            self._model = str(block["to"].get("model") or self._model)
        if block["type"] == "tool_use":
            return [ToolStarted(event["index"], str(block["id"]), block["name"])]
        return []

    def _block_delta(self, event: dict[str, Json]) -> list[TurnEvent]:
        index, delta, block = event["index"], event["delta"], self._open
        if block is None or index != len(self._blocks):
            raise self.bad(f"a delta for block {index}, which is not open")
        if delta["type"] == "input_json_delta" and "input" in block:
            self._pieces.append(_text(delta["partial_json"]))
            return [ToolInputDelta(index, self._pieces[-1])] if block["type"] == "tool_use" else []
        shape = _DELTAS.get((block["type"], delta["type"]))
        if shape is not None:
            self._pieces.append(_text(delta[shape[0]]))
            return [shape[1](index, self._pieces[-1])]
        if delta["type"] == "signature_delta":
            block["signature"] = _text(block.get("signature") or "") + _text(delta["signature"])
        elif delta["type"] == "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta["citation"]]
        elif delta["type"] == "compaction_delta":
            block |= {name: value for name, value in delta.items() if name != "type"}
        elif delta["type"] in _OF_OTHERS:
            raise self.bad(f"a {delta['type']} for a block of type {block['type']}")
        return []

    def _block_stop(self, event: dict[str, Json]) -> list[TurnEvent]:
        index, block = event["index"], self._open
        if block is None or index != len(self._blocks):
            raise self.bad(f"the end of block {index}, which is not open")
        given = "".join(self._pieces)
        if block["type"] in ("text", "thinking"):
            block[block["type"]] += given
        elif given:
            try:
                block["input"] = json.loads(given)
            except ValueError:
                block["input"] = None
            if not isinstance(block["input"], dict):
                self._broken = block
        self._blocks.append(block)
        self._open = None
        return [] if block is self._broken else [BlockDone(index, block)]

    def _message_delta(self, event: dict[str, Json]) -> list[TurnEvent]:
        self._counted = merged(self._counted, event.get("usage") or {})
        reason = event["delta"].get("stop_reason")
        self._stop_reason = None if reason is None else _text(reason)
        self._tell_beside({**event, **event["delta"]})
        return []

    def _tell_beside(self, told: dict[str, Json]) -> None:
        for name in ("stop_details", "container"):
            if isinstance(told.get(name), dict):
                self._beside[name] = told[name]
        if isinstance(told.get("input_transformations"), list):
            changes = told["input_transformations"]
            left_out = [
                each for each in changes if isinstance(each, dict) and each.get("type") == "thinking_dropped"
            ]
            self._beside["dropped"] = dict(Counter(str(each.get("reason")) for each in left_out))


def _behind_seams(blocks: list[dict[str, Json]]) -> list[dict[str, Json]]:
    """Return the blocks that may be sent back if another model took over the answer: thinking and tool calls of the
    first one are dropped; the marker of the switch stays."""
    seams = [index for index, block in enumerate(blocks) if block["type"] == "fallback"]
    last = seams[-1] if seams else 0
    return [
        block
        for index, block in enumerate(blocks)
        if index >= last or block["type"] not in ("thinking", "redacted_thinking", "tool_use")
    ]


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


_DELTAS: dict[tuple[str, str], tuple[str, Callable[[int, str], TurnEvent]]] = {
    ("text", "text_delta"): ("text", TextDelta),
    ("thinking", "thinking_delta"): ("thinking", ThinkingDelta),
}
"""Deltas that add text, by the type of their block: the delta's field, and the resulting event."""
_OF_OTHERS = ("text_delta", "thinking_delta", "input_json_delta")
"""Deltas that must not come for any other block. Kinds that are not known here are ignored, as the API asks."""

_TAKE: dict[str, Callable[[Assembly, dict[str, Any]], list[TurnEvent]]] = {
    "message_start": Assembly._message_start,
    "content_block_start": Assembly._block_start,
    "content_block_delta": Assembly._block_delta,
    "content_block_stop": Assembly._block_stop,
    "message_delta": Assembly._message_delta,
    "message_stop": lambda assembly, event: [],
}
