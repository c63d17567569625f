"""What a session shows in its thread: its card, its prompts, its messages, its end. With the real engine."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from bot.intents.session_rows import note_row
from bot.intents.slots import SHOW
from bot.rendering.card import card_key
from engine.flow.load import load_flow
from engine.journal.records import OutboxRow, PutOutbox
from engine.journal.state import State
from engine.language.actors import Actor
from engine.language.codec import decode, encode
from tests.bot.outbound_kit import APPROVAL, ASK, TELL, Rig, buttons, key_of
from tests.bot.rendering_cases import texts


async def ended(rig: Rig, session_id: str) -> None:
    """Wait until the session has ended and its card says so."""

    async def over() -> bool:
        row = await rig.row(card_key(session_id))
        return (await rig.engine.state(session_id)).ended and row.state == "sent"

    await rig.until(over)


async def prompt_row(rig: Rig, session_id: str) -> str:
    """The key of the row of the session's first prompt."""
    return f"prompt:{next(iter((await rig.engine.state(session_id)).prompts))}"


async def test_a_prompt_is_shown_and_its_place_is_known(rig: Rig) -> None:
    """The only prompt with which a flow opens is on the card, with its buttons, and the session knows where: its
    clock runs."""
    rig.send()
    session_id = await rig.start(APPROVAL)
    prompt_id = await rig.shown(session_id)
    (prompt,) = await rig.thread(session_id)
    assert key_of(prompt) == card_key(session_id)
    ids = [block["block_id"] for block in prompt["blocks"]]
    assert ids.index(f"prompt:{prompt_id}") > ids.index(key_of(prompt)) == 0
    # A phone shows the end of a long message: the question and its buttons are the last thing.
    assert prompt["blocks"][-2]["elements"][0]["action_id"] == "sayso:option:0"
    assert prompt["text"].startswith("🔐 *Approval needed*")
    assert buttons(prompt) == ["Cancel", "Approve", "Reject"]
    state = await rig.engine.state(session_id)
    place = {"channel": "C0LOCALOPS", "ts": prompt["ts"], "threadTs": prompt["thread_ts"]}
    assert state.prompts[prompt_id].shown == place
    assert state.prompts[prompt_id].deadline is not None


async def test_whoever_is_asked_is_mentioned_by_id(rig: Rig) -> None:
    """Groups and e-mail addresses become mentions, so that those people are told."""
    rig.send()
    session_id = await rig.start(APPROVAL)
    await rig.shown(session_id)
    (prompt,) = await rig.thread(session_id)
    assert "<!subteam^S0LOCALSRE> and <@U0LOCALBEN>" in "\n".join(texts(prompt["blocks"]))


async def test_mentions_that_cannot_be_looked_up_hold_nothing_back(rig: Rig) -> None:
    """Without the right to look people up a prompt is shown all the same, naming them as the flow does."""
    rig.workspace.faults.set_scopes(["chat:write", "channels:history"])
    rig.send()
    session_id = await rig.start(APPROVAL)
    await rig.shown(session_id)
    (prompt,) = await rig.thread(session_id)
    assert "@sre and ben@example.com" in "\n".join(texts(prompt["blocks"]))


async def test_messages_of_a_thread_keep_their_order(rig: Rig) -> None:
    """The second message of a flow never is above the first, and both follow the card."""
    rig.send()
    session_id = await rig.start(TELL)
    await ended(rig, session_id)
    assert [message["text"] for message in (await rig.thread(session_id))[1:]] == ["first", "second"]


async def test_a_prompt_that_closes_before_it_is_shown_is_not_shown(rig: Rig) -> None:
    """Nobody is asked what does not matter any more; the end is told."""
    session_id = await rig.start(APPROVAL)
    await rig.engine.abort(session_id, actor=rig.actor("ana"), reason="wrong service")
    rig.send()
    assert (await rig.settled(await prompt_row(rig, session_id)))["dropped"] is True
    await rig.settled(f"end:{session_id}")
    card, end = await rig.thread(session_id)
    assert "*Cancelled*" in card["text"]
    assert end["text"].startswith("🛑 *rollback* was cancelled by <@U0LOCALANA>: wrong service.")
    assert rig.posts("Approval needed") == []


