"""Values in marked-up texts: whatever they say, nobody is called and nothing leads anywhere."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.expressions import compile_value
from engine.markup import harmless

HOSTILE = (
    "<!channel>",
    "<@U012ABCDEF>",
    "<#C012|x>",
    "<https://evil.example|bank>",
    "https://evil.example/x",
    "www.evil.example",
    "evil.example",
    "mailto:a@evil.example",
    "a@evil.example",
    "@here",
    "[bank](https://evil.example)",
    "![x](https://evil.example/p.png)",
    "[bank]: https://evil.example",
    "[bank][1]",
    "`",
    "``",
    "```",
    "~~~",
    "\\",
    "\\`https://evil.example`",
    "<a href='x'>",
    "&lt;!here&gt;",
    "https&#58;//10.0.0.1",
    "https:\\/\\/10.0.0.1",
    "\n",
    "\n\n",
    " ",
    "# ",
    "> ",
    "|",
    "plain words",
)
TEXTS = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=4), max_size=8).map("".join)
_TAG = re.compile(r"<[@#!?/A-Za-z]")
_SPANS = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
_LEADS = re.compile(r"://|www\.|@\w|\w@|\]\(|\]:|evil\.example|&#")


def told(template: str, value: str) -> str:
    """What a markdown text becomes with this value in it."""
    text = compile_value(template, markup="markdown").evaluate({"inputs": {"x": value}})
    assert isinstance(text, str)
    return text


@settings(max_examples=600, deadline=None)
@given(TEXTS)
def test_a_value_in_markdown_calls_nobody_and_leads_nowhere(value: str) -> None:
    """Outside of code there is no mention, link, picture or address left, and inside of it no mention."""
    text = told("Before {{ inputs.x }} after", value)
    assert not _TAG.search(text)
    assert not _LEADS.search(_SPANS.sub("", text))


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_a_value_cannot_end_the_code_that_its_author_opened(value: str) -> None:
    """In a fence and in a span of the flow's own the value stays inside."""
    fenced = told("```\n{{ inputs.x }}\n```\nend", value)
    assert fenced.count("```") == 2
    assert not _TAG.search(fenced)
    spanned = told("see `{{ inputs.x }}` end", value)
    assert spanned.count("`") == 2
    assert "\n" not in spanned


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_a_value_in_mrkdwn_has_no_markup_of_slack(value: str) -> None:
    """Neither alone nor in a nested field: the three characters are escaped."""
    made = compile_value([{"value": "{{ inputs.x }}"}], markup="mrkdwn").evaluate({"inputs": {"x": value}})
    assert "<" not in made[0]["value"]
    assert ">" not in made[0]["value"]


def test_what_the_author_writes_stays() -> None:
    """Links and mentions of the flow itself are markup."""
    text = told("[docs](https://docs.example.com) <@U012ABCDEF> {{ inputs.x }}", "**bold**\n\n- one")
    assert text == "[docs](https://docs.example.com) <@U012ABCDEF> **bold**\n\n- one"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("# Title\n\n| a | b |", "# Title\n\n| a | b |"),
        ("go to https://x.example now", "go to `https://x.example` now"),
        ("run `ls -l`", "run `ls -l`"),
        ("```sh\ncurl https://x.example\n```", "```sh\ncurl https://x.example\n```"),
        ("a < b and a<b", "a < b and a< b"),
        ("v1.2.3 is out", "v1.2.3 is out"),
    ],
)
def test_the_form_of_a_value_stays(value: str, shown: str) -> None:
    """Headings, tables and code of a value are shown as such; addresses stand as code."""
    assert harmless(value) == shown
