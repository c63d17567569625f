"""What alerts of apps say, wherever it is in them, and what triggers take from it."""

from __future__ import annotations

from typing import Any

import pytest

from bot.inbound.triggers import captured, said_in, shown
from prompt_state.slack_text import text_in

Block = dict[str, Any]


def section(text: str, *fields: str) -> Block:
    """A section with text and fields."""
    each = [{"type": "mrkdwn", "text": field} for field in fields]
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}, "fields": each}


def rich(*elements: Block) -> Block:
    """Rich text with one section of these."""
    return {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": list(elements)}]}


def words(text: str, **style: bool) -> Block:
    """A piece of rich text."""
    return {"type": "text", "text": text, "style": style}


LINK = {"type": "link", "url": "https://x.example/a", "text": "checkout"}
ITEMS = [{"type": "rich_text_section", "elements": [words(name)]} for name in ("first", "cart is down")]
LIST = {"type": "rich_text", "elements": [{"type": "rich_text_list", "elements": ITEMS}]}
PIECES = (
    {"type": "emoji", "name": "fire"},
    words(" "),
    {"type": "user", "user_id": "U1"},
    words(" saw "),
    {"type": "channel", "channel_id": "C1"},
    words(" and "),
    {"type": "usergroup", "usergroup_id": "S1"},
    words(" at "),
    {"type": "date", "timestamp": 1, "format": "{date}", "fallback": "noon"},
    {"type": "broadcast", "range": "here"},
)

SAID: list[tuple[Block, str]] = [
    ({"text": "fallback", "blocks": [section("*checkout* is down")]}, "fallback\n*checkout* is down"),
    ({"text": "checkout is down", "blocks": [section("*checkout* is down")]}, "checkout is down"),
    ({"text": "", "blocks": [section("a", "b", "c")]}, "a\nb\nc"),
    ({"text": "a b", "blocks": [section("a"), section("b")]}, "a b"),
    ({"text": "a", "attachments": [{"fallback": "a b", "text": "b", "blocks": [section("c")]}]}, "a\nb\nc"),
    ({"text": "a", "attachments": [{"fallback": "only this"}]}, "a\nonly this"),
    ({"text": "a", "attachments": [{"author_name": "b", "text": "c", "footer": "d"}]}, "a\nb\nc\nd"),
    ({"text": "a", "attachments": [{"title": "t", "fields": [{"title": "k", "value": "v"}]}]}, "a\nt\nk: v"),
    ({"text": "x", "blocks": [section("a")], "attachments": [{"text": "a"}]}, "x\na"),
    (
        {"blocks": [{"type": "header", "text": {"type": "plain_text", "text": "DOWN: checkout"}}]},
        "DOWN: checkout",
    ),
    (
        {"blocks": [{"type": "context", "elements": [{"type": "mrkdwn", "text": "a"}, {"type": "image"}]}]},
        "a",
    ),
    ({"blocks": [rich(LINK, words(" is <down>", bold=True))]}, "checkout (https://x.example/a) is <down>"),
    ({"blocks": [LIST]}, "first\ncart is down"),
    ({"blocks": [rich(*PIECES)]}, ":fire: <@U1> saw <#C1> and <!subteam^S1> at noon@here"),
    (
        {"blocks": [{"type": "markdown", "text": "# Head\n[label](https://x.example) b"}]},
        "Head\nlabel (https://x.example) b",
    ),
    ({"blocks": [{"type": "table", "rows": [[{"type": "raw_text", "text": "a"}, rich(words("b"))]]}]}, "a b"),
    ({"blocks": [{"type": "divider"}, {"type": "actions", "elements": [{"type": "button"}]}, 3]}, ""),
]


@pytest.mark.parametrize(("event", "said"), SAID)
def test_text_attachments_and_blocks_count_each_once(event: Block, said: str) -> None:
    """What an app says is its text, its attachments and its blocks, without what repeats the text."""
    assert shown(said_in({"bot_id": "B1", **event}), text_in) == said


def test_of_a_person_the_text_counts() -> None:
    """The blocks of what a person wrote say the same as the text, and previews of links are not theirs."""
    event = {
        "user": "U1",
        "text": "see this",
        "blocks": [section("see")],
        "attachments": [{"text": "preview"}],
    }
    assert said_in(event) == "see this"


def test_a_long_alert_is_heard() -> None:
    """What is too long for a text is cut off, and its beginning counts."""
    said = said_in({"bot_id": "B1", "text": "checkout is down " + "ä" * 20_000})
    assert captured("{service} is down", shown(said)) == {"service": "checkout"}


CAPTURED = [
    ("*checkout* is down", "checkout"),
    ("*checkout is down* (_p99_)", "checkout"),
    ("`checkout` is down", "checkout"),
    ("*<https://x.example/a?b=_c_|checkout>* is down", "checkout"),
    ("<https://x.example|card> <https://y.example|service> is down", "card service"),
    ("<mailto:a@x.example|a@x.example> is down", "a@x.example"),
    ("<tel:+4930123456|+49 30 123456> is down", "+49 30 123456"),
    ("<tel:+4930123456|030 123456> is down", "030 123456"),
    ("<!subteam^S1|@sre> is down", "@sre"),
    ("<!date^1392734382^{date}^https://x.example|Feb 18> is down", "Feb 18"),
    ("<#C1|ops> is down", "#ops"),
    ("<@U1|ana> is down", "<@U1>"),
    ("&gt; check_out_x is down", "check_out_x"),
    ("a *b* `c*d` is down", "a b c*d"),
    ("*.log of 2 * 3 is down", "*.log of 2 * 3"),
]


@pytest.mark.parametrize(("raw", "service"), CAPTURED)
def test_a_place_takes_what_people_read(raw: str, service: str) -> None:
    """A place takes labels of links and no marks of bold or code, so that choices fit and alike alerts are alike."""
    assert captured("{service} is down", shown(raw)) == {"service": service}


@pytest.mark.parametrize(
    ("raw", "typed"),
    [
        ("<tel:+4930123456|+49 30 123456>", "+49 30 123456"),
        ("<tel:0900666|+49 30 123456>", "+49 30 123456 (tel:0900666)"),
        ("<tel:0900666|the desk>", "the desk (tel:0900666)"),
    ],
)
def test_a_phone_number_is_not_doubled(raw: str, typed: str) -> None:
    """A number that a phone made a link of is what was typed; another number or other words hide none."""
    assert text_in(raw) == typed
