"""Decisions at the terminal: several people, reasons, edits, handing over, taking back."""

from __future__ import annotations

import json
import os
import pwd
from contextlib import closing

import apsw

from bot.config.settings import account
from engine.storage.open import open_store
from tests.cli.clikit import Cli, Done
from tests.engine.agents.test_wide_grants import given

FLOW = """
flow: ship
nodes:
  - id: gate
    type: approval
    with:
      message: Ship it?
      approvers: ["@sre"]
      required: 2
      require_reason: true
      covers: apply
      form:
        properties:
          count: {type: integer, default: 2, maximum: 5}
      editable: [count]
  - {id: apply, type: shell, with: {run: [sh, -c, 'echo "$0" >> shipped', "{{ nodes.gate.values.count }}"], cwd: .}}
"""


def asked(cli: Cli, text: str) -> str:
    """The question that a run of this flow stops at."""
    cli.write("flow.yml", text)
    return cli.asked("flow.yml")


def test_two_people_decide_what_one_of_them_changed(cli: Cli) -> None:
    """A vote, an edit that voids it, and two votes for what it says then; exactly that runs."""
    prompt = asked(cli, FLOW)
    first = cli.run("prompts", "answer", prompt, "Approve", "--as", "@sre")
    assert first.code == 3, first
    again = cli.run("prompts", "answer", prompt, "Approve", "--as", "@sre")
    assert again.code != 0
    assert "You have already voted" in again.err
    edited = cli.run("prompts", "answer", prompt, "--edit", "count=4", "--as", "@sre")
    assert edited.code == 3, edited
    hand = cli.run("prompts", "hand-over", prompt, "--to", "local:eve", "--as", "@sre")
    assert hand.code == 3, hand
    assert cli.run("prompts", "answer", prompt, "Approve", "--as", "@sre").code != 0
    assert cli.run("prompts", "answer", prompt, "Approve", "--as", "eve").code == 3
    assert cli.lines("shipped") == []
    done = cli.run("prompts", "answer", prompt, "Reject", "--as", "eve")
    assert "give a reason" in done.err
    done = cli.run("prompts", "answer", prompt, "Reject", "--reason", "too late today", "--as", "eve")
    assert done.code == 8, done
    # Who was only played is told so where it ends, and where it is looked at.
    (listed,) = cli.run("sessions", "list", "--all", "--json").json["sessions"]
    shown = cli.run("sessions", "show", listed["sessionId"]).out
    for told in (done.out, shown):
        assert "by eve (simulated): too late today" in told
    assert cli.lines("shipped") == []


def test_a_hand_over_to_somebody_who_cannot_be_looked_up_says_so(cli: Cli) -> None:
    """Without Slack's token it is done, and said that nobody knows whether there is such a person."""
    hand = cli.run("prompts", "hand-over", asked(cli, FLOW), "--to", "U0EVE", "--as", "@sre")
    assert hand.code == 3, hand
    assert "could not check whether U0EVE exists: SLACK_BOT_TOKEN is not set" in hand.err


def test_an_edit_says_what_is_wrong_with_it(cli: Cli) -> None:
    """A value that does not fit, a field that is none, and an edit together with an answer are refused."""
    prompt = asked(cli, FLOW)
    for changes, text in (
        (["--edit", "count=9"], "Nothing was changed"),
        (["--edit", "size=9"], "cannot be changed here"),
        (["--edit", "count"], "field=value"),
        (["Approve", "--edit", "count=3"], "--edit alone"),
    ):
        done = cli.run("prompts", "answer", prompt, *changes, "--as", "@sre")
        assert done.code != 0
        assert text in done.err, done


def test_the_terminal_shows_what_will_run(cli: Cli) -> None:
    """An approval at the terminal shows the values, the command, and how far the votes are, and takes a reason."""
    cli.write("flow.yml", FLOW)
    with cli.terminal("run", "flow.yml", "--as", "@sre") as terminal:
        terminal.expect("Count: 2")
        terminal.expect("This runs after approval · apply (")
        terminal.expect("sh -c 'echo")
        terminal.answer("0 of 2 approved", "reject")
        terminal.answer("reject: reason", "reject: not now")
        terminal.expect("⊘ rejected by")


HELPER = """
flow: helper
nodes:
  - id: look
    type: agent
    with:
      prompt: Why is it slow?
      tools: [{shell: {commands: [echo *]}}]
      approvals: {shell: [approve, edit, reject]}
"""
SAID = """
turns:
  - tools: [{name: shell, input: {command: echo one two}}]
  - expect: {result: echoed}
    text: Thanks.
    or: [{text: Something else ran.}]
"""


