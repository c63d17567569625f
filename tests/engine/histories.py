"""Real histories of every kind, for tests of the grammar: the golden ones, and runs of small flows in the pure core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from engine.decide.commands import (
    Answer,
    Due,
    Edit,
    Gone,
    HandOver,
    Hold,
    LockGranted,
    LockQueued,
    NodeBroke,
    NodeCut,
    NodeDone,
    Reachable,
    Resume,
    Revoke,
    Shown,
    Steer,
    Unreachable,
)
from engine.decide.past import Past
from engine.flow import Flow
from engine.flow.load import flow_from_body, load_flow
from engine.journal.events import Event, decode_event
from engine.journal.queries import asked_in_order
from engine.nodes.types.registry import node_types
from tests.engine.agents.talks import Talk, talk
from tests.engine.agents.test_talk_people import small
from tests.engine.agents.test_wide_grants import rows_of
from tests.engine.agents.test_wide_grants import run as run_with
from tests.histories.write import talked
from tests.support.engine import ANA, BEN, Scenario, flow_of

GOLDEN = Path(__file__).parent.parent / "histories" / "v1"
OUTPUT = {"stdout": "ok", "stderr": "", "exit_code": 0, "seconds": 0.5}
ERROR = {"type": "exit_code", "message": "it failed", "details": None}


class History(NamedTuple):
    """A journal, and the flow that its session pinned."""

    events: list[Event]
    flow: Flow


def begin(text: str, **inputs: Any) -> Scenario:
    """A session that was just started."""
    return Scenario(flow_of(text)).started(**inputs)


def drive(case: Scenario, *answers: Any, most: int = 60) -> Scenario:
    """Let everything happen: nodes run (those that say `fail` fail), questions are shown and answered, timers fire."""
    said = list(answers)
    for _ in range(most):
        state = case.state
        unseen = [key for key in asked_in_order(state) if state.prompts[key].shown is None]
        delivered = [path for path in sorted(state.active) if _is_delivered(case, path)]
        if state.ended:
            break
        if running := sorted(state.launched) or delivered:
            case.later(1).when(_outcome(case, running[0]))
        elif unseen:
            case.when(*(case_shown(key) for key in unseen))
        elif state.open_prompts:
            case.later(5).when(_answer(case, asked_in_order(state)[0], said.pop(0) if said else None))
        elif state.timers:
            timer = min(state.timers.values(), key=lambda timer: (timer.due_at, timer.timer_id))
            case.now = max(case.now, timer.due_at)
            case.when(Due(timer.timer_id))
        else:
            break
    return case


def case_shown(prompt_id: str) -> Shown:
    """A question is in front of people."""
    return Shown(prompt_id, {"channel": "C1", "ts": "1.3"})


def _is_delivered(case: Scenario, path: str) -> bool:
    run = case.state.nodes[path]
    return run.status == "started" and node_types()[run.type].mode == "delivery"


def _outcome(case: Scenario, path: str) -> Any:
    run = case.state.nodes[path]
    words = run.input.get("run", []) if isinstance(run.input, dict) else []
    if words[:1] == ["fail"]:
        return NodeBroke(path, run.attempt, ERROR)
    return NodeDone(path, run.attempt, OUTPUT)


def _answer(case: Scenario, prompt_id: str, said: Any) -> Answer:
    prompt = case.state.prompts[prompt_id]
    case._turns += 1
    fields: dict[str, Any] = {"actor": ANA, "key": f"key-{case._turns}"}
    if isinstance(said, dict):
        return Answer(prompt_id, values=said, **fields)
    if prompt.options:
        return Answer(prompt_id, value=said or prompt.options[0]["value"], **fields)
    return Answer(prompt_id, text=said or "fine", **fields)


# --- flows and what happens to them ----------------------------------------------------------------------------


def every_leaf() -> Scenario:
    """Each type of node that holds no others, one after the other; inputs that were asked for."""
    text = """
inputs: {word: {type: string}, yes: {type: boolean}, more: {type: string, default: x}}
nodes:
  - {id: a, type: set, with: {x: "{{ inputs.word }}"}}
  - {id: b, type: noop, if: "{{ not inputs.yes }}"}
  - {id: c, type: shell, with: {run: [ls]}}
  - {id: d, type: http, with: {url: "http://e.org"}}
  - {id: e, type: python, with: {call: "json:dumps", args: {obj: 1}}}
  - {id: f, type: wait, with: {for: 1m}}
  - {id: g, type: message, with: {text: Hello}}
  - {id: h, type: ask, with: {message: How?}}
  - {id: i, type: approval, with: {message: Go?, approvers: [channel]}}
  - {id: j, type: noop, if: "{{ not inputs.yes }}"}
