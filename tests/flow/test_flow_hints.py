"""What people write who know other formats, each with the hint that says how it is written here."""

from __future__ import annotations

import pytest

from engine.flow.checks.all import warnings
from engine.flow.load import load_flow
from engine.language.elsewhere import CALLED, INSTEAD
from engine.language.expressions import compile_condition, compile_value
from engine.language.jinja import mended
from engine.language.template import BadExpression
from tests.flow.flowkit import failure, flow_with

IN_WITH: list[tuple[str, str, str]] = [
    ("shell", "cmd: ls", "did you mean `run`?"), ("shell", "command: ls", "did you mean `run`?"), ("shell", "args: [ls]", "did you mean `run`?"),
    ("shell", "commands: [ls]", "did you mean `script`?"), ("shell", "bash: ls", "did you mean `script`?"),
    ("shell", "run: [ls], working-directory: /x", "did you mean `cwd`?"), ("shell", "run: [ls], chdir: /x", "did you mean `cwd`?"),
    ("shell", "run: [ls], environment: {A: b}", "did you mean `env`?"), ("shell", "run: [ls], shell: bash", "write `run: [bash, -c, ...]`"),
    ("shell", "run: [ls], retries: 3", "write `retry` beside `with`"), ("shell", "run: [ls], retry: {attempts: 3}", "write `retry` beside `with`"),
    ("shell", "run: [ls], timeout: 3m", "write `timeout` beside `with`"), ("shell", "run: [ls], timeout-minutes: 3", "write `timeout` beside `with`"),
    ("shell", "run: [ls], on_error: continue", "write `on_error` beside `with`"), ("shell", "run: [ls], continue-on-error: true", "write `on_error` beside `with`"),
    ("shell", "run: [ls], if: '{{ inputs.a }}'", "write `if` beside `with`"), ("shell", "run: [ls], when: '{{ inputs.a }}'", "write `if` beside `with`"),
    ("shell", "run: [ls], needs: [x]", "write `edges` beside `nodes`"), ("shell", "run: 'ls -l'", "write [ls, -l]"),
    ("shell", "run: 'rm -rf {{ inputs.a }}'", 'write [rm, -rf, "{{ inputs.a }}"]'), ("shell", "run: \"echo 'a b' c\"", 'write [echo, "a b", c]'),
    ("shell", "run: 'cat {{ inputs.a }} | wc'", "write a `script` with `$NAME`, and the value under `env`"),
    ("shell", "run: 'uptime | tee x'", "write `script: uptime | tee x`"), ("shell", "run: \"a\\nb\\n\"", "write `script: "),
    ("shell", "script: [ls]", "write a list of words under `run`"),
    ("message", "text: x, channel: '#ops'", "did you mean `to`?"), ("message", "message: x", "did you mean `text`?"),
    ("message", "body: x", "did you mean `text`?"), ("message", "text: x, thread_ts: '1'", "did you mean `thread`?"),
    ("message", "blocks: []", "did you mean `markdown`?"), ("message", "text: x, attachments: []", "did you mean `files`?"),
    ("http", "url: https://x.com, body: {a: 1}", "under `json`"), ("http", "url: https://x.com, body: [1]", "under `json`"),
    ("http", "url: https://x.com, data: {a: 1}", "did you mean `json`?"), ("http", "url: https://x.com, params: {a: 1}", "did you mean `query`?"),
    ("http", "url: https://x.com, verb: GET", "did you mean `method`?"), ("http", "url: https://x.com, auth: x", "write a header"),
    ("approval", "text: x, approvers: [requester]", "did you mean `message`?"), ("approval", "message: x, reviewers: [requester]", "did you mean `approvers`?"),
    ("ask", "question: x", "did you mean `message`?"), ("ask", "message: x, options: [a]", "did you mean `choices`?"),
    ("ask", "message: x, approvers: [requester]", "did you mean `who`?"), ("wait", "seconds: 3", "did you mean `for`?"), ("wait", "duration: 3s", "did you mean `for`?"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "with_", "hint"), IN_WITH)
def test_a_field_of_another_format_gets_the_hint_that_fits(kind: str, with_: str, hint: str) -> None:
    """What is under `with` in the words of another format is told in those of this one."""
    assert hint in str(
        failure(f"flow: f\ninputs: {{a: {{}}}}\nnodes: [{{id: t, type: {kind}, with: {{{with_}}}}}]")
    )


