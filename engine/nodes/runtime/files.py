"""The `read_file` and `write_file` nodes: files in the session's own folder, texts to write, texts and pictures to
read.

No link is ever followed: each folder on the way is opened relative to the one before it, so the meaning of a path
cannot change between the check and the use. A write is whole or not at all: it goes to a temporary file, which then
replaces the old one. Both may be repeated after a crash.

`read_file` gives {path, text, first_line, last_line, total_lines, more, size}, at most 64 KiB of text at a time, and
for a picture {path, picture: {type, width, height, digest}, size}: the picture is kept under that digest. `write_file`
gives {path, size}.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable

from engine.language.codec import Json
from engine.nodes.runtime.effects import before_effect
from engine.nodes.runtime.folder import NO_LINK, content, folder_inside
from engine.nodes.runtime.images import is_picture, picture_of, picture_problem
from engine.nodes.runtime.kept_files import keep
from engine.nodes.runtime.runner import Completed, Failed, Interrupted, NodeContext, Outcome, Refusal
from engine.nodes.runtime.user_code import in_thread
from engine.nodes.types.paths import BadPath, session_path

MOST_READ = 64 * 1024
"""Bytes of text that one call gives."""
MOST_FILE = 32 * 2**20
"""Size in bytes up to which a file is read."""
MOST_WRITTEN = 2**20

_LOOKED_AT = 8192


async def read_file(config: dict[str, Json], ctx: NodeContext) -> Outcome:
    """Read a part of a file: `path`, `first_line`, `lines`. See the module."""
    first, lines = config.get("first_line") or 1, config.get("lines")
    return await _done(lambda: _read(ctx, config["path"], first, lines), ctx)


async def write_file(config: dict[str, Json], ctx: NodeContext) -> Outcome:
    """Write a file: `path`, `content`. See the module."""
    return await _done(lambda: _write(ctx, config["path"], config["content"]), ctx)


async def _done(work: Callable[[], Json], ctx: NodeContext) -> Outcome:
    if ctx.aborted.is_set():
        return Interrupted("cut", "the session was stopping before the file was opened")
    await before_effect()
    try:
        return Completed(await in_thread(work))
    except BadPath as error:
        return Failed("path", str(error))
    except Refusal as refusal:
        return refusal.outcome
    except OSError as error:
        return Failed("file", f"the file cannot be used: {error.strerror or type(error).__name__}")


# --- reading -------------------------------------------------------------------------------------------


def _read(ctx: NodeContext, path: str, first: int, most: int | None) -> Json:
    data = _bytes(ctx, path)
    if is_picture(data):
        found, problem = picture_of(data), picture_problem(data)
        if found is None or problem is not None:
            raise Refusal("picture", f"{path} {problem}")
        told = {
            "type": found.kind,
            "width": found.width,
            "height": found.height,
            "digest": keep(ctx.workdir, data),
        }
        return {"path": "/".join(session_path(path)), "picture": told, "size": len(data)}
    if data.startswith(b"%PDF-"):
        raise Refusal("not_text", f"{path} is a PDF; only text and pictures can be read here")
    if b"\0" in data[:_LOOKED_AT]:
        raise Refusal("not_text", f"{path} is not a text file")
    lines = data.split(b"\n")
    if lines[-1] == b"":  # the end of the last line, and no line of its own
        lines.pop()
    taken: list[bytes] = []
    room = MOST_READ
    for line in lines[first - 1 : None if most is None else first - 1 + most]:
        if taken and len(line) + 1 > room:
            break
        taken.append(line if len(line) <= room else line[:room] + b" [... the line is cut here ...]")
        room -= len(line) + 1
    text = b"\n".join(taken).decode("utf-8", "replace").replace("\0", "\ufffd")
    last, total = first - 1 + len(taken), len(lines)
    if total and first > total:
        raise Refusal("no_such_line", f"{path} has {total} lines; there is no line {first}")
    return {
        "path": "/".join(session_path(path)),
        "text": text,
        "first_line": first,
        "last_line": last,
        "total_lines": total,
        "more": last < total,
        "size": len(data),
    }


def _bytes(ctx: NodeContext, path: str) -> bytes:
    *folders, name = session_path(path)
    try:
        with folder_inside(ctx.folder(), folders) as folder:
            data = content(os.open(name, NO_LINK, dir_fd=folder), MOST_FILE)
    except OSError as error:
        raise _refused(path, error) from error
    if data is None:
        raise Refusal("not_a_file", f"{path} is not a file")
    if len(data) > MOST_FILE:
        raise Refusal(
            "too_large", f"{path} is larger than {MOST_FILE // 2**20} MiB, too large to be read here"
        )
    return data


# --- writing -------------------------------------------------------------------------------------------


def _write(ctx: NodeContext, path: str, content: str) -> Json:
    data = content.encode("utf-8", "replace")
    if len(data) > MOST_WRITTEN:
        raise Refusal(
            "too_large", f"the text has {len(data):,} bytes; files written here can have at most 1 MiB"
        )
    *folders, name = session_path(path)
    beside = f".sayso-{secrets.token_hex(8)}"
    try:
        with folder_inside(ctx.folder(), folders, make=True) as folder:
            mode = _mode(folder, name, path)
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                with os.fdopen(os.open(beside, flags, 0o600, dir_fd=folder), "wb") as stream:
                    stream.write(data)
                    stream.flush()
                    os.fchmod(stream.fileno(), mode)
                    os.fsync(stream.fileno())
                os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
                os.fsync(folder)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(beside, dir_fd=folder)
    except OSError as error:
        raise _refused(path, error) from error
    return {"path": "/".join((*folders, name)), "size": len(data)}


def _mode(folder: int, name: str, path: str) -> int:
    """The rights of the file that is replaced; only its owner's for a new one."""
    try:
        state = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return 0o600
    if not stat.S_ISREG(state.st_mode):
        raise Refusal("not_a_file", f"{path} is not a file, so nothing was written")
    return stat.S_IMODE(state.st_mode) & 0o777


def _refused(path: str, error: OSError) -> Refusal:
    reasons = {
        errno.ENOENT: ("not_found", "there is no such file in the session's folder"),
        errno.ELOOP: ("link", "it is a link or behind one; links are not followed"),
        errno.ENOTDIR: ("link", "a part of the path is not a folder; links are not followed"),
        errno.EISDIR: ("not_a_file", "it is a folder"),
        errno.ENXIO: ("not_a_file", "it is not a file"),
    }
    default = ("file", error.strerror or type(error).__name__)
    kind, text = reasons.get(error.errno or 0, default)
    return Refusal(kind, f"{path}: {text}")
