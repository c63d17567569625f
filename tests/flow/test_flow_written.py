"""What a flow file says is what is meant: texts that look like numbers, keys without a value, words behind a `#`, null in a
text, blank questions, and what other languages of templates have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.flow.load import load_flow
from engine.flow.reading import warnings
from engine.language.errors import ExpressionError, FlowError
from engine.language.expressions import compile_value
from engine.language.yaml import load_located
from engine.nodes.types.registry import node_types
from engine.nodes.types.spec import InvalidConfig

HEAD = "flow: f\ninputs: {dir: {required: false}, n: {type: integer, default: 3}, at: {default: /}}\nnodes:\n"


def said(text: str) -> str:
    """What is wrong with a flow; empty where nothing is."""
    try:
        load_flow(text, "f.yml")
    except FlowError as error:
        return str(error)
    return ""


def node(kind: str, **given: Any) -> str:
    """A flow of one node."""
    return HEAD + f"  - {json.dumps({'id': 'a', 'type': kind, 'with': given}, ensure_ascii=False)}\n"


def in_list(written: str) -> str:
    """A flow whose program is given this, as it is."""
    return HEAD + f"  - id: a\n    type: shell\n    with: {{run: [x, {written}]}}\n"


def doubts(text: str) -> list[str]:
    """The warnings of a sound flow."""
    return [f"{problem.message}; {problem.hint}" for problem in warnings(load_flow(text, "f.yml"))]


# --- numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "written",
    [
        "+8",
        "-0",
        "3.10",
        "0o755",
        "0x1F",
        "007",
        "12345678e9",
        "1e3",
        ".5",
        "5.",
        "True",
        "FALSE",
        "-007",
        "1.50",
    ],
)
@pytest.mark.parametrize(
    "place",
    [
        "type: shell, with: {{run: [x, {}]}}",
        "type: shell, with: {{run: [x], env: {{A: {}}}}}",
        "type: http, with: {{url: 'http://x', headers: {{A: {}}}}}",
        "type: http, with: {{url: 'http://x', query: {{a: {}}}}}",
        "type: http, with: {{url: 'http://x', query: {{a: [b, {}]}}}}",
        "type: agent, with: {{prompt: x, tools: [{{shell: {{commands: [ls], env: {{A: {}}}}}}}]}}",
        "type: message, with: {{text: {}}}",
        "type: ask, with: {{message: x, choices: [{}]}}",
        "type: http, with: {{url: 'http://x', body: {}}}",
        "type: shell, with: {{run: [x], cwd: {}}}",
    ],
)
def test_a_number_is_the_text_that_was_written_or_is_refused(place: str, written: str) -> None:
    """Where text is wanted a number whose text would be another one is refused with the quotes that it needs."""
    assert f'quote it: "{written}"' in said(HEAD + f"  - {{id: a, {place.format(written)}}}\n")


@pytest.mark.parametrize(
    "written", ["80", "-9", "0", "0.5", "true", "yes", "12:30", "2026-11-26", "1_000", "010x"]
)
def test_a_number_whose_text_is_the_same_needs_no_quotes(written: str) -> None:
    """What a program is given is what is in the file."""
    flow = load_flow(in_list(written), "f.yml")
    assert node_types()["shell"].normalize(flow.by_id["a"].compiled.evaluate({}))["run"] == ["x", written]


@pytest.mark.parametrize("written", ["null", "~", ".inf", "99999999999999999999", "1e999"])
def test_what_is_no_text_at_all_is_refused_among_arguments(written: str) -> None:
    """Null and numbers that nobody can carry are no arguments."""
    assert said(in_list(written))


def test_a_tool_of_the_file_is_looked_at_too() -> None:
    """What agents run has its arguments as they were written."""
    tools = "tools: {t: {type: shell, description: x, with: {run: [tail, +8]}}}\n"
    assert 'quote it: "+8"' in said(
        "flow: f\n" + tools + "nodes: [{id: a, type: agent, with: {prompt: x, tools: [t]}}]"
    )


@pytest.mark.parametrize("written", ["3.10", "007", "+49", "0o755", "0x1F", "1234567e9"])
def test_a_number_that_may_be_text_is_warned_of(written: str) -> None:
    """Where any value may stand, what is written as versions and codes are is a doubt; a plain number is none."""
    at = HEAD + "  - {id: a, type: foreach, with: {items: [3.5]}, body: [{id: b, type: noop}]}\n"
    assert doubts(at) == []
    assert "quote it if it is text" in " ".join(doubts(at.replace("3.5", written)))


@pytest.mark.parametrize(
    ("line", "warned"),
    [
        ("inputs: {v: {type: array, default: [3.10, '3.9']}}", 1),
        ("inputs: {v: {type: object, default: {version: 3.10}}}", 1),
        ("inputs: {v: {type: object}}\ntriggers: [{shortcut: x, inputs: {v: {version: 3.10}}}]", 1),
        ("inputs: {v: {type: array, items: {type: number}, default: [3.10]}}", 0),
        ("inputs: {v: {type: number, default: 3.10}}", 0),
        ("inputs: {v: {type: number, choices: [3.10], required: false}}", 0),
        ("inputs: {v: {type: array, default: [3.5, 1]}}", 0),
    ],
)
def test_a_number_in_an_input_that_may_be_text_is_warned_of(line: str, warned: int) -> None:
    """A list of versions is one of numbers without quotes, unless numbers are what it has."""
    assert len(doubts(f"flow: f\n{line}\nnodes: [{{id: a, type: noop}}]\n")) == warned


@pytest.mark.parametrize(
    "line",
    [
        "inputs: {v: {default: 3.10}}",
        "inputs: {v: {choices: [3.10]}}",
        "inputs: {v: {}}\ntriggers: [{shortcut: x, inputs: {v: 3.10}}]",
    ],
)
def test_an_input_of_text_is_told_to_be_quoted(line: str) -> None:
    """With the quotes, where the value stands."""
    assert 'quote it: "3.10"' in said(f"flow: f\n{line}\nnodes: [{{id: a, type: noop}}]\n")


# --- keys without a value -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("channels: #ops", 'quote it: "#ops"'),
        ("channels:\n  - #ops", 'quote it: "#ops"'),
        ("channels:\n  - C01\n  - #ops", 'quote it: "#ops"'),
        ("allowed_to_start:", "write a value"),
        ("lock: #prod", 'quote it: "#prod"'),
        ("limits: {deadline: }", "write a value"),
        ("triggers: [{mention: hi, channels: }]", "write a value"),
        ("triggers:\n  - message: hi\n    channels: #ops", 'quote it: "#ops"'),
        ("description: # later", "before the comment"),
        ("finally:", "write a value"),
    ],
)
def test_a_key_without_a_value_is_refused(line: str, hint: str) -> None:
    """What restricts a flow is never left out by a comment or by half a line."""
    wrong = said(f"flow: f\n{line}\nnodes: [{{id: a, type: noop}}]\n")
    assert "has no value" in wrong
    assert hint in wrong


@pytest.mark.parametrize(
    "line",
    ["who:", "who: # somebody", "timeout: # 30m", "escalate:", "choices:", "default: #none"],
)
def test_a_field_of_a_node_without_a_value_is_refused(line: str) -> None:
    """Under `with` as well, and once."""
    assert "has no value" in said(
        HEAD + f"  - id: a\n    type: ask\n    with:\n      message: x\n      {line}\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "flow: f\nchannels: null\nnodes: [{id: a, type: noop}]\n",
        "flow: f\nallowed_to_start: ~\nnodes: [{id: a, type: noop}]\n",
        "flow: f\nlimits: {max_cost: null}\nnodes: [{id: a, type: noop}]\n",
        "flow: f\ntriggers: [{message: hi, channels: null}]\nnodes: [{id: a, type: noop}]\n",
        "flow: f\nnodes: [{id: a, type: noop, if: null}]\n",
        "flow: f\nnodes: [{id: a, type: ask, with: {message: x, who: null}}]\n",
        "flow: f\nnodes: [{id: a, type: agent, with: {prompt: x, tools: [{ask_human: {who: null}}]}}]\n",
        "flow: f\nnodes: [{id: a, type: agent, with: {prompt: x, tools: [{shell: {commands: [ls]}}], "
        "approvals: {shell: {approvers: null}}}}]\n",
        "flow: f\nnodes: [{id: a, type: message, with: {text: x, to: ~}}]\n",
        "flow: f\ninputs: {v: {choices: null}}\nnodes: [{id: a, type: noop}]\n",
        "flow: f\ntools: {t: {type: shell, description: x, input: {v: {choices: ~}}, with: {run: [ls]}}}\n"
        "nodes: [{id: a, type: noop}]\n",
        "flow: f\nfinally: null\nnodes: [{id: a, type: noop}]\n",
        "flow: f\nedges: null\nnodes: [{id: a, type: noop}]\n",
        "flow: f\nnodes: [{id: a, type: shell, with: {run: [ls]}, on_crash: null}]\n",
        "flow: f\nnodes: [{id: a, type: approval, with: {message: x, approvers: [channel], covers: ~}}]\n",
        "flow: f\nnodes: [{id: a, type: http, with: {url: 'http://x', schema: ~}}]\n",
        "flow: f\nnodes: [{id: a, type: http, with: {url: 'http://x', ok_status: ~}}]\n",
        "flow: f\nnodes: [{id: a, type: agent, with: {prompt: x, max_cost: ~}}]\n",
        "flow: f\nnodes: [{id: a, type: agent, with: {prompt: x, guests: ~}}]\n",
        "flow: f\nnodes: [{id: a, type: agent, with: {prompt: x, output: ~}}]\n",
        "flow: f\nnodes: [{id: a, type: agent, with: {prompt: x, server_tools: {web_search: ~}}}]\n",
        "flow: f\ntools: {t: {type: http, description: x, with: {url: 'http://x', schema: ~}}}\n"
        "nodes: [{id: a, type: noop}]\n",
    ],
)
def test_a_restriction_that_is_null_is_refused(text: str) -> None:
    """Null is not how a restriction is left out."""
    assert "null does not count as left out" in said(text)


def test_null_is_a_value_where_any_may_stand() -> None:
    """Data has nulls that are written out, and the keys of restrictions are data there too."""
    assert not said(node("set", a=None, channels=None, b={"if": None}))
    assert not said(node("http", url="http://x", method="POST", json={"timeout": None}, query={"q": None}))
    assert not said(node("end", output=None))
    assert not said(
        "flow: f\ninputs: {v: {type: object, default: {choices: null}}}\n"
        "triggers: [{shortcut: x, inputs: {v: {lock: null}}}]\nnodes: [{id: a, type: noop}]\n"
    )


# --- words behind a # ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "text: Deploy #42 to prod?",
        "text: Deploy #{{ inputs.n }} to prod?",
        "text: Deploy\n        the #42 to prod?",
        "text: Deploy build\n        #42 to prod?",
        "text: Deploy build\n        #42 to prod?\n      to: '#ops'",
        "text: x\n      to: '#ops'\n      fields:\n        - {title: a, value: b}\n        - title: Fixed #42\n          value: c",
    ],
)
def test_a_text_that_a_comment_cuts_is_warned_of(line: str) -> None:
    """A `#` with a word at it is hardly a comment."""
    found = doubts(HEAD + f"  - id: a\n    type: message\n    with:\n      {line}\n")
    assert len(found) == 1
    assert "a comment begins at `#" in found[0]
    assert "quote" in found[0]


def test_an_entry_that_a_comment_swallows_is_warned_of() -> None:
    """In a list of several lines what is behind a comma and a `#` is gone."""
    assert doubts("flow: f\nchannels: [C01, #dev\n]\nnodes: [{id: a, type: noop}]\n")


@pytest.mark.parametrize(
    "line",
    [
        "retry: {attempts: 3}  # three times",
        "name: x # a comment",
        "name: x #",
        "name: x  ## y",
        "# name: x",
        "#name: x",
        "name: x\n    #retry: safe",
        "name: x\n#retry: safe",
        "on_failure:\n      - id: b\n        type: noop\n        #name: x",
        "on_failure:\n      - id: b\n        #name: x\n        type: noop",
        "name: 'x' #42",
        "timeout: 5m #note",
        "timeout: 1h30m #note",
        "on_error: continue #note",
    ],
)
def test_a_comment_is_no_doubt(line: str) -> None:
    """A space behind the `#`, a line of its own, and quotes before it say that a comment is meant."""
    assert doubts(f"flow: f\nnodes:\n  - id: a\n    type: shell\n    {line}\n    with: {{run: [x]}}\n") == []


@pytest.mark.parametrize(
    "line",
    [
        "channels: [#ops, #dev]",
        "channels: [C01, #dev]",
        "limits: {deadline: Fixed #42 now}",
        "triggers: [{message: x, channels: #ops}]",
        "triggers:\n  - {schedule: '0 9 * * *', channel: #ops, timezone: UTC}",
        "triggers: [{message: x,\n    channels: #ops, dedupe: 5m}]",
        "description: a\n  b #c\n  d",
    ],
)
def test_an_error_of_syntax_names_the_comment(line: str) -> None:
    """Where a comment took a bracket with it, that is what is said."""
    assert "a comment begins at `#" in said(f"flow: f\n{line}\nnodes: [{{id: a, type: noop}}]\n")


# --- null in a text -----------------------------------------------------------------------------------------

_IN_TEXT = [
    ("shell", {"run": ["rm", "/data/{{ inputs.dir }}"]}),
    ("shell", {"run": ["rm", "{{ '/data/' ~ inputs.dir }}"]}),
    ("shell", {"run": ["rm", "{{ '%s/x' | format(inputs.dir) }}"]}),
    ("shell", {"run": ["rm", "{{ ['/data', inputs.dir] | join('/') }}"]}),
    ("shell", {"run": ["rm", "/data/{{ inputs.dir | string }}"]}),
    ("shell", {"run": ["x"], "env": {"A": "b{{ inputs.dir }}"}}),
    ("shell", {"run": ["x"], "cwd": "/data/{{ inputs.dir }}"}),
    ("http", {"url": "http://x/{{ inputs.dir }}"}),
    ("http", {"url": "http://x", "headers": {"A": "b {{ inputs.dir }}"}}),
    ("http", {"url": "http://x", "query": {"a": "b {{ inputs.dir }}"}}),
    ("message", {"text": "x", "to": "#ops-{{ inputs.dir }}"}),
    ("message", {"files": [{"path": "{{ inputs.dir }}/x"}]}),
    ("ask", {"message": "x", "who": ["@{{ inputs.dir }}"]}),
    ("approval", {"message": "x", "approvers": ["rota:{{ inputs.dir }}"]}),
]
_ALONE = [
    ("shell", {"run": "{{ ['x', inputs.dir] }}"}),
    ("ask", {"message": "x", "who": "{{ ['channel', inputs.dir] }}"}),
    ("shell", {"run": ["x"], "cwd": "{{ inputs.dir }}"}),
    ("message", {"text": "x", "to": "{{ inputs.dir }}"}),
    ("message", {"text": "x", "ephemeral_to": "{{ inputs.dir }}"}),
    ("ask", {"message": "x", "who": "{{ inputs.dir }}"}),
    ("ask", {"message": "x", "timeout": "{{ inputs.dir }}"}),
    ("agent", {"prompt": "x", "max_cost": "{{ inputs.dir }}"}),
    ("http", {"url": "http://x", "ok_status": "{{ inputs.dir }}"}),
    ("approval", {"message": "x", "approvers": ["channel"], "timeout": "{{ inputs.dir }}"}),
    ("wait", {"for": "{{ inputs.dir }}"}),
]


@pytest.mark.parametrize(("kind", "given"), [*_IN_TEXT, *_ALONE])
def test_what_may_be_null_where_something_is_done_is_refused(kind: str, given: dict[str, Any]) -> None:
    """Neither `/data/null` nor a place that was left out by null."""
    assert "may be null" in said(node(kind, **given))
    guarded = json.loads(json.dumps(given).replace("inputs.dir", "inputs.at"))
    assert "null" not in said(node(kind, **guarded))


@pytest.mark.parametrize(("kind", "given"), [*_IN_TEXT, *_ALONE])
def test_what_is_null_after_all_fails_the_node(kind: str, given: dict[str, Any]) -> None:
    """Where the type is not known before the run, the run finds out."""
    unknown = json.loads(json.dumps(given).replace("inputs.dir", "nodes.j.json.dir"))
    text = node("http", url="http://x", method="GET").replace('"id": "a"', '"id": "j"')
    text += f"  - {json.dumps({'id': 'a', 'type': kind, 'with': unknown})}\n"
    made = load_flow(text, "f.yml").by_id["a"]
    with pytest.raises((ExpressionError, InvalidConfig), match="null"):
        made.spec.normalize(made.compiled.evaluate({"nodes": {"j": {"json": {"dir": None}}}}), made.config)


def test_a_lock_has_no_null_in_its_name() -> None:
    """Sessions that have nothing in common would wait for each other."""
    for lock in ("deploy-{{ inputs.dir }}", "{{ inputs.dir }}"):
        assert "may be null" in said(
            HEAD.replace("nodes:", f'lock: "{lock}"\nnodes:') + "  - {id: a, type: noop}\n"
        )
    with pytest.raises(ExpressionError, match="null"):
        compile_value("a-{{ inputs.dir }}", exact=("",)).evaluate({"inputs": {"dir": None}})


def test_null_in_words_for_people_stays() -> None:
    """A message may say null."""
    assert not said(node("message", text="in {{ inputs.dir }}"))
    assert not doubts(node("message", text="in {{ inputs.dir }}"))


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("set", {"path": "/data/{{ inputs.dir }}"}),
        ("set", {"path": "{{ '/data/' ~ inputs.dir }}"}),
        ("set", {"path": "{{ ['/data', inputs.dir] | join('/') }}"}),
        ("python", {"call": "os:stat", "args": {"path": "/data/{{ inputs.dir }}"}}),
        ("shell", {"run": ["x"], "stdin": "cd /data/{{ inputs.dir }}"}),
        ("http", {"url": "http://x", "method": "POST", "body": "dir={{ inputs.dir }}"}),
        ("http", {"url": "http://x", "method": "POST", "json": {"a": ["/data/{{ inputs.dir }}"]}}),
    ],
)
def test_null_in_a_text_that_is_handed_on_is_a_doubt(kind: str, given: dict[str, Any]) -> None:
    """What other nodes, programs and servers are given says `null` there, which is hardly meant."""
    assert "may be null" in " ".join(doubts(node(kind, **given)))
    assert not doubts(node(kind, **json.loads(json.dumps(given).replace("inputs.dir", "inputs.at"))))


@pytest.mark.parametrize(
    "text", ["{{ 'x' if inputs.n > 3 }}", "a {{ 'x' if inputs.n > 3 }}", "{{ ('x' if inputs.n > 3) ~ 'y' }}"]
)
def test_an_if_without_else_is_refused(text: str) -> None:
    """It gives nothing when the condition is false, which would end a run."""
    assert "add `else`" in said(node("message", text=text))


def test_an_if_without_else_may_have_a_default() -> None:
    """What is undefined is defaulted there."""
    assert not said(node("message", text="{{ ('x' if inputs.n > 3) | default('y') }}"))


@pytest.mark.parametrize(
    ("condition", "warned"),
    [
        ("inputs.dir != ''", True),
        ("'' != inputs.dir", True),
        ("not inputs.dir == ''", True),
        ("not inputs.at == ''", False),
        ("inputs.dir | default('') != ''", True),
        ("inputs.at != ''", False),
        ("inputs.dir | default('', true) != ''", False),
        ("inputs.dir is not none and inputs.dir != ''", False),
        ("inputs.dir != '' and inputs.dir is not none", False),
    ],
)
def test_null_is_not_empty_text(condition: str, warned: bool) -> None:
    """A comparison with empty text that null passes is warned of."""
    text = HEAD + f'  - {{id: a, type: noop, if: "{{{{ {condition} }}}}"}}\n'
    assert [True for doubt in doubts(text) if "is not none" in doubt] == [True] * warned


def test_a_condition_that_may_be_null_is_asked_whether_it_is_there() -> None:
    """The hint is one that null does not pass."""
    wrong = said(HEAD + '  - {id: a, type: noop, if: "{{ inputs.dir }}"}\n')
    assert "is not none" in wrong
    assert "!= ''" not in wrong


# --- templates of others ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        ("${{ inputs.n }}", "the `$` before `{{`"),
        ("a ${{ inputs.n }} b", "the `$` before `{{`"),
        ("a {# b #} c", "`{# #}` is not a comment"),
        ("a {# {{ inputs.n }} #} c", "`{# #}` is not a comment"),
        ("Deploy ${inputs.n}", "write {{ inputs.n }}"),
        ("Deploy {inputs.n}", "write {{ inputs.n }}"),
        ("Deploy $inputs.n now", "write {{ inputs.n }}"),
        ("jsonpath={.items[*].metadata.name} ${HOME} {a: b} $x", ""),
        ("${#list[@]} ${x#}", ""),
        ("{{ '$' }}{{ inputs.n }}", ""),
    ],
)
def test_the_syntax_of_other_templates_is_warned_of(text: str, warned: str) -> None:
    """What GitHub's workflows and Jinja have means nothing here, and stays in the text."""
    found = doubts(node("message", text=text))
    assert bool(found) == bool(warned)
    assert warned in " ".join(found)


