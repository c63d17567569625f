"""What people can do where the API takes a request no more: start the conversation over, or go on without thinking."""

from __future__ import annotations

from typing import Any

import pytest

from engine.decide.commands import Answer, NodeDone, Steer
from engine.models.turn_runner import request_from
from tests.engine.agents.talks import Talk, talk
from tests.engine.agents.test_outcomes import RAN, SHELL, after_a_tool, labels, tools_ran
from tests.engine.agents.test_with_server import DB, Stage, said, stage
from tests.support.claude_server import Failure, Reply, call, text
from tests.support.engine import ANA, SESSION

__all__ = ["stage"]

CALL = {"type": "tool_use", "id": "toolu_8", "name": "shell", "input": {"command": "restart db"}}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}


def thinks(case: Talk, *content: Any) -> Talk:
    """The model answers this, behind what it thought."""
    done = case.reply(stop="tool_use")
    return case.when(NodeDone(done.path, done.attempt, {**done.output, "content": [THOUGHT, *content]}))


def test_starting_over_says_what_would_run_again_and_keeps_what_people_said() -> None:
    """The card counts model calls and tools; then only the task and people's words are sent, and a tool may run again."""
    case = after_a_tool()
    first = case.request()["messages"][0]
    case.when(Steer("Only look at db-2.", ANA, "steer")).model("I see.", ("shell", {"command": "restart b"}))
    case.tool("tool[0]", RAN).when(case.broke("request_invalid", retryable=False))
    assert "makes 2 model calls again, and its tools: `shell` × 2" in case.prompt.message
    case.decide("over")
    (sent,) = case.request()["messages"]
    assert sent["content"][: len(first["content"])] == first["content"]
    assert "Only look at db-2." in str(sent["content"][-1])
    assert "restart" not in str(sent["content"][1:])
    case.model("Again.", ("shell", {"command": "restart db"})).tool("tool[0]", RAN).model("Done.")
    assert case.node("helper").output["text"] == "Done."
    assert tools_ran(case) == 3


def test_starting_over_behind_a_signed_summary_begins_with_words_of_people() -> None:
    """The summary is the model's, and a conversation that ended with it would be refused: what stands behind it stays, too."""
    case = after_a_tool()
    case.when(case.broke("context_too_long", retryable=False))
    assert case.request()["purpose"] == "compact"
    done = case.reply(stop="compaction")
    block = {"type": "compaction", "content": "db was read", "signature": "s"}
    case.when(NodeDone(done.path, done.attempt, {**done.output, "content": [block], "signed": True}))
    before = case.request()["messages"]
    assert [message["role"] for message in before] == ["assistant", "user"]
    case.when(case.broke("request_invalid", retryable=False)).decide("over")
    assert case.request()["messages"] == before


def test_starting_over_keeps_the_files_that_people_gave() -> None:
    """They are what people have said as much as their words are."""
    case = after_a_tool()
    file = {"name": "log.txt", "path": "inbox/log.txt", "mediaType": "text/plain"}
    case.when(Steer("Read this.", ANA, "steer", files=[file])).model(
        "I see.", ("shell", {"command": "restart b"})
    )
    case.tool("tool[0]", RAN).when(case.broke("request_invalid", retryable=False)).decide("over")
    (sent,) = case.request()["messages"]
    assert "inbox/log.txt" in str(sent["content"])


def test_without_thinking_nothing_that_was_thought_is_sent_from_then_on() -> None:
    """Of earlier answers neither; what is thought later, by a model that cannot do without, stays."""
    case = thinks(talk(SHELL), {"type": "text", "text": "I look."}, CALL)
    case.tool("tool[0]", RAN).when(case.broke("bad_response", retryable=False)).decide("plain")
    assert case.request()["plain"] is True
    assert "thinking" not in str(case.request()["messages"])
    assert "I look." in str(case.request()["messages"])
    case.when(case.broke("bad_response", retryable=False))
    assert "Without thinking" not in labels(case)
    case.decide("retry")
    thinks(case, CALL | {"id": "toolu_9"}).tool("tool[0]", RAN)
    assert str(case.request()["messages"]).count("'hm'") == 1


def test_without_thinking_the_model_is_told_so_where_it_can() -> None:
    """The setting is off, whatever the conversation was opened with; the rest of its beginning stays as it is."""
    body = {"model": "claude-opus-5", "system": [], "thinking": {"type": "adaptive"}}
    config = {"model": "claude-opus-5", "maxTokens": 100, "messages": [], "body": body, "plain": True}
    sent = request_from(config).to_json()
    assert sent["thinking"] == {"type": "disabled"}
    assert request_from({**config, "plain": False}).to_json()["thinking"] == {"type": "adaptive"}


def test_thinking_that_is_sent_on_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seeded fault: messages go out as they are."""
    monkeypatch.setattr("engine.decide.agents.model_request._unthought", lambda message: message)
    with pytest.raises(AssertionError):
        test_without_thinking_nothing_that_was_thought_is_sent_from_then_on()


WEB = call("logs", {"service": "web"}, "toolu_web")


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("haiku-5-5", "disabled"),
        ("sonnet-5-5", "between_tools"),
        ("opus-5-5", "adaptive"),
        ("opus-5", "disabled"),
    ],
)
async def test_without_thinking_the_server_takes_it(stage: Stage, model: str, kind: str) -> None:
    """Against a server that binds thinking to what stands before it: nothing that was thought is sent after the person's word; a
    model that cannot do without thinks on, and that goes back as it came."""
    broken = Failure(400, "invalid_request_error", "messages.1: a block that nobody can explain")
    again = [WEB] if kind == "disabled" else [thought(), WEB]
    named = f"model: claude-{model}"
    state = await stage.run(Reply([thought(), DB]), broken, Reply(again), text("Both."), more=named)
    (prompt,) = (state.prompts[key] for key in state.open_prompts)
    await stage.rig.engine.apply(SESSION, Answer(prompt.prompt_id, ANA, "word", value="plain"))
    assert said(await stage.parked()) == "Both."
    _, before, after, last = (request.body for request in stage.server.requests)
    assert [block["type"] for block in before["messages"][1]["content"]] == ["thinking", "tool_use"]
    assert [block["type"] for block in after["messages"][1]["content"]] == ["tool_use"]
    assert after["thinking"]["type"] == last["thinking"]["type"] == kind
    assert {**after, "messages": 0, "thinking": 0} == {**before, "messages": 0, "thinking": 0}
    assert len(last["messages"][3]["content"]) == len(again)
    assert not any(request.dropped for request in stage.server.requests)


def thought() -> dict[str, Any]:
    """A block of thinking that the server signs."""
    return {"type": "thinking", "thinking": "Perhaps the disk.", "signature": ""}
