"""All of what is approved, where a message could not hold it."""

from __future__ import annotations

from bot.inbound.view_values import Opened, Opening, Show, Words
from bot.rendering.approvals import WHOLE, whole
from bot.rendering.modals import modal
from bot.views.kinds import ids_of
from bot.views.prompt_lookup import PromptLookup
from bot.views.service import Kind


class FullText(Kind):
    """`sayso:open:whole`. It is only read, by anybody who can read the thread."""

    name = WHOLE

    def __init__(self, prompts: PromptLookup) -> None:
        self._prompts = prompts

    async def open(self, opening: Opening) -> Opened:
        """The text, in as many blocks as it needs."""
        asked = await self._prompts.asked(*ids_of(opening))
        if isinstance(asked, str):
            return Words(asked)
        return Show(modal("What is approved", whole(asked.run), close="Close"))
