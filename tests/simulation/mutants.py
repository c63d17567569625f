"""Seeded faults of the bot: with each of them a plain day goes well, and the simulation finds it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bot.handlers import catchup
from bot.handlers.catchup import CatchUp
from bot.inbound import decisions
from bot.outbound import posts, slots
from bot.serve.bolt import SlackApp
from engine.decide.commands import Answer
from engine.journal.records import Commit, InboxItem
from engine.run.stepper import Stepper
from engine.storage import rows as row_tables
from engine.storage.rows import InboxTable
from engine.storage.sqlite import SqliteStore
from engine.storage.store import PartResult
from prompt_state import routing

Mutant = Callable[[pytest.MonkeyPatch], None]


def acknowledges_before_it_stores(patch: pytest.MonkeyPatch) -> None:
    """The acknowledgement leaves first; storing follows."""
    take = SlackApp._take

    async def later(self: SlackApp, decision: decisions.Take) -> None:
        self._kept = asyncio.get_running_loop().create_task(take(self, decision))  # type: ignore[attr-defined]

    patch.setattr(SlackApp, "_take", later)


def reads_nothing_that_was_missed(patch: pytest.MonkeyPatch) -> None:
    """There is no catch-up."""

    async def begin(self: CatchUp) -> None:
        return None

    async def read(self: CatchUp, key: str | None = None) -> int:
        return 0

    patch.setattr(CatchUp, "begin", begin)
    patch.setattr(CatchUp, "run", read)
    patch.setattr(CatchUp, "ensure", read)


def skips_on_reply_count_alone(patch: pytest.MonkeyPatch) -> None:
    """A thread is left alone that has as many replies as before. `tests/bot/test_catchup_channels.py` looks for it directly."""
    has_moved, counts = catchup.has_moved, dict[str, int]()

    def by_count(root: dict[str, Any], known: str, us: str) -> bool:
        before, counts[root["ts"]] = counts.get(root["ts"]), root.get("reply_count", 0)
        return has_moved(root, known, us) if before is None else before != counts[root["ts"]]

    patch.setattr(catchup, "has_moved", by_count)


def posts_again_without_looking(patch: pytest.MonkeyPatch) -> None:
    """A post whose answer was lost is not looked for."""
    patch.setattr(posts, "is_uncertain", lambda row: False)
    patch.setattr(slots, "is_uncertain", lambda row: False)


def _fresh(inbox: InboxTable, item: InboxItem) -> InboxItem:
    """The item under a key that is free: what a store without a unique key would do."""
    while item.kind.startswith("slack.") and inbox.row(item.key) is not None:
        item = InboxItem(f"again/{item.key}", item.kind, item.payload, item.session_id, item.thread_key)
    return item


def remembers_keys_in_memory(patch: pytest.MonkeyPatch) -> None:
    """What came before is known only to the process that took it."""
    ingest = InboxTable.ingest

    def stored(self: InboxTable, items: Sequence[InboxItem], now: str) -> list[int | None]:
        known = self.__dict__.setdefault("_keys", set())
        new = [item if item.key in known else _fresh(self, item) for item in items]
        known.update(item.key for item in items)
        return ingest(self, new, now)

    patch.setattr(InboxTable, "ingest", stored)


def a_live_reply_moves_the_mark(patch: pytest.MonkeyPatch) -> None:
    """What is delivered counts as read up to there, over what was missed before it. A day on which that matters is so
    rare that the simulation does not find it within its seeds; `tests/bot/test_app.py` looks for it directly."""
    take = SlackApp._take

    async def marking(self: SlackApp, decision: decisions.Take) -> None:
        await take(self, decision)
        item = decision.item
        if item.kind == decisions.MESSAGE:
            await self.writer.call(
                self.writer.store.marks.move, f"thread:{item.thread_key}", item.key.rsplit(":", 1)[1]
            )

    patch.setattr(SlackApp, "_take", marking)


def an_answer_is_committed_without_its_row(patch: pytest.MonkeyPatch) -> None:
    """The answer is one commit and the row that it came in another."""
    apply = Stepper.apply

    async def apart(self: Stepper, session_id: str, command: Any, *, consumed: Any = ()) -> Any:
        if not isinstance(command, Answer):
            return await apply(self, session_id, command, consumed=consumed)
        state = await apply(self, session_id, command)
        await self.writer.call(self.writer.store.consume, list(consumed), self.now())
        return state

    patch.setattr(Stepper, "apply", apart)


def a_change_forgets_the_attempt_that_is_out(patch: pytest.MonkeyPatch) -> None:
    """A card that changes while its post is out counts as never sent, if it was refused before."""
    replaced = row_tables.replaced

    def forgetting(row: Any, put: Any) -> Any:
        made = replaced(row, put)
        return made if row.result is None else made.but(attempts=0)

    patch.setattr(row_tables, "replaced", forgetting)


def writes_what_it_decided_on_what_it_read(patch: pytest.MonkeyPatch) -> None:
    """A commit does not check that the session is where it was read: read, then write."""
    part = SqliteStore._part

    def unchecked(self: SqliteStore, commit: Commit, body: bytes, *, settle: bool) -> PartResult:
        if commit.new is None:
            head = self.sessions._stored(commit.session_id)
            epoch = head.epoch if commit.owner is None else head.epoch + 1
            rows = [
                self._db.one("SELECT outcome FROM inbox WHERE id = ?", (c.inbox_id,)) for c in commit.consumed
            ]
            consumed = tuple(c for c, row in zip(commit.consumed, rows, strict=True) if row == (None,))
            commit = commit.but(epoch=epoch, seq=head.seq, consumed=consumed)
        return part(self, commit, body, settle=settle)

    patch.setattr(SqliteStore, "_part", unchecked)


def obeys_a_word_that_is_offered_as_a_choice(patch: pytest.MonkeyPatch) -> None:
    """`stop` means the run although a question offers it."""
    patch.setattr(routing, "_offers", lambda prompt, word: False)


def takes_what_was_posted_unheard_for_not_posted(patch: pytest.MonkeyPatch) -> None:
    """A card that is found is not brought up to date, and a closed prompt that is found keeps its buttons."""
    patch.setattr(slots, "is_uncertain", lambda row: False)
