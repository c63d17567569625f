"""Text for Slack: inert, visible, and cut where nothing breaks."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rendering.blocks import aligned
from bot.rendering.phrases import confirm_cancel
from bot.rendering.text import (
    addresses,
    as_code,
    clip,
    cut,
    date,
    escape,
    mentioning,
    one_line,
    plain,
    safe,
    shown,
    take,
    waiting_on,
    weight,
    whom,
)
from engine.forms.question import Question
from engine.language.counting import elapsed
from prompt_state.slack_text import unescape
from tests.bot.rendering_cases import ANA, HOSTILE, wild


def test_escape_leaves_no_character_that_begins_markup_in_brackets() -> None:
    """Escaped text has no angle bracket, and reads as it was written once it is unescaped."""
    assert escape("<!here> & <b>") == "&lt;!here&gt; &amp; &lt;b&gt;"
    assert unescape(escape(HOSTILE)) == HOSTILE


@given(st.text())
def test_safe_text_is_inert_whatever_it_was(text: str) -> None:
    """No text keeps a bracket, a bare ampersand, or a character that reorders or hides others."""
    made = safe(text)
    assert "<" not in made
    assert ">" not in made
    assert not any(ord(char) in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0, 0x7F) for char in made)
    assert "&" not in made.replace("&amp;", "").replace("&lt;", "").replace("&gt;", "")


def test_bidi_controls_are_spelled_out() -> None:
    """A right-to-left override is shown as its code and does not turn the line around."""
    assert "\\u202e" in safe("abc\u202edef")


@pytest.mark.parametrize(
    ("mrkdwn", "words"),
    [
        ("a &lt;b&gt; &amp;amp;", "a <b> &amp;"),
        ("<https://x.example|the page>", "the page (https://x.example)"),
        ("<https://x.example>", "https://x.example"),
        ("<mailto:a@b.example|a@b.example>", "a@b.example"),
        ("<@U1> and <#C1|ops> and <!here>", "@U1 and #ops and @here"),
        ("<!date^1^{date}|2026-11-21>", "2026-11-21"),
        ("<!subteam^S1|@sre>", "@sre"),
    ],
)
def test_plain_says_what_mrkdwn_shows(mrkdwn: str, words: str) -> None:
    """For terminals and notifications, links and mentions become words and entities characters."""
    assert plain(mrkdwn) == words


@given(wild, st.integers(1, 400))
def test_clipped_text_fits_and_says_that_it_was_cut(text: str, most: int) -> None:
    """Plain text is never longer than asked for, and ends with an ellipsis where something is missing."""
    made = clip(shown(text), most)
    assert weight(made) <= most
    assert made == shown(text) or made.endswith("…")


@given(wild, st.integers(20, 4000))
def test_cut_mrkdwn_fits(text: str, most: int) -> None:
    """mrkdwn is never longer than asked for."""
    assert weight(cut(shown(text), most)) <= most


@given(
    st.lists(st.sampled_from(["word ", "&lt;", "<https://x.example|x>", "```", "\n"])), st.integers(60, 300)
)
def test_cutting_never_tears_markup(parts: list[str], most: int) -> None:
    """Neither piece of a cut has half a link or half an entity, and code blocks are closed in both."""
    text = "".join(parts)
    text += "```" * (text.count("```") % 2)
    first, rest = take(text, most)
    for piece in (first, rest):
        assert piece.count("<") == piece.count(">")
        assert piece.count("&") == piece.count("&lt;")
        assert piece.count("```") % 2 == 0


def test_cutting_loses_nothing_between_the_pieces() -> None:
    """The pieces of a long text together are the text, but for the line ends at which it was cut."""
    rest = text = "\n".join(f"line {n} of a long text" for n in range(1000))
    pieces = []
    while rest:
        piece, rest = take(rest, 3000)
        pieces.append(piece)
    assert "\n".join(pieces) == text


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_weight_is_what_json_takes(text: str) -> None:
    """The size that is counted is the size in JSON, so a message that fits here fits there."""
    visible_text = shown(text)
    dumped = json.dumps(visible_text, ensure_ascii=False)[1:-1]
    assert weight(visible_text) == len(dumped.encode("utf-16-le")) // 2


def test_people_are_mentioned_and_groups_called_only_where_they_are_asked() -> None:
    """A prompt calls the group it asks; a card only names it, since a mention tells all of its members."""
    ids = {"@sre": "S0LOCALSRE", "ben@example.com": "U0LOCALBEN"}
    entries = ["@sre", "ben@example.com", "requester", "local:eve"]
    assert whom(entries, ANA, ids) == "<!subteam^S0LOCALSRE>, <@U0LOCALBEN>, <@U0LOCALANA> and eve"
    assert whom(entries, ANA, ids, call=False) == "@sre, <@U0LOCALBEN>, <@U0LOCALANA> and eve"
    assert waiting_on(Question(kind="ask"), ANA) == "<@U0LOCALANA>"
    assert waiting_on(Question(kind="ask", who=("channel",)), ANA) == "anyone in this channel"


def test_addresses_become_mentions_where_they_are_known() -> None:
    """In what one person reads, a known e-mail address is a mention; others, and marked-up ones, stay as they are."""
    text = "Ask ben@example.com, eve@example.org or <mailto:ben@example.com|ben@example.com>."
    assert addresses(text) == ["ben@example.com", "eve@example.org"]
    made = mentioning(text, {"ben@example.com": "U0LOCALBEN"})
    assert made == "Ask <@U0LOCALBEN>, eve@example.org or <mailto:ben@example.com|ben@example.com>."
    assert addresses("@sre, a@b, <@U0LOCALBEN>") == []


def test_an_entry_that_is_no_id_is_never_markup() -> None:
    """An approver that an input named cannot become a mention of everybody."""
    assert whom(["<!channel>"], None) == "&lt;!channel&gt;"


def test_dates_are_shown_in_each_readers_timezone() -> None:
    """A moment is Slack's date markup with UTC for whoever cannot show it."""
    assert date("2026-11-21T22:40:00.000Z") == (
        "<!date^1795300800^{date_short_pretty} at {time}|2026-11-21 22:40 UTC>"
    )


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "<1s"), (12, "12s"), (60, "1m"), (192, "3m 12s"), (7500, "2h 5m"), (273600, "3d 4h"), (-5, "<1s")],
)
def test_durations_are_short(seconds: float, words: str) -> None:
    """A duration has two units at most."""
    assert elapsed(seconds) == words


