"""`sayso doctor`, the app's manifest, and the settings file that comes with it."""

from __future__ import annotations

import asyncio
import copy
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot.config import settings
from bot.doctor.agents import check_models
from bot.doctor.blobs import check_blobs
from bot.doctor.checks import check_apart, check_database, check_settings
from bot.doctor.manifest import load_manifest, manifest_problems
from bot.wire.manifest import NEEDED, manifest_text
from engine.run.flow_files import load_flows
from engine.storage.blobs import Blobs
from tests.cli.clikit import Cli, Done
from tests.support import bucket
from tests.support.acting import Workspace
from tests.support.claude_server import claude_server
from tests.support.workspace import running_workspace

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = ROOT / "manifest.yml"


@pytest.fixture
async def workspace() -> AsyncIterator[Workspace]:
    """A local workspace in this process, to which commands in others connect."""
    async with running_workspace() as started:
        yield started


async def doctor(cli: Cli, *arguments: str) -> tuple[Done, dict[str, dict[str, Any]]]:
    """Run doctor beside the workspace; its checks by name."""
    done = await asyncio.to_thread(cli.run, "doctor", "--json", *arguments)
    return done, {check["name"]: check for check in done.json["checks"]}


def connect(cli: Cli, workspace: Workspace, **other: str) -> None:
    """Point a command at the workspace."""
    cli.env = {
        "SLACK_API_URL": workspace.api_url,
        "SLACK_BOT_TOKEN": workspace.bot_token,
        "SLACK_APP_TOKEN": workspace.app_token,
        **other,
    }
    cli.write("flows/good.yml", "flow: good\nnodes:\n  - {id: a, type: noop}\n")


# --- against a workspace -----------------------------------------------------------------------------------


async def test_a_sound_installation_passes(cli: Cli, workspace: Workspace) -> None:
    """With tokens, scopes, flows and manifest in place every check is there and none fails."""
    connect(cli, workspace)
    done, checks = await doctor(cli, "--manifest", str(MANIFEST))
    assert (done.code, done.json["ok"]) == (0, True), done
    assert {name for name, check in checks.items() if check["level"] == "fail"} == set()
    for name in (
        "python",
        "sqlite",
        "flows",
        "database",
        "manifest",
        "bot token",
        "app token",
        "scopes",
        "threads",
    ):
        assert name in checks


async def test_nothing_is_posted_and_nothing_is_made(cli: Cli, workspace: Workspace) -> None:
    """Doctor only reads: no message in the workspace, no database on the disk."""
    connect(cli, workspace)
    await doctor(cli)
    assert [call.method for call in workspace.calls if call.method.startswith("chat.")] == []
    assert not (cli.cwd / ".sayso").exists()


async def test_a_missing_scope_is_named_with_what_it_is_for(cli: Cli, workspace: Workspace) -> None:
    """A right that is missing is a warning that says what will not work, and how it is added."""
    connect(cli, workspace)
    workspace.faults.set_scopes([scope for scope in NEEDED if scope != "usergroups:read"])
    done, checks = await doctor(cli)
    assert (done.code, checks["scopes"]["level"]) == (0, "warn")
    assert "usergroups:read: needed for approvers given as @group" in checks["scopes"]["text"]


NAMES = """
flow: names
channels: ["#ops", "#nowhere"]
nodes:
  - id: gate
    type: approval
    with: {message: Go?, approvers: ["@sre", "@ghosts", "@empty", ben@example.com, nobody@example.com]}
  - {id: tell, type: message, with: {to: "#elsewhere", text: Done.}}
"""


