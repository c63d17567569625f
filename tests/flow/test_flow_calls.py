"""Flows that call flows: how they are found, pinned, and refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.flow import Flow
from engine.flow.load import flow_from_body, load_flow
from engine.language.errors import FlowError
from engine.run.flow_files import load_flow_file, load_flows
from tests.flow.flowkit import ONE_NODE

OUTER = """\
flow: outer
nodes:
  - {id: call, type: flow, with: {flow: middle, inputs: {who: "{{ session.flow }}"}}}
  - {id: say, type: message, with: {text: "{{ nodes.call.outputs }}"}}
"""
MIDDLE = """\
flow: middle
inputs: {who: {}, times: {type: integer, default: 2}}
nodes:
  - id: each
    type: foreach
    with: {items: [1, 2]}
    body:
      - {id: inner, type: flow, with: {flow: leaf}}
      - {id: back, type: flow, if: "{{ inputs.times > 0 }}", with: {flow: middle, inputs: {who: me, times: 0}}}
"""
LEAF = """\
flow: leaf
nodes:
  - {id: run, type: shell, with: {run: [uptime], env: {TOKEN: "{{ secrets.TOKEN }}"}}}
finally:
  - {id: done, type: noop}
"""
TEXTS = {"outer": OUTER, "middle": MIDDLE, "leaf": LEAF}


def write(folder: Path, **texts: str) -> Path:
    """A folder with a flow file for each text."""
    for name, text in texts.items():
        (folder / f"{name}.yml").write_text(text)
    return folder


def find(name: str) -> Flow | None:
    """The flows above, by name, as a caller of `load_flow` gives them."""
    return load_flow(TEXTS[name], f"{name}.yml", flows=find) if name in TEXTS else None


def test_called_flows_come_with_all_that_they_call(tmp_path: Path) -> None:
    """A flow has the lists of every flow that a run of it can reach, each under its own name."""
    write(tmp_path, **TEXTS)
    flow = load_flow_file(tmp_path / "outer.yml")
    assert set(flow.flows) == {"middle", "leaf"}
    assert set(flow.lists) == {"", "@middle/", "@middle/each", "@leaf/", "@leaf/finally"}
    assert flow.calls == {"middle"}
    assert flow.lists["@middle/each"].by_id["back"].calls == "middle"
    assert flow.flows["middle"].inputs["times"].default == 2
    assert set(flow.flows["middle"].lists) == {"", "each"}
    assert flow.secrets == {"TOKEN"}
    assert set(flow.by_id) == {"call", "say"}


def test_a_folder_a_file_and_a_function_give_equal_flows(tmp_path: Path) -> None:
    """However the called flows are found, the flow is the same."""
    write(tmp_path, **TEXTS)
    flows, errors = load_flows(tmp_path)
    assert errors == {}
    assert flows["outer"] == load_flow_file(tmp_path / "outer.yml")
    given = load_flow(OUTER, str(tmp_path / "outer.yml"), flows=flows.get)
    assert given == flows["outer"]
    assert load_flow(OUTER, "outer.yml", flows=find).lists.keys() == given.lists.keys()


def test_a_pinned_flow_has_the_flows_that_it_calls(tmp_path: Path) -> None:
    """The pinned flow of a session gives the same flow when every file is gone."""
    write(tmp_path, **TEXTS)
    flow = load_flow_file(tmp_path / "outer.yml")
    body = flow.body()
    for path in tmp_path.iterdir():
        path.unlink()
    assert flow_from_body(body) == flow
    assert flow_from_body(body).digest == flow.digest
    pinned = json.loads(body)
    assert (pinned["version"], set(pinned["flows"])) == (1, {"middle", "leaf"})


def test_a_change_of_a_called_flow_changes_the_digest(tmp_path: Path) -> None:
    """A digest is that of everything that runs, and of nothing else."""
    write(tmp_path, **TEXTS, other=ONE_NODE)
    before = load_flow_file(tmp_path / "outer.yml").digest
    write(tmp_path, other=ONE_NODE + "# changed\n")
    assert load_flow_file(tmp_path / "outer.yml").digest == before
    write(tmp_path, leaf=LEAF + "# changed\n")
    assert load_flow_file(tmp_path / "outer.yml").digest != before


def test_a_flow_that_calls_itself_is_pinned_as_one_that_calls_nobody() -> None:
    """Its text is there already, and is not kept twice."""
    text = "flow: again\nnodes: [{id: a, type: flow, if: false, with: {flow: again}}]\n"
    flow = load_flow(text, "again.yml")
    assert set(flow.flows) == {"again"}
    assert set(flow.lists) == {"", "@again/"}
    assert "flows" not in json.loads(flow.body())
    assert flow_from_body(flow.body()) == flow


def test_flows_may_call_each_other_in_a_circle(tmp_path: Path) -> None:
    """How deep that goes is a question of the run; both load, and each pins the other."""
    first = "flow: one\nnodes: [{id: a, type: flow, with: {flow: two}}]\n"
    second = "flow: two\nnodes: [{id: b, type: flow, with: {flow: one}}]\n"
    write(tmp_path, one=first, two=second)
    flows, errors = load_flows(tmp_path)
    assert errors == {}
    assert set(flows["one"].flows) == set(flows["two"].flows) == {"one", "two"}
    assert flow_from_body(flows["one"].body()) == flows["one"]


@pytest.mark.parametrize("version", [0, None])
def test_a_body_of_another_version_is_refused(version: int | None) -> None:
    """A later release's pin is not read as if it were this one's."""
    with pytest.raises(FlowError, match="not of version 1"):
        flow_from_body(json.dumps({"version": version, "text": ONE_NODE, "file": "f"}).encode())


def test_a_pin_that_lost_a_called_flow_is_refused(tmp_path: Path) -> None:
    """A flow never runs with a part of what it calls."""
    write(tmp_path, **TEXTS)
    pinned = json.loads(load_flow_file(tmp_path / "outer.yml").body())
    del pinned["flows"]["leaf"]
    with pytest.raises(FlowError, match="there is no flow `leaf`"):
        flow_from_body(json.dumps(pinned).encode())


# --- what is wrong ---------------------------------------------------------------------------------------


def test_a_problem_of_a_called_flow_is_told_at_the_call(tmp_path: Path) -> None:
    """The caller's author reads which file is broken, where and why; the other flows are served."""
    write(tmp_path, **{**TEXTS, "leaf": "flow: leaf\nnodes: [{id: run, type: shel}]\n"})
    flows, errors = load_flows(tmp_path)
    assert flows == {}
    (problem,) = errors[str(tmp_path / "outer.yml")].problems
    assert (problem.line, problem.column) == (3, 41)
    assert "flow `middle` does not load" in problem.message
    (problem,) = errors[str(tmp_path / "middle.yml")].problems
    assert f"{tmp_path / 'leaf.yml'}:2:25: unknown node type `shel`" in problem.message


