"""`sayso run` and what goes on with it: the same prompts in a terminal, kept whenever it is left."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from bot.cli.app import run
from engine.run.stored import utc_now
from tests.cli.clikit import Cli, command, environment, until
from tests.cli.flowtexts import counting, gated, long_running, two_questions

pytestmark = pytest.mark.process


def session_of(shown: str) -> str:
    """The id of the session in what a terminal showed."""
    found = re.search(r"session-[0-9a-f]{10}", shown)
    assert found is not None, shown
    return found[0]


def requests(cli: Cli) -> list[str | None]:
    """What became of the requests of other processes; None for one that waits."""
    with closing(sqlite3.connect(cli.cwd / ".sayso/sayso.db")) as db:
        return [outcome for (outcome,) in db.execute("SELECT outcome FROM inbox WHERE kind = 'request'")]


def snapshots(cli: Cli) -> list[str]:
    """The sessions that have a snapshot."""
    with closing(sqlite3.connect(cli.cwd / ".sayso/sayso.db")) as db:
        return [session_id for (session_id,) in db.execute("SELECT session_id FROM snapshots")]


def journal(cli: Cli, session_id: str) -> list[dict[str, object]]:
    """The events of a session."""
    shown: dict[str, list[dict[str, object]]] = cli.run(
        "sessions", "show", session_id, "--events", "--json"
    ).json
    return shown["events"]


# --- at a terminal -----------------------------------------------------------------------------------------


def test_a_flow_asks_for_inputs_and_answers_and_ends_with_zero(cli: Cli) -> None:
    """Missing inputs, choices and texts are asked for here, messages are shown here, and the end is exit code 0."""
    two_questions(cli)
    with cli.terminal("run", "talk") as terminal:
        terminal.answer("Whom to greet", "bob & co")
        terminal.answer("Which region for bob & co?", "2")
        terminal.answer("Why?", "because <it> must")
        terminal.expect("Hello bob & co in us: because <it> must")
        assert terminal.code() == 0
    assert cli.lines("first") == cli.lines("second") == ["ran"]


@pytest.mark.parametrize("leave", ["interrupt", "end_of_input", "kill"])
def test_leaving_at_a_prompt_keeps_the_session(cli: Cli, leave: str) -> None:
    """Ctrl-C, Ctrl-D and a kill at a question lose nothing: its snapshot is there, and no node runs twice."""
    two_questions(cli)
    with cli.terminal("run", "talk", "-i", "who=bob") as terminal:
        terminal.answer("Which region", "eu")
        terminal.expect("Why?")
        terminal.expect("> ")
        getattr(terminal, leave)()
        if leave != "kill":
            assert terminal.code() == 3
            assert "sayso sessions resume" in terminal.shown
        session_id = session_of(terminal.shown)
    assert snapshots(cli) == [session_id]
    with cli.terminal("sessions", "resume", session_id) as terminal:
        terminal.answer("Why?", "later")
        terminal.expect("Hello bob in eu: later")
        assert terminal.code() == 0
    assert cli.lines("first") == cli.lines("second") == ["ran"]
    assert snapshots(cli) == []


def test_the_hint_names_the_place_that_was_given(cli: Cli) -> None:
    """The command that continues is complete: it names the home that the run was given, and works."""
    two_questions(cli)
    with cli.terminal("--home", "elsewhere", "run", "talk", "-i", "who=bob") as terminal:
        terminal.expect("Which region")
        terminal.interrupt()
        terminal.expect("Continue with: sayso --home elsewhere sessions resume session-")
        assert terminal.code() == 3


def test_a_wrong_answer_is_explained_and_asked_again(cli: Cli) -> None:
    """What is not an option, and what does not fit an input's type, is said to be wrong; the question stays."""
    question = "{id: pick, type: ask, with: {message: Pick one, choices: [Left, Right]}}"
    cli.flow("strict", question, head="inputs: {count: {type: integer}}\n")
    with cli.terminal("run", "strict") as terminal:
        terminal.answer("count", "many")
        terminal.answer("Write a whole number", "3")
        terminal.answer("Pick one", "up")
        terminal.expect("Please choose one of: Left, Right.")
        terminal.type("rIGHT")
        assert terminal.code() == 0
    assert "Right, ana" in terminal.shown


