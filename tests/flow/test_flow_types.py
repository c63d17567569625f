"""Expressions are type-checked when a flow loads: mistakes are found, and correct expressions are accepted."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.flow.checks.visibility import Scope
from engine.flow.load import flow_from_body, load_flow
from engine.flow.reading import read
from engine.flow.reading import warnings as flow_warnings
from engine.language.errors import ExpressionError, FlowError
from engine.language.expressions import compile_condition, compile_value, evaluate_condition
from engine.run.flow_files import load_flow_file
from tests.flow.flowkit import failure, flow_with, problems
from tests.support.engine import given

HERE = Path(__file__).parent
SLIPS: list[dict[str, Any]] = yaml.safe_load((HERE / "slips.yml").read_text())
MISTAKES: list[dict[str, Any]] = yaml.safe_load((HERE / "mistakes.yml").read_text())
PYTHON_WORDS = re.compile(
    r"NoneType|'(?:str|int|dict|list|float|bool)'|object has no|not supported between|Traceback"
)


@pytest.mark.parametrize("entry", SLIPS, ids=lambda entry: entry["slip"])
def test_a_slip_in_a_runbook_is_found(entry: dict[str, Any]) -> None:
    """Each of the slips made while writing the runbooks is told, with its place, before anything runs."""
    assert entry["says"] in str(failure(entry["flow"]))


@pytest.mark.parametrize("entry", MISTAKES, ids=lambda entry: entry["mistake"])
def test_a_typical_mistake_is_found(entry: dict[str, Any]) -> None:
    """Each mistake that a file shows is told; the others load, and a run shows them."""
    error = failure(entry["flow"])
    assert (error is None) if entry["says"] is None else (entry["says"] in str(error))


def test_enough_is_found_and_told_in_words_of_flows() -> None:
    """All sixteen slips and at least 46 of fifty mistakes are found, and nothing is told in Python's words."""
    errors = [failure(entry["flow"]) for entry in MISTAKES]
    assert len(SLIPS) == 16
    assert len(MISTAKES) == 50
    assert sum(error is not None for error in errors) >= 46
    assert not any(PYTHON_WORDS.search(str(error)) for error in errors)


def only(node: str, before: str = "") -> list[str]:
    """What is wrong with a node after others, without its place."""
    try:
        flow_with(node, before)
    except FlowError as error:
        return [problem.message for problem in error.problems]
    return []


SKIPPED = '- {id: r, type: shell, if: "{{ inputs.n > 1 }}", with: {run: [ls]}}'


@pytest.mark.parametrize(
    "guard",
    [
        "status.r == 'completed'",
        "nodes.r is not none",
        "nodes.r != none",
        "nodes.r and nodes.r.exit_code == 0",
        "nodes.r.stdout | default('') != ''",
        "status.r in ['completed']",
        "inputs.n > 1",
        "inputs.n > 1 and inputs.a == 'x'",
        "not (nodes.r is none)",
        "nodes.r is defined and nodes.r is mapping",
    ],
)
def test_a_guarded_null_is_no_mistake(guard: str) -> None:
    """What the design names as a guard, in a node's own `if`, in `and`, and in a choice, lets its output be used."""
    assert only(f'- {{id: t, type: noop, if: "{{{{ {guard} }}}}"}}', SKIPPED) == []
    text = f"{{{{ nodes.r.stdout if {guard} else '' }}}}"
    assert only(f'- {{id: t, type: message, with: {{text: "{text}"}}}}', SKIPPED) == []
    guarded = (
        f'- {{id: t, type: message, if: "{{{{ {guard} }}}}", with: {{text: "{{{{ nodes.r.stdout }}}}"}}}}'
    )
    assert only(guarded, SKIPPED) == []


