"""Files of this machine as an answer: copied into the session's own folder, as those that come through Slack are."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from bot.config.session_files import Inbox, SessionFiles
from engine.forms.question import Question
from engine.language.codec import Json, clean_text
from engine.language.errors import InvalidAnswer
from engine.nodes.runtime.folder import FileRefused, sniffed

_CHUNK = 256 * 1024
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,8}")


def keep(
    files: SessionFiles, session_id: str, prompt_id: str, prompt: Question, paths: Sequence[Path]
) -> list[Json]:
    """The files as an answer has them, `{name, path, size, type}` each. Raises `InvalidAnswer` and `FileRefused`."""
    if not prompt.accepts_files:
        raise InvalidAnswer("This question takes no files.")
    most = prompt.max_files or 1
    if len(paths) > most:
        raise InvalidAnswer(
            f"This question takes at most {most} {'file' if most == 1 else 'files'}, not {len(paths)}."
        )
    with files.inbox(session_id, prompt_id) as inbox:
        return [_copied(inbox, path, int(prompt.max_size or 0)) for path in paths]


def _copied(inbox: Inbox, path: Path, largest: int) -> Json:
    suffix = path.suffix.lower() if _SUFFIX.fullmatch(path.suffix) else ""
    name = f"local-{os.urandom(6).hex()}{suffix}"
    try:
        with path.open("rb") as source, inbox.writing(name) as part:
            head = chunk = source.read(_CHUNK)
            while chunk:
                part.write(chunk)
                if part.size > largest:
                    raise InvalidAnswer(
                        f"{path.name} is larger than {largest:,} bytes, the most that a file may have."
                    )
                chunk = source.read(_CHUNK)
            part.done()
            size = part.size
    except OSError as error:
        raise FileRefused(f"{path} cannot be read: {error.strerror}.") from error
    return {
        "name": clean_text(path.name)[0],
        "path": str(inbox.path / name),
        "size": size,
        "type": sniffed(head[:4_096]),
    }


def typed_paths(line: str) -> list[Path] | None:
    """The files that a typed line names, as a shell would read it; None where one of its words is no file."""
    try:
        words = shlex.split(line)
    except ValueError:
        return None
    paths = [Path(word).expanduser() for word in words]
    try:
        return paths if paths and all(path.is_file() for path in paths) else None
    except (OSError, ValueError):
        return None
