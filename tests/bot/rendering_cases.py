"""Sessions as rendering sees them, made by hand, and strategies that make any of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from immutables import Map
from msgspec.structs import asdict, replace

from bot.faces.end import end
from bot.faces.run import Facts, run
from bot.rendering import notes
from bot.rendering.blocks import Rendered
from bot.rendering.card import card as written
from engine.flow.node import Retry
from engine.forms.question import Question
from engine.journal.state import Asked, NodeRun, State, TimerRun
from tests.support.bot import plan_lines

T0 = "2026-11-21T22:40:00.000Z"
T1 = "2026-11-21T22:43:12.000Z"
THREAD = {"team": "T1", "channel": "C1", "threadTs": "1.0", "key": "T1:C1:1.0"}
ANA = {"id": "U0LOCALANA", "name": "Ana Ruiz"}
BEN = {"id": "U0LOCALBEN", "name": "Ben Okafor"}

HOSTILE = "<!channel> <@U0LOCALBEN> <https://evil.example|a bank> & *bold* `x` \u202eevil\u202c @here"
"""What somebody types who wants the bot to ping everybody, to deceive with a link, or to reorder a line."""


@dataclass(frozen=True)
class Node:
    """A node as rendering reads it."""

    id: str
    name: str = ""
    type: str = "shell"
    lists: dict[str, str] = field(default_factory=dict)
    calls: str | None = None
    on_failure: str | None = None
    retry: Retry | None = None


@dataclass(frozen=True)
class Nodes:
    """A list of nodes as rendering reads it."""

    nodes: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Flow:
    """A flow as rendering reads it."""

    name: str = "rollback"
    nodes: tuple[Node, ...] = (Node("plan", "Plan"), Node("gate", "Gate", "approval"), Node("tell", "Tell"))
    inner: dict[str, Nodes] = field(default_factory=dict)

    @property
    def lists(self) -> dict[str, Nodes]:
        """All lists by id."""
        return {"": Nodes(self.nodes), **self.inner}


def spec(kind: str = "approval", **fields: Any) -> dict[str, Any]:
    """A prompt's spec with the fields of its kind."""
    base: dict[str, Any] = {
        "kind": kind,
        "message": "Roll back?",
        "nonce": "cafe12345678",
        "nodeId": "gate",
        "nodeName": "Gate",
        "options": [],
        "acceptsText": kind == "ask",
        "who": None,
        "timeoutSeconds": None,
        "onTimeout": "fail",
    }
    if kind == "approval":
        base["options"] = [
            {"value": "approve", "label": "Approve", "style": "primary"},
            {"value": "reject", "label": "Reject", "style": "danger"},
        ]
        base |= {"approvers": ["@sre"], "excludeRequester": False}
    return {**base, **fields}


def prompt(kind: str = "approval", status: str = "requested", **fields: Any) -> Asked:
    """A prompt at the node `gate`; fields of `Asked`, and those in snake_case, go to the prompt, all others to its spec."""
    own = {name: fields.pop(name) for name in _OWN if name in fields}
    return replace(asked(spec(kind, **fields), status=status), **own)


def asked(wire: dict[str, Any], **fields: Any) -> Asked:
    """A prompt that was asked so."""
    place = {"prompt_id": "prompt-1", "path": "gate", "requested_at": T0}
    return Asked(**asdict(Question.from_wire(wire)), **{**place, **fields})


_OWN = [name for name in Asked.__struct_fields__ if "_" in name or name not in Question.__struct_fields__]