@pytest.mark.parametrize(
    "guard",
    [
        "true",
        "inputs.n > 0",
        "status.r != 'failed'",
        "nodes.r is none",
        "nodes.r or inputs.n > 3",
        "inputs.n > 1 or inputs.a == 'x'",
    ],
)
def test_what_does_not_exclude_null_is_no_guard(guard: str) -> None:
    """A condition that can hold while the node was skipped does not guard its output."""
    node = f'- {{id: t, type: message, if: "{{{{ {guard} }}}}", with: {{text: "{{{{ nodes.r.stdout }}}}"}}}}'
    assert any("`nodes.r` may be null" in message for message in only(node, SKIPPED))


def test_what_surely_completed_was_let_through_by_its_own_condition() -> None:
    """A node that completed shows that what its `if` asked for had completed too."""
    before = SKIPPED + "\n- {id: s, type: shell, if: \"{{ status.r == 'completed' }}\", with: {run: [ls]}}"
    node = '- {id: t, type: message, if: "{{ status.s == \'completed\' }}", with: {text: "{{ nodes.r.stdout }}"}}'
    assert only(node, before) == []


def test_behind_a_failure_that_stops_the_other_case_holds() -> None:
    """Behind a `fail` with an `if` that condition is false."""
    before = SKIPPED + '\n- {id: s, type: fail, if: "{{ nodes.r is none }}", with: {message: no}}'
    assert only('- {id: t, type: message, with: {text: "{{ nodes.r.stdout }}"}}', before) == []


def test_a_step_that_failed_or_completed_has_an_error_where_it_did_not_complete() -> None:
    """`status.x == 'completed'` decides between the output and the error of a node that cannot be skipped."""
    before = "- {id: r, type: shell, with: {run: [ls]}, on_error: continue}"
    text = "{{ nodes.r.stdout if status.r == 'completed' else errors.r.message }}"
    assert only(f'- {{id: t, type: message, with: {{text: "{text}"}}}}', before) == []
    assert only(f'- {{id: t, type: message, with: {{text: "{text}"}}}}', SKIPPED) == [
        "`errors.r` may be null (`r` may not have failed), and has no `message` then"
    ]


GRAPH = """
flow: graph
nodes:
  - {id: a, type: ask, with: {message: Which?, choices: [x, y]}}
  - {id: b, type: shell, with: {run: [ls]}}
  - {id: c, type: shell, with: {run: [ls]}}
  - {id: d, type: message, with: {text: "{{ nodes.b.stdout }}"}}
edges:
"""


@pytest.mark.parametrize(
    ("edges", "sound"),
    [
        ("- {from: a, to: b}\n  - {from: a, to: c}\n  - {from: b, to: d}\n  - {from: c, to: d}", True),
        ("- {from: a, to: b, when: W}\n  - {from: b, to: d}", True),
        ("- {from: a, to: b, when: W}\n  - {from: b, to: c}\n  - {from: c, to: d}", True),
        ("- {from: a, to: b, when: W}\n  - {from: a, to: d}\n  - {from: b, to: d}", False),
        (
            "- {from: a, to: b}\n  - {from: a, to: c}\n  - {from: b, to: d, gate: any}\n  - {from: c, to: d}",
            False,
        ),
    ],
)
def test_edges_say_what_surely_ran(edges: str, sound: bool) -> None:
    """In a graph a node may be null where a way leads around it, or where nobody waits for it."""
    text = GRAPH + "  " + edges.replace("W", "\"{{ nodes.a.value == 'x' }}\"") + "\n"
    found = [] if sound else ["7:45: `nodes.b` may be null (`b` may be left out), and has no `stdout` then"]
    error = failure(text)
    assert ([] if error is None else problems(text)) == found


def test_a_jump_forward_leaves_out_what_it_passes() -> None:
    """Behind the target of `goto` the nodes between may not have run; those between know that it was not taken."""
    before = """
- {id: a, type: shell, with: {run: [ls]}, on_error: "goto:c"}
- {id: b, type: message, with: {text: "{{ nodes.a.stdout }}"}}
- {id: c, type: message, with: {text: "{{ nodes.a.stdout }}"}}
"""
    assert only("- {id: d, type: noop}", before) == [
        "`nodes.a` may be null (`a` may be left out), and has no `stdout` then"
    ]


