"""`run`: a flow in this terminal; `start-flow`: a flow in a channel, which the running bot starts and this only asks for."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass

from bot.cli.lookup import actor_for, find_flow
from bot.start.schedules import wanted_item
from bot.terminal.cli_context import Place, writing
from bot.terminal.exit_codes import Exit
from bot.terminal.follow import Mode, follow
from bot.terminal.follower import Follower, new_session_id
from bot.terminal.output import print_json
from engine.flow import coerce_inputs
from engine.journal.records import InboxRow
from engine.language.codec import Json, decode
from engine.run.active import utc_now
from engine.run.engine import Engine
from engine.run.session import RequestRefused
from engine.storage.port import Store
from prompt_state.question_row import thread_key


def run_flow(place: Place, name: str, given: dict[str, Json], as_name: str | None, mode: Mode) -> int:
    """Start a flow here and follow it. Raises `SaysoError` before anything is started."""
    settings = place.settings()
    flow = find_flow(settings, name)
    coerce_inputs(flow, given)
    session_id, actor = new_session_id(), actor_for(settings, as_name)

    async def begin(engine: Engine, follower: Follower) -> None:
        await engine.start(flow, given, actor=actor, session_id=session_id)

    return follow(place, session_id, actor, mode, begin)


_LOOK_SECONDS = 0.05
_LABEL = "bot"


@dataclass(frozen=True)
class Started:
    """What became of it: the session and its thread, or nothing yet."""

    session_id: str | None = None
    channel: str | None = None
    thread_ts: str | None = None


def start_flow(
    place: Place,
    name: str,
    channel: str,
    given: dict[str, Json],
    *,
    wait: float,
    as_json: bool,
    key: str | None,
) -> int:
    """Ask the bot to start a flow, and wait until it has. Raises `SaysoError` before anything is asked, and
    `RequestRefused` when the bot refused."""
    settings = place.settings()
    flow = find_flow(settings, name)
    coerce_inputs(flow, given)
    with writing(settings) as store:
        item_key = f"start-flow:{key}" if key else f"start-flow:{os.urandom(8).hex()}"
        why = f"started by {settings.local_user} at the terminal"
        item = wanted_item(item_key, flow.name, channel, given, why=why, icon="▶️", local=settings.local_user)
        store.ingest([item], utc_now())
        started = _wait(store, item_key, flow.name, wait)
    _tell(started, flow.name, channel, as_json)
    return Exit.OK if started.session_id else Exit.PAUSED


def _wait(store: Store, key: str, flow: str, seconds: float) -> Started:
    deadline = time.monotonic() + seconds
    while True:
        served = _LABEL in store.serving()
        for row_key in (key, f"rooted:{key}"):
            _raise_if_refused(store.inbox_row(row_key))
        rooted = store.inbox_row(f"rooted:{key}")
        if rooted is not None and rooted.outcome == "started":
            return _found(store, rooted, flow)
        if not served or time.monotonic() >= deadline:
            return Started()
        time.sleep(_LOOK_SECONDS)


def _raise_if_refused(row: InboxRow | None) -> None:
    if row is not None and row.outcome == "refused":
        raise RequestRefused.of(row, "The bot refused to start it.")


def _found(store: Store, rooted: InboxRow, flow: str) -> Started:
    data = decode(rooted.payload)
    posted = data["posted"]
    key = thread_key(data["team"], posted["channel"], posted["ts"])
    heads = [head for head in store.heads(thread_key=key) if head.flow_name == flow]
    return Started(heads[0].session_id if heads else None, posted["channel"], posted["ts"])


def _tell(started: Started, flow: str, channel: str, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "flow": flow,
                "session": started.session_id,
                "channel": started.channel,
                "threadTs": started.thread_ts,
                "status": "started" if started.session_id else "queued",
            }
        )
    elif started.session_id:
        print(f"{flow} runs in {channel}: {started.session_id}")
    else:
        print(
            f"{flow} is asked for in {channel}. The bot has not started it yet: it does when it runs (sayso start).",
            file=sys.stderr,
        )
