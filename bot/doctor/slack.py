"""Checks against Slack itself: each kind of conversation can be read, and what flows name is there. Only reads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bot.doctor.findings import Check
from bot.wire.client import Permanent, classify, joined_channels
from engine.flow import Flow
from engine.language.codec import Json

_KINDS = {
    "public_channel": ("threads", "public channels", "channels"),
    "private_channel": ("private threads", "private channels", "groups"),
    "im": ("direct messages", "direct messages", "im"),
}
_NO_MESSAGE = ("thread_not_found", "message_not_found")
_MISSED = "The bot would miss messages that people write there while it is down."
Named = dict[str, set[str]]
"""Names, with the flows (or settings) that use them."""


# --- reading -----------------------------------------------------------------------------------------------


async def check_reading(bot: Any) -> AsyncIterator[Check]:
    """Check that each kind of conversation can be listed and read, since missed messages are found only that way."""
    seen = 0
    for kind, (name, words, scope) in _KINDS.items():
        try:
            found = (await bot.users_conversations(types=kind, limit=1))["channels"]
            if found:
                await _read_thread(bot, found[0]["id"])
        except Exception as error:
            hint = f"Add {scope}:read and {scope}:history and reinstall the app. {_MISSED}"
            yield Check(name, "fail", f"{words} cannot be read: {classify(error)}", hint)
            continue
        seen += len(found) if kind != "im" else 0
        yield Check(name, "ok", f"{words} can be read" if found else f"the bot is not in any {words}")
    if not seen:
        yield Check("invited", "warn", "the bot is not in any channel", "Invite it: /invite @sayso")


async def _read_thread(bot: Any, channel: str) -> None:
    """Read one thread. A message that does not exist shows as well that reading is allowed."""
    history = await bot.conversations_history(channel=channel, limit=1)
    messages = history["messages"]
    ts = messages[0]["ts"] if messages else "1000000000.000001"
    try:
        await bot.conversations_replies(channel=channel, ts=ts, limit=1)
    except Exception as error:
        fault = classify(error)
        if not (isinstance(fault, Permanent) and fault.reason in _NO_MESSAGE):
            raise


# --- what flows name ---------------------------------------------------------------------------------------


def named_in(flows: Iterable[Flow], others: Mapping[str, Iterable[str]]) -> tuple[Named, Named]:
    """The channels and the people that flows name, and those of `others` (a setting → its entries). What is only known
    when a flow runs is left out. Pure."""
    channels: Named = {}
    people: Named = {}
    for flow in flows:
        where = f"flow {flow.name}"
        for entry in _entries(flow):
            _add(
                channels if (entry.startswith(("#", "C", "G")) and "@" not in entry) else people, entry, where
            )
    for where, entries in others.items():
        for entry in entries:
            _add(people, entry, where)
    return channels, people


def _add(named: Named, entry: str, where: str) -> None:
    if "{{" not in entry and entry not in ("requester", "channel", "dm") and not entry.startswith("local:"):
        named.setdefault(entry.removeprefix("dm:"), set()).add(where)


def _entries(flow: Flow) -> Iterator[str]:
    yield from flow.channels or ()
    yield from flow.allowed_to_start or ()
    for trigger in flow.triggers:
        yield from trigger.channels or ()
        yield from [trigger.channel] if trigger.channel else []
    for nodes in flow.lists.values():
        for node in nodes.nodes:
            for rule in node.agent.rules if node.agent is not None else ():
                yield from rule.approvers or ()
                yield from _escalated(rule.clocks)
            if node.spec.mode in ("prompt", "delivery"):
                for field in ("approvers", "who", "to", "ephemeral_to"):
                    yield from _texts(node.config.get(field))
                yield from _escalated(node.config)


def _escalated(config: Mapping[str, Json]) -> Iterator[str]:
    for step in _listed(config.get("escalate")):
        yield from _texts(step.get("to") if isinstance(step, dict) else None)


def _texts(value: Json) -> list[str]:
    values = [value] if isinstance(value, str) else _listed(value)
    return [text for text in values if isinstance(text, str)]


def _listed(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


async def check_named(
    bot: Any, flows: Sequence[Flow], others: Mapping[str, Iterable[str]]
) -> AsyncIterator[Check]:
    """Each channel that is named is one that the bot is in; each person and group is somebody."""
    channels, people = named_in(flows, others)
    problems = 0
    for listing, found in ((_channels, channels), (_people, people)):
        async for check in listing(bot, found):
            problems += 1
            yield check
    if not problems and (channels or people):
        total = len(channels) + len(people)
        yield Check("named", "ok", f"all {total} named channels, people and groups exist")


async def _channels(bot: Any, named: Named) -> AsyncIterator[Check]:
    if not named:
        return
    try:
        joined = await joined_channels(bot)
        mine = {*joined.values(), *(f"#{name}".lower() for name in joined)}
    except Exception as error:
        yield Check("channels", "fail", f"the bot's channels cannot be listed: {classify(error)}")
        return
    for entry in sorted(named):
        wanted = entry.lower() if entry.startswith("#") else entry
        if wanted not in mine:
            text = f"{entry}, named by {_where(named[entry])}: the bot is not in this channel"
            yield Check("channels", "warn", text, "Invite it there (/invite @sayso), or correct the name.")


async def _people(bot: Any, named: Named) -> AsyncIterator[Check]:
    groups: dict[str, str] | None = None
    problem: str | None
    for entry in sorted(named):
        try:
            if entry.startswith("@"):
                if groups is None:
                    listed = (await bot.usergroups_list())["usergroups"]
                    groups = {f"@{group['handle']}".lower(): str(group["id"]) for group in listed}
                group_id, problem = groups.get(entry.lower()), "there is no such user group"
                if group_id is not None:
                    users = (await bot.usergroups_users_list(usergroup=group_id))["users"]
                    problem = None if users else "this user group is empty"
            else:
                problem = await _person_problem(bot, entry)
        except Exception as error:
            problem = f"cannot be looked up: {classify(error)}"
        if problem is not None:
            hint = "Correct it; otherwise nobody could answer their questions."
            yield Check("people", "warn", f"{entry}, named by {_where(named[entry])}: {problem}", hint)


async def _person_problem(bot: Any, entry: str) -> str | None:
    try:
        if "@" in entry:
            user = (await bot.users_lookupByEmail(email=entry))["user"]
        else:
            user = (await bot.users_info(user=entry))["user"]
    except Exception as error:
        fault = classify(error)
        if isinstance(fault, Permanent) and fault.reason in ("users_not_found", "user_not_found"):
            return "not a member of the workspace"
        raise
    return "deactivated" if user.get("deleted") else None


def _where(flows: Iterable[str]) -> str:
    return ", ".join(sorted(flows))
