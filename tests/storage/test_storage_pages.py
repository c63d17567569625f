"""With a damaged database page, every command ends with a message and the documented exit code."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from tests.cli.clikit import Cli
from tests.support.proving import PROVE

pytestmark = pytest.mark.process

FLOWS = """flow: gate
lock: prod
nodes:
  - id: go
    type: approval
    with: {message: Go?, approvers: [requester], timeout: 2h}
  - {id: told, type: message, with: {text: gone}}
"""
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "zeroed": lambda part: bytes(len(part)),
    "flipped": lambda part: bytes(byte ^ 0xFF for byte in part),
}
ROOTS = "SELECT rootpage, type || ' ' || name FROM sqlite_schema WHERE rootpage > 0 ORDER BY rootpage"
HUNG = ("index sessions_ended", "table locks", "index locks_taken")
"""Where `prompts answer` once continued forever."""
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("prompts", "answer", "{prompt}", "approve", "--no-wait"),
    ("sessions", "list"),
    ("sessions", "show", "{session}"),
    ("doctor",),
    ("verify", "{session}"),
    ("run", "gate", "--no-input", "--no-wait"),
    ("locks",),
)
CODES = {0, 1, 2, 3, 6, 10}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str], dict[int, str]]:
    """A home with a session that holds a lock and waits; its ids, and the root pages."""
    cli = Cli(tmp_path_factory.mktemp("home"))
    cli.cwd.chmod(0o700)
    cli.write("flows/gate.yml", FLOWS)
    begun = cli.run("run", "gate", "--no-input").json
    names = {"session": begun["sessionId"], "prompt": begun["prompts"][0]["promptId"]}
    with closing(apsw.Connection(str(cli.cwd / ".sayso/sayso.db"))) as connection:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        pages = {1: "schema", **dict(connection.execute(ROOTS))}
        for page in range(2, 1 + int(connection.pragma("page_count"))):
            pages.setdefault(page, "leaf")
    return cli.cwd, names, pages


def cases() -> list[tuple[str, str, int, int]]:
    """Commands, damages, where in a page, and the number of a page among all: a few of them in `make test`."""
    every = [
        (" ".join(command), how, at, page)
        for command in COMMANDS
        for how in DAMAGE
        for at in (0, 2048)
        for page in range(1, 52)
    ]
    return every if PROVE else every[:: len(every) // 8]


def damaged(home: Path, folder: Path, how: str, page: int, at: int) -> Cli:
    """A copy of the home of which 64 bytes of a page are others."""
    shutil.copytree(home, folder, dirs_exist_ok=True)
    file = folder / ".sayso/sayso.db"
    data, place = bytearray(file.read_bytes()), (page - 1) * 4096 + at
    data[place : place + 64] = DAMAGE[how](bytes(data[place : place + 64]))
    file.write_bytes(data)
    return Cli(folder)


@pytest.mark.parametrize(("command", "how", "at", "page"), cases())
def test_no_damaged_page_makes_a_command_hang_or_raise(
    home: tuple[Path, dict[str, str], dict[int, str]],
    tmp_path: Path,
    command: str,
    how: str,
    at: int,
    page: int,
) -> None:
    """Whichever page is zeroed or flipped, the command ends with a code of the table and shows no traceback."""
    folder, names, pages = home
    done = damaged(folder, tmp_path, how, min(page, max(pages)), at).run(*command.format(**names).split())
    assert (done.code in CODES, "Traceback" in done.err) == (True, False), f"{pages.get(page)}: {done}"


@pytest.mark.parametrize("where", HUNG)
def test_an_answer_that_cannot_be_stored_ends_in_words(
    home: tuple[Path, dict[str, str], dict[int, str]], tmp_path: Path, where: str
) -> None:
    """The index that the end of a session changes is malformed: the session is set aside, and the code is 6."""
    folder, names, pages = home
    page = next(page for page, name in pages.items() if name == where)
    done = damaged(folder, tmp_path, "zeroed", page, 0).run("prompts", "answer", names["prompt"], "approve")
    assert (done.code, "on hold" in done.err, "Traceback" in done.err) == (6, True, False), done
