"""A bot that encrypts: of two hundred words that people, models and programs say, none can be read in what it leaves."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path

import apsw
import pytest

from engine.language.errors import Corrupt, Erased
from engine.storage.packing import unpacked
from engine.storage.sqlite import open_sqlite
from tests.support import prefork
from tests.support.acting import Workspace
from tests.support.bot import running_bot, start_flow
from tests.support.claude_server import Reply, call, claude_server, text

KEY = "0123456789abcdef" * 4
PATIENCE = 60.0
"""Most seconds for each thing to happen, on a busy machine."""
WORDS = [f"kestrel{number:03}" for number in range(200)]
FLOW = f"""
flow: survey
inputs:
  where: {{type: string}}
nodes:
  - id: look
    type: shell
    with: {{run: [echo, "{{{{ inputs.where }}}}", {", ".join(WORDS[20:60])}]}}
  - id: why
    type: ask
    with: {{message: "Why {WORDS[60]}? {{{{ nodes.look.stdout }}}}"}}
  - id: proof
    type: ask
    with: {{message: "Drop it", accept: files}}
  - id: think
    type: agent
    with:
      prompt: "Think {WORDS[61]}"
      tools: [{{shell: {{commands: ["echo *"], on_crash: again}}}}]
  - id: gate
    type: approval
    with: {{message: "Go? {{{{ nodes.think.text }}}}", approvers: [channel]}}
"""


def traces(folder: Path, words: Iterable[str]) -> set[str]:
    """The words that are in any file below, also where rows of a database pack them; without the files that people sent."""
    found = set()
    for path in folder.rglob("*"):
        if path.is_file() and "sessions" not in path.relative_to(folder).parts:
            data = path.read_bytes() + (_rows(path) if path.name == "sayso.db" else b"")
            found |= {word for word in words if word.encode() in data}
    return found


def _rows(database: Path) -> bytes:
    """All that is in the rows of a database, unpacked."""
    connection = apsw.Connection(str(database))
    pieces: list[bytes] = []
    for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
        for row in connection.execute(f"SELECT * FROM {name}"):  # noqa: S608 - names of our tables
            for value in row:
                pieces.append(value if isinstance(value, bytes) else str(value).encode())
                if isinstance(value, bytes) and value[:1] == b"\x01":
                    try:
                        pieces.append(unpacked(value))
                    except Corrupt:
                        continue  # a MAC that begins so
    connection.close()
    return b"\n".join(pieces)


@pytest.mark.process
@pytest.mark.timeout(300)
async def test_no_word_can_be_read_in_what_a_bot_leaves(workspace: Workspace, tmp_path: Path) -> None:
    """Flow, replies, files, a form, an agent: not in the database, its log, snapshot files, exports, nor in what is logged."""
    async with claude_server() as claude:
        claude.queue(
            Reply([call("shell", {"command": "echo " + " ".join(WORDS[62:100])}, "t1")], "tool_use"),
            text("I think " + " ".join(WORDS[100:140])),
        )
        snapshots = tmp_path / "home" / "snapshots"
        env = {**claude.environ(), "SAYSO_ENCRYPTION_KEYS": KEY, "SAYSO_SNAPSHOT_DIR": str(snapshots)}
        async with running_bot(workspace, tmp_path, {"survey": FLOW}, **env) as bot:
            thread = await start_flow(workspace, "ana", "ops", f"survey where={'-'.join(WORDS[:20])}")
            await thread.says("Why", PATIENCE)
            await thread.reply("ana", " ".join(WORDS[140:170]))
            await thread.says("Drop it", PATIENCE)
            name = "-".join(WORDS[170:180])
            await workspace.post(
                "ana", thread.channel, " ".join(WORDS[180:190]), thread_ts=thread.root_ts, files={name: b"x"}
            )
            question = await thread.says("Go?", PATIENCE)
            await thread.reply("ben", " ".join(WORDS[190:]))
            await workspace.wait_for(lambda: list(snapshots.glob("*.json")), PATIENCE)
            while_it_runs, lines = traces(tmp_path / "home", WORDS), list(bot.lines)
            await bot.kill()
            await bot.start()
            await thread.approve("ana", question)
            await workspace.wait_for(lambda: not list(snapshots.glob("*.json")), PATIENCE)
            logged = {word for word in WORDS if word in "".join([*lines, *bot.lines])}
            cli = {**os.environ, **env, "SAYSO_HOME": str(bot.home)}
            [session_id] = [path.name for path in (bot.home / "sessions").iterdir() if "." not in path.name]
            await _sayso(cli, tmp_path, "sessions", "export", session_id, "-o", str(bot.home / "export.json"))
            assert (while_it_runs, logged, traces(bot.home, WORDS)) == (set(), set(), set())
            assert _unsaid(bot.home / "sayso.db", session_id) == []
            # Erased beside the bot: its thread continues as that of any session that has ended.
            who = workspace.user("ana").id
            await workspace.wait_for(lambda: not _unsent(bot.home / "sayso.db"), PATIENCE)
            assert "1 session erased" in await _sayso(cli, tmp_path, "sessions", "delete", "--person", who)
            await workspace.post("ana", thread.channel, "@sayso status", thread_ts=thread.root_ts)
            await thread.says("*survey* is completed, started", PATIENCE)
            assert _unsaid(bot.home / "sayso.db", session_id) == WORDS
            assert "verifies" in await _sayso(cli, tmp_path, "verify", session_id)
            assert await bot.terminate() == 0
            assert [line for line in bot.lines if "Traceback" in line] == []


def _unsaid(database: Path, session_id: str) -> list[str]:
    """The words that even who has the key does not find in a session, or in what was taken for it."""
    store = open_sqlite(database, encryption_keys=[bytes.fromhex(KEY)])
    with store._db.read():
        keys = store._db.all("SELECT key FROM inbox WHERE outcome IS NOT NULL")
    said = [row.payload for (key,) in keys if (row := store.inbox.row(key)) is not None]
    with suppress(Erased):
        said += store.sessions.journal(session_id)
    store.close()
    return [word for word in WORDS if word.encode() not in b"".join(said)]


def _unsent(database: Path) -> list[tuple[str]]:
    """The keys of what the bot has still to send: until then it lets nobody erase."""
    with closing(apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        return list(connection.execute("SELECT key FROM outbox WHERE state = 'pending'"))


async def _sayso(env: dict[str, str], cwd: Path, *words: str) -> str:
    """What a command prints. The workspace answers the bot meanwhile."""
    done = await asyncio.to_thread(prefork.run, ["-m", "bot.cli", *words], cwd=cwd, env=env, timeout=PATIENCE)
    assert done.returncode in (0, 5), done.stderr
    return done.stdout
