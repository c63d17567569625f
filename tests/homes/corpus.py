"""Opens the homes of landed versions: a copy of each, under the clock of its time, through the engine or the command line."""

from __future__ import annotations

import asyncio
import tarfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Protocol

import pytest

from bot.cli.app import run
from bot.compose.environment import Machine, make_engine
from bot.config.settings import Settings, load_settings
from bot.terminal.follow import local_gate
from engine.decide.commands import Answer, Due
from engine.journal.events import decode_event
from engine.journal.records import Head
from engine.journal.state import Asked, State
from engine.language.actors import Actor
from engine.language.codec import Json
from engine.run.engine import Engine
from engine.run.executor import random_text
from engine.run.stored import stored_state
from engine.storage.open import open_store

FOLDER = Path(__file__).parent
DAY = 86_400.0


def unpacked(name: str, folder: Path) -> Path:
    """A copy of that home, as private as it was; its path."""
    with tarfile.open(FOLDER / f"{name}.tar.gz") as tar:
        tar.extractall(folder, filter="data")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return folder / "home"


class SetClock:
    """Seconds since 1970: from a moment on as fast as the machine's."""

    def __init__(self, moment: str) -> None:
        self.seconds = datetime.fromisoformat(moment).timestamp()
        self._since = time.monotonic()

    def __call__(self) -> float:
        return self.seconds + time.monotonic() - self._since


class Way(Protocol):
    """A way in to the sessions of a home. Each call takes the session to where it rests, and says where that is."""

    def answer(self, session_id: str, path: str, who: str, value: Json) -> State: ...
    def resume(self, session_id: str, who: str) -> State: ...


class Old:
    """A home that an earlier release left."""

    def __init__(self, home: Path, clock: SetClock) -> None:
        self.home = home
        self.clock = clock
        self.settings: Settings = load_settings(
            {}, cwd=home.parent, home=str(home), flows=str(home.parent / "flows")
        )

    def heads(self, flow: str) -> list[Head]:
        """The sessions of a flow, oldest first."""
        store = open_store(self.settings.database_url, None)
        try:
            return [head for head in reversed(store.heads()) if head.flow_name == flow]
        finally:
            store.close()

    def state(self, session_id: str) -> State:
        """A session as it is stored."""
        store = open_store(self.settings.database_url, None)
        try:
            return stored_state(store, session_id)
        finally:
            store.close()

    def named(self, session_id: str, who: str) -> str:
        """Somebody at the terminal; `requester` is who started that session."""
        return who if who != "requester" else self.state(session_id).actor["id"].removeprefix("local:")

    def started_twice(self, session_id: str) -> list[str]:
        """The nodes of which the journal has two starts."""
        store = open_store(self.settings.database_url, None)
        try:
            events = map(decode_event, store.journal(session_id))
            starts = Counter(event.path for event in events if event.type == "node:started")
        finally:
            store.close()
        return [str(path) for path, times in starts.items() if times > 1]

    def open(self, session_id: str) -> dict[str, Asked]:
        """The open prompts of a session, by path."""
        state = self.state(session_id)
        return {state.prompts[key].path: state.prompts[key] for key in state.open_prompts}


class ThroughEngine:
    """What people say goes to an engine of this process."""

    def __init__(self, old: Old) -> None:
        self.old = old

    def answer(self, session_id: str, path: str, who: str, value: Json) -> State:
        """Answer a prompt: with an option, a text, or the fields of a form."""
        prompt = self.old.open(session_id)[path]
        words = isinstance(value, str) and not prompt.options
        said: dict[str, Json] = {"text": value} if words else {"value": value}
        command = Answer(
            prompt.prompt_id, Actor.local(self.old.named(session_id, who)), random_text(), **said
        )
        return self._do(session_id, lambda engine: engine.apply(session_id, command))

    def resume(self, session_id: str, who: str) -> State:
        """Let a session go on, or do what has come due in it."""
        state = self.old.state(session_id)
        if state.phase == "held":
            return self._do(
                session_id,
                lambda engine: engine.resume(
                    session_id, "go", actor=Actor.local(self.old.named(session_id, who))
                ),
            )
        (timer,) = state.timers
        return self._do(session_id, lambda engine: engine.apply(session_id, Due(timer)))

    def _do(self, session_id: str, work: Callable[[Engine], Awaitable[object]]) -> State:
        async def done() -> State:
            store = open_store(settings.database_url, None)
            gate = local_gate(settings)
            engine = make_engine(settings, store, gate, label="cli", slack=False, machine=machine)
            try:
                await engine.open()
                await work(engine)
                return await engine.parked(session_id)
            finally:
                await engine.close()
                store.close()

        settings, machine = self.old.settings, Machine(seconds=self.old.clock)
        return asyncio.run(done())


class ThroughCommands:
    """What people say goes through `sayso`, in this process."""

    def __init__(self, old: Old, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.old, self.patch, self.capsys = old, patch, capsys
        patch.setitem(make_engine.__kwdefaults__, "machine", Machine(seconds=old.clock))

    def answer(self, session_id: str, path: str, who: str, value: Json) -> State:
        """`sayso prompts answer`."""
        fields = value if isinstance(value, dict) else {}
        words = [f"--field={name}={field}" for name, field in fields.items()] or [str(value)]
        prompt_id = self.old.open(session_id)[path].prompt_id
        return self.run(session_id, who, "prompts", "answer", prompt_id, *words, "--json")

    def resume(self, session_id: str, who: str) -> State:
        """`sayso sessions resume`."""
        return self.run(session_id, who, "sessions", "resume", session_id, "--no-input")

    def run(self, session_id: str, who: str, *words: str) -> State:
        """A command line, as this person; where the session stands then."""
        self.patch.setenv("SAYSO_USER", self.old.named(session_id, who))
        code = run(["--home", str(self.old.home), *words])
        said = self.capsys.readouterr()
        assert code in (0, 3), (words, code, said)
        return self.old.state(session_id)
