"""`gate.yml`: what matches, what is wrong with a file, and the commands that check it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bot.gate.rules import Rules, approval_flow, read_rules
from engine.language.errors import FlowError
from tests.gate.conftest import RULES
from tests.support import prefork

OTHERWISE = "otherwise: {ask: {approvers: [ben@example.com]}}\n"
HEAD = 'gate: x\nchannel: "#ops"\n'


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("git status", 1),
        ("git status -s --branch", 1),
        ("git status; rm -rf /", 0),
        ("git status && rm -rf /", 0),
        ("git status\nrm -rf /", 0),
        ("git status $(rm -rf /)", 0),
        ("git status `rm -rf /`", 0),
        ("git status > /etc/passwd", 0),
        ("git status \\\nrm", 0),
        ("git status ../..", 0),
        (" git status", 0),
        ("git statu", 0),
    ],
)
def test_a_pattern_that_allows_matches_the_whole_command_only(command: str, rule: int) -> None:
    """Nothing that a shell acts on hides behind a `*`."""
    assert read_rules(RULES).decide("claude-code:x", "Bash", {"command": command}).rule == rule


def allowing(arguments: str) -> Rules:
    """Rules that allow calls of Bash with these arguments, and ask about all others."""
    return read_rules(
        f"{HEAD}rules: [{{when: {{tool: Bash, arguments: {arguments}}}, then: allow}}]\n{OTHERWISE}"
    )


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("tail logs/a.log", "allow"),
        ("tail logs/..", "ask"),
        ("tail logs/../x", "ask"),
        ("tail logs/./../x", "ask"),
        ("tail logs/a...b", "ask"),
    ],
)
def test_dots_of_a_pattern_help_nobody_out_of_a_folder(command: str, kind: str) -> None:
    """Two dots are no way up, also where the pattern itself has one of them."""
    assert allowing("{command: 'tail logs/*.*'}").decide("a", "Bash", {"command": command}).kind == kind


def test_a_value_is_allowed_as_it_is_written_in_json() -> None:
    """`false` is not 0, however deep it stands."""
    rules = allowing("{options: {force: false}}")
    assert rules.decide("a", "Bash", {"options": {"force": False}}).kind == "allow"
    assert rules.decide("a", "Bash", {"options": {"force": 0}}).kind == "ask"


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"path": "/srv/a"}, "allow"),
        ({"Path": "/srv/a"}, "ask"),
        ({"path": "/srv/a", "Path": "/etc/shadow"}, "deny"),
        ({"path": "/srv/a", "\u017fize": 3}, "ask"),
        ({"path": "/etc/shadow"}, "deny"),
        ({"PATH": "/etc/shadow"}, "deny"),
        ({"path": "/srv/a", "mode": "r"}, "allow"),
    ],
)
def test_an_argument_in_another_letter_case_is_allowed_by_no_rule(
    arguments: dict[str, str], kind: str
) -> None:
    """A name matches as it is written; a server that ignores the case could read another argument than the rule did."""
    rules = read_rules(
        f"{HEAD}rules: [{{when: {{arguments: {{path: '/etc/*'}}}}, then: {{deny: no}}}}, "
        f"{{when: {{arguments: {{size: 1}}}}, then: {{deny: no}}}}, {{when: {{tool: read}}, then: allow}}]\n{OTHERWISE}"
    )
    assert rules.decide("a", "read", arguments).kind == kind


@pytest.mark.parametrize("key", ["path", "Path", "PATH", "\u212a"])
@pytest.mark.parametrize(("then", "kind"), [("{deny: no}", "deny"), ("{ask: {approvers: [U0BOSS]}}", "ask")])
def test_a_rule_that_asks_or_denies_finds_its_argument_in_any_letter_case(
    key: str, then: str, kind: str
) -> None:
    """A server that ignores the letter case reads the same argument, so a weaker rule behind it never counts."""
    name = "k" if key == "\u212a" else "path"
    rules = read_rules(
        f"{HEAD}rules:\n- {{when: {{arguments: {{{name}: /etc/*}}}}, then: {then}}}\n- {{when: {{tool: '*'}}, then: {{ask: {{approvers: [U0ANY]}}}}}}\n"
        "otherwise: {deny: nothing else}\n"
    )
    found = rules.decide("claude-code", "mcp__files__write", {key: "/etc/passwd"})
    assert (found.kind, found.rule) == (kind, 1)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("then", ["allow", "{deny: no}"])
def test_no_call_takes_for_ever_to_match(then: str) -> None:
    """An agent chooses what is compared, and how long that is."""
    when = "{tool: Bash, arguments: {command: '*a*a*a*a*a*a*b'}}"
    rules = read_rules(f"{HEAD}rules: [{{when: {when}, then: {then}}}]\n{OTHERWISE}")
    assert rules.decide("x", "Bash", {"command": "a" * 1_000_000}).kind == "ask"


def test_a_pattern_that_denies_matches_everything() -> None:
    """There `*` is anything at all, and the first rule that matches counts."""
    rules = read_rules(RULES)
    assert rules.decide("a", "x;\ndelete\n", {}).kind == "deny"
    assert rules.decide("a", "Bash", {"command": 3}).kind == "ask"
    assert rules.decide("a", "Bash", {}).kind == "ask"


def test_every_way_to_ask_is_a_flow() -> None:
    """Fields of `ask` are those of an approval."""
    asking = {
        "approvers": ["@sre"],
        "required": 2,
        "exclude_requester": True,
        "require_reason": True,
        "timeout": "4h",
        "on_timeout": "deny",
        "remind_every": "1h",
        "valid_for": "2h",
    }
    assert approval_flow(asking).name == "gate"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (HEAD, "`otherwise` is missing"),
        (HEAD + "otherwise: allow\n", "never allowed"),
        (HEAD + "rules: [{when: {tol: x}, then: allow}]\n" + OTHERWISE, "did you mean `tool`"),
        (HEAD + "rules: [{when: {tool: x}, then: alow}]\n" + OTHERWISE, "write `allow`"),
        (
            HEAD + "rules: [{when: {tool: x}, then: {ask: {approvers: [no body]}}}]\n" + OTHERWISE,
            "does not name a person",
        ),
        (HEAD + "otherwise: {ask: {approvers: [ben@example.com], on_timeout: allow}}\n", "expected deny"),
        (HEAD + "otherwise: {ask: {approvers: [ben@example.com], required: 2}}\n", "only one person"),
        (HEAD + "otherwise: {ask: {approvers: [requester], exclude_requester: true}}\n", "nobody is left"),
        (
            HEAD + "rules: [{when: {}, then: allow}, {when: {tool: x}, then: allow}]\n" + OTHERWISE,
            "every call",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, told: str) -> None:
    """A broken file is refused as a whole."""
    with pytest.raises(FlowError) as refused:
        read_rules(text)
    assert told in str(refused.value)
    assert all(problem.line >= 1 for problem in refused.value.problems)


TABLE = """
scenario: the gate
gate: ../../gate.yml
calls:
  - {agent: "claude-code:laptop", tool: Bash, arguments: {command: git status -s}, then: allow, rule: 1}
  - {tool: mcp__db__delete, then: deny}
  - {tool: Write, then: ask, approvers: [ben@example.com, cleo@example.com]}
