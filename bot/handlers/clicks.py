"""What is done with presses in messages: options, controls, Revoke, the end of a session, and which question was meant."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bot.handlers.agents import ToAgents
from bot.handlers.replies import Replies
from bot.inbound import decisions, payloads
from bot.intents.agent_rows import Feedback, feedback_row
from bot.intents.session_rows import TAKEN, edit_row, reaction_row
from bot.outbound.notices import Notices, whispered
from bot.outbound.posts import posted_of
from bot.rendering import phrases
from bot.rendering.agents import NOTED, RATE
from bot.rendering.calls import ALL, pairs, together
from bot.rendering.card import CANCEL
from bot.rendering.forms import INLINE, read_control
from bot.rendering.grants import REVOKE
from bot.rendering.notes import AGENTS, MENU
from bot.rendering.text import escape, one_line
from bot.start.grants import WideGrants
from bot.wire.users import LookupFailed, People
from engine.decide.commands import Abort, Answer, Revoke, Steer
from engine.decide.policy import authorize
from engine.journal.phases import ENDED
from engine.journal.records import Head, InboxItem, InboxRow, Row
from engine.language.actors import Actor
from engine.language.codec import Json, decode, encode
from prompt_state.question_row import PromptState, TooLong, may_act_on

GONE = "This button is not known here any more."
OTHER = "This is no longer the message of this answer. Please press in the one that shows it now."
NOT_THE_AUTHOR = "Only whoever wrote the reply can say that."
UNWRITTEN = "Your reply is not there any more. Please write it again."
COPY = "This is no longer the message of this question. Please press in the one that shows it now."


_PROMPT, _PLACE = r"[^|\n]+\|[^|\n]+", r"\|[^|\n]+\|[^|\n]+"
"""A prompt with its nonce; where a button outside of a thread belongs, and who wrote what."""

PRESS = re.compile(
    rf"(?P<cancel>({CANCEL}|{phrases.CANCEL_THIS}(:\d+)?)\n[^|]+)"
    rf"|(?P<keep>{phrases.KEEP}\n[^|]+)"
    rf"|(?P<revoke>{REVOKE}\n({_PROMPT}|[^|]+\|\|{_PLACE}))"
    rf"|(?P<rate>{RATE}\n({'|'.join(NOTED)})\|.+)"
    rf"|(?P<all>{ALL}\n[^|]+)"
    rf"|(?P<menu>{MENU}\d+\n{_PROMPT}{_PLACE})"
    rf"|(?P<agents>{AGENTS}\d+\n{_PROMPT}{_PLACE})"
    rf"|(?P<option>sayso:option:(select\n{_PROMPT}\|\d+|(?P<index>\d+)\n{_PROMPT}\|(?P=index)({_PLACE})?))"
    rf"|(?P<field>{INLINE}{_PROMPT}\n.*)",
    re.ASCII,
)
"""Our buttons and controls: an action, and a value that belongs to it. Nothing else is a press of ours."""


@dataclass(eq=False, repr=False)
class Presses:
    """Handles the inbox rows of buttons and controls."""

    people: People
    home: decisions.Home
    notices: Notices
    replies: Replies
    taken: Callable[[], None]
    """Says that there are more rows to be handled."""
    agents: ToAgents

    async def click(self, row: InboxRow) -> bool:
        """What was pressed, by its action."""
        data = decode(row.payload)
        try:
            return await self._pressed(row, data, str(data["actionId"]), str(data["value"] or ""))
        except LookupFailed as error:
            return await self.notices.not_looked_up(row, data, error)

    async def _pressed(self, row: InboxRow, data: dict[str, Json], action: str, value: str) -> bool:
        press = None if data.get("stale") else PRESS.fullmatch(f"{action}\n{value}")
        match press and press.lastgroup:
            case "cancel":
                return await self._cancel(row, data, value)
            case "keep":
                return await self._keep(row, data, value)
            case "revoke":
                return await self._revoke(row, data, *value.split("|")[:2])
            case "rate":
                return await self._rated(row, data, *value.partition("|")[::2])
            case "all":
                return await self._all(row, data, value)
            case "menu":
                return await self._meant(row, data, value)
            case "agents":
                return await self._agent_meant(row, data, value)
            case "option":
                return await self._option(row, data, *value.split("|")[:3])
            case "field":
                return await self._option(row, data, *action.removeprefix(INLINE).split("|"))
        prompt = await self._prompt(row, (value or action.removeprefix(INLINE)).partition("|")[0])
        closed = prompt is not None and not prompt.open
        said = phrases.closed_text(prompt) if prompt is not None and closed else GONE
        return await self.notices.whisper(row, data, said, "refused")

    async def _option(
        self, row: InboxRow, data: dict[str, Json], prompt_id: str, nonce: str, index: str | None = None
    ) -> bool:
        """An option of a prompt, or without an `index` the control of a form that has one field."""
        prompt = await self._prompt(row, prompt_id)
        if prompt is not None and nonce == prompt.nonce and not _stands_in(prompt, data):
            return await self.notices.whisper(row, data, COPY, "refused")
        if index is None:
            known = prompt is not None and len(prompt.fields) == 1 and not prompt.options
        else:
            known = prompt is not None and int(index) < len(prompt.options)
        if prompt is None or not known:
            return await self.notices.whisper(row, data, GONE, "refused")
        if index is None:
            picked = read_control(data["picked"] or {}, prompt.fields[0])
        else:
            picked = prompt.options[int(index)]["value"]
        return await self._answer(row, data, prompt, nonce, value=picked)

    async def _answer(
        self,
        row: InboxRow,
        data: dict[str, Json],
        prompt: PromptState,
        nonce: str,
        *,
        value: Json = None,
        text: str | None = None,
    ) -> bool:
        if not prompt.open:
            # Its row says how it was closed; the session may be over long since.
            return await self.notices.whisper(row, data, phrases.closed_text(prompt), "refused")
        actor = await self.people.actor(data, entries=prompt.approvers or prompt.who or ())
        if text is not None:
            return await self.replies.reply(row, data, actor, prompt, text, nonce)
        command = Answer(prompt.prompt_id, actor, row.key, value=value, nonce=nonce)
        return await self.replies.do(row, data, prompt.session_id, command)

    async def _all(self, row: InboxRow, data: dict[str, Json], value: str) -> bool:
        """Approve all calls of a message, as this person may: a press of each one's own button, which is decided, refused
        and recorded by itself."""
        items, left = [], 0
        for prompt_id, nonce in pairs(value):
            prompt = await self._prompt(row, prompt_id)
            if prompt is None or not prompt.open or nonce != prompt.nonce:
                continue
            actor = await self.people.actor(data, entries=prompt.approvers or ())
            requester: dict[str, Json] = {"id": prompt.requester_id, "name": prompt.requester_name}
            voted = any((vote.actor_id, vote.vote) == (actor.id, "approve") for vote in prompt.votes)
            if voted or not may_act_on(actor, [prompt], self.notices.gate.target(requester, True)):
                left += 1
                continue
            index = [option["value"] for option in prompt.options].index("approve")
            press = encode(together(prompt_id, nonce, index, data))
            items.append(InboxItem(f"{row.key}:{prompt_id}", row.kind, press, thread_key=row.thread_key))
        if not items:
            said = "None of these calls is yours to approve, or not any more." if left else COPY
            return await self.notices.whisper(row, data, said, "refused")
        told = [whispered(row, data, f"{left} of them are not yours to approve.")] if left else []
        done = await self.notices.split(row, items, *told)
        self.taken()
        return done

    async def _revoke(self, row: InboxRow, data: dict[str, Json], prompt_id: str, nonce: str) -> bool:
        prompt, grants = await self._prompt(row, prompt_id), WideGrants(self.notices)
        if prompt is not None and nonce and (nonce != prompt.nonce or not _stands_in(prompt, data)):
            return await self.notices.whisper(row, data, COPY, "refused")
        if await self._is_over(prompt) and await grants.counts(prompt_id):
            # The run that gave it is over: its row alone is changed.
            return await grants.revoke(row, data, prompt_id, await self.people.actor(data))
        if prompt is None:
            return await self.notices.whisper(row, data, GONE, "refused")
        actor = await self.people.actor(data)
        return await self.replies.do(row, data, prompt.session_id, Revoke(prompt_id, actor, row.key))

    async def _is_over(self, prompt: PromptState | None) -> bool:
        """Whether the session of a question has ended, or is gone."""
        engine = self.notices.engine
        head = None if prompt is None else await engine.writer.call(engine.store.head, prompt.session_id)
        return head is None or head.status in ENDED

    async def _rated(self, row: InboxRow, data: dict[str, Json], value: str, key: str) -> bool:
        """Whether an agent's final answer helped, said by somebody who can read it; the session may be over long since."""
        answer = await self.notices.engine.writer.call(self.notices.engine.store.outbox_row, key)
        entry: dict[str, Json] = decode(answer.payload) if answer is not None else {}
        known = answer is not None and answer.lane == row.thread_key and entry.get("final")
        if answer is None or not known or value not in NOTED:
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

    async def _cancel(self, row: InboxRow, data: dict[str, Json], session_id: str) -> bool:
        async def cancel(head: Head, actor: Actor) -> bool:
            done = await self.replies.do(row, data, session_id, Abort(actor, "cancelled in the thread"))
            if done and data["actionId"] == phrases.CANCEL_THIS and await self._applied(row):
                await self._say_instead(
                    row, data, phrases.confirmed(head.flow_name, data["user"], ended=True)
                )
            return done

        return await self._in_its_thread(row, data, session_id, cancel)

    async def _keep(self, row: InboxRow, data: dict[str, Json], session_id: str) -> bool:
        """Whoever may end a session may also say that it goes on: the question whether to end it is answered then."""

        async def keep(head: Head, actor: Actor) -> bool:
            state = await self.notices.engine.verified_state(session_id)
            reason = authorize(actor, "cancel", self.notices.gate.target(state.actor, True)).reason
            if reason is not None:
                return await self.notices.whisper(row, data, reason, "refused")
            await self.notices.consume(row, "kept")
            if head.status not in ENDED:
                await self._say_instead(
                    row, data, phrases.confirmed(head.flow_name, data["user"], ended=False)
                )
            return True

        return await self._in_its_thread(row, data, session_id, keep)

    async def _in_its_thread(
        self,
        row: InboxRow,
        data: dict[str, Json],
        session_id: str,
        press: Callable[[Head, Actor], Awaitable[bool]],
    ) -> bool:
        """Do what a press on a session's own button means, where the button stands in that session's thread."""
        head = await self.notices.engine.writer.call(self.notices.engine.store.head, session_id)
        if head is None or head.thread_key != row.thread_key:
            return await self.notices.whisper(row, data, GONE, "refused")
        return await press(head, await self.people.actor(data))

    async def _meant(self, row: InboxRow, data: dict[str, Json], value: str) -> bool:
        """The text that was written before answers this question; only its author can say so."""
        prompt_id, nonce, ts, author = [*value.split("|"), "", "", ""][:4]
        if author != data["user"]:
            return await self.notices.whisper(row, data, NOT_THE_AUTHOR, "refused")
        prompt, written = await self._prompt(row, prompt_id), await self._written(data, ts)
        if prompt is None or written is None:
            return await self.notices.whisper(row, data, UNWRITTEN if prompt else GONE, "refused")
        text, files = written
        done = await self._answer(row, {**data, "files": files, "ts": ts}, prompt, nonce, text=text)
        if done and await self._applied(row):
            await self._close_menu(
                row, data, prompt, ts, text or ", ".join(str(file["name"]) for file in files)
            )
        return done

    async def _agent_meant(self, row: InboxRow, data: dict[str, Json], value: str) -> bool:
        """What was written before is for this agent; only its author can say so."""
        session_id, path, ts, author = [*value.split("|"), "", "", ""][:4]
        if author != data["user"]:
            return await self.notices.whisper(row, data, NOT_THE_AUTHOR, "refused")

        async def say(head: Head, actor: Actor) -> bool:
            written = await self._written(data, ts)
            if written is None:
                return await self.notices.whisper(row, data, UNWRITTEN, "refused")
            text, files = written
            key = f"message:{data['team']}:{data['channel']}:{ts}"
            said = Steer(text, actor, key, to=path)
            done = await self.agents.say(row, {**data, "files": files, "ts": ts}, session_id, said)
            if done and await self._applied(row):
                await self._say_instead(row, data, phrases.chosen_text(text, path))
            return done

        return await self._in_its_thread(row, data, session_id, say)

    async def _written(self, data: dict[str, Json], ts: str) -> tuple[str, list[dict[str, Json]]] | None:
        """What was written at this moment in this channel, and the files that came with it."""
        key = f"message:{data['team']}:{data['channel']}:{ts}"
        stored = await self.notices.stored(key)
        if stored is None or stored.kind != decisions.MESSAGE:
            return None
        said = decode(stored.payload)
        try:
            message = payloads.said(said, self.home)
        except TooLong:
            return None
        return (message.text, said.get("files") or []) if said["user"] == data["user"] else None

    async def _applied(self, row: InboxRow) -> bool:
        stored = await self.notices.stored(row.key)
        return stored is not None and stored.outcome == "applied"

    async def _close_menu(
        self, row: InboxRow, data: dict[str, Json], prompt: PromptState, ts: str, text: str
    ) -> None:
        """The menu says what became of it, and the reply has the mark of one that counts."""
        number = f"#{prompt.number}" if prompt.number else "the question"
        mark = reaction_row(f"taken:{data['team']}:{data['channel']}:{ts}", data["channel"], ts, TAKEN)
        await self._say_instead(row, data, f"☑️ “{escape(one_line(text, 120))}” answered {number}.", mark)

    async def _say_instead(self, row: InboxRow, data: dict[str, Json], text: str, *more: Row) -> None:
        """The message whose button was pressed has done its work: it says what came of it, without buttons."""
        lane = row.thread_key or row.key
        edit = edit_row(f"menu:{row.key}", lane, data["channel"], data["messageTs"], text)
        await self.notices.put(edit, *more)

    async def _prompt(self, row: InboxRow, prompt_id: str) -> PromptState | None:
        """The prompt, where it is one of the thread in which somebody pressed: who may answer depends on the channel."""
        found = await self.notices.prompt(prompt_id)
        return found if found is not None and found.thread_key == row.thread_key else None


def _stands_in(prompt: PromptState, data: dict[str, Json]) -> bool:
    """Whether what was pressed is the message that shows a prompt, or a copy outside of the thread. While it is being
    posted nobody knows yet which one that is."""
    return "from" in data or prompt.message_ts in (None, data["messageTs"])
