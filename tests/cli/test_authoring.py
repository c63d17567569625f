"""`sayso mcp` for a coding agent that writes flows: a scripted model that errs, with the official client, and hostile input. Nothing
invalid is ever saved, nothing is written elsewhere, and nothing of a flow runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client

from bot.cli.authoring import Bench
from engine.language.errors import SaysoError
from engine.run.flow_files import load_flows
from tests.cli.clikit import environment
from tests.support.bot import ROOT

SKILL = (ROOT / "skills/sayso/SKILL.md").read_text()
FLOW, SCENARIO = re.findall(r"```yaml\n(.*?)```", SKILL, re.S)
WRONG = [
    (case["flow"], case["says"])
    for file in ("mistakes.yml", "slips.yml")
    for case in yaml.safe_load((ROOT / "tests/flow" / file).read_text())
    if case["says"] is not None
]
NAMES = ["schema", "validate", "explain", "test", "save"]


@pytest.fixture(name="folder")
def folder_of_flows(tmp_path: Path) -> Path:
    """An empty folder of flows."""
    folder = tmp_path / "flows"
    folder.mkdir()
    return folder


@pytest.fixture(name="bench")
def tools_over_it(folder: Path) -> Bench:
    """The tools, without a client."""
    return Bench(lambda: folder)


@asynccontextmanager
async def session(cwd: Path, **env: str) -> AsyncIterator[ClientSession]:
    """The official client, with a server of its own over pipes."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "bot.cli", "mcp"],
        env=environment(cwd, PYTHONPATH=str(ROOT), **env),
        cwd=cwd,
    )
    async with stdio_client(server) as (read, write), ClientSession(read, write) as client:
        await client.initialize()
        yield client


