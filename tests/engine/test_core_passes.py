"""What is kept of a loop that failed: at which item, and which passes were done."""

from __future__ import annotations

from engine.decide.commands import NodeBroke, NodeDone
from tests.support.engine import Scenario, given

NESTED = """
nodes:
  - id: regions
    type: foreach
    with: {items: [eu, us], as: region}
    body:
      - id: hosts
        type: foreach
        with: {items: ["{{ region }}-1", "{{ region }}-2"], as: host}
        body:
          - {id: check, type: http, with: {url: "http://e.org/{{ host }}"}}
"""


def run(case: Scenario, path: str, *, well: bool) -> Scenario:
    """The node at this path comes to its end."""
    if well:
        return case.when(NodeDone(path, 1, {"status": 200, "headers": {}, "body": "", "json": None}))
    return case.when(NodeBroke(path, 1, {"type": "connect", "message": "nothing listens"}))


def test_the_items_around_a_failure_are_kept_by_the_outermost_loop() -> None:
    """In the second host of the second region; the first region is done. Passes are gone from the state, what they were is not."""
    case = given(NESTED).started()
    for host in (0, 1):
        case = run(case, f"regions[0]/hosts[{host}]/check", well=True)
    case = run(case, "regions[1]/hosts[0]/check", well=True)
    case = run(case, "regions[1]/hosts[1]/check", well=False)
    assert case.state.ended
    assert list(case.state.nodes) == ["regions"]
    assert case.node("regions").passes == {
        "items": {"regions[1]": "us", "regions[1]/hosts[1]": "us-2"},
        "done": ["eu"],
        "count": 1,
        "total": 2,
    }


def test_items_that_are_too_long_to_be_kept_leave_their_place_empty() -> None:
    """The state does not grow with what items hold."""
    long = "x" * 300
    case = given(
        f"nodes:\n  - id: each\n    type: foreach\n    with: {{items: [{long}, b], as: it}}\n"
        "    body: [{id: check, type: http, with: {url: 'http://e.org'}}]\n"
    ).started()
    case = run(case, "each[0]/check", well=True)
    case = run(case, "each[1]/check", well=False)
    assert case.node("each").passes == {"items": {"each[1]": "b"}, "done": [None], "count": 1, "total": 2}
