"""Where secrets come from, and how references become values."""

from __future__ import annotations

import os
import signal
import threading
import time
import tracemalloc
from pathlib import Path

import pytest

from engine import Actor, Runtime, load_flow
from engine.language.errors import SaysoError
from engine.nodes.runtime.runner import Refusal
from engine.nodes.runtime.secrets import (
    COMMAND_SECONDS,
    KEPT_SECONDS,
    REFUSED_SECONDS,
    Resolver,
    SecretSource,
    SecretUnavailable,
)


def refusal(source: SecretSource, name: str) -> str:
    """The error text for a secret that cannot be had."""
    with pytest.raises(SecretUnavailable) as caught:
        source.get(name)
    assert isinstance(caught.value, SaysoError)
    return str(caught.value)


@pytest.mark.parametrize(("command", "details"), [((), {"retryable": False}), (("false",), None)])
def test_a_secret_that_is_not_set_is_not_tried_again(command: tuple[str, ...], details: object) -> None:
    """What nobody has set fails at once, whatever `retry` says; a program that gave none may give one later."""
    with pytest.raises(Refusal) as caught:
        Resolver(SecretSource({}, None, command).get).text({"$secret": "TOKEN"}, "header A")
    assert (caught.value.outcome.type, caught.value.outcome.details) == ("secret", details)


def test_values_come_from_the_environment() -> None:
    """`SAYSO_SECRET_NAME` is the secret NAME, exactly as it is there."""
    source = SecretSource({"SAYSO_SECRET_TOKEN": " canary\n"}, None)
    assert source.get("TOKEN") == " canary\n"


@pytest.mark.parametrize(
    ("text", "value"), [("canary\n", "canary"), ("canary\r\n", "canary"), ("a\n\n", "a\n"), ("a", "a")]
)
def test_values_come_from_files_without_the_last_newline(tmp_path: Path, text: str, value: str) -> None:
    """A mounted file gives its text; one newline at its end is the editor's, not the secret's."""
    (tmp_path / "TOKEN").write_bytes(text.encode())
    assert SecretSource({}, tmp_path).get("TOKEN") == value


def test_the_environment_wins(tmp_path: Path) -> None:
    """A variable is before a file of the same name."""
    (tmp_path / "TOKEN").write_text("from the file")
    assert SecretSource({"SAYSO_SECRET_TOKEN": "from env"}, tmp_path).get("TOKEN") == "from env"


def test_a_rotated_file_is_seen(tmp_path: Path) -> None:
    """Values are read when they are needed, not once."""
    source = SecretSource({}, tmp_path)
    (tmp_path / "TOKEN").write_text("old1")
    assert source.get("TOKEN") == "old1"
    (tmp_path / "TOKEN").write_text("new1")
    assert source.get("TOKEN") == "new1"


def test_a_missing_secret_says_what_to_set(tmp_path: Path) -> None:
    """The error names the variable, the file and the nearest name that exists."""
    source = SecretSource({"SAYSO_SECRET_DB_PASSWORD": "x"}, tmp_path)
    text = refusal(source, "DB_PASWORD")
    assert "SAYSO_SECRET_DB_PASWORD" in text
    assert str(tmp_path / "DB_PASWORD") in text
    assert "did you mean DB_PASSWORD?" in text
    assert "did you mean DB_PASSWORD?" in refusal(source, "db_password")


@pytest.mark.parametrize("name", ["", "../TOKEN", "a/b", "A-B", ".hidden", "1A", "A\n", "ä"])
def test_names_that_are_no_names_are_refused(tmp_path: Path, name: str) -> None:
    """No name reaches outside the directory or the prefix."""
    assert "is not a valid secret name" in refusal(SecretSource({}, tmp_path), name)


def test_the_key_of_the_database_is_no_secret_of_flows(tmp_path: Path) -> None:
    """`SAYSO_SECRET_KEY` signs the database and is neither listed nor given out."""
    (tmp_path / "KEY").write_text("signing-key")
    source = SecretSource({"SAYSO_SECRET_KEY": "signing-key"}, tmp_path)
    assert "signing-key" not in refusal(source, "KEY")
    assert source.names() == ()


