"""Names in other workflow formats, shells and languages, for the hints of errors. Plain tables.

People port runbooks from GitHub Actions, Ansible, Airflow, n8n and Slack's workflows, and use the terms of those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_COMMAND = ("run", "shell")
_SCRIPT = ("script", "shell")
_LIST = ("nodes", "body")
_PEOPLE = ("approvers", "who", "to", "allowed_to_start")
_FILTER_LENGTH = ("length",)

CALLED: Mapping[str, tuple[str, ...]] = {
    # flows and nodes
    "title": ("name", "message", "description"), "label": ("name",), "workflow": ("flow",), "name": ("flow",),
    "nodes": ("body",), "steps": _LIST, "tasks": _LIST, "jobs": _LIST, "stages": _LIST, "actions": ("nodes", "body", "choices"),
    "do": ("body",), "then": ("body",), "rounds": ("max_iterations",), "max_rounds": ("max_iterations",),
    "kind": ("type",), "uses": ("type",), "action": ("type",), "module": ("type", "call"),
    "config": ("with",), "configuration": ("with",), "settings": ("with",), "arguments": ("with", "args"), "spec": ("with",),
    "when": ("if",), "condition": ("if",), "conditions": ("if",), "only_if": ("if",), "filter": ("if",),
    "retries": ("retry",), "max_retries": ("retry",), "attempts": ("retry",), "max_attempts": ("attempts", "retry"),
    "retry_delay": ("delay", "retry"), "timeout_minutes": ("timeout",), "timeout_seconds": ("timeout",), "deadline": ("timeout",),
    "execution_timeout": ("timeout",), "continue_on_error": ("on_error",), "ignore_errors": ("on_error",),
    "allow_failure": ("on_error",), "catch": ("on_failure",), "rescue": ("on_failure",), "fallback": ("on_failure",),
    "always": ("finally",), "ensure": ("finally",), "cleanup": ("finally",), "otherwise": ("default",), "id": ("flow",),
    # the top of a flow
    "on": ("triggers",), "schedule": ("triggers",), "cron": ("schedule", "triggers"), "webhook": ("triggers", "http"), "vars": ("inputs", "env"),
    "variables": ("inputs", "env"), "params": ("inputs", "query", "args", "with"), "parameters": ("inputs", "query", "args", "with"),
    "input": ("inputs", "stdin", "ask"), "concurrency": ("lock",), "mutex": ("lock",), "permissions": ("allowed_to_start",),
    "channel": ("to", "channels"), "channels": ("to",),
    # fields of nodes
    "args": _COMMAND, "argv": _COMMAND, "cmd": _COMMAND, "command": _COMMAND, "exec": _COMMAND, "program": _COMMAND, "executable": _COMMAND,
    "commands": _SCRIPT, "bash": _SCRIPT, "sh": _SCRIPT, "script": ("shell",), "shell_script": _SCRIPT, "inline": _SCRIPT, "run": ("shell",),
    "working_directory": ("cwd",), "workdir": ("cwd",), "working_dir": ("cwd",), "chdir": ("cwd",), "dir": ("cwd",), "directory": ("cwd",),
    "environment": ("env",), "envs": ("env",), "env_vars": ("env",), "exit_codes": ("ok_codes",),
    "data": ("json",), "payload": ("json",), "verb": ("method",), "uri": ("url",), "endpoint": ("url",),
    "status_code": ("ok_status",), "expected_status": ("ok_status",), "qs": ("query",),
    "message": ("text",), "msg": ("text", "message"), "body": ("text",), "content": ("text",), "blocks": ("markdown", "text"), "text": ("message",),
    "attachments": ("files",), "thread_ts": ("thread",), "recipient": ("to",), "recipients": ("to", "approvers"), "user": ("to", "who"),
    "question": ("message",), "prompt": ("message", "ask"), "users": _PEOPLE, "reviewers": _PEOPLE, "assignees": _PEOPLE, "people": _PEOPLE,
    "approvers": ("who",), "who": ("approvers",), "options": ("choices",), "buttons": ("choices",), "fields": ("form",),
    "seconds": ("for",), "minutes": ("for",), "duration": ("for",), "delay": ("for", "wait"), "list": ("items",), "over": ("items",),
    "with_items": ("items",), "value": ("on",), "expression": ("on",), "function": ("call", "python"),
    # node types
    "slack": ("message",), "notify": ("message",), "notification": ("message",), "log": ("message",), "debug": ("message",), "email": ("message",),
    "sleep": ("wait",), "pause": ("wait",), "approve": ("approval",), "manual": ("approval",), "confirm": ("approval",),
    "form": ("ask",), "for_each": ("foreach",), "map": ("foreach",), "while": ("loop",), "repeat": ("loop",), "if": ("switch",),
    "choice": ("switch",), "branch": ("switch",), "case": ("switch",), "request": ("http",), "rest": ("http",), "api": ("http",),
    "http_request": ("http",), "fetch": ("http",), "code": ("python",), "lambda": ("python",), "call": ("flow",), "subflow": ("flow",),
    "llm": ("agent",), "ai": ("agent",), "claude": ("agent",), "exit": ("end",), "stop": ("end",), "return": ("end",),
    "assert": ("fail",), "error": ("fail",), "raise": ("fail",), "variable": ("set",), "transform": ("set",),
    # filters
    "strip": ("trim",), "size": _FILTER_LENGTH, "count": _FILTER_LENGTH, "len": _FILTER_LENGTH, "d": ("default",), "splitlines": ("lines",),
    "to_json": ("tojson",), "from_json": ("fromjson",), "str": ("string",), "tostring": ("string",), "number": ("int",), "toint": ("int",),
    "regex_replace": ("replace",), "regex_search": ("match",), "regex_match": ("match",), "dict2items": ("items",), "uniq": ("unique",),
    "touppercase": ("upper",), "tolowercase": ("lower",), "strftime": ("date",), "to_datetime": ("moment",), "regex": ("match", "matching"), "contains": ("in",),
}  # fmt: skip
"""Our names for foreign ones, in the order in which they are tried."""

INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(
        ("needs", "depends_on", "after", "next", "upstream", "goto"),
        "nodes run in the order of the list; for another order write `edges` beside `nodes`",
    ),
    **dict.fromkeys(
        ("register", "outputs", "output", "save_as"), "the output of a node is `nodes.<id>`, without a name"
    ),
    **dict.fromkeys(
        ("loop", "foreach", "with_items", "for_each", "items", "matrix", "strategy"),
        "write a node of type `foreach` with the nodes under `body`",
    ),
    **dict.fromkeys(
        ("until", "while"), "write a node of type `loop` with the nodes under `body`, and this under `with`"
    ),
    "parallel": "write a node of type `parallel` with lists of nodes under `branches`",
    "unless": 'write `if: "{{ not ... }}"`',
    "else": "write a node with the opposite `if`, or one of type `switch` with `default`",
    "finally": "`finally` belongs beside the flow's `nodes`",
    "env": "`env` belongs under `with` of a node of type `shell`",
    "secrets": "write `{{ secrets.NAME }}` where it is needed; it is not declared",
    "auth": 'write a header: `headers: {Authorization: "Bearer {{ secrets.NAME }}"}`',
    "shell": "a `script` is run by `sh`; for another one write `run: [bash, -c, ...]`",
    "approvers": "people decide in a node of type `approval`",
    "channel": "questions are asked in the thread of the run; the flow's `channels` say where it may start",
}
"""Advice for foreign fields without a counterpart here."""

_IS = "write `status.<id> == '{}'`"
FUNCTIONS: Mapping[str, str] = {
    "contains": "write `'part' in text`",
    "startswith": "write `text is startswith('v')`",
    "endswith": "write `text is endswith('.yml')`",
    "success": _IS.format("completed"),
    "failure": _IS.format("failed"),
    "always": "put nodes that always run under `finally`",
    "now": "write `now` without the brackets",
    "env": "write a secret `{{ secrets.NAME }}`, or an input",
    "lookup": "write an input, or read it with a node",
    "coalesce": "write `a | default(b, true)`",
    **dict.fromkeys(("isset", "exists"), "write `a is defined`, or `a is not none`"),
    **dict.fromkeys(("includes", "has"), "write `'part' in text`"),
    **dict.fromkeys(("null", "nil"), "write `is none`"),
    **dict.fromkeys(("empty", "blank"), "write `... | length == 0`"),
    **dict.fromkeys(("bool", "boolean"), "compare it: `... == 'true'`"),
}
"""Advice for functions of other formats; those that are filters here are named as such."""


def ours(name: str, known: Iterable[str]) -> str | None:
    """Return our name for a foreign one; None if there is none."""
    names, word = set(known), name.lower().replace("-", "_")
    return next((each for each in (name, word, *CALLED.get(word, ())) if each in names), None)


def instead(name: str) -> str | None:
    """Return the advice for a foreign field of that name, as a sentence."""
    return INSTEAD.get(name.lower().replace("-", "_"))
