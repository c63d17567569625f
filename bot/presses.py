"""What is done with presses in messages: options, controls, Undo, the end of a session, and which question was meant."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bot import inbound, words
from bot.intents import edit_row
from bot.people import LookupFailed, People
from bot.rendering.decisions import UNDO
from bot.rendering.forms import INLINE, read_control
from bot.rendering.menus import MENU
from bot.rendering.text import escape, one_line
from engine.codec import Json, decode
from engine.commands import Abort, Answer, Command, Undo
from engine.engine import Engine
from engine.forms.asking import asked_fields
from engine.storage.port import Head, InboxRow
from prompt_state import store as prompts
from prompt_state.errors import TooLong
from prompt_state.model import PromptState
from prompt_state.routing import read_message

GONE = "This button is not known here any more."


@dataclass(frozen=True, slots=True)
class Hands:
    """What the conversation does for a press: carry a command out, tell its author why not, or wait for Slack."""

    do: Callable[[InboxRow, dict[str, Json], str, Command], Awaitable[bool]]
    whisper: Callable[[InboxRow, dict[str, Json], str, str], Awaitable[bool]]
    consume: Callable[[InboxRow, str], Awaitable[None]]
    not_looked_up: Callable[[InboxRow, dict[str, Json], LookupFailed], Awaitable[bool]]


class Presses:
    """Handles the inbox rows of buttons and controls."""

    def __init__(self, engine: Engine, people: People, bot_user_id: str, hands: Hands) -> None:
        self._engine = engine
        self._people = people
        self._bot_user_id = bot_user_id
        self._hands = hands

    async def click(self, row: InboxRow) -> bool:
        """What was pressed, by its action."""
        data = decode(row.payload)
        action, value = str(data["actionId"]), str(data["value"] or "")
        if action.startswith("sayso:cancel"):
            return await self._cancel(row, data, value)
        if action.startswith("sayso:keep"):
            await self._hands.consume(row, "kept")
            return True
        if action == UNDO:
            return await self._undo(row, data, value.partition("|")[0])
        if action.startswith(MENU):
            return await self._meant(row, data, value)
        return await self._option(row, data, action, value)

    async def _option(self, row: InboxRow, data: dict[str, Json], action: str, value: str) -> bool:
        """An option of a prompt, or the control of a form that has one field."""
        inline = action.startswith(INLINE)
        ids = action.removeprefix(INLINE) if inline else value
        prompt_id, nonce, index = [*ids.split("|"), "", ""][:3]
        prompt = await self._prompt(prompt_id)
        known = prompt is not None and (inline or (index.isdigit() and int(index) < len(prompt.options)))
        if prompt is None or not known:
            return await self._hands.whisper(row, data, GONE, "refused")
        picked = _picked(prompt, data) if inline else prompt.options[int(index)].value
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
            return await self._hands.whisper(row, data, words.closed_text(prompt), "refused")
        try:
            actor = await self._people.actor(data, entries=prompt.approvers or prompt.who or ())
        except LookupFailed as error:
            return await self._hands.not_looked_up(row, data, error)
        command = Answer(prompt.prompt_id, actor, row.key, value=value, text=text, nonce=nonce)
        return await self._hands.do(row, data, prompt.session_id, command)

    async def _undo(self, row: InboxRow, data: dict[str, Json], prompt_id: str) -> bool:
        prompt = await self._prompt(prompt_id)
        if prompt is None:
            return await self._hands.whisper(row, data, GONE, "refused")
        try:
            actor = await self._people.actor(data)
        except LookupFailed as error:
            return await self._hands.not_looked_up(row, data, error)
        return await self._hands.do(row, data, prompt.session_id, Undo(prompt_id, actor, row.key))

    async def _cancel(self, row: InboxRow, data: dict[str, Json], session_id: str) -> bool:
        head: Head | None = await self._engine.writer.call("head", session_id)
        if head is None or head.thread_key != row.thread_key:
            return await self._hands.whisper(row, data, GONE, "refused")
        try:
            actor = await self._people.actor(data)
        except LookupFailed as error:
            return await self._hands.not_looked_up(row, data, error)
        return await self._hands.do(row, data, session_id, Abort(actor, "cancelled in the thread"))

    # --- which question was meant --------------------------------------------------------------------------

    async def _meant(self, row: InboxRow, data: dict[str, Json], value: str) -> bool:
        """The text that was written before answers this question. It is read again where it was stored; who wrote it
        says for which question it was."""
        prompt_id, nonce, ts, author = [*value.split("|"), "", "", ""][:4]
        if author != data["user"]:
            return await self._hands.whisper(
                row, data, "Only whoever wrote the reply can say that.", "refused"
            )
        prompt, text = await self._prompt(prompt_id), await self._written(data, ts)
        if prompt is None or text is None:
            said = "Your reply is not there any more. Please write it again." if prompt else GONE
            return await self._hands.whisper(row, data, said, "refused")
        done = await self._answer(row, data, prompt, nonce, text=text)
        if done and await self._applied(row):
            await self._close_menu(row, data, prompt, text)
        return done

    async def _written(self, data: dict[str, Json], ts: str) -> str | None:
        """What was written at this moment in this channel."""
        key = f"message:{data['team']}:{data['channel']}:{ts}"
        stored: InboxRow | None = await self._engine.writer.call("inbox_row", key)
        if stored is None or stored.kind != inbound.MESSAGE:
            return None
        said = decode(stored.payload)
        try:
            message = read_message(
                said["text"],
                bot_user_id=self._bot_user_id,
                user=said["user"],
                ts=said["ts"],
                thread_ts=said["threadTs"],
            )
        except TooLong:
            return None
        return message.text if said["user"] == data["user"] else None

    async def _applied(self, row: InboxRow) -> bool:
        stored: InboxRow | None = await self._engine.writer.call("inbox_row", row.key)
        return stored is not None and stored.outcome == "applied"

    async def _close_menu(self, row: InboxRow, data: dict[str, Json], prompt: PromptState, text: str) -> None:
        number = f"#{prompt.number}" if prompt.number else "the question"
        said = f"☑️ “{escape(one_line(text, 120))}” answered {number}."
        lane = row.thread_key or row.key
        edit = edit_row(f"menu:{row.key}", lane, data["channel"], data["messageTs"], said)
        await self._engine.writer.call("consume", [], self._engine.now(), [edit])

    async def _prompt(self, prompt_id: str) -> PromptState | None:
        return await self._engine.writer.call(prompts.find, self._engine.store, prompt_id)


def _picked(prompt: PromptState, data: dict[str, Json]) -> Json:
    """What a control in the message of a form with one field was set to; nothing where it has no such field."""
    fields = asked_fields({"form": prompt.form})
    return read_control(data["picked"] or {}, fields[0]) if fields else None