ENDS = """
- {id: asked, type: ask, with: {message: "?", on_timeout: "goto:late"}}
- {id: missing, type: end, if: "{{ inputs.maybe is none }}"}
- {id: each, type: foreach, with: {items: [1], collect: "COLLECT"}, body: [{id: stop, type: end, if: "{{ item > 1 }}"}, {id: v, type: set, with: {x: 1}}]}
"""


@pytest.mark.parametrize(
    ("node", "collect", "found"),
    [
        (
            '- {id: t, type: message, with: {text: "{{ inputs.maybe }} {{ nodes.asked.text }}"}}',
            "{{ index }}",
            [],
        ),
        (
            "- {id: t, type: noop}",
            "{{ nodes.v.x }}",
            ["`nodes.v` may be null (`v` may be left out), and has no `x` then"],
        ),
        (
            '- {id: done, type: end}\n- {id: late, type: message, with: {text: "{{ errors.asked.message }}"}}',
            "1",
            [],
        ),
        (
            '- {id: done, type: end}\n- {id: late, type: message, with: {text: "{{ nodes.each.iterations }}"}}',
            "1",
            ["may be left out"],
        ),
    ],
)
def test_types_know_where_a_list_ends_and_where_a_jump_leads(
    node: str, collect: str, found: list[str]
) -> None:
    """Behind an `end` its `if` is false, at the end of the list what is behind it may be missing, and the target of a jump
    knows that its source failed."""
    last = node if "late" in node else f"{node}\n- {{id: late, type: noop}}"
    nodes = f"nodes:\n{ENDS.replace('COLLECT', collect)}{last}\n"
    told = str(failure(f"flow: f\ninputs: {{maybe: {{type: string, required: false}}}}\n{nodes}") or "")
    assert all(text in told for text in found)
    assert bool(told) == bool(found)


@pytest.mark.parametrize(
    ("flow", "says"),
    [
        (
            "nodes: [{id: a, type: end}, {id: b, type: noop}]\nedges: [{from: a, to: b}]",
            "a graph has no `end`",
        ),
        ("nodes: [{id: a, type: noop, on_failure: [{id: b, type: end}]}]", "does not undo the failure"),
    ],
)
def test_an_end_is_refused_where_it_would_mean_nothing(flow: str, says: str) -> None:
    """An `end` in a graph, or in `on_failure`, does not load."""
    assert says in str(failure(f"flow: f\n{flow}"))


def test_a_paused_session_is_never_refused_for_its_types() -> None:
    """The text that a session pinned is read without types: what is wrong with it is said when it is evaluated."""
    text = next(entry["flow"] for entry in SLIPS if "failed" not in entry and "switch" in entry["flow"])
    assert failure(text) is not None
    pinned = load_flow("flow: f\nnodes: [{id: a, type: noop}]\n", "f.yml")
    inside = json.dumps(text)[1:-1].encode()
    body = pinned.body().replace(b"flow: f\\nnodes: [{id: a, type: noop}]\\n", inside)
    assert {node.id for node in flow_from_body(body).nodes} == {"look", "next"}


PYTHON = """
from typing import Literal, TypedDict

class Disk(TypedDict):
    free: int
    state: Literal["ok", "full"]

def look(host: str, port: int = 22) -> Disk | None: ...
"""


