"""Messages: they survive being stored, and what is wrong with a conversation is found and named."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from engine.language.codec import Json, decode, encode
from engine.messages.messages import (
    Message,
    image_block,
    legal,
    pdf_block,
    text_block,
    text_document_block,
    user,
)
from tests.providers.providerkit import assistant, tool_result_block
from tests.providers.strategies import any_conversations, legal_conversations
from tests.support.claude_rules import Refusal, check

THOUGHTS = {"sig==": "hm"}


def use(id: str = "t1", **changes: Any) -> dict[str, Any]:
    """A tool call."""
    return {"type": "tool_use", "id": id, "name": "logs", "input": {}, **changes}


def flaws(*messages: Message) -> list[str]:
    """What is wrong, as text."""
    return [str(flaw) for flaw in legal(messages)]


@given(legal_conversations())
def test_messages_survive_being_stored(messages: list[Message]) -> None:
    """What is encoded and decoded is the same message, with the keys of its blocks in the same order."""
    for message in messages:
        again = Message.from_json(decode(encode(message.to_json())))
        assert again == message
        assert encode(again.to_json()) == encode(message.to_json())


@given(legal_conversations())
def test_what_an_agent_says_is_legal(messages: list[Message]) -> None:
    """A conversation of questions, thoughts, answered tools and steering has no flaw."""
    assert legal(messages) == ()


@given(any_conversations())
def test_what_is_legal_here_is_taken_by_the_api(messages: list[Message]) -> None:
    """No conversation without a flaw is refused by the server's own rules."""
    if not legal(messages):
        blocks = [block for message in messages for block in message.content]
        thoughts = {block["signature"]: block["thinking"] for block in blocks if block["type"] == "thinking"}
        check(_body(messages), thoughts)


@given(any_conversations())
def test_flaws_are_those_of_a_simple_model(messages: list[Message]) -> None:
    """A conversation has a flaw exactly when the definition, written down once more, does not hold."""
    assert (legal(messages) == ()) == _model(messages)


SEARCH = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "disk"}}


def _body(messages: list[Message]) -> Any:
    return {
        "model": "claude-opus-5-5",
        "max_tokens": 1,
        "messages": [message.to_json() for message in messages],
    }


def _model(messages: list[Message]) -> bool:
    """The definition, without saying what is wrong."""
    roles = [message.role for message in messages]
    if roles != ["user", "assistant"] * (len(roles) // 2) + ["user"]:
        return False
    everything = [block for message in messages for block in message.content]
    ids = [block["id"] for block in everything if block["type"] == "tool_use"]
    if len(ids) != len(set(ids)) or not all(_good(block) for block in everything):
        return False
    for before, message in zip([None, *messages], messages, strict=False):
        kinds = [block["type"] for block in message.content]
        wrong = (
            {"tool_use", "thinking"} if message.role == "user" else {"tool_result", "image", "document"}
        ) & set(kinds)
        if not kinds or wrong or kinds[-1] == "thinking":
            return False
        asked = sorted(
            block["id"] for block in (before.content if before else ()) if block["type"] == "tool_use"
        )
        given = sorted(block["tool_use_id"] for block in message.content if block["type"] == "tool_result")
        if asked != given or "tool_result" in kinds[len(given) :]:
            return False
    return True


def _good(block: dict[str, Any]) -> bool:
    match block:
        case {"type": "text", "text": text}:
            return bool(text.strip())
        case {"type": "thinking", "signature": signature}:
            return bool(signature)
        case {"type": "image", "source": {"media_type": kind}}:
            return kind != "image/bmp"
        case {"type": "tool_use", "id": call, "input": given}:
            return " " not in call and isinstance(given, dict)
    return True


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([], "messages[0]: a conversation needs at least one message"),
        ([assistant("a"), user("b")], "messages[0]: the first message must be the user's"),
        ([user("a"), user("b")], "messages[1]: two messages of the user follow each other"),
        ([user("a"), assistant("b")], "messages[1]: the last message must be the user's"),
        ([Message("user", ())], "messages[0]: the content is empty"),
        ([user(" \n")], "messages[0].content[0]: the text is empty"),
        ([user(use())], "messages[0].content[0]: a user's message cannot have a block of type tool_use"),
        (
            [user(image_block("image/bmp", "AA"))],
            "messages[0].content[0]: pictures are image/jpeg, image/png",
        ),
        ([user(image_block("image/png", ""))], "messages[0].content[0]: the image is empty"),
        ([user(pdf_block(""))], "messages[0].content[0]: the document is empty"),
        (
            [user("a"), assistant(use()), user("b")],
            "messages[1].content[0]: t1 has no result in the next message",
        ),
        (
            [user("a"), assistant(use()), user(tool_result_block("t2", "b"))],
            "messages[2].content[0]: t2 is not a tool call of the previous message",
        ),
        (
            [user("a"), assistant(use()), user(tool_result_block("t1", "b"), tool_result_block("t1", "c"))],
            "messages[2].content[1]: t1 has two results",
        ),
        (
            [user("a"), assistant(use()), user("b", tool_result_block("t1", "c"))],
            "messages[2].content[1]: results of tools must come before everything else",
        ),
        (
            [user("a"), assistant(use(), use()), user(tool_result_block("t1", "c"))],
            "messages[1].content[1]: the id t1 was used before",
        ),
        (
            [user("a"), assistant(use(name="no name")), user(tool_result_block("t1", "c"))],
            "messages[1].content[0]: the tool call's name must be letters, digits, _ and -, not 'no name'",
        ),
        (
            [user("a"), assistant({"type": "thinking", "thinking": "b", "signature": ""}, "c"), user("d")],
            "messages[1].content[0]: thinking without its signature cannot be sent back",
        ),
        (
            [user("a"), assistant({"type": "thinking", "thinking": "b", "signature": "s"}), user("d")],
            "messages[1].content[0]: a message must not end with thinking",
        ),
        (
            [user("a"), assistant(use()), user(tool_result_block("t1", [{"type": "text", "text": ""}]))],
            "messages[2].content[0]: in the result: the text is empty",
        ),
    ],
)
def test_a_flaw_says_where_it_is(messages: list[Message], told: str) -> None:
    """Each kind of flaw is named with its message and its block."""
    assert any(flaw.startswith(told) for flaw in flaws(*messages)), flaws(*messages)


