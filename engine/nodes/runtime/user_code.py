"""Surroundings of users' code that runs as a node, and how it is asked to leave.

`supervise` runs such code and returns its outcome. A request to leave (a pause, an abort, a shutdown, the node's
`timeout`) has two steps: `Context.aborted` becomes true, and code that checks it, or calls `checkpoint`, leaves in
order; an `async` function that has not left `POLITE` seconds later is cancelled. A function in a thread cannot be
stopped from outside: it is waited for. Code that completes anyway has completed.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import math
import os
import queue
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from functools import cached_property
from typing import Any, Literal, TypeAlias

from engine.language.codec import Json, clean_text, copy
from engine.language.errors import FenceLost, NotJson, PauseError
from engine.nodes.runtime.effects import before_effect
from engine.nodes.runtime.runner import Completed, Failed, Interrupted, NodeContext, Outcome
from engine.nodes.types.spec import Meter

POLITE = 0.5
"""Seconds that an `async` function has to leave before it is cancelled."""

IDLE_SECONDS = 30.0
"""Seconds that an idle thread waits for another call."""

_LONGEST_LINE = 200
_LONGEST_MESSAGE = 2000
_log = logging.getLogger("sayso.node")


class NodeError(Exception):
    """Raise it to fail a node with a word that flows can compare: `errors.<id>.type` and `.message`, `.details`."""

    def __init__(self, message: str, type: str = "error", details: Json = None) -> None:
        self.type = type
        self.details = details
        super().__init__(message)


class Context:
    """Execution context of a user's function.

    `idempotency_key` is the same whenever this node of this session runs again: pass it on to prevent double effects.
    `attempt` counts from 1. `saved` is the argument of the last `checkpoint(saved)` that left, else None. `log` writes
    to sayso's log. All of it may be used from any thread, `abort_signal` from the event loop only.
    """

    def __init__(self, ctx: NodeContext) -> None:
        self.session_id = ctx.session_id
        self.path = ctx.path
        self.idempotency_key = ctx.idempotency_key
        self.attempt = ctx.attempt
        self.saved: Json = ctx.saved
        self._show = ctx.progress
        self._meter = ctx.meter
        self._loop = asyncio.get_running_loop()
        self._watched = False
        self._checked = False
        self._signal = asyncio.Event()

    @cached_property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """Writes to sayso's log, and says which node of which session does."""
        return _Log(_log, {"where": f"{self.session_id} {self.path}"})

    @property
    def aborted(self) -> bool:
        """True if the function was asked to leave. Clean up then and call `checkpoint`."""
        self._watched |= self._signal.is_set()
        return self._signal.is_set()

    @property
    def abort_signal(self) -> asyncio.Event:
        """Return the same as an event to await in `async` functions."""
        self._watched = True
        return self._signal

    def checkpoint(self, saved: Json = None) -> None:
        """Leave here if asked to, by raising `PauseError`; else do nothing.

        A function that left this way runs again at the resume, with `saved` (JSON) as `ctx.saved`. Raises `NotJson`,
        already at the first call, so that the error does not wait for a pause.
        """
        if self.aborted or not self._checked:
            saved = copy(saved)
            self._checked = True
        if self.aborted:
            raise PauseError(saved)

    def progress(self, done: float | str, total: float | None = None, text: str = "") -> None:
        """Report progress: `done` of `total`, with a short text, shown as a bar. Text alone goes to the log. Must not
        contain secrets."""
        words = done if isinstance(done, str) else text
        line = clean_text(" ".join(str(words).split()))[0][:_LONGEST_LINE]
        with contextlib.suppress(RuntimeError):  # the loop is gone, and with it whoever would read this
            if isinstance(done, str) or not total or not math.isfinite(done / total):
                self._loop.call_soon_threadsafe(self._show, line)
            else:
                self._loop.call_soon_threadsafe(self._meter, Meter(float(done), float(total), line))


class _Log(logging.LoggerAdapter[logging.Logger]):
    """Says which node of which session writes."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return f"{(self.extra or {})['where']}: {msg}", kwargs


async def supervise(name: str, work: Callable[[Context], Awaitable[Json]], ctx: NodeContext) -> Outcome:
    """Run the code of a user, which people know as `name`, to its end; see the module."""
    if ctx.aborted.is_set():
        # No effect so far, so people need not be asked.
        return Interrupted("left", f"the session was stopping before {name} began", ctx.saved)
    await before_effect()
    loop = asyncio.get_running_loop()
    context, ended = Context(ctx), loop.create_future()
    task = loop.create_task(_guarded(work, context, ended))
    reason: Literal["timeout", "cut"] | None = None
    cancelled = False

    def leave(why: Literal["timeout", "cut"]) -> None:
        nonlocal reason
        if reason is None and not ended.done():
            reason = why
            timers.append(loop.call_later(POLITE, cancel))
            context._signal.set()

    def cancel() -> None:
        nonlocal cancelled
        cancelled = task.cancel()

    timers = [] if ctx.timeout is None else [loop.call_later(ctx.timeout, leave, "timeout")]
    try:
        with ctx.aborted.calling(lambda: leave("cut")):
            result = await ended
        # Code that noticed the request to leave may have raised because of it.
        noticed = reason is not None and (cancelled or context._watched)
        return _outcome(name, result, reason, noticed, ctx)
    finally:
        context._signal.set()
        task.cancel()
        for timer in timers:
            timer.cancel()


class Threads:
    """Daemon threads, one for each call that runs, kept for the next call for a while. Those of `concurrent.futures` would
    keep a process from ending."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.idle = 0
        """Number of threads waiting for a call."""

    def run(self, call: Callable[[], None]) -> None:
        """Have it called at once."""
        with self._lock:
            if self.idle:
                self.idle -= 1
                self._calls.put(call)
                return
        threading.Thread(target=self._work, args=(call,), name="sayso-node", daemon=True).start()

    def _work(self, call: Callable[[], None]) -> None:
        while True:
            call()
            del call
            with self._lock:
                self.idle += 1
            try:
                call = self._calls.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._calls.empty():
                        self.idle -= 1
                        return
                    call = self._calls.get()


