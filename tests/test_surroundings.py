"""The tests themselves: what they run, and how they may be started."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from tests.cli.clikit import Cli, until

ROOT = Path(__file__).parent.parent
_DRIVER = """
import json, os, signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = "import json, signal, tests.conftest, subprocess, sys;" \\
    "code = 'import signal; print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)';" \\
    "print(subprocess.run([sys.executable, '-c', code], capture_output=True, text=True).stdout)"
print(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, cwd=sys.argv[1]).stdout)
"""


def test_children_can_be_interrupted_where_the_tests_run_in_the_background() -> None:
    """A shell that starts the tests with SIGINT ignored does not make the commands under test deaf to Ctrl-C."""
    told = subprocess.run(
        [sys.executable, "-c", _DRIVER, str(ROOT)], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "False", told.stderr
    assert signal.getsignal(signal.SIGINT) != signal.SIG_IGN


def test_commands_run_the_code_of_this_tree(tmp_path: Path) -> None:
    """A command in a folder of its own has this tree before any installed copy on its path."""
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, json, sys\n"
        "atexit.register(lambda: open('where', 'w').write(json.dumps(sys.modules['bot.cli'].__file__)))\n"
    )
    cli = Cli(tmp_path)
    cli.fresh = True
    cli.env = {"PYTHONPATH": f"{tmp_path}:{cli_path()}"}
    assert cli.run("--version").code == 0
    assert Path(json.loads((tmp_path / "where").read_text())) == ROOT / "bot/cli/__init__.py"


def cli_path() -> str:
    """What the command line's tests give their commands as Python's path."""
    from tests.cli.clikit import environment

    return environment(Path("/"))["PYTHONPATH"]


def test_processes_of_tests_end_with_the_tests() -> None:
    """Also where the process of the tests is killed, and those have sessions of their own."""
    script = """
import os, signal
from tests.support import prefork
child = prefork.start(["-c", "import time; time.sleep(600)"], cwd=".", env={}, session=True)
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, timeout=60, text=True
    )
    assert ended.returncode == -signal.SIGKILL
    until(lambda: not Path(f"/proc/{int(ended.stdout)}").exists(), "its child has ended")
