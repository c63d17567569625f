"""The examples, as the bot runs them: to their ends, against a real repository, a real server, real files."""

from __future__ import annotations

import asyncio
import os
import runpy
import shutil
import subprocess
import sys
from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.support.acting import Acts, Workspace
from tests.support.bot import ROOT, BotProcess, ThreadView, start_flow
from tests.support.simulated import TownWorkspace, in_town, inhabited_town

EXAMPLES = ROOT / "examples"


def only(folder: Path, name: str) -> Path:
    """A folder with one of the examples, and the tools beside it."""
    made = folder / "examples"
    made.mkdir()
    (made / f"{name}.yml").symlink_to(EXAMPLES / f"{name}.yml")
    (made / "tools").symlink_to(EXAMPLES / "tools")
    return made


# --- release-checklist -------------------------------------------------------------------------------------


def git(repository: Path, *arguments: str) -> str:
    """What git says."""
    done = subprocess.run(
        ["git", "-C", str(repository), *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a release and one commit after it."""
    folder = tmp_path_factory.mktemp("released")
    git(folder, "init", "--quiet", "--template=")
    git(folder, "config", "user.name", "Ana Ruiz")
    git(folder, "config", "user.email", "ana@example.com")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "Begin")
    git(folder, "tag", "v1.3.0")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "Sort <b> & `c`")
    return folder


@pytest.fixture
def repository(tmp_path: Path, released: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(released, tmp_path / "repository"))


async def checklist(workspace: Acts, repository: Path, version: str = "1.4.0") -> ThreadView:
    """A started release."""
    line = f"release-checklist version={version} repository={repository}"
    return await start_flow(workspace, "ana", "releases", line)


@in_town(lambda folder: only(folder, "release-checklist"))
async def test_a_release_is_checked_approved_tagged_and_announced(
    workspace: TownWorkspace, repository: Path
) -> None:
    """Commits are shown, people answer, somebody else approves; the tag carries the notes and the thread says so."""
    thread = await checklist(workspace, repository)
    await thread.says("Release *1.4.0*, after v1.3.0:")
    await thread.says("Sort &lt;b&gt; &amp; `c`")
    await thread.press("ana", await thread.says("Is the changelog written?"), "Yes")
    await thread.press("ana", await thread.says("change the database?"), "Yes, rehearsed")
    await thread.says("What should people know")
    await thread.reply("ana", "Sorting is <faster> & *stable*")
    approval = await thread.says("Tag *1.4.0*?")
    await thread.approve("ana", approval)
    await workspace.wait_for(lambda: workspace.ephemerals("ana"))
    assert git(repository, "tag", "--list", "v1.4.0") == ""
    await thread.approve("ben", approval)
    await thread.says("🚀 *1.4.0* is tagged, approved by Ben Okafor.")
    await thread.says("*Completed*")
    assert (
        git(repository, "tag", "--list", "--format=%(contents)", "v1.4.0") == "Sorting is <faster> & *stable*"
    )


@pytest.mark.parametrize(
    ("version", "answers", "reason"),
    [
        ("1.4", [], "1.4 is not a version such as 1.4.0"),
        ("1.3.0", [], "Tag v1.3.0 already exists"),
        ("1.4.0", [("Is the changelog written?", "No")], "The changelog is not written"),
        (
            "1.4.0",
            [("Is the changelog written?", "Yes"), ("change the database?", "Yes, not rehearsed")],
            "The database change was not rehearsed",
        ),
    ],
)
@in_town(lambda folder: only(folder, "release-checklist"))
async def test_a_release_that_is_not_ready_stops(
    workspace: TownWorkspace, repository: Path, version: str, answers: list[tuple[str, str]], reason: str
) -> None:
    """What is not ready ends the release with the reason, before anybody is asked to approve it."""
    thread = await checklist(workspace, repository, version)
    for question, answer in answers:
        await thread.press("ana", await thread.says(question), answer)
    await thread.says(reason)
    await thread.says("❌ *release-checklist* failed at *Stop:")
    assert thread.find("Approval needed") is None
    assert git(repository, "tag", "--list") == "v1.3.0"


async def test_a_place_without_a_repository_is_named(tmp_path: Path) -> None:
    """A path that is not a repository ends the release with what git says about it."""
    async with inhabited_town(tmp_path, only(tmp_path, "release-checklist")) as (workspace, _):
        thread = await checklist(workspace, tmp_path)
        await thread.says("❌ *release-checklist* failed at *Look for uncommitted changes*")
        await thread.says("not a git repository")


# --- incident-first-response -------------------------------------------------------------------------------


@dataclass
class Service:
    """A service on loopback that is down at first, and a pager beside it."""

    url: str = ""
    asked: int = 0
    paged: list[Any] = field(default_factory=list)

    async def health(self, request: web.Request) -> web.Response:
        """500 at the first question, 200 from then on."""
        self.asked += 1
        return web.Response(status=500 if self.asked == 1 else 200, text="overloaded")

    async def page(self, request: web.Request) -> web.Response:
        """Call the team."""
        self.paged.append(await request.json())
        return web.Response(status=202)


@asynccontextmanager
async def running_service() -> AsyncIterator[Service]:
    """The service, listening."""
    service, app = Service(), web.Application()
    app.add_routes([web.get("/health", service.health), web.post("/page", service.page)])
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        service.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield service
    finally:
        await runner.cleanup()


async def test_the_first_five_minutes_of_an_incident(tmp_path: Path) -> None:
    """Facts are gathered although the service fails, anybody in the channel may answer, the team is called once,
    and the first report says it all."""
    async with inhabited_town(tmp_path, only(tmp_path, "incident-first-response")) as (workspace, _):
        async with running_service() as service:
            line = f"service=checkout url={service.url}/health pager={service.url}/page"
            thread = await start_flow(workspace, "ana", "incidents", f"incident-first-response {line}")
            await thread.press(
                "ana", await thread.says("How bad is it for *checkout*?"), "Down for everybody"
            )
            facts = await thread.says("*Facts about checkout*")
            assert "500" in facts["text"]
            assert "Use%" in facts["text"]
            assert "Memory: " in facts["text"]
            await thread.says("What do people see")
            await thread.reply("cleo", "Errors & <timeouts> since 12:04")
            await thread.says("What changed lately")
            await thread.reply("dev", "nothing")
            await thread.press("ben", await thread.says("Call the whole team for *checkout*?"), "Call them")
            report = await thread.says("*First report: checkout, Down for everybody*")
            assert report["text"].strip().splitlines()[1:] == [
                "What people see: Errors &amp; &lt;timeouts&gt; since 12:04",
                "What changed: nothing",
                "Health now: HTTP 200",
                "Team: called",
            ]
            await thread.says("*Completed*")
        wanted = {"service": "checkout", "severity": "sev1", "seen": "Errors & <timeouts> since 12:04"}
        assert service.paged == [wanted]


# --- disk-cleanup ------------------------------------------------------------------------------------------


@pytest.fixture
def this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tools run with the Python that runs the tests."""
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)


def demo(folder: Path) -> Path:
    """The folder that `make run` makes."""
    tool = runpy.run_path(str(EXAMPLES / "tools" / "disk_cleanup.py"))
    tool["demo"](Namespace(directory=str(folder)))
    return folder


@pytest.mark.usefixtures("this_python")
@in_town(lambda folder: only(folder, "disk-cleanup"))
async def test_a_file_that_changed_after_it_was_shown_is_kept(
    workspace: TownWorkspace, tmp_path: Path
) -> None:
    """What is deleted is what was approved: a file that was written to meanwhile stays, and the report says why."""
    folder = await asyncio.to_thread(demo, tmp_path / "demo")
    thread = await start_flow(workspace, "ana", "ops", f"disk-cleanup path={folder}")
    await thread.press("ana", await thread.says("Which should be deleted?"), "All 4 (279 MB)")
    approval = await thread.says("Delete these files")
    (folder / "app.log.1").write_text("somebody needs this")
    await thread.press("dev", approval, "Delete them")
    report = await thread.says("freed*")
    assert (
        "*231 MB freed*: 3 files deleted, 1 kept: app.log.1 (it was changed after it was approved)"
        in report["text"]
    )
    assert (folder / "app.log.1").read_text() == "somebody needs this"


@pytest.mark.usefixtures("this_python")
@in_town(lambda folder: only(folder, "disk-cleanup"))
async def test_a_directory_without_candidates_says_so(workspace: TownWorkspace, tmp_path: Path) -> None:
    """Where nothing is large and old nobody is asked anything."""
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "notes.txt").write_text("small")
    thread = await start_flow(workspace, "ana", "ops", f"disk-cleanup path={tmp_path / 'small'}")
    await thread.says("holds 5 B in 1 file. Nothing in it is larger than 10M and older than 30 days.")
    await thread.says("*Completed*")
    assert thread.find("Which should be deleted?") is None