def python_problems(tmp_path: Path, node: str) -> list[str]:
    """What is wrong with a flow beside a module `disks` that would end the process if it were imported."""
    (tmp_path / "disks.py").write_text(PYTHON + "\nraise SystemExit('imported')\n")
    file = tmp_path / "flow.yml"
    look = '- {id: d, type: python, with: {call: "disks:look", args: {host: web1}}}'
    file.write_text(f"flow: f\nnodes:\n  {look}\n  {node}\n")
    try:
        load_flow_file(file)
    except FlowError as error:
        return [problem.message for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ('- {id: t, type: noop, if: "{{ nodes.d.free > 3 }}"}', "`nodes.d` may be null"),
        ('- {id: t, type: noop, if: "{{ nodes.d and nodes.d.fre > 3 }}"}', "has no field `fre`"),
        ("- {id: t, type: noop, if: \"{{ nodes.d and nodes.d.state == 'bad' }}\"}", "is never 'bad'"),
        ('- {id: t, type: python, with: {call: "disks:look", args: {hots: a}}}', "takes no argument `hots`"),
        ('- {id: t, type: python, with: {call: "disks:look", args: {host: 3}}}', "`host` is text"),
        ('- {id: t, type: python, with: {call: "disks:look"}}', "needs the argument `host`"),
    ],
)
def test_annotations_of_a_function_are_read_and_nothing_is_imported(
    tmp_path: Path, node: str, says: str
) -> None:
    """What a `python` node takes and gives is known from the text of its module."""
    assert any(says in message for message in python_problems(tmp_path, node))


def test_what_a_function_gives_may_be_used_as_it_says(tmp_path: Path) -> None:
    """A guarded output of a `python` node loads, and no module was imported for it."""
    assert python_problems(tmp_path, '- {id: t, type: noop, if: "{{ nodes.d and nodes.d.free > 3 }}"}') == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ nodes.r.json.key | default('none') }}", "none"),
        ("{{ nodes.i.iterations[5].item | default('d') }}", "d"),
        ("{{ nodes.i.iterations[0].item.x.y | default('d') }}", "d"),
        ("{{ nodes.r.json.key is defined }}", False),
    ],
)
def test_default_guards_a_whole_chain(text: str, value: object) -> None:
    """Wherever on the way to a value there is nothing, `default` has the word."""
    found = {"nodes": {"r": None, "i": {"iterations": [{"item": "a"}]}}}
    assert compile_value(text).evaluate(found) == value


def test_null_on_the_left_of_and_is_false_in_a_condition() -> None:
    """`nodes.x and ...` is false where the node was skipped, and no error."""
    condition = compile_condition("{{ nodes.r and nodes.r.x == 1 }}")
    assert evaluate_condition(condition, {"nodes": {"r": None}}) is False


@pytest.mark.parametrize(
    "text",
    ["v.t < 3", "3 in v.n", "v.t + 1", "v.n | length", "v.t | abs", "v.l[7]", "v.t is even", "-v.t", "range(v.t)",
     "v.l | sum(attribute='x')", "v.z | sort", "v.l.x", "v.t | split('')", "v.m[v.l]", "[v.t, 1] | max", "v.t | truncate(v.l)"],
)  # fmt: skip
def test_a_run_time_error_shows_the_shape_of_the_value_and_no_python(text: str) -> None:
    """What only the run shows is told with what the value was, in words of flows."""
    values = {"v": {"t": "abc", "n": 3, "l": [1, 2], "z": None, "m": {"a": 1}}}
    with pytest.raises(ExpressionError) as caught:
        compile_value(f"{{{{ {text} }}}}").evaluate(values)
    assert not PYTHON_WORDS.search(str(caught.value))
    assert re.search(r"text 'abc'|number 3|list of|a list|nothing \(null\)|has no", str(caught.value))


