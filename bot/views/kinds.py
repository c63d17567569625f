"""The base of the kinds of views that are about a prompt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from bot.inbound.view_values import Accept, Opened, Opening, Refuse, Show, Submission, Verdict, View, Words
from bot.views.prompt_lookup import OpenPrompt, PromptLookup, named
from bot.views.service import Kind
from engine.decide.commands import Action, Command
from engine.decide.policy import ACTION_OF
from engine.journal.records import InboxRow
from engine.language.actors import Actor
from engine.language.codec import Json


class Talk(Protocol):
    """What carries out a submission: the conversation."""

    async def carry_out(
        self, row: InboxRow, data: dict[str, Json], make: Callable[[Actor], Command]
    ) -> bool: ...


class PromptKind(Kind, ABC):
    """A view about a prompt: opened and submitted only while the prompt is open, by whom it is not out of question."""

    def __init__(self, prompts: PromptLookup, talk: Talk) -> None:
        self._prompts = prompts
        self._talk = talk

    def action(self, asked: OpenPrompt) -> Action:
        """What the policy calls it."""
        return ACTION_OF[asked.row.kind]

    async def open(self, opening: Opening) -> Opened:
        """The view, or why there is none."""
        asked = await self._prompts.asked(*ids_of(opening))
        if isinstance(asked, str):
            return Words(asked)
        reason = self._prompts.out_of_question(asked, opening.user, self.action(asked))
        return Words(reason) if reason is not None else Show(self.view(asked, opening.user))

    async def refusal(self, opening: Opening) -> str | None:
        """Why it is not for this person, with all that Slack knows of them."""
        asked = await self._prompts.asked(*ids_of(opening))
        return (
            None if isinstance(asked, str) else await self._prompts.facts(asked, opening, self.action(asked))
        )

    async def check(self, submission: Submission) -> Verdict:
        """Whether the prompt is still the one that was shown, and what was filled in is right."""
        asked = await self._prompts.asked(*named(submission))
        if isinstance(asked, str):
            return Refuse(asked)
        reason = self._prompts.out_of_question(asked, submission.user, self.action(asked))
        return Refuse(reason) if reason is not None else await self.read(asked, submission)

    async def submit(self, row: InboxRow, data: dict[str, Json]) -> bool:
        """The command that it is, as whoever submitted it."""
        return await self._talk.carry_out(row, data, lambda actor: self.command(actor, row.key, data))

    @abstractmethod
    def view(self, asked: OpenPrompt, user: str) -> View:
        """The modal."""

    @abstractmethod
    async def read(self, asked: OpenPrompt, submission: Submission) -> Verdict:
        """What was filled in."""

    @abstractmethod
    def command(self, actor: Actor, key: str, data: dict[str, Json]) -> Command:
        """What is done with it."""


def taken(asked: OpenPrompt, **data: Json) -> Accept:
    """A submission about a prompt is taken, with this."""
    row = asked.row
    ids: dict[str, Json] = {
        "promptId": row.prompt_id,
        "nonce": row.nonce,
        "channel": row.channel,
        "threadTs": row.thread_ts,
    }
    return Accept({**ids, **data}, row.thread_key)


def ids_of(opening: Opening) -> tuple[str, str]:
    """The prompt and the nonce that a button is about."""
    prompt_id, nonce = [*opening.value.split("|"), "", ""][:2]
    return prompt_id, nonce
