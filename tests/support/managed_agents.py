"""A local server that speaks the sessions API of Managed Agents, and refuses what the real one refuses.

Sessions are set by a test. A session that waits for confirmations continues once the last one came, and tells the rest after each.
It checks what is sent with the types of the SDK, and breaks where it is told to.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from anthropic.types.beta.sessions.beta_managed_agents_event_params import BetaManagedAgentsEventParams
from pydantic import TypeAdapter, ValidationError

from tests.support.listening import listening

KEY = "sk-ant-managed-0123456789"
BETA = "managed-agents-2026-04-01"
_SENT: TypeAdapter[Any] = TypeAdapter(BetaManagedAgentsEventParams)
_WHEN = "2026-11-26T10:00:00Z"


class Session:
    """A session with its events, oldest first."""

    def __init__(self, session_id: str, agent: str) -> None:
        self.id, self.agent, self.status, self.archived = session_id, agent, "idle", False
        self.events: list[dict[str, Any]] = []
        self.changes = 0

    def add(self, kind: str, **fields: Any) -> str:
        """Add an event; its id."""
        self.changes += 1
        event_id = f"sevt_{self.id}_{self.changes}"
        self.events.append({"id": event_id, "type": kind, "processed_at": _WHEN, **fields})
        return event_id

    def call(self, command: str, permission: str | None = "ask", **fields: Any) -> str:
        """Add a call of a tool; its id."""
        given = {"name": "bash", "input": {"command": command}, "evaluated_permission": permission, **fields}
        return self.add("agent.mcp_tool_use" if "mcp_server_name" in fields else "agent.tool_use", **given)

    def wait_for(self, *ids: str) -> None:
        """Become idle until these events are answered."""
        self.status = "idle"
        self.add("session.status_idle", stop_reason={"type": "requires_action", "event_ids": list(ids)})

    def end_turn(self) -> None:
        """Become idle, waiting for nobody."""
        self.status = "idle"
        self.add("session.status_idle", stop_reason={"type": "end_turn"})

    def due(self) -> list[str]:
        """The events that it waits for."""
        last = next((one for one in reversed(self.events) if one["type"] == "session.status_idle"), None)
        reason = last["stop_reason"] if last and self.status == "idle" else {}
        return list(reason.get("event_ids", ()))

    def confirmations(self) -> list[dict[str, Any]]:
        """What was confirmed, by whomever."""
        return [event for event in self.events if event["type"] == "user.tool_confirmation"]

    def confirm(self, event: dict[str, Any]) -> None:
        """Take a confirmation, and continue once there is nothing left to confirm. Raises `ValueError` where it is none."""
        call = next((one for one in self.events if one["id"] == event["tool_use_id"]), None)
        if call is None or call.get("evaluated_permission") != "ask":
            raise ValueError(f"tool_use_id: {event['tool_use_id']} asks for no confirmation")
        due = self.due()
        if call["id"] not in due:
            raise ValueError(f"tool_use_id: {call['id']} is not pending")
        if event.get("deny_message") is not None and event["result"] != "deny":
            raise ValueError("deny_message: only allowed when result is 'deny'")
        self.add(**{"kind": event["type"], **{key: event[key] for key in event if key != "type"}})
        due.remove(call["id"])
        if due:
            self.wait_for(*due)
        else:
            self.status = "running"
            self.add("session.status_running")

    def told(self) -> dict[str, Any]:
        """It as the API tells it."""
        return {
            "id": self.id,
            "type": "session",
            "status": self.status,
            "agent": {"id": self.agent, "type": "agent", "name": "Deployer", "version": 1},
            "updated_at": f"2026-11-26T10:00:{self.changes % 60:02}Z",
            "archived_at": _WHEN if self.archived else None,
        }


class ManagedAgents:
    """The server; `url` is what `ANTHROPIC_BASE_URL` is set to."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.failures: deque[tuple[str, int, dict[str, str]]] = deque()
        """Of the next requests of a method: the status and headers. `LOST` is taken, and answered with 500; `EVENTS` is the next
        reading of a session's events."""
        self.refused: list[str] = []
        self.asked = asyncio.Event()
        """Set with each request that is answered."""
        self.url = ""

    def session(self, name: str = "one", agent: str = "agent_1") -> Session:
        """A new session."""
        found = self.sessions[f"sesn_{name}"] = Session(f"sesn_{name}", agent)
        return found

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one request."""
        try:
            return await self._answer(request)
        finally:
            self.asked.set()

    async def _answer(self, request: web.Request) -> web.Response:
        if KEY not in (request.headers.get("x-api-key"), request.headers.get("authorization", "")[7:]):
            return _error(401, "authentication_error", "invalid x-api-key")
        lost = False
        reads = "EVENTS" if request.method == "GET" and "session" in request.match_info else ""
        if self.failures and self.failures[0][0] in (request.method, reads, "LOST"):
            kind, status, headers = self.failures[0]
            lost = kind == "LOST" and request.method == "POST"
            if lost or kind != "LOST":
                self.failures.popleft()
            if kind != "LOST":
                return _error(status, "api_error", "told to", headers)
        try:
            if BETA not in request.headers.get("anthropic-beta", "").split(","):
                raise ValueError(f"anthropic-beta: {BETA} is required")
            answer = await self._answered(request)
        except (ValueError, ValidationError, KeyError) as error:
            self.refused.append(str(error))
            return _error(400, "invalid_request_error", str(error))
        except LookupError as error:
            return _error(404, "not_found_error", str(error))
        return _error(500, "api_error", "told to") if lost else web.json_response(answer)

    async def _answered(self, request: web.Request) -> dict[str, Any]:
        if "session" not in request.match_info:
            return self._page(request, self._listed(request))
        session = self.sessions.get(request.match_info["session"])
        if session is None:
            raise LookupError("no such session")
        if request.method == "GET":
            types = request.query.getall("types[]", [])
            found = [event for event in session.events if not types or event["type"] in types]
            if request.query.get("order") == "desc":
                found.reverse()
            return self._page(request, found)
        if session.archived:
            raise ValueError("the session is archived")
        sent = (await request.json())["events"]
        for event in sent:
            _SENT.validate_python(event)
            if event["type"] != "user.tool_confirmation":
                raise ValueError(f"events: {event['type']} is not a door's to send")
            session.confirm(event)
        return {"data": sent}

    def _listed(self, request: web.Request) -> list[dict[str, Any]]:
        statuses, agent = request.query.getall("statuses[]", []), request.query.get("agent_id")
        return [
            session.told()
            for session in self.sessions.values()
            if not session.archived and session.status in statuses and agent in (None, session.agent)
        ]

    def _page(self, request: web.Request, found: list[dict[str, Any]]) -> dict[str, Any]:
        """Two at a time: whoever does not turn the page misses the rest."""
        start, limit = int(request.query.get("page", 0)), min(int(request.query.get("limit", 2)), 2)
        more = start + limit if len(found) > start + limit else None
        return {"data": found[start : start + limit], "next_page": None if more is None else str(more)}


def _error(status: int, kind: str, message: str, headers: dict[str, str] | None = None) -> web.Response:
    body = {"type": "error", "error": {"type": kind, "message": message}}
    return web.Response(
        status=status, text=json.dumps(body), content_type="application/json", headers=headers or {}
    )


@asynccontextmanager
async def managed_agents() -> AsyncIterator[ManagedAgents]:
    """A server that runs meanwhile."""
    server = ManagedAgents()
    app = web.Application()
    app.add_routes(
        [
            web.get("/v1/sessions", server.handle),
            web.get("/v1/sessions/{session}/events", server.handle),
            web.post("/v1/sessions/{session}/events", server.handle),
        ]
    )
    async with listening(app) as server.url:
        yield server
