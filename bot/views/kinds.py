"""Views that are no forms: a decision with words, a hand-over, the full text of a prompt. What all views about a
prompt read, and their base.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from msgspec.structs import replace

from bot.faces.question import Face
from bot.inbound.decisions import Accept, Errors, Opened, Opening, Refuse, Submission, Verdict, View
from bot.inbound.meaning import UNKNOWN, answerable
from bot.rendering.approvals import whole
from bot.rendering.blocks import about, field_block, modal, words
from bot.rendering.grants import ALWAYS, FOR, IN, PATTERN, always_view, patterned
from bot.rendering.prompts import session_face
from bot.rendering.waiting import ANSWER, DECISION, REASON, decision_view
from bot.views.service import Kind
from bot.wire.users import LookupFailed, People
from engine.decide.agents.grants import USUAL_SECONDS
from engine.decide.agents.kinds import reading
from engine.decide.commands import Action, Answer, Command, HandOver
from engine.decide.policy import Gate, authorize
from engine.decide.question import check, timed_out
from engine.decide.request_grants import acted_on
from engine.flow import Flow
from engine.journal.records import InboxRow
from engine.journal.state import Asked, State
from engine.language.actors import Actor
from engine.language.codec import Json, decode
from engine.language.errors import InvalidAnswer
from engine.language.template import is_blank
from engine.run.engine import Engine
from prompt_state.question_row import PromptState


@dataclass(frozen=True, slots=True)
class OpenPrompt:
    """An open prompt: its row, and what its session knows of it."""

    row: PromptState
    run: Asked
    state: State
    flow: Flow

    @property
    def face(self) -> Face:
        """Its face."""
        return session_face(self.state, self.run, self.flow)


class PromptLookup:
    """Reads for the kinds of views. Nothing here writes, and only `facts` asks Slack."""

    def __init__(
        self, engine: Engine, people: People, gate: Gate, find: Callable[[str], Awaitable[PromptState | None]]
    ) -> None:
        self._engine = engine
        self._prompt = find
        self._people = people
        self._gate = gate

    async def asked(self, prompt_id: str, nonce: str | None) -> OpenPrompt | str:
        """The prompt, if it is open and this nonce is its own; else the sentence that says why not."""
        row = answerable(await self._prompt(prompt_id), nonce)
        if isinstance(row, str):
            return row
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
        return authorize(actor, action, self._gate.target(asked.row.requester, True, asked.row)).reason

    async def page(self, key: str) -> dict[str, Json] | None:
        """The stored values of an earlier page."""
        row = await self._engine.writer.call(self._engine.store.inbox.row, key)
        return None if row is None else dict(decode(row.payload)["values"])


def prompt_meta(asked: OpenPrompt, user: str, **more: Json) -> dict[str, Json]:
    """The ids that a view about a prompt carries."""
    return {**_ids(asked.row), "user": user, **more}


def _ids(row: PromptState) -> dict[str, Json]:
    place = {"channel": row.channel, "threadTs": row.thread_ts}
    return {"promptId": row.prompt_id, "nonce": row.nonce, **place}


CarryOut: TypeAlias = Callable[[InboxRow, dict[str, Json], Callable[[Actor], Command]], Awaitable[bool]]
"""Makes a command of a submission, as whoever submitted it (`bot.handlers.replies.Replies.carry_out`)."""


class PromptKind(Kind, ABC):
    """A view about a prompt: opened and submitted only while the prompt is open, by whom it is not out of question."""

    def __init__(self, prompts: PromptLookup, carry_out: CarryOut) -> None:
        self._prompts = prompts
        self._carry_out = carry_out

    def action(self, asked: OpenPrompt) -> Action:
        """The action by which the policy knows it."""
        return asked.row.rules.action

    async def open(self, opening: Opening) -> Opened:
        """The view, or why there is none."""
        asked = await self._prompts.asked(*ids_of(opening))
        if isinstance(asked, str):
            return asked
        reason = self._prompts.out_of_question(asked, opening.user, self.action(asked))
        return reason if reason is not None else self.view(asked, opening)

    async def refusal(self, opening: Opening) -> str | None:
        """Why it is not for this person, with all that Slack knows of them."""
        asked = await self._prompts.asked(*ids_of(opening))
        return (
            None if isinstance(asked, str) else await self._prompts.facts(asked, opening, self.action(asked))
        )

    async def check(self, submission: Submission) -> Verdict:
        """Refuse what is not about the prompt as it is now, then read what was filled in."""
        prompt_id, nonce = (str(submission.meta.get(name) or "") for name in ("promptId", "nonce"))
        asked = await self._prompts.asked(prompt_id, nonce)
        if isinstance(asked, str):
            return Refuse(asked)
        reason = self._prompts.out_of_question(asked, submission.user, self.action(asked))
        return Refuse(reason) if reason is not None else await self.read(asked, submission)

    async def submit(self, row: InboxRow, data: dict[str, Json]) -> bool:
        """The command of the submission, in the name of its submitter."""
        return await self._carry_out(row, data, lambda actor: self.command(actor, row.key, data))

    @abstractmethod
    def view(self, asked: OpenPrompt, opening: Opening) -> View:
        """The modal."""

    @abstractmethod
    async def read(self, asked: OpenPrompt, submission: Submission) -> Verdict:
        """Check the values of the modal, and take them."""

    @abstractmethod
    def command(self, actor: Actor, key: str, data: dict[str, Json]) -> Command:
        """The command for the stored values."""


def taken(asked: OpenPrompt, **data: Json) -> Accept:
    """A submission about a prompt is taken, with this."""
    return Accept({**_ids(asked.row), **data}, asked.row.thread_key)


def ids_of(opening: Opening) -> tuple[str, str]:
    """The prompt and the nonce that a button is about."""
    prompt_id, nonce = [*opening.value.split("|"), "", ""][:2]
    return prompt_id, nonce


class Decide(PromptKind):
    """`sayso:open:answer`: an answer in words, or the words that go with a choice, whose index comes behind the ids."""

    name = ANSWER

    def view(self, asked: OpenPrompt, opening: Opening) -> View:
        """The question, and an input for the words."""
        *_, index = [*opening.value.split("|"), ""][:3]
        control = asked.face.controls[int(index)] if index else None
        return decision_view(asked.run, prompt_meta(asked, opening.user, index=index), control)

    async def read(self, asked: OpenPrompt, submission: Submission) -> Verdict:
        """The choice and the words, where the question takes them."""
        filled, index = submission.given(REASON), submission.meta.get("index")
        said = str((filled.get("selected_option") or {}).get("value") or filled.get("value") or "")
        words, text = (said, None) if index else (None, said or None)
        index = index or (submission.given(DECISION).get("selected_option") or {}).get("value")
        chosen = None
        if text is None and index is not None:
            chosen = asked.face.controls[int(index)]
            needed = words is not None and chosen.asks is not None and not chosen.asks.optional
            if needed and is_blank(said):
                return Errors({REASON: "Please write something here."})
        value = None if chosen is None else asked.run.options[chosen.index]["value"]
        try:
            check(asked.flow, asked.run, value=value, text=text, words=words)
        except InvalidAnswer as error:
            at_words = words is not None or not asked.run.options
            return Errors({REASON: str(error)}) if at_words else Refuse(str(error))
        return taken(asked, value=value, text=text, reason=(words or "").strip() or None)

    def command(self, actor: Actor, key: str, data: dict[str, Json]) -> Command:
        """The answer; or one of several that were decided together."""
        return Answer(
            data["promptId"],
            actor,
            key,
            value=data["value"],
            text=data.get("text"),
            reason=data.get("reason"),
            nonce=data["nonce"],
        )


def _given(asked: OpenPrompt) -> dict[str, Json]:
    """The input of a call as it would run now, which a grant is compared with."""
    if asked.run.is_request:
        return (
            acted_on(asked.state.inputs["tool"], asked.state.inputs["arguments"])
            if asked.state.inputs
            else {}
        )
    from engine.decide.agents.tool_calls import call_read  # by the first who allows a call always

    return call_read(reading(asked.flow, asked.state), asked.run)


class Always(PromptKind):
    """`sayso:open:always`: a call is approved, and calls like it are allowed for a time."""

    name = ALWAYS

    def view(self, asked: OpenPrompt, opening: Opening) -> View:
        """The call's texts, to be made patterns, and for how long."""
        voted = [vote["always"] for vote in asked.run.votes if vote.get("always")]
        given, run = _given(asked), asked.run
        meta = prompt_meta(asked, opening.user)
        if run.is_request and asked.state.inputs:
            scopes = asked.state.inputs["about"]["grant"]["scopes"]
            run = replace(run, tool={"name": asked.state.inputs["tool"], "always": list(scopes)})
        return always_view(run, given, meta, voted[-1] if voted else None)

    async def read(self, asked: OpenPrompt, submission: Submission) -> Verdict:
        """Take patterns that fit the call that is approved."""
        given = _given(asked)
        chosen = submission.given(FOR).get("selected_option") or {}
        always: dict[str, Json] = {"seconds": float(chosen.get("value") or USUAL_SECONDS), "patterns": {}}
        scope = (submission.given(IN).get("selected_option") or {}).get("value")
        always |= {} if scope is None else {"scope": scope}
        for name in patterned(given):
            text = str(submission.given(f"{PATTERN}{name}").get("value") or "").strip()
            if text != given[name].strip():  # Slack shows an input without the space around it
                always["patterns"][name] = text
        step = reading(asked.flow, asked.state)
        try:
            step.around(asked.run.path).granted(step, asked.run, always)
        except InvalidAnswer as error:
            return Errors({f"{PATTERN}{next(iter(always['patterns']), '')}": str(error)})
        return taken(asked, always=always)

    def command(self, actor: Actor, key: str, data: dict[str, Json]) -> Command:
        """The approval, with what is allowed."""
        return Answer(
            data["promptId"], actor, key, value="approve", always=data["always"], nonce=data["nonce"]
        )


