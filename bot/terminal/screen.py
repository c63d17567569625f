"""The terminal as a follower sees it: lines, a spinner while something works, and lines that are typed.

Lines are read by the event loop from a terminal that keeps its own line editing, so a question can be given up the
moment somebody else answers it, and no thread is left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING, TextIO

from bot.faces.question import Face
from bot.rendering.agents import text_of
from bot.terminal.console import Paint, clean, columns, fitted, moment, one_line
from bot.terminal.described import MARKS, described, painted
from bot.terminal.forms import EDIT, FILL, field_lines, filling_of
from bot.terminal.narration import face_lines, told
from engine.forms import Field, is_numbered
from engine.journal import events as ev
from engine.journal.events import Event
from engine.journal.queries import TURN
from engine.journal.state import State
from engine.language import timestamps
from engine.language.counting import elapsed
from engine.nodes.types.registry import mode_of
from engine.run.stored import utc_now

if TYPE_CHECKING:
    from engine.messages.turns import TurnEvent

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAME_SECONDS = 0.12
_LABEL = 1_000


class TerminalScreen:
    """Tells on `out`; reads from standard input."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self.paint = Paint(out)
        self._live = out.isatty()
        self._spinner: asyncio.Task[None] | None = None
        self._working: dict[str, float] = {}
        self._until: str | None = None
        self._typed = b""
        self._texts: dict[str, tuple[dict[int, str], int]] = {}
        self._handling: set[str] = set()

    @property
    def working(self) -> str:
        """The nodes that work right now."""
        return ", ".join(clean(path) for path in self._working)

    # --- lines ---------------------------------------------------------------------------------------------

    def line(self, text: str = "") -> None:
        """One line of ours, whose parts from outside were cleaned."""
        self._wipe()
        print(text, file=self._out, flush=True)

    def note(self, text: str) -> None:
        """Anything else worth a line."""
        self.line(self.paint("dim", clean(text)))

    def problem(self, text: str) -> None:
        """Why an answer was not taken."""
        self.line(f"  {self.paint('red', clean(text))}")
        if sys.stdin.isatty():
            self._cursor()

    def message(self, text: str) -> None:
        """The text of a `message` node."""
        for part in clean(text).splitlines() or [""]:
            self.line(f"  {self.paint('blue', '┃')} {part}")

    def narrate(self, state: State, event: Event) -> None:
        """A committed event; `state` is the session's state after it, or later."""
        self._until = None
        # Which nodes work right now.
        path = event.path or ""
        if isinstance(event, ev.CallOutcome):
            path = event.turn or path
        elif isinstance(event, ev.Start) and event.node_type == TURN:
            _, told = self._texts.pop(path, ({}, 0))
            if told:
                self.note(f"  {path} begins again")
        if isinstance(event, ev.Start) and mode_of(event.node_type) == "run":
            self._working[path] = time.monotonic()
            if self._live:
                self._spin()
            else:
                self.line(f"  ▸ {clean(path)}")
        elif isinstance(event, ev.AttemptOver | ev.CallOutcome):
            self._working.pop(path, None)
        if isinstance(event, ev.CallOutcome) and event.turn is not None:
            self._said(event)
        if isinstance(event, ev.NodeFailing) and event.list_id is not None:
            self._handling.add(path)
        elif isinstance(event, ev.ContainerCompleted) and path in self._handling:
            # The `on_failure` of a node has ended: the node's own outcome comes after it.
            self._handling.discard(path)
            return
        for found in described(state, event):
            if found.mark not in ("asked", "said"):  # those stand on the screen in full
                self.line(painted(found, self.paint))

    # --- agents --------------------------------------------------------------------------------------------

    def streamed(self, session_id: str, path: str, event: TurnEvent) -> None:
        """A model says something: its lines are told as soon as each is whole."""
        from engine.messages.turns import TextDelta, ThinkingDelta  # only with the first that a model says

        if not isinstance(event, TextDelta | ThinkingDelta):
            return
        blocks, told = self._texts.setdefault(path, ({}, 0))
        blocks[event.index] = blocks.get(event.index, "") + event.text
        text = _joined(blocks)
        end = text.rfind("\n") + 1
        if end > told:
            self._tell_model(text[told:end])
        self._texts[path] = (blocks, max(told, end))

    def _said(self, event: ev.CallOutcome) -> None:
        """A model call is whole: what was not told yet of its text is told."""
        text, (blocks, told) = text_of(event.answer), self._texts.pop(event.turn or "", ({}, 0))
        if not text.startswith(_joined(blocks)[:told]):
            told = 0
        self._tell_model(text[told:])
        if not event.sure:
            self.line(f"  {self.paint('yellow', '!')} stopped here")

    def _tell_model(self, text: str) -> None:
        for part in clean(text).strip("\n").splitlines():
            self.line(f"  {self.paint('dim', '│')} {part}")

    def waiting(self, due_at: str) -> None:
        """Nothing happens until then."""
        self._until = due_at
        if self._live:
            self._spin()
        else:
            self.line(f"  {self.paint(*MARKS['waiting'])} until {moment(due_at)}")

    # --- the spinner ---------------------------------------------------------------------------------------

    def _spin(self) -> None:
        if self._spinner is None or self._spinner.done():
            self._spinner = asyncio.get_running_loop().create_task(self._spinning())

    async def _spinning(self) -> None:
        frame = 0
        while self._working or self._until:
            frame += 1
            sign = self.paint("blue", _FRAMES[frame % len(_FRAMES)])
            if self._until is not None:
                left = elapsed(max(0.0, timestamps.seconds_between(utc_now(), self._until)))
                doing = f"waits until {moment(self._until)}, {left} left (Ctrl-C keeps it)"
            else:
                now = time.monotonic()
                work = self._working.items()
                doing = ", ".join(f"{clean(path)} {elapsed(now - since)}" for path, since in work)
            # A line that continues in the next row could not be wiped.
            doing = fitted(doing, columns(self._out.fileno()) - 5)
            self._out.write(f"\r\x1b[2K  {sign} {doing}")
            self._out.flush()
            await asyncio.sleep(_FRAME_SECONDS)
        self._wipe()

    def _wipe(self) -> None:
        if self._live:
            self._out.write("\r\x1b[2K")

    def close(self) -> None:
        """Leave the terminal as it was found."""
        self._working.clear()
        self._until = None
        if self._spinner is not None:
            self._spinner.cancel()
        self._wipe()
        self._out.flush()

    # --- questions -----------------------------------------------------------------------------------------

    def question(self, said: Face) -> None:
        """Put a question. What was typed before it does not count as an answer."""
        # What was typed before a question was seen is not an answer to it.
        self._typed = b""
        if sys.stdin.isatty():
            import termios

            with contextlib.suppress(termios.error, OSError):
                termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        first, *rest = face_lines(said)
        self.line()
        self.line(f"{self.paint('yellow', '?')} {self.paint('bold', first)}")
        # Whoever started it need not be told that they are asked, unless it is asked for one item of several.
        lead = [] if said.asked == ["requester"] and "/" not in said.question.path else [told(said.lead)]
        for part in (*rest, *lead, *option_lines(said)):
            self.line(f"  {part}")
        if filling_of(said.question) is None:
            self._cursor()

    def field(self, field: Field) -> None:
        """Ask for one field of the form that the question has."""
        first, *rest = (one_line(text, 300) for text in field_lines(field))
        self.line(f"  {self.paint('bold', first)}")
        for text in rest:
            self.line(f"    {text}")
        self._cursor()

    def _cursor(self) -> None:
        self._out.write("> ")
        self._out.flush()

    async def read(self) -> str:
        """The next line that is typed. Raises `EOFError` when there will be none."""
        descriptor = sys.stdin.fileno()
        loop = asyncio.get_running_loop()
        while b"\n" not in self._typed:
            ready: asyncio.Future[None] = loop.create_future()
            loop.add_reader(descriptor, _settle, ready)
            try:
                await ready
            finally:
                loop.remove_reader(descriptor)
            data = os.read(descriptor, 65536)
            if not data:
                raise EOFError
            self._typed += data
        line, _, self._typed = self._typed.partition(b"\n")
        return line.decode("utf-8", "replace").rstrip("\r")


def _joined(blocks: dict[int, str]) -> str:
    """The text of a model call as far as it has come."""
    return "\n\n".join(blocks[index] for index in sorted(blocks) if blocks[index])


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def option_lines(said: Face) -> list[str]:
    """The choices of a question, numbered where a number is clear, and the other ways to answer it."""
    prompt = said.question
    numbers = is_numbered(prompt.options)
    fill = prompt.options and prompt.fills_beside
    return [
        *([f"- {FILL}: fill in the form"] if fill else []),
        *(
            f"{f'{each.index + 1})' if numbers else '-'} {one_line(each.label, _LABEL)}"
            f"{'' if each.press else ': …'}"
            for each in said.controls
        ),
        *(["- or your own answer"] if prompt.options and prompt.accepts_text else []),
        *([f"- the path of {said.files}"] if said.files else []),
        *([f"- {EDIT}: edit the proposal first"] if "edit" in said.ways else []),
    ]
