"""What holds for all tests. Searches with generated values take a few values, the same every time, or with PROVE=1 many
new ones; what is marked `long` runs with PROVE=1 only. Child processes run the code of this tree and can be
interrupted. The end says how much the long searches tried."""

from __future__ import annotations

import gc
import importlib
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import settings

from tests.support.inline import inline  # noqa: F401
from tests.support.proving import PROVE, tries

# Of what is read first nothing is garbage.
gc.disable()

# What a command runs in a folder of its own is this tree, and no installed copy of it.
_ROOT = Path(__file__).parent.parent
_PATHS = [str(_ROOT), os.environ.get("PYTHONPATH")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _PATHS))

# What a command prints does not depend on who runs the tests, and where.
os.environ.pop("COLUMNS", None)

# A shell starts what runs in the background with SIGINT ignored, and children inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("test", derandomize=True, database=None, deadline=None, max_examples=tries(100))
settings.register_profile("prove", print_blob=True, deadline=None)
settings.load_profile("prove" if PROVE else "test")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two processes more than there are cores: what a test waits for on a socket or a clock costs no processor."""
    return len(os.sched_getaffinity(0)) + 2


def pytest_collection(session: pytest.Session) -> None:
    """Of several processes each reads another part of the files first, so that most are compiled by one of them only."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    named = [Path(argument.partition("::")[0]).resolve() for argument in session.config.args]
    files = sorted(file for path in named for file in ([path] if path.is_file() else path.rglob("test_*.py")))
    for file in files[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        with suppress(Exception, pytest.skip.Exception):  # which pytest tells when it reads the file itself
            importlib.import_module(".".join(file.relative_to(_ROOT).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """What the files hold is there to the end: the collector need not look at it again, and what tests leave is little
    beside it."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 20)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave what is marked as long to `make prove`. What needs the browser comes first: of several processes the first
    one takes it all, and the others start none."""
    items.sort(key=lambda item: item.get_closest_marker("browser") is None)
    long = [] if PROVE else [item for item in items if item.get_closest_marker("long")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


@pytest.fixture(scope="session", autouse=True)
def _events_are_what_their_bytes_say() -> None:
    """Making an event checks nothing: in every test, what `decide` writes is read back from its bytes."""
    from engine.decide.step import Step
    from engine.journal.events import decode_event
    from engine.language.errors import NotJson

    emit = Step.emit

    def checked(self: Step, kind: Any, /, **fields: Any) -> None:
        emit(self, kind, **fields)
        with suppress(NotJson):
            assert decode_event(self.events[-1].to_bytes()) == self.events[-1]

    Step.emit = checked  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test printed, as text that one process can hand to another: hostile texts hold lone surrogates."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "replace").decode()) for name, text in report.sections]
    return report


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def browser() -> AsyncIterator[Any]:
    """The browser of all tests of a process; what uses it shares one loop (`asyncio(loop_scope="session")`)."""
    from tests.support.browser import running_browser

    async with running_browser() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="session")
async def seen() -> AsyncIterator[Any]:
    """A new workspace where the browser's page looks for it."""
    from tests.support.browser import page_port
    from tests.support.workspace import running_workspace

    async with running_workspace(port=page_port()) as started:
        yield started


TRIED: Counter[str] = Counter()
"""How often what was tried, in this process; in the end in all of them."""


@pytest.fixture(scope="session")
def hit() -> Counter[str]:
    """What was tried so far, by what it is."""
    return TRIED


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of several hands its counts to the one that reports."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["tried"] = dict(TRIED)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """One of several processes has ended."""
    TRIED.update(getattr(node, "workeroutput", {}).get("tried", {}))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what was tried."""
    if TRIED:
        terminalreporter.section("what was tried, and how often")
        for name, count in sorted(TRIED.items()):
            terminalreporter.write_line(f"{count:>8,}  {name}")