BESIDE: list[tuple[str, str]] = [
    ("depends_on: [a]", "write `edges` beside `nodes`"), ("needs: [a]", "write `edges` beside `nodes`"), ("when: x", "did you mean `if`?"),
    ("steps: []", "did you mean `body`?"), ("params: {a: 1}", "did you mean `with`?"), ("config: {run: [ls]}", "did you mean `with`?"),
    ("on_failure: x", "a list of nodes"), ("env: {A: b}", "write `env` under `with`"), ("run: [ls]", "write `run` under `with`"),
    ("cmd: ls", "write `run` under `with`"), ("uses: actions/checkout", "did you mean `type`?"), ("continue-on-error: true", "did you mean `on_error`?"),
    ("ignore_errors: true", "did you mean `on_error`?"), ("timeout-minutes: 5", "did you mean `timeout`?"), ("register: x", "the output of a node is `nodes.<id>`"),
    ("loop: [1]", "type `foreach`"), ("with_items: [1]", "type `foreach`"), ("retries: 3", "did you mean `retry`?"), ("catch: x", "did you mean `on_failure`?"),
    ("else: x", "opposite `if`"), ("unless: x", "not ..."), ("until: x", "type `loop`"), ("finally: []", "beside the flow's `nodes`"),
    ("approvers: [x]", "type `approval`"), ("title: x", "did you mean `name`?"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "hint"), BESIDE)
def test_a_field_of_a_node_in_another_format_gets_the_hint_that_fits(field: str, hint: str) -> None:
    """What is beside `with` in the words of another format is told in those of this one."""
    assert hint in str(failure(f"flow: f\nnodes: [{{id: t, type: shell, {field}, with: {{run: [ls]}}}}]"))


ON_TOP: list[tuple[str, str]] = [
    ("name: f", "did you mean `flow`?"), ("steps: []", "did you mean `nodes`?"), ("jobs: {}", "did you mean `nodes`?"), ("on: push", "did you mean `triggers`?"),
    ("schedule: x", "did you mean `triggers`?"), ("cron: x", "did you mean `triggers`?"), ("params: {}", "did you mean `inputs`?"), ("timeout: 3m", "in a node"),
    ("retry: 3", "in a node"), ("on_failure: []", "in a node"), ("concurrency: x", "did you mean `lock`?"), ("channel: x", "did you mean `channels`?"),
    ("secrets: [A]", "secrets.NAME"), ("env: {}", "under `with`"), ("approvers: [x]", "type `approval`"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "hint"), ON_TOP)
def test_a_field_of_a_flow_in_another_format_gets_the_hint_that_fits(field: str, hint: str) -> None:
    """What is at the top of a flow in the words of another format is told in those of this one."""
    assert hint in str(failure(f"flow: f\n{field}\nnodes: [{{id: a, type: noop}}]"))


@pytest.mark.parametrize(
    ("kind", "ours"),
    [("bash", "shell"), ("command", "shell"), ("slack", "message"), ("sleep", "wait"), ("if", "switch"), ("request", "http"),
     ("webhook", "http"), ("lambda", "python"), ("manual", "approval"), ("form", "ask"), ("email", "message"), ("subflow", "flow"), ("llm", "agent")],
)  # fmt: skip
def test_a_node_type_of_another_format_gets_the_type_that_does_that(kind: str, ours: str) -> None:
    """A type that is none here is told with the one that does the same."""
    assert f"did you mean `{ours}`?" in str(failure(f"flow: f\nnodes: [{{id: t, type: {kind}}}]"))


MENDED: list[tuple[str, str | None]] = [
    ("a = 'x'", "a == 'x'"), ("a == 'x' && b", "a == 'x' and b"), ("a || !b", "a or not b"), ("a === 1", "a == 1"), ("a !== 1", "a != 1"),
    ("a <> 1", "a != 1"), ("a AND NOT b", "a and not b"), ("a =~ 'v[0-9]'", "a is matching('v[0-9]')"), ("a ? 1 : 2", "1 if a else 2"),
    ("a == null", "a == none"), ("a -eq 3", "a == 3"), ("a = 'b = c && d'", "a == 'b = c && d'"), ("a <= 1 && b >= 2", "a <= 1 and b >= 2"),
    ("a == “x y”", "a == 'x y'"), ("a == ‘x’", "a == 'x'"), ("a >= 1 and b ≥ 2", "a >= 1 and b >= 2"), ("a => 1", "a >= 1"), ("a ≠ 1", "a != 1"),
    ("a contains 'x'", "'x' in a"), ("a is empty", "a | length == 0"), ("a is not empty", "a | length > 0"), ("a eq 3", "a == 3"),
    ("$inputs.a == 1", "inputs.a == 1"), ("${inputs.a} == 1", "inputs.a == 1"), ("a?.b", "a.b"), ("a ==", None), ("(", None),
]  # fmt: skip


@pytest.mark.parametrize(("written", "meant"), MENDED)
def test_signs_of_other_languages_are_written_as_they_are_here(written: str, meant: str | None) -> None:
    """An expression in the signs of another language is given back as it would be read here, or not at all."""
    assert mended(written) == meant


