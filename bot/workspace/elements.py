"""Interactive elements in blocks, and what an interaction with one looks like in a payload; text as people
type it, and as Slack stores it.

Slack keeps `&`, `<` and `>` escaped and turns mentions and addresses into entities in angle brackets. An app
that compares a reply with what the person typed has to undo this, so the local workspace must do it too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from bot.workspace.state import Json, State, WorkspaceError, copied

# What a filled element carries, by its type: the field of the value in payloads.
VALUE_FIELDS = {
    "button": "value",
    "feedback_buttons": "value",
    "icon_button": "value",
    "plain_text_input": "value",
    "email_text_input": "value",
    "url_text_input": "value",
    "number_input": "value",
    "rich_text_input": "rich_text_value",
    "static_select": "selected_option",
    "radio_buttons": "selected_option",
    "overflow": "selected_option",
    "multi_static_select": "selected_options",
    "checkboxes": "selected_options",
    "users_select": "selected_user",
    "multi_users_select": "selected_users",
    "conversations_select": "selected_conversation",
    "multi_conversations_select": "selected_conversations",
    "channels_select": "selected_channel",
    "multi_channels_select": "selected_channels",
    "datepicker": "selected_date",
    "timepicker": "selected_time",
    "datetimepicker": "selected_date_time",
}
STATELESS = ("button", "overflow", "feedback_buttons", "icon_button")


def elements(blocks: list[Json]) -> Iterator[tuple[Json, Json]]:
    """Every interactive element with the block it is in."""
    for block in blocks:
        candidates = [block.get("accessory"), block.get("element"), *block.get("elements", [])]
        for element in candidates:
            if isinstance(element, dict) and element.get("type") in VALUE_FIELDS:
                yield block, element


def with_ids(blocks: list[Json], seed: str) -> list[Json]:
    """A copy in which every block has a `block_id` and every element an `action_id`, as Slack gives them."""
    filled: list[Json] = copied(blocks)
    for number, block in enumerate(filled):
        block.setdefault("block_id", f"{seed}-{number}")
        for place, (_, element) in enumerate(elements([block])):
            element.setdefault("action_id", f"{seed}-{number}-{place}")
    return filled


def label_of(element: Json) -> str:
    """The words on a button; empty for elements without."""
    text = element.get("text")
    return str(text.get("text", "")) if isinstance(text, dict) else ""


def find(blocks: list[Json], **wanted: str | None) -> tuple[Json, Json]:
    """The block and element that have all of the wanted `action_id`, `block_id`, `text` and, for a button,
    `value`. WorkspaceError `element_not_found` names what there is."""
    there = []
    for block, element in elements(blocks):
        facts = {
            "action_id": element.get("action_id"),
            "block_id": block.get("block_id"),
            "text": label_of(element),
        }
        if element["type"] == "button":
            facts["value"] = element.get("value", "")
        there.append(f"{facts['text'] or element['type']} ({facts['action_id']})")
        if all(facts.get(key, value) == value for key, value in wanted.items() if value is not None):
            return block, element
    asked = ", ".join(f"{key}={value!r}" for key, value in wanted.items() if value is not None)
    raise WorkspaceError(
        "element_not_found", f"nothing with {asked} to press here; there is: {', '.join(there) or 'nothing'}"
    )


def initial_values(blocks: list[Json]) -> Json:
    """The `state.values` of blocks that nobody has touched yet."""
    values: Json = {}
    for block, element in elements(blocks):
        kind = element["type"]
        if kind in STATELESS:
            continue
        field = VALUE_FIELDS[kind]
        empty: Any = [] if field.endswith("s") else None
        # `selected_user` begins as `initial_user`, a typed value of either kind as `initial_value`.
        chosen = field.removeprefix("selected_").removeprefix("rich_text_")
        value = copied(element.get(f"initial_{chosen}", empty))
        entry = {"type": kind, field: value}
        values.setdefault(block["block_id"], {})[element["action_id"]] = entry
    return values


def merged(initial: Json, given: Json | None) -> Json:
    """Initial values with what the person filled in laid over them."""
    values: Json = copied(initial)
    for block_id, entries in (given or {}).items():
        values.setdefault(block_id, {}).update(copied(entries))
    return values


def entry_for(element: Json, given: Any) -> Json:
    """The value object for an element from a plain Python value: a text, an option's value or text, a list
    of those, a date, an id. A dictionary with a `type` is taken as it is."""
    if isinstance(given, dict) and "type" in given:
        return given
    kind = element["type"]
    field = VALUE_FIELDS[kind]
    if kind == "feedback_buttons":
        for button in (element["positive_button"], element["negative_button"]):
            if given in (button["value"], button["text"]["text"]):
                return {"type": kind, "text": copied(button["text"]), "value": button["value"]}
        raise WorkspaceError("option_not_found", f"neither feedback button is {given!r}")
    if field == "selected_option":
        return {"type": kind, field: option_named(element, given)}
    if field == "selected_options" and kind in ("checkboxes", "multi_static_select"):
        return {"type": kind, field: [option_named(element, one) for one in given or []]}
    if field == "value" and given is not None:
        given = str(given)
    return {"type": kind, field: given}


def options_of(element: Json) -> list[Json]:
    """All options of a select, checkboxes or radio buttons, grouped ones too."""
    grouped = [option for group in element.get("option_groups", []) for option in group["options"]]
    return [*element.get("options", []), *grouped]


def option_named(element: Json, wanted: Any) -> Json | None:
    """The option with this value or text; None for None; WorkspaceError `option_not_found`."""
    if wanted is None or isinstance(wanted, dict):
        return wanted
    for option in options_of(element):
        if wanted in (option["value"], option["text"]["text"]):
            return dict(copied(option))
    there = ", ".join(repr(option["value"]) for option in options_of(element))
    raise WorkspaceError("option_not_found", f"no option {wanted!r}; there are: {there}")


def action_for(block: Json, element: Json, entry: Json, action_ts: str) -> Json:
    """The item of `actions[]` for pressing or changing this element."""
    action: Json = {"action_id": element["action_id"], "block_id": block["block_id"]}
    action["type"] = element["type"]
    for key in ("text", "style", "value", "placeholder", "confirm", "url"):
        if key in element and (key != "value" or element["type"] in ("button", "icon_button")):
            action[key] = copied(element[key])
    action.update({key: value for key, value in entry.items() if key != "type" and value is not None})
    return {**action, "action_ts": action_ts}


def missing_inputs(blocks: list[Json], values: Json) -> dict[str, str]:
    """Return the messages of Slack's own client before it submits a modal, by `block_id`."""
    problems: dict[str, str] = {}
    for block, element in elements(blocks):
        if block["type"] != "input":
            continue
        entry = values.get(block["block_id"], {}).get(element["action_id"], {})
        problem = _input_problem(block, element, entry.get(VALUE_FIELDS[element["type"]]))
        if problem:
            problems[block["block_id"]] = problem
    return problems


