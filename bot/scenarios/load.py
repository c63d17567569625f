"""Reads scenario files: text in, `Scenario` out, or one `FlowError` with all that is wrong and where."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path as FilePath

from msgspec.structs import replace

from bot.scenarios.document import Scenario, ScenarioDoc
from bot.scenarios.reader import Reader, read_part
from engine.flow import Flow
from engine.flow.load import SUFFIXES
from engine.language.diagnostics import Fault, kind_of, suggest
from engine.language.errors import FlowError
from engine.language.yaml import load_located
from engine.run.flow_files import load_flow_file, load_flows, text_of


class Flows:
    """Finds the flows that scenarios name: a file beside the scenario, or a name in a folder of flows. `unsaved` are texts by
    paths in that folder that count instead of what is saved there."""

    def __init__(self, folder: FilePath | None = None, unsaved: Mapping[FilePath, str] | None = None) -> None:
        self._folder, self._unsaved = folder, unsaved
        self._read: dict[FilePath, tuple[dict[str, Flow], dict[str, FlowError]]] = {}

    def find(self, name: str, scenario: FilePath) -> Flow | str:
        """The flow, or why there is none. Raises `FlowError` where it does not load."""
        if name.endswith(SUFFIXES) or "/" in name:
            file = scenario.parent / name
            if not file.is_file():
                return f"there is no flow file {name} (seen from {scenario.parent})"
            # A node finds its programs beside the flow's file, so the session pins where that is.
            return replace(load_flow_file(file), file=str(file.resolve()))
        known: list[str] = []
        around = [scenario.parent.resolve(), scenario.parent.resolve().parent]
        folders = [self._folder.resolve(), *around] if self._folder is not None else around
        for folder in filter(FilePath.is_dir, dict.fromkeys(folders)):
            if folder not in self._read:
                self._read[folder] = load_flows(folder, self._unsaved)
            flows, errors = self._read[folder]
            if name in flows:
                return flows[name]
            for broken, error in errors.items():
                # Beside a scenario stand others, which are no broken flows.
                if FilePath(broken).stem == name and folder != scenario.parent.resolve():
                    raise error
            known += flows
        hint = suggest(name, known, "" if known else "use --flows, or name its file")
        return f"there is no flow `{name}`" + (f" ({hint})" if hint else "")


def load_scenario(file: FilePath, flows: Flows, text: str | None = None) -> Scenario:
    """The scenario in a file, or that the file would have with this text. Raises `FlowError` with everything that is wrong with
    it, or with its flow."""
    located = load_located(text_of(str(file)) if text is None else text, str(file))
    if not isinstance(located.data, dict):
        fault = Fault(
            (), f"a scenario is a mapping with `scenario`, `flow` and `steps`, not {kind_of(located.data)}"
        )
        raise FlowError([located.problem(fault)])
    if "scenario" not in located.data and isinstance(located.data.get("nodes"), list):
        beside = file.parent / "scenarios"
        hint = f"scenarios are separate files: sayso test {beside}" if beside.is_dir() else None
        raise FlowError([located.problem(Fault(("flow",), "this is a flow, not a scenario", hint))])
    doc, faults = read_part(ScenarioDoc, located.data, ())
    problems = [*located.problems, *located.doubts, *(located.problem(fault) for fault in faults)]
    if doc is None or problems:
        raise FlowError(problems)
    flow = flows.find(doc.flow, file)
    if isinstance(flow, str):
        raise FlowError([located.problem(Fault(("flow",), flow))])
    reader = Reader(doc, flow, file.parent)
    scenario = reader.scenario(located)
    if reader.faults:
        found = {located.problem(fault): None for fault in reader.faults}
        raise FlowError(sorted(found, key=lambda problem: (problem.line, problem.column)))
    return scenario
