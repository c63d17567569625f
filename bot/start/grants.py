"""`@sayso grants`: calls that are always allowed beyond one run, in a channel; members take them back."""

from __future__ import annotations

from bot.intents.session_rows import note_to
from bot.outbound.notices import Notices
from bot.rendering.grants import line
from engine.decide.agents import wide_grants
from engine.decide.policy import authorize
from engine.journal.records import InboxRow
from engine.journal.state import Grant
from engine.language.actors import Actor
from engine.language.codec import Json
from engine.language.counting import plural
from engine.language.errors import Corrupt, KeptMoved
from prompt_state.question_row import thread_key

NOT_HERE = "There is nothing to revoke: this is no longer allowed, or it was allowed elsewhere."


class WideGrants:
    """Calls that are allowed in all runs of a channel, no matter who started them."""

    def __init__(self, notices: Notices) -> None:
        self._notices = notices

    async def listed(self, channel: str) -> list[str]:
        """A line for each, as mrkdwn."""
        return [
            f"{line(grant)} · used {plural(grant.used, 'time')} · `grants revoke {grant.prompt_id}`"
            for grant in await self._standing()
            if (grant.wide or {}).get("channel") == channel
        ]

    async def _standing(self) -> list[Grant]:
        engine = self._notices.engine
        return wide_grants.current(
            await engine.writer.call(engine.store.kept.rows, wide_grants.GRANT), engine.now()
        )

    async def counts(self, grant_id: str) -> bool:
        """True if there is such a grant now."""
        return any(grant.prompt_id == grant_id for grant in await self._standing())

    async def revoke(self, row: InboxRow, data: dict[str, Json], grant_id: str, actor: Actor) -> bool:
        """Take one back, in the channel where it counts: such calls are asked about again."""
        verdict = authorize(actor, "status", self._notices.gate.target({}, True))
        if not verdict.allowed:
            return await self._notices.whisper(row, data, verdict.reason or "", "refused")
        while True:
            here = [grant for grant in await self._standing() if grant.prompt_id == grant_id]
            if not here or (here[0].wide or {}).get("channel") != data["channel"]:
                return await self._notices.whisper(row, data, NOT_HERE, "refused")
            after = wide_grants.revoked(here[0], actor.record(), self._notices.engine.now())
            thread_ts = str(data.get("threadTs") or data.get("ts"))
            lane = thread_key(data["team"], data["channel"], thread_ts)
            text = f"Revoked: {line(here[0])}"
            told = note_to(lane, f"note:{row.key}", text)
            try:
                return await self._notices.consume(row, "applied", after, told)
            except KeptMoved:
                continue
            except Corrupt as error:
                return await self._notices.whisper(row, data, str(error), "refused")
