"""Sessions of every kind in a database, as many as are wanted: to look at, and to measure with."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench.rig import everybody
from bot.intents.session_rows import slack_intents
from engine.decide.agents.spend_projection import SpendRows
from engine.decide.commands import Answer, Policy
from engine.flow import Flow
from engine.flow.load import load_flow
from engine.language.actors import Actor
from engine.language.codec import Json
from engine.nodes.runtime.runner import Completed, Failed, NodeContext, Outcome
from engine.run.engine import Engine
from engine.storage.sqlite import open_sqlite
from prompt_state.question_row import projection

NOW = "2026-11-23T10:00:00.000Z"
PEOPLE = [
    Actor(
        id=f"U0{name.upper()}",
        name=name,
        email=f"{name}@example.com",
        team_id="T0",
        in_channel=True,
        facts_known=True,
    )
    for name in ("ana", "ben", "cleo", "dan", "eva")
]
DEPLOY = """flow: deploy-checkout
description: Build, check, approve, roll out
inputs: {region: {type: string, default: eu}, version: {type: string, default: v1.4.0}}
nodes:
  - {id: build, type: shell, with: {run: [make, "{{ inputs.version }}"]}, on_crash: again}
  - id: checks
    type: parallel
    branches:
      unit: [{id: unit, type: shell, with: {run: [make, unit]}, on_crash: again}]
      smoke: [{id: smoke, type: shell, with: {run: [make, smoke]}, on_crash: again}]
  - {id: gate, type: approval, with: {message: "Roll out *{{ inputs.version }}* to {{ inputs.region }}?", approvers: [requester]}}
  - id: rollout
    type: foreach
    with: {items: [canary, half, all], as: stage}
    body:
      - {id: apply, type: shell, with: {run: [deploy, "{{ stage }}"]}, on_crash: again}
      - {id: watch, type: shell, with: {run: [watch, "{{ stage }}", "{{ inputs.version }}"]}, on_crash: again}
finally:
  - {id: tidy, type: shell, with: {run: [tidy]}, on_crash: again}
"""
RESTORE = """flow: restore-database
inputs: {reason: {type: string, default: "disk full"}}
nodes:
  - {id: look, type: shell, with: {run: [df, -h]}, on_crash: again}
  - {id: why, type: ask, with: {message: "Which backup? {{ inputs.reason }}"}}
  - {id: restore, type: shell, with: {run: [restore]}, on_crash: again}
  - {id: verify, type: shell, with: {run: [verify]}, on_crash: again}
  - {id: retry, type: noop}
  - {id: note, type: set, with: {restored: true}}
edges:
  - {from: look, to: why}
  - {from: why, to: restore}
  - {from: restore, to: verify}
  - {from: verify, to: retry, when: "{{ nodes.verify.exit_code != 0 }}"}
  - {from: verify, to: note, when: "{{ nodes.verify.exit_code == 0 }}"}
  - {from: retry, to: restore, type: loop, max_iterations: 3}
"""
LONG = """flow: nightly-sweep
inputs: {hosts: {type: integer, default: 110}}
nodes:
  - id: hosts
    type: foreach
    with: {items: "{{ range(inputs.hosts) | list }}", as: host}
    body:
      - {id: ping, type: shell, with: {run: [ping, "host-{{ host }}"]}, on_crash: again}
      - {id: sweep, type: shell, with: {run: [sweep, "host-{{ host }}"]}, on_crash: again}
  - {id: done, type: approval, with: {message: "All hosts swept. Close the night?", approvers: [requester]}}
"""


async def shell(config: dict[str, Json], ctx: NodeContext) -> Outcome:
    """A program that says what it was asked; `watch half` fails for one in six versions."""
    words = " ".join(str(word) for word in config["run"])
    if words.startswith("watch half") and int(words.split(".")[1]) % 6 == 0:
        return Failed("exit_code", "error rate 4.1 % is above 1 %", {"exit_code": 2})
    return Completed({"stdout": f"{words}: ok\n", "stderr": "", "exit_code": 0, "seconds": 0.4})


@asynccontextmanager
async def engine_at(
    file: Path, policy: Policy = everybody, label: str = "fill", keys: Sequence[bytes] = ()
) -> AsyncIterator[Engine]:
    """An engine over a database file, which everybody may use unless a policy says otherwise."""
    store = open_sqlite(file, encryption_keys=keys)
    extensions = [projection, slack_intents, SpendRows(None)]
    engine = Engine(
        store,
        policy=policy,
        runners={"shell": shell},
        home=file.parent,
        extensions=extensions,
        label=label,
    )
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()
        store.close()


async def fill(file: Path, count: int) -> list[str]:
    """Put so many sessions into a database: most have ended, some wait, some failed; their ids, oldest first."""
    flows = [load_flow(text, f"{text.split()[1]}.yml") for text in (DEPLOY, DEPLOY, RESTORE)]
    locked = load_flow(f"lock: production-database\n{RESTORE}", "restore-database.yml")
    ids: list[str] = []
    async with engine_at(file) as engine:
        for begin in range(0, count, 50):
            numbers = range(begin, min(count, begin + 50))
            ids += await asyncio.gather(
                *(
                    _one(engine, locked if number % 500 in (2, 5, 8) else flows[number % 3], number)
                    for number in numbers
                )
            )
    return ids


async def _one(engine: Engine, flow: Flow, number: int) -> str:
    who, channel = PEOPLE[number % len(PEOPLE)], f"C0CHANNEL{number % 4}"
    ts = f"{1_795_000_000 + number}.000100"
    thread = {"team": "T0", "channel": channel, "threadTs": ts, "key": f"T0:{channel}:{ts}"}
    given: dict[str, Json] = {"version": f"v1.{number}.0"} if "deploy" in flow.name else {}
    session_id = await engine.start(flow, given, actor=who, thread=thread)
    state = await engine.parked(session_id)
    if number % 10 < 7 and state.open_prompts:
        [prompt_id, *_] = state.open_prompts
        if "deploy" in flow.name:
            await engine.resume(
                session_id, Answer(prompt_id, who, f"yes:{who.id}:{prompt_id}", value="approve")
            )
        else:
            await engine.resume(
                session_id, Answer(prompt_id, who, f"said:{who.id}:{prompt_id}", text="last night's")
            )
        await engine.parked(session_id)
    elif number % 10 == 7:
        await engine.abort(session_id, actor=who, reason="not today")
    return session_id


async def started(engine: Engine, text: str, given: dict[str, Json]) -> str:
    """Start a flow in a thread, and let it come to rest; its id."""
    thread = {"team": "T0", "channel": "C0CHANNEL0", "threadTs": "1.5", "key": "T0:C0CHANNEL0:1.5"}
    session_id = await engine.start(load_flow(text, "flow.yml"), given, actor=PEOPLE[0], thread=thread)
    await engine.parked(session_id)
    return session_id


async def long_one(file: Path, hosts: int = 110) -> str:
    """Put a session with some nine events a host into a database; its id."""
    async with engine_at(file) as engine:
        flow = load_flow(LONG, "nightly-sweep.yml")
        session_id = await engine.start(flow, {"hosts": hosts}, actor=PEOPLE[0])
        await engine.parked(session_id)
        return session_id


async def _main(folder: Path, count: int) -> None:
    await long_one(folder / "sayso.db")
    await fill(folder / "sayso.db", count)


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    asyncio.run(_main(Path(sys.argv[1]), int(sys.argv[2])))