"""
    return drive(begin(text), "a", True)


def containers() -> Scenario:
    """Containers of every kind, in each other."""
    text = """
nodes:
  - id: each
    type: foreach
    with: {items: [1, 2], concurrency: 2}
    body:
      - {id: a, type: shell, with: {run: [ls]}}
      - {id: q, type: ask, with: {message: "{{ item }}?"}}
  - id: again
    type: loop
    with: {until: "{{ index >= 2 }}", max_iterations: 5}
    body: [{id: b, type: set, with: {x: 1}}]
  - id: both
    type: parallel
    branches:
      l: [{id: c, type: shell, with: {run: [ls]}}, {id: c2, type: noop}]
      r: [{id: d, type: wait, with: {for: 1m}}]
  - id: which
    type: switch
    with: {on: b}
    cases: {a: [{id: e, type: noop}], b: [{id: f, type: shell, with: {run: [ls]}}]}
  - {id: empty, type: foreach, with: {items: []}, body: [{id: g, type: noop}]}
  - id: nested
    type: foreach
    with: {items: [1, 2]}
    body:
      - id: inner
        type: parallel
        branches: {x: [{id: h, type: noop}], y: [{id: i, type: shell, with: {run: [ls]}}]}
"""
    return drive(begin(text))


def called() -> Scenario:
    """A flow that is called by another one."""
    inner = "flow: inner\ninputs: {w: {type: string}}\nnodes: [{id: a, type: shell, with: {run: [ls]}}]"
    outer = 'flow: outer\nnodes: [{id: sub, type: flow, with: {flow: inner, inputs: {w: "x"}}}, {id: z, type: noop}]'
    flow = load_flow(outer, "outer.yml", flows=lambda name: flow_of(inner), known=["inner"])
    return drive(Scenario(flow).started())


GRAPH = """
nodes:
  - {id: a, type: shell, with: {run: [ls]}}
  - {id: b, type: shell, with: {run: [ls]}}
  - {id: c, type: ask, with: {message: Which?, choices: [again, on]}}
  - {id: d, type: noop}
  - {id: e, type: noop}
edges:
  - {from: a, to: b}
  - {from: a, to: c}
  - {from: b, to: d}
  - {from: c, to: d, gate: all}
  - {from: c, to: e, when: "{{ nodes.a.exit_code == 7 }}"}
  - {from: c, to: a, type: loop, max_iterations: 2, when: "{{ nodes.c.value == 'again' }}"}
"""


def graph() -> Scenario:
    """A graph with branches, a node that nothing leads to, and a loop that is taken."""
    return drive(begin(GRAPH), "again", "on")


def limits() -> Scenario:
    """People decide how a loop, and a loop edge, continue at their limits."""
    text = """
nodes:
  - {id: a, type: shell, with: {run: [ls]}}
  - {id: b, type: loop, with: {while: "{{ true }}", max_iterations: 1, on_limit: ask}, body: [{id: c, type: noop}]}
  - {id: z, type: noop}
edges:
  - {from: a, to: b}
  - {from: b, to: a, type: loop, max_iterations: 1, when: "{{ nodes.a.exit_code == 0 }}", on_limit: ask}
  - {from: b, to: z}
"""
    return drive(begin(text), "again", "continue", "continue", "continue")


def rejected() -> Scenario:
    """An approval that is rejected, and stops the flow."""
    text = "nodes: [{id: a, type: approval, with: {message: Go?, approvers: [channel]}}, {id: b, type: noop}]"
    return drive(begin(text), "reject")


def jumps() -> Scenario:
    """`goto` back to a node that ran, in a list and within a pass."""
    text = """
nodes:
  - {id: a, type: shell, with: {run: [ls]}}
  - {id: q, type: ask, with: {message: "Again?", choices: ["yes", "no"]}}
  - {id: b, type: fail, if: "{{ nodes.q.value == 'yes' }}", on_error: "goto:a", with: {message: back}}
  - {id: z, type: noop}
"""
    return drive(begin(text), "yes", "no")


def failures() -> Scenario:
    """Retries, `on_failure`, questions about failures, failures that fail nothing, and one that fails the flow."""
    text = """