def test_a_file_that_is_no_yaml_is_nobody_that_could_be_called(tmp_path: Path) -> None:
    """Its name is not known, so the call says that there is no such flow, and the file has its own error."""
    write(tmp_path, **{**TEXTS, "leaf": "flow: leaf\nnodes: ["})
    _, errors = load_flows(tmp_path)
    assert "there is no flow `leaf`" in str(errors[str(tmp_path / "middle.yml")])
    assert "not valid YAML" in str(errors[str(tmp_path / "leaf.yml")])


def test_of_two_flows_of_one_name_the_first_file_is_called(tmp_path: Path) -> None:
    """The one that is served is the one that runs."""
    write(tmp_path, **TEXTS, also="flow: leaf\nnodes: [{id: other, type: noop}]\n")
    flow = load_flow_file(tmp_path / "outer.yml")
    assert flow.flows["leaf"].file == str(tmp_path / "also.yml")


def test_without_a_folder_only_the_flow_itself_can_be_called() -> None:
    """A text alone has no neighbours, and the error says where they would stand."""
    with pytest.raises(
        FlowError, match="there is no flow `middle`\n  hint: a flow can call the flows in the folder"
    ):
        load_flow(OUTER, "outer.yml")


def test_the_nearest_name_that_is_known_is_suggested() -> None:
    """Whoever gives the flows may say which there are."""
    with pytest.raises(FlowError, match="did you mean `middel`"):
        load_flow(OUTER, "outer.yml", flows=lambda name: None, known=["middel", "leaf"])


def test_a_flow_without_calls_looks_at_no_other_file(tmp_path: Path) -> None:
    """What is beside it may be broken or hostile."""
    write(tmp_path, one=ONE_NODE, huge="")
    (tmp_path / "huge.yml").write_bytes(b"\xff" * 10)
    assert load_flow_file(tmp_path / "one.yml").name == "one"


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ("{}", "needs the input `who`"),
        ("{who: 3}", "input `who`: expected text, not the number 3"),
        ("{who: a, times: many}", "input `times`: expected a whole number"),
        ("{who: a, tmes: 1}", "has no input `tmes`"),
        ("{who: a, times: '3'}", None),
        ("{who: '{{ inputs.x }}', times: '{{ inputs.x }}'}", None),
    ],
)
def test_what_a_call_gives_is_checked_against_the_inputs(inputs: str, words: str | None) -> None:
    """Names and values that are in the file are checked while it is loaded, as a start would; the rest when it runs."""
    text = f"flow: f\ninputs: {{x: {{}}}}\nnodes: [{{id: a, type: flow, with: {{flow: middle, inputs: {inputs}}}}}]\n"
    if words is None:
        assert load_flow(text, "f.yml", flows=find).flows
        return
    with pytest.raises(FlowError, match=words):
        load_flow(text, "f.yml", flows=find)


def test_finally_calls_only_flows_that_ask_nobody(tmp_path: Path) -> None:
    """Also when the question is in a flow that the called one calls."""
    asking = "flow: leaf\nnodes: [{id: how, type: ask, with: {message: How?}}]\n"
    text = "flow: f\nnodes: [{id: a, type: noop}]\nfinally: [{id: b, type: flow, with: {flow: middle, inputs: {who: a}}}]\n"
    write(tmp_path, middle=MIDDLE, leaf=LEAF, f=text)
    assert load_flow_file(tmp_path / "f.yml").finally_list == "finally"
    write(tmp_path, leaf=asking)
    with pytest.raises(FlowError, match="`finally` cannot ask people, and the flow `middle` does"):
        load_flow_file(tmp_path / "f.yml")


def test_a_flow_with_a_lock_is_not_called(tmp_path: Path) -> None:
    """Its lock would not be taken there, which is worse than none; started by itself it may have one."""
    write(tmp_path, **{**TEXTS, "leaf": LEAF.replace("nodes:", "lock: one\nnodes:")})
    with pytest.raises(FlowError, match="`leaf` has a `lock`, which a call does not take"):
        load_flow_file(tmp_path / "outer.yml")
    assert load_flow_file(tmp_path / "leaf.yml").lock is not None
