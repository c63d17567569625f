"""Rejected approvals: nothing that follows starts, unless the flow says so, and texts of before keep what they meant."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.flow import Flow
from engine.journal.fold import derive_state
from engine.journal.queries import is_rejected
from engine.journal.snapshot import from_bytes, to_bytes
from engine.language.codec import Json
from engine.language.errors import FlowError
from tests.support.engine import BEN, Scenario, flow_of, given

APPLY: dict[str, Json] = {"id": "apply", "type": "shell", "with": {"run": ["deploy"]}}


def gate(around: dict[str, Json] | None = None, **more: Json) -> dict[str, Any]:
    """An approval, with more under `with` and beside it."""
    config: dict[str, Json] = {"message": "Go?", "approvers": ["channel"], **more}
    return {"id": "gate", "type": "approval", "with": config, **(around or {})}


def text_of(*nodes: dict[str, Any], **more: Any) -> str:
    """A flow of these nodes."""
    return json.dumps({"flow": "demo", "nodes": list(nodes), **more})


def rejected(flow: Flow | str, reason: str | None = None) -> Scenario:
    """A session of this flow whose approval Ben rejected."""
    case = given(flow) if isinstance(flow, str) else Scenario(flow)
    case.started()
    return case.when(case.answer("reject", actor=BEN, reason=reason))


def test_a_rejection_stops_the_flow() -> None:
    """Without a word of the author nothing that follows starts, and the session ends as failed, with the reason."""
    case = rejected(text_of(gate(), APPLY), "too risky")
    case.then("prompt:answered", "flow:resumed", "node:error", "flow:failed", "session:end")
    assert "apply" not in case.state.nodes
    error = case.state.error or {}
    assert (error["type"], error["message"]) == ("rejected", "gate was rejected by ben: too risky")
    assert case.node("gate").error == error
    assert derive_state(case.events) == case.state == from_bytes(to_bytes(case.state))


def test_the_error_says_who_when_and_why() -> None:
    """What `on_failure` and `finally` see has all that the decision had."""
    said = "{{ errors.gate.by[0].name }} {{ errors.gate.reason }} {{ errors.gate.at }} {{ errors.gate['values'].n }}"
    form = {"properties": {"n": {"type": "integer", "default": 3}}}
    last = [{"id": "told", "type": "set", "if": "{{ status.gate == 'failed' }}", "with": {"why": said}}]
    case = rejected(text_of(gate(form=form), APPLY, **{"finally": last}), "no")
    assert case.node("finally/told").output == {"why": f"ben no {case.now} 3"}


def test_a_timeout_that_rejects_is_a_rejection() -> None:
    """Nobody decided in time, and that counts as no."""
    case = given(text_of(gate(timeout="5m", on_timeout="reject"), APPLY)).started()
    case.when(case.shown())
    case.later(600).when(case.timer_due())
    assert "apply" not in case.state.nodes
    error = case.state.error or {}
    assert (error["type"], error["message"]) == ("rejected", "gate was rejected: nobody decided in time")


@pytest.mark.parametrize("timeout", [{}, {"timeout": "5m", "on_timeout": "reject"}])
def test_continue_completes_the_node(timeout: dict[str, Json]) -> None:
    """With `on_reject: continue` a rejection is an output like any other."""
    case = given(text_of(gate(on_reject="continue", **timeout), {"id": "n", "type": "noop"})).started()
    if timeout:
        case.when(case.shown())
        case.later(600).when(case.timer_due())
    else:
        case.when(case.answer("reject", actor=BEN))
    assert case.node("gate").output["decision"] == "reject"
    assert case.node("n").status == "completed"
    assert is_rejected(case.node("gate"))


def test_a_rejection_can_go_elsewhere() -> None:
    """`on_reject: goto:<id>` passes over what is in between."""
    case = rejected(text_of(gate(on_reject="goto:end"), APPLY, {"id": "end", "type": "noop"}))
    assert (case.node("gate").status, case.node("end").status) == ("failed", "completed")
    assert "apply" not in case.state.nodes
    assert (case.state.status, is_rejected(case.node("gate"))) == ("complete", True)


def test_what_handles_failures_handles_rejections() -> None:
    """`on_failure` runs first, and with `on_error: continue` the flow continues."""
    tidy = [{"id": "tidy", "type": "set", "with": {"why": "{{ errors.gate.type }}"}}]
    around: dict[str, Json] = {"on_failure": tidy, "on_error": "continue"}
    case = rejected(text_of(gate(around), {"id": "n", "type": "noop"}))
    told = [getattr(event, "output", None) for event in case.events if event.path == "gate!/tidy"]
    assert {"why": "rejected"} in told
    assert (case.node("n").status, case.state.status) == ("completed", "complete")


def test_a_rejection_is_never_tried_again() -> None:
    """`retry` of a container is for what may go better the next time; people said no."""
    around = {"id": "box", "type": "parallel", "branches": {"a": [gate()]}, "retry": {"attempts": 3}}
    case = rejected(text_of(around, APPLY))
    assert (case.state.status, (case.state.error or {})["type"]) == ("failed", "rejected")


def test_a_rejection_inside_ends_what_is_around_it() -> None:
    """In a body the rest of this round and the rounds that follow do not run."""
    body = [gate(), {"id": "work", "type": "shell", "with": {"run": ["x"]}}]
    each = {"id": "each", "type": "foreach", "with": {"items": [1, 2]}, "body": body}
    case = rejected(text_of(each, APPLY))
    started = [event.path for event in case.events if event.type.endswith("tarted") and event.path]
    assert started == ["each", "each", "each", "each[0]/gate"]
    assert case.state.status == "failed"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("fail", "expected stop, continue or goto:<id>"),
        ("goto:nowhere", "there is no node `nowhere` in this list"),
        ("{{ 'stop' }}", "`on_reject` cannot contain expressions"),
    ],
)
def test_what_on_reject_cannot_be(value: str, told: str) -> None:
    """A way out that does not exist is an error of the file."""
    with pytest.raises(FlowError, match=told):
        flow_of(text_of(gate(on_reject=value), APPLY))
