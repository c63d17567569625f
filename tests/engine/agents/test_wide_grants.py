"""Calls that people allow in the runs of a thread, or of a flow in a channel: where they count, and what they are bound to."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from engine.decide.agents import wide_grants
from engine.decide.agents.wide_grants import GrantRows
from engine.decide.commands import Answer, Facts, Revoke, Start
from engine.decide.policy import Gate
from engine.journal.records import KeptRow
from engine.journal.state import State
from engine.language.actors import Actor
from engine.language.errors import InvalidAnswer, MalformedJournal, NotAllowed
from tests.engine.agents.talks import DONE, HEAD, SERVICE, Talk
from tests.support.engine import ANA, BEN, SESSION, flow_of

RULES = """
grants: flow
tools: [{shell: {commands: ["*"]}}]
approvals: {shell: {approvers: [U0ANA, U0BEN]}}
"""
RM = ("shell", {"command": "rm a.txt"})


class Run(Talk):
    """A run that is told which grants count where it lives."""

    kept: tuple[KeptRow, ...] = ()

    def _facts(self) -> Facts:
        return replace(super()._facts(), grants=self.kept)


def run(
    rows: list[KeptRow],
    rules: str = RULES,
    *,
    actor: Actor = ANA,
    key: str = "T1:C1:1.2",
    head: str = SERVICE,
    now: str | None = None,
    **inputs: Any,
) -> Run:
    """A run that has begun, in a thread of channel C1."""
    lines = "".join(f"      {line}\n" for line in rules.strip("\n").splitlines())
    case = Run(flow_of(head + HEAD.strip("\n").replace("\n\n", "\n") + "\n" + lines))
    case.kept, case.now = tuple(rows), now or case.now
    return case.when(Start(SESSION, dict(inputs), actor, {"key": key, "channel": "C1"}))


def rows_of(case: Talk) -> list[KeptRow]:
    """What its steps leave for other runs: the last row of each grant."""
    found: list[Any] = list(GrantRows()(State(seq=1), case.state, case.events))
    return list({row.kept_id: row for row in found}.values())


def given(scope: str, rules: str = RULES, *, by: Actor = BEN, **more: Any) -> list[KeptRow]:
    """The grant of a run whose call was approved and allowed there."""
    asked = {"scope": scope, **more.pop("always", {})}
    case = run([], rules, **more).model("", RM).decide("approve", always=asked, actor=by)
    return rows_of(case)


def unasked(case: Run, call: Any = RM) -> bool:
    """Whether the first call of a run runs by a grant."""
    case.model("", call)
    return not case.state.open_prompts


def test_what_is_allowed_in_a_thread_runs_unasked_in_its_next_run_and_each_use_is_told() -> None:
    """The use is an event with all of the grant, the row counts it, and names who gave it; other threads are asked."""
    rows = given("thread")
    assert [(row.scope, row.rev) for row in rows] == [("thread:T1:C1:1.2", 1)]
    case = run(rows, actor=BEN).model("", RM)
    case.then("agent:message", "agent:toolRequested", "grant:used", "container:childStarted")
    used = case.event("grant:used").grant
    assert (used["used"], used["rev"], [one["id"] for one in used["by"]]) == (1, 2, [BEN.id])
    (after,) = rows_of(case)
    assert (after.kept_id, after.rev) == (rows[0].kept_id, 2)
    case.tool("tool[0]", DONE).model("", RM)
    assert rows_of(case)[0].rev == 3


def test_a_grant_of_a_flow_counts_in_its_channel() -> None:
    """Its row has the flow and the channel."""
    (row,) = given("flow")
    assert row.scope == "flow:demo@C1"
    assert unasked(run([row], key="T1:C1:9.9"))


def test_the_flow_is_the_ceiling() -> None:
    """With `grants: run` there is nothing beyond the run; without a channel neither; a scope that is none is refused."""
    for rules, scope in ((RULES.replace("flow", "run"), "thread"), (RULES, "channel")):
        case = run([], rules).model("", RM)
        told = case.refused(
            Answer(case.prompt.prompt_id, ANA, "k", value="approve", always={"scope": scope}), InvalidAnswer
        )
        assert "run" in told
    assert not unasked(run(given("flow"), RULES.replace("flow", "run")))


def test_without_a_scope_it_is_for_the_run() -> None:
    """Nothing is left for others."""
    case = run([]).model("", RM).decide("approve", always={})
    assert rows_of(case) == []
    assert len(case.state.grants) == 1


@pytest.mark.parametrize(
    "other",
    [
        RULES.replace("[U0ANA, U0BEN]", "[U0ANA]"),
        RULES.replace("approvers: [U0ANA, U0BEN]", "approvers: [U0ANA, U0BEN], required: 2"),
        RULES.replace('commands: ["*"]', 'commands: ["*"], env: {A: b}'),
        RULES.replace('commands: ["*"]', 'commands: ["rm *"]'),
    ],
)
def test_another_tool_or_rule_voids_it(other: str) -> None:
    """People are asked again where the tool does something else, or others would decide."""
    rows = given("flow")
    assert unasked(run(rows))
    assert not unasked(run(rows, other))


def test_it_counts_for_its_call_or_pattern_and_until_its_end() -> None:
    """As within a run."""
    rows = given("flow", always={"patterns": {"command": "rm *.txt"}, "seconds": 60})
    assert unasked(run(rows), ("shell", {"command": "rm b.txt"}))
    assert not unasked(run(rows), ("shell", {"command": "rm b.txt c.txt"}))
    assert not unasked(run(rows, now=rows[0].expires_at), RM)


def test_what_the_flow_adds_to_a_call_has_to_be_the_same() -> None:
    """A pattern speaks of the input only: where another run would do something else with the same input, it is asked."""
    rules = RULES.replace('commands: ["*"]', 'commands: ["*"], env: {WHERE: "{{ inputs.service }}"}')
    rows = given("flow", rules, always={"patterns": {"command": "rm *.txt"}}, service="staging")
    assert unasked(run(rows, rules, service="staging"))
    assert not unasked(run(rows, rules, service="production"))


def test_nobody_approves_their_own_run_by_a_grant() -> None:
    """With `exclude_requester` it does not count in the runs of who gave it."""
    rules = RULES.replace("approvers:", "exclude_requester: true, approvers:")
    rows = given("flow", rules)
    assert unasked(run(rows, rules, actor=ANA))
    assert not unasked(run(rows, rules, actor=BEN))


def test_where_the_requester_decides_it_counts_in_the_runs_of_the_same_person() -> None:
    """Ana's word is none about what Ben asks for."""
    rules = RULES.replace("{approvers: [U0ANA, U0BEN]}", "[approve, reject]")
    rows = given("flow", rules, by=ANA)
    assert unasked(run(rows, rules, actor=ANA))
    assert not unasked(run(rows, rules, actor=BEN))


