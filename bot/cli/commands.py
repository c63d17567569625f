"""The commands, their options and their help. What they do is imported when they run."""

from __future__ import annotations

from pathlib import Path

from bot.cli.declare import argument, command, flag, group, option
from bot.cli.options import (
    AS,
    FILE,
    FLOW,
    FLOWS,
    HERE,
    INPUTS,
    JSON,
    LETTERS,
    MODE,
    NO_INPUT,
    PROMPT,
    SESSION,
    WAIT,
    WHICH,
    WHY,
)

# --- flows, and the installation ---------------------------------------------------------------------------

TOP = (
    command(
        "dev = serve:dev_command",
        "Try flows in a local Slack-shaped workspace: no Slack, no account, nothing leaves this machine. A flow file is "
        "checked and served when you save it.",
        FLOWS,
        option("--port", "The page's port. [8765, else a free one]", int, min=0, max=65535),
        option("--open/--no-open", "Open the page in a browser. [where a display is]", bool, name="open_it"),
        flag("--limits", "Enforce Slack's published rate limits; the page counts what they refuse."),
        flag("--agent", "The app is an agent of Slack's."),
        flag("--gate", "A scripted agent asks people before it acts."),
    ),
    command(
        "init = init:init_command",
        """Make a folder to start from: a flow, its scenario, settings, the schema for editors, a check for CI.

        What is there already stays as it is.
        """,
        argument("[FOLDER]", "Which one. [this one]", "folder", Path, None),
        option(
            "--from NAME",
            "A runbook of the cookbook in place of the first flow; `gate` adds rules for agents.",
            name="source",
        ),
        flag("--list", "List the names of the cookbook.", "list_names"),
    ),
    command(
        "web = web:web_command",
        """Show sessions in a browser: search, live graphs, journals at any event, comparisons, spending, queues.

        Read-only unless --write is given. The address that is printed has a token; whoever has it, may look.
        """,
        option("--port", "The page's port. [8766, else a free one]", int, min=0, max=65535),
        option("--host", "The address that it listens at.", str, "127.0.0.1"),
        flag(
            "--write",
            "Let people who are logged in answer, pause, resume and cancel, within the policy.",
        ),
        option("--open/--no-open", "Open the page in a browser. [no]", bool, name="open_it"),
    ),
    command(
        "mcp = gate:mcp",
        """Serve MCP: an agent writes flows, asks people in Slack, and runs the flows that gate.yml lists.

        Over standard input and output it offers schema, validate, explain, test and save, and with SAYSO_GATE_TOKEN the tools that ask
        people. With --port, over HTTP, each client brings its token and has the tools that ask people.
        """,
        option(
            "--port", "Serve streamable HTTP at this port of this machine; 0 is any.", int, min=0, max=65535
        ),
    ),
    command(
        "start = serve:start_command",
        "Serve flows in Slack until SIGTERM or Ctrl-C.",
        FLOWS,
        option(
            "--role ROLE",
            "What this process does: all, socket or worker. Several serve one Postgres database.",
            str,
            "all",
        ),
    ),
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
        JSON,
    ),
    command(
        "start-flow = serve:start_flow_command",
        """Start a flow in a Slack channel, from CI for example. The running bot does it.

        The flow must let you: `allowed_to_start` lists `local:<user>`. Without a running bot the request is kept for it, and
        the exit code is 3.
        """,
        FLOW,
        option("--channel ID|#NAME", "The channel that it runs in.", str, ...),
        *INPUTS,
        option("--wait SECONDS", "How long to wait until it was started.", float, 30.0, min=0),
        option("--key", "Of several calls with one key, a build's number for example, the first counts."),
        JSON,
    ),
    command(
        "validate = flows:validate",
        "Check flow files: every problem and warning with file, line, column and a hint. Nothing is executed.",
        argument(
            "[FILE|DIR...]",
            "Flow files or folders. [the folder of flows]",
            "paths",
            list[Path],
            None,
            exists=True,
        ),
        flag("--strict", "Take warnings for problems."),
        JSON,
    ),
    command(
        "test = play:run_scenarios",
        """Test flows: play scenarios with scripted people, a scripted Claude and a clock that moves when it is told to.

        Nothing outside is touched unless a scenario says so. Exit code 1: something was not as expected; 2: a scenario, or
        its flow, cannot be read.
        """,
        argument(
            "[SCENARIO...]",
            "Scenario files or folders. [`scenarios` in the folder of flows]",
            "paths",
            list[Path],
            None,
        ),
        flag("--kill", "Also kill sayso before and after every event: nothing may change."),
        option("--junit FILE", "Write a report as JUnit XML.", Path, **FILE),
        JSON,
    ),
    command(
        "graph = flows:graph_command",
        "Draw a flow: its nodes, what comes after what, decisions, and where a session stands.",
        argument("[FLOW]", "A flow's name, or its file. [the session's]", "name", str, None),
        option("--session ID", "Mark where this session stands; its own text is drawn.")._replace(
            ids="session"
        ),
        option("--svg FILE", "Write a picture. [Mermaid is printed]", Path, **FILE),
    ),
    command(
        "explain = flows:explain_command",
        "Say in plain sentences what a flow does, whom it asks, and what happens if nobody answers.",
        FLOW,
    ),
    command(
        "replay = replay:replay",
        """Compare recorded runs of a flow with a new version of it, before you deploy that.

        It shows the first difference of each run, approvals that would be gone or change, and whether waiting runs could
        continue. Nothing is run. The exit code is 1 if anything differs.
        """,
        argument("FLOW", "A flow's name.", "name"),
        option("--against FLOW", "The new text: a file, or a flow. [the flow as it is now]", name="new_text"),
        option(
            "--exports DIR",
            "Read files of `sayso sessions export` there. [this database]",
            Path,
            name="folder",
            exists=True,
        ),
        option("--last N", "How many runs of the database.", int, 100, min=1),
        flag("--markdown", "Print a comment for a pull request."),
        JSON,
    ),
    command("schema = flows:schema", "Print the JSON Schema of flow files, for editors."),
    command(
        "doctor = doctor:doctor_command",
        "Check versions, settings, flows, the database, tokens, scopes and the manifest, and say what to do.",
        option("--manifest", "The app manifest. [manifest.yml]", Path, **HERE),
        flag("--live", "Only say whether a bot serves this home, without Slack: for health checks."),
        flag("--deep", "Also verify every stored session, and what follows from its journal."),
        JSON,
    ),
    command(
        "manifest = flows:manifest_command",
        "Print the Slack app's manifest for the flows that are served.",
        flag("--all", "For whatever flows may use, not only those that are served.", "show_all"),
        flag("--agent", "As an agent of Slack's. Guests lose the app, and Slack may not take it back."),
    ),
    command(
        "verify = store:verify_history",
        """Check that the history of a session can have happened, event by event, and that nobody changed it.

        A file is checked alone, without a database. Without the key its signature is not, and the answer says so.
        """,
        argument("FILE|SESSION", "An exported session, an audit export, or a session's id.", "what")._replace(
            ids="session"
        ),
        option("--key KEY", "The public key of an audit export. [that of this home]"),
        JSON,
    ),
    command(
        "backup = store:back_up_store",
        "Copy the database to a file, also while the bot runs. The key is not in it: keep that apart.",
        argument("FILE", "A new file.", "target", Path, **FILE),
    ),
    command(
        "restore = store:restore_store",
        "Put a backup in place of the database, which is kept beside it. The store is suspended then: see `store release`.",
        argument("FILE", "A copy that `backup` made.", "backup", Path, **HERE),
    ),
    command(
        "spend = sessions:show_spend",
        "Show what agents have cost, by day (UTC), flow and session, and what is left of today's cap.",
        option("--days", "How many days, today included.", int, 7, min=1, max=3650),
        JSON,
    ),
)