def everything(folder: Path) -> dict[str, bytes]:
    """All files around a folder of flows, with what is in them; not what Python keeps for itself."""
    return {
        str(path.relative_to(folder.parent)): path.read_bytes()
        for path in folder.parent.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


ERRS = [
    # What the model writes, and what it writes there once it is told that this line is wrong.
    ("  - id: tell\n    type: message", " - id: tell\n    type: message"),
    ("    type: approval", "    type: aproval"),
    ('      approvers: ["@sre"]\n', ""),
    ('      approvers: ["@sre"]\n', "      approvers: []\n"),
    ("{{ nodes.health.status }}", "{{ nodes.helth.status }}"),
    ("      on_timeout: reject\n", "      on_timeout: escalate\n"),
    (
        'with: {run: [./restart.sh, "{{ inputs.service }}"]}',
        "with: {run: [./restart.sh, {{ inputs.service }}]}",
    ),
    ("flow: restart", "flow: Restart It"),
]
"""Drafts with one mistake each: the words that are right, and those that are not."""


@pytest.mark.process
async def test_a_model_that_errs_is_led_to_a_flow_that_is_valid_and_saves_nothing_before(
    folder: Path,
) -> None:
    """It tries to save each draft, and corrects only what is at the line that a problem names, or right below it."""
    async with session(folder.parent) as client:

        async def call(name: str, **given: Any) -> dict[str, Any]:
            result = await client.call_tool(name, given)
            assert not result.is_error, result.content
            told: dict[str, Any] = result.structured_content or {}
            return told

        assert [tool.name for tool in (await client.list_tools()).tools] == NAMES
        assert "approval" in (await call("schema", types=["approval"]))["types"]
        for right, wrong in ERRS:
            draft = FLOW.replace(right, wrong, 1)
            assert draft != FLOW
            found = await call("validate", file="restart.yml", text=draft)
            first = found["problems"][0]
            assert (found["ok"], first["file"]) == (False, "restart.yml")
            assert await call("save", file="restart.yml", text=draft) == found
            assert everything(folder) == {}
            lines = draft.splitlines(keepends=True)
            start = sum(map(len, lines[: max(0, first["line"] - 4)]))
            end = sum(map(len, lines[: first["line"] + 4]))
            place = (
                draft.find(wrong, start, end) if wrong else draft.index("      exclude_requester", start, end)
            )
            assert place >= 0, (wrong, first)
            assert draft[:place] + right + draft[place + len(wrong) :] == FLOW
        said = await call("explain", file="restart.yml", text=FLOW)
        assert "Asks @sre to approve or reject" in said["text"]
        flow = {"file": "restart.yml", "text": FLOW}
        never = SCENARIO.replace("- ben: approve", "- ben: reject")
        told = await call("test", file="scenarios/restart.yml", text=never, flow=flow)
        assert (told["ok"], "expected  complete" in told["text"]) == (False, True), told["text"]
        nobody = SCENARIO.replace("- ben: approve", "- bne: approve")
        found = await call("save", file="scenarios/restart.yml", text=nobody)
        assert (found["ok"], everything(folder)) == (False, {})
        assert (await call("test", file="scenarios/restart.yml", text=SCENARIO, flow=flow, kill=True))["ok"]
        assert (await call("save", **flow))["ok"]
        assert (await call("save", file="scenarios/restart.yml", text=SCENARIO))["ok"]
        assert everything(folder) == {
            "flows/restart.yml": FLOW.encode(),
            "flows/scenarios/restart.yml": SCENARIO.encode(),
        }
        assert (await call("test", file="scenarios/restart.yml"))["ok"]


@pytest.mark.parametrize(("text", "says"), WRONG, ids=[says[:40] for _, says in WRONG])
def test_no_typical_mistake_is_saved(bench: Bench, folder: Path, text: str, says: str) -> None:
    """Each is a located problem in the words that `sayso validate` has for it."""
    found: Any = bench.call("save", {"file": "typical.yml", "text": text})
    assert (found["ok"], everything(folder)) == (False, {})
    assert any(says in problem["message"] for problem in found["problems"])
    lines = text.splitlines()
    assert all(1 <= problem["line"] <= len(lines) + 1 for problem in found["problems"])


@pytest.mark.process
async def test_hostile_texts_and_paths_are_refused_and_the_server_goes_on(folder: Path) -> None:
    """Each is told in a short sentence, nothing is written anywhere, and the next call is answered."""
    deep, wide = "[" * 100_000, "".join(f"k{n}: {n}\n" for n in range(20_000))
    bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
    texts = [
        "x" * 5_000_000,
        deep,
        wide,
        bomb,
        "",
        "\0",
        "flow: !!python/object:os.system x",
        "- - - -",
        FLOW + "\ufffe",
    ]
    paths = [
        *(
            "../out.yml",
            "/tmp/out.yml",
            "scenarios/../../out.yml",
            "a/b.yml",
            "flow.py",
            ".hidden.yml",
            "x.script.yml",
        ),
        *("", "a.yml\n", "a\0.yml", "~/a.yml", "scenarios/", "é.yml", "a" * 100_000 + ".yml", "C:\\a.yml"),
    ]
    async with session(folder.parent) as client:
        for text in texts:
            for file in ("a.yml", "scenarios/a.yml"):
                result = await client.call_tool("save", {"file": file, "text": text})
                told: Any = result.structured_content
                assert not told["ok"]
                assert len(json.dumps(told)) < 50_000
        for path in paths:
            for tool in ("save", "validate", "explain", "test"):
                result = await client.call_tool(tool, {"file": path, "text": FLOW})
                assert result.is_error
                assert len(result.content[0].text) < 700  # type: ignore[union-attr]
        for given in ({}, {"file": 3, "text": FLOW}, {"file": "a.yml", "text": FLOW, "mode": "x" * 99_999}):
            assert (await client.call_tool("save", given)).is_error
        assert everything(folder) == {}
        assert (await client.call_tool("save", {"file": "restart.yml", "text": FLOW})).structured_content[
            "ok"
        ]  # type: ignore[index]


@pytest.mark.process
def test_bytes_that_are_no_text_end_no_conversation(folder: Path) -> None:
    """A line that is not UTF-8, one with half a surrogate pair and one that is not JSON: the call behind them is answered."""

    def line(number: int, method: str, **params: Any) -> bytes:
        return (
            json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n"
        )

    info = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    save = line(2, "tools/call", name="save", arguments={"file": "a.yml", "text": "BYTES"})
    given = [
        line(1, "initialize", **info),
        b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n',
        save.replace(b"BYTES", b"flow: \xff\xfe"),
        save.replace(b"BYTES", rb"flow: \ud800"),
        b"{\n",
        line(3, "tools/call", name="save", arguments={"file": "restart.yml", "text": FLOW}),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "bot.cli", "mcp"],
        cwd=folder.parent,
        env=environment(folder.parent, PYTHONPATH=str(ROOT)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"".join(given))
    process.stdin.flush()
    answers = (json.loads(answer) for answer in process.stdout)
    told = next(answer for answer in answers if answer.get("id") == 3)
    assert told["result"]["structuredContent"]["ok"]
    process.stdin.close()
    process.wait(30)
    assert everything(folder) == {"flows/restart.yml": FLOW.encode()}


RUNS = """
flow: runs
nodes:
  - {{id: run, type: shell, with: {{run: [touch, "{marker}"]}}}}
  - {{id: call, type: python, with: {{call: "beside:work"}}}}
"""
PLAYED = """
scenario: It runs
flow: runs
people: [ana]
nodes: {nodes}
steps:
  - expect: {{status: complete}}
"""


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ("{run: done, call: done}", ""),
        ("{run: real, call: done}", "`real` runs a program"),
        ("{run: [done, {real: true}], call: done}", "`real` runs a program"),
        ("{run: done}", "the scenario has no result for it"),
    ],
)
def test_no_program_and_no_module_of_a_flow_runs(bench: Bench, folder: Path, nodes: str, says: str) -> None:
    """Neither to check a flow, nor to explain, play or save it; whatever the scenario says."""
    marker = folder.parent / "marker"
    (folder / "beside.py").write_text(f"open({str(marker)!r}, 'w')\ndef work() -> str: ...\n")
    flow = {"file": "runs.yml", "text": RUNS.format(marker=marker)}
    played = {"file": "scenarios/runs.yml", "text": PLAYED.format(nodes=nodes)}
    for name in ("validate", "explain", "save"):
        assert bench.call(name, flow)["ok"]
    found: Any = bench.call("test", played)
    assert found["ok"] == (not says)
    assert says in json.dumps(found)
    assert bench.call("save", played)["ok"] == ("real" not in nodes)
    assert not marker.exists()