async def test_a_prompt_that_closes_while_its_post_is_uncertain_shows_that_it_is_closed(rig: Rig) -> None:
    """The copy whose answer was lost is found and shows the end of the prompt, without buttons."""
    session_id = await rig.start(APPROVAL)
    key = await prompt_row(rig, session_id)
    rig.workspace.faults.effect_then_fail("chat.postMessage")
    rig.send(look_delays=(60.0,))
    await rig.workspace.wait_for(lambda: rig.posts("Approval needed"))
    await rig.crash()
    await rig.engine.abort(session_id, actor=rig.actor("ana"))
    rig.send()
    await rig.settled(key)
    await rig.settled(card_key(session_id))
    (prompt,) = rig.posts("requested from")
    assert buttons(prompt) == []
    assert "*Withdrawn:*" in prompt["text"]


async def test_a_prompt_is_not_closed_by_a_state_that_does_not_know_of_it(rig: Rig) -> None:
    """Read a moment too early the prompt still looks open: it is closed a moment later, with what was decided."""
    rig.send()
    session_id = await rig.start(ASK)
    prompt_id = await rig.shown(session_id)
    before = await rig.engine.state(session_id)
    early: list[State] = []

    async def load(asked_for: str) -> State:
        return early.pop() if early else await rig.engine.state(asked_for)

    await rig.crash()
    await rig.answer(session_id, "ana", text="fine")
    rig.load_state = load
    early += [before, before]
    rig.send(at_once=1)
    await rig.put(note_row("note:last", "last", "C0LOCALOPS", None, "last"))
    await rig.settled(f"prompt:{prompt_id}")
    await rig.settled("note:last")
    assert "*Answered* by <@U0LOCALANA>" in rig.posts("How does it look")[0]["text"]


@pytest.mark.parametrize("came", ["message", "click"])
async def test_words_of_a_reply_are_not_repeated_above_it_after_a_restart(rig: Rig, came: str) -> None:
    """Where the answer came from is in the records: whoever closes the question knows it."""
    rig.send()
    session_id = await rig.start(ASK)
    prompt_id = await rig.shown(session_id)
    await rig.crash()
    later = f"{float(rig.posts('How does it look')[0]['ts']) + 1:.6f}"
    await rig.answer(session_id, "ana", text="rather fine", key=f"{came}:T0LOCAL:C0LOCALOPS:{later}")
    rig.send()
    await rig.settled(f"prompt:{prompt_id}")
    (closed,) = rig.posts("How does it look")
    assert ("rather fine" in closed["text"]) is (came == "click")


async def test_a_message_that_slack_refuses_fails_its_node(rig: Rig) -> None:
    """Where only some may post the node fails with Slack's reason, and is not stuck."""
    rig.workspace.faults.fail("chat.postMessage", error="restricted_action", times=100)
    rig.send()
    session_id = await rig.start(TELL)
    state = await rig.comes(session_id, lambda state: state.ended)
    assert state.outcome == "failed"
    assert state.error is not None
    assert state.error["type"] == "slack"
    assert "restricted_action" in state.error["message"]


async def test_a_message_that_nobody_waits_for_any_more_is_not_posted(rig: Rig) -> None:
    """The session was ended before its message went out: it is dropped."""
    session_id = await rig.start(TELL)
    await rig.engine.abort(session_id, actor=rig.actor("ana"))
    rig.send()
    assert (await rig.settled(f"message:{session_id}:first:1"))["dropped"] is True
    await rig.settled(f"end:{session_id}")
    key = f"message:{session_id}:first:1"
    assert key not in [key_of(message) for message in await rig.thread(session_id)]


