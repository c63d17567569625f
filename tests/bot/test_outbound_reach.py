"""Threads that cannot be posted in: the session waits, the requester is told, and it continues by itself."""

from __future__ import annotations

from engine.decide.commands import Gone
from engine.journal.state import State
from tests.bot.outbound_kit import Rig, buttons, key_of
from tests.support.workspace import Json

HOUR = 3600.0
FLOW = """
flow: rollback
nodes:
  - {id: gate, type: approval, with: {message: Really?, approvers: ["@sre", "ben@example.com"], timeout: 2h}}
  - {id: tell, type: message, with: {text: Done}}
"""
SOON = {"unreachable_seconds": 0.05}


async def in_phase(rig: Rig, session_id: str, phase: str) -> State:
    """Wait until the session is in this phase."""
    return await rig.comes(session_id, lambda state: state.phase == phase)


def direct(rig: Rig, name: str, part: str) -> list[Json]:
    """The bot's direct messages to somebody that say this."""
    user = rig.workspace.user(name).id
    channels = [c for c in rig.workspace.state.channels.values() if c.is_im and user in c.members]
    return [
        m for c in channels for m in rig.workspace.messages(c.id) if m.get("bot_id") and part in m["text"]
    ]


async def told(rig: Rig, name: str, part: str) -> str:
    """The one direct message to somebody that says this, once it is there."""

    async def there() -> str | None:
        found = direct(rig, name, part)
        return found[0]["text"] if found else None

    text: str = await rig.until(there)
    assert len(direct(rig, name, part)) == 1
    return text


async def test_a_channel_that_is_back_is_tried_at_once_where_that_is_known(rig: Rig) -> None:
    """With a slow retry, `hurry` shows the question without waiting for it."""
    channel = rig.workspace.channel("ops")
    session_id = await rig.start(FLOW)
    rig.workspace.admin.archive(channel)
    outbound = rig.send(unreachable_seconds=1000.0)
    await in_phase(rig, session_id, "unreachable")
    await told(rig, "ana", "cannot post in")
    rig.workspace.admin.archive(channel, archived=False)
    await outbound.hurry(channel.id)
    await rig.shown(session_id)
    await in_phase(rig, session_id, "waiting")


async def test_a_session_that_ends_out_of_reach_keeps_nothing_waiting(rig: Rig) -> None:
    """Its card cannot be edited any more, and that is the end of it."""
    channel = rig.workspace.channel("ops")
    rig.send(**SOON)
    session_id = await rig.start(FLOW)
    await rig.shown(session_id)
    rig.workspace.admin.archive(channel)
    await rig.engine.abort(session_id, actor=rig.actor("ana"))
    assert (await rig.settled(f"card:{session_id}"))["state"] == "failed"


async def test_a_question_that_slack_does_not_show_for_a_day_makes_its_session_unreachable(rig: Rig) -> None:
    """Whatever the reason is: people are told, and it is shown as soon as that goes."""
    rig.workspace.faults.fail("chat.postMessage", status=503, times=1000)
    session_id = await rig.start(FLOW)
    rig.send(**SOON)

    async def tried() -> bool:
        # The question waits for the card, which is to be above it.
        row = await rig.row(f"card:{session_id}")
        return row is not None and row.attempts > 0

    await rig.until(tried)
    rig.later(25 * HOUR)
    state = await in_phase(rig, session_id, "unreachable")
    assert state.pause_reason == "not_shown"
    rig.workspace.faults.methods.clear()
    await rig.shown(session_id)
    await in_phase(rig, session_id, "waiting")


async def test_a_deleted_question_is_shown_again_and_the_old_buttons_are_dead(rig: Rig) -> None:
    """The new message has a key and a nonce of its own; what is edited and closed afterwards is the new one."""
    rig.send()
    session_id = await rig.start(FLOW)
    prompt_id = await rig.shown(session_id)
    before = (await rig.engine.state(session_id)).prompts[prompt_id]
    assert before.shown is not None
    thread = (await rig.engine.state(session_id)).thread or {}
    await rig.workspace.delete("sayso", thread["channel"], before.shown["ts"])
    await rig.engine.apply(session_id, Gone(prompt_id, before.shown["ts"]))
    assert (await rig.settled(f"prompt:{prompt_id}~1"))["state"] == "sent"
    state = await rig.comes(
        session_id, lambda state: state.prompts[prompt_id].shown not in (None, before.shown)
    )
    after = state.prompts[prompt_id]
    assert after.nonce != before.nonce
    assert after.deadline == before.deadline
    await rig.answer(session_id, "ben", value="approve")

    async def closed() -> bool:
        shown = [m for m in await rig.thread(session_id) if key_of(m) == f"prompt:{prompt_id}~1"]
        return not buttons(shown[0])

    await rig.until(closed)


async def test_an_edit_finds_that_a_question_was_deleted(rig: Rig) -> None:
    """Where no event told it, the next change of the question shows it again."""
    rig.send()
    flow = FLOW.replace("timeout: 2h", "timeout: 2h, escalate: [{after: 10m, to: U0BEN}]")
    session_id = await rig.start(flow)
    prompt_id = await rig.shown(session_id)
    state = await rig.engine.state(session_id)
    shown = state.prompts[prompt_id].shown or {}
    await rig.workspace.delete("sayso", shown["channel"], shown["ts"])
    rig.later(600)
    assert (await rig.settled(f"prompt:{prompt_id}~1"))["state"] == "sent"
