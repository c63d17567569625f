"""No silent success: limits of loops and loop edges, people's decisions at them, and graphs that do not reach their end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from engine.decide.commands import Answer, Hold, Resume
from engine.decide.policy import Gate
from engine.journal.fold import derive_state
from engine.journal.snapshot import from_bytes, to_bytes
from engine.language.codec import Json
from engine.language.errors import NotAllowed
from tests.support.engine import ANA, BEN, Scenario, given

BAD = "{{ nodes.check.good == false }}"


def graph(on_limit: str | None = None, **more: Any) -> str:
    """A check that never is good, and leads back twice; its final node is reached only where it is good."""
    loop: dict[str, Json] = {"from": "check", "to": "work", "type": "loop", "max_iterations": 2, "when": BAD}
    nodes = [
        {"id": "work", "type": "noop"},
        {"id": "check", "type": "set", "with": {"good": False}},
        {"id": "done", "type": "noop"},
    ]
    edges = [
        {"from": "work", "to": "check"},
        {"from": "check", "to": "done", "when": "{{ nodes.check.good }}"},
        loop | ({} if on_limit is None else {"on_limit": on_limit}),
    ]
    return json.dumps({"flow": "demo", "nodes": nodes, "edges": edges, **more})


def loop(on_limit: str | None = None) -> str:
    """A loop that is never over, with two rounds."""
    config: dict[str, Json] = {"until": "{{ last.a.x == 2 }}", "max_iterations": 2}
    config |= {} if on_limit is None else {"on_limit": on_limit}
    node = {
        "id": "again",
        "type": "loop",
        "with": config,
        "body": [{"id": "a", "type": "set", "with": {"x": 1}}],
    }
    return json.dumps({"flow": "demo", "nodes": [node, {"id": "z", "type": "noop"}]})


def checked(case: Scenario) -> Scenario:
    """The case, whose journal folds to its state, which survives its encoding."""
    assert derive_state(case.events) == case.state == from_bytes(to_bytes(case.state))
    return case


def error(case: Scenario) -> tuple[str, Any, str]:
    """How a session ended: its status, and the type and text of its error."""
    told = case.state.error or {}
    return case.state.status, told.get("type"), str(told.get("message"))


@pytest.mark.parametrize("text", [graph(), graph("fail"), loop(), loop("fail")])
def test_what_is_used_up_fails(text: str) -> None:
    """A limit that is reached is a failure, unless the author says otherwise."""
    case = checked(given(text).started())
    assert error(case)[:2] == ("failed", "limit")
    assert "2" in error(case)[2]


def test_a_loop_edge_that_is_not_wanted_again_is_no_limit() -> None:
    """The last time counts: an edge whose condition is false then is simply not taken."""
    text = graph().replace('"good": false', '"good": "{{ status.work == \'completed\' }}"')
    assert given(text).started().state.status == "complete"


@pytest.mark.parametrize(
    ("text", "path", "to"), [(graph("continue"), "check~3", "work"), (loop("continue"), "again", None)]
)
def test_a_limit_that_the_author_allows_is_named(text: str, path: str, to: str | None) -> None:
    """With `continue` the session completes, its final nodes reached or not, and the state names the limit."""
    case = checked(given(text).started())
    assert case.state.status == "complete"
    assert case.state.limits == ({"path": path, "to": to, "times": 2},)
    assert json.loads(to_bytes(case.state))["limits"] == [{"path": path, "to": to, "times": 2}]


@pytest.mark.parametrize("text", [graph("ask"), loop("ask")])
def test_people_are_asked_at_a_limit(text: str) -> None:
    """The question names what is used up; once more goes back once, and is asked about again."""
    case = checked(given(text).started())
    assert (case.prompt.kind, case.state.phase) == ("limit", "waiting")
    assert "are used up" in case.prompt.message
    assert [option["label"] for option in case.prompt.options] == ["Once more", "Continue", "Stop"]
    before = case.state.node_runs
    case.when(case.answer("again"))
    assert case.state.node_runs > before
    assert "3" in checked(case).prompt.message
    case.when(case.answer("continue"))
    assert checked(case).state.status == "complete"
    assert [limit["times"] for limit in case.state.limits] == [3]


@pytest.mark.parametrize("text", [graph("ask"), loop("ask")])
def test_people_can_stop_at_a_limit(text: str) -> None:
    """Stop is the failure that there would have been without a question, and says who stopped it."""
    case = given(text).started()
    case.when(case.answer("again"))
    case.when(case.answer("fail"))
    assert error(checked(case))[:2] == ("failed", "limit")
    assert "3 " in (told := str((case.state.error or {})["message"]))
    assert told.endswith("; stopped by ana")


@pytest.mark.parametrize(
    ("said", "decision"), [("once more", "again"), ("Continue", "continue"), ("stop", "fail")]
)
def test_a_limit_is_answered_with_words(said: str, decision: str) -> None:
    """Typing one of the choices as a reply works like pressing its button."""
    case = given(loop("ask")).started()
    prompt_id = case.prompt.prompt_id
    case.when(Answer(prompt_id, ANA, "words", text=said))
    assert (case.state.prompts[prompt_id].answer or {})["value"] == decision


@pytest.mark.parametrize("text", [graph("ask"), loop("ask")])
def test_nobody_at_a_limit_stops_it(text: str) -> None:
    """At the flow's deadline it stops."""
    case = given(text).started()
    case.when(case.shown())
    case.later(31 * 86400).when(case.timer_due())
    assert error(checked(case))[:2] == ("failed", "limit")
    assert "nobody decided in time" in str((case.state.error or {})["message"])


