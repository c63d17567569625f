"""`sayso start` and `sayso dev`: they say when they are ready and why they are not, and drain when told to stop."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.request import HTTPCookieProcessor, Request, build_opener, urlopen

import pytest

from bot.config.settings import load_settings
from bot.serve import dev
from tests.cli.clikit import Cli, until
from tests.support.acting import Workspace
from tests.support.prefork import Forked
from tests.support.workspace import running_workspace

pytestmark = pytest.mark.process

ASKS = """flow: asks
nodes:
  - {id: why, type: ask, with: {message: "Why?"}}
  - {id: tell, type: message, with: {text: "Because {{ nodes.why.text }}"}}
"""


@pytest.fixture
async def workspace() -> AsyncIterator[Workspace]:
    """A local workspace in this process."""
    async with running_workspace() as started:
        yield started


def connect(cli: Cli, workspace: Workspace) -> None:
    """Point a command at the workspace, with one flow to serve."""
    cli.env = {
        "SLACK_API_URL": workspace.api_url,
        "SLACK_BOT_TOKEN": workspace.bot_token,
        "SLACK_APP_TOKEN": workspace.app_token,
    }
    cli.write("flows/asks.yml", ASKS)


async def line(process: Forked, wanted: str) -> str:
    """The next line of standard output with these words."""
    assert process.stdout is not None
    async with asyncio.timeout(30):
        while text := await asyncio.to_thread(process.stdout.readline):
            if wanted in text:
                return text
    raise AssertionError(f"{wanted!r} was not printed; standard error: {process.communicate()[1]}")


async def ended(process: Forked, how: signal.Signals) -> int:
    """The exit code, once this signal has ended it."""
    process.send_signal(how)
    return await asyncio.to_thread(process.wait, 30)


@asynccontextmanager
async def bot(cli: Cli) -> AsyncIterator[None]:
    """`sayso start`, ready, and ended by SIGTERM."""
    with cli.started("start") as process:
        await line(process, "Ready")
        yield
        assert await ended(process, signal.SIGTERM) == 0


# --- start -------------------------------------------------------------------------------------------------


def test_missing_tokens_are_two(cli: Cli) -> None:
    """Without tokens nothing is tried: which one is missing, and that `sayso dev` needs none; exit code 2."""
    done = cli.run("start")
    assert (done.code, "SLACK_BOT_TOKEN is not set" in done.err, "sayso dev" in done.err) == (2, True, True)


def test_a_token_that_init_wrote_is_none(cli: Cli) -> None:
    """What is in the file that `sayso init` writes is not a token, and Slack is not asked about it."""
    cli.env = {"SLACK_BOT_TOKEN": "xoxb-...", "SLACK_APP_TOKEN": "xapp-..."}
    done = cli.run("start")
    assert (done.code, "SLACK_BOT_TOKEN is not set. Set it in .env " in done.err) == (2, True)


@pytest.mark.parametrize("setting", ["SLACK_BOT_TOKEN", "SLACK_APP_TOKEN"])
async def test_a_token_that_slack_does_not_know_is_seven(
    cli: Cli, workspace: Workspace, setting: str
) -> None:
    """A bad token ends the start within 15 s with its name and exit code 7; the token is not printed."""
    connect(cli, workspace)
    prefix = cli.env[setting][:5]
    cli.env[setting] = f"{prefix}wrong"
    before = time.monotonic()
    done = await asyncio.to_thread(cli.run, "start")
    assert (done.code, setting in done.err, "wrong" in done.err) == (7, True, False), done
    assert time.monotonic() - before < 15


def test_slack_that_cannot_be_reached_is_seven(cli: Cli) -> None:
    """No server at the address: within 15 s a message that says what to check."""
    cli.env = {
        "SLACK_API_URL": "http://127.0.0.1:9/",
        "SLACK_BOT_TOKEN": "xoxb-1",
        "SLACK_APP_TOKEN": "xapp-1",
    }
    before = time.monotonic()
    done = cli.run("start")
    assert (done.code, "Check the network" in done.err, "Traceback" in done.err) == (7, True, False), done
    assert time.monotonic() - before < 15


async def test_start_says_when_it_is_ready_and_drains_on_sigterm(cli: Cli, workspace: Workspace) -> None:
    """One line with who, where and how many flows; broken files are listed; SIGTERM ends it with 0."""
    connect(cli, workspace)
    cli.write("flows/bad.yml", "flow: bad\nnodes: [{id: a, type: shel}]\n")
    with cli.started("start") as process:
        assert await line(process, "Ready") == "Ready: @sayso in Local workspace, 1 flow (asks).\n"
        assert await ended(process, signal.SIGTERM) == 0
        _, errors = process.communicate()
    assert "bad.yml:2:23: unknown node type `shel`" in errors
    assert "Traceback" not in errors


async def asked(cli: Cli, workspace: Workspace) -> dict[str, Any]:
    """Somebody starts the flow by a mention, and it asks in the thread: its session, as it is listed."""
    await workspace.post("ana", "ops", "@sayso asks")
    await workspace.wait_for(lambda: said(workspace, "Why?"), timeout=20)
    listed = await asyncio.to_thread(cli.run, "sessions", "list", "--json")
    session: dict[str, Any] = listed.json["sessions"][0]
    return session


def said(workspace: Workspace, text: str) -> bool:
    """Whether the bot's posts have this text."""
    return text in json.dumps(workspace.state.messages, default=str)


