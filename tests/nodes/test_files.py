"""The nodes that read and write files of a session, on a real file system."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.nodes.runtime.files import MOST_FILE, MOST_READ, read_file, write_file
from engine.nodes.runtime.images import MOST_BYTES
from engine.nodes.runtime.runner import Completed, Failed, Interrupted
from tests.nodes.nodekit import Context
from tests.nodes.pictures import gif, png
from tests.support.proving import tries


@pytest.fixture
def context(tmp_path: Path) -> Context:
    """A context in a folder of its own, with the session's folder there."""
    context = Context(tmp_path)
    context.workdir.mkdir(mode=0o700)
    return context


async def read(context: Context, path: str, **more: Any) -> dict[str, Any]:
    """The output of a read that must succeed."""
    outcome = await read_file({"path": path, **more}, context.build())
    assert isinstance(outcome, Completed), outcome
    return dict(outcome.output)


async def write(context: Context, path: str, content: str) -> dict[str, Any]:
    """The output of a write that must succeed."""
    outcome = await write_file({"path": path, "content": content}, context.build())
    assert isinstance(outcome, Completed), outcome
    return dict(outcome.output)


async def fails(context: Context, path: str, content: str | None = None, **more: Any) -> str:
    """The kind of failure of a read, or of a write where there is content."""
    config = {"path": path, **more}
    run = read_file(config, context.build()) if content is None else write_file({**config, "content": content}, context.build())  # fmt: skip
    outcome = await run
    assert isinstance(outcome, Failed), outcome
    return outcome.type


async def test_what_was_written_is_read(context: Context) -> None:
    """A text comes back as it was written, and the folders on the way are made for their owner alone."""
    assert await write(context, "reports/today.md", "# Über\n\nline") == {
        "path": "reports/today.md",
        "size": 13,
    }
    got = await read(context, "./reports//today.md")
    assert (got["text"], got["total_lines"], got["more"]) == ("# Über\n\nline", 3, False)
    for place, mode in (("reports", 0o700), ("reports/today.md", 0o600)):
        assert stat.S_IMODE((context.workdir / place).stat().st_mode) == mode


async def test_a_write_replaces_the_whole_file_and_keeps_its_rights(context: Context) -> None:
    """The new text takes the place of the old one, a program stays one, and nothing else is left behind."""
    script = context.workdir / "run.sh"
    script.write_text("a long text that was there before")
    script.chmod(0o750)
    await write(context, "run.sh", "new")
    assert script.read_text() == "new"
    assert stat.S_IMODE(script.stat().st_mode) == 0o750
    assert os.listdir(context.workdir) == ["run.sh"]


async def test_a_file_is_read_page_by_page(context: Context) -> None:
    """Pages follow each other without a gap until there is no more, each of 64 KiB at most."""
    text = "".join(f"line {number} {'x' * 90}\n" for number in range(5000))
    (context.workdir / "log").write_text(text)
    pages, first = [], 1
    while True:
        page = await read(context, "log", first_line=first)
        assert len(page["text"].encode()) <= MOST_READ
        pages.append(page["text"])
        if not page["more"]:
            break
        first = page["last_line"] + 1
    assert "\n".join(pages) + "\n" == text
    some = await read(context, "log", first_line=10, lines=2)
    assert (some["first_line"], some["last_line"], some["text"].split()[1]) == (10, 11, "9")


async def test_a_line_that_is_too_long_is_cut_and_says_so(context: Context) -> None:
    """One line of more than a page is cut, and the next page continues behind it."""
    (context.workdir / "one").write_text("x" * 100_000 + "\nend\n")
    first = await read(context, "one")
    assert first["text"].endswith("[... the line is cut here ...]")
    assert (first["last_line"], first["more"]) == (1, True)
    assert (await read(context, "one", first_line=2))["text"] == "end"


async def test_bytes_that_are_no_text(context: Context) -> None:
    """A file with NUL bytes is refused; bytes that are not UTF-8 become U+FFFD; an empty file has no lines."""
    (context.workdir / "bin").write_bytes(b"\x7fELF\0\0")
    (context.workdir / "latin").write_bytes(b"caf\xe9")
    (context.workdir / "empty").touch()
    assert await fails(context, "bin") == "not_text"
    assert (await read(context, "latin"))["text"] == "caf\ufffd"
    assert (await read(context, "empty"))["total_lines"] == 0


