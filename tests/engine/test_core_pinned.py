"""Code beside a flow: what it was is recorded, a change is noticed, and `pin: strict` asks before new code starts."""

from __future__ import annotations

from engine.decide.commands import Answer, Facts, Hold, NodeDone, Resume
from engine.journal.queries import changed, code_key, differing
from engine.journal.snapshot import from_bytes, to_bytes
from tests.support.engine import ANA, Scenario, Workshop, given

FLOW = """flow: demo
nodes:
  - {id: q, type: ask, with: {message: Now?}}
  - {id: a, type: shell, PIN with: {run: [./a.sh, now]}}
  - {id: b, type: shell, with: {run: [ls]}}
"""
LOOSE, STRICT = FLOW.replace("PIN", ""), FLOW.replace("PIN", "pin: strict,")
ENDING = """flow: demo
nodes: [{id: n, type: ask, with: {message: Now?}}]
finally: [{id: a, type: shell, pin: strict, with: {run: [./a.sh]}}]
"""


class Pinned(Scenario):
    """A session whose code has digests that the test sets."""

    code: dict[str, str]

    def _facts(self) -> Facts:
        return Facts(self.now, self.epoch, f"turn-{self.state.seq}", self.policy, dict(self.code))


def begun(flow: str) -> Pinned:
    """A session that waits before its program, which is `one` so far."""
    case = Pinned(given(flow).flow)
    case.code = {"./a.sh": "one"}
    case.started()
    return case


def go_on(case: Pinned) -> Pinned:
    """Answer the question before the program."""
    case.when(case.answer(text="go"))
    return case


def test_what_counts_as_code_of_ours() -> None:
    """Modules, and programs with a relative path; what PATH finds, absolute paths and scripts are not."""
    assert code_key("python", {"call": "tools.deploy:run"}) == "tools.deploy"
    assert code_key("shell", {"run": ["./x.sh", "1"]}) == "./x.sh"
    assert code_key("shell", {"run": ["tools/x"]}) == "tools/x"
    for config in ({"run": ["ls"]}, {"run": ["/bin/ls"]}, {"script": "ls"}, {"run": ["./{{ a }}"]}, None):
        assert code_key("shell", config) is None
    assert code_key("http", {"run": ["./x"]}) is None


def test_digests_are_recorded_when_the_flow_starts_and_with_each_start() -> None:
    """Nodes that run no code of ours have none."""
    case = begun(LOOSE)
    assert case.event("flow:started").code == {"./a.sh": "one"}
    go_on(case)
    assert case.event("node:started").code_digest == "one"
    case.when(NodeDone("a", 1, Workshop.output("x")))
    assert case.event("node:started").code_digest is None
    assert from_bytes(to_bytes(case.state)) == case.state


def test_changed_code_runs_and_is_noted() -> None:
    """Without `pin` nobody is asked; the state says what changed."""
    case = begun(LOOSE)
    case.code["./a.sh"] = "two"
    assert differing(case.state, case.code) == ["./a.sh"]
    assert changed(case.state, case.code, "shell", {"run": ["./a.sh"]})
    go_on(case).then("prompt:answered", "flow:resumed", "node:completed", "node:started")
    assert case.state.code_changed == ("./a.sh",)
    assert differing(case.state, case.code) == []
    assert from_bytes(to_bytes(case.state)) == case.state


def test_strict_asks_before_changed_code_starts() -> None:
    """The node is not launched; `again` starts the new code, which is agreed to from then on."""
    case = begun(STRICT)
    case.code["./a.sh"] = "two"
    go_on(case).then(
        "prompt:answered", "flow:resumed", "node:completed",
        "node:started", "node:interrupted", "prompt:requested", "flow:paused",
    )  # fmt: skip
    assert [option["value"] for option in case.prompt.options] == ["again", "abort"]
    assert "has not started" in case.prompt.message
    case.claimed().then()
    case.when(case.answer("again")).then("prompt:answered", "flow:resumed", "node:started")
    assert (case.node("a").attempt, case.node("a").crashes) == (2, 0)


def test_strict_asks_again_where_the_code_changed_again() -> None:
    """Whoever agreed, agreed to what they could look at."""
    case = begun(STRICT)
    case.code["./a.sh"] = "two"
    go_on(case)
    case.code["./a.sh"] = "three"
    case.when(case.answer("again")).then(
        "prompt:answered",
        "flow:resumed",
        "node:started",
        "node:interrupted",
        "prompt:requested",
        "flow:paused",
    )


def test_strict_ends_where_a_person_says_so() -> None:
    """Nothing of the new code ran."""
    case = begun(STRICT)
    case.code["./a.sh"] = "two"
    go_on(case)
    case.when(case.answer("abort"))
    assert case.state.status == "aborted"


def test_unchanged_or_unknown_code_asks_nobody() -> None:
    """Code that nobody could read when the flow started is known from its first start on."""
    go_on(begun(STRICT)).then("prompt:answered", "flow:resumed", "node:completed", "node:started")
    case = begun(STRICT)
    case.code.clear()
    go_on(case).then("prompt:answered", "flow:resumed", "node:completed", "node:started")


def test_a_crash_in_changed_code_is_a_crash() -> None:
    """The usual question comes: whether it had its effect is not known."""
    case = begun(LOOSE)
    case.code["./a.sh"] = "two"
    go_on(case).claimed().then("node:interrupted", "prompt:requested", "flow:paused")
    assert [option["value"] for option in case.prompt.options] == ["done", "again", "abort"]


def test_finally_asks_nobody_about_changed_code() -> None:
    """It fails there, and says why."""
    case = begun(ENDING)
    case.code["./a.sh"] = "two"
    go_on(case)
    assert case.state.status == "failed"
    assert "its code changed" in str((case.state.error or {})["message"])


def test_a_hold_between_changes_nothing() -> None:
    """The question stays open while the session is held."""
    case = begun(STRICT)
    case.code["./a.sh"] = "two"
    go_on(case)
    prompt_id = case.prompt.prompt_id
    case.when(Hold(ANA)).when(Answer(prompt_id, ANA, "k", value="again")).then("prompt:answered")
    case.when(Resume("on", ANA, "r")).then("flow:resumed", "session:message", "node:started")
