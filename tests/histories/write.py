"""Writes the histories of the release that is being made: `python -m tests.histories.write v1`.

Once a release is out its folder is never written again, and the next one has a folder of its own. The script refuses a folder whose `RELEASED` file says that it is out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import orjson

from engine.decide.commands import Answer, Due, Edit, Hold, NodeBroke, NodeCut, NodeDone, Resume, Steer
from engine.journal.snapshot import to_json
from tests.engine.agents.talks import Talk
from tests.support.engine import ANA, BEN, Scenario, flow_of

OUTPUT = {"stdout": "deployed", "stderr": "", "exit_code": 0, "seconds": 0.25}
ROLLBACK = """flow: rollback
description: Roll a service back once somebody agrees
inputs:
  service: {type: string, description: Which service}
  regions: {type: array, items: {type: string}, default: [eu, us]}
  note: {type: string, required: false}
nodes:
  - id: gate
    type: approval
    with:
      message: "Roll back {{ inputs.service }} in {{ inputs.regions }}?"
      approvers: [channel]
      timeout: 30m
  - id: apply
    type: shell
    if: "{{ nodes.gate.decision == 'approve' }}"
    with: {run: [./rollback.sh, "{{ inputs.service }}"], env: {TOKEN: "Bearer {{ secrets.TOKEN }}"}}
  - id: confirm
    type: ask
    with: {message: "It is done. How does it look?"}
  - id: summary
    type: set
    with: {text: "{{ nodes.confirm.text }} ({{ messages | length }})", ok: "{{ status.apply == 'completed' }}"}
  - id: tell
    type: message
    with: {text: "Rolled back {{ inputs.service }}: {{ nodes.summary.text }}"}
"""
NIGHTLY = """flow: nightly
limits: {deadline: 1d}
nodes:
  - {id: fetch, type: http, with: {url: "https://example.com/status"}}
  - {id: broken, type: shell, on_error: continue, retry: {attempts: 2, delay: 5s}, with: {run: ["./check.sh"]}}
  - {id: skipped, type: noop, if: "{{ status.broken == 'completed' }}"}
  - {id: pause, type: wait, with: {for: 10m}}
  - id: gate
    type: approval
    with: {message: "Go on?", approvers: ["U0BEN"], timeout: 15m, on_timeout: reject, on_reject: continue}
  - id: stop
    type: fail
    if: "{{ nodes.gate.decision == 'reject' and status.broken == 'failed' }}"
    with: {message: "nobody agreed: {{ errors.broken.message }}"}
"""
DEPLOY = """flow: deploy
nodes:
  - {id: build, type: shell, on_crash: again, with: {run: ["./build.sh"]}}
  - {id: apply, type: shell, with: {run: ["./apply.sh"]}}
  - {id: check, type: shell, with: {run: ["./check.sh"]}, timeout: 1m}
  - id: next
    type: ask
    with: {message: "What next?", choices: [{value: keep, label: Keep it}, {value: undo, label: Undo, style: danger}]}
  - {id: chosen, type: set, with: {choice: "{{ nodes.next.value }}"}}
"""
REGIONS = """flow: regions
nodes:
  - id: each
    type: foreach
    with: {items: [eu, us], as: region}
    body:
      - {id: apply, type: shell, with: {run: [./apply.sh, "{{ region }}"]}}
      - {id: ok, type: ask, with: {message: "{{ region }} is done?", choices: ["yes", "no"]}}
"""
CANCELLED = """flow: cancelled
nodes:
  - {id: q, type: ask, with: {message: "How?"}}
  - {id: work, type: shell, with: {run: [./work.sh]}}
"""
LOOK = """flow: look
inputs: {service: {type: string, default: db}}
nodes:
  - id: helper
    type: agent
    timeout: 2h
    with:
      prompt: "Why is {{ inputs.service }} down?"
      max_turns: 2
      tools: [ask_human, read_file, {shell: {commands: [ls, rm]}}]
      approvals: {shell: [approve, edit, reject]}
      output: {type: object, required: [cause]}
  - {id: next, type: agent, with: {prompt: "And now?", context: [helper]}}
