"""Sessions that wait in a home: how each came there, and how it continues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from msgspec import Struct

from engine import Actor, Runtime, load_flow
from engine.language.codec import Json
from engine.messages.models import ModelFacts, shipped
from engine.messages.turns import TurnEvent, TurnRequest
from engine.models.scripted import ScriptedProvider, script_from
from engine.run.session import Session

SECRET = b"0123456789abcdef0123456789abcdef"
"""Signs the rows of every home."""
ENCRYPTION = b"fedcba9876543210fedcba9876543210"
"""Encrypts the bodies of a home with keys."""


class Answered(Struct, frozen=True):
    """Somebody answers the question at a path."""

    path: str
    who: str
    value: Json


class Told(Struct, frozen=True):
    """Somebody says something to the session: `pause`, `resume` or a message to its agent."""

    act: str
    who: str


class Scene(Struct, frozen=True):
    """A session that waits. `before` brought it there, with `after` it continues and ends with these outputs, by path."""

    flow: str
    after: tuple[Answered | Told, ...]
    ends: dict[str, Json]
    before: tuple[Answered | Told, ...] = ()
    status: str = "complete"
    inputs: dict[str, Json] = {}
    later: bool = False
    """Continues when its time has come."""


SCENES = {
    "approval": Scene(
        """
        flow: approval
        nodes:
          - {id: before, type: shell, with: {run: [echo, before]}}
          - {id: gate, type: approval, with: {message: "Ship {{ nodes.before.stdout }}?", approvers: ["local:ben"]}}
          - {id: ship, type: shell, with: {run: [echo, shipped]}}
        """,
        (Answered("gate", "ben", "approve"),),
        {"ship": {"stdout": "shipped"}},
    ),
    "covered": Scene(
        """
        flow: covered
        nodes:
          - {id: gate, type: approval, with: {message: Run it?, approvers: ["local:ben"], covers: ship}}
          - {id: ship, type: shell, with: {run: [echo, covered]}}
        """,
        (Answered("gate", "ben", "approve"),),
        {"ship": {"stdout": "covered"}},
    ),
    "rejected": Scene(
        """
        flow: rejected
        nodes:
          - {id: gate, type: approval, with: {message: Go on?, approvers: ["local:ben"]}}
          - {id: ship, type: shell, with: {run: [echo, shipped]}}
        """,
        (Answered("gate", "ben", "reject"),),
        {"ship": None},
        status="failed",
    ),
    "quorum": Scene(
        """
        flow: quorum
        nodes:
          - {id: gate, type: approval, with: {message: Both?, approvers: ["local:ben", "local:cleo"], required: 2}}
          - {id: both, type: set, with: {by: "{{ nodes.gate.by | length }}"}}
        """,
        (Answered("gate", "cleo", "approve"),),
        {"both": {"by": 2}},
        before=(Answered("gate", "ben", "approve"),),
    ),
    "text": Scene(
        """
        flow: text
        nodes:
          - {id: first, type: ask, with: {message: First?}}
          - {id: second, type: ask, with: {message: Second?}}
          - {id: both, type: set, with: {both: "{{ nodes.first.text }}/{{ nodes.second.text }}"}}
        """,
        (Answered("second", "ana", "two"),),
        {"both": {"both": "one/two"}},
        before=(Answered("first", "ana", "one"),),
    ),
    "choice": Scene(
        """
        flow: choice
        nodes:
          - {id: which, type: ask, with: {message: Which?, choices: [{value: blue, label: Blue one}, {value: green, label: Green one}]}}
          - {id: chosen, type: set, with: {colour: "{{ nodes.which.value }}"}}
        """,
        (Answered("which", "ana", "green"),),
        {"chosen": {"colour": "green"}},
    ),
    "form": Scene(
        """
        flow: form
        nodes:
          - id: facts
            type: ask
            with:
              message: Tell us
              form:
                properties: {reason: {type: string}, count: {type: integer, minimum: 1}}
                required: [reason, count]
          - {id: sum, type: set, with: {said: "{{ nodes.facts.values.count }} x {{ nodes.facts.values.reason }}"}}
        """,
        (Answered("facts", "ana", {"reason": "disk", "count": 3}),),
        {"sum": {"said": "3 x disk"}},
    ),
    "input": Scene(
        """
        flow: input
        inputs: {service: {type: string}, region: {type: string, default: eu}}
        nodes:
          - {id: said, type: set, with: {said: "{{ inputs.service }} in {{ inputs.region }}"}}
        """,
        (Answered("inputs/service", "ana", "web"),),
        {"said": {"said": "web in eu"}},
    ),
    "each": Scene(
        """
        flow: each
        nodes:
          - id: each
            type: foreach
            with: {items: [a, b, c], as: item, concurrency: 3}
            body:
              - {id: note, type: shell, with: {run: [echo, "{{ item }}"]}}
              - {id: q, type: ask, with: {message: "What of {{ item }}?"}}
          - {id: done, type: set, with: {all: "{{ nodes.each.iterations | map(attribute='outputs.q.text') | join(' ') }}"}}
        """,
        (Answered("each[2]/q", "ana", "gamma"), Answered("each[0]/q", "ana", "alpha")),
        {"done": {"all": "alpha beta gamma"}},
        before=(Answered("each[1]/q", "ana", "beta"),),
    ),
    "loop": Scene(
        """
        flow: loop
        nodes:
          - id: again
            type: loop
            with: {max_iterations: 3, until: "{{ last.enough.value == 'yes' }}"}
            body:
              - {id: enough, type: ask, with: {message: "Enough?", choices: ["yes", "no"]}}
          - {id: done, type: set, with: {times: "{{ nodes.again.iterations | length }}"}}
        """,
        (Answered("again[1]/enough", "ana", "yes"),),
        {"done": {"times": 2}},
        before=(Answered("again[0]/enough", "ana", "no"),),
    ),
    "branches": Scene(
        """
        flow: branches
        nodes:
          - id: both
            type: parallel
            branches:
              left: [{id: l, type: ask, with: {message: Left?}}]
              right: [{id: r, type: ask, with: {message: Right?}}]
          - {id: done, type: set, with: {said: "{{ nodes.both.branches.left.l.text }}-{{ nodes.both.branches.right.r.text }}"}}
        """,
        (Answered("both[right]/r", "ana", "R"),),
        {"done": {"said": "L-R"}},
        before=(Answered("both[left]/l", "ana", "L"),),
    ),
    "second visit": Scene(
        """
        flow: second-visit
        nodes:
          - {id: draft, type: shell, with: {run: [echo, draft]}}
          - {id: check, type: ask, with: {message: "Good?", choices: [good, again]}}
          - {id: ship, type: set, with: {value: shipped}}
        edges:
          - {from: draft, to: check}
          - {from: check, to: ship, when: "{{ nodes.check.value == 'good' }}"}
          - {from: check, to: draft, when: "{{ nodes.check.value == 'again' }}", type: loop, max_iterations: 3}
        """,
        (Answered("check~2", "ana", "good"),),
        {"ship~2": {"value": "shipped"}},
        before=(Answered("check", "ana", "again"),),
    ),
    "failed": Scene(
        """
        flow: failed
        nodes:
          - {id: breaks, type: shell, on_error: ask, with: {run: ["false"]}}
          - {id: after, type: set, with: {value: after}}
        """,
        (Answered("breaks", "ana", "skip"),),
        {"after": {"value": "after"}},
    ),
    "interrupted": Scene(
        """
        flow: interrupted
        nodes:
          - {id: long, type: shell, on_crash: ask, with: {run: [sleep, "600"]}}
          - {id: after, type: set, with: {value: after}}
        """,
        (Answered("long", "ana", "done"),),
        {"after": {"value": "after"}},
    ),
    "held": Scene(
        """
        flow: held
        nodes:
          - {id: first, type: ask, with: {message: First?}}
          - {id: done, type: set, with: {said: "{{ nodes.first.text }}"}}
        """,
        (Told("resume", "ana"), Answered("first", "ana", "later")),
        {"done": {"said": "later"}},
        before=(Told("pause", "ana"),),
    ),
    "lock": Scene(
        """
        flow: lock
        lock: prod
        nodes:
          - {id: gate, type: ask, with: {message: In the lock?}}
        """,
        (Answered("gate", "ana", "yes"),),
        {"gate": {"text": "yes"}},
    ),
    "queued": Scene(
        """
        flow: queued
        lock: prod
        nodes:
          - {id: gate, type: ask, with: {message: Behind the lock?}}
        """,
        (Answered("gate", "ana", "yes"),),
        {"gate": {"text": "yes"}},
    ),
    "agent's question": Scene(
        """
        flow: agents-question
        nodes:
          - id: look
            type: agent
            with:
              prompt: Why is web slow?
              tools: [ask_human, shell: {commands: ["echo *"]}]
          - {id: tell, type: set, with: {found: "{{ nodes.look.text }}"}}
        """,
        (Answered("look/turn[2]/tool[0]", "ana", "web-2"),),
        {"tell": {"found": "It is the cache of web-2."}},
    ),
    "agent's tool": Scene(
        """
        flow: agents-tool
        nodes:
          - id: mend
            type: agent
            with:
              prompt: Mend web.
              tools: [shell: {commands: ["echo *"]}]
              approvals: {shell: {verdicts: [approve, reject]}}
          - {id: tell, type: set, with: {done: "{{ nodes.mend.text }}"}}
        """,
        (Answered("mend/turn[1]/tool[0]", "ana", "approve"),),
        {"tell": {"done": "Mended."}},
    ),
    "agent's budget": Scene(
        """
        flow: agents-budget
        nodes:
          - id: mend
            type: agent
            with:
              prompt: Mend web.
              max_turns: 1
              tools: [shell: {commands: ["echo *"]}]
          - {id: tell, type: set, with: {done: "{{ nodes.mend.text }}"}}
        """,
        (Answered("mend", "ana", "Allow 2 turns"),),
        {"tell": {"done": "Mended."}},
    ),
    "retry": Scene(
        """
        flow: retry
        nodes:
          - {id: breaks, type: shell, on_error: continue, retry: {attempts: 2, delay: 1d, max_delay: 1d}, with: {run: ["false"]}}
          - {id: after, type: set, with: {value: after}}
        """,
        (),
        {"after": {"value": "after"}},
        later=True,
    ),
    "wait": Scene(
        """
        flow: wait
        nodes:
          - {id: pause, type: wait, with: {for: 25d}}
          - {id: done, type: set, with: {value: woken}}
        """,
        (),
        {"done": {"value": "woken"}},
        later=True,
    ),
    "deadline": Scene(
        """
        flow: deadline
        nodes:
          - {id: gate, type: approval, with: {message: In time?, approvers: ["local:ben"], timeout: 25d, on_timeout: reject, on_reject: continue}}
          - {id: done, type: set, with: {decision: "{{ nodes.gate.decision }}"}}
        """,
        (),
        {"done": {"decision": "reject"}},
        later=True,
    ),
}

TURNS = {
    "Why is web slow?": [
        {"text": "Let me look.", "tools": [{"name": "shell", "input": {"command": "echo fine"}}]},
        {
            "tools": [
                {"name": "ask_human", "input": {"question": "Which web?", "choices": ["web-1", "web-2"]}}
            ]
        },
        {"text": "It is the cache of web-2."},
    ],
    "Mend web.": [
        {"text": "I restart it.", "tools": [{"name": "shell", "input": {"command": "echo restarted"}}]},
        {"text": "Mended."},
    ],
}
"""What the model says to each prompt."""


class Model:
    """Answers by the conversation alone, so that every process continues where another one was."""

    async def stream(
        self, request: TurnRequest, abort: asyncio.Event | None = None
    ) -> AsyncGenerator[TurnEvent, None]:
        """See `Provider.stream`."""
        first: Any = request.messages[0].content[0]
        turns = next(turns for prompt, turns in TURNS.items() if prompt in first["text"])
        said = sum(message.role == "assistant" for message in request.messages)
        async for event in ScriptedProvider(script_from(turns), said).stream(request, abort):
            yield event

    async def facts(self, model: str) -> ModelFacts:
        """See `Provider.facts`."""
        return shipped(model)

    async def close(self) -> None:
        """Nothing is held."""


async def play(runtime: Runtime, session: Session, steps: tuple[Answered | Told, ...]) -> None:
    """Let people say this, one after the other, each once the session rests, or asks them."""
    for step in steps:
        actor = Actor.local(step.who)
        await session.rest()
        if isinstance(step, Answered):
            prompt_id = await asked(runtime, session, step.path)
            await session.answer(step.value, actor=actor, question=prompt_id)
        elif step.act == "pause":
            await session.pause(actor=actor)
        else:
            await session.resume("go on", actor=actor)
    await session.rest()


async def asked(runtime: Runtime, session: Session, path: str) -> str:
    """The id of the question at a path, once it is asked: one that waits for a lock asks when it is its turn."""
    news = asyncio.Event()
    stop = runtime.engine.subscribe(lambda state, events: news.set())
    try:
        while True:
            news.clear()
            for question in (await session.refresh()).questions:
                if question.path == path:
                    return question.prompt_id
            await news.wait()
    finally:
        stop()


async def begin(runtime: Runtime) -> None:
    """Start every scene and bring it to where it waits; the last of them runs then."""
    for number, (name, scene) in enumerate(SCENES.items()):
        flow, session_id = load_flow(scene.flow), session_of(number)
        session = await runtime.start(flow, scene.inputs, actor=Actor.local("ana"), session_id=session_id)
        if name != "interrupted":
            await play(runtime, session, scene.before)


def session_of(number: int) -> str:
    """The id of the session of a scene, by its place."""
    return f"session-home{number:08}"