def test_a_call_of_an_agent_is_changed_at_the_terminal(cli: Cli) -> None:
    """`edit` asks for what the call is given, with what the model wrote; what is not allowed is refused, and what is
    approved then is what runs and what the model is told."""
    cli.write("helper.yml", HELPER)
    cli.env["SAYSO_SCRIPT"] = str(cli.write("helper.script.yml", SAID))
    with cli.terminal("run", "helper.yml") as terminal:
        terminal.answer("- edit: edit the proposal first", "edit")
        terminal.expect("command (Enter for echo one two)")
        terminal.type("rm -rf /")
        terminal.answer("is not allowed here", "edit")
        terminal.answer("", "")
        terminal.answer("No changes to save", "edit")
        terminal.answer("", "echo echoed")
        terminal.expect("echo one two → echo echoed")
        terminal.answer("command: echo one two → echo echoed", "approve")
        terminal.expect("Thanks.")


LOOKING = """
flow: looking
tools:
  logs:
    description: Logs
    input: {lines: {type: integer, default: 5}}
    type: shell
    with: {run: [echo, "{{ input.lines }}"]}
nodes:
  - id: look
    type: agent
    with:
      prompt: Why is it slow?
      tools: [logs, {shell: {commands: [echo *]}}]
      approvals: {logs: [approve, edit, reject]}
"""
LOOKS = """
turns:
  - tools: [{name: shell, input: {command: rm -r a}}, {name: logs, input: {lines: 7}}]
  - text: Thanks.
"""


def test_what_became_of_a_call_is_told_in_words(cli: Cli) -> None:
    """A call that is not made has its reason beside it, and a value that was emptied is shown as people read it."""
    cli.env["SAYSO_SCRIPT"] = str(cli.write("looking.script.yml", LOOKS))
    cli.write("looking.yml", LOOKING)
    done = cli.run("run", "looking.yml")
    assert "`rm -r a` is not allowed here" in done.err
    prompt = done.json["prompts"][0]["promptId"]
    assert "lines: 7 → –" in cli.run("prompts", "answer", prompt, "--edit", "lines=").out


def test_what_would_run_is_in_the_answer_of_run_and_a_result_is_given_in_its_place(cli: Cli) -> None:
    """`run --json` has the text and the digest of what waits; `answer` with its words is what the agent is told."""
    cli.env["SAYSO_SCRIPT"] = str(cli.write("looking.script.yml", LOOKS.replace("rm -r a", "echo a")))
    cli.write("looking.yml", LOOKING.replace("edit", "answer"))
    asked = cli.run("run", "looking.yml", "--json").json["prompts"][0]
    assert asked["covers"]["text"].startswith("echo 7")
    assert len(asked["covers"]["digest"]) == 64
    done = cli.run("prompts", "answer", asked["promptId"], "answer", "--reason", "nothing in the log")
    assert "answered instead of running" in done.out
    assert "completed after" in done.out


def test_calls_are_allowed_always_listed_and_asked_about_again(cli: Cli) -> None:
    """`--always` with a pattern runs the next call unasked; `grants revoke` ends that."""
    calls = [f"  - tools: [{{name: logs, input: {{lines: {n}}}}}]" for n in (7, 7, 8, 7)]
    script = "\n".join(["turns:", *calls, "  - text: Thanks."])
    cli.env["SAYSO_SCRIPT"] = str(cli.write("looking.script.yml", script))
    cli.write("looking.yml", LOOKING.replace("      approvals", "      grants: run\n      approvals"))
    first = cli.asked("looking.yml")
    always = ("prompts", "answer", first, "approve", "--always", "8h")
    assert "takes field=value" in cli.run(*always, "--match", "x").err
    cli.run(*always, "--no-wait")
    (second,) = cli.run("prompts", "list", "--json").json["prompts"]
    assert second["covers"]["text"].startswith("echo 8")
    (grant,) = cli.run("grants", "list", "--json").json["grants"]
    assert (grant["used"], grant["fields"]) == (1, {"lines": {"is": 7}})
    assert "lines: 7" in cli.run("grants", "list").out
    assert "asked about such calls again" in cli.run("grants", "revoke", first).out
    assert cli.run("grants", "list", "--json").json["grants"] == []
    cli.run("prompts", "answer", second["promptId"], "approve", "--no-wait")
    (third,) = cli.run("prompts", "list", "--json").json["prompts"]
    assert third["covers"]["text"].startswith("echo 7")


