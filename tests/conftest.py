"""What holds for all tests. Searches with generated values use the same values every time, or with PROVE=1 new ones;
child processes run the code of this tree and can be interrupted."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

# What a command runs in a folder of its own is this tree, and no installed copy of it.
_PATHS = [str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _PATHS))

# A shell starts what runs in the background with SIGINT ignored, and children inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("test", derandomize=True, database=None, deadline=None)
settings.register_profile("prove", print_blob=True, deadline=None)
settings.load_profile("prove" if os.environ.get("PROVE") else "test")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test printed, as text that one process can hand to another: hostile texts hold lone surrogates."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "replace").decode()) for name, text in report.sections]
    return report
