"""How Claude binds thinking to what is before it, as a local server checks it. Knows nothing of our own checks.

A block of thinking is valid as long as system, tools and all that was said before it are what they were when the model thought
it. Marks of the cache count for nothing, nor does thinking that was taken away from the front.
"""

from __future__ import annotations

import hashlib
import re
from itertools import pairwise
from typing import Any, NamedTuple

import orjson

from tests.support.claude_rules import Refusal

Body = dict[str, Any]

MODELS = re.compile("claude-(?:(?:fable|mythos)-5-[12]|(?:opus|sonnet|haiku)-5-5)")
"""Those that check it."""
_THINKING = ("thinking", "redacted_thinking")


class _Said(NamedTuple):
    """A block in its place: the message, its place there, and who says it."""

    message: int
    place: int
    role: str
    block: Any


class Bindings:
    """What each block of thinking was bound to, by its signature."""

    def __init__(self) -> None:
        self._bound: dict[str, tuple[str, list[str]]] = {}

    def bind(self, body: Body, answer: list[Any]) -> list[Any]:
        """The answer to this request with its thinking signed, where it says no signature of its own."""
        number = len(body["messages"])
        answer = [
            {**block, "signature": _digest(body, _said(body))[:24] + str(place)}
            if block["type"] == "thinking" and not block["signature"]
            else block
            for place, block in enumerate(answer)
        ]
        added = [_Said(number, place, "assistant", block) for place, block in enumerate(answer)]
        said = [*_said(body), *added]
        for at, each in enumerate(said):
            if each.message == number and each.block["type"] in _THINKING:
                self._bound[_sign(each.block)] = (_digest(body, said[:at]), _thoughts(said[:at]))
        return answer

    def check(self, body: Body) -> list[Any]:
        """What was dropped of the request, as the answer tells it. Raises `Refusal` unless it asks for that."""
        if not MODELS.match(body["model"]):
            return []
        said = _said(body)
        wrong = next((at for at, each in enumerate(said) if not self._holds(body, said, at, each)), None)
        if wrong is None:
            return []
        control = ((body.get("thinking") or {}).get("block_binding") or {}).get("prefix_mismatch_behavior")
        first = said[wrong]
        where = f"messages.{first.message}.content.{first.place}"
        if control != "drop_block":
            raise Refusal(f"{where}: The block is bound to a different conversation.")
        return [
            {
                "type": "thinking_dropped",
                "path": f"messages.{each.message}.content.{each.place}",
                "reason": "prefix_binding_mismatch",
            }
            for each in said[wrong:]
            if each.block["type"] in _THINKING
        ]

    def _holds(self, body: Body, said: list[_Said], at: int, each: _Said) -> bool:
        if each.block["type"] not in _THINKING or _sign(each.block) not in self._bound:
            return True
        digest, thoughts = self._bound[_sign(each.block)]
        left = _thoughts(said[:at])
        return digest == _digest(body, said[:at]) and (not left or thoughts[-len(left) :] == left)


def _said(body: Body) -> list[_Said]:
    found = []
    for number, message in enumerate(body["messages"]):
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        found += [_Said(number, place, message["role"], block) for place, block in enumerate(blocks)]
    return found


def _digest(body: Body, said: list[_Said]) -> str:
    kept = [(each.role, unmarked(each.block)) for each in said if each.block["type"] not in _THINKING]
    told = orjson.dumps([unmarked(body.get("system")), unmarked(body.get("tools")), kept])
    return hashlib.sha256(told).hexdigest()


def _thoughts(said: list[_Said]) -> list[str]:
    return [_sign(each.block) for each in said if each.block["type"] in _THINKING]


def _sign(block: Any) -> str:
    return str(block.get("signature") or block.get("data"))


def unmarked(value: Any) -> Any:
    """A part of a request without the marks for the cache."""
    if isinstance(value, dict):
        return {name: unmarked(each) for name, each in value.items() if name != "cache_control"}
    return [unmarked(each) for each in value] if isinstance(value, list) else value


def flat(body: Body) -> list[bytes]:
    """A request as a list of bytes, without marks: what stands around the conversation, then block by block."""
    around = {name: value for name, value in body.items() if name != "messages"}
    return [orjson.dumps(unmarked(around))] + [
        orjson.dumps((each.role, unmarked(each.block))) for each in _said(body)
    ]


def grows(bodies: list[Body]) -> None:
    """Each request is the one before with more said after it: nothing that was sent is ever another thing."""
    for before, after in pairwise(bodies):
        was, now = flat(before), flat(after)
        assert now[: len(was)] == was, _difference(was, now)


def _difference(was: list[bytes], now: list[bytes]) -> str:
    at = next((at for at, (one, other) in enumerate(zip(was, now, strict=False)) if one != other), len(now))
    return f"part {at} was {was[at][:400]!r} and is {(now[at] if at < len(now) else b'gone')[:400]!r}"