def test_numbers_choose_only_where_no_option_is_a_number(cli: Cli) -> None:
    """With options that are numbers themselves, what is typed is the option and never its place in the list."""
    cli.flow(
        "numbers",
        '{id: pick, type: ask, with: {message: How many?, choices: ["3", "1"]}}',
        '{id: tell, type: message, with: {text: "chosen {{ nodes.pick.value }}"}}',
    )
    with cli.terminal("run", "numbers") as terminal:
        terminal.answer("How many?", "1")
        terminal.expect("chosen 1")
        assert terminal.code() == 0


def test_what_was_typed_before_a_question_does_not_answer_it(cli: Cli) -> None:
    """A line that was typed while a node ran is not an answer to the question that comes after it."""
    long_running(cli)
    text = (cli.cwd / "flows/slow.yml").read_text()
    cli.write(
        "flows/slow.yml", text + "  - {id: sure, type: ask, with: {message: 'Sure?', choices: [yes, no]}}\n"
    )
    with cli.terminal("run", "slow") as terminal:
        until(lambda: bool(cli.lines("begun")), "the node begins")
        terminal.type("yes")
        terminal.expect("yes")
        cli.write("go", "")
        terminal.answer("Sure?", "no")
        assert terminal.code() == 0
    assert "no, ana" in terminal.shown


def test_text_from_outside_cannot_steer_the_terminal(cli: Cli) -> None:
    """Escape sequences in an input are spelled out wherever they are shown."""
    says = '{id: tell, type: message, with: {text: "says {{ inputs.text }}"}}'
    cli.flow("shout", says, head="inputs: {text: {type: string}}\n")
    done = cli.run("run", "shout", "-i", "text=\x1b[2Jgone\r\u202e")
    assert done.code == 0
    assert "says \\u001b[2Jgone\\u000d\\u202e" in done.err
    assert "\x1b" not in done.err + done.out


def test_an_approval_asks_whoever_is_listed(cli: Cli) -> None:
    """The person at the terminal approves where the flow lists them."""
    gated(cli, '["local:ana"]')
    with cli.terminal("run", "gated") as terminal:
        terminal.expect("Roll back?")
        terminal.expect("Approval needed from ana")
        terminal.answer("1) Approve", "approve")
        assert terminal.code() == 0
    assert cli.lines("rolled") == ["ran"]


def test_an_approval_for_others_says_whom_it_asks_and_waits(cli: Cli) -> None:
    """Where somebody else is listed nothing is asked here: it is said who is, and the session stays paused."""
    gated(cli, '["@sre"]')
    with cli.terminal("run", "gated") as terminal:
        terminal.expect("Approval needed from @sre: Roll back?")
        assert terminal.code() == 3
    assert cli.lines("rolled") == []


def test_somebody_who_is_played_may_approve_and_is_recorded_as_simulated(cli: Cli) -> None:
    """`--as @sre` decides what @sre may decide, and the journal says that it was only played."""
    gated(cli, '["@sre"]')
    paused = cli.run("run", "gated").json
    prompt_id = paused["prompts"][0]["promptId"]
    done = cli.run("prompts", "answer", prompt_id, "Approve", "--as", "@sre")
    assert (done.code, cli.lines("rolled")) == (0, ["ran"]), done
    answered = [event for event in journal(cli, paused["sessionId"]) if event["type"] == "prompt:answered"]
    assert answered[0]["actor"] == {"id": "local:@sre", "name": "@sre", "simulated": True}


# --- while something runs ----------------------------------------------------------------------------------


def test_ctrl_c_in_a_node_cuts_and_records_it(cli: Cli) -> None:
    """Ctrl-C ends the program that runs, records that its outcome is unknown, and keeps the session."""
    long_running(cli)
    with cli.terminal("run", "slow") as terminal:
        until(lambda: bool(cli.lines("begun")), "the node begins")
        terminal.interrupt()
        terminal.expect("outcome unknown")
        assert terminal.code() == 3
        session_id = session_of(terminal.shown)
    kinds = [event["type"] for event in journal(cli, session_id)]
    assert kinds[-3:] == ["node:interrupted", "prompt:requested", "flow:paused"]


