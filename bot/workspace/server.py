"""The workspace as a server: which address serves what, and who may ask; the Web API over HTTP, with
arguments in any of Slack's ways, tokens, scopes, faults, and a record of each call.

It listens on 127.0.0.1 only. Requests must name a loopback host, and come from no other origin: otherwise any
web page that a person visits could act in the workspace through their browser.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from aiohttp import web

from bot.pages import LOOPBACK, is_foreign, page_file
from bot.workspace.core import Core, Views
from bot.workspace.elements import Suggestion, checked
from bot.workspace.faults import MethodFault
from bot.workspace.interactions import Interactions, People
from bot.workspace.limits import RESPONSE
from bot.workspace.methods import METHODS, files
from bot.workspace.methods.call import APP_TOKEN_SCOPES, DEFAULT_SCOPES, Call
from bot.workspace.pageapi import PageApi
from bot.workspace.payloads import Saver, load
from bot.workspace.state import Json, SlackError, State, WorkspaceError, default_state

DEFAULT_SEED = default_state
HOST = "127.0.0.1"
DOWNLOAD = "files.download"
"""Name for faults of file downloads, which are not a method of the Web API."""
PAGE = Path(__file__).parent / "page"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Workspace:
    """A Slack-shaped workspace on loopback. It is not Slack and knows nothing of the app that connects.

    `port` 0 takes a free one. With `persist_path` the workspace is kept in that file and starts from it.
    `seed` makes the state of a new one; `clock` gives seconds since 1970; `suggestions` are offered on the page.
    """

    def __init__(
        self,
        port: int = 0,
        persist_path: Path | None = None,
        seed: Callable[[], State] = DEFAULT_SEED,
        clock: Callable[[], float] = time.time,
        suggestions: Iterable[Suggestion] = (),
    ) -> None:
        saved = load(persist_path) if persist_path else None
        self.state = saved or seed()
        self.core = Core(self.state, clock)
        self.core.suggestions = checked(suggestions, self.state)
        self._views = Views(self.core)
        self._interactions = Interactions(self.core, self._views)
        self._people = People(self.core, self._views)
        self._saver = Saver(self.state, persist_path, self.core.changes) if persist_path else None
        self._web_api = WebApi(self.core, self._views, self._interactions)
        self._page = PageApi(self.core, self._views, self._interactions, self._people)
        self._port = port
        self._runner: web.AppRunner | None = None

    # -- life

    async def start(self) -> None:
        """Listen on 127.0.0.1; OSError when the port is taken."""
        app = web.Application(middlewares=[_same_origin, self._settled], client_max_size=64 * 1024 * 1024)
        app.add_routes(
            [
                web.route("*", "/api/{method}", self._web_api.handle),
                web.get("/link/", self.core.sockets.handle),
                web.post("/response/{app}/{key}", self._web_api.respond),
                web.post("/upload/{file}", self._upload),
                web.get("/files/{file}", self._file),
                web.post("/_faults", self._set_fault),
                web.get("/_faults", self._faults),
                web.get("/_calls", self._calls),
                web.get("/_deliveries", self._deliveries),
                *self._page.routes(),
                web.get("/{name:[A-Za-z0-9_./-]*}", _static),
            ]
        )
        # shutdown_timeout: sockets are closed by `stop`, nothing else is worth waiting for.
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, self._port).start()
        self._port = int(self._runner.addresses[0][1])
        self.core.base_url = f"http://{HOST}:{self._port}"

    async def stop(self) -> None:
        """Close every socket, save, and stop listening. A second stop does nothing."""
        await self._page.close()
        await self.core.sockets.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._saver:
            self._saver.save_now()

    @web.middleware
    async def _settled(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Save changes before the response to their author."""
        answer = await handler(request)
        if self._saver:
            self._saver.flush()
        return answer

    async def __aenter__(self) -> Workspace:
        await self.start()
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.stop()

    # -- what an app needs to connect

    @property
    def url(self) -> str:
        """The address of the page, without a slash at the end."""
        return self.core.base_url

    @property
    def api_url(self) -> str:
        """The base URL of the Web API, for `base_url=` of slack_sdk."""
        return f"{self.url}/api/"

    @property
    def bot_token(self) -> str:
        """The token of the bot user."""
        return self.state.bot_token

    @property
    def app_token(self) -> str:
        """The app-level token, for Socket Mode."""
        return self.state.app_token

    def suggest(self, suggestions: Iterable[Suggestion]) -> None:
        """Offer these on the page, instead of those before. WorkspaceError: an unknown channel, or nothing to post."""
        self.core.suggestions = checked(suggestions, self.state)
        self.core.changes.tell({"type": "channels"})

    # --- files, and what tests ask for -------------------------------------------------------------------------

    async def _upload(self, request: web.Request) -> web.Response:
        content = await request.read()
        if request.content_type == "multipart/form-data":
            parts = (await request.post()).values()
            first = next((part for part in parts if isinstance(part, web.FileField)), None)
            content = first.file.read() if first is not None else b""
        try:
            files.store(self.core.state.files, request.match_info["file"], content)
        except WorkspaceError as problem:
            return web.Response(status=404, text=problem.text)
        return web.Response(text=f"OK - {len(content)}")

    async def _file(self, request: web.Request) -> web.StreamResponse:
        """A stored file: for the app with its token, for the page without."""
        file = self.core.state.files.get(request.match_info["file"])
        if file is None:
            return web.Response(status=404, text="no such file")
        sent = request.headers.get("Authorization", "")
        is_page = request.headers.get("Sec-Fetch-Site") in ("same-origin", "none")
        if not is_page and sent != f"Bearer {self.core.state.bot_token}":
            return web.Response(status=403, text="a file needs the token of the app")
        refusal = self.core.faults.take(DOWNLOAD, ("fail",))
        if refusal:
            self.core.changes.touch()
            headers = {"Location": refusal.error} if refusal.error else {}
            return web.Response(
                status=refusal.status, text="the local workspace is set to fail", headers=headers
            )
        headers = {"Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff"}
        slow = self.core.faults.take(DOWNLOAD, ("slow",))
        content = files.content_of(file)
        if slow:
            # Send half of a file, and the rest much later.
            answer = web.StreamResponse(headers={"Content-Length": str(len(content))})
            await answer.prepare(request)
            await answer.write(content[: len(content) // 2])
            self.core.changes.touch()
            await asyncio.sleep(slow.seconds)
            await answer.write(content[len(content) // 2 :])
            return answer
        return web.Response(body=content, content_type=file["mimetype"], headers=headers)

    async def _set_fault(self, request: web.Request) -> web.Response:
        try:
            body = json.loads(await request.text())
            for one in body if isinstance(body, list) else [body]:
                self.core.faults.apply(one)
        except (WorkspaceError, ValueError, AttributeError) as problem:
            return web.json_response({"ok": False, "error": str(problem)}, status=400)
        self.core.changes.tell({"type": "channels"})
        return web.json_response({"ok": True})

    async def _faults(self, request: web.Request) -> web.Response:
        faults = self.core.faults
        told = {"log": faults.log, "struck": faults.struck, "limits": faults.limits.shown(self.core.clock())}
        return web.json_response(told)

    async def _calls(self, request: web.Request) -> web.Response:
        return web.json_response({"calls": [call.to_json() for call in self._web_api.calls]})

    async def _deliveries(self, request: web.Request) -> web.Response:
        return web.json_response({"deliveries": [d.to_json() for d in self.core.sockets.deliveries]})


async def _static(request: web.Request) -> web.StreamResponse:
    """A file of the page."""
    found = page_file(request.match_info["name"] or "index.html", PAGE)
    return found or web.Response(
        status=404, text="There is nothing here. This is a local workspace, not Slack."
    )


@web.middleware
async def _same_origin(request: web.Request, handler: Handler) -> web.StreamResponse:
    if is_foreign(request, LOOPBACK):
        return web.json_response({"ok": False, "error": "foreign_origin"}, status=403)
    return await handler(request)


# --- the Web API -------------------------------------------------------------------------------------------


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
    channel: str = ""

    @property
    def ok(self) -> bool:
        """True if the call was answered with success."""
        return bool(self.response and self.response.get("ok"))

    def to_json(self) -> Json:
        """Return the record for other processes."""
        return {"method": self.method, "args": self.args, "at": self.at, "response": self.response}


class WebApi:
    """The handler of `/api/{method}`."""

    def __init__(self, core: Core, views: Views, interactions: Interactions) -> None:
        self.core, self.views, self.interactions = core, views, interactions
        self.calls: list[ApiCall] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one call."""
        method = request.match_info["method"]
        args, token, token_in = await _arguments(request)
        record = ApiCall(method, args, self.core.clock(), token_in)
        record.channel = str(args.get("channel", ""))

        def answer() -> Json:
            try:
                granted = self._granted(method, token)
                if method not in METHODS:
                    raise SlackError("unknown_method", req_method=method)
                call, known = Call(method, args, self.core, self.views, granted), METHODS[method]
                if known.scope:
                    call.need(known.scope)
                return {"ok": True, **known.answer(call)}
            except WorkspaceError as refusal:
                return refusal.body()

        refused = await self._attempt(record, request, answer)
        headers = {"X-Slack-Req-Id": f"local-{len(self.calls)}"}
        if self.core.faults.announce_scopes:
            is_app = token == self.core.state.app_token
            headers["X-OAuth-Scopes"] = ",".join(APP_TOKEN_SCOPES if is_app else self._scopes())
            if method in METHODS and METHODS[method].scope:
                headers["X-Accepted-OAuth-Scopes"] = METHODS[method].scope
        return refused or web.json_response(record.response, headers=headers)

    async def respond(self, request: web.Request) -> web.StreamResponse:
        """Answer one use of a response URL: `ok`, or an error with a status that is none of success."""
        key, body = request.match_info["key"], await _json_body(request)
        record = ApiCall(RESPONSE, {"key": key, **body}, self.core.clock())
        grant = self.interactions.responses.get(key)
        record.channel = grant.channel.id if grant is not None else ""

        def answer() -> Json:
            try:
                self.interactions.answer_by_url(key, body)
                return {"ok": True}
            except SlackError as refusal:
                return refusal.body()

        refused = await self._attempt(record, request, answer)
        if refused is not None or record.response is None:
            return refused or web.Response(status=500)
        if record.ok:
            return web.Response(text="ok")
        record.status = 404 if "url" in record.response["error"] else 400
        return web.json_response(record.response, status=record.status)

    async def _attempt(
        self, record: ApiCall, request: web.Request, answer: Callable[[], Json]
    ) -> web.StreamResponse | None:
        """Carry a call out, unless a fault forbids it; what is sent instead of the answer, if anything is."""
        self.calls.append(record)
        if self.core.faults.away:
            return await self._away(record, request)
        slow = self.core.faults.take(record.method, ("slow",))
        if slow:
            await asyncio.sleep(slow.seconds)
        refusal = self.core.faults.refusal(record.method, record.channel)
        if refusal:
            return self._refused(record, refusal)
        record.response = answer()
        lost = self.core.faults.take(record.method, ("effect_then_fail",)) if record.ok else None
        self.core.changes.touch()
        if lost is None:
            return None
        if lost.mode == "drop_connection" and request.transport is not None:
            request.transport.abort()
        record.status = 500
        return web.Response(status=500, text="the local workspace is set to lose this answer")

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
        return web.Response(status=503, text="the local workspace is set to be away")

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
            return web.Response(status=record.status, text="the local workspace is set to fail")
        return web.json_response(record.response, status=record.status, headers=headers)


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