"""


def sayso(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command, in a folder."""
    return prefork.run(["-m", "bot.cli", *words], cwd=folder, env=os.environ)


def test_validate_and_test_check_the_file(tmp_path: Path) -> None:
    """`sayso validate` reads it beside the flows, `sayso test` plays tables of calls."""
    scenarios = tmp_path / "flows" / "scenarios"
    scenarios.mkdir(parents=True)
    (tmp_path / "flows" / "a.yml").write_text("flow: a\nnodes: [{id: x, type: noop}]\n")
    rules, table = tmp_path / "gate.yml", scenarios / "gate.yml"
    rules.write_text(RULES)
    table.write_text(TABLE)
    assert sayso(tmp_path, "validate").returncode == 0
    assert sayso(tmp_path, "validate", "gate.yml").returncode == 0
    played = sayso(tmp_path, "test")
    assert (played.returncode, "3 calls" in played.stdout) == (0, True)
    rules.write_text(RULES.replace("then: allow", "then: {deny: no}"))
    played = sayso(tmp_path, "test", "--junit", "report.xml")
    assert played.returncode == 1
    assert "expected allow, but got deny" in played.stdout
    assert "expected allow" in (tmp_path / "report.xml").read_text()
    rules.write_text(RULES.replace("then: allow", "then: alow"))
    broken = sayso(tmp_path, "validate")
    assert (broken.returncode, "gate.yml:7:11" in broken.stdout) == (4, True)
    assert sayso(tmp_path, "validate", "gate.yml").returncode == 4
    assert sayso(tmp_path, "test").returncode == 2
