"""The python node: which function, which arguments, what becomes of what it gives, raises, or does when told to leave."""

from __future__ import annotations

import asyncio
import logging
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from engine.language.codec import Json
from engine.nodes.runtime import user_code
from engine.nodes.runtime.python import python
from engine.nodes.runtime.runner import Completed, Failed, Interrupted, Outcome
from engine.nodes.runtime.user_code import Threads
from tests.nodes.nodekit import Context

GATES: dict[str, threading.Event] = {}
"""Signals between a test and the function that it runs."""


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    """A folder with a flow, whose modules are forgotten afterwards."""
    modules, path = set(sys.modules), list(sys.path)
    GATES.clear()
    kit = Kit(tmp_path)
    yield kit
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(
            getattr(sys.modules[name], "__file__", None) or getattr(sys.modules[name], "__path__", "")
        ):
            del sys.modules[name]


class Kit(Context):
    """Modules beside a flow, and calls of their functions."""

    def module(self, text: str, name: str = "beside") -> None:
        """Write a module beside the flow file."""
        head = "import asyncio, threading\nfrom tests.nodes.test_node_python import GATES\n"
        (self.flow_dir / f"{name}.py").write_text(head + dedent(text))

    async def call(self, function: str, changes: dict[str, Any] | None = None, /, **args: Json) -> Outcome:
        """Run a node that calls `beside:function` (or `module:function`)."""
        call = function if ":" in function else f"beside:{function}"
        return await python({"call": call, "args": args}, self.build(**(changes or {})))

    async def output(self, function: str, changes: dict[str, Any] | None = None, /, **args: Json) -> Json:
        """The same, where the function completes."""
        outcome = await self.call(function, changes, **args)
        assert isinstance(outcome, Completed), outcome
        return outcome.output

    async def failure(self, function: str, changes: dict[str, Any] | None = None, /, **args: Json) -> Failed:
        """The same, where the node fails."""
        outcome = await self.call(function, changes, **args)
        assert isinstance(outcome, Failed), outcome
        return outcome


async def reached(name: str) -> None:
    """Wait until the function says so."""
    assert await asyncio.to_thread(GATES.setdefault(name, threading.Event()).wait, 20)


# --- finding and calling ---------------------------------------------------------------------------------


async def test_a_sync_function_runs_in_another_thread(kit: Kit) -> None:
    """The event loop continues while the function works."""
    kit.module(
        "def f(word, times=2):\n    return [word * times, threading.current_thread() is threading.main_thread()]"
    )
    assert await kit.output("f", word="ab") == ["abab", False]


async def test_an_async_function_is_awaited(kit: Kit) -> None:
    """It runs in the event loop, and its result is the output."""
    kit.module(
        "async def f(a: int):\n    await asyncio.sleep(0)\n    return {'a': a, 'main': threading.current_thread() is threading.main_thread()}"
    )
    assert await kit.output("f", a=1) == {"a": 1, "main": True}


async def test_modules_of_pythons_path_are_found(kit: Kit) -> None:
    """What can be imported can be called."""
    assert await kit.output("posixpath:basename", p="/a/b.txt") == "b.txt"


async def test_a_package_beside_the_flow_is_found(kit: Kit) -> None:
    """A folder of modules needs no file of its own."""
    (kit.flow_dir / "checks_here").mkdir()
    (kit.flow_dir / "checks_here" / "disk.py").write_text("def free():\n    return 5\n")
    assert await kit.output("checks_here.disk:free") == 5


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        ("besides:f", "not_found", ["there is no module besides", "did you mean `beside`?"]),
        ("beside:folk", "not_found", ["has no function folk", "did you mean `fork`?"]),
        ("beside:number", "not_found", ["is a int, not a function"]),
        ("broken:f", "import", ["module broken cannot be imported: SyntaxError"]),
        ("needy:f", "import", ["No module named 'nowhere_to_be_had'"]),
        ("leaver:f", "import", ["SystemExit: 3"]),
    ],
)
async def test_what_cannot_be_called_is_explained(kit: Kit, call: str, kind: str, words: list[str]) -> None:
    """The error names what is missing and the nearest that there is."""
    kit.module("number = 3\ndef fork(): pass\n")
    kit.module("def (", "broken")
    kit.module("import nowhere_to_be_had", "needy")
    kit.module("raise SystemExit(3)", "leaver")
    failure = await kit.failure(call)
    assert failure.type == kind
    assert [word for word in words if word not in failure.message] == []


