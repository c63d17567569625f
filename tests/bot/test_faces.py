"""Faces: what each kind of question says in Slack, on the Home, at a terminal and to a program, open and closed; what
the card of a run says, the note at its end, and reminders.

`faces.txt` is a gallery, and the one place that has the words of them all. After a change of words,
`python -m tests.bot.test_faces` writes it again, to be read in review.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from immutables import Map
from msgspec.structs import replace

from bot.faces.end import end
from bot.faces.question import row_face
from bot.faces.run import Behind
from bot.rendering.blocks import Rendered
from bot.rendering.calls import calls_message
from bot.rendering.clocks import (
    deleted_too_often,
    escalation,
    out_of_reach,
    refused_target,
    reminder,
    told_elsewhere,
)
from bot.rendering.notes import retried_text
from bot.rendering.prompts import question_message, session_face
from bot.rendering.waiting import Waiting, question_blocks, waits_line
from bot.terminal.narration import prompt_json
from bot.terminal.screen import TerminalScreen
from engine.forms.question_kinds import KINDS
from engine.journal.queries import TURN
from engine.journal.state import Asked, Grant, LockRun, NodeRun, State, TimerRun
from engine.nodes.types.spec import Meter
from prompt_state.question_row import prompt_state
from tests.bot.rendering_cases import ANA, BEN, T0, T1, Flow, Node, card, end_note, prompt, session
from tests.bot.test_agent_rendering import SHELL
from tests.bot.test_rendering_nested import applied, rollout
from tests.engine.agents.talks import HEAD, Talk
from tests.support.engine import BEN as THE_BEN
from tests.support.engine import flow_of

GALLERY = Path(__file__).with_name("faces.txt")
NAMES = {"@sre": "S0LOCALSRE", "ben@example.com": "U0LOCALBEN"}
DEV = {"id": "U0LOCALDEV", "name": "Dev Rao"}
FORM = {
    "fields": [
        {"name": "region", "type": "choice", "title": "Region", "required": True, "default": "eu",
         "options": [{"value": "eu", "label": "Europe"}, {"value": "us", "label": "USA"}]},
        {"name": "owner", "type": "string", "format": "user", "title": "Owner", "required": False},
        {"name": "count", "type": "integer", "title": "How many", "required": True, "default": 3, "minimum": 1},
    ]
}  # fmt: skip
DATE = {
    "fields": [{"name": "day", "type": "string", "format": "date", "title": "Which day", "required": True}]
}
COVERS = {
    "nodeId": "tell",
    "path": "tell",
    "type": "shell",
    "sessionId": "session-1",
    "text": "rm -rf \\\n  /srv/old <b>",
}
LONG = "x" * 14_000
"""More than a message holds; the gallery has its length."""
VOTES = (
    {"actor": BEN, "vote": "approve", "reason": None, "at": T0},
    {"actor": DEV, "vote": "reject", "reason": "too <late>", "at": T0},
)
YES = {"value": "yes", "label": "Yes", "style": "primary"}
WHY = {"value": "other", "label": "Something else", "style": None, "asks": {"label": "What?"}}
HOURS = {"days": [0, 1], "from": "09:00", "to": "17:00", "timezone": "Europe/Berlin"}
CALL = [
    {"value": value, "label": label, "style": style}
    for value, label, style in (
        ("approve", "Approve", "primary"),
        ("reject", "Reject", "danger"),
        ("answer", "Answer", None),
    )
]
STEP = [
    {"value": "again", "label": "Run it again", "style": None},
    {"value": "fail", "label": "Let it fail", "style": "danger"},
]
SHOWN = {"channel": "C1", "ts": "1795300900.000100"}


def cases() -> Iterator[tuple[str, Asked]]:
    """Each kind of question, and what changes how one is shown."""
    full = prompt(
        number=3, form=FORM, values={"region": "us", "owner": "U0LOCALDEV", "count": 3}, editable=["region"],
        editors=["U0LOCALBEN"], covers=COVERS, required=2, votes=VOTES, excludeRequester=True, timeoutSeconds=3600,
        onTimeout="reject", remindSeconds=900, hours=HOURS, deadline=T1, escalated=(0,),
        escalate=[{"afterSeconds": 60, "to": ["ben@example.com", "C0OPS", "dm:U0LOCALDEV"], "mayAnswer": True}],
        handed=[{"by": BEN, "to": "U0LOCALDEV", "at": T0}], excluded=["U0LOCALBEN"],
        approvers=["@sre", "ben@example.com", "U0LOCALDEV"],
    )  # fmt: skip
    done: dict[str, Any] = {"status": "answered", "actor": DEV, "at": T1}
    values = {"region": "us", "owner": "U0LOCALDEV", "count": 3}
    yes = {"actor": DEV, "vote": "approve", "reason": None, "at": T0}
    yield "approval", prompt(timeoutSeconds=3600, onTimeout="approve")
    yield "approval, with all that one can have", full
    yield (
        "approval, given",
        replace(
            full,
            **done,
            answer={"value": "approve", "votes": [*VOTES, yes], "values": values},
        ),
    )
    yield "approval, rejected", replace(full, **done, answer={"value": "reject", "reason": "Not <today>"})
    yield "approval, expired", replace(full, status="expired", at=T1)
    yield "approval, withdrawn", replace(full, status="cancelled", at=T1)
    yield "approval that needs a reason", prompt(requireReason=True, covers={**COVERS, "text": LONG})
    yield (
        "approval of a call",
        prompt(options=CALL, tool={"name": "shell", "always": ["flow"]}, covers=COVERS),
    )
    answered = {"value": "answer", "reason": "It is gone"}
    yield (
        "approval of a call, answered in its place",
        prompt(options=CALL, tool={"name": "shell"}, covers=COVERS, **done, answer=answered),
    )
    yield "approval of an agent's request", prompt(covers={**COVERS, "type": "call"})
    always = {"seconds": 3600.0, "scope": "place", "fields": {"command": {"like": "git *"}}}
    yield (
        "approval of an agent's request, always",
        prompt(covers={**COVERS, "type": "call"}, **done, answer={"value": "approve", "always": always}),
    )
    yield "ask", prompt("ask", number=2, timeoutSeconds=60, deadline=T1, onTimeout="default")
    yield "ask, answered below", prompt(
        "ask", shown=SHOWN, answer={"text": "fine"}, answer_key="message:T1:C1:1795300901.000100", **done
    )  # fmt: skip
    yield "ask, answered elsewhere", prompt("ask", answer={"text": "It is <fine>"}, **done)
    yield "ask, nobody answered", prompt("ask", "expired", onTimeout="goto:tell", at=T1)
    yield (
        "ask with choices",
        prompt("ask", options=[YES, WHY], acceptsText=True, onTimeout="goto:tell", deadline=T1),
    )
    many = [{"value": n, "label": f"Region {n} " + "x" * (n * 4), "style": None} for n in range(30)]
    yield "ask with thirty choices", prompt("ask", options=many, acceptsText=False)
    yield (
        "ask for files",
        prompt("ask", acceptsText=False, acceptsFiles=True, maxFiles=2, maxSize=2**20, number=1),
    )
    yield "ask for a file or words", prompt("ask", acceptsFiles=True, maxFiles=1, maxSize=2**20, number=1)
    yield "ask with a form", prompt("ask", form=FORM, acceptsText=False)
    values = {"region": "us", "owner": "U0LOCALDEV", "count": 5}
    yield (
        "ask with a form, answered",
        prompt("ask", form=FORM, answer={"text": "us", "values": values}, **done),
    )
    yield "ask for a day", prompt("ask", form=DATE)
    yield "input", prompt("input", path="inputs/service", input={"name": "service", "type": "string"})
    yield (
        "interrupted",
        prompt("interrupted", options=STEP, handed=[{"by": BEN, "to": "U0LOCALDEV", "at": T0}]),
    )
    yield "failed", prompt("failed", options=STEP)
    yield (
        "failed, answered",
        prompt("failed", options=STEP, answer={"value": "again", "label": "Run it again"}, **done),
    )
    yield "budget", prompt("budget", options=STEP, excludeRequester=True, who=["@sre"], scope="day")
    yield "limit", prompt("limit", options=STEP)
    yield "outcome", prompt("outcome", options=STEP, scope="outage")
    yield "listing", prompt("listing", options=STEP)
    yield "elicit", prompt("elicit", options=STEP, form=DATE)


def calls() -> Iterator[tuple[str, list[Asked]]]:
    """Several calls on one message: a few, and many."""
    first = prompt(
        options=CALL, tool={"name": "shell"}, covers=COVERS, message="*shell* <now>\n> since it is full"
    )
    some = [
        replace(first, prompt_id=f"prompt-{n}", number=n, path=f"gate/turn[1]/tool[{n}]") for n in range(1, 8)
    ]
    decided = replace(some[1], status="answered", answer={"value": "reject"}, actor=BEN, at=T1)
    yield (
        "three calls",
        [replace(some[0], required=2, votes=VOTES, editors=("U0LOCALBEN",)), decided, some[2]],
    )
    requests = [
        replace(one, tool=None, covers={**COVERS, "type": "call"}, options=one.options[:2]) for one in some
    ]
    yield "two requests", requests[:2]
    yield "seven requests", [replace(decided, covers={**COVERS, "type": "call"}), *requests[1:]]


def written(message: Rendered) -> str:
    """A message with its text, and a line for each block."""
    return "\n".join([message.text, message.plain, *_blocks(message.blocks)])


def _blocks(blocks: list[dict[str, Any]]) -> list[str]:
    return [json.dumps(block, ensure_ascii=False) for block in blocks]


def typed(state: State, one: Asked) -> str:
    """What is on the terminal of whoever is asked."""
    out = io.StringIO()
    with patch("bot.terminal.narration.moment", str):  # the hour here depends on the place
        TerminalScreen(out).question(session_face(state, one, Flow()))
    return out.getvalue()


def of_case(one: Asked) -> str:
    """A question everywhere that it is shown."""
    names: Mapping[str, str] = NAMES
    grant = Grant("prompt-1", "gate", "shell", {"host": {"is": "web-1"}}, "d1", T1, (ANA,))
    state = session(one, grants=Map({"prompt-1": grant} if one.tool else {}))
    if not one.open:
        return written(question_message(state, one, Flow(), ids=names, reason="the <flow> was cancelled"))
    row = prompt_state(state, replace(one, shown=SHOWN))
    entry = Waiting(row, "rollback", "https://x.slack.com/archives/C1/p1")
    parts = [
        written(question_message(state, one, Flow(), ids=names, now=T0)),
        "\n".join([*_blocks(question_blocks(entry)), waits_line(entry)]),
        typed(state, one),
        json.dumps(prompt_json(row_face(row, "rollback"), "session-1", "rollback"), ensure_ascii=False),
    ]
    return "\n--\n".join(parts)


def runs() -> Iterator[tuple[str, State, Any, dict[str, Any]]]:
    """Runs as they stand, each with its flow and what else its card knows."""
    asked = prompt(required=2, votes=VOTES, escalated=(0,), approvers=["ben@example.com", "@sre"])
    remind = TimerRun("r", "gate", T1, "remind", "prompt-1")
    waiting = session(asked, timers=Map({"r": remind}), flow_revision=f"{'ab' * 20} with changes")
    around = {"lacks": ["secret TOKEN is not set"], "room": "https://room.example/", "ids": NAMES}
    yield "waits for people", waiting, Flow(), around
    yield "waits for people, its question on its card", waiting, Flow(), {**around, "folded": True}
    kinds = {"wait": "shell", "retry": "shell", "followUp": "shell", "provider": TURN}
    for purpose, kind in kinds.items():
        outage = {"type": "overloaded", "message": "too <much> to do"}
        run = NodeRun("gate", kind, 1, "retrying" if kind == TURN else "started", T0, error=outage)
        timer = TimerRun("t", "gate", T1, "retry" if kind == TURN else purpose, None)
        nodes = session().nodes.set("gate", run)
        yield f"waits: {purpose}", session(nodes=nodes, timers=Map({"t": timer})), Flow(), {}
    lock = LockRun("deploy `x`", "queue", T0)
    queued = {"behind": Behind("session-2", 2, "https://x.slack.com/1")}
    yield "waits for a lock", session(lock=lock), Flow(), queued
    yield "paused in a queue", session(lock=lock, phase="held", pause_reason="by <Ana>"), Flow(), {}
    yield "paused", session(asked, phase="held", pause_reason="by <Ana>"), Flow(), {}
    yield "being paused", session(phase="pausing", launched=Map({"gate": None})), Flow(), {}
    yield "out of reach", session(asked, phase="unreachable", pause_reason="is_archived"), Flow(), {}
    yield "ending", session(phase="finalizing", outcome="failed", active=Map()), Flow(), {}
    inputs = {f"name{n}": f"<{n}>" for n in range(14)}
    meters = {"gate": Meter(3, 8, "hosts <done>")}
    yield "running", session(phase="running", inputs=inputs), Flow(), {"meters": meters}
    some = {f"n{n}": NodeRun(f"n{n}", "shell", n, "completed", T0, T1) for n in range(43)}
    broke = {"type": "shell", "message": "exit <code> 1", "details": {"stderr": "no `such` host\nat <db>\n"}}
    some["n7"] = NodeRun("n7", "shell", 7, "failed", T0, T1, attempt=3, error=broke)
    some["n8"] = NodeRun("n8", "shell", 8, "skipped")
    some["n43"] = NodeRun("n43", "shell", 43, "started", T0)
    many = Flow(nodes=tuple(Node(f"n{n}") for n in range(60)))
    yield (
        "running, with many steps",
        session(phase="running", nodes=Map(some), active=Map({"n43": None})),
        many,
        {},
    )
    over: dict[str, Any] = {"phase": "ended", "active": Map(), "inputs": {}}
    rejected = {
        "type": "rejected",
        "message": "gate was rejected by ben: no",
        "reason": "not <now>",
        "by": [BEN],
    }
    decided = NodeRun("gate", "approval", 1, "failed", T0, T1, error=rejected)
    spent = NodeRun("gate", "agent", 1, "completed", T0, T1, output={"cost": 0.25})
    limits = ({"path": "again", "to": None, "times": 3},)
    done = {"plan": session().nodes["plan"], "gate": spent}
    yield "complete", session(outcome="complete", nodes=Map(done), limits=limits, **over), Flow(), {}
    failed = NodeRun("gate", "shell", 1, "failed", T0, T1, error=broke)
    yield "failed", session(outcome="failed", error=broke, nodes=Map({"gate": failed}), **over), Flow(), {}
    yield (
        "rejected",
        session(outcome="failed", error=rejected, nodes=Map({"gate": decided}), **over),
        Flow(),
        {},
    )
    begun = Map({"plan": NodeRun("plan", "shell", 0, "started", T0)})
    yield (
        "cancelled",
        session(**{**over, "active": Map({"plan": None})}, outcome="aborted", nodes=begun),
        Flow(),
        {},
    )
    for passes in (1, 3):
        case = applied(rollout(concurrency=passes), 0)
        yield f"a loop, {passes} at a time", case.state, case.flow, {}
        applied(case, 1, output=False) if passes > 1 else case.when(case.abort(THE_BEN, "a <bad> idea"))
        yield f"a loop, {passes} at a time, later", case.state, case.flow, {}
    talk = Talk(flow_of(HEAD.replace("{{ inputs.service }}", "web") + SHELL)).started()
    talk.model("Let me look.", ("shell", {"command": "echo `one`"}), ("shell", {"command": "rm <x>"}))
    yield "an agent with calls", talk.state, talk.flow, {}


def of_run(state: State, flow: Any, around: dict[str, Any]) -> str:
    """A run everywhere that it is shown: its card, and the note of a bad end."""
    parts = [written(card(state, flow, T1, **around))]
    if state.outcome in ("failed", "aborted"):
        link = "https://x.slack.com/1" if state.outcome == "failed" else None
        note = end_note(state, flow, "end:1", by=BEN, reason="a <bad> idea", bot_user_id="UBOT", holder=link)
        parts += [written(note), retried_text(end(state, flow), "end:1", "U0LOCALBEN")]
    return "\n--\n".join(parts)


def clocks() -> Iterator[tuple[str, str]]:
    """What reminds of a question, and what is said where one cannot be shown."""
    steps = [{"afterSeconds": 60, "to": ["ben@example.com", "C0OPS", "dm:U0LOCALDEV"], "mayAnswer": True}]
    one = prompt(approvers=["@sre", "ben@example.com"], deadline=T1, escalate=steps)
    state, flow, link = session(one), Flow(), "https://x.slack.com/1"
    yield "reminder", reminder(state, one, flow, NAMES, 1, link)
    yield "reminder, without a link", reminder(state, replace(one, deadline=None), flow, NAMES, 2, None)
    yield "escalation", escalation(state, one, flow, NAMES, 0, link)
    yield "escalation elsewhere", told_elsewhere(state, one, flow, link)
    yield "escalation elsewhere, without a link", told_elsewhere(state, one, flow, None)
    yield "escalation, refused", refused_target("C0OPS", "no <channel>")
    yield "out of reach", out_of_reach(state, flow, "is_archived", T1)
    yield "deleted too often", deleted_too_often(state, one, flow)


def gallery() -> str:
    """All faces."""
    parts = [f"=== {name}\n{of_case(one)}\n" for name, one in cases()]
    for name, some in calls():
        about = {"about": {"who": "Claude Code in ~/src"}}
        message = calls_message(session(*some, inputs=about), some, Flow(), NAMES, T0)
        parts.append(f"=== {name}\n{written(message)}\n")
    parts += [f"=== run: {name}\n{of_run(state, flow, around)}\n" for name, state, flow, around in runs()]
    parts += [f"=== {name}\n{text}\n" for name, text in clocks()]
    return re.sub("x{200,}", lambda found: f"<{len(found[0])} x>", "\n".join(parts))


def test_the_gallery_shows_every_question_as_people_see_it() -> None:
    """A changed word shows here, and so does a kind of question that nobody thought of."""
    assert {one.kind for _, one in cases()} == KINDS.keys()
    assert gallery() == GALLERY.read_text()


if __name__ == "__main__":
    GALLERY.write_text(gallery())
