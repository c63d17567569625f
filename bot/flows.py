"""The flows that are served: every file of a folder, known by the name in `flow:`, reloaded when it changes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from engine.errors import FlowError, Problem, UnknownFlow
from engine.flow import Flow, load_flow_file

log = logging.getLogger("sayso.flows")


class Library:
    """Flows by name, from folders and files. A broken file is reported, and the others are served."""

    def __init__(self, *places: Path) -> None:
        self._places = places
        self._seen: dict[Path, tuple[int, int]] = {}
        self._loaded: dict[Path, Flow] = {}
        self.errors: dict[Path, FlowError] = {}
        self._by_name: dict[str, Flow] = {}

    def refresh(self) -> Mapping[str, Flow]:
        """Look at the files again; those that did not change are not read. Returns the flows by name."""
        files = self._files()
        stamps = {path: _stamp(path) for path in files}
        if stamps == self._seen:
            return self._by_name
        for path in files:
            if self._seen.get(path) != stamps[path]:
                self._load(path)
        for path in set(self._loaded) - set(files):
            del self._loaded[path]
        for path in set(self.errors) - set(files):
            del self.errors[path]
        self._seen = stamps
        self._index()
        return self._by_name

    def get(self, name: str) -> Flow:
        """The flow of that name as the file is now. Raises `UnknownFlow`."""
        flow = self.refresh().get(name)
        if flow is None:
            served = ", ".join(sorted(self._by_name)) or "none"
            raise UnknownFlow(f"There is no flow {name!r}. Served here: {served}.")
        return flow

    def _files(self) -> list[Path]:
        found: list[Path] = []
        for place in self._places:
            if place.is_dir():
                found += sorted([*place.glob("*.yml"), *place.glob("*.yaml")])
            elif place.exists():
                found.append(place)
        return [path for path in dict.fromkeys(found) if path.is_file()]

    def _load(self, path: Path) -> None:
        try:
            self._loaded[path] = load_flow_file(path)
            self.errors.pop(path, None)
        except FlowError as error:
            # What was served from this file before stays served: an editor may have saved half a file.
            self.errors[path] = error
            log.error("flow file not loaded:\n%s", error)

    def _index(self) -> None:
        self._by_name = {}
        origin: dict[str, Path] = {}
        for path, flow in self._loaded.items():
            if flow.name in origin:
                problem = Problem(
                    str(path),
                    1,
                    1,
                    f"flow {flow.name!r} is also defined in {origin[flow.name]}",
                    "rename one of them",
                )
                self.errors[path] = FlowError([problem])
                log.error("%s", problem)
                continue
            origin[flow.name] = path
            self._by_name[flow.name] = flow


def _stamp(path: Path) -> tuple[int, int]:
    try:
        info = path.stat()
    except OSError:
        return (0, 0)
    return (info.st_mtime_ns, info.st_size)
