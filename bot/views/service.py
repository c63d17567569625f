"""Opens views and checks what is submitted, by kind. Accepted submissions are stored by the code that acknowledges them."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from bot.inbound.decisions import (
    HOME,
    PAGE,
    VIEW,
    Accept,
    Errors,
    Next,
    Opened,
    Opening,
    Refuse,
    Submission,
    Verdict,
    View,
)
from bot.outbound.calls import Modals, OpenView
from bot.rendering.blocks import words_view
from bot.rendering.text import for_reader
from bot.wire.client import AuthLost, SlackFault, Unknown
from engine.journal.records import Consumed, InboxRow
from engine.language.codec import Json, decode, encode
from engine.language.errors import SaysoError
from engine.nodes.runtime.effects import unless_lost
from engine.storage.fence import WorkPermit
from engine.storage.group_commit import Writer

log = logging.getLogger("sayso.views")

AGAIN = "This took too long to open. Please press again."
UNCLEAR = "Slack did not confirm that it opened. If nothing opened, please press again."
BROKEN = "This cannot be opened right now. Please press again in a moment."


class Kind(ABC):
    """One kind of view. `name` is the end of its buttons' action (`sayso:open:<name>`) and of its `callback_id`."""

    name: str

    def wants(self, opening: Opening) -> bool:
        """True if a view opens instead of what would otherwise be done (a slash command that says it all)."""
        return False

    @abstractmethod
    async def open(self, opening: Opening) -> Opened:
        """The view. A database read at most, and no call to Slack: Slack takes it within three seconds of the press."""

    async def refusal(self, opening: Opening) -> str | None:
        """Why this person may not do it after all, asked once the view is open: here Slack may be asked."""
        return None

    async def check(self, submission: Submission) -> Verdict:
        """The verdict about a submission. A database read at most; no network. Where something was pressed in
        the view (`submission.action`) only a `Next` has an effect."""
        return Refuse("There is nothing to submit here.")

    async def submit(self, row: InboxRow, data: dict[str, Json]) -> bool:
        """Carry out what was taken; `data` is the row's. False holds it."""
        raise AssertionError(f"{row.key}: nothing is submitted in this view")


