"""The flows that are served: live, also where one rests on another."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bot.cli.flow_names import flow_names
from bot.config.library import Library
from bot.serve import dev
from engine.run.flow_files import load_flows

CALLER = "flow: caller\nnodes:\n  - {id: call, type: flow, with: {flow: helper}}\n"


def helper(text: str, name: str = "helper") -> str:
    """A flow that a test calls."""
    return f"flow: {name}\nnodes:\n  - {{id: tell, type: message, with: {{text: {text}}}}}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a flow and one that it calls."""
    (tmp_path / "caller.yml").write_text(CALLER)
    (tmp_path / "helper.yml").write_text(helper("first"))
    return tmp_path


def test_a_flow_is_loaded_again_when_one_that_it_calls_changes(folder: Path) -> None:
    """New sessions of the caller run the called flow as it is now."""
    library = Library(folder)
    before = library.refresh()["caller"]
    (folder / "helper.yml").write_text(helper("second one"))
    after = library.get("caller")
    assert "second one" in after.flows["helper"].text
    assert after.digest != before.digest


def test_a_called_flow_beside_a_single_file_is_watched_too(folder: Path) -> None:
    """Serving one file alone, what it calls is still read again when that changes, and is not served itself."""
    library = Library(folder / "caller.yml")
    assert list(library.refresh()) == ["caller"]
    (folder / "helper.yml").write_text(helper("second one"))
    assert "second one" in library.get("caller").flows["helper"].text


def test_a_flow_whose_called_one_appears_later_is_served_then(folder: Path) -> None:
    """A call of a flow that is not there is an error with a place, gone once the file is there."""
    (folder / "helper.yml").unlink()
    library = Library(folder)
    assert list(library.refresh()) == []
    assert "caller.yml:3:" in str(library.errors[folder / "caller.yml"])
    (folder / "helper.yml").write_text(helper("here"))
    assert sorted(library.refresh()) == ["caller", "helper"]
    assert library.errors == {}


def test_a_broken_called_flow_leaves_what_was_served(folder: Path) -> None:
    """While a called file is half saved, both flows stay served as they were."""
    library = Library(folder)
    library.refresh()
    (folder / "helper.yml").write_text("flow: helper\nnodes: [")
    assert library.get("caller").flows["helper"].text == helper("first")
    assert set(library.errors) == {folder / "caller.yml", folder / "helper.yml"}


def test_the_second_flow_of_a_name_is_an_error_at_its_name(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of two files with one name the first is served; the error points to the other one's `flow:`, is logged once, and
    is gone when that is renamed."""
    (folder / "other.yml").write_text("# a copy\n" + helper("copy"))
    library = Library(folder)
    with caplog.at_level(logging.ERROR):
        assert "first" in library.get("helper").text
        (folder / "caller.yml").unlink()
        library.refresh()
    (problem,) = library.errors[folder / "other.yml"].problems
    assert (problem.line, problem.column) == (2, 7)
    assert f"the name `helper` is taken by {folder / 'helper.yml'}" in problem.message
    assert len([record for record in caplog.records if "is taken by" in record.getMessage()]) == 1
    (folder / "other.yml").write_text(helper("copy", "other"))
    assert sorted(library.refresh()) == ["helper", "other"]
    assert library.errors == {}


@pytest.mark.parametrize(
    ("name", "served"),
    [
        ("a.yml", True),
        ("a.YML", True),
        ("a.Yaml", True),
        ("b.c.yml", True),
        (".a.yml", False),
        (".env.yml", False),
        (".#a.yml", False),
        (".yml", False),
        ("a.script.YML", False),
        ("a.yml~", False),
        ("a.ymml", False),
    ],
)
def test_which_files_are_flows_is_one_rule(tmp_path: Path, name: str, served: bool) -> None:
    """The bot, `validate` and completion take the same files: *.yml and *.yaml in any case, but none that is hidden."""
    (tmp_path / name).write_text(helper("x"))
    found = [list(Library(tmp_path).refresh()), list(load_flows(tmp_path)[0]), list(flow_names(tmp_path))]
    assert found == [["helper"] if served else []] * 3


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_what_is_no_file_is_no_flow(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Nothing waits for a pipe or reads a device, neither the bot nor `validate` nor completion."""
    make(tmp_path / "a.yml")
    (tmp_path / "b.yml").write_text(helper("x"))
    found = [list(Library(tmp_path).refresh()), list(load_flows(tmp_path)[0]), list(flow_names(tmp_path))]
    assert found == [["helper"]] * 3


async def test_each_saved_file_is_said_to_be_served_or_what_is_wrong_with_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`sayso dev` tells of a file whenever it is saved, also where the same is wrong as before; the log does not say it too."""
    monkeypatch.setattr(dev, "WATCH_SECONDS", 0.0)
    library, told = Library(folder), asyncio.Queue[tuple[str, str]]()
    library.logs_faults = False
    task = asyncio.create_task(dev.watch(library, lambda file, what: told.put_nowait((file.name, what))))
    try:
        await asyncio.sleep(0.01)
        for number in range(2):
            (folder / "other.yml").write_text(
                "flow: other\nnodes: [{id: q, type: ask, with: {mesage: hi}}]" + "\n" * number
            )
            file, what = await asyncio.wait_for(told.get(), 5)
            assert file == "other.yml"
            assert "other.yml:2:34: `message` is missing" in what
        (folder / "other.yml").write_text(helper("hi", "other"))
        assert await asyncio.wait_for(told.get(), 5) == ("other.yml", "served as other")
        (folder / "other.yml").unlink()
        assert await asyncio.wait_for(told.get(), 5) == ("other.yml", "no longer served")
    finally:
        task.cancel()
    assert caplog.records == []
