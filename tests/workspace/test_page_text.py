"""How the page draws text: Slack's mrkdwn and the `markdown` block, as the elements they become."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from tests.support.browser import opened_page, page_port
from tests.support.workspace import running_workspace

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

DRAW = """async ([module, draw, text]) => {
  const { [draw]: render } = await import(`/${module}.js`);
  const people = {
    me: () => "U1", userName: (id) => ({ U1: "Ana", U2: "Ben" })[id] ?? null, userHandle: () => null,
    channelName: (id) => (id === "C1" ? "ops" : null), channelHref: () => null, groupName: () => "@sre",
  };
  const start = performance.now();
  const place = document.createElement("div");
  place.append(...render(text, people));
  const shape = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return node.data;
    const tag = node.localName;
    const href = node.getAttribute("href");
    const inside = [...node.childNodes].map(shape).join("");
    return tag === "br" || tag === "hr" ? `<${tag}>` : `<${tag}${href ? ` ${href}` : ""}>${inside}</${tag}>`;
  };
  return [[...place.childNodes].map(shape).join(""), performance.now() - start];
}"""


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def page(browser: Browser) -> AsyncIterator[Page]:
    """An open page, whose modules the tests import."""
    async with (
        running_workspace(port=page_port()) as workspace,
        opened_page(browser, f"{workspace.url}/#/?as=U0LOCALANA") as opened,
    ):
        yield opened


async def drawn(page: Page, module: str, text: str) -> str:
    """The elements that a text becomes, attributes left out except addresses."""
    shape, _ = await page.evaluate(DRAW, [module, module, text])
    return str(shape)


MRKDWN = {
    "*bold* _italic_ ~gone~": "<p><strong>bold</strong> <em>italic</em> <s>gone</s></p>",
    "*_both_*": "<p><strong><em>both</em></strong></p>",
    "2*3*4 snake_case_name": "<p>2*3*4 snake_case_name</p>",
    "* not bold *": "<p>* not bold *</p>",
    "`*code*`": "<p><code>*code*</code></p>",
    "*a `b*` c*": "<p><strong>a <code>b*</code> c</strong></p>",
    "a &lt;b&gt; &amp;amp;": "<p>a <b> &amp;</p>",
    "```\nx &lt; y\n```": "<pre>x < y</pre>",
    "```never closed": "<p>```never closed</p>",
    "before ```in``` after": "<p>before </p><pre>in</pre><p> after</p>",
    "&gt; one\n&gt; two\nthree": "<blockquote>one<br>two</blockquote><p>three</p>",
    "&gt;&gt;&gt; all\nof it": "<blockquote>all<br>of it</blockquote>",
    "• one\n• two": "<ul><li>one</li><li>two</li></ul>",
    "1. one\n2. two": "<ol><li>one</li><li>two</li></ol>",
    "<https://example.com/a?b=1&amp;c=2|here>": "<p><a https://example.com/a?b=1&c=2>here</a></p>",
    "<mailto:a@example.com|a@example.com>": "<p><a mailto:a@example.com>a@example.com</a></p>",
    "<ftp://example.com|file>": "<p><span>file</span></p>",
    "<@U2> <#C1> <!here> <!subteam^S1>": (
        "<p><span>@Ben</span> <span>#ops</span> <span>@here</span> <span>@sre</span></p>"
    ),
    "<!date^bad^{date}|soon>": "<p><span>soon</span></p>",
    ":tada: :no_such_name:": "<p>🎉 :no_such_name:</p>",
    "one\n\ntwo": "<p>one<br><br>two</p>",
}

MARKDOWN = {
    "# One\ntext": "<p>One</p><p>text</p>",
    "**bold** *it* ~~gone~~ `x*y*`": (
        "<p><strong>bold</strong> <em>it</em> <s>gone</s> <code>x*y*</code></p>"
    ),
    "**bold with *it* inside** after": "<p><strong>bold with <em>it</em> inside</strong> after</p>",
    "snake_case_name and 2*3": "<p>snake_case_name and 2*3</p>",
    "[a **b**](https://example.com)": "<p><a https://example.com/>a <strong>b</strong></a></p>",
    "see https://example.com/x.": "<p>see <a https://example.com/x>https://example.com/x</a>.</p>",
    "- a\n- b\n  - c\n- d": "<ul><li>a</li><li>b<ul><li>c</li></ul></li><li>d</li></ul>",
    "1. a\n2. b": "<ol><li>a</li><li>b</li></ol>",
    "- [x] done\n- [ ] open": (
        "<ul><li><input></input><span>done</span></li><li><input></input><span>open</span></li></ul>"
    ),
    "> quoted\n> **more**": "<blockquote><p>quoted<br><strong>more</strong></p></blockquote>",
    "```py\nif a < b:\n    *x*\n```\nend": "<pre>if a < b:\n    *x*</pre><p>end</p>",
    "```\nnever closed": "<pre>never closed</pre>",
    "a\n\n---\n\nb": "<p>a</p><hr><p>b</p>",
    "| a | b |\n|--|:-:|\n| 1 | x \\| y |": (
        "<div><table><thead><tr><th>a</th><th>b</th></tr></thead>"
        "<tbody><tr><td>1</td><td>x | y</td></tr></tbody></table></div>"
    ),
    "<b>not html</b> \\*plain\\*": "<p><b>not html</b> *plain*</p>",
    "![chart](https://example.com/c.png)": "<p><a https://example.com/c.png>chart</a></p>",
}


@pytest.mark.parametrize(("text", "expected"), MRKDWN.items())
async def test_mrkdwn_is_drawn_as_slack_draws_it(page: Page, text: str, expected: str) -> None:
    """Each piece of mrkdwn becomes the elements that Slack shows."""
    assert await drawn(page, "mrkdwn", text) == expected


@pytest.mark.parametrize(("text", "expected"), MARKDOWN.items())
async def test_a_markdown_block_is_drawn_as_markdown(page: Page, text: str, expected: str) -> None:
    """Each piece of a `markdown` block becomes the usual elements; raw HTML stays text."""
    assert await drawn(page, "markdown", text) == expected


HOSTILE = [
    "*",
    "_",
    "`",
    "**",
    "*_",
    "[",
    "![",
    "[](",
    "<",
    "<@",
    "- ",
    "> ",
    "#",
    "|",
    "| a |\n",
    "~~",
    "```\n",
    "(",
    "*a ",
    "_a_ ",
    "  - x\n",
]


@pytest.mark.parametrize("module", ["mrkdwn", "markdown"])
@pytest.mark.parametrize("piece", HOSTILE)
async def test_the_longest_hostile_text_is_drawn_in_time(page: Page, module: str, piece: str) -> None:
    """The longest text that a block may hold, made of nothing but marks, does not hold the page up."""
    longest = {"mrkdwn": 40_000, "markdown": 12_000}[module]
    text = (piece * longest)[:longest]
    _, milliseconds = await page.evaluate(DRAW, [module, module, text])
    assert milliseconds < 1500
