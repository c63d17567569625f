"""Messages about a question: reminders, escalations, and that it cannot be shown."""

from __future__ import annotations

from collections.abc import Mapping

from bot.faces import run
from bot.faces.places import asks_for, label_of
from bot.faces.question import asked
from bot.rendering.text import as_code, date, one_line, safe, whom
from engine.flow import Flow
from engine.journal.queries import people_among
from engine.journal.state import Asked, State
from engine.language.counting import elapsed, ordinal, plural

_REMEDY = {
    "is_archived": "Unarchive it",
    "not_in_channel": "Invite me again",
    "channel_not_found": "Invite me again",
}


def reminder(
    state: State, prompt: Asked, flow: Flow, names: Mapping[str, str], count: int, link: str | None
) -> str:
    """Return a reminder for the question's own thread, which mentions the people asked."""
    who = whom(asked(prompt, state.actor, names), state.actor, names)
    waits = _linked(safe(asks_for(state, prompt, flow)), link)
    return f"🔔 {who}: still waiting for {waits} · {ordinal(count)} reminder{_until(prompt)}"


def _linked(label: str, link: str | None) -> str:
    return f"<{link}|{label.replace('|', '/')}>" if link else f"*{label}*"


def _until(prompt: Asked) -> str:
    return f", open until {date(prompt.deadline)}" if prompt.deadline else ""


def escalation(
    state: State, prompt: Asked, flow: Flow, names: Mapping[str, str], step: int, link: str | None
) -> str:
    """Return the escalation message for the question's own thread: it mentions the people, and names notified
    channels."""
    told = prompt.escalate[step]
    people = [entry for entry in told["to"] if not entry.startswith("dm:") and entry in people_among([entry])]
    called = f"{whom(people, state.actor, names)}: " if people else ""
    waits = _linked(safe(asks_for(state, prompt, flow)), link)
    parts = [
        f"⏫ {called}nobody has answered {waits} for {safe(elapsed(told['afterSeconds']))}{_until(prompt)}."
    ]
    others = [
        whom([entry.removeprefix("dm:")], state.actor, names, call=False)
        + (" (in a direct message)" if entry.startswith("dm:") else "")
        for entry in sorted(told["to"], key=lambda entry: entry.startswith("dm:"))
        if entry not in people
    ]
    if others:
        parts.append(f"Also notified: {', '.join(others)}.")
    if told.get("mayAnswer") and people_among(told["to"]):
        parts.append("They can answer, too.")
    return " ".join(parts)


def told_elsewhere(state: State, prompt: Asked, flow: Flow, link: str | None) -> str:
    """The same for another channel, or one person."""
    place = f"<{link}|its thread>" if link else f"<#{(state.thread or {}).get('channel')}>"
    return (
        f"⏫ *{safe(one_line(flow.name, 80))}* is waiting for an answer to *{safe(asks_for(state, prompt, flow))}* "
        f"in {place}: nobody has answered since {date(prompt.requested_at)}{_until(prompt)}."
    )


def out_of_reach(state: State, flow: Flow, reason: str, until: str | None) -> str:
    """Return the message to the requester when the session's thread takes no posts."""
    channel = (state.thread or {}).get("channel")
    ends = f" If I cannot post there by {date(until)}, the run fails." if until else ""
    remedy = _REMEDY.get(reason, "Let me post there again")
    return (
        f"⚠️ I cannot post in <#{channel}>: {safe(run.out_of_reach(reason))}. "
        f"*{safe(one_line(flow.name, 80))}* ({safe(state.session_id)}) is waiting; nothing is lost. "
        f"{remedy}, and the run continues.{ends}"
    )


def deleted_too_often(state: State, prompt: Asked, flow: Flow) -> str:
    """Return the message to the requester when a question was deleted repeatedly."""
    channel = (state.thread or {}).get("channel")
    return (
        f"⚠️ The question *{safe(label_of(flow, prompt.path))}* of *{safe(one_line(flow.name, 80))}* in <#{channel}> was deleted "
        f"{plural(prompt.reposts + 1, 'time')}, so it is not shown again. The question is still waiting for an answer"
        f"{_until(prompt)}. To answer it, use `sayso prompts answer {safe(prompt.prompt_id)}`; to end the run, write "
        "`cancel` in the thread."
    )


def refused_target(to: str, reason: str) -> str:
    """Return the message to the thread when somebody could not be notified."""
    target = f"<#{to}>" if not people_among([to]) else as_code(one_line(to, 80))
    return f"⚠️ {target} could not be notified: {safe(one_line(reason, 200))}"
