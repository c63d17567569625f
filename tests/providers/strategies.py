"""Conversations for property tests: legal ones, and ones that are wrong in one or more places."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from engine.messages.messages import Message

words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=12)
spoken = words.filter(lambda text: bool(text.strip()))
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)
texts = st.builds(lambda text: {"type": "text", "text": text}, spoken)
images = st.builds(
    lambda kind, data: {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}},
    st.sampled_from(["image/png", "image/jpeg"]),
    st.sampled_from(["aGVsbG8=", "AAAA"]),
)
documents = st.builds(
    lambda text: {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}},
    spoken,
)
thoughts = st.builds(
    lambda text: {"type": "thinking", "thinking": text, "signature": f"sig-{text.encode().hex()}"}, words
)
given = st.lists(texts | images | documents, min_size=1, max_size=3)


@st.composite
def legal_conversations(draw: st.DrawFn) -> list[Message]:
    """Conversations as an agent has them: questions, thoughts, tools, results, steering words."""
    messages = [Message("user", tuple(draw(given)))]
    calls = 0
    for _ in range(draw(st.integers(0, 4))):
        count = draw(st.integers(0, 3))
        uses = [
            {
                "type": "tool_use",
                "id": f"t{calls + n}",
                "name": "logs",
                "input": draw(st.dictionaries(words, json_values, max_size=2)),
            }
            for n in range(count)
        ]
        calls += count
        said = [
            *draw(st.lists(thoughts, max_size=1)),
            *draw(st.lists(texts, min_size=0 if uses else 1, max_size=2)),
        ]
        messages.append(Message("assistant", (*said, *uses)))
        results = [_result(draw, use["id"]) for use in draw(st.permutations(uses))]
        steering = draw(given if not uses else st.lists(texts, max_size=1))
        messages.append(Message("user", (*results, *steering)))
    return messages


def _result(draw: st.DrawFn, call: str) -> dict[str, Any]:
    content = draw(st.just("") | words | st.lists(texts | images, min_size=1, max_size=2))
    wrong = {"is_error": True} if draw(st.booleans()) else {}
    return {"type": "tool_result", "tool_use_id": call, "content": content, **wrong}


@st.composite
def any_conversations(draw: st.DrawFn) -> list[Message]:
    """Legal ones with some changes, most of which make them illegal."""
    messages = draw(legal_conversations())
    for _ in range(draw(st.integers(0, 3))):
        if not messages:
            break
        index = draw(st.integers(0, len(messages) - 1))
        messages = draw(st.sampled_from(CHANGES))(draw, messages, index)
    return messages


def _drop_message(draw: st.DrawFn, messages: list[Message], index: int) -> list[Message]:
    return messages[:index] + messages[index + 1 :]


def _double_message(draw: st.DrawFn, messages: list[Message], index: int) -> list[Message]:
    return messages[: index + 1] + messages[index:]


def _drop_block(draw: st.DrawFn, messages: list[Message], index: int) -> list[Message]:
    content = list(messages[index].content)
    if content:
        content.pop(draw(st.integers(0, len(content) - 1)))
    return _with(messages, index, content)


def _shuffle(draw: st.DrawFn, messages: list[Message], index: int) -> list[Message]:
    return _with(messages, index, draw(st.permutations(list(messages[index].content))))


def _add_block(draw: st.DrawFn, messages: list[Message], index: int) -> list[Message]:
    added = draw(
        st.sampled_from(
            [
                {"type": "text", "text": " \n"},
                {"type": "tool_result", "tool_use_id": "t0", "content": "x"},
                {"type": "tool_use", "id": "t0", "name": "logs", "input": {}},
                {"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "thinking", "thinking": "hm", "signature": "sig-hm"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": "AAAA"}},
                {"type": "tool_use", "id": "t 9", "name": "logs", "input": {}},
                {"type": "tool_use", "id": "t99", "name": "logs", "input": []},
            ]
        )
    )
    return _with(messages, index, [*messages[index].content, added])


def _other_role(draw: st.DrawFn, messages: list[Message], index: int) -> list[Message]:
    other = messages[index]
    changed = Message("assistant" if other.role == "user" else "user", other.content)
    return [*messages[:index], changed, *messages[index + 1 :]]


def _with(messages: list[Message], index: int, content: list[Any]) -> list[Message]:
    return [*messages[:index], Message(messages[index].role, tuple(content)), *messages[index + 1 :]]


CHANGES = [_drop_message, _double_message, _drop_block, _shuffle, _add_block, _other_role]