async def test_a_session_of_a_thread_is_aborted_through_the_bot(cli: Cli, workspace: Workspace) -> None:
    """The CLI hands the request to the bot that runs, waits for what becomes of it, and says so."""
    connect(cli, workspace)
    async with bot(cli):
        session = await asked(cli, workspace)
        session_id, (prompt_id,) = session["sessionId"], session["prompts"]
        refused = await asyncio.to_thread(cli.run, "prompts", "answer", prompt_id, "so")
        assert (refused.code, "can answer this" in refused.err) == (5, True), refused
        done = await asyncio.to_thread(cli.run, "sessions", "abort", session_id)
        assert (done.code, done.out) == (0, f"{session_id} is cancelled.\n"), done
    assert await asyncio.to_thread(status_of, cli, session_id) == "aborted"


async def test_without_a_bot_a_request_is_kept_for_it(cli: Cli, workspace: Workspace) -> None:
    """While no bot runs the request waits in the inbox; the next start carries it out."""
    connect(cli, workspace)
    async with bot(cli):
        session_id = (await asked(cli, workspace))["sessionId"]
    done = await asyncio.to_thread(cli.run, "sessions", "abort", session_id)
    assert (done.code, "stays queued until the bot starts" in done.out) == (3, True), done
    async with bot(cli):
        await asyncio.to_thread(
            until, lambda: status_of(cli, session_id) == "aborted", "the session is aborted"
        )


def status_of(cli: Cli, session_id: str) -> str:
    """The status of a session, as another process sees it."""
    return str(cli.run("sessions", "show", session_id, "--json").json["status"])


async def test_a_session_of_a_thread_is_not_taken_to_the_terminal(cli: Cli, workspace: Workspace) -> None:
    """`sessions resume` of a Slack session says where it lives and on whom it waits, and claims nothing."""
    connect(cli, workspace)
    async with bot(cli):
        session_id = (await asked(cli, workspace))["sessionId"]
        done = await asyncio.to_thread(cli.run, "sessions", "resume", session_id)
        assert (done.code, done.json["prompts"][0]["message"]) == (3, "Why?"), done
        root = next(message for message in workspace.messages("ops") if "asks" in message["text"])
        await workspace.post("ana", "ops", "so it is", thread_ts=root["ts"])
        await workspace.wait_for(lambda: said(workspace, "Because so it is"), timeout=20)


# --- dev ---------------------------------------------------------------------------------------------------


def page(url: str, path: str, **body: Any) -> Any:
    """What the page asks its server."""
    data = json.dumps(body).encode() if body else None
    request = Request(f"{url}{path}", data=data, headers={"content-type": "application/json"})
    with urlopen(request, timeout=10) as answer:
        return json.load(answer)


