"""Forms, typed choices and files as answers: what a session takes, what its nodes get, and what is refused."""

from __future__ import annotations

import pytest

from engine.language.codec import Json
from engine.language.errors import InvalidAnswer
from tests.support.engine import ANA, Scenario, given

ACCESS = """
inputs: {systems: {type: array, default: [db, web]}}
nodes:
  - id: what
    type: ask
    with:
      message: What do you need?
      form:
        properties:
          system: {type: string, enum: "{{ inputs.systems }}"}
          days: {type: integer, minimum: 1, maximum: 30, default: 7}
        required: [system]
"""
ONE = """
nodes:
  - id: what
    type: ask
    with: {message: How much?, form: {properties: {x: %s}, required: [x]}}
"""


def asked(text: str, **inputs: Json) -> Scenario:
    """A session at its first question."""
    return given(text).started(**inputs)


def one(field: str) -> Scenario:
    """A session that asks for a form of one field, `x`."""
    return asked(ONE % field)


def test_options_of_a_form_come_from_what_is_known_by_then() -> None:
    """The prompt carries the settled form, with options that an expression gave."""
    fields = asked(ACCESS).prompt.form["fields"]
    assert fields[0]["options"] == [{"value": "db", "label": "db"}, {"value": "web", "label": "web"}]
    assert fields[1]["default"] == 7


def test_a_form_that_cannot_be_asked_fails_its_node() -> None:
    """No option left: the node fails with the sentence, and nobody is asked."""
    session = asked(ACCESS, systems=[])
    error = session.node("what").error or {}
    assert "expected at least one option" in error["message"]


def test_a_filled_in_form_is_the_output_of_its_node() -> None:
    """`values` has every field, `text` says them on one line, `value` is for forms of one field."""
    session = asked(ACCESS)
    session.when(session.answer(values={"system": "web"}))
    output = session.node("what").output
    assert output["values"] == {"system": "web", "days": 7}
    assert output["text"] == "System: web · Days: 7"
    assert output["value"] is None


def test_a_form_says_what_is_wrong_with_each_field_and_stays_open() -> None:
    """Every field that is wrong has a line, and the question waits on."""
    session = asked(ACCESS)
    said = session.refused(session.answer(values={"system": "mail", "days": "31"}), InvalidAnswer)
    assert said == "System: Choose one of: db, web.\nDays: The maximum is 30."
    assert session.prompt.open


def test_a_form_of_several_fields_takes_no_reply() -> None:
    """Words in the thread are no answer to a form: whoever says something is told to fill it in."""
    session = asked(ACCESS)
    assert not session.prompt.accepts_text
    assert "fill in the form" in session.refused(session.answer(text="web"), InvalidAnswer)


def test_a_number_can_be_typed_as_a_reply() -> None:
    """A form of one field takes its value as a reply, read by its type; what does not fit says what would."""
    session = one("{type: number, minimum: 0}")
    assert session.prompt.accepts_text
    assert "The minimum is 0." in session.refused(session.answer(text="-1"), InvalidAnswer)
    session.when(session.message(" 2.5 "))
    assert session.node("what").output["value"] == 2.5
    assert session.node("what").output["values"] == {"x": 2.5}


@pytest.mark.parametrize(("reply", "value"), [("yes", True), ("No", False), ("2", False), (None, True)])
def test_a_yes_or_no_is_pressed_or_typed(reply: str | None, value: bool) -> None:
    """A required boolean offers two options, which a reply may name too, by word or by number."""
    session = one("{type: boolean}")
    assert [option["label"] for option in session.prompt.options] == ["Yes", "No"]
    session.when(session.answer(True) if reply is None else session.message(reply))
    assert session.node("what").output["value"] is value


CHOICES = """
nodes:
  - id: what
    type: ask
    with: {message: Where?, choices: [{value: eu, label: Europe}, {value: us, label: America}]}
"""


@pytest.mark.parametrize("reply", ["Europe", "europe ", "eu", "1"])
def test_a_choice_can_be_typed_as_a_reply(reply: str) -> None:
    """A question with choices takes the label, the value or the number of one of them."""
    session = asked(CHOICES)
    session.when(session.message(reply))
    assert session.node("what").output["value"] == "eu"
    assert session.node("what").output["text"] == "Europe"


def test_other_words_are_no_choice() -> None:
    """What is exactly none of the choices is kept as a message and answers nothing."""
    session = asked(CHOICES)
    session.when(session.message("Europe, I think"))
    assert session.prompt.open
    assert "one of: Europe, America" in session.refused(session.answer(text="Europe, I think"), InvalidAnswer)


def test_the_defaults_of_a_form_are_taken_at_its_timeout() -> None:
    """`on_timeout: default` with a form gives each field its default, and says that nobody answered."""
    session = asked(
        ACCESS.replace("required: [system]", "") + "      timeout: 1m\n      on_timeout: default\n"
    )
    session.when(session.shown()).later(61).when(session.timer_due())
    output = session.node("what").output
    assert output["values"] == {"system": None, "days": 7}
    assert output["by"] is None


FILES = "nodes: [{id: what, type: ask, with: {message: Logs?, accept: %s, max_files: 2, max_size: 1KiB}}]"
LOG: dict[str, Json] = {"name": "app.log", "path": "files/app.log", "size": 100, "type": "text/plain"}


def test_files_are_an_answer() -> None:
    """`accept: files` takes files with their words, and the output lists them."""
    session = asked(FILES % "files")
    assert session.prompt.accepts_files
    session.when(session.answer(text="here", files=[LOG]))
    assert session.node("what").output["files"] == [LOG]
    assert session.node("what").output["text"] == "here"


@pytest.mark.parametrize(
    ("files", "words"),
    [([LOG, LOG, LOG], "at most 2 files, not 3"), ([{**LOG, "size": 5_000}], "app.log has 5,000 bytes")],
)
def test_too_many_or_too_large_files_are_refused(files: list[dict[str, Json]], words: str) -> None:
    """The limits of the flow hold, whoever hands the files in."""
    session = asked(FILES % "files")
    assert words in session.refused(session.answer(files=files), InvalidAnswer)


def test_files_and_text_are_taken_where_the_flow_says_so() -> None:
    """`accept: [text, files]` takes either; `accept: files` takes no bare words; a plain question takes no files."""
    both = asked(FILES % "[text, files]")
    both.when(both.answer(text="none found"))
    assert both.node("what").output["text"] == "none found"
    only = asked(FILES % "files")
    assert "takes files" in only.refused(only.answer(text="none found"), InvalidAnswer)
    assert not only.prompt.accepts_text
    plain = asked("nodes: [{id: what, type: ask, with: {message: Why?}}]")
    assert "takes no files" in plain.refused(plain.answer(text="see", files=[LOG]), InvalidAnswer)


@pytest.mark.parametrize(
    ("entry", "reply", "value"),
    [
        ("{type: integer}", "3", 3),
        ("{type: boolean}", "yes", True),
        ("{type: string, choices: [eu, us]}", "US", "us"),
        ("{type: array, choices: [eu, us]}", "us, eu", ["eu", "us"]),
        ("{type: array}", "a, b", ["a", "b"]),
        ("{type: string}", " free ", "free"),
    ],
)
def test_a_missing_input_is_asked_with_the_field_of_its_type(entry: str, reply: str, value: Json) -> None:
    """What was not given at the start is asked as a form would ask it, and takes the same words."""
    session = asked(f"inputs: {{x: {entry}}}\nnodes: [{{id: end, type: noop}}]")
    session.when(session.message(reply, ANA))
    assert session.state.inputs == {"x": value}
