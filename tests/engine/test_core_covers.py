"""Approvals that cover a node: what is shown is what runs, or nothing runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given as of
from hypothesis import settings
from hypothesis import strategies as st

from engine.decide.agents.kinds import KINDS
from engine.decide.commands import Begin, Edit, NodeBroke, NodeDone
from engine.decide.covered_nodes import digest
from engine.decide.decide import decide
from engine.decide.past import plan
from engine.journal.fold import derive_state
from engine.language.codec import Json, copy, decode, encode
from engine.language.errors import FlowError, InvalidAnswer, PromptClosed
from engine.nodes.types.preview import action_text, quoted
from tests.support.engine import ANA, BEN, Scenario, flow_of, given
from tests.support.proving import tries

RUN = {
    "run": ["./deploy.sh", "{{ inputs.service }}", "{{ nodes.gate.values.count }}"],
    "env": {"MODE": "{{ inputs.mode }}"},
}
GATE = {
    "message": "Go?",
    "approvers": ["channel"],
    "covers": "apply",
    "form": {"properties": {"count": {"type": "integer", "default": 2, "maximum": 9}, "why": {"type": "string", "default": "x"}}, "required": ["count", "why"]},
    "editable": ["count"],
}  # fmt: skip


def nodes(gate: dict[str, Any] | None = None, apply: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    return [
        {"id": "gate", "type": "approval", "with": {**GATE, **(gate or {})}},
        {"id": "apply", "type": "shell", "with": RUN, **(apply or {})},
    ]


def text_of(listed: list[dict[str, Any]]) -> str:
    inputs = {"service": {"type": "string"}, "mode": {"type": "string", "default": "safe"}}
    return json.dumps({"flow": "demo", "inputs": inputs, "nodes": listed})


def session(gate: dict[str, Any] | None = None, apply: dict[str, Any] | None = None) -> Scenario:
    return given(text_of(nodes(gate, apply))).started(service="my api")


def ran(case: Scenario) -> list[str]:
    """The nodes that a process is executing."""
    return sorted(case.state.launched)


def change(case: Scenario, **values: Json) -> Edit:
    return Edit(case.prompt.prompt_id, BEN, f"edit-{case.state.seq}", values)


# --- what is shown ---------------------------------------------------------------------------------------


def test_an_approval_shows_what_will_run() -> None:
    """The prompt carries the covered node's argument list as it would run now, and its digest."""
    covers = session().prompt.covers
    assert covers["text"] == "./deploy.sh 'my api' 2\nenv MODE: safe"
    assert (covers["nodeId"], covers["path"], covers["type"]) == ("apply", "apply", "shell")
    assert covers["validSeconds"] == 86400


def test_what_was_approved_runs() -> None:
    """After the approval the node starts, and what it does has the digest that was shown."""
    case = session()
    shown = case.prompt.covers["digest"]
    case.when(case.answer("approve"))
    assert ran(case) == ["apply"]
    assert digest("shell", case.node("apply").input) == shown


@pytest.mark.parametrize("goes_on", [{"with": {"on_reject": "continue"}}, {"on_error": "continue"}])
def test_what_was_rejected_is_skipped(goes_on: dict[str, Any]) -> None:
    """Where the flow continues after a rejection, the covered node is skipped with the reason."""
    gate, apply = nodes(goes_on.get("with"))
    case = given(text_of([{**gate, "on_error": goes_on.get("on_error", "fail")}, apply])).started(service="a")
    case.when(case.answer("reject"))
    assert (case.node("apply").status, case.node("apply").reason) == ("skipped", "it was rejected at `gate`")
    assert case.state.status == "complete"


def test_what_nobody_was_asked_about_is_skipped() -> None:
    """Where the approval itself was skipped, nobody approved, and the node does not run."""
    listed = nodes()
    listed[0]["if"] = "{{ inputs.mode == 'never' }}"
    case = given(text_of(listed)).started(service="a")
    assert case.node("apply").status == "skipped"
    assert "nobody approved" in (case.node("apply").reason or "")


def test_what_timed_out_does_not_run() -> None:
    """An approval that failed approved nothing, even where the flow continues after it."""
    case = given(text_of([{**nodes({"timeout": "5m"})[0], "on_error": "continue"}, nodes()[1]])).started(
        service="a"
    )
    case.when(case.shown())
    case.later(600).when(case.timer_due())
    assert not ran(case)
    assert (case.node("apply").error or {})["type"] == "not_approved"


