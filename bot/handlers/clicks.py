"""Carries out presses in messages: options, controls, Revoke, the end of a session, and which question was meant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from bot.faces.end import end
from bot.handlers.replies import Replies
from bot.inbound import decisions
from bot.inbound.meaning import (
    GONE,
    ApproveAll,
    Choose,
    EndRun,
    Explain,
    KeepRun,
    Needs,
    Pressed,
    Rate,
    TakeBack,
    TryAgain,
    WrittenBefore,
    understand,
)
from bot.intents.agent_rows import Feedback, feedback_row
from bot.intents.session_rows import TAKEN, edit_row, reaction_row
from bot.outbound.notices import Notices, whispered
from bot.outbound.posts import posted_of
from bot.rendering import phrases
from bot.rendering.calls import together
from bot.rendering.notes import retried_text
from bot.rendering.text import escape, one_line
from bot.start.grants import WideGrants
from bot.wire.users import LookupFailed, People
from engine.decide.commands import Abort, Answer, Revoke, Steer
from engine.decide.policy import authorize
from engine.journal.phases import ENDED
from engine.journal.records import Head, InboxItem, InboxRow, Row
from engine.language.codec import Json, decode, encode
from engine.language.errors import SaysoError, StorageError
from prompt_state.question_row import PromptState, may_act_on

OTHER = "This button is out of date. Please use the latest message."


@dataclass(eq=False, repr=False)
class Presses:
    """Handles the inbox rows of buttons and controls."""

    people: People
    home: decisions.Home
    notices: Notices
    replies: Replies
    taken: Callable[[], None]
    """Called when there are more rows to handle."""

    async def click(self, row: InboxRow) -> bool:
        """Carry out a button or a control."""
        data = decode(row.payload)
        known = Pressed(self.home)
        while isinstance(meaning := understand(data, known), Needs):
            known = replace(known, found={**known.found, meaning: await self._read(row, meaning)})
        try:
            match meaning:
                case Choose(prompt, nonce, value):
                    actor = await self.people.actor(data, entries=prompt.approvers or prompt.who or ())
                    command = Answer(prompt.prompt_id, actor, row.key, value=value, nonce=nonce)
                    return await self.replies.do(row, data, prompt.session_id, command)
                case EndRun():
                    abort = Abort(await self.people.actor(data))
                    done = await self.replies.do(row, data, meaning.head.session_id, abort)
                    if done and meaning.asked and await self._applied(row):
                        said = phrases.confirmed(meaning.head.flow_name, data["user"], ended=True)
                        await self._say_instead(row, data, said)
                    return done
                case KeepRun(head):
                    return await self._keep(row, data, head)
                case TryAgain(head):
                    return await self._retry(row, data, head.session_id)
                case TakeBack(prompt_id, asked):
                    return await self._take_back(row, data, prompt_id, asked)
                case Rate(value, key):
                    return await self._rate(row, data, value, key)
                case ApproveAll(prompts):
                    return await self._approve(row, data, prompts)
                case WrittenBefore():
                    return await self._meant(row, data, meaning)
                case Explain(text, outcome):
                    return await self.notices.whisper(row, data, text, outcome)
                case _:
                    raise AssertionError(f"{row.key}: a press means no {meaning}")
        except LookupFailed as error:
            return await self.notices.not_looked_up(row, data, error)

    async def _read(self, row: InboxRow, needs: Needs) -> object:
        """Return a question or a session of the thread of the click, since permissions depend on the channel; or a
        stored message."""
        engine = self.notices.engine
        if needs.part == "written":
            return await self.notices.stored(needs.key)
        if needs.part == "prompt":
            prompt = await self.notices.prompt(needs.key)
            return prompt if prompt is not None and prompt.thread_key == row.thread_key else None
        head = await engine.writer.call(engine.store.sessions.head, needs.key)
        return head if head is not None and head.thread_key == row.thread_key else None

    async def _approve(self, row: InboxRow, data: dict[str, Json], prompts: list[PromptState]) -> bool:
        """Approve all calls of a message that this person may approve: each as a click on its own button, decided,
        refused and recorded separately."""
        items, left = [], 0
        for prompt in prompts:
            actor = await self.people.actor(data, entries=prompt.approvers or ())
            voted = any((vote.actor_id, vote.vote) == (actor.id, "approve") for vote in prompt.votes)
            if voted or not may_act_on(actor, [prompt], self.notices.gate.target(prompt.requester, True)):
                left += 1
                continue
            index = [option["value"] for option in prompt.options].index("approve")
            press = encode(together(prompt.prompt_id, prompt.nonce, index, data))
            key = f"{row.key}:{prompt.prompt_id}"
            items.append(InboxItem(key, row.kind, press, thread_key=row.thread_key))
        if not items:
            said = "You can't approve any of these calls."
            return await self.notices.whisper(row, data, said, "refused")
        told = [whispered(row, data, f"You can't approve {left} of them.")] if left else []
        done = await self.notices.split(row, items, *told)
        self.taken()
        return done

    async def _take_back(
        self, row: InboxRow, data: dict[str, Json], prompt_id: str, prompt: PromptState | None
    ) -> bool:
        engine, grants = self.notices.engine, WideGrants(self.notices)
        head = (
            None
            if prompt is None
            else await engine.writer.call(engine.store.sessions.head, prompt.session_id)
        )
        if (head is None or head.status in ENDED) and await grants.counts(prompt_id):
            # The run that gave it has ended: only its row is changed.
            return await grants.revoke(row, data, prompt_id, await self.people.actor(data))
        if prompt is None:
            return await self.notices.whisper(row, data, GONE, "refused")
        actor = await self.people.actor(data)
        return await self.replies.do(row, data, prompt.session_id, Revoke(prompt_id, actor, row.key))

    async def _rate(self, row: InboxRow, data: dict[str, Json], value: str, key: str) -> bool:
        """Record that an agent's final answer helped, or did not. The session may be over long since."""
        answer = await self.notices.engine.writer.call(self.notices.engine.store.outbox.row, key)
        entry: dict[str, Json] = decode(answer.payload) if answer is not None else {}
        if answer is None or answer.lane != row.thread_key or not entry.get("final"):
            return await self.notices.whisper(row, data, GONE, "refused")
        shown = posted_of(answer)
        if shown is not None and shown.ts != data["messageTs"]:
            return await self.notices.whisper(row, data, OTHER, "refused")
        actor = await self.people.actor(data)
        reason = authorize(actor, "status", self.notices.gate.target({}, True)).reason
        if reason is not None:
            return await self.notices.whisper(row, data, reason, "refused")
        person: dict[str, Json] = {"id": actor.id, "name": actor.name}
        said = Feedback(entry["turn"], value, person, row.received_at)
        return await self.notices.consume(row, "applied", feedback_row(answer, data, said))

    async def _keep(self, row: InboxRow, data: dict[str, Json], head: Head) -> bool:
        """Answer the question of `cancel` with no. It takes the right to cancel."""
        actor = await self.people.actor(data)
        state = await self.notices.engine.verified_state(head.session_id)
        reason = authorize(actor, "cancel", self.notices.gate.target(state.actor, True)).reason
        if reason is not None:
            return await self.notices.whisper(row, data, reason, "refused")
        await self.notices.consume(row, "kept")
        if head.status not in ENDED:
            said = phrases.confirmed(head.flow_name, data["user"], ended=False)
            await self._say_instead(row, data, said)
        return True

    async def _retry(self, row: InboxRow, data: dict[str, Json], session_id: str) -> bool:
        """Try a run again in its thread, for anyone who may start its flow."""
        engine = self.notices.engine
        try:
            flow, state = await engine.flow_of(session_id), await engine.verified_state(session_id)
            actor = await self.people.actor(data, entries=flow.allowed_to_start or (), in_channel=True)
            await engine.retry(session_id, actor=await self.people.profiled(actor))
        except (StorageError, LookupFailed):
            raise
        except SaysoError as error:
            return await self.notices.whisper(row, data, str(error), "refused")
        await self.notices.consume(row, "applied")
        await self._say_instead(row, data, retried_text(end(state, flow), row.key, actor.id))
        return True

    async def _meant(self, row: InboxRow, data: dict[str, Json], meant: WrittenBefore) -> bool:
        """Take an earlier message as the chosen kind; the menu then shows that."""
        written = {**data, "files": meant.files, "ts": meant.ts}
        said_at = f"{data['team']}:{data['channel']}:{meant.ts}"
        if isinstance(meant.to, Head):
            actor = await self.people.actor(data)
            words = Steer(meant.text, actor, f"message:{said_at}", to=meant.detail)
            done = await self.replies.agents.say(row, written, meant.to.session_id, words)
            said, marks = phrases.chosen_text(meant.text, meant.detail), []
        else:
            prompt = meant.to
            actor = await self.people.actor(data, entries=prompt.approvers or prompt.who or ())
            done = await self.replies.reply(row, written, actor, prompt, meant.text, meant.detail)
            text = meant.text or ", ".join(str(file["name"]) for file in meant.files)
            number = f"#{prompt.number}" if prompt.number else "the question"
            said = f"☑️ “{escape(one_line(text, 120))}” answered {number}."
            # The reply has the mark of one that counts.
            marks = [reaction_row(f"taken:{said_at}", data["channel"], meant.ts, TAKEN)]
        if done and await self._applied(row):
            await self._say_instead(row, data, said, *marks)
        return done

    async def _applied(self, row: InboxRow) -> bool:
        stored = await self.notices.stored(row.key)
        return stored is not None and stored.outcome == "applied"

    async def _say_instead(self, row: InboxRow, data: dict[str, Json], text: str, *more: Row) -> None:
        """Replace the message of the clicked button with its result, without buttons."""
        lane = row.thread_key or row.key
        edit = edit_row(f"menu:{row.key}", lane, data["channel"], data["messageTs"], text)
        await self.notices.put(edit, *more)
