"""Values in marked-up texts: whatever they say, nobody is called and nothing leads anywhere."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from engine.language.expressions import compile_value
from engine.language.template import harmless, shown
from tests.support.proving import tries

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
    "- ",
    "    ",
    "|",
    "\n|-|-|\n",
    "\n```\n",
    "\x1f",
    "\x85",
    "\r",
    "\u202e",
    "\u1fef",  # becomes a backtick when it is composed
    "&#58\u037e",  # its end becomes a semicolon
    "plain words",
)
TEXTS = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=4), max_size=8).map("".join)
TEMPLATES = (
    "{{ inputs.x }}\nafter",
    "Before {{ inputs.x }} after",
    "- {{ inputs.x }}\n- after",
    "> {{ inputs.x }}\n\nafter",
    "1. `a`{{ inputs.x }}{{ inputs.x }}after",
    "| a | b |\n|---|---|\n| {{ inputs.x }} | after |",
    "~~~\n{{ inputs.x }}\n~~~\nafter",
)
_TAG = re.compile(r"<[@#!?/A-Za-z]")
_LEADS = re.compile(r"://|www\.|@\w|\w@|\]\(|\]:|evil\.example|&#\w+;")
READER = MarkdownIt("commonmark").enable("table")
_PLAIN = {"text", "code_inline", "softbreak", "hardbreak", "em", "strong"}


def read(markdown: str) -> str:
    """The words of a markdown text that are not code, as a reader of Markdown sees them: it has no link or picture."""
    words = []
    for token in READER.parse(markdown):
        assert token.type != "html_block"
        for inner in token.children or ():
            assert inner.type.removesuffix("_open").removesuffix("_close") in _PLAIN, inner
            words.append(inner.content if inner.type == "text" else "\n")
        words.append("\n")
    return "".join(words)


def told(template: str, value: str) -> str:
    """What a markdown text becomes with this value in it."""
    text = compile_value(template, markup="markdown").evaluate({"inputs": {"x": value}})
    assert isinstance(text, str)
    return text


@settings(max_examples=tries(600))
@given(TEXTS, st.sampled_from(TEMPLATES))
def test_a_value_in_markdown_calls_nobody_and_leads_nowhere(value: str, template: str) -> None:
    """Outside of code there is no mention, link, picture or address left, and inside of it no mention; the author's
    own words are still seen."""
    text = told(template, value)
    assert not _TAG.search(text)
    assert not _LEADS.search(read(text))
    assert any("after" in token.content for token in READER.parse(text))
    assert shown(text) == text


@pytest.mark.parametrize(
    ("value", "made"),
    [
        ("\x1f@x", "`\\u001f@x`"),
        ("\x1f@", "`\\u001f@`"),
        ("http:\x1f//10.0.0.1", "`http:\\u001f//10.0.0.1`"),
        ("\x1fwww.x", "`\\u001fwww.x`"),
        ("evil\u202e.example", "`evil\\u202e.example`"),
        ("&#58\u037e", "& #58;"),
        ("\u1fefhttps://10.0.0.1", "`'https://10.0.0.1`"),
    ],
)
def test_a_value_is_judged_as_it_will_be_shown(value: str, made: str) -> None:
    """Spelling a character out, or composing it, later brings nothing back that leads somewhere."""
    assert harmless(value) == made
    assert shown(made) == made


def test_what_would_deceive_is_spelled_out() -> None:
    """Characters that reorder or hide text are shown by their code; line ends, tabs and letters stay."""
    assert shown("pay \u202etxt.exe") == "pay \\u202etxt.exe"
    assert shown("\u2066a\u2069") == "\\u2066a\\u2069"
    assert shown("\x1b[2Jgone\x07") == "\\u001b[2Jgone\\u0007"
    assert shown("one\r\n\ttwo ü 漢 😀 مرحبا") == "one\n\ttwo ü 漢 😀 مرحبا"


@settings(max_examples=tries(300))
@given(TEXTS)
def test_a_value_cannot_end_the_code_that_its_author_opened(value: str) -> None:
    """In a fence and in a span of the flow's own the value stays inside."""
    fenced = told("```\n{{ inputs.x }}\n```\nend", value)
    assert fenced.count("```") == 2
    assert not _TAG.search(fenced)
    spanned = told("see `{{ inputs.x }}` end", value)
    assert spanned.count("`") == 2
    assert "\n" not in spanned


@settings(max_examples=tries(300))
@given(TEXTS)
def test_a_value_in_mrkdwn_has_no_markup_of_slack(value: str) -> None:
    """Neither alone nor in a nested field: the three characters are escaped."""
    made = compile_value([{"value": "{{ inputs.x }}"}], markup="mrkdwn").evaluate({"inputs": {"x": value}})
    assert "<" not in made[0]["value"]
    assert ">" not in made[0]["value"]


@pytest.mark.parametrize("hostile", ["a", "`a`", "```\n", "|-", "\\", "&#", "a.", "<!", "~", " \t"])
def test_hostile_text_costs_little(hostile: str) -> None:
    """A text made to be slow is made harmless in a moment."""
    began = time.perf_counter()
    harmless(hostile * (200_000 // len(hostile)))
    assert time.perf_counter() - began < 5


def test_a_value_stays_in_its_cell() -> None:
    """In a table of the author's a value adds no cell and no row, and hides none that follows."""
    text = told("| a | b |\n|---|---|\n| {{ inputs.x }} | no |", "one | yes |\n| two")
    assert text.splitlines()[2:] == [r"| one \| yes \| \| two | no |"]


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
        ("`x | y`", "`x | y`"),
        ("| a |\n|---|\n| `x | https://e.example` |", "| a |\n|---|\n| `x \\| https://e.example` |"),
        ("`a````\nhttps://e.example\n```", "`a`\n```\nhttps://e.example\n```"),
        ("- ```\nhttps://e.example\n```", "-\n```\nhttps://e.example\n```"),
        ("~~~\n~~gone~~", "~~\n~~gone~~"),
        ("v1.2.3 is out", "v1.2.3 is out"),
    ],
)
def test_the_form_of_a_value_stays(value: str, shown: str) -> None:
    """Headings, tables and code of a value are shown as such, and begin and end where every reader of Markdown sees
    them begin and end; addresses stand as code."""
    assert harmless(value) == shown
