"""Interface of runners: their surroundings and their outcomes.

A runner does the one thing its node describes, in the world outside, and reports how that ended *as a value*: it
retries nothing, journals nothing and decides nothing about the next steps. Three endings exist, because a crash is not
a failure: `Completed`, `Failed` (it is known to have ended badly) and `Interrupted` (it was left or lost, and the
extent of its effect is unknown).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from engine.language.codec import Json, encode
from engine.language.errors import NotJson
from engine.nodes.runtime.folder import private_folder
from engine.nodes.types.spec import Meter, no_meter

if TYPE_CHECKING:
    from engine.messages.turns import TurnEvent


class Completed(Struct, frozen=True):
    """The work is done; `output` becomes `nodes.<id>`."""

    output: Json


class Failed(Struct, frozen=True):
    """The work ended and did not succeed.

    `type` is a stable word for flows to compare (`exit_code`, `http_status`, `timeout`, ...), `message` is for people,
    `details` is JSON, with the whole output if there is one.
    """

    type: str
    message: str
    details: Json = None


class Interrupted(Struct, frozen=True):
    """The work was left in the middle, and the extent of its effect is unknown.

    `timeout`: it took longer than `NodeContext.timeout`. `cut`: the session is leaving (`aborted` was set), or the
    other side went away after it had our request. `details` holds any output so far. `left`: the session is leaving
    too, but the work stopped at a checkpoint and continues there when it runs again; `details` then becomes
    `NodeContext.saved`. `asks`: the same, once people have answered the questions in `details` (see
    `engine.nodes.runtime.mcp_asks`).
    """

    reason: Literal["timeout", "cut", "left", "asks"]
    message: str = ""
    details: Json = None


Outcome: TypeAlias = Completed | Failed | Interrupted


def no_stream(event: TurnEvent) -> None:
    """Ignore the event."""


class StopSignal(asyncio.Event):
    """Set when a node is to leave: it can be waited for, and it calls back."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[Callable[[], None]] = []

    def set(self) -> None:
        """Tell the node to leave."""
        super().set()
        for call in self._calls:
            call()

    @contextlib.contextmanager
    def calling(self, call: Callable[[], None]) -> Iterator[None]:
        """Call this when it is set meanwhile."""
        self._calls.append(call)
        try:
            yield
        finally:
            self._calls.remove(call)


class NodeContext(Struct, frozen=True):
    """Surroundings of one execution of one node.

    `workdir` is the session's own folder (use `folder()`, which creates it), `flow_dir` the folder of the flow file.
    `secret(name)` returns a secret's value or raises a `SaysoError`. `timeout` and `grace` are seconds. Once `aborted`
    is set the runner leaves at once; a process gets SIGTERM, and SIGKILL `grace` s later. `progress` takes one short
    line for people, without secrets; calls may be dropped. `saved` is the state that an earlier attempt left
    (`Interrupted("left")`).
    """

    session_id: str
    path: str
    idempotency_key: str
    attempt: int
    workdir: Path
    flow_dir: Path | None
    secret: Callable[[str], str]
    timeout: float | None
    aborted: StopSignal
    progress: Callable[[str], None]
    meter: Callable[[Meter], None] = no_meter
    """Shows the node's progress; it is not recorded, and most calls are dropped."""
    stream: Callable[[TurnEvent], None] = no_stream
    """Shows the model's answer while it arrives; not recorded."""
    flow_file: Path | None = None
    """File of the node's flow; None if only its text is known."""
    grace: float = 10
    saved: Json = None
    pinned: bool = False
    """True if people approved the node's action, or an agent calls it: it must reach no other host than the one it
    names."""

    def folder(self) -> Path:
        """The session's own folder, made on demand; only its owner may enter it. Raises `OSError`."""
        return private_folder(self.workdir)


class Runner(Protocol):
    """Executes one node type. Raises nothing but `asyncio.CancelledError`."""

    async def __call__(self, config: dict[str, Json], ctx: NodeContext) -> Outcome:
        """Do the work of a node with this rendered config; return how it ended."""


async def first_of(
    work: asyncio.Future[Any], aborted: asyncio.Event, timeout: float | None
) -> Literal["timeout", "cut"] | None:
    """Return None if the work ends first, or the reason to leave it."""
    leaving = asyncio.ensure_future(aborted.wait())
    either: tuple[asyncio.Future[Any], ...] = (work, leaving)
    try:
        await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
    if work.done():
        return None
    return "cut" if aborted.is_set() else "timeout"


class Refusal(Exception):
    """Inside a runner: the work cannot begin. Carries the outcome that says why."""

    def __init__(self, type: str, message: str, details: Json = None) -> None:
        self.outcome = Failed(type, message, details)
        super().__init__(message)


def as_text(value: Json, where: str) -> str:
    """A rendered value as the text that leaves: text stays, anything else is its JSON.

    Raises `Refusal` for null, which in an argument or a header is nearly always a mistake upstream.
    """
    if isinstance(value, str):
        return value
    if value is None:
        raise Refusal("invalid", f"{where} is null; give it a value, or a default in the expression")
    try:
        return encode(value).decode()
    except NotJson as error:
        raise Refusal("invalid", f"{where}: {error}") from error
