"""All of what is approved, where a message could not hold it."""

from __future__ import annotations

from bot.inbound.view_values import Opened, Opening, Refuse, Show, Submission, Verdict, Words
from bot.rendering.approvals import WHOLE, whole
from bot.rendering.modals import modal
from bot.views.kinds import ids_of
from bot.views.prompt_lookup import Desk
from engine.journal.records import InboxRow
from engine.language.codec import Json


class Whole:
    """`sayso:open:whole`. It is only read, by anybody who can read the thread."""

    name = WHOLE

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def wants(self, opening: Opening) -> bool:
        """It is opened by its button only."""
        return True

    async def open(self, opening: Opening) -> Opened:
        """The text, in as many blocks as it needs."""
        asked = await self._desk.asked(*ids_of(opening))
        if isinstance(asked, str):
            return Words(asked)
        return Show(modal("What is approved", whole(asked.run), close="Close"))

    async def refusal(self, opening: Opening) -> str | None:
        """It is for everybody."""
        return None

    async def check(self, submission: Submission) -> Verdict:
        """There is nothing to submit."""
        return Refuse("There is nothing to submit here.")

    async def submit(self, row: InboxRow, data: dict[str, Json]) -> bool:
        """Nothing is ever taken."""
        raise AssertionError(f"{row.key}: nothing is submitted in this view")
