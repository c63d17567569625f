"""A prompt as a Slack message: open, with its buttons; closed, with the answer, its author and time; and its clocks:
reminders, escalations, the next due step. Pure.

A question's text stays in its own thread: other channels and direct messages only get its place, and a link.
"""

from __future__ import annotations

from collections.abc import Mapping

from bot.rendering import approvals
from bot.rendering import blocks as kit
from bot.rendering.blocks import (
    LABEL,
    Block,
    Rendered,
    actions,
    button,
    context,
    fit_text,
    rendered,
    section,
    size,
)
from bot.rendering.flow import around, label_of
from bot.rendering.forms import form_about, form_controls, form_values
from bot.rendering.grants import given_with, grant_blocks
from bot.rendering.marks import EMOJI, WITHDRAWN
from bot.rendering.text import (
    asked,
    date,
    elapsed,
    in_full,
    numbered,
    one_line,
    person,
    safe,
    shown,
    weight,
    whom,
)
from engine.decide.prompt_timers import goto_of
from engine.decide.question import summary
from engine.flow import Flow
from engine.forms.question import Question
from engine.journal.queries import agent_of, is_outage, people_among
from engine.journal.state import Asked, State
from engine.language import working_hours
from engine.language.codec import Json
from engine.language.counting import plural
from engine.language.timestamps import format_size
from prompt_state.question_row import own_words

_BUTTONS = 25
_SELECT = 100
_COVERED_ROOM = 1_000
"""Units reserved for the action that an approval covers."""
_REQUEST_ROOM = 3_000
"""Units of a call that an agent wants to make: people read it on a phone, and a button shows the rest."""
_MESSAGE_ROOM = 1_200
"""Units kept free for the words of the question, however many options there are."""

_EXPIRED = {
    "fail": "the step failed",
    "reject": "rejected",
    "approve": "approved",
    "default": "the default was used",
    "cancel": "the server was told",
}
_WILL = {
    "fail": "No answer by then: the step fails",
    "reject": "No decision by then: rejected",
    "approve": "No decision by then: approved",
    "default": "No answer by then: the default is used",
    "cancel": "No answer by then: the server is told",
}


def prompt_key(prompt_id: str, reposts: int = 0) -> str:
    """The outbox key of a prompt's message; a message that was deleted is followed by one with another key."""
    return f"prompt:{prompt_id}~{reposts}" if reposts else f"prompt:{prompt_id}"


def message_of(key: str | None) -> tuple[str, str] | None:
    """Return the channel and ts of the message with this inbox key; None if it was not a message."""
    kind, _, where = (key or "").partition(":")
    if kind != "message" or where.count(":") != 2:
        return None
    _, channel, ts = where.split(":")
    return channel, ts


def option_value(prompt: Asked, index: int) -> str:
    """Return the value of a button: ids and an index, never the option's meaning."""
    return f"{prompt.prompt_id}|{prompt.nonce}|{index}"


def prompt_message(
    state: State,
    prompt: Asked,
    flow: Flow,
    *,
    names: Mapping[str, str] | None = None,
    now: str | None = None,
) -> Rendered:
    """An open prompt. `names` are Slack's ids by e-mail address and `@group`. `now` is when it is shown, which is when
    its clock starts; without it a deadline that is not set yet is not shown."""
    key = prompt_key(prompt.prompt_id, prompt.reposts)
    lead = _lead(state, prompt, flow, names)
    head = [{**section(lead, key, most=900), "accessory": more_menu(prompt)}]
    rules = [*rule_lines(state, prompt, flow, now), *_clock_rules(state, prompt, names or {})]
    tail = [*([context(*rules)] if rules else []), context(place_line(state, prompt, flow))]
    if prompt.accepts_text or prompt.accepts_files:
        tail = [_reply_hint(prompt), *tail]
    # An approval's proposal is shown with its values.
    form = [] if prompt.is_approval or not prompt.fields else form_about(prompt)
    under = [*form, *_decision(prompt, is_open=True)]
    covers = _COVERED_ROOM if prompt.covers else 0
    room = kit.MOST_UNITS - size(head) - size(tail) - size(under) - covers - _MESSAGE_ROOM
    controls = buttons_of(prompt, room)
    message = shown(prompt.message)
    covered = _covered(prompt, flow, message, [*head, *under, *controls, *tail], is_open=True)
    blocks = fit_text(head, message, [*under, *covered, *controls, *tail])
    # Instructions for clients without blocks, and so without buttons.
    typed = "Reply here, or use" if prompt.accepts_text else "Its buttons cannot be shown. Use"
    plain = f"{typed} `sayso prompts answer {prompt.prompt_id}`."
    return rendered(f"{lead}\n{message}", blocks, key, plain=plain)


