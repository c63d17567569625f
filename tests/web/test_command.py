"""`sayso web` as a command: where it listens, what it prints, how it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bot.cli.app import run
from bot.terminal.console import Exit


@pytest.mark.process
def test_it_prints_an_address_and_ends_with_a_signal(home: Path) -> None:
    """The address has the token behind `#`; SIGTERM ends it in order."""
    command = [sys.executable, "-m", "bot.cli", "--home", str(home), "web", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=home) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        assert "read-only" in lines[0]
        assert lines[2].strip().startswith("http://127.0.0.1:")
        assert "/#token=" in lines[2]
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read().strip() == "Stopped."
    assert process.returncode == Exit.OK


def test_it_listens_beyond_this_machine_only_where_others_have_to_log_in(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a provider every other address is refused, and nothing listens."""
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.com"):
        assert run(["--home", str(home), "web", "--host", host]) == Exit.USAGE
        assert "SAYSO_WEB_OIDC_ISSUER" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["SAYSO_WEB_URL", "SAYSO_WEB_OIDC_CLIENT", "SAYSO_WEB_USERS"])
def test_a_login_that_is_set_in_part_is_refused(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Who set a part of it wants people to log in: the token is no substitute."""
    monkeypatch.setenv(name, "https://sayso.example.com")
    assert run(["--home", str(home), "web"]) == Exit.USAGE
    assert "SAYSO_WEB_OIDC_ISSUER" in capsys.readouterr().err


def test_it_makes_no_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever only looks leaves nothing behind."""
    assert run(["--home", str(tmp_path / "home"), "web"]) == Exit.USAGE
    assert "does not exist yet" in capsys.readouterr().err
    assert not (tmp_path / "home").exists()
