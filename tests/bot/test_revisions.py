"""Flows from a git checkout, or a link that is swapped: one version at a time, and which one it is."""

from __future__ import annotations

import io
import logging
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bot.config import library as module
from bot.config import revision
from bot.config.library import Library
from bot.config.revision import is_dirty, version_of
from bot.terminal.console import Paint
from bot.terminal.show import View, show_lines
from engine.journal.audit import audit
from engine.journal.snapshot import from_json, to_json
from engine.run import flow_files
from tests.support.bot import start_flow
from tests.support.simulated import inhabited_town, simulated

FLOW = "flow: {0}\nnodes:\n  - {{id: tell, type: message, with: {{text: {1}}}}}\n"
BROKEN = "flow: {0}\nnodes: ["


def git(folder: Path, *words: str) -> str:
    """What git says."""
    known = ("-c", "user.name=Ana", "-c", "user.email=ana@example.com", "-c", "init.defaultBranch=main")
    done = subprocess.run(
        ["git", *known, *words], cwd=folder, capture_output=True, text=True, check=True, env=os.environ
    )
    return done.stdout.strip()


def release(folder: Path, text: str, *, one: str = FLOW, two: str = FLOW) -> Path:
    """A folder with two flows, and a `REVISION`."""
    flows = folder / text / "flows"
    flows.mkdir(parents=True)
    (flows / "one.yml").write_text(one.format("one", text))
    (flows / "two.yml").write_text(two.format("two", text))
    (folder / text / "REVISION").write_text(f"{text}\n")
    return folder / text


def swap(link: Path, target: Path) -> None:
    """Point the link to another release, at once."""
    link.with_name("next").symlink_to(target)
    link.with_name("next").replace(link)


def words(library: Library) -> set[str]:
    """What the served flows say."""
    return {flow.text.partition("text: ")[2].partition("}")[0] for flow in library.refresh().values()}


@pytest.fixture
def current(tmp_path: Path) -> Path:
    """A link to the first release."""
    link = tmp_path / "current"
    link.symlink_to(release(tmp_path / "releases", "r41"))
    return link


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A git checkout with two flows."""
    root = release(tmp_path, "checkout")
    (root / "REVISION").unlink()
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    return root


def while_reading(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Do something after the first file of the next reading."""
    read = flow_files.load_flow_file

    def load(path: Path) -> object:
        found = read(path)
        monkeypatch.setattr(module, "load_flow_file", read)
        act()
        return found

    monkeypatch.setattr(module, "load_flow_file", load)