@pytest.mark.parametrize(
    ("raw", "hint"),
    [("inputs.a = 'x'", "write \"{{ inputs.a == 'x' }}\""), ("inputs.a", 'write "{{ inputs.a }}"'), ("{{ a }} && {{ b }}", 'write "{{ a and b }}"'),
     ("{{ a = 1 }}", "write `a == 1`"), ("{{ a && b }}", "write `a and b`"), ("if a then", None), ("{{ a ? b : c }}", "write `b if a else c`")],
)  # fmt: skip
def test_a_condition_is_suggested_as_it_can_be_read(raw: str, hint: str | None) -> None:
    """A hint never gives back what was wrong: what it suggests is an expression."""
    with pytest.raises(BadExpression) as caught:
        compile_condition(raw)
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [("contains(a, 'x')", "`'part' in text`"), ("startsWith(a, 'x')", "is startswith"), ("toJSON(a)", "... | tojson"), ("len(a)", "... | length"),
     ("success()", "status.<id>"), ("now()", "without the brackets"), ("a.strip()", "... | trim"), ("a | count", "`length`"), ("a is null", "`is none`"), ("a is empty", "length == 0"), ("a | bool", "== 'true'"), ("a.startsWith('x')", "is startswith"), ("exists(a)", "is not none"), ("a | regex_replace('x')", "`replace`")],
)  # fmt: skip
def test_functions_and_filters_of_other_languages_are_told_as_ours(text: str, hint: str) -> None:
    """A function, a method or a filter that is none here is told with what does the same."""
    with pytest.raises(BadExpression) as caught:
        compile_value("{{ " + text + " }}")
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("items", "hint"),
    [('"{{ inputs.a }}"', "| split(',')"), ("a b c", "write [a, b, c]"), ('"a, b"', "write [a, b]"), ('"{{ inputs.a }},b"', 'write ["{{ inputs.a }}", b]')],
)  # fmt: skip
def test_a_text_where_a_list_is_wanted_is_told_as_that_list(items: str, hint: str) -> None:
    """The hint has what was written, never a value that stands for it."""
    text = f"flow: f\ninputs: {{a: {{}}}}\nnodes: [{{id: t, type: foreach, with: {{items: {items}}}, body: [{{id: x, type: noop}}]}}]"
    assert hint in str(failure(text))


def told(run: str) -> list[str]:
    """What is warned of a program with these words."""
    return [
        f"{each.message}; {each.hint}"
        for each in warnings(flow_with(f"- {{id: t, type: shell, with: {{run: {run}}}}}"))
    ]


def test_a_tool_of_the_file_is_warned_of_as_a_node_is() -> None:
    """What an agent runs is read by no shell either."""
    tool = "tools: {logs: {type: shell, description: x, with: {run: [tail, $HOME/log]}}}"
    flow = load_flow(
        f"flow: f\n{tool}\nnodes: [{{id: a, type: agent, with: {{prompt: x, tools: [logs]}}}}]\n"
    )
    assert ["`run` of `a.logs`" in each.message for each in warnings(flow)] == [True]


@pytest.mark.parametrize(
    "run",
    ['[uptime, "|", tee, x]', '["uptime | tee x"]', "[ls, $HOME/logs]", '[ls, "${HOME}/logs"]', "[ls, ~/logs]", "[ls, \"~\"]", '[ls, "*.log"]',
     '[rm, -rf, "/tmp/{{ inputs.a }}*"]', '[ls, ">/dev/null"]', '[ls, "2>&1"]', '[echo, "`date`"]', '[echo, "$(date)"]', '["cd /tmp && ls"]',
     "[cd, /tmp]", '[., ./env.sh]', "[A=b, ls]", "[export, A=b]", "[pg_dump, -f, 'db-$(date +%F).sql']", "[cp, a, 'b-${STAMP}.txt']",
     '[cat, "< in.txt"]', '[tool, "--home=$HOME"]', '["echo {{ inputs.a }}", x]'],
)  # fmt: skip
def test_what_only_a_shell_would_act_on_is_warned_of(run: str) -> None:
    """A sign, a variable, a pattern of files or a redirect in a list that no shell reads is told, with `script`."""
    assert any("`script`" in line or "each word is an item" in line for line in told(run))


@pytest.mark.parametrize(
    "run",
    ['[sh, -c, "uptime | tee x $HOME"]', '[bash, -lc, "ls *.log"]', '[ssh, web1, "df -h | tail"]', '[docker, exec, app, sh, -c, "ls $HOME"]',
     '[grep, "a|b$", f]', "[awk, '{print $1}', f]", "[jq, '.a | .b', f]", "[find, ., -name, '*.log']", '[curl, -d, "a | b", "https://x.com?a=1&b=2"]',
     '[git, commit, -m, "a && b"]', '["/opt/My App/run", x]', "[psql, -c, 'select a < 3 from b']", '[echo, "cost: 5$"]', '["{{ inputs.a }}", x]',
     "[kubectl, get, pods, -l, 'app in (a,b)']", "[python, -c, 'print(1 > 0)']"],
)  # fmt: skip
def test_what_a_program_reads_itself_is_not_warned_of(run: str) -> None:
    """Shells that are called, and programs with such signs in their own language, get what they are given."""
    assert told(run) == []


def test_nothing_stands_in_the_tables_that_leads_nowhere() -> None:
    """No word is called like itself, and every sentence says something."""
    assert not [word for word, called in CALLED.items() if word in called]
    assert all(word == word.lower() and "-" not in word for word in (*CALLED, *INSTEAD))
