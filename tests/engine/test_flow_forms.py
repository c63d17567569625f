"""The runtime form of a pinned flow: a session continues from it without its text being read, and it is used by the release that
made it only, for the text that it was made of."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from engine.flow import reading
from engine.flow.form import flow_from_form, form_of
from engine.flow.load import load_flow
from engine.journal.records import FlowForm
from engine.nodes.api import node
from engine.nodes.types import registry
from engine.run import stored
from engine.storage.open import MemoryStore
from tests.flow.flowkit import SOUND
from tests.proof.flows import FLOWS, flow
from tests.support.engine import EngineRig, flow_of, running, shell_runners

TEXT = """flow: formed
nodes:
  - {id: q, type: ask, with: {message: Now?}}
  - {id: a, type: shell, with: {run: [echo, "{{ nodes.q.text }}"]}}
"""


@pytest.mark.parametrize("name", sorted(FLOWS))
def test_a_form_gives_the_flow_that_it_was_made_of(name: str) -> None:
    """Equal in every part, with the same digest, and with expressions that use the same names."""
    made = flow(name)
    form = form_of(made)
    assert form is not None
    found = flow_from_form(form, made.digest)
    assert found == made
    for list_id, nodes in made.lists.items():
        for one, other in zip(nodes.nodes, found.lists[list_id].nodes, strict=True):
            assert (one.compiled.names, one.compiled.how) == (other.compiled.names, other.compiled.how)


@pytest.mark.parametrize("name", sorted(SOUND))
def test_every_type_of_node_has_a_form(name: str) -> None:
    """No value of any field is lost in JSON."""
    made = load_flow(SOUND[name])
    form = form_of(made)
    assert form is not None
    assert flow_from_form(form, made.digest) == made


def test_an_expression_of_a_form_is_compiled_by_the_first_who_evaluates_it() -> None:
    """It gives what that of the text gives."""
    made = load_flow(TEXT)
    found = flow_from_form(form_of(made) or b"", made.digest)
    assert found is not None
    names = {"nodes": {"q": {"text": "yes"}}}
    assert found.by_id["a"].compiled.evaluate(names) == {"run": ["echo", "yes"]}


async def paused(store: MemoryStore, home: Path) -> str:
    """A session that waits for its answer, in a process that has ended."""
    async with running(store.another(), home, runners=shell_runners()) as rig:
        return (await rig.settled(TEXT)).session_id


async def ended(store: MemoryStore, home: Path, session_id: str) -> EngineRig:
    """Another process continues with it to its end."""
    async with running(store.another(), home, runners=shell_runners()) as rig:
        assert (await rig.reply(session_id, "yes")).status == "complete"
        return rig


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The texts of pinned flows that were read."""
    found: list[bytes] = []
    real = reading.flow_from_body
    monkeypatch.setattr(reading, "flow_from_body", lambda body: found.append(body) or real(body))
    return found


async def test_a_session_goes_on_in_a_new_process_without_its_text(tmp_path: Path, read: list[bytes]) -> None:
    """The form is stored with the start."""
    store = MemoryStore()
    await ended(store, tmp_path, await paused(store, tmp_path))
    assert read == []


async def test_a_form_of_another_release_is_not_used(
    tmp_path: Path, read: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its layout may be another one: the text is read, and the form is made again, once."""
    store = MemoryStore()
    session_id, second = await paused(store, tmp_path), await paused(store, tmp_path)
    monkeypatch.setattr(stored, "release", lambda: "the next one")
    await ended(store, tmp_path, session_id)
    assert len(read) == 1
    await ended(store, tmp_path, second)
    assert len(read) == 1


@pytest.mark.parametrize("change", ["form = x'7b7d'", "release = 'other'", "form = NULL", "mac = NULL"])
async def test_a_form_that_was_changed_outside_is_not_used(
    change: str, tmp_path: Path, read: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """Its MAC says so; the text is read, and the session continues."""
    store = MemoryStore()
    session_id = await paused(store, tmp_path)
    store._db.run(f"UPDATE flows SET {change}")  # noqa: S608
    with caplog.at_level(logging.WARNING):
        await ended(store, tmp_path, session_id)
    assert len(read) == 1
    assert ("changed outside" in caplog.text) == ("NULL" not in change or "mac" in change)


async def test_a_form_of_another_text_is_not_used(tmp_path: Path, read: list[bytes]) -> None:
    """What is read back has to have the digest that the session pinned."""
    store = MemoryStore()
    session_id = await paused(store, tmp_path)
    form = form_of(flow_of(TEXT.replace("Now?", "Other?")))
    assert form is not None
    store.flows.keep_form(FlowForm(flow_of(TEXT).digest, stored.release(), form))
    await ended(store, tmp_path, session_id)
    assert len(read) == 1


def test_a_form_is_used_only_while_types_of_packages_take_what_it_gives_them() -> None:
    """What they take is theirs to change."""
    greet: dict[str, Any] = {}

    def made(function: Any) -> None:
        registry.forget()
        greet["type"] = node("greet")(function)

    async def before(whom: str) -> str:
        return whom

    async def after(who: str) -> str:
        return who

    made(before)
    try:
        flow_of_package = load_flow("flow: own\nnodes:\n  - {id: g, type: greet, with: {whom: Ana}}\n")
        form = form_of(flow_of_package)
        assert form is not None
        assert flow_from_form(form, flow_of_package.digest) == flow_of_package
        made(after)
        assert flow_from_form(form, flow_of_package.digest) is None
        registry.forget()
        assert flow_from_form(form, flow_of_package.digest) is None
    finally:
        registry.forget()


def test_a_release_is_told_by_its_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another size or time of any of them is another release."""
    (tmp_path / "a.py").write_text("A = 1\n")
    monkeypatch.setattr(stored, "import_module", lambda name: SimpleNamespace(__path__=[str(tmp_path)]))
    stored.release.cache_clear()
    try:
        found = {stored.release()}
        for text in ("A = 22\n", "A = 333\n"):
            (tmp_path / "a.py").write_text(text)
            stored.release.cache_clear()
            found.add(stored.release())
        assert len(found) == 3
    finally:
        stored.release.cache_clear()


def test_a_form_of_another_layout_is_none() -> None:
    """Fields that are missing or of another type are no flow."""
    made = load_flow(TEXT)
    data = msgspec.json.decode(form_of(made) or b"")
    del data["lists"]
    assert flow_from_form(msgspec.json.encode(data), made.digest) is None
