"""Finding of a check of an installation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """One finding: `fail` keeps something from working, `warn` should be looked at. `hint` says what to do."""

    name: str
    level: Level
    text: str
    hint: str | None = None
