"""Plans, task cards, data tables and quiet buttons: what Slack documents of them is taken, shown and delivered."""

from __future__ import annotations

import pytest
from slack_sdk.models import blocks as sdk
from slack_sdk.webhook.async_client import AsyncWebhookClient

from bot.workspace import SlackError
from bot.workspace.blocks import check_message
from tests.support.acting import Workspace
from tests.support.workspace import Json, RunningApp

OPS = "C0LOCALOPS"


def text(words: str) -> Json:
    """A rich text with these words."""
    parts = [{"type": "rich_text_section", "elements": [{"type": "text", "text": words}]}]
    return {"type": "rich_text", "elements": parts}


def cells(*words: str) -> list[Json]:
    """A row."""
    return [{"type": "raw_text", "text": word} for word in words]


TASK = sdk.TaskCardBlock(
    task_id="one",
    title="Drain",
    status="in_progress",
    details=text("Three nodes"),
    output=text("Two are done"),
    sources=[{"type": "url", "url": "https://example.com/", "text": "Runbook"}],
).to_dict()
PLAN = sdk.PlanBlock(title="Upgrade", tasks=[TASK]).to_dict()
ROWS = [cells("Node", "Load"), [{"type": "raw_text", "text": "a"}, {"type": "raw_number", "value": 3}]]
TABLE: Json = {"type": "data_table", "caption": "Nodes", "rows": ROWS, "page_size": 5}
FEEDBACK = sdk.ContextActionsBlock(
    elements=[
        sdk.FeedbackButtonsElement(
            action_id="rated",
            positive_button={"text": {"type": "plain_text", "text": "Good"}, "value": "good"},
            negative_button={"text": {"type": "plain_text", "text": "Bad"}, "value": "bad"},
        ),
        sdk.IconButtonElement(
            action_id="gone", icon="trash", text={"type": "plain_text", "text": "Delete"}, value="it"
        ),
    ]
).to_dict()


@pytest.mark.parametrize("block", [TASK, PLAN, TABLE, FEEDBACK], ids=lambda block: str(block["type"]))
def test_what_the_sdk_builds_is_taken(block: Json) -> None:
    """The classes of slack_sdk, and a data table, for which it has none."""
    check_message("", [block])


def test_a_table_of_a_hundred_rows_is_taken() -> None:
    """Its header is not counted."""
    check_message("", [{**TABLE, "rows": [ROWS[0], *[ROWS[1]] * 100]}])


REFUSED = {
    "an unknown status": {**TASK, "status": "done"},
    "details that are no rich text": {**TASK, "details": "x"},
    "a plan without a title": {"type": "plan", "tasks": [TASK]},
    "a plan with an unknown status": {**PLAN, "tasks": [{**TASK, "status": "done"}]},
    "a plan of something else": {**PLAN, "tasks": [{"type": "divider"}]},
    "a table without a caption": {"type": "data_table", "rows": ROWS},
    "an empty caption": {**TABLE, "caption": ""},
    "a number as text": {**TABLE, "rows": [ROWS[0], [cells("a")[0], {"type": "raw_number", "value": "1"}]]},
    "a cell of ten thousand characters": {**TABLE, "rows": [cells("h"), cells("x" * 10_000)]},
    "a page of more than a hundred": {**TABLE, "page_size": 101},
    "a table of its header only": {**TABLE, "rows": ROWS[:1]},
    "more than a hundred rows": {**TABLE, "rows": [ROWS[0], *[ROWS[1]] * 101]},
    "rows of different length": {**TABLE, "rows": [ROWS[0], cells("a")]},
    "rich text in the header": {**TABLE, "rows": [[text("Node"), text("Load")], ROWS[1]]},
    "an empty page": {**TABLE, "page_size": 0},
    "six quiet elements": {
        **FEEDBACK,
        "elements": [{**FEEDBACK["elements"][1], "action_id": str(n)} for n in range(6)],
    },
    "an ordinary button among them": {**FEEDBACK, "elements": [{"type": "button", "text": text("x")}]},
}


@pytest.mark.parametrize("block", REFUSED.values(), ids=REFUSED)
def test_what_slack_does_not_document_is_refused(block: Json) -> None:
    """With `invalid_blocks`, as any other block."""
    with pytest.raises(SlackError, match="invalid_blocks"):
        check_message("", [block])


def test_all_tables_of_a_message_share_a_size() -> None:
    """Ten thousand characters in all cells."""
    check_message("", [{**TABLE, "rows": [cells("h"), cells("x" * 4_000)]}] * 2)
    with pytest.raises(SlackError, match="invalid_blocks"):
        check_message("", [{**TABLE, "rows": [cells("h"), cells("x" * 5_000)]}] * 2)


async def test_quiet_buttons_are_delivered_like_others(workspace: Workspace, bolt: RunningApp) -> None:
    """The chosen one of two feedback buttons, by its value; and an icon."""
    posted = await bolt.client.chat_postMessage(channel=OPS, text="?", blocks=[FEEDBACK])
    await workspace.press("ana", "ops", posted["ts"], action_id="rated", value="bad")
    await workspace.press("ana", "ops", posted["ts"], action_id="gone")
    (rated,), (gone,) = (body["actions"] for body in bolt.of("block_actions"))
    assert (rated["type"], rated["value"], rated["text"]["text"]) == ("feedback_buttons", "bad", "Bad")
    assert (gone["type"], gone["value"]) == ("icon_button", "it")


async def test_what_was_chosen_in_home_is_in_its_state(workspace: Workspace, bolt: RunningApp) -> None:
    """A later press on Home carries the filter that was chosen before it."""
    option = {"text": {"type": "plain_text", "text": "Mine"}, "value": "mine"}
    choice = {"type": "static_select", "action_id": "filter", "options": [option]}
    button = {"type": "button", "action_id": "go", "text": {"type": "plain_text", "text": "Go"}}
    home = {"type": "home", "blocks": [{"type": "actions", "block_id": "top", "elements": [choice, button]}]}
    ana = workspace.user("ana").id
    view = (await bolt.client.views_publish(user_id=ana, view=home))["view"]
    await workspace.press_in_view("ana", view["id"], action_id="filter", value="mine")
    await workspace.press_in_view("ana", view["id"], action_id="go")
    pressed = bolt.of("block_actions")[-1]
    assert pressed["view"]["state"]["values"]["top"]["filter"]["selected_option"]["value"] == "mine"
    assert pressed["trigger_id"]


async def test_a_press_is_answered_in_place_through_its_response_url(
    workspace: Workspace, bolt: RunningApp
) -> None:
    """`replace_original` changes the pressed message, a reply in a thread too, and its metadata stays."""
    root = await workspace.post("ana", "ops", "start")
    metadata = {"event_type": "sayso_post", "event_payload": {"key": "k"}}
    posted = await bolt.client.chat_postMessage(
        channel=OPS, thread_ts=root, text="?", blocks=[FEEDBACK], metadata=metadata
    )
    await workspace.press("ana", "ops", posted["ts"], action_id="gone")
    url = bolt.of("block_actions")[-1]["response_url"]
    answer = await AsyncWebhookClient(url).send(text="done", blocks=[PLAN], replace_original=True)
    assert (answer.status_code, answer.body) == (200, "ok")
    changed = workspace.messages("ops", root)[-1]
    assert [block["type"] for block in changed["blocks"]] == ["plan"]
    assert changed["metadata"] == metadata