async def test_what_flows_name_has_to_be_there(cli: Cli, workspace: Workspace) -> None:
    """Channels without the bot, groups that are empty or unknown and people nobody knows are told, with the flow."""
    connect(cli, workspace, SAYSO_ADMINS="U0NOBODY")
    cli.write("flows/names.yml", NAMES)
    workspace.add_group("empty", [])
    done = await asyncio.to_thread(cli.run, "doctor", "--json")
    told = [check["text"] for check in done.json["checks"] if check["level"] == "warn"]
    assert [text for text in told if "named by" in text] == [
        "#elsewhere, named by flow names: the bot is not in this channel",
        "#nowhere, named by flow names: the bot is not in this channel",
        "@empty, named by flow names: this user group is empty",
        "@ghosts, named by flow names: there is no such user group",
        "U0NOBODY, named by SAYSO_ADMINS: not a member of the workspace",
        "nobody@example.com, named by flow names: not a member of the workspace",
    ]
    assert done.code == 0


async def test_each_kind_of_conversation_is_tried(cli: Cli, workspace: Workspace) -> None:
    """A kind that may not be listed is told by itself, with the scopes to add."""
    connect(cli, workspace)
    workspace.faults.set_scopes([scope for scope in NEEDED if scope != "im:read"])
    _, checks = await doctor(cli)
    assert [checks[name]["level"] for name in ("threads", "private threads", "direct messages")] == [
        "ok",
        "ok",
        "fail",
    ]
    assert "im:read" in checks["direct messages"]["hint"]


async def test_without_the_right_to_read_threads_it_fails(cli: Cli, workspace: Workspace) -> None:
    """Where no history may be read the bot cannot work: scopes and threads fail."""
    connect(cli, workspace)
    workspace.faults.set_scopes([scope for scope in NEEDED if not scope.endswith(":history")])
    done, checks = await doctor(cli)
    assert (done.code, checks["scopes"]["level"], checks["threads"]["level"]) == (1, "fail", "fail"), done


async def test_a_bad_token_fails_with_what_to_do(cli: Cli, workspace: Workspace) -> None:
    """A token that Slack does not know is named by its setting."""
    connect(cli, workspace, SLACK_BOT_TOKEN="xoxb-wrong")
    done, checks = await doctor(cli)
    assert (done.code, checks["bot token"]["level"], checks["app token"]["level"]) == (1, "fail", "ok"), done
    assert "SLACK_BOT_TOKEN" in checks["bot token"]["text"]
    assert "xoxb-wrong" not in done.out + done.err


async def test_tokens_in_each_other_s_place_are_noticed(cli: Cli, workspace: Workspace) -> None:
    """The app token as bot token is told without asking Slack."""
    connect(cli, workspace, SLACK_BOT_TOKEN=workspace.app_token)
    done, checks = await doctor(cli)
    assert (done.code, "is it the other token?" in checks["tokens"]["text"]) == (1, True), done
    assert workspace.calls == []


# --- without Slack -----------------------------------------------------------------------------------------


async def test_slack_that_cannot_be_reached_is_said(cli: Cli) -> None:
    """No server at the address: both tokens fail with what to check, and no traceback."""
    cli.env = {
        "SLACK_API_URL": "http://127.0.0.1:9/api/",
        "SLACK_BOT_TOKEN": "xoxb-1",
        "SLACK_APP_TOKEN": "xapp-1",
    }
    done, checks = await doctor(cli)
    assert (done.code, "SLACK_API_URL" in checks["bot token"]["text"]) == (1, True), done
    assert "Traceback" not in done.err


async def test_broken_flows_and_missing_secrets_are_told(cli: Cli) -> None:
    """A broken file fails with its place; a secret that a sound flow names and nobody set is a warning."""
    cli.write("flows/bad.yml", "flow: bad\nnodes: [{id: a, type: shel}]\n")
    cli.write(
        "flows/deploy.yml",
        "flow: deploy\nnodes:\n  - id: a\n    type: shell\n"
        '    with: {run: [ls], env: {T: "{{ secrets.TOKEN }}"}}\n',
    )
    done = await asyncio.to_thread(cli.run, "doctor")
    assert done.code == 1
    assert "bad.yml:2:23: unknown node type `shel`" in done.out
    assert "flow deploy: secret TOKEN is not set: set SAYSO_SECRET_TOKEN" in done.out


