"""From a flow's text to the frozen flow, and what a session pins of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.flow.load import flow_from_body, load_flow
from engine.language.codec import Json
from engine.language.errors import FlowError
from engine.language.yaml import load_located
from engine.nodes.types.registry import node_types
from engine.run.flow_files import load_flow_file, load_flows
from tests.flow.flowkit import (
    AGENTS,
    EVERY_TYPE,
    GRAPH,
    NESTED,
    ONE_NODE,
    ROLLBACK,
    SOUND,
    failure,
    flow_with,
    problems,
)
from tests.support.proving import tries


def test_a_flow_has_what_its_file_says() -> None:
    """Name, inputs, triggers, limits and nodes come out with units and defaults resolved."""
    flow = load_flow(ROLLBACK, "rollback.yml")
    assert (flow.name, flow.deadline, flow.file) == ("rollback", 7 * 86400, "rollback.yml")
    assert (flow.inputs["service"].required, flow.inputs["regions"].required) == (True, False)
    assert (flow.inputs["regions"].default, flow.inputs["regions"].items) == (["eu", "us"], "string")
    assert (flow.triggers[0].pattern, flow.triggers[0].inputs) == ("rollback {service}", ("service",))
    gate, apply, tell = flow.nodes
    assert (gate.id, gate.type, gate.name, gate.index, gate.timeout, gate.line) == (
        "gate",
        "approval",
        "May we?",
        0,
        None,
        11,
    )
    assert (apply.name, apply.timeout, apply.on_error, apply.if_) == (
        "apply",
        300,
        "continue",
        "{{ nodes.gate.decision == 'approve' }}",
    )
    assert apply.secrets == {"TOKEN", "deploy_key"} == flow.secrets
    assert tell.condition is not None
    assert tell.condition.names == {("status", "apply")}
    assert flow.by_id["tell"] is tell


def test_every_node_type_loads() -> None:
    """A flow with all node types, and an expression in every kind of field, is sound."""
    flow = load_flow(EVERY_TYPE, "every.yml")
    nested = load_flow(NESTED, "nested.yml")
    talking = load_flow(AGENTS, "agents.yml")
    used = {node.type for each in (flow, nested, talking) for node in each.by_id.values()}
    assert used == {*node_types(), "turn", "mcp", "read_file", "write_file"}
    assert flow.deadline == 30 * 86400
    assert flow.inputs["seconds"].required is False
    assert flow.by_id["read"].timeout == 30
    assert flow.by_id["write"].timeout == 10


@pytest.mark.parametrize(
    ("node", "evaluated", "policy"),
    [
        ("- {id: x, type: shell, with: {run: [ls]}}", {}, "ask"),
        ("- {id: x, type: shell, retry: safe, with: {run: [ls]}}", {}, "again"),
        ("- {id: x, type: shell, on_crash: again, with: {run: [ls]}}", {}, "again"),
        ("- {id: x, type: http, with: {url: 'http://a'}}", {"method": "GET"}, "again"),
        ("- {id: x, type: http, with: {url: 'http://a', method: POST}}", {"method": "POST"}, "ask"),
        (
            "- {id: x, type: http, with: {url: 'http://a', method: '{{ inputs.a }}'}}",
            {"method": "GET"},
            "again",
        ),
        (
            "- {id: x, type: http, with: {url: 'http://a', method: '{{ inputs.a }}'}}",
            {"method": "PUT"},
            "ask",
        ),
        ("- {id: x, type: http, retry: never, with: {url: 'http://a'}}", {"method": "GET"}, "ask"),
        ("- {id: x, type: set, with: {a: 1}}", {"a": 1}, "again"),
        ("- {id: x, type: message, with: {text: a}}", {}, "again"),
    ],
)
def test_what_a_crash_means_is_the_files_word_or_the_types(node: str, evaluated: Json, policy: str) -> None:
    """Effects ask and everything else runs again, unless the file says otherwise; a request by its method."""
    assert flow_with(node).nodes[-1].crash_policy(evaluated) == policy


@pytest.mark.parametrize("name", SOUND)
def test_a_pinned_flow_is_read_back_equal(name: str) -> None:
    """The pinned flow of a session gives the same flow and digest without the file."""
    flow = load_flow(SOUND[name], f"/flows/{name}.yml")
    again = flow_from_body(flow.body())
    assert again == flow
    assert again.digest == flow.digest
    assert json.loads(flow.body()) == {
        "version": 1,
        "name": flow.name,
        "file": flow.file,
        "text": SOUND[name],
    }


def test_any_change_of_the_text_changes_the_digest() -> None:
    """A comment is a change too: the digest is of the text and not of its meaning."""
    assert load_flow(ONE_NODE, "f.yml").digest != load_flow(ONE_NODE + "# note\n", "f.yml").digest
    assert load_flow(ONE_NODE, "f.yml").digest == load_flow(ONE_NODE, "f.yml").digest


@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b'{"version":0,"text":"","file":""}', b'{"version":1,"text":"","file":"f"}']
)
def test_a_body_that_is_no_flow_is_refused(body: bytes) -> None:
    """A pinned flow of another version, or one that does not load, is a `FlowError`."""
    with pytest.raises(FlowError):
        flow_from_body(body)


def test_a_flow_cannot_be_changed() -> None:
    """A flow and its nodes are frozen."""
    flow = load_flow(ONE_NODE, "f.yml")
    with pytest.raises(AttributeError):
        flow.name = "other"  # type: ignore[misc]  # the point of the test
    with pytest.raises(AttributeError):
        flow.nodes[0].id = "other"  # type: ignore[misc]  # the point of the test


# --- folders ---------------------------------------------------------------------------------------------


def test_a_folder_gives_its_sound_flows_and_the_errors_of_the_others(tmp_path: Path) -> None:
    """One broken file does not keep the others, before or behind it, from being served; what is not YAML file is not looked
    at."""
    (tmp_path / "a.yml").write_text(ONE_NODE)
    (tmp_path / "b.yml").write_text("flow: [")
    (tmp_path / "c.yaml").write_text(ROLLBACK)
    (tmp_path / "notes.txt").write_text("flow: [")
    (tmp_path / "d.yml").mkdir()
    flows, errors = load_flows(tmp_path)
    assert sorted(flows) == ["one", "rollback"]
    assert list(errors) == [str(tmp_path / "b.yml")]


def test_two_flows_of_one_name_are_an_error_of_the_second(tmp_path: Path) -> None:
    """The file that sorts first is served; the other says who has the name, at its own `flow:`."""
    (tmp_path / "a.yml").write_text(ONE_NODE)
    (tmp_path / "b.yml").write_text("# copy\n" + ONE_NODE)
    flows, errors = load_flows(tmp_path)
    assert flows["one"].file == str(tmp_path / "a.yml")
    (problem,) = errors[str(tmp_path / "b.yml")].problems
    assert (problem.line, problem.column) == (2, 7)
    assert str(tmp_path / "a.yml") in problem.message


def test_what_cannot_be_read_is_a_flow_error(tmp_path: Path) -> None:
    """A missing file, and a missing folder, are errors of the flow kind and not of the system."""
    with pytest.raises(FlowError, match="cannot be read"):
        load_flow_file(tmp_path / "missing.yml")
    flows, errors = load_flows(tmp_path / "missing")
    assert flows == {}
    assert list(errors) == [str(tmp_path / "missing")]


def test_a_huge_file_is_refused_without_being_read_whole(tmp_path: Path) -> None:
    """A file of a gigabyte costs no more than the limit."""
    path = tmp_path / "huge.yml"
    with path.open("wb") as stream:
        stream.truncate(2**30)
    with pytest.raises(FlowError, match="256 KiB"):
        load_flow_file(path)


# --- all problems at once --------------------------------------------------------------------------------


def test_problems_come_in_the_order_of_the_file_and_once() -> None:
    """However they were found, problems are listed from top to bottom without repetition."""
    found = problems(
        "flow: X Y\nnodes:\n  - {id: a, type: nope, iff: 1}\n  - {id: a, type: message, with: {text: '{{ b }} {{ b }}'}}\n"
    )
    places = [tuple(int(part) for part in each.split(":")[:2]) for each in found]
    assert places == sorted(places)
    assert len(found) == len(set(found)) == 6


@pytest.mark.parametrize(
    ("block", "place"),
    [
        ('      text: "a {{ inputs.a }} {{ inputs.b }}"', "6:34"),
        ("      text: |\n        one {{ inputs.a }}\n        two {{ inputs.b }}", "8:16"),
        ("      text: >-\n        {{ inputs.b }}", "7:12"),
        ("      text: 'it''s {{ inputs.b }}'", "6:23"),
        ('      text: "a\\n\\t{{ inputs.b }}"', "6:22"),
        ('      text: "\\x7b{ inputs.b }}"', "6:20"),
        ("      text: \"{{ inputs['b'] }}\"", "6:14"),
    ],
)
def test_a_wrong_name_is_pointed_at_inside_its_text(block: str, place: str) -> None:
    """The column is that of the name itself, in quotes, in blocks, after escapes; else that of its text."""
    text = f"flow: f\ninputs: {{a: {{}}}}\nnodes:\n  - id: x\n    with:\n{block}\n    type: message\n"
    assert problems(text) == [f"{place}: the flow has no input `b`"]


JSON_VALUES: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 300) | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "a", "{{ inputs.service }}", "{{ nodes.gate }}", "30m", "{{", "{% if %}", "true", "@sre",
                       "foreach", "flow", "loop", "goto:gate", "{{ item }}", "nested", "shell", "logs", "*", "approve"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["id", "type", "with", "if", "a", "{{ x }}", "$secret", "text", "body", "from", "to", "flow", "as",
                                       "shell", "when", "tools", "input", "commands", "$ref"]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def _places(value: Json, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += _places(item, (*path, key))
    return found


@settings(max_examples=tries(300))
@given(st.data())
def test_a_flow_with_anything_anywhere_is_a_flow_or_a_flow_error(data: st.DataObject) -> None:
    """Whatever JSON is in the place of any value of a sound flow, there is no other exception."""
    tree = load_located(
        data.draw(st.sampled_from([ROLLBACK, EVERY_TYPE, NESTED, GRAPH, AGENTS, AGENTS])), "f.yml"
    ).data
    path = data.draw(st.sampled_from(_places(tree)))
    parent = tree
    for part in path[:-1]:
        parent = parent[part]
    parent[path[-1]] = data.draw(JSON_VALUES)
    text = json.dumps(tree)
    error = failure(text)
    if error is None:
        flow = load_flow(text, "fuzz.yml")
        assert flow_from_body(flow.body()) == flow
    else:
        assert error.problems


_WATCH = """
import sys
from engine.run.flow_files import load_flow_file
from engine.language.errors import FlowError
import json, yaml
path = sys.argv[1]
load_flow_file(sys.argv[2])  # whatever is imported lazily is imported now
seen = []
def hook(event, arguments):
    if event == "open" and arguments[0] != path or event.startswith(("subprocess", "os.", "socket", "import", "shutil")):
        seen.append((event, str(arguments)[:200]))
sys.addaudithook(hook)
load_flow_file(path)
found = list(seen)
print(json.dumps(found))
"""


def test_loading_runs_imports_and_opens_nothing(tmp_path: Path) -> None:
    """A flow full of programs, addresses and expressions is loaded without touching anything but its file."""
    path, warm = tmp_path / "f.yml", tmp_path / "warm.yml"
    path.write_text(EVERY_TYPE)
    warm.write_text(EVERY_TYPE)
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", _WATCH, str(path), str(warm)],
        capture_output=True,
        text=True,
        cwd=root,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == []


def test_a_flood_of_problems_is_cut_and_says_so() -> None:
    """A file with thousands of mistakes is answered at once, with the first hundred and a note."""
    nodes = "".join(
        f"  - {{id: n{number}, type: set, with: {{a: '{{{{ nodes.m{number} }}}}'}}}}\n"
        for number in range(4000)
    )
    found = problems("flow: f\nnodes:\n" + nodes)
    assert len(found) == 101
    assert found[0] == "3:39: there is no node `m0`"
    assert found[-1].endswith("there are more problems than listed here")
