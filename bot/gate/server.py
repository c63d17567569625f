"""The gate over HTTP: agents ask with their token, and wait. Off unless `SAYSO_GATE` names an address.

Whoever has a token may ask, and read what was asked with it. Nothing here answers.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web

from bot.compose.listening import Listener
from bot.config.settings import Address
from bot.gate.client import MOST_BYTES
from bot.gate.hook import DOCTOR
from bot.gate.requests import Requests, Wanted
from bot.gate.tokens import Token, UnknownToken, token_of
from engine.language.codec import Json, decode_signed
from engine.language.errors import NotJson, SaysoError, StorageError
from engine.language.structs import convert

log = logging.getLogger("sayso.gate")

MOST_SECONDS = 24 * 3600.0
_STOP_SECONDS = 1.0
_NO_REQUEST = (NotJson, msgspec.ValidationError, KeyError, TypeError, ValueError, AttributeError)


class Server:
    """Answers agents."""

    def __init__(self, requests: Requests, stopping: Callable[[], bool]) -> None:
        self._requests = requests
        self._stopping = stopping
        engine = requests.notices.engine
        self._call, self._store, self._home = engine.writer.call, engine.store, engine.executor.jobs.home

    async def post(self, request: web.Request) -> web.Response:
        """Take what an agent asks; what cannot be answered is an error, and no error is an allow."""
        header = request.headers.get("Authorization", "")
        try:
            now = self._requests.now()
            token = await self._call(token_of, self._store, header.removeprefix("Bearer ").strip(), now)
            if token is None:
                raise UnknownToken("This token is unknown or was revoked.")
            data = decode_signed(await request.read())
            return _told(200, await self._answered(request, token, data))
        except UnknownToken as error:
            return _told(401, {"error": error.code, "reason": str(error)})
        except web.HTTPRequestEntityTooLarge:
            return _told(413, {"error": "too_large", "reason": f"A request has at most {MOST_BYTES} bytes."})
        except _NO_REQUEST as error:
            return _told(400, {"error": "bad_request", "reason": f"Invalid request: {error}"})
        except StorageError as error:
            return _told(503, {"error": error.code, "reason": str(error)})
        except SaysoError as error:
            return _told(409, {"error": error.code, "reason": str(error)})

    async def _answered(self, request: web.Request, token: Token, data: Json) -> dict[str, Json]:
        do = request.match_info["do"]
        if do == "look":
            return await self._requests.look(token, str(data["request"]), data.get("take") is True)
        if do == "cancel":
            return await self._requests.cancel(token, str(data["request"]))
        if do == "flows":
            files = [str(self._home.absolute()), str(self._requests.rules.path.absolute())]
            return {"flows": self._requests.flows(), "files": files}
        seconds = min(float(data.pop("wait", 0.0)), MOST_SECONDS)
        wanted = convert(data, Wanted)
        if wanted.tool == DOCTOR:
            return {"state": "denied", "reason": "The gate is running."}
        if do == "ran":
            return await self._requests.ran(token, wanted)
        if do == "withdraw":
            return await self._requests.withdraw(token, wanted)
        if do != "ask":
            raise ValueError(f"there is no action {do}")

        def gone() -> bool:
            return self._stopping() or request.transport is None or request.transport.is_closing()

        return await self._requests.ask(token, wanted, seconds, gone)


def _told(status: int, data: dict[str, Json]) -> web.Response:
    return web.Response(status=status, text=json.dumps(data) + "\n", content_type="application/json")


@asynccontextmanager
async def served(address: Address, requests: Requests, stopping: Callable[[], bool]) -> AsyncIterator[str]:
    """Answer agents at this address meanwhile; its URL. Raises `OSError`."""
    app = web.Application(client_max_size=MOST_BYTES)
    app.add_routes([web.post("/gate/{do}", Server(requests, stopping).post)])
    listener = Listener(app, _STOP_SECONDS)
    try:
        host, port = await listener.start(address.host, address.port)
        yield f"http://{f'[{host}]' if ':' in host else host}:{port}"
    finally:
        await listener.stop()