def test_an_approval_with_a_form_is_changed_at_the_terminal(cli: Cli) -> None:
    """The fields that may be changed are asked for with their values, and the votes before count no more."""
    cli.write("flow.yml", FLOW)
    with cli.terminal("run", "flow.yml", "--as", "@sre") as terminal:
        terminal.answer("", "Edit")
        terminal.expect("Count")
        terminal.expect("Enter for 2")
        terminal.type("9")
        terminal.answer("5", "4")
        terminal.expect("count: 2 → 4")
        terminal.expect("Count: 2 → 4")


def test_what_may_be_changed_is_shown_with_the_question(cli: Cli) -> None:
    """`prompts show` has each field with its value and the option that changes it."""
    done = cli.run("prompts", "show", asked(cli, FLOW))
    assert "Count: 2\n" in done.out
    assert "- change count first  --edit count=..." in done.out


NOTING = """
flow: noting
nodes:
  - {id: look, type: agent, with: {prompt: Look, memory: approve}}
"""
NOTES = """
turns:
  - expect: {user: there are no notes}
    tools: [{name: remember, input: {text: It is the pool.}}]
    or: [{text: I have read a note.}]
  - text: Done.
"""


def test_notes_of_agents_are_listed_edited_and_forgotten(cli: Cli) -> None:
    """Approved at the terminal, read by the next run; with who changed them, and for programs as JSON."""
    cli.env["SAYSO_SCRIPT"] = str(cli.write("noting.script.yml", NOTES))
    cli.write("noting.yml", NOTING)
    assert "There are no notes." in cli.run("memory", "list").out
    asked = cli.asked("noting.yml")
    assert cli.run("memory", "list", "--json").json == {"notes": []}
    assert "completed after" in cli.run("prompts", "answer", asked, "approve").out
    (note,) = cli.run("memory", "list", "--json").json["notes"]
    assert (note["text"], note["scope"]) == ("It is the pool.", "flow:noting")
    assert len(note["by"]) == 1
    assert "I have read a note" in cli.run("run", "noting.yml").out
    changed = cli.run("memory", "edit", note["noteId"], "It was the disk.", "--json").json
    assert (changed["text"], changed["changes"][0]["before"]) == ("It was the disk.", "It is the pool.")
    assert "It was the disk." in cli.run("memory", "list").out
    cli.run("memory", "edit", note["noteId"], "It was\nthe disk.")
    assert "It was the disk." in cli.run("memory", "list").out
    assert cli.run("memory", "edit", note["noteId"], " ").code == 2
    assert "2,000 characters" in cli.run("memory", "edit", note["noteId"], "x" * 2001).err
    assert "was deleted" in cli.run("memory", "forget", note["noteId"]).out
    assert "There is no note" in cli.run("memory", "forget", note["noteId"]).err
    assert "There are no notes." in cli.run("memory", "list").out


def test_grants_beyond_a_run_are_listed_and_revoked_and_a_terminal_gives_none(cli: Cli) -> None:
    """They are of channels: here there is none. What was given in Slack is taken back by its id, whatever became of its run."""
    turns = "turns: [{tools: [{name: logs, input: {lines: 7}}]}, {text: Thanks.}]"
    cli.env["SAYSO_SCRIPT"] = str(cli.write("looking.script.yml", turns))
    cli.write("looking.yml", LOOKING.replace("      approvals", "      grants: flow\n      approvals"))
    asked = cli.asked("looking.yml")
    refused = cli.run("prompts", "answer", asked, "approve", "--always", "8h", "--scope", "flow")
    assert "Calls are allowed for run here" in refused.err
    assert "only work with --always" in cli.run("prompts", "answer", asked, "approve", "--scope", "flow").err
    (row,) = given("flow")
    store = open_store(f"sqlite:///{cli.cwd / '.sayso' / 'sayso.db'}")
    store.consume([], row.expires_at, [row.but(expires_at="2999-01-01T00:00:00.000Z")])
    store.close()
    (grant,) = cli.run("grants", "list", "--json").json["grants"]
    assert (grant["grantId"], grant["scope"], grant["used"]) == (row.kept_id, "flow:demo@C1", 0)
    assert "flow:demo@C1" in cli.run("grants", "list").out
    assert "asked about such calls again" in cli.run("grants", "revoke", row.kept_id).out
    assert cli.run("grants", "list", "--json").json["grants"] == []


TWO = """
flow: two
nodes:
  - id: gate
    type: approval
    with:
      message: Ship it?
      approvers: ["local:alice", "local:bob"]
      required: 2
      form: {properties: {count: {type: integer, default: 2}}}
      editable: [count]
"""
ONE = TWO.replace("required: 2", "exclude_requester: true")


