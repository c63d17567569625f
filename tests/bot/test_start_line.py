"""What people write to start a flow, as a table."""

from __future__ import annotations

import pytest

from bot.inbound.lines import BadLine, StartLine, parse
from bot.inbound.triggers import Listening, captured
from engine.flow import Flow
from engine.flow.load import load_flow

FLOWS = ("disk-cleanup", "release")

LINES = [
    ("disk-cleanup", StartLine("disk-cleanup", {})),
    ("run disk-cleanup", StartLine("disk-cleanup", {})),
    ("Disk-Cleanup path=/var/log", StartLine("disk-cleanup", {"path": "/var/log"})),
    ('release notes="two words" version=1.2', StartLine("release", {"notes": "two words", "version": "1.2"})),
    ("release notes=“curly quotes”", StartLine("release", {"notes": "curly quotes"})),
    ("release formula=a=b", StartLine("release", {"formula": "a=b"})),
    ("release empty=", StartLine("release", {"empty": ""})),
    ('release to={"a b": [1, "c"]} n=3', StartLine("release", {"to": '{"a b": [1, "c"]}', "n": "3"})),
    ("release tags=[“eu west”, 2]", StartLine("release", {"tags": '["eu west", 2]'})),
    ("release a={x} b=[eu", StartLine("release", {"a": "{x}", "b": "[eu"})),
    ('release say="see to={\\"a\\": 1}"', StartLine("release", {"say": 'see to={"a": 1}'})),
    (r"release path=C:\temp\new rule=\d+", StartLine("release", {"path": r"C:\temp\new", "rule": r"\d+"})),
    (r"release rule='\d+ x' share=\\a\b", StartLine("release", {"rule": r"\d+ x", "share": r"\\a\b"})),
]


@pytest.mark.parametrize(("text", "expected"), LINES)
def test_a_line_names_a_flow_and_its_inputs(text: str, expected: StartLine) -> None:
    """A name, with or without `run`, and `key=value` pairs, quoted where there are spaces."""
    assert parse(text, FLOWS) == expected


BAD = [
    ("", "Name the flow"),
    ("run", "Name the flow"),
    ("disk-cleenup", "Did you mean `disk-cleanup`?"),
    ("zzz", "There are: `disk-cleanup`, `release`"),
    ("release fast", "write inputs as `key=value`"),
    ("release a=1 a=2", "`a` is given twice"),
    ('release a="open', "A quote is not closed"),
    ("release " + "a=[ " * 5_000, "is given twice"),
    ("release " + "a=" + "[" * 10_000 + " a=1", "is given twice"),
    ('release "' + "a=[] " * 3_000, "A quote is not closed"),
]


@pytest.mark.parametrize(("text", "part"), BAD)
def test_a_line_that_starts_nothing_says_what_would(text: str, part: str) -> None:
    """A misspelt name, a missing pair or an open quote is answered with what would be right."""
    found = parse(text, FLOWS)
    assert isinstance(found, BadLine)
    assert part in found.message


def served(name: str, inputs: str, *triggers: str) -> Flow:
    """A flow with these inputs, of which those with a `?` may be left out, and these triggers."""
    lines = [f"flow: {name}", "inputs:"]
    lines += [
        f"  {each.rstrip('?')}: {{type: string, required: {'false' if each.endswith('?') else 'true'}}}"
        for each in inputs.split()
    ]
    lines += ["triggers:", *(f"  - {trigger}" for trigger in triggers), "nodes:"]
    return load_flow("\n".join([*lines, "  - {id: go, type: wait, with: {for: 1s}}", ""]))


