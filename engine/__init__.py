"""The engine runs flows. It knows no Slack, no HTTP server and no terminal.

Theory
------
A *session* is one execution of a flow. All that ever happened in it is its journal: an append-only list
of events. Its state is the fold of those events and never anything else.

Three pure verbs carry the engine; none of them touches a clock, a random source, a file or a socket:

* ``decide(flow, state, command, facts, kinds) -> events`` says what a command makes true;
* ``evolve(state, event) -> state`` is the fold;
* ``due(flow, state, kinds) -> work`` says what may start now, from the state and not from the last event.

``kinds`` is the table of the kinds of nodes that hold children (``engine.decide.agents.kinds``).

The shell around them (``engine.run.engine``, ``engine.run.stepper``) performs what is due and decides nothing.
One step is: outcome → ``decide`` → ``due`` → ``decide(Begin)`` → one commit → launch.

Invariants
----------
* An event is durable before anything that follows from it is done, shown or acknowledged.
* A node that completed never runs again. A start is durable before its work.
* Every write carries the epoch under which the session was claimed: whoever lost the claim cannot write.

What a crash does: nothing special. The next claim loads the snapshot and the tail of the journal, folds,
records starts of earlier epochs as interrupted, and asks ``due``: the same path as normal running.

Public surface
--------------
What a program imports: ``from engine import Runtime, load_flow`` (docs/embedding.md). Authors of node types have
``engine.nodes.api``. Names are loaded when they are first used, since commands that read a store need none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.decide.commands import Answer as Answer
    from engine.decide.commands import Policy as Policy
    from engine.flow.load import load_flow as load_flow
    from engine.flow.model import Flow as Flow
    from engine.forms.question import Question as Question
    from engine.journal.events import Event as Event
    from engine.journal.events import decode_event as decode_event
    from engine.journal.fold import derive_state as derive_state
    from engine.journal.phases import Status as Status
    from engine.journal.state import Asked as Asked
    from engine.journal.state import State as State
    from engine.language.actors import Actor as Actor
    from engine.language.codec import Json as Json
    from engine.language.errors import FlowError as FlowError
    from engine.language.errors import PauseError as PauseError
    from engine.language.errors import SaysoError as SaysoError
    from engine.nodes.api import node as node
    from engine.nodes.runtime.table import runners as runners
    from engine.run.engine import Engine as Engine
    from engine.run.flow_files import load_flows as load_flows
    from engine.run.frontend import Frontend as Frontend
    from engine.run.hub import Hub as Hub
    from engine.run.runtime import Runtime as Runtime
    from engine.run.session import Session as Session
    from engine.storage.open import open_store as open_store
    from engine.storage.sqlite import open_sqlite as open_sqlite
    from engine.storage.store import Store as Store

_PLACES = {
    "Actor": "language.actors",
    "Answer": "decide.commands",
    "Asked": "journal.state",
    "Engine": "run.engine",
    "Event": "journal.events",
    "Flow": "flow.model",
    "FlowError": "language.errors",
    "Frontend": "run.frontend",
    "Hub": "run.hub",
    "Json": "language.codec",
    "PauseError": "language.errors",
    "Policy": "decide.commands",
    "Question": "forms.question",
    "Runtime": "run.runtime",
    "SaysoError": "language.errors",
    "Session": "run.session",
    "State": "journal.state",
    "Status": "journal.phases",
    "Store": "storage.store",
    "decode_event": "journal.events",
    "derive_state": "journal.fold",
    "load_flow": "flow.load",
    "load_flows": "run.flow_files",
    "node": "nodes.api",
    "open_sqlite": "storage.sqlite",
    "open_store": "storage.open",
    "runners": "nodes.runtime.table",
}

__all__ = list(_PLACES)


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = found
    return found