nodes:
  - {id: a, type: shell, retry: {attempts: 2, delay: 5s}, on_error: continue, with: {run: [fail]}}
  - id: b
    type: shell
    with: {run: [fail]}
    on_error: ask
    on_failure: [{id: help, type: shell, with: {run: [ls]}}]
  - {id: c, type: shell, on_error: ask, with: {run: [fail]}}
  - id: d
    type: parallel
    on_error: continue
    with: {mode: collect}
    branches: {l: [{id: e, type: shell, with: {run: [fail]}}, {id: e2, type: noop}], r: [{id: f, type: noop}]}
  - id: g
    type: parallel
    retry: {attempts: 2, delay: 5s}
    branches: {l: [{id: h, type: shell, with: {run: [fail]}}], r: [{id: i, type: ask, with: {message: How?}}]}
"""
    return drive(begin(text), "retry", "skip", "skip")


def crashes() -> Scenario:
    """Crashes of what may run again and of what asks; cuts, lost connections, what left at a checkpoint."""
    text = """
nodes:
  - {id: a, type: shell, on_crash: again, with: {run: [ls]}}
  - {id: b, type: shell, on_crash: ask, with: {run: [ls]}}
  - {id: c, type: shell, on_crash: ask, with: {run: [ls]}}
  - {id: d, type: shell, with: {run: [ls]}}
"""
    case = begin(text).claimed().when(NodeDone("a", 2, OUTPUT))
    case.claimed().when(case.answer("again")).when(NodeDone("b", 2, OUTPUT))
    case.when(NodeCut("c", 1, "cut")).when(case.answer("done"))
    case.only(NodeCut("d", 1, "left", saved={"at": 3}))
    return drive(case.claimed())


def opened() -> Scenario:
    """A conversation as a runner opens it: its body and a file that it read; then a picture that the API bound elsewhere."""
    case = talk("tools: [read_file]\nfiles: [notes.txt]")
    read = {"digest": "d1", "size": 8, "block": {"type": "document", "source": {"type": "text"}}}
    body = {"model": "m", "max_tokens": 5, "system": [{"type": "text", "text": "You work."}]}
    first = case.reply("", ("read_file", {"path": "a"}))
    case.when(replace(first, output={**first.output, "opened": {"body": body, "files": [read]}}))
    page = {"text": "full", "first_line": 1, "last_line": 1, "total_lines": 1, "more": False}
    case.tool("tool[0]", page)
    last = case.reply("It is full.")
    return case.when(replace(last, output={**last.output, "opened": {"drop": True}}))


def finally_runs() -> Scenario:
    """A flow that failed, and what comes at its end."""
    text = """
nodes:
  - {id: a, type: shell, with: {run: [fail]}}
finally:
  - {id: tidy, type: shell, on_crash: again, with: {run: [ls]}}
  - {id: rest, type: wait, with: {for: 1m}}
  - {id: end, type: set, with: {x: 1}}
"""
    return drive(begin(text))


def aborted_twice() -> Scenario:
    """A session that a person ends while something runs, and then what it does at its end."""
    text = """
nodes: [{id: q, type: ask, with: {message: How?}}, {id: a, type: shell, with: {run: [ls]}}]
finally: [{id: tidy, type: shell, with: {run: [ls]}}, {id: end, type: noop}]
"""
    case = begin(text)
    case.when(case.shown()).when(case.answer(text="x")).when(case.abort(BEN, "no"))
    return case.when(NodeCut("a", 1, "cut")).when(case.abort(BEN)).when(NodeCut("finally/tidy", 1, "cut"))


def aborted_waiting() -> Scenario:
    """A session that a person ends while two questions are open."""
    text = """
nodes:
  - id: both
    type: parallel
    branches: {l: [{id: a, type: ask, with: {message: A?}}], r: [{id: b, type: ask, with: {message: B?}}]}
"""
    case = begin(text)
    case.when(*(case_shown(key) for key in asked_in_order(case.state)))
    return case.when(case.abort(BEN, "no"))


def votes() -> Scenario:
    """Two must agree: a vote, a vote that is changed, an edit, a handing over, an answer that is taken back."""
    text = """
nodes:
  - id: go
    type: approval
    with:
      message: Go?
      approvers: ["U0ANA", "U0BEN", "U0CAT"]
      required: 2
      veto: majority
      editable: [n]
      form: {properties: {n: {type: integer, default: 1}}}
      timeout: 2h
      remind_every: 10m
      escalate: [{after: 20m, to: ["@sre"], may_answer: true}]
  - {id: q, type: ask, with: {message: How?, timeout: 1h, remind_every: 10m}}
