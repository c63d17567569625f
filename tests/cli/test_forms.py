"""Forms at the command line: filled in field by field, given as values, and files as answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.clikit import Cli

ACCESS = """flow: access
nodes:
  - id: what
    type: ask
    with:
      message: What do you need?
      form:
        properties:
          system: {type: string, enum: [billing, warehouse]}
          days: {type: integer, minimum: 1, maximum: 90, default: 7}
          note: {type: string}
        required: [system, days]
  - id: tell
    type: message
    with: {text: "{{ nodes.what.values.system }} for {{ nodes.what.values.days }} ({{ nodes.what.values.note or 'no note' }})"}
"""
LOGS = """flow: logs
nodes:
  - id: logs
    type: ask
    with: {message: Which logs?, accept: files, max_files: 2, max_size: 100B}
  - id: tell
    type: shell
    with: {run: ["cat", "{{ nodes.logs.files[0].path }}"]}
  - id: say
    type: message
    with: {text: "{{ nodes.logs.files[0].name }}: {{ nodes.tell.stdout }}"}
"""


def waiting(cli: Cli, text: str, name: str) -> str:
    """The id of the question that a session of this flow waits with."""
    cli.write(f"flows/{name}.yml", text)
    return cli.asked(name)


def test_a_form_is_filled_in_field_by_field(cli: Cli) -> None:
    """Each field is asked by itself, with its options, limits and default; what is wrong is asked again."""
    cli.write("flows/access.yml", ACCESS)
    with cli.terminal("run", "access") as terminal:
        terminal.expect("What do you need?")
        terminal.answer("2) warehouse", "2")
        terminal.answer("Days (a whole number from 1 to 90; Enter for 7)", "ninety")
        terminal.expect("Write a whole number in digits only")
        terminal.answer("Days", "")
        terminal.answer("Note (Enter for none)", "")
        terminal.expect("warehouse for 7 (no note)")
        assert terminal.code() == 0


def test_a_question_shows_its_fields(cli: Cli) -> None:
    """`prompts show` and `prompts list` say what an answer has to fit, for people and as JSON."""
    prompt_id = waiting(cli, ACCESS, "access")
    shown = cli.run("prompts", "show", prompt_id)
    assert "system (needed): System" in shown.out
    assert "1) billing" in shown.out
    assert "days (needed): Days (a whole number from 1 to 90; Enter for 7)" in shown.out
    fields = cli.run("prompts", "show", prompt_id, "--json").json["fields"]
    assert [field["name"] for field in fields] == ["system", "days", "note"]
    assert "form: system, days, note" in cli.run("prompts", "list").out


def test_a_form_is_answered_with_fields(cli: Cli) -> None:
    """`--field` gives fields as text, read by their types; what is missing has its default; wrong ones are told."""
    prompt_id = waiting(cli, ACCESS, "access")
    refused = cli.run("prompts", "answer", prompt_id, "--field", "system=mail", "--field", "days=0")
    assert refused.code != 0
    assert "System: Choose one of: billing, warehouse." in refused.err
    assert "Days: The minimum is 1." in refused.err
    assert "several fields" in cli.run("prompts", "answer", prompt_id, "billing").err
    done = cli.run("prompts", "answer", prompt_id, "--field", "system=Billing", "--field", "note=a=b")
    assert done.code == 0, done
    assert "billing for 7 (a=b)" in done.out


def test_a_form_is_answered_with_a_file_of_values(cli: Cli) -> None:
    """`--values` gives them as JSON, and `--field` wins over it."""
    prompt_id = waiting(cli, ACCESS, "access")
    values = cli.write("values.json", json.dumps({"system": "billing", "days": 3, "note": None}))
    done = cli.run("prompts", "answer", prompt_id, "--values", str(values), "--field", "days=4")
    assert "billing for 4 (no note)" in done.out


def test_files_are_answers_at_the_command_line(cli: Cli) -> None:
    """`--file` copies a file into the session's own folder; one that is too large is refused and nothing is taken."""
    prompt_id = waiting(cli, LOGS, "logs")
    large = cli.write("large.log", "x" * 101)
    assert "larger than 100 bytes" in cli.run("prompts", "answer", prompt_id, "--file", str(large)).err
    small = cli.write("app.log", "all is well")
    done = cli.run("prompts", "answer", prompt_id, "--file", str(small), "--json")
    assert done.code == 0, done
    output = done.json["outputs"]["logs"]
    assert output["files"][0]["name"] == "app.log"
    kept = Path(output["files"][0]["path"])
    assert kept.read_text() == "all is well"
    assert kept != small


def test_files_are_named_at_the_terminal(cli: Cli) -> None:
    """A question for files takes paths as they are typed; words that are no file are refused."""
    cli.write("flows/logs.yml", LOGS)
    path = cli.write("my app.log", "all is well")
    with cli.terminal("run", "logs") as terminal:
        terminal.answer("Which logs?", "somewhere")
        terminal.expect("write their paths")
        terminal.type(f"'{path}'")
        terminal.expect("my app.log: all is well")
        assert terminal.code() == 0


def test_a_missing_input_is_asked_with_its_choices(cli: Cli) -> None:
    """An input of several choices that was not given is asked with them."""
    told = "{id: tell, type: message, with: {text: \"to {{ inputs.where | join('+') }}\"}}"
    cli.flow("regions", told, head="inputs: {where: {type: array, choices: [eu, us, asia]}}\n")
    with cli.terminal("run", "regions") as terminal:
        terminal.answer("3) asia", "3, eu")
        terminal.expect("to eu+asia")
        assert terminal.code() == 0


OWN_WORDS = """
flow: where
nodes:
  - {id: q, type: ask, with: {message: Where?, choices: [eu, us], own_words: true}}
  - {id: b, type: set, with: {said: "{{ nodes.q.text }}", value: "{{ nodes.q.value }}"}}
"""


def test_other_words_than_the_choices_are_typed_at_the_terminal(cli: Cli) -> None:
    """The question says that they count, and they are the answer."""
    cli.write("flow.yml", OWN_WORDS)
    with cli.terminal("run", "flow.yml") as terminal:
        terminal.answer("- or your own answer", "both of them")
        terminal.expect("both of them, ana")


@pytest.mark.parametrize("given", [["neither"], ["--text", "neither"]])
def test_other_words_than_the_choices_answer_from_elsewhere(cli: Cli, given: list[str]) -> None:
    """`prompts answer` takes them as its answer or as text; a value is one of the choices."""
    cli.write("flow.yml", OWN_WORDS)
    prompt = cli.asked("flow.yml")
    assert "or your own answer  --text" in cli.run("prompts", "show", prompt).out
    assert cli.run("prompts", "answer", prompt, "--value", "neither").code != 0
    done = cli.run("prompts", "answer", prompt, *given)
    assert done.code == 0, done
    assert "neither" in done.out
