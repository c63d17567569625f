"""The face of a question, open and closed: the record, and the function that makes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from bot.faces.marks import EMOJI, WITHDRAWN
from bot.faces.words import Actor, Icon, Ids, People, Said, When, Whom, Words, joined
from engine.decide.prompt_timers import goto_of
from engine.decide.question import ANSWER, DECIDED, deciders
from engine.forms import Field, value_text
from engine.forms.question import Question
from engine.journal.queries import is_outage
from engine.journal.state import Asked
from engine.language import working_hours
from engine.language.actors import requester_of
from engine.language.codec import Json
from engine.language.counting import elapsed
from engine.language.timestamps import format_size
from prompt_state.question_row import PromptState

_REASONS = 5
_STEPS = 3
"""Most escalation steps named in a question, the latest ones."""

_TIMEOUTS = {
    "fail": ("No answer by then: the step fails", "the step failed"),
    "reject": ("No decision by then: rejected", "rejected"),
    "approve": ("No decision by then: approved", "approved"),
    "default": ("No answer by then: the default is used", "the default was used"),
    "cancel": ("No answer by then: the server is notified", "the server was notified"),
}
"""The effect of a timeout, before and after it."""
_VERDICTS = {
    "approve": (EMOJI["completed"], "*Approved*"),
    "reject": (EMOJI["rejected"], "*Rejected*"),
    ANSWER: ("✍️", "*Not run. Someone entered this result instead:*"),
}
_READ = "Everyone in the thread can read it."


# --- the record --------------------------------------------------------------------------------------------


class Value(Struct, frozen=True):
    """A field of a proposal, as it was proposed and as it is now."""

    field: Field
    old: Json
    new: Json

    @property
    def text(self) -> str:
        """The field in plain text: `Region: Europe`, or `Region: Europe → USA` if people changed it."""
        texts = dict.fromkeys(value_text(self.field, each) for each in (self.old, self.new))
        return f"{self.field.get('title') or self.field['name']}: {' → '.join(texts)}"


class Asks(Struct, frozen=True):
    """The text that goes with a choice: free, or one of `choices`; `given` is an earlier one."""

    label: str
    optional: bool = False
    hint: str = ""
    choices: Sequence[str] = ()
    given: str = ""


class Control(Struct, frozen=True):
    """A choice. With `press` a press decides, even if a text could go with it."""

    index: int
    label: str
    style: str | None
    asks: Asks | None
    press: bool


class Face(Struct, frozen=True, kw_only=True):
    """The text and the controls of a question, as values."""

    question: Asked
    asked: Sequence[str]
    """The people asked, as entries of `approvers` or `who`, without those who may not answer."""
    lead: Words
    """The subject, and the people asked."""
    place: Words
    """Its number, its flow and its node."""
    values: Sequence[Value]
    """The proposal of an approval, unless the text of the covered action has it."""
    changed: Words
    covers: Words
    """A heading for the covered action."""
    votes: Sequence[Words]
    """The tally, and the latest reasons; empty if one person decides."""
    handed: Words
    rules: Sequence[Words]
    """The people who cannot answer, and the deadline."""
    clocks: Sequence[Words]
    """Reminders and escalations."""
    controls: Sequence[Control]
    ways: Sequence[str]
    """Further actions: `whole` (read all of it), `always` (allow), `edit`, `hand` (over), `form` (fill in)."""
    files: str
    """The number and the size of the files that answer it; empty if none do."""
    outcome: Words
    """The verdict, its author and its time; empty while it is open."""

    @property
    def lines(self) -> list[Words]:
        """All lines but the lead, the place and the outcome."""
        return [*filter(None, (self.changed, *self.votes, self.handed, *self.rules, *self.clocks))]


class Scene(Struct, frozen=True, kw_only=True):
    """The facts about a question that are not its own. Names of nodes are as people read them."""

    requester: Actor
    flow: str
    outside: Sequence[str] = ()
    """The containers and passes around it, outermost first."""
    node: str = ""
    covered: str = ""
    """The name of the covered step."""
    goto: str = ""
    """The name of the step at which its timeout continues."""
    of_agent: bool = False
    below: bool = False
    """True if the answer is below the question in its thread."""
    ids: Ids = None
    now: str | None = None
    """The time at which it is shown, which is when its clock starts; None if that does not count."""
    reason: str = ""
    """The reason why it was withdrawn."""


# --- the face ----------------------------------------------------------------------------------------------


def face(prompt: Asked, scene: Scene) -> Face:
    """Return the face of a question."""
    entries = asked(prompt, scene.requester, scene.ids)
    name, covers = (prompt.node_name or "").strip(), prompt.covers
    node = Said(name, 60) if name else Said(scene.node or prompt.path)
    path = joined([Said(scene.flow, 80), *map(Said, scene.outside), node], " › ")
    is_text = (prompt.tool or prompt.is_request) and not prompt.editors
    editors = joined((People([{"id": editor}]) for editor in prompt.changed_by[:5]), ", ")
    return Face(
        question=prompt,
        asked=entries,
        lead=_lead(prompt, Whom(entries, scene.requester, scene.ids), scene),
        place=(f"#{prompt.number} · ", *path) if prompt.number else path,
        # The text of a covered call has all of it, until somebody changes it.
        values=_values(prompt) if prompt.is_approval and not is_text else [],
        changed=(Icon("✏️"), "Changed by ", *editors) if editors else (),
        covers=_covers(prompt, covers, scene.covered) if covers else (),
        votes=list(_votes(prompt)),
        handed=_handed(prompt),
        rules=list(_rules(prompt, scene)),
        clocks=list(_clocks(prompt, scene)),
        controls=[_control(prompt, index, option) for index, option in enumerate(prompt.options)],
        ways=list(_ways(prompt)),
        files=_files(prompt) if prompt.accepts_files else "",
        outcome=() if prompt.open else _outcome(prompt, scene),
    )


def row_face(kept: PromptState, flow: str) -> Face:
    """The face of a question that is known by its row."""
    value = next((value for value, word in DECIDED.items() if word == kept.answer_summary), "reject")
    names = {*Asked.__struct_fields__} & {*PromptState.__struct_fields__}
    votes = [
        {"actor": {"id": v.actor_id, "name": v.actor_name}, "vote": v.vote, "reason": v.reason, "at": v.at}
        for v in kept.votes
    ]
    told = {name: getattr(kept, name) for name in names} | {"votes": tuple(votes), "at": kept.answered_at}
    if kept.status == "answered":
        told["answer"] = {"value": value, "text": kept.answer_summary, "votes": votes}
        told["actor"] = {"id": kept.answered_by, "name": kept.answered_by_name}
    return face(Asked(**told, requested_at=""), Scene(requester=kept.requester, flow=flow))


# --- the people asked --------------------------------------------------------------------------------------


def asked(prompt: Question, requester: Actor | None, ids: Ids = None) -> list[str]:
    """Return the entries that a prompt asks: approvers, `who`, else the requester, else the channel.

    Omits a requester who may not decide, and people who handed it over, by e-mail address too if `ids` has it.
    """
    requester_id = requester_of(requester or {})
    entries = [str(entry) for entry in prompt.approvers or prompt.who or ()]
    if not entries:
        return ["requester"] if requester_id else ["channel"]
    barred = {str(entry) for entry in prompt.excluded}
    if prompt.exclude_requester and requester_id:
        barred.add(str(requester_id))
    known = {**(ids or {}), "requester": str(requester_id)}
    return [entry for entry in entries if known.get(entry, entry) not in barred and entry not in barred]


def _lead(prompt: Asked, people: Whom, scene: Scene) -> Words:
    kind = prompt.rules
    icon, words = kind.icon, (kind.lead if prompt.open else kind.closed or kind.lead)
    if prompt.everybodys:
        icon, words = "🔐", "*For the sayso admins* · run by {whom}"
    elif is_outage(prompt):
        icon, words = "⏳", "*The model is unavailable:* {whom}"
    before, _, after = words.replace("{label}", kind.label).partition("{whom}")
    outside = (" · *", Said(" › ".join(scene.outside)), "*") if scene.outside else ()
    return (Icon(icon), before, people, after, *outside)


def _handed(prompt: Asked) -> Words:
    """The latest handover."""
    if not prompt.handed:
        return ()
    last, count = prompt.handed[-1], len(prompt.handed)
    more = f" (handed over {count} times)" if count > 1 else ""
    return (Icon("👉"), People([last["by"]]), " handed this to ", People([{"id": last["to"]}]), more)


# --- a decision --------------------------------------------------------------------------------------------


def _values(prompt: Asked) -> list[Value]:
    now = {**prompt.values, **((prompt.answer or {}).get("values") or {})}
    fields = [(field, field.get("default")) for field in prompt.fields]
    return [Value(field, old, now.get(str(field["name"]), old)) for field, old in fields]


def _covers(prompt: Asked, covers: Mapping[str, Json], step: str) -> Words:
    approved = (prompt.answer or {}).get("value") == "approve"
    said = "This was approved" if approved else "Proposed action"
    head = f"*{'This runs after approval' if prompt.open else said}*"
    if prompt.is_request:
        return (head,)
    kind = Said(str(covers.get("type") or "step"), 40)
    return (head, " · ", Said(step or str(covers.get("nodeId"))), " (", kind, ")")


def tally(prompt: Asked) -> Words:
    """The state of the votes: `1 of 2 approved: Ana`. Empty if one person decides."""
    if not prompt.is_approval or (prompt.required < 2 and not prompt.votes):
        return ()
    approved, *others = (
        (word, [vote["actor"] for vote in prompt.votes if vote["vote"] == value])
        for value, word in DECIDED.items()
    )
    people = (": ", People(approved[1])) if approved[1] else ()
    head = (f"{len(approved[1])} of {prompt.required} approved", *people)
    return joined([head, *((f"{word}: ", People(actors)) for word, actors in others if actors)], " · ")


def _votes(prompt: Asked) -> Iterator[Words]:
    count = tally(prompt)
    votes = [vote for vote in prompt.votes if count and vote.get("reason")]
    yield from filter(None, [count])
    for vote in votes[-_REASONS:]:
        yield (People([vote["actor"]]), ": “", Said(str(vote["reason"]), 200), "”")
    if len(votes) > _REASONS:
        yield (f"and {len(votes) - _REASONS} more with a reason",)


# --- its clocks --------------------------------------------------------------------------------------------


def _rules(prompt: Asked, scene: Scene) -> Iterator[Words]:
    if prompt.everybodys:
        yield ("This affects everybody's runs.",)
    elif prompt.exclude_requester and scene.requester.get("id"):
        yield (People([scene.requester]), " started this and can't approve it.")
    deadline = prompt.deadline
    if deadline is None and scene.now is not None and prompt.timeout_seconds:
        deadline = working_hours.after(scene.now, prompt.timeout_seconds, working_hours.of(prompt.hours))
    if deadline is None:
        return
    then: Words = (_TIMEOUTS.get(prompt.on_timeout, _TIMEOUTS["fail"])[0],)
    if goto := goto_of(prompt):
        then = ("No answer by then: continues at *", Said(scene.goto or goto), "*")
    elif scene.of_agent:
        then = ("No answer by then: the agent continues without one",)
    yield (Icon("⏳"), "Closes ", When(deadline), ". ", *then, ".")


def _clocks(prompt: Asked, scene: Scene) -> Iterator[Words]:
    if prompt.remind_seconds:
        hours = (" of working time (", Said(str(prompt.hours["timezone"]), 40), ")") if prompt.hours else ()
        yield (Icon("🔔"), "Reminder every ", Said(elapsed(prompt.remind_seconds)), *hours, ".")
    told = []
    for step in prompt.escalated[-_STEPS:]:
        named = (entry.removeprefix("dm:") for entry in prompt.escalate[step]["to"])
        targets = (Whom([entry], scene.requester, scene.ids, call=False) for entry in named)
        told.append(joined(targets, ", "))
    if told:
        yield (Icon("⏫"), "Escalated to ", *joined(told, "; "), ".")


# --- ways to answer ----------------------------------------------------------------------------------------


def _control(prompt: Asked, index: int, option: Mapping[str, Json]) -> Control:
    value, asks = option.get("value"), option.get("asks")
    told = Asks(asks["label"], bool(asks.get("optional")), "", asks.get("choices") or ()) if asks else None
    if prompt.is_approval and value == "reject":
        told = Asks("Why?", not prompt.require_reason, _READ)
    elif prompt.is_approval and value == ANSWER:
        # Where others must agree on a result, it begins with the one that is there.
        given = [str(vote["reason"]) for vote in prompt.votes if vote["vote"] == ANSWER]
        hint = f"The agent receives this text; the tool does not run. {_READ}"
        told = Asks("Result to use instead of the tool's", hint=hint, given=given[-1] if given else "")
    press = told is None or (told.optional and not asks)
    return Control(index, str(option.get("label")), option.get("style"), told, press)


def _ways(prompt: Question) -> Iterator[str]:
    if prompt.covers or (prompt.is_approval and prompt.fields):
        yield "whole"
    if (prompt.tool and "always" in prompt.tool) or (prompt.is_request and not prompt.editors):
        yield "always"
    if prompt.is_approval and prompt.editable:
        yield "edit"
    yield "hand"
    if prompt.fields and not prompt.is_approval:
        yield "form"


def _files(prompt: Question) -> str:
    most, size = prompt.max_files or 1, format_size(prompt.max_size or 0)
    return f"a file of at most {size}" if most == 1 else f"up to {most} files of at most {size} each"


# --- closed ------------------------------------------------------------------------------------------------


def _outcome(prompt: Asked, scene: Scene) -> Words:
    when: Words = (" · ", When(prompt.at)) if prompt.at else ()
    answer = prompt.answer or {}
    match prompt.status:
        case "answered" if prompt.is_approval:
            icon, verdict = _VERDICTS.get(str(answer.get("value")), _VERDICTS["reject"])
            said = str(answer.get("reason") or "").strip()
            reason = ("\n“", Said(said, 900), "”") if said else ()
            return (Icon(icon), f"{verdict} by ", People(deciders(prompt)), *when, *reason)
        case "answered":
            where = ", in the reply below" if scene.below else ":"
            return (Icon("☑️"), "*Answered* by ", People([prompt.actor or {}]), *when, where)
        case "expired":
            what: Words = (_TIMEOUTS.get(prompt.on_timeout, _TIMEOUTS["fail"])[1],)
            if goto := goto_of(prompt):
                what = ("the run continues at *", Said(scene.goto or goto), "*")
            return (Icon("⌛"), "*Nobody answered in time:* ", *what, *when)
        case _:
            why = Said(scene.reason or "it is no longer needed", 200)
            return (Icon(WITHDRAWN), "*Withdrawn:* ", why, *when)
