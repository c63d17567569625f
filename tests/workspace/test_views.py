"""Modals: trigger ids, the stack, updates, and what an acknowledgement can do to a submission."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from slack_bolt.async_app import AsyncApp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.workspace import SlackError, WorkspaceError
from tests.support.acting import Workspace
from tests.support.workspace import (
    Json,
    RunningApp,
    actions,
    button,
    modal,
    running_app,
    running_workspace,
    text_input,
)


async def _trigger(workspace: Workspace, bolt: RunningApp, user: str = "ana") -> str:
    await workspace.slash(user, "ops", "/sayso")
    return str([body for body in bolt.bodies if "command" in body][-1]["trigger_id"])


async def _error(call: Awaitable[Any]) -> str:
    with pytest.raises(SlackApiError) as refused:
        await call
    return str(refused.value.response["error"])


async def test_a_trigger_opens_one_view(workspace: Workspace, bolt: RunningApp) -> None:
    """A trigger id works once; one that nobody issued never does."""
    trigger = await _trigger(workspace, bolt)
    view = (await bolt.client.views_open(trigger_id=trigger, view=modal(text_input("a"))))["view"]
    assert workspace.views("ana")[0]["id"] == view["id"]
    assert await _error(bolt.client.views_open(trigger_id=trigger, view=modal())) == "exchanged_trigger_id"
    assert await _error(bolt.client.views_open(trigger_id="1.2.3", view=modal())) == "invalid_trigger_id"


async def test_a_trigger_lasts_three_seconds() -> None:
    """After three seconds, on the workspace's clock, the trigger is `expired_trigger_id`."""
    now = [1_795_300_000.0]
    async with running_workspace(clock=lambda: now[0]) as workspace, running_app(workspace) as bolt:
        in_time = await _trigger(workspace, bolt)
        now[0] += 2.9
        assert (await bolt.client.views_open(trigger_id=in_time, view=modal()))["ok"]
        late = await _trigger(workspace, bolt)
        now[0] += 3.1
        assert await _error(bolt.client.views_open(trigger_id=late, view=modal())) == "expired_trigger_id"


async def test_a_refused_view_does_not_use_up_the_trigger(workspace: Workspace, bolt: RunningApp) -> None:
    """A view with a mistake can be corrected and opened with the same trigger."""
    trigger = await _trigger(workspace, bolt)
    wrong = modal(title={"type": "plain_text", "text": "x" * 25})
    assert await _error(bolt.client.views_open(trigger_id=trigger, view=wrong)) == "invalid_arguments"
    assert (await bolt.client.views_open(trigger_id=trigger, view=modal()))["ok"]


async def test_an_update_keeps_what_was_typed(workspace: Workspace, bolt: RunningApp) -> None:
    """Inputs with the same ids keep their values; the hash guards against a race."""
    trigger = await _trigger(workspace, bolt)
    opened = await bolt.client.views_open(
        trigger_id=trigger, view=modal(text_input("a", dispatch_action=True))
    )
    view = opened["view"]
    await workspace.press_in_view("ana", view["id"], action_id="value", value="typed")
    changed = modal(text_input("a"), text_input("b"))
    updated = await bolt.client.views_update(view_id=view["id"], view=changed, hash=view["hash"])
    assert updated["view"]["state"]["values"]["a"]["value"]["value"] == "typed"
    stale = bolt.client.views_update(view_id=view["id"], view=changed, hash=view["hash"])
    assert await _error(stale) == "hash_conflict"
    assert await _error(bolt.client.views_update(view_id="V404", view=changed)) == "not_found"


async def test_views_can_be_named_by_the_app(workspace: Workspace, bolt: RunningApp) -> None:
    """`external_id` finds a view again and must be unique among the open ones."""
    first = await _trigger(workspace, bolt)
    await bolt.client.views_open(trigger_id=first, view=modal(external_id="mine"))
    await bolt.client.views_update(external_id="mine", view=modal(text_input("a"), external_id="mine"))
    assert len(workspace.views("ana")[0]["blocks"]) == 1
    other = await _trigger(workspace, bolt, "ben")
    clash = bolt.client.views_open(trigger_id=other, view=modal(external_id="mine"))
    assert await _error(clash) == "duplicate_external_id"


async def test_views_stack_three_deep(workspace: Workspace, bolt: RunningApp) -> None:
    """A press inside a modal may push another; the fourth is refused; closing goes back one."""
    trigger = await _trigger(workspace, bolt)
    blocks = actions(button("More", "more"))
    await bolt.client.views_open(trigger_id=trigger, view=modal(blocks))
    for depth in (2, 3):
        await workspace.press_in_view("ana", workspace.views("ana")[-1]["id"], text="More")
        trigger = bolt.of("block_actions")[-1]["trigger_id"]
        await bolt.client.views_push(trigger_id=trigger, view=modal(blocks))
        assert len(workspace.views("ana")) == depth
    root, middle, top = workspace.views("ana")
    assert top["previous_view_id"] == middle["id"]
    assert top["root_view_id"] == root["id"]
    await workspace.press_in_view("ana", top["id"], text="More")
    trigger = bolt.of("block_actions")[-1]["trigger_id"]
    assert await _error(bolt.client.views_push(trigger_id=trigger, view=modal())) == "push_limit_reached"
    await workspace.close_view("ana", top["id"])
    assert workspace.views("ana")[-1]["id"] == middle["id"]


