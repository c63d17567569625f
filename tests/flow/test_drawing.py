"""Flows as pictures: Mermaid text and SVG, with what became of nodes in a session."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from engine.decide.commands import NodeDone
from engine.flow.docs.diagram import LOOKS, PLAIN, mermaid, placed, svg
from engine.flow.load import load_flow
from engine.journal.history import marks, tree
from tests.support.engine import given

GRAPH = """flow: deploy
inputs: {region: {type: string, default: eu}}
nodes:
  - {id: build, type: shell, with: {run: [make]}}
  - {id: review, type: approval, with: {message: "Ship?", approvers: [requester]}}
  - id: where
    type: switch
    with: {on: "{{ inputs.region }}"}
    cases: {eu: [{id: confirm, type: ask, with: {message: sure}}]}
    default: [{id: d, type: noop}]
  - {id: fix, type: noop}
edges:
  - {from: build, to: review}
  - {from: review, to: where, when: "{{ nodes.review.decision == 'approve' }}"}
  - {from: review, to: fix, when: "{{ nodes.review.decision == 'reject' }}"}
  - {from: fix, to: build, type: loop, max_iterations: 2}
finally: [{id: clean, type: noop}]
"""

LIST = """
nodes:
  - id: each
    type: foreach
    with: {items: [x, y], as: it}
    body:
      - {id: work, type: shell, with: {run: ["{{ it }}"]}}
      - {id: sure, type: ask, if: "{{ it == 'x' }}", with: {message: "{{ it }}?"}}
  - {id: tell, type: set, with: {x: 1}}
"""


def texts(picture: str) -> list[str]:
    """All words of an SVG document, which must be well-formed."""
    root = ElementTree.fromstring(picture)
    return [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]


def test_a_graph_as_mermaid_has_its_nodes_edges_conditions_and_containers() -> None:
    """Forward edges are arrows with their condition, the loop edge is dotted, the switch a subgraph of its cases."""
    drawn = mermaid(load_flow(GRAPH, "deploy.yml"))
    for line in (
        'n1["build<br>shell"]',
        'n2{{"review<br>approval"}}',
        'subgraph n3["where<br>switch<br>on inputs.region"]',
        'subgraph n4["case eu"]',
        'subgraph n6["otherwise"]',
        "n1 --> n2",
        "n2 -->|\"nodes.review.decision == 'approve'\"| n3",
        'n8 -.->|"again, at most 2×"| n1',
        '["finally"]',
    ):
        assert line in drawn, drawn
    assert drawn.count("subgraph") == drawn.count("    end\n")


def test_the_svg_has_every_node_and_stays_inside_its_frame() -> None:
    """Each node's id and each condition is a text; no box leaves the picture."""
    picture = svg(load_flow(GRAPH, "deploy.yml"))
    words = texts(picture)
    for word in ("build", "review", "where", "case eu", "otherwise", "fix", "finally", "again, at most 2×"):
        assert word in words
    root = ElementTree.fromstring(picture)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for box in root.iter("{http://www.w3.org/2000/svg}rect"):
        place = {name: float(box.attrib.get(name, 0)) for name in ("x", "y", "width", "height")}
        assert place["x"] >= 0
        assert place["x"] + place["width"] <= width
        assert place["y"] + place["height"] <= height


def test_where_a_session_waits_is_said_in_words_and_colour() -> None:
    """The open question is marked as waiting, what is done as done, and what has not begun not at all."""
    case = given(LIST).started().when(NodeDone("each[0]/work", 1, {}))
    found = marks(tree(case.events, case.flow))
    assert found == {("", "each"): "started", ("each", "work"): "completed", ("each", "sure"): "waiting"}
    drawn = mermaid(case.flow, found)
    assert "… waits here" in drawn
    assert "class n4 waiting" in drawn or "class n3 waiting" in drawn
    picture = svg(case.flow, found)
    assert texts(picture).count("… waits here") == 1
    assert LOOKS["waiting"].fill in picture


def test_a_node_that_waits_in_one_pass_and_is_done_in_another_is_marked_as_waiting() -> None:
    """Over several passes that status counts that a person has to act on."""
    case = given(LIST.replace("if: \"{{ it == 'x' }}\", ", "")).started()
    case.when(NodeDone("each[0]/work", 1, {})).when(case.answer(text="fine"))
    case.when(NodeDone("each[1]/work", 1, {}))
    assert marks(tree(case.events, case.flow))["each", "sure"] == "waiting"


def test_texts_of_a_flow_cannot_break_the_picture() -> None:
    """Markup in conditions is shown as text, in Mermaid and in SVG."""
    flow = load_flow(
        "flow: odd\ninputs: {n: {type: integer}}\nnodes: "
        "[{id: a, type: noop, if: \"{{ inputs.n < 3 and '#\\\"]' != '<b>' }}\"}]",
        "odd.yml",
    )
    drawn = mermaid(flow)
    assert "inputs.n #lt; 3" in drawn
    assert "<b>" not in drawn
    assert any("inputs.n < 3" in word for word in texts(svg(flow)))


@pytest.mark.parametrize("status", [*LOOKS, "plain"])
def test_every_mark_can_be_read(status: str) -> None:
    """Text stands out from its ground by at least 7 : 1, and a line by at least 3 : 1."""
    look = LOOKS.get(status, PLAIN)
    assert contrast(look.text, look.fill) >= 7
    assert contrast(look.stroke, look.fill) >= 3


def contrast(one: str, two: str) -> float:
    """The contrast of two colours as the accessibility guidelines count it."""
    lighter, darker = sorted((luminance(one), luminance(two)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(color: str) -> float:
    """The relative luminance of `#rrggbb`."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_rejection_is_drawn_as_a_decision() -> None:
    """In words and in a colour of its own, in Mermaid and in SVG; never as done."""
    case = given(
        "nodes: [{id: gate, type: approval, with: {message: Go?, approvers: [channel]}}, {id: a, type: noop}]"
    ).started()
    case.when(case.answer("reject"))
    found = marks(tree(case.events, case.flow))
    assert found["", "gate"] == "rejected"
    for drawn in (mermaid(case.flow, found), svg(case.flow, found)):
        assert "⊘ rejected" in drawn
        assert "✓ done" not in drawn


def test_people_see_names_where_authors_see_ids() -> None:
    """The picture of the control room calls nodes, also those that another one leads to, by their names."""
    flow = load_flow(
        "flow: named\nnodes:\n"
        "  - {id: a, type: shell, name: Look at the disk, on_error: 'goto:b', with: {run: [df]}}\n"
        "  - {id: b, type: noop, name: Call somebody}\n",
        "named.yml",
    )
    [one, two] = placed(flow)["boxes"]
    assert (one["node"], one["name"], one["lines"]) == (
        "a",
        "Look at the disk",
        ["Look at the disk", "shell", "on error: go to Call somebody"],
    )
    assert two["lines"][0] == "Call somebody"
    assert "on error: go to b" in mermaid(flow)