PERSON = "person"


class HandOverForm(PromptKind):
    """`sayso:open:hand`."""

    name = "hand"

    def action(self, asked: OpenPrompt) -> Action:
        """The action by which the policy knows it."""
        return "hand_over"

    def view(self, asked: OpenPrompt, opening: Opening) -> View:
        """The question, and whom to choose."""
        element = {
            "type": "users_select",
            "action_id": PERSON,
            "placeholder": words("Choose a person"),
        }
        hint = "This person is mentioned in the thread and answers instead of you. You can no longer answer."
        blocks = [
            about(asked.row.message),
            field_block(PERSON, "Who should answer instead?", element, hint=hint),
        ]
        meta = prompt_meta(asked, opening.user)
        return modal("Hand over", blocks, kind=self.name, meta=meta, submit="Hand over")

    async def read(self, asked: OpenPrompt, submission: Submission) -> Verdict:
        """Somebody else."""
        chosen = submission.given(PERSON).get("selected_user")
        if not chosen:
            return Errors({PERSON: "Please choose a person."})
        if chosen == submission.user:
            return Errors({PERSON: "That is you. Please choose someone else."})
        return taken(asked, to=str(chosen))

    def command(self, actor: Actor, key: str, data: dict[str, Json]) -> Command:
        """The hand-over."""
        return HandOver(data["promptId"], actor, key, data["to"])


class FullText(Kind):
    """`sayso:open:whole`. It is only read, by anybody who can read the thread."""

    name = "whole"

    def __init__(self, prompts: PromptLookup) -> None:
        self._prompts = prompts

    async def open(self, opening: Opening) -> Opened:
        """The text, in as many blocks as it needs."""
        asked = await self._prompts.asked(*ids_of(opening))
        if isinstance(asked, str):
            return asked
        return modal("Action to approve", whole(asked.face), close="Close")
