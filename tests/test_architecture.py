"""The architecture is a test: who imports whom, what the pure part may not know, and who alone may do what."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[1]
PURE = [
    "engine.journal.events",
    "engine.journal.event_base",
    "engine.journal.values",
    "engine.journal.state",
    "engine.journal.fold",
    "engine.journal.folds.session",
    "engine.journal.folds.nodes",
    "engine.journal.folds.containers",
    "engine.journal.folds.prompts",
    "engine.decide.decide",
    "engine.decide.due",
    "engine.decide.begin",
    "engine.decide.fixpoint",
    "engine.decide.replies",
    "engine.decide.prompt_timers",
    "engine.language.working_hours",
    "engine.decide.locks",
    "engine.decide.containers",
    "engine.decide.edges",
    "engine.decide.step",
    "engine.journal.code_digests",
    "engine.decide.question",
    "engine.decide.evaluate",
    "engine.journal.transitions",
    "engine.decide.commands",
    "engine.language.actors",
    "engine.language.timestamps",
    "engine.language.codec",
    "engine.journal.snapshot",
    "engine.decide.approvals",
    "engine.decide.binding",
    "engine.decide.preview",
    "engine.decide.projections",
    "engine.journal.inspection",
    "engine.language.errors",
    "engine.language.diagnostics",
    "engine.language.durations",
    "engine.language.expressions",
    "engine.language.jinja",
    "engine.language.template",
    "engine.language.value_types",
    "engine.language.filters",
    "engine.flow.builtin_tools",
    "engine.decide.agents.call_to_node",
    "engine.flow.command_lines",
    "engine.decide.agents.call_edits",
    "engine.flow.agent_plan",
    "engine.decide.agents.tool_results",
    "engine.language.json_schema",
    "engine.decide.agents.system_prompt",
    "engine.nodes.types.hosts",
    "engine.nodes.types.paths",
    "engine.nodes.types.registry",
    "engine.nodes.types.spec",
    "engine.nodes.types.configs",
    "engine.messages.money",
    "engine.messages.stream",
    "engine.models.checks",
    "engine.models.claude_wire",
    "engine.messages.errors",
    "engine.messages.messages",
    "engine.messages.prices",
    "engine.messages.turns",
    "engine.storage.port",
    "prompt_state.question_row",
    "prompt_state.policy",
    "prompt_state.principals",
    "prompt_state.target",
    "prompt_state.routing",
    "prompt_state.slack_text",
    "prompt_state.projection",
]
IMPURE = {
    "asyncio",
    "time",
    "random",
    "secrets",
    "logging",
    "slack_sdk",
    "slack_bolt",
    "apsw",
    "aiohttp",
    "socket",
}
SHELL_CLOCKS = {"engine.run.engine", "engine.run.active", "engine.run.snapshot_files"}
"""The only modules of engine and prompt_state that may look at a clock."""


@cache
def graph() -> grimp.ImportGraph:
    """Who imports whom, with libraries outside."""
    return grimp.build_graph("engine", "prompt_state", "bot", include_external_packages=True, cache_dir=None)


def modules(*packages: str) -> list[str]:
    """All modules of these packages."""
    return sorted(
        name for name in graph().modules if name.split(".")[0] in packages and source(name).exists()
    )


def source(module: str) -> Path:
    """A module's file."""
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def tree(module: str) -> ast.Module:
    """A module's syntax."""
    return ast.parse(source(module).read_text())


def calls(module: str) -> Iterator[tuple[int, str, ast.Call]]:
    """Every call `something.name(...)` or `name(...)` in a module: line, name, node."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            yield node.lineno, name, node


def test_the_contracts_of_the_house_hold() -> None:
    """`lint-imports` keeps the contracts of pyproject.toml: bot → prompt_state → engine, the workspace apart."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("engine", {"prompt_state", "bot", "slack_sdk", "slack_bolt", "typer", "rich", "dotenv"}),
        ("prompt_state", {"bot", "slack_sdk", "slack_bolt", "typer", "rich", "aiohttp", "apsw"}),
    ],
)
def test_no_layer_knows_what_is_above_it(package: str, forbidden: set[str]) -> None:
    """The engine knows no Slack and no terminal; PromptState knows neither, and no database."""
    found = {
        (module, name)
        for module in modules(package)
        for name in graph().find_modules_directly_imported_by(module)
        if name.split(".")[0] in forbidden
    }
    assert found == set()


def test_the_workspace_knows_nothing_of_the_bot() -> None:
    """bot/workspace imports nothing of engine, prompt_state or the rest of bot: it could be any Slack."""
    found = {
        (module, name)
        for module in modules("bot")
        if module.startswith("bot.workspace")
        for name in graph().find_modules_directly_imported_by(module)
        if name.split(".")[0] in ("engine", "prompt_state", "bot") and not name.startswith("bot.workspace")
    }
    assert found == set()


def test_the_list_of_pure_modules_names_modules() -> None:
    """What is checked for purity exists, and all of engine.flow is among it."""
    assert [name for name in PURE if not source(name).exists()] == []
    assert [name for name in modules("engine") if name.startswith("engine.flow")]


@pytest.mark.parametrize(
    "module", [*PURE, *(f"engine.flow.{p.stem}" for p in (ROOT / "engine/flow").glob("[a-z]*.py"))]
)
def test_the_pure_part_knows_no_clock_no_chance_and_no_world(module: str) -> None:
    """A pure module imports no asyncio, clock, randomness, logging, vendor client or database."""
    found = {name.split(".")[0] for name in graph().find_modules_directly_imported_by(module)}
    assert found & IMPURE == set()


