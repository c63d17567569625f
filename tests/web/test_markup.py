"""Texts as people read them: bold and code words, lists and headings, and never markup."""

from __future__ import annotations

import pytest

from bot.rendering.text import read
from bot.web.markup import Block, Span, blocks, spans


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Roll out *v1.4* to _eu_?", "Roll out v1.4 to eu?"),
        ("a &amp; b &lt;c&gt; `d`", "a & b <c> d"),
        (
            "Ask <@U0BEN> in <#C1|ops>: <https://x.example|the log>",
            "Ask @U0BEN in #ops: the log (https://x.example)",
        ),
        ("my_own_name and 2 * 3 * 4", "my_own_name and 2 * 3 * 4"),
    ],
)
def test_a_line_without_formatting_has_no_marks(text: str, said: str) -> None:
    """Marks, entities and brackets of Slack are read, and what only looks like a mark stays."""
    assert read(text) == said


def test_words_keep_their_styles() -> None:
    """Bold, italic, struck words and code are told apart; one star is bold in Slack and italic in Markdown."""
    assert spans("*a* _b_ ~c~ `d*`") == [
        Span("a", "strong"),
        Span(" "),
        Span("b", "em"),
        Span(" "),
        Span("c", "s"),
        Span(" "),
        Span("d*", "code"),
    ]
    assert blocks("**a** *b* ~~c~~ `*d`", markdown=True) == [
        Block(
            "p",
            [
                Span("a", "strong"),
                Span(" "),
                Span("b", "em"),
                Span(" "),
                Span("c", "s"),
                Span(" "),
                Span("*d", "code"),
            ],
        )
    ]


def test_markdown_has_its_headings_lists_and_code() -> None:
    """Each is a part of its own, what is written in code stays as it is, and an address is shown beside its label."""
    text = "# Found\n\nThe disk\nis full:\n- **/var** [log](https://x.example/a) [bad](javascript:x)\n  1. old\n> quoted\n---\n```sh\ndf *h*\n```\n| a | b |\n|---|---|"
    assert blocks(text, markdown=True) == [
        Block("h", [Span("Found")]),
        Block("p", [Span("The disk\nis full:")]),
        Block("item", [Span("/var", "strong"), Span(" log (https://x.example/a) [bad](javascript:x)")], "-"),
        Block("item", [Span("old")], "1.", 1),
        Block("quote", [Span("quoted")]),
        Block("pre", [Span("df *h*")]),
        Block("pre", [Span("| a | b |\n|---|---|")]),
    ]


@pytest.mark.parametrize(
    "text", ["", "\n\n", "```", "```\nopen", "#", "# ", "- ", "*" * 5_000, "a* " * 5_000, "x" * 90_000]
)
def test_any_text_is_read(text: str) -> None:
    """Whatever was written gives parts, quickly, and loses no letters."""
    found = "".join(span.text for block in blocks(text, markdown=True) for span in block.spans)
    assert found.count("x") == text.count("x")
