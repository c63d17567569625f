"""The control room as a server: which address serves what, and the checks of every request.

Requests must name a host of ours and come from no other origin; all but the login needs one; what changes something needs
`--write` too. It reads a store of its own, beside a bot that runs, and follows it by what changed.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from aiohttp import web

from bot.compose.listening import Listener
from bot.config.settings import Settings
from bot.pages import HEADERS, is_foreign, page_file
from bot.terminal.console import UsageError
from bot.web import documents, overview
from bot.web.access import CHANGES, Access, Login
from bot.web.acts import Acts
from bot.web.index import Index, Wanted
from bot.web.proxy import Proxy
from engine.language.actors import Actor
from engine.language.codec import Json, read
from engine.language.errors import Corrupt, NotJson, SaysoError, StorageError, UnknownSession
from engine.run.stored import utc_now
from engine.run.supervision import supervised
from engine.storage.group_commit import Writer
from engine.storage.store import Store

log = logging.getLogger("sayso.web")
PAGE = Path(__file__).parent / "page"
PORT = 8766
LOOK_SECONDS, IDLE_SECONDS = 0.5, 5.0
"""How often it is looked for changes: while somebody watches, and while nobody does."""
_BEAT_SECONDS = 15.0
_MOST_BYTES = 1024 * 1024
_MOST_TOLD = 500
_OPEN = ("/api/me", "/api/login", "/api/oidc", "/api/oidc/callback")
_ELSEWHERE = (
    "This address is not served here. Open the one that was printed; a proxy has to pass the header Host on."
)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Work = Callable[[web.Request], dict[str, Json]]
LOGIN = web.RequestKey("login", Login)


class Room:
    """The control room over one store. `write`: whether anything may be changed here."""

    def __init__(
        self, store: Store, settings: Settings, access: Access, hosts: frozenset[str], *, write: bool
    ) -> None:
        self.access = access
        self.scheme = "http"
        self._hosts, self._write, self._settings = hosts, write, settings
        self._store, self._writer = store, Writer(store)
        self._index, self._pasts = Index(store), documents.Pasts(store)
        self._waiting = overview.Waiting(store, self._index.named)
        self._acts = Acts(self._writer, settings)
        self._watchers: set[asyncio.Queue[Json]] = set()
        self._someone = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._listener: Listener | None = None

    # -- life

    async def start(self, host: str, port: int) -> str:
        """Listen; the address of the page, without a slash at the end. Raises `OSError`."""
        app = web.Application(middlewares=[self._checked], client_max_size=_MOST_BYTES)
        app.add_routes([*self._routes(), *self.access.routes(), web.get("/{name:[A-Za-z0-9_./-]*}", _static)])
        if self._listener is not None:
            await self._listener.stop()
        self._listener = Listener(app, stop_seconds=0.5)
        _, bound = await self._listener.start(host, port)
        # Cookies know no port: pages of several homes would take each other's.
        self.access.cookie = self.access.named(f"sayso-{bound}")
        self._writer.start()
        self._task = asyncio.create_task(supervised("following the store", self._follow, lambda error: False))
        return f"http://{f'[{host}]' if ':' in host else host}:{bound}"

    async def stop(self) -> None:
        """Stop listening. The store stays open."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        for queue in self._watchers:
            queue.put_nowait(None)
        if self._listener is not None:
            await self._listener.stop()
        await asyncio.to_thread(self._writer.close)

    def _routes(self) -> list[web.RouteDef]:
        read: dict[str, Work] = {
            "sessions": self._sessions,
            "facets": lambda request: self._index.facets(),
            "sessions/{id}": self._session,
            "sessions/{id}/picture": lambda request: self._past(request).picture,
            "sessions/{id}/step": self._step,
            "sessions/{id}/journal": lambda request: documents.journal(
                self._past(request), _number(request, "after", 0)
            ),
            "sessions/{id}/event": lambda request: documents.event_in_full(
                self._past(request), _number(request, "seq", 1)
            ),
            "sessions/{id}/sent": lambda request: documents.sent(self._store, request.match_info["id"]),
            "compare": self._compare,
            "waiting": lambda request: self._waiting.document(),
            "queues": lambda request: overview.queues(self._store),
            "spend": self._spend,
        }
        return [
            web.get("/api/me", self._me),
            web.post("/api/login", self._login),
            web.post("/api/logout", self._logout),
            web.get("/api/live", self._live),
            web.post("/api/act", self._changing(self._act)),
            web.post("/api/letter", self._changing(self._letter)),
            *(web.get(f"/api/{name}", self._reading(work)) for name, work in read.items()),
        ]

    # -- the checks

    @web.middleware
    async def _checked(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse foreign requests and those without a login; every answer says how a browser is to treat it."""
        path = request.path
        if is_foreign(request, self._hosts, self.scheme):
            answer: web.StreamResponse = _refused(403, "foreign_origin", _ELSEWHERE)
        elif path.startswith("/api/") and path not in _OPEN and (why := self._kept_out(request)):
            answer = _refused(401, "login", why)
        elif request.method == "POST" and request.headers.get(CHANGES) != "1":
            answer = _refused(403, "foreign_origin", f"The header {CHANGES} is missing.")
        else:
            answer = await _answered(request, handler)
        if not answer.prepared:
            for name, value in {**HEADERS, "Cache-Control": "no-store"}.items():
                answer.headers.setdefault(name, value)
        return answer

    def _kept_out(self, request: web.Request) -> str | None:
        """Why a request is not let in; None if it is, with its login."""
        try:
            request[LOGIN] = self.access.of(request)
        except PermissionError as error:
            return str(error)
        return None

    # -- logins

    async def _me(self, request: web.Request) -> web.Response:
        problem = self._kept_out(request)
        return web.json_response(
            {
                "name": None if problem else request[LOGIN].name,
                "problem": problem if isinstance(self.access, Proxy) else None,
                "write": self._write,
                "token": self.access.token is not None,
                "oidc": bool(self.access.routes()),
                "home": self._settings.home.name,
            }
        )

    async def _login(self, request: web.Request) -> web.Response:
        try:
            key = self.access.by_token(str((await _body(request)).get("token") or ""))
        except PermissionError as error:
            return _refused(403, "login", str(error))
        answer = web.json_response({"ok": True})
        self.access.keep(answer, key)
        return answer

    async def _logout(self, request: web.Request) -> web.Response:
        self.access.logout(request)
        answer = web.json_response({"ok": True})
        self.access.drop(answer, self.access.cookie)
        return answer

    # -- reading

    def _reading(self, work: Work) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            found = await self._writer.call(work, request)
            return web.Response(body=await asyncio.to_thread(_json, found), content_type="application/json")

        return handle

    def _sessions(self, request: web.Request) -> dict[str, Json]:
        query = request.query
        names = ("flow", "person", "channel", "before")
        wanted = Wanted(
            text=query.get("q", "")[:200],
            statuses=tuple(query.getall("status", [])),
            **{name: query.get(name, "") for name in names},
            limit=min(200, max(1, _number(request, "limit", 50))),
        )
        return self._index.page(wanted)

    def _past(self, request: web.Request) -> documents.Past:
        return self._pasts.of(request.match_info["id"])

    def _session(self, request: web.Request) -> dict[str, Json]:
        return documents.session(
            self._store, self._past(request), _number(request, "at", None), self._index.named
        )

    def _step(self, request: web.Request) -> dict[str, Json]:
        return documents.step(
            self._past(request), request.query.get("path", ""), _number(request, "at", None)
        )

    def _compare(self, request: web.Request) -> dict[str, Json]:
        one, two = (self._named(request.query.get(name, "")) for name in ("left", "right"))
        return documents.comparison(self._pasts.of(one), self._pasts.of(two))

    def _named(self, text: str) -> str:
        """A session by its id, or by a beginning that only it has."""
        found = self._index.matching(text)
        return found[0] if text and len(found) == 1 else text

    def _spend(self, request: web.Request) -> dict[str, Json]:
        days = min(366, max(1, _number(request, "days", 30)))
        return overview.spend(self._store, utc_now()[:10], days, self._settings.agents.day_cap)

    # -- changing

    def _changing(self, work: Callable[[Actor, dict[str, Json]], Awaitable[dict[str, Json]]]) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            if not self._write:
                return _refused(
                    403, "read_only", "This page only shows. Start it with --write to change something."
                )
            done = await work(request[LOGIN].actor, await _body(request))
            self._tell(await self._writer.call(self._index.refresh))
            return web.json_response(done)

        return handle

    async def _act(self, actor: Actor, body: dict[str, Json]) -> dict[str, Json]:
        return await self._acts.ask(actor, str(body.get("session")), str(body.get("do")), body)

    async def _letter(self, actor: Actor, body: dict[str, Json]) -> dict[str, Json]:
        return await self._acts.letter(actor, str(body.get("key")), again=bool(body.get("again")))

    # -- news

    async def _follow(self) -> None:
        """Read the sessions once, then what changes, and tell whoever watches."""
        while True:
            try:
                while not self._index.complete:
                    await self._writer.call(self._index.read_on)
                self._someone.clear()
                if await self._writer.call(self._store.changed):
                    self._tell(await self._writer.call(self._index.refresh))
            except StorageError as error:
                log.warning("the store cannot be read now: %s", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS if self._watchers else IDLE_SECONDS):
                    await self._someone.wait()

    def _tell(self, changed: list[str]) -> None:
        for queue in self._watchers:
            queue.put_nowait({"sessions": changed[:_MOST_TOLD], "more": len(changed) > _MOST_TOLD})

    async def _live(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events: the ids of sessions that changed; without any where something else did."""
        answer = web.StreamResponse(
            headers={**HEADERS, "Cache-Control": "no-store", "Content-Type": "text/event-stream"}
        )
        await answer.prepare(request)
        queue: asyncio.Queue[Json] = asyncio.Queue()
        self._watchers.add(queue)
        self._someone.set()
        try:
            with suppress(ConnectionError):
                await answer.write(b": here\nretry: 1000\n\n")
                while not self._kept_out(request):
                    told: Json = {}
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_BEAT_SECONDS):
                            told = await queue.get()
                    if told is None:
                        break
                    await answer.write(f"data: {json.dumps(told)}\n\n".encode() if told else b": here\n\n")
        finally:
            self._watchers.discard(queue)
        return answer