def test_links_inside_the_directory_are_followed(tmp_path: Path) -> None:
    """Kubernetes mounts each secret as a link to a link in the same directory."""
    (tmp_path / "..2026_11_21").mkdir()
    (tmp_path / "..2026_11_21" / "TOKEN").write_text("canary\n")
    (tmp_path / "..data").symlink_to("..2026_11_21")
    (tmp_path / "TOKEN").symlink_to("..data/TOKEN")
    source = SecretSource({}, tmp_path)
    assert source.get("TOKEN") == "canary"
    assert source.names() == ("TOKEN",)


def test_links_out_of_the_directory_are_refused(tmp_path: Path) -> None:
    """A link cannot make another file of the machine a secret."""
    (tmp_path / "outside").write_text("canary")
    (tmp_path / "mounted").mkdir()
    (tmp_path / "mounted" / "TOKEN").symlink_to(tmp_path / "outside")
    text = refusal(SecretSource({}, tmp_path / "mounted"), "TOKEN")
    assert "link that leads out of" in text
    assert "canary" not in text


def test_what_is_no_readable_text_is_refused(tmp_path: Path) -> None:
    """Directories, pipes, binary, huge and empty files give an error and never hang."""
    (tmp_path / "FOLDER").mkdir()
    os.mkfifo(tmp_path / "PIPE")
    (tmp_path / "BINARY").write_bytes(b"\xff\xfe")
    (tmp_path / "HUGE").write_bytes(b"x" * 70_000)
    (tmp_path / "EMPTY").write_bytes(b"\n")
    (tmp_path / "NUL").write_bytes(b"a\0b")
    source = SecretSource({}, tmp_path)
    assert "is not a file" in refusal(source, "FOLDER")
    assert "is not a file" in refusal(source, "PIPE")
    assert "is not UTF-8" in refusal(source, "BINARY")
    assert "is larger than" in refusal(source, "HUGE")
    assert "is empty" in refusal(source, "EMPTY")
    assert "is not text" in refusal(source, "NUL")


def test_names_are_listed_from_both_places(tmp_path: Path) -> None:
    """Names are sorted and without what is not a name."""
    (tmp_path / "B").write_text("x")
    (tmp_path / "README.md").write_text("x")
    (tmp_path / "..data").mkdir()
    env = {"SAYSO_SECRET_A": "x", "SAYSO_SECRETS_DIR": "x", "PATH": "x", "SAYSO_SECRET_": "x"}
    assert SecretSource(env, tmp_path).names() == ("A", "B")
    assert SecretSource({}, tmp_path / "missing").names() == ()


def program(folder: Path, script: str) -> list[str]:
    """A program that gives secrets; it writes down each question."""
    file = folder / "give.sh"
    file.write_text(f'#!/bin/sh\necho "$2" >> {folder}/asked\n{script}\n')
    file.chmod(0o700)
    return [str(file), "read"]


def test_a_program_gives_what_is_nowhere_else(tmp_path: Path) -> None:
    """It is run with the name as its last argument; a variable is before it, and no variable of sayso's reaches it."""
    env = {
        "SAYSO_SECRET_OTHER": "env",
        "VAULT_TOKEN": "v",
        "SLACK_BOT_TOKEN": "xoxb",
        "PATH": os.environ["PATH"],
    }
    source = SecretSource(
        env, None, program(tmp_path, 'echo "$2 $VAULT_TOKEN [$SAYSO_SECRET_OTHER$SLACK_BOT_TOKEN]"')
    )
    assert source.get("TOKEN") == "TOKEN v []"
    assert source.get("OTHER") == "env"
    assert refusal(source, "COMMAND")
    assert (tmp_path / "asked").read_text() == "TOKEN\n"