def test_an_open_call_at_the_end_is_a_flaw() -> None:
    """A conversation that ends with an unanswered call says which."""
    assert "messages[1].content[0]: t1 has no result yet" in flaws(user("a"), assistant(use()))


def test_blocks_that_are_not_known_stay_where_the_model_put_them() -> None:
    """A kind of block that only a later API has is legal in what the model said, and not in what a user said."""
    block = {"type": "brand_new", "data": 1}
    assert flaws(user("a"), assistant(block, "b"), user("c")) == []
    assert flaws(user(block)) == [
        "messages[0].content[0]: a user's message cannot have a block of type brand_new"
    ]


def test_files_of_every_kind_are_legal() -> None:
    """Pictures, PDFs and files of text may be given, and be results of tools."""
    files = [
        image_block("image/webp", "AAAA"),
        pdf_block("AAAA", title="plan.pdf"),
        text_document_block("x,y", title="t.csv"),
    ]
    conversation = [user(*files, "What is this?"), assistant(use()), user(tool_result_block("t1", files))]
    assert flaws(*conversation) == []
    check(_body(conversation), {})


@pytest.mark.parametrize(
    "data",
    [
        None,
        {"role": "system", "content": "x"},
        {"role": "user"},
        {"role": "user", "content": 5},
        {"role": "user", "content": ["x"]},
        {"role": "user", "content": [], "more": 1},
    ],
)
def test_what_is_no_message_is_refused(data: Any) -> None:
    """Data that is not a role and content is a `ValueError`."""
    with pytest.raises(ValueError, match="message"):
        Message.from_json(data)


def test_content_may_be_one_text() -> None:
    """The API's short form is the same message as one block of text."""
    assert Message.from_json({"role": "user", "content": "Hello"}) == user("Hello")


def marked(life: str) -> Json:
    """Text with a mark for the cache."""
    return {**text_block("x"), "cache_control": {"type": "ephemeral", "ttl": life}}


def test_the_servers_rules_refuse_what_is_wrong() -> None:
    """The rules that the tests lean on find a missing result, a changed thought and a field that does not exist."""
    thought = {"type": "thinking", "thinking": "changed", "signature": "sig=="}
    for body, told in (
        (_body([user("a"), assistant(use()), user("b")]), "without `tool_result`"),
        (_body([user("a"), assistant(thought, "x"), user("b")]), "Invalid `signature`"),
        ({**_body([user("a")]), "temperature": 1}, "temperature: Extra inputs are not permitted"),
        ({**_body([user("a")]), "thinking": {"type": "enabled", "budget_tokens": 2000}}, "enabled"),
        ({**_body([user("a")]), "thinking": {"type": "disabled"}}, "cannot be disabled"),
        ({**_body([user("a")]), "thinking": {"type": "adaptive", "display": "updates"}}, "thinking.display"),
        ({**_body([user("a")]), "tool_choice": {"type": "any"}}, "forced tool use"),
        ({**_body([user("a")]), "fallbacks": [{"model": "claude-opus-5"}]}, "fallbacks: Extra inputs"),
        (_body([user(marked("5m")), assistant("b"), user(marked("1h"))]), "must not come after"),
        ({**_body([user("a")]), "max_tokens": 0}, "max_tokens"),
        (_body([user("a"), assistant("b")]), "prefill"),
        (_body([user("a"), assistant(SEARCH), user("b")]), "server tool is open"),
    ):
        with pytest.raises(Refusal, match=told):
            check(body, THOUGHTS)
