"""The control room as a server: which address serves what, and the checks of every request.

Requests must name a host of ours and come from no other origin; all but the login needs one; what changes something
needs `--write` too. It reads a store of its own, beside a bot that runs, and follows it by what changed.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web

from bot.compose.listening import Listener, remember_port, wanted_ports
from bot.config.library import Library
from bot.config.settings import Settings
from bot.pages import HEADERS, is_foreign, page_file
from bot.start.form import fields_of, typed_inputs
from bot.terminal.console import UsageError, place_of
from bot.web import documents, overview
from bot.web.access import CHANGES, NO_LOGIN, Access, Login
from bot.web.acts import Acts
from bot.web.html import link, rendered
from bot.web.index import Index, Wanted
from bot.web.names import Names
from engine.flow import Flow
from engine.journal.fold import derive_state
from engine.language import timestamps
from engine.language.actors import Actor
from engine.language.codec import Json
from engine.language.codec import read as read_json
from engine.language.errors import Corrupt, NotJson, SaysoError, StorageError, UnknownSession
from engine.run.export import portable_file
from engine.run.stored import utc_now
from engine.run.supervision import supervised
from engine.storage.group_commit import Writer
from engine.storage.store import Store

log = logging.getLogger("sayso.web")
PAGE = Path(__file__).parent / "page"
PORT = 8766
LOOK_SECONDS, IDLE_SECONDS = 0.5, 5.0
"""The pauses between two looks for changes: while somebody watches, and while nobody does."""
_BEAT_SECONDS = 15.0
_MOST_BYTES = 1024 * 1024
_MOST_TOLD = 500
_OPEN = ("/page/", "/api/login", "/api/oidc")
_LISTED, _MOST_LISTED = 50, 500
"""The number of sessions that a list has at first, and at most before it goes on with another page."""
PERIODS = {
    "1h": timedelta(hours=1),
    "24h": timedelta(days=1),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
"""Times before now in which a session was started that is asked for."""
_TABS = ("steps", "step", "conversation", "journal", "inputs", "sent")
_READ_ONLY = "This page is read-only. To make changes, start it with --write."
_ELSEWHERE = (
    "This address is not served here. Open the printed address. A proxy must pass on the header Host."
)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Work = Callable[[web.Request], dict[str, Json]]
LOGIN = web.RequestKey("login", Login)


class Room:
    """The control room over one store. `write`: true if things may be changed here; `link_to` gives the address of a
    thread, and `chat` is the address of the local workspace, where there is one."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        access: Access,
        hosts: frozenset[str],
        *,
        write: bool,
        link_to: Callable[[Mapping[str, Json]], str] = documents.slack_link,
        chat: str = "",
    ) -> None:
        self.access = access
        self._command, self._link_to, self._chat = place_of(settings).command, link_to, chat
        self.scheme = "http"
        self.port_file = settings.home / "web.port"
        self.library = Library(settings.flows)
        """The flows that can be started from here."""
        self._flows: Mapping[str, Flow] = {}
        """Those of the last look."""
        self._hosts, self._write, self._settings = hosts, write, settings
        self._store, self._writer = store, Writer(store)
        self._names = Names(settings)
        self._index, self._pasts = Index(store, self._names), documents.Pasts(store)
        self._waiting = overview.Waiting(store, self._names)
        self._acts = Acts(self._writer, settings, self._command)
        self._watchers: set[asyncio.Queue[Json]] = set()
        self._someone = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._listener: Listener | None = None

    # -- life

    async def start(self, host: str, port: int) -> str:
        """Listen; the address of the page, without a slash at the end. Raises `OSError`."""
        app = web.Application(middlewares=[self._checked], client_max_size=_MOST_BYTES)
        app.add_routes([*self._routes(), *self.access.routes()])
        if self._listener is not None:
            await self._listener.stop()
        self._listener = Listener(app, stop_seconds=0.5)
        _, bound = await self._listener.start(host, port)
        # Cookies know no port: pages of several homes would take each other's.
        self.access.cookie = self.access.named(f"sayso-{bound}")
        self._writer.start()
        for name, work in (
            ("following the store", self._follow),
            ("asking Slack for names", partial(self._names.run, partial(self._tell, []))),
        ):
            self._tasks.append(asyncio.create_task(supervised(name, work, lambda error: False)))
        return f"http://{f'[{host}]' if ':' in host else host}:{bound}"

    async def stop(self) -> None:
        """Stop listening. The store stays open."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for queue in self._watchers:
            queue.put_nowait(None)
        if self._listener is not None:
            await self._listener.stop()
        await asyncio.to_thread(self._writer.close)

    def _routes(self) -> list[web.RouteDef]:
        views: dict[str, tuple[str | None, Work]] = {
            "/": ("sessions", self._sessions),
            "/sessions": ("sessions", self._sessions),
            "/sessions/{id}": ("session", self._session),
            r"/sessions/{id}/events/{seq:\d{1,9}}": (None, self._event),
            "/waiting": ("waiting", lambda request: self._waiting.document()),
            "/spend": ("spend", self._spend),
            "/queues": ("queues", lambda request: overview.queues(self._store)),
            "/compare": ("compare", self._compare),
            "/start": ("start", self._start),
        }
        return [
            web.post("/api/login", self._login),
            web.post("/api/logout", self._logout),
            web.get("/api/live", self._live),
            web.post("/api/act", self._changing(self._act)),
            web.post("/api/letter", self._changing(self._letter)),
            web.post("/api/start", self._changing(self._begin)),
            web.get("/sessions/{id}/export", self._export),
            *(web.get(path, self._reading(view, work)) for path, (view, work) in views.items()),
            web.get("/page/{name}", _static),
        ]

    # -- the checks

    @web.middleware
    async def _checked(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse foreign requests and those without a login; every answer says how a browser is to treat it."""
        if is_foreign(request, self._hosts, self.scheme):
            answer: web.StreamResponse = _refused(403, "foreign_origin", _ELSEWHERE)
        elif not request.path.startswith(_OPEN) and (why := self._kept_out(request)):
            answer = self._problem(request, 401, "login", why)
        elif request.method == "POST" and request.headers.get(CHANGES) != "1":
            answer = _refused(403, "foreign_origin", f"The header {CHANGES} is missing.")
        else:
            answer = await self._answered(request, handler)
        if not answer.prepared:
            for name, value in {**HEADERS, "Cache-Control": "no-store"}.items():
                answer.headers.setdefault(name, value)
        return answer

    def _kept_out(self, request: web.Request) -> str | None:
        """The reason why a request is not let in; None if it is, with its login."""
        try:
            request[LOGIN] = self.access.of(request)
        except PermissionError as error:
            return str(error)
        return None

    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as error:
            return self._problem(request, error.status, "http", error.reason)
        except SaysoError as error:
            told = documents.problem(error)
            status = next((number for kind, number in _STATUSES if isinstance(error, kind)), 400)
            return self._problem(request, status, str(told["error"]), str(told["message"]))
        except Exception:
            log.exception("%s could not be answered", request.path)
            return self._problem(request, 500, "internal", _INTERNAL)

    def _problem(self, request: web.Request, status: int, error: str, message: str) -> web.Response:
        """An error for whoever asks: JSON for a program, and a page for a person, who may have to log in first."""
        if request.path.startswith("/api/") or _is_program(request):
            return _refused(status, error, message)
        if status == 401:
            access, told = self.access, "" if message == NO_LOGIN else message
            text = rendered(
                "login.html", me=None, problem=told, token=bool(access.token), provider=bool(access.routes())
            )
            return web.Response(text=text, content_type="text/html")
        text = rendered("problem.html", me=self._me(request), view="", problem=message)
        return web.Response(text=text, content_type="text/html", status=status)

    def _me(self, request: web.Request) -> dict[str, Json] | None:
        login = request.get(LOGIN)
        if login is None:
            return None
        write = self._write and self._acts.looks_only(login.actor) is None
        return {
            "name": login.name,
            "write": write,
            "admin": write and self._acts.is_admin(login.actor),
            "home": self._settings.home.name,
            "leaves": self.access.leaves,
        }

    # -- logins

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

    def _reading(self, view: str | None, work: Work) -> Handler:
        """A document, which whoever asks for JSON gets as it is, and everybody else as a page if there is one."""

        def read(request: web.Request) -> dict[str, Json]:
            self._flows = self.library.refresh()
            return work(request)

        async def handle(request: web.Request) -> web.Response:
            doc = await self._writer.call(read, request)
            if view is None or _is_program(request):
                text = await asyncio.to_thread(partial(json.dumps, doc, ensure_ascii=False))
                return web.Response(body=text.encode(), content_type="application/json")
            page = partial(
                rendered,
                f"{view}.html",
                view=view,
                doc=doc,
                me=self._me(request),
                now=utc_now(),
                sayso=self._command,
            )
            return web.Response(text=await asyncio.to_thread(page), content_type="text/html")

        return handle

    def _sessions(self, request: web.Request) -> dict[str, Json]:
        query = request.query
        names = ("q", "flow", "person", "channel", "since", "until", "before")
        texts = {name: query.get(name, "")[:200] for name in names}
        within = query.get("within", "")
        if within in PERIODS:
            texts["since"] = timestamps.to_text(timestamps.from_text(utc_now()) - PERIODS[within])
        limit = min(_MOST_LISTED, max(1, _number(request, "limit", _LISTED)))
        wanted = Wanted(
            **texts, status=query.getall("status", []), standing=query.getall("standing", []), limit=limit
        )
        page, asked = self._index.page(wanted), wanted._asdict()
        if within in PERIODS:
            asked |= {"within": within, "since": ""}
        grows = limit < _MOST_LISTED
        onward = {"limit": limit + _LISTED} if grows else {"limit": None, "before": page["next"]}
        more = link("/sessions", {**asked, **onward})
        return {**page, "facets": self._index.facets(wanted), "wanted": asked, "more": more, "grows": grows}

    def _past(self, request: web.Request) -> documents.Past:
        return self._pasts.of(request.match_info["id"])

    def _session(self, request: web.Request) -> dict[str, Json]:
        past, at = self._past(request), _number(request, "at", None)
        query, shown = request.query, _number(request, "events", documents.PAGE)
        step, named = query.get("step", ""), query.get("tab", "")
        actor = request[LOGIN].actor
        refuses = partial(self._acts.refusal, actor)
        found = documents.session(self._store, past, at, self._names, self._link_to, refuses)
        if at is None and not query.keys() & {"step", "tab", "node"}:
            step = str(found["failing"])
        closed = self._acts.closed(actor, past.head) if self._write else None
        tab = named if named in _TABS else "step" if step or "node" in query else "steps"
        panel: dict[str, Json] = {}
        if tab == "step" and step:
            panel = documents.step(past, step, at, self._names)
        elif tab == "conversation":
            panel = documents.conversation(past, at, self._names)
        elif tab == "journal":
            panel = documents.journal(past, max(shown, at or 0))
        elif tab == "sent":
            panel = documents.sent(self._store, past.head.session_id)
        told = {"step": step, "node": query.get("node", ""), "named": named, "tab": tab, "panel": panel}
        return {
            **found,
            **told,
            "picture": past.picture,
            "closed": closed and str(closed),
            "noStart": self._no_start(actor, past.head.flow_name) if self._write else _READ_ONLY,
            "goOn": self._acts.go_on(past.head),
        }

    def _event(self, request: web.Request) -> dict[str, Json]:
        return documents.event_in_full(self._past(request), int(request.match_info["seq"]))

    def _compare(self, request: web.Request) -> dict[str, Json]:
        left, right = (request.query.get(name, "") for name in ("left", "right"))
        told: dict[str, Json] = {"left": left, "right": right, "problem": None}
        if not (left and right):
            return told
        try:
            one, two = (self._pasts.of(self._named(text)) for text in (left, right))
        except SaysoError as error:
            return {**told, "problem": documents.problem(error)["message"]}
        return {**told, **documents.comparison(one, two)}

    def _named(self, text: str) -> str:
        """A session by its id, or by a beginning that only it has."""
        found = self._index.matching(text)
        return found[0] if text and len(found) == 1 else text

    def _no_start(self, actor: Actor, name: str) -> str | None:
        """The reason why somebody cannot start a flow here; None if they can ask for it."""
        flow = self._flows.get(name)
        if flow is None:
            return f"There is no flow {name} here."
        return self._acts.no_start(actor, flow)

    def _start(self, request: web.Request) -> dict[str, Json]:
        """The flows that somebody can start, why not the others, and the form of one, filled in as another session
        was."""
        actor, (name, like) = request[LOGIN].actor, (request.query.get(each, "") for each in ("flow", "like"))
        reasons = {each: self._no_start(actor, each) for each in sorted(self._flows)}
        refused = dict.fromkeys(filter(None, reasons.values()))
        flows = {each: self._flows[each] for each, why in reasons.items() if why is None}
        told: dict[str, Json] = {
            "flows": list(flows),
            "refused": [[why, [each for each in reasons if reasons[each] == why]] for why in refused],
            "problem": self._no_start(actor, name) if name else None,
            "flow": name,
            "like": like,
            "channels": [words for _, words in self._index.facets()["channels"]],
            "channel": "",
            "fields": [],
            "served": bool(self._flows),
            "chat": self._chat,
            "closed": self._acts.looks_only(actor) and str(self._acts.looks_only(actor))
            if self._write
            else _READ_ONLY,
        }
        if name not in flows or told["closed"]:
            return told
        given: Mapping[str, Json] = {}
        if like:
            state = derive_state(self._pasts.of(like).events)
            given = typed_inputs(flows[name], state.inputs or state.given)
            told["channel"] = self._names.of(str((state.thread or {}).get("channel") or ""))
        fields = [
            {**field, "default": given.get(field["name"], None if like else field.get("default"))}
            for field in fields_of(flows[name])
        ]
        return {**told, "fields": fields, "about": flows[name].description}

    async def _begin(self, actor: Actor, body: dict[str, Json]) -> dict[str, Json]:
        flow = await self._writer.call(self.library.get, str(body.get("flow")))
        return await self._acts.start(actor, flow, body.get("channel"), body.get("values") or {})

    async def _export(self, request: web.Request) -> web.Response:
        """A session as one portable, signed file, as `sayso sessions export` writes it."""
        session_id = request.match_info["id"]
        file = await portable_file(self._writer, self._settings.home, session_id)
        data = await self._writer.call(self._store.enclose, file)
        named = {"Content-Disposition": f'attachment; filename="{session_id}.json"'}
        return web.Response(body=data, content_type="application/json", headers=named)

    def _spend(self, request: web.Request) -> dict[str, Json]:
        days = min(366, max(1, _number(request, "days", 30)))
        return overview.spend(self._store, utc_now()[:10], days, self._settings.agents.day_cap)

    # -- changing

    def _changing(self, work: Callable[[Actor, dict[str, Json]], Awaitable[dict[str, Json]]]) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            if not self._write:
                return _refused(403, "read_only", _READ_ONLY)
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
                if not self._index.complete:
                    while not self._index.complete:
                        await self._writer.call(self._index.read_on)
                    self._tell([])
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
    found = page_file(request.match_info["name"], PAGE)
    return found or web.Response(status=404, text="There is nothing here.")


