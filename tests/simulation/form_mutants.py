"""Seeded faults in forms, in changes of what is approved, and in hand-overs. A plain day shows none of them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bot.serve.bolt import SlackApp
from engine.decide import approvals, prompt_timers, replies
from engine.decide.step import Step
from engine.journal import events as ev
from engine.journal.records import InboxItem


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

    fold = ev.PromptEdited.fold

    def edited(event: Any, state: Any) -> Any:
        votes = state.prompts[event.prompt_id].votes
        after = fold(event, state)
        kept = replace(after.prompts[event.prompt_id], votes=votes)
        return replace(after, prompts=after.prompts.set(event.prompt_id, kept))

    patch.setattr(ev.PromptEdited, "fold", edited)


def runs_what_the_first_change_said(patch: pytest.MonkeyPatch) -> None:
    """A second change is recorded and shown, and what runs is what the first one said."""
    decided = approvals._decided
    first: dict[tuple[str, str], Any] = {}

    fold = ev.PromptEdited.fold

    def edited(event: Any, state: Any) -> Any:
        message = str(state.prompts[event.prompt_id].message)
        first.setdefault((event.prompt_id, message), event.values)
        return fold(event, state)

    def older(prompt: Any, answer: Any, votes: Any) -> Any:
        found = decided(prompt, answer, votes)
        return {**found, "values": first.get((prompt.prompt_id, prompt.message), found["values"])}

    patch.setattr(ev.PromptEdited, "fold", edited)
    patch.setattr(approvals, "_decided", older)


def hands_over_and_keeps(patch: pytest.MonkeyPatch) -> None:
    """Whoever handed a question over can still answer it."""

    fold = ev.PromptHanded.fold

    def handed(event: Any, state: Any) -> Any:
        after = fold(event, state)
        prompt = after.prompts[event.prompt_id]
        kept = replace(prompt, excluded=())
        return replace(after, prompts=after.prompts.set(event.prompt_id, kept))

    patch.setattr(ev.PromptHanded, "fold", handed)
