"""Requests of Slack users in the control room: handled like any other, once the person is known.

The page knows only the id that logged in. The facts on which the policy decides are looked up here.
"""

from __future__ import annotations

from dataclasses import dataclass

from bot.inbound.decisions import WEB
from bot.outbound.notices import PATIENCE_SECONDS
from bot.wire.users import LookupFailed, People, UnknownPerson
from engine.journal.records import Consumed, InboxRow
from engine.language import timestamps
from engine.language.codec import decode, encode
from engine.language.errors import SaysoError, SessionError, StorageError
from engine.run.dispatcher import RowHandler, perform
from engine.run.engine import Engine
from engine.run.remote_commands import actor_json


@dataclass
class WebRequests:
    """Handles inbox rows of kind `WEB`."""

    engine: Engine
    people: People

    def handlers(self) -> dict[str, RowHandler]:
        """Return the handlers by kind of row."""
        return {WEB: self.request}

    async def request(self, row: InboxRow) -> bool:
        """Carry out a request for its author, or record the refusal in its row."""
        data = decode(row.payload)
        try:
            if row.session_id is None:
                raise SessionError("a request names the session that it is for")
            state = await self.engine.verified_state(row.session_id)
            prompt = state.prompts.get(data.get("promptId") or "")
            entries = [] if prompt is None else [*(prompt.approvers or ()), *(prompt.who or ())]
            if data["do"] == "retry":
                entries = list((await self.engine.flow_of(row.session_id)).allowed_to_start or ())
            place = {"user": data.pop("user"), "channel": (state.thread or {}).get("channel")}
            actor = await self.people.actor(place, entries=entries)
        except StorageError:
            raise
        except SaysoError as error:
            waited = timestamps.seconds_between(row.received_at, self.engine.now())
            passes = isinstance(error, LookupFailed) and not isinstance(error, UnknownPerson)
            if passes and waited < PATIENCE_SECONDS:
                return False
            consumed = [Consumed(row.id, "refused", encode({"error": error.code, "message": str(error)}))]
            await self.engine.writer.call(self.engine.store.consume, consumed, self.engine.now())
            return True
        await perform(self.engine, row.but(payload=encode({**data, "actor": actor_json(actor)})))
        return True
