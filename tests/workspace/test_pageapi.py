"""The page protocol, as the page in the browser uses it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from slack_bolt.async_app import AsyncApp

from bot.wire.manifest import SHORTCUT
from tests.support.acting import Workspace
from tests.support.workspace import (
    Json,
    RunningApp,
    actions,
    bare_socket,
    button,
    client_of,
    modal,
    running_app,
    section,
    text_input,
)

ANA, BEN, OPS = "U0LOCALANA", "U0LOCALBEN", "C0LOCALOPS"


class Page:
    """The requests of one browser, as one person."""

    def __init__(self, session: aiohttp.ClientSession, user: str) -> None:
        self.session, self.user = session, user

    async def get(self, name: str, **query: str) -> Json:
        """GET /page/<name>."""
        async with self.session.get(f"/page/{name}", params={"as": self.user, **query}) as answer:
            body: Json = await answer.json()
            return body

    async def send(self, name: str, /, **body: Any) -> Json:
        """POST /page/<name>."""
        async with self.session.post(f"/page/{name}", json={"as": self.user, **body}) as answer:
            answered: Json = await answer.json()
            return answered

    @asynccontextmanager
    async def news(self) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """The page's WebSocket, after its first frame (the status of the app's sockets)."""
        async with self.session.ws_connect(f"/page/ws?as={self.user}") as socket:
            assert (await socket.receive_json(timeout=5))["type"] == "socket_status"
            yield socket


@pytest.fixture
async def ana(workspace: Workspace) -> AsyncIterator[Page]:
    """Ana's browser."""
    async with aiohttp.ClientSession(workspace.url) as session:
        yield Page(session, ANA)


@pytest.fixture
async def ben(workspace: Workspace) -> AsyncIterator[Page]:
    """Ben's browser."""
    async with aiohttp.ClientSession(workspace.url) as session:
        yield Page(session, BEN)


async def test_state_has_all_that_the_page_needs(workspace: Workspace, ana: Page) -> None:
    """Team, people, channels with the app's membership, the direct message, and that it is not Slack."""
    state = await ana.get("state")
    assert state["team"] == {"id": workspace.team_id, "name": "Local workspace"}
    assert "not Slack" in state["not_slack"]
    assert state["me"] == ANA
    assert state["bot"]["user_id"] == workspace.bot_user_id
    assert state["bot"]["commands"] == ["/sayso"]
    assert [one["callback_id"] for one in state["bot"]["shortcuts"]] == [SHORTCUT]
    assert state["connected_sockets"] == 0
    people = {user["name"]: user for user in state["users"]}
    assert people["ana"]["initials"] == "AR"
    assert people["sayso"]["is_bot"] is True
    channels = {channel["name"]: channel for channel in state["channels"]}
    assert channels["random"]["is_member_bot"] is False
    assert channels["sayso"]["is_im"] is True
    assert BEN in channels["ops"]["members"]


async def test_posting_and_reading(workspace: Workspace, ana: Page) -> None:
    """A post and a reply: the channel shows the root with its count, the thread shows both."""
    root = (await ana.send("post", channel=OPS, text="root & @ben"))["ts"]
    await ana.send("post", channel=OPS, text="reply", thread_ts=root)
    (shown,) = (await ana.get("messages", channel=OPS))["messages"]
    assert (shown["text"], shown["reply_count"]) == ("root &amp; <@U0LOCALBEN>", 1)
    thread = (await ana.get("messages", channel=OPS, thread_ts=root))["messages"]
    assert [m["text"] for m in thread[1:]] == ["reply"]


async def test_unread_counts_what_others_posted(workspace: Workspace, ana: Page, ben: Page) -> None:
    """A channel has unread messages for others until they read it, never for the author."""

    async def unread(page: Page) -> int:
        channels = (await page.get("state"))["channels"]
        return int(next(c["unread"] for c in channels if c["id"] == OPS))

    await ana.send("post", channel=OPS, text="news")
    assert (await unread(ana), await unread(ben)) == (0, 1)
    await ben.get("messages", channel=OPS)
    assert await unread(ben) == 0
    await ana.send("post", channel=OPS, text="more")
    assert await unread(ben) == 1
    await ben.send("read", channel=OPS)
    assert await unread(ben) == 0


