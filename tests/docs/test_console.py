"""What the pages show of the command line is what it does: every `console` block is typed in and compared."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bot.config.settings import account
from tests.support import prefork

ROOT = Path(__file__).resolve().parents[2]
ID = re.compile(r"(?:session|prompt)-[0-9a-f]{10,}")
SPAN = re.compile(r"(?:<1s|\b\d+(?:m \d+)?s)\b")
TIME = re.compile(r"(?<![:\w])\d\d:\d\d(?::\d\d)?\b")

pytestmark = pytest.mark.process


@dataclass
class Terminal:
    """A shell in a folder of its own. Ids on the page stand for those of this run, as they turn up."""

    folder: Path
    ids: dict[str, str] = field(default_factory=dict)

    def type(self, command: str) -> list[str]:
        """What the command prints, line by line."""
        for shown, real in self.ids.items():
            command = command.replace(shown, real)
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("SAYSO_", "SLACK_"))
        }
        sayso = self.folder.with_name(f"{self.folder.name}-bin") / "sayso"
        if not sayso.exists():
            sayso.parent.mkdir()
            sayso.write_text(f'#!/bin/sh\nexec {shlex.join(prefork.front("-m", "bot.cli"))} "$@"\n')
            sayso.chmod(0o755)
        path = os.pathsep.join([str(sayso.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
        env = {**kept, "PATH": path, "SAYSO_USER": "ana", "COLUMNS": "100", "NO_COLOR": "1", "TZ": "UTC"}
        if command.startswith("sayso ") and not re.search(r"[|><$]", command):
            words = shlex.split(command)[1:]
            ran = prefork.run(["-m", "bot.cli", *words], cwd=self.folder, env=env, merged=True)
            return ran.stdout.splitlines()
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
        )
        return done.stdout.decode().splitlines()

    def compare(self, command: str, shown: list[str], printed: list[str]) -> None:
        """`...` stands for any lines, `…` at the end of a line for the rest of it; times and ids are this run's."""
        rest = list(printed)
        skipping = False
        for line in shown:
            if line == "...":
                skipping = True
                continue
            while skipping and rest and not self.same(line, rest[0]):
                rest.pop(0)
            found = rest.pop(0) if rest else "(nothing more)"
            assert self.same(line, found), self.complaint(command, line, printed)
            self.ids.update(zip(ID.findall(line), ID.findall(found), strict=False))
            skipping = False
        assert skipping or not rest, self.complaint(command, "(the end)", printed)

    def same(self, shown: str, printed: str) -> bool:
        """Whether the page's line is this line."""
        for known, real in self.ids.items():
            shown = shown.replace(known, real)
        new = [found for found in ID.findall(shown) if found not in self.ids.values()]
        for name, real in zip(
            new, [i for i in ID.findall(printed) if i not in self.ids.values()], strict=False
        ):
            shown = shown.replace(name, real)
        wanted, got = plain(shown), plain(printed)
        return got.startswith(wanted[:-1].rstrip()) if wanted.endswith("…") else got == wanted

    def complaint(self, command: str, line: str, printed: list[str]) -> str:
        """What a failing comparison says."""
        return "\n".join([f"$ {command}", f"the page says: {line}", "it printed:", *printed])


def plain(line: str) -> str:
    """A line without what differs from run to run: times, durations, the width of columns, and that the account under which
    this runs is not called `ana`."""
    line = line.replace(f" (account {account()})", "")
    return " ".join(TIME.sub("<time>", SPAN.sub("<span>", line)).split())


def commands(page: Path) -> list[tuple[str, list[str]]]:
    """The commands of a page's `console` blocks with the lines shown below each."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"(?ms)^```console\n(.*?)^```$", page.read_text()):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


PAGES = ["docs/first-agent.md", "docs/production.md", "docs/quickstart.md", "docs/sessions.md"]


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_do_what_it_shows(page: str, tmp_path: Path) -> None:
    """Whoever writes the files and types the commands that the page shows, in a folder that `sayso init` made, sees what it
    shows."""
    terminal = Terminal(tmp_path)
    terminal.type("sayso init")
    for file, text in re.findall(
        r"(?ms)^[^\n]*into `([\w./-]+)`:\n\n```\w+\n(.*?)^```$", (ROOT / page).read_text()
    ):
        (tmp_path / file).write_text(text)
    typed = commands(ROOT / page)
    assert typed, "the page shows no commands"
    for command, shown in typed:
        terminal.compare(command, shown, terminal.type(command))