def test_a_release_that_is_swapped_in_while_it_is_read_is_never_mixed(
    current: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a version that was replaced in the middle of reading nothing is served; the next look takes the newest."""
    library = Library(current / "flows")
    assert words(library) == {"r41"}
    swap(current, release(tmp_path / "releases", "r42"))
    while_reading(monkeypatch, lambda: swap(current, release(tmp_path / "releases", "r43")))
    assert words(library) == {"r41"}
    assert words(library) == {"r43"}


def test_a_library_that_does_not_look_again_is_noticed(
    current: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A seeded fault: without the second look at the version, a mixture is served."""
    library = Library(current / "flows")
    library.refresh()
    monkeypatch.setattr(Library, "_taken", lambda *_: True)
    swap(current, release(tmp_path / "releases", "r42"))
    while_reading(monkeypatch, lambda: swap(current, release(tmp_path / "releases", "r43")))
    assert words(library) == {"r42", "r43"}


def test_a_version_with_a_broken_file_is_not_served_and_said_once(
    current: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The version before stays as a whole; whoever starts such a flow is told, and a repaired version is taken."""
    library = Library(current / "flows")
    library.refresh()
    swap(current, release(tmp_path / "releases", "r42", two=BROKEN))
    assert [words(library) for _ in range(3)] == [{"r41"}] * 3
    (said,) = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert "the flows of r42 are not served" in said
    assert "two.yml" in said
    assert "two.yml:" in library.faults()["two"]
    swap(current, release(tmp_path / "releases", "r43"))
    assert (words(library), library.faults()) == ({"r43"}, {})


def test_a_file_that_was_broken_before_holds_nothing_up(current: Path, tmp_path: Path) -> None:
    """One that no version repairs is reported, and the others go on with each version."""
    (current / "flows" / "three.yml").write_text(BROKEN.format("three"))
    library = Library(current / "flows")
    library.refresh()
    new = release(tmp_path / "releases", "r42")
    (new / "flows" / "three.yml").write_text(BROKEN.format("three"))
    swap(current, new)
    assert words(library) == {"r42"}


def test_while_a_link_is_missing_the_flows_stay(current: Path, tmp_path: Path) -> None:
    """A link that is removed and made anew does not take the flows away in between."""
    library = Library(current / "flows")
    library.refresh()
    current.unlink()
    assert words(library) == {"r41"}
    current.symlink_to(release(tmp_path / "releases", "r42"))
    assert words(library) == {"r42"}


async def test_the_revision_of_a_release_is_what_its_file_says(current: Path, tmp_path: Path) -> None:
    """It is that of the version in use, also while another one is refused."""
    library = Library(current / "flows")
    assert await library.revision(library.get("one")) == "r41"
    swap(current, release(tmp_path / "releases", "r42", two=BROKEN))
    assert await library.revision(library.get("one")) == "r41"


async def test_the_revision_of_a_checkout_is_its_commit(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`git` is not needed for it; where files differ from the commit, or are not in it, it is marked."""
    monkeypatch.setattr(module, "DIRTY_SECONDS", -1)
    library = Library(checkout / "flows")
    commit = git(checkout, "rev-parse", "HEAD")
    assert await library.revision(library.get("one")) == commit
    (checkout / "flows" / "tool.py").write_text("pass\n")
    assert await library.revision(library.get("one")) == f"{commit}-dirty"
    monkeypatch.setattr(revision, "_GIT", ("no-such-git",))
    assert await library.revision(library.get("one")) == commit


def test_the_commit_is_read_however_git_keeps_it(checkout: Path) -> None:
    """A branch, a packed branch, a detached head and a worktree name the same commit; before the first one there is none."""
    commit = git(checkout, "rev-parse", "HEAD")
    git(checkout, "worktree", "add", "-q", "../beside")
    assert version_of(checkout.parent / "beside" / "flows").revision == commit
    git(checkout, "pack-refs", "--all")
    assert version_of(checkout / "flows").revision == commit
    assert version_of(checkout.parent / "beside" / "flows").revision == commit
    git(checkout, "checkout", "-q", "--detach")
    assert version_of(checkout / "flows").revision == commit
    git(checkout.parent, "init", "-q", "fresh")
    assert version_of(checkout.parent / "fresh").revision is None
    assert not is_dirty(checkout / "flows")


def test_while_git_writes_nothing_is_read(checkout: Path) -> None:
    """Files of a checkout in the middle of a pull are of no commit; afterwards all are taken."""
    library = Library(checkout / "flows")
    library.refresh()
    lock = checkout / ".git" / "index.lock"
    lock.touch()
    (checkout / "flows" / "one.yml").write_text(FLOW.format("one", "new"))
    assert words(library) == {"checkout"}
    (checkout / "flows" / "two.yml").write_text(FLOW.format("two", "new"))
    lock.unlink()
    assert words(library) == {"new"}


@simulated
async def test_a_session_says_which_version_it_was_started_of(tmp_path: Path) -> None:
    """Its first event, its card and its audit trail have the revision."""
    async with inhabited_town(tmp_path, {"one": FLOW.format("one", "hello")}) as (workspace, town):
        (tmp_path / "REVISION").write_text("release-41\n")
        thread = await start_flow(workspace, "ana", "ops", "one")
        await thread.says("hello")
        await thread.says("flows at `release-41`")
        (head,) = town.engine.store.heads(limit=None)
        events, state = await town.engine.journal(head.session_id), await town.engine.state(head.session_id)
    assert {record.flow_revision for record in audit(events)} == {"release-41"}
    assert from_json(to_json(state)) == state
    shown = "\n".join(
        show_lines(state, head, None, events, View(state.updated_at, Paint(io.StringIO())), str)
    )
    assert "release-41" in shown
