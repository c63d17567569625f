"""Seeded faults in what `further_flows.py` asks of people. A plain day shows none of them."""

from __future__ import annotations

from typing import Any

import pytest

from bot.views import kinds
from bot.views.values import Submission
from engine import fold
from engine.folds import prompts
from tests.simulation.mutants import Mutant


def takes_a_modal_of_an_older_copy(patch: pytest.MonkeyPatch) -> None:
    """Whoever gives the reason against what was proposed before a change rejects what it became."""
    named = kinds.named

    def any_copy(submission: Submission) -> tuple[str, Any]:
        return named(submission)[0], None

    patch.setattr(kinds, "named", any_copy)


def a_second_vote_keeps_the_first_reason(patch: pytest.MonkeyPatch) -> None:
    """Whoever rejects once more, for another reason, is quoted with the first one."""

    def voted(state: Any, event: Any) -> Any:
        before = {vote["actor"]["id"]: vote["reason"] for vote in state.prompts[event.prompt_id].votes}
        after = prompts.prompt_voted(state, event)
        prompt = after.prompts[event.prompt_id]
        *others, mine = prompt.votes
        kept = {**mine, "reason": before.get(event.actor["id"]) or mine["reason"]}
        votes = (*others, kept if mine["reason"] else mine)
        return after._replace(prompts=after.prompts.set(event.prompt_id, prompt._replace(votes=votes)))

    patch.setitem(fold._FOLDS, "prompt:voted", voted)


FURTHER_MUTANTS: dict[str, Mutant] = {
    mutant.__name__: mutant
    for mutant in (
        takes_a_modal_of_an_older_copy,
        a_second_vote_keeps_the_first_reason,
    )
}
FURTHER_SEEN_AT = {
    "takes_a_modal_of_an_older_copy": 2_000_049,
    "a_second_vote_keeps_the_first_reason": 2_000_059,
}
"""The first seed that was seen to show a fault: tried before all others."""
