"""One command line in a process that was forked, with everything read that a command reads."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import bot.cli.act
import bot.cli.app
import bot.cli.fork
import bot.cli.identities
import bot.cli.prompts
import bot.cli.resume
import bot.cli.run
import bot.cli.sessions
import bot.compose.environment
import bot.terminal.follow


def carry_out(cwd: str, environ: dict[str, str], arguments: list[str], name: str) -> None:
    """Be `sayso ARGUMENTS` in this folder, with what it says in the files `NAME.out` and `NAME.err`."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environ)
    for number, ending in ((1, "out"), (2, "err")):
        descriptor = os.open(f"{name}.{ending}", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        os.dup2(descriptor, number)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    Path(f"{name}.ready").touch()
    sys.exit(bot.cli.app.run(arguments))