async def dev_url_line(process: Forked) -> str:
    """The address of the page that `sayso dev` prints first."""
    found = re.search(r"http://127\.0\.0\.1:\d+", await line(process, "http://127.0.0.1:"))
    assert found is not None
    return found[0]


async def dev_url(process: Forked) -> str:
    """The address that `sayso dev` prints, once it is ready."""
    url = await dev_url_line(process)
    await line(process, "Three things to try")
    return url


def shown_in(url: str, text: str) -> bool:
    """Whether a channel or thread of #ops shows this text."""
    messages = page(url, "/page/messages?as=U0LOCALANA&channel=C0LOCALOPS")["messages"]
    threads = [
        page(url, f"/page/messages?as=U0LOCALANA&channel=C0LOCALOPS&thread_ts={message['ts']}")
        for message in messages
    ]
    return text in json.dumps(threads)


async def test_dev_serves_flows_without_slack_and_goes_on_after_a_stop(cli: Cli) -> None:
    """The printed page works; a flow asks in its thread; after Ctrl-C and a new start the thread goes on, and its card leads to
    the control room."""
    cli.write("flows/asks.yml", ASKS)
    with cli.started("dev", "--port", "0", "--no-open") as process:
        url = await dev_url(process)
        posted = page(
            url, "/page/post", **{"as": "U0LOCALANA", "channel": "C0LOCALOPS", "text": "@sayso asks"}
        )
        await asyncio.to_thread(until, lambda: shown_in(url, "Why?"), "the question")
        assert await ended(process, signal.SIGINT) == 0
    with cli.started("dev", "--port", "0", "--no-open") as process:
        url = await dev_url(process)
        reply = {"as": "U0LOCALANA", "channel": "C0LOCALOPS", "thread_ts": posted["ts"], "text": "I said so"}
        page(url, "/page/post", **reply)
        await asyncio.to_thread(until, lambda: shown_in(url, "Because I said so"), "the end of the flow")
        await asyncio.to_thread(
            until, lambda: shown_in(url, "|Open in the control room>"), "the link of the card"
        )
        assert await ended(process, signal.SIGTERM) == 0
    assert sorted(path.name for path in (cli.cwd / ".sayso").iterdir()) == ["dev"]


def in_the_room(address: str, path: str, **body: Any) -> Any:
    """What the control room answers a program that logs in with the token of its address."""
    room, _, token = address.partition("/#token=")
    visitor = build_opener(HTTPCookieProcessor())
    headers = {"content-type": "application/json", "X-Sayso": "1", "Accept": "application/json"}
    for where, data in (("/api/login", {"token": token}), (path, body)):
        request = Request(f"{room}{where}", data=json.dumps(data).encode(), headers=headers)
        with visitor.open(request, timeout=20) as answer:
            told = json.load(answer)
    return told


async def test_a_flow_is_started_in_the_control_room_of_dev(cli: Cli) -> None:
    """Whoever opens the printed address is Ana there, so what Ana may start starts in a thread."""
    cli.write("flows/asks.yml", ASKS)
    with cli.started("dev", "--port", "0", "--no-open") as process:
        url = await dev_url_line(process)
        room = await line(process, "/#token=")
        await line(process, "Three things to try")
        begun = {"flow": "asks", "channel": "#ops", "values": {}}
        answer = await asyncio.to_thread(in_the_room, room.strip(), "/api/start", **begun)
        assert answer["outcome"] == "started"
        await asyncio.to_thread(until, lambda: shown_in(url, "Why?"), "the question")


async def test_a_second_signal_ends_dev_quietly(cli: Cli) -> None:
    """What runs is cut at once and asked about at the next start; the log has no error about it."""
    cli.write(
        "flows/works.yml", "flow: works\nnodes: [{id: work, type: shell, with: {run: [sleep, '60']}}]\n"
    )
    with cli.started("-v", "dev", "--port", "0", "--no-open") as process:
        url = await dev_url(process)
        page(url, "/page/post", **{"as": "U0LOCALANA", "channel": "C0LOCALOPS", "text": "@sayso works"})
        await asyncio.to_thread(until, lambda: shown_in(url, "Running"), "the step")
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        logged = [""]
        while "stopping: no new work is accepted" not in logged[-1]:
            logged.append(await asyncio.to_thread(process.stderr.readline))
        assert await ended(process, signal.SIGTERM) == 130
        rest = process.stderr.read()
        assert ("ERROR" in rest, "CRITICAL" in rest, "Traceback" in rest) == (False, False, False), rest
        await line(process, "Stopped immediately.")


