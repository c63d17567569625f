"""Texts of the bot, in plain language: mrkdwn that is safe to post. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bot.faces.marks import mark_of
from bot.faces.places import asks_for, place_of
from bot.faces.run import Behind, lock_wait, out_of_reach
from bot.faces.steps import open_prompts
from bot.rendering.blocks import words
from bot.rendering.notes import agent_labels
from bot.rendering.text import cut, date, escape, mrkdwn, one_line, safe, waiting_on
from engine.decide.outages import waited_out
from engine.decide.question import timed_out
from engine.flow import Flow
from engine.forms.question import takes_typed_choice
from engine.journal.queries import is_rejection, verdict
from engine.journal.state import Asked, State
from engine.language import timestamps
from engine.language.actors import Actor
from engine.language.codec import Json
from engine.language.counting import elapsed, plural
from prompt_state.question_row import PromptState
from prompt_state.routing import Listener

_LINES = 12
"""Most waits of a session in an answer to `status`."""

NO_LINKS: Mapping[str, str] = {}
NOBODY: Mapping[str, Behind | None] = {}
"""Default: no session waits for a lock."""

GO_ON = "resume"
"""Message to a session for a bare `resume`."""

SEVERAL_HERE = (
    "Several runs are waiting in this conversation. Please reply in the thread of the one you mean."
)
"""Reply in a direct message to text that fits several flows."""

RECORDED = "Your answer is recorded. This run is paused and will use it after `resume`."
"""Reply to an answer while the session is held."""


KEPT = "This run is paused. The agent will read your message after `resume`."
"""Reply to a message for an agent whose session is held."""

LATER = "The agent will read this once the question above is answered."
"""Reply to a message for an agent that waits for people."""


OVERHEARD = "The agent reads this as information, not as an instruction. Only the person who started the run and the admins can instruct it."
"""Reply to a person who addresses an agent and may not steer it."""


def flows_text(flows: Mapping[str, Flow]) -> str:
    """The flows that can be started here."""
    if not flows:
        return "There are no flows here yet."
    lines = [f"• `{name}{_inputs(flow)}`{_about(flow)}" for name, flow in sorted(flows.items())]
    return "*Flows you can start:*\n" + "\n".join(lines)


def _inputs(flow: Flow) -> str:
    names = [f"{name}=…" if given.required else f"[{name}=…]" for name, given in flow.inputs.items()]
    return "".join(f" {name}" for name in names)


def _about(flow: Flow) -> str:
    return f": {safe(one_line(flow.description, 200))}" if flow.description else ""


def help_text(flows: Mapping[str, Flow]) -> str:
    """Return the help for a channel."""
    return (
        f"{flows_text(flows)}\n\n"
        "Mention me with a flow's name and its inputs, for example `@sayso disk-cleanup path=/var/log`. "
        "I ask for missing inputs. The run then continues in the thread of your message."
    )


def slash_help(flows: Mapping[str, Flow], word: str) -> str:
    """Return the answer to `/sayso` alone, to `help`, and to unknown words."""
    unknown = "" if word in ("help", "run") else f"I don't know `/sayso {safe(one_line(word, 60))}`. "
    return (
        f"{unknown}`/sayso run NAME key=value …` starts a flow, `/sayso list` lists the flows, "
        "`/sayso status` shows the runs here, and `/sayso away` sets who answers while you are "
        f"away.\n\n{flows_text(flows)}"
    )


def thread_help() -> str:
    """Return the help for a session's thread."""
    return (
        "In this thread you can write:\n"
        "• an answer to a question that takes text or files (no mention needed); a ✅ confirms it\n"
        "• `#2: your answer`, if several questions are open\n"
        "• `status`: show the state of this run\n"
        "• `pause` (or `stop`): stop running steps and start nothing until `resume`; answers are kept\n"
        "• `resume`, or `resume` with a message: continue after a pause\n"
        "• `cancel`: end the run (asks for confirmation)\n"
        "• `done`: tell an agent that listens for replies to stop; `alpha: TEXT`: write to the agent alpha\n"
        "• `help`: show this help\n"
        "Choices, forms and approvals are answered with their buttons. *Edit* changes a proposal before you "
        "approve it; ⋯ on a question hands it over to someone else.\n"
        "Editing or deleting a message changes nothing: the original counts."
    )


def status_text(
    sessions: Sequence[tuple[State, Flow]], now: str, queued: Mapping[str, Behind | None] = NOBODY
) -> str:
    """Return the state of a thread's sessions. `queued` has by session the one ahead in the queue for its lock."""
    if not sessions:
        return "Nothing is running in this thread."
    return "\n".join(_status_line(state, flow, now, queued.get(state.session_id)) for state, flow in sessions)