async def test_a_module_beside_the_flow_never_means_another(kit: Kit) -> None:
    """A file that another module of its name hides is reported, and the other one is not called."""
    kit.module("def dumps(obj):\n    return 'mine'", "json")
    failure = await kit.failure("json:dumps", obj=1)
    assert failure.type == "import"
    assert "is hidden by another module of that name" in failure.message


async def test_a_changed_module_is_noticed(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    """The text that was loaded continues running, and the log says that the file says something else."""
    kit.module("def f():\n    return 1", "edited")
    assert await kit.output("edited:f") == 1
    assert caplog.text == ""
    kit.module("def f():\n    return 2", "edited")
    assert await kit.output("edited:f") == 1
    assert "module edited has changed since it was loaded" in caplog.text


# --- arguments -------------------------------------------------------------------------------------------

TYPED = """
    import datetime, enum, pydantic
    from pathlib import Path
    class Colour(enum.Enum):
        red = "red"
    class Host(pydantic.BaseModel):
        name: str
        port: int = 22
    def f(count: int, names: list[str] = [], *, at: datetime.date | None = None, colour: Colour = Colour.red,
          host: Host | None = None, share: float = 0.5):
        return [count, names, str(at), colour.name, host and f"{host.name}:{host.port}", share]
    def any_of(first, **rest: int):
        return [first, sum(rest.values())]
    def positional(a, b=2, /, c=3):
        return [a, b, c]
    def strange(x: "Nowhere"):
        return x
    def unusual(x: threading.Thread):
        return x
    def bare():
        return None
    class Callable:
        def __call__(self, n: int):
            return n
    thing = Callable()
"""


async def test_arguments_become_what_the_type_hints_say(kit: Kit) -> None:
    """Dates, enums and models are made from their JSON; a whole number will do where any number will."""
    kit.module(TYPED)
    given = {
        "count": 2,
        "names": ["a"],
        "at": "2026-11-21",
        "colour": "red",
        "host": {"name": "db"},
        "share": 1,
    }
    assert await kit.output("f", **given) == [2, ["a"], "2026-11-21", "red", "db:22", 1.0]
    assert await kit.output("any_of", first=None, a=1, b=2) == [None, 3]
    assert await kit.output("positional", a=1, c=5) == [1, 2, 5]
    assert await kit.output("thing", n=4) == 4


@pytest.mark.parametrize(
    ("function", "args", "words"),
    [
        ("f", {"count": "3"}, ["args.count: expected a whole number, not the text '3'"]),
        ("f", {}, ["args: `count` is missing"]),
        ("f", {"count": 1, "names": ["a", 2]}, ["args.names[1]: expected text, not the number 2"]),
        ("f", {"count": 1, "namse": []}, ["args.namse", "no such argument", "did you mean `names`?"]),
        ("f", {"count": 1, "host": {"port": 1}}, ["args.host: `name` is missing"]),
        ("f", {"count": True}, ["args.count: expected a whole number, not true"]),
        ("f", {"count": "x", "share": "y"}, ["args.count", "args.share"]),
        ("any_of", {"first": 1, "b": "x"}, ["args.b: expected a whole number"]),
        ("bare", {"x": 1}, ["no such argument", "it takes none"]),
        ("strange", {"x": 1}, ["signature", "Nowhere"]),
        ("unusual", {"x": 1}, ["args.x: its type hint", "cannot be checked"]),
        ("thing", {"n": "x"}, ["args.n: expected a whole number"]),
    ],
)
async def test_wrong_arguments_are_refused_before_the_call(
    kit: Kit, function: str, args: dict[str, Json], words: list[str]
) -> None:
    """Everything wrong is named with its place, what was expected, and what was given."""
    kit.module(TYPED)
    failure = await kit.failure(function, **args)
    assert failure.type == "args"
    assert [word for word in words if word not in failure.message] == [], failure.message


async def test_ctx_is_not_an_argument_of_the_flow(kit: Kit) -> None:
    """A flow that gives `ctx` is told to leave it out."""
    kit.module("def f(ctx): return 1\ndef free(**ctx): return ctx")
    assert "sayso passes `ctx`" in (await kit.failure("f", ctx=1)).message
    assert await kit.output("free", ctx=1) == {"ctx": 1}


async def test_ctx_says_where_it_runs(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    """Key, session, path, attempt and what was saved; log and progress reach sayso from a thread."""
    kit.module(
        """
        def f(ctx):
            ctx.log.warning("half of %s", 4)
            ctx.progress("  2 of\\n 4  ")
            assert not ctx.aborted and ctx.checkpoint() is None
            return [ctx.idempotency_key, ctx.session_id, ctx.path, ctx.attempt, ctx.saved]
        """
    )
    expected = ["session-0badcafe:rollout[2]/apply", "session-0badcafe", "rollout[2]/apply", 2, {"n": 1}]
    assert await kit.output("f", {"attempt": 2, "saved": {"n": 1}}) == expected
    assert "session-0badcafe rollout[2]/apply: half of 4" in caplog.text
    assert kit.lines == ["2 of 4"]


# --- what it gives ---------------------------------------------------------------------------------------


async def test_a_result_that_is_no_json_names_the_part(kit: Kit) -> None:
    """The node fails, and the error says which part is of what kind."""
    kit.module(
        "def f():\n    return {'a': [1, {2, 3}]}\ndef nan():\n    return {'x': float('nan')}\ndef deep():\n    a = []\n    a.append(a)\n    return a"
    )
    failure = await kit.failure("f")
    assert failure.type == "not_json"
    assert "beside:f: result.a[1] is a set, not JSON" in failure.message
    assert "result.x is nan" in (await kit.failure("nan")).message
    assert (await kit.failure("deep")).type == "not_json"


async def test_the_output_is_a_copy(kit: Kit) -> None:
    """What the function still does with its value changes no output."""
    kit.module("KEPT = [1]\ndef f():\n    return KEPT")
    output = await kit.output("f")
    sys.modules["beside"].KEPT.append(2)  # type: ignore[attr-defined]  # the module of this test
    assert output == [1]


@pytest.mark.parametrize("prefix", ["", "async "])
async def test_an_exception_fails_with_its_type_and_text(
    kit: Kit, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The traceback is for the log only."""
    kit.module(f"{prefix}def f():\n    raise KeyError('no such thing')")
    caplog.set_level(logging.WARNING)
    failure = await kit.failure("f")
    assert (failure.type, failure.message) == ("KeyError", "KeyError: 'no such thing'")
    assert "Traceback" in caplog.text
    assert failure.details is None


@pytest.mark.parametrize("prefix", ["", "async "])
@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("raise NodeError('too late', 'stale', {'age': 5})", "stale", "too late"),
        ("raise SystemExit(2)", "exit", "it tried to end the process (SystemExit(2))"),
        ("raise KeyboardInterrupt", "exit", "it tried to end the process"),
        ("raise ExceptionGroup('both', [ValueError('one')])", "ValueError", "ValueError: one"),
        ("raise PauseError(1)", "PauseError", "although it was not asked to stop"),
        ("raise asyncio.CancelledError", "CancelledError", "CancelledError"),
        ("next(iter(()))", "RuntimeError", "StopIteration"),
        ("raise ValueError('\\ud800')", "ValueError", "ValueError: \ufffd"),
    ],
)
async def test_odd_endings_are_failures(kit: Kit, prefix: str, body: str, kind: str, words: str) -> None:
    """Nothing that a function raises ends the process or leaves the node hanging."""
    head = "from engine.nodes.runtime.user_code import NodeError\nfrom engine.language.errors import PauseError\n"
    kit.module(f"{head}{prefix}def f():\n    {body}")
    failure = await kit.failure("f")
    assert failure.type == kind
    assert words in failure.message


# --- leaving ---------------------------------------------------------------------------------------------

LEAVERS = """
    from engine.language.errors import PauseError
    def at(name):
        return GATES.setdefault(name, threading.Event())
    def work(ctx):
        for n in range(ctx.saved or 0, 1000):
            at("begun").set()
            ctx.checkpoint(n)
            at("told").wait(0.01)
        return n
    async def wait(ctx):
        at("begun").set()
        await ctx.abort_signal.wait()
        ctx.checkpoint({"at": 3})
    async def group(ctx):
        async def one():
            await ctx.abort_signal.wait()
            ctx.checkpoint("in a group")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(one())
            tasks.create_task(asyncio.sleep(3600))
            at("begun").set()
    async def star(ctx):
        said = "not told to leave"
        try:
            await group(ctx)
        except* PauseError:
            said = "cleaned up and done"
        return said
    async def deaf():
        at("begun").set()
        await asyncio.sleep(3600)
    def stubborn():
        at("begun").set()
        at("go").wait()
        return "done"
    def stubborn_error():
        at("begun").set()
        at("go").wait()
        raise ValueError("a real one")
    def swallows(ctx):
        at("begun").set()
        try:
            while True:
                ctx.checkpoint()
                at("never").wait(0.01)
        except PauseError:
            return "all done"
    def gives_up(ctx):
        at("begun").set()
        while not ctx.aborted:
            at("never").wait(0.01)
        raise ConnectionError("closed, because we leave")
    def wrong(ctx):
        ctx.checkpoint({1})
    def wrong_later(ctx):
        ctx.checkpoint(1)
        at("begun").set()
        while True:
            ctx.checkpoint({2: 3})
            at("never").wait(0.01)
"""


async def leave(kit: Kit, function: str, changes: dict[str, Any] | None = None) -> asyncio.Task[Outcome]:
    """Run a function of `LEAVERS`, and tell it to leave once it has begun."""
    kit.module(LEAVERS)
    task = asyncio.create_task(kit.call(function, changes))
    await reached("begun")
    kit.aborted.set()
    return task


@pytest.mark.parametrize(("function", "saved"), [("work", 0), ("wait", {"at": 3}), ("group", "in a group")])
async def test_a_checkpoint_leaves_with_what_it_saved(kit: Kit, function: str, saved: Json) -> None:
    """In a thread, in the loop and inside a task group: the node left, and nobody needs to be asked."""
    outcome = await asyncio.wait_for(await leave(kit, function), 5)
    assert isinstance(outcome, Interrupted)
    assert outcome.reason == "left"
    assert outcome.details == saved or function == "work"


async def test_what_was_saved_comes_back(kit: Kit) -> None:
    """The next attempt continues from there."""
    kit.module(LEAVERS)
    assert await kit.output("work", {"saved": 998}) == 999


@pytest.mark.parametrize(("function", "output"), [("star", "cleaned up and done"), ("swallows", "all done")])
async def test_whoever_completes_all_the_same_has_completed(kit: Kit, function: str, output: str) -> None:
    """Completion wins over the request to leave."""
    assert await asyncio.wait_for(await leave(kit, function), 5) == Completed(output)


async def test_an_async_function_that_does_not_look_is_cancelled(kit: Kit) -> None:
    """Within a second; what it had done is unknown."""
    outcome = await asyncio.wait_for(await leave(kit, "deaf"), 2)
    assert isinstance(outcome, Interrupted)
    assert outcome.reason == "cut"


async def test_a_sync_function_that_does_not_look_is_waited_for(kit: Kit) -> None:
    """It cannot be stopped; its result counts when it comes."""
    task = await leave(kit, "stubborn")
    done, _ = await asyncio.wait({task}, timeout=1)
    assert not done
    GATES["go"].set()
    assert await task == Completed("done")


async def test_a_failure_that_has_nothing_to_do_with_leaving_is_a_failure(kit: Kit) -> None:
    """A function that never looked whether it should leave failed by itself."""
    task = await leave(kit, "stubborn_error")
    GATES["go"].set()
    assert await task == Failed("ValueError", "ValueError: a real one")


async def test_an_error_after_being_told_to_leave_is_an_interruption(kit: Kit) -> None:
    """Whoever saw that it should leave and then raised was interrupted: nobody knows how far it came."""
    outcome = await (await leave(kit, "gives_up"))
    assert isinstance(outcome, Interrupted)
    assert outcome.reason == "cut"


async def test_what_is_saved_must_be_json(kit: Kit) -> None:
    """It is checked at the first checkpoint, before anybody pauses, and again when it counts."""
    kit.module(LEAVERS)
    assert "value is a set, not JSON" in (await kit.failure("wrong")).message
    outcome = await (await leave(kit, "wrong_later"))
    assert isinstance(outcome, Failed)
    assert "value has a key that is not text (2)" in outcome.message


async def test_what_is_told_to_leave_before_it_began_has_only_left(kit: Kit) -> None:
    """Nothing happened, so nobody is asked, and what an earlier attempt saved is kept."""
    kit.module("def f():\n    GATES['ran'] = threading.Event()")
    kit.aborted.set()
    outcome = await kit.call("f", {"saved": 5})
    assert (type(outcome), getattr(outcome, "reason", "")) == (Interrupted, "left")
    assert getattr(outcome, "details", None) == 5
    assert "ran" not in GATES


@pytest.mark.parametrize("function", ["work", "deaf"])
async def test_a_timeout_tells_it_to_leave(kit: Kit, function: str) -> None:
    """A function that runs too long is stopped, by its checkpoint or by cancelling."""
    kit.module(LEAVERS)
    outcome = await asyncio.wait_for(kit.call(function, {"timeout": 0.2}), 10)
    assert isinstance(outcome, Interrupted)
    assert outcome.reason == "timeout"


async def test_many_run_at_the_same_time(kit: Kit) -> None:
    """Forty functions that all wait for each other: each has a thread of its own."""
    kit.module("ALL = threading.Barrier(40)\ndef f():\n    ALL.wait(20)\n    return 1")
    outcomes = await asyncio.gather(*(kit.output("f") for _ in range(40)))
    assert outcomes == [1] * 40


# --- threads ---------------------------------------------------------------------------------------------


async def test_a_call_that_ends_while_its_caller_is_cancelled_is_heard_of() -> None:
    go = threading.Event()

    def function() -> int:
        go.wait(10)
        return 7

    caller = asyncio.ensure_future(user_code.in_thread(function))
    await asyncio.sleep(0)
    idle = user_code._threads.idle
    go.set()
    while user_code._threads.idle == idle:
        time.sleep(0.001)  # noqa: ASYNC251 - the outcome is on its way to this event loop, which has not looked yet
    caller.cancel()
    assert await asyncio.wait_for(caller, 10) == 7


def test_calls_that_follow_each_other_share_a_thread() -> None:
    """A thread that has nothing to do takes the next call; one that is busy does not."""
    threads, told, gate = Threads(), queue.SimpleQueue[int](), threading.Event()
    threads.run(lambda: told.put(threading.get_ident()))
    first = told.get(timeout=20)
    while not threads.idle:
        time.sleep(0)
    threads.run(lambda: (told.put(threading.get_ident()), gate.wait(20)))
    assert told.get(timeout=20) == first
    threads.run(lambda: told.put(threading.get_ident()))
    assert told.get(timeout=20) != first
    gate.set()


def test_an_idle_thread_ends_and_the_next_call_gets_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread is kept for long, and no call is lost between the two."""
    monkeypatch.setattr(user_code, "IDLE_SECONDS", 0.0)
    threads, told = Threads(), queue.SimpleQueue[int]()
    for number in range(200):
        threads.run(lambda number=number: told.put(number))  # type: ignore[misc]
        assert told.get(timeout=20) == number


FORKS = """
import asyncio, os, sys
from engine.nodes.runtime.user_code import in_thread
asyncio.run(in_thread(lambda: 1))
if os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
os._exit(asyncio.run(asyncio.wait_for(in_thread(lambda: 7), 20)))
"""


def test_a_forked_process_makes_threads_of_its_own() -> None:
    """The idle threads of its parent are not there, and are not waited for."""
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS], check=False).returncode == 7
