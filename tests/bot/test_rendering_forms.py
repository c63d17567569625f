"""Forms in Slack: controls and modals within every limit, and what comes back read as it was filled in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bot.rendering.blocks import Rendered
from bot.rendering.forms import form_controls, form_errors, form_pages, form_view, read_control, read_form
from bot.rendering.prompts import question_message
from bot.workspace import blocks, elements
from engine.forms import check_form, normalize_form
from engine.forms.question import Question, form_parts
from engine.journal.state import Asked
from engine.language.codec import Json
from tests.bot.rendering_cases import ANA, T0, Flow, plain_texts, prompt, session, texts
from tests.support.forms import anything, written_forms
from tests.support.proving import tries

META: dict[str, Json] = {"promptId": "prompt-1", "nonce": "n1", "channel": "C1", "threadTs": "1.2"}


def fields_of(properties: dict[str, Json], *required: str) -> list[dict[str, Json]]:
    """Settled fields."""
    found: list[dict[str, Json]] = normalize_form({"properties": properties, "required": list(required)})[
        "fields"
    ]
    return found


def field(**body: Json) -> dict[str, Json]:
    """One required field `x`."""
    return fields_of({"x": body}, "x")[0]


def view_of(fields: list[dict[str, Json]], **more: Any) -> dict[str, Any]:
    """A checked page of a modal."""
    view = form_view(fields, title="What do you need access to, and why?", meta=META, **more)
    blocks.check_view(view)
    return view


def element(body: dict[str, Json], **more: Any) -> dict[str, Any]:
    """The element of a field in its modal."""
    found: dict[str, Any] = view_of([field(**body)], **more)["blocks"][-1]["element"]
    return found


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"type": "string"}, "plain_text_input"),
        ({"type": "string", "format": "email"}, "email_text_input"),
        ({"type": "string", "format": "uri"}, "url_text_input"),
        ({"type": "string", "format": "date"}, "datepicker"),
        ({"type": "string", "format": "date-time"}, "datetimepicker"),
        ({"type": "string", "format": "user"}, "users_select"),
        ({"type": "string", "format": "channel"}, "conversations_select"),
        ({"type": "number"}, "number_input"),
        ({"type": "boolean"}, "radio_buttons"),
        ({"type": "string", "enum": ["a", "b"]}, "radio_buttons"),
        ({"type": "string", "enum": list("abcdefgh")}, "static_select"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, "checkboxes"),
        ({"type": "array", "items": {"enum": [str(n) for n in range(11)]}}, "multi_static_select"),
    ],
)
def test_every_type_has_its_element(body: dict[str, Json], kind: str) -> None:
    """A field is filled in with what Slack has for its type."""
    assert element(body)["type"] == kind


@pytest.mark.parametrize(
    ("body", "value", "name", "shown"),
    [
        ({"type": "string"}, "a\nb", "initial_value", "a\nb"),
        ({"type": "number"}, 0.00001, "initial_value", "0.00001"),
        ({"type": "string", "format": "date"}, "2026-11-24", "initial_date", "2026-11-24"),
        (
            {"type": "string", "format": "date-time"},
            "2026-11-24T15:00:00.000Z",
            "initial_date_time",
            1795532400,
        ),
        ({"type": "string", "format": "user"}, "U012ABC", "initial_user", "U012ABC"),
        ({"type": "string", "format": "channel"}, "C012ABC", "initial_conversation", "C012ABC"),
    ],
)
def test_what_is_known_is_filled_in(body: dict[str, Json], value: Json, name: str, shown: Json) -> None:
    """Values from before, or defaults, are in the inputs."""
    assert element(body, values={"x": value})[name] == shown


@pytest.mark.parametrize(
    ("body", "typed", "shown"),
    [
        ({"type": "integer"}, "1001", "1001"),
        ({"type": "number"}, "2.50", "2.5"),
        ({"type": "integer", "maximum": 9}, "10", None),
        ({"type": "number"}, "seven", None),
    ],
)
def test_a_number_that_was_typed_stands_in_the_page_that_somebody_goes_back_to(
    body: dict[str, Json], typed: str, shown: str | None
) -> None:
    """What an input of a number sent, as text, is filled in again where it fits."""
    assert element(body, values={"x": typed}).get("initial_value") == shown


def test_more_than_a_hundred_options_go_in_groups() -> None:
    """A list takes a hundred options; longer ones are groups of a hundred, and every option can be chosen."""
    values = [f"host-{n}" for n in range(250)]
    body: dict[str, Json] = {"type": "string", "enum": values}
    groups = element(body)["option_groups"]
    assert [len(group["options"]) for group in groups] == [100, 100, 50]
    last = groups[2]["options"][-1]
    entry = {"type": "static_select", "selected_option": last}
    assert read_form({"field:x": {"value": entry}}, [field(**body)]) == {"x": "host-249"}


def test_long_labels_that_begin_alike_stay_different() -> None:
    """A label that is cut begins with its number."""
    labels = ["x" * 100 + "a", "x" * 100 + "b"]
    texts = [option["text"]["text"] for option in element({"type": "string", "enum": labels})["options"]]
    assert texts[0][:3] == "1. "
    assert texts[1][:3] == "2. "


def test_a_long_form_goes_in_pages() -> None:
    """No page is beyond what a modal holds, every field is on one page, and only the last page ends it."""
    fields = fields_of({f"f{n}": {"type": "string"} for n in range(200)})
    pages = form_pages(fields)
    assert [entry["name"] for page in pages for entry in page] == [entry["name"] for entry in fields]
    views = [view_of(fields, page=n, message="Please fill in.") for n in range(len(pages))]
    assert [view["submit"]["text"] for view in views] == ["Next", "Next", "Done"]
    assert all(len(view["blocks"]) <= 100 for view in views)


def test_an_error_stands_at_its_field() -> None:
    """Errors are placed at the blocks of the page; one without a place there is at the first field."""
    fields = fields_of({"a": {"type": "string"}, "b": {"type": "string"}})
    assert form_errors({"b": "Too long."}, fields) == {"field:b": "Too long."}
    assert form_errors({"zz": "There is no such field."}, fields) == {
        "field:a": "zz: There is no such field."
    }


def test_a_forged_option_is_refused() -> None:
    """A client that sends what it could not have chosen gets an error, even where a label reads like the number."""
    fields = [field(type="string", enum=["7", "8"])]
    for value in ("7", "-1", "99999999", None, {"a": 1}):
        entry = {"selected_option": {"value": value}}
        raw = read_form({"field:x": {"value": entry}}, fields)
        assert check_form(fields, raw)[1] == {"x": "Choose one of: 7, 8."}


@pytest.mark.parametrize(
    ("body", "kinds"),
    [
        ({"type": "string", "format": "date"}, ["datepicker"]),
        ({"type": "string", "format": "user"}, ["users_select"]),
        ({"type": "string", "format": "channel"}, ["conversations_select"]),
        ({"type": "string", "format": "date", "default": "2026-11-24"}, ["datepicker", "button"]),
        ({"type": "string", "format": "date-time"}, ["button"]),
        ({"type": "integer"}, ["button"]),
        ({"type": "array", "items": {"enum": ["a"]}}, ["button"]),
        ({"type": "boolean"}, []),
    ],
)
def test_one_field_has_its_control_in_the_message(body: dict[str, Json], kinds: list[str]) -> None:
    """What is picked at once is picked in the message; the rest is filled in; options have their own buttons."""
    form = {"fields": [field(**body)]}
    made = form_controls("prompt-1", Question(kind="ask", nonce="n1", **form_parts(form)))
    assert [one["type"] for block in made for one in block["elements"]] == kinds
    if made:
        blocks.check_message("x", made)


def test_a_picked_value_is_read() -> None:
    """The action of a control gives the raw value of its field."""
    date = field(type="string", format="date")
    assert read_control({"type": "datepicker", "selected_date": "2026-11-24"}, date) == "2026-11-24"
    assert (
        read_control({"type": "users_select", "selected_user": "U1"}, field(type="string", format="user"))
        == "U1"
    )


@settings(max_examples=tries(120))
@given(form=written_forms(most=8), message=st.text(max_size=4_000))
def test_no_form_exceeds_a_limit_and_what_is_untouched_comes_back(form: Any, message: str) -> None:
    """For any form: every page is a view that Slack takes, its controls fit into a message, and a form that is sent as
    it was opened gives its defaults."""
    fields = normalize_form(form)["fields"]
    raw: dict[str, Json] = {}
    for number, page in enumerate(form_pages(fields)):
        view = view_of(fields, page=number, message=message)
        raw |= read_form(elements.initial_values(view["blocks"]), page)
    assert raw.keys() == {entry["name"] for entry in fields}
    assert check_form(fields, raw) == check_form(fields, {})
    blocks.check_message(
        "x", form_controls("prompt-1", Question(kind="ask", nonce="n", **form_parts({"fields": fields})))
    )


@settings(max_examples=tries(120))
@given(data=st.data())
def test_anything_that_a_client_sends_is_read(data: st.DataObject) -> None:
    """Whatever is in a view's state, reading it raises nothing, and only values that fit get through."""
    fields = normalize_form(data.draw(written_forms(most=3)))["fields"]
    keys = st.sampled_from([f"field:{entry['name']}" for entry in fields])
    names = st.sampled_from(
        ["value", "selected_option", "selected_options", "selected_date_time", "selected_date"]
    )
    entry = st.dictionaries(names, anything(), max_size=3) | anything()
    state = data.draw(st.dictionaries(keys, st.dictionaries(st.just("value"), entry) | anything()))
    raw = read_form(state, fields)
    values, wrong = check_form(fields, raw)
    assert not values.keys() & wrong.keys()


