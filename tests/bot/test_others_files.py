"""Files that others may have written, and what is not a file, where settings, people and MCP servers are looked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bot.config import settings as module
from bot.config.directory import Directory
from bot.config.settings import SettingsError, load_settings, read_env_file
from engine.nodes.runtime.mcp_servers import McpUnconfigured, servers

GIVEN = {
    "SAYSO_SECRET_COMMAND": "/tmp/steal",
    "SAYSO_MCP_CONFIG": "/tmp/mcp.json",
    "SAYSO_PEOPLE": "/tmp/people.yml",
    "SLACK_API_URL": "https://evil.example/api/",
    "ANTHROPIC_BASE_URL": "https://evil.example",
    "SAYSO_BLOBS": "s3://evil/sessions",
    "SAYSO_WEB_OIDC_ISSUER": "https://evil.example",
    "SAYSO_WEB_URL": "https://evil.example",
    "PATH": "/tmp",
    "LD_PRELOAD": "/tmp/steal.so",
    "GIT_CONFIG_GLOBAL": "/tmp/gitconfig",
}
HARMLESS = {"SAYSO_RETENTION": "7d", "SLACK_BOT_TOKEN": "xoxb-1", "ANTHROPIC_API_KEY": "k"}


@pytest.fixture
def env_file(tmp_path: Path) -> Path:
    """A `.env` with settings that name programs, and others."""
    file = tmp_path / ".env"
    file.write_text("".join(f"{name}={value}\n" for name, value in {**GIVEN, **HARMLESS}.items()))
    return file


def test_an_env_file_of_ones_own_is_read_whole(env_file: Path) -> None:
    """Only this user and root may write it."""
    env_file.chmod(0o644)
    assert read_env_file(env_file) == GIVEN | HARMLESS


def test_an_env_file_that_others_may_write_names_no_program_and_no_address(
    env_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What names none is taken from it; the rest is told once, by name, with what to do."""
    module._say_once.cache_clear()
    env_file.chmod(0o666)
    assert [read_env_file(env_file) for _ in range(2)] == [HARMLESS] * 2
    (record,) = caplog.records
    assert all(name in record.getMessage() for name in GIVEN)
    assert not any(name in record.getMessage() for name in HARMLESS)
    assert "chmod" in record.getMessage()


def test_an_env_file_of_somebody_else_names_no_program_and_no_address(
    env_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may write it is told by its owner, also where nobody else may."""
    env_file.chmod(0o600)
    monkeypatch.setattr(module, "is_ours", lambda info: False)
    assert load_settings({}, cwd=env_file.parent).secret_command == ()
    assert load_settings({"SAYSO_SECRET_COMMAND": "vault"}, cwd=env_file.parent).secret_command == ("vault",)


def test_an_env_file_of_somebody_else_names_no_store(env_file: Path) -> None:
    """Another store is not served in its place: the command ends, unless the environment says which one."""
    env_file.write_text("SAYSO_DATABASE_URL=postgresql://evil.example/sayso\n")
    env_file.chmod(0o666)
    with pytest.raises(SettingsError, match="SAYSO_DATABASE_URL is not read"):
        load_settings({}, cwd=env_file.parent)
    ours = "postgresql://db.example/sayso"
    assert load_settings({"SAYSO_DATABASE_URL": ours}, cwd=env_file.parent).database_url == ours


def test_a_setting_that_the_environment_has_is_not_told_of(
    env_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is missing where the environment says it."""
    module._say_once.cache_clear()
    env_file.write_text("SAYSO_SECRET_COMMAND=/tmp/steal\n")
    env_file.chmod(0o666)
    load_settings({"SAYSO_SECRET_COMMAND": "vault"}, cwd=env_file.parent)
    assert caplog.records == []


@pytest.mark.parametrize("kind", ["pipe", "folder", "nothing"])
def test_an_env_file_that_is_no_file_is_none(tmp_path: Path, kind: str) -> None:
    """No command waits for a pipe."""
    if kind == "pipe":
        os.mkfifo(tmp_path / ".env")
    elif kind == "folder":
        (tmp_path / ".env").mkdir()
    assert read_env_file(tmp_path / ".env") == {}


def test_an_env_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    """A command does not run with half of its settings."""
    (tmp_path / ".env").symlink_to(tmp_path / ".env")
    with pytest.raises(SettingsError, match="cannot be read"):
        read_env_file(tmp_path / ".env")


def test_a_pipe_in_place_of_the_servers_is_refused(tmp_path: Path) -> None:
    """Nothing waits for it."""
    os.mkfifo(tmp_path / "mcp.json")
    with pytest.raises(McpUnconfigured, match="is no file"):
        servers(tmp_path / "mcp.json")


def test_a_pipe_in_place_of_the_people_names_nobody(tmp_path: Path) -> None:
    """Nothing waits for it, and what was read before holds."""
    file = tmp_path / "people.yml"
    file.write_text("people: {ben@example.com: {manager: cleo@example.com}}\n")
    people = Directory(file, lambda: "", lambda: 0.0)
    assert people.manager_of("ben@example.com") == "cleo@example.com"
    file.unlink()
    os.mkfifo(file)
    assert people.manager_of("ben@example.com") == "cleo@example.com"


def test_a_key_without_a_value_among_the_people_is_refused(tmp_path: Path) -> None:
    """A manager is not left out by half a line, and what was read before holds."""
    file = tmp_path / "people.yml"
    file.write_text("people: {ben@example.com: {manager: cleo@example.com}}\n")
    people = Directory(file, lambda: "", lambda: 0.0)
    assert people.manager_of("ben@example.com") == "cleo@example.com"
    file.write_text("people:\n  ben@example.com:\n    manager:  # to be said\n")
    os.utime(file, (1, 1))
    assert people.manager_of("ben@example.com") == "cleo@example.com"
