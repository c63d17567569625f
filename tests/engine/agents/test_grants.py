"""Calls that people allow always: how far, for how long, by whom, and what ends it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from engine.decide.agents import grants
from engine.decide.agents.kinds import KINDS
from engine.decide.commands import Answer, Edit, NodeDone, Revoke
from engine.decide.policy import Gate
from engine.decide.step import Step
from engine.flow.node import plan_of
from engine.journal import events as ev
from engine.language.errors import InvalidAnswer, MalformedJournal, NotAllowed, PromptClosed
from tests.engine.agents.talks import DONE, SERVICE, Talk, talk
from tests.support.engine import ANA, BEN

RULES = """
grants: run
tools: [{shell: {commands: ["*"]}}, write_file]
approvals:
  shell: [approve, edit, reject]
"""
RM = ("shell", {"command": "rm a.txt"})


def allowed(rules: str = RULES, *, calls: tuple[Any, ...] = (RM,), **asked: Any) -> Talk:
    """An agent whose first call was approved and allowed always; it has run."""
    case = talk(rules).model("", *calls).decide("approve", always=asked)
    return case.tool("tool[0]", DONE)


def next_call(case: Talk, command: str) -> bool:
    """Whether the next call runs unasked; the agent makes it."""
    case.model("", ("shell", {"command": command}))
    return not case.state.open_prompts


def test_a_call_that_is_allowed_always_runs_unasked_and_each_use_is_an_event() -> None:
    """The same call again asks nobody; the event has the digest of what runs. Another call is asked about."""
    case = allowed()
    (grant,) = case.state.grants.values()
    assert [person["id"] for person in grant.by] == [ANA.id]
    case.model("", RM)
    case.then("agent:message", "agent:toolRequested", "grant:used", "container:childStarted")
    assert case.event("grant:used").digest == case.state.prompts[grant.prompt_id].covers["digest"]
    case.tool("tool[0]", DONE)
    assert not next_call(case, "rm b.txt")


def test_nobody_allows_always_where_the_agent_does_not_say_so() -> None:
    """`grants` is off where nothing is written."""
    case = talk(RULES.replace("grants: run", "")).model("", RM)
    case.refused(Answer(case.prompt.prompt_id, ANA, "k", value="approve", always={}), InvalidAnswer)


def test_a_pattern_allows_what_fits_it_word_by_word() -> None:
    """As in `commands`: one word more, another program, or a way out of a folder is asked about."""
    case = allowed(patterns={"command": "rm *.txt"})
    for command, runs in (("rm b.txt", True), ("rm b.txt c.txt", False)):
        assert next_call(case, command) == runs
        case.tool("tool[0]", DONE) if runs else None
    case = allowed(patterns={"command": "rm *.txt"})
    assert not next_call(case, "rm ../b.txt")


@pytest.mark.parametrize("wrong", [{"command": "ls *"}, {"command": "*"}, {"command": 3}, {"other": "a*"}])
def test_a_pattern_has_to_fit_the_call_that_is_approved(wrong: Any) -> None:
    """It is tested before anything is decided; one that allows anything is none."""
    case = talk(RULES).model("", RM)
    command = Answer(case.prompt.prompt_id, ANA, "k", value="approve", always={"patterns": wrong})
    case.refused(command, InvalidAnswer)
    assert case.prompt.open


def test_other_texts_are_compared_whole_and_no_field_may_be_added() -> None:
    """`*` is anything on one line; a field that the call did not have makes it another call."""
    case = talk("grants: run\ntools: [write_file]\napprovals: {write_file: [approve, reject]}")
    tool = case.flow.nodes[0].agent.tools[0]  # type: ignore[union-attr]
    fields = {"path": {"like": "out/*.md"}, "content": {"is": "x"}}
    assert grants.fits(tool, fields, {"path": "out/a.md", "content": "x"})
    assert not grants.fits(tool, fields, {"path": "out/a.md\n.md", "content": "x"})
    assert not grants.fits(tool, fields, {"path": "out/a.md", "content": "y"})
    assert not grants.fits(tool, fields, {"path": "out/a.md", "content": "x", "mode": "w"})
    assert not grants.fits(tool, fields, {"path": "out/a.md"})


def test_after_its_time_people_are_asked_again() -> None:
    """Eight hours where nothing else was said; then its end is an event, and the call is asked about."""
    case = allowed().later(8 * 3600 - 60)
    assert next_call(case, "rm a.txt")
    case.tool("tool[0]", DONE).later(120)
    assert grants.standing(case.state, case.now) == []
    assert not next_call(case, "rm a.txt")
    assert case.state.grants[next(iter(case.state.grants))].over == "expired"


def test_nothing_is_allowed_for_more_than_thirty_days() -> None:
    """More is refused, and nothing is decided."""
    case = talk(RULES).model("", RM)
    asked = {"seconds": 31 * 86400}
    case.refused(Answer(case.prompt.prompt_id, ANA, "k", value="approve", always=asked), InvalidAnswer)


def test_several_who_must_agree_agree_on_what_is_allowed_too() -> None:
    """Two approvals are a quorum for the call; only two of the same are one for calls like it."""
    rules = RULES.replace("[approve, edit, reject]", "{required: 2, approvers: [channel]}")
    for second, given in (({}, 1), ({"seconds": 60}, 0), (None, 0)):
        case = talk(rules).model("", RM)
        case.when(Answer(case.prompt.prompt_id, ANA, "k1", value="approve", always={}))
        assert case.prompt.open
        case.when(Answer(case.prompt.prompt_id, BEN, "k2", value="approve", always=second))
        assert case.node("helper/turn[1]/tool[0]").status == "started"
        assert len(case.state.grants) == given


def test_it_is_never_given_by_whoever_may_not_approve() -> None:
    """Where the requester is excluded, they allow nothing always; another member of the channel does."""
    rules = RULES.replace("[approve, edit, reject]", "{exclude_requester: true, approvers: [channel]}")
    case = talk(rules).model("", RM)
    case.policy = Gate(home_team="T1")
    ana, ben = (replace(one, team_id="T1", in_channel=True) for one in (ANA, BEN))
    case.refused(Answer(case.prompt.prompt_id, ana, "k", value="approve", always={}), NotAllowed)
    assert case.decide("approve", actor=ben, always={}).state.grants


def test_what_is_taken_back_is_asked_about_again() -> None:
    """By whoever could give it, and nobody else; once."""
    case = allowed().allowing(ANA)
    (prompt_id,) = case.state.grants
    case.refused(Revoke(prompt_id, BEN, "u0"), NotAllowed)
    case.when(Revoke(prompt_id, ANA, "u1"))
    case.refused(Revoke(prompt_id, ANA, "u2"), PromptClosed)
    assert grants.standing(case.state, case.now) == []
    assert not next_call(case, "rm a.txt")


def test_another_definition_of_the_tool_makes_it_void() -> None:
    """The digest of the tool and of its rule is another: people are asked."""
    case = allowed()
    (prompt_id,) = case.state.grants
    other = replace(case.state.grants[prompt_id], definition="0" * 64)
    case.state = replace(case.state, grants=case.state.grants.set(prompt_id, other))
    assert not next_call(case, "rm a.txt")


MARK = """
tools:
  mark:
    description: Mark a host
    input: {host: {type: string}}
    type: set
    with: {host: "{{ input.host }}"}
