"""The flows that are served: every file of a folder, known by the name in `flow:`, reloaded when it changes.

A folder can be a git checkout, or a link that is swapped. A new version of it is applied all at once: while git writes,
if a version was swapped in the middle of reading, or if one of its files is invalid, the previous one stays.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from bot.config.revision import DIRTY, Version, is_dirty, version_of
from engine.flow import Flow
from engine.flow.checks.starts import start_warnings
from engine.flow.load import is_flow_file
from engine.language.diagnostics import Fault
from engine.language.errors import FlowError, Problem, UnknownFlow
from engine.language.yaml import load_located
from engine.run.flow_files import load_flow_file

log = logging.getLogger("sayso.flows")

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
"""The flows of the cookbook, with their scenarios and programs."""
_NAME = re.compile(r"""^flow:\s*["']?([A-Za-z0-9_-]+)""", re.MULTILINE)


DIRTY_SECONDS = 5.0
"""Seconds for which the result of checking a checkout for changes is cached."""
UNFINISHED_SECONDS = 60.0
"""Seconds for which a version may stay unfinished before that is reported."""


class _Shelf(NamedTuple):
    """Loaded files: the time of their changes, the flows and errors by file, and the flows by name."""

    seen: dict[Path, tuple[int, int]]
    loaded: dict[Path, Flow]
    errors: dict[Path, FlowError]
    by_name: dict[str, Flow]


