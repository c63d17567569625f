"""Encryption on the command line: where keys come from, what a lost one says, how one is changed, and what is erased."""

from __future__ import annotations

import pytest

from engine.storage.open import open_store
from engine.storage.vault import id_of
from tests.cli.clikit import Cli

OLD, NEW = "11" * 32, "22" * 32
FLOW = """
flow: kept
nodes:
  - {id: ask, type: ask, with: {message: "Why the kingfisher?"}}
"""


@pytest.fixture
def home(cli: Cli) -> Cli:
    """A folder with a session that waits, under the old key."""
    cli.write("flows/kept.yml", FLOW)
    cli.env = {"SAYSO_ENCRYPTION_KEYS": OLD, "SAYSO_SNAPSHOT_DIR": "snapshots"}
    assert cli.run("run", "kept", "--no-input").code == 3
    return cli


def session(cli: Cli) -> str:
    """The id of its session."""
    [file] = (cli.cwd / "snapshots").glob("*.json")
    return file.stem


def with_keys(cli: Cli, keys: str | None) -> Cli:
    """The same folder under these keys."""
    cli.env.pop("SAYSO_ENCRYPTION_KEYS", None)
    cli.env |= {} if keys is None else {"SAYSO_ENCRYPTION_KEYS": keys}
    return cli


@pytest.mark.parametrize("where", ["file", "command"])
def test_keys_can_be_a_secret(home: Cli, where: str) -> None:
    """A mounted file has them, or a command prints them; a flow cannot read that secret."""
    with_keys(home, "secret")
    told = home.run("sessions", "list")
    assert (told.code, "SAYSO_ENCRYPTION_KEYS=secret: secret ENCRYPTION_KEYS is not set" in told.err) == (
        2,
        True,
    )
    home.write("secrets/ENCRYPTION_KEYS", f"{NEW}\n{OLD}\n")
    given = {
        "file": ("SAYSO_SECRETS_DIR", "secrets"),
        "command": ("SAYSO_SECRET_COMMAND", "sh -c 'cat secrets/$0'"),
    }
    home.env |= [given[where]]
    assert "kingfisher" in home.run("sessions", "list").out
    nosy = "flow: nosy\nnodes:\n  - {id: a, type: shell, with: {run: [env], env: {A: '{{ secrets.ENCRYPTION_KEYS }}'}}}\n"
    home.write("flows/nosy.yml", nosy)
    done = home.run("run", "nosy", "--no-input")
    assert "is reserved for sayso" in done.out + done.err
    assert OLD not in done.out + done.err


def test_the_key_of_a_start_is_plain_nowhere(home: Cli) -> None:
    """What `start-flow --key` was given is in the database as a digest, and counts once all the same."""
    start = ("start-flow", "kept", "--channel", "#ops", "--key", "heron-7", "--wait", "0")
    assert [home.run(*start).code for _ in range(2)] == [3, 3]
    files = [file.read_bytes() for file in (home.cwd / ".sayso").glob("sayso.db*")]
    assert files
    assert not any(b"heron-7" in content for content in files)
    store = open_store(f"sqlite:///{home.cwd / '.sayso' / 'sayso.db'}", None, [bytes.fromhex(OLD)])
    try:
        assert len([row for row in store.inbox.rows() if row.key.startswith("start-flow:")]) == 1
    finally:
        store.close()


@pytest.mark.parametrize("keys", [None, NEW])
def test_a_lost_key_stops_every_command(home: Cli, keys: str | None) -> None:
    """One sentence that names the key by its id; what needs no key works without."""
    name = session(home)
    with_keys(home, keys)
    done = home.run("run", "kept", "--no-input")
    assert done.code == 6
    assert f"lacks key {id_of(bytes.fromhex(OLD))}" in done.err
    assert (OLD in done.err, NEW in done.err) == (False, False)
    if keys is None:
        for what in (name, f"snapshots/{name}.json"):
            told = home.run("verify", what)
            assert (told.code, "nobody changed it. Its events were not read" in told.out) == (0, True)