"""
MARKS = "tools: [mark]\napprovals: {mark: {approvers: [channel], required: 1}}"


SERVED = "tools: [{mcp: {server: ops, tools: [mark]}}]\napprovals: {ops__mark: {approvers: [channel], required: 1}}"


def defined(rules: str, head: str = MARK, told: str = "Mark a host") -> str:
    """The digest of the definition of an agent's tool that is asked about; the model was told so of it."""
    case = talk(rules, head=SERVICE + head)
    done, plan = case.reply(), plan_of(case.flow.lists[""].nodes[0])
    opened = {"body": {"tools": [{"name": plan.tools[0].name, "description": told}]}}
    case.when(NodeDone(done.path, done.attempt, {**done.output, "opened": opened}))
    step = Step(case.flow, case.state, case._facts(), KINDS)
    return grants.definition(step, case.calling, plan.tools[0], plan.rules[0])


def test_the_digest_of_a_definition_is_another_for_each_part_of_it() -> None:
    """What the model knows, what is carried out, what its settings allow, and who approves."""
    others = [
        defined(MARKS),
        defined(MARKS, MARK.replace("Mark a host", "Mark any host")),
        defined(MARKS, MARK.replace("{type: string}", "{type: string, description: Its name}")),
        defined(MARKS, told="Mark any host"),
        defined(MARKS, MARK.replace("{{ input.host }}", "{{ input.host }}.example.com")),
        defined(MARKS.replace("channel", "U0BEN")),
        defined(MARKS.replace("required: 1", "required: 2")),
        defined(MARKS.replace("required: 1", "exclude_requester: true")),
        defined(SERVED),
        # Another tool beside it, in the same entry: nothing but the settings says so.
        defined(SERVED.replace("[mark]", "[mark, unmark]")),
        defined(RULES),
        defined(RULES.replace('"*"', '"rm *"')),
    ]
    assert len(set(others)) == len(others)
    assert defined(MARKS) == others[0]


