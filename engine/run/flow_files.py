"""Flow files: a single one, or a folder, each with the flows that it calls from the files beside it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path as FilePath

from engine.flow.checks.starts import start_warnings
from engine.flow.load import is_flow_file
from engine.flow.model import Flow
from engine.flow.reading import read, warnings
from engine.flow.subflows import link
from engine.language.diagnostics import Fault
from engine.language.errors import FlowError, Problem
from engine.language.yaml import MAX_BYTES, Located, decode_source, load_located
from engine.types.annotations import Sources


def load_flow_file(path: str | os.PathLike[str]) -> Flow:
    """The flow in a file, with the flows it calls from the files beside it. Raises `FlowError`, also when a file
    cannot be read."""
    file = os.fspath(path)
    flow, located = _read(file, text_of(file), sources_in(FilePath(file).parent))
    if not flow.calls - {flow.name}:
        return link(flow, located, None, ())
    folder = _Folder(FilePath(file).parent, {})
    return link(flow, located, folder.find, folder.names)


def load_flows(
    directory: str | os.PathLike[str], unsaved: Mapping[FilePath, str] | None = None
) -> tuple[dict[str, Flow], dict[str, FlowError]]:
    """Return all flows of a directory by name, and the errors of the broken files by file. They may call each other.

    Of two flows with one name, the file that sorts first is served and the other is an error. `unsaved` are texts by paths in
    the directory that count instead of what is saved there, or beside it.
    """
    flows: dict[str, Flow] = {}
    errors: dict[str, FlowError] = {}
    try:
        folder = _Folder(FilePath(directory), unsaved or {})
    except FlowError as error:
        return {}, {str(directory): error}
    for path in folder.files:
        try:
            flow, located = folder.read(path)
            first = flows.get(flow.name)
            if first is not None:
                fault = Fault(
                    ("flow",), f"the name `{flow.name}` is taken by {first.file}", "give it another name"
                )
                raise FlowError([load_located(flow.text, flow.file).problem(fault)])
            flows[flow.name] = link(flow, located, folder.find, folder.names)
        except FlowError as error:
            errors[str(path)] = error
    return flows, errors


def flow_warnings(flows: Iterable[Flow]) -> list[Problem]:
    """Return the warnings about flows that are served together, file by file."""
    flows = list(flows)
    found = start_warnings(flows)
    for flow in flows:
        found += warnings(flow, sources_in(FilePath(flow.file).parent))
    return sorted(found, key=lambda problem: (problem.file, problem.line))


def sources_in(folder: FilePath) -> Sources:
    """The texts of the Python modules beside the flow files of a folder, and of those that are installed."""

    def source(module: str) -> str | None:
        for root in (folder, *map(FilePath, sys.path)):
            place = root.joinpath(*module.split("."))
            for file in (place / "__init__.py", place.with_name(place.name + ".py")):
                with suppress(OSError, ValueError):
                    if file.is_file():
                        return file.read_text("utf-8") if file.stat().st_size <= MAX_BYTES else None
        return None

    return source


def _read(file: str, text: str, sources: Sources) -> tuple[Flow, Located]:
    """The flow in a file, without those that it calls. Raises `FlowError`, also for a package that it lacks."""
    flow, located = read(text, file, sources=sources)
    if found := flow.mcp_servers:
        from engine.nodes.runtime.mcp_servers import INSTALL, is_installed  # few flows have any

        if not is_installed():
            message = "tools of MCP servers need a package that is not installed"
            raise FlowError(
                [Problem(file, line, 1, message, INSTALL) for line in sorted(set(found.values()))]
            )
    return flow, located


def text_of(file: str) -> str:
    """The text of a file that is written as flows are. Raises `FlowError` where it cannot be read."""
    try:
        with open(file, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise FlowError([Problem(file, 1, 1, f"the file cannot be read: {reason}")]) from error
    return decode_source(data, file)


class _Folder:
    """The flow files of a folder, each read when it is first asked for."""

    def __init__(self, directory: FilePath, unsaved: Mapping[FilePath, str]) -> None:
        """Raises `FlowError` when the folder cannot be read."""
        self._unsaved = {path: text for path, text in unsaved.items() if path.parent == directory}
        self.files = sorted({*_flow_files(directory), *self._unsaved})
        self._sources = sources_in(directory)
        self._read: dict[FilePath, tuple[Flow, Located] | FlowError] = {}

    @cached_property
    def names(self) -> Mapping[str, FilePath]:
        """The names of the flows with their files, broken ones too, as far as they can be read as YAML."""
        found: dict[str, FilePath] = {}
        for path in self.files:
            try:
                data = load_located(self._text(path), str(path)).data
            except FlowError:
                continue
            name = data.get("flow") if isinstance(data, dict) else None
            if isinstance(name, str):
                found.setdefault(name, path)
        return found

    def read(self, path: FilePath) -> tuple[Flow, Located]:
        """The flow of a file, without those that it calls. Raises `FlowError`."""
        if path not in self._read:
            try:
                self._read[path] = _read(str(path), self._text(path), self._sources)
            except FlowError as error:
                self._read[path] = error
        found = self._read[path]
        if isinstance(found, FlowError):
            raise found
        return found

    def _text(self, path: FilePath) -> str:
        return self._unsaved[path] if path in self._unsaved else text_of(str(path))

    def find(self, name: str) -> Flow | None:
        """Return the flow of this name, or None. Raises `FlowError` when it does not load."""
        path = self.names.get(name)
        return None if path is None else self.read(path)[0]


def _flow_files(directory: FilePath) -> list[FilePath]:
    try:
        return [path for path in directory.iterdir() if is_flow_file(path.name) and path.is_file()]
    except OSError as error:
        reason = error.strerror or type(error).__name__
        text = f"the flows folder cannot be read: {reason}"
        raise FlowError([Problem(str(directory), 1, 1, text)]) from error
