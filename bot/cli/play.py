"""`test`: runs scenarios and prints their results."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bot.scenarios import report
from bot.scenarios.load import Flows, load_scenario
from bot.scenarios.play import play
from bot.scenarios.report import Told
from bot.scenarios.tables import is_table, play_table
from bot.terminal.console import Exit, Paint, Place, UsageError, one_line, print_json, writable
from engine.flow.load import SUFFIXES
from engine.language.errors import FlowError
from engine.language.yaml import load_located
from engine.models.scripted import SUFFIXES as SCRIPTS
from engine.run.flow_files import text_of

FOLDER = "scenarios"
"""Folder of scenarios inside the folder of flows."""


def run_scenarios(place: Place, paths: Sequence[Path], kill: bool, junit: Path | None, as_json: bool) -> int:
    """Play every scenario; the exit code says whether all went well. Raises `UsageError`."""
    folder = place.settings().flows
    files = _files(paths or [Path(os.path.relpath(folder / FOLDER))])
    flows = Flows(folder)
    paint = Paint(sys.stdout)
    all_told = []
    for file in files:
        told = _told(file, flows, kills=kill)
        all_told.append(told)
        if not as_json:
            for line in report.lines(told, paint):
                print(line, flush=True)
    if junit is not None:
        with writable(f"The report {junit}"):
            junit.parent.mkdir(parents=True, exist_ok=True)
            junit.write_bytes(report.junit(all_told))
    if as_json:
        print_json(report.as_json(all_told))
    else:
        print(report.summary(all_told, paint))
    if any(told.problem is not None for told in all_told):
        return Exit.USAGE
    return Exit.OK if all(told.passed for told in all_told) else Exit.FAILED


def _told(file: Path, flows: Flows, *, kills: bool) -> Told:
    began = time.monotonic()
    try:
        located = load_located(text_of(str(file)), str(file))
        if is_table(located):
            return Told(str(file), None, table=play_table(located))
        scenario = load_scenario(file, flows)
    except FlowError as error:
        return Told(str(file), None, str(error))
    progress = _Progress(scenario.name)
    try:
        result = asyncio.run(play(scenario, kills=kills, told=progress))
    finally:
        progress.clear()
    return Told(str(file), result, seconds=time.monotonic() - began)


class _Progress:
    """A line on a terminal that says how many kills were tried; nothing anywhere else."""

    def __init__(self, name: str) -> None:
        self._name = one_line(name, 60)
        self._on = sys.stderr.isatty()

    def __call__(self, done: int, of: int) -> None:
        if self._on:
            sys.stderr.write(f"\r\x1b[2K  {self._name}: {done} of {of} kills")
            sys.stderr.flush()

    def clear(self) -> None:
        """Leave no trace of it."""
        if self._on:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


def _files(paths: Sequence[Path]) -> list[Path]:
    """The files that are named, and those in the folders that are."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(
                file
                for file in path.iterdir()
                if (file.suffix in SUFFIXES and not file.name.endswith(SCRIPTS) and file.is_file())
            )
            if not inside:
                raise UsageError(
                    f"There are no scenarios in {path}: names of scenario files end with .yml or .yaml."
                )
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise UsageError(f"There is no scenario {path}. Name files or folders: sayso test SCENARIO.yml")
    return list(dict.fromkeys(found))