"""
    case = begin(text)
    prompt = case.prompt.prompt_id
    case.when(case.shown()).later(601).when(*_due(case))
    case.when(Answer(prompt, ANA, "k1", value="approve")).when(Answer(prompt, ANA, "k2", value="reject"))
    case.later(700).when(*_due(case)).when(Edit(prompt, BEN, "k3", {"n": 2}))
    case.when(HandOver(prompt, ANA, "k4", "U0DAN")).when(Gone(prompt, str((case.prompt.shown or {})["ts"])))
    case.when(case.shown(channel="C1", ts="9.9"))
    case.when(Answer(prompt, ANA, "k5", value="approve")).when(Answer(prompt, BEN, "k6", value="approve"))
    return case.when(case.shown()).when(case.answer(text="x"))


def _due(case: Scenario) -> list[Due]:
    timers = sorted(case.state.timers.values(), key=lambda timer: timer.due_at)
    return [Due(timer.timer_id) for timer in timers if timer.due_at <= case.now]


def expired() -> Scenario:
    """Questions that nobody answers: with a default, with a jump, and one that fails the flow."""
    text = """
nodes:
  - {id: a, type: ask, with: {message: How?, timeout: 1m, on_timeout: default, default: x}}
  - {id: b, type: ask, with: {message: How?, timeout: 1m, on_timeout: "goto:d"}}
  - {id: c, type: noop}
  - {id: d, type: ask, with: {message: How?, timeout: 1m}}
"""
    case = begin(text)
    for _ in range(3):
        case.when(case.shown()).later(60).when(*_due(case))
    return case


def forms() -> Scenario:
    """A form, and a choice."""
    form = "{properties: {n: {type: integer}, s: {type: string}}, required: [n]}"
    text = f"""
nodes:
  - {{id: a, type: ask, with: {{message: How?, form: {form}}}}}
  - {{id: b, type: ask, with: {{message: Which?, choices: [x, y]}}}}
"""
    return drive(begin(text), {"n": 3}, "y")


TWO = """
nodes:
  - {id: a, type: shell, on_crash: again, with: {run: [ls]}}
  - {id: q, type: ask, with: {message: How?, timeout: 2h}}
  - {id: b, type: shell, with: {run: [ls]}}
"""


def paused() -> Scenario:
    """Pauses: while something runs and leaves, while it waits; messages, and a thread out of reach."""
    case = begin(TWO)
    case.only(Hold(ANA, "lunch", waits=True)).only(NodeCut("a", 1, "cut"))
    case.when(Resume("go on", ANA, "k1")).when(NodeDone("a", 2, OUTPUT))
    case.when(case.shown()).when(Steer("by the way", BEN, "k2")).when(Hold(BEN, "again"))
    case.when(case.answer(text="kept")).when(Resume("now", BEN, "k3"))
    case.when(Unreachable("is_archived")).when(NodeDone("b", 1, OUTPUT))
    return case.when(Reachable())


def locked() -> Scenario:
    """A lock that another session has first."""
    text = f"lock: db{TWO}"
    case = begin(text).when(LockQueued("db", "session-other")).when(LockGranted("db"))
    return drive(case)


def timed_out() -> Scenario:
    """A container that runs out of time while something in it waits."""
    text = """
nodes:
  - id: each
    type: foreach
    timeout: 1m
    on_error: continue
    with: {items: [1, 2]}
    body: [{id: q, type: ask, with: {message: How?}}]
  - {id: z, type: noop}
"""
    case = begin(text)
    return case.when(case.shown()).later(60).when(*_due(case))


def migrated() -> Scenario:
    """A session that continues with another text."""
    case = begin(TWO).when(NodeDone("a", 1, OUTPUT))
    new = flow_of(TWO.replace("  - {id: b", "  - {id: new, type: noop}\n  - {id: b"))
    past = Past(case.state, case.now)
    past.under(case.flow, new, BEN)
    case.state, case.flow = past.state, new
    case.events += past.events
    return drive(case)


def forked() -> Scenario:
    """A fork of a session with a lock, votes and a question that was shown; it asks for the lock again."""
    parent = locked()
    at = next(event.seq for event in parent.events if event.type == "prompt:shown") + 1
    return drive(parent.forked(at).claimed().when(LockQueued("db", "session-other")).when(LockGranted("db")))


def interrupted_fork() -> Scenario:
    """A fork of a session that was held while something ran."""
    case = begin(TWO)
    case.only(Hold(ANA, "lunch", waits=True)).only(NodeCut("a", 1, "cut"))
    return drive(case.forked().claimed())


def compacted() -> Talk:
    """A conversation that comes near the model's limit, and one that a person speaks into."""
    case = talk("tools: [read_file]")
    case.facts = small()
    case.model("", ("read_file", {"path": "a"}), usage={"input_tokens": 15_000, "output_tokens": 20})
    case.tool(
        "tool[0]", {"text": "x" * 2000, "first_line": 1, "last_line": 1, "total_lines": 1, "more": False}
    )
    case.model("It was the disk of db-1.").when(Steer("hurry", BEN, "k1"))
    return case.model("Done.").model("Well, done.")


