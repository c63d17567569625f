"""The command line, `sayso`.

Theory: `commands` declares commands and their options and imports nothing heavy, so that `--help` answers at once; what
a command does stands in a module of its own that is imported when the command runs. Everything that a person is
told goes to standard output, errors and progress of a machine's run to standard error; where a machine reads
(`--json`, or nobody at a terminal) standard output is one JSON document and nothing else.

A refusal or a broken setting is one clear message and an exit code (`bot.terminal.console`), never a traceback. A session that is
left, by Ctrl-C, by a pause, by a crash, stays in the store, and the message says how to go on with it.

Files:

* `act`: acts on a session by a request in the inbox, and awaits its receipt; `inbox`, the dead letters
* `app`: the root: options that all commands share, and what errors become
* `audit`: `audit export`, and the seals of what auditors get
* `commands`: the commands, their options and their help, as data; what they do is imported when they run
* `completion`: completion of commands, options, names of flows and files in bash, zsh and fish
* `declare`: how a command is declared, as data
* `doctor`: checks of an installation; whether it is served
* `dry_run`: `run --dry-run`, what a flow would do; `test`, which plays scenarios
* `erase`: `sessions erase`, what sessions held and what names a person
* `flow_names`: the names that flow files give themselves, without reading them as flows
* `flows`: `validate`, `schema`, `manifest` and `graph`: flow files are read, never executed
* `fork`: `sessions fork` and `sessions migrate`
* `grants`: which calls of agents people allow always, and taking that back
* `identities`: whether somebody whom a command names is there, as far as that can be found out from here
* `init`: a folder to start from; the runbooks of the cookbook
* `lookup`: flows by name or file, their inputs, sessions and questions by the beginning of their ids
* `memory`: what agents have noted for later runs
* `options`: the options that several commands have
* `parser`: from the words of a command line to a command and the values of its options
* `prompts`: `prompts list`, `show`, `answer`, and `hand-over`; `locks`
* `report`: `sessions report`, a session as a page to print
* `resume`: `sessions resume`, `pause` and `abort`
* `run`: `run`, a flow in this terminal
* `serve`: `start` and `dev`, the bot; `start-flow`, a flow in a channel
* `sessions`: `sessions list`; `spend`, what agents have cost
* `show`: `sessions show` and `export`
* `store`: `store`, `backup`, `restore`; deleting and releasing sessions; `verify`
* `store_copy`: `store copy`
* `web`: `web`, the control room
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """The console script: run the command line and end the process with its exit code."""
    _open_streams()
    try:
        from bot.cli.app import run
    except KeyboardInterrupt:
        # Reading the modules takes a moment, and people press Ctrl-C in it too.
        from bot.terminal.console import INTERRUPTED

        sys.exit(INTERRUPTED)
    sys.exit(run(sys.argv[1:]))


def _open_streams() -> None:
    """Open the standard streams that the process was started without (`sayso ... <&-`), so that all can be used. What goes to
    a file or pipe is UTF-8 in every locale; a terminal gets `?` for what it cannot show."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
            continue
        encoding = stream.encoding if stream.isatty() else "utf-8"
        stream.reconfigure(encoding=encoding, errors=stream.errors if mode == "r" else "replace")
