"""Reminders and escalations as people see them: in the thread, in other channels, in direct messages, each once."""

from __future__ import annotations

from engine.decide.commands import HandOver
from tests.bot.outbound_kit import Rig, key_of, stands_in
from tests.support.workspace import Json

MINUTE = 60.0


def flow(clocks: str, kind: str = "approval") -> str:
    """A flow with one question of these clocks."""
    who = ', approvers: ["@sre", "ben@example.com"]' if kind == "approval" else ""
    return f"""
flow: rollback
nodes:
  - {{id: gate, type: {kind}, name: Roll back, with: {{message: Really?{who}, {clocks}}}}}
"""


def whole(message: Json) -> str:
    """All text of a message."""
    return f"{message['text']} {message.get('blocks')}"


async def told(rig: Rig, session_id: str, count: int, sign: str) -> list[str]:
    """Wait until so many messages with this sign are in the thread; their texts."""

    async def there() -> list[str]:
        found = [m["text"] for m in await rig.thread(session_id) if m["text"].startswith(sign)]
        return found if len(found) >= count else []

    found: list[str] = await rig.until(there)
    return found


async def reminded(rig: Rig, session_id: str, count: int) -> None:
    """Wait until the session has reminded so often of its question."""
    await rig.comes(session_id, lambda state: [one.reminders for one in state.prompts.values()] == [count])


async def test_a_reminder_mentions_those_who_are_asked_with_a_link_and_its_number(rig: Rig) -> None:
    """Each reminder is a message of its own in the thread, and the question stays as it is."""
    rig.send()
    session_id = await rig.start(flow("timeout: 1h, remind_every: 10m"))
    prompt_id = await rig.shown(session_id)
    rig.later(10 * MINUTE)
    await told(rig, session_id, 1, "🔔")
    rig.later(10 * MINUTE)
    first, second = await told(rig, session_id, 2, "🔔")
    group = next(g for g in rig.workspace.state.groups.values() if g.handle == "sre")
    ben = rig.workspace.user("ben").id
    for text in (first, second):
        assert f"<!subteam^{group.id}>" in text
        assert f"<@{ben}>" in text
        assert "|Roll back>" in text
        assert "open until" in text
    assert "1st reminder" in first
    assert "2nd reminder" in second
    assert (await rig.settled(f"remind:{prompt_id}:2"))["state"] == "sent"


async def test_an_hour_without_slack_gives_one_reminder(rig: Rig) -> None:
    """Reminders that could not be sent while Slack was away are not sent after a later one waits."""
    rig.send()
    session_id = await rig.start(flow("remind_every: 10m"))
    prompt_id = await rig.shown(session_id)
    await rig.crash()
    for count in (1, 2, 3):
        rig.later(10 * MINUTE)
        await reminded(rig, session_id, count)
    rig.send()
    assert (await rig.settled(f"remind:{prompt_id}:3"))["state"] == "sent"
    (text,) = await told(rig, session_id, 1, "🔔")
    assert "3rd reminder" in text


async def test_an_escalation_tells_the_thread_a_channel_and_a_person(rig: Rig) -> None:
    """People are mentioned in the thread; the others get where it is and a link, and not the question."""
    rig.send()
    other = rig.workspace.channel("releases").id
    to = f"['@sre', '{other}', 'dm:ben@example.com']"
    session_id = await rig.start(flow(f"timeout: 1h, escalate: [{{after: 15m, to: {to}, may_answer: true}}]"))
    prompt_id = await rig.shown(session_id)
    rig.later(15 * MINUTE)
    (text,) = await told(rig, session_id, 1, "⏫")
    assert "nobody has answered" in text
    assert f"<#{other}>" in text
    assert "They can answer, too." in text
    for number in (1, 2):
        assert (await rig.settled(f"escalate:{prompt_id}:0:{number}"))["state"] == "sent"
    (posted,) = [m for m in rig.workspace.messages(other) if key_of(m) == f"escalate:{prompt_id}:0:1"]
    assert "|its thread>" in posted["text"]
    assert "Really?" not in whole(posted)
    result = await rig.settled(f"escalate:{prompt_id}:0:2")
    assert result["channel"].startswith("D")

    async def changed() -> bool:
        shown = [m for m in await rig.thread(session_id) if stands_in(m, f"prompt:{prompt_id}")]
        return "Escalated to" in whole(shown[0])

    await rig.until(changed)


async def test_a_target_that_slack_refuses_holds_no_other_and_is_named(rig: Rig) -> None:
    """An unknown channel and an unknown person are said in the thread, and the others are told all the same."""
    rig.send()
    other = rig.workspace.channel("releases").id
    to = f"[C0NOWHERE, 'dm:nobody@example.com', '{other}']"
    session_id = await rig.start(flow(f"escalate: [{{after: 15m, to: {to}}}]", "ask"))
    prompt_id = await rig.shown(session_id)
    rig.later(15 * MINUTE)
    assert (await rig.settled(f"escalate:{prompt_id}:0:2"))["state"] == "sent"
    texts = await told(rig, session_id, 2, "⚠️")
    assert any("C0NOWHERE" in text for text in texts)
    assert any("nobody@example.com" in text for text in texts)


async def test_nothing_is_told_twice_after_a_kill(rig: Rig) -> None:
    """The answer to a post is lost and the process dies: the message that is there is found, and no other is posted."""
    rig.send()
    other = rig.workspace.channel("releases").id
    session_id = await rig.start(flow(f"remind_every: 10m, escalate: [{{after: 10m, to: ['{other}']}}]"))
    prompt_id = await rig.shown(session_id)
    rig.workspace.faults.effect_then_fail("chat.postMessage", times=3)
    rig.later(10 * MINUTE)

    async def tried() -> bool:
        rows = [await rig.row(f"remind:{prompt_id}:1"), await rig.row(f"escalate:{prompt_id}:0:0")]
        return all(row is not None and row.attempts > 0 for row in rows)

    await rig.until(tried)
    await rig.crash()
    rig.send()
    for key in (f"remind:{prompt_id}:1", f"escalate:{prompt_id}:0", f"escalate:{prompt_id}:0:0"):
        assert (await rig.settled(key))["state"] == "sent"
        copies = [m for m in rig.posts("") if key_of(m) == key]
        assert len(copies) == 1, key


async def test_an_answer_before_it_was_sent_makes_a_reminder_needless(rig: Rig) -> None:
    """A reminder that waited for Slack says nothing about a question that is closed by then."""
    rig.send()
    session_id = await rig.start(flow("remind_every: 10m"))
    prompt_id = await rig.shown(session_id)
    await rig.crash()
    rig.later(10 * MINUTE)
    await reminded(rig, session_id, 1)
    await rig.answer(session_id, "ben", value="approve")
    rig.send()
    assert (await rig.settled(f"remind:{prompt_id}:1")).get("dropped") is True
    assert not [m for m in await rig.thread(session_id) if m["text"].startswith("🔔")]


async def test_somebody_who_was_handed_a_question_by_an_address_is_mentioned(rig: Rig) -> None:
    """An e-mail address, as a terminal hands over with, becomes a mention that calls the person; once."""
    rig.send()
    session_id = await rig.start(flow("timeout: 1h"))
    prompt_id = await rig.shown(session_id)
    ben = rig.actor("ben")
    await rig.engine.apply(session_id, HandOver(prompt_id, ben, "k1", "cleo@example.com"))
    (said,) = await told(rig, session_id, 1, "👉")
    assert f"<@{rig.workspace.user('cleo').id}>: <@{ben.id}> handed this question to you" in said