# --- in the prompt's message -------------------------------------------------------------------------------


def asked(form: Json, **more: Any) -> Asked:
    """A question with this written form."""
    return prompt("ask", **{"message": "What do you need?", **form_parts(normalize_form(form)), **more})


def all_text(message: Rendered) -> str:
    """Every text of a message."""
    return "\n".join([*texts(message.blocks), *plain_texts(message.blocks)])


HOSTILE_FORM: dict[str, Json] = {
    "properties": {
        "team": {"type": "string", "title": "<!channel> *Team*", "enum": ["<@U0X>", "ops"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["days"],
}


def test_an_open_form_says_what_it_asks_for() -> None:
    """Labels, what fits and what can be left out are in the message, as words in which no markup counts."""
    one = asked(HOSTILE_FORM)
    said = all_text(question_message(session(one), one, Flow()))
    assert "• *Days*: a whole number from 1 to 9" in said
    assert "_(optional)_" in said
    assert "<!channel>" not in said
    assert "<@U0X>" not in said


def test_an_answered_form_says_what_was_filled_in() -> None:
    """A closed form shows every field with its value, as plain text."""
    one = asked(HOSTILE_FORM, status="answered", actor=ANA, at=T0)
    one = replace(
        one, answer={"value": None, "text": "x", "label": "x", "values": {"team": "<@U0X>", "days": 3}}
    )
    made = question_message(session(one), one, Flow())
    assert "<!channel> *Team*: <@U0X>\nDays: 3" in "\n".join(plain_texts(made.blocks))
    assert "<@U0X>" not in "\n".join(texts(made.blocks))


@settings(max_examples=tries(60))
@given(form=written_forms(most=40), message=st.text(max_size=6_000))
def test_any_form_fits_into_its_message(form: Any, message: str) -> None:
    """Open or closed, the message of any form is within Slack's limits, and there is something to answer it with."""
    one = asked(form, message=message)
    made = question_message(session(one), one, Flow(), now=T0)
    blocks.check_message(made.text, made.blocks, limit=4_000)
    assert any(block["type"] == "actions" for block in made.blocks)
    fields = one.form["fields"]
    done = replace(one, status="answered", at=T0, actor=ANA)
    done = replace(done, answer={"value": None, "text": "x", "values": check_form(fields, {})[0] or {"x": 1}})
    closed = question_message(session(done), done, Flow())
    blocks.check_message(closed.text, closed.blocks, limit=4_000)


def test_people_and_channels_that_were_chosen_are_shown_by_their_names() -> None:
    """An id says nothing to anybody: a closed form and a proposal have mentions, and what was typed stays inert."""
    properties: dict[str, Json] = {
        "who": {"type": "string", "format": "user", "default": "U0LOCALBEN"},
        "room": {"type": "string", "format": "channel", "default": "C0LOCALOPS"},
        "why": {"type": "string", "default": "<@U0LOCALANA> *now*"},
    }
    values: dict[str, Json] = {name: body["default"] for name, body in properties.items()}
    form = {"fields": fields_of(properties)}
    answered = replace(
        asked({"properties": properties}),
        status="answered",
        at=T0,
        actor=ANA,
        answer={"values": values, "text": "x"},
    )
    message = question_message(session(answered), answered, Flow())
    blocks.check_message(message.text, message.blocks)
    (rich,) = [block for block in message.blocks if block["type"] == "rich_text"]
    pieces = rich["elements"][0]["elements"]
    assert {"type": "user", "user_id": "U0LOCALBEN"} in pieces
    assert {"type": "channel", "channel_id": "C0LOCALOPS"} in pieces
    assert {"type": "text", "text": "\nWhy: <@U0LOCALANA> *now*"} in pieces
    gate = prompt(form=form, values=values)
    shown = "\n".join(texts(question_message(session(gate), gate, Flow()).blocks))
    assert "*Who:* U0LOCALBEN" in shown  # an open question is posted, and a mention would call him
    assert "*Room:* <#C0LOCALOPS>" in shown
    assert "&lt;@U0LOCALANA&gt;" in shown


@pytest.mark.parametrize("kind", ["string", "array"])
def test_options_that_a_form_cuts_stand_whole_beside_it(kind: str) -> None:
    """Options that are longer than Slack shows have numbers, and the text of the field has them whole."""
    alike = [
        "Roll back the checkout service in every region of the European Union and of the " + end
        for end in "AB"
    ]
    body: dict[str, Json] = {"type": kind, "enum": [*alike, "c"]}
    if kind == "array":
        body = {"type": kind, "items": {"type": "string", "enum": [*alike, "c"]}}
    block = view_of([field(**body)])["blocks"][-1]
    shown = [each["text"]["text"] for each in block["element"]["options"]]
    assert [label[:3] for label in shown] == ["1. ", "2. ", "c"]
    assert block["hint"]["text"].endswith("\n".join(f"{n}. {label}" for n, label in enumerate(alike, 1)))
