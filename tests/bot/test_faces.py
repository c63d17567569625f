"""Faces: what each kind of question says in Slack, on the Home, at a terminal and to a program, open and closed.

`faces.txt` is a gallery, and the one place that has the words of all questions. After a change of words,
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

from bot.faces.question import row_face
from bot.rendering.blocks import Rendered
from bot.rendering.calls import calls_message
from bot.rendering.prompts import question_message, session_face
from bot.rendering.waiting import Waiting, question_blocks, waits_line
from bot.terminal.narration import prompt_json
from bot.terminal.screen import TerminalScreen
from engine.forms.question_kinds import KINDS
from engine.journal.state import Asked, Grant, State
from prompt_state.question_row import prompt_state
from tests.bot.rendering_cases import ANA, BEN, T0, T1, Flow, prompt, session

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


def gallery() -> str:
    """All faces."""
    parts = [f"=== {name}\n{of_case(one)}\n" for name, one in cases()]
    for name, some in calls():
        about = {"about": {"who": "Claude Code in ~/src"}}
        message = calls_message(session(*some, inputs=about), some, Flow(), NAMES, T0)
        parts.append(f"=== {name}\n{written(message)}\n")
    return re.sub("x{200,}", lambda found: f"<{len(found[0])} x>", "\n".join(parts))


def test_the_gallery_shows_every_question_as_people_see_it() -> None:
    """A changed word shows here, and so does a kind of question that nobody thought of."""
    assert {one.kind for _, one in cases()} == KINDS.keys()
    assert gallery() == GALLERY.read_text()


if __name__ == "__main__":
    GALLERY.write_text(gallery())