_threads = Threads()
os.register_at_fork(after_in_child=_threads.__init__)  # type: ignore[misc]  # a forked process has none of the threads


_Ended: TypeAlias = tuple[Json, BaseException | None]
"""Result of a function: its value, or its exception."""


async def in_thread(function: Callable[[], Json]) -> Json:
    """Call a function in a thread that nothing else uses meanwhile, and wait for its end, even if the caller is
    cancelled once.

    The thread never keeps a process from ending. Raises the function's exception.
    """
    loop = asyncio.get_running_loop()
    waiting: list[asyncio.Future[_Ended]] = [loop.create_future()]
    surroundings = contextvars.copy_context()

    def run() -> None:
        result: _Ended
        try:
            result = surroundings.run(function), None
        except BaseException as error:
            result = None, error
        with contextlib.suppress(RuntimeError):  # the loop is gone, and nobody waits any more
            loop.call_soon_threadsafe(_settle, waiting, result)

    _threads.run(run)
    try:
        value, error = await waiting[0]
    except asyncio.CancelledError:
        # It cannot be stopped. Leaving it behind would let it run beside its own repetition.
        if waiting[0].cancelled():
            waiting[0] = loop.create_future()
        value, error = await waiting[0]
    if error is not None:
        raise error
    return value


def _settle(waiting: list[asyncio.Future[_Ended]], result: _Ended) -> None:
    if waiting[0].cancelled():
        # The waiting caller sees the cancellation only after this, and then looks here.
        waiting[0] = waiting[0].get_loop().create_future()
    waiting[0].set_result(result)


async def _guarded(
    work: Callable[[Context], Awaitable[Json]], context: Context, ended: asyncio.Future[_Ended]
) -> None:
    """Say how the work ended. What would end the whole process fails the node."""
    result: _Ended
    try:
        result = await work(context), None
    except (SystemExit, KeyboardInterrupt) as error:
        failure = NodeError(f"it tried to end the process ({error!r})", "exit")
        failure.__cause__ = error
        result = None, failure
    except FenceLost as error:
        ended.set_exception(error)
        return
    except BaseException as error:
        result = None, error
    if not ended.done():
        ended.set_result(result)


def _outcome(
    name: str,
    ended: _Ended,
    reason: Literal["timeout", "cut"] | None,
    noticed: bool,
    ctx: NodeContext,
) -> Outcome:
    output, error = ended
    if error is None:
        return _completed(name, output)
    left = _pause_in(error)
    if left is not None and reason is None:
        text = f"{name} raised PauseError although it was not asked to stop; call `ctx.checkpoint(saved)` instead"
        return Failed("PauseError", text)
    if left is not None and reason == "cut":
        return _left(name, left.saved)
    told = (noticed or left is not None) and not isinstance(error, NotJson)
    if reason is not None and told:
        why = "after its timeout" if reason == "timeout" else "because the session is stopping"
        _log.info("%s %s: %s was stopped %s", ctx.session_id, ctx.path, name, why, exc_info=error)
        return Interrupted(reason, f"{name} was stopped {why}")
    # An exception with its traceback; for one raised for people, only its cause, if any.
    what = f"{ctx.session_id} {ctx.path}: {name} failed"
    cause = error.__cause__ if isinstance(error, NodeError) else error
    if cause is None or (isinstance(cause, ModuleNotFoundError) and cause is not error):
        _log.warning("%s: %s", what, error)
    else:
        _log.warning("%s", what, exc_info=cause)
    raised = error
    while isinstance(raised, BaseExceptionGroup) and len(raised.exceptions) == 1:
        raised = raised.exceptions[0]
    message = clean_text(str(raised))[0][:_LONGEST_MESSAGE]
    if isinstance(raised, NodeError):
        return Failed(raised.type, message, raised.details)
    kind = type(raised).__name__
    return Failed(kind, f"{kind}: {message}" if message else kind)


def _completed(name: str, output: Json) -> Outcome:
    try:
        # Copied here, so that later changes by the code have no effect.
        return Completed(copy(output))
    except NotJson as error:
        text = str(error)
        where = "result" + text.removeprefix("value") if text.startswith("value") else f"result: {text}"
        return Failed(error.code, f"{name}: {where}; return plain JSON (text, numbers, lists, mappings)")


def _left(name: str, saved: Json) -> Outcome:
    try:
        return Interrupted("left", f"{name} left at a checkpoint", copy(saved))
    except NotJson as error:
        return Failed(error.code, f"{name}: saved: {error}")


def _pause_in(error: BaseException) -> PauseError | None:
    """Return the request to leave contained in an exception: a task group wraps it, together with the cancelling of the
    others."""
    if isinstance(error, PauseError):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    rest = error.split((PauseError, asyncio.CancelledError))[1]
    found = list(_leaves(error))
    if rest is not None or not found:
        return None
    return next((pause for pause in found if pause.saved is not None), found[0])


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[PauseError]:
    found: list[PauseError] = []
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            found += _leaves(error)
        elif isinstance(error, PauseError):
            found.append(error)
    return found