# --- rolling-restart ---------------------------------------------------------------------------------------


@dataclass
class Fleet:
    """Two hosts (both loopback) and their balancer. A host that was restarted fails its next `failing` questions."""

    port: int = 0
    failing: int = 1
    log: list[str] = field(default_factory=list)
    down: dict[str, int] = field(default_factory=dict)

    async def health(self, request: web.Request) -> web.Response:
        """Whether the host that was asked works."""
        host = request.host.split(":")[0]
        left = self.down.get(host, 0)
        self.down[host] = left - 1
        return web.Response(status=503 if left > 0 else 200)

    async def balance(self, request: web.Request) -> web.Response:
        """Take a host out or in."""
        self.log.append(f"{request.match_info['what']} {request.match_info['host']}")
        return web.Response(status=204)

    async def restart(self, request: web.Request) -> web.Response:
        """What the program that reaches the hosts tells."""
        host = request.match_info["host"]
        self.log.append(f"restart {host}")
        self.down[host] = self.failing
        return web.Response(status=204)


HOSTS = ("127.0.0.1", "localhost")


@asynccontextmanager
async def running_fleet() -> AsyncIterator[Fleet]:
    """The fleet, listening."""
    fleet, app = Fleet(), web.Application()
    app.add_routes(
        [
            web.get("/health", fleet.health),
            web.post("/hosts/{host}/{what}", fleet.balance),
            web.post("/restart/{host}", fleet.restart),
        ]
    )
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        fleet.port = runner.addresses[0][1]
        yield fleet
    finally:
        await runner.cleanup()