async def test_news_arrive_by_socket(workspace: Workspace, ana: Page, ben: Page) -> None:
    """Post, reply, edit, reaction and deletion by one person are pushed to another."""
    async with ben.news() as news:
        root = (await ana.send("post", channel=OPS, text="root"))["ts"]
        assert (await news.receive_json())["message"]["text"] == "root"
        await ana.send("post", channel=OPS, text="reply", thread_ts=root)
        counted, reply = await news.receive_json(), await news.receive_json()
        assert (counted["type"], counted["message"]["reply_count"]) == ("message_changed", 1)
        assert (reply["type"], reply["thread_ts"]) == ("message", root)
        await ana.send("edit", channel=OPS, ts=root, text="edited")
        edited = await news.receive_json()
        assert (edited["type"], edited["message"]["text"]) == ("message_changed", "edited")
        await ana.send("react", channel=OPS, ts=root, name="eyes")
        assert (await news.receive_json())["message"]["reactions"][0]["name"] == "eyes"
        await ana.send("delete", channel=OPS, ts=reply["message"]["ts"])
        gone = await news.receive_json()
        assert (gone["type"], gone["ts"]) == ("message_deleted", reply["message"]["ts"])


async def test_private_news_stay_private(workspace: Workspace, ana: Page, ben: Page) -> None:
    """Ephemeral messages and private channels are pushed and shown to nobody else."""
    secret = workspace.add_channel("secret", ["ana", "sayso"], is_private=True)
    async with ben.news() as news:
        await workspace.post("ana", secret, "hidden")
        await client_of(workspace).chat_postEphemeral(channel=OPS, user=ANA, text="psst")
        await workspace.post("ana", "ops", "open")
        assert (await news.receive_json())["message"]["text"] == "open"
    assert (await ben.get("messages", channel=secret.id))["error"] == "channel_not_found"
    assert (await ben.send("post", channel=secret.id, text="hi"))["error"] == "channel_not_found"
    assert "secret" not in [c["name"] for c in (await ben.get("state"))["channels"]]
    mine = (await ana.get("messages", channel=OPS))["messages"]
    assert [(m["text"], m.get("is_ephemeral", False)) for m in mine] == [("psst", True), ("open", False)]
    theirs = (await ben.get("messages", channel=OPS))["messages"]
    assert [m["text"] for m in theirs] == ["open"]


async def test_the_status_of_the_app_is_pushed(workspace: Workspace, ana: Page) -> None:
    """The page learns when the app connects and when it goes."""
    async with ana.news() as news:
        async with bare_socket(workspace):
            assert (await news.receive_json())["connected_sockets"] == 1
        assert (await news.receive_json())["connected_sockets"] == 0


async def test_a_press_by_the_page(workspace: Workspace, bolt: RunningApp, ana: Page) -> None:
    """A button, and a select with its option, reach the app as from Slack."""
    choice = {"text": {"type": "plain_text", "text": "One"}, "value": "1"}
    blocks = [
        actions(button("Go", "go", "v"), {"type": "static_select", "action_id": "pick", "options": [choice]}),
        text_input("why"),
    ]
    ts = (await bolt.client.chat_postMessage(channel=OPS, text="?", blocks=blocks))["ts"]
    where = {"channel": OPS, "message_ts": ts, "block_id": "acts"}
    values = {"why": {"value": {"type": "plain_text_input", "value": "so"}}}
    pressed = await ana.send("action", **where, action_id="go", type="button", state={"values": values})
    assert pressed["ok"] is True
    picked = await ana.send("action", **where, action_id="pick", type="static_select", selected_option=choice)
    assert picked["ok"] is True
    first, second = bolt.of("block_actions")
    assert first["actions"][0]["value"] == "v"
    assert first["state"]["values"]["why"] == values["why"]
    assert second["actions"][0]["selected_option"] == choice


async def test_a_press_without_an_answer_is_told_in_words(workspace: Workspace, ana: Page) -> None:
    """No socket: dispatch_failed; no acknowledgement: operation_timeout; both with a text to show."""
    client = client_of(workspace)
    posted = await client.chat_postMessage(channel=OPS, text="?", blocks=[actions(button("Go", "go"))])
    where = {"channel": OPS, "message_ts": posted["ts"], "block_id": "acts", "action_id": "go"}
    offline = await ana.send("action", **where, type="button")
    assert (offline["ok"], offline["error"]) == (False, "dispatch_failed")
    assert "not connected" in offline["text"]
    workspace.faults.ack_timeout = 0.05
    async with bare_socket(workspace):
        silent = await ana.send("action", **where, type="button")
    assert silent["error"] == "operation_timeout"


def _form(app: AsyncApp) -> None:
    @app.command("/sayso")
    async def open_form(ack: Any, body: Any, client: Any) -> None:
        await ack("opening")
        await client.views_open(trigger_id=body["trigger_id"], view=modal(text_input("name")))


