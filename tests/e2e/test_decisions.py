"""Decisions in Slack: quorums, reasons, edits, and hand-overs, as people see them. With the real bot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.bot import ThreadView, counted, opened, start_flow, whispered, words
from tests.support.simulated import TownWorkspace, in_town, inhabited_town, simulated

GATE = """
flow: rollout
nodes:
  - id: gate
    type: approval
    with:
      message: "Roll out?"
      approvers: [ben@example.com, cleo@example.com, dev@example.com]
      on_reject: continue
      required: REQUIRED
      require_reason: true
      form:
        properties:
          region: {type: string, title: Region, enum: [eu, us, ap], default: eu}
          hosts: {type: integer, title: Hosts, minimum: 1, maximum: 9, default: 3}
        required: [region, hosts]
      editable: [region, hosts]
      covers: roll
  - id: roll
    type: shell
    if: "{{ nodes.gate.decision == 'approve' }}"
    with: {script: 'echo "$WHAT" >> "$LOG"', env: {WHAT: "{{ nodes.gate.values.region }}:{{ nodes.gate.values.hosts }}", LOG: "LOGFILE"}}
  - id: tell
    type: message
    with: {text: "The end: {{ nodes.gate.decision }}, {{ nodes.gate.reason or 'no reason' }}"}
"""


def rollout(log: Path, required: int = 1) -> dict[str, str]:
    """A flow with an approval that covers what it runs."""
    return {"rollout": GATE.replace("LOGFILE", str(log)).replace("REQUIRED", str(required))}


def labels(message: dict[str, Any]) -> list[str]:
    """The words on a message's buttons."""
    return [
        element["text"]["text"]
        for block in message.get("blocks") or []
        for element in block.get("elements") or []
        if element.get("type") == "button"
    ]


async def shows(thread: ThreadView, ts: str, part: str) -> dict[str, Any]:
    """The message at this place, once it says this."""

    def found() -> dict[str, Any] | None:
        here = next(m for m in thread.messages() if m["ts"] == ts)
        return here if part in words(here) else None

    return dict(await thread.workspace.wait_for(found, timeout=20))


@in_town(lambda folder: rollout(folder / "log", 2))
async def test_a_quorum_shows_its_votes_and_names_who_decided(
    workspace: TownWorkspace, tmp_path: Path
) -> None:
    """The first of two votes is on the prompt and on the card; the second decides, and both are named."""
    log = tmp_path / "log"
    thread = await start_flow(workspace, "ana", "ops", "rollout")
    asked = await thread.says("Roll out?")
    assert "0 of 2 approved" in words(asked)
    assert labels(asked) == ["Cancel", "Approve", "Reject…", "Edit…"]
    await thread.approve("ben", asked)
    await shows(thread, asked["ts"], f"1 of 2 approved: <@{workspace.user('ben').id}>")
    card = thread.messages()[1]
    await shows(thread, card["ts"], "1 of 2 approved")
    await thread.approve("cleo", asked)
    await thread.says("The end: approve")
    closed = await shows(thread, asked["ts"], "✅ *Approved*")
    ben, cleo = workspace.user("ben").id, workspace.user("cleo").id
    assert f"by <@{ben}> and <@{cleo}>" in words(closed)
    assert "Approve" not in labels(closed)
    assert counted(log) == ["eu:3"]


@in_town(lambda folder: rollout(folder / "log"))
async def test_a_rejection_is_asked_for_its_reason(workspace: TownWorkspace, tmp_path: Path) -> None:
    """Reject opens a modal; without a reason it takes nothing, with one the thread says who, what and why."""
    log = tmp_path / "log"
    thread = await start_flow(workspace, "ana", "ops", "rollout")
    asked = await thread.says("Roll out?")
    await thread.press("ben", asked, "Reject…")
    view = await opened(workspace, "ben")
    for nothing in ("   ", "\u200b", " \u2060\u3164"):
        assert "reason" in (await workspace.submit_view("ben", view["id"], {"reason": nothing}))["errors"]
    await workspace.submit_view("ben", view["id"], {"reason": "<!channel> too late & risky"})
    await thread.says("The end: reject")
    closed = await shows(thread, asked["ts"], "🚫 *Rejected*")
    assert "“&lt;!channel&gt; too late &amp; risky”" in words(closed)
    assert counted(log) == []