def _status_line(state: State, flow: Flow, now: str, behind: Behind | None) -> str:
    age = safe(elapsed(timestamps.seconds_between(state.created_at, now)))
    head = f"{mark_of(state).emoji} *{escape(state.flow_name)}* is {_standing(state)}, started {age} ago"
    lines = _waits(state, flow, behind, thread="here")
    more = len(lines) - _LINES
    lines = lines[:_LINES] + ([f"and {more} more"] if more > 0 else [])
    told = "\n   ".join([head, *lines])
    return told if told.endswith((".", "?", "!", "…")) else f"{told}."


def _waits(
    state: State, flow: Flow, behind: Behind | None = None, *, thread: str = "in its thread"
) -> list[str]:
    """Everything that a session waits for, a line each: its lock, people, times. `thread` is what its thread is called."""
    lock = lock_wait(state, behind)
    lines = [f"waits for {mrkdwn(lock)}"] if lock else []
    lines += [
        f"waits for {waiting_on(prompt, state.actor)}: {_question(state, prompt, flow)}"
        for prompt in open_prompts(state)
    ]
    for timer in sorted(state.timers.values(), key=lambda timer: timer.due_at):
        if timer.prompt_id is None and timer.path is not None:
            what = {"retry": "tries again", "followUp": "listens until"}.get(timer.purpose, "waits until")
            if waited_out(state.nodes.get(timer.path)):
                what = f"waits for the provider (write {thread} to retry now), next try"
            lines.append(f"{what} {date(timer.due_at)}: {safe(place_of(state, flow, timer.path))}")
    return lines


def _standing(state: State) -> str:
    if state.ended and is_rejection(state.error):
        return safe(one_line(verdict(state.error), 200))
    if state.phase == "unreachable":
        return f"out of reach: {safe(out_of_reach(state.pause_reason))}"
    if state.phase == "pausing":
        return "being paused: it waits for a step that cannot be stopped"
    if state.phase != "held":
        return state.stands
    reason = safe(one_line(state.pause_reason or "", 200))
    return f"paused {reason} (`resume` continues it)" if reason else "paused (`resume` continues it)"


def _question(state: State, prompt: Asked, flow: Flow) -> str:
    """Return a question in a few words, with its place if it is nested."""
    question = _first_line(prompt.message)
    return f"{safe(asks_for(state, prompt, flow))}: {question}" if "/" in prompt.path else question


def by(actor: Actor) -> str:
    """Why a session is held: words behind "paused"."""
    return f"by {one_line(actor.name or actor.id, 80)}"


def paused_text(states: Sequence[State]) -> str:
    """Told to the thread after `pause` or `stop`."""
    lines = []
    for state in states:
        name = f"*{escape(state.flow_name)}*"
        if state.phase != "held":
            lines.append(f"{name} is {state.stands} already.")
            continue
        waits = len(state.open_prompts)
        kept = " Answers are kept." if waits else ""
        lines.append(f"⏸️ {name} is paused {safe(one_line(state.pause_reason or '', 200))}.{kept}")
    if not any(state.phase == "held" for state in states):
        return "\n".join(lines)
    return "\n".join([*lines, "Use `resume` to continue or `cancel` to end the run."])


def resumed_text(states: Sequence[State]) -> str:
    """Told to the thread after `resume`."""
    return "\n".join(f"▶️ *{escape(state.flow_name)}* continues." for state in states)


def rest_over_text(states: Sequence[State]) -> str:
    """Told to the thread after `done`."""
    return "\n".join(f"💤 *{escape(state.flow_name)}* no longer listens." for state in states)


def which_agent_text(agents: Sequence[Listener]) -> str:
    """Several agents are in progress: how to say which one is meant."""
    names = ", ".join(f"*{escape(one_line(label, 80))}*" for _, label in agent_labels(agents))
    how = f"Choose below, or start your message with its name: `{escape(one_line(agents[0].name, 40))}: …`."
    return f"Several agents are here: {names}. Which one is your message for?\n{how} Your next messages go there, too."


def chosen_text(text: str, path: str) -> str:
    """Return the replacement for that menu once an agent was chosen."""
    said = f"“{escape(one_line(text, 120))}”" if text else "Your file"
    return f"☑️ {said} goes to *{escape(one_line(path.rpartition('/')[2], 80))}*."


def unread_text(file: Mapping[str, Json]) -> str:
    """Return the reply to a person whose file an agent cannot be shown; no mrkdwn."""
    return f"`{one_line(str(file['name']), 80)}` is not shown to the agent: {file['unread']}."


