"""Several command lines at once on one database, some of them killed, and what must hold of each of them.

A seed chooses everything but the scheduling: which commands, by whom, which of them are stopped and killed, and when. Every
command runs the whole command line in a process of its own, forked from a server that has read the modules, so that a
kill strikes work and not imports. Each says something that only it says, by which the journal shows what became of it.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import wait as any_of
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from engine.journal.events import Event, decode_event
from engine.journal.phases import ENDED
from engine.journal.records import Head
from engine.storage.sqlite import SqliteStore, open_sqlite
from prompt_state import question_row as prompt_store
from prompt_state.question_row import PromptState
from tests.cli.clikit import Terminal, command, environment
from tests.cli.crowd_command import carry_out
from tests.support import prefork

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.cli.crowd_command"])

DEADLINE = 60.0
PEOPLE = ("ana", "ben", "cleo")
CARRIED_OUT = (0, 1, 3)
"""Exit codes of a command that was carried out: the session is complete, failed or was aborted, or waits."""
_KEPT = ("queued", "The request stays queued", "It stays queued", "The request is kept")
REFUSED = (2, 5)
"""Exit codes of one that was not: the question is unknown by now, or takes this no more."""
_KEY = "$SAYSO_IDEMPOTENCY_KEY"


def _counted(name: str, more: str = "", then: str = "") -> str:
    """A shell node that adds its key to the log, and then does more."""
    script = f'echo "{_KEY}" >> "$LOG"{then}'
    quoted = script.replace("'", "''")
    env = '{LOG: "{{ inputs.log }}"}'
    return f"{{id: {name}, type: shell, with: {{script: '{quoted}', env: {env}}}{more}}}"


def flow_text(*, locked: bool, text: str = "done") -> str:
    """Counted nodes around questions, an approval, waits, a node that is tried again, and a deadline."""
    once = '; test -e "$LOG.$SAYSO_SESSION_ID" || { touch "$LOG.$SAYSO_SESSION_ID"; exit 1; }'
    approvers = ", ".join(f"local:{name}" for name in PEOPLE)
    return f"""flow: crowd
allowed_to_start: ["local:ana", "local:ben", "local:cleo"]
inputs:
  log: {{type: string}}
{"lock: crowd" if locked else ""}
nodes:
  - {_counted("begin")}
  - id: both
    type: parallel
    branches:
      left:
        - {{id: which, type: ask, with: {{message: Which?, who: [{approvers}]}}}}
        - {_counted("chosen", then="; sleep 0.2")}
      right:
        - {{id: nap, type: wait, with: {{for: 300ms}}}}
        - {_counted("anew", ", on_crash: again", "; sleep 0.1")}
        - {_counted("flaky", ", retry: {attempts: 2, delay: 200ms}", once)}
  - id: gate
    type: approval
    with:
      message: Go?
      approvers: [{approvers}]
      required: 2
      on_reject: continue
      form: {{properties: {{count: {{type: integer, default: 1}}}}}}
      editable: [count]
  - id: each
    type: foreach
    with: {{items: [a, b], as: item}}
    body:
      - {_counted("did")}
      - {{id: how, type: ask, with: {{message: "How?", who: [{approvers}]}}}}
  - id: late
    type: ask
    with: {{message: Late?, who: [{approvers}], timeout: 2s, on_timeout: default, default: never}}
  - {_counted("final")}
  - {{id: tell, type: message, with: {{text: {text}}}}}
finally:
  - {_counted("closing")}