def test_a_condition_with_a_dollar_sign_is_told_so() -> None:
    """As workflows of GitHub have them."""
    assert "without the `$`" in said(HEAD + '  - {id: a, type: noop, if: "${{ inputs.n > 3 }}"}\n')


# --- blank texts --------------------------------------------------------------------------------------------

_BLANKS = [" ", "\n\t ", "\u200b", "\u2060\u200d", "\u3164", "\u00a0", "\u2800", "\u00ad"]


@pytest.mark.parametrize("blank", [*_BLANKS, "* *", "``` ```", "> _"])
@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("approval", {"message": "{}", "approvers": ["channel"]}),
        ("ask", {"message": "{}"}),
        ("message", {"text": "{}"}),
        ("message", {"markdown": "{}"}),
        ("message", {"fields": [{"title": "{}", "value": 1}]}),
    ],
)
def test_a_text_for_people_in_which_nothing_can_be_seen_is_refused(
    kind: str, given: dict[str, Any], blank: str
) -> None:
    """As it is in the file, and as an expression gives it when the node begins."""
    filled = json.loads(json.dumps(given).replace('"{}"', json.dumps(blank)))
    assert "not blank" in said(node(kind, **filled))
    with pytest.raises(InvalidConfig, match="not blank"):
        node_types()[kind].normalize(filled)


