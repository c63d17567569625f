"""Texts that want to be more than text: as Slack delivers them, and what the person meant."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

BYSTANDER, GROUP, HOST = "U0LOCALCLEO", "S0LOCALENG", "evil.example"
"""Whom nobody wants to reach: a person and a group that no flow here mentions, and a host that none links to."""
PRODUCT = "41897569"
"""1337 * 31337: it is nowhere unless something was evaluated."""


def typed(text: str) -> str:
    """A text as Slack delivers it when somebody typed it."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


@dataclass(frozen=True)
class Hostile:
    """A text: as it is delivered, and what has to arrive."""

    raw: str
    meant: str


TYPED = (
    "<!channel>", "<!here|here>", "<!everyone>", f"<@{BYSTANDER}>", f"<!subteam^{GROUP}|@eng>", "@channel @here @everyone",
    f"<https://{HOST}/?q=1|click me>", f"<mailto:a@{HOST}|mail>", f"[click](https://{HOST}/a)", f"![pic](https://{HOST}/a.png)",
    f"[ref]: https://{HOST}/x", f"https://{HOST}/$(id)", f"www.{HOST}", "&lt;!channel&gt; &amp;lt; &#60;!channel&#62;",
    "{{ 1337 * 31337 }}", "{% raw %}{{ 1337*31337 }}{% endraw %}", "{{ secrets.TOKEN }}", "{# hidden #}", "${1337*31337}",
    "#{1337*31337}", "<%= 1337*31337 %>", "{{ ''.__class__.__mro__ }}", "{{ nodes.collect }}", "%(x)s %s %n {0}", "`{{`",
    "$(touch pwned)", "`touch pwned`", "; touch pwned;", "| touch pwned", "&& touch pwned", "' ; touch pwned ; '", '" ; touch pwned ; "',
    "> pwned", "< /etc/passwd", "$((1337*31337))", "$HOME ~ * ? [a-z] !!", "\\", "\\n \\x00 \\u0041", "-rf --help", "$IFS$9", "\ntouch pwned\n",
    "'; DROP TABLE journal; --", '" OR "1"="1', "%' UNION SELECT * FROM prompts --", "\r\nX-Injected: yes\r\n\r\n", "%0d%0aX-Injected:%20yes",
    "\u202e gnp.exe", "\u2066 isolate \u2069", "\u202a\u202b\u202c\u202d", "\u200b\u200c\u200d\ufeff", "\u200e\u200f", "e\u0301 \u212b", "👩‍👩‍👧‍👦 🏳️‍🌈", "Z̷̡͈̪a̴l̵g̶o̷",
    "\x1b[31mred\x1b[0m \x1b]8;;https://evil.example\x07", "\x07 bell \x08", "*bold* _it_ ~no~", "```fence```", "> quote", "# head\n- item", "| a | b |\n|---|---|",
    "javascript:alert(1)", "<script>touch()</script>", "</textarea><img src=x onerror=1>", "../../etc/passwd", "C:\\con\\nul", "=cmd|' /C calc'!A0", "@SUM(1+1)*cmd",
    "null", "true", "[1, 2]", '{"a": 1}', "1e999", "::progress 3/10 x", "::error::x", "\t tab \t", "",
)  # fmt: skip
"""What somebody types."""

MARKUP = (
    ("<!channel>", "@channel"), ("<!here>", "@here"), ("<!everyone|everyone>", "everyone"), (f"<@{BYSTANDER}>", f"<@{BYSTANDER}>"),
    (f"<@{BYSTANDER}|cleo>", f"<@{BYSTANDER}>"), (f"<!subteam^{GROUP}|@eng>", "@eng"), (f"<!subteam^{GROUP}>", f"<!subteam^{GROUP}>"),
    (f"<https://{HOST}/?q=1&amp;r=2|click me>", f"click me (https://{HOST}/?q=1&r=2)"), (f"<https://{HOST}/a>", f"https://{HOST}/a"),
    (f"<http://{HOST}|{HOST}>", HOST), (f"<mailto:a@{HOST}|a@{HOST}>", f"a@{HOST}"), ("<#C0LOCALREL|releases>", "#releases"),
    ("<!date^1790000000^{date}|then>", "then"), ("&amp;lt;!channel&amp;gt;", "&lt;!channel&gt;"),
)  # fmt: skip
"""What Slack's client makes of what somebody types, and what was meant by it."""

BROKEN = (("a\ud800b", "a\ufffdb"), ("\udfff\ud83d", "\ufffd\ufffd"), ("a\x00b", "a\ufffdb"))
"""What no text may be, and what it becomes."""


def _parts() -> list[tuple[str, str]]:
    return [*((typed(text), text) for text in TYPED), *MARKUP, *BROKEN]


def hostile_texts(count: int, seed: int = 7) -> Iterator[Hostile]:
    """So many texts, all different: each part by itself first, then several together, and some huge ones."""
    chance, parts = Random(seed), _parts()
    for number in range(count):
        chosen = [parts[number]] if number < len(parts) else chance.choices(parts, k=chance.randint(2, 4))
        if number % 97 == 96:
            chosen = [chosen[0]] * min(60, 3_000 // (len(chosen[0][1].encode("utf-8", "replace")) + 1))
        between = chance.choice(["", " ", "\n"])
        raw, meant = (between.join(side) for side in zip(*chosen, strict=True))
        # The mark makes each of them one of its kind; a reply that begins with a mention is for somebody else.
        first = chance.random() < 0.5 or raw.lstrip().startswith(("<@", "<!", "@", "#"))
        raw, meant = (f"t{number}{side}" if first else f"{side}t{number}" for side in (raw, meant))
        yield Hostile(raw, unicodedata.normalize("NFC", meant).strip())


def markup(args: dict[str, Any]) -> Iterator[str]:
    """Every text of a call that Slack would read as markup."""
    for name in ("text", "initial_comment"):
        yield str(args.get(name) or "")
    for name in ("blocks", "view"):
        value = args.get(name) or []
        yield from _markup(json.loads(value) if isinstance(value, str) else value)


def _markup(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if value.get("type") in ("mrkdwn", "markdown"):
            yield str(value["text"])
        for item in value.values():
            yield from _markup(item)
    elif isinstance(value, list):
        for item in value:
            yield from _markup(item)
