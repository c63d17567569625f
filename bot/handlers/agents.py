"""Messages in a thread to agents, or beside them: how each agent hears them, with the files that came along."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from msgspec.structs import replace

from bot.outbound.notices import Notices, held, whispered
from bot.rendering import phrases
from bot.rendering.notes import agents_menu
from bot.wire.client import IncomingFiles, NotNow
from engine.decide.agents.people import heard_in, hears_others
from engine.decide.commands import Steer
from engine.decide.policy import authorize
from engine.journal.queries import agent_of, agents_under_way
from engine.journal.records import InboxRow
from engine.journal.state import State
from engine.language.actors import Actor
from engine.language.codec import Json
from engine.language.errors import Refused, SessionError
from prompt_state.routing import Listener, Overhear


@dataclass(eq=False, repr=False)
class ToAgents:
    """Hands words and files to agents."""

    notices: Notices
    do: Callable[..., Awaitable[bool]]
    """Carries out a command with a row; see `bot.handlers.replies.Replies.do`."""
    files: IncomingFiles | None = None

    async def say(
        self, row: InboxRow, data: dict[str, Json], session_id: str, said: Steer, told: str | None = None
    ) -> bool:
        """Give a message to an agent of this session. `told` is the reply to its author once that is done."""
        try:
            files = await self._fetched(session_id, data, said)
        except NotNow as error:
            return held(row, error)
        unread = [phrases.unread_text(file) for file in files if "unread" in file]
        words = "\n".join([*([told] if told else []), *unread])
        return await self.do(row, data, session_id, replace(said, files=files), told=words)

    async def beside(
        self, row: InboxRow, data: dict[str, Json], actor: Actor, session_id: str, path: str
    ) -> None:
        """Add the files of a reply that answers an agent's question at this path: they follow the answer. Idempotent.
        Raises `NotNow`."""
        agent = agent_of(await self.notices.engine.verified_state(session_id), path)
        if agent is None:
            return
        said = Steer("", actor, f"{row.key}:files", to=agent)
        said = replace(said, files=await self._fetched(session_id, data, said))
        with suppress(Refused, SessionError):
            await self.notices.engine.apply(session_id, said)
        unread = [phrases.unread_text(file) for file in said.files if "unread" in file]
        if unread:
            await self.notices.put(whispered(row, data, "\n".join(unread)))

    async def overhear(self, row: InboxRow, data: dict[str, Json], actor: Actor, said: Overhear) -> bool:
        """Words that are data, for all agents that hear them."""
        words = Steer(said.text, actor, row.key, aside=said.aside)
        for session_id in said.sessions[:-1]:
            try:
                files = await self._fetched(session_id, data, words)
            except NotNow as error:
                return held(row, error)  # whoever has heard it by then hears it once, by its key
            with suppress(Refused, SessionError):
                await self.notices.engine.apply(session_id, replace(words, files=files))
        told = phrases.OVERHEARD if said.addressed else None
        return await self.say(row, data, said.sessions[-1], words, told)

    async def _fetched(
        self, session_id: str, data: dict[str, Json], said: Steer
    ) -> tuple[dict[str, Json], ...]:
        """Return the files of a message. None is fetched without an agent to hear it: the engine refuses it by their
        names."""
        sent = data.get("files") or []
        if not sent or self.files is None:
            return ()
        if not self._heard(await self.notices.engine.verified_state(session_id), said):
            return tuple({"name": file["name"], "unread": "no agent reads it"} for file in sent)
        return tuple(await self.files.for_agent(session_id, sent, data["ts"]))

    def _heard(self, state: State, said: Steer) -> bool:
        paths = agents_under_way(state)
        if authorize(said.actor, "steer", self.notices.gate.target(state.actor, True)).allowed:
            return said.to in paths if said.to is not None else bool(paths)
        most = heard_in(state, self.notices.engine.stepper.agents.listens)
        return any(hears_others(state.nodes[path].input, said.actor, most) for path in paths)

    async def which(self, row: InboxRow, data: dict[str, Json], agents: Sequence[Listener]) -> bool:
        """Ask which agent is meant. Words of the same person go on to the one that is chosen."""
        text = phrases.which_agent_text(agents)
        blocks = agents_menu(text, agents, data["ts"], data["user"])
        return await self.notices.tell(row, data, text, "told", blocks=blocks)
