"""Who answers agents, and what agents are set to."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from bot.compose.environment import key_variable, scripted, scripts
from bot.config.library import Library
from bot.config.settings import Settings, SettingsError, load_settings
from engine.models.model_turns import ModelTurns
from engine.nodes.runtime.runner import Completed, Failed, Outcome
from engine.nodes.runtime.table import with_runner
from tests.engine.agents.test_runner import config
from tests.nodes.nodekit import Context
from tests.support.claude_server import claude_server, text


def settings(cwd: Path, **env: str) -> Settings:
    """The settings of a process with this environment."""
    return load_settings(env, cwd=cwd)


def dev(found: Settings) -> Settings:
    """The same in the local workspace."""
    return replace(found, agents=replace(found.agents, scripted="without_key"))


async def run(found: Settings, folder: Path) -> Outcome:
    """One model call with these settings."""
    models = ModelTurns(found.env, answers=scripts(found))
    try:
        return await models(config(), Context(folder).build(path="diagnose/turn[1]"))
    finally:
        await models.close()


def model_of(outcome: Outcome) -> str:
    """Who answered."""
    assert isinstance(outcome, Completed), outcome
    return str(outcome.output["model"])


async def test_with_a_key_claude_answers(tmp_path: Path) -> None:
    """A key makes it Claude, in the local workspace too, and the key of sayso's own wins."""
    async with claude_server() as server:
        env = {**server.environ(), "SAYSO_ANTHROPIC_API_KEY": server.environ()["ANTHROPIC_API_KEY"]}
        found = dev(settings(tmp_path, **{**env, "ANTHROPIC_API_KEY": "sk-wrong"}))
        server.queue(text("Hello."))
        assert key_variable(found) == "SAYSO_ANTHROPIC_API_KEY"
        assert model_of(await run(found, tmp_path)) == "claude-sonnet-5-5"
        assert server.refused == []


async def test_without_a_key_a_turn_fails_and_names_the_variable(tmp_path: Path) -> None:
    """Outside the local workspace nobody speaks for Claude."""
    outcome = await run(settings(tmp_path), tmp_path)
    assert isinstance(outcome, Failed)
    assert outcome.type == "access_denied"
    assert "SAYSO_ANTHROPIC_API_KEY or ANTHROPIC_API_KEY" in outcome.message


async def test_without_a_key_scripts_answer_in_the_local_workspace(tmp_path: Path) -> None:
    """There the words of the scripted provider stand in for Claude's."""
    assert model_of(await run(dev(settings(tmp_path)), tmp_path)) == "scripted"


async def test_a_named_script_answers_before_claude(tmp_path: Path) -> None:
    """SAYSO_SCRIPT is taken at its word where a key is set too, but never by the bot in Slack."""
    (tmp_path / "mine.yml").write_text("- {text: mine}\n")
    found = settings(tmp_path, SAYSO_SCRIPT="mine.yml", ANTHROPIC_API_KEY="sk-any")
    assert model_of(await run(found, tmp_path)) == "scripted"
    in_slack = replace(found, agents=replace(found.agents, scripted="never"))
    assert not scripted(in_slack)


def test_settings_of_agents_have_defaults(tmp_path: Path) -> None:
    """Without any, a day may cost 50 dollars, prices are the known ones, and no link is one."""
    agents = settings(tmp_path).agents
    assert (agents.day_cap, agents.model, dict(agents.prices)) == (Decimal(50), None, {})
    assert (agents.link_hosts, agents.mcp_config, agents.script) == (frozenset(), None, None)


def test_settings_of_agents_are_read(tmp_path: Path) -> None:
    """The cap is exact, prices come as JSON or from a file, hosts are in small letters."""
    price = '{"claude-x": {"input": 2, "output": "10.5"}}'
    (tmp_path / "prices.json").write_text(price)
    first = settings(tmp_path, SAYSO_PRICES=price, SAYSO_MAX_COST_PER_DAY="2.50", SAYSO_MODEL="claude-x")
    second = settings(tmp_path, SAYSO_PRICES="prices.json", SAYSO_LINK_HOSTS="Grafana.local, *.example.com")
    assert first.agents.prices == second.agents.prices == {"claude-x": {"input": 2, "output": "10.5"}}
    assert (first.agents.day_cap, first.agents.model) == (Decimal("2.50"), "claude-x")
    assert second.agents.link_hosts == {"grafana.local", "*.example.com"}


@pytest.mark.parametrize(("given", "cap"), [("none", None), ("off", None), ("0", Decimal(0)), ("$5", 5)])
def test_a_cap_can_be_none_and_zero(tmp_path: Path, given: str, cap: Any) -> None:
    """`none` is without a cap, and 0 lets nothing be spent without a person."""
    assert settings(tmp_path, SAYSO_MAX_COST_PER_DAY=given).agents.day_cap == cap


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("SAYSO_MAX_COST_PER_DAY", "many", "it takes dollars"),
        ("SAYSO_MAX_COST_PER_DAY", "-1", "it takes dollars"),
        ("SAYSO_MAX_COST_PER_DAY", "NaN", "it takes dollars"),
        ("SAYSO_PRICES", "{no", "SAYSO_PRICES takes prices as JSON"),
        ("SAYSO_PRICES", "nowhere.json", "SAYSO_PRICES takes prices as JSON"),
        ("SAYSO_PRICES", '{"x": {"input": 1}}', "the price of x has no output"),
        ("SAYSO_LINK_HOSTS", "https://example.com/", "host names"),
        ("SAYSO_LISTEN", "everything", "mention, requester, thread"),
        ("SAYSO_LISTEN", "#ops=thread", "by channel ID"),
        ("SAYSO_ENCRYPTION_KEY", "abc", "the setting is called SAYSO_ENCRYPTION_KEYS"),
        ("SAYSO_ENCRYPTION_KEYS", "00" * 32 + ", abc", "number 2 has 3 characters"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, name: str, given: str, told: str) -> None:
    """Which setting it is, and what it takes."""
    with pytest.raises(SettingsError, match=name) as refused:
        settings(tmp_path, **{name: given})
    assert told in str(refused.value)


def test_a_script_beside_a_flow_is_no_flow(tmp_path: Path) -> None:
    """The folder of flows is served without a word about the scripts in it."""
    (tmp_path / "hello.yml").write_text("flow: hello\nnodes: [{id: a, type: noop}]\n")
    (tmp_path / "hello.script.yml").write_text("- {text: Hello.}\n")
    library = Library(tmp_path)
    assert list(library.refresh()) == ["hello"]
    assert library.errors == {}


async def test_a_runner_that_is_there_already_stays() -> None:
    """Whoever brings a runner for model calls keeps it: a simulation, a test."""

    async def ours(config: Any, ctx: Any) -> Outcome:
        return Completed("ours")

    async def other(config: Any, ctx: Any) -> Outcome:
        return Completed("other")

    both = with_runner({"shell": other, "turn": ours}, "turn", other)
    assert (both["turn"], both["shell"], sorted(both)) == (ours, other, ["shell", "turn"])
    more = with_runner({"shell": other}, "turn", ours)
    assert (more["turn"], sorted(more), len(more)) == (ours, ["shell", "turn"], 2)


def test_a_process_without_agents_loads_no_runner_and_no_sdk() -> None:
    """Putting an engine together imports neither the runner of model calls nor the SDK."""
    script = (
        "import sys, bot.compose.environment\n"
        "print([name for name in sys.modules if name in ('anthropic', 'engine.models.turn_runner', "
        "'engine.models.claude', 'engine.models.scripted')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