@pytest.mark.parametrize(
    "text",
    [
        SCENARIO.replace("flow: restart", "flow: ../../secret.yml"),
        SCENARIO.replace("flow: restart", "flow: {outside}"),
        SCENARIO + "claude: {file: ../../secret.yml}\n",
        SCENARIO + "claude: {file: '{outside}'}\n",
    ],
)
def test_a_scenario_reads_no_file_elsewhere(bench: Bench, folder: Path, text: str) -> None:
    """Neither its flow nor Claude's answers come from outside of the folder; the problem shows nothing of the file."""
    outside = folder.parent / "secret.yml"
    outside.write_text("hunter2: [")
    bench.call("save", {"file": "restart.yml", "text": FLOW})
    given = {"file": "scenarios/a.yml", "text": text.replace("{outside}", str(outside))}
    for name in ("test", "validate", "save"):
        found: Any = bench.call(name, given)
        assert [problem["message"] for problem in found["problems"]] == ["it is outside the flows folder"]


def test_a_loop_of_links_is_no_file(bench: Bench, folder: Path) -> None:
    """Neither as a flow nor as the flow of a scenario, whatever Python says of it."""
    (folder / "loop.yml").symlink_to(folder / "loop.yml")
    with pytest.raises(SaysoError, match=r"loop\.yml"):
        bench.call("validate", {"file": "loop.yml"})
    text = SCENARIO.replace("flow: restart", "flow: ../loop.yml")
    assert not bench.call("test", {"file": "scenarios/a.yml", "text": text})["ok"]


@pytest.mark.parametrize("link", ["scenarios", "restart.yml"])
def test_a_link_out_of_the_folder_is_not_followed(bench: Bench, folder: Path, link: str) -> None:
    """Neither one instead of the folder of scenarios, nor one instead of a flow."""
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "kept").write_text("as it was")
    (folder / link).symlink_to(outside if link == "scenarios" else outside / "kept")
    file = "scenarios/a.yml" if link == "scenarios" else link
    for name in NAMES[1:]:
        with pytest.raises(SaysoError, match="not a file in the flows folder"):
            bench.call(name, {"file": file, "text": FLOW} | ({"overwrite": True} if name == "save" else {}))
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("kept", "as it was")]


