"""`sayso gate agents`: asks people about the calls of Anthropic's Managed Agents that wait for a confirmation.

It looks at idle sessions again and again, and asks the gate about each call whose permission is `ask`. What people have decided
is sent back once, as a `user.tool_confirmation`: confirmations are read right before one is sent, and a sending whose end is not
known is not repeated before that. It never sends results of tools. A call that waits no longer was answered in the console, or
its session continued or ended: then the question closes.

Killed between the handing out and the sending, it asks people again, as every door.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from typing import Any

from anthropic import Anthropic, APIConnectionError, APIStatusError, NotFoundError, RateLimitError

from bot.gate.client import Client, NoGate, Refused
from bot.gate.hook import folder, read_record, write_record

_ALL_SECONDS = 60.0
"""After how long sessions are looked at too that seem unchanged."""
_CALLS = ("agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use")


class Agents:
    """The sessions of one agent, or of all agents that a key can see."""

    def __init__(self, gate: Client, api: Any, agent: str | None, tell: Callable[[str], None]) -> None:
        self._gate, self._api, self._tell = gate, api.beta.sessions, tell
        self._once = api.with_options(max_retries=0).beta.sessions
        """Sends without trying again."""
        self._filter = {"agent_id": agent} if agent else {}
        # Another key sees other sessions: what this one does not see waits there.
        seen = sha256(f"{api.api_key}\0{agent or ''}".encode()).hexdigest()[:32]
        self._file = os.path.join(folder(), "agents", f"{seen}.json")
        self._asked: dict[str, dict[str, Any]] = read_record(self._file) or {}
        """By the id of a call what was asked about it."""
        self._decided: dict[str, dict[str, Any]] = {}
        """Confirmations that may not have arrived."""
        self._sent: set[str] = set()
        self._refused: set[str] = set()
        """Calls that the gate refuses to ask about; that is told once, and tried again."""
        self._quiet: dict[str, Any] = {}
        """Time of the last change of sessions without waiting questions."""
        self._all = 0.0

    def look(self) -> None:
        """Look once at all sessions. Raises `NoGate` where there is no gate, and the errors of the SDK; what was not reached is
        looked at next time."""
        if time.monotonic() >= self._all:
            self._quiet, self._all = {}, time.monotonic() + _ALL_SECONDS
        waits: set[str] = set()
        missed: set[str] = set()
        for session in self._api.list(statuses=["idle"], **self._filter):
            if self._quiet.get(session.id) == session.updated_at:
                continue
            try:
                calls = list(self._waiting(session.id))
                for call in calls:
                    try:
                        self._decide(session.id, call)
                        self._refused.discard(call.id)
                    except Refused as error:
                        if call.id not in self._refused:
                            self._tell(f"{session.id}: not asked about {call.name}: {error}")
                        self._refused.add(call.id)
            except NotFoundError:
                continue  # it was deleted meanwhile
            except RateLimitError:
                raise
            except APIStatusError as error:
                self._tell(f"{session.id}: {error.message}")
                missed.add(session.id)
                continue
            waits.update(call.id for call in calls)
            if not calls:
                self._quiet[session.id] = session.updated_at
        for call_id, wanted in list(self._asked.items()):
            if call_id not in waits and wanted["session"] not in missed:
                with suppress(Refused):
                    self._gate.post("withdraw", **wanted)
                self._keep(call_id, None)

    def _waiting(self, session: str) -> Iterator[Any]:
        """The calls of a session that a person has to confirm, and nobody has."""
        events = self._api.events
        idle = next(iter(events.list(session, types=["session.status_idle"], order="desc", limit=1)), None)
        if idle is None or idle.stop_reason.type != "requires_action":
            return
        due = set(idle.stop_reason.event_ids)
        confirmed = {one.tool_use_id for one in events.list(session, types=["user.tool_confirmation"])}
        for call in events.list(session, types=list(_CALLS), order="desc"):
            # Others wait for a result, which is not a person's to give.
            asks = getattr(call, "evaluated_permission", None) == "ask"
            if asks and call.id in due and call.id not in confirmed | self._sent:
                yield call
            due.discard(call.id)
            if not due:
                return

    def _decide(self, session: str, call: Any) -> None:
        """Ask the gate about a call, and send what was decided."""
        server = getattr(call, "mcp_server_name", None)
        wanted = {
            "kind": "approval",
            "door": "agents",
            "session": session,
            "call": call.id,
            "tool": f"mcp__{server}__{call.name}" if server else call.name,
            "arguments": call.input,
            "machine": "Managed Agents",
            "place": session,
        }
        if call.id not in self._decided:
            self._keep(call.id, wanted)
            answer = self._gate.post("ask", **wanted)
            if answer["state"] not in ("allowed", "denied"):
                return
            by, why = ", ".join(answer.get("by") or ()) or "the gate", answer.get("reason") or ""
            told: dict[str, Any] = {
                "type": "user.tool_confirmation",
                "tool_use_id": call.id,
                "result": "allow",
            }
            if answer["state"] == "denied" or answer["arguments"] != call.input:
                told |= {"result": "deny", "deny_message": f"Denied by {by}. {why}".strip()}
            self._decided[call.id] = told
        told = self._decided[call.id]
        try:
            self._once.events.send(session, events=[told])
        except APIStatusError as error:
            if error.status_code < 500 and error.status_code != 429:
                del self._decided[call.id]  # it was refused, and did not count
            raise
        self._sent.add(call.id)
        del self._decided[call.id]
        self._keep(call.id, None)
        self._tell(f"{session}: {told['result']} for {wanted['tool']}")

    def _keep(self, call_id: str, wanted: dict[str, Any] | None) -> None:
        """Keep what is asked, so that a later process can close it."""
        if self._asked.get(call_id) == wanted:
            return
        self._asked.pop(call_id, None)
        if wanted is not None:
            self._asked[call_id] = wanted
        write_record(self._file, self._asked)


def watch(key: str, agent: str | None, every: float, *, once: bool, tell: Callable[[str], None]) -> None:
    """Look at the sessions, `once` or until a signal. Raises `NoGate` without a token, and `APIStatusError` for a key that
    counts for nothing."""
    agents = Agents(Client.configured(), Anthropic(api_key=key), agent, tell)
    while True:
        wait = every
        try:
            agents.look()
        except (NoGate, OSError, APIConnectionError) as error:
            tell(f"Could not be reached: {error}")
        except APIStatusError as error:
            if error.status_code in (401, 403):
                raise
            tell(error.message)
            after = error.response.headers.get("retry-after", "")
            wait = max(every, float(after) if after.isdecimal() else 0.0)
        if once:
            return
        time.sleep(wait)
