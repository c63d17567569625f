"""Random flows, random commands: the core never reaches a state that is not defined."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.decide.agents.kinds import KINDS
from engine.decide.commands import Answer, Begin, Claimed, Due, NodeCut, NodeDone, Reachable, Resume, Shown
from engine.decide.due import due
from engine.journal.fold import derive_state
from engine.journal.state import NodeRun, State
from engine.nodes.types.registry import node_types
from tests.engine import walk_agents
from tests.engine.walks import Walk, commands, flows, is_turn
from tests.support.engine import ANA, BEN, Scenario, check_invariants, flow_of
from tests.support.proving import tries


class RandomSession(RuleBasedStateMachine):
    """One session under whatever can be thrown at it; what is refused changes nothing, what is taken makes sense."""

    walk: Walk

    @initialize(text=flows())
    def begin(self, text: str) -> None:
        """A flow, and no session yet."""
        self.walk = Walk(Scenario(flow_of(text)))

    @rule(data=st.data(), begin=st.booleans())
    def anything(self, data: Any, begin: bool) -> None:
        """Any command at all, with names of this session or of none."""
        self.walk.step(data.draw(commands(self.walk.case)), begin)

    @rule(seconds=st.sampled_from([0.001, 60.0, 3600.0, -60.0]))
    def time_passes(self, seconds: float) -> None:
        """The clock moves, sometimes backwards."""
        self.walk.case.later(seconds)

    @rule()
    @precondition(lambda self: bool(self.walk.case.state.timers))
    def timers_fire(self) -> None:
        """Every timer that is set is reported as due."""
        for timer_id in list(self.walk.case.state.timers):
            self.walk.step(Due(timer_id), begin=True)

    @rule()
    @precondition(lambda self: bool(self.walk.case.state.launched))
    def a_node_finishes_twice(self) -> None:
        """The same outcome comes twice; the second one changes nothing."""
        path = next(iter(self.walk.case.state.launched))
        done = finished(self.walk.case.state, path)
        self.walk.step(done, begin=False)
        self.walk.case.only(done).then()

    @rule()
    @precondition(lambda self: bool(self.walk.case.state.seq))
    def a_process_dies(self) -> None:
        """The session is claimed under another epoch: afterwards nothing of an earlier epoch runs."""
        self.walk.step(Claimed(), begin=False)
        state = self.walk.case.state
        assert all(state.nodes[path].epoch == self.walk.case.epoch for path in state.launched)

    @invariant()
    def begin_leaves_nothing_due(self) -> None:
        """Once begun, nothing is due that was started in this epoch: beginning twice starts nothing twice."""
        case = getattr(self, "walk", None) and self.walk.case
        if case is not None and case.state.seq:
            case.only(Begin())
            assert due(case.flow, case.state, KINDS) == []
            case.only(Begin()).then()
            check_invariants(case.flow, case.events, case.state, case.epoch)

    def teardown(self) -> None:
        """Whatever happened, the session can be brought to its end, and its journal folds to its state."""
        case = self.walk.case
        if case.state.seq:
            bring_to_an_end(self.walk)
            assert derive_state(case.events) == case.state


def finished(state: State, path: str) -> NodeDone:
    """The good end of a node that runs."""
    output = walk_agents.plain() if is_turn(state, path) else {}
    return NodeDone(path, state.nodes[path].attempt, output)


def bring_to_an_end(walk: Walk) -> None:
    """Answer, finish and wait for everything: every session ends within a bounded number of steps."""
    case = walk.case
    for step in range(600):
        state = case.state
        if state.ended:
            return
        if state.phase == "unreachable":
            walk.step(Reachable(), begin=True)
        elif state.phase == "held":
            walk.step(Resume("go on", ANA, f"end-{step}"), begin=True)
        elif state.open_prompts and step % 10 < 8:
            prompt = state.prompts[min(state.open_prompts)]
            options = prompt.options
            value, text = (options[0]["value"], None) if options else (None, "an end")
            if prompt.kind == "failed":
                value = "skip"
            values = {"n": 1} if prompt.form and not options else None
            who = ANA if step % 2 else BEN
            walk.step(Answer(prompt.prompt_id, who, f"end-{step}", value, text, values), begin=True)
        elif delivered := [path for path in state.active if is_elsewhere(state.nodes[path])]:
            walk.step(finished(state, delivered[0]), begin=True)
        elif due(case.flow, state, KINDS):
            walk.step(Begin(), begin=False)
        else:
            # Where two people are asked for and the question was handed over to one, its time has to pass.
            for prompt_id in sorted(state.open_prompts):
                walk.step(Shown(prompt_id, {"ts": "1.9"}), begin=True)
            assert case.state.timers, f"a session that nothing can end: {state}"
            case.later(7 * 86400)
            for timer_id in sorted(case.state.timers):
                walk.step(Due(timer_id), begin=True)
    raise AssertionError(f"a session that does not end: {case.state}")


def is_elsewhere(run: NodeRun) -> bool:
    """Whether a node's outcome is reported by somebody else."""
    return run.status == "started" and node_types()[run.type].mode in ("run", "delivery")


TestRandomSession = RandomSession.TestCase
TestRandomSession.settings = settings(max_examples=tries(40), stateful_step_count=25)


def test_a_cut_of_a_safe_node_is_not_repeated_for_ever() -> None:
    """A process that is always cut while a safe node runs asks nobody, but a crash that repeats is asked about."""
    from tests.support.engine import given

    case = given("nodes: [{id: a, type: shell, on_crash: again, with: {run: [ls]}}]").started()
    for attempt in range(1, 6):
        case.only(NodeCut("a", attempt, "cut")).then("node:interrupted")
        case.claimed().then("node:started")
    case.claimed().claimed()
    case.claimed().then("node:interrupted", "prompt:requested", "flow:paused")
