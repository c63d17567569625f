"""Text in a form that Slack accepts: escaped, visible, cut at a safe place, and sized as Slack sizes it.

There are two kinds of text. *mrkdwn* may carry markup and is trusted: a flow's own text, whose interpolated values were
escaped when they were evaluated. Everything else comes from people or programs and goes through `safe`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from bot.faces.question import asked
from bot.faces.words import Code, Icon, Link, Part, People, Said, When, Whom, Words, listed
from bot.faces.words import clip as clip
from bot.faces.words import one_line as one_line
from bot.faces.words import weight as weight
from engine.forms.question import Question
from engine.language import timestamps
from engine.language.codec import Json
from engine.language.template import escape_markup
from engine.language.template import shown as shown
from prompt_state.slack_text import unescape, unmarked

_TOKEN = re.compile(r"<[^<>\n]{1,500}>|&(?:amp|lt|gt);|```|.", re.DOTALL)
_FENCE = "```"
_MARKUP = re.compile(r"<([^<>\n]+)>")
_SLACK_USER = re.compile(r"[UW][A-Z0-9]{2,}")
_SLACK_CHANNEL = re.compile(r"[CG][A-Z0-9]{2,}")
_SLACK_GROUP = re.compile(r"S[A-Z0-9]{2,}")
ADDRESS = re.compile(r"(?<![\w.+@<:|-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+")
"""An e-mail address in a text, but for those in links."""
_WHOM_MOST = 5

escape = escape_markup
"""Escape `& < >` for mrkdwn, so that no part of the text becomes a link or a mention."""


# --- text of people and programs ---------------------------------------------------------------------------


def safe(text: str) -> str:
    """Anybody's text, ready for mrkdwn."""
    return escape(shown(text))


def as_code(text: str) -> str:
    """Anybody's text of one line as mrkdwn's code, which no backtick in it ends."""
    return f"`{safe(text.replace('`', chr(39)))}`"


_ITEM = re.compile(r"\n\s*(?:[-*•◦]|\d+[.)])\s+")


def message_line(text: str, most: int) -> str:
    """Return a message on one line, as `one_line` does; the items of its lists stay apart."""
    return one_line(_ITEM.sub(" · ", f"\n{shown(text)}").removeprefix(" · "), most)


def numbered(index: int, label: str, most: int) -> str:
    """Return a label on one line, in so many units. A cut label gets its number, so that two with one beginning stay
    distinct; an empty label becomes its number."""
    words = " ".join(shown(label).split()) or str(index + 1)
    return words if clip(words, most) == words else clip(f"{index + 1}. {words[:most]}…", most)


def in_full(labels: Iterable[str], most: int) -> list[str]:
    """The labels that do not fit in so many units, whole, with their numbers."""
    lines = (" ".join(shown(label).split()) for label in labels)
    return [f"{n}. {words}" for n, words in enumerate(lines, 1) if clip(words, most) != words]


def plain(mrkdwn: str) -> str:
    """mrkdwn as a terminal or a notification shows it: entities undone, links and mentions as words."""
    return unescape(_MARKUP.sub(lambda found: _words(found[1]), mrkdwn))


def read(mrkdwn: str) -> str:
    """mrkdwn as people read it where nothing can be bold: as `plain`, without the marks."""
    return plain(unmarked(mrkdwn))


def _words(inner: str) -> str:
    target, bar, label = inner.partition("|")
    if target.startswith("!"):
        return label or "@" + target[1:].split("^")[0]
    if target.startswith("#"):
        return "#" + (label or target[1:])
    if target.startswith("@"):
        return "@" + (label or target[1:])
    address = target.removeprefix("mailto:")
    return f"{label} ({address})" if bar and label not in ("", address) else address


# --- sizes -------------------------------------------------------------------------------------------------


def tokens(mrkdwn: str) -> Iterator[str]:
    """The parts of mrkdwn that must not be torn: links, entities, code fences, single characters."""
    for found in _TOKEN.finditer(mrkdwn):
        yield found[0]


def cut(mrkdwn: str, most: int) -> str:
    """mrkdwn of at most `most` units: no link, entity or code block is left torn; an ellipsis says it was cut."""
    if weight(mrkdwn) <= most:
        return mrkdwn
    first, _ = take(mrkdwn, most - 2)
    return f"{first} …" if weight(first) <= most - 2 else first


def take(mrkdwn: str, most: int) -> tuple[str, str]:
    """The first `most` units at most, and the rest. An open code block is closed, and opened again in the rest.

    The first part is empty where not even one token fits.
    """
    if weight(mrkdwn) <= most:
        return mrkdwn, ""
    end, fenced = _end(mrkdwn, most - 5)
    first, rest = mrkdwn[:end].rstrip("\n"), mrkdwn[end:].lstrip("\n")
    if fenced:
        return f"{first}\n{_FENCE}", f"{_FENCE}\n{rest}" if rest else ""
    return first, rest


def _end(mrkdwn: str, most: int) -> tuple[int, bool]:
    """Return where to cut: after a line if the last third has one, else after a word, else between two tokens.

    Also returns True if that is within a code block.
    """
    used = position = 0
    fenced = False
    best: dict[str, tuple[int, bool]] = {}
    for token in tokens(mrkdwn):
        used += weight(token)
        if used > most:
            break
        position += len(token)
        fenced ^= token == _FENCE
        if token in ("\n", " ") and used * 3 >= most * 2:
            best[token] = (position, fenced)
    return best.get("\n") or best.get(" ") or (position, fenced)


