"""Random conversations: whatever models, people and crashes do, what is sent is legal, and every call has one result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.decide.agents.kinds import KINDS
from engine.decide.commands import (
    Answer,
    Begin,
    Claimed,
    Due,
    Edit,
    Hold,
    NodeCut,
    NodeDone,
    Resume,
    Shown,
    Start,
    Steer,
)
from engine.decide.due import due
from engine.journal.fold import derive_state
from engine.journal.state import Asked, State
from engine.messages.model_limits import AgentFacts
from engine.messages.prices import DEFAULTS
from tests.engine.agents.talks import Talk
from tests.engine.test_core_random import bring_to_an_end, finished
from tests.engine.walk_agents import calling, models, plain, requests, talks
from tests.engine.walks import Walk, commands
from tests.support.engine import ANA, BEN, SESSION, check_invariants, flow_of
from tests.support.proving import PROVE

STEPS = 30
_PRICE = DEFAULTS["claude-sonnet-5-5"]
SMALL = AgentFacts(prices={**DEFAULTS, "claude-sonnet-5-5": replace(_PRICE, context=30_000)})
"""A model that keeps so little in mind that conversations are summed up."""
POOR = AgentFacts(day_left=Decimal("0.02"))
"""A day on which not enough is left for most calls."""
EXAMPLES = 600 if PROVE else 20


class Talking:
    """One session of a flow that begins with an agent, and what may happen to it next."""

    def __init__(self, data: Any) -> None:
        self.data = data
        self.talk = Talk(flow_of(data.draw(talks())))
        self.talk.facts = data.draw(st.sampled_from([AgentFacts(), SMALL, POOR]))
        self.walk = Walk(self.talk)
        self.walk.step(Start(SESSION, {}, ANA), begin=True)

    @property
    def state(self) -> State:
        """The session as it is."""
        return self.walk.case.state

    def step(self, number: int) -> None:
        """One thing happens: the likely ones more often."""
        begin = self.data.draw(st.integers(0, 5)) > 0
        move = self.data.draw(st.sampled_from(self.moves()))
        move(number, begin)
        if begin:
            self.walk.case.only(Begin())
            assert due(self.walk.case.flow, self.state, KINDS) == []
        check_invariants(self.walk.case.flow, self.walk.events, self.state, self.walk.case.epoch)

    def moves(self) -> list[Callable[[int, bool], None]]:
        """What can happen, each as often as it is likely."""
        found: list[Callable[[int, bool], None]] = [self.anything, self.speak, self.die, self.twice]
        found += [self.ask_for_tools] * 6 + [self.answer] * 3 if calling(self.state) else []
        found += [self.end_tool] * 5 if self.tools() else []
        found += [self.decide] * 6 if self.state.open_prompts else []
        found += [self.fire] * 2 if self.state.timers else []
        found += [self.resume] * 5 if self.state.phase == "held" else [self.hold, self.stop]
        return found

    def tools(self) -> list[str]:
        """The tool calls that are in progress."""
        return sorted(set(self.state.launched) - set(calling(self.state)))

    # --- what happens

    def anything(self, number: int, begin: bool) -> None:
        self.walk.step(self.data.draw(commands(self.walk.case)), begin)

    def ask_for_tools(self, number: int, begin: bool) -> None:
        self.walk.step(self.data.draw(requests(self.state)), begin)

    def answer(self, number: int, begin: bool) -> None:
        self.walk.step(self.data.draw(models(self.state)), begin)

    def end_tool(self, number: int, begin: bool) -> None:
        path = self.data.draw(st.sampled_from(self.tools()))
        self.walk.step(finished(self.state, path), begin)

    def twice(self, number: int, begin: bool) -> None:
        """The same outcome comes twice; the second one changes nothing."""
        if calling(self.state):
            done = self.data.draw(requests(self.state))
            self.walk.step(done, begin=False)
            self.walk.case.only(done).then()

    def decide(self, number: int, begin: bool) -> None:
        prompts = self.state.prompts
        prompt = prompts[self.data.draw(st.sampled_from(sorted(self.state.open_prompts)))]
        who = self.data.draw(st.sampled_from([ANA, BEN]))
        if prompt.shown is None and number % 3 == 0:
            self.walk.step(Shown(prompt.prompt_id, {"ts": f"1.{number}"}), begin)
        elif prompt.editable and number % 2 == 0:
            self.walk.step(Edit(prompt.prompt_id, who, f"e{number}", self.changes(prompt)), begin)
        else:
            options = [option["value"] for option in prompt.options]
            value = self.data.draw(st.sampled_from(options)) if options else None
            text = None if options else "this one"
            self.walk.step(Answer(prompt.prompt_id, who, f"p{number}", value=value, text=text), begin)

    def changes(self, prompt: Asked) -> dict[str, Any]:
        """What somebody makes of a call before it is approved."""
        return {name: self.data.draw(st.sampled_from(["ls -a", "b", ""])) for name in prompt.editable}

    def speak(self, number: int, begin: bool) -> None:
        self.walk.step(Steer(f"look at {number}", BEN, f"s{number // 2}"), begin)

    def die(self, number: int, begin: bool) -> None:
        self.walk.step(Claimed(), begin)

    def fire(self, number: int, begin: bool) -> None:
        timer = self.state.timers[self.data.draw(st.sampled_from(sorted(self.state.timers)))]
        self.walk.case.now = max(self.walk.case.now, timer.due_at)
        self.walk.step(Due(timer.timer_id), begin)

    def hold(self, number: int, begin: bool) -> None:
        self.walk.step(Hold(ANA, waits=bool(self.state.launched)), begin)

    def stop(self, number: int, begin: bool) -> None:
        """A person stops the session: what runs is told to leave, and models with half an answer."""
        self.talk.pausing = True
        for path in self.state.launched:
            if path in calling(self.state):
                half = {**plain(), "stopReason": None, "interrupted": True}
                self.walk.step(NodeDone(path, self.state.nodes[path].attempt, half), False)
            elif path in self.state.launched:
                self.walk.step(NodeCut(path, self.state.nodes[path].attempt, "cut"), False)
        self.talk.pausing = False
        self.walk.step(Hold(ANA), begin)

    def resume(self, number: int, begin: bool) -> None:
        self.walk.step(Resume("go on", ANA, f"r{number}"), begin)


@pytest.mark.timeout(120 if EXAMPLES < 100 else 3_600)
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_whatever_happens_a_conversation_stays_legal_and_comes_to_an_end(data: Any) -> None:
    """Answers, tool calls, failures, crashes, people who decide, edit, speak, hold and resume, in any order."""
    talking = Talking(data)
    for number in range(data.draw(st.integers(1, STEPS))):
        talking.step(number)
    bring_to_an_end(talking.walk)
    assert derive_state(talking.walk.events) == talking.state
