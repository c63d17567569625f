"""The pages as text: what is written into them stays text, and nothing in them breaks the policy that they are sent with."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from bot.web import html, server
from tests.web.conftest import Visitor

VIEWS = Path(html.__file__).parent / "views"
HOSTILE = "\"'><img src=x onerror=alert(1)>{{ 7 * 7 }}"


@pytest.mark.parametrize("view", sorted(path.name for path in VIEWS.iterdir()))
def test_a_view_has_nothing_that_the_policy_forbids(view: str) -> None:
    """No style, script or handler stands in a view, and nothing is taken for markup that was not written there."""
    text = (VIEWS / view).read_text()
    assert not re.search(r"\sstyle=|\son\w+=|javascript:|<style|<script(?! src=\"/page/)", text)
    assert not re.search(r"\|\s*safe\b|autoescape|Markup", text)


ADDRESSES = (
    "/sessions?q={}",
    "/sessions?flow={}&status={}",
    "/compare?left={}&right={}",
    "/sessions/{}",
    "/{}",
)


async def test_what_an_address_says_stays_text(visitor: Visitor) -> None:
    """Whoever follows a link of somebody else sees their words, and runs none of them."""
    for address in ADDRESSES:
        there = address.replace("{}", "%22'%3E%3Cimg src=x onerror=alert(1)%3E{{ 7 * 7 }}")
        async with visitor.http.get(visitor.url + there) as answer:
            text = await answer.text()
        assert "<img" not in text, address
        assert "49" not in re.sub(r"<[^>]*>", "", text) or "7 * 7" in text, address


async def test_a_step_and_a_node_of_an_address_stay_text(visitor: Visitor) -> None:
    """What is asked for within a session is escaped where it is told that there is no such thing."""
    [some, *_] = (await visitor.get("sessions"))["sessions"]
    for query in ({"step": HOSTILE}, {"tab": "step", "node": f"x {HOSTILE}"}, {"tab": HOSTILE, "at": "3"}):
        assert "<img" not in await visitor.page(f"sessions/{some['sessionId']}", **query)


TABS = {
    "steps": "Steps, with when they ran",
    "step": "Choose a step in the graph",
    "journal": "session:start",
    "inputs": "<code>version</code>",
    "sent": "Messages to Slack",
}


async def test_every_part_of_every_session_can_be_drawn(visitor: Visitor) -> None:
    """Of one that waits, failed, was aborted or is complete, now and as it was."""
    found = (await visitor.get("sessions", flow="deploy-checkout"))["sessions"]
    assert {one["status"] for one in found} == {"paused", "failed", "aborted", "complete"}
    for one, tab, at in product(found, TABS, ("", "1", "7")):
        assert TABS[tab] in await visitor.page(f"sessions/{one['sessionId']}", tab=tab, at=at), (one, tab, at)


async def test_a_list_grows_until_it_goes_on_with_another_page(visitor: Visitor) -> None:
    """More of it is one address away: a longer list, and once it is very long the sessions after its last."""
    page = await visitor.get("sessions", limit=6, q="deploy")
    assert (page["more"], page["grows"]) == ("/sessions?q=deploy&limit=56", True)
    last = await visitor.get("sessions", limit=server._MOST_LISTED, q="deploy")
    assert not last["grows"]


def test_an_address_leaves_out_what_is_empty() -> None:
    """Values are quoted, and of several each is there."""
    assert html.link("/sessions/a b", {"at": None, "step": ""}) == "/sessions/a%20b"
    assert html.link("/s", {"q": "a&b", "status": ["x", "y"]}) == "/s?q=a%26b&status=x&status=y"


@pytest.mark.parametrize(
    ("until", "said"),
    [("00.000", "0ms"), ("00.052", "52ms"), ("01.240", "1.2s"), ("09.940", "9.9s"), ("59.000", "59s")],
)
def test_how_long_something_took_is_short(until: str, said: str) -> None:
    """Thousandths where it was quick, and two units at most."""
    assert html._lasted("2026-11-26T13:00:00.000Z", f"2026-11-26T13:00:{until}Z") == said