def _covered(prompt: Asked, flow: Flow, message: str, others: list[Block], *, is_open: bool) -> list[Block]:
    """Return the covered action: all of it if the question leaves room, and most of the room otherwise."""
    if not prompt.covers:
        return []
    room = kit.MOST_UNITS - size(others) - _MESSAGE_ROOM
    asked_for = min(approvals.covered_size(prompt), room * 2 // 3)
    left = max(asked_for, room - weight(message))
    left = min(left, _REQUEST_ROOM) if approvals.is_request(prompt) else left
    covers = prompt.covers
    label = label_of(flow, str(covers.get("path") or covers.get("nodeId") or ""))
    return approvals.covered_blocks(prompt, label, left, is_open=is_open)


def _decision(prompt: Asked, *, is_open: bool) -> list[Block]:
    """Return an approval's proposal, the state of its votes, and its handover."""
    if not prompt.is_approval and not prompt.handed:
        return []
    lines = [*approvals.vote_lines(prompt), approvals.handed_line(prompt)]
    said = [line for line in lines if line]
    return [*approvals.value_blocks(prompt, is_open=is_open), *(kit.sections(said) if said else [])]


def closed_prompt(
    state: State,
    prompt: Asked,
    flow: Flow,
    *,
    names: Mapping[str, str] | None = None,
    reason: str | None = None,
) -> Rendered:
    """Return the message of a question that is closed. `reason` is why it was withdrawn, if it was."""
    key = prompt_key(prompt.prompt_id, prompt.reposts)
    outcome = outcome_text(prompt, flow, reason)
    head = [section(_lead(state, prompt, flow, names, closed=True), key, most=900)]
    answer = _answer(prompt)
    grants = given_with(prompt)
    if (grant := state.grants.get(prompt.prompt_id)) is not None:
        grants = grant_blocks(state, prompt, grant)
    tail = [section(outcome, most=1_500), *answer, *grants, context(place_line(state, prompt, flow))]
    message = shown(prompt.message)
    under = _decision(prompt, is_open=False)
    covered = _covered(prompt, flow, message, [*head, *under, *tail], is_open=False)
    said = one_line(summary(prompt), 300) if answer else ""
    text = f"{outcome} {safe(said)}".rstrip() + f"\n{message}"
    return rendered(text, fit_text(head, message, [*under, *covered, *tail]), key)


# --- parts -------------------------------------------------------------------------------------------------


def _lead(
    state: State,
    prompt: Asked,
    flow: Flow,
    names: Mapping[str, str] | None,
    *,
    closed: bool = False,
) -> str:
    """Return the people asked and the subject; its place tells questions of different items apart."""
    entries = asked(prompt, state.actor, names)
    kind = prompt.rules
    lead = f"{kind.icon} {(kind.closed if closed else '') or kind.lead}"
    if prompt.everybodys:
        lead = "🔐 *For the admins of sayso* · a run of {whom}"
    elif is_outage(prompt):
        lead = "⏳ *The model is away:* {whom}"
    lead = lead.format(label=kind.label, whom=whom(entries, state.actor, names))
    outside = around(state, flow, prompt.path) if not prompt.input else []
    return f"{lead} · *{' › '.join(outside)}*" if outside else lead


def more_menu(prompt: Asked) -> Block:
    """Return the menu of rarely used actions."""
    entries = [("Hand over to somebody else…", "hand")]
    if prompt.is_approval and not prompt.require_reason:
        entries.insert(0, ("Reject with a reason…", "reject"))
    if (prompt.tool and "always" in prompt.tool) or approvals.is_as_asked(prompt):
        entries.insert(0, ("Always allow…", "always"))
    options = [kit.option(label, f"{kind}|{prompt.prompt_id}|{prompt.nonce}") for label, kind in entries]
    return {"type": "overflow", "action_id": f"{approvals.OPEN}more", "options": options}


def _reply_hint(prompt: Asked) -> Block:
    number = prompt.number
    several = f" (or, with several questions open, `#{int(number)}: your answer`)" if number else ""
    beside = f" (with several questions open, write `#{int(number)}:` beside them)" if number else ""
    if prompt.options and not prompt.accepts_files:
        return section(f"↩️ Choose one, or *reply in this thread* with your own answer{several}.", most=300)
    if not prompt.accepts_files:
        return section(f"↩️ *Reply in this thread*{several}.", most=300)
    most, size = prompt.max_files or 1, format_size(prompt.max_size or 0)
    files = f"a file of at most {size}" if most == 1 else f"up to {most} files of at most {size} each"
    words = "*Reply in this thread*, with words or" if prompt.accepts_text else "*Drop into this thread*"
    return section(f"📎 {words} {files}{several if prompt.accepts_text else beside}.", most=300)


def rule_lines(state: State, prompt: Asked, flow: Flow, now: str | None) -> list[str]:
    """Return the people excluded from answering, and the deadline. The first line names those who may."""
    rules = []
    if prompt.exclude_requester and (state.actor or {}).get("id"):
        rules.append(f"{person(state.actor)} started this and can't approve it.")
    deadline = prompt.deadline
    seconds = prompt.timeout_seconds
    if deadline is None and now is not None and seconds:
        deadline = working_hours.after(now, seconds, working_hours.of(prompt.hours))
    if deadline is None:
        return rules
    then = _WILL.get(prompt.on_timeout, _WILL["fail"])
    if prompt.kind == "ask" and agent_of(state, prompt.path) is not None:
        then = "No answer by then: the agent continues without one"
    goto = goto_of(prompt)
    if goto is not None:
        then = f"No answer by then: continues at *{label_of(flow, goto)}*"
    return [*rules, f"⏳ Closes {date(deadline)}. {then}."]


def place_line(state: State, prompt: Asked, flow: Flow) -> str:
    number = prompt.number
    counted = f"#{int(number)} · " if number else ""
    node = safe(one_line(str(prompt.node_name or ""), 60)) or label_of(flow, prompt.path)
    outside = around(state, flow, prompt.path) if not prompt.input else []
    path = " › ".join([safe(one_line(flow.name, 80)), *outside, node])
    return f"{counted}{path}"


def buttons_of(prompt: Asked, room: int, *, edit: bool = True) -> list[Block]:
    """Return the controls of an open question, with the button to `edit` it where it can be."""
    options: list[Mapping[str, Json]] = list(prompt.options)
    if not options:
        return form_controls(prompt.prompt_id, prompt) if prompt.fields else []
    told = kit.sections([safe(line) for line in in_full((str(each.get("label")) for each in options), LABEL)])
    # Omitted text can still be read in the menu, or after the choice.
    told = told if size(told) * 2 <= room else []
    if len(options) > _BUTTONS:
        return [*told, *_select(prompt, options, room - size(told))]
    buttons = [_option_button(prompt, n, option) for n, option in enumerate(options)]
    if edit and prompt.is_approval and prompt.editable:
        buttons.append(approvals.opens("Edit…", "edit", prompt))
    if prompt.fills_beside:
        buttons.insert(0, approvals.opens("Fill in…", "form", prompt, "primary"))
    return [*told, actions(buttons)]


def _option_button(prompt: Asked, index: int, option: Mapping[str, Json]) -> Block:
    label, style = str(option.get("label")), option.get("style")
    words = approvals.words_view(prompt, option)
    if words is not None:
        return approvals.opens(f"{numbered(index, label, LABEL - 1).rstrip('…')}…", words, prompt, style)
    if option.get("asks"):
        action = f"{approvals.OPEN}{approvals.TOLD}:{index}"
        return button(
            f"{numbered(index, label, LABEL - 1).rstrip('…')}…", action, option_value(prompt, index), style
        )
    return button(numbered(index, label, LABEL), f"sayso:option:{index}", option_value(prompt, index), style)


def _select(prompt: Asked, options: list[Mapping[str, Json]], room: int) -> list[Block]:
    """A menu of up to a hundred options. Where even that is too much for one message, the labels get shorter, and then
    the options fewer: those that are not shown can still be typed."""
    labels = [" ".join(shown(str(option.get("label"))).split()) or " " for option in options[:_SELECT]]
    most = LABEL
    made = _menu(prompt, labels, most)
    while size(made) + 200 > room and most > 8:
        most -= 1
        made = _menu(prompt, labels, most)
    while size(made) + 200 > room and len(labels) > 1:
        labels.pop()
        made = _menu(prompt, labels, most)
    beyond = len(options) - len(labels)
    if beyond > 0:
        made.append(context(f"_This message has no room for {plural(beyond, 'more option')}._"))
    return made


def _menu(prompt: Asked, labels: list[str], most: int) -> list[Block]:
    listed = [
        kit.option(numbered(index, label, most), option_value(prompt, index))
        for index, label in enumerate(labels)
    ]
    return [actions([kit.select("sayso:option:select", "Choose…", listed)])]


# --- closed ------------------------------------------------------------------------------------------------


def outcome_text(prompt: Asked, flow: Flow, reason: str | None) -> str:
    when = f" · {date(prompt.at)}" if prompt.at else ""
    if prompt.status == "answered":
        if not prompt.is_approval:
            where = ", in the reply below" if _stands_below(prompt) else ":"
            return f"☑️ *Answered* by {person(prompt.actor)}{when}{where}"
        answer = prompt.answer or {}
        verdict = _VERDICTS.get(str(answer.get("value")), f"{EMOJI['rejected']} *Rejected*")
        said = str(answer.get("reason") or "").strip()
        reason = f"\n“{safe(one_line(said, 900))}”" if said else ""
        return f"{verdict} by {approvals.deciders(prompt)}{when}{reason}"
    if prompt.status == "expired":
        goto = goto_of(prompt)
        what = (
            f"it goes on at *{label_of(flow, goto)}*"
            if goto
            else _EXPIRED.get(prompt.on_timeout, _EXPIRED["fail"])
        )
        return f"⌛ *Nobody answered in time:* {what}{when}"
    return f"{WITHDRAWN} *Withdrawn:* {safe(one_line(reason or 'it is no longer needed', 200))}{when}"


_VERDICTS = {
    "approve": f"{EMOJI['completed']} *Approved*",
    "answer": "✍️ *Not run. Someone entered this result instead:*",
}


def _stands_below(prompt: Asked) -> bool:
    """True if the text of an answer is below its question, as a reply in its thread. A direct message may be an answer
    without being a reply, so there the text is repeated."""
    said, shown_at = message_of(prompt.answer_key), prompt.shown or {}
    if said is None or not own_words(prompt.answer):
        return False
    channel, ts = said
    below = channel == shown_at.get("channel") and float(ts) > float(shown_at["ts"])
    return below and not channel.startswith("D")


def _answer(prompt: Asked) -> list[Block]:
    """Return the answer, as a text without markup, unless it is below. Approvals have it in their outcome."""
    if prompt.status != "answered" or prompt.is_approval or _stands_below(prompt):
        return []
    values = (prompt.answer or {}).get("values")
    if values:
        return form_values(prompt, values)
    return [kit.quoted(summary(prompt), most=1_000)]


# --- clocks -----------------------------------------------------------------------------------------------


_STEPS = 3
"""Most escalation steps named in a question, the latest ones."""


def _clock_rules(state: State, prompt: Asked, names: Mapping[str, str]) -> list[str]:
    """Return an open question's clocks beside its deadline."""
    rules = []
    if prompt.remind_seconds:
        rules.append(f"🔔 Reminds every {safe(elapsed(prompt.remind_seconds))}{_working(prompt)}.")
    told = [targets(prompt.escalate[step]["to"], state, names) for step in prompt.escalated[-_STEPS:]]
    if told:
        rules.append(f"⏫ Escalated to {'; '.join(told)}.")
    return rules


def _working(prompt: Question) -> str:
    hours = prompt.hours
    return f" of working time ({safe(one_line(str(hours['timezone']), 40))})" if hours else ""


def targets(entries: list[str], state: State, names: Mapping[str, str]) -> str:
    """Return the targets of an escalation, named without a mention."""
    listed = [
        whom([entry.removeprefix("dm:")], state.actor, names, call=False)
        if people_among([entry])
        else f"<#{entry}>"
        for entry in entries
    ]
    return ", ".join(listed)
