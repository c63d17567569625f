"""People (the facts on which the policy decides), channels by name, and links to messages: looked up after the
acknowledgement.

Facts are kept for at most a minute. A lookup that fails gives no facts, and no facts mean refusal: callers retry and
then ask the person to press again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any

from msgspec.structs import replace
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.config.directory import Directory, RotaFailed
from bot.config.profiles import Profiles
from bot.wire.budget import Urgency, current_urgency
from bot.wire.client import code_of, joined_channels, pages
from engine.decide.commands import Command, HandOver
from engine.decide.policy import ROTA
from engine.language.actors import Actor
from engine.language.codec import Json
from engine.language.errors import SaysoError

log = logging.getLogger("sayso.links")

KEEP_SECONDS = 60.0


class LookupFailed(SaysoError):
    """Slack did not say who this is."""

    code = "lookup_failed"


class UnknownPerson(LookupFailed):
    """Slack knows nobody by that id: asking again changes nothing."""

    code = "unknown_person"


@dataclass(eq=False, repr=False)
class People:
    """Looks people up in Slack. `always` are entries that matter for everybody: who may use the bot, and its admins.
    `directory` knows rotas and managers, `profiles` who is away."""

    client: AsyncWebClient
    team_id: str
    clock: Callable[[], float] = time.monotonic
    _: KW_ONLY
    always: Collection[str] = ()
    directory: Directory | None = None
    profiles: Profiles | None = None

    def __post_init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[float, Any]] = {}
        self._asked: dict[tuple[tuple[str, str], Urgency], asyncio.Future[Any]] = {}

    async def actor(
        self, data: dict[str, Json], *, entries: Iterable[str] = (), in_channel: bool | None = None
    ) -> Actor:
        """The person who sent `data` (a message, click or slash command as `bot.inbound.payloads` makes it), with those in
        whose place they answer.

        `entries` are those of a prompt's approvers: groups and membership are looked up only where they matter.
        `in_channel` is what the payload itself shows. Raises `LookupFailed`.
        """
        entries = (*entries, *self.always)
        actor = await self._one(data, entries, in_channel)
        # Those who are away and named this person. One whom Slack does not describe now is left out.
        channel, found = data.get("channel"), []
        for absent in await self.profiles.absent(actor.id) if self.profiles and channel else ():
            try:
                found.append(await self._one({"user": absent, "channel": channel}, entries, None))
            except LookupFailed as error:
                log.info("nobody stands in for %s now: %s", absent, error)
        return replace(actor, absent=tuple(found))

    async def profiled(self, actor: Actor) -> Actor:
        """The same person with their manager and timezone, as far as they are known."""
        if actor.kind != "slack" or self.directory is None:
            return actor
        known = {**self.directory.person(actor.id), **self.directory.person(actor.email)}
        manager, zone = known.get("manager"), known.get("timezone") or await self.timezone(actor.id)
        return replace(actor, manager=str(manager) if manager else None, timezone=str(zone))

    async def name(self, user: str) -> str:
        """Return a person's name, or the id if Slack does not show them (from another organisation, say). Raises
        `LookupFailed`."""
        try:
            return _name_of(await self._user(user)) or user
        except UnknownPerson:
            return user

    async def name_at(self, address: str) -> str:
        """Return the name of the person with this e-mail address; the address if Slack knows nobody by it. Raises
        `LookupFailed`."""
        try:
            return _name_of(await self._keep(("address", address), self._ask_address, address)) or address
        except UnknownPerson:
            return address

    async def timezone(self, user: str) -> str:
        """Somebody's timezone, as Slack knows it."""
        try:
            return str((await self._user(user)).get("tz") or "UTC")
        except LookupFailed:
            return "UTC"

    async def _one(self, data: dict[str, Json], entries: tuple[str, ...], in_channel: bool | None) -> Actor:
        user = await self._user(data["user"])
        profile = user.get("profile") or {}
        groups = frozenset[str]()
        if any(entry.startswith("@") for entry in entries):
            groups = await self._groups(
                data["user"], {entry[1:] for entry in entries if entry.startswith("@")}
            )
        # The rotas among these entries of which this person is on call.
        known = {data["user"].lower(), (profile.get("email") or data["user"]).lower()}
        for rota in [entry for entry in entries if entry.startswith(ROTA)]:
            if known & {each.lower() for each in await self.on_call(rota)}:
                groups |= {rota}
        if in_channel is None:
            in_channel = data["user"] in await self._members(data["channel"])
        return Actor(
            id=data["user"],
            name=_name_of(user),
            team_id=user.get("team_id") or data.get("userTeam"),
            email=profile.get("email"),
            is_bot=bool(user.get("is_bot")) or data["user"] == "USLACKBOT",
            is_app=bool(data.get("app")),
            deleted=bool(user.get("deleted")),
            is_restricted=bool(user.get("is_restricted")),
            is_ultra_restricted=bool(user.get("is_ultra_restricted")),
            is_stranger=bool(user.get("is_stranger")),
            groups=groups,
            in_channel=in_channel,
            edited=bool(data.get("edited")),
            facts_known=True,
        )

    async def on_call(self, entry: str) -> list[str]:
        """Return the people on call for a rota. Raises `LookupFailed`."""
        if self.directory is None:
            return []
        try:
            return await self.directory.on_call(entry.removeprefix(ROTA))
        except RotaFailed as error:
            raise LookupFailed(str(error)) from error

    async def informed(self, command: Command, channel: str | None) -> Command:
        """A hand-over with Slack's data about the recipient; any other command unchanged. Raises `LookupFailed`."""
        if not isinstance(command, HandOver):
            return command
        taker = await self.actor({"user": command.to, "channel": channel}, in_channel=True)
        return replace(command, taker=taker)

    async def is_member(self, user_id: str, channel: str) -> bool:
        """True if somebody is in a channel now. Raises `LookupFailed`."""
        return user_id in await self._members(channel)

    async def _user(self, user_id: str) -> dict[str, Any]:
        found = await self._keep(("user", user_id), self._ask_user, user_id)
        return dict(found)

    async def _ask_user(self, user_id: str) -> Any:
        return (await self.client.users_info(user=user_id))["user"]

    async def _ask_address(self, address: str) -> Any:
        return (await self.client.users_lookupByEmail(email=address))["user"]

    async def _groups(self, user_id: str, wanted: set[str]) -> frozenset[str]:
        """Return those of these groups that currently include the person."""
        groups = await self._keep(("groups", ""), self._ask_groups, "")
        mine = set()
        for handle, group_id in groups.items():
            if handle.lower() in {name.lower() for name in wanted}:
                users = await self._keep(("group", group_id), self._ask_group, group_id)
                if user_id in users:
                    mine.add(handle)
        return frozenset(mine)

    async def members(self, group: str) -> list[str]:
        """The user ids of a group (`@sre`). Raises `LookupFailed`."""
        groups = await self._keep(("groups", ""), self._ask_groups, "")
        known = {handle.lower(): group_id for handle, group_id in groups.items()}
        group_id = known.get(group.removeprefix("@").lower())
        return sorted(await self._keep(("group", group_id), self._ask_group, group_id)) if group_id else []

    async def _ask_groups(self, _: str) -> Any:
        answer = await self.client.usergroups_list()
        return {group["handle"]: group["id"] for group in answer["usergroups"]}

    async def _ask_group(self, group_id: str) -> Any:
        return set((await self.client.usergroups_users_list(usergroup=group_id))["users"])

    async def _members(self, channel: str) -> set[str]:
        members: set[str] = await self._keep(("channel", channel), self._ask_members, channel)
        return members

    async def _ask_members(self, channel: str) -> Any:
        def ask(cursor: str) -> Any:
            return self.client.conversations_members(channel=channel, limit=1000, cursor=cursor)

        return {member async for answer in pages(ask) for member in answer["members"]}

    async def _keep(self, key: tuple[str, str], ask: Callable[[str], Any], argument: str) -> Any:
        kept = self._kept.get(key)
        if kept is not None and self.clock() - kept[0] < KEEP_SECONDS:
            return kept[1]
        value = await self._asked_once(key, ask, argument)
        self._kept[key] = (self.clock(), value)
        if len(self._kept) > 5000:
            self._kept.clear()
        return value

    async def _asked_once(self, key: tuple[str, str], ask: Callable[[str], Any], argument: str) -> Any:
        """One call for all who wait for the same answer, as urgently."""
        joint = (key, current_urgency())
        while (asked := self._asked.get(joint)) is not None:
            await asyncio.wait((asked,))
            if not asked.cancelled():
                return asked.result()
        asked = self._asked[joint] = asyncio.get_running_loop().create_future()
        try:
            asked.set_result(await _told(ask, argument))
        except LookupFailed as error:
            asked.set_exception(error)
        finally:
            del self._asked[joint]
            asked.cancel()
        return asked.result()