def test_a_type_system_that_forgets_null_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded fault: were every node taken for completed, the slips with skipped nodes would pass."""
    monkeypatch.setattr(Scope, "_completed", lambda *_: True)
    missed = [entry["slip"] for entry in SLIPS if failure(entry["flow"]) is None]
    assert len(missed) >= 2


VALUES = {"now": "2026-11-21T22:40:00.000Z", "t": "tag v12.3"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("now | after('5 minutes')", "'5 minutes' is not a duration"),
        ("now | date('%Q')", "date supports %a"),
        ("now | date('%H', 'Mars')", "'Mars' is not a time zone"),
        ("t | date", "'tag v12.3' is not a moment"),
        ("t | match('(')", "is not a regular expression"),
        ("t | match('(?=a)')", "is not a regular expression"),
        ("('a' * 100000) | replace('a', 'x' * 900, regex=true)", "would grow by more than"),
    ],
)
def test_a_moment_or_pattern_that_is_none_is_told(text: str, says: str) -> None:
    """What cannot be read says what would be right."""
    with pytest.raises(ExpressionError, match=re.escape(says)):
        compile_value(f"{{{{ {text} }}}}").evaluate(VALUES)


def test_no_pattern_takes_for_ever() -> None:
    """A pattern that hangs a backtracking engine is searched in time that grows with the text only."""
    value = compile_value("{{ t | match('(a+)+$') }}").evaluate({"t": "a" * 200_000 + "b"})
    assert value is None


def test_a_pattern_that_is_none_does_not_load() -> None:
    """A pattern that is written out is read with the flow."""
    found = only("- {id: t, type: message, with: {text: \"{{ inputs.a | match('(') | default(0) }}\"}}")
    assert any("is not a regular expression" in message for message in found)


COLLECT = """
inputs: {hosts: {type: array, items: {type: string}, default: [a, b]}}
nodes:
  - id: each
    type: foreach
    with:
      items: "{{ inputs.hosts }}"
      as: host
      collect: {host: "{{ host }}", n: "{{ index }}", up: "{{ nodes.s.x | upper }}"}
    body: [{id: s, type: set, with: {x: "{{ host }}!"}}]
  - {id: t, type: set, with: {all: "{{ nodes.each.collected | map(attribute='up') | join(',') }}", at: "{{ now }}"}}
"""


def test_each_round_contributes_what_collect_says_and_now_is_the_time_of_the_step() -> None:
    """`collected` has one value for each item in their order; `now` is the time that the step's events carry."""
    case = given(COLLECT).started()
    assert case.node("each").output["collected"] == [
        {"host": "a", "n": 0, "up": "A!"},
        {"host": "b", "n": 1, "up": "B!"},
    ]
    completed = next(event for event in case.events if event.type == "node:completed" and event.path == "t")
    assert case.node("t").output == {"all": "A!,B!", "at": completed.timestamp}


def test_a_contribution_that_fails_fails_the_foreach() -> None:
    """What `collect` cannot evaluate is an error of that node, which names it."""
    case = given(COLLECT.replace("nodes.s.x | upper", "nodes.s.x | fromjson")).started()
    assert case.state.status == "failed"
    assert "node each: collect" in case.state.error["message"]  # type: ignore[index]  # it failed


def test_what_is_collected_has_a_type() -> None:
    """A field that the contribution does not have is told, and so is a name that its body does not know."""
    assert "the items have no field `pu`" in str(
        failure("flow: f" + COLLECT.replace("attribute='up'", "attribute='pu'"))
    )
    assert "there is no node `r`" in str(failure("flow: f" + COLLECT.replace("nodes.s.x", "nodes.r.x")))


BRANCHES = """
- id: w
  type: switch
  with: {on: "{{ inputs.a }}"}
  cases:
    x: [{id: r, type: set, with: {done: 1}}]
    y: [{id: s, type: set, with: {done: 2}}]
"""


@pytest.mark.parametrize(
    "text",
    [
        "nodes.w.outputs.r.done if nodes.w.case == 'x' else 0",
        "nodes.w.outputs.r.done if nodes.w.case in ['x'] else 0",
        "nodes.w.outputs.r.done if nodes.w.outputs.r is defined else 0",
        "nodes.w.outputs.r.done if 'r' in nodes.w.outputs else 0",
        "nodes.w.outputs.r.done if nodes.w.outputs.r is not undefined else 0",
        "nodes.w.outputs.r.done if nodes.w.case is not none and nodes.w.case != 'y' else 0",
        "nodes.w.outputs.r.done | default(0)",
        "0 if nodes.w.outputs.r is undefined else nodes.w.outputs.r.done",
    ],
)
def test_the_output_of_a_branch_is_used_where_the_branch_was_taken(text: str) -> None:
    """A condition on `case`, `is defined`, `in` and `default` let an output inside a switch be used."""
    assert only(f'- {{id: t, type: set, with: {{v: "{{{{ {text} }}}}"}}}}', BRANCHES) == []


