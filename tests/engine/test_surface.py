"""The public surface: 27 names, and nothing is loaded before it is used."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import engine
from engine.nodes.types import registry

NAMES = [
    "Runtime",
    "Engine",
    "Hub",
    "Session",
    "Actor",
    "Policy",
    "Frontend",
    "Flow",
    "FlowError",
    "load_flow",
    "load_flows",
    "open_store",
    "open_sqlite",
    "runners",
    "Store",
    "State",
    "Status",
    "Event",
    "decode_event",
    "derive_state",
    "Question",
    "Asked",
    "Answer",
    "PauseError",
    "SaysoError",
    "node",
    "Json",
]


def test_these_names_are_public() -> None:
    """Each can be imported, and no other is offered."""
    assert sorted(engine.__all__) == sorted(NAMES)
    assert all(getattr(engine, name) is not None for name in NAMES)


def test_another_name_is_an_error() -> None:
    """A misspelt name is an `ImportError`, as in any module."""
    with pytest.raises(ImportError):
        from engine import Runtimes  # type: ignore[attr-defined]  # noqa: F401


def test_importing_it_loads_nothing() -> None:
    """`import engine` alone loads none of its modules: a command that reads a store pays for no runtime."""
    script = "import engine, sys; print([name for name in sys.modules if name.startswith('engine.')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_it_is_typed() -> None:
    """The marker lies beside the page, so that checkers of other programs read the types."""
    assert (Path(engine.__file__).parent / "py.typed").exists()


@pytest.fixture
def api() -> Iterator[ModuleType]:
    """The file that mypy checks; its node type is forgotten at the end."""
    from tests.typing import api

    engine.node("doubled", on_crash="again")(api.doubled)
    yield api
    registry.forget()


async def test_a_program_as_users_write_it_runs(api: ModuleType, tmp_path: Path) -> None:
    """The file that mypy checks runs too, with a node type of its own."""
    lines = await api.main(f"sqlite:///{tmp_path}/typed.db")
    assert lines == ["Ship it?", "42", "session:end", "42"]


def test_the_parts_stand_alone(api: ModuleType, tmp_path: Path) -> None:
    """What is not in the runtime can be made without it."""
    api.parts(str(tmp_path))
