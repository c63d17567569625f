"""One word for how a session stands, whoever shows it."""

from __future__ import annotations

import pytest

from tests.support.engine import Scenario, given

GATE = "nodes: [{id: gate, type: approval, with: {message: Go?, approvers: [channel]}}]"
WORK = "nodes: [{id: work, type: shell, with: {run: [now]}}]"
EMPTY = "nodes: [{id: a, type: noop}]"


def rejected() -> Scenario:
    """A run that people ended by their no."""
    case = given(GATE).started()
    return case.when(case.answer("reject"))


def held() -> Scenario:
    """A run that somebody paused."""
    from engine.decide.commands import Hold
    from tests.support.engine import ANA

    return given(GATE).started().when(Hold(ANA, "lunch"))


@pytest.mark.parametrize(
    ("case", "standing", "word"),
    [
        (lambda: given(GATE).started(), "waiting", "waiting"),
        (held, "paused", "paused"),
        (lambda: given(WORK).started(), "running", "running"),
        (lambda: given(EMPTY).started(), "complete", "completed"),
        (rejected, "rejected", "rejected"),
        (lambda: (one := given(GATE).started()).when(one.abort()), "aborted", "cancelled"),
    ],
    ids=["waiting", "paused", "running", "completed", "rejected", "cancelled"],
)
def test_each_state_has_its_word(case: object, standing: str, word: str) -> None:
    """Waiting is for people or a time, paused by somebody's word, and a decision is no failure."""
    state = case().state  # type: ignore[operator]  # a function without arguments
    assert (state.standing, state.stands) == (standing, word)