def _input_problem(block: Json, element: Json, value: Any) -> str:
    if value is None or value in ("", []):
        return "" if block.get("optional") else "Please complete this required field."
    if element["type"] == "number_input":
        text = str(value)
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            return "Please enter a number."
        if not element.get("is_decimal_allowed") and not number.is_integer():
            return "Please enter a whole number."
        if "min_value" in element and number < float(element["min_value"]):
            return f"Must be at least {element['min_value']}."
        if "max_value" in element and number > float(element["max_value"]):
            return f"Must be at most {element['max_value']}."
        return ""
    if isinstance(value, str):
        shortest, longest = element.get("min_length", 0), element.get("max_length", 3000)
        if len(value) < shortest:
            return f"Must be at least {shortest} characters."
        if len(value) > longest:
            return f"Must be at most {longest} characters."
    return ""


# --- text --------------------------------------------------------------------------------------------------


_TOKEN = re.compile(
    r"(?P<code>```.*?```|`[^`\n]+`)"
    r"|<@(?P<id>[UW][A-Z0-9]+)>"
    r"|(?P<url>https?://[^\s<>|`]+)"
    r"|(?P<email>(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+)"
    r"|(?<![\w@])@(?P<name>[\w][\w.-]*)"
    r"|(?<![\w#])#(?P<channel>[a-z0-9][a-z0-9_-]*)"
    r"|(?<![\w@./-])(?P<host>(?:[a-z0-9-]+\.)+(?:com|org|net|io|dev|app)(?:/[^\s<>|`]*)?)",
    re.DOTALL,
)
_TRAILING = ".,;:!?)'\""
_BROADCASTS = ("here", "channel", "everyone")


