"""How a session says what it waits for in a queue, on its card, in its thread and at a terminal."""

from __future__ import annotations

from typing import Any

from bot.faces.run import Behind, holder_thread, lock_wait
from bot.intents.session_rows import slack_intents
from bot.rendering.card import card_key
from bot.rendering.phrases import status_text
from bot.rendering.text import mrkdwn
from bot.terminal.narration import told
from engine.journal.state import LockRun, State
from engine.language.counting import ordinal
from tests.bot.rendering_cases import ANA, HOSTILE, T0, T1, THREAD, Flow, card

BEHIND = Behind("session-1", 2, "https://example.test/1")


def session(name: str = "deploy-api", phase: Any = "waiting", acquired: str | None = None) -> State:
    """A session with a lock, waited for unless it was acquired."""
    return State(
        session_id="session-2", flow_name="deploy", phase=phase, actor=ANA, thread=THREAD, created_at=T0,
        updated_at=T1, seq=3, pause_reason="for lunch", lock=LockRun(name, "queue", T0, acquired),
    )  # fmt: skip


def shown(state: State, behind: Behind | None = BEHIND) -> str:
    """The line at the top of the card."""
    return card(state, Flow(), T1, behind=behind).text


def test_the_card_says_whom_it_waits_for() -> None:
    """The lock, who holds it with a link to that thread, and the place in the queue; paused it says that too."""
    queued = "lock `deploy-api`, held by `session-1` (<https://example.test/1|its thread>) · 2nd in the queue"
    assert shown(session()).endswith(f"🟡 *Waiting* for {queued}")
    assert shown(session(phase="held")).endswith(f"⏸️ *Paused* · for lunch · {queued}")
    assert shown(session(), None).endswith("🟡 *Waiting* for lock `deploy-api`")
    assert "lock" not in shown(session(phase="running", acquired=T1))


def test_a_hostile_name_is_harmless() -> None:
    """A name made of somebody's input pings nobody and links nowhere."""
    text = mrkdwn(lock_wait(session(HOSTILE), None))
    assert "<!channel>" not in text
    assert "|a bank>" not in text


def test_status_says_it_too() -> None:
    """The answer to `status` names the lock, its holder and the place."""
    told = status_text([(session(), Flow())], T1, {"session-2": BEHIND})
    assert "waits for lock `deploy-api`, held by `session-1`" in told
    assert "2nd in the queue" in told


def test_a_terminal_says_the_same_without_markup() -> None:
    """Nothing is said of a session that has its lock, or none, or that has ended."""
    queued = "lock deploy-api, held by session-1 · 2nd in the queue"
    assert told(lock_wait(session(), Behind("session-1", 2))) == queued
    assert told(lock_wait(session(), None)) == "lock deploy-api"
    for over in (session(acquired=T1), session(phase="ended"), State()):
        assert lock_wait(over, BEHIND) == ()


def test_places_are_numbered_as_people_say_them() -> None:
    """From 1st on, with the exceptions of the teens."""
    words = [ordinal(number) for number in (1, 2, 3, 4, 11, 12, 13, 21, 102, 111)]
    assert words == ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "111th"]


def test_the_thread_of_the_holder_is_in_the_error() -> None:
    """Any other error names none."""
    assert holder_thread({"type": "locked", "heldBy": {"sessionId": "s", "threadKey": "T:C:1"}}) == "T:C:1"
    assert holder_thread({"type": "timeout"}) is holder_thread(None) is None


def test_a_card_is_drawn_again_when_the_lock_comes() -> None:
    """Also where nothing else changed: a session that is held gets its lock."""
    before, after = session(phase="held"), session(phase="held", acquired=T1)
    event: Any = object()
    assert [row.key for row in slack_intents(before, after, [event])] == [card_key(before.session_id)]
