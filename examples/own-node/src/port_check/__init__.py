"""A node type of one's own: `port_check` says whether a TCP port takes connections."""

from __future__ import annotations

import asyncio
import time

from pydantic import Field

from engine.nodes.api import Config, Context, Json, NodeType


class PortConfig(Config):
    """Connects to a TCP port and closes the connection again; tries until it is open or the time is over."""

    host: str = Field(description="Name or address.")
    port: int = Field(ge=1, le=65535, description="The port.")
    within: float = Field(5, gt=0, description="How many seconds it may take to open.")


class PortCheck(NodeType):
    """Looks and changes nothing, so it simply runs again after a crash."""

    config = PortConfig
    outputs = {"open": "Whether it took a connection.", "seconds": "How long that took."}
    on_crash = "again"
    unknown_output = {"open": None, "seconds": None}

    async def run(self, config: PortConfig, ctx: Context) -> Json:
        """Try once, then every half second; leave at once when the session is paused."""
        started = time.monotonic()
        while True:
            ctx.checkpoint()
            opened = await _opens(config.host, config.port, 2)
            seconds = round(time.monotonic() - started, 3)
            if opened or seconds + 0.5 > config.within:
                return {"open": opened, "seconds": seconds}
            ctx.progress(f"{config.host}:{config.port} is closed, {seconds:.0f} s")
            await asyncio.sleep(0.5)


async def _opens(host: str, port: int, seconds: float) -> bool:
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), seconds)
    except OSError:
        return False
    writer.close()
    return True