def test_one_line_has_one_line() -> None:
    """Where there is little room, line ends and runs of blanks become one blank."""
    assert one_line(" a\n\n b\tc ", 100) == "a b c"


@given(st.text())
def test_code_ends_where_it_ends_whatever_is_in_it(text: str) -> None:
    """A backtick in a name does not end the code, so that nothing of the name is read as mrkdwn."""
    assert as_code(text).count("`") == 2


def test_columns_stand_below_each_other_where_letters_are_wide() -> None:
    """A wide letter or an emoji takes two columns."""
    table = [["日本", "up"], ["🚀", "up"], ["plain", "up"]]
    header, line, *rows = aligned(["name", "state"], table).splitlines()
    assert header.index("state") == line.rindex("  ") + 2
    assert [row.removesuffix("up") for row in rows] == [
        "日本   ",
        "🚀" + " " * 5,
        "plain  ",
    ]


def test_of_many_runs_the_last_twenty_can_be_cancelled_first() -> None:
    """The question has a button for each run that it names and says how many others there are."""
    text, blocks = confirm_cancel([(f"flow-{number}", f"session-{number}") for number in range(23)])
    named = [button["value"] for button in blocks[1]["elements"]]
    assert named == [*(f"session-{number}" for number in range(3, 23)), "session-3"]
    assert "*flow-2*" not in text
    assert "*flow-3*" in text
    assert "3 older runs" in text
