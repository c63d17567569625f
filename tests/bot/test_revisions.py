"""Flows from a git checkout, or a link that is swapped: one version at a time, and which one it is."""

from __future__ import annotations

import errno
import io
import logging
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bot.config import library as module
from bot.config import revision
from bot.config.library import Library
from bot.config.ownership import is_ours
from bot.config.revision import is_dirty, version_of
from bot.config.settings import load_settings
from bot.doctor.checks import check_flows
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
    """One that no version repairs is reported, and the others continue with each version."""
    (current / "flows" / "three.yml").write_text(BROKEN.format("three"))
    library = Library(current / "flows")
    library.refresh()
    new = release(tmp_path / "releases", "r42")
    (new / "flows" / "three.yml").write_text(BROKEN.format("three"))
    swap(current, new)
    assert words(library) == {"r42"}


def test_while_a_link_is_missing_the_flows_stay(current: Path, tmp_path: Path) -> None:
    """A link that is removed and made again does not take the flows away in between."""
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
        thread = await start_flow(workspace, "ana", "ops", "one", says="hello")
        await thread.says("flows at `release-41`")
        (head,) = town.engine.store.sessions.heads(limit=None)
        events, state = await town.engine.journal(head.session_id), await town.engine.state(head.session_id)
    assert {record.flow_revision for record in audit(events)} == {"release-41"}
    assert from_json(to_json(state)) == state
    shown = "\n".join(
        show_lines(state, head, None, events, View(state.updated_at, Paint(io.StringIO())), str)
    )
    assert "release-41" in shown


# --- folders that nobody named -------------------------------------------------------------------------------