def session(*prompts: Asked, **fields: Any) -> State:
    """A session that waits at `gate` for these prompts; fields of `State` win."""
    plan = NodeRun("plan", "shell", 0, "completed", T0, "2026-11-21T22:40:12.000Z")
    gate = NodeRun("gate", "approval", 1, "started", T0)
    base = State(
        session_id="session-1",
        flow_name="rollback",
        phase="waiting",
        seq=5,
        created_at=T0,
        updated_at=T1,
        actor=ANA,
        thread=THREAD,
        inputs={"service": "checkout"},
        nodes=Map({"plan": plan, "gate": gate}),
        active=Map({"gate": None}),
        prompts=Map({one.prompt_id: one for one in prompts}),
        open_prompts=Map({one.prompt_id: None for one in prompts if one.open}),
    )
    return replace(base, **fields)


def card(state: State, flow: Any, now: str, *, folded: bool = False, **facts: Any) -> Rendered:
    """The card of a session as Slack has it; `facts` are those of `Facts`."""
    return written(run(state, flow, Facts(**facts), folded=folded), now)


def end_note(state: State, flow: Any, key: str, *, bot_user_id: str | None = None, **how: Any) -> Rendered:
    """The note of a bad end as Slack has it; `how` it ended is as for `end`."""
    return notes.end_note(end(state, flow, **how), key, bot_user_id)


def texts(value: Any) -> list[str]:
    """Every `text` string of mrkdwn in blocks, and the lines of plans."""
    if isinstance(value, list):
        return [found for item in value for found in texts(item)]
    if not isinstance(value, dict):
        return []
    if value.get("type") == "mrkdwn":
        assert value["verbatim"] is True
        return [value["text"]]
    if value.get("type") == "plan":
        return ["\n".join(plan_lines(value))]
    return [found for item in value.values() for found in texts(item)]


def plain_texts(value: Any) -> list[str]:
    """Every `plain_text` in blocks."""
    if isinstance(value, list):
        return [found for item in value for found in plain_texts(item)]
    if not isinstance(value, dict):
        return []
    if value.get("type") == "plain_text":
        return [value["text"]]
    return [found for item in value.values() for found in plain_texts(item)]