@pytest.mark.parametrize(
    "text",
    [
        "nodes.w.outputs.r.done",
        "nodes.w.outputs.r",
        "nodes.w.outputs.r.done if nodes.w.case == 'y' else 0",
        "nodes.w.outputs.r.done if nodes.w.case in ['x', 'y'] else 0",
        "nodes.w.outputs.r.done if nodes.w.case != 'y' else 0",
        "'a' if nodes.w.outputs.r else 'b'",
        "({'r': 1} if inputs.n > 1 else {'s': 1}).r",
    ],
)
def test_the_output_of_a_branch_that_may_not_have_been_taken_is_a_mistake(text: str) -> None:
    """What would fail in a run that took another branch is told while the flow is loaded."""
    assert any(
        re.search(r"(may have|has) no (field )?`r`", message)
        for message in only(f'- {{id: t, type: set, with: {{v: "{{{{ {text} }}}}"}}}}', BRANCHES)
    )


def test_a_switch_whose_cases_are_all_choices_always_takes_one() -> None:
    """Where the value can only be one of its cases, `case` is never null."""
    flow = """
flow: f
inputs: {a: {choices: [x, z]}}
nodes:
  - id: w
    type: switch
    with: {on: "{{ inputs.a }}"}
    cases:
      x: [{id: r, type: set, with: {done: 1}}]
      z: [{id: s, type: set, with: {done: 3}}]
  - {id: t, type: set, with: {v: "{{ nodes.w.case | upper }}"}}
"""
    assert failure(flow) is None
    assert "`nodes.w.case` may be null" in str(failure(flow.replace("[x, z]", "[x, y, z]")))