@pytest.mark.parametrize("decision", ["again", "continue", "fail"])
@pytest.mark.parametrize("text", [graph("ask"), loop("ask")])
def test_an_answer_while_held_counts_after_the_pause(text: str, decision: str) -> None:
    """A person pauses the session at the question: the answer is recorded, and starts nothing before it is resumed."""
    case = given(text).started()
    case.when(Hold(ANA, "wait"))
    runs = case.state.node_runs
    case.when(case.answer(decision))
    assert (case.state.phase, case.state.node_runs) == ("held", runs)
    case.when(Resume("go on", ANA, "r"))
    assert (
        checked(case).state.status == {"again": "paused", "continue": "complete", "fail": "failed"}[decision]
    )


def test_only_who_may_resolve_answers_at_a_limit() -> None:
    """The requester and the admins, as for every question that the engine asks by itself."""
    case = given(graph("ask"))
    case.policy = Gate(home_team="T1", admins=frozenset())
    ana, ben = (replace(person, team_id="T1", in_channel=True) for person in (ANA, BEN))
    case.started(ana)
    case.refused(case.answer("again", actor=ben), NotAllowed)
    case.when(case.answer("continue", actor=ana))
    assert case.state.status == "complete"


# --- final nodes -----------------------------------------------------------------------------------------

DEAD_END = json.dumps(
    {
        "flow": "demo",
        "nodes": [{"id": name, "type": "noop"} for name in ("a", "left", "right")],
        "edges": [
            {"from": "a", "to": "left", "when": "{{ false }}"},
            {"from": "a", "to": "right", "when": "{{ false }}"},
        ],
    }
)


def test_a_graph_that_does_not_reach_its_end_fails() -> None:
    """Every edge was dead: the failure names the final nodes."""
    case = checked(given(DEAD_END).started())
    assert error(case)[:2] == ("failed", "unreached")
    assert "`left`, `right`" in error(case)[2]


@pytest.mark.parametrize(
    "change",
    [
        ("right", {"when": "{{ true }}"}),
        ("left", {"when": "{{ 1 == 1 }}"}),
    ],
)
def test_one_final_node_is_an_end(change: tuple[str, dict[str, Json]]) -> None:
    """Of several final nodes one is enough."""
    data = json.loads(DEAD_END)
    for edge in data["edges"]:
        if edge["to"] == change[0]:
            edge |= change[1]
    assert given(json.dumps(data)).started().state.status == "complete"


def test_a_final_node_that_its_own_condition_skips_was_reached() -> None:
    """Its `if` is the author's word, as in a list."""
    data = json.loads(DEAD_END)
    del data["edges"][0]["when"]
    data["nodes"][1]["if"] = False
    assert given(json.dumps(data)).started().state.status == "complete"


def test_a_round_that_does_not_reach_its_end_fails() -> None:
    """A graph in a body is a graph too."""
    data = json.loads(DEAD_END)
    body = {
        "id": "each",
        "type": "foreach",
        "with": {"items": [1]},
        "body": data["nodes"],
        "edges": data["edges"],
    }
    case = checked(given(json.dumps({"flow": "demo", "nodes": [body]})).started())
    assert error(case)[:2] == ("failed", "unreached")