def remote(folder: Path, fleet: Fleet) -> Path:
    """A program in the place of ssh: it tells the fleet which host it restarts, and counts its runs."""
    program = folder / "remote"
    program.write_text(
        f"#!{sys.executable} -IS\n"
        "import socket, sys\n"
        "assert sys.argv[2:] == ['systemctl', 'restart', 'checkout'], sys.argv\n"
        f"told = socket.create_connection(('127.0.0.1', {fleet.port}))\n"
        "told.sendall(f'POST /restart/{sys.argv[1]} HTTP/1.0\\r\\n\\r\\n'.encode())\n"
        "assert b' 204 ' in told.recv(100)\n"
    )
    program.chmod(0o755)
    return program


async def restarting(workspace: Acts, fleet: Fleet, folder: Path) -> ThreadView:
    """A started restart of the fleet."""
    balancer = f"http://127.0.0.1:{fleet.port}"
    line = f"service=checkout hosts={','.join(HOSTS)} port={fleet.port} balancer={balancer}"
    return await start_flow(
        workspace, "ana", "releases", f"rolling-restart {line} remote={remote(folder, fleet)}"
    )


@pytest.mark.process
async def test_hosts_are_restarted_one_after_the_other(
    workspace: Workspace, bot: BotProcess, tmp_path: Path
) -> None:
    """After approval each host is drained, restarted, found healthy after a retry and put back; a kill while somebody
    looks at the first one repeats nothing."""
    async with running_fleet() as fleet:
        thread = await restarting(workspace, fleet, tmp_path)
        await thread.approve("ben", await thread.says("· *Before › approval*"))
        asked = await thread.says("127.0.0.1 is back. Does it look right? Then the other 1 follow.")
        assert "*Restart › 127.0.0.1*" in asked["text"]
        first = ["drain 127.0.0.1", "restart 127.0.0.1", "enable 127.0.0.1"]
        assert fleet.log == first
        await bot.kill()
        await bot.start()
        await thread.press("cleo", asked, "Continue")
        await thread.says("*checkout* was restarted on 2 hosts, approved by Ben Okafor.", timeout=30)
        await thread.says("*Completed*")
        assert fleet.log == [*first, "drain localhost", "restart localhost", "enable localhost"]