AGENT = """
flow: look
nodes:
  - id: agent
    type: agent
    with: {prompt: Look., tools: [{mcp: {server: grafna, tools: [query]}}]}
"""


async def test_what_is_wrong_with_mcp_servers_is_told(cli: Cli) -> None:
    """A server that no file has, a secret without a value, a program that is not there, and a broken file."""
    cli.write("flows/look.yml", AGENT)
    entry = '{"command": "no-such-program", "env": {"A": "${SAYSO_SECRET_GRAFANA}"}}'
    cli.write("flows/mcp.json", f'{{"mcpServers": {{"grafana": {entry}}}}}')
    done, _ = await doctor(cli)
    told = [check for check in done.json["checks"] if check["name"] == "mcp"]
    assert [check["level"] for check in told] == ["ok", "fail", "warn", "warn"]
    assert "grafana" in told[1]["hint"]
    assert "SAYSO_SECRET_GRAFANA" in told[2]["text"]
    assert "no-such-program" in told[3]["text"]
    cli.write("elsewhere.json", "{")
    cli.env = {**cli.env, "SAYSO_MCP_CONFIG": "elsewhere.json"}
    _, checks = await doctor(cli)
    assert (checks["mcp"]["level"], "elsewhere.json" in checks["mcp"]["text"]) == ("fail", True)


AGENTS = """
flow: incident
nodes:
  - {id: helper, type: agent, with: {prompt: Why is it failing?}}
  - {id: other, type: agent, with: {prompt: And why now?, model: claude-unheard-of}}
"""


async def test_what_is_probably_not_meant_in_a_flow_is_told(cli: Cli) -> None:
    """The warnings of `validate`, with file and line."""
    node = "id: a\n    type: ask\n    with:\n      message: Ship #42 now?"
    cli.write("flows/cut.yml", f"flow: cut\nnodes:\n  - {node}\n")
    done, _ = await doctor(cli)
    told = [check for check in done.json["checks"] if (check["name"], check["level"]) == ("flows", "warn")]
    assert any("cut.yml:6" in check["text"] for check in told), told


async def test_flows_with_agents_need_a_key(cli: Cli) -> None:
    """Without one it fails and names the variables; what a model costs has to be known, and a script is told."""
    _, checks = await doctor(cli)
    assert "claude" not in checks
    cli.write("flows/incident.yml", AGENTS)
    done, checks = await doctor(cli)
    assert done.code == 1
    assert checks["claude"]["level"] == "fail"
    assert "ANTHROPIC_API_KEY or SAYSO_ANTHROPIC_API_KEY" in checks["claude"]["hint"]
    assert (checks["prices"]["level"], "claude-unheard-of" in checks["prices"]["text"]) == ("warn", True)
    cli.env |= {"ANTHROPIC_API_KEY": "sk-any", "SAYSO_MAX_COST_PER_DAY": "none", "SAYSO_SCRIPT": "gone.yml"}
    cli.env["SAYSO_PRICES"] = '{"claude-unheard-of": {"input": 1, "output": 2}}'
    _, checks = await doctor(cli)
    assert (checks["claude"]["level"], "sk-any" in str(checks)) == ("ok", False)
    assert (checks["budget"]["level"], checks["script"]["level"], "prices" in checks) == (
        "warn",
        "fail",
        False,
    )


async def test_a_damaged_database_fails(cli: Cli) -> None:
    """A file that is not a sound database is told, and left as it is."""
    cli.write("flows/hello.yml", "flow: hello\nnodes:\n  - {id: a, type: noop}\n")
    await asyncio.to_thread(cli.run, "run", "hello")
    file = cli.cwd / ".sayso/sayso.db"
    damaged = b"This is no database at all. " * 1000
    file.write_bytes(damaged)
    for name in ("sayso.db-wal", "sayso.db-shm"):
        (cli.cwd / ".sayso" / name).unlink(missing_ok=True)
    done, checks = await doctor(cli)
    assert (done.code, checks["database"]["level"]) == (1, "fail"), done
    assert file.read_bytes() == damaged


