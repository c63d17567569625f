"""Requests of agents: kept once, started as sessions, and handed out once.

A request is found by what asks: the token, the agent's session, and the id of the call. While it is open, the same tool with the
same arguments in the same session joins it, so an agent that was killed and asks again under another id is not asked about
twice. An approval counts for one handing out, a row of the inbox with the session's id as its key; asked for the same call
after that, people are asked again, since it may have run.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal
from urllib.parse import quote

from msgspec import Struct

from bot.gate.outputs import outputs_schema
from bot.gate.rules import INPUTS, NAME, QUOTED, SCRIPTS, Decision, Rules, RulesFile, approval_flow
from bot.gate.tokens import Token, UnknownToken, counts
from bot.intents.request_grants import allows, terms_of
from bot.intents.session_rows import direct_row, note_to, root_row
from bot.outbound.notices import Notices
from bot.rendering.calls import REQUESTS
from bot.rendering.text import escape, one_line
from bot.start.starter import Starter, Wish
from bot.wire.users import Channels, LookupFailed, People
from engine.decide.agents import wide_grants
from engine.decide.agents.wide_grants import GRANT
from engine.decide.commands import Abort
from engine.decide.covered_nodes import digest
from engine.decide.request_edits import parts
from engine.decide.request_grants import acted_on
from engine.flow import Flow
from engine.flow.build import schema_of
from engine.flow.load import load_flow
from engine.journal.events import Event
from engine.journal.phases import ENDED
from engine.journal.records import Consumed, InboxItem, InboxRow, KeptRow
from engine.journal.state import Grant, State
from engine.language import timestamps
from engine.language.codec import Json, canonical, decode, encode
from engine.language.credentials import without_credentials
from engine.language.errors import KeptMoved, SaysoError, SessionEnded, StorageError
from engine.run.dispatcher import RowHandler
from engine.run.supervision import wait_at_most
from prompt_state.question_row import thread_key

log = logging.getLogger("sayso.gate")

REQUEST, ROOTED, NOTED = "gate.request", "gate.rooted", "gate.noted"
"""Kinds of inbox rows: what is asked, the message that its thread begins with, and what is only kept."""
MOST_OPEN = 10
"""Open requests of a token."""
MOST_NAME = 200
"""Characters of a tool's name, which is in the text of the question."""
RATE, RATE_SECONDS = 30, 60.0
"""New requests of a token within so many seconds."""
MOST_WAITING = 50
"""Requests of a token that are waited for at a time; the next ones are answered at once."""
PROPOSE_AFTER = 3
"""In so many sessions of an agent people allow the same call before a rule is suggested."""
_LOOK_SECONDS = 1.0
KEPT_SECONDS = 10 * 365 * 86400.0
"""Seconds for which the definition of a tool is kept, and the open requests of a token."""
_WORDS = 600
_BEGIN_SECONDS = 5.0
"""Seconds that a question which is to be closed may take to be asked."""
_ELSEWHERE = {"agents": "It was answered in the console, or its session continued without an answer."}
"""By door why a question is withdrawn."""
_UNEDITED = ("agents",)
"""Doors that send each call its own confirmation: of what was asked or nothing, as an edit would not arrive."""


class Refused(SaysoError):
    """A request that is none; says why."""

    code = "refused"


class Wanted(Struct, frozen=True):
    """Request of an agent: an `approval` of a call, a `question` for people, or a `flow` to run. `tool` is then the
    flow's name, and `arguments` are its inputs; those of a question are its text, choices, and form."""

    kind: Literal["approval", "question", "flow"]
    door: str
    session: str
    call: str
    tool: str
    arguments: dict[str, Json]
    reason: str = ""
    machine: str = ""
    place: str = ""
    interactive: bool = False
    listing: str = ""
    """The digest of the tool's definition, where a door knows it."""
    scripts: dict[str, Json] = {}
    """By path the `sha256` and the `size` of the scripts that a command runs, as the door reads them."""
    within: dict[str, Json] | None = None
    """The call of a tool that Claude Code makes, and its hook has asked about: its id (`call`), and its `arguments` to a server
    of sayso."""