class Library:
    """Flows by name, from folders and files. A broken file is reported, and the others are served."""

    def __init__(self, *places: Path) -> None:
        self._places = places
        self.logs_faults = True
        """True where the log is what tells of broken files."""
        self._seen: dict[Path, tuple[int, int]] = {}
        self._loaded: dict[Path, Flow] = {}
        self.errors: dict[Path, FlowError] = {}
        self._by_name: dict[str, Flow] = {}
        self._reported: dict[Path, FlowError] = {}
        self._doubts: list[Problem] = []
        self._versions: tuple[Version, ...] | None = None
        self._refused: tuple[tuple[Version, ...], _Shelf] | None = None
        self._dirty: dict[Path, tuple[float, bool]] = {}
        self._refusal = "", ""
        self._unread = False
        self._waits_since: float | None = None
        self._told_of: float | None = None

    def refresh(self) -> Mapping[str, Flow]:
        """Look at the files again. Read are those that changed, and, when anything did, those that rest on others: flows
        that call flows, and broken ones; and all of another version. Returns the flows by name, those from before where
        the files cannot be read now."""
        try:
            self._look()
            self._unread = False
        except OSError as error:
            if not self._unread:
                log.error("the flow files cannot be read, so the last versions are still served: %s", error)
            self._unread = True
        return self._by_name

    def files(self) -> dict[Path, tuple[tuple[int, int], str]]:
        """Each flow file with its time and size when it was read, and its state: served, or its error."""
        told = {path: f"served as {flow.name}" for path, flow in self._loaded.items()}
        told |= {path: f"not served\n{error}" for path, error in self.errors.items()}
        return {path: (self._seen.get(path, (0, 0)), text) for path, text in told.items()}

    def _look(self) -> None:
        versions = tuple(version_of(place) for place in self._places)
        unfinished = [version for version in versions if version.unfinished]
        if self._versions is not None and unfinished:
            # The previous version is served while a new one is unfinished; that is told once it takes long.
            version, now = unfinished[0], time.time()
            if self._waits_since is None:
                self._waits_since = now if version.since is None else min(now, version.since)
            if self._waits_since != self._told_of and now - self._waits_since > UNFINISHED_SECONDS:
                self._told_of = self._waits_since
                log.warning("the flows of %s were not updated: %s", version.folder, version.unfinished)
            return
        self._waits_since = None
        files = self._files()
        # The files beside those served are watched too: a flow calls flows in the folder of its file.
        folders = dict.fromkeys(path.parent for path in files)
        beside = [path for folder in folders for path in _flow_files(folder)]
        stamps = {path: _stamp(path) for path in dict.fromkeys([*files, *beside])}
        if stamps == self._seen and versions == self._versions:
            return
        if self._refused is not None and (versions, stamps) == (self._refused[0], self._refused[1].seen):
            return
        before = _Shelf(self._seen, dict(self._loaded), dict(self.errors), self._by_name)
        taken = False
        try:
            self._read(files, stamps, anew=versions != self._versions)
            taken = self._versions is None or self._taken(versions, before)
        finally:
            if not taken:
                self._seen, self._loaded, self.errors, self._by_name = before
        if not taken:
            return
        self._versions, self._refused = versions, None
        for path, error in self.errors.items():
            if self.logs_faults and str(self._reported.get(path)) != str(error):
                log.error("flow file not loaded:\n%s", error)
        self._reported = dict(self.errors)
        doubts = start_warnings(self._by_name.values())
        for doubt in doubts:
            if doubt not in self._doubts:
                log.warning("%s", doubt)
        self._doubts = doubts

    def _read(self, files: list[Path], stamps: dict[Path, tuple[int, int]], anew: bool) -> None:
        if anew:
            self._seen, self._loaded, self.errors = {}, {}, {}
        for path in files:
            before = self._loaded.get(path)
            rests_on_others = path in self.errors or (before is not None and bool(before.calls))
            if self._seen.get(path) == stamps[path] and not rests_on_others:
                continue
            try:
                self._loaded[path] = load_flow_file(path)
                self.errors.pop(path, None)
            except FlowError as error:
                # Keep serving the last valid version: an editor may have saved half a file.
                self.errors[path] = error
        for path in set(self._loaded) - set(files):
            del self._loaded[path]
        for path in set(self.errors) - set(files):
            del self.errors[path]
        # Unreadable files are read again at the next look.
        unread = {path for path, error in self.errors.items() if isinstance(error.__cause__, OSError)}
        self._seen = {path: (0, 0) if path in unread else stamp for path, stamp in stamps.items()}
        self._index()

    def _taken(self, versions: tuple[Version, ...], before: _Shelf) -> bool:
        """True if the loaded files are served: they are of one version, and a new version breaks no file that was
        valid."""
        if tuple(version_of(place) for place in self._places) != versions:
            return False
        broken = [error for path, error in self.errors.items() if path not in before.errors]
        if versions == self._versions or not broken:
            return True
        self._refused = versions, _Shelf(self._seen, self._loaded, self.errors, self._by_name)
        names = ", ".join(version.revision or str(version.folder) for version in versions)
        text = "\n".join(map(str, broken))
        if (names, text) != self._refusal:
            log.error(
                "the flows of %s are not served because some files cannot be loaded; the previous version "
                "is still served:\n%s",
                names,
                text,
            )
        self._refusal = names, text
        return False

    async def revision(self, flow: Flow) -> str | None:
        """Return the version of the folder of a flow: a commit, with `-dirty` if files were changed since, or the
        content of `REVISION`."""
        place = Path(flow.file)
        for known, version in zip(self._places, self._versions or (), strict=False):
            if known not in (place, place.parent) or version.revision is None:
                continue
            changed = version.git and self._refused is None and await self._is_dirty(version.folder)
            return version.revision + (DIRTY if changed else "")
        return None

    async def _is_dirty(self, folder: Path) -> bool:
        now = time.monotonic()
        since, dirty = self._dirty.get(folder, (float("-inf"), False))
        if now - since > DIRTY_SECONDS:
            dirty = await asyncio.to_thread(is_dirty, folder)
            self._dirty[folder] = (now, dirty)
        return dirty

    def get(self, name: str) -> Flow:
        """Return the current flow of that name. Raises `UnknownFlow`."""
        flow = self.refresh().get(name)
        if flow is None and (fault := self.faults().get(name)) is not None:
            raise UnknownFlow(f"The flow {name!r} is not served: its file cannot be loaded. {fault}")
        if flow is None:
            served = ", ".join(sorted(self._by_name)) or "none"
            raise UnknownFlow(f"There is no flow {name!r}. Served flows: {served}.")
        return flow

    def faults(self) -> dict[str, str]:
        """Return the first problem of each flow whose file no longer loads, by name. Its last valid version, if any, is
        still served."""
        found = {}
        refused = self._refused[1].errors if self._refused is not None else {}
        for path, error in {**self.errors, **refused}.items():
            loaded = self._loaded.get(path)
            name = loaded.name if loaded is not None else _name_in(path)
            if self._by_name.get(name) is loaded:
                first = error.problems[0]
                found[name] = f"{path.name}:{first.line}:{first.column}: {first.message}"
        return found

    def _files(self) -> list[Path]:
        found: list[Path] = []
        for place in self._places:
            if place.is_dir():
                found += _flow_files(place)
            elif place.exists():
                found.append(place)
        return [path for path in dict.fromkeys(found) if path.is_file()]

    def _index(self) -> None:
        """Index flows by name; of two with one name, the file that is listed first is served."""
        self._by_name = {}
        for path in self._files():
            flow = self._loaded.get(path)
            if flow is None:
                continue
            first = self._by_name.setdefault(flow.name, flow)
            if first is not flow:
                fault = Fault(
                    ("flow",), f"the name `{flow.name}` is taken by {first.file}", "give it another name"
                )
                self.errors[path] = FlowError([load_located(flow.text, flow.file).problem(fault)])


def _flow_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if is_flow_file(path.name))


def _name_in(path: Path) -> str:
    """The name that a file that cannot be loaded seems to give its flow."""
    try:
        found = _NAME.search(path.read_text("utf-8", "replace"))
    except OSError:
        found = None
    return found[1] if found is not None else path.stem


def _stamp(path: Path) -> tuple[int, int]:
    try:
        info = path.stat()
    except OSError:
        return (0, 0)
    return (info.st_mtime_ns, info.st_size)