def buttons(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every element of the actions blocks."""
    return [element for block in blocks if block["type"] == "actions" for element in block["elements"]]


# --- any of them -------------------------------------------------------------------------------------------

wild = st.one_of(
    st.text(max_size=60),
    st.text(max_size=40).map(lambda text: text * 400),
    st.sampled_from(
        [HOSTILE, "```" * 2000, "&amp;" * 3000, "<https://x.example/" + "a" * 3000 + "|x>", '"\\\n' * 3000]
    ),
)
"""Text of any kind and length, with what tears easily."""

words = st.text(max_size=200)
ids = st.text(alphabet="abc0123_", min_size=1, max_size=12)
actors = st.one_of(st.just({}), st.builds(lambda name: {"id": "local:x", "name": name}, wild), st.just(ANA))


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """Any spec of a prompt."""
    kind = draw(st.sampled_from(["ask", "approval", "input", "interrupted", "failed"]))
    labels = draw(st.lists(wild, max_size=4))
    repeat = draw(st.sampled_from([0, 1, 7, 40]))
    return spec(
        kind,
        message=draw(wild),
        nodeName=draw(wild),
        options=[{"value": n, "label": label, "style": "primary"} for n, label in enumerate(labels * repeat)],
        acceptsText=draw(st.booleans()),
        approvers=draw(st.none() | st.lists(wild, max_size=8)),
        excludeRequester=draw(st.booleans()),
        timeoutSeconds=draw(st.none() | st.integers(1, 10**7)),
        onTimeout=draw(st.sampled_from(["fail", "reject", "approve", "default"])),
        number=draw(st.none() | st.integers(1, 99)),
        **draw(decisions()),
    )


@st.composite
def decisions(draw: st.DrawFn) -> dict[str, Any]:
    """What an approval may have beside its question."""
    count = draw(st.sampled_from([0, 1, 3, 60]))
    fields = [
        {"name": f"f{n}", "type": "string", "title": draw(wild), "default": draw(wild)}
        for n in range(min(count, 3))
    ]
    fields += [
        {"name": f"f{n}", "type": "number", "title": f"Field {n}", "default": n} for n in range(3, count)
    ]
    covers = {"nodeId": "tell", "path": "tell", "type": "shell", "text": draw(wild), "digest": "d"}
    return {
        "form": {"fields": fields} if count else None,
        "values": {field["name"]: draw(wild) for field in fields[:2]},
        "editable": [field["name"] for field in fields],
        "covers": draw(st.none() | st.just(covers)),
        "required": draw(st.integers(1, 4)),
        "requireReason": draw(st.booleans()),
        "editors": draw(st.lists(ids, max_size=3)),
        "handed": draw(st.lists(st.just({"by": ANA, "to": "U0LOCALBEN", "at": T0}), max_size=2)),
    }


votes = st.builds(
    lambda actor, vote, reason: {"actor": actor, "vote": vote, "reason": reason, "at": T0},
    actors,
    st.sampled_from(["approve", "reject"]),
    st.none() | wild,
)


@st.composite
def prompts(draw: st.DrawFn, number: int = 1) -> Asked:
    """Any prompt, open or closed."""
    status = draw(st.sampled_from(["requested", "shown", "answered", "expired", "cancelled"]))
    wire = draw(specs())
    reason = draw(st.none() | wild)
    answer = {
        "value": draw(st.sampled_from(["approve", "reject", 3])),
        "text": draw(wild),
        "reason": reason,
    }
    return asked(
        wire,
        prompt_id=f"prompt-{number}",
        path=draw(st.sampled_from(["n0", "n1", "n70", "inputs/x"])),
        status=status,
        answer=answer if status == "answered" else None,
        actor=draw(actors) if status == "answered" else None,
        at=None if status in ("requested", "shown") else T1,
        deadline=draw(st.none() | st.just(T1)),
        votes=tuple(draw(st.lists(votes, max_size=4))),
    )


@st.composite
def runs(draw: st.DrawFn) -> NodeRun:
    """Any execution of a node."""
    status = draw(st.sampled_from(["started", "interrupted", "failing", "completed", "failed", "skipped"]))
    ended = T1 if status in ("completed", "failed", "skipped") else None
    error = {"type": "x", "message": draw(wild)} if status == "failed" else None
    kind = draw(st.sampled_from(["shell", "approval", "wait"]))
    return NodeRun("n", kind, 0, status, None if status == "skipped" else T0, ended, error=error)


@st.composite
def sessions(draw: st.DrawFn) -> tuple[State, Flow]:
    """Any session with its flow, of up to 400 nodes."""
    count = draw(st.sampled_from([1, 3, 40, 41, 120, 400]))
    name = draw(wild)
    flow = Flow(draw(wild), tuple(Node(f"n{n}", name if n % 3 else "", "shell") for n in range(count)))
    pattern = draw(st.lists(st.none() | runs(), min_size=1, max_size=6))
    nodes = {f"n{n}": run for n in range(count) if (run := pattern[n % len(pattern)]) is not None}
    asked = [draw(prompts(number)) for number in range(draw(st.integers(0, 3)))]
    phase = draw(st.sampled_from(["running", "waiting", "finalizing", "ended"]))
    timers = {"t": TimerRun("t", draw(st.sampled_from(["n0", None])), T1, "wait", None)}
    state = session(
        *asked,
        session_id="session-" + draw(ids),
        phase=phase,
        outcome=draw(st.sampled_from(["complete", "failed", "aborted"])) if phase == "ended" else None,
        error={"message": draw(wild)},
        actor=draw(actors),
        inputs=draw(
            st.none()
            | st.dictionaries(
                ids, wild | st.integers(-(2**63), 2**63) | st.lists(words, max_size=3), max_size=30
            )
        ),
        nodes=Map(nodes),
        active=Map(
            {path: None for path, run in nodes.items() if run.status in ("started", "interrupted", "failing")}
        ),
        timers=Map(timers if draw(st.booleans()) else {}),
    )
    return state, flow