def closed_text(prompt: PromptState) -> str:
    """Return the reply to a click on a button of a closed question; no mrkdwn."""
    if prompt.status == "answered":
        who = prompt.answered_by_name or prompt.answered_by or "somebody"
        return f"Already answered by {who} at {timestamps.told(prompt.answered_at)}: {prompt.answer_summary}."
    if prompt.status == "expired":
        return timed_out(prompt.deadline or prompt.answered_at)
    return "This question was withdrawn."


def running_text(sessions: Sequence[tuple[State, Flow]], links: Mapping[str, str] = NO_LINKS) -> str:
    """Return the runs of a channel, each with the first thing that it waits for. `links` lead to their threads, by session."""
    if not sessions:
        return "Nothing is running in this channel."
    lines = []
    for state, flow in sessions:
        link, name = links.get(state.session_id), escape(state.flow_name)
        told = f"{mark_of(state).emoji} {f'<{link}|{name}>' if link else f'*{name}*'} is {_standing(state)}"
        if waits := _waits(state, flow):
            more = f", and {len(waits) - 1} more" if len(waits) > 1 else ""
            told += f"\n   {waits[0]}{more}"
        lines.append(told)
    return "\n".join(lines)


def limit_text(method: str, waiting: int, seconds: float) -> str:
    """A method of Slack that is used up: how many calls wait for it, and how long."""
    calls = "1 call waits" if waiting == 1 else f"{waiting} calls wait"
    return f"⏳ Slack's limit of `{method}` is used up: {calls}, up to {seconds:.0f} s."


def catching_up(channels: int, channels_left: int, threads: int, threads_left: int, seconds: float) -> str:
    """Return the progress of reading the messages sent while the bot was away."""
    left = f"; about {max(1, round(seconds / 60))} min left" if seconds >= 1 else ""
    return (
        f"Reading messages from while I was away: {channels:,} of {channels + channels_left:,} channels and "
        f"{threads:,} of {threads + threads_left:,} threads are done{left}."
    )


def menu_text(asked: Sequence[PromptState], places: Mapping[str, str]) -> str:
    """Several questions are open: how to say which one is meant. `places` are theirs, as mrkdwn, by prompt id."""
    lines = [
        f"• #{prompt.number}: {f'*{place}*: ' if place else ''}{_first_line(prompt.message)}"
        for prompt in asked
        for place in [places.get(prompt.prompt_id, "")]
    ]
    first = asked[0].number if asked else 1
    how = f"Choose below, or write the number before your answer, as in `#{first}: your answer`."
    return "\n".join(["Several questions are open here. Which one did you answer?", *lines, how])


def hint_text(kind: str, asked: Sequence[PromptState]) -> str:
    """Return why a text was not taken as an answer."""
    first = asked[0]
    if kind == "buttons":
        labels = (
            ", ".join(escape(option["label"]) for option in first.options)
            if takes_typed_choice(first)
            else ""
        )
        how = f", or type one of their labels ({labels})" if labels else ""
        return f"Please use the buttons to answer this{how}: {_first_line(first.message)}"
    if kind == "files":
        return f"Please answer this with files: add them to this thread. {_first_line(first.message)}"
    if kind == "closed" and first.status == "expired":
        when = f" {date(first.answered_at)}" if first.answered_at else ""
        return f"⏱️ Your answer came too late: the question closed{when}. {_first_line(first.message)}"
    if kind == "closed":
        how = f"answered: {escape(first.answer_summary or '')}" if first.status == "answered" else "withdrawn"
        return f"That question is closed ({how})."
    if kind == "not_yours":
        return "Only the people asked can answer this."
    if kind == "older":
        return "That question was asked after your message. If your message was the answer, please send it again."
    return "Please write your answer after the colon."


def stale_flow_text(flow: str, fault: str) -> str:
    """Return the warning to the thread of a run whose flow's file no longer loads."""
    return (
        f"⚠️ The file of *{escape(flow)}* was changed and cannot be loaded. This run uses the version "
        "before that change. "
        f"{escape(fault)}"
    )


def dead_letter_text(key: str) -> str:
    """Told where something was said or pressed that could not be handled."""
    return (
        "⚠️ I couldn't process a message or click here and gave up after several tries. Please try again, or ask an admin "
        f"(`sayso inbox list`, ref {escape(key)})."
    )


def edited_text(outcome: str | None) -> str | None:
    """Return the reply to the edit of a message, by its earlier outcome; None if it needs none."""
    return _EDITED.get(outcome or "")


_EDITED = {
    "applied": "Your edit was ignored: the original message counts.",
    "started": "Your edit was ignored: the flow runs with the original message.",
    "refused": "Your edit was ignored. Please send it as a new message.",
    "too_long": "Your edit was ignored. Please send it as a new message.",
    "": "Edits are not read. Please send it as a new message.",
    "dead": "Your edit was ignored. Please send it as a new message.",
}


