"""The command line, `sayso`.

Theory: `commands` declares commands and their options and imports nothing heavy, so that `--help` answers at once; what
a command does is in a module of its own that is imported when the command runs. Everything that a person is
told goes to standard output, errors and progress of a machine's run to standard error; where a machine reads
(`--json`, or nobody at a terminal) standard output is one JSON document and nothing else.

A refusal or a broken setting is one clear message and an exit code (`bot.terminal.console`), never a traceback. A session that is
left, by Ctrl-C, by a pause, by a crash, stays in the store, and the message says how to continue with it.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """The console script: run the command line and end the process with its exit code."""
    # Streams that the process was started without (`>&-`) lead nowhere. Files and pipes get UTF-8, and a `?` stands for each
    # character that a terminal cannot show.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
            continue
        encoding = stream.encoding if stream.isatty() else "utf-8"
        stream.reconfigure(encoding=encoding, errors=stream.errors if mode == "r" else "replace")
    if sys.argv[1:3] == ["gate", "hook"] and "--help" not in sys.argv:
        # An agent waits for each of its calls: nothing else is loaded.
        from bot.gate.hook import main as hook

        sys.exit(hook(sys.argv[3:]))
    try:
        from bot.cli.app import run
    except KeyboardInterrupt:
        # Reading the modules takes a moment, and people press Ctrl-C in it too.
        from bot.terminal.console import INTERRUPTED

        sys.exit(INTERRUPTED)
    sys.exit(run(sys.argv[1:]))