def by(cli: Cli, name: str, *command: str) -> Done:
    """A command of this account by somebody who claims this name."""
    cli.env["SAYSO_USER"] = name
    return cli.run(*command)


def test_one_account_is_one_voice_under_any_name(cli: Cli) -> None:
    """A second vote from one account is not a second person's, and takes the place of the first."""
    prompt = asked(cli, TWO)
    assert by(cli, "alice", "prompts", "answer", prompt, "Approve").code == 3
    again = by(cli, "bob", "prompts", "answer", prompt, "Approve")
    assert (again.code != 0, "You have already voted" in again.err) == (True, True), again
    done = by(cli, "bob", "prompts", "answer", prompt, "Reject")
    assert (done.code, "rejected by bob" in done.out + done.err) == (8, True), done


def test_one_account_does_not_approve_what_it_asked_for_under_another_name(cli: Cli) -> None:
    """With `exclude_requester` whoever started it, or changed it, cannot approve it by claiming another name."""
    cli.env["SAYSO_USER"] = "alice"
    prompt = asked(cli, ONE)
    refused = by(cli, "bob", "prompts", "answer", prompt, "Approve")
    assert (refused.code != 0, "You started this" in refused.err) == (True, True), refused
    played = cli.run("run", "flow.yml", "--as", "zoe").json["prompts"][0]["promptId"]
    assert by(cli, "alice", "prompts", "answer", played, "--edit", "count=3").code == 3
    refused = by(cli, "bob", "prompts", "answer", played, "Approve")
    assert (refused.code != 0, "You changed this" in refused.err) == (True, True), refused


def test_the_account_stands_beside_the_name(cli: Cli) -> None:
    """The journal has the account of the operating system, and the audit marks a name that is not it."""
    mine = pwd.getpwuid(os.getuid()).pw_name
    prompt = asked(cli, TWO)
    by(cli, "alice", "prompts", "answer", prompt, "Approve")
    by(cli, mine, "prompts", "answer", prompt, "--edit", "count=3")
    lines = [json.loads(line) for line in cli.run("audit", "export").out.splitlines()]
    told = {line["action"]: line for line in lines if "actorId" in line}
    voted = told["prompt:voted"]
    assert (voted["actorId"], voted["actorAccount"], voted["claimed"]) == ("local:alice", mine, True)
    assert {line["actorAccount"] for line in told.values()} == {mine}


def test_a_question_whose_session_somebody_deleted_is_damage(cli: Cli) -> None:
    """Whoever answers it, or hands it over, is told in words (exit code 6); the list shows a row that was changed too."""
    prompt = asked(cli, FLOW)
    with closing(apsw.Connection(str(cli.cwd / ".sayso" / "sayso.db"))) as outside:
        outside.execute("UPDATE sessions SET updated_at = 'junk'")
        assert "on hold" in cli.run("sessions", "list").out
        outside.execute("DELETE FROM sessions")
    for words in (("answer", prompt, "Approve"), ("hand-over", prompt, "--to", "local:eve")):
        done = cli.run("prompts", *words, "--as", "@sre")
        assert (done.code, "its row was deleted" in done.err) == (6, True), done


def test_a_question_whose_row_somebody_deleted_is_answered(cli: Cli) -> None:
    """It is found in the journal of its session, which waits for it."""
    prompt = asked(cli, FLOW)
    with closing(apsw.Connection(str(cli.cwd / ".sayso" / "sayso.db"))) as outside:
        outside.execute("DELETE FROM prompts")
    listed = cli.run("prompts", "list")
    assert "There are no open questions" in listed.out
    assert "has a question that is not listed: its row was deleted" in listed.err
    done = cli.run("prompts", "answer", prompt, "Approve", "--as", "@sre")
    assert (done.code, "1 of 2" in done.out + done.err) == (3, True), done
    assert "no open question" in cli.run("prompts", "answer", "prompt-none", "Approve").err


def test_the_session_says_from_which_account_somebody_answered(cli: Cli) -> None:
    """Where a terminal goes by another name than its account; with no such name nothing is added."""
    cli.write("flow.yml", "flow: asks\nnodes: [{id: a, type: ask, with: {message: Why?}}]")
    for name in ("eve", account()):
        cli.env["SAYSO_USER"] = name
        begun = cli.run("run", "flow.yml").json
        answered = cli.run("prompts", "answer", begun["prompts"][0]["promptId"], "So")
        assert answered.code == 0, answered
        shown = cli.run("sessions", "show", begun["sessionId"]).out
        [line] = [line for line in shown.splitlines() if line.startswith("  ✓ a ")]
        assert (f"by eve (account {account()})" in line, "(account" in line) == (name == "eve",) * 2, line
