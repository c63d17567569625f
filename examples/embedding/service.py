"""A service of one's own that runs a flow and asks over HTTP; it may be killed at any time, and continues.

pip install fastapi uvicorn
python examples/embedding/service.py sqlite:///releases.db 8000

curl -X POST localhost:8000/releases/web -H 'X-User: ana'
curl localhost:8000/sessions/SESSION
curl -X POST localhost:8000/sessions/SESSION/answer -H 'X-User: ben' -H 'Content-Type: application/json' -d '"approve"'
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

import uvicorn
from fastapi import Body, FastAPI, Header, Request
from fastapi.responses import JSONResponse

from engine import Actor, Asked, Event, Json, Runtime, SaysoError, Session, State, load_flow
from engine.run.frontend import Message

FLOW = load_flow("""
flow: release
inputs:
  service: {type: string}
nodes:
  - {id: build, type: shell, with: {run: [echo, "{{ inputs.service }} 1.2"]}}
  - id: gate
    type: approval
    with: {message: "Release {{ nodes.build.stdout }}?", approvers: ["local:ben"], timeout: 2d}
  - {id: said, type: message, with: {text: "{{ inputs.service }} is out."}}
""")

User = Annotated[str, Header(alias="X-User")]
"""Requester, for the service to determine: a real one takes it from its login, never from a header that anybody can
set."""


class Pages:
    """The frontend: questions are read from their session, and what is said is on a wall."""

    def __init__(self) -> None:
        self.wall: dict[str, str] = {}

    async def ask(self, state: State, asked: Asked, key: str) -> dict[str, Json]:
        """Return the place of the question. A service that notifies people does so here."""
        return {"url": f"/sessions/{state.session_id}"}

    async def close(self, state: State, asked: Asked) -> None:
        """The page shows open questions only."""

    async def deliver(self, message: Message, key: str) -> dict[str, Json]:
        """Put a message on the wall; a second time, after a kill, it has the same key."""
        self.wall[key] = message.text
        return {"wall": key}

    def observe(self, state: State, events: Sequence[Event]) -> None:
        """A page that shows progress would do it here."""


def app(url: str) -> FastAPI:
    """The service over this database."""
    pages = Pages()
    runtime = Runtime(url, frontend=pages)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        async with runtime:
            yield

    service = FastAPI(lifespan=life)

    @service.exception_handler(SaysoError)
    async def refused(request: Request, error: SaysoError) -> JSONResponse:
        return JSONResponse({"error": error.code, "message": str(error)}, status_code=409)

    @service.post("/releases/{name}")
    async def release(name: str, user: User) -> dict[str, Any]:
        return page(await (await runtime.start(FLOW, {"service": name}, actor=Actor.local(user))).rest())

    @service.get("/sessions/{session_id}")
    async def look(session_id: str) -> dict[str, Any]:
        return page(await runtime.session(session_id))

    @service.post("/sessions/{session_id}/answer")
    async def answer(session_id: str, user: User, value: Annotated[Any, Body()]) -> dict[str, Any]:
        session = await runtime.session(session_id)
        await session.answer(value, actor=Actor.local(user))
        return page(await session.rest())

    @service.get("/wall")
    async def wall() -> list[str]:
        return list(pages.wall.values())

    return service


def page(session: Session) -> dict[str, Any]:
    """A session as its page shows it."""
    return {
        "session": session.id,
        "status": session.status,
        "questions": [{"id": asked.prompt_id, "message": asked.message} for asked in session.questions],
    }


if __name__ == "__main__":
    uvicorn.run(app(sys.argv[1]), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
