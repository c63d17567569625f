"""Seeded faults in forms, in changes of what is approved, and in hand-overs. A plain day shows none of them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bot.serve.bolt import SlackApp
from engine.decide import approvals, prompt_timers, replies
from engine.decide.step import Step
from engine.journal import fold
from engine.journal.folds import prompts
from engine.journal.records import InboxItem
from tests.simulation.mutants import Mutant


def takes_a_second_submission_in_silence(patch: pytest.MonkeyPatch) -> None:
    """A form that is sent again with other values is acknowledged, and what came first counts."""

    async def same(self: SlackApp, item: InboxItem) -> bool:
        return False

    patch.setattr(SlackApp, "_differs", same)


def obeys_a_button_of_an_older_copy(patch: pytest.MonkeyPatch) -> None:
    """Whoever presses Approve on what was proposed before a change approves what it became."""
    find = prompt_timers.open_prompt

    def any_copy(step: Step, prompt_id: str, nonce: str | None = None) -> Any:
        return find(step, prompt_id)

    patch.setattr(replies, "open_prompt", any_copy)


def a_change_keeps_the_votes_before_it(patch: pytest.MonkeyPatch) -> None:
    """Who approved the values before a change counts for those after it."""

    def edited(state: Any, event: Any) -> Any:
        votes = state.prompts[event.prompt_id].votes
        after = prompts.prompt_edited(state, event)
        kept = replace(after.prompts[event.prompt_id], votes=votes)
        return replace(after, prompts=after.prompts.set(event.prompt_id, kept))

    patch.setitem(fold._FOLDS, "prompt:edited", edited)


def runs_what_the_first_change_said(patch: pytest.MonkeyPatch) -> None:
    """A second change is recorded and shown, and what runs is what the first one said."""
    decided = approvals._decided
    first: dict[tuple[str, str], Any] = {}

    def edited(state: Any, event: Any) -> Any:
        message = str(state.prompts[event.prompt_id].message)
        first.setdefault((event.prompt_id, message), event.values)
        return prompts.prompt_edited(state, event)

    def older(prompt: Any, answer: Any, votes: Any) -> Any:
        found = decided(prompt, answer, votes)
        return {**found, "values": first.get((prompt.prompt_id, prompt.message), found["values"])}

    patch.setitem(fold._FOLDS, "prompt:edited", edited)
    patch.setattr(approvals, "_decided", older)


def hands_over_and_keeps(patch: pytest.MonkeyPatch) -> None:
    """Whoever handed a question over can still answer it."""

    def handed(state: Any, event: Any) -> Any:
        after = prompts.prompt_handed(state, event)
        prompt = after.prompts[event.prompt_id]
        kept = replace(prompt, excluded=())
        return replace(after, prompts=after.prompts.set(event.prompt_id, kept))

    patch.setitem(fold._FOLDS, "prompt:handed", handed)


FORM_MUTANTS: dict[str, Mutant] = {
    mutant.__name__: mutant
    for mutant in (
        takes_a_second_submission_in_silence,
        obeys_a_button_of_an_older_copy,
        a_change_keeps_the_votes_before_it,
        runs_what_the_first_change_said,
        hands_over_and_keeps,
    )
}
