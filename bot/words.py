"""What the bot says, in plain words: mrkdwn that is safe to post. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bot.rendering.text import escape, waiting_on
from engine import clock
from engine.codec import Json
from engine.flow import Flow
from engine.state import State
from prompt_state.model import PromptState

ICONS = {
    "running": "🔵",
    "paused": "🟡",
    "complete": "✅",
    "failed": "❌",
    "aborted": "⚪",
}


def flows_text(flows: Mapping[str, Flow]) -> str:
    """The flows that can be started here."""
    if not flows:
        return "No flow is served here yet."
    lines = [f"• `{name}{_inputs(flow)}`{_about(flow)}" for name, flow in sorted(flows.items())]
    return "*Flows you can start:*\n" + "\n".join(lines)


def _inputs(flow: Flow) -> str:
    names = [f"{name}=…" if given.required else f"[{name}=…]" for name, given in flow.inputs.items()]
    return "".join(f" {name}" for name in names)


def _about(flow: Flow) -> str:
    return f": {escape(flow.description)}" if flow.description else ""


def help_text(flows: Mapping[str, Flow]) -> str:
    """What can be said to the bot in a channel."""
    return (
        f"{flows_text(flows)}\n\n"
        "Mention me with a flow's name and its inputs, for example `@sayso disk-cleanup path=/var/log`. "
        "What is missing I ask for. Everything then happens in the thread of your message."
    )


def slash_help(flows: Mapping[str, Flow], word: str) -> str:
    """The answer to `/sayso` alone, to `help`, and to what it does not know."""
    unknown = "" if word in ("help", "run") else f"I do not know `/sayso {escape(word)}`. "
    return (
        f"{unknown}`/sayso run NAME key=value …` starts a flow, `/sayso list` shows the flows, "
        f"`/sayso status` what is running here.\n\n{flows_text(flows)}"
    )


def thread_help() -> str:
    """What can be said in a session's thread."""
    return (
        "In this thread you can write:\n"
        "• an answer, where a question asks for text (no mention needed); with several questions open: `#2: your answer`\n"
        "• `status`: where this stands\n"
        "• `cancel`: end it (asks before it does)\n"
        "• `help`: this\n"
        "Choices and approvals are answered with their buttons."
    )


def status_text(states: Sequence[State], now: str) -> str:
    """Where the sessions of a thread stand."""
    if not states:
        return "Nothing runs in this thread."
    return "\n".join(_status_line(state, now) for state in states)


def _status_line(state: State, now: str) -> str:
    age = elapsed(clock.seconds_between(state.created_at, now))
    head = f"{ICONS.get(state.status, '•')} *{escape(state.flow_name)}* is {state.status}, started {age} ago"
    waits = [
        f"\n   waits for {waiting_on(prompt.spec, state.actor)}: {_first_line(prompt.spec['message'])}"
        for prompt in (state.prompts[key] for key in state.open_prompts)
    ]
    timers = [
        f"\n   waits until {timer.due_at}" for timer in state.timers.values() if timer.purpose == "wait"
    ]
    return head + "".join(waits) + "".join(timers) + "."


def running_text(states: Sequence[State]) -> str:
    """What runs in a channel."""
    if not states:
        return "Nothing is running in this channel."
    lines = []
    for state in states:
        waits = len(state.open_prompts)
        lines.append(
            f"{ICONS.get(state.status, '•')} `{state.session_id}` *{escape(state.flow_name)}* {state.status}"
            + (f", {waits} open question{'s' if waits > 1 else ''}" if waits else "")
        )
    return "\n".join(lines)


def menu_text(asked: Sequence[PromptState]) -> str:
    """Several questions are open: how to say which one is meant."""
    lines = [f"• `#{prompt.number}: …` for: {_first_line(prompt.message)}" for prompt in asked]
    return "Several questions are open here. Which one did you answer? Please write\n" + "\n".join(lines)


def hint_text(kind: str, asked: Sequence[PromptState]) -> str:
    """Why a text answered nothing."""
    first = asked[0]
    if kind == "buttons":
        return f"That is answered with its buttons, not with text: {_first_line(first.message)}"
    if kind == "closed":
        return f"That question is closed ({first.status}{': ' + escape(first.answer_summary) if first.answer_summary else ''})."
    if kind == "not_yours":
        return "Others are asked for that; your text was not used."
    if kind == "older":
        return "That question came after your message; please answer it again if you meant it."
    return "Please write your answer after the colon."


def confirm_cancel(flow_name: str, session_id: str) -> tuple[str, list[Json]]:
    """The question before a session is ended, as text and blocks."""
    text = f"Cancel *{escape(flow_name)}*? What is done stays done; nothing further starts."
    buttons: list[Json] = [
        _button("Cancel it", "sayso:cancel", session_id, "danger"),
        _button("Keep going", "sayso:keep", session_id, None),
    ]
    section: Json = {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}
    return text, [section, {"type": "actions", "elements": buttons}]


def _button(label: str, action_id: str, value: str, style: str | None) -> Json:
    button: dict[str, Json] = {
        "type": "button",
        "text": {"type": "plain_text", "text": label},
        "action_id": action_id,
        "value": value,
    }
    return {**button, "style": style} if style else button


def root_text(user_id: str, flow: str) -> str:
    """The message under which a slash command's session lives."""
    return f"<@{user_id}> started *{escape(flow)}*"


def quarantine_text(flow_name: str, session_id: str) -> str:
    """Told to the thread when a session's records do not verify."""
    return (
        f"⛔ *{escape(flow_name)}* (`{session_id}`) was set aside: its records were changed or damaged outside sayso. "
        "Nothing of it runs, and nothing was guessed. Please tell whoever runs sayso: "
        f"`sayso sessions show {session_id}` says what is wrong. To do the work again, start the flow anew."
    )


def elapsed(seconds: float) -> str:
    """A duration as people say it: `42 s`, `5 min`, `3 h 10 min`, `2 d 4 h`."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def _first_line(text: str) -> str:
    line = text.strip().splitlines()[0] if text.strip() else ""
    return line if len(line) <= 120 else line[:119] + "…"
