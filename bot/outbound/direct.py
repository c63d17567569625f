"""Questions in direct messages: a copy for each person who is asked by name, or one digest a day.

One row for each question (`copies`) looks who is asked now, whenever the question changes: it orders a copy for whoever
has none and wants one, and has each copy that there is drawn again. So all copies are disarmed together, and a copy that
is being posted meanwhile is edited behind its post, in the same lane. A copy that is due once its question is closed is
not sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bot.config.profiles import Profile, Profiles
from bot.outbound.calls import Hold, Place, Posted
from bot.outbound.posts import DROPPED, Outcome, Sent, is_uncertain, position, posted_of, result_of
from bot.outbound.sender import Send, Sender
from bot.rendering.blocks import Rendered
from bot.rendering.text import asked
from bot.rendering.waiting import (
    Waiting,
    closed_message,
    digest_message,
    direct_message,
    elsewhere_message,
    requester,
)
from bot.wire.client import Permanent
from bot.wire.users import LookupFailed, People
from engine.decide.policy import ROTA, Gate
from engine.journal.records import OutboxRow, PutOutbox
from engine.language import working_hours
from engine.language.codec import Json, encode
from engine.storage.group_commit import Writer
from engine.storage.store import Store
from prompt_state import question_row as prompts
from prompt_state.question_row import PromptState, may_act_on

MOST_COPIES = 10
"""People who get a copy of one question; of a larger group nobody does, for the thread has called them."""
_MOST_ASKED = 500
"""Questions that are counted for one person."""
_AGAIN_SECONDS = 30.0
_GONE = ("message_not_found", "cant_update_message", "channel_not_found", "user_not_found", "cannot_dm_bot")


class WaitingFor:
    """Which open questions wait for somebody, and for whom somebody's own runs wait."""

    def __init__(self, writer: Writer, people: People, gate: Gate) -> None:
        self._writer = writer
        self._people = people
        self._gate = gate

    async def of(self, user: str) -> tuple[list[Waiting], list[Waiting]]:
        """The questions that this person may answer, and those of their own runs that only others may; newest first.
        Whoever cannot read a thread does not get its question here either."""
        mine: list[Waiting] = []
        others: list[Waiting] = []
        for entry in await self._writer.call(_asked, self._writer.store):
            if len(mine) >= _MOST_ASKED:
                break
            if await self.may_answer(user, entry.prompt):
                mine.append(entry)
            elif entry.prompt.requester_id == user:
                others.append(entry)
        return mine, others

    async def may_answer(self, user: str, prompt: PromptState, *, unseen: bool = False) -> bool:
        """Whether somebody may answer a question and can read its thread; with `unseen` also where they cannot."""
        try:
            member = await self._people.is_member(user, str(prompt.channel))
            return (member or unseen) and await self._allowed(user, prompt, member)
        except LookupFailed:
            return False

    async def _allowed(self, user: str, prompt: PromptState, member: bool) -> bool:
        data: dict[str, Json] = {"user": user, "channel": prompt.channel}
        entries = [*(prompt.approvers or ()), *(prompt.who or ())]
        actor = await self._people.actor(data, entries=entries, in_channel=member)
        requester: dict[str, Json] = {"id": prompt.requester_id, "name": prompt.requester_name}
        return bool(may_act_on(actor, [prompt], self._gate.target(requester, True)))

    async def is_in(self, user: str, channel: str) -> bool:
        """Whether somebody is in a channel, as far as Slack says so."""
        try:
            return await self._people.is_member(user, channel)
        except LookupFailed:
            return False


def _asked(store: Store) -> list[Waiting]:
    """The open questions in channels with the names of their flows, newest first."""
    found, names = [], dict[str, str | None]()
    for prompt in reversed(prompts.waiting(store)):
        if prompt.session_id not in names:
            head = store.head(prompt.session_id)
            names[prompt.session_id] = None if head is None or head.quarantined else head.flow_name
        name = names[prompt.session_id]
        if name is not None and prompt.channel and prompt.thread_ts:
            found.append(Waiting(prompt, name))
    return found


@dataclass(frozen=True, slots=True)
class Recipients:
    """Who may answer what, and how they want to be told."""

    people: People
    profiles: Profiles
    waiting: WaitingFor