class Standing(Struct, frozen=True):
    """State of a request: `open`, `allowed`, `denied`, or `done` with its outputs."""

    state: str
    session_id: str | None = None
    arguments: dict[str, Json] = {}
    outputs: Json = None
    reason: str = ""
    by: Sequence[str] = ()
    rule: tuple[int, str] = (0, "")
    """The number of the rule that it was asked under, and the digest of the file."""
    at: str = ""
    handed: str | None = None
    """Time at which it was handed out."""
    valid_seconds: float = 0.0
    pin: dict[str, Json] | None = None
    """The definition of a tool that is approved with it."""


@dataclass(eq=False, repr=False)
class Requests:
    """The requests of all agents."""

    notices: Notices
    people: People
    channels: Channels
    starter: Starter
    rules: RulesFile
    team: str
    now: Callable[[], str]
    taken: Callable[[], None]
    steady: Callable[[], float] = time.monotonic
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _waiting: Counter[str] = field(default_factory=Counter)

    def handlers(self) -> dict[str, RowHandler]:
        """By kind of row."""
        return {REQUEST: self.begin, ROOTED: self.rooted, NOTED: self.noted}

    # --- what doors ask ------------------------------------------------------------------------------------

    async def ask(
        self, token: Token, wanted: Wanted, seconds: float, gone: Callable[[], bool]
    ) -> dict[str, Json]:
        """The answer to a request, waited for so long, or `open`; nothing is handed out to a client that is `gone`. Raises `Refused`,
        `UnknownToken` where the token was revoked meanwhile, and the errors of `gate.yml` and the store: none of them is an
        allow."""
        if not wanted.tool.isprintable() or "`" in wanted.tool or len(wanted.tool) > MOST_NAME:
            raise Refused(f"a tool name has at most {MOST_NAME} printable characters")
        until = self.steady() + (seconds if self._waiting[token.id] < MOST_WAITING else 0.0)
        while True:
            async with self._asking:
                key = await self._request(token, wanted)
            if isinstance(key, dict):
                return key
            self._waiting[token.id] += 1
            try:
                standing = await self._settled(key, until, gone)
            finally:
                self._waiting[token.id] -= 1
            engine = self.notices.engine
            if not await engine.writer.call(counts, engine.store, token, self.now()):
                raise UnknownToken("This token was revoked or has expired.")
            if standing.state == "allowed" and not gone():
                call = _key("gate:call", token, wanted.door, wanted.session, wanted.call)
                if standing.handed is not None or not await self._hand_out(standing, call):
                    continue  # another door of the same session was quicker: this is another call
                if wanted.door == "claude":
                    # A hook has got an allow: the door that the call comes to next does not ask again.
                    handed = digest("call", {"tool": wanted.tool, "arguments": standing.arguments})
                    data: dict[str, Json] = {"tool": wanted.tool, "digest": handed, "by": list(standing.by)}
                    data["until"] = timestamps.after(standing.at, standing.valid_seconds)
                    noted = encode({**data, "rule": standing.rule[0], "rules": standing.rule[1]})
                    await self._keep(InboxItem(_key("gate:use", token, wanted.call), NOTED, noted))
            elif standing.state == "allowed":
                standing = Standing("open")
            return {
                "state": standing.state,
                "request": key,
                "arguments": standing.arguments,
                "outputs": standing.outputs,
                "reason": standing.reason,
                "by": list(standing.by),
            }

    async def look(self, token: Token, key: str, take: bool) -> dict[str, Json]:
        """Return the state of a request of this token. An approval is handed out only to `take` it, and once. Raises
        `Refused`."""
        standing, since = await self._own(token, key)
        told: dict[str, Json] = {"state": standing.state, "request": key, "since": since}
        told |= {"outputs": standing.outputs, "reason": standing.reason}
        if take and standing.state == "allowed":
            if self._is_usable(standing) and await self._hand_out(standing):
                return {**told, "arguments": standing.arguments}
            why = "It was handed out and may have run" if standing.handed else "It was allowed too long ago"
            told |= {"state": "denied", "reason": f"{why}. Make the same call again to ask people again."}
        return told

    async def cancel(self, token: Token, key: str) -> dict[str, Json]:
        """Close a request of this token that is open. Raises `Refused`."""
        await self._own(token, key)
        standing = await self._begun(key)
        if standing.state == "open" and standing.session_id is None:
            raise Refused("the request is not posted yet, so it cannot be cancelled: try again")
        if standing.state == "open":
            await self._close(token, standing, "The agent cancelled it.")
        return {}

    async def _own(self, token: Token, key: str) -> tuple[Standing, str]:
        """Return the state of a request of this token, and its time. Raises `Refused`."""
        row = await self.notices.stored(key)
        if row is None or row.kind != REQUEST or decode(row.payload).get("token") != token.id:
            raise Refused("there is no such request")
        standing = await self._standing(key)
        assert standing is not None
        return standing, row.received_at

    async def ran(self, token: Token, wanted: Wanted) -> dict[str, Json]:
        """A call has run. Where it is not what was allowed, people are told."""
        call = _key("gate:call", token, wanted.door, wanted.session, wanted.call)
        found, ours = (await self._last(call))[1], _digest(wanted)
        told = f"`{escape(one_line(wanted.tool, 80))}` of *{escape(token.agent)}*"
        alarm, key = None, None if found is None else found.get("request")
        standing = None if key is None else await self._standing(key)
        out = await self.notices.stored(f"gate:out:{standing.session_id}") if standing else None
        if out is None and wanted.interactive:
            await self.withdraw(token, wanted)  # it was allowed at the terminal
        elif found is None:
            alarm = f"{told} ran without asking the gate."
        elif key is None:
            if found["digest"] != ours or found.get("state") != "allowed":
                alarm = f"{told} ran with other arguments than a rule of `gate.yml` allowed."
        elif out is None or (handed := decode(out.payload)).get("digest") != ours:
            alarm = f"{told} ran, but something else was approved."
        elif handed.get("call") not in (None, call):
            alarm = f"{told} ran, but its approval was handed out for another call."
        if alarm is None:
            return {"alarm": False}
        text, key = f"🚨 {alarm} Please look at this agent.", f"gate:ran:{call}"
        log.error("%s", text)
        root = await self.notices.stored(f"{_thread(token.id, wanted.session)}:rooted")
        posted = decode(root.payload).get("posted") if root is not None else None
        said = direct_row(key, token.person, text)
        if posted:
            said = note_to(thread_key(self.team, posted["channel"], posted["ts"]), key, text)
        await self.notices.put(said)
        return {"alarm": True}

    async def withdraw(self, token: Token, wanted: Wanted) -> dict[str, Json]:
        """Close the question: it was answered elsewhere. The same call is asked about again."""
        ours = _digest(wanted)
        call = _key("gate:call", token, wanted.door, wanted.session, wanted.call)
        times, found = await self._last(call)
        key = found.get("request") if found is not None and found["digest"] == ours else None
        if key is None:
            return {"withdrawn": False}
        standing = await self._begun(key)
        ended = standing.state != "open" and not (wanted.interactive and standing.state == "denied")
        if ended or (standing.state == "open" and standing.session_id is None):
            return {"withdrawn": False}
        noted = encode({"digest": ours, "state": "withdrawn"})
        await self._keep(InboxItem(f"{call}:{times}", NOTED, noted))
        if standing.state == "open":
            why = _ELSEWHERE.get(wanted.door, "It was answered at the terminal.")
            await self._close(token, standing, why)
        return {"withdrawn": standing.state == "open"}

    async def _begun(self, key: str) -> Standing:
        """Return the state of a stored request, whose session may be just starting: it is waited for, for a while."""
        until = self.steady() + _BEGIN_SECONDS
        while True:
            standing = await self._standing(key)
            assert standing is not None, "it was stored"
            if standing.state != "open" or standing.session_id is not None or self.steady() >= until:
                return standing
            await asyncio.sleep(_LOOK_SECONDS / 5)

    async def _close(self, token: Token, standing: Standing, why: str) -> None:
        """End the session of an open request, unless people decide at this moment."""
        engine, session_id = self.notices.engine, str(standing.session_id)
        state = await engine.verified_state(session_id)
        place = {"user": token.person, "channel": (state.thread or {}).get("channel")}
        actor = await self.people.actor(place)
        with suppress(SessionEnded):
            await engine.apply(session_id, Abort(actor, why))

    async def _request(self, token: Token, wanted: Wanted) -> str | dict[str, Json]:
        """The key of the request that this is, which is stored then; or the answer of a rule. Raises `Refused`."""
        ours = _digest(wanted)
        call = _key("gate:call", token, wanted.door, wanted.session, wanted.call)
        times, known = await self._last(call)
        before = ""
        if known is not None:
            if known["digest"] != ours:
                raise Refused("this call was requested with other arguments")
            if known.get("request") is not None:
                standing = await self._standing(known["request"])
                changed = known.get("scripts", {}) != wanted.scripts
                usable = standing is not None and standing.handed is None and not self._is_stale(standing)
                if usable and not changed:
                    return str(known["request"])
                if standing is not None and standing.handed is not None:
                    before = f", which was allowed at {timestamps.told(standing.handed)} and may have run"
                if changed:
                    before += ", whose script has changed since the request"
                    standing = await self._begun(known["request"])
                    if standing.state == "open" and standing.session_id is not None:
                        await self._close(token, standing, "A script that it runs has changed.")
        rules = self.rules.read()
        decided = rules.decide(token.agent, wanted.tool, wanted.arguments)
        if wanted.kind != "approval":
            decided = Decision("ask", 0)
            if wanted.kind == "flow" and wanted.tool not in rules.document.flows:
                raise Refused(f"the flow `{wanted.tool}` is not listed in `flows` of gate.yml")
        pinned = await self._pinned(token, wanted)
        if not pinned and decided.kind == "allow":
            decided = rules.otherwise()
        noted: dict[str, Json] = {"digest": ours, "rule": decided.rule, "rules": rules.digest}
        by = ["gate.yml"]
        if decided.kind == "ask" and pinned and (used := await self._used(token, wanted, decided, rules)):
            by, decided = used, Decision("allow", decided.rule)
        bound_to: Json = [dict(decided.asking), wanted.listing, wanted.scripts]
        terms = terms_of(token.id, wanted.session, (wanted.machine, wanted.place), bound_to)
        grant = None
        if wanted.kind == "approval" and decided.kind == "ask" and pinned:
            grant = await self._granted(wanted, terms)
        if grant is not None:
            decided = Decision("allow", decided.rule)
            noted["grant"], by = grant.prompt_id, [str(one.get("name") or one.get("id")) for one in grant.by]
        if decided.kind != "ask":
            state = "allowed" if decided.kind == "allow" else "denied"
            if known != {**noted, "state": state}:
                await self._keep(InboxItem(f"{call}:{times}", NOTED, encode({**noted, "state": state})))
            log.info("%s: %s is %s by rule %s", token.agent, wanted.tool, state, decided.rule)
            return {
                "state": state,
                "arguments": wanted.arguments,
                "reason": decided.reason,
                "by": by,
            }
        key, standing = await self._current(_base(token, wanted, ours))
        items = [
            InboxItem(f"{call}:{times}", NOTED, encode({**noted, "request": key, "scripts": wanted.scripts}))
        ]
        if standing is None:
            slowed = await self._slowed(token, key)
            if slowed is not None:
                return {"state": "busy", "reason": slowed}
            payload = self._payload(token, wanted, decided, rules.digest, before)
            payload["about"] |= {"agent": token.agent, "grant": terms}
            if not pinned and wanted.listing:
                payload["about"]["before"] += ", whose definition has changed since it was first listed"
                payload["pin"] = {"id": _pin(token, wanted), "listing": wanted.listing}
            elif not pinned:
                payload["about"]["before"] += ", whose definition was not listed and may have changed"
            items.append(InboxItem(key, REQUEST, encode({**payload, "place": rules.document.channel})))
        await self._keep(*items)
        return key

    async def _granted(self, wanted: Wanted, terms: Mapping[str, Json]) -> Grant | None:
        """The grant by which a call is allowed, once its use is recorded; None where people are asked."""
        engine = self.notices.engine
        while True:
            rows = await engine.writer.call(engine.store.kept.rows, GRANT, list(terms["scopes"].values()))
            known = wide_grants.current(rows, self.now())
            grant = next((one for one in known if allows(one, terms, wanted.tool, wanted.arguments)), None)
            if grant is None:
                return None
            try:
                await self.notices.put(wide_grants.row_of(grant.prompt_id, wide_grants.after_use(grant)))
            except KeptMoved:
                continue  # it was used or taken back meanwhile
            return grant

    def _payload(
        self, token: Token, wanted: Wanted, decided: Decision, rules: str, before: str
    ) -> dict[str, Json]:
        """Return the stored form of a request. Raises `FlowError` for an invalid question."""
        where = " in ".join(one_line(part, 120) for part in (wanted.machine, wanted.place) if part)
        who = token.agent + (f" on {where}" if where else "")
        why = one_line(wanted.reason, _WORDS)
        quoted = QUOTED if why else ""
        scripts = [
            one_line(f"{one_line(path, 120)} ({told['size']} bytes, SHA-256 {told['sha256']})", 240)
            for path, told in wanted.scripts.items()
        ]
        if scripts:
            quoted = SCRIPTS + quoted
        flow: Flow | None = None
        editable = wanted.arguments if wanted.kind == "approval" and wanted.door not in _UNEDITED else {}
        if wanted.kind == "approval":
            flow = approval_flow(decided.asking, quoted, decided.rule, editable)
        elif wanted.kind == "question":
            flow = question_flow(wanted.arguments, quoted)
        return {
            "token": token.id,
            "agent": token.agent,
            "person": token.person,
            "kind": wanted.kind,
            "session": wanted.session,
            "tool": wanted.tool,
            "arguments": wanted.arguments,
            "flow": flow.text if flow is not None else None,
            "about": {
                "who": who,
                "why": why,
                "before": before,
                "scripts": ", ".join(scripts),
                "rules": rules,
                "rule": decided.rule,
                "shown": {part.name: part.shown for part in parts(editable)},
            },
            "validSeconds": decided.valid_seconds,
        }

    async def _last(self, call: str) -> tuple[int, dict[str, Json] | None]:
        """Return the number of times that a call was asked about again, and the record of the last time."""
        times, row = await self._latest(call)
        return times, None if row is None else decode(row.payload)

    async def _latest(self, base: str) -> tuple[int, InboxRow | None]:
        """The number of rows `base:0`, `base:1` and so on, and the last one. There may be many: they are looked for in steps that
        double, and between the last two of these by halves."""
        last, low, high = None, 0, 1
        while (row := await self.notices.stored(f"{base}:{high - 1}")) is not None:
            last, low, high = row, high, 2 * high
        high -= 1
        while low < high:
            middle = (low + high) // 2
            row = await self.notices.stored(f"{base}:{middle}")
            last, low, high = (last, low, middle) if row is None else (row, middle + 1, high)
        return low, last

    async def _current(self, base: str) -> tuple[str, Standing | None]:
        """The key under which something is asked now, and how that stands. Only the last one can be usable: another is begun once
        one is not, and that is for good."""
        number, row = await self._latest(base)
        standing = None if row is None else await self._standing(row.key)
        if row is not None and standing is not None and self._is_usable(standing):
            return row.key, standing
        return f"{base}:{number}", None

    def _is_usable(self, standing: Standing) -> bool:
        return standing.state == "open" or (
            standing.state == "allowed" and standing.handed is None and not self._is_stale(standing)
        )

    def _is_stale(self, standing: Standing) -> bool:
        """True if it was approved too long ago to be handed out."""
        approved = standing.state == "allowed"
        return approved and timestamps.after(standing.at, standing.valid_seconds) < self.now()

    async def _slowed(self, token: Token, key: str) -> str | None:
        """Why nothing more may be asked now; the person behind the agent is told once an hour. Places and times are stored: a
        restart forgets none."""
        now, kept_id = self.now(), f"gate-places:{token.id}"
        row = await self._kept(kept_id)
        known = {"open": [], "asked": []} if row is None else decode(row.body)
        since = timestamps.after(now, -RATE_SECONDS)
        mine, recent = known["open"], [at for at in known["asked"] if since < at <= now]
        if len(mine) >= MOST_OPEN:
            standings = [(other, await self._standing(other)) for other in mine]
            mine = [other for other, standing in standings if standing and standing.state == "open"]
        if len(mine) < MOST_OPEN and len(recent) < RATE:
            body = encode({"open": list(dict.fromkeys([*mine, key])), "asked": [*recent, now]})
            try:
                await self._put(row, kept_id, "gate-places", body)
            except KeptMoved:  # by another bot of this store
                return await self._slowed(token, key)
            return None
        many = (
            f"{MOST_OPEN} of its requests are open"
            if len(mine) >= MOST_OPEN
            else f"it asked {RATE} times in a minute"
        )
        text = (
            f"🐢 *{escape(token.agent)}* sends too many requests: {many}. More requests are refused for now."
        )
        await self.notices.put(direct_row(f"gate:slow:{token.id}:{self.now()[:13]}", token.person, text))
        return f"Too many requests: {many}. Wait until people have answered, then ask again."

    async def _keep(self, *items: InboxItem) -> bool:
        """Store rows, all of them or none. True if the first one is new."""
        stored = await self.notices.engine.writer.ingest(items, self.now())
        self.taken()
        return stored[0] is not None

    async def _hand_out(self, standing: Standing, call: str | None = None) -> bool:
        """Hand an approval out once, for a call if it is known; the second caller gets False."""
        approved = digest("call", {"tool": standing.outputs["tool"], "arguments": standing.arguments})
        key, payload = f"gate:out:{standing.session_id}", encode({"digest": approved, "call": call})
        ours = await self._keep(InboxItem(key, NOTED, payload, session_id=standing.session_id))
        if ours and standing.pin is not None:
            await self._pin(str(standing.pin["id"]), str(standing.pin["listing"]))
        if ours:
            await self._propose(str(standing.session_id), standing.outputs["tool"], standing.arguments)
        return ours

    async def _used(self, token: Token, wanted: Wanted, decided: Decision, rules: Rules) -> list[str] | None:
        """Return the people who allowed this call already when the hook asked: the same call, under the same rule, while their
        approval counts, and once."""
        if wanted.within is None or wanted.kind != "approval":
            return None
        row = await self.notices.stored(_key("gate:use", token, str(wanted.within["call"])))
        if row is None:
            return None
        data, ours = decode(row.payload), _digest(wanted)
        if wanted.door == "mcp" and data["tool"].endswith("__request_approval"):
            # The hook was asked about a call of ours, whose arguments are this request.
            asked = wanted.within["arguments"]
            if asked["tool"] != wanted.tool or canonical(asked["arguments"]) != canonical(wanted.arguments):
                return None
            ours = digest("call", {"tool": data["tool"], "arguments": asked})
        bound = (data["digest"], data["rule"], data["rules"])
        if bound != (ours, decided.rule, rules.digest) or data.get("until", "") < self.now():
            return None
        first = await self._keep(InboxItem(f"gate:used:{row.key}", NOTED, encode({})))
        return list(data["by"]) if first else None

    async def _propose(self, session_id: str, tool: str, arguments: Mapping[str, Json]) -> None:
        """Suggest a rule, once, where people allowed the same call in several sessions of an agent."""
        state = await self.notices.engine.verified_state(session_id)
        about, thread = (state.inputs or {})["about"], str((state.thread or {})["key"])
        when = {"agent": about["agent"], "tool": tool, "arguments": acted_on(tool, arguments)}
        rule = encode({"when": when, "then": "allow"}).decode()
        shows = len(rule) <= _WORDS and without_credentials(rule) == rule
        edited = canonical(arguments) != canonical((state.inputs or {})["arguments"])
        if edited or about.get("scripts") or {"*", "`"} & {*rule} or not shows:
            return  # a rule of this text would allow more than these calls, or is not to be posted
        same = f"gate:same:{_hash(rule)}"
        for number in range(PROPOSE_AFTER):
            key, known = f"{same}:{number}", await self.notices.stored(f"{same}:{number}")
            if known is not None and decode(known.payload)["thread"] == thread:
                return
            if known is None:
                await self._keep(InboxItem(key, NOTED, encode({"thread": thread})))
                break
        if number == PROPOSE_AFTER - 1:
            text = f"💡 This was allowed in {PROPOSE_AFTER} sessions of *{escape(about['agent'])}*. To allow it without asking, put this into `{NAME}`:"
            await self.notices.put(note_to(thread, f"{same}:told", f"{text}\n```{escape(f'- {rule}')}```"))

    async def _pinned(self, token: Token, wanted: Wanted) -> bool:
        """True if a tool is defined as it was when its definition was first seen, or last approved. A hook knows no definitions; a
        proxy that has seen none before a call may be before a server that hides one."""
        if not wanted.listing and wanted.door != "proxy":
            return True
        row = await self._kept(_pin(token, wanted))
        if row is None and wanted.listing:
            await self._pin(_pin(token, wanted), wanted.listing)
        return row is None or decode(row.body)["listing"] == wanted.listing

    async def _pin(self, kept_id: str, listing: str) -> None:
        row = await self._kept(kept_id)
        await self._put(row, kept_id, "gate-pin", encode({"listing": listing}))

    async def _kept(self, kept_id: str) -> KeptRow | None:
        engine = self.notices.engine
        found: KeptRow | None = await engine.writer.call(engine.store.kept.row, kept_id)
        return found

    async def _put(self, before: KeptRow | None, kept_id: str, kind: str, body: bytes) -> None:
        """Store a kept row instead of the one before. Raises `KeptMoved`."""
        rev, until = 1 if before is None else before.rev + 1, timestamps.after(self.now(), KEPT_SECONDS)
        await self.notices.put(KeptRow(kept_id, kind, kept_id, rev, until, body))

    async def _settled(self, key: str, until: float, gone: Callable[[], bool]) -> Standing:
        """Return the state of a request once it is closed, the time is over, or nobody waits any more."""
        while True:
            news = self._news
            standing = await self._standing(key)
            assert standing is not None, "it was stored"
            left = until - self.steady()
            if standing.state != "open" or left <= 0 or gone():
                return standing
            await wait_at_most(min(left, _LOOK_SECONDS), news)

    def heard(self, state: State, events: Sequence[Event]) -> None:
        """A session took a step."""
        if state.ended:
            self._news.set()
            self._news = asyncio.Event()

    async def _standing(self, key: str) -> Standing | None:
        """Return the state of a request; None if it is not stored. Unreadable ones are denied."""
        row = await self.notices.stored(key)
        if row is None:
            return None
        data = decode(row.payload)
        if row.outcome is None:
            return Standing("open")
        if row.outcome != "started" or row.session_id is None:
            said = decode(row.result) if row.result else {}
            return Standing(
                "denied", reason=str(said.get("message") or f"The request was not posted ({row.outcome}).")
            )
        engine = self.notices.engine
        head = await engine.writer.call(engine.store.sessions.head, row.session_id)
        if head is None or head.quarantined is not None:
            return Standing("denied", row.session_id, reason="Its records are missing or damaged.")
        if head.status not in ENDED:
            return Standing("open", row.session_id)
        state = await engine.verified_state(row.session_id)
        if data["kind"] != "approval":
            if state.status != "complete":
                return Standing("denied", row.session_id, reason=_why(state))
            outputs = {path: run.output for path, run in state.nodes.items() if run.status == "completed"}
            told = outputs["answer"] if data["kind"] == "question" else outputs
            return Standing("done", row.session_id, outputs=told)
        asked = next((one for one in state.prompts.values() if one.path == "decision"), None)
        decision, call = state.nodes.get("decision"), state.nodes.get("call")
        said = (decision and decision.output) or {}
        by = [str(one.get("name") or one.get("id")) for one in said.get("by") or ()]
        if call is None or call.status != "completed" or asked is None or asked.at is None:
            reason = said.get("reason") or _why(state)
            return Standing("denied", row.session_id, reason=reason, by=by)
        out = await self.notices.stored(f"gate:out:{row.session_id}")
        if out is None and self._escapes(state, data["agent"], call.output["arguments"]):
            why = f"it was changed into a call that another rule of `{NAME}` covers"
            text, thread = f"⛔ This was not handed out: {why}.", str((state.thread or {})["key"])
            await self.notices.put(note_to(thread, f"gate:escaped:{row.session_id}", text))
            return Standing("denied", row.session_id, reason=f"Not handed out: {why}.", by=by)
        return Standing(
            "allowed",
            row.session_id,
            call.output["arguments"],
            call.output,
            by=by,
            at=asked.at,
            handed=None if out is None else out.received_at,
            rule=(data["about"]["rule"], data["about"]["rules"]),
            valid_seconds=float(data["validSeconds"]),
            pin=data.get("pin"),
        )

    def _escapes(self, state: State, agent: str, arguments: dict[str, Json]) -> bool:
        """True if people changed a call into one that they were not asked about: another rule is. Raises `FlowError`."""
        asked = (state.inputs or {})["arguments"]
        if canonical(arguments) == canonical(asked):
            return False
        rules, tool = self.rules.read(), (state.inputs or {})["tool"]
        now = rules.decide(agent, tool, arguments)
        return now.kind == "deny" or (now.kind == "ask" and now.rule != rules.decide(agent, tool, asked).rule)

    def flows(self) -> list[Json]:
        """The flows that agents may run, as `gate.yml` lists them. Raises `FlowError`."""
        served = self.starter.library.refresh()
        return [
            {
                "name": name,
                "description": flow.description,
                "inputs": schema_of(flow.inputs),
                "outputs": outputs_schema(flow),
            }
            for name in self.rules.read().document.flows
            if (flow := served.get(name)) is not None
        ]

    # --- what becomes of rows ------------------------------------------------------------------------------

    async def noted(self, row: InboxRow) -> bool:
        """It is kept, and nothing follows."""
        return await self.notices.consume(row, "noted")

    async def rooted(self, row: InboxRow) -> bool:
        """The message stands with which an agent's thread begins: what waits for it is tried again."""
        await self.notices.consume(row, "rooted")
        self.taken()
        return True

    async def begin(self, row: InboxRow) -> bool:
        """Start the session of a request, in the thread of its agent's session. Raises `LookupFailed`, `StorageError`."""
        data = decode(row.payload)
        channel = await self.channels.id_of(data["place"])
        if channel is None:
            return await self._refuse(row, f"The bot is not in the channel {data['place']} of gate.yml.")
        thread = _thread(data["token"], data["session"])
        root = await self.notices.stored(f"{thread}:rooted")
        if root is None:
            then: dict[str, Json] = {
                "kind": ROOTED,
                "key": f"{thread}:rooted",
                "payload": {"team": self.team, "channel": channel},
            }
            text = f"🤖 *{escape(data['agent'])}* works for <@{data['person']}>. Its requests are in this thread."
            await self.notices.put(root_row(f"{thread}:root", channel, text, then))
            return False
        posted = decode(root.payload).get("posted")
        if posted is None:
            return await self._refuse(row, f"Slack refused the message in {data['place']}.")
        where = thread_key(self.team, posted["channel"], posted["ts"])
        if data["kind"] == "flow":
            about = {"user": data["person"], "team": self.team, "channel": posted["channel"]}
            wish = Wish(data["tool"], data["arguments"], about)
            return await self.starter.start(row, wish, posted["ts"], lambda refusal: ())
        try:
            about = {"user": data["person"], "channel": posted["channel"]}
            actor = await self.people.profiled(await self.people.actor(about))
            await self.notices.engine.start(
                load_flow(data["flow"], "gate.yml"),
                {name: data[name] for name in INPUTS},
                actor=actor,
                thread={
                    "team": self.team,
                    "channel": posted["channel"],
                    "threadTs": posted["ts"],
                    "key": where,
                    "root": f"{thread}:root",
                },
                consumed=[Consumed(row.id, "started")],
            )
        except (LookupFailed, StorageError):
            raise
        except SaysoError as error:
            return await self._refuse(row, str(error))
        return True

    async def _refuse(self, row: InboxRow, why: str) -> bool:
        return await self.notices.consume(row, "refused", result=encode({"error": "refused", "message": why}))