def test_a_quorum_gives_it_together() -> None:
    """One of two who ask for the same in another scope gives nothing."""
    rules = RULES.replace("approvers:", "required: 2, approvers:")
    for second, rows in (("flow", 1), ("thread", 0)):
        case = run([], rules).model("", RM)
        case.decide("approve", always={"scope": "flow"}, actor=ANA)
        case.decide("approve", always={"scope": second}, actor=BEN)
        assert len(rows_of(case)) == rows


def test_what_was_taken_back_in_the_run_that_gave_it_counts_nowhere() -> None:
    """The event has the row as it is from then on: over, with who did it."""
    case = run([]).model("", RM).decide("approve", always={"scope": "flow"}, actor=BEN)
    (row,) = rows_of(case)
    case.kept = (row,)
    case.when(Revoke(row.kept_id, BEN, "undo"))
    (after,) = rows_of(case)
    assert (after.rev, after.expires_at) == (2, case.now)
    assert not unasked(run([after]))


def test_a_copy_of_a_session_leaves_no_rows() -> None:
    """What is in a copied journal was given where it happened."""
    case = run([]).model("", RM).decide("approve", always={"scope": "flow"})
    assert list(GrantRows()(State(), case.state, case.events)) == []


def test_the_policy_is_asked_as_for_any_approval() -> None:
    """Who may not decide gives no grant."""
    case = run([]).model("", RM)
    case.policy = Gate("T1")
    stranger = Actor("U0EVE", name="eve", team_id="T1", in_channel=True, facts_known=True)
    command = Answer(case.prompt.prompt_id, stranger, "k", value="approve", always={"scope": "flow"})
    case.refused(command, NotAllowed)


def without_its_end(turn: Any) -> list[Any]:
    """All grants that are stored, over or not."""
    return [wide_grants.grant_of(row) for row in turn.facts.grants]


@pytest.mark.parametrize(
    ("name", "wrong", "tests"),
    [
        (
            "allows",
            lambda *about: True,
            (
                test_nobody_approves_their_own_run_by_a_grant,
                test_where_the_requester_decides_it_counts_in_the_runs_of_the_same_person,
                test_what_the_flow_adds_to_a_call_has_to_be_the_same,
            ),
        ),
        (
            "standing",
            without_its_end,
            (
                test_what_was_taken_back_in_the_run_that_gave_it_counts_nowhere,
                test_it_counts_for_its_call_or_pattern_and_until_its_end,
            ),
        ),
    ],
)
def test_a_grant_that_counts_too_far_is_noticed(
    monkeypatch: pytest.MonkeyPatch, name: str, wrong: Any, tests: Any
) -> None:
    """Seeded faults: nothing but the input is compared; the end is not looked at."""
    monkeypatch.setattr(wide_grants, name, wrong)
    for test in tests:
        with pytest.raises((AssertionError, MalformedJournal)):
            test()