async def _static(request: web.Request) -> web.StreamResponse:
    """A file of the page."""
    found = page_file(request.match_info["name"] or "index.html", PAGE)
    return found or web.Response(status=404, text="There is nothing here.")


async def _answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        return _refused(error.status, "http", error.reason)
    except Exception as error:
        if not isinstance(error, SaysoError):
            log.exception("%s could not be answered", request.path)
            return _refused(500, "internal", _INTERNAL)
        told = documents.problem(error)
        status = next((number for kind, number in _STATUSES if isinstance(error, kind)), 400)
        return _refused(status, str(told["error"]), str(told["message"]))


_INTERNAL = (
    "The control room failed at this; other views may still work. Its log (where `sayso web` runs) says why."
)
_STATUSES: tuple[tuple[type[SaysoError], int], ...] = (
    (UnknownSession, 404),
    (Corrupt, 409),
    (StorageError, 503),
)


def _refused(status: int, error: str, message: str) -> web.Response:
    return web.json_response({"error": error, "message": message}, status=status)


def _number(request: web.Request, name: str, otherwise: Any) -> Any:
    """A number of the query. Raises `SaysoError` where it is none."""
    text = request.query.get(name, "")
    if not text:
        return otherwise
    if not text.isdecimal() or len(text) > 12:
        raise SaysoError(f"{name} is {text[:40]!r}; it takes a number.")
    return int(text)


async def _body(request: web.Request) -> dict[str, Json]:
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType
    try:
        body = read(await request.read())
    except NotJson as error:
        raise web.HTTPBadRequest(reason="The body is no JSON that can be read exactly.") from error
    if not isinstance(body, dict):
        raise web.HTTPBadRequest(reason="The body is no object.")
    return body


def _json(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


@asynccontextmanager
async def running(room: Room, host: str, port: int | None) -> AsyncIterator[str]:
    """The room at this port, or without one at the usual one, else at a free one; its address. Raises `UsageError`."""
    try:
        yield await _started(room, host, port)
    finally:
        await room.stop()


async def _started(room: Room, host: str, port: int | None) -> str:
    problem: OSError | None = None
    for number in (PORT, 0) if port is None else (port,):
        try:
            return await room.start(host, number)
        except OSError as error:
            problem = error
    raise UsageError(f"Nothing can listen at {host}:{port or PORT}: {problem and problem.strerror}.")
