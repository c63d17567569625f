"""What kinds of views read: prompts as their rows and sessions have them, and who may do what to them."""

from __future__ import annotations

from dataclasses import dataclass

from bot.inbound.view_values import Opening, Submission
from bot.rendering.phrases import closed_text
from bot.wire.users import LookupFailed, People
from engine.decide.commands import Action
from engine.decide.policy import Gate, authorize
from engine.decide.question import timed_out
from engine.flow import Flow
from engine.journal.state import Asked, State
from engine.language.actors import Actor
from engine.language.codec import Json, decode
from engine.run.engine import Engine
from prompt_state import store as prompts
from prompt_state.question_row import PromptState

UNKNOWN = "This question is not known here any more."
OLDER = "This was changed after it was shown to you. Please look at the question as it is now."


@dataclass(frozen=True, slots=True)
class OpenPrompt:
    """An open prompt: its row, and what its session knows of it."""

    row: PromptState
    run: Asked
    state: State
    flow: Flow


class PromptLookup:
    """Reads for the kinds of views. Nothing here writes, and only `facts` asks Slack."""

    def __init__(self, engine: Engine, people: People, gate: Gate) -> None:
        self._engine = engine
        self._people = people
        self._gate = gate

    async def asked(self, prompt_id: str, nonce: str | None) -> OpenPrompt | str:
        """The prompt, if it is open and this nonce is its own; else the sentence that says why not."""
        row = await self._engine.writer.call(prompts.find, self._engine.store, prompt_id)
        if row is None:
            return UNKNOWN
        if not row.open:
            return closed_text(row)
        if nonce is not None and nonce != row.nonce:
            return OLDER
        state = await self._engine.verified_state(row.session_id)
        run = state.prompts.get(prompt_id)
        if run is None or not run.open:
            return UNKNOWN
        if (
            run.deadline is not None
            and run.deadline <= self._engine.now()
            and not self._engine.clock_jumped()
        ):
            return timed_out(run.deadline)
        return OpenPrompt(row, run, state, await self._engine.flow_of(row.session_id))

    def out_of_question(self, asked: OpenPrompt, user: str, action: Action) -> str | None:
        """Why no lookup could allow this person to do this; None where it may be allowed. Asks nobody."""
        row = asked.row
        entries = [*(row.approvers or ()), *(row.who or ()), *self._gate.admins]
        groups = frozenset(entry[1:] for entry in entries if entry.startswith("@"))
        emails = [entry for entry in entries if "@" in entry and not entry.startswith("@")]
        # As whoever this person may turn out to be.
        hopes = [
            Actor(
                user,
                team_id=self._gate.home_team,
                email=email,
                groups=groups,
                in_channel=True,
                facts_known=True,
            )
            for email in (None, *emails)
        ]
        reasons = [self._verdict(asked, hope, action) for hope in hopes]
        return None if None in reasons else reasons[0]

    async def facts(self, asked: OpenPrompt, opening: Opening, action: Action) -> str | None:
        """Why this person may not do this, as Slack knows them now; None where they may, or Slack does not say."""
        row = asked.row
        data: dict[str, Json] = {
            "user": opening.user,
            "userTeam": opening.team,
            "channel": row.channel or opening.channel,
        }
        try:
            actor = await self._people.actor(data, entries=[*(row.approvers or ()), *(row.who or ())])
        except LookupFailed:
            return None
        return self._verdict(asked, actor, action)

    def _verdict(self, asked: OpenPrompt, actor: Actor, action: Action) -> str | None:
        requester: dict[str, Json] = {"id": asked.row.requester_id, "name": asked.row.requester_name}
        return authorize(actor, action, self._gate.target(requester, True, asked.row)).reason

    async def page(self, key: str) -> dict[str, Json] | None:
        """What was stored of an earlier page."""
        row = await self._engine.writer.call(self._engine.store.inbox_row, key)
        return None if row is None else dict(decode(row.payload)["values"])


def prompt_meta(asked: OpenPrompt, user: str, **more: Json) -> dict[str, Json]:
    """What a view about a prompt carries: ids."""
    row = asked.row
    return {
        "promptId": row.prompt_id,
        "nonce": row.nonce,
        "channel": row.channel,
        "threadTs": row.thread_ts,
        "user": user,
        **more,
    }


def named(submission: Submission) -> tuple[str, str]:
    """The prompt and the nonce that a view is about."""
    return str(submission.meta.get("promptId") or ""), str(submission.meta.get("nonce") or "")