"""


@dataclass
class Done:
    """A command that was started, and what became of it. `token` is what only it says."""

    kind: str
    who: str
    arguments: list[str]
    token: str = ""
    session_id: str = ""
    fate: str = ""
    off: bool = False
    """Whether the bot was off meanwhile."""
    code: int | None = None
    out: str = ""
    err: str = ""

    @property
    def kept(self) -> bool:
        """Whether it was only kept for somebody who is not there."""
        return any(word in self.out for word in _KEPT)

    def __str__(self) -> str:
        said = "sayso " + " ".join(self.arguments)
        return f"[{self.who}] {said} ({self.fate or 'left alone'}) -> {self.code}\n{self.out}{self.err}"


@dataclass
class Crowd:
    """One folder with one database, and everything that was run on it."""

    folder: Path
    seed: int
    locked: bool = False
    slack: bool = False
    done: list[Done] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        (self.folder / "crowd.yml").write_text(flow_text(locked=self.locked))
        self.home = self.folder / (".sayso/dev" if self.slack else ".sayso")
        self.bot: prefork.Forked | None = None

    # --- what is in the store --------------------------------------------------------------------------

    @contextmanager
    def store(self) -> Iterator[SqliteStore]:
        """The database, for a look."""
        store = open_sqlite(self.home / "sayso.db")
        try:
            yield store
        finally:
            store.close()

    def heads(self) -> list[Head]:
        """All sessions."""
        with self.store() as store:
            return store.sessions.heads()

    def waiting(self) -> list[PromptState]:
        """The open questions."""
        with self.store() as store:
            return prompt_store.waiting(store.prompts)

    def journals(self) -> dict[str, list[Event]]:
        """Every session's journal, verified."""
        with self.store() as store:
            ids = [head.session_id for head in store.sessions.heads()]
            return {known: [decode_event(row) for row in store.sessions.journal(known)] for known in ids}

    # --- the bot -------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Start the bot in its local workspace; returns once it serves."""
        argv = command("dev", "crowd.yml", "--port", "0", "--no-open")
        with (self.folder / "bot.err").open("a") as errors:
            self.bot = prefork.start(argv, cwd=self.folder, env=environment(self.folder), stderr=errors)
        assert self.bot.stdout is not None
        while "http" not in (line := self.bot.stdout.readline()):
            assert line, (self.folder / "bot.err").read_text()

    def stop_serving(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End the bot."""
        if self.bot is not None:
            self.bot.send_signal(number)
            self.bot.wait(DEADLINE)
            self.bot = None

    # --- running commands ----------------------------------------------------------------------------------

    def start(self, done: Done) -> ForkServerProcess:
        """Start a command."""
        name = str(self.folder / f"said-{len(self.done)}")
        self.done.append(done)
        environ = environment(self.folder, SAYSO_USER=done.who, SAYSO_HOME=str(self.home))
        process = _FORKS.Process(
            target=carry_out, args=(str(self.folder), environ, done.arguments, name), name=name
        )
        process.start()
        return process

    def end(self, done: Done, process: ForkServerProcess) -> None:
        """Note how a command ended."""
        process.join(DEADLINE)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise AssertionError(f"never ended: {done}")
        done.code = process.exitcode
        for ending in ("out", "err"):
            path = Path(f"{process.name}.{ending}")
            setattr(done, ending, path.read_text() if path.exists() else "")

    def run(self, *arguments: str, who: str = "ana") -> Done:
        """A command with nobody beside it."""
        done = Done("alone", who, list(arguments))
        self.end(done, self.start(done))
        return done

    def at_once(self, commands: list[Done]) -> None:
        """Run commands side by side; those with a fate meet it after a while that the seed chooses."""
        for done in commands:
            done.off = self.slack and self.bot is None
        begun = [(done, self.start(done)) for done in commands]
        plans = []
        for done, process in begun:
            if done.fate:
                at = time.monotonic() + self.random.uniform(0, 0.7)
                plans.append((at, done.fate, process))
                if done.fate == "stop":
                    plans.append((at + self.random.uniform(0, 1.0), "kill", process))
        for at, fate, process in sorted(plans, key=lambda plan: plan[0]):
            any_of([process.sentinel], max(0.0, at - time.monotonic()))
            self._strike(process, fate)
        if self.locked:
            # Whoever follows a session that waits for its lock does so until that comes.
            until = time.monotonic() + 4.0
            for _, process in begun:
                any_of([process.sentinel], max(0.0, until - time.monotonic()))
                self._strike(process, "term")
        for done, process in begun:
            self.end(done, process)

    def round(self) -> None:
        """Three or four commands at once; sometimes the bot is off meanwhile."""
        off = self.slack and self.random.random() < 0.3
        commands = self.some(self.random.randint(3, 4), 0.2 if self.slack else 0.4)
        if off:
            self.stop_serving(self.random.choice([signal.SIGKILL, signal.SIGTERM]))
        self.at_once(commands)
        if off:
            self.serve()

    @contextmanager
    def followed(self, head: Head) -> Iterator[None]:
        """A session that somebody follows at a terminal, with every third seed: who answers nothing, and is killed."""
        if self.seed % 3 or self.slack:
            yield
            return
        argv = command("sessions", "resume", head.session_id)
        terminal = Terminal(argv, self.folder, environment(self.folder))
        reading = threading.Thread(target=terminal.code, daemon=True)
        reading.start()
        try:
            yield
        finally:
            terminal.process.kill()
            reading.join()
            terminal.close()

    def _strike(self, process: ForkServerProcess, fate: str) -> None:
        number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}[fate]
        if process.exitcode is None and process.pid is not None:
            os.kill(process.pid, number)

    # --- what people do ------------------------------------------------------------------------------------

    def _token(self) -> str:
        return f"t{self.seed}x{len(self.done)}x{self.random.randrange(10**6)}"

    def some(self, count: int, fates: float = 0.4) -> list[Done]:
        """So many commands that make sense now, two or three of them about one question where there is one."""
        waiting, heads = self.waiting(), [head for head in self.heads() if head.status not in ENDED]
        if not heads:
            return []
        prompt = self.random.choice(waiting) if waiting else None
        commands = []
        for _ in range(count):
            head = self.random.choice(heads)
            about = prompt is not None and self.random.random() < 0.6
            done = self._about(prompt) if about and prompt is not None else self._of(head)
            if self.random.random() < fates:
                done.fate = self.random.choice(["kill", "kill", "stop", "term"])
            commands.append(done)
        return commands

    def _about(self, prompt: PromptState) -> Done:
        """A command about a question."""
        who, token, of = self.random.choice(PEOPLE), self._token(), prompt.prompt_id
        flags = ["--json"] if self.random.random() < 0.5 else []
        kind = self.random.choice(["answer"] * 6 + ["hand-over", "edit"])
        match kind:
            case "hand-over":
                to = ["--to", f"local:{token}"]
                return Done("said", who, ["prompts", "hand-over", of, *to, *flags], token, prompt.session_id)
            case "edit":
                token = str(self.random.randrange(10**9, 10**12))
                edit = ["--edit", f"count={token}"]
                return Done("said", who, ["prompts", "answer", of, *edit, *flags], token, prompt.session_id)
        if prompt.kind == "approval":
            said = ["Approve", "--reason", token]
        elif prompt.options:
            said, token = ["--value", "again"], ""
        else:
            said = [token]
        return Done("said", who, ["prompts", "answer", of, *said, *flags], token, prompt.session_id)

    def _of(self, head: Head) -> Done:
        """A command about a session."""
        who, token, of = self.random.choice(PEOPLE), self._token(), head.session_id
        no_wait = ["--no-wait" if self.locked else "--wait"]
        kind = self.random.choice(
            ["show", "list", "go on", "go on", "message", "pause", "pause", "migrate", "fork", "abort"]
        )
        match kind:
            case "show":
                return Done("look", who, ["sessions", "show", of, "--events", "--json"])
            case "list":
                look = self.random.choice([["sessions", "list", "--all"], ["prompts", "list"], ["locks"]])
                return Done("look", who, [*look, "--json"])
            case "go on":
                return Done("go on", who, ["sessions", "resume", of, *no_wait])
            case "message":
                return Done("said", who, ["sessions", "resume", of, token, *no_wait], token, of)
            case "pause":
                return Done("held", who, ["sessions", "pause", of, "--reason", token], token, of)
            case "migrate":
                (self.folder / f"{token}.yml").write_text(flow_text(locked=self.locked, text=token))
                return Done("migrate", who, ["sessions", "migrate", of, f"{token}.yml", "--json"], token, of)
            case "fork":
                return Done("fork", who, ["sessions", "fork", of, *no_wait])
        if self.random.random() < 0.3:
            return Done("said", who, ["sessions", "abort", of, "--reason", token], token, of)
        return Done("go on", who, ["sessions", "resume", of, *no_wait])

    # --- to the end ----------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Answer and resume one after the other until every session has ended."""
        until = time.monotonic() + 150
        while time.monotonic() < until:
            heads = [head for head in self.heads() if head.status not in ENDED]
            if not heads:
                return
            waiting = {prompt.session_id: prompt for prompt in self.waiting()}
            with self.store() as store:
                behind = {row.session_id for row in store.locks.rows()[1:]}
            for head in [head for head in heads if head.session_id not in behind]:
                self._step(head, waiting.get(head.session_id))
        raise AssertionError(f"no end: {[(head.session_id, head.status, head.phase) for head in heads]}")

    def _step(self, head: Head, prompt: PromptState | None) -> None:
        of = head.session_id
        if head.phase == "held":
            done = self.run("sessions", "resume", of, "go", "--no-wait")
        elif prompt is None and head.thread_key is not None:
            time.sleep(0.2)
            return
        elif prompt is None:
            done = self.run("sessions", "resume", of, *(["--no-wait" if self.locked else "--wait"]))
        elif prompt.kind == "approval":
            who = self.random.choice(PEOPLE)
            done = self.run("prompts", "answer", prompt.prompt_id, "Reject", who=who)
        elif prompt.options:
            done = self.run("prompts", "answer", prompt.prompt_id, "--value", "again")
        else:
            done = self.run("prompts", "answer", prompt.prompt_id, "over", who=self.random.choice(PEOPLE))
        if done.code == 5 and self.random.random() < 0.3:
            self.run("sessions", "abort", of)  # it was handed to somebody whom nobody plays
        assert done.code in (0, 1, 3, 5, 2), done


# --- one seed ----------------------------------------------------------------------------------------------


def play(folder: Path, seed: int, rounds: int, *, locked: bool = False, slack: bool = False) -> Crowd:
    """Begin sessions, let so many rounds of commands loose on them, and bring all of them to their ends."""
    crowd = Crowd(folder, seed, locked, slack)
    given = ["-i", f"log={folder}/log"]
    try:
        if slack:
            crowd.serve()
            begun = [crowd.run("start-flow", "crowd.yml", "--channel", "#ops", *given)]
        else:
            no_wait = ["--no-wait" if locked else "--wait"]
            begun = [crowd.run("run", "crowd.yml", *given, *no_wait) for _ in range(2 if locked else 1)]
        assert all(done.code in (0, 3) for done in begun), begun
        with crowd.followed(crowd.heads()[0]):
            for _ in range(rounds):
                crowd.round()
        crowd.finish()
    finally:
        crowd.stop_serving(signal.SIGTERM)
    return crowd