def test_a_program_is_asked_again_after_a_while(tmp_path: Path) -> None:
    """A value is kept for a minute, a refusal for seconds: a rotated secret is seen, and a vault is not asked for each node."""
    now = [0.0]
    source = SecretSource({}, None, program(tmp_path, f"cat {tmp_path}/value"), steady=lambda: now[0])
    assert "ended with 1" in refusal(source, "TOKEN")
    (tmp_path / "value").write_text("old1\n")
    assert "ended with 1" in refusal(source, "TOKEN")
    now[0] = REFUSED_SECONDS
    assert source.get("TOKEN") == "old1"
    (tmp_path / "value").write_text("new1\n")
    assert source.get("TOKEN") == "old1"
    now[0] += KEPT_SECONDS
    assert source.get("TOKEN") == "new1"
    assert len((tmp_path / "asked").read_text().split()) == 3


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo canary-in-complaint >&2; exit 7", "ended with 7"),
        ("head -c 100000 /dev/zero", "printed too much"),
        (r"printf '\377'", "printed something that is not text"),
        ("true", "is empty"),
    ],
)
def test_a_program_that_gives_nothing_usable_is_one_sentence(tmp_path: Path, script: str, told: str) -> None:
    """People in threads read it, so what the program complained of is in the log only."""
    text = refusal(SecretSource(dict(os.environ), None, program(tmp_path, script)), "TOKEN")
    assert told in text
    assert "canary" not in text
    assert "could not be started" in refusal(SecretSource({}, None, ["/nowhere/give"]), "TOKEN")


def test_a_program_that_prints_for_ever_is_ended(tmp_path: Path) -> None:
    """With what it began, and long before its time is over: all of it would be in the memory of the bot."""
    source = SecretSource(dict(os.environ), None, program(tmp_path, "yes & yes"))
    tracemalloc.start()
    try:
        assert "printed too much" in refusal(source, "TOKEN")
        assert tracemalloc.get_traced_memory()[1] < 4 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_a_helper_that_a_program_leaves_running_is_not_waited_for(tmp_path: Path) -> None:
    """Password managers start an agent that keeps their output open."""
    helper = f"sleep 60 & echo $! > {tmp_path}/helper; echo value"
    source = SecretSource(dict(os.environ), None, program(tmp_path, helper))
    before = time.monotonic()
    assert source.get("TOKEN") == "value"
    assert time.monotonic() - before < COMMAND_SECONDS / 2
    os.kill(int((tmp_path / "helper").read_text()), signal.SIGKILL)  # it runs on


async def test_the_event_loop_does_not_wait_for_a_secret(tmp_path: Path) -> None:
    """A node's secrets are looked up in a thread of their own before it runs."""
    threads: list[threading.Thread] = []

    def secret(name: str) -> str:
        threads.append(threading.current_thread())
        return "canary"

    flow = load_flow(
        "flow: one\nnodes: [{id: a, type: shell, with: {run: [\"true\"], env: {A: '{{ secrets.TOKEN }}'}}}]"
    )
    async with Runtime("memory:", home=tmp_path, secret=secret) as runtime:
        session = await (await runtime.start(flow, actor=Actor.local("ana"))).ended()
    assert session.status == "complete"
    assert threads[0] is not threading.main_thread()


def test_references_become_text() -> None:
    """A reference, and text with references in it, is resolved; other values are JSON."""
    resolver = Resolver({"A": "one1", "B": "two2"}.__getitem__)
    assert resolver.text({"$secret": "A"}, "x") == "one1"
    mixed = {"$secret_text": ["Bearer ", {"$secret": "B"}, ":", 3]}
    assert resolver.text(mixed, "x") == "Bearer two2:3"
    assert resolver.text("plain", "x") == "plain"
    assert resolver.text({"$secret": "A", "more": 1}, "x") == '{"$secret":"A","more":1}'
    assert resolver.redactor().text("one1 two2") == "[secret A] [secret B]"


def test_a_reference_to_nothing_is_a_refusal() -> None:
    """An error of the source becomes the outcome `secret` and says where the reference stands."""
    resolver = Resolver(SecretSource({}, None).get)
    with pytest.raises(Refusal) as caught:
        resolver.text({"$secret": "TOKEN"}, "header Authorization")
    assert caught.value.outcome.type == "secret"
    assert caught.value.outcome.message.startswith("header Authorization: secret TOKEN is not set")
    with pytest.raises(Refusal):
        resolver.text({"$secret": 3}, "x")