async def test_a_picture_is_named_with_what_it_is(context: Context) -> None:
    """Its type and size are in its bytes, whatever it is called; another one has another digest."""
    (context.workdir / "graph.txt").write_bytes(png(640, 480))
    got = await read(context, "graph.txt", first_line=3)
    digest = got["picture"].pop("digest")
    assert got == {
        "path": "graph.txt",
        "picture": {"type": "image/png", "width": 640, "height": 480},
        "size": len(png(640, 480)),
    }
    (context.workdir / "graph.txt").write_bytes(png(640, 480, shade=9))
    assert (await read(context, "graph.txt"))["picture"]["digest"] != digest


async def test_pictures_that_cannot_be_shown_are_refused(context: Context) -> None:
    """A broken one, one with too many pixels, one with too many bytes; a PDF is not text and no picture."""
    for name, data, kind in (
        ("half.png", png(640, 480)[:-20], "picture"),
        ("wide.png", png(8001, 1), "picture"),
        ("heavy.gif", gif() + bytes(MOST_BYTES), "picture"),
        ("report.pdf", b"%PDF-1.7 pages", "not_text"),
    ):
        (context.workdir / name).write_bytes(data)
        assert await fails(context, name) == kind


async def test_what_is_not_there_is_told(context: Context) -> None:
    """A missing file, a folder, a line beyond the end, and too much at once are failures with a word each."""
    (context.workdir / "a").write_text("one\n")
    (context.workdir / "big").touch()
    os.truncate(context.workdir / "big", MOST_FILE + 1)
    assert await fails(context, "none") == "not_found"
    assert await fails(context, "none/at/all") == "not_found"
    assert await fails(context, "a", first_line=2) == "no_such_line"
    assert await fails(context, "big") == "too_large"
    assert await fails(context, "a/b", "x") == "link"
    os.mkdir(context.workdir / "dir")
    assert await fails(context, "dir") == "not_a_file"
    assert await fails(context, "dir", "x") == "not_a_file"
    assert await fails(context, "large", "é" * 600_000) == "too_large"


async def test_no_link_is_followed(context: Context, tmp_path: Path) -> None:
    """A link to a file, to a folder, or a dangling one is neither read nor written through."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (context.workdir / "file").symlink_to(outside / "secret")
    (context.workdir / "folder").symlink_to(outside)
    (context.workdir / "dangling").symlink_to(outside / "new")
    for path in ("file", "folder/secret"):
        assert await fails(context, path) == "link"
    for path, kind in (("file", "not_a_file"), ("dangling", "not_a_file"), ("folder/new", "link")):
        assert await fails(context, path, "x") == kind
    assert {entry.name: entry.read_text() for entry in outside.iterdir()} == {"secret": "secret"}


async def test_what_is_no_file_is_not_waited_for(context: Context) -> None:
    """A pipe that nobody writes to is refused at once, for reading and for writing."""
    os.mkfifo(context.workdir / "pipe")
    assert await fails(context, "pipe") == "not_a_file"
    assert await fails(context, "pipe", "x") == "not_a_file"


_PART = st.sampled_from(["..", ".", "", "a", "link", "up", "out", "secret", "~", ".sayso", "b c"])


@settings(max_examples=tries(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_PART, min_size=1, max_size=5), st.booleans())
async def test_no_path_leads_out_of_the_folder(
    context: Context, tmp_path: Path, parts: list[str], absolute: bool
) -> None:
    """Whatever the path, nothing outside the session's folder is read or changed."""
    (tmp_path / "secret").write_text("outside")
    for name, target in (("link", tmp_path), ("up", Path("..")), ("out", tmp_path / "secret")):
        if not (context.workdir / name).is_symlink():
            (context.workdir / name).symlink_to(target)
    path = ("/" if absolute else "") + "/".join(parts)
    got = await read_file({"path": path}, context.build())
    assert not isinstance(got, Completed) or got.output["text"] != "outside"
    await write_file({"path": path, "content": "mine"}, context.build())
    assert (tmp_path / "secret").read_text() == "outside"
    assert set(os.listdir(tmp_path)) == {"secret", "work", "flows"}


async def test_nothing_is_opened_for_a_session_that_leaves(context: Context) -> None:
    """With the abort signal set no file is touched."""
    context.aborted.set()
    outcome = await write_file({"path": "a", "content": "x"}, context.build())
    assert isinstance(outcome, Interrupted)
    assert os.listdir(context.workdir) == []
