"""Conversations of agents as people read them: who said what, what was called, and what it gave."""

from __future__ import annotations

import io
from collections.abc import Sequence
from unittest.mock import patch

from bot.scenarios.document import is_place
from bot.terminal.console import Paint
from bot.terminal.show import conversation_lines
from engine.journal import events as ev
from engine.journal.history import Turn, transcript
from tests.engine.histories import histories
from tests.support.engine import START


def turns(name: str) -> list[Turn]:
    """The conversations of a history."""
    return transcript(histories()[name].events)


def said(content: Sequence[object], **more: object) -> list[Turn]:
    """What an answer of a model, or another message, is told as."""
    fields = {
        "seq": 1,
        "timestamp": START,
        "path": "a",
        "node_id": "a",
        "role": "assistant",
        "source": "model",
        **more,
    }
    return transcript([ev.AgentMessage(**fields, content=content, turn="a/turn[1]", model="m")])


def test_a_conversation_has_the_words_of_everybody_in_their_order() -> None:
    """The flow asks, the model answers, people interrupt; no mark that is only for the model is left in their words."""
    told = [(turn.who, turn.name, turn.text) for turn in turns("talked") if turn.who != "tool"]
    assert told[:5] == [
        ("flow", "the flow", "Why is db down?"),
        ("model", "claude-sonnet-5-5", "Let me look."),
        ("person", "ben", "hurry"),
        ("model", "claude-sonnet-5-5", "I think"),
        ("person", "ben", "go on"),
    ]
    assert told[-2][2] == "(The conversation of helper comes before this.)\nAnd now?"
    assert {turn.agent for turn in turns("talked")} == {"helper", "next"}


def test_a_call_stands_with_its_input_its_result_and_who_decided() -> None:
    """What a call gave is told where it was asked for, and a rejected one says by whom and why."""
    calls = {(turn.name, turn.path): turn for turn in turns("talked") if turn.who == "tool"}
    read = calls["read_file", "helper/turn[1]/tool[0]"]
    assert (read.input, read.text, read.failed) == ({"path": "a"}, "lines 1 to 1 of 1\ndisk full", False)
    assert calls["ask_human", "helper/turn[1]/tool[1]"].decided == "answered by ana"
    assert calls["shell", "helper/turn[3]/tool[0]"].decided == "approved by ana"
    rejected = calls["shell", "helper/turn[3]/tool[1]"]
    assert (rejected.decided, rejected.failed) == ("rejected by ana: keep it", True)


def test_a_call_about_which_people_are_asked_waits_until_they_have_decided() -> None:
    """It stands with the mark that it has everywhere else, not as one that runs."""
    events = histories()["talked"].events
    asked = next(n for n, event in enumerate(events) if isinstance(event, ev.PromptRequested))
    call = next(turn for turn in transcript(events[: asked + 1]) if turn.path == events[asked].path)
    assert (call.waits, call.to_json()["waits"]) == (True, True)
    assert "  … ask_human" in "\n".join(conversation_lines([call], Paint(io.StringIO())))
    assert not any(turn.waits for turn in transcript(events))


def test_a_call_belongs_to_its_agent_whatever_is_tried_again_around_it() -> None:
    """The number of the agent's own attempt is left out, and those of the steps around it are part of its path."""
    fields = {
        "seq": 1,
        "timestamp": START,
        "node_id": "help",
        "name": "shell",
        "input": {},
        "tool_use_id": "t",
    }
    for path in ("try#2[0]/help/turn[1]/tool[0]", "try#2[0]/help#3/turn[1]/tool[0]"):
        [call] = transcript([ev.AgentToolRequested(**fields, path=path)])
        assert call.agent == "try#2[0]/help"
        assert is_place(path, "help")


def test_the_beginning_of_a_journal_has_calls_without_results() -> None:
    """At an earlier event a call is there and not done."""
    events = histories()["talked"].events
    asked = next(event.seq for event in events if isinstance(event, ev.AgentToolRequested))
    [*_, call] = transcript(events[:asked])
    assert (call.who, call.done, call.text) == ("tool", False, "")


def test_an_answer_says_that_it_thought_searched_and_was_cut() -> None:
    """Thinking is set apart, a tool of the provider is a call with its result, and what is not whole says so."""
    thought, searched, words = said(
        [
            {"type": "thinking", "thinking": "Hm."},
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "disk"}},
            {
                "type": "web_search_tool_result",
                "tool_use_id": "s1",
                "content": [{"type": "web_search_result", "title": "Disks", "url": "https://example.com"}],
            },
            {"type": "text", "text": "It may"},
            {"type": "tool_use", "id": "t1", "name": "shell", "input": {}},
        ],
        stop_reason="max_tokens",
    )
    assert (thought.text, thought.aside) == ("Hm.", True)
    assert (searched.name, searched.text, searched.done) == ("web_search", "Disks https://example.com", True)
    assert (words.text, words.ending, words.aside) == ("It may", "cut off", False)


def test_places_that_are_read_for_the_model_are_no_words() -> None:
    """Notes of earlier runs and the thread stand there by name alone: nobody said that name."""
    file: dict[str, object] = {"type": "sayso_file", "path": "", "mediaType": None}
    [prompt] = said(
        [
            {**file, "name": "memory", "place": {"memory": "flow"}},
            {**file, "name": "log.txt", "path": "log.txt"},
            {"type": "text", "text": "Why?"},
        ],
        source="prompt",
        role="user",
    )
    assert prompt.text == "log.txt\nWhy?"


def test_it_is_printed_as_a_conversation() -> None:
    """Who speaks is above their words; a call is one line, with its result below."""
    with patch("bot.terminal.show.moment", str):
        lines = list(conversation_lines(turns("talked")[:3], Paint(io.StringIO())))
    assert lines == [
        "",
        "Conversation of helper",
        "",
        f"  the flow  {START}",
        "    Why is db down?",
        "",
        f"  claude-sonnet-5-5  {START}",
        "    Let me look.",
        "",
        "  ✓ read_file: a",
        "    lines 1 to 1 of 1",
        "    disk full",
    ]
