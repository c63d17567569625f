"""The Web API over HTTP: arguments in any of Slack's ways, tokens, scopes, faults, and a record of each call."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Literal

from aiohttp import web

from bot.workspace.core import Core
from bot.workspace.errors import SlackError, WorkspaceError
from bot.workspace.faults import MethodFault
from bot.workspace.methods import METHODS
from bot.workspace.methods.call import APP_TOKEN_SCOPES, DEFAULT_SCOPES, Call
from bot.workspace.state import Json
from bot.workspace.views import Views

WITHOUT_TOKEN = ("api.test",)
HANG_SECONDS = 600.0  # longer than anybody waits for an answer


@dataclass(slots=True)
class ApiCall:
    """One recorded call. `at` is in seconds since 1970; `response` is None when no answer was sent."""

    method: str
    args: Json
    at: float
    token_in: Literal["header", "argument", ""] = ""
    response: Json | None = None
    status: int = 200

    @property
    def ok(self) -> bool:
        """Whether the call was answered with success."""
        return bool(self.response and self.response.get("ok"))

    def to_json(self) -> Json:
        """What another process may read of it."""
        return {"method": self.method, "args": self.args, "at": self.at, "response": self.response}


class WebApi:
    """The handler of `/api/{method}`."""

    def __init__(self, core: Core, views: Views) -> None:
        self.core, self.views = core, views
        self.calls: list[ApiCall] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one call."""
        method = request.match_info["method"]
        args, token, token_in = await _arguments(request)
        record = ApiCall(method, args, self.core.clock(), token_in)
        self.calls.append(record)
        if self.core.faults.away:
            return await self._away(record, request)
        slow = self.core.faults.take(method, ("slow",))
        if slow:
            await asyncio.sleep(slow.seconds)
        refusal = self.core.faults.take(method, ("ratelimit", "fail"))
        if refusal:
            return self._refused(record, refusal)
        record.response = self._answer(method, args, token)
        lost = self.core.faults.take(method, ("effect_then_fail",)) if record.ok else None
        self.core.changes.touch()
        if lost:
            return self._lost(record, request, lost)
        return web.json_response(record.response, headers=self._headers(method, token))

    async def _away(self, record: ApiCall, request: web.Request) -> web.Response:
        """Nobody is there: nothing is done."""
        mode = self.core.faults.away
        self.core.faults.strike("away", method=record.method)
        self.core.changes.touch()
        if mode == "hang":
            await self.core.changes.wait_for(lambda: self.core.faults.away != "hang", timeout=HANG_SECONDS)
        if mode != "503" and request.transport is not None:
            request.transport.abort()
        record.status = 503
        return web.Response(status=503, text="the local workspace was told to be away")

    def _answer(self, method: str, args: Json, token: str) -> Json:
        try:
            granted = self._granted(method, token)
            if method not in METHODS:
                raise SlackError("unknown_method", req_method=method)
            call, known = Call(method, args, self.core, self.views, granted), METHODS[method]
            if known.scope:
                call.need(known.scope)
            return {"ok": True, **known.answer(call)}
        except SlackError as refusal:
            return refusal.body()
        except WorkspaceError as refusal:
            return SlackError(refusal.error, refusal.text).body()

    def _granted(self, method: str, token: str) -> frozenset[str]:
        """The scopes of this token; SlackError `not_authed`, `invalid_auth`, `not_allowed_token_type`."""
        if method in WITHOUT_TOKEN:
            return frozenset()
        if not token:
            raise SlackError("not_authed")
        if self.core.faults.token_error:
            raise SlackError(self.core.faults.token_error)
        state = self.core.state
        if token == state.app_token:
            if not method.startswith("apps.") and method != "auth.test":
                raise SlackError("not_allowed_token_type")
            return frozenset(APP_TOKEN_SCOPES)
        if token != state.bot_token:
            raise SlackError("invalid_auth")
        if method.startswith("apps."):
            raise SlackError("not_allowed_token_type")
        return frozenset(self._scopes())

    def _scopes(self) -> tuple[str, ...]:
        given = self.core.faults.scopes
        return DEFAULT_SCOPES if given is None else tuple(given)

    def _headers(self, method: str, token: str) -> dict[str, str]:
        headers = {"X-Slack-Req-Id": f"local-{len(self.calls)}"}
        if self.core.faults.announce_scopes:
            is_app = token == self.core.state.app_token
            headers["X-OAuth-Scopes"] = ",".join(APP_TOKEN_SCOPES if is_app else self._scopes())
            if method in METHODS and METHODS[method].scope:
                headers["X-Accepted-OAuth-Scopes"] = METHODS[method].scope
        return headers

    def _refused(self, record: ApiCall, fault: MethodFault) -> web.Response:
        record.status = fault.status
        headers = {}
        if fault.kind == "ratelimit":
            record.response = {"ok": False, "error": "ratelimited"}
            headers["Retry-After"] = str(fault.retry_after)
        elif fault.error:
            record.status, record.response = 200, {"ok": False, "error": fault.error}
        self.core.changes.touch()
        if record.response is None:
            return web.Response(status=record.status, text="the local workspace was told to fail")
        return web.json_response(record.response, status=record.status, headers=headers)

    @staticmethod
    def _lost(record: ApiCall, request: web.Request, fault: MethodFault) -> web.Response:
        if fault.mode == "drop_connection" and request.transport is not None:
            request.transport.abort()
        record.status = 500
        return web.Response(status=500, text="the local workspace was told to lose this answer")


async def _arguments(request: web.Request) -> tuple[Json, str, Literal["header", "argument", ""]]:
    """Arguments from query, form and JSON body together, the token (header first) and where it was."""
    args: Json = dict(request.query)
    if request.content_type == "application/json":
        args.update(await _json_body(request))
    elif request.method == "POST":
        form = await request.post()
        args.update({key: value for key, value in form.items() if isinstance(value, str)})
    scheme, _, bearer = request.headers.get("Authorization", "").partition(" ")
    token = str(args.pop("token", "") or "")
    if scheme.lower() == "bearer":
        return args, bearer.strip(), "header"
    return args, token, "argument" if token else ""


async def _json_body(request: web.Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.text() or "{}")
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
