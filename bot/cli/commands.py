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
        "Try flows in a local workspace that looks like Slack. You need no account, and nothing leaves this "
        "machine. Flow files reload when you save them.",
        FLOWS,
        option("--port", "The page's port. [8765, else a free one]", int, min=0, max=65535),
        option(
            "--open/--no-open", "Open the page in a browser. [if there is a display]", bool, name="open_it"
        ),
        flag("--limits", "Enforce Slack's published rate limits; the page counts refused calls."),
        flag("--agent", "Run the app as a Slack agent."),
        flag("--gate", "Add a scripted agent that asks people before it acts."),
    ),
    command(
        "init = init:init_command",
        """Create a starter folder: a flow, its scenario, settings, the schema for editors, a check for CI.

        Existing files are not changed.
        """,
        argument("[FOLDER]", "The folder. [the current one]", "folder", Path, None),
        option(
            "--from NAME",
            "Start from a cookbook runbook instead of the first flow; `gate` adds rules for agents.",
            name="source",
        ),
        flag("--list", "List the runbooks of the cookbook.", "list_names"),
    ),
    command(
        "web = web:web_command",
        """Show sessions in a browser: search, live graphs, journals at any event, comparisons, spending, queues.

        Read-only unless --write is given. The printed address contains a token that gives read access to anyone who has it.
        """,
        option("--port", "The page's port. [8766, else a free one]", int, min=0, max=65535),
        option("--host", "The address to listen on.", str, "127.0.0.1"),
        flag("--write", "Let logged-in people answer, pause, resume and cancel, within the policy."),
        option("--open/--no-open", "Open the page in a browser. [no]", bool, name="open_it"),
    ),
    command(
        "mcp = gate:mcp",
        """Serve MCP: agents write flows, ask people in Slack, and run the flows listed in gate.yml.

        Over standard input and output it offers schema, validate, explain, test and save; with SAYSO_GATE_TOKEN also the tools that ask
        people. With --port it serves HTTP: each client sends its token and gets the tools that ask people.
        """,
        option(
            "--port", "Serve streamable HTTP on this local port; 0 picks a free one.", int, min=0, max=65535
        ),
    ),
    command(
        "start = serve:start_command",
        "Serve flows in Slack until SIGTERM or Ctrl-C.",
        FLOWS,
        option(
            "--role ROLE",
            "What this process does: all, socket or worker. Several processes can serve one Postgres "
            "database.",
            str,
            "all",
        ),
    ),
    command(
        "run = run:run_command",
        """Run a flow here, with its questions in this terminal.

        Ctrl-C keeps the session: `sayso sessions resume ID` continues it. Without a terminal (or with --no-input)
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
        """Ask the running bot to start a flow in a Slack channel, for example from CI.

        The flow must allow it: `allowed_to_start` lists `local:<user>`. If no bot is running, the request is queued and
        the exit code is 3.
        """,
        FLOW,
        option("--channel ID|#NAME", "The channel to run in.", str, ...),
        *INPUTS,
        option("--wait SECONDS", "How long to wait for the start.", float, 30.0, min=0),
        option(
            "--key",
            "Start once per key, for example a build number: later calls with the same key do nothing.",
        ),
        JSON,
    ),
    command(
        "validate = flows:validate",
        "Check flow files: print every problem and warning with file, line, column and a hint. Nothing is "
        "executed.",
        argument(
            "[FILE|DIR...]",
            "Flow files or folders. [the flows folder]",
            "paths",
            list[Path],
            None,
            exists=True,
        ),
        flag("--strict", "Treat warnings as problems."),
        JSON,
    ),
    command(
        "test = play:run_scenarios",
        """Test flows: run scenarios with scripted people, a scripted Claude and a simulated clock.

        Nothing outside is touched unless a scenario says so. Exit code 1: an expectation failed; 2: a scenario, or
        its flow, cannot be read.
        """,
        argument(
            "[SCENARIO...]",
            "Scenario files or folders. [`scenarios` in the flows folder]",
            "paths",
            list[Path],
            None,
        ),
        flag("--kill", "Also kill sayso before and after every event: the result must not change."),
        option("--junit FILE", "Write a JUnit XML report.", Path, **FILE),
        JSON,
    ),
    command(
        "graph = flows:graph_command",
        "Draw a flow: its nodes, their order, decisions, and the state of a session.",
        argument("[FLOW]", "A flow's name, or its file. [the session's]", "name", str, None),
        option("--session ID", "Draw this session's flow and mark its state.")._replace(ids="session"),
        option("--svg FILE", "Write an SVG picture. [print Mermaid]", Path, **FILE),
    ),
    command(
        "explain = flows:explain_command",
        "Explain in plain sentences what a flow does, whom it asks, and what happens if nobody answers.",
        FLOW,
    ),
    command(
        "replay = replay:replay",
        """Compare recorded runs of a flow with a new version before you deploy it.

        Shows the first difference of each run, approvals that would change or disappear, and whether waiting runs could
        continue. Nothing is run. The exit code is 1 if anything differs.
        """,
        argument("FLOW", "A flow's name.", "name"),
        option("--against FLOW", "The new version: a file, or a flow. [the current flow]", name="new_text"),
        option(
            "--exports DIR",
            "Read exported sessions from this folder. [this database]",
            Path,
            name="folder",
            exists=True,
        ),
        option("--last N", "How many runs to read from the database.", int, 100, min=1),
        flag("--markdown", "Print a comment for a pull request."),
        JSON,
    ),
    command("schema = flows:schema", "Print the JSON Schema of flow files, for editors."),
    command(
        "doctor = doctor:doctor_command",
        "Check versions, settings, flows, the database, tokens, scopes and the manifest, and suggest fixes.",
        option("--manifest", "The app manifest. [manifest.yml]", Path, **HERE),
        flag(
            "--live",
            "Only check whether a bot serves this home, without contacting Slack: for health checks.",
        ),
        flag("--deep", "Also verify every stored session and the rows derived from its journal."),
        JSON,
    ),
    command(
        "manifest = flows:manifest_command",
        "Print the Slack app manifest for the served flows.",
        flag("--all", "Include everything that flows can use, not only the served ones.", "show_all"),
        flag(
            "--agent",
            "Make the app a Slack agent. Guests lose access to it, and you may not be able to undo this.",
        ),
    ),
    command(
        "verify = store:verify_history",
        """Check that the history of a session is possible, event by event, and that nobody changed it.

        A file is checked without a database. Its signature is checked only if the key is available; the result says whether it was.
        """,
        argument("FILE|SESSION", "An exported session, an audit export, or a session's id.", "what")._replace(
            ids="session"
        ),
        option("--key KEY", "The public key of an audit export. [this home's key]"),
        JSON,
    ),
    command(
        "backup = store:back_up_store",
        "Copy the database to a file, even while the bot runs. The copy does not contain the key: keep that "
        "separately.",
        argument("FILE", "A new file.", "target", Path, **FILE),
    ),
    command(
        "restore = store:restore_store",
        "Replace the database with a backup and keep the old one beside it. The store is then suspended: "
        "see `store release`.",
        argument("FILE", "A file written by `backup`.", "backup", Path, **HERE),
    ),
    command(
        "spend = sessions:show_spend",
        "Show the cost of agents by day (UTC), flow and session, and the rest of today's cap.",
        option("--days", "How many days to show, including today.", int, 7, min=1, max=3650),
        JSON,
    ),
)

# --- sessions ----------------------------------------------------------------------------------------------

SESSIONS = (
    command(
        "list = sessions:list_sessions",
        "List open sessions, newest first, including those of `sayso dev`.",
        option(
            "--status STATUS",
            "Only this status: running, waiting, paused, completed, rejected, failed, cancelled.",
            list[str],
            name="statuses",
        ),
        flag("--all", "Include ended sessions.", "show_all"),
        option("--limit", "The maximum number.", int, 50, min=1),
        JSON,
    ),
    command(
        "show = show:show_session",
        "Show one session: the tree of its nodes and iterations, and whom or what it waits for.",
        SESSION,
        option("--at SEQ", "The state after this event of its journal.", int),
        flag("--conversation", "Include the conversations of its agents: messages, calls, results."),
        flag("--events", "Include the journal."),
        flag("--all", "Show every iteration of a long loop.", "whole"),
        JSON,
    ),
    command(
        "resume = resume:resume_command",
        "Resume a session in this terminal. A session in a Slack thread resumes in the bot.",
        argument("[ID]", "A session ID, or its beginning.", "session_id", str, None)._replace(ids="session"),
        argument("[MESSAGE]", "A text answer to its open question.", "message", str, None),
        option("--snapshot", "Continue from an exported file, here or elsewhere.", Path, **HERE),
        option("--prompt ID", "The question to answer.")._replace(ids="prompt"),
        option("--answer VALUE", "The answer: a choice or text."),
        AS,
        *MODE,
    ),
    command(
        "pause = resume:pause_session",
        "Pause a session: running work stops, and nothing starts until `sessions resume`.",
        SESSION,
        WHY,
        JSON,
    ),
    command(
        "retry = fork:retry_session",
        """Retry a failed session from the step that failed. Completed steps do not run again.

        A session with a Slack thread continues there, any other in this terminal.
        """,
        SESSION,
        AS,
        *MODE,
    ),
    command(
        "fork = fork:fork_session",
        """Start a new session from any event of another one. Steps completed by then do not run again.

        It runs in this terminal, even if the original runs in a Slack thread. `sessions show ID --events` numbers the events.
        """,
        SESSION,
        option(
            "--at SEQ",
            "The event to continue after. [the last one; if an agent failed, its last model call]",
            int,
        ),
        option("--flow FLOW", "Another version of its flow, as for `migrate`. [its own version]"),
        option(
            "--answer PROMPT=VALUE",
            "Answer a question open at that event, by path or ID; a form as JSON; repeatable.",
            list[str],
            name="answers",
        ),
        AS,
        *MODE,
    ),
    command(
        "migrate = fork:migrate_session",
        "Move a paused session to another version of its flow. Completed work stays.",
        SESSION,
        argument("[FLOW]", "The new version. [the file it was started from]", "name", str, None),
        flag("--dry-run", "Only show the effect."),
        JSON,
    ),
    command(
        "release = store:release_session",
        """Release a session that is on hold, if all its records verify from the first event.

        It continues where it was; `sessions abort` ends it. A session that does not verify stays on hold.
        """,
        SESSION,
    ),
    command(
        "abort = resume:abort_session", "End a session for good. Completed work stays.", SESSION, WHY, JSON
    ),
    command(
        "delete = delete:delete_sessions",
        """Delete sessions that have ended or are on hold, with their files and snapshots.

        With --erase, and always with --person, their content is overwritten instead. You can still verify that
        they existed and that nobody changed them.
        """,
        argument("[ID...]", "IDs, or their beginnings.", "texts", list[str], None)._replace(ids="session"),
        option("--older-than TIME", "All sessions that ended at least this long ago: 30d, 12h."),
        option(
            "--person WHO",
            "A Slack ID or e-mail address: every session, note and message that names this person.",
        ),
        flag("--erase", "Overwrite the data keys, but keep the proof."),
        WHICH,
        JSON,
    ),
    command(
        "export = show:export_session",
        "Write a session as one portable, signed file: state, journal and flow.",
        SESSION,
        option("-o --output", "The output file. [standard output]", Path, **FILE),
    ),
)

# --- questions, locks, dead letters, the store -------------------------------------------------------------

PROMPTS = (
    command("list = prompts:list_prompts", "List the open questions, oldest first.", JSON),
    command(
        "answer = prompts:answer_command",
        "Answer a question, or edit its proposal. A terminal session then continues here as far as it can.",
        PROMPT,
        argument("[ANSWER]", "A choice by its label, or text.", "answer", str, None),
        option("--value V", "A choice by its value."),
        option("--text T", "The answer as text."),
        option("--reason TEXT", "The reason for a decision, or the result to use instead of a tool's."),
        option("--always TIME", "Approve a tool call and allow such calls for this long: 8h."),
        option("--match FIELD=PATTERN", "With --always: a pattern for a field; repeatable.", list[str]),
        option("--scope WHERE", "With --always: run, thread, or flow (its runs in the channel). [run]"),
        option(
            "--edit FIELD=VALUE", "Edit an approval's proposal instead of answering; repeatable.", list[str]
        ),
        option("--field NAME=VALUE", "A field of the question's form; repeatable.", list[str], name="fields"),
        option("--values FILE", "The fields from a JSON or YAML file.", Path, **HERE),
        option("--file PATH", "A file as an answer; repeatable.", list[Path], name="files", **HERE),
        AS,
        WAIT,
        JSON,
    ),
    command(
        "hand-over = prompts:hand_over_prompt",
        "Hand a question over to someone else.",
        PROMPT,
        option("--to X", "The person: a user ID, an e-mail address, local:<user>.", str, ...),
        AS,
        JSON,
    ),
    command("show = prompts:show_prompt", "Show a question and the answers it accepts.", PROMPT, JSON),
)

INBOX = (
    command(
        "list = act:list_letters", "List dead letters: content, arrival time, and why each failed.", JSON
    ),
    command(
        "retry = act:retry", "Give dead letters to the bot again, after you have fixed the cause.", *LETTERS
    ),
    command("drop = act:drop", "Discard dead letters for good.", *LETTERS),
)

LOCKS = command("locks = prompts:list_locks", "", JSON)
LOCKS_RELEASE = command(
    "release = prompts:release_lock",
    "Release the lock of a session that is on hold, after you have checked its unfinished work. End other "
    "sessions instead.",
    argument("NAME", "The lock.", "name"),
    option(
        "--session ID", "The session that must hold the lock; otherwise nothing is released.", str, ...
    )._replace(ids="session"),
)

STORE = (
    command(
        "release = store:release_store",
        """Release a suspended store, after you have checked which work may run a second time.

        A store is suspended if it is older than the last acknowledged commit when it is opened: its files were damaged, replaced or
        restored. `sayso doctor` lists the work that may run again.
        """,
    ),
    command(
        "compact = store:compact_store",
        """Rewrite the database without deleted data. From then on it frees space automatically.

        This briefly needs free disk space of the same size. Stop everything that uses the database first.
        """,
    ),
    command(
        "copy = store_copy:copy_stores",
        """Copy a whole store to an empty one and verify the copy: from an SQLite file to a Postgres database, or back,
        or to other keys.

        Stop the bot on both first. All sessions then continue in the new store, including those that wait for people.
        """,
        argument("FROM", "A file, or the URL of a database.", "source"),
        argument("TO", "A new file, or the URL of an empty database.", "target"),
        option(
            "--to-env FILE",
            "Settings of the new store, in .env format: SAYSO_SECRET_KEY and SAYSO_ENCRYPTION_KEYS. Others "
            "come from this home.",
            Path,
            **FILE,
        ),
    ),
)

GRANTS = (
    command("list = grants:list_grants", "List agent calls that people always allow, in open runs.", JSON),
    command(
        "revoke = grants:revoke_grant",
        "Revoke a grant, so that people are asked about such calls again.",
        argument("ID", "The ID of the approval that gave the grant.", "grant_id"),
        AS,
        JSON,
    ),
)

AUDIT = (
    command(
        "export = audit:export_audit",
        """Write who was asked, who decided what and when, and what ran: JSON lines, one record per event.

        Text from people and programs is replaced by its SHA-256 unless you give --content. The export ends with a signed checkpoint.
        `sayso verify FILE`, or deploy/verify_audit.py with only the public key, checks that nobody changed it.
        """,
        option("-o --output", "A new file. [standard output]", Path, **FILE),
        option(
            "--cursor FILE",
            "Continue where the previous export ended, and store where this one ends.",
            Path,
            **FILE,
        ),
        flag("--content", "Include the text of messages and the input and output of nodes."),
    ),
    command(
        "key = audit:show_key",
        "Print the public keys of the audit log, oldest first: give the first one to auditors.",
        flag("--rotate", "Switch to a new signing key. The old key signs the change."),
    ),
)

NOTE_ID = argument("ID", "The note, as `memory list` shows it.", "note_id")
MEMORY = (
    command("list = memory:list_notes", "List notes that agents wrote for later runs.", JSON),
    command(
        "edit = memory:edit_note",
        "Change the text of a note.",
        NOTE_ID,
        argument("TEXT", "The new text.", "text"),
        AS,
        JSON,
    ),
    command(
        "forget = memory:forget_note",
        "Delete a note's text; the record of who deleted it stays.",
        NOTE_ID,
        AS,
        JSON,
    ),
)

HOOK_WAIT = option("--wait SECONDS", "How long a call waits for people.", float, 300.0, min=0, max=86400)
INTERACTIVE = flag("--interactive", "Ask in addition to the dialog in the terminal: the first answer counts.")
GATE = (
    command(
        "login = gate:login",
        """Create a token for an agent on one machine. With it the agent can ask people, but not answer.

        Run this on the bot's machine, as the bot's user. The token is printed once; give it to the agent as SAYSO_GATE_TOKEN.
        """,
        option("--agent NAME", "The agent and its machine: claude-code:laptop.", str, ...),
        option(
            "--person ID",
            "The Slack user ID of the person it works for: the requester of its runs.",
            str,
            ...,
        ),
        option("--days", "How long it is valid.", float, 90.0, min=0.01, max=3650),
        JSON,
    ),
    command("tokens = gate:list_tokens", "List the tokens of agents, without their values.", JSON),
    command(
        "revoke = gate:revoke",
        "Revoke a token: the gate refuses it from now on.",
        argument("ID", "The token's ID, as `gate tokens` shows it.", "token_id"),
        JSON,
    ),
    command(
        "hook = gate:hook",
        """Decide one call of an agent's program: read the call from standard input and print the decision.

        Any error exits with 2, which blocks the call. Set SAYSO_GATE_URL to the gate's address and SAYSO_GATE_TOKEN to the agent's token.
        """,
        option("--client NAME", "The program: claude or codex.", str, "claude"),
        HOOK_WAIT,
        INTERACTIVE,
    ),
    command(
        "resume = gate:resume",
        "Resume waiting Claude Code sessions as soon as people have decided, until Ctrl-C.",
        argument("[ARGUMENT...]", "More arguments for claude, after `--`.", "words", list[str], None),
        flag("--once", "Check once and exit."),
    ),
    command(
        "proxy = gate:proxy",
        """Run between an MCP client and a server, and hold tool calls until they are allowed.

        In rules a tool is called `mcp__NAME__TOOL`. The server gets exactly the bytes that were approved; with --url it gets
        them as canonical JSON.
        """,
        argument("[COMMAND...]", "The server and its arguments, after `--`.", "words", list[str], None),
        option("--name NAME", "The server's name in rules.", str, ...),
        option("--url", "A streamable HTTP server, instead of a command.", str, None),
        option("--token-from VARIABLE", "The environment variable with a bearer token for --url.", str, None),
        option("--wait SECONDS", "How long a call waits for people.", float, 45.0, min=0, max=86400),
    ),
    command(
        "agents = gate:agents",
        """Ask people about calls of Anthropic's Managed Agents that wait for confirmation, until Ctrl-C.

        Needs an API key of the agents' workspace in ANTHROPIC_API_KEY. Each decision is sent back once.
        """,
        option("--agent ID", "The agent whose sessions to check. [all]", str, None),
        option("--every SECONDS", "How often to check.", float, 5.0, min=1, max=3600),
        flag("--once", "Check once and exit."),
    ),
    command(
        "doctor = gate:doctor",
        "Check, as the agent's user, that its calls reach the gate and that it cannot bypass the gate.",
        JSON,
    ),
    command(
        "settings = gate:settings",
        "Print the hooks for the user or managed settings of Claude Code.",
        HOOK_WAIT,
        INTERACTIVE,
    ),
)

GROUPS = (
    group("sessions", "Inspect, resume and end sessions.", SESSIONS),
    group("prompts", "List and answer open questions.", PROMPTS),
    group("memory", "List, edit and delete notes that agents wrote for later runs.", MEMORY),
    group("grants", "List and revoke grants: agent calls that people always allow for a time.", GRANTS),
    group("gate", "Let agents ask people in Slack before they act.", GATE),
    group("audit", "Export what people decided and what ran, for auditors.", AUDIT),
    group("inbox", "Handle dead letters: messages and clicks that failed several times.", INBOX),
    group(
        "locks",
        "List locks: who holds each one, since when, and who waits for it, in order.",
        [LOCKS_RELEASE],
        LOCKS,
    ),
    group("store", "Manage the store: compact, copy, release after a suspension.", STORE),
)
