"""The HTTP server: which address serves what, and who may ask.

It listens on 127.0.0.1 only. Requests must name a loopback host, and come from no other origin: otherwise any
web page that a person visits could act in the workspace through their browser.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from bot.workspace.core import Core
from bot.workspace.errors import SlackError, WorkspaceError
from bot.workspace.interactions import Interactions
from bot.workspace.methods import files
from bot.workspace.pageapi import PageApi
from bot.workspace.webapi import WebApi

HOST = "127.0.0.1"
DOWNLOAD = "files.download"
"""What faults call the fetching of a file, which is no method of the Web API."""
PAGE = Path(__file__).parent / "page"
PAGE_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".json": "application/json",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Site:
    """The routes, and the listening socket."""

    def __init__(
        self, core: Core, web_api: WebApi, page: PageApi, interactions: Interactions, port: int
    ) -> None:
        self.core, self.web_api, self.interactions = core, web_api, interactions
        self.settle: Callable[[], None] = lambda: None
        """Called before an answer goes out."""
        self._port = port
        self._runner: web.AppRunner | None = None
        self._page = page

    @web.middleware
    async def _settled(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """What was changed is kept before whoever changed it hears of it."""
        answer = await handler(request)
        self.settle()
        return answer

    async def start(self) -> None:
        """Begin to listen and set the workspace's address."""
        app = web.Application(middlewares=[_same_origin, self._settled], client_max_size=64 * 1024 * 1024)
        app.add_routes(
            [
                web.route("*", "/api/{method}", self.web_api.handle),
                web.get("/link/", self.core.sockets.handle),
                web.post("/response/{app}/{key}", self._response_url),
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
        # shutdown_timeout: sockets are closed by Workspace.stop, nothing else is worth waiting for.
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, HOST, self._port)
        await site.start()
        self._port = int(self._runner.addresses[0][1])
        self.core.base_url = f"http://{HOST}:{self._port}"

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _response_url(self, request: web.Request) -> web.Response:
        if self.core.faults.away:
            return web.Response(status=503, text="the local workspace was told to be away")
        try:
            body = json.loads(await request.text())
            self.interactions.answer_by_url(request.match_info["key"], body)
        except SlackError as refusal:
            return web.json_response(refusal.body(), status=404 if "url" in refusal.error else 400)
        except (ValueError, AttributeError):
            return web.json_response({"ok": False, "error": "invalid_payload"}, status=400)
        return web.Response(text="ok")

    async def _upload(self, request: web.Request) -> web.Response:
        content = await request.read()
        if request.content_type == "multipart/form-data":
            content = await _first_part(request)
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
                status=refusal.status, text="the local workspace was told to fail", headers=headers
            )
        headers = {"Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff"}
        slow = self.core.faults.take(DOWNLOAD, ("slow",))
        content = files.content_of(file)
        if slow:
            return await self._stalled(request, content, slow.seconds)
        return web.Response(body=content, content_type=file["mimetype"], headers=headers)

    async def _stalled(self, request: web.Request, content: bytes, seconds: float) -> web.StreamResponse:
        """Send half of a file, and the rest much later."""
        answer = web.StreamResponse(headers={"Content-Length": str(len(content))})
        await answer.prepare(request)
        await answer.write(content[: len(content) // 2])
        self.core.changes.touch()
        await asyncio.sleep(seconds)
        await answer.write(content[len(content) // 2 :])
        return answer

    async def _set_fault(self, request: web.Request) -> web.Response:
        try:
            body = json.loads(await request.text())
            for one in body if isinstance(body, list) else [body]:
                self.core.faults.apply(one)
        except (WorkspaceError, ValueError, AttributeError) as problem:
            return web.json_response({"ok": False, "error": str(problem)}, status=400)
        return web.json_response({"ok": True})

    async def _faults(self, request: web.Request) -> web.Response:
        return web.json_response({"log": self.core.faults.log, "struck": self.core.faults.struck})

    async def _calls(self, request: web.Request) -> web.Response:
        return web.json_response({"calls": [call.to_json() for call in self.web_api.calls]})

    async def _deliveries(self, request: web.Request) -> web.Response:
        return web.json_response({"deliveries": [d.to_json() for d in self.core.sockets.deliveries]})


async def _first_part(request: web.Request) -> bytes:
    form = await request.post()
    for value in form.values():
        if isinstance(value, web.FileField):
            return value.file.read()
    return b""


async def _static(request: web.Request) -> web.StreamResponse:
    """A file of the page; nothing outside its folder."""
    name = request.match_info["name"] or "index.html"
    path = (PAGE / name).resolve()
    kind = PAGE_TYPES.get(path.suffix)
    if kind is None or not path.is_relative_to(PAGE.resolve()) or not path.is_file():
        return web.Response(status=404, text="There is nothing here. This is a local workspace, not Slack.")
    headers = {
        "Content-Security-Policy": POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
    return web.Response(body=path.read_bytes(), content_type=kind, charset="utf-8", headers=headers)


@web.middleware
async def _same_origin(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse other hosts (DNS rebinding) and other origins (pages of the web that a person visits)."""
    host = request.headers.get("Host", "")
    origin = request.headers.get("Origin")
    is_foreign = origin is not None and origin != f"http://{host}"
    if host.rsplit(":", 1)[0] not in (HOST, "localhost") or is_foreign:
        return web.json_response({"ok": False, "error": "foreign_origin"}, status=403)
    return await handler(request)


__all__: list[Any] = ["HOST", "Site"]
