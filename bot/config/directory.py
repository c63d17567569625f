"""People as data: their managers and timezones, and on-call rotas; from one YAML file that is read again when it
changes.

    people:
      ben@example.com: {manager: cleo@example.com, timezone: Europe/Berlin}
    rotas:
      payments: {people: [ana@example.com, ben@example.com], from: 2026-11-02T09:00:00+01:00, each: 7d}
      database: {command: [./on-call, database]}

A command prints the people who are on call now, an e-mail address or user id a line. It runs at most once a minute. An
unreadable entry names nobody, and so gives nobody a right.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from stat import S_ISREG

from engine.language import timestamps
from engine.language.codec import Json, lines_of
from engine.language.timestamps import parse_duration, parse_moment

log = logging.getLogger("sayso.people")

COMMAND_SECONDS = 10.0
KEEP_SECONDS = 60.0
_MOST_BYTES = 64 * 1024


class RotaFailed(Exception):
    """The people on call are unknown at the moment."""


class Directory:
    """The current content of the file."""

    def __init__(self, path: Path, now: Callable[[], str], steady: Callable[[], float]) -> None:
        self._path = path
        self._now = now
        self._steady = steady
        self._read: tuple[float, dict[str, Json]] = (0.0, {})
        self._asked: dict[str, tuple[float, list[str]]] = {}

    def manager_of(self, entry: str) -> str | None:
        """Return the manager of a person, both as the file names them, or None."""
        manager = self.person(entry).get("manager")
        return str(manager) if manager else None

    def person(self, entry: str | None) -> Mapping[str, Json]:
        """Return the file's entry of a person, by e-mail address or user id; empty if it has none."""
        people = self._document().get("people") or {}
        found = next((people[key] for key in people if key.lower() == (entry or "").lower()), None)
        return found if isinstance(found, dict) else {}

    async def on_call(self, rota: str) -> list[str]:
        """Return the people on call now, by e-mail address or user id. Raises `RotaFailed`."""
        spec = (self._document().get("rotas") or {}).get(rota)
        if not isinstance(spec, dict):
            raise RotaFailed(f"there is no rota {rota!r} in {self._path.name}")
        if spec.get("command"):
            return await self._ask(rota, [str(word) for word in spec["command"]])
        try:
            people, begun = [str(each) for each in spec["people"]], parse_moment(str(spec["from"]))
            turns = timestamps.seconds_between(begun, self._now()) // parse_duration(str(spec["each"]))
            return [people[int(turns) % len(people)]]
        except (LookupError, TypeError, ValueError, ZeroDivisionError) as error:
            raise RotaFailed(
                f"rota {rota!r} needs `people`, `from` and `each`, or a `command`: {error}"
            ) from error

    async def _ask(self, rota: str, command: list[str]) -> list[str]:
        kept = self._asked.get(rota)
        if kept is not None and self._steady() - kept[0] < KEEP_SECONDS:
            return kept[1]
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=self._path.parent,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise RotaFailed(f"rota {rota!r} could not be run: {error}") from error
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                said, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise RotaFailed(f"rota {rota!r} did not answer within {COMMAND_SECONDS:g} s") from None
        if process.returncode != 0:
            raise RotaFailed(f"rota {rota!r} failed with exit code {process.returncode}")
        found = [
            line.strip() for line in lines_of(said[:_MOST_BYTES].decode(errors="replace")) if line.strip()
        ]
        self._asked[rota] = (self._steady(), found)
        return found

    def _document(self) -> dict[str, Json]:
        """Return the file's content; the last known one if it cannot be read now."""
        try:
            found = self._path.stat()
        except OSError:
            return {}
        if found.st_mtime != self._read[0] and S_ISREG(found.st_mode):  # nobody waits for a pipe
            self._read = (found.st_mtime, self._loaded() or self._read[1])
        return self._read[1]

    def _loaded(self) -> dict[str, Json] | None:
        from engine.language.errors import FlowError
        from engine.language.yaml import load_located  # most have no such file

        try:
            located = load_located(self._path.read_text("utf-8"), str(self._path))
            if located.problems:
                raise FlowError(located.problems)
            return dict(located.data)
        except Exception as error:
            log.error("%s cannot be read, so its last contents are still used: %s", self._path, error)
            return None
