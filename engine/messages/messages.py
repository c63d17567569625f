"""Messages of a conversation, in the JSON of the Messages API: the rules for a legal conversation, and an agent's last
answer that must be JSON, found in its text and checked. Pure.

A message is a role and a list of content blocks; a block is a JSON object with a `type`. Blocks from the model are kept
unchanged, known or not: a changed thinking block is refused by the API.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias, cast

from msgspec import Struct

from engine.language.codec import Json, decode, problems
from engine.language.errors import NotJson

Role: TypeAlias = Literal["user", "assistant"]

IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
"""The kinds of pictures that the API takes."""

_TOOL_ID = re.compile(r"[A-Za-z0-9_-]+")
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")


class Message(Struct, frozen=True):
    """One message: its role and its blocks."""

    role: Role
    content: tuple[Json, ...]

    def to_json(self) -> Json:
        """The message as the Messages API has it."""
        return {"role": self.role, "content": list(self.content)}

    @classmethod
    def from_json(cls, data: Json) -> Message:
        """Parse the output of `to_json`. A text as content is the API's short form of one text block.

        Raises `ValueError` for an invalid message.
        """
        role = data.get("role") if isinstance(data, dict) else None
        if role not in ("user", "assistant") or set(data) != {"role", "content"}:
            raise ValueError("a message is {role: user|assistant, content: [blocks]} and nothing else")
        content = data["content"]
        blocks = [text_block(content)] if isinstance(content, str) else content
        if not isinstance(blocks, list) or not all(
            isinstance(block, dict) and isinstance(block.get("type"), str) for block in blocks
        ):
            raise ValueError("the content of a message is text or a list of blocks with a type")
        return cls(cast(Role, role), tuple(blocks))


def text_block(text: str) -> Json:
    """Text."""
    return {"type": "text", "text": text}


def image_block(media_type: str, data: str) -> Json:
    """A picture; `data` is base64."""
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def pdf_block(data: str, *, title: str | None = None) -> Json:
    """A PDF; `data` is base64."""
    return _document({"type": "base64", "media_type": "application/pdf", "data": data}, title)


def text_document_block(text: str, *, title: str | None = None) -> Json:
    """A file of plain text."""
    return _document({"type": "text", "media_type": "text/plain", "data": text}, title)


def _document(source: Json, title: str | None) -> Json:
    return {"type": "document", "source": source, **({"title": title} if title else {})}


def user(*blocks: str | Json) -> Message:
    """A user's message; texts become text blocks."""
    return Message("user", tuple(text_block(block) if isinstance(block, str) else block for block in blocks))


# --- legality ------------------------------------------------------------------------------------------------


class Flaw(Struct, frozen=True):
    """One fault in a conversation, with its message and block (both from 0)."""

    message: int
    block: int | None
    text: str

    def __str__(self) -> str:
        place = f"messages[{self.message}]" + ("" if self.block is None else f".content[{self.block}]")
        return f"{place}: {self.text}"


def legal(messages: Sequence[Message]) -> tuple[Flaw, ...]:
    """Return the faults that prevent sending this conversation, in its order; empty if it is legal.

    A legal conversation begins with the user (or with a summary by the API), ends with the user (or where the API
    paused) and alternates; no content is empty; the tool calls of a message are answered in the next one, each once and
    before anything else; ids are never used twice. Nothing is repaired: only the caller knows which result belongs to
    an open call.
    """
    if not messages:
        return (Flaw(0, None, "a conversation needs at least one message"),)
    flaws = [flaw for index, message in enumerate(messages) for flaw in _message_flaws(index, message)]
    # A summary by the API replaces all earlier messages.
    summed = [block["type"] for block in messages[0].content[:1]] == ["compaction"]
    if messages[0].role != "user" and not summed:
        flaws.append(Flaw(0, None, "the first message must be the user's"))
    for index in range(1, len(messages)):
        if messages[index].role == messages[index - 1].role:
            flaws.append(Flaw(index, None, f"two messages of the {messages[index].role} follow each other"))
    if messages[-1].role != "user" and not served(messages[-1].content):
        flaws.append(Flaw(len(messages) - 1, None, "the last message must be the user's"))
    flaws += _pairing_flaws(messages)
    return tuple(sorted(flaws, key=lambda flaw: (flaw.message, -1 if flaw.block is None else flaw.block)))


def served(content: Sequence[Json]) -> bool:
    """True if an answer ends among tools of the provider: with a call or a result."""
    kind = str(content[-1]["type"]) if content else ""
    return kind in ("server_tool_use", "mcp_tool_use") or (
        kind.endswith("_tool_result") and kind != "tool_result"
    )


def _message_flaws(index: int, message: Message) -> list[Flaw]:
    if not message.content:
        return [Flaw(index, None, "the content is empty")]
    flaws = []
    for place, block in enumerate(message.content):
        text = _user_flaw(block) if message.role == "user" else _assistant_flaw(block)
        if text:
            flaws.append(Flaw(index, place, text))
    if message.role == "assistant" and message.content[-1]["type"] in ("thinking", "redacted_thinking"):
        flaws.append(Flaw(index, len(message.content) - 1, "a message must not end with thinking"))
    return flaws


