"""Which of several questions a person may answer, by the policy of `engine.decide.policy`. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from engine.decide.policy import ACTION_OF, authorize
from engine.decide.target import Target
from engine.language.actors import Actor
from prompt_state.question_row import PromptState


def may_act_on(actor: Actor, prompts: Iterable[PromptState], target: Target) -> frozenset[str]:
    """The ids of those prompts that this actor may answer, decide or resolve."""
    return frozenset(
        prompt.prompt_id
        for prompt in prompts
        if authorize(
            actor, ACTION_OF[prompt.kind], replace(target, prompt=prompt, requester_id=prompt.requester_id)
        ).allowed
    )
