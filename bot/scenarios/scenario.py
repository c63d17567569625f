"""A scenario that was read: its people, what comes of nodes, and its steps, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from bot.scenarios.document import ExpectDoc, FakeDoc, PersonDoc, ScenarioDoc
from engine.flow import Flow
from engine.language.codec import Json, encode
from engine.language.diagnostics import Fault, Path
from engine.language.yaml import Located

if TYPE_CHECKING:
    from engine.models.scripted import Script


@dataclass(frozen=True)
class Act:
    """What a person does. `verb` is `say` for one word or text, which may be a choice or a reply."""

    person: str
    verb: str
    value: Json
    on: str | None = None
    refused: str | None = None
    during: str | None = None
    """The node that is at work when this is done; None: once nothing is at work any more."""


@dataclass(frozen=True)
class Wait:
    """So many seconds go by."""

    seconds: float


Deed: TypeAlias = Act | Wait | ExpectDoc


@dataclass(frozen=True)
class Step:
    """One step: its number from 1, where it stands in the file, and what it is."""

    number: int
    path: Path
    does: Deed


@dataclass(frozen=True)
class Scenario:
    """A scenario that was read and fits its flow."""

    doc: ScenarioDoc
    flow: Flow
    located: Located
    people: Mapping[str, PersonDoc]
    fakes: Mapping[str, tuple[FakeDoc, ...]]
    steps: tuple[Step, ...]
    script: Script | None = None
    """What Claude says to agents."""

    @property
    def name(self) -> str:
        """Its title."""
        return self.doc.scenario

    @property
    def file(self) -> str:
        """Where it stands."""
        return self.located.file

    @property
    def borrowed(self) -> bool:
        """Whether what Claude says stands in a file of its own, which may say more than is needed here."""
        given = self.doc.claude
        return isinstance(given, dict) and set(given) == {"file"}

    def turn_path(self, agent: str, position: int) -> Path:
        """Where a turn of an agent's script stands in the file."""
        given = self.doc.claude
        if self.borrowed:
            return ("claude", "file")
        if isinstance(given, list):
            return ("claude", position)
        return ("claude", agent if agent in given else "turns", position)

    def place(self, path: Path) -> str:
        """`file:line:column` of a part of the file."""
        problem = self.located.problem(Fault(path, "", on_key=True))
        return f"{problem.file}:{problem.line}:{problem.column}"


def described(value: Any) -> str:
    """A value of the file for people: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else encode(value).decode()
