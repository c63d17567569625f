"""Code beside a flow, with real files: its digests are those of what runs, and a change during a pause is noticed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from engine.nodes.runtime.digests import CodeDigests
from engine.run.flow_files import load_flow_file
from engine.storage.open import MemoryStore
from tests.support.engine import ANA, EngineRig, counted, running, shell_runners

FLOW = """flow: pinned
nodes:
  - {id: q, type: ask, with: {message: Now?}}
  - {id: a, type: shell, pin: strict, with: {run: [./a.sh]}}
  - {id: p, type: python, with: {call: "pinned_mod:say", args: {file: "FILE"}}}
"""


def write(folder: Path, word: str) -> None:
    """A program and a module that write a word into a file."""
    program = folder / "a.sh"
    program.write_text(f"#!/bin/sh\necho {word} >> '{folder}/log'\n")
    program.chmod(0o700)
    text = f"def say(file):\n    with open(file, 'a') as out:\n        out.write('py-{word}\\n')\n"
    (folder / f"{module(folder)}.py").write_text(text)


def sha(path: Path) -> str:
    """What a file is."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def module(folder: Path) -> str:
    """The module of a test; Python never forgets one, so each has its own."""
    return f"pinned_{folder.name}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a flow and its code."""
    write(tmp_path, "old")
    text = FLOW.replace("FILE", str(tmp_path / "log")).replace("pinned_mod", module(tmp_path))
    (tmp_path / "flow.yml").write_text(text)
    return tmp_path


async def begin(rig: EngineRig, folder: Path) -> str:
    """A session that waits before its code."""
    session_id = await rig.engine.start(load_flow_file(folder / "flow.yml"), {}, actor=ANA)
    await rig.engine.parked(session_id)
    return session_id


async def test_a_program_that_changed_during_a_pause_needs_a_word(folder: Path) -> None:
    """Asked before it starts; agreed, the new program runs, once; the module's change is only noted."""
    async with running(MemoryStore(), folder / "home", runners=shell_runners()) as rig:
        session_id = await begin(rig, folder)
        write(folder, "new")
        state = await rig.reply(session_id, "go")
        assert counted(folder / "log") == []
        (prompt_id,) = state.open_prompts
        assert "its code was changed" in state.prompts[prompt_id].message
        await rig.engine.resume(session_id, "", actor=ANA, prompt_id=prompt_id, answer="again")
        state = await rig.engine.parked(session_id)
        assert (state.status, counted(folder / "log")) == ("complete", ["new", "py-new"])
        assert state.code_changed == ("./a.sh", module(folder))
        starts = {
            event.path: event
            for event in await rig.engine.journal(session_id)
            if event.type == "node:started"
        }
        assert starts["a"].to_wire()["codeDigest"] == sha(folder / "a.sh")
        assert starts["p"].to_wire()["codeDigest"] == sha(folder / f"{module(folder)}.py")


async def test_the_digest_of_a_module_is_that_of_what_runs(folder: Path) -> None:
    """A module that this process loaded before it was changed runs as it was, and is recorded so."""
    flow = load_flow_file(folder / "flow.yml")
    old = sha(folder / f"{module(folder)}.py")
    async with running(MemoryStore(), folder / "home", runners=shell_runners()) as rig:
        session_id = await begin(rig, folder)
        await rig.reply(session_id, "go")
        assert counted(folder / "log") == ["old", "py-old"]
        write(folder, "new")
        digests = CodeDigests().of(flow)
        assert digests == {"./a.sh": sha(folder / "a.sh"), module(folder): old}


def test_code_that_is_not_there_has_no_digest(folder: Path) -> None:
    """A start must not fail because of it; the node says itself what is missing."""
    flow = load_flow_file(folder / "flow.yml")
    (folder / "a.sh").unlink()
    (folder / f"{module(folder)}.py").unlink()
    assert CodeDigests().of(flow) == {}
