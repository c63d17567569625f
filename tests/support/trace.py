"""Which files of ours a typed reply passes; `python -m tests.support.trace` prints them.

The bot is the whole one in process (`tests.support.inprocess`). A call is counted where its function is entered
between the reply and the moment when nothing is in progress any more: the row of the inbox, the step, its commit,
and the messages that follow.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

from tests.support.inprocess import play, town

ROOT = Path(__file__).resolve().parents[2]
OURS = ("bot", "engine", "prompt_state")
_TWO = """
flow: two
nodes:
  - {id: first, type: ask, with: {message: "What now?"}}
  - {id: second, type: ask, with: {message: "And after {{ nodes.first.text }}?"}}
"""

Trace = dict[str, set[str]]
"""The functions that were entered, by file."""


def trace_of_a_reply() -> Trace:
    """Answer the first of two questions with a typed reply, and note what is called until the second is asked."""
    found: Trace = defaultdict(set)

    def entered(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            found[frame.f_code.co_filename].add(frame.f_code.co_qualname)

    async def reply() -> None:
        with TemporaryDirectory() as folder:
            async with town(Path(folder), {"two": _TWO}) as place:
                thread = await place.start("ana", "two")
                sys.setprofile(entered)
                try:
                    place.say("ana", "carry on", root=thread)
                    await place.settle()
                finally:
                    sys.setprofile(None)
                assert "And after carry on?" in place.thread(thread)[-1]["text"]

    play(reply)
    return {name: functions for path, functions in sorted(found.items()) if (name := _ours(path))}


def _ours(path: str) -> str | None:
    """The file's name in the project, where it is one of ours; the local workspace stands for Slack and is none."""
    file = Path(path)
    if not file.is_relative_to(ROOT):
        return None
    name = file.relative_to(ROOT)
    return str(name) if name.parts[0] in OURS and name.parts[:2] != ("bot", "workspace") else None


if __name__ == "__main__":
    trace = trace_of_a_reply()
    for name, functions in trace.items():
        print(f"{len(functions):4}  {name}")
    print(f"{len(trace)} files, {sum(map(len, trace.values()))} functions")