@pytest.mark.parametrize("blank", _BLANKS)
@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("approval", {"message": "x", "approvers": ["channel"], "approve_label": "{}"}),
        ("ask", {"message": "x", "choices": ["a", "{}"]}),
        ("ask", {"message": "x", "choices": [{"value": "a", "label": "{}"}]}),
        ("message", {"table": {"columns": ["{}"], "rows": []}}),
        ("fail", {"message": "{}"}),
        ("agent", {"prompt": "{}"}),
    ],
)
def test_a_label_in_which_nothing_can_be_seen_is_refused(
    kind: str, given: dict[str, Any], blank: str
) -> None:
    """A button, a column, a reason, a task."""
    assert "not blank" in said(node(kind, **json.loads(json.dumps(given).replace('"{}"', json.dumps(blank)))))


def test_a_label_may_be_a_mark() -> None:
    """No markup counts on a button."""
    assert not said(node("ask", message="x", choices=["*", ">", "_"]))


def test_a_field_of_a_form_with_a_blank_title_has_its_name() -> None:
    """A label is never blank."""
    form = {"properties": {"the_region": {"type": "string", "title": "\u200b"}}}
    fields = node_types()["ask"].normalize({"message": "x", "form": form})["form"]["fields"]
    assert fields[0]["title"] == "The region"


@pytest.mark.parametrize("case", _IN_TEXT, ids=str)
def test_a_node_that_writes_null_is_noticed(
    case: tuple[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeded fault: no place is exact."""
    monkeypatch.setattr("engine.language.expressions.below", lambda places, key: ())
    with pytest.raises(BaseException, match="DID NOT RAISE"):
        test_what_is_null_after_all_fails_the_node(*case)


# --- the reader ---------------------------------------------------------------------------------------------


def test_another_error_is_not_put_down_to_a_comment() -> None:
    """What a comment did not do is told as it is."""
    assert "cannot begin with `@`" in said("flow: f\ndescription: a #b\nchannels: [@sre]\n")


def test_places_of_comments_and_empty_keys_are_exact() -> None:
    """A doubt points at the `#`, an empty key at itself."""
    located = load_located("a: b\nc:  #d\ne: f #g\n", "f")
    assert [(each.line, each.column) for each in (*located.problems, *located.doubts)] == [(2, 1), (3, 6)]