# --- people and times --------------------------------------------------------------------------------------


def mrkdwn(words: Words) -> str:
    """A line of a face as mrkdwn."""
    return "".join(map(_part, words))


def _part(part: Part) -> str:
    match part:
        case Icon(sign):
            return f"{sign} "
        case Said(text, most):
            return safe(one_line(text, most))
        case Code(text, most):
            return as_code(one_line(text, most))
        case Link(address, label):
            return f"<{address}|{label}>"
        case People(actors):
            return listed(map(person, actors))
        case Whom(entries, requester, ids, call):
            return whom(entries, requester, ids, call=call)
        case When(at, form):
            return date(at, _FORMS[form])
        case _:
            return part


def person(actor: Mapping[str, Json] | None) -> str:
    """An actor's record as mrkdwn: a mention of somebody in Slack, with the absent person they stood in for; the name of
    anybody else."""
    record = actor or {}
    actor_id = str(record.get("id") or "")
    if _SLACK_USER.fullmatch(actor_id):
        absent = record.get("for")
        return f"<@{actor_id}> for {person(absent)}" if isinstance(absent, dict) else f"<@{actor_id}>"
    return safe(one_line(str(record.get("name") or actor_id.removeprefix("local:") or "somebody"), 80))


def picked(field: Mapping[str, Json], value: Json) -> str | None:
    """Return a person or a channel chosen in a form as a mention, since ids mean nothing to people. None for any other
    value."""
    if not isinstance(value, str):
        return None
    if field.get("format") == "user" and _SLACK_USER.fullmatch(value):
        return f"<@{value}>"
    if field.get("format") == "channel" and _SLACK_CHANNEL.fullmatch(value):
        return f"<#{value}>"
    return None


def whom(
    entries: Sequence[str],
    requester: Mapping[str, Json] | None,
    ids: Mapping[str, str] | None = None,
    *,
    call: bool = True,
) -> str:
    """Return the people that a prompt asks, as mrkdwn. `ids` are the known Slack ids by e-mail address and `@group`.

    With `call` False groups are only named: a mention of one notifies all of its members.
    """
    named = [_entry(str(entry), requester, ids or {}, call) for entry in entries]
    return listed(named, _WHOM_MOST) if named else "nobody"


def _entry(entry: str, requester: Mapping[str, Json] | None, ids: Mapping[str, str], call: bool) -> str:
    if entry == "channel":
        return "anyone in this channel"
    if entry == "requester":
        return person(requester)
    found = ids.get(entry, entry)
    if _SLACK_USER.fullmatch(found):
        return f"<@{found}>"
    if _SLACK_CHANNEL.fullmatch(found):
        return f"<#{found}>"
    if call and _SLACK_GROUP.fullmatch(found) and entry != found:
        return f"<!subteam^{found}>"
    return safe(one_line(entry.removeprefix("local:"), 80))


def addresses(mrkdwn: str) -> list[str]:
    """The first e-mail addresses in a text."""
    return list(dict.fromkeys(ADDRESS.findall(mrkdwn)))[:_WHOM_MOST]


def mentioning(mrkdwn: str, ids: Mapping[str, str]) -> str:
    """Return a text for one reader, with mentions instead of known e-mail addresses."""
    return ADDRESS.sub(lambda found: f"<@{ids[found[0]]}>" if found[0] in ids else found[0], mrkdwn)


def waiting_on(
    prompt: Question, requester: Mapping[str, Json] | None, ids: Mapping[str, str] | None = None
) -> str:
    """Return the people that an open prompt waits for, as mrkdwn in which groups are named without a mention. `ids` are
    as for `whom`."""
    return whom(asked(prompt, requester), requester, ids, call=False)


_FORMS = {"day": "{date_short_pretty} at {time}", "clock": "{time}", "second": "{time_secs}"}


def date(moment: str, form: str = _FORMS["day"]) -> str:
    """A stored time as Slack shows it: in each reader's own timezone, with UTC where that is not known."""
    when = timestamps.from_text(moment)
    return f"<!date^{int(when.timestamp())}^{form}|{when:%Y-%m-%d %H:%M} UTC>"


_MOMENT = re.compile(r"\b(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(:\d\d(?:\.\d+)?(?:Z|\+00:00)| UTC)")
_NAMED = re.compile(r"(?<![\w@#/.<-])[UW](?=[A-Z]*\d)[A-Z0-9]{8,}(?![\w-])", re.ASCII)


def for_reader(text: str) -> str:
    """Return a message of the engine or the policy to one person, as mrkdwn: times in their zone, people as mentions."""
    moments = _MOMENT.sub(_in_own_time, escape(text))
    return _NAMED.sub(lambda found: f"<@{found[0]}>", moments)


def _in_own_time(found: re.Match[str]) -> str:
    seconds = ":00Z" if found[3] == " UTC" else found[3]
    try:
        return date(f"{found[1]}T{found[2]}{seconds}")
    except ValueError:  # somebody's own words that look like a moment and are none
        return found[0]