def test_what_one_agent_may_do_is_asked_about_for_the_next_one() -> None:
    """The same call of the same tool under the same rule, by another agent of the flow."""
    lines = "".join(f"      {line}\n" for line in RULES.strip().splitlines())
    second = f"  - id: second\n    type: agent\n    with:\n      prompt: Go on.\n{lines}"
    case = talk(RULES, rest=second).model("", RM).decide("approve", always={}).tool("tool[0]", DONE)
    case.model("Done.")
    assert case.calling.startswith("second/")
    assert grants.standing(case.state, case.now)
    assert not next_call(case, "rm a.txt")


def test_a_copy_of_the_session_asks_anew() -> None:
    """What people allow always, they allow in the session that they look at."""
    case = allowed()
    other = case.forked().claimed()
    assert other.state.grants
    assert grants.standing(other.state, other.now) == []
    assert not next_call(other, "rm a.txt")


def test_what_people_changed_before_they_allowed_it_is_what_is_allowed() -> None:
    """An edit comes first: the call as it ran counts."""
    case = talk(RULES).model("", RM)
    (name,) = case.prompt.editable
    case.when(Edit(case.prompt.prompt_id, ANA, "e", {name: "rm -i a.txt"}, case.prompt.nonce))
    case.decide("approve", actor=BEN, always={}).tool("tool[0]", DONE)
    assert next_call(case, "rm -i a.txt")


def after_its_time(patch: pytest.MonkeyPatch) -> Talk:
    """Seeded fault: a grant that has ended is used."""

    def ever(turn: Any, call: grants.Called, *, wide: bool) -> bool:
        for prompt_id in turn.state.grants:
            turn.emit(ev.GrantUsed, path=call.path, prompt_id=prompt_id, digest=call.digest)
        return bool(turn.state.grants)

    patch.setattr(grants, "use", ever)
    return allowed().later(9 * 3600)


def for_another_call(patch: pytest.MonkeyPatch) -> Talk:
    """Seeded fault: a grant is used for whatever the tool is asked."""
    patch.setattr(grants, "fits", lambda *given: True)
    patch.setattr(grants, "_allows", lambda *given: True)
    return allowed(calls=(("shell", {"command": "rm b.txt"}),))


@pytest.mark.parametrize("fault", [after_its_time, for_another_call])
def test_a_grant_that_is_used_wrongly_is_refused_by_whoever_reads_the_journal(fault: Any) -> None:
    """A use behind its time, or of another digest, is not a journal."""
    with pytest.MonkeyPatch.context() as patch:
        case = fault(patch)
        with pytest.raises(MalformedJournal):
            next_call(case, "rm a.txt")
