"""What the local workspace offers to say: made from the flows that are served."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.inbound.triggers import StartLine, parse
from bot.serve.dev import suggestions
from bot.workspace import Suggestion
from engine.flow import Flow
from engine.flow.load import is_flow_file
from engine.run.flow_files import load_flow_file
from tests.support.acting import Workspace

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def flows() -> list[Flow]:
    """The examples."""
    return [load_flow_file(file) for file in EXAMPLES.glob("*.yml") if is_flow_file(file.name)]


def test_every_flow_is_offered_where_it_seems_to_belong(flows: list[Flow], tmp_path: Path) -> None:
    """What works anywhere comes first. A release flow is in #releases, an incident flow in #incidents, an alert where it counts, any other in #ops;
    one of webhooks nowhere."""
    offered = [(each.channel, each.text) for each in suggestions(flows, tmp_path / "no-demo")]
    assert offered == [
        ("ops", "@sayso disk-cleanup"),
        ("ops", "@sayso handover"),
        ("ops", "@sayso triage"),
        ("ops", "@sayso access-request"),
        ("ops", "@sayso advise"),
        ("ops", "@sayso certificate-renewal"),
        ("ops", "@sayso database-failover"),
        ("ops", "@sayso feature-rollout"),
        ("incidents", "@sayso incident"),
        ("incidents", "@sayso incident-first-response"),
        ("ops", "@sayso investigate"),
        ("incidents", "ALERT: checkout is down"),
        ("releases", "@sayso release-checklist"),
        ("ops", "@sayso rolling-restart"),
        ("ops", "@sayso scale-out"),
        ("ops", "@sayso temporary-access"),
        ("ops", "@sayso help"),
    ]


def test_the_demo_folder_is_filled_in_so_that_nothing_has_to_be_typed(
    flows: list[Flow], tmp_path: Path
) -> None:
    """With a demo folder the line of disk-cleanup names it in full, and reads back as that folder in spite of spaces."""
    demo = tmp_path / "a home" / "demo"
    demo.mkdir(parents=True)
    text = next(each.text for each in suggestions(flows, demo) if "disk-cleanup" in each.text)
    line = parse(text.removeprefix("@sayso "), [flow.name for flow in flows])
    assert line == StartLine("disk-cleanup", {"path": str(demo)})


def test_the_workspace_takes_them(flows: list[Flow], tmp_path: Path) -> None:
    """The default workspace has every channel that is named, and labels and hints are there to read."""
    offered: list[Suggestion] = suggestions(flows, tmp_path)
    Workspace(suggestions=offered)
    assert all(each.label and each.hint for each in offered)
