"""A lease whose signs of life a test gives, and permits that end when it says."""

from __future__ import annotations

from engine.language.errors import FenceLost
from engine.storage.fence import Signs


class Lease:
    """A `Fence` by a clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.signs = Signs(3.0, lambda: self.now)
        self.signs.confirmed(0.0)

    def generation(self) -> int:
        """See `Fence.generation`."""
        return self.signs.generation

    def holds(self, generation: int) -> bool:
        """See `Fence.holds`."""
        return self.signs.fresh() and generation == self.signs.generation

    def freeze(self) -> None:
        """The process is stopped for longer than the lease."""
        self.now += 10.0

    def gap(self) -> None:
        """It wakes, and its sign of life runs first."""
        self.freeze()
        self.signs.confirmed(self.now)


class Lasting:
    """A `Permit` that is lost after so many effects."""

    def __init__(self, effects: int) -> None:
        self.left = effects

    def holds(self) -> bool:
        """See `Permit.holds`."""
        return self.left > 0

    async def ask(self) -> None:
        """See `Permit.ask`."""
        if not self.holds():
            raise FenceLost
        self.left -= 1
