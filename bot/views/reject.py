"""The reason of a rejection: pressing Reject opens it where the flow asks for one."""

from __future__ import annotations

from bot.inbound.view_values import Errors, Submission, Verdict, View
from bot.rendering.modals import about, modal, text_field
from bot.views.kinds import PromptKind, taken
from bot.views.prompt_lookup import OpenPrompt, prompt_meta
from engine.decide.commands import Answer, Command
from engine.language.actors import Actor
from engine.language.codec import Json

REASON = "reason"
MOST_REASON = 3_000


class Reject(PromptKind):
    """`sayso:open:reject`."""

    name = "reject"

    def view(self, asked: OpenPrompt, user: str) -> View:
        """The question, and an input for the reason."""
        required = asked.run.require_reason
        label = _label(asked)
        blocks = [
            about(asked.row.message),
            text_field(
                REASON,
                "Why?",
                optional=not required,
                multiline=True,
                most=MOST_REASON,
                hint="Everybody in the thread can read it.",
            ),
        ]
        return modal(label, blocks, kind=self.name, meta=prompt_meta(asked, user), submit=label)

    async def read(self, asked: OpenPrompt, submission: Submission) -> Verdict:
        """A reason that says something, where one is needed."""
        given = str(submission.values.get(REASON, {}).get(REASON, {}).get("value") or "").strip()
        if not given and asked.run.require_reason:
            return Errors({REASON: "Please say why."})
        return taken(asked, reason=given or None)

    def command(self, actor: Actor, key: str, data: dict[str, Json]) -> Command:
        """The rejection."""
        return Answer(
            data["promptId"], actor, key, value="reject", reason=data["reason"], nonce=data["nonce"]
        )


def _label(asked: OpenPrompt) -> str:
    """What the flow calls it."""
    options = asked.run.options
    return next((str(one["label"]) for one in options if one.get("value") == "reject"), "Reject")
