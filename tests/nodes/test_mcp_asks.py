"""Questions of MCP servers as forms and pages of ours, and what becomes of them when a server has forgotten its state."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from engine.nodes.runtime import mcp_asks
from engine.nodes.runtime.mcp_asks import FORGOTTEN, Unaskable, answered, asks, forgotten, left, responses
from engine.nodes.runtime.runner import Failed, Interrupted


def form(properties: dict[str, Any], **more: Any) -> Any:
    """A form that a server asks for."""
    schema = {"type": "object", "properties": properties, **more}
    params = SimpleNamespace(mode="form", message="Say", requested_schema=schema)
    return SimpleNamespace(method="elicitation/create", params=params)


def page(url: str) -> Any:
    """A page that a server sends people to."""
    params = SimpleNamespace(mode="url", message="Log in", url=url)
    return SimpleNamespace(method="elicitation/create", params=params)


def made(request: Any) -> dict[str, Any]:
    """The question that it becomes."""
    return dict(asks({"k": request}, ["login.example.com", "*.corp.io:8443"], str)[0])


def test_fields_have_the_names_and_rules_of_the_server() -> None:
    """Names become ours for the form, and the server's again in the answer; limits, choices and defaults are kept."""
    asked = made(
        form(
            {
                "firstName": {"type": "string", "minLength": 2, "title": "First"},
                "Größe": {"type": "integer", "minimum": 1},
                "tags": {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}},
                "level": {"type": "string", "enum": ["lo", "hi"], "default": "lo"},
            },
            required=["firstName"],
        )
    )
    fields = {field["name"]: field for field in asked["form"]["fields"]}
    assert list(fields) == ["first_name", "gr_e", "tags", "level"]
    assert (fields["first_name"]["minLength"], fields["first_name"]["required"]) == (2, True)
    assert (fields["level"]["default"], fields["tags"]["type"]) == ("lo", "choices")
    values = {"first_name": "Ana", "gr_e": 3, "tags": None, "level": "hi"}
    saved = {"asks": [asked], "answers": {"k": {"action": "accept", "values": values}}}
    content = {"firstName": "Ana", "Größe": 3, "level": "hi"}
    assert responses(saved) == {"k": {"action": "accept", "content": content}}


def test_two_fields_never_share_a_name() -> None:
    """A field whose name cannot be ours is called by a number that no other field has for a name."""
    asked = made(form({"field_2": {"type": "string"}, "名": {"type": "string"}, "age": {"type": "integer"}}))
    assert list(asked["names"].values()) == ["field_2", "名", "age"]


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (form({"apiKey": {"type": "string"}}), "secrets"),
        (form({"password": {"type": "string"}}), "secrets"),
        (form({"address": {"type": "object"}}), "flat"),
        (form({"a": "text"}), "cannot be shown"),
        (page("https://evil.io/login.example.com"), "SAYSO_LINK_HOSTS"),
        (page("https://login.example.com@evil.io/"), "plain web address"),
        (page("https://login.example.com:444/"), "SAYSO_LINK_HOSTS"),
        (page("javascript:alert(1)"), "plain web address"),
        (page("https://2130706433/"), "plain web address"),
        (SimpleNamespace(method="roots/list", params=None), "refused"),
    ],
)
def test_what_cannot_be_asked_is_refused(request_: Any, why: str) -> None:
    """A secret, a form that is not flat, a host that nobody named, an address in disguise: the call fails and says why."""
    with pytest.raises(Unaskable, match=why):
        made(request_)


def test_an_address_is_shown_whole() -> None:
    """What could hide a part of it in Slack's markup is encoded."""
    assert made(page("https://a.corp.io:8443/x|y?z=<b>"))["url"] == "https://a.corp.io:8443/x%7Cy?z=%3Cb%3E"


# --- a state that was forgotten ----------------------------------------------------------------------------


def round_of(message: str) -> list[Any]:
    """One question."""
    return [{"key": "k", "message": message, "form": None, "names": {}}]


ANSWER = {"k": {"action": "accept"}}


def late(message: str) -> Interrupted | Failed:
    """What follows where people answered *Now?* too late, and the server asks this then."""
    first = left("ops", round_of("Now?"), "s1", {})
    assert isinstance(first, Interrupted)
    again = forgotten({**first.details, "answers": ANSWER})
    assert again is not None
    outcome = left("ops", round_of(message), "s2", again)
    assert isinstance(outcome, Interrupted | Failed)
    return outcome


def the_same_is_answered_and_others_are_asked() -> None:
    """The same question continues with its answer under the new state; another one is asked, and says why."""
    same, other = late("Now?"), late("Really?")
    assert isinstance(same, Interrupted)
    assert isinstance(other, Interrupted)
    assert (same.reason, same.details["state"], same.details["answers"]) == ("left", "s2", ANSWER)
    assert (other.reason, other.details.get("why"), other.details["answers"]) == ("asks", FORGOTTEN, {})


def test_the_same_question_has_its_answer_and_another_one_is_asked() -> None:
    """Nobody is asked twice, and nobody's answer is given to another question."""
    the_same_is_answered_and_others_are_asked()


def test_a_server_that_forgets_again_and_again_is_given_up() -> None:
    """Nobody having answered anything else in between, the call is made again a few times only."""
    outcome = late("Now?")
    assert isinstance(outcome, Interrupted)
    saved: Any = outcome.details
    for _ in range(2):
        saved = forgotten(saved)
        outcome = left("ops", round_of("Now?"), "s3", saved)
        assert isinstance(outcome, Interrupted)
        saved = outcome.details
    assert forgotten(saved) is None


def test_what_follows_the_answers_that_are_known_says_nothing_of_forgetting() -> None:
    """A server that continues after what it had asked before asks as usual."""
    same = late("Now?")
    assert isinstance(same, Interrupted)
    follows = left("ops", round_of("And then?"), "s4", answered(same.details))
    assert isinstance(follows, Interrupted)
    assert (follows.reason, follows.details.get("why")) == ("asks", None)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("digest", lambda asked: "always the same"),
        ("forgotten", lambda saved: {**saved, "again": 0}),
        ("forgotten", lambda saved: {name: saved[name] for name in ("server", "rounds")}),
    ],
)
def test_a_fault_in_what_is_remembered_is_noticed(
    monkeypatch: pytest.MonkeyPatch, name: str, fault: Callable[..., Any]
) -> None:
    """Seeded faults: an old answer goes to another question, or nobody's answer to the same one."""
    monkeypatch.setattr(mcp_asks, name, fault)
    if name == "forgotten":
        monkeypatch.setitem(globals(), "forgotten", fault)
    with pytest.raises(AssertionError):
        the_same_is_answered_and_others_are_asked()
