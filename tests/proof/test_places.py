"""Where a session stands inside its containers: as its document says it, and events about places that are not there. And what
several people do to one session at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from engine.decide.commands import Message
from engine.journal.fold import derive_state
from engine.journal.snapshot import to_json
from engine.language.errors import MalformedJournal, SessionQuarantined, SessionRunning
from engine.run import sessions
from tests.support.engine import ANA, Backing, EngineRig, given, running

NESTED = """
nodes:
  - id: outer
    type: foreach
    with: {items: [a, b]}
    body:
      - {id: first, type: set, with: {v: "{{ item }}"}}
      - id: inner
        type: foreach
        with: {items: [1, 2], as: n}
        body: [{id: done, type: set, with: {v: "{{ n }}"}}, {id: q, type: ask, with: {message: "{{ n }}?"}}]
"""
ASKS = """
nodes:
  - id: each
    type: foreach
    with: {items: [x, y]}
    body: [{id: v, type: set, with: {v: "{{ item }}"}}, {id: q, type: ask, with: {message: "{{ item }}?"}}]
"""
SAFE = "nodes: [{id: a, type: shell, on_crash: again, with: {run: [wait]}}]"


def test_the_document_of_a_state_has_a_frame_for_each_container() -> None:
    """Outermost first, each with its pass, its item, its child and what its children have given; passes that have ended stand
    with what they gave."""
    case = given(NESTED).started()
    case.when(case.answer(text="one"))
    outer, inner = to_json(derive_state(case.events))["containerStack"]
    assert (outer["nodeId"], outer["iterationIndex"], outer["currentItem"]) == ("outer", 0, "a")
    assert (outer["childIndex"], outer["partialChildOutputs"]) == (1, {"first": {"v": "a"}})
    assert (inner["nodeId"], inner["iterationIndex"], inner["totalIterations"]) == ("inner", 1, 2)
    assert (inner["childIndex"], inner["partialChildOutputs"]) == (1, {"done": {"v": 2}})
    (ended,) = inner["completedIterations"]
    assert (ended["index"], ended["item"], ended["outputs"]["q"]["text"]) == (0, 1, "one")


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("container:iterationStarted", {"index": 7}),
        ("container:iterationStarted", {"path": "other"}),
        ("container:childStarted", {"path": "each[9]/v"}),
        ("container:childCompleted", {"path": "each[0]/never"}),
        ("container:iterationCompleted", {"scope": "each[5]"}),
    ],
)
def test_an_event_about_a_place_that_is_not_there_is_refused(kind: str, changes: dict[str, object]) -> None:
    """By name and position: it is neither moved to a place that is there nor left out."""
    case = given(ASKS).started()
    case.when(case.answer(text="1"))
    number = max(index for index, event in enumerate(case.events) if event.type == kind)
    bad = replace(case.events[number], **changes)
    with pytest.raises(MalformedJournal, match=rf"event {bad.seq} \({kind}\)"):
        derive_state([*case.events[:number], bad, *case.events[number + 1 :]])


async def test_a_journal_that_verifies_and_makes_no_sense_is_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session is on hold with the reason, and nothing of it runs."""

    def refuse(loaded: object) -> object:
        raise MalformedJournal("event 3 (node:started): a is there already")

    backing = Backing("memory", tmp_path)
    async with running(backing.open(), tmp_path) as rig:
        session_id = await paused(rig)
    async with running(backing.open(), tmp_path) as rig:
        monkeypatch.setattr(sessions, "fold", refuse)
        monkeypatch.setattr(sessions, "derive_state", refuse)
        with pytest.raises(SessionQuarantined, match="event 3"):
            await rig.engine.apply(session_id, Message("go on", ANA, "key-1"))
        head = rig.store.sessions.head(session_id)
        assert head is not None
        assert head.quarantined is not None
        assert rig.shop.ran == []


# --- at once -------------------------------------------------------------------------------------------------


async def paused(rig: EngineRig, *reasons: str) -> str:
    """A session that people have paused while its node ran, all at the same time."""
    session_id = await rig.start(SAFE)
    await rig.shop.running("a")
    pauses = (rig.engine.pause(session_id, actor=ANA, reason=reason) for reason in reasons or ("lunch",))
    await asyncio.gather(*pauses)
    return session_id


async def test_pauses_at_once_are_one_pause(tmp_path: Path) -> None:
    """Nobody sees an error, and one resume is enough."""
    async with running(Backing("memory", tmp_path).open(), tmp_path) as rig:
        session_id = await paused(rig, *"abcde")
        assert (await rig.types(session_id)).count("flow:paused") == 1
        await rig.engine.resume(session_id, "go on", actor=ANA)
        await rig.shop.finish("a")
        assert (await rig.engine.parked(session_id)).status == "complete"


async def test_of_two_resumes_at_once_one_wins_and_the_other_hears_so(tmp_path: Path) -> None:
    """The session is resumed once."""
    async with running(Backing("memory", tmp_path).open(), tmp_path) as rig:
        session_id = await paused(rig)
        resumes = [rig.engine.resume(session_id, text, actor=ANA) for text in ("one", "two")]
        results = await asyncio.gather(*resumes, return_exceptions=True)
        assert [type(result) for result in results if isinstance(result, BaseException)] == [SessionRunning]
        assert (await rig.types(session_id)).count("flow:resumed") == 1
        await rig.shop.finish("a")


async def test_after_a_resume_and_an_abort_at_once_the_session_is_aborted(tmp_path: Path) -> None:
    """Whichever comes first, it ends once, and no node completes."""
    async with running(Backing("memory", tmp_path).open(), tmp_path) as rig:
        session_id = await paused(rig)
        resume = rig.engine.resume(session_id, "go on", actor=ANA)
        await asyncio.gather(resume, rig.engine.abort(session_id, actor=ANA), return_exceptions=True)
        assert (await rig.engine.parked(session_id)).status == "aborted"
        types = await rig.types(session_id)
        assert (types.count("session:end"), types.count("node:completed")) == (1, 0)
