"""Slack's text as people meant it."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_state.question_row import TooLong
from prompt_state.slack_text import MAX_BYTES, text_in, unescape

CASES = [
    ("plain words", "plain words"),
    ("", ""),
    # links and addresses
    ("<https://example.com/a>", "https://example.com/a"),
    ("<https://example.com|https://example.com>", "https://example.com"),
    ("see <http://example.com|example.com>.", "see example.com."),
    ("<https://example.com/?a=1&amp;b=2>", "https://example.com/?a=1&b=2"),
    ("<mailto:ana@example.com|ana@example.com>", "ana@example.com"),
    ("<tel:+4930123|+4930123>", "+4930123"),
    ("<https://evil.example|https://bank.example>", "https://bank.example (https://evil.example)"),
    ("<https://example.com|the docs>", "the docs (https://example.com)"),
    ("<https://example.com/|example.com>", "example.com"),
    # people, channels, groups
    ("hi <@U123>", "hi <@U123>"),
    ("hi <@U123|ana>", "hi <@U123>"),
    ("in <#C123|general>", "in #general"),
    ("in <#C123|>", "in <#C123>"),
    ("in <#C123>", "in <#C123>"),
    ("<!here> and <!channel>", "@here and @channel"),
    ("<!subteam^S1|@sre>", "@sre"),
    ("<!subteam^S1>", "<!subteam^S1>"),
    ("<!date^1700000000^{date}|14 Nov 2023>", "14 Nov 2023"),
    # entities, once
    ("a &lt; b &amp;&amp; c &gt; d", "a < b && c > d"),
    ("&amp;lt;", "&lt;"),
    ("&amp;amp;amp;", "&amp;amp;"),
    ("&quot; &nbsp; &", "&quot; &nbsp; &"),
    ("&lt;https://example.com|x&gt;", "<https://example.com|x>"),
    ("&lt;@U123&gt;", "<@U123>"),
    ("<https://example.com|a &lt; b>", "a < b (https://example.com)"),
    # what is not markup stays
    ("1 < 2", "1 < 2"),
    ("<nothing>", "<nothing>"),
    ("<>", "<>"),
    # what cannot be stored
    ("nul \x00 here", "nul \ufffd here"),
    ("half \ud83d pair", "half \ufffd pair"),
    ("e\u0301", "\u00e9"),
]


@pytest.mark.parametrize(("raw", "typed"), CASES)
def test_text_comes_in_as_typed(raw: str, typed: str) -> None:
    """What Slack wrapped and escaped is undone exactly once; nothing else changes."""
    assert text_in(raw) == typed


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=60))
def test_what_slack_escapes_comes_back(typed: str) -> None:
    """Any text that a person types, escaped as Slack does, comes in as it was typed (in NFC)."""
    escaped = typed.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert unescape(escaped) == typed
    assert text_in(escaped) == unicodedata.normalize("NFC", typed)


@given(st.text(max_size=80))
def test_every_text_can_come_in(raw: str) -> None:
    """No text, however broken, raises anything, and what comes in can always be stored."""
    text_in(raw).encode()


@pytest.mark.parametrize("letter", ["x", "é", "漢"])
def test_the_limit_is_in_bytes(letter: str) -> None:
    """16 KiB of UTF-8 are taken, one letter more is refused as a whole."""
    most = MAX_BYTES // len(letter.encode())
    assert text_in(letter * most) == letter * most
    with pytest.raises(TooLong, match="It was not used"):
        text_in(letter * (most + 1))


@pytest.mark.parametrize(
    "hostile", ["<" * 400_000, "<https://" * 50_000, "&lt;" * 100_000, "<a|" + "|" * 400_000]
)
def test_hostile_text_costs_little(hostile: str) -> None:
    """A text made to be slow is refused or read in a moment."""
    began = time.perf_counter()
    with pytest.raises(TooLong):
        text_in(hostile)
    assert time.perf_counter() - began < 2