def test_an_approval_that_is_too_old_counts_no_more() -> None:
    """When the approval has expired (`valid_for`), the node fails with a message and does not start."""
    case = session({"valid_for": "1h"})
    case.only(case.answer("approve")).later(3601)
    case._take(Begin())
    assert not ran(case)
    assert "that was valid for 1h" in (case.node("apply").error or {})["message"]


def test_a_retry_is_enforced_too() -> None:
    """A second attempt of a covered node needs an approval that is still valid."""
    case = session({"valid_for": "1h"}, {"retry": {"attempts": 3, "delay": "50m", "max_delay": "1h"}})
    case.when(case.answer("approve"), NodeBroke("apply", 1, {"type": "exit", "message": "no"}))
    case.later(3000).when(case.timer_due())
    assert ran(case) == ["apply"]
    case.when(NodeBroke("apply", 2, {"type": "exit", "message": "no"})).later(3000).when(case.timer_due())
    assert not ran(case)
    assert (case.node("apply").error or {})["type"] == "not_approved"


def test_after_a_crash_it_is_enforced_too() -> None:
    """What is run again after a crash is what was approved, if that is still valid."""
    for hours, expected in ((1, ["apply"]), (30, [])):
        case = session(apply={"on_crash": "again"})
        case.when(case.answer("approve")).later(hours * 3600)
        case.claimed()
        assert ran(case) == expected


def test_each_round_has_an_approval_of_its_own() -> None:
    """In a loop over items each approval covers the node of its own round."""
    body = [
        {
            "id": "gate",
            "type": "approval",
            "with": {"message": "Go?", "approvers": ["channel"], "covers": "apply"},
        },
        {"id": "apply", "type": "shell", "with": {"run": ["./apply.sh", "{{ item }}"]}},
    ]
    case = given(json.dumps({"flow": "f", "nodes": [{"id": "each", "type": "foreach", "with": {"items": ["a", "b"]}, "body": body}]}))  # fmt: skip
    case.started()
    digests = []
    for item in ("a", "b"):
        covers = case.prompt.covers
        assert covers["text"] == f"./apply.sh {item}"
        assert covers["path"] == f"each[{len(digests)}]/apply"
        digests.append(covers["digest"])
        case.when(case.answer("approve"))
        (path,) = ran(case)
        case.when(NodeDone(path, 1, {"stdout": ""}))
    assert len(set(digests)) == 2
    assert case.state.status == "complete"


def test_two_approvals_can_cover_one_node() -> None:
    """Both have to be given."""
    second = {
        "id": "other",
        "type": "approval",
        "with": {"message": "?", "approvers": ["channel"], "covers": "apply"},
    }
    for last, expected in (("approve", ["apply"]), ("reject", [])):
        case = given(text_of([nodes()[0], second, nodes()[1]])).started(service="a")
        case.when(case.answer("approve"))
        assert not ran(case)
        case.when(case.answer(last))
        assert ran(case) == expected


# --- edits -----------------------------------------------------------------------------------------------


def test_an_edit_changes_what_will_run() -> None:
    """The changed value is in the text and the digest, the difference is recorded, older buttons match no more."""
    case = session()
    before = case.prompt
    case.when(change(case, count="5")).then("prompt:edited")
    event = case.event("prompt:edited")
    assert (event.before, event.values) == ({"count": 2}, {"count": 5, "why": "x"})
    after = case.prompt
    assert after.covers["text"].startswith("./deploy.sh 'my api' 5")
    assert after.covers["digest"] != before.covers["digest"]
    assert (after.generation, after.editors) == (2, (BEN.id,))
    text = case.refused(case.answer("approve", nonce=before.nonce), PromptClosed)
    assert "older copy" in text
    case.when(case.answer("approve", nonce=after.nonce))
    assert case.node("apply").input["run"] == ["./deploy.sh", "my api", "5"]
    assert case.node("gate").output["values"] == {"count": 5, "why": "x"}


def test_votes_before_an_edit_are_void() -> None:
    """Whoever approved something else has not approved this."""
    case = session({"required": 2})
    case.when(case.answer("approve", actor=ANA), change(case, count=3))
    assert case.prompt.votes == ()
    case.when(case.answer("approve", actor=BEN))
    assert case.state.phase == "waiting"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 10}, "Nothing was changed. Count"),
        ({"count": "many"}, "Nothing was changed"),
        ({"why": "y"}, "`why` cannot be changed here, only `count`"),
        ({"rm": "-rf"}, "`rm` cannot be changed"),
        ({"count": 2}, "No changes to save"),
        ({}, "No changes to save"),
    ],
)
def test_an_edit_that_does_not_fit_changes_nothing(values: dict[str, Json], message: str) -> None:
    """Only editable fields, only with values that fit; the person reads what is wrong."""
    case = session()
    assert message in case.refused(change(case, **values), InvalidAnswer)


