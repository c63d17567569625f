"""What opens a view and what is submitted, as decisions: what is stored, what is refused, what is acknowledged."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from slack_bolt.request.async_request import AsyncBoltRequest

from bot.config.profiles import Profile
from bot.inbound import decisions, payloads
from bot.inbound.decisions import Accept, Errors, Next, Opened, Opening, Refuse, Submission, Verdict
from bot.outbound.calls import Modals
from bot.serve.bolt import SlackApp
from bot.views import me
from bot.views.service import Views, acknowledgement
from bot.wire.client import bot_client
from engine.journal.records import InboxRow
from engine.run.stored import utc_now
from engine.storage.group_commit import Writer
from engine.storage.open import MemoryStore
from tests.support.acting import Workspace
from tests.support.workspace import modal, running_workspace, text_input

HOME = decisions.Home("T1", "A1", "UBOT")


def pressed(action: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The payload of something pressed in a message of a thread."""
    body: dict[str, Any] = {
        "type": "block_actions",
        "team": {"id": "T1"},
        "api_app_id": "A1",
        "user": {"id": "U1", "team_id": "T1"},
        "trigger_id": "X1",
        "container": {"type": "message", "message_ts": "2.0", "channel_id": "C1", "thread_ts": "1.0"},
        "actions": [{"action_ts": "3.0", "type": "button", **action}],
    }
    return {**body, **fields}


def submitted(**view: Any) -> dict[str, Any]:
    """The payload of a modal that was submitted."""
    shown = {
        "id": "V1",
        "type": "modal",
        "callback_id": "sayso:form",
        "private_metadata": json.dumps({"promptId": "prompt-1", "user": "U1"}),
        "state": {"values": {"field:x": {"value": {"type": "plain_text_input", "value": "y"}}}},
        "blocks": [{"type": "section"}, {"type": "input", "block_id": "field:x"}],
    }
    head = {"type": "view_submission", "team": {"id": "T1"}, "api_app_id": "A1", "user": {"id": "U1"}}
    return {**head, "view": {**shown, **view}}


@pytest.mark.parametrize(
    ("action", "kind", "value"),
    [
        ({"action_id": "sayso:open:edit", "value": "prompt-1|n"}, "edit", "prompt-1|n"),
        (
            {"action_id": "sayso:open:more", "selected_option": {"value": "hand|prompt-1|n"}},
            "hand",
            "prompt-1|n",
        ),
        ({"action_id": "sayso:open:start:3", "value": "deploy"}, "start", "deploy"),
        ({"action_id": "sayso:open:start", "selected_option": {"value": "deploy"}}, "start", "deploy"),
    ],
)
def test_what_opens_a_view_is_read_from_buttons_and_menus(
    action: dict[str, Any], kind: str, value: str
) -> None:
    """The kind and the ids come from the button, or from the entry of the menu; the place is the thread."""
    found = payloads.read(pressed(action), HOME)
    assert isinstance(found, decisions.Opening)
    opening = found
    assert (opening.kind, opening.value, opening.trigger_id) == (kind, value, "X1")
    assert (opening.channel, opening.thread_ts, opening.user, opening.within) == (
        "C1",
        "1.0",
        "U1",
        "message",
    )


def test_a_control_in_a_message_is_taken_like_a_click() -> None:
    """What was picked is stored under the key of the press."""
    action = {"action_id": "sayso:field:prompt-1|n", "type": "datepicker", "selected_date": "2026-12-24"}
    found = payloads.read(pressed(action), HOME)
    assert isinstance(found, decisions.Take)
    assert found.item.key == "click:T1:2.0:U1:3.0"
    assert json.loads(found.item.payload)["picked"] == {"selected_date": "2026-12-24"}


@pytest.mark.parametrize(
    "body",
    [
        submitted() | {"team": {"id": "T2"}},
        submitted() | {"api_app_id": "A2"},
        submitted(callback_id="other"),
        submitted(private_metadata="{"),
        {**submitted(), "view": {}},
        {"type": "view_closed"},
        pressed({"action_id": "sayso:open:edit"}, team={"id": "T2"}),
        pressed({"action_id": "sayso:open:edit"}, trigger_id=None) | {"user": None},
    ],
)
def test_what_is_not_ours_is_left_alone(body: dict[str, Any]) -> None:
    """Other teams, other apps, other views and what is malformed are acknowledged and forgotten."""
    assert isinstance(payloads.read(body, HOME), decisions.Skip)


class Kind:
    """A kind of view with one field, that takes what begins with `right`."""

    name = "form"

    def wants(self, opening: Opening) -> bool:
        """Always."""
        return True

    async def open(self, opening: Opening) -> Opened:
        """A modal with one input."""
        return modal(text_input("field:x"), callback_id="sayso:form")

    async def refusal(self, opening: Opening) -> str | None:
        """Nobody is refused."""
        return None

    async def check(self, submission: Submission) -> Verdict:
        """What the value says."""
        value = submission.values["field:x"]["value"]["value"]
        if value == "page":
            return Next(modal(text_input("field:y")), {"x": value}, f"{submission.key}:0")
        return Accept({"x": value}) if value.startswith("right") else Errors({"field:x": "wrong"})

    async def submit(self, row: InboxRow, data: dict[str, Any]) -> bool:
        """Nothing is carried out here."""
        return True