async def test_a_setting_that_cannot_be_used_is_two(cli: Cli) -> None:
    """A number that is none is a clear message and exit code 2."""
    cli.env = {"SAYSO_CONNECTIONS": "many"}
    done = await asyncio.to_thread(cli.run, "doctor")
    assert (done.code, "SAYSO_CONNECTIONS is 'many'" in done.err) == (2, True), done


def test_a_package_with_a_name_of_ours_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another distribution with a package `bot` fails, and its name is said."""
    installed = tmp_path / "chatter-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: chatter\nVersion: 1.0\n")
    (installed / "top_level.txt").write_text("bot\n")
    monkeypatch.syspath_prepend(tmp_path)
    [check] = check_apart()
    assert (check.level, "`bot` of chatter" in check.text) == ("fail", True)


def test_an_environment_of_its_own_is_fine_and_the_one_of_the_machine_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a virtual environment nothing is to be done; in the Python of the machine the hint says how to install it."""
    monkeypatch.setattr(sys, "base_prefix", "/elsewhere")
    assert [check.level for check in check_apart()] == ["ok"]
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    [check] = check_apart()
    assert (check.level, "pipx" in (check.hint or "")) == ("warn", True)


# --- the manifest ------------------------------------------------------------------------------------------


def test_the_manifest_is_the_one_for_the_examples(cli: Cli) -> None:
    """The file is what `sayso manifest` prints for the examples, and has all that they need."""
    done = cli.run("--flows", str(ROOT / "examples"), "manifest")
    assert (done.code, done.out) == (0, MANIFEST.read_text())
    flows = list(load_flows(ROOT / "examples")[0].values())
    assert list(manifest_problems(load_manifest(MANIFEST), flows)) == []


REACTING = """
flow: react
triggers:
  - {reaction: eyes}
  - {shortcut: "Look at it"}
nodes:
  - {id: file, type: ask, with: {message: "Which?", accept: files}}
"""


def test_a_manifest_has_what_the_flows_use_and_no_more(cli: Cli) -> None:
    """Reactions, files and the shortcut are asked for only where a flow uses them; `--all` asks for everything."""
    cli.write("flows/plain.yml", "flow: plain\nnodes: [{id: a, type: noop}]\n")
    plain = cli.run("manifest").out
    assert not any(word in plain for word in ("reactions:read", "reaction_added", "files:read", "shortcuts"))
    cli.write("flows/react.yml", REACTING)
    more = cli.run("manifest").out
    assert all(word in more for word in ("reactions:read", "reaction_added", "files:read", "callback_id"))
    assert cli.run("manifest", "--all").out == more


def test_the_manifest_of_an_agent_warns_and_has_what_an_agent_needs(cli: Cli, tmp_path: Path) -> None:
    """What cannot be undone is said on standard error and in the file; nothing else changes, and nothing is missing."""
    cli.write("flows/good.yml", "flow: good\nnodes:\n  - {id: a, type: noop}\n")
    done = cli.run("manifest", "--agent")
    assert "guests cannot use it" in done.err
    file = tmp_path / "agent.yml"
    file.write_text(done.out)
    manifest = load_manifest(file)
    assert manifest["features"]["agent_view"]["suggested_prompts"] == [{"title": "good", "message": "good"}]
    assert "assistant:write" in manifest["oauth_config"]["scopes"]["bot"]
    assert list(manifest_problems(manifest, [])) == []
    manifest["settings"]["event_subscriptions"]["bot_events"].remove("agent_session_stopped")
    assert list(manifest_problems(manifest, [])) == ["event agent_session_stopped is missing"]
    assert "agent_view" not in manifest_text([])