class Views:
    """The kinds of views, and the tasks that open them."""

    def __init__(
        self,
        screen: Modals,
        kinds: Iterable[Kind],
        writer: Writer,
        now: Callable[[], str],
    ) -> None:
        self._screen = screen
        self._writer = writer
        self._now = now
        self._kinds = {kind.name: kind for kind in kinds}
        self._tasks: set[asyncio.Task[None]] = set()

    # --- opening -------------------------------------------------------------------------------------------

    def wanted(self, opening: Opening) -> bool:
        """True if a view opens instead of what would otherwise be done."""
        kind = self._kinds.get(opening.kind)
        return kind is not None and kind.wants(opening)

    def press(self, opening: Opening) -> None:
        """Open what was asked for, beside the acknowledgement. Raises nothing: its author is told."""
        self._spawn(self._open(opening))

    def act(self, submission: Submission) -> None:
        """Something was pressed inside a view: change the view, beside the acknowledgement."""
        self._spawn(self._act(submission))

    async def close(self) -> None:
        """Wait for what is being opened."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=3)
        for task in self._tasks:
            task.cancel()

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        permit = WorkPermit(self._writer.store, self._writer.store.generation())
        task = asyncio.create_task(unless_lost(work, permit), name="view")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(self, opening: Opening) -> None:
        kind = self._kinds.get(opening.kind)
        if kind is None:
            await self._say(opening, "This button no longer exists.")
            return
        try:
            found = await kind.open(opening)
            if isinstance(found, str):
                await self._say(opening, found)
                return
            if found is None:
                return
            found = _from_elsewhere(found, opening)
            on_top = opening.within == "modal"
            standing = await self._screen.open(opening.trigger_id, found, on_top=on_top)
        except SlackFault as fault:
            log.warning("a view (%s) was not opened: %s", opening.kind, fault)
            await self._say(opening, UNCLEAR if isinstance(fault, Unknown) else AGAIN)
            return
        except Exception:
            # A fault of ours: whoever pressed waits for something to happen and is told.
            log.exception("a view (%s) could not be made", opening.kind)
            await self._say(opening, BROKEN)
            return
        # Who somebody is takes a lookup, for which no trigger waits.
        try:
            reason = await kind.refusal(opening)
            if reason is not None:
                await self._screen.update(standing, words_view("Not for you", reason))
        except SaysoError as error:
            log.info(
                "could not check whether a view is for %s; this is checked when it is submitted: %s",
                opening.user,
                error,
            )
        except Exception:
            # The view stands, and what is submitted in it is checked again.
            log.exception("could not check whether a view (%s) is for %s", opening.kind, opening.user)

    async def _act(self, submission: Submission) -> None:
        kind = self._kinds.get(submission.kind)
        try:
            verdict = await kind.check(submission) if kind is not None else None
            if isinstance(verdict, Next):
                standing = OpenView(submission.view_id, str(submission.view.get("hash") or ""))
                await self._screen.update(standing, verdict.view)
        except SlackFault as fault:
            log.warning("a view (%s) was not changed: %s", submission.kind, fault)
        except Exception:
            # A fault of ours: the view stays as it is, and nothing was taken from it.
            log.exception("a view (%s) could not be changed", submission.kind)

    async def _say(self, opening: Opening, text: str) -> None:
        """Tell the person who pressed; where there is no place for it, in a modal."""
        try:
            if opening.channel is not None:
                said = for_reader(text)
                await self._screen.whisper(opening.channel, opening.user, opening.thread_ts, said)
            else:
                view = words_view("sayso", text)
                await self._screen.open(opening.trigger_id, view, on_top=opening.within == "modal")
        except AuthLost as fault:
            log.error("%s", fault)
        except SlackFault as fault:
            log.warning("%s could not be notified of %r: %s", opening.user, text, fault)

    # --- submissions ---------------------------------------------------------------------------------------

    async def check(self, submission: Submission) -> Verdict:
        """The verdict about a submission."""
        kind = self._kinds.get(submission.kind)
        if kind is None:
            return Refuse("This form no longer exists. Please close it.")
        if submission.meta.get("user") not in (None, submission.user):
            return Refuse("Someone else opened this. Please press the button yourself.")
        verdict = await kind.check(submission)
        if isinstance(verdict, Accept) and submission.meta.get("from"):
            return Accept({**verdict.data, "from": submission.meta["from"]}, verdict.thread_key)
        return verdict

    def handlers(self) -> dict[str, Callable[[InboxRow], Awaitable[bool]]]:
        """By kind of inbox row."""
        return {VIEW: self._submitted, PAGE: self._paged}

    async def _submitted(self, row: InboxRow) -> bool:
        data: dict[str, Json] = decode(row.payload)
        return await self._kinds[data["kind"]].submit(row, data)

    async def _paged(self, row: InboxRow) -> bool:
        """A page of a form is there to be read again; nothing is done with it."""
        await self._writer.call(self._writer.store.consume, [Consumed(row.id, "kept")], self._now(), [])
        return True


def _from_elsewhere(view: View, opening: Opening) -> View:
    """A view about a prompt that was opened outside of its thread says so: there its author is told what becomes of it."""
    where = HOME if opening.within == "home" else opening.channel
    meta = decode(view.get("private_metadata", "{}").encode())
    if "promptId" not in meta or where in (None, meta.get("channel")):
        return view
    return {**view, "private_metadata": encode({**meta, "from": where}).decode()}


def acknowledgement(verdict: Verdict, submission: Submission) -> dict[str, Any] | None:
    """The body of a submission's acknowledgement; None closes the view."""
    match verdict:
        case Next(view):
            return {"response_action": "update", "view": view}
        case Errors(errors):
            return {"response_action": "errors", "errors": errors}
        case Refuse(reason):
            block = submission.first_input()
            if block is not None:
                return {"response_action": "errors", "errors": {block: reason}}
            return {"response_action": "update", "view": words_view("sayso", reason)}
        case _:
            return None