async def test_a_push_needs_a_modal_below(workspace: Workspace, bolt: RunningApp) -> None:
    """A trigger from a message or command cannot push."""
    trigger = await _trigger(workspace, bolt)
    assert await _error(bolt.client.views_push(trigger_id=trigger, view=modal())) == "not_found"


def _answering(**answer: Any) -> Callable[[AsyncApp], None]:
    """An app that opens a form on command and acknowledges its submission like this."""

    def configure(app: AsyncApp) -> None:
        @app.command("/sayso")
        async def open_form(ack: Any, body: Any, client: AsyncWebClient) -> None:
            await ack()
            await client.views_open(trigger_id=body["trigger_id"], view=modal(text_input("a")))

        @app.view("form")
        async def submitted(ack: Any) -> None:
            await ack(**answer)

    return configure


async def _submit(workspace: Workspace, values: Json) -> Json:
    await workspace.slash("ana", "ops", "/sayso")
    (view,) = await workspace.wait_for(lambda: workspace.views("ana"))
    return await workspace.submit_view("ana", view["id"], values)


async def test_a_submission_is_refused_with_errors_or_closes_the_view(workspace: Workspace) -> None:
    """With errors the modal stays open with what was typed, and is its own person's alone; accepted it closes."""
    async with running_app(workspace, _answering(response_action="errors", errors={"a": "Say 12."})):
        assert await _submit(workspace, {"a": "11"}) == {"errors": {"a": "Say 12."}}
        (view,) = workspace.views("ana")
        assert view["state"]["values"]["a"]["value"]["value"] == "11"
        with pytest.raises(WorkspaceError, match="view_not_found"):
            await workspace.submit_view("ben", view["id"], {"a": "12"})
        await workspace.close_view("ana", view["id"])
    async with running_app(workspace, _answering()):
        assert await _submit(workspace, {"a": "12"}) == {"closed": True}
    assert workspace.views("ana") == []


async def test_a_submission_may_update_the_view(workspace: Workspace) -> None:
    """`response_action: update` shows another view in its place."""
    new = modal(callback_id="done")
    async with running_app(workspace, _answering(response_action="update", view=new)):
        result = await _submit(workspace, {"a": "x"})
    assert result["updated"]["callback_id"] == "done"
    assert len(workspace.views("ana")) == 1


async def test_a_submission_may_push_a_view(workspace: Workspace) -> None:
    """`response_action: push` shows another view on top."""
    new = modal(callback_id="next")
    async with running_app(workspace, _answering(response_action="push", view=new)):
        result = await _submit(workspace, {"a": "x"})
    assert result["pushed"]["callback_id"] == "next"
    assert [view["callback_id"] for view in workspace.views("ana")] == ["form", "next"]


async def test_a_submission_may_clear_all(workspace: Workspace) -> None:
    """`response_action: clear` closes every view of the person."""
    async with running_app(workspace, _answering(response_action="clear")):
        assert await _submit(workspace, {"a": "x"}) == {"closed": True}
    assert workspace.views("ana") == []


async def test_required_fields_are_asked_for_before_the_app_hears_of_it(workspace: Workspace) -> None:
    """An empty required input is an error at the field, and nothing is sent."""
    async with running_app(workspace, _answering()) as bolt:
        result = await _submit(workspace, {})
        assert result == {"errors": {"a": "Please complete this required field."}}
        assert bolt.of("view_submission") == []


async def test_errors_for_fields_that_do_not_exist_are_refused(workspace: Workspace) -> None:
    """An app that names an unknown block sees its mistake: the modal stays open."""
    wrong = _answering(response_action="errors", errors={"nowhere": "?"})
    async with running_app(workspace, wrong):
        with pytest.raises(SlackError, match="nowhere"):
            await _submit(workspace, {"a": "x"})
    assert len(workspace.views("ana")) == 1


async def test_home_has_a_hash_too(workspace: Workspace, client: AsyncWebClient) -> None:
    """views.publish replaces the Home; a stale hash is a conflict."""
    view = {"type": "home", "blocks": [{"type": "divider"}]}
    first = (await client.views_publish(user_id="U0LOCALANA", view=view))["view"]
    second = (await client.views_publish(user_id="U0LOCALANA", view=view, hash=first["hash"]))["view"]
    assert second["id"] == first["id"]
    stale = client.views_publish(user_id="U0LOCALANA", view=view, hash=first["hash"])
    assert await _error(stale) == "hash_conflict"