def stuck() -> Talk:
    """Model calls without an answer to continue with: what follows by itself, and what people say."""
    case = talk('tools: [shell: {commands: ["restart *"]}]').model("", ("shell", {"command": "restart db"}))
    case.tool("tool[0]", OUTPUT).model("I", stop="refusal").decide("tell", reason="only look")
    case.when(case.broke("access_denied", retryable=False)).decide("model", reason="claude-opus-5-5")
    case.when(case.broke("context_too_long", retryable=False)).model("It was restarted.")
    case.model("One, ", stop="max_tokens").model(
        "two.", ("shell", {"command": "restart a"}), stop="max_tokens"
    )
    case.model(stop="end_turn").model(stop="end_turn")
    return case.decide("retry").model("Done.")


def put_right() -> Talk:
    """Requests that the API does not take: made without thinking, with longer answers and by another model."""
    changed = "retry_with: {model: claude-opus-5, max_tokens: 50000, thinking: off}"
    case = talk(f'tools: [shell: {{commands: ["restart *"]}}]\n{changed}')
    case.model("", ("shell", {"command": "restart db"}))
    case.tool("tool[0]", OUTPUT).when(Steer("only look", ANA, "k")).when(
        case.broke("bad_response", retryable=False)
    )
    case.decide("retry").model("I look.", ("shell", {"command": "restart a"})).tool("tool[0]", OUTPUT)
    case.when(case.broke("request_invalid", retryable=False)).decide("retry")
    return case.model("Done.")


def granted() -> Talk:
    """Calls that are allowed always: one such is used, and its time passes; another is taken back."""
    case = talk('grants: run\ntools: [shell: {commands: ["*"]}]\napprovals: {shell: [approve, reject]}')
    for command in ("rm a.txt", "rm b.txt"):
        call = ("shell", {"command": command})
        case.model("", call).decide("approve", always={}).tool("tool[0]", OUTPUT)
    case.model("", ("shell", {"command": "rm a.txt"})).tool("tool[0]", OUTPUT)
    case.when(Revoke(list(case.state.grants)[-1], ANA, "u")).later(9 * 3600)
    case.model("", ("shell", {"command": "rm a.txt"})).decide("reject")
    return case.model("Done.")


def granted_widely() -> Scenario:
    """Calls that are allowed beyond the run: by this one, which takes it back, and by another one before."""
    rules = 'grants: flow\ntools: [shell: {commands: ["*"]}]\napprovals: {shell: {approvers: [U0ANA]}}'
    call = ("shell", {"command": "rm a.txt"})
    other = run_with([], rules).model("", call).decide("approve", always={"scope": "flow"})
    case = run_with([row.but(kept_id="prompt-elsewhere") for row in rows_of(other)], rules)
    for _ in range(2):
        case.model("", call).tool("tool[0]", OUTPUT)
    case.model("", ("shell", {"command": "rm b.txt"})).decide("approve", always={"scope": "thread"})
    case.kept = (*case.kept, *(row for row in rows_of(case) if row.scope.startswith("thread")))
    case.tool("tool[0]", OUTPUT).model("", ("shell", {"command": "rm b.txt"})).tool("tool[0]", OUTPUT)
    case.when(Revoke(case.kept[-1].kept_id, ANA, "u"))
    return case.model("Done.")


RUNS: tuple[Callable[[], Scenario], ...] = (
    every_leaf,
    containers,
    called,
    graph,
    limits,
    rejected,
    jumps,
    failures,
    crashes,
    finally_runs,
    opened,
    aborted_twice,
    aborted_waiting,
    votes,
    expired,
    forms,
    paused,
    locked,
    timed_out,
    migrated,
    forked,
    interrupted_fork,
    talked,
    compacted,
    stuck,
    granted,
    put_right,
    granted_widely,
)


NAMES = sorted([*(path.stem for path in GOLDEN.glob("*.jsonl")), *(run.__name__ for run in RUNS)])


@cache
def histories() -> dict[str, History]:
    """All of them, by name."""
    found = {path.stem: _golden(path) for path in sorted(GOLDEN.glob("*.jsonl"))}
    for run in RUNS:
        case = run()
        found[run.__name__] = History(case.events, case.flow)
    return found


def _golden(path: Path) -> History:
    events = [decode_event(line) for line in path.read_bytes().splitlines()]
    return History(events, flow_from_body(path.with_suffix(".flow.json").read_bytes()))


def types_in(events: Sequence[Event]) -> set[str]:
    """The types of these events."""
    return {event.type for event in events}
