"""`sayso dev`: the real bot and a local workspace that speaks Slack's protocol, in one process.

The bot is started as it is against Slack, with other settings: the workspace's tokens, its Web API as the base URL, and
a database of its own under `<home>/dev`. The socket is the only connection between the two. Both are kept, so a restart
continues where it stopped.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import sys
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bot.compose.listening import remember_port, wanted_ports
from bot.config.library import EXAMPLES, Library
from bot.config.settings import Address, Settings, SettingsError
from bot.gate.scripted import play
from bot.pages import LOOPBACK
from bot.serve.identity import Identity
from bot.serve.main import Bot
from bot.terminal.console import leave_at_once, opened
from bot.wire.manifest import AGENT
from bot.workspace import Suggestion, User, Workspace, WorkspaceError
from bot.workspace.methods.call import DEFAULT_SCOPES
from engine.flow import Flow
from engine.flow.load import is_flow_file
from engine.language.actors import Actor
from engine.language.codec import Json
from engine.language.errors import SaysoError
from engine.storage.leases import Lease

WORK_HERE = ("disk-cleanup", "handover", "triage")
"""Examples that go through to their end on any machine: the page offers these first."""
HOME_CHANNEL, CHANNELS = "ops", ("incidents", "releases")
"""Channels in which flows are suggested: the one with a matching name, else the first."""
STARTER = Path(__file__).resolve().parents[1] / "starter"
"""Files of a new folder."""
PORT = 8765
"""Default port of the page; another one is used if it is taken."""


WATCH_SECONDS = 0.5
"""Seconds between checks for saved flow files."""


class DevFailed(SaysoError):
    """The local workspace cannot start; says why."""

    code = "settings"


@dataclass(frozen=True)
class Ready:
    """Addresses and parts of the running pair."""

    url: str
    api_url: str
    bot: Bot
    identity: Identity
    room: str
    """The address of the control room."""


@asynccontextmanager
async def _control_room(
    settings: Settings, workspace: Workspace, places: Sequence[Path]
) -> AsyncIterator[str]:
    """The control room over the workspace's database meanwhile; its address, with the token. The token logs in the person of
    the workspace that its page opens as: nobody else could start or answer something there."""
    from bot.web.access import Access  # what reads flows for it is loaded while the bot starts
    from bot.web.server import Room, running

    ana = _first_person(workspace)
    access = Access(Actor(id=ana.id, name=ana.real_name), asyncio.get_running_loop().time)
    settings = replace(settings, admins=settings.admins | {ana.id})
    with opened(settings) as store:
        chat = f"{workspace.url}/"

        def threads(thread: Mapping[str, Json]) -> str:
            return f"{chat}#/{thread.get('channel')}/{thread.get('threadTs')}"

        room = Room(store, settings, access, LOOPBACK, write=True, link_to=threads, chat=chat)
        room.library = Library(*places)
        async with running(room, "127.0.0.1", None) as url:
            yield access.address(url)


def _first_person(workspace: Workspace) -> User:
    """Ana: the page opens as her."""
    return next(user for user in workspace.core.state.users.values() if user.name == "ana")


def dev_database(settings: Settings) -> Path:
    """The file of the local workspace's own database."""
    return settings.home / "dev" / "sayso.db"


async def run_dev(
    settings: Settings,
    flows: Sequence[Path],
    port: int | None,
    on_ready: Callable[[Ready], None],
    lease: Lease,
    saved: Callable[[Path, str], None],
    *,
    limits: bool = False,
    agent: bool = False,
    gate: bool = False,
) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP, and drain. `lease` is the one of `dev_database`: without it the state of
    a workspace that runs would be overwritten. `limits` are Slack's published ones; with `agent` the app is an
    agent of Slack's; `saved` is told of each flow file that changes; with `gate` a scripted agent asks in the first channel. Raises `DevFailed`, `StorageError`."""
    places, beside = flows or default_flows(settings), list[asyncio.Task[None]]()
    home = dev_database(settings).parent
    workspace = await start_workspace(home / "workspace.json", port)
    if limits:
        workspace.core.faults.limit()
    if agent:
        workspace.core.faults.set_scopes([*DEFAULT_SCOPES, *AGENT.scopes])
    try:
        # The same settings, for the local workspace: the real Slack and its database are not touched.
        local = replace(
            settings,
            home=home,
            database_url=f"sqlite:///{dev_database(settings)}",
            bot_token=workspace.bot_token,
            app_token=workspace.app_token,
            api_url=workspace.api_url,
            snapshot_dir=None,
            blobs=None,
            agents=replace(settings.agents, scripted="without_key"),
        )
        if gate:
            rules = settings.gate_file if settings.gate_file.exists() else STARTER / "gate.yml"
            local = replace(local, gate=settings.gate or Address("127.0.0.1", 0), gate_rules=rules)
        served = Bot(local, flows=places)
        served.library.logs_faults = False
        workspace.suggest(suggestions(served.library.refresh().values(), settings.home / "demo"))
        stop_on_signals(served, lease.stopping)

        def ready(identity: Identity) -> None:
            lease.reached_at(f"{workspace.url}/")
            beside.append(asyncio.create_task(watch(served.library, saved)))
            on_ready(Ready(workspace.url, workspace.api_url, served, identity, room))
            if gate:
                ana = _first_person(workspace)
                beside.append(asyncio.create_task(play(served.requests, ana.id, home / "agent.step")))

        async with _control_room(local, workspace, places) as room:
            web = replace(local.web, url=room.partition("#")[0])  # not that of the real installation
            served.settings = replace(local, web=web)
            await served.run(ready)
    finally:
        for task in beside:
            task.cancel()
        await workspace.stop()


