"""Node types of installed packages: found by entry point, checked while a flow is read, run, and reported when broken."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from engine.language.errors import FlowError
from engine.nodes.runtime.runner import Completed, Failed
from engine.nodes.runtime.table import runners
from engine.nodes.types import registry as entries
from engine.nodes.types.registry import node_types
from engine.storage.open import MemoryStore
from tests.nodes.nodekit import Context
from tests.support import prefork
from tests.support.engine import Clock, flow_of, running

ROOT = Path(__file__).resolve().parents[2]

MODULE = """
    from datetime import date
    from engine.nodes.api import Config, NodeError, NodeType, SecretText

    class PageConfig(Config):
        "Pages somebody."
        who: str
        day: date
        token: SecretText = ""

    class Page(NodeType):
        config = PageConfig
        outputs = {"said": "What was said."}
        secret_fields = {"token"}
        timeout = 7.0
        unknown_output = {"said": None}

        async def run(self, config, ctx):
            if config.who == "nobody":
                raise NodeError(f"nobody knows {config.token}", "unknown_person", {"who": config.who})
            return {"said": f"{config.who} {config.day:%d.%m.} {config.token} {ctx.idempotency_key}"}

    class Wordless(NodeType):
        config = PageConfig
        def run(self, config, ctx): ...

    class Loose(NodeType):
        config = dict
        async def run(self, config, ctx): ...
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with one sound type and four that cannot be used."""
    (tmp_path / "pager_types.py").write_text(dedent(MODULE))
    info = tmp_path / "pager-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pager\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[sayso.nodes]\npage = pager_types:Page\nwordless = pager_types:Wordless\nloose = pager_types:Loose\n"
        "gone = nowhere_at_all:Thing\nshell = pager_types:Page\nnot-a-name = pager_types:Page\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    entries.forget()
    yield
    sys.modules.pop("pager_types", None)
    entries.forget()


FLOW = "nodes: [{id: a, type: page, with: {who: '{{ 1 + 1 }}ana', day: 2026-11-21, token: '{{ secrets.T }}'}}, {id: b, type: set, with: {x: '{{ nodes.a.said }}'}}]"


@pytest.mark.usefixtures("installed")
def test_a_type_is_known_with_all_that_its_class_says() -> None:
    """Fields, output, crash policy and timeout come from the class."""
    spec = node_types()["page"]
    assert (spec.field_names(), list(spec.outputs or {}), spec.timeout) == (
        ["who", "day", "token"],
        ["said"],
        7.0,
    )
    assert spec.on_crash({}) == "ask"
    assert spec.doc == "Pages somebody."
    assert list(node_types())[-1] == "page", (
        "it is listed after sayso's own, without those that cannot be used"
    )
    assert flow_of(FLOW).nodes[0].timeout == 7.0


@pytest.mark.usefixtures("installed")
def test_sayso_keeps_its_own_types() -> None:
    """A package cannot take the place of a type that sayso has."""
    assert node_types()["shell"].config.__name__ == "ShellConfig"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("kind", "with_", "words"),
    [
        ("page", "{who: 3, day: 2026-11-21}", ["expected text, not the number 3"]),
        ("page", "{who: ana, day: 2026-11-21, toke: x}", ["unknown field `toke`", "did you mean `token`?"]),
        ("page", "{day: 2026-11-21}", ["`who` is missing"]),
        ("pge", "{}", ["unknown node type `pge`", "did you mean `page`?"]),
        ("wordless", "{}", ["`wordless` of the package pager", "`run` must be an `async def`"]),
        ("loose", "{}", ["`loose` of the package pager", "must be a subclass of engine.nodes.api.Config"]),
        ("gone", "{}", ["`gone` of the package pager", "No module named 'nowhere_at_all'", "reinstall"]),
    ],
)
def test_a_flow_that_misuses_one_does_not_load(kind: str, with_: str, words: list[str]) -> None:
    """The error names the field, the nearest type, or the package that is broken; other types are not affected."""
    with pytest.raises(FlowError) as refused:
        flow_of(f"nodes: [{{id: a, type: {kind}, with: {with_}}}]")
    assert [word for word in words if word not in str(refused.value)] == [], str(refused.value)
    assert flow_of(FLOW).nodes[0].type == "page"


@pytest.mark.usefixtures("installed")
async def test_a_session_runs_it(tmp_path: Path) -> None:
    """Expressions are evaluated, dates are dates, secrets reach the code and are nowhere in what is stored."""
    home = tmp_path / "home"
    secret = lambda name: "hunter2-hunter2"  # noqa: E731 - the value of every secret
    async with running(MemoryStore(), home, runners=runners(), now=Clock(), secret=secret) as rig:
        session_id = await rig.start(FLOW)
        state = await rig.engine.parked(session_id)
        assert state.status == "complete"
        assert state.nodes["b"].output == {"x": f"2ana 21.11. [secret T] {session_id}:a"}
        journal = b"".join(event.to_bytes() for event in await rig.engine.journal(session_id))
    assert b"hunter2" not in journal
    assert b'{"$secret":"T"}' in journal


@pytest.mark.usefixtures("installed")
async def test_its_failures_have_no_secrets_either(tmp_path: Path) -> None:
    """`NodeError` gives the word that flows compare; the secret is taken out of the message."""
    kit = Context(tmp_path, {"T": "hunter2-hunter2"})
    config = {"who": "nobody", "day": "2026-11-21", "token": {"$secret": "T"}}
    expected = Failed("unknown_person", "nobody knows [secret T]", {"who": "nobody"})
    assert await runners()["page"](config, kit.build()) == expected
    missing = await runners()["page"]({**config, "token": {"$secret": "X"}}, kit.build())
    assert isinstance(missing, Failed)
    assert missing.type == "secret"
    assert not isinstance(missing, Completed)


# --- the example, installed as anybody would -------------------------------------------------------------


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`examples/own-node`, installed by pip into a folder of its own, without a network."""
    folder = tmp_path_factory.mktemp("own-node")
    shutil.copytree(ROOT / "examples" / "own-node", folder / "source")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder / "site")]
    done = subprocess.run([*command, str(folder / "source")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def sayso(site: Path, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line with that folder on Python's path."""
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{site}", "SAYSO_HOME": str(home)}
    return prefork.run(["-m", "bot.cli", *words], env=env, cwd=home)


FILE = str(ROOT / "examples" / "own-node" / "wait-for-port.yml")


@pytest.mark.process
def test_the_example_runs_once_it_is_installed(example: Path, tmp_path: Path) -> None:
    """`pip install`, and the flow that uses the type runs against a real port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = sayso(example, tmp_path, "run", FILE, "-i", f"port={port}", "--no-input", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["status"] == "complete"
    assert sayso(example, tmp_path, "validate", FILE).returncode == 0
    assert "port_check" in sayso(example, tmp_path, "schema").stdout