def test_a_session_that_waits_is_answered_in_a_copy_with_other_keys(home: Cli) -> None:
    """`store copy --to-env` takes the keys of the new store from a file, `doctor` says so, and the old key is needed no more."""
    name = session(home)
    with_keys(home, f"{NEW},{OLD}")
    assert "sayso store copy" in home.run("doctor").out
    home.write("new.env", f"SAYSO_SECRET_KEY=another key that signs rows\nSAYSO_ENCRYPTION_KEYS={NEW}\n")
    copied = with_keys(home, OLD).run(
        "store", "copy", ".sayso/sayso.db", ".sayso/new.db", "--to-env", "new.env"
    )
    assert (copied.code, "holds 1 session" in copied.out, "new.env" in copied.out) == (0, True, True)
    assert home.run("--db", ".sayso/new.db", "sessions", "list").code == 6
    with_keys(home, NEW).env["SAYSO_SECRET_KEY"] = "another key that signs rows"
    assert "older data keys" not in home.run("--db", ".sayso/new.db", "doctor").out
    done = home.run("--db", ".sayso/new.db", "sessions", "resume", name, "because")
    assert (done.code, done.json["outputs"]["ask"]["text"]) == (0, "because")


def test_settings_of_a_copy_that_are_not_there_are_refused(home: Cli) -> None:
    """A file that is misspelled makes no copy under the old keys."""
    told = home.run("store", "copy", ".sayso/sayso.db", ".sayso/new.db", "--to-env", "nwe.env")
    assert (told.code, "nwe.env" in told.err, (home.cwd / ".sayso/new.db").exists()) == (2, True, False)


def test_a_person_is_erased_once_sessions_have_ended(home: Cli) -> None:
    """A dry run lists, what is open is named and stays, and what was erased is said to be so."""
    name = session(home)
    dry = home.run("sessions", "delete", "--person", "local:ana", "--dry-run")
    assert (dry.code, "is waiting: end it before" in dry.out) == (5, True)
    assert home.run("sessions", "resume", name, "because").code == 0
    assert f"{name}  kept, ended" in home.run("sessions", "delete", "--person", "local:ana", "--dry-run").out
    assert "1 session erased" in home.run("sessions", "delete", "--person", "local:ana").out
    shown = home.run("sessions", "show", name)
    assert (shown.code, "was erased" in shown.err) == (5, True)
    assert home.run("verify", name).code == 0
    assert "verify and fold" in home.run("doctor", "--deep").out
    assert home.run("sessions", "delete", "--erase", name).out == "There is nothing to erase.\n"
    assert home.run("sessions", "delete", name).code == 0


def test_keys_that_come_after_plain_rows_name_the_way_on(cli: Cli) -> None:
    """Every command says that rows are plain, `doctor` too; the copy that the sentence names has none."""
    cli.write("flows/kept.yml", FLOW)
    assert cli.run("run", "kept", "--no-input").code == 3
    with_keys(cli, OLD)
    told = cli.run("sessions", "list")
    assert (told.code, "sayso store copy FROM TO --to-env new.env" in told.err) == (6, True)
    assert "has unencrypted rows" in cli.run("doctor").out
    cli.write("new.env", f"SAYSO_ENCRYPTION_KEYS={OLD}\n")
    copied = with_keys(cli, None).run(
        "store", "copy", ".sayso/sayso.db", ".sayso/new.db", "--to-env", "new.env"
    )
    assert copied.code == 0
    key = (cli.cwd / ".sayso/sayso.db.key").read_text().strip()
    with_keys(cli, OLD).env["SAYSO_SECRET_KEY"] = f"hex:{key}"
    assert "unencrypted" not in cli.run("--db", ".sayso/new.db", "doctor").out
    assert "kingfisher" in cli.run("--db", ".sayso/new.db", "sessions", "list").out
