"""Where the API takes a request no more, another try may continue without thinking."""

from __future__ import annotations

from typing import Any

import pytest

from engine.decide.commands import Answer, NodeDone
from engine.models.turn_runner import request_from
from tests.engine.agents.talks import Talk, talk
from tests.engine.agents.test_outcomes import RAN, SHELL
from tests.engine.agents.test_with_server import DB, Stage, said, stage
from tests.support.claude_server import Failure, Reply, call, text
from tests.support.engine import ANA, SESSION

__all__ = ["stage"]

CALL = {"type": "tool_use", "id": "toolu_8", "name": "shell", "input": {"command": "restart db"}}
OFF = "retry_with: {thinking: off}"
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}


def thinks(case: Talk, *content: Any) -> Talk:
    """The model answers this, behind what it thought."""
    done = case.reply(stop="tool_use")
    return case.when(NodeDone(done.path, done.attempt, {**done.output, "content": [THOUGHT, *content]}))


def test_without_thinking_nothing_that_was_thought_is_sent_from_then_on() -> None:
    """Of earlier answers neither; what is thought later, by a model that cannot do without, stays."""
    case = thinks(talk(f"{SHELL}\n{OFF}"), {"type": "text", "text": "I look."}, CALL)
    case.tool("tool[0]", RAN).when(case.broke("bad_response", retryable=False)).decide("retry")
    assert case.request()["plain"] is True
    assert "thinking" not in str(case.request()["messages"])
    assert "I look." in str(case.request()["messages"])
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
    """Against a server that binds thinking to what is before it: nothing that was thought is sent after the person's word; a
    model that cannot do without thinks on, and that goes back as it came."""
    broken = Failure(400, "invalid_request_error", "messages.1: a block that nobody can explain")
    again = [WEB] if kind == "disabled" else [thought(), WEB]
    named = f"model: claude-{model}, {OFF}"
    state = await stage.run(Reply([thought(), DB]), broken, Reply(again), text("Both."), more=named)
    (prompt,) = (state.prompts[key] for key in state.open_prompts)
    await stage.rig.engine.apply(SESSION, Answer(prompt.prompt_id, ANA, "word", value="retry"))
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
