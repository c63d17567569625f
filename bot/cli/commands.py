"""The commands, their options and their help. What they do is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bot.cli.declare import argument, command, flag, group, option

FILE: dict[str, Any] = {"dir_okay": False}
"""An option that names a file."""
HERE: dict[str, Any] = {"dir_okay": False, "exists": True}
"""One that is there."""

# --- options that several commands have --------------------------------------------------------------------

JSON = flag("as_json", "Print JSON on standard output.", "--json")
AS = option(
    "as_name",
    "Play somebody (@group, e-mail, id, name); recorded as simulated.",
    flags="--as",
    metavar="NAME",
)
NO_INPUT = flag("no_input", "Ask nothing here: run until people are needed.")
WAIT = option(
    "wait",
    "Stay while only time or a lock can move the session. Without a terminal: leave with 3. [at a terminal]",
    bool,
    flags="--wait/--no-wait",
)
MODE = (NO_INPUT, WAIT, JSON)
WHICH = flag("dry_run", "Only say which.")
WHY = option("reason", "Why, for the people who read it.")
SESSION = argument("text", "ID", "A session's id, or the beginning of it.")
PROMPT = argument("prompt_id", "ID", "A question's id, or the beginning of it.")
FLOW = argument("name", "FLOW", "A flow's name, or its file.")
FLOWS = argument("flows", "[FLOW...]", "Flow files or folders.", list[Path], None, exists=True)
INPUTS = (
    option("inputs", "An input; may be repeated.", list[str], flags="-i --input", metavar="KEY=VALUE"),
    option("inputs_file", "Inputs as a YAML or JSON file.", Path, **HERE),
)
LETTERS = (
    argument("ids", "[ID...]", "Ids or keys, as `sayso inbox list` shows them.", list[str], None),
    flag("every", "All of them.", "--all"),
    JSON,
)

# --- flows, and the installation ---------------------------------------------------------------------------

TOP = (
    command(
        "dev = run:dev_command",
        "Try flows in a local Slack-shaped workspace: no Slack, no account, nothing leaves this machine.",
        FLOWS,
        option("port", "The page's port. [8765, else a free one]", int, min=0, max=65535),
        option("open_it", "Open the page in a browser. [where a display is]", bool, flags="--open/--no-open"),
    ),
    command("start = run:start_command", "Serve flows in Slack until SIGTERM or Ctrl-C.", FLOWS),
    command(
        "run = run:run_command",
        """Run a flow here, with its prompts in this terminal.

        Ctrl-C keeps the session: `sayso sessions resume ID` goes on with it. Without a terminal (or with --no-input)
        the flow runs until it needs people, prints JSON and exits with 3.
        """,
        FLOW,
        *INPUTS,
        AS,
        NO_INPUT,
        WAIT,
        flag("dry_run", "Walk the flow and say what would be done; do nothing of it."),
        JSON,
    ),
    command(
        "start-flow = run:start_flow_command",
        """Start a flow in a Slack channel, from CI for example. The running bot does it.

        The flow must let you: `allowed_to_start` lists `local:<user>`. Without a running bot the request is kept for it, and
        the exit code is 3.
        """,
        FLOW,
        option("channel", "The channel that it runs in.", str, ..., metavar="ID|#NAME"),
        *INPUTS,
        option("wait", "How long to wait until it was started.", float, 30.0, metavar="SECONDS", min=0),
        option("key", "Of several calls with one key, a build's number for example, the first counts."),
        JSON,
    ),
    command(
        "validate = flows:validate",
        "Check flow files: every problem and warning with file, line, column and a hint. Nothing is executed.",
        argument(
            "paths",
            "[FILE|DIR...]",
            "Flow files or folders. [the folder of flows]",
            list[Path],
            None,
            exists=True,
        ),
        flag("strict", "Take warnings for problems."),
        JSON,
    ),
    command(
        "test = dry_run:run_scenarios",
        """Test flows: play scenarios with scripted people, a scripted Claude and a clock that moves when it is told to.

        Nothing outside is touched unless a scenario says so. Exit code 1: something was not as expected; 2: a scenario, or
        its flow, cannot be read.
        """,
        argument(
            "paths",
            "[SCENARIO...]",
            "Scenario files or folders. [`scenarios` in the folder of flows]",
            list[Path],
            None,
        ),
        flag("kill", "Also kill sayso before and after every event: nothing may change."),
        option("junit", "Write a report as JUnit XML.", Path, metavar="FILE", **FILE),
        JSON,
    ),
    command(
        "graph = flows:graph_command",
        "Draw a flow: its nodes, what comes after what, decisions, and where a session stands.",
        argument("name", "[FLOW]", "A flow's name, or its file. [the session's]", str, None),
        option("session", "Mark where this session stands; its own text is drawn.", metavar="ID"),
        option("svg", "Write a picture. [Mermaid is printed]", Path, metavar="FILE", **FILE),
    ),
    command("schema = flows:schema", "Print the JSON Schema of flow files, for editors."),
    command(
        "doctor = store:doctor_command",
        "Check versions, settings, flows, the database, tokens, scopes and the manifest, and say what to do.",
        option("manifest", "The app manifest. [manifest.yml]", Path, **HERE),
        flag("deep", "Also verify every stored session, and what follows from its journal."),
        JSON,
    ),
    command(
        "manifest = flows:manifest_command",
        "Print the Slack app's manifest for the flows that are served.",
        flag("show_all", "For whatever flows may use, not only those that are served.", "--all"),
    ),
    command(
        "verify = store:verify_history",
        """Check that the history of a session can have happened, event by event, and that nobody changed it.

        A file is checked alone, without a database. Without the key its signature is not, and the answer says so.
        """,
        argument("what", "FILE|SESSION", "An exported session, or a session's id."),
        JSON,
    ),
    command(
        "backup = store:back_up_store",
        "Copy the database to a file, also while the bot runs. The key is not in it: keep that apart.",
        argument("target", "FILE", "A new file.", Path, **FILE),
    ),
    command(
        "restore = store:restore_store",
        "Put a backup in place of the database, which is kept beside it. The store is suspended then: see `store release`.",
        argument("backup", "FILE", "A copy that `backup` made.", Path, **HERE),
    ),
    command(
        "spend = sessions:show_spend",
        "Show what agents have cost, by day (UTC), flow and session, and what is left of today's cap.",
        option("days", "How many days, today included.", int, 7, min=1, max=3650),
        JSON,
    ),
)

# --- sessions ----------------------------------------------------------------------------------------------

SESSIONS = (
    command(
        "list = sessions:list_sessions",
        "List sessions that are not over, newest first.",
        option(
            "statuses",
            "Only these: running, paused, complete, failed, aborted.",
            list[str],
            flags="--status",
            metavar="STATUS",
        ),
        flag("show_all", "Ended ones too.", "--all"),
        option("limit", "How many at most, newest first.", int, 50, min=1),
        JSON,
    ),
    command(
        "show = sessions:show_session",
        "Show one session: the tree of its nodes and passes, what it waits for, and on whom.",
        SESSION,
        option("at", "As it was after this event of its journal.", int, metavar="SEQ"),
        flag("events", "The journal too."),
        flag("whole", "Every pass of a long loop.", "--all"),
        JSON,
    ),
    command(
        "resume = resume:resume_command",
        "Go on with a session, in this terminal; one of a Slack thread goes on where the bot runs.",
        argument("session_id", "[ID]", "A session's id, or the beginning of it.", str, None),
        argument("message", "[MESSAGE]", "Answers its open question, if that takes text.", str, None),
        option("snapshot", "Continue from an exported file, here or elsewhere.", Path, **HERE),
        option("prompt", "Which question is answered.", metavar="ID"),
        option("answer", "The answer: a choice or text.", metavar="VALUE"),
        AS,
        *MODE,
    ),
    command(
        "pause = resume:pause_session",
        "Hold a session: what runs is stopped, and nothing starts until `sessions resume`.",
        SESSION,
        WHY,
        JSON,
    ),
    command(
        "fork = fork:fork_session",
        """Start a new session from any event of another one; what was done by then is not done again.

        It runs in this terminal, also where the other one has a Slack thread. `sessions show ID --events` numbers them.
        """,
        SESSION,
        option("at", "The event after which it goes on. [the last one]", int, metavar="SEQ"),
        option(
            "answers",
            "Answers a question open there, by path or id; a form with JSON; repeatable.",
            list[str],
            flags="--answer",
            metavar="PROMPT=VALUE",
        ),
        AS,
        *MODE,
    ),
    command(
        "migrate = fork:migrate_session",
        "Let a paused session go on with another text of its flow. What is done stays done.",
        SESSION,
        argument("name", "[FLOW]", "The new text. [the file it was started from]", str, None),
        flag("dry_run", "Only say what it would mean."),
        JSON,
    ),
    command(
        "release = store:release_session",
        """Let a session that was set aside go on, if all its records verify from the first event.

        It goes on where it stood; `sessions abort` ends it. What does not verify stays set aside.
        """,
        SESSION,
    ),
    command(
        "abort = resume:abort_session",
        "End a session for good. What is done stays done.",
        SESSION,
        WHY,
        JSON,
    ),
    command(
        "delete = store:delete_sessions",
        "Delete sessions that have ended or were set aside, with their files and snapshots.",
        argument("texts", "ID...", "Ids, or the beginnings of them.", list[str]),
        WHICH,
        JSON,
    ),
    command(
        "purge = store:purge_sessions",
        "Delete all sessions that ended so long ago, with their files and snapshots.",
        option("older_than", "How long ago they ended: 30d, 12h.", str, ..., metavar="TIME"),
        WHICH,
        JSON,
    ),
    command(
        "export = sessions:export_session",
        "Write a session as one portable, signed file: state, journal and flow.",
        SESSION,
        option("output", "Where to. [standard output]", Path, flags="-o --output", **FILE),
    ),
)

# --- questions, locks, dead letters, the store -------------------------------------------------------------

PROMPTS = (
    command("list = prompts:list_prompts", "List the open questions, oldest first.", JSON),
    command(
        "answer = prompts:answer_command",
        "Answer a question, or change what it proposes. A session of the terminal then goes on here, as far as it can.",
        PROMPT,
        argument("answer", "[ANSWER]", "A choice as people read it, or text.", str, None),
        option("value", "A choice by its value.", metavar="V"),
        option("text", "The answer as text.", metavar="T"),
        option("reason", "Why, for a decision; kept with it.", metavar="TEXT"),
        option(
            "edit",
            "Change what an approval proposes, in place of an answer; repeatable.",
            list[str],
            metavar="FIELD=VALUE",
        ),
        option(
            "fields",
            "A field of the question's form; may be repeated.",
            list[str],
            flags="--field",
            metavar="NAME=VALUE",
        ),
        option("values", "The fields from a JSON or YAML file.", Path, metavar="FILE", **HERE),
        option(
            "files",
            "A file as an answer; may be repeated.",
            list[Path],
            flags="--file",
            metavar="PATH",
            **HERE,
        ),
        AS,
        WAIT,
        JSON,
    ),
    command(
        "hand-over = prompts:hand_over_prompt",
        "Let somebody else answer a question in one's own place.",
        PROMPT,
        option("to", "Whom: a user id, an e-mail address, local:<user>.", str, ..., metavar="X"),
        AS,
        JSON,
    ),
    command(
        "undo = prompts:undo_answer",
        "Take an answer back, as long as the flow lets people do that and nothing followed it.",
        argument("prompt_id", "ID", "The answered question's id."),
        AS,
        JSON,
    ),
    command(
        "show = prompts:show_prompt",
        "Show a question: what it says, and what its answer has to fit.",
        PROMPT,
        JSON,
    ),
)

INBOX = (
    command(
        "list = act:list_letters",
        "List what was set aside: what it is, when it came, and why it failed.",
        JSON,
    ),
    command("retry = act:retry", "Hand it to the bot again, once what made it fail is put right.", *LETTERS),
    command("drop = act:drop", "Forget it: nothing will follow from it.", *LETTERS),
)

LOCKS = command("locks = prompts:list_locks", "", JSON)
LOCKS_RELEASE = command(
    "release = prompts:release_lock",
    "Take a lock from a session that was set aside, once somebody has seen to what it left. Others are ended instead.",
    argument("name", "NAME", "The lock."),
    option("session", "Who holds it, so that no other one loses it.", str, ..., metavar="ID"),
)

STORE = (
    command(
        "release = store:release_store",
        """Let a store go on that is suspended, once somebody has seen to what may be done a second time.

        A store is suspended when it is opened and is older than what was acknowledged: its files were damaged, put back or
        restored. `sayso doctor` says what its sessions may do again.
        """,
    ),
    command(
        "compact = store:compact_store",
        """Write the database anew without what was deleted; it gives space back by itself from then on.

        It needs as much disk again for a moment, and nothing else may run meanwhile.
        """,
    ),
)

GROUPS = {
    "sessions": group("Look at sessions, go on with them, end them.", SESSIONS),
    "prompts": group("What people are asked, and answers to it.", PROMPTS),
    "inbox": group(
        "What arrived and could not be handled: it failed several times, and was set aside.", INBOX
    ),
    "locks": group(
        "List locks: who holds them since when, and who waits for them in which order.",
        [LOCKS_RELEASE],
        LOCKS,
    ),
    "store": group(
        "The store as a whole: make its file smaller, let one go on that is older than what it acknowledged.",
        STORE,
    ),
}