def test_a_second_ctrl_c_leaves_at_once(cli: Cli) -> None:
    """A program that does not end on SIGTERM is killed at the second Ctrl-C; the resume asks what became of it."""
    cli.write(
        "flows/deaf.yml",
        f"""flow: deaf
nodes:
  - id: work
    type: shell
    with:
      script: |
        trap "" TERM
        echo $$ >> "$BEGUN"
        while true; do sleep 0.05; done
      env: {{BEGUN: {cli.cwd / "begun"}}}
""",
    )
    with cli.terminal("run", "deaf") as terminal:
        until(lambda: bool(cli.lines("begun")), "the node begins")
        terminal.interrupt()
        terminal.expect("Stopping work; press Ctrl-C again to quit now")
        terminal.interrupt()
        assert terminal.code() == 130
        assert "CRITICAL" not in terminal.shown
        session_id = session_of(terminal.shown)
    until(lambda: not alive(int(cli.lines("begun")[0])), "the program is gone")
    asked = cli.run("sessions", "resume", session_id)
    assert (asked.code, asked.json["prompts"][0]["kind"]) == (3, "interrupted"), asked


def alive(pid: int) -> bool:
    """Whether a process runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_kill_in_the_middle_of_a_node_asks_what_to_do(cli: Cli) -> None:
    """After `kill -9` in a shell node nothing is guessed: the resume asks done, again or abort, and does that."""
    long_running(cli)
    with cli.terminal("run", "slow") as terminal:
        until(lambda: bool(cli.lines("begun")), "the node begins")
        session_id = session_of(terminal.shown or terminal.expect("work"))
        terminal.kill()
    cli.write("go", "")
    with cli.terminal("sessions", "resume", session_id) as terminal:
        terminal.expect("may or may not have taken effect")
        terminal.expect("It was done")
        terminal.expect("2) Run it again")
        terminal.answer("Cancel the run", "Run it again")
        assert terminal.code() == 0
    assert (cli.lines("before"), len(cli.lines("begun")), cli.lines("after")) == (["ran"], 2, ["ran"])


def test_a_wait_node_is_waited_for_and_may_be_left(cli: Cli) -> None:
    """A wait shows how long it still takes; Ctrl-C keeps it, and a later resume continues with the same timer."""
    cli.write(
        "flows/nap.yml",
        f"""flow: nap
nodes:
  - {{id: pause, type: wait, with: {{for: 2s}}}}{counting(cli, "woke")}
