"""Conversations whose process is killed: every life is a process that asks a local server with Anthropic's SDK."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Iterable
from itertools import chain, repeat
from pathlib import Path

from engine.models.claude import ClaudeProvider
from engine.storage.sqlite import open_sqlite
from tests.proof.talks import Death, Run, Stage, answers, live, mortal
from tests.support import prefork
from tests.support.claude_binding import grows
from tests.support.claude_mind import Mind
from tests.support.claude_server import claude_server


def child(folder: str, death: Death | None, environ: dict[str, str]) -> None:
    """One life."""
    logging.disable(logging.CRITICAL)
    stage = Stage(Path(folder))
    store = mortal(open_sqlite(stage.database), death, kill=True)

    async def talk() -> None:
        provider = ClaudeProvider(environ)
        assert await live(stage.flow(), store, stage.folder, provider)
        await provider.close()

    asyncio.run(talk())


def one_life(stage: Stage, death: Death | None, environ: dict[str, str]) -> bool:
    """Live it in a new process; whether the session has ended there, and not the process."""
    code = prefork.call(child, str(stage.folder), death, environ, read=("anthropic",)).wait(90)
    assert code in (0, -signal.SIGKILL), f"the life {death} ended with {code}"
    return code == 0


async def run(folder: Path, deaths: Iterable[Death]) -> Run:
    """The conversation of the proof through processes that are killed so, followed by one that is not."""
    stage, count = Stage(folder).prepare(), 0
    mind = Mind(answers(stage.script))
    async with claude_server() as server:
        server.mind = mind
        for count, death in enumerate(chain(deaths, repeat(None)), 1):
            assert count < 100, "a hundred processes and no end"
            if await asyncio.to_thread(one_life, stage, death, server.environ()):
                break
        mind.refused += server.refused
        grows(mind.requests)
    found = stage.finished(mind)
    found.lives = count
    return found