def escape(text: str) -> str:
    """The three characters that Slack escapes in text."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def unescape(text: str) -> str:
    """The inverse of `escape`."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def to_entities(text: str, state: State) -> str:
    """Return `text`, typed by a person of this workspace, in Slack's stored form.

    `@ana`, `@sre`, `#ops`, `@here`, bare web and mail addresses become entities; `<@U…>` of somebody who
    exists is taken as a mention already made; everything else is escaped. Code is escaped, never linked.
    """
    done, position = [], 0
    for match in _TOKEN.finditer(text):
        done.append(escape(text[position : match.start()]))
        done.append(_entity(match, state))
        position = match.end()
    done.append(escape(text[position:]))
    return "".join(done)


def _entity(match: re.Match[str], state: State) -> str:
    kind, found = match.lastgroup, match.group()
    if kind == "url":
        address = found.rstrip(_TRAILING)
        return f"<{escape(address)}>{escape(found[len(address) :])}"
    if kind == "email":
        return f"<mailto:{found}|{found}>"
    if kind == "host":
        address = found.rstrip(_TRAILING)
        return f"<http://{escape(address)}|{escape(address)}>{escape(found[len(address) :])}"
    if kind == "id":
        return found if match["id"] in state.users else escape(found)
    if kind == "name":
        typed = match["name"]
        name = typed.rstrip(".-_")
        rest = escape(typed[len(name) :])
        for user in state.users.values():
            if user.name == name.lower() and not user.deleted:
                return f"<@{user.id}>{rest}"
        for group in state.groups.values():
            if group.handle == name.lower():
                return f"<!subteam^{group.id}>{rest}"
        return f"<!{name}>{rest}" if name in _BROADCASTS else escape("@" + typed)
    if kind == "channel":
        for channel in state.channels.values():
            if channel.name == match["channel"] and not channel.is_im:
                return f"<#{channel.id}|{channel.name}>"
    return escape(found)


def mentions(text: str, user_id: str) -> bool:
    """True if stored text mentions this user."""
    return f"<@{user_id}>" in text or f"<@{user_id}|" in text


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A chip above the composer of `channel` (its name or id): `label` is on it, `text` is what a click posts,
    `hint` says more to whoever points at it."""

    channel: str
    label: str
    text: str
    hint: str = ""


def checked(suggestions: Iterable[Suggestion], state: State) -> tuple[Suggestion, ...]:
    """The suggestions, once each can be offered. Raises WorkspaceError: an unknown channel, or nothing to post."""
    offered = tuple(suggestions)
    for suggestion in offered:
        state.channel(suggestion.channel)
        if not suggestion.label.strip() or not suggestion.text.strip():
            raise WorkspaceError("no_text", f"{suggestion} needs a label and a text")
    return offered


def shown(suggestions: Iterable[Suggestion], state: State, visible: Container[str]) -> list[Json]:
    """The suggestions for these channels (ids) as the page gets them."""
    placed = [(state.channel(suggestion.channel).id, suggestion) for suggestion in suggestions]
    return [
        {"channel": channel, "label": each.label, "text": each.text, "hint": each.hint}
        for channel, each in placed
        if channel in visible
    ]