ITEMS = """
- {id: h, type: set, with: {words: [a, b], disks: [{name: a, use: "20", size: 3}, {name: b, use: "7", size: 4}], n: [1, 2]}}
- id: each
  type: foreach
  with: {items: [1, 2]}
  body: [{id: s, type: set, if: "{{ item > 1 }}", with: {x: 1}}]
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "nodes.h.disks | selectattr('use', 'lt', 20)",
            "`nodes.h.disks[0].use` is '20', '7', compared with 20",
        ),
        (
            "nodes.h.disks | rejectattr('size', 'eq', '3')",
            "`nodes.h.disks[0].size` is 3, 4, compared with '3'",
        ),
        ("nodes.h.words | select('gt', 3)", "`nodes.h.words[0]` is 'a', 'b', compared with 3"),
        ("nodes.h.words | select('even')", "the test `even` takes a number"),
        ("nodes.h.n | reject('startswith', 'a')", "the test `startswith` takes text"),
        ("nodes.h.n | select('nope')", "unknown test `nope`"),
        ("nodes.h.words | map('round')", "the filter `round` takes a number"),
        ("nodes.h.words | map('int', 0, 5)", "the filter `int` takes at most 1 argument"),
        ("nodes.h.n[0] is eq('a')", "never equal"),
        ("nodes.each.iterations | map(attribute='outputs.s.x')", "a value may be null"),
        ("inputs.a | int(none) + 1", "may be null"),
        ("nodes.h.words | join(1)", "the filter `join`: `separator` is 1, and takes text"),
        ("nodes.h.words | map('replace', 'a')", "the filter `replace` needs `new`"),
        ("nodes.h.words | map", "the filter `map` needs a field or a filter"),
        ("nodes.h.words | select('gt')", "the test `gt` needs `right`"),
        ("nodes.h.words | select('matching', '(')", "not a regular expression"),
        ("nodes.h.words | sort(reversed=true)", "the filter `sort` has no argument `reversed`"),
        ("nodes.h.n | project('a')", "takes only named arguments"),
        ("inputs.a | truncate('x')", "the filter `truncate`: `length` is 'x', and takes a number"),
        ("inputs.a | truncate(inputs.a)", "the filter `truncate`: `length` is text, and takes a number"),
        ("inputs.a | split(separator=1)", "`separator` is 1"),
        ("1.5 | round(1, 'up')", "round supports the methods"),
        ("now | after('2x')", "'2x' is not a duration"),
        ("now | date('%Q')", "date supports"),
        ("now | date('%Y', 'Europe/Berln')", "'Europe/Berln' is not a time zone"),
        ("inputs | tojson(indent=4)", "indent=2"),
        ("'%d' | format('a')", "`format` cannot take"),
        ("'3.7' | int", "'3.7' is not a whole number"),
    ],
)
def test_what_a_filter_does_with_each_item_is_checked(text: str, says: str) -> None:
    """A test or filter on each item of a list is checked as one on a value."""
    found = only(f'- {{id: t, type: set, with: {{v: "{{{{ {text} }}}}"}}}}', ITEMS)
    assert any(says in message for message in found), found


@pytest.mark.parametrize(
    "text",
    [
        "nodes.h.disks | selectattr('size', 'lt', 20)",
        "nodes.h.disks | selectattr('name', 'in', ['a', 'c'])",
        "nodes.h.disks | selectattr('use', 'defined')",
        "nodes.h.words | select('startswith', 'a') | map('upper') | join",
        "nodes.h.words | map('int', 0) | sum",
        "nodes.each.iterations | map(attribute='outputs.s.x', default=0)",
        "nodes.each.iterations | project(x='outputs.s.x')",
        "inputs.o.list | selectattr('n', 'gt', 3)",
        "inputs.a | format('x', 1)",
        "inputs.a | truncate(inputs.o.n) | replace('a', inputs.o.b, 1)",
        "now | after(90) | date('%H:%M', inputs.a)",
        "'%s of %s' | format('a', nodes.h.n[0])",
        "'a' | int(0)",
        "nodes.h.disks | map(attribute='size') | sort(reverse=true) | first",
        "nodes.h.words | unique | sort(case_sensitive=true) | join(' ')",
        "inputs.a | trim | trim('/') | split | last",
        "nodes.h.words | map('default', 'x') | list",
    ],
)
def test_a_sound_filter_on_each_item_loads(text: str) -> None:
    """What fits, and what nobody can know, is not a mistake."""
    assert only(f'- {{id: t, type: set, with: {{v: "{{{{ {text} }}}}"}}}}', ITEMS) == []


TIMES = """
inputs: {until: {}, n: {type: integer}}
nodes:
  - id: gate
    type: approval
    with:
      message: ok?
      approvers: [requester]
      form: {type: object, properties: {day: {type: string, format: date}, at: {type: string, format: date-time}}, required: [day, at]}
"""


def doubts(condition: str) -> list[str]:
    """What is warned of a condition behind an approval with a day and a moment in its form."""
    flow, _ = read("flow: f" + TIMES + f'  - {{id: t, type: noop, if: "{{{{ {condition} }}}}"}}\n', "f.yml")
    return [str(problem) for problem in flow_warnings(flow)]


@pytest.mark.parametrize(
    "condition",
    ["now > inputs.until", "inputs.until <= nodes.gate.at", "now | after('2h') < inputs.until", "now == inputs.until",
     "messages[0].at < inputs.until", "now > '2026-11-21T22:40:00+01:00'", "now < (inputs.until | fromjson).expires"],
)  # fmt: skip
def test_a_moment_that_meets_a_text_of_unknown_origin_is_warned_of(condition: str) -> None:
    """Texts compare letter by letter, so another offset than UTC would be compared as if it were none."""
    [told] = doubts(condition)
    assert "| moment" in told


@pytest.mark.parametrize(
    "condition",
    ["now > inputs.until | moment", "now < nodes.gate.at | after('2h')", "now > '2026-11-21'", "now > '2026-11-21T22:40:00.000Z'",
     "nodes.gate.values.at < now", "now > nodes.gate.values.day", "(now if inputs.n > 1 else nodes.gate.at) <= now", "inputs.until > 'a'"],
)  # fmt: skip
def test_moments_that_compare_are_not_warned_of(condition: str) -> None:
    """What is a moment as `now` is one, or a day, compares as it should."""
    assert doubts(condition) == []
