"""A question outside of its thread, with its buttons: on the Home. Pure.

It writes the same face as the thread, from the question's row. Its buttons carry the question's ids and its thread, and work
the same as there. A question is shown so only to people who can read its thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from bot.faces.marks import EMOJI
from bot.faces.question import Control, Face, asked, row_face
from bot.rendering.approvals import opens, whole_blocks
from bot.rendering.blocks import LABEL, Block, about, actions, field_block, modal, option, section
from bot.rendering.prompts import control_button, more_menu
from bot.rendering.text import (
    as_code,
    clip,
    cut,
    date,
    in_full,
    message_line,
    numbered,
    one_line,
    person,
    plain,
    safe,
    shown,
    waiting_on,
)
from engine.decide.question import ANSWER as ANSWERED
from engine.forms.question import Question
from engine.language.codec import Json
from prompt_state.question_row import PromptState

ANSWER, TOGETHER = "answer", "together"
"""The views in which a question is answered, and alike ones are decided together."""
DECISION, REASON, ONE = "decision", "reason", "one:"
"""Names of the inputs for a decision, its reason, and one of several questions."""
MOST_TOGETHER = 40
MOST_REASON = 3_000
_MOST_BUTTONS = 5
_VALUES, _VALUE, _RUNS, _WHOLE = 6, 200, 400, 1_200
_TICKED = 800
"""Units of each of many questions in one view: Slack takes 250,000 bytes, in which a letter may be six."""


class Waiting(Struct, frozen=True):
    """A waiting question, with the name of its flow and the address of its message. `ids` are the known Slack ids by
    e-mail address."""

    prompt: PromptState
    flow_name: str
    link: str | None = None
    ids: Mapping[str, str] = {}

    @property
    def asked(self) -> Sequence[str]:
        """The people, groups and rotas that it waits for, as the flow names them."""
        return asked(self.prompt, self.prompt.requester)

    @property
    def people(self) -> str:
        """The same as mrkdwn."""
        return waiting_on(self.prompt, self.prompt.requester, self.ids)

    @property
    def face(self) -> Face:
        """The face of the question."""
        return row_face(self.prompt, self.flow_name)

    @property
    def alike(self) -> tuple[object, ...]:
        """Return the common part of similar questions: the step, and the possible decisions. Those of one step of a
        frequent flow, or of many items, differ only in their text."""
        prompt = self.prompt
        labels = tuple(option["label"] for option in prompt.options)
        return (self.flow_name, prompt.node_id, prompt.kind, labels, prompt.require_reason)


def alike(entries: Sequence[Waiting]) -> dict[str, list[Waiting]]:
    """Return approvals that can be decided together, by the id of the first of them."""
    found: dict[tuple[object, ...], list[Waiting]] = {}
    for entry in entries:
        if entry.prompt.is_approval:
            found.setdefault(entry.alike, []).append(entry)
    return {group[0].prompt.prompt_id: group for group in found.values() if len(group) > 1}


def question_blocks(entry: Waiting, *, most: int = 600) -> list[Block]:
    """A question with its buttons: two blocks."""
    prompt, said = entry.prompt, entry.face
    whole = in_full((each.label for each in said.controls), LABEL)
    told = [cut(safe("\n".join(whole)), _WHOLE)] if whole else []
    runs = str((prompt.covers or {}).get("text") or "") if prompt.is_approval else ""
    told += [f"• {safe(one_line(value.text, _VALUE))}" for value in said.values[:_VALUES]]
    told += [f"*Will run:* {as_code(one_line(runs, _RUNS))}"] if runs else []
    text = "\n".join([_head(entry), cut(shown(prompt.message), most), *told])
    block: Block = {**section(text), "block_id": f"asked:{prompt.prompt_id}"}
    many, place = len(said.controls) > _MOST_BUTTONS, f"|{prompt.channel}|{prompt.thread_ts}"
    made = [] if many else [control_button(said, control, place) for control in said.controls]
    if "form" in said.ways:
        made.append(opens("Fill in…", "form", said.question, None if made else "primary"))
    elif many or prompt.accepts_text:
        made.append(opens("Answer…", ANSWER, said.question, None if made else "primary"))
    buttons = [*made, more_menu(said, "whole", "edit", "reject", "hand")]
    return [block, {**actions(buttons), "block_id": f"press:{prompt.prompt_id}"}]


def waits_line(entry: Waiting) -> str:
    """Return a question that waits for others, with their names and its time."""
    prompt = entry.prompt
    return f"{EMOJI['waiting']} *{linked(entry)}* has been waiting for {entry.people}{_since(prompt)}: {safe(message_line(prompt.message, 120))}"


def linked(entry: Waiting) -> str:
    """The flow's name, with a link to the question."""
    words = safe(one_line(entry.flow_name, 80))
    return f"<{entry.link}|{words}>" if entry.link else words


