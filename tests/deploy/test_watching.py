"""The dashboard and the alerts name metrics that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import yaml

from bot.serve.metrics import MOST_GROUPS, Metrics, Sources
from engine.journal.events import PromptCancelled

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def served() -> set[str]:
    """The names of all samples that the bot serves."""
    engine: Any = SimpleNamespace(subscribe=lambda *about: None)
    metrics = Metrics(Sources(engine, {}, cast(Any, None), None, lambda: ""))
    found = {family.name: family.type for family in metrics.registry.collect()}
    endings = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "gauge": ("",)}
    return {name + ending for name, kind in found.items() for ending in endings[kind]}


def named(text: str) -> set[str]:
    """The metrics that a text names."""
    return set(re.findall(r"\bsayso_\w+", text))


def test_the_dashboard_shows_every_metric() -> None:
    """No panel is empty forever, and nothing is served that nobody would see."""
    board = json.loads((DEPLOY / "grafana.json").read_text())
    shown = {name for panel in board["panels"] for each in panel["targets"] for name in named(each["expr"])}
    assert shown <= served()
    assert {re.sub("_(bucket|count|sum)$", "", name) for name in served() - shown} <= {
        re.sub("_(bucket|count|sum)$", "", name) for name in shown
    }


def test_each_alert_watches_something_that_is_served() -> None:
    """A rule over a metric that does not exist never fires."""
    (group,) = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]:
        assert named(rule["expr"]) <= served(), rule["alert"]
        assert rule["annotations"]["summary"]


def test_groups_that_come_from_inputs_are_not_without_number() -> None:
    """A flow may ask the group that somebody types: what is beyond a hundred of them is counted together."""
    engine: Any = SimpleNamespace(subscribe=lambda *about: None)
    metrics = Metrics(Sources(engine, {}, cast(Any, None), None, lambda: ""))
    now = "2026-11-23T12:00:00.000Z"
    for number in range(MOST_GROUPS + 20):
        asked = SimpleNamespace(approvers=(f"@team-{number}",), who=(), requested_at=now)
        state: Any = SimpleNamespace(flow_name="gate", prompts={"p": asked})
        metrics.happened(
            state, [PromptCancelled(seq=1, timestamp=now, path="ok", prompt_id="p", reason="over")]
        )
    (family,) = [each for each in metrics.registry.collect() if each.name == "sayso_prompt_wait_seconds"]
    counts = {each.labels["group"]: each.value for each in family.samples if each.name.endswith("_count")}
    assert len(counts) == MOST_GROUPS + 1
    assert counts["other"] == 20
