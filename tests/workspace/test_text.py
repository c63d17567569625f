"""Typed text becomes what Slack stores: entities for mentions and addresses, the rest escaped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.workspace import default_state
from bot.workspace.elements import escape, mentions, to_entities, unescape

STATE = default_state()

TYPED = {
    "hello": "hello",
    "a < b && c > d": "a &lt; b &amp;&amp; c &gt; d",
    "@sayso run": "<@U0LOCALBOT> run",
    "@Ana, look": "<@U0LOCALANA>, look",
    "ask @sre.": "ask <!subteam^S0LOCALSRE>.",
    "@here": "<!here>",
    "@nobody": "@nobody",
    "see #ops": "see <#C0LOCALOPS|ops>",
    "#nowhere": "#nowhere",
    "https://x.org/a?b=1&c=2": "<https://x.org/a?b=1&amp;c=2>",
    "(https://x.org).": "(<https://x.org>).",
    "example.com/x": "<http://example.com/x|example.com/x>",
    "mail ben@example.com": "mail <mailto:ben@example.com|ben@example.com>",
    "`@ana <b>`": "`@ana &lt;b&gt;`",
    "```@ana\nhttps://x.org```": "```@ana\nhttps://x.org```",
    "<@U0LOCALANA>": "<@U0LOCALANA>",
    "<@U404NOBODY>": "&lt;@U404NOBODY&gt;",
    "<!channel>": "&lt;!channel&gt;",
    "ana@": "ana@",
    "run x host=db.example.com": "run x host=<http://db.example.com|db.example.com>",
}


@pytest.mark.parametrize("typed", TYPED)
def test_typed_text_is_stored_as_slack_stores_it(typed: str) -> None:
    """One line of what people type, and what Slack makes of it."""
    assert to_entities(typed, STATE) == TYPED[typed]


@given(st.text())
def test_escaping_can_be_undone(text: str) -> None:
    """`unescape` is the inverse of `escape`."""
    assert unescape(escape(text)) == text


@given(st.text(alphabet="<>&@#`ax. /:"))
def test_no_bare_bracket_survives(text: str) -> None:
    """Whatever is typed, a bracket stands only where an entity of the workspace's own begins or ends."""
    stored = to_entities(text, STATE)
    opened = False
    for place, character in enumerate(stored):
        if character == "<":
            assert not opened
            assert stored[place + 1] in "@#!hm"
            opened = True
        elif character == ">":
            assert opened
            opened = False
    assert not opened


def test_mentions_are_seen_with_and_without_a_label() -> None:
    """Both forms of a mention count."""
    assert mentions("<@U1> x", "U1")
    assert mentions("<@U1|ana> x", "U1")
    assert not mentions("<@U12> x", "U1")