def confirm_cancel(sessions: Sequence[tuple[str, str]]) -> tuple[str, list[Json]]:
    """The question before sessions (flow and id) are ended, each by a button of its own, as text and blocks. The last
    ones of many are offered, and the others the next time."""
    left, sessions = len(sessions) - _MOST_CANCELLED, sessions[-_MOST_CANCELLED:]
    names = " or ".join(f"*{escape(one_line(flow, 40))}*" for flow, _ in sessions)
    text = f"Cancel {names}? Finished steps are not undone; nothing more starts."
    if left > 0:
        text += f" {plural(left, 'older run')} here can be cancelled after this one: write `cancel` again."
    buttons = [
        _button(
            "Cancel run" if len(sessions) == 1 else f"Cancel {number}: {one_line(flow, 40)}",
            CANCEL_THIS if len(sessions) == 1 else f"{CANCEL_THIS}:{number}",
            session_id,
            "danger",
        )
        for number, (flow, session_id) in enumerate(sessions, 1)
    ]
    section: Json = {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}
    keep = _button("Keep going", KEEP, sessions[0][1], None)
    return text, [section, {"type": "actions", "elements": [*buttons, keep]}]


def confirmed(flow: str, by: str, *, ended: bool) -> str:
    """Return the answered question whether to end a session; `by` is the user id of the person who answered."""
    asked = f"Cancel *{escape(flow)}*?"
    return f"{asked} 🛑 <@{by}> cancelled it." if ended else f"{asked} ▶️ <@{by}> keeps it going."


CANCEL_THIS = "sayso:cancel:this"
"""Action of the button that ends the one session that was asked about; of several it is followed by their number."""
KEEP = "sayso:keep"
_MOST_CANCELLED = 20
"""Buttons in one row, with room for one more."""


def _button(label: str, action_id: str, value: str, style: str | None) -> Json:
    button: Json = {"type": "button", "text": words(label), "action_id": action_id, "value": value}
    return {**button, "style": style} if style else button


def root_text(user_id: str, flow: str) -> str:
    """The message under which a slash command's session lives."""
    return f"<@{user_id}> started *{escape(flow)}*"


def not_begun_text(flow: str, place: str, reason: str) -> str:
    """Return the reply to a start in a channel that takes no posts. `place` is the name of the channel."""
    why, remedy = _CLOSED.get(reason, (f"Slack does not let the bot post in {place} ({reason})", ""))
    return f"{flow} was not started: {why.format(place=place)}.{remedy}"


_INVITE = " Invite it there (`/invite @sayso`) and try again."
_CLOSED = {
    "not_in_channel": ("the bot is not in {place}", _INVITE),
    "channel_not_found": ("the bot cannot see {place}", _INVITE),
    "is_archived": ("{place} is archived", " Unarchive it, or choose another channel."),
    "restricted_action": (
        "only some people may post in {place}",
        " Ask the channel's admins to allow the bot.",
    ),
}


def alike_text(count: int, latest_ts: str) -> str:
    """Told to the thread of a run that others would have started too."""
    when = date(timestamps.after("1970-01-01T00:00:00Z", float(latest_ts)), "{time_secs}")
    return (
        f"🔁 {plural(count, 'more message')} like this one, the last at {when}. This run covers all of them."
    )


def shared_text(flow_name: str) -> str:
    """Told to the thread when strangers can read it from now on."""
    return (
        f"⚠️ This channel is now shared with another organisation, so *{escape(flow_name)}* is paused. Answers are kept. "
        "To continue here anyway, write `resume`."
    )


def quarantine_text(flow_name: str, session_id: str, lacks: str | None) -> str:
    """Told to the thread when a session's records do not verify, or it lacks a node type here."""
    if lacks is not None:
        return (
            f"⛔ *{escape(flow_name)}* is on hold: {escape(lacks)}. Please tell a sayso admin. Once it is "
            "fixed, "
            f"restart sayso and run `sayso sessions release {session_id}`."
        )
    return (
        f"⛔ *{escape(flow_name)}* is on hold: its stored records were changed or damaged. Nothing will run. "
        f"Please tell a sayso admin: `sayso sessions show {session_id}` says what is wrong. To do the work "
        "again, start the flow again."
    )


def newer_text(flow_name: str) -> str:
    """Told to the thread when a newer release wrote its session."""
    return (
        f"⏫ *{escape(flow_name)}* was last run by a newer release of sayso than this one. It continues, and "
        "reads your messages here, once the newer release runs again."
    )


def _first_line(text: str) -> str:
    """The first words of a message on their line; without the fence of the code in which they may stand."""
    lines = (line.replace("```", "").strip() for line in text.splitlines())
    return cut(next(filter(None, lines), ""), 120)
