"""What simulated people want to have started by a form: they try again until the form was taken."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.modals import Desk, Sent
from tests.simulation.slack import CHANNEL
from tests.simulation.way_flows import COMMANDS

if TYPE_CHECKING:
    from tests.simulation.world import World

AGAIN_SECONDS = 30.0
STARTS = ("start", "pick")
"""The kinds of modals in which flows are started."""


@dataclass
class Errand:
    """A flow that somebody wants."""

    flow: str
    messages: list[str] = field(default_factory=list)
    """By ts: those from which it was to be started. Each is used once, so that no thread gets two runs."""


class Errands:
    """Ana wants flows, says so by the slash command or from a message, and fills in what she is asked."""

    def __init__(self, world: World, desk: Desk) -> None:
        self.world = world
        self.desk = desk
        self.texts: dict[str, str] = {}
        """By the ts of a message from which something was to be started: what it says."""
        self._wanted: dict[str, Errand] = {}

    def plan(self, flow: str) -> None:
        """Somebody will want this flow."""
        way = "command" if flow in COMMANDS else "shortcut"
        if way not in self._wanted:
            self._wanted[way] = Errand(flow)
            self.world.timeline.after(self.desk.chance.uniform(0.0, 10.0), partial(self._try, way))

    def _try(self, way: str) -> None:
        """Begin, unless the form was taken or stands open."""
        errand = self._wanted[way]
        if self._taken(errand):
            return
        if not self._is_open():
            if way == "command":
                self._command(errand)
            else:
                self._shortcut(errand)
        self.world.timeline.after(AGAIN_SECONDS, partial(self._try, way))

    def _is_open(self) -> bool:
        views = self.world.slack.core.state.views.values()
        return any(view.body.get("callback_id") == f"sayso:{kind}" for view in views for kind in STARTS)

    def _command(self, errand: Errand) -> None:
        given = f" to=port-{self.desk.serial()}" if self.desk.chance.random() < 0.5 else ""
        self.world.slack.command("ana", f"run {errand.flow}{given}")
        self.world.note(f"command {errand.flow}{given}")

    def _shortcut(self, errand: Errand) -> None:
        text = f"printer-{self.desk.serial()} burns"
        ts = self.world.slack.say(self.desk.chance.choice(("ben", "cleo")), text)
        self.texts[ts] = text
        errand.messages.append(ts)
        message = self.world.slack.core.state.message(CHANNEL, ts)
        assert message is not None
        self.world.slack.shortcut("ana", message)
        self.world.note(f"shortcut on {ts}")

    def _taken(self, errand: Errand) -> bool:
        return any(
            sent.taken and (sent.about in errand.messages if sent.about else sent.flow == errand.flow)
            for sent in self.starts()
        )

    # --- what came of it -----------------------------------------------------------------------------------

    def starts(self) -> list[Sent]:
        """The forms that were submitted to start something, up to their last page."""
        return [sent for sent in self.desk.sent if sent.kind == "start" and sent.is_last]

    def least(self) -> int:
        """How many sessions there must be: one for each form that was taken, and for each that will be."""
        coming = sum(1 for errand in self._wanted.values() if not self._taken(errand))
        return coming + len({sent.view for sent in self.starts() if sent.taken})

    def unsure(self) -> int:
        """How many more there may be: forms that were submitted, and nobody acknowledged it."""
        taken = {sent.view for sent in self.starts() if sent.taken}
        return len({sent.view for sent in self.starts() if sent.fits} - taken)
