"""The Home within Slack's limits, whatever is asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from immutables import Map
from msgspec.structs import replace

from bot.rendering.home import HomePage, Look, Run, home_view
from bot.rendering.waiting import (
    Waiting,
    decision_view,
    together_view,
)
from bot.workspace.blocks import check_view
from engine.journal.state import Asked, Grant, State
from prompt_state.question_row import PromptState, prompt_state
from tests.bot.rendering_cases import ANA, T0, T1, prompt, prompts, session, wild
from tests.support.proving import tries


def row(asked: Asked, number: int = 1) -> PromptState:
    """The row of a question that is shown."""
    where = {"channel": "C1", "ts": f"{number}.0", "threadTs": "1.0"}
    shown = replace(asked, shown=where, nonce="n1", prompt_id=f"prompt-{number}", votes=())
    return prompt_state(session(shown), shown)


@settings(max_examples=tries(30), phases=[Phase.explicit, Phase.generate])
@given(prompts(), wild, st.sampled_from([None, "https://x.slack.com/archives/C1/p1"]))
@example(prompt(options=[{"value": n, "label": f"Option {n}"} for n in range(11)]), "", None)
def test_any_question_can_be_shown_outside_of_its_thread(asked: Asked, name: str, link: str | None) -> None:
    """On the Home, and in the modals that open from there."""
    entry = Waiting(row(asked), name, link)
    check_view(home_view(HomePage([entry], [], [], {}, T1, [entry])))
    check_view({**decision_view(entry.prompt, {})})
    for control in entry.face.controls:
        check_view({**decision_view(entry.prompt, {}, control)})
    if asked.kind == "approval":
        # All approvals have the same few choices.
        decided = replace(asked, options=prompt().options)
        check_view({**together_view([Waiting(row(decided), name, link)], "U1")})


def _allowing(prompt_id: str) -> State:
    """A run in which calls are always allowed by the answer to this prompt."""
    until = "2026-11-22T00:00:00.000Z"
    grant = Grant(prompt_id, "gate", "mark", {"host": {"is": "web-1"}}, "d1", until, (ANA,))
    asked = prompt(prompt_id=prompt_id, covers={"sessionId": "session-1"})
    return session(asked, grants=Map({prompt_id: grant}))


def test_a_full_home_has_a_hundred_blocks_at_most() -> None:
    """However much waits, runs and can be started; what waits is paged."""
    waiting = [Waiting(row(prompt(node_id=f"n{n % 10}"), n), f"flow{n % 5}") for n in range(1, 200)]
    flows: dict[str, Any] = {f"flow{n}": SimpleNamespace(description="Does it") for n in range(50)}
    runs = [Run(_allowing(f"prompt-{n}"), None) for n in range(30)]
    for start in (0, 22, 198):
        page = HomePage(waiting, runs, runs, flows, T0, waiting, Look(start=start), "At once.")
        view = home_view(page)
        assert len(view["blocks"]) <= 100
        assert "always allowed" in str(view)
        check_view(view)


def test_a_page_that_is_empty_by_now_gives_place_to_the_first_one() -> None:
    """Others answered meanwhile, or fewer fit the filter than all that wait: what waits is shown, wherever one had paged to."""
    waiting = [Waiting(row(prompt(), n), "rollback") for n in range(1, 30)]
    for look in (Look(start=44), Look("approval", start=44), Look("all", "rollback", 44)):
        view = home_view(HomePage(waiting, [], [], {}, T0, look=look))
        assert "asked:prompt-1" in str(view)
        assert "1 to 22 of 29" in str(view)


def test_many_long_questions_are_decided_together_in_one_view() -> None:
    """Forty in a script of which each letter is six bytes: Slack would refuse a larger view, and nothing would open."""
    long = "\u8a71" * 2_500
    group = [Waiting(row(prompt(message=long), n), "rollback") for n in range(40)]
    check_view({**together_view(group, "U1")})


def test_what_was_changed_is_seen_before_it_is_decided() -> None:
    """The Home and *Decide together* show the proposal as it was and is; where nothing is markup it stands as it is."""
    form = {"fields": [{"name": "host", "type": "string", "title": "Host", "default": "a<1>"}]}
    changed = prompt(form=form, values={"host": "b&2"}, editors=["U0LOCALBEN"])
    group = [Waiting(row(changed, n), "rollback") for n in (1, 2)]
    assert "• Host: a&lt;1&gt; → b&amp;2" in str(home_view(HomePage(group, [], [], {}, T1)))
    assert "Host: a<1> → b&2" in str(together_view(group, "U1"))


def test_a_call_that_was_allowed_once_was_used_one_time() -> None:
    """Words and numbers agree."""
    running = [Run(_allowing("prompt-1"), None)]
    assert "used 0 times" in str(home_view(HomePage([], running, [], {}, T0)))
    (grant,) = running[0].state.grants.values()
    once = replace(running[0].state, grants=Map({"prompt-1": replace(grant, used=1)}))
    assert "used 1 time " in str(home_view(HomePage([], [Run(once, None)], [], {}, T0)))