@pytest.mark.parametrize(
    "module",
    ["engine.decide.decide", "engine.journal.fold", "engine.decide.evaluate", "engine.decide.question"],
)
def test_the_core_reaches_no_io_through_others(module: str) -> None:
    """Not even by way of other modules does the core reach the shell, a store, a runner or a dispatcher."""
    reached = graph().find_upstream_modules(module)
    shell = {
        "engine.run.engine",
        "engine.run.active",
        "engine.run.stepper",
        "engine.run.sessions",
        "engine.run.executor",
        "engine.run.dispatcher",
        "engine.run.job",
        "engine.run.remote_commands",
        "engine.run.wakeups",
    }
    stores = {
        name for name in reached if name.startswith("engine.storage.") and name != "engine.storage.port"
    }
    runners = {
        "engine.nodes.runtime.shell",
        "engine.nodes.runtime.http",
        "engine.nodes.runtime.process",
        "engine.nodes.runtime.runner",
    }
    assert reached & (shell | runners) == set()
    assert stores == set()
    assert reached & {"apsw", "aiohttp", "slack_sdk", "asyncio"} == set()


def test_now_is_an_argument() -> None:
    """`datetime.now()` and `time.time()` stand in the shell only; `utcnow()` and `today()` nowhere."""
    found = [
        f"{source(module).relative_to(ROOT)}:{line}: {name}()"
        for module in modules("engine", "prompt_state")
        for line, name, node in calls(module)
        if name in ("utcnow", "today")
        or (name in ("now", "time") and _of_clock(node) and module not in SHELL_CLOCKS)
    ]
    assert found == []


def _of_clock(node: ast.Call) -> bool:
    function = node.func
    return isinstance(function, ast.Attribute) and getattr(function.value, "id", "") in (
        "datetime",
        "time",
        "date",
    )


READS = ("chat_getPermalink", "reactions_get", "files_info")
"""Calls with such names that show nothing."""


def test_only_outbound_writes_to_slack() -> None:
    """`chat_*`, `views_*` and other calls that show something stand in bot/outbound alone, the workspace apart."""
    found = [
        f"{source(module).relative_to(ROOT)}:{line}: {name}"
        for module in modules("bot")
        if not module.startswith(("bot.outbound", "bot.workspace"))
        for line, name, _ in calls(module)
        if name.startswith(("chat_", "views_", "files_upload", "reactions_", "pins_")) and name not in READS
    ]
    assert found == []


@pytest.mark.parametrize("package", ["engine", "prompt_state", "bot"])
def test_no_sql_is_put_together_from_values(package: str) -> None:
    """No statement is an f-string, `%`, `+` or `format`, neither where it runs nor where it is written down."""
    methods = {"execute", "executemany", "executescript"}
    found = [
        f"{source(module).relative_to(ROOT)}:{line}"
        for module in modules(package)
        for line, name, node in calls(module)
        if name in methods or (module.startswith("engine.storage") and name in ("one", "all", "run", "many"))
        if node.args and _is_built(node.args[0])
    ]
    found += [
        f"{source(module).relative_to(ROOT)}:{node.lineno}"
        for module in modules(package)
        for node in ast.walk(tree(module))
        if isinstance(node, ast.expr) and _is_built(node) and any(map(_is_sql, ast.walk(node)))
    ]
    assert found == []


def test_a_built_statement_would_be_found() -> None:
    """The test above sees what it looks for."""
    for text in (
        'f"SELECT a FROM {b}"',
        '"SELECT a FROM %s" % b',
        '"SELECT a FROM " + b',
        '"DELETE FROM {}".format(b)',
    ):
        node = ast.parse(text, mode="eval").body
        assert _is_built(node)
        assert any(map(_is_sql, ast.walk(node)))
    assert not _is_built(ast.parse('"SELECT a FROM b WHERE c = ?"', mode="eval").body)


def _is_sql(node: ast.AST) -> bool:
    text = node.value if isinstance(node, ast.Constant) else None
    return isinstance(text, str) and bool(
        re.match(r"\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|PRAGMA|CREATE) ", text)
    )


def _is_built(node: ast.expr) -> bool:
    if isinstance(node, ast.JoinedStr):
        return True
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add | ast.Mod)
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("format", "join")
    )


def test_nothing_unpickles_evaluates_or_runs_text() -> None:
    """No pickle, marshal, `eval`, `exec`, `os.system` or `shell=True` anywhere: data never becomes code."""
    for module in modules("engine", "prompt_state", "bot"):
        imported = graph().find_modules_directly_imported_by(module)
        assert imported & {"pickle", "marshal", "shelve", "dill"} == set(), module
        for line, name, node in calls(module):
            where = f"{source(module).relative_to(ROOT)}:{line}"
            plain = isinstance(node.func, ast.Name)
            assert not (plain and name in ("eval", "exec")), where
            assert name not in ("system", "popen", "create_subprocess_shell"), where
            assert not any(word.arg == "shell" for word in node.keywords), where


def test_the_command_line_starts_light() -> None:
    """Importing `bot.cli` loads no Slack framework, no HTTP client and no vendor of models: `--help` is quick."""
    heavy = ["slack_bolt", "slack_sdk.web.async_client", "anthropic", "aiohttp"]
    script = f"import bot.cli, sys; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_every_module_explains_itself() -> None:
    """Every module begins with a docstring that says what it is for."""
    bare = [name for name in modules("engine", "prompt_state", "bot") if not ast.get_docstring(tree(name))]
    assert bare == []