def test_a_text_that_breaks_another_flow_is_not_saved(bench: Bench, folder: Path) -> None:
    """One that calls it with an input that would be gone: the problem is in that other flow."""
    called = "flow: called\ninputs: {host: {type: string}}\nnodes: [{id: a, type: noop}]\n"
    calls = "flow: calls\nnodes: [{id: b, type: flow, with: {flow: called, inputs: {host: web-1}}}]\n"
    for file, text in (("called.yml", called), ("calls.yml", calls)):
        assert bench.call("save", {"file": file, "text": text})["ok"]
    before = everything(folder)
    for text in (
        called.replace("{host: {type: string}}", "{}"),
        called.replace("flow: called", "flow: other"),
    ):
        found: Any = bench.call("save", {"file": "called.yml", "text": text, "overwrite": True})
        assert {problem["file"] for problem in found["problems"]} == {"calls.yml"}
    assert everything(folder) == before
    assert load_flows(folder)[1] == {}


def test_a_saved_file_is_replaced_only_when_that_is_asked_for(bench: Bench, folder: Path) -> None:
    """And what cannot be written is said; nothing half written stays."""
    given = {"file": "restart.yml", "text": FLOW}
    assert bench.call("save", given)["ok"]
    other = {**given, "text": FLOW.replace("30m", "45m")}
    with pytest.raises(SaysoError, match=r"restart\.yml exists: pass `overwrite`"):
        bench.call("save", other)
    assert everything(folder) == {"flows/restart.yml": FLOW.encode()}
    assert bench.call("save", {**other, "overwrite": True})["ok"]
    (folder / "scenarios").write_text("a file")
    with pytest.raises(SaysoError, match="cannot be written"):
        bench.call("save", {"file": "scenarios/a.yml", "text": SCENARIO})
    assert sorted(everything(folder)) == ["flows/restart.yml", "flows/scenarios"]


def test_a_broken_flow_of_others_stops_nobody(bench: Bench, folder: Path) -> None:
    """It was broken before, so a new flow beside it is saved; and a missing folder is said."""
    (folder / "broken.yml").write_text("flow: [")
    assert bench.call("save", {"file": "restart.yml", "text": FLOW})["ok"]
    found: Any = bench.call("validate", {"file": "broken.yml"})
    assert [problem["file"] for problem in found["problems"]] == ["broken.yml"]
    with pytest.raises(SaysoError, match="pass its `text`"):
        bench.call("validate", {"file": "absent.yml"})
    with pytest.raises(SaysoError, match="The flows folder"):
        Bench(lambda: folder / "nowhere").call("validate", {"file": "restart.yml"})


def test_the_schema_has_the_settings_of_the_types_that_are_named(bench: Bench) -> None:
    """A valid flow fits it, a wrong field does not, all that it refers to is there, and others are left out."""
    import jsonschema

    told: Any = bench.call("schema", {"types": ["http", "approval", "shell", "message"]})
    schema = told["schema"]
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(yaml.safe_load(FLOW), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(FLOW.replace("exclude_requester", "exclude")), schema)
    assert "with_agent" not in schema["$defs"]
    plain: Any = bench.call("schema", {})
    assert len(json.dumps(plain)) < 30_000
    with pytest.raises(SaysoError, match="did you mean `approval`"):
        bench.call("schema", {"types": ["aproval"]})


@pytest.mark.process
async def test_a_gate_that_is_down_takes_away_no_tool_that_needs_none(folder: Path) -> None:
    """The others are listed too, and say that they cannot ask."""
    async with session(folder.parent, SAYSO_GATE_TOKEN="t", SAYSO_GATE_URL="http://127.0.0.1:1") as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == [*NAMES, "ask_human", "request_approval", "check_request"]
        assert (await client.call_tool("validate", {"file": "a.yml", "text": FLOW})).structured_content["ok"]  # type: ignore[index]
        assert (await client.call_tool("check_request", {"request": "r"})).is_error


def test_the_skill_has_the_form_that_agents_read(bench: Bench) -> None:
    """Its name is its folder's, its description fits, and it names each tool; its flow passes its scenario, with kills."""
    head = yaml.safe_load(SKILL.split("---")[1])
    assert head["name"] == "sayso"
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", head["name"])
    assert 0 < len(head["description"]) <= 1024
    assert [name for name in NAMES if f"`{name}`" not in SKILL] == []
    flow = {"file": "restart.yml", "text": FLOW}
    found: Any = bench.call("validate", flow)
    assert (found["ok"], found["warnings"]) == (True, [])
    played = {"file": "scenarios/restart.yml", "text": SCENARIO, "flow": flow, "kill": True}
    assert bench.call("test", played)["ok"]