async def watch(library: Library, saved: Callable[[Path, str], None]) -> None:
    """Say of each flow file that is saved from now on whether it is served, or what is wrong with it, and where."""
    library.refresh()
    before = library.files()
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        library.refresh()
        found = library.files()
        for file, (stamp, told) in found.items():
            if file not in before or before[file][0] != stamp:
                saved(file, told)
        for file in before.keys() - found.keys():
            saved(file, "no longer served")
        before = found


def default_flows(settings: Settings) -> list[Path]:
    """Return the folder of flows if it has any, else the examples that come with sayso. Raises `SettingsError`."""
    for folder in (settings.flows, EXAMPLES):
        if folder.is_dir() and any(is_flow_file(file.name) for file in folder.iterdir()):
            return [folder]
    raise SettingsError(
        f"There are no flows in {settings.flows}. Name flow files or folders (sayso dev FILE), or set SAYSO_FLOWS."
    )


def suggestions(flows: Iterable[Flow], demo: Path) -> list[Suggestion]:
    """Return the page's suggestions: each flow, in its most likely channel, and how to ask for help. Flows that
    webhooks start are left out, as they cannot be typed.

    `demo` is the folder that `make run` fills, so that `disk-cleanup` can be tried without typing anything.
    """
    said = [flow for flow in flows if not any(trigger.kind == "webhook" for trigger in flow.triggers)]
    said.sort(key=lambda flow: (flow.name not in WORK_HERE, flow.name))
    offered = [_suggestion(flow, demo) for flow in said]
    hint = "The served flows, and how to start them"
    return [*offered, Suggestion(HOME_CHANNEL, "What can you do?", "@sayso help", hint)]


def _suggestion(flow: Flow, demo: Path) -> Suggestion:
    heard = next((trigger for trigger in flow.triggers if trigger.kind == "message"), None)
    if heard is not None:
        # A message that starts a flow by its words, in a channel where they count.
        listed = [entry.removeprefix("#") for entry in heard.channels or ()]
        channel = next((name for name in (HOME_CHANNEL, *CHANNELS) if name in listed), HOME_CHANNEL)
        text = re.sub(r"\{[^{}]*\}", "checkout", heard.pattern).replace("*", "")
        return Suggestion(channel, f"Post a message that starts {flow.name}", text, flow.description or "")
    kind = flow.name.split("-")[0]
    channel = next((name for name in CHANNELS if name.startswith(kind)), HOME_CHANNEL)
    label, text = f"Run {flow.name}", f"@sayso {flow.name}"
    if flow.name == "disk-cleanup" and demo.is_dir():
        label, text = f"{label} on the demo folder", f"{text} path={shlex.quote(str(demo.resolve()))}"
    return Suggestion(channel, label, text, flow.description or "")


def display_there() -> bool:
    """True if a browser could be shown."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def open_page(url: str) -> None:
    """Open the page in a browser, if there is one; it may take its time elsewhere."""
    asyncio.get_running_loop().run_in_executor(None, webbrowser.open, url)


async def start_workspace(file: Path, port: int | None) -> Workspace:
    """The workspace, started: on the port that was asked for, else on the usual one, else on a free one."""
    remembered = file.with_name("page.port")
    for number in wanted_ports(remembered, PORT) if port is None else (port,):
        try:
            workspace = Workspace(port=number, persist_path=file)
            await workspace.start()
            if port is None:
                remember_port(remembered, int(workspace.url.rpartition(":")[2]))
            return workspace
        except WorkspaceError as error:
            raise DevFailed(
                f"The workspace kept in {file} cannot be read ({error}). Move the file away."
            ) from error
        except OSError as error:
            if number == 0 or port is not None:
                raise DevFailed(f"The workspace cannot listen on port {number}: {error.strerror}.") from error
    raise AssertionError("the loop returns or raises")


def stop_on_signals(served: Bot, stopping: Callable[[], None]) -> None:
    """Drain on the first signal and call `stopping`; a second one ends at once: running work is killed and recorded as
    interrupted."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if served.stopping.is_set():
            leave_at_once()
        stopping()
        served.stop()

    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(name, stop)