""",
    )
    with cli.terminal("run", "nap") as terminal:
        terminal.expect("waits until")
        session_id = session_of(terminal.shown)
        terminal.interrupt()
        assert terminal.code() == 3
    assert cli.lines("woke") == []
    done = cli.run("sessions", "resume", session_id, "--wait")
    assert (done.code, done.json["status"], cli.lines("woke")) == (0, "complete", ["ran"])


def test_what_was_due_while_nothing_ran_comes_before_the_rest(cli: Cli) -> None:
    """A wait that has ended and a question whose time is over continue at one `resume`, without anybody at the terminal."""
    cli.flow(
        "late",
        "{id: nap, type: wait, with: {for: 500ms}}",
        '{id: ask, type: ask, with: {message: "Well?", timeout: 500ms, on_timeout: default, default: nothing}}',
        '{id: tell, type: message, with: {text: "after {{ nodes.ask.text }}"}}',
    )
    done = cli.run("run", "late", "--no-wait").json
    until(lambda: utc_now() > done["waitsUntil"], "the wait is over")
    asked = cli.run("sessions", "resume", done["sessionId"], "--no-wait").json
    (prompt,) = asked["prompts"]
    until(lambda: utc_now() > prompt["deadline"], "the time to answer is over")
    late = cli.run("sessions", "resume", done["sessionId"], "--no-wait")
    assert (late.code, late.json["status"]) == (0, "complete"), late
    assert "after nothing" in late.err


def test_two_signals_at_once_are_one_wish_to_leave(cli: Cli) -> None:
    """What `timeout` sends, to the program and to its group, stops the node in order and keeps the session."""
    long_running(cli)
    with cli.started("run", "slow") as process:
        until(lambda: cli.lines("begun") == ["begun"], "the node begins")
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 3
    session_id = cli.run("sessions", "list", "--json").json["sessions"][0]["sessionId"]
    events = journal(cli, session_id)
    assert any(event["type"] == "node:interrupted" and event["reason"] == "cut" for event in events), events


def test_of_several_processes_that_answer_at_once_one_counts_and_the_others_say_so(cli: Cli) -> None:
    """Whoever comes second is told who was first, not that another process has the session."""
    two_questions(cli)
    prompt = cli.asked("talk", "-i", "who=bob")
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: cli.run("prompts", "answer", prompt, "eu"), range(4)))
    assert sorted(one.code for one in done) == [3, 5, 5, 5], done
    for one in done:
        assert one.code == 3 or "Already answered by ana at " in one.err, done
    assert cli.lines("second") == ["ran"]


def test_an_answer_that_its_process_did_not_take_is_taken_here(cli: Cli) -> None:
    """Where the terminal that has the session ends before it takes a request, whoever made it takes the session up."""
    two_questions(cli)
    with cli.terminal("run", "talk", "-i", "who=bob") as terminal:
        terminal.expect("Which region for bob?")
        prompt = cli.run("prompts", "list", "--json").json["prompts"][0]["promptId"]
        os.kill(terminal.process.pid, signal.SIGSTOP)
        with cli.started("prompts", "answer", prompt, "eu") as process:
            until(lambda: requests(cli) == [None], "the request is in the inbox")
            terminal.kill()
            assert process.wait(30) == 3, process.communicate()
    assert (requests(cli), cli.lines("second")) == (["applied"], ["ran"])


def test_an_interrupted_command_withdraws_its_request(cli: Cli) -> None:
    """Ctrl-C while the terminal that has the session does not reply: it will not carry the answer out later."""
    two_questions(cli)
    with cli.terminal("run", "talk", "-i", "who=bob") as terminal:
        terminal.expect("Which region for bob?")
        prompt = cli.run("prompts", "list", "--json").json["prompts"][0]["promptId"]
        os.kill(terminal.process.pid, signal.SIGSTOP)
        with cli.started("prompts", "answer", prompt, "eu") as process:
            until(lambda: requests(cli) == [None], "the request is in the inbox")
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130, process.communicate()
    assert requests(cli) == ["withdrawn"]


KILLED = """
import os, signal, sys
import engine.run.session
from bot.cli.app import run

async def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

engine.run.session.perform = killed
run(sys.argv[1:])
"""


@pytest.mark.parametrize("then", ["sessions resume", "prompts answer"])
def test_the_request_of_a_killed_command_is_done_with_once_by_the_next_one(cli: Cli, then: str) -> None:
    """A request that is in the inbox is durable: whoever serves the session next carries it out, or refuses it where
    something else was quicker, and nobody does again."""
    two_questions(cli)
    first = cli.run("run", "talk", "-i", "who=bob").json
    prompt = first["prompts"][0]["promptId"]
    line = [sys.executable, "-c", KILLED, "prompts", "answer", prompt, "eu"]
    done = subprocess.run(line, cwd=cli.cwd, env={**environment(cli.cwd), "PYTHONPATH": os.getcwd()})
    assert (done.returncode, requests(cli)) == (-signal.SIGKILL, [None])
    if then == "sessions resume":
        resumed = cli.run("sessions", "resume", first["sessionId"])
        assert (resumed.code, requests(cli)) == (3, ["applied"]), resumed
    else:
        # What is said now comes first; the request that was kept finds the question answered.
        again = cli.run("prompts", "answer", prompt, "us")
        assert (again.code, requests(cli)) == (3, ["refused", "applied"]), again
    assert cli.lines("second") == ["ran"]
    resumed = cli.run("sessions", "resume", first["sessionId"])
    assert (resumed.code, cli.lines("second")) == (3, ["ran"]), resumed


def test_a_command_that_ends_before_it_acts_leaves_no_request(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody serves the session, Ctrl-C before the command has taken it up is as if it had not been given."""
    two_questions(cli)
    prompt = cli.asked("talk", "-i", "who=bob")

    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("bot.cli.act.follow", interrupted)
    monkeypatch.chdir(cli.cwd)
    assert run(["prompts", "answer", prompt, "eu"]) == 130
    assert requests(cli) == []