def question_flow(asked: Mapping[str, Json], quoted: str) -> Flow:
    """The flow of a question: a `message` with `choices`, with a `form`, or for a text. Raises `Refused`, `FlowError`."""
    given = {name: asked[name] for name in ("choices", "form") if asked.get(name) is not None}
    written = json.dumps(given)
    if "{{" in written or "{%" in written:
        raise Refused("choices and forms of a question cannot contain expressions")
    message = (
        "*{{ inputs.about.who }}*, for {{ session.requester.name }}, asks: {{ inputs.arguments.message }}"
        + quoted
    )
    node: dict[str, Json] = {"id": "answer", "type": "ask", "with": {"message": message, **given}}
    return load_flow(json.dumps({"flow": REQUESTS[1], "inputs": INPUTS, "nodes": [node]}), "question")


def _why(state: State) -> str:
    """Why a session gave no answer."""
    if state.status == "aborted":
        return "It was cancelled, or answered elsewhere."
    return str((state.error or {}).get("message") or "People said no.")


def _digest(wanted: Wanted) -> str:
    return digest("call", {"tool": wanted.tool, "arguments": wanted.arguments})


def _hash(*parts: str) -> str:
    return sha256("\0".join(map(quote, parts)).encode()).hexdigest()[:32]


def _key(name: str, token: Token, *parts: str) -> str:
    return f"{name}:{_hash(token.id, *parts)}"


def _base(token: Token, wanted: Wanted, ours: str) -> str:
    """Return the common key of similar requests. Flows, and calls that are each confirmed by themselves, are similar under one id
    only."""
    one_by_one = wanted.kind == "flow" or wanted.door in _UNEDITED
    more = [wanted.call] if one_by_one else [wanted.listing, canonical(wanted.scripts).decode()]
    return _key("gate:request", token, wanted.kind, wanted.session, ours, *more)


def _pin(token: Token, wanted: Wanted) -> str:
    """The id under which the definition of a tool is kept."""
    return _key("gate:pin", token, wanted.tool)


def _thread(token_id: str, session: str) -> str:
    return f"gate:thread:{_hash(token_id, session)}"