async def test_dev_shows_an_agent_that_asks_and_goes_on_after_a_stop(cli: Cli) -> None:
    """With --gate a scripted agent asks about a call; started again it still waits, and after the press it asks about ten."""
    cli.write("flows/asks.yml", ASKS)
    with cli.started("dev", "--gate", "--port", "0", "--no-open") as process:
        url = await dev_url(process)
        await asyncio.to_thread(until, lambda: shown_in(url, "wants to use"), "the question")
        assert await ended(process, signal.SIGINT) == 0
    with cli.started("dev", "--gate", "--port", "0", "--no-open") as process:
        url = await dev_url(process)
        here = "/page/messages?as=U0LOCALBEN&channel=C0LOCALOPS"
        root = page(url, here)["messages"][0]
        asked = next(
            message
            for message in page(url, f"{here}&thread_ts={root['ts']}")["messages"]
            if "wants to use" in json.dumps(message)
        )
        button = next(
            element
            for block in asked["blocks"]
            for element in block.get("elements", [])
            if element.get("action_id") == "sayso:option:0"
        )
        press = {"channel": "C0LOCALOPS", "message_ts": asked["ts"], "action_id": button["action_id"]}
        page(url, "/page/action", **{"as": "U0LOCALBEN", **press})
        await asyncio.to_thread(until, lambda: shown_in(url, "web-10"), "the ten")
        assert not shown_in(url, "may have run")
        assert await ended(process, signal.SIGINT) == 0


async def test_dev_says_that_it_is_not_slack_and_offers_the_flows_by_a_click(cli: Cli) -> None:
    """It says so in its first line, and that nothing leaves the machine; its page has a suggestion for each flow, and one
    for help."""
    cli.write("flows/asks.yml", ASKS)
    with cli.started("dev", "flows/asks.yml", "--port", "0", "--no-open") as process:
        assert "It is not Slack; nothing leaves this machine." in await line(process, "local workspace")
        url = (await line(process, "http://127.0.0.1:")).strip()
        await line(process, "Serving 1 flow (asks)")
        offered = page(url, "page/state?as=U0LOCALANA")["suggestions"]
        assert [each["text"] for each in offered] == ["@sayso asks", "@sayso help"]
        assert await ended(process, signal.SIGTERM) == 0


def test_a_port_that_was_asked_for_and_is_taken_is_two(cli: Cli) -> None:
    """With --port nothing else is tried: the port is named, and the exit code is 2."""
    cli.write("flows/asks.yml", ASKS)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = cli.run("dev", "--port", str(port), "--no-open")
    assert (done.code, f"port {port}" in done.err, "Traceback" in done.err) == (2, True, False), done


async def test_a_taken_usual_port_gives_way_to_a_free_one(
    cli: Cli, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --port the page moves to a free port when the usual one is taken, and works there."""
    taken = int(workspace.url.rsplit(":", 1)[1])
    monkeypatch.setattr(dev, "PORT", taken)
    moved = await dev.start_workspace(cli.cwd / "workspace.json", None)
    try:
        assert moved.url != workspace.url
        assert (await asyncio.to_thread(page, moved.url, "/page/state?as=U0LOCALANA"))["me"]
    finally:
        await moved.stop()


def test_without_flows_of_its_own_dev_serves_the_examples(cli: Cli) -> None:
    """A folder of flows that has none gives way to the examples; one that has some is served."""
    here = load_settings({}, cwd=cli.cwd)
    assert [folder.name for folder in dev.default_flows(here)] == ["examples"]
    cli.write("flows/asks.yml", ASKS)
    assert dev.default_flows(here) == [cli.cwd / "flows"]
