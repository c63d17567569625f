"""A web application of a test, reached over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.test_utils import TestServer


@asynccontextmanager
async def listening(app: web.Application) -> AsyncIterator[str]:
    """The address of an application that listens meanwhile, on a free port of 127.0.0.1. Whoever leaves takes their request
    along, and what still runs at the end is cut."""
    server = TestServer(app)
    await server.start_server(shutdown_timeout=0.1)
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        await server.close()
