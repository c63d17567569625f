"""Seeded faults in what `further_flows.py`, `way_flows.py` and `file_flows.py` ask. A plain day shows none of them."""

from __future__ import annotations

import os
from typing import Any

import pytest
from msgspec.structs import replace

from bot.config.session_files import Part
from bot.inbound import payloads
from bot.inbound.decisions import PAGE, Submission
from bot.serve.bolt import SlackApp
from bot.start.from_slack import TriggerStarts
from bot.views import forms, kinds
from bot.views.kinds import PromptLookup
from engine.journal import events as ev
from engine.journal.records import InboxItem
from engine.language.codec import decode


def takes_a_modal_of_an_older_copy(patch: pytest.MonkeyPatch) -> None:
    """Whoever gives the reason against what was proposed before a change rejects what it became."""
    answerable = kinds.answerable

    def any_copy(prompt: Any, nonce: str | None = None) -> Any:
        return answerable(prompt)

    patch.setattr(kinds, "answerable", any_copy)


def a_second_vote_keeps_the_first_reason(patch: pytest.MonkeyPatch) -> None:
    """Whoever rejects once more, for another reason, is quoted with the first one."""

    fold = ev.PromptVoted.fold

    def voted(event: Any, state: Any) -> Any:
        before = {vote["actor"]["id"]: vote["reason"] for vote in state.prompts[event.prompt_id].votes}
        after = fold(event, state)
        prompt = after.prompts[event.prompt_id]
        *others, mine = prompt.votes
        kept = {**mine, "reason": before.get(event.actor["id"]) or mine["reason"]}
        votes = (*others, kept if mine["reason"] else mine)
        return replace(after, prompts=after.prompts.set(event.prompt_id, replace(prompt, votes=votes)))

    patch.setattr(ev.PromptVoted, "fold", voted)


def keeps_what_a_page_held_first(patch: pytest.MonkeyPatch) -> None:
    """A page that is sent again with other values, or that somebody went back to, keeps what came first."""
    encode = forms.encode
    patch.setattr(forms, "encode", lambda value: encode(value[:1]))


def goes_back_to_an_empty_page(patch: pytest.MonkeyPatch) -> None:
    """Whoever goes back finds nothing of what they had filled in there."""
    back = forms._back

    def empty(submission: Submission, page: int, kept: list[str], earlier: Any, show: Any) -> Any:
        return back(submission, page, kept, {}, show)

    patch.setattr(forms, "_back", empty)


def keeps_pages_in_memory(patch: pytest.MonkeyPatch) -> None:
    """What was filled in on earlier pages is known only to the process that took it."""
    ingest = SlackApp._ingest

    async def stored(self: SlackApp, item: InboxItem) -> bool:
        if item.kind != PAGE:
            return await ingest(self, item)
        self.writer.__dict__.setdefault("_pages", {})[item.key] = decode(item.payload)["values"]
        return True

    async def page(self: PromptLookup, key: str) -> Any:
        return self._engine.writer.__dict__.get("_pages", {}).get(key)

    patch.setattr(SlackApp, "_ingest", stored)
    patch.setattr(PromptLookup, "page", page)


def starts_what_is_sent_again_once_more(patch: pytest.MonkeyPatch) -> None:
    """A form that starts a flow, sent again with other values, starts a second run."""
    differs = SlackApp._differs

    async def taken(self: SlackApp, item: InboxItem) -> bool:
        if not await differs(self, item) or decode(item.payload)["kind"] != "start":
            return await differs(self, item)
        await self._ingest(InboxItem(f"{item.key}:again", item.kind, item.payload))
        return False

    patch.setattr(SlackApp, "_differs", taken)


def starts_again_while_it_runs(patch: pytest.MonkeyPatch) -> None:
    """A reaction starts its flow although it runs in that thread already."""

    async def runs(self: TriggerStarts, key: str, flow: str) -> bool:
        return False

    patch.setattr(TriggerStarts, "_runs", runs)


def hears_a_reaction_again(patch: pytest.MonkeyPatch) -> None:
    """A reaction that is delivered again, or taken away and added again, is another one."""
    ingest = SlackApp._ingest

    async def fresh(self: SlackApp, item: InboxItem) -> bool:
        while item.kind == payloads.REACTION and await self.writer.call(
            self.writer.store.inbox.row, item.key
        ):
            item = InboxItem(f"again/{item.key}", item.kind, item.payload, thread_key=item.thread_key)
        return await ingest(self, item)

    patch.setattr(SlackApp, "_ingest", fresh)


def a_file_lies_in_its_place_before_it_is_whole(patch: pytest.MonkeyPatch) -> None:
    """What was fetched of a file when the process died counts as the file."""
    begin = Part.__init__

    def here(self: Part, folder: int, name: str) -> None:
        begin(self, folder, name)
        os.rename(self._temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        self._temporary = name

    patch.setattr(Part, "__init__", here)
    patch.setattr(Part, "close", lambda self: self._file.close())
