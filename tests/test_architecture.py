"""The architecture is tested: allowed imports, limits of the pure part, and exclusive responsibilities."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[1]
SHELL_CLOCKS = {"engine.run.engine", "engine.run.stored", "engine.run.snapshot_files"}
"""The only modules of engine and prompt_state that may look at a clock."""


@cache
def graph() -> grimp.ImportGraph:
    """Who imports whom, with libraries outside."""
    return grimp.build_graph("engine", "prompt_state", "bot", include_external_packages=True, cache_dir=None)


@cache
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


@cache
def expressions(module: str) -> list[ast.expr]:
    """Every expression in a module."""
    return [node for node in ast.walk(tree(module)) if isinstance(node, ast.expr)]


@cache
def calls(module: str) -> list[tuple[int, str, ast.Call]]:
    """Every call `something.name(...)` or `name(...)` in a module: line, name, node."""
    return [
        (
            node.lineno,
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", ""),
            node,
        )
        for node in expressions(module)
        if isinstance(node, ast.Call)
    ]


def test_the_contracts_of_the_house_hold() -> None:
    """`lint-imports` keeps the contracts of pyproject.toml: the rooms in their order, and the pure ones pure."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_modules_import_each_other() -> None:
    """No cycle of imports, also none of types alone, of imports in functions, or by a name in a string."""
    ours = set(modules("engine", "prompt_state", "bot"))
    imports = {
        module: (graph().find_modules_directly_imported_by(module) | named_in(module)) & ours - {module}
        for module in ours
    }
    graphlib.TopologicalSorter(imports).prepare()


def named_in(module: str) -> set[str]:
    """The strings of a module that could be names of modules in packages: `import_module` takes them."""
    strings = (node.value for node in expressions(module) if isinstance(node, ast.Constant))
    return {value for value in strings if isinstance(value, str) and "." in value}


def test_the_core_names_nothing_of_agents() -> None:
    """No module of `engine.decide` outside of its room of agents imports that room, nor has a string that names it."""
    room = "engine.decide.agents"
    naming = [
        module
        for module in modules("engine")
        if module.startswith("engine.decide.") and not module.startswith(room)
        for name in graph().find_modules_directly_imported_by(module) | named_in(module)
        if name.startswith(room)
    ]
    assert naming == []


def test_now_is_an_argument() -> None:
    """`datetime.now()` and `time.time()` are in the shell only; `utcnow()` and `today()` nowhere."""
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
    """`chat_*`, `views_*` and other calls that show something are in bot/outbound alone, the workspace apart."""
    found = [
        f"{source(module).relative_to(ROOT)}:{line}: {name}"
        for module in modules("bot")
        if not module.startswith(("bot.outbound", "bot.workspace"))
        for line, name, _ in calls(module)
        if name.startswith(("chat_", "views_", "files_upload", "reactions_", "pins_")) and name not in READS
    ]
    assert found == []


STATEMENTS = "engine.storage.tables"


@pytest.mark.parametrize("package", ["engine", "prompt_state", "bot"])
def test_no_sql_is_put_together_from_values(package: str) -> None:
    """No statement is an f-string, `%`, `+` or `format`, neither where it runs nor where it is written down, but in
    `STATEMENTS`, which names the fields of records."""
    methods = {"execute", "executemany", "executescript"}
    found = [
        f"{source(module).relative_to(ROOT)}:{line}"
        for module in modules(package)
        if module != STATEMENTS
        for line, name, node in calls(module)
        if name in methods or (module.startswith("engine.storage") and name in ("one", "all", "run", "many"))
        if node.args and _is_built(node.args[0])
    ]
    found += [
        f"{source(module).relative_to(ROOT)}:{node.lineno}"
        for module in modules(package)
        if module != STATEMENTS
        for node in expressions(module)
        if _is_built(node) and any(map(_is_sql, ast.walk(node)))
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


def test_msgspec_learns_types_in_one_place() -> None:
    """Only `engine.language.structs` makes decoders and converts: anything else ends a process with several threads."""
    for module in modules("engine", "prompt_state", "bot"):
        if module == "engine.language.structs":
            continue
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "msgspec":
                taken = {alias.name for alias in node.names} & {"Decoder", "convert", "decode"}
                assert not taken, f"{module}:{node.lineno}"
            if isinstance(node, ast.Attribute) and node.attr in ("Decoder", "convert", "decode"):
                assert "msgspec" not in ast.unparse(node.value), f"{module}:{node.lineno}"


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


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    """No docstring begins with a clause such as "What a row says"; it says "Content of a row" or "Return the row"."""
    clause = re.compile(r"(What|Whether|Who|Whom|Whose|Where|When|How|Which)\b")
    found = [
        f"{name}:{node.lineno}: {node.value.value.splitlines()[0]}"
        for name in modules("engine", "prompt_state", "bot")
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        and clause.match(node.value.value.lstrip())
    ]
    assert found == []


def test_no_default_is_read_off_a_class_with_slots() -> None:
    """No code takes the default of a field from the class: there a Struct has a descriptor in its place."""
    classes = {
        node.name: {
            part.target.id
            for part in node.body
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
        }
        for name in modules("engine", "prompt_state", "bot")
        for node in ast.walk(tree(name))
        if isinstance(node, ast.ClassDef)
    }
    read = [
        f"{name}: {ast.unparse(node)}"
        for name in modules("engine", "prompt_state", "bot")
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.attr in classes.get(node.value.id, ())
    ]
    assert read == []


MOST_FILES = 5
"""Product files that may name an event beside its class: where it is written, and where people see it."""


def test_an_event_is_named_in_few_files() -> None:
    """More of them would have to know of each event what its class can say."""
    room = "engine.journal.events"
    tags = {
        node.name
        for module in modules("engine")
        if module.startswith(f"{room}.")
        for node in ast.walk(tree(module))
        if isinstance(node, ast.ClassDef) and any(word.arg == "tag" for word in node.keywords)
    }
    assert tags
    naming: dict[str, set[str]] = {name: set() for name in tags}
    for module in modules("engine", "prompt_state", "bot"):
        if not module.startswith(room):
            for name in _identifiers(module) & tags:
                naming[name].add(module)
    assert {name: sorted(found) for name, found in naming.items() if len(found) > MOST_FILES} == {}


def _identifiers(module: str) -> set[str]:
    nodes = list(ast.walk(tree(module)))
    found = {node.id for node in nodes if isinstance(node, ast.Name)}
    found |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return found | {node.name for node in nodes if isinstance(node, ast.alias)}