def test_a_command_without_standard_streams_is_carried_out(cli: Cli) -> None:
    """A command that was started with closed standard input and output acts as any other."""
    two_questions(cli)
    prompt = cli.asked("talk", "-i", "who=bob")
    line = f"exec {shlex.join([sys.executable, *command('prompts', 'answer', prompt, 'eu')])} <&- >&-"
    done = subprocess.run(line, shell=True, cwd=cli.cwd, env=environment(cli.cwd), stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (3, b"")
    assert cli.lines("second") == ["ran"]


def test_a_flow_in_a_broken_file_is_found_by_its_name(cli: Cli) -> None:
    """Its problems are told, however its file is called; for any other name the broken files are named."""
    cli.write("flows/other-name.yml", "flow: hidden\nnodes:\n  - {id: a, type: shel}\n")
    done = cli.run("run", "hidden")
    assert (done.code, "other-name.yml:3:19: unknown node type `shel`" in done.err) == (4, True), done
    done = cli.run("run", "nothing")
    assert (done.code, "cannot be read" in done.err, "other-name.yml" in done.err) == (2, True, True), done
    assert "sayso validate" in done.err


def test_what_a_function_prints_is_no_part_of_the_json(cli: Cli) -> None:
    """Standard output is one JSON document, whatever the flow's own Python functions print."""
    cli.write("flows/loud.py", "def say():\n    print('said aloud')\n    return 1\n")
    cli.write("flows/loud.yml", 'flow: loud\nnodes: [{id: a, type: python, with: {call: "loud:say"}}]\n')
    done = cli.run("run", "loud")
    assert (done.json["outputs"], "said aloud" in done.err) == ({"a": 1}, True), done


def test_an_error_that_says_all_comes_without_a_traceback(cli: Cli) -> None:
    """A module that is not there is one sentence; an exception of the module's own brings its traceback."""
    cli.write("flows/tools.py", "def broken():\n    return {}['x']\n")
    cli.flow(
        "calls",
        '{id: missing, type: python, on_error: continue, with: {call: "nowhere:go"}}',
        '{id: own, type: python, on_error: continue, with: {call: "tools:broken"}}',
    )
    done = cli.run("run", "calls")
    first, _, second = done.err.partition("✗ missing")
    assert "there is no module nowhere" in first, done
    assert "Traceback" not in first, done
    assert "KeyError: 'x'" in second, done


def test_a_question_can_be_answered_from_another_process(cli: Cli) -> None:
    """A terminal that sits at a question continues by itself when it is answered from elsewhere."""
    two_questions(cli)
    with cli.terminal("run", "talk", "-i", "who=bob") as terminal:
        terminal.expect("Which region")
        terminal.expect("> ")
        prompt_id = cli.run("prompts", "list", "--json").json["prompts"][0]["promptId"]
        answered = cli.run("prompts", "answer", prompt_id, "us")
        assert (answered.code, answered.out) == (0, "Answered.\n"), answered
        terminal.answer("Why?", "so")
        terminal.expect("Hello bob in us: so")
        assert terminal.code() == 0
    assert cli.lines("second") == ["ran"]


def test_a_running_session_can_be_aborted_from_another_process(cli: Cli) -> None:
    """`sessions abort` reaches the terminal that runs the session: the node is cut, and what follows does not run."""
    long_running(cli)
    with cli.terminal("run", "slow") as terminal:
        until(lambda: bool(cli.lines("begun")), "the node begins")
        session_id = session_of(terminal.shown or terminal.expect("work"))
        aborted = cli.run("sessions", "abort", session_id, "--reason", "wrong host")
        assert (aborted.code, aborted.out) == (0, f"{session_id} is cancelled.\n"), aborted
        terminal.expect("cancelled by ana: wrong host")
        assert terminal.code() == 1
    assert cli.lines("after") == []


def test_a_deadline_decides_while_the_question_is_on_the_screen(cli: Cli) -> None:
    """Nobody answers in time: the question goes away and the flow continues with its default."""
    given = "message: Quick?, choices: [now, later], timeout: 1s, on_timeout: default, default: later"
    cli.flow(
        "hurry",
        f"{{id: pick, type: ask, with: {{{given}}}}}",
        '{id: tell, type: message, with: {text: "it is {{ nodes.pick.value }}"}}',
    )
    with cli.terminal("run", "hurry") as terminal:
        terminal.expect("Quick?")
        terminal.expect("it is later")
        assert terminal.code() == 0


# --- without a terminal ------------------------------------------------------------------------------------


def test_without_a_terminal_a_pause_is_json_and_three(cli: Cli) -> None:
    """Standard output is one JSON document with what is asked; the exit code is 3; a later process continues."""
    two_questions(cli)
    paused = cli.run("run", "talk", "-i", "who=bob")
    assert (paused.code, paused.json["status"], paused.json["flow"]) == (3, "paused", "talk")
    prompt = paused.json["prompts"][0]
    assert (prompt["path"], prompt["kind"], prompt["message"]) == ("region", "ask", "Which region for bob?")
    assert [option["value"] for option in prompt["options"]] == ["eu", "us"]
    assert paused.json["outputs"]["first"]["exit_code"] == 0
    session_id = paused.json["sessionId"]
    second = cli.run("sessions", "resume", session_id, "--prompt", prompt["promptId"], "--answer", "eu")
    assert (second.code, second.json["prompts"][0]["path"]) == (3, "why"), second
    third = cli.run("sessions", "resume", session_id, "from a pipeline")
    assert (third.code, third.json["status"], third.json["prompts"]) == (0, "complete", []), third
    assert "Hello bob in eu: from a pipeline" in third.err
    assert cli.lines("first") == cli.lines("second") == ["ran"]


def test_missing_inputs_without_a_terminal_are_a_prompt(cli: Cli) -> None:
    """An input that was not given is asked for like anything else: exit code 3 and a prompt of kind `input`."""
    two_questions(cli)
    paused = cli.run("run", "talk")
    assert (paused.code, paused.json["prompts"][0]["kind"]) == (3, "input")
    assert cli.lines("first") == []


def test_json_at_a_terminal_keeps_people_and_machine_apart(cli: Cli) -> None:
    """`--no-input` at a terminal asks nothing, and ends in JSON."""
    two_questions(cli)
    with cli.terminal("run", "talk", "--no-input", "-i", "who=bob") as terminal:
        assert terminal.code() == 3
        document = terminal.shown[terminal.shown.index("{\n") :]
    assert json.loads(document)["status"] == "paused"


def test_a_failed_flow_is_one(cli: Cli) -> None:
    """A flow that fails says where and why, and ends with exit code 1."""
    cli.flow("broken", "{id: stop, type: fail, with: {message: Not on a Friday}}")
    done = cli.run("run", "broken")
    assert (done.code, done.json["status"], done.json["error"]["message"]) == (1, "failed", "Not on a Friday")
    assert "✗ stop  Not on a Friday" in done.err


# --- what is refused before anything runs ------------------------------------------------------------------


NO_RUNS = [
    ("tlak", 2, "did you mean `talk`?"),
    ("nowhere/flow.yml", 2, "There is no flow file nowhere/flow.yml."),
    ("talk -i whom=x", 2, "did you mean `who`?"),
    ("talk -i who", 2, "key=value"),
    ("talk --inputs-file inputs.yml", 2, "is not a mapping"),
    ("talk --inputs-file cut.yml", 4, "a comment begins at `#42`"),
    ("talk --inputs-file empty.yml", 4, "`who` has no value"),
    ("talk --inputs-file number.yml", 2, "expected text, not the number 3.1 (quote it)"),
    ("bad", 4, "bad.yml:2:23: unknown node type `shel`"),
    ("", 2, "FLOW"),
]


def test_what_cannot_be_run_is_said_and_nothing_is_started(cli: Cli) -> None:
    """One clear message, the right exit code, no traceback, and no database."""
    two_questions(cli)
    cli.write("flows/bad.yml", "flow: bad\nnodes: [{id: a, type: shel, with: {run: [ls]}}]\n")
    cli.write("inputs.yml", "- 1\n")
    cli.write("cut.yml", "who: Fix #42\n")
    cli.write("empty.yml", "who: #ops\n")
    cli.write("number.yml", "who: 3.10\n")
    for words, code, said in NO_RUNS:
        done = cli.run("run", *words.split())
        assert (done.code, said in done.err, "Traceback" in done.err) == (code, True, False), done
    assert not (cli.cwd / ".sayso").exists()


def test_inputs_come_from_a_file_and_options_win(cli: Cli) -> None:
    """Inputs of a YAML or JSON file keep their types; `-i` wins over them."""
    given = '{count: "{{ inputs.count }}", tags: "{{ inputs.tags }}"}'
    inputs = "inputs: {count: {type: integer}, tags: {type: array}}\n"
    cli.flow("sum", f"{{id: all, type: set, with: {given}}}", head=inputs)
    cli.write("inputs.json", '{"count": 2, "tags": ["a", "b"]}')
    done = cli.run("run", "flows/sum.yml", "--inputs-file", "inputs.json", "-i", "count=5")
    assert done.code == 0, done
    assert done.json["outputs"]["all"] == {"count": 5, "tags": ["a", "b"]}


def test_a_file_of_a_message_that_cannot_be_read_fails_here_too(cli: Cli) -> None:
    """As in Slack, a message with a file outside of the session's folder, or without the file, fails and says which."""
    cli.flow(
        "report",
        "{id: outside, type: message, on_error: continue, with: {text: a, files: [{path: /etc/hostname}]}}",
        "{id: missing, type: message, on_error: continue, with: {text: b, files: [{path: no.csv}]}}",
        '{id: make, type: shell, with: {script: "echo x > load.csv"}}',
        "{id: there, type: message, with: {text: c, files: [{path: load.csv}]}}",
    )
    done = cli.run("run", "report", "--no-input")
    assert done.code == 0, done
    assert "'/etc/hostname' is not in the session's own folder" in done.err
    assert "no.csv cannot be read in the session's folder" in done.err
    assert "📎 load.csv" in done.err
    assert "📎 no.csv" not in done.err


def test_what_is_missing_is_said_before_the_first_question(cli: Cli) -> None:
    """A secret that is not set is told at the start, and its node fails at once in spite of `retry`."""
    given = 'retry: {attempts: 3, delay: 4m}, with: {run: [env], env: {A: "{{ secrets.TOKEN }}"}}'
    cli.flow("secret", '{id: gate, type: ask, with: {message: "Go?"}}', f"{{id: call, type: shell, {given}}}")
    told = "! secret TOKEN is not set: set SAYSO_SECRET_TOKEN"
    with cli.terminal("run", "secret") as terminal:
        terminal.expect(told)
        terminal.answer("Go?", "yes")
        terminal.expect("failed: env A: secret TOKEN is not set")


def test_an_early_end_is_named(cli: Cli) -> None:
    """What a run says at its end, `sessions show` and JSON name the `end` at which a flow ended."""
    cli.flow("early", "{id: done, type: end}", "{id: late, type: noop}")
    done = cli.run("run", "early", "--json")
    assert (done.json["status"], done.json["endedAt"]) == ("complete", "done")
    assert "ended     at done" in cli.run("sessions", "show", done.json["sessionId"]).out
    with cli.terminal("run", "early") as terminal:
        terminal.expect(", at done")


POSIX = {"LC_ALL": "POSIX", "PYTHONIOENCODING": "ascii"}
PLAIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize(
    ("words", "locale"),
    [
        ("run words --no-input", POSIX),
        ("run words --no-input", PLAIN),
        ("graph words", PLAIN),
        ("--help", POSIX),
    ],
)
def test_a_locale_without_utf_8_ends_no_command(cli: Cli, words: str, locale: dict[str, str]) -> None:
    """What goes to a pipe is UTF-8 in every locale, and programs get it as the flow says."""
    cli.flow(
        "words",
        '{id: a, type: shell, with: {run: [printf, "%s", "Größe → ✓"]}}',
        '{id: b, type: message, with: {text: "✓ {{ nodes.a.stdout }}"}}',
    )
    done = subprocess.run(
        [sys.executable, "-m", "bot.cli", *words.split()],
        cwd=cli.cwd,
        env={**environment(cli.cwd, **cli.env), **locale},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()
    if words.startswith("run"):
        assert json.loads(done.stdout)["outputs"]["a"]["stdout"] == "Größe → ✓"
        assert "✓ Größe → ✓" in done.stderr.decode()