FLOWS_BY_NAME = {
    flow.name: flow
    for flow in (
        served("rollback", "service reason?", 'mention: "rollback {service}"'),
        served("regional", "service region", 'mention: "rollback {service} in {region}"'),
        served("deploy", "mode?", "{mention: deploy now, inputs: {mode: fast}}"),
        served("restart-it", "service help?", 'mention: "restart {service}"'),
        served("incident", "title", 'mention: "see {title}"', 'mention: "what\'s up with {title}"'),
        served("echo", "what", 'mention: "deploy {what}"'),
    )
}
MATCHES: list[tuple[str, str, dict[str, str]]] = [
    ("rollback checkout", "rollback", {"service": "checkout"}),
    ("Rollback   checkout", "rollback", {"service": "checkout"}),
    ("rollback checkout in eu", "regional", {"service": "checkout", "region": "eu"}),
    ('rollback "card service" in eu', "regional", {"service": "card service", "region": "eu"}),
    ('rollback "made in us" in eu', "regional", {"service": "made in us", "region": "eu"}),
    ("deploy now", "deploy", {"mode": "fast"}),
    ("deploy now mode=odd", "deploy", {"mode": "odd"}),
    # key=value of the flow's own inputs
    ("rollback service=checkout", "rollback", {"service": "checkout"}),
    ("rollback Service=checkout", "rollback", {"service": "checkout"}),
    ("rollback SERVICE=checkout REGION=eu", "regional", {"service": "checkout", "region": "eu"}),
    ("rollback reason=late checkout", "rollback", {"reason": "late", "service": "checkout"}),
    ('rollback checkout reason="too = slow"', "rollback", {"service": "checkout", "reason": "too = slow"}),
    ("rollback checkout in eu reason=late", "regional", {"service": "checkout", "region": "eu reason=late"}),
    ("rollback service=checkout region=eu", "regional", {"service": "checkout", "region": "eu"}),
    ("rollback checkout region=eu", "regional", {"service": "checkout", "region": "eu"}),
    ("restart service=checkout help=yes", "restart-it", {"service": "checkout", "help": "yes"}),
    ("restart service = checkout", "restart-it", {"service": "checkout"}),
    ("rollback service= checkout region =eu", "regional", {"service": "checkout", "region": "eu"}),
    ('restart service = "card service"', "restart-it", {"service": "card service"}),
    ("restart service=“card service”", "restart-it", {"service": "card service"}),
    ("restart ?service=url&help=eq", "restart-it", {"service": "?service=url&help=eq"}),
    ("restart dry-run=yes", "restart-it", {"service": "dry-run=yes"}),
    ("restart https://x.example/?service=a", "restart-it", {"service": "https://x.example/?service=a"}),
    ('restart "service=checkout"', "restart-it", {"service": "service=checkout"}),
    ("echo what=now", "echo", {"what": "now"}),
    ("deploy what=now", "echo", {"what": "now"}),
    # what is missing is asked for
    ("restart", "restart-it", {}),
    ("rollback", "rollback", {}),
    ("restart help=yes", "restart-it", {"help": "yes"}),
    # words as they were written
    ('see "502 Bad Gateway" on checkout', "incident", {"title": '"502 Bad Gateway" on checkout'}),
    ("see “502 Bad Gateway” on checkout", "incident", {"title": "“502 Bad Gateway” on checkout"}),
    ('see 5" disk', "incident", {"title": '5" disk'}),
    ("see it don’t work", "incident", {"title": "it don’t work"}),
    ("see ’tis down", "incident", {"title": "’tis down"}),
    ('see "down" and "out"', "incident", {"title": '"down" and "out"'}),
    ('see "all of it"', "incident", {"title": "all of it"}),
    ("see “all of it”", "incident", {"title": "all of it"}),
    ("see 'all of it'", "incident", {"title": "all of it"}),
    ('see title=“don’t "go" there”', "incident", {"title": 'don’t "go" there'}),
    ("see a line\nand another", "incident", {"title": "a line\nand another"}),
    ("what’s up with checkout", "incident", {"title": "checkout"}),
]


@pytest.mark.parametrize(("text", "flow", "inputs"), MATCHES)
def test_words_behind_a_mention_start_the_flow_that_they_fit(
    text: str, flow: str, inputs: dict[str, str]
) -> None:
    """A pattern is the whole of a text beside the inputs that are given as `key=value`, and gets its words unchanged."""
    assert Listening(lambda: FLOWS_BY_NAME).line(text, {}) == StartLine(flow, inputs)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("please deploy now", "There is no flow `please`"),
        ("restart checkout service=cart", "`service` is given twice"),
        ("restart service=a service=b", "`service` is given twice"),
        ("restart service=check out", 'as `service="two words"`'),
        ("incident title=a title=b", "`title` is given twice"),
    ],
)
def test_words_that_fit_nothing_are_answered_with_what_is_wrong(text: str, part: str) -> None:
    """No trigger takes a text of which a part is not its own, or that gives an input twice."""
    found = Listening(lambda: FLOWS_BY_NAME).line(text, {})
    assert isinstance(found, BadLine)
    assert part in found.message


HEARD = [
    ("{service} is down", "checkout is down", {"service": "checkout"}),
    ("{service} is down", "🔥 checkout is down (p99 3 s)", {"service": "🔥 checkout"}),
    ("DOWN: {service}", "alert\nDown:  card service \nsince 3", {"service": "card service"}),
    ("alert * for {host}", "Alert disk full for web-1", {"host": "web-1"}),
    ("disk full", "the disk  full again", {}),
    ("disk full", "disk fuller", None),
    ("DOWN: {service}", "DOWN:", None),
]


@pytest.mark.parametrize(("pattern", "text", "expected"), HEARD)
def test_words_are_heard_anywhere_in_a_message(
    pattern: str, text: str, expected: dict[str, str] | None
) -> None:
    """A pattern is found inside a message, as whole words; a place at the end takes the rest of its line."""
    assert captured(pattern, text) == expected