def _user_flaw(block: Json) -> str | None:
    kind = block["type"]
    if kind == "tool_result":
        # Faults inside a tool's result; no content at all is a legal result.
        content = block.get("content", "")
        if isinstance(content, str):
            return None
        if not isinstance(content, list):
            return "the result's content is neither text nor a list of blocks"
        for part in content:
            kind = part.get("type") if isinstance(part, dict) else None
            flaw = (
                _given_flaw(part) if kind in ("text", "image", "document") else f"a result cannot have {kind}"
            )
            if flaw:
                return f"in the result: {flaw}"
        return None
    if kind in ("text", "image", "document"):
        return _given_flaw(block)
    return f"a user's message cannot have a block of type {kind}"


def _given_flaw(block: Json) -> str | None:
    """Return the fault of a text, picture or document, or None."""
    if block["type"] == "text":
        return _text_flaw(block)
    source = block.get("source")
    if not isinstance(source, dict):
        return f"the {block['type']} has no source"
    given = source.get("url") if source.get("type") == "url" else source.get("data")
    if source.get("type") in ("base64", "text", "url") and not (isinstance(given, str) and given.strip()):
        return f"the {block['type']} is empty"
    if (
        block["type"] == "image"
        and source.get("type") == "base64"
        and source.get("media_type") not in IMAGE_TYPES
    ):
        return f"pictures are {', '.join(IMAGE_TYPES)}, not {source.get('media_type')}"
    return None


def _text_flaw(block: Json) -> str | None:
    text = block.get("text")
    return None if isinstance(text, str) and text.strip() else "the text is empty"


def _assistant_flaw(block: Json) -> str | None:
    """Return the fault of a block from the model, or None; unknown types came from the API and stay."""
    kind = block["type"]
    if kind == "text":
        return _text_flaw(block)
    if kind == "thinking":
        whole = isinstance(block.get("thinking"), str) and block.get("signature")
        return None if whole else "thinking without its signature cannot be sent back"
    if kind == "tool_use":
        return tool_use_flaw(block)
    if kind in ("tool_result", "image", "document"):
        return f"an assistant's message cannot have a block of type {kind}"
    return None


def tool_use_flaw(block: Json) -> str | None:
    """Return why the API would refuse to take this tool call back, or None."""
    for name, shape in (("id", _TOOL_ID), ("name", _TOOL_NAME)):
        value = block.get(name)
        if not (isinstance(value, str) and shape.fullmatch(value)):
            return f"the tool call's {name} must be letters, digits, _ and -, not {value!r}"
    return None if isinstance(block.get("input"), dict) else "the tool call's input must be an object"


def _pairing_flaws(messages: Sequence[Message]) -> list[Flaw]:
    """Calls and results: whether each call has its one result in the next message, and each result its call."""
    flaws: list[Flaw] = []
    used: set[str] = set()
    open_calls: dict[str, int] = {}
    for index, message in enumerate(messages):
        # The calls that this message answers.
        answered: set[str] = set()
        other_before = False
        for place, block in enumerate(message.content):
            if block["type"] != "tool_result":
                other_before = True
                continue
            call = block.get("tool_use_id")
            if call not in open_calls:
                flaws.append(Flaw(index, place, f"{call} is not a tool call of the previous message"))
            elif call in answered:
                flaws.append(Flaw(index, place, f"{call} has two results"))
            elif other_before:
                flaws.append(Flaw(index, place, "results of tools must come before everything else"))
            answered.add(str(call))
        missing = [call for call in open_calls if call not in answered]
        flaws += [
            Flaw(index - 1, open_calls[call], f"{call} has no result in the next message") for call in missing
        ]
        open_calls = {}
        for place, block in enumerate(message.content) if message.role == "assistant" else ():
            if block["type"] == "tool_use":
                call = str(block.get("id"))
                if call in used:
                    flaws.append(Flaw(index, place, f"the id {call} was used before"))
                used.add(call)
                open_calls[call] = place
    last = len(messages) - 1
    flaws += [Flaw(last, place, f"{call} has no result yet") for call, place in open_calls.items()]
    return flaws


# --- final answers -----------------------------------------------------------------------------------------


_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?```", re.DOTALL)
_MOST = 600


def data_in(text: str) -> tuple[Json, str | None]:
    """Return the JSON of a text, or of its last fence; or None with the error if there is none."""
    fences = _FENCE.findall(text)
    for candidate in (text.strip(), *reversed(fences)):
        try:
            return decode(candidate.encode()), None
        except NotJson:
            continue
    return None, "it is no JSON"


def problem_of(schema: Json, text: str) -> str | None:
    """Return why a text is not the requested answer, or None if it is."""
    data, problem = data_in(text)
    if problem is not None:
        return problem
    return "; ".join(problems(schema, data))[:_MOST] or None