async def test_a_command_and_a_modal_by_the_page(workspace: Workspace, ana: Page) -> None:
    """The command's answer comes back and is shown; the modal is pushed, refused while empty, then closed."""
    async with running_app(workspace, _form), ana.news() as news:
        answer = await ana.send("slash", channel=OPS, command="/sayso", text="form")
        assert answer["response"] == {"text": "opening"}
        pushed = [await news.receive_json() for _ in range(2)]
        assert {push["type"] for push in pushed} == {"ephemeral", "view_opened"}
        (view,) = [push["view"] for push in pushed if "view" in push]
        assert (await ana.get("views"))["views"][0]["id"] == view["id"]
        empty = await ana.send("view/submit", view_id=view["id"], values={})
        assert empty["errors"] == {"name": "Please complete this required field."}
        values = {"name": {"value": {"type": "plain_text_input", "value": "api"}}}
        done = await ana.send("view/submit", view_id=view["id"], values=values)
        assert done == {"ok": True, "closed": True}
        assert (await news.receive_json())["type"] == "view_closed"


async def test_a_modal_is_closed_by_the_page(workspace: Workspace, ana: Page, ben: Page) -> None:
    """Only its own person can close it."""
    async with running_app(workspace, _form):
        await ana.send("slash", channel=OPS, command="/sayso")
        (view,) = await workspace.wait_for(lambda: workspace.views("ana"))
        assert (await ben.send("view/close", view_id=view["id"]))["error"] == "view_not_found"
        assert (await ana.send("view/close", view_id=view["id"]))["ok"] is True
    assert workspace.views("ana") == []


async def test_home_by_the_page(workspace: Workspace, bolt: RunningApp, ana: Page) -> None:
    """Opening the Home makes its event; what is published is pushed and can be pressed."""
    async with ana.news() as news:
        assert (await ana.send("home"))["ok"] is True
        await workspace.wait_for(lambda: bolt.events("app_home_opened"))
        view = {"type": "home", "blocks": [section("hi"), actions(button("Go", "go"))]}
        await bolt.client.views_publish(user_id=ANA, view=view)
        assert (await news.receive_json())["type"] == "home"
    home = (await ana.get("home"))["view"]
    pressed = await ana.send("action", view_id=home["id"], block_id="acts", action_id="go", type="button")
    assert pressed["ok"] is True
    assert bolt.of("block_actions")[0]["container"] == {"type": "view", "view_id": home["id"]}
    assert workspace.home("ben") is None


async def test_a_reaction_is_toggled(workspace: Workspace, ana: Page) -> None:
    """The second click on a reaction takes it back."""
    ts = await workspace.post("ben", "ops", "look")
    await ana.send("react", channel=OPS, ts=ts, name="eyes")
    assert workspace.messages("ops")[0]["reactions"][0]["users"] == [ANA]
    await ana.send("react", channel=OPS, ts=ts, name="eyes")
    assert "reactions" not in workspace.messages("ops")[0]


WRONG: list[tuple[str, Json, str]] = [
    ("post", {"channel": "C404", "text": "x"}, "channel_not_found"),
    ("post", {"channel": OPS, "text": "  "}, "no_text"),
    ("post", {"channel": OPS, "text": "x", "thread_ts": "1.1"}, "thread_not_found"),
    ("post", {"channel": OPS, "text": "x" * 12_001}, "msg_too_long"),
    ("post", {"text": "x"}, "invalid_arguments"),
    ("edit", {"channel": OPS, "ts": "1.1", "text": "x"}, "message_not_found"),
    ("delete", {"channel": OPS, "ts": "1.1"}, "message_not_found"),
    ("react", {"channel": OPS, "ts": "1.1", "name": "eyes"}, "message_not_found"),
    ("action", {"channel": OPS, "message_ts": "1.1", "action_id": "a"}, "message_not_found"),
    ("slash", {"channel": OPS, "command": "/other"}, "invalid_command"),
    ("view/submit", {"view_id": "V1", "values": {}}, "view_not_found"),
    ("post", {"as": "U404", "channel": OPS, "text": "x"}, "user_not_found"),
    ("post", {"as": 5}, "user_not_found"),
]


async def test_refusals_have_a_code_and_a_text(ana: Page) -> None:
    """Every refusal is `{ok: false, error, text}`."""
    for name, body, error in WRONG:
        refusal = await ana.send(name, **body)
        assert (refusal["ok"], refusal["error"], bool(refusal["text"])) == (False, error, True), (name, body)


async def test_unknown_people_see_nothing(workspace: Workspace, ana: Page) -> None:
    """Without a known person neither state nor news are given."""
    ana.user = "U404"
    assert (await ana.get("state"))["error"] == "user_not_found"
    async with ana.session.get("/page/ws", params={"as": "U404"}) as answer:
        assert answer.status == 400


async def test_a_body_that_is_no_object_is_refused(workspace: Workspace, ana: Page) -> None:
    """Anything but a JSON object is `invalid_arguments`."""
    for data, kind in (("[1]", "application/json"), ("{", "application/json"), ("a=b", "text/plain")):
        sent = ana.session.post("/page/post", data=data, headers={"Content-Type": kind})
        async with sent as answer:
            assert (await answer.json())["error"] == "invalid_arguments"
