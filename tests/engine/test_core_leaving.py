"""Leaving at a checkpoint: it is not a crash and no failure; the node runs again, with what it saved."""

from __future__ import annotations

from engine.decide.commands import Hold, NodeBroke, NodeCut, NodeDone, Resume
from engine.journal.snapshot import from_bytes, to_bytes
from tests.support.engine import ANA, Scenario, given

FLOW = "nodes: [{id: a, type: python, %s with: {call: 'm:f'}}, {id: b, type: noop}]"


def left(policy: str = "", saved: object = None) -> Scenario:
    """A session whose node `a` left at a checkpoint, held since."""
    case = given(FLOW % policy).started()
    case.only(NodeCut("a", 1, "left", saved=saved))
    return case.only(Hold(ANA))


def test_what_left_at_a_checkpoint_runs_again_unasked() -> None:
    """A python node asks after an interruption, but not after one that it chose itself."""
    case = left(saved={"next": 7})
    assert case.state.phase == "held"
    assert not case.state.open_prompts
    case.when(Resume("go on", ANA, "k")).then("flow:resumed", "session:message", "node:started")
    assert (case.node("a").saved, case.node("a").attempt) == ({"next": 7}, 2)


def test_what_was_saved_is_in_the_snapshot() -> None:
    """Encoding the held state and reading it again keeps what the node saved."""
    case = left(saved=[1, {"x": None}])
    assert from_bytes(to_bytes(case.state)) == case.state
    assert case.state.nodes["a"].saved == [1, {"x": None}]


def test_what_was_saved_survives_a_crash_of_the_next_attempt() -> None:
    """A later attempt that dies without a word leaves what an earlier one saved to the next."""
    case = left("on_crash: again,", saved=3).when(Resume("go on", ANA, "k"))
    case.claimed().then("node:interrupted", "node:started")
    assert (case.node("a").saved, case.node("a").attempt) == (3, 3)


def test_leaving_without_a_word_forgets_what_was_saved() -> None:
    """The last checkpoint counts, also when it saved nothing."""
    case = left(saved=3).when(Resume("go on", ANA, "k"))
    case.only(NodeCut("a", 2, "left"))
    assert case.node("a").saved is None


def test_leaving_is_no_failure() -> None:
    """A node that left twice still has all the attempts that its `retry` gives it."""
    case = left("retry: {attempts: 2, delay: 1s},").when(Resume("go on", ANA, "k"))
    case.only(NodeCut("a", 2, "left")).only(Hold(ANA)).when(Resume("on", ANA, "k2"))
    case.when(NodeBroke("a", 3, {"type": "x", "message": "x"}))
    assert case.node("a").status == "retrying"


def test_an_abort_after_leaving_ends_the_session() -> None:
    """What left and is not resumed asks nothing and holds nothing up."""
    case = left().when(left().abort()).then("session:abort", "session:end")
    assert case.state.status == "aborted"


def test_what_was_saved_is_gone_once_the_node_completed() -> None:
    """A completed node keeps its output and nothing else."""
    case = left(saved={"big": 1}).when(Resume("go on", ANA, "k"), NodeDone("a", 2, 5))
    assert (case.node("a").saved, case.node("a").output) == (None, 5)
    assert case.state.status == "complete"