# --- sessions ----------------------------------------------------------------------------------------------

SESSIONS = (
    command(
        "list = sessions:list_sessions",
        "List sessions that are not over, newest first, those of `sayso dev` too.",
        option(
            "--status STATUS",
            "Only these: running, waiting, paused, completed, rejected, failed, cancelled.",
            list[str],
            name="statuses",
        ),
        flag("--all", "Ended ones too.", "show_all"),
        option("--limit", "How many at most, newest first.", int, 50, min=1),
        JSON,
    ),
    command(
        "show = show:show_session",
        "Show one session: the tree of its nodes and passes, what it waits for, and on whom.",
        SESSION,
        option("--at SEQ", "As it was after this event of its journal.", int),
        flag("--conversation", "The conversations of its agents too: words, calls, results."),
        flag("--events", "The journal too."),
        flag("--all", "Every pass of a long loop.", "whole"),
        JSON,
    ),
    command(
        "resume = resume:resume_command",
        "Go on with a session, in this terminal; one of a Slack thread goes on where the bot runs.",
        argument("[ID]", "A session's id, or the beginning of it.", "session_id", str, None)._replace(
            ids="session"
        ),
        argument("[MESSAGE]", "Answers its open question, if that takes text.", "message", str, None),
        option("--snapshot", "Continue from an exported file, here or elsewhere.", Path, **HERE),
        option("--prompt ID", "Which question is answered.")._replace(ids="prompt"),
        option("--answer VALUE", "The answer: a choice or text."),
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
        "retry = fork:retry_session",
        """Try a failed session again from the step that failed. Completed steps do not run again.

        A session with a Slack thread continues there, any other in this terminal.
        """,
        SESSION,
        AS,
        *MODE,
    ),
    command(
        "fork = fork:fork_session",
        """Start a new session from any event of another one; what was done by then is not done again.

        It runs in this terminal, also where the other one has a Slack thread. `sessions show ID --events` numbers them.
        """,
        SESSION,
        option(
            "--at SEQ",
            "The event after which it goes on. [the last one; where an agent failed its last model call]",
            int,
        ),
        option("--flow FLOW", "Another text of its flow to go on with, as for `migrate`. [its own text]"),
        option(
            "--answer PROMPT=VALUE",
            "Answers a question open there, by path or id; a form with JSON; repeatable.",
            list[str],
            name="answers",
        ),
        AS,
        *MODE,
    ),
    command(
        "migrate = fork:migrate_session",
        "Let a paused session go on with another text of its flow. What is done stays done.",
        SESSION,
        argument("[FLOW]", "The new text. [the file it was started from]", "name", str, None),
        flag("--dry-run", "Only say what it would mean."),
        JSON,
    ),
    command(
        "release = store:release_session",
        """Let a session that is on hold go on, if all its records verify from the first event.

        It goes on where it stood; `sessions abort` ends it. What does not verify stays on hold.
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
        "delete = delete:delete_sessions",
        """Delete sessions that have ended or are on hold, with their files and snapshots.

        With --erase, and always with --person, what they held is overwritten instead: that they were there, and that
        nobody changed them, can still be verified.
        """,
        argument("[ID...]", "Ids, or the beginnings of them.", "texts", list[str], None)._replace(
            ids="session"
        ),
        option("--older-than TIME", "All that ended so long ago: 30d, 12h."),
        option(
            "--person WHO", "Somebody's Slack id or address: every session that names them, notes, messages."
        ),
        flag("--erase", "Overwrite the data keys, and keep the proof."),
        WHICH,
        JSON,
    ),
    command(
        "export = show:export_session",
        "Write a session as one portable, signed file: state, journal and flow.",
        SESSION,
        option("-o --output", "Where to. [standard output]", Path, **FILE),
    ),
)

# --- questions, locks, dead letters, the store -------------------------------------------------------------

PROMPTS = (
    command("list = prompts:list_prompts", "List the open questions, oldest first.", JSON),
    command(
        "answer = prompts:answer_command",
        "Answer a question, or change what it proposes. A session of the terminal then goes on here, as far as it can.",
        PROMPT,
        argument("[ANSWER]", "A choice as people read it, or text.", "answer", str, None),
        option("--value V", "A choice by its value."),
        option("--text T", "The answer as text."),
        option("--reason TEXT", "Why, for a decision; or the result in place of a tool's."),
        option("--always TIME", "Approve a tool call, and allow it for so long: 8h."),
        option("--match FIELD=PATTERN", "With --always, what a field may be; repeatable.", list[str]),
        option("--scope WHERE", "With --always: run, thread, or flow (its runs in the channel). [run]"),
        option(
            "--edit FIELD=VALUE",
            "Change what an approval proposes, in place of an answer; repeatable.",
            list[str],
        ),
        option(
            "--field NAME=VALUE", "A field of the question's form; may be repeated.", list[str], name="fields"
        ),
        option("--values FILE", "The fields from a JSON or YAML file.", Path, **HERE),
        option("--file PATH", "A file as an answer; may be repeated.", list[Path], name="files", **HERE),
        AS,
        WAIT,
        JSON,
    ),
    command(
        "hand-over = prompts:hand_over_prompt",
        "Hand a question over to somebody else.",
        PROMPT,
        option("--to X", "Whom: a user id, an e-mail address, local:<user>.", str, ...),
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
    command("drop = act:drop", "Discard it for good.", *LETTERS),
)

LOCKS = command("locks = prompts:list_locks", "", JSON)
LOCKS_RELEASE = command(
    "release = prompts:release_lock",
    "Take a lock from a session that is on hold, once somebody has seen to what it left. Others are ended instead.",
    argument("NAME", "The lock.", "name"),
    option("--session ID", "Who holds it, so that no other one loses it.", str, ...)._replace(ids="session"),
)

STORE = (
    command(
        "release = store:release_store",
        """Release a suspended store, once you have checked what may run a second time.

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
    command(
        "copy = store_copy:copy_stores",
        """Copy all that a store holds to an empty one, and read it back: from an SQLite file to a Postgres database, or back,
        and to other keys.

        Stop the bot on both meanwhile. Afterwards all sessions continue in the new one, also those that wait for people.
        """,
        argument("FROM", "A file, or the URL of a database.", "source"),
        argument("TO", "A new file, or the URL of an empty database.", "target"),
        option(
            "--to-env FILE",
            "Settings of the new store, in the form of .env: SAYSO_SECRET_KEY and SAYSO_ENCRYPTION_KEYS. What the file does "
            "not set is as in this home.",
            Path,
            **FILE,
        ),
    ),
)

GRANTS = (
    command(
        "list = grants:list_grants",
        "List the calls of agents that people allow always, in runs under way.",
        JSON,
    ),
    command(
        "revoke = grants:revoke_grant",
        "Revoke a grant: people are asked about such calls again.",
        argument("ID", "The grant, by the approval with which it was given.", "grant_id"),
        AS,
        JSON,
    ),
)

AUDIT = (
    command(
        "export = audit:export_audit",
        """Write who was asked, who decided what and when, and what ran: JSON lines, one record an event.

        What people wrote and programs returned is a SHA-256, unless --content is given. The export ends with a signed checkpoint.
        `sayso verify FILE`, or deploy/verify_audit.py with the public key alone, finds out whether it was changed.
        """,
        option("-o --output", "A new file. [standard output]", Path, **FILE),
        option(
            "--cursor FILE",
            "Go on where the export before ended, and remember where this one ends.",
            Path,
            **FILE,
        ),
        flag("--content", "With what was said, given to nodes and returned by them."),
    ),
    command(
        "key = audit:show_key",
        "Print the public keys of the audit log, oldest first: give the first one to auditors.",
        flag("--rotate", "Sign with another key from now on. The one before signs that."),
    ),
)

NOTE_ID = argument("ID", "The note, as `memory list` shows it.", "note_id")
MEMORY = (
    command("list = memory:list_notes", "List what agents have noted for later runs.", JSON),
    command(
        "edit = memory:edit_note",
        "Give a note another text.",
        NOTE_ID,
        argument("TEXT", "The new text.", "text"),
        AS,
        JSON,
    ),
    command("forget = memory:forget_note", "Delete a note's text; who did it stays.", NOTE_ID, AS, JSON),
)

HOOK_WAIT = option("--wait SECONDS", "How long a call waits for people.", float, 300.0, min=0, max=86400)
INTERACTIVE = flag("--interactive", "Ask beside the dialog at the terminal: the first answer counts.")
GATE = (
    command(
        "login = gate:login",
        """Make a token for an agent on one machine. It can ask people, and answer nothing.

        Run it where the bot runs, as the bot's user. The token is printed once; give it to the agent as SAYSO_GATE_TOKEN.
        """,
        option("--agent NAME", "The agent and its machine: claude-code:laptop.", str, ...),
        option(
            "--person ID",
            "The Slack user id of the person it works for: the requester of its runs.",
            str,
            ...,
        ),
        option("--days", "How long it counts.", float, 90.0, min=0.01, max=3650),
        JSON,
    ),
    command("tokens = gate:list_tokens", "List the tokens of agents, without their texts.", JSON),
    command(
        "revoke = gate:revoke",
        "Revoke a token: the gate refuses it from now on.",
        argument("ID", "The token's id, as `gate tokens` shows it.", "token_id"),
        JSON,
    ),
    command(
        "hook = gate:hook",
        """Answer one call of an agent's program: it reads the call on standard input, and prints the decision.

        Any error exits with 2, which blocks the call. SAYSO_GATE_URL is the gate's address, SAYSO_GATE_TOKEN the agent's token.
        """,
        option("--client NAME", "The program: claude or codex.", str, "claude"),
        HOOK_WAIT,
        INTERACTIVE,
    ),
    command(
        "resume = gate:resume",
        "Go on with sessions of Claude Code that wait for people, as soon as they have decided; until Ctrl-C.",
        argument("[ARGUMENT...]", "More arguments for claude, after `--`.", "words", list[str], None),
        flag("--once", "Look once."),
    ),
    command(
        "proxy = gate:proxy",
        """Stand between an MCP client and a server: calls of tools are held until they are allowed.

        For rules a tool is called `mcp__NAME__TOOL`. What the server gets is, byte for byte, what was approved; behind --url it is
        canonical JSON of that.
        """,
        argument("[COMMAND...]", "The server and its arguments, after `--`.", "words", list[str], None),
        option("--name NAME", "What the server is called in rules.", str, ...),
        option("--url", "A server that speaks streamable HTTP, in place of a command.", str, None),
        option("--token-from VARIABLE", "The environment variable with a bearer token for --url.", str, None),
        option("--wait SECONDS", "How long a call waits for people.", float, 45.0, min=0, max=86400),
    ),
    command(
        "agents = gate:agents",
        """Ask people about calls of Anthropic's Managed Agents that wait for a confirmation, until Ctrl-C.

        It needs an API key of their workspace, in ANTHROPIC_API_KEY. Each decision is sent back once.
        """,
        option("--agent ID", "The agent whose sessions are looked at. [all]", str, None),
        option("--every SECONDS", "How often it looks.", float, 5.0, min=1, max=3600),
        flag("--once", "Look once."),
    ),
    command(
        "doctor = gate:doctor",
        "Check, as the agent's user, that its calls reach the gate, and whether the gate is a boundary for it.",
        JSON,
    ),
    command(
        "settings = gate:settings",
        "Print the hooks for the user's or managed settings of Claude Code.",
        HOOK_WAIT,
        INTERACTIVE,
    ),
)

GROUPS = (
    group("sessions", "Look at sessions, go on with them, end them.", SESSIONS),
    group("prompts", "Open questions, and answers to them.", PROMPTS),
    group("memory", "What agents have noted for later runs.", MEMORY),
    group("grants", "Calls of agents that people allow always, for a time.", GRANTS),
    group("gate", "Agents that ask people in Slack before they act.", GATE),
    group("audit", "What people decided and what ran, for auditors.", AUDIT),
    group("inbox", "Messages and clicks that failed several times and were given up.", INBOX),
    group(
        "locks",
        "List locks: who holds them since when, and who waits for them in which order.",
        [LOCKS_RELEASE],
        LOCKS,
    ),
    group(
        "store",
        "The store as a whole: shrink its file, copy it, release one that was suspended.",
        STORE,
    ),
)
