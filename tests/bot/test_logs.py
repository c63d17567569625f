"""Logs for machines: what a line is about, and which parts say how much."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.config.logs import LIBRARIES, JsonLines, set_up
from bot.config.settings import SettingsError, load_settings
from engine import Actor, Runtime, load_flow, node
from engine.language.errors import StorageBusy
from engine.nodes.types.registry import forget


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What is logged as JSON, line by line."""
    found: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(self.format(record))

    handler = Kept()
    handler.setFormatter(JsonLines())
    logging.getLogger().addHandler(handler)
    yield found
    logging.getLogger().removeHandler(handler)


@pytest.fixture
def complaining() -> Iterator[None]:
    """A node type that logs a text of two lines."""

    @node("log_breaks")
    async def breaks() -> None:
        logging.getLogger("sayso.node").warning("first\nsecond")

    yield
    forget()


@pytest.mark.usefixtures("complaining")
async def test_a_line_says_which_session_and_node_it_is_about(lines: list[str], tmp_path: Path) -> None:
    """Also one that a node of somebody else's writes; each is one line."""
    flow = load_flow("flow: one\nnodes: [{id: a, type: log_breaks}]")
    async with Runtime("memory:", home=tmp_path) as runtime:
        session = await (await runtime.start(flow, actor=Actor.local("ana"))).ended()
    (line,) = [text for text in lines if "first" in text]
    assert "\n" not in line
    told = json.loads(line)
    assert (told["session"], told["path"], told["level"]) == (session.id, "a", "warning")
    assert told["message"] == "first\nsecond"


def test_a_part_has_its_own_level(capsys: pytest.CaptureFixture[str]) -> None:
    """`warning,sayso.slack=debug` lets one part tell all, as JSON with what was raised."""
    before = logging.getLogger().handlers[:], logging.getLogger().level
    try:
        levels = load_settings({"SAYSO_LOG_LEVEL": "warning, sayso.slack=debug"}, cwd=Path("/")).log_levels
        set_up(levels or {}, as_json=True)
        logging.getLogger("sayso.slack").debug("heard")
        logging.getLogger("sayso.engine").info("quiet")
        try:
            raise ValueError("broken")
        except ValueError:
            logging.getLogger("sayso.engine").exception("loud")
    finally:
        logging.getLogger().handlers[:], logging.getLogger().level = before
        logging.getLogger("sayso.slack").setLevel(logging.NOTSET)
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["message"] for line in told] == ["heard", "loud"]
    assert told[1]["exception"].endswith("ValueError: broken")


@pytest.mark.parametrize("name", ["mcp.client.streamable_http", "httpx2", "anthropic._base_client"])
def test_libraries_that_log_what_they_send_are_quiet_unless_they_are_named(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Their lines have addresses with their queries, and arguments with the values of secrets."""
    before = logging.getLogger().handlers[:], logging.getLogger().level
    try:
        set_up({"": "debug"}, as_json=True)
        logging.getLogger(name).debug("Sending client message: canary")
        logging.getLogger(name).info("HTTP Request: POST https://server/mcp?key=canary")
        assert "canary" not in capsys.readouterr().err
        set_up({"": "debug", name: "debug"}, as_json=True)
        logging.getLogger(name).debug("canary")
        assert "canary" in capsys.readouterr().err
    finally:
        logging.getLogger().handlers[:], logging.getLogger().level = before
        for each in (name, *LIBRARIES):
            logging.getLogger(each).setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("SAYSO_LOG_LEVEL", "loud", "takes a level"),
        ("SAYSO_LOG_FORMAT", "xml", "takes text or json"),
        ("SAYSO_METRICS", "everywhere", "takes a port"),
        ("SAYSO_METRICS", "0.0.0.0:99999", "takes a port"),
        ("SAYSO_METRICS", "²", "takes a port"),
        ("SAYSO_SECRET_COMMAND", "vault 'x", "takes a program"),
    ],
)
def test_a_setting_of_operations_that_cannot_be_used_is_refused(name: str, value: str, told: str) -> None:
    """By its name, with what it takes."""
    with pytest.raises(SettingsError, match=f"^{name} is .* it {told}"):
        load_settings({name: value}, cwd=Path("/"))


@pytest.mark.parametrize(
    "line",
    [
        "SAYSO_USERS=",
        "SAYSO_USERS",
        "SAYSO_USERS=,",
        "SAYSO_CHANNELS= #C012345",
        'SAYSO_CHANNELS=""',
        "SAYSO_DATABASE_URL=",
        "SAYSO_ENCRYPTION_KEYS=  # later",
        "SAYSO_FLOWS=",
    ],
)
def test_a_setting_without_a_value_is_refused(tmp_path: Path, line: str) -> None:
    """A list of those who may use the bot is never left out by a comment or half a line."""
    (tmp_path / ".env").write_text(f"{line}\n")
    with pytest.raises(SettingsError, match=r"has no value|takes one or more entries"):
        load_settings({}, cwd=tmp_path)


@pytest.mark.parametrize("as_json", [False, True])
def test_expected_trouble_is_a_line(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a locked database nor too many open files have a traceback, whoever logs them; what nobody foresaw has one."""
    set_up({}, as_json=as_json)
    full = OSError(errno.EMFILE, "Too many open files")
    for error in (StorageBusy("sayso.db was held by another process"), full, OSError(errno.EIO, "oops")):
        try:
            raise error
        except Exception:
            logging.getLogger("asyncio").exception("a listener failed\nsocket: <7>")
    first, files, second = capsys.readouterr().err.strip().split("a listener failed")[1:]
    assert ("held by another process" in first, "Traceback" in first) == (True, False)
    assert ("Too many open files" in files, "Traceback" in files, "socket" in files) == (True, False, False)
    assert "Traceback" in second