def _name_of(user: dict[str, Any]) -> str | None:
    return (user.get("profile") or {}).get("display_name") or user.get("real_name") or user.get("name")


async def _told(ask: Callable[[str], Any], argument: str) -> Any:
    """Return Slack's answer. Raises `LookupFailed`."""
    try:
        return await ask(argument)
    except SlackApiError as error:
        code = code_of(error)
        if code in ("user_not_found", "users_not_found", "user_not_visible"):
            raise UnknownPerson(f"There is no Slack user {argument}.") from error
        raise LookupFailed(f"Slack did not answer about {argument}: {code or error}") from error
    except Exception as error:
        raise LookupFailed(f"Slack could not be reached about {argument}: {error}") from error


CHANNEL_SECONDS = 300.0
"""Seconds for which a channel's name is cached."""


class Channels:
    """Looks channels up in Slack."""

    def __init__(self, client: AsyncWebClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._found: dict[str, tuple[float, dict[str, Any]]] = {}
        self._ids: tuple[float, dict[str, str]] | None = None

    async def among(self, channel: str, entries: Collection[str] | None) -> bool:
        """True if a channel is one of those that a flow lists; None lists all. Raises `LookupFailed`."""
        if entries is None or channel in entries:
            return True
        named = {entry.removeprefix("#").lower() for entry in entries if entry.startswith("#")}
        return bool(named) and (await self.name(channel)).lower() in named

    async def name(self, channel: str) -> str:
        """The name of a channel, without `#`; empty for a direct message. Raises `LookupFailed`."""
        return str((await self._info(channel)).get("name") or "")

    async def public(self, channel: str) -> bool:
        """True if exactly the people of this workspace can read a channel; False if Slack does not tell."""
        try:
            found = await self._info(channel)
        except LookupFailed as error:
            log.info("%s: notes made there are not read elsewhere", error)
            return False
        closed = ("is_private", "is_im", "is_mpim", "is_ext_shared", "is_pending_ext_shared")
        return bool(found.get("is_channel")) and not any(found.get(name) for name in closed)

    async def readable(self, noted_in: str, here: str | None) -> bool:
        """True if notes of a channel may be read in another one: everybody can read the first, and only people of this
        workspace the second."""
        return await self.public(noted_in) and (here is None or not await self._shared(here))

    async def _shared(self, channel: str) -> bool:
        try:
            found = await self._info(channel)
        except LookupFailed as error:
            log.info("%s: notes made elsewhere are not read there", error)
            return True
        return bool(found.get("is_ext_shared") or found.get("is_pending_ext_shared"))

    async def _info(self, channel: str) -> dict[str, Any]:
        kept = self._found.get(channel)
        if kept is not None and self._clock() - kept[0] < CHANNEL_SECONDS:
            return kept[1]
        try:
            found: Any = (await self._client.conversations_info(channel=channel))["channel"]
        except Exception as error:
            raise LookupFailed(f"Slack did not say what channel {channel} is: {_reason(error)}") from error
        self._found[channel] = (self._clock(), dict(found))
        return self._found[channel][1]

    async def id_of(self, entry: str) -> str | None:
        """The id of a channel that the bot is in, by id or `#name`; None where it is in none of that name. Raises
        `LookupFailed`."""
        if not entry.startswith("#"):
            return entry
        wanted = entry[1:].lower()
        if self._ids is None or self._clock() - self._ids[0] >= CHANNEL_SECONDS or wanted not in self._ids[1]:
            try:
                found = await joined_channels(self._client)
                self._ids = (self._clock(), {name.lower(): channel for name, channel in found.items()})
            except Exception as error:
                raise LookupFailed(f"Slack did not say which channel {entry} is: {_reason(error)}") from error
        return self._ids[1].get(wanted)


def _reason(error: Exception) -> str:
    return str(error.response.get("error")) if isinstance(error, SlackApiError) else str(error)


KEPT = 2_000
MOST_SECONDS = 2.0
"""Seconds for which a display waits for links."""

Spot = tuple[str, str]
"""A message: its channel and its ts."""


class Links:
    """Permalinks."""

    def __init__(self, client: AsyncWebClient) -> None:
        self._client = client
        self._kept: OrderedDict[Spot, str] = OrderedDict()

    async def to(self, channel: str, ts: str) -> str:
        """The link to one message. Raises `LookupFailed`."""
        spot = (channel, ts)
        if spot not in self._kept:
            try:
                answer = await self._client.chat_getPermalink(channel=channel, message_ts=ts)
            except Exception as error:
                raise LookupFailed(f"Slack gave no link to a message in {channel}: {error}") from error
            self._kept[spot] = str(answer["permalink"])
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(spot)
        return self._kept[spot]

    async def those_known(self, spots: Iterable[Spot]) -> dict[Spot, str]:
        """The links to these messages, as far as Slack gives them in time. Never raises."""
        wanted = list(dict.fromkeys(spots))
        found: dict[Spot, str] = {}

        async def one(spot: Spot) -> None:
            try:
                found[spot] = await self.to(*spot)
            except LookupFailed as error:
                log.info("%s", error)

        try:
            async with asyncio.timeout(MOST_SECONDS):
                await asyncio.gather(*map(one, wanted))
        except TimeoutError:
            log.info("%d of %d links did not come in time", len(wanted) - len(found), len(wanted))
        return found
