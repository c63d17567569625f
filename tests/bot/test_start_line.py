"""What people write to start a flow, as a table."""

from __future__ import annotations

import pytest

from bot.inbound.triggers import BadLine, StartLine, captured, match_trigger, parse

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
    ("", "Say which flow"),
    ("run", "Say which flow"),
    ("disk-cleenup", "Did you mean `disk-cleanup`?"),
    ("zzz", "There are: `disk-cleanup`, `release`"),
    ("release fast", "inputs are written `key=value`"),
    ("release a=1 a=2", "`a` is given twice"),
    ('release a="open', "A quote is opened"),
    ("release " + "a=[ " * 5_000, "is given twice"),
    ("release " + "a=" + "[" * 10_000 + " a=1", "is given twice"),
    ('release "' + "a=[] " * 3_000, "A quote is opened"),
]


@pytest.mark.parametrize(("text", "part"), BAD)
def test_a_line_that_starts_nothing_says_what_would(text: str, part: str) -> None:
    """A misspelt name, a missing pair or an open quote is answered with what would be right."""
    found = parse(text, FLOWS)
    assert isinstance(found, BadLine)
    assert part in found.message


TRIGGERS = [
    ("rollback {service}", "rollback"),
    ("rollback {service} in {region}", "regional"),
    ("deploy now", "deploy"),
]
MATCHES = [
    ("rollback checkout", StartLine("rollback", {"service": "checkout"})),
    ("Rollback   checkout", StartLine("rollback", {"service": "checkout"})),
    ("rollback checkout in eu", StartLine("regional", {"service": "checkout", "region": "eu"})),
    ('rollback "card service" in eu', StartLine("regional", {"service": "card service", "region": "eu"})),
    ("deploy now", StartLine("deploy", {})),
    ("please deploy now", None),
    ("rollback", None),
]


@pytest.mark.parametrize(("text", "expected"), MATCHES)
def test_a_trigger_takes_the_whole_text(text: str, expected: StartLine | None) -> None:
    """A pattern matches the whole message, fills its inputs, and the most specific pattern wins."""
    assert match_trigger(text, TRIGGERS) == expected


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