def test_the_manifest_has_only_what_slack_takes() -> None:
    """Top-level fields and slash command are of the documented shape, within Slack's sizes."""
    manifest = load_manifest(MANIFEST)
    assert set(manifest) == {"_metadata", "display_information", "features", "oauth_config", "settings"}
    (command,) = manifest["features"]["slash_commands"]
    assert (command["command"], len(command["usage_hint"]) <= 1000) == ("/sayso", True)
    assert re.fullmatch("#[0-9a-f]{6}", manifest["display_information"]["background_color"])


CHANGES = {
    "name": (("display_information", "name"), "n" * 36, "display_information.name"),
    "description": (("display_information", "description"), "d" * 141, "display_information.description"),
    "bot user": (("features", "bot_user"), None, "features.bot_user"),
    "home": (("features", "app_home", "home_tab_enabled"), False, "home_tab_enabled"),
    "messages": (("features", "app_home", "messages_tab_enabled"), False, "messages_tab_enabled"),
    "read only": (("features", "app_home", "messages_tab_read_only_enabled"), True, "read_only"),
    "command": (("features", "slash_commands"), [], "no /sayso"),
    "scopes": (("oauth_config", "scopes", "bot"), ["chat:write"], "users:read is missing"),
    "events": (("settings", "event_subscriptions", "bot_events"), ["app_mention"], "event message.channels"),
    "socket": (("settings", "socket_mode_enabled"), False, "socket_mode_enabled"),
    "buttons": (("settings", "interactivity", "is_enabled"), False, "interactivity.is_enabled"),
    "url": (("settings", "interactivity", "request_url"), "https://x.example", "interactivity.request_url"),
    "rotation": (("settings", "token_rotation_enabled"), True, "token_rotation_enabled"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_thing_that_a_manifest_needs_is_noticed_when_it_is_changed(name: str) -> None:
    """A manifest with one thing changed is told exactly that."""
    path, value, said = CHANGES[name]
    manifest = copy.deepcopy(load_manifest(MANIFEST))
    place = manifest
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    problems = list(manifest_problems(manifest))
    assert problems
    assert any(said in problem for problem in problems)


@pytest.mark.parametrize("manifest", [None, [], "text", {}, {"features": 3, "settings": []}])
def test_anything_else_is_no_manifest(manifest: Any) -> None:
    """Whatever is in the file, it is told what is wrong and nothing breaks."""
    assert list(manifest_problems(manifest))


async def test_settings_that_do_nothing_are_told(cli: Cli) -> None:
    """A setting with a typing mistake in its name, and an admin who is nobody, are warnings that say what to write."""
    cli.env = {"SAYSO_CHANELS": "C012345", "SAYSO_ADMINS": "bob,U012ABCDEF", "SAYSO_SECRET_TOKEN": "x"}
    done = await asyncio.to_thread(cli.run, "doctor", "--json")
    told = [check for check in done.json["checks"] if check["name"] == "settings"]
    assert [(check["level"], check["text"], check["hint"]) for check in told] == [
        ("warn", "Unknown setting SAYSO_CHANELS (ignored)", "Did you mean SAYSO_CHANNELS?"),
        (
            "warn",
            "SAYSO_ADMINS has 'bob', which does not identify anyone",
            "Write a user id (U012ABCDEF) or an e-mail address.",
        ),
    ]


# --- .env.example ------------------------------------------------------------------------------------------


def test_the_example_has_every_setting() -> None:
    """Every variable that the settings read is in `.env.example`, and no other (but for an example of a secret)."""
    source = Path(settings.__file__).read_text()
    read = set(re.findall(r'"((?:SAYSO|SLACK)_[A-Z_]+)"', source))
    example = (ROOT / ".env.example").read_text()
    named = set(re.findall(r"^#?((?:SAYSO|SLACK)_[A-Z_]+)=", example, re.MULTILINE))
    assert named - {"SAYSO_SECRET_DEPLOY_TOKEN"} == read


def test_the_example_works_as_it_is(cli: Cli) -> None:
    """Copied to `.env` unchanged, it is read, and what is not filled in is told as such."""
    cli.write(".env", (ROOT / ".env.example").read_text())
    done = cli.run("sessions", "list")
    assert (done.code, done.err) == (0, "")


async def test_it_says_what_a_model_can_do_and_when_it_retires(tmp_path: Path) -> None:
    """As the models endpoint says it, else as this release knows it."""
    flow = "flow: f\nnodes:\n  - {id: a, type: agent, with: {prompt: x, model: claude-next}}\n"
    (tmp_path / "f.yml").write_text(flow)
    async with claude_server() as server:
        server.models["claude-next"] = {
            "display_name": "Next",
            "created_at": "2026-11-01T00:00:00Z",
            "lifecycle": "deprecated",
            "retires_at": "2027-03-01T00:00:00Z",
            "max_input_tokens": 400_000,
            "max_tokens": 64_000,
        }
        here = settings.load_settings(server.environ(), cwd=tmp_path)
        found = [check async for check in check_models(here, list(load_flows(tmp_path)[0].values()))]
    named, default = found
    assert (named.level, default.level) == ("warn", "ok")
    assert "claude-next: 400,000 tokens, answers up to 64,000" in named.text
    assert "deprecated and retires on 2027-03-01" in named.text
    assert "from the data of this release" in default.text


# --- files that machines share ---------------------------------------------------------------------------------


def blobs_check(tmp_path: Path, url: str, **env: str) -> Any:
    """What is found of a place for files."""
    given = {"SAYSO_BLOBS": url, **bucket.environment(), **env}
    here = settings.load_settings(given, cwd=tmp_path)

    async def checks() -> list[Any]:
        return [check async for check in check_blobs(here)]

    (check,) = asyncio.run(checks())
    return check


@pytest.mark.parametrize(("here", "hints"), [(None, ["pip install 'sayso[web]'"]), (object(), [])])
def test_a_login_by_a_provider_needs_its_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: object, hints: list[str]
) -> None:
    """Where it is set and Authlib is missing, it is said what to install."""
    monkeypatch.setattr("bot.doctor.checks.find_spec", lambda name: here)
    given = settings.load_settings({"SAYSO_WEB_OIDC_ISSUER": "https://slack.com"}, cwd=tmp_path)
    assert [check.hint for check in check_settings(given)] == hints


def test_a_bucket_that_takes_files_is_fine(tmp_path: Path) -> None:
    """A file is kept, read and removed; nothing of it is left."""
    url = bucket.new_bucket()
    check = blobs_check(tmp_path, url)
    assert (check.level, check.text) == ("ok", f"{url} stores, returns and deletes files")
    assert Blobs(url, bucket.environment()).sessions() == []


def test_wrong_credentials_of_a_bucket_are_told(tmp_path: Path) -> None:
    """With what to look at, and never with the key itself."""
    with bucket.refusing_everybody():
        check = blobs_check(tmp_path, "s3://files", AWS_SECRET_ACCESS_KEY="never-shown")
    assert check.level == "fail"
    assert check.text.startswith("s3://files refuses to keep files of sessions: check the credentials")
    assert "never-shown" not in check.text


@pytest.mark.parametrize("url", ["s3://", "http://files", "files", "file://files"])
def test_what_is_no_place_for_files_is_refused(tmp_path: Path, url: str) -> None:
    """With what the setting takes."""
    with pytest.raises(settings.SettingsError, match=r"SAYSO_BLOBS is .* it takes s3://bucket/prefix"):
        settings.load_settings({"SAYSO_BLOBS": url}, cwd=tmp_path)


def test_a_home_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Doctor says that the folder is not writable, instead of SQLite's words for it, and advises no restore."""
    here = settings.load_settings({}, cwd=tmp_path, database_url=f"sqlite:///{tmp_path / 'sayso.db'}")
    (tmp_path / "sayso.db").write_bytes(b"not even a database")
    monkeypatch.setattr(os, "access", lambda *_: False)
    [found] = check_database(here)
    assert (found.level, "is not writable for this user" in found.text) == ("fail", True)
    assert "Restore" not in (found.hint or "")