def test_an_approval_without_editable_fields_cannot_be_changed() -> None:
    """What the flow does not name stays as it is."""
    case = session({"editable": []})
    assert "has no editable fields" in case.refused(change(case, count=3), InvalidAnswer)


def test_an_edit_with_which_the_node_could_not_run_is_refused() -> None:
    """What would run is put together again with each edit; where that fails, nothing is changed."""
    form = {
        "properties": {"count": {"type": "string", "default": "GET"}},
        "required": ["count"],
    }
    call = {"method": "{{ nodes.gate.values.count }}", "url": "https://example.com"}
    case = session({"form": form}, {"type": "http", "with": call})
    text = case.refused(change(case, count="STEAL"), InvalidAnswer)
    assert "method" in text


# --- nothing else runs -----------------------------------------------------------------------------------

ACTIONS: dict[str, dict[str, Json]] = {
    "shell": {"run": ["./x.sh", "a b"], "env": {"A": "1"}, "cwd": "work", "stdin": "yes"},
    "http": {"method": "POST", "url": "https://example.com/a", "headers": {"X-A": "b"}, "body": "c"},
    "message": {"text": "hello"},
    "python": {"call": "tools.db:drop", "args": {"name": "t", "count": 3}},
}


def _places(value: Json, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [place for key, item in value.items() for place in _places(item, (*path, key))]
    if isinstance(value, list):
        return [place for index, item in enumerate(value) for place in _places(item, (*path, index))]
    return [path]


def _flipped(text: str, position: int, bit: int) -> str:
    data = bytearray(text.encode())
    data[position % len(data)] ^= 1 << bit % 7
    return data.decode("utf-8", "replace")


@settings(max_examples=tries(300))
@of(st.sampled_from(sorted(ACTIONS)), st.data())
def test_whatever_is_changed_after_the_approval_does_not_run(kind: str, data: st.DataObject) -> None:
    """One changed byte in what runs, wherever it is, and nothing runs."""
    listed = [
        {
            "id": "gate",
            "type": "approval",
            "with": {"message": "?", "approvers": ["channel"], "covers": "apply"},
        },
        {"id": "apply", "type": kind, "with": ACTIONS[kind]},
    ]
    case = given(json.dumps({"flow": "f", "nodes": listed})).started()
    case.only(case.answer("approve"))
    changed = copy(ACTIONS[kind])
    place = data.draw(st.sampled_from(_places(changed)))
    holder = changed
    for step in place[:-1]:
        holder = holder[step]
    before = holder[place[-1]]
    if isinstance(before, int):
        after: Json = before + 1
    else:
        after = _flipped(before, data.draw(st.integers(0, 99)), data.draw(st.integers(0, 7)))
    holder[place[-1]] = after
    listed[1]["with"] = changed
    try:
        other = flow_of(json.dumps({"flow": "f", "nodes": listed}))
    except FlowError:
        return
    events = decide(other, case.state, Begin(), case._facts(), KINDS)
    state = derive_state(events, case.state)
    same = encode(other.nodes[1].config) == encode(case.flow.nodes[1].config)
    assert same or state.nodes["apply"].status == "failed", (before, after)
    assert same or not state.launched


def test_a_copy_needs_an_approval_of_its_own() -> None:
    """A fork after the approval does not run what was approved in its parent; one before it asks and then runs it."""
    case = session()
    asked = case.state.seq
    case.when(case.answer("approve"), NodeDone("apply", 1, {"stdout": ""}))
    started = next(event.seq for event in case.events if event.path == "apply")
    again = case.forked(asked)
    again.when(again.answer("approve"))
    assert ran(again) == ["apply"]
    assert not ran(case.forked(started).claimed())


def test_a_new_text_of_the_flow_covers_what_was_shown() -> None:
    """A session does not continue with a text in which the approval covers nothing; what it does instead is not run."""
    case = session()
    without = flow_of(text_of([{"id": "gate", "type": "approval", "with": {k: v for k, v in GATE.items() if k != "covers"}}, nodes()[1]]))  # fmt: skip
    assert plan(case.flow, without, case.state).problems == [
        "gate: approves what `apply` does, which is not so in the new version"
    ]
    other = flow_of(text_of(nodes(apply={"with": {**RUN, "cwd": "elsewhere"}})))
    assert not plan(case.flow, other, case.state).problems
    case.flow = other
    case.when(case.answer("approve"))
    assert not ran(case)
    assert "`gate` did not approve" in (case.node("apply").error or {})["message"]


# --- what does not load ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gate", "apply", "message"),
    [
        ({"covers": "aply"}, {}, "there is no node `aply` in this list"),
        ({"covers": "gate"}, {}, "may not come after this approval"),
        ({"covers": "{{ inputs.mode }}"}, {}, "covers"),
        ({}, {"type": "wait", "with": {"for": "1m"}}, "cannot be known in advance"),
        ({}, {"with": {"run": ["{{ nodes.gate.reason }}"]}}, "the answer of `gate` is not known"),
        ({}, {"with": {"run": ["{{ nodes.gate.by | length }}"]}}, "the answer of `gate` is not known"),
        ({}, {"with": {"run": ["{{ nodes.gate | length }}"]}}, "the answer of `gate` is not known"),
        ({}, {"with": {"run": ["{{ status.gate }}"]}}, "the answer of `gate` is not known"),
        ({}, {"with": {"run": ["{{ messages | length }}"]}}, "`messages` can change between"),
        ({"editable": ["nothing"]}, {}, "the form has no field `nothing`"),
        ({"form": None}, {}, "`editable` needs a `form`"),
    ],
)
def test_what_cannot_be_shown_beforehand_does_not_load(
    gate: dict[str, Any], apply: dict[str, Any], message: str
) -> None:
    """The file says at once what an approval cannot cover."""
    with pytest.raises(FlowError, match=message):
        flow_of(text_of(nodes(gate, apply)))