def _is_program(request: web.Request) -> bool:
    return "application/json" in request.headers.get("Accept", "")


_INTERNAL = (
    "The control room could not show this; other views may still work. The log of `sayso web` says why."
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
        raise SaysoError(f"{name} is {text[:40]!r}, but must be a number.")
    return int(text)


async def _body(request: web.Request) -> dict[str, Json]:
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType
    try:
        body = read_json(await request.read())
    except NotJson as error:
        raise web.HTTPBadRequest(reason="The body is not JSON that can be read exactly.") from error
    if not isinstance(body, dict):
        raise web.HTTPBadRequest(reason="The body is not a JSON object.")
    return body


@asynccontextmanager
async def running(room: Room, host: str, port: int | None) -> AsyncIterator[str]:
    """The room at this port, or without one at that which its home remembers; its address. Raises `UsageError`."""
    url, problem = "", ""
    try:
        for number in wanted_ports(room.port_file, PORT) if port is None else (port,):
            try:
                url = await room.start(host, number)
                break
            except (OSError, OverflowError) as error:
                problem = str(getattr(error, "strerror", None))
        else:
            raise UsageError(f"Cannot listen on {host}:{port or PORT}: {problem}.")
        if port is None:
            remember_port(room.port_file, int(url.rpartition(":")[2]))
        yield url
    finally:
        await room.stop()