"""
PAGE = {"text": "disk full", "first_line": 1, "last_line": 1, "total_lines": 1, "more": False}


def talking() -> Scenario:
    """A conversation with tools, a question, an edited and a rejected call, a message, a crash, a stop; at a cap."""
    case = Talk(flow_of(LOOK, "flows/look.yml")).started()
    case.model(
        "Let me look.", ("read_file", {"path": "a"}), ("ask_human", {"question": "Which?"}), ("no", {})
    )
    case.tool("tool[0]", PAGE).when(Steer("hurry", BEN, "msg:T1:C1:5.1"))
    case.when(case.answer(text="db-1", key="msg:T1:C1:5.2")).claimed()
    case.pausing = True
    case.only(case.reply("I think", interrupted=True))
    case.pausing = False
    case.when(Hold(BEN, "lunch")).later(60).when(Resume("go on", BEN, "msg:T1:C1:5.3"))
    return case


def talked() -> Scenario:
    """The same, brought to its end: the cap raised, a call changed and approved, one rejected, an answer put right."""
    case = talking()
    assert isinstance(case, Talk)
    case.decide("raise").model("", ("shell", {"command": "rm a"}), ("shell", {"command": "rm b"}))
    first, second = sorted(case.state.open_prompts, key=lambda key: case.state.prompts[key].path)
    prompt = case.state.prompts[first]
    (name,) = prompt.editable
    case.when(Edit(first, BEN, "view:1", {name: "rm -i a"}, prompt.nonce))
    case.when(Answer(first, ANA, "click:6", value="approve"))
    case.when(Answer(second, ANA, "click:7", value="reject", reason="keep it"))
    case.tool("tool[0]", OUTPUT).when(case.broke()).later(60)
    case.when(*(Due(timer) for timer in case.state.timers if "retry" in timer))
    case.model("It was the disk.")
    if case.state.open_prompts:
        case.decide("raise")
    return case.model('{"cause": "disk"}').model("Nothing more.")


def begin(text: str, name: str) -> Scenario:
    """A session of a flow that was just started."""
    return Scenario(flow_of(text, f"flows/{name}.yml")).started()


def complete() -> Scenario:
    """A missing input, an approval, work, a crash while waiting, a kept message, a delivery."""
    case = begin(ROLLBACK, "rollback")
    case.when(case.shown(channel="C1", ts="1.3")).later(5)
    case.when(case.answer(text="billing", key="msg:T1:C1:1.4"))
    case.when(case.shown(channel="C1", ts="1.5")).later(2)
    case.when(case.message("is this wise?", BEN, "msg:T1:C1:1.6")).later(2)
    case.when(case.answer("approve", actor=BEN, key="click:1", nonce=case.prompt.nonce)).later(3)
    case.when(NodeDone("apply", 1, OUTPUT))
    case.when(case.shown(channel="C1", ts="1.7")).later(60).claimed()
    case.when(case.answer(text="gréen ✓", key="msg:T1:C1:1.8"))
    return case.when(NodeDone("tell", 1, {"channel": "C1", "ts": "1.9"}))


def failed() -> Scenario:
    """A crash of what is safe, retries, a failure that is continued from, a wait, an approval that expires."""
    case = begin(NIGHTLY, "nightly").claimed()
    case.when(NodeDone("fetch", 2, {"status": 200, "headers": {}, "body": "ok", "json": None}))
    error = {"type": "exit_code", "message": "check.sh ended with exit code 3", "details": {"exit_code": 3}}
    case.when(NodeBroke("broken", 1, error)).later(5)
    case.when(case.timer_due())
    case.when(NodeBroke("broken", 2, error)).later(600)
    case.when(case.timer_due())
    case.when(case.shown(channel="C1", ts="2.1")).later(900)
    return case.when(case.timer_due())


def paused() -> Scenario:
    """Crashes, cuts and timeouts, each resolved in another way; waits with a choice."""
    case = begin(DEPLOY, "deploy").claimed()
    case.only(NodeCut("build", 2, "cut")).claimed()
    case.when(NodeDone("build", 3, OUTPUT)).claimed()
    case.when(case.shown(channel="C1", ts="3.1"))
    case.when(case.answer("again", key="click:3"))
    case.when(NodeDone("apply", 2, OUTPUT))
    case.when(NodeCut("check", 1, "timeout"))
    case.when(case.answer("done", key="click:4"))
    return case.when(case.shown(channel="C1", ts="3.2"))


def inside() -> Scenario:
    """Waits in the second pass of a foreach."""
    case = begin(REGIONS, "regions").when(NodeDone("each[0]/apply", 1, OUTPUT))
    case.when(case.answer("yes", key="click:5"))
    return case.when(NodeDone("each[1]/apply", 1, OUTPUT))


def aborted() -> Scenario:
    """Cancelled while a node works."""
    case = begin(CANCELLED, "cancelled")
    case.when(case.shown(channel="C1", ts="4.1"))
    case.when(case.answer(text="go", key="msg:T1:C1:4.2"))
    case.when(case.abort(BEN, "no longer needed"))
    return case.when(NodeCut("work", 1, "cut"))


RUNS: dict[str, Callable[[], Scenario]] = {
    "complete": complete,
    "failed": failed,
    "paused": paused,
    "inside": inside,
    "aborted": aborted,
    "talking": talking,
    "talked": talked,
}


def write(folder: Path) -> None:
    """Write all histories into a folder."""
    if (folder / "RELEASED").exists():
        raise SystemExit(f"{folder} belongs to a release that is out; it is never written again.")
    folder.mkdir(exist_ok=True)
    for name, run in RUNS.items():
        case = run()
        state = orjson.dumps(to_json(case.state), option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
        (folder / f"{name}.jsonl").write_bytes(b"".join(event.to_bytes() + b"\n" for event in case.events))
        (folder / f"{name}.state.json").write_bytes(state + b"\n")
        (folder / f"{name}.flow.json").write_bytes(case.flow.body() + b"\n")


if __name__ == "__main__":
    write(Path(__file__).parent / sys.argv[1])