async def test_nothing_in_a_thread_overtakes_what_waits_for_the_card(rig: Rig) -> None:
    """While the card is being posted, a note behind a prompt stays behind it, although it is not part of the session."""
    rig.workspace.faults.slow("chat.postMessage", 0.1)
    session_id = await rig.start(ASK)
    thread = (await rig.engine.state(session_id)).thread
    assert thread is not None
    await rig.put(note_row("note:1", thread["key"], thread["channel"], thread["threadTs"], "a note"))
    rig.send()
    await rig.settled("note:1")
    keys = [key_of(message) for message in await rig.thread(session_id)]
    assert keys == [card_key(session_id), "note:1"]


# --- slots -------------------------------------------------------------------------------------------------

TWO = ASK + '  - id: then\n    type: ask\n    with: {message: "And then?"}\n'


def touched(row: OutboxRow) -> PutOutbox:
    """A slot that a step touches again."""
    return PutOutbox(row.key, row.lane, SHOW, row.payload, row.session_id, replace=True)


async def asked_twice(rig: Rig) -> list[str]:
    """A run whose first question is on its card and whose second has a message of its own: the keys of its slots."""
    rig.send()
    session_id = await rig.start(TWO)
    await rig.shown(session_id)
    await rig.answer(session_id, "ana", text="fine")

    async def both() -> list[str]:
        state = await rig.engine.state(session_id)
        prompts = sorted(state.prompts.values(), key=lambda prompt: prompt.number or 0)
        keys = [card_key(session_id), *(f"prompt:{prompt.prompt_id}" for prompt in prompts)]
        rows = [await rig.row(key) for key in keys]
        seen = len(prompts) == 2 and all(prompt.shown for prompt in prompts)
        return keys if seen and all(row.state == "sent" for row in rows) else []

    keys: list[str] = await rig.until(both)
    return keys


async def test_what_looks_as_it_should_is_not_edited_after_a_restart(rig: Rig) -> None:
    """How a message looks is recorded with its place, for whoever sends next."""
    keys = await asked_twice(rig)
    await rig.crash()
    edits = rig.calls("chat.update")
    await rig.put(*[touched(await rig.row(key)) for key in keys])
    rig.send()
    for key in keys:
        assert (await rig.settled(key))["state"] == "sent"
    assert rig.calls("chat.update") == edits


async def test_what_looks_different_is_edited_after_a_restart(rig: Rig) -> None:
    """The same, where what is recorded is not what the message should show."""
    *_, key = await asked_twice(rig)
    await rig.crash()
    edits, row = rig.calls("chat.update"), await rig.row(key)
    result = encode({**decode(row.result or b"{}"), "look": "otherwise"})
    await rig.writer.peek(
        rig.store.outbox.finish, row.id, row.rev, now=rig.now(), state="sent", result=result
    )
    await rig.put(touched(row))
    rig.send()
    await rig.settled(key)
    assert rig.calls("chat.update") == edits + 1


async def test_a_question_whose_record_is_lost_is_edited_where_the_journal_says_that_it_stands(
    rig: Rig,
) -> None:
    """Its row is gone: it is not posted a second time."""
    *_, key = await asked_twice(rig)
    await rig.crash()
    row, posts = await rig.row(key), rig.calls("chat.postMessage")
    await rig.writer.peek(rig.store.outbox.finish, row.id, row.rev, now=rig.now(), state="sent", result=b"{}")
    assert row.session_id is not None
    await rig.engine.abort(row.session_id, actor=rig.actor("ana"))
    rig.send()
    await rig.settled(f"end:{row.session_id}")
    await rig.settled(key)
    (message,) = rig.posts("And then?")
    assert "*Withdrawn:*" in message["text"]
    assert rig.calls("chat.postMessage") == posts + 1, "the note of the end"