def test_a_node_between_cannot_feed_what_was_approved() -> None:
    """What runs after the approval is not known when it is asked."""
    between = {"id": "look", "type": "shell", "with": {"run": ["ls"]}}
    apply = {"id": "apply", "type": "shell", "with": {"run": ["rm", "{{ nodes.look.stdout }}"]}}
    with pytest.raises(FlowError, match=r"`nodes\.look` is not known yet when `gate` asks"):
        flow_of(text_of([nodes()[0], between, apply]))


def test_in_a_graph_the_covered_node_comes_surely_later() -> None:
    """Edges must lead from the approval to what it covers."""
    edges = [{"from": "apply", "to": "gate"}]
    with pytest.raises(FlowError, match="may not come after this approval"):
        flow_of(json.dumps({"flow": "f", "nodes": nodes({"form": None, "editable": []}, {"with": {"run": ["x"]}}), "edges": edges}))  # fmt: skip


# --- the words -------------------------------------------------------------------------------------------


@of(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), max_size=4), st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), max_size=4))  # fmt: skip
def test_different_arguments_look_different(first: list[str], second: list[str]) -> None:
    """No argument list reads like another one, and nothing in it is invisible."""
    told = [" ".join(map(quoted, arguments)) for arguments in (first, second)]
    assert (told[0] == told[1]) == (first == second)
    assert all(text.isprintable() for text in told)


def test_what_a_request_does_is_told() -> None:
    """Method, address, headers and body; secrets by name, credentials not at all, and nothing is left out."""
    config: dict[str, Json] = {
        "method": "POST",
        "url": "https://example.com/a b",
        "query": {"q": ["1", "2"]},
        "headers": {"Authorization": {"$secret_text": ["Bearer ", {"$secret": "API"}]}, "X-Key": "abc", "X-Mode": "on"},
        "body": "one\ntwo \u202etxt",
        "json": None,
        "ok_status": [204],
        "max_body": 262144,
        "allow_hosts": [],
    }  # fmt: skip
    assert action_text("http", config).split("\n") == [
        "POST 'https://example.com/a b'",
        'query q: ["1","2"]',
        "header Authorization: 'Bearer ' (secret API)",
        "header X-Key: (not shown)",
        "header X-Mode: on",
        "body:",
        "    one",
        "    two \\u202etxt",
        "ok_status: [204]",
    ]


def test_what_cannot_be_shown_says_so() -> None:
    """A function is named with its arguments, and what it does, or what is too long, is called uninspectable."""
    text = action_text("python", {"call": "tools:go", "args": {"n": 1}})
    assert text.split("\n") == ["python tools:go", "n: 1", "what the function does with that: uninspectable"]
    long = action_text("message", {"text": "x" * 40_000})
    assert "uninspectable: the other" in long
    assert "uninspectable" in action_text("never_heard_of", {"a": 1})
    assert decode(encode(long)) == long


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        ("ls", "script (sh -eu)"),
        ("#!/bin/bash\nls", "script (bash -eu)"),
        ("#!/usr/bin/env python3\nls", "script (/usr/bin/env python3)"),
    ],
)
def test_an_approval_says_what_runs_a_script(script: str, shown: str) -> None:
    """The program that the first line of a script names is shown with it."""
    assert shown in action_text("shell", {"script": script})
