"""Procrastinate on Postgres, as its documentation has it. It is a program of its own, for an environment that has Procrastinate
and nothing of sayso: `procrastinate_worker.py COMMAND URL …`, see `COMMANDS`."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

from procrastinate import App, JobContext, PsycopgConnector

AT_ONCE = 10
CRON = {"quick": "* * * * * *", "plain": "*/10 * * * *"}
"""How often stalled jobs are looked for: each second, or as in its guide."""
BEAT_SECONDS = {"quick": 1.0, "plain": 10.0}
LIMIT_SECONDS = {"quick": 4.0, "plain": 30.0}
"""Signs of life as often, and as long without one until a worker counts as stalled, as in a fleet of sayso, or by default."""


def app_at(url: str, pace: str) -> App:
    """The tasks. Stalled jobs are tried again as its guide says."""
    app = App(connector=PsycopgConnector(conninfo=url))

    @app.task(name="noted")
    async def noted(word: str, log: str) -> None:
        _note(log, word)

    @app.task(name="long")
    async def long(word: str, log: str) -> None:
        if _note(log, f"{word} {os.getpid()}") == 1:
            await asyncio.sleep(60)

    @app.periodic(cron=CRON[pace])
    @app.task(name="retry_stalled", queueing_lock="retry_stalled", pass_context=True)
    async def retry_stalled(context: JobContext, timestamp: int) -> None:
        for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=LIMIT_SECONDS[pace]):
            await app.job_manager.retry_job(job)

    return app


def _note(log: str, words: str) -> int:
    """Write a line; how many lines have its first word by now."""
    file = Path(log)
    with file.open("a") as end:
        end.write(f"{words} {time.time()}\n")
    return file.read_text().count(words.split()[0] + " ")


async def tables(app: App) -> None:
    """Make the tables."""
    await app.schema_manager.apply_schema_async()


async def work(app: App, pace: str) -> None:
    """Work until a signal."""
    await app.run_worker_async(concurrency=AT_ONCE, update_heartbeat_interval=BEAT_SECONDS[pace])


async def defer(app: App, task: str, log: str, count: str, pause: str) -> None:
    """Defer so many jobs, so many seconds apart; print when each was deferred."""
    for number in range(int(count)):
        word = f"{task}{number}-{time.time_ns()}"
        print(word, time.time(), flush=True)
        await app.configure_task(task).defer_async(word=word, log=log)
        await asyncio.sleep(float(pause))


async def scheduled(app: App, count: str) -> None:
    """Defer so many jobs to next year."""
    later: dict[str, Any] = {"schedule_in": {"days": 365}}
    jobs = [{"word": str(number), "log": os.devnull} for number in range(int(count))]
    await app.configure_task("noted", **later).batch_defer_async(*jobs)


COMMANDS = {command.__name__: command for command in (tables, work, defer, scheduled)}


async def main(command: str, url: str, *arguments: str) -> None:
    """Do one of `COMMANDS`."""
    app = app_at(url, "plain" if "plain" in arguments else "quick")
    async with app.open_async():
        await COMMANDS[command](app, *arguments)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