async def test_a_change_that_has_become_urgent_takes_the_turn_of_an_urgent_one(rig: Rig) -> None:
    """A card waits for a turn that progress gets late; when its run has ended it does not wait for that any longer."""
    rig.send(card_seconds=3600.0)
    session_id = await rig.start(ASK)
    await rig.shown(session_id)
    row = await rig.row(card_key(session_id))
    await rig.put(touched(row))
    await rig.until(lambda: _waits(rig, row.key))
    await rig.answer(session_id, "ana", text="fine")
    await ended(rig, session_id)
    assert "*Completed*" in (await rig.thread(session_id))[0]["text"]


async def _waits(rig: Rig, lane: str) -> bool:
    assert rig.outbound is not None
    return lane in rig.outbound._lanes


# --- cards -------------------------------------------------------------------------------------------------


async def test_changes_of_a_card_during_an_edit_become_one_edit(rig: Rig) -> None:
    """While an edit is out any number of changes wait as one row; the last edit has the newest state."""
    session_id = await rig.start(APPROVAL)
    rig.send()
    await rig.settled(card_key(session_id))
    before = rig.calls("chat.update")
    rig.workspace.faults.slow("chat.update", 0.1, times=1)
    row = await rig.row(card_key(session_id))
    for _ in range(20):
        await rig.put(PutOutbox(row.key, row.lane, SHOW, row.payload, session_id, replace=True))
    await rig.engine.abort(session_id, actor=rig.actor("ana"))
    await ended(rig, session_id)
    cards = [
        call for call in rig.workspace.calls_to("chat.update")[before:] if call.args["ts"] == _ts(row.result)
    ]
    assert len(cards) <= 4
    assert "*Cancelled*" in (await rig.thread(session_id))[0]["text"]


async def test_a_card_is_never_older_than_its_row(rig: Rig) -> None:
    """Whoever reads the state a moment too early shows nothing, and the newest state a moment later."""
    session_id = await rig.start(ASK)
    early = [replace((await rig.engine.state(session_id)), seq=1, phase="running")]

    async def load(asked_for: str) -> State:
        return early.pop() if early else await rig.engine.state(asked_for)

    rig.load_state = load
    rig.send()
    await rig.settled(card_key(session_id))
    (card,) = [message for message in rig.posts("") if key_of(message) == card_key(session_id)]
    assert "*Waiting*" in card["text"]
    assert early == []
    assert not any("*Running*" in call.args["text"] for call in rig.workspace.calls_to("chat.postMessage"))


async def test_a_card_that_was_deleted_stays_deleted(rig: Rig) -> None:
    """Somebody deleted the card: it is not posted again, and no more edits are tried."""
    rig.send()
    session_id = await rig.start(ASK)
    await rig.shown(session_id)
    await rig.settled(card_key(session_id))
    card = (await rig.thread(session_id))[0]
    await rig.workspace.delete(rig.workspace.bot_user_id, "ops", card["ts"])
    await rig.answer(session_id, "ana", text="fine")

    async def gone() -> bool:
        row = await rig.row(card_key(session_id))
        return row.state == "failed"

    await rig.until(gone)
    tried = sum(call.args.get("ts") == card["ts"] for call in rig.workspace.calls_to("chat.update"))
    row = await rig.row(card_key(session_id))
    await rig.put(PutOutbox(row.key, row.lane, SHOW, row.payload, session_id, replace=True))
    await rig.until(gone)
    assert sum(call.args.get("ts") == card["ts"] for call in rig.workspace.calls_to("chat.update")) == tried
    assert [key_of(m) for m in await rig.thread(session_id)].count(card_key(session_id)) == 0


async def test_sessions_of_the_terminal_are_left_to_the_terminal(rig: Rig) -> None:
    """A message of a session without a thread is nobody's business here: it stays, and others are sent."""
    alone = await rig.engine.start(load_flow(TELL, "flow.yml"), {}, actor=Actor.local("ana"))
    rig.send()
    session_id = await rig.start(TELL)
    await ended(rig, session_id)
    row = await rig.row(f"message:{alone}:first:1")
    assert (row.state, row.attempts) == ("pending", 0)


def _ts(result: bytes | None) -> str:
    assert result is not None
    return str(json.loads(result)["ts"])