@dataclass(eq=False, repr=False)
class Direct(Sender):
    """Sends copies of questions, and digests. Without `recipients` nobody gets any."""

    recipients: Recipients | None

    def kinds(self) -> dict[str, Send]:
        """By kind of row."""
        return {"copies": self.copies, "copy": self.copy, "recopy": self.recopy, "digest": self.digest}

    async def copies(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """Whom a question is to reach now: new copies are ordered, and those that there are drawn again."""
        entry, to = await self._entry(data["promptId"]), self.recipients
        if entry is None or to is None:
            return Sent(DROPPED)
        known: dict[str, Json] = dict(result_of(row).get("at") or {})
        rows = [_again(key, user, data["promptId"]) for user, key in known.items()]
        for user in await self._asked(entry.prompt, to) if entry.prompt.open else ():
            if user in known:
                continue
            ordered = self._ordered(
                user, entry.prompt, await to.profiles.of(user), await to.people.timezone(user)
            )
            if ordered is not None:
                rows.append(ordered)
                known[user] = ordered.key
        await self.ledger.put(rows)
        return Sent({"at": known})

    def _ordered(self, user: str, prompt: PromptState, profile: Profile, zone: str) -> PutOutbox | None:
        """A copy for somebody, or the digest in which they will find it."""
        now = self.ledger.now()
        if profile.direct == "never":
            return None
        if profile.direct == "at_once":
            key, at = f"copy:{prompt.prompt_id}:{user}", profile.told_at(now)
            payload: dict[str, Json] = {"promptId": prompt.prompt_id, "user": user}
            due = at if at > now else None
            return PutOutbox(key, key, "copy", encode(payload), prompt.session_id, not_before=due)
        usual = working_hours.Hours(frozenset(range(5)), 9 * 60, 17 * 60, zone)
        at = working_hours.begins(now, working_hours.of(profile.hours) or usual)
        key = f"digest:{user}:{at[:10]}"
        return PutOutbox(key, key, "digest", encode({"user": user}), not_before=at)

    async def copy(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """Post a copy, unless its question was closed meanwhile."""
        entry, user, to = await self._entry(data["promptId"]), data["user"], self.recipients
        if entry is None or to is None:
            return Sent(DROPPED)
        unasked = not entry.prompt.open or not await to.waiting.may_answer(user, entry.prompt, unseen=True)
        place = Place(await self.places.direct(user))
        if unasked:
            found = await self.poster.adopt(row, place) if is_uncertain(row) else None
            return Sent(position(found) if found is not None else DROPPED)
        posted = await self.poster.once(row, place, await self._drawn(entry, user, row.key, to))
        return Sent(position(posted))

    async def _drawn(self, entry: Waiting, user: str, key: str, to: Recipients) -> Rendered:
        if not entry.prompt.open or not await to.waiting.may_answer(user, entry.prompt, unseen=True):
            return closed_message(entry)
        member = await to.waiting.is_in(user, str(entry.prompt.channel))
        return (direct_message if member else elsewhere_message)(entry, key)

    async def recopy(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """Draw a copy, or a digest, again as things are now."""
        copied, entry, to = (
            await self.ledger.row(data["key"]),
            await self._entry(data["promptId"]),
            self.recipients,
        )
        where = posted_of(copied)
        if copied is None or where is None or entry is None or to is None:
            return Sent(DROPPED)
        if copied.kind == "digest":
            message = await self._digested(
                result_of(copied).get("prompts") or [], data["user"], copied.key, to
            )
        else:
            message = await self._drawn(entry, data["user"], copied.key, to)
        try:
            await self.calls.edit(where, message)
        except Permanent as fault:
            if fault.reason not in _GONE:
                raise
        return Sent(position(where))

    async def digest(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """What waits for somebody, in one message; nothing where nothing waits."""
        to = self.recipients
        mine = (await to.waiting.of(data["user"]))[0] if to is not None else []
        if to is None or (not mine and not is_uncertain(row)):
            return Sent(DROPPED)
        linked = [await self._linked(entry) for entry in mine]
        place = Place(await self.places.direct(data["user"]))
        posted = await self.poster.once(row, place, digest_message(linked, row.key))
        return Sent({**position(posted), "prompts": [entry.prompt.prompt_id for entry in mine]})

    async def _digested(self, ids: Iterable[str], user: str, key: str, to: Recipients) -> Rendered:
        entries = [entry for prompt_id in ids if (entry := await self._entry(prompt_id)) is not None]
        still = [
            entry
            for entry in entries
            if entry.prompt.open and await to.waiting.may_answer(user, entry.prompt)
        ]
        return digest_message(still, key, done=len(entries) - len(still))

    # --- who, and what -------------------------------------------------------------------------------------

    async def _asked(self, prompt: PromptState, to: Recipients) -> list[str]:
        """The people whom a question asks by name, by group or by rota, and who stands in for them; by user id."""
        found: dict[str, None] = {}
        try:
            for entry in asked(prompt, requester(prompt)):
                members = await self._people_of(entry, to.people)
                found |= dict.fromkeys(members if len(members) <= MOST_COPIES else [])
            now = self.ledger.now()
            profiles = {user: await to.profiles.of(user) for user in found}
            found |= {str(each.stand_in): None for each in profiles.values() if each.away(now)}
            may = [user for user in found if await to.waiting.may_answer(user, prompt, unseen=True)]
        except LookupFailed as error:
            raise Hold(_AGAIN_SECONDS, f"who is asked is not known: {error}") from error
        return may[:MOST_COPIES]

    async def _people_of(self, entry: str, people: People) -> list[str]:
        """The user ids of an entry; none for `channel` and `requester`, who are there already."""
        if entry.startswith("@"):
            return await people.members(entry)
        names = await people.on_call(entry) if entry.startswith(ROTA) else [entry]
        found = []
        for name in names:
            if name in ("channel", "requester") or name.startswith("local:"):
                continue
            try:
                found.append(await self.places.person(name, None))
            except Permanent:
                continue  # nobody here is called so: the thread shows the name as it is written
        return found

    async def _entry(self, prompt_id: str) -> Waiting | None:
        """A question with its flow's name and a link."""
        writer = self.ledger.writer
        prompt = await writer.call(prompts.find, writer.store, prompt_id)
        head = None if prompt is None else await self.ledger.head(prompt.session_id)
        if prompt is None or head is None or not prompt.channel or not prompt.thread_ts:
            return None
        return await self._linked(Waiting(prompt, head.flow_name))

    async def _linked(self, entry: Waiting) -> Waiting:
        prompt = entry.prompt
        where = Posted(str(prompt.channel), str(prompt.message_ts or prompt.thread_ts))
        return Waiting(prompt, entry.flow_name, await self.link(where))


def _again(key: Json, user: str, prompt_id: str) -> PutOutbox:
    payload: Mapping[str, Json] = {"key": key, "user": user, "promptId": prompt_id}
    return PutOutbox(f"again:{key}", str(key), "recopy", encode(dict(payload)), replace=True)
