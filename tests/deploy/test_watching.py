"""The dashboard and the alerts name metrics that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import yaml

from bot.serve.metrics import Metrics, Sources

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
    """No panel is empty for ever, and nothing is served that nobody would see."""
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