def _head(entry: Waiting) -> str:
    prompt = entry.prompt
    by = f" · {person(prompt.requester)} has been waiting" if prompt.requester_id else ""
    several = len(entry.face.asked) > 1
    beside = f" · asked: {entry.people}" if several else ""
    until = f" · until {date(prompt.deadline)}" if prompt.deadline else ""
    votes = f" · {len(prompt.votes)} of {prompt.required} voted" if prompt.required > 1 else ""
    return f"*{prompt.rules.icon} {prompt.rules.label}* · *{linked(entry)}*{by}{_since(prompt)}{beside}{until}{votes}"


def _since(prompt: PromptState) -> str:
    ts = prompt.message_ts
    return f" since <!date^{int(float(ts))}^{{date_short_pretty}} at {{time}}|{ts}>" if ts else ""


# --- views -------------------------------------------------------------------------------------------------


def decision_view(
    prompt: Question, meta: dict[str, Json], control: Control | None = None
) -> dict[str, object]:
    """Return a question with an input for the text that goes with a choice; without a choice, for the answer itself."""
    element: Block = {"type": "plain_text_input", "action_id": REASON, "multiline": True}
    element["max_length"] = MOST_REASON
    if control is not None and (asks := control.asks) is not None:
        element |= {
            "focus_on_load": True,
            **({"initial_value": asks.given[:MOST_REASON]} if asks.given else {}),
        }
        if asks.choices:
            listed = [option(one, one) for one in asks.choices]
            element = {"type": "static_select", "action_id": REASON, "options": listed}
        runs = whole_blocks(str((prompt.covers or {}).get("text") or ""))
        words = field_block(REASON, asks.label, element, optional=asks.optional, hint=asks.hint)
        blocks = [about(prompt.message), *runs, words]
        return modal(control.label, blocks, kind=ANSWER, meta=meta, submit=control.label)
    blocks, label = [about(prompt.message)], "Your answer"
    if prompt.options:
        menu = [
            option(numbered(number, str(one["label"]), LABEL), str(number))
            for number, one in enumerate(prompt.options[:100])
        ]
        select: Block = {"type": "static_select", "action_id": DECISION, "options": menu}
        blocks.append(field_block(DECISION, "One of these", select, optional=prompt.accepts_text))
        label = "Or your own answer"
    if prompt.accepts_text:
        blocks.append(field_block(REASON, label, element, optional=bool(prompt.options)))
    return modal(str(prompt.node_name or "Answer"), blocks, kind=ANSWER, meta=meta, submit="Answer")


def together_view(group: Sequence[Waiting], user: str) -> dict[str, object]:
    """Alike approvals, each with its words and a tick: one decision for those that are ticked."""
    first = group[0].prompt
    some = group[:MOST_TOGETHER]
    head = (
        f"*{len(some)} approvals* of *{safe(one_line(group[0].flow_name, 80))}*. Each ticked approval is "
        "decided and recorded separately, in its own thread."
    )
    chosen = [one for one in first.options if one["value"] != ANSWERED]
    # Slack takes no empty text in a menu.
    choices = [option(one_line(str(one["label"]), LABEL) or "–", str(one["value"])) for one in chosen]
    radio: Block = {"type": "radio_buttons", "action_id": DECISION, "options": choices}
    element: Block = {"type": "plain_text_input", "action_id": REASON, "multiline": True}
    element |= {"max_length": MOST_REASON}
    blocks = [section(head), field_block(DECISION, "Decision", radio)]
    blocks += [_ticked(entry) for entry in some]
    blocks.append(
        field_block(REASON, "Why?", element, optional=True, hint="Everyone in the threads can read it.")
    )
    return modal("Decide together", blocks, kind=TOGETHER, meta={"user": user}, submit="Decide")


def _ticked(entry: Waiting) -> Block:
    prompt = entry.prompt
    tick = option("Decide this one", f"{prompt.prompt_id}|{prompt.nonce}")
    element: Block = {"type": "checkboxes", "action_id": f"{ONE}{prompt.prompt_id}", "options": [tick]}
    element["initial_options"] = [tick]
    runs = str((prompt.covers or {}).get("text") or "")
    values = [one_line(value.text, _VALUE) for value in entry.face.values[:_VALUES]]
    words = " · ".join([plain(prompt.message), *values, *([f"will run: {runs}"] if runs else [])])
    return field_block(f"{ONE}{prompt.prompt_id}", clip(words, _TICKED), element, optional=True)