@in_town(lambda folder: rollout(folder / "log", 2))
async def test_an_edit_shows_the_difference_and_voids_votes_and_buttons(
    workspace: TownWorkspace, tmp_path: Path
) -> None:
    """What runs is what the edit made of it: the message shows old and new, the vote before is void, and the modal that
    was open on the copy before is refused."""
    log = tmp_path / "log"
    thread = await start_flow(workspace, "ana", "ops", "rollout")
    asked = await thread.says("Roll out?")
    assert "WHAT" in words(asked)
    await thread.approve("ben", asked)
    await shows(thread, asked["ts"], "1 of 2 approved")
    await thread.press("dev", asked, "Reject…")
    stale = await opened(workspace, "dev")
    await thread.press("cleo", asked, "Edit…")
    view = await opened(workspace, "cleo")
    assert view["state"]["values"]["field:hosts"]["value"]["value"] == "3"
    same = await workspace.submit_view("cleo", view["id"], {})
    assert "No changes to save" in str(same["errors"])
    wrong = await workspace.submit_view("cleo", view["id"], {"field:region": "us", "field:hosts": 12})
    assert list(wrong["errors"]) == ["field:hosts"]
    await workspace.submit_view("cleo", view["id"], {"field:region": "us", "field:hosts": 4})
    changed = await shows(thread, asked["ts"], "eu → *us*")
    assert "3 → *4*" in words(changed)
    assert "0 of 2 approved" in words(changed)
    await thread.says("edited the proposal")
    late = await workspace.submit_view("dev", stale["id"], {"reason": "no"})
    assert "changed since you opened it" in str(late["errors"])
    await thread.approve("ben", changed)
    await shows(thread, asked["ts"], "1 of 2 approved")
    await thread.approve("dev", changed)
    closed = await shows(thread, asked["ts"], "✅ *Approved*")
    assert "eu → *us*" in words(closed)
    await thread.says("The end: approve")
    assert counted(log) == ["us:4"]


@simulated
async def test_a_prompt_is_handed_over(tmp_path: Path) -> None:
    """Whoever is asked hands over to one more person, who is called in the thread and decides; the first one cannot."""
    log = tmp_path / "log"
    flow = rollout(log)["rollout"].replace(", cleo@example.com, dev@example.com", "")
    async with inhabited_town(tmp_path, {"rollout": flow}) as (workspace, _):
        thread = await start_flow(workspace, "ana", "ops", "rollout")
        asked = await thread.says("Roll out?")
        menu = next(block["accessory"] for block in asked["blocks"] if "accessory" in block)
        hand = next(o["value"] for o in menu["options"] if o["value"].startswith("hand|"))
        await workspace.press("cleo", "ops", asked["ts"], action_id=menu["action_id"], value=hand)
        await workspace.wait_for(lambda: workspace.views("cleo")[-1]["title"]["text"] == "Not for you")
        await workspace.press("ben", "ops", asked["ts"], action_id=menu["action_id"], value=hand)
        view = await opened(workspace, "ben")
        mine = await workspace.submit_view("ben", view["id"], {"person": workspace.user("ben").id})
        assert "That is you" in str(mine["errors"])
        cleo = workspace.user("cleo").id
        await workspace.submit_view("ben", view["id"], {"person": cleo})
        await thread.says(f"👉 <@{cleo}>:")
        changed = await shows(thread, asked["ts"], "handed this to")
        assert f"from <@{cleo}>" in words(changed)
        await thread.approve("ben", changed)
        await whispered(workspace, "ben", "You handed this over")
        await thread.approve("cleo", changed)
        await thread.says("The end: approve")
        assert counted(log) == ["eu:3"]


@simulated
async def test_all_of_a_long_command_can_be_read(tmp_path: Path) -> None:
    """A command that no message holds is said to be cut, and the button shows all of it in a modal."""
    log = tmp_path / "log"
    long = "\\n".join(
        f"# line {n} of a very long script that nobody should approve unread" for n in range(200)
    )
    flow = rollout(log)["rollout"].replace(
        "script: 'echo", f"script: '{long.replace(chr(92) + 'n', '; ')}; echo"
    )
    async with inhabited_town(tmp_path, {"rollout": flow}) as (workspace, _):
        thread = await start_flow(workspace, "ana", "ops", "rollout")
        asked = await thread.says("Roll out?")
        assert "more characters did not fit" in words(asked)
        await workspace.press("cleo", "ops", asked["ts"], action_id="sayso:open:whole")
        view = await opened(workspace, "cleo")
        assert "line 199 of a very long script" in words({"blocks": view["blocks"]})