class Desk:
    """The app's ears without a socket, over a store that can be broken."""

    def __init__(self, workspace: Workspace) -> None:
        self.store = MemoryStore()
        self.writer = Writer(self.store)
        client = bot_client(workspace.bot_token, workspace.api_url)
        self.views = Views(Modals(client), [Kind()], self.writer, utc_now)
        self.slack = SlackApp(
            client,
            bot_client(workspace.app_token, workspace.api_url),
            app_token=workspace.app_token,
            home=HOME,
            writer=self.writer,
            now=utc_now,
            answer=self._unasked,
            taken=lambda: None,
            views=self.views,
            connections=0,
        )

    @staticmethod
    async def _unasked(ask: decisions.Ask) -> dict[str, Any]:
        raise AssertionError(f"nobody asked for {ask.word}")

    async def receive(self, value: str) -> dict[str, Any]:
        """What the acknowledgement of a submission with this value says."""
        state = {"values": {"field:x": {"value": {"type": "plain_text_input", "value": value}}}}
        request = AsyncBoltRequest(mode="socket_mode", body=submitted(state=state))
        answer = await self.slack._receive(request)
        assert answer.status == 200
        return dict(json.loads(answer.body)) if answer.body else {}


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    """Ears over a store in memory."""
    async with running_workspace() as workspace:
        made = Desk(workspace)
        made.writer.start()
        yield made
        made.writer.close()


async def test_only_what_is_right_spends_the_key(desk: Desk) -> None:
    """A refusal is part of the acknowledgement and stores nothing; a valid submission is stored once and closes the view."""
    assert await desk.receive("oops") == {"response_action": "errors", "errors": {"field:x": "wrong"}}
    assert desk.store.inbox.row("view:T1:V1") is None
    assert await desk.receive("right") == {}
    assert await desk.receive("right") == {}
    row = desk.store.inbox.row("view:T1:V1")
    assert row is not None
    stored = {"team": "T1", "user": "U1", "kind": "form", "x": "right"}
    assert (row.kind, json.loads(row.payload)) == ("slack.view", stored)
    assert len(desk.store.inbox.rows(after=0)) == 1


async def test_what_is_sent_again_with_other_values_is_not_taken_in_silence(desk: Desk) -> None:
    """The acknowledgement was lost and the person changed the form: the modal says that what came first counts."""
    assert await desk.receive("right") == {}
    refused = await desk.receive("right too")
    assert list(refused["errors"]) == ["field:x"]
    assert "already sent this with other values" in refused["errors"]["field:x"]
    row = desk.store.inbox.row("view:T1:V1")
    assert row is not None
    assert json.loads(row.payload)["x"] == "right"


async def test_a_page_is_stored_before_the_next_one_is_shown(desk: Desk) -> None:
    """The key of the view is not spent by a page, which has one of its own."""
    assert (await desk.receive("page"))["response_action"] == "update"
    assert desk.store.inbox.row("view:T1:V1") is None
    kept = desk.store.inbox.row("view:T1:V1:0")
    assert kept is not None
    assert json.loads(kept.payload)["values"] == {"x": "page"}


@pytest.mark.parametrize("value", ["right", "page"])
async def test_without_the_store_there_is_no_acknowledgement(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """What could not be stored is not acknowledged: Slack keeps the modal open with what was filled in."""

    def broken(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(desk.store.inbox, "ingest", broken)
    with pytest.raises(Exception, match="disk full"):
        await desk.receive(value)


def test_a_refusal_of_the_whole_has_a_place() -> None:
    """It is at the first input; a view without inputs becomes the words."""
    found = payloads.read(submitted(), HOME)
    assert isinstance(found, decisions.Submission)
    said = acknowledgement(Refuse("Too late."), found)
    assert said == {"response_action": "errors", "errors": {"field:x": "Too late."}}
    bare = payloads.read(submitted(blocks=[]), HOME)
    assert isinstance(bare, decisions.Submission)
    update = acknowledgement(Refuse("Too late."), bare)
    assert update is not None
    assert update["response_action"] == "update"
    assert "Too late." in json.dumps(update["view"])


async def test_a_view_that_somebody_else_opened_is_refused(desk: Desk) -> None:
    """Views name the person for whom they were opened."""
    body = submitted() | {"user": {"id": "U2"}}
    found = payloads.read(body, HOME)
    assert isinstance(found, decisions.Submission)
    verdict = await desk.views.check(found)
    assert isinstance(verdict, Refuse)
    assert "Someone else" in verdict.reason


async def test_a_modal_opens_although_slack_does_not_say_the_timezone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Slack takes a modal within three seconds: the timezone is asked for once more when the day is submitted."""

    class Silent:
        """Answers the second time."""

        asked = 0

        async def timezone(self, user: str) -> str:
            self.asked += 1
            if self.asked == 1:
                await asyncio.Event().wait()
            return "Europe/Berlin"

    class Here:
        """Nobody is away."""

        async def of(self, user: str) -> Profile:
            return Profile()

    monkeypatch.setattr(me, "_ZONE_SECONDS", 0.01)
    now = "2030-05-01T09:00:00.000Z"
    kind = me.Me(cast(Any, Here()), cast(Any, Silent()), cast(Any, None), lambda: now, lambda user: None)
    opened = await kind.open(Opening("me", "T1", "U1", "X1"))
    meta = json.loads(opened["private_metadata"])
    assert meta["zone"] is None
    given = {me.UNTIL: {"selected_date": "2030-05-03"}, me.STAND_IN: {"selected_user": "U2"}}
    values = {name: {name: value} for name, value in given.items()}
    accepted = await kind.check(Submission("me", "T1", "U1", "V1", meta, opened, values))
    assert accepted == Accept({"awayUntil": "2030-05-02T22:00:00.000Z", "standIn": "U2"})