def owned(uid: int, gid: int, mode: int) -> os.stat_result:
    """What the system says of a file."""
    return os.stat_result((stat.S_IFREG | mode, 0, 0, 1, uid, gid, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("uid", "gid", "mode", "ours"),
    [
        (1000, 1000, 0o644, True),
        (1000, 1000, 0o664, True),
        (1000, 50, 0o664, False),
        (1000, 1000, 0o666, False),
        (0, 0, 0o664, True),
        (0, 50, 0o664, False),
        (0, 0, 0o646, False),
        (1001, 1001, 0o600, False),
        (1001, 1000, 0o644, False),
    ],
)
def test_what_others_may_write_is_not_ours(
    uid: int, gid: int, mode: int, ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file counts if it belongs to this user or root, and nobody but them and their own group may write it."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert is_ours(owned(uid, gid, mode)) is ours


def trap(checkout: Path) -> Path:
    """Have git run a program when it compares files of this checkout; the file that the program makes."""
    marker = checkout.parent / "ran"
    git(checkout, "config", "filter.trap.clean", f"touch {marker}; cat")
    (checkout / ".git" / "info" / "attributes").write_text("* filter=trap\n")
    os.utime(checkout / "flows" / "one.yml", (0, 0))
    return marker


def test_a_checkout_of_ones_own_is_compared_as_git_does_it(checkout: Path) -> None:
    """The filters of a checkout that only this user may write are part of what its files are."""
    marker = trap(checkout)
    is_dirty(checkout / "flows")
    assert marker.exists()


@pytest.mark.parametrize("opened", [".", ".git", ".git/config", ".git/HEAD"])
def test_a_checkout_that_others_may_write_runs_nothing(checkout: Path, opened: str) -> None:
    """No program of a checkout runs that others could have put there, in whatever part of it."""
    nested = checkout / "flows"
    marker, above = trap(checkout), (checkout / opened).resolve()
    above.chmod(above.stat().st_mode | 0o002)
    try:
        assert not is_dirty(nested)
        version = version_of(nested)
    finally:
        above.chmod(above.stat().st_mode & ~0o002)
    assert not marker.exists()
    assert (version.revision is not None) == (opened == ".git/config")


def test_the_search_ends_at_the_first_folder_that_others_may_write(checkout: Path) -> None:
    """A version that is above such a folder is not that of the flows."""
    inner = checkout / "open" / "flows"
    inner.mkdir(parents=True)
    assert version_of(inner).revision is not None
    inner.parent.chmod(0o777)
    assert version_of(inner).revision is None


@pytest.mark.parametrize("opened", ["flows", ".", ".git"])
def test_doctor_says_why_flows_have_no_commit(checkout: Path, opened: str) -> None:
    """It names the folder that others may write; where there is no checkout at all, nothing is missing."""
    settings = load_settings({"SAYSO_FLOWS": str(checkout / "flows")}, cwd=checkout)
    assert not [check for check in check_flows(settings) if "no commit" in check.text]
    (checkout / opened).chmod(0o777)
    (found,) = [check.text for check in check_flows(settings) if "no commit" in check.text]
    assert str((checkout / opened).resolve()) in found
    shutil.rmtree(checkout / ".git")
    assert not [check for check in check_flows(settings) if "no commit" in check.text]


@pytest.mark.parametrize("kind", ["pipe", "link", "folder", "others can write to it"])
def test_a_revision_that_is_no_plain_file_of_ours_is_passed_over(tmp_path: Path, kind: str) -> None:
    """Nothing waits for a pipe, and no link is followed."""
    file, real = tmp_path / "REVISION", tmp_path / "real"
    real.write_text("r1\n")
    match kind:
        case "pipe":
            os.mkfifo(file)
        case "link":
            file.symlink_to(real)
        case "folder":
            file.mkdir()
        case _:
            file.write_text("r1\n")
            file.chmod(0o666)
    assert version_of(tmp_path).revision is None


@pytest.mark.parametrize("file", ["HEAD", "refs/heads/main", "commondir", "packed-refs"])
def test_no_file_of_git_is_waited_for(checkout: Path, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe instead of a file of git holds nothing up: git itself, which waits for it, is ended."""
    monkeypatch.setattr(revision, "_GIT_SECONDS", 0.2)
    place = checkout / ".git" / file
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    version_of(checkout / "flows")
    is_dirty(checkout / "flows")


# --- what lasts, and what cannot be read ---------------------------------------------------------------------


@pytest.mark.parametrize(("age", "said"), [(30, False), (90, True)])
def test_a_lock_of_git_that_stays_is_said(
    checkout: Path, caplog: pytest.LogCaptureFixture, age: int, said: bool
) -> None:
    """After a minute the log says once which file holds the flows back."""
    library = Library(checkout / "flows")
    library.refresh()
    lock = checkout / ".git" / "index.lock"
    lock.touch()
    begun = time.time() - age
    os.utime(lock, (begun, begun))
    for _ in range(3):
        library.refresh()
    told = [each.getMessage() for each in caplog.records]
    assert [str(lock) in text for text in told] == [True] * said


def failing(monkeypatch: pytest.MonkeyPatch, kind: type, name: str, wanted: str, errno: int) -> None:
    """Let a method of paths fail for those that contain these letters."""
    real = getattr(kind, name)

    def fail(self: Path, *args: object, **given: object) -> object:
        if wanted in str(self):
            raise OSError(errno, os.strerror(errno), str(self))
        return real(self, *args, **given)

    monkeypatch.setattr(kind, name, fail)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ESTALE, errno.EACCES, errno.EIO])
@pytest.mark.parametrize(
    ("name", "wanted"), [("iterdir", "flows"), ("is_file", "one.yml"), ("stat", "flows")]
)
def test_flows_that_cannot_be_read_now_stay_as_they_were(
    current: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
    wanted: str,
    error: int,
) -> None:
    """It is said once, and what has changed meanwhile is taken afterwards."""
    library = Library(current / "flows")
    library.refresh()
    (current / "flows" / "one.yml").write_text(FLOW.format("one", "new"))
    with monkeypatch.context() as patch:
        failing(patch, Path, name, wanted, error)
        assert [words(library) for _ in range(3)] == [{"r41"}] * 3
    assert len(caplog.records) == 1
    assert words(library) == {"r41", "new"}


def test_flows_that_cannot_be_read_at_the_start_are_read_later(
    current: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bot starts with no flows where none can be read, and serves them as soon as they can."""
    library = Library(current / "flows")
    with monkeypatch.context() as patch:
        failing(patch, Path, "iterdir", "flows", errno.EMFILE)
        assert words(library) == set()
    assert words(library) == {"r41"}


def test_one_file_that_cannot_be_read_is_read_again(
    current: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its flow stays as it was, the others continue, and it is taken without another change once it can be read."""
    library = Library(current / "flows")
    library.refresh()
    for name in ("one", "two"):
        (current / "flows" / f"{name}.yml").write_text(FLOW.format(name, f"new {name}"))
    real = open

    def refuse(file: object, *args: object, **given: object) -> object:
        if str(file).endswith("one.yml"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(file))
        return real(file, *args, **given)  # type: ignore[call-overload]

    with monkeypatch.context() as patch:
        patch.setattr(flow_files, "open", refuse, raising=False)
        assert [words(library) for _ in range(2)] == [{"r41", "new two"}] * 2
    assert len(caplog.records) == 1
    assert words(library) == {"new one", "new two"}
