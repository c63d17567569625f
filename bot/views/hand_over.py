"""Handing a prompt over: choosing the person who answers in one's place."""

from __future__ import annotations

from bot.inbound.view_values import Errors, Submission, Verdict, View
from bot.rendering.modals import about, field_block, modal
from bot.views.kinds import PromptKind, taken
from bot.views.prompt_lookup import OpenPrompt, prompt_meta
from engine.decide.commands import Action, Command, HandOver
from engine.language.actors import Actor
from engine.language.codec import Json

PERSON = "person"


class Hand(PromptKind):
    """`sayso:open:hand`."""

    name = "hand"

    def action(self, asked: OpenPrompt) -> Action:
        """What the policy calls it."""
        return "hand_over"

    def view(self, asked: OpenPrompt, user: str) -> View:
        """The question, and whom to choose."""
        element = {
            "type": "users_select",
            "action_id": PERSON,
            "placeholder": {"type": "plain_text", "text": "Choose a person"},
        }
        hint = "This person is mentioned in the thread and answers in your place; you no longer can."
        blocks = [
            about(asked.row.message),
            field_block(PERSON, "Who should answer instead?", element, hint=hint),
        ]
        return modal("Hand over", blocks, kind=self.name, meta=prompt_meta(asked, user), submit="Hand over")

    async def read(self, asked: OpenPrompt, submission: Submission) -> Verdict:
        """Somebody else."""
        chosen = submission.values.get(PERSON, {}).get(PERSON, {}).get("selected_user")
        if not chosen:
            return Errors({PERSON: "Please choose a person."})
        if chosen == submission.user:
            return Errors({PERSON: "That is you. Please choose somebody else."})
        return taken(asked, to=str(chosen))

    def command(self, actor: Actor, key: str, data: dict[str, Json]) -> Command:
        """The hand-over."""
        return HandOver(data["promptId"], actor, key, data["to"])
