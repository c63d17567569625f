"""What simulated people want to have started by a form or by a reaction: they try again until it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.modals import Desk, Sent
from tests.simulation.slack import CHANNEL, key_of
from tests.simulation.way_flows import COMMANDS, REACTIONS

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
        self.reacted: dict[str, set[str]] = {}
        """By the ts of a message: who reacted to it, by id."""
        self._coming = 0
        """How many messages somebody will write, to which people react."""
        self._wanted: dict[str, Errand] = {}

    def plan(self, flow: str) -> None:
        """Somebody will want this flow."""
        if flow in REACTIONS:
            self.world.timeline.after(self.desk.chance.uniform(0.0, 10.0), partial(self._see, flow))
            self._coming += 1
            return
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

    # --- reactions -----------------------------------------------------------------------------------------

    def _see(self, flow: str) -> None:
        """Somebody writes something, and people react to it."""
        chance = self.desk.chance
        text = f"boat-{self.desk.serial()} sinks"
        ts = self.world.slack.say(chance.choice(("ben", "cleo")), text)
        self.texts[ts], self.reacted[ts] = text, set()
        self._coming -= 1
        users = ["ana"]
        if self.world.weather.rude > 0:
            users += chance.sample(("ben", "cleo", "dev"), chance.randint(0, 2))
        for user in users:
            after = chance.uniform(0.0, 5.0 if user == "ana" else 40.0)
            self.world.timeline.after(after, partial(self._react, user, ts, REACTIONS[flow]))
        self.world.timeline.after(AGAIN_SECONDS, partial(self._urge, ts, REACTIONS[flow]))

    def _react(self, user: str, ts: str, name: str, *, add: bool = True) -> None:
        state = self.world.slack.core.state
        message = state.message(CHANNEL, ts)
        assert message is not None
        self.reacted[ts].add(state.user(user).id)
        self.world.note(f"{user} {'adds' if add else 'removes'} {name} {ts}")
        self.world.slack.core.react(state.user(user), state.channels[CHANNEL], message, name, add=add)

    def _urge(self, ts: str, name: str) -> None:
        """Nothing begins: take the reaction away, and react once more. Some do so even where something began."""
        begun = any(key_of(message).startswith("card:") for message in self.world.slack.thread(ts))
        if not begun or (self.world.weather.rude > 0 and self.desk.chance.random() < 0.3):
            self._react("ana", ts, name, add=False)
            self.world.timeline.after(0.5, partial(self._react, "ana", ts, name))
        if not begun:
            self.world.timeline.after(AGAIN_SECONDS, partial(self._urge, ts, name))

    # --- what came of it -----------------------------------------------------------------------------------

    def starts(self) -> list[Sent]:
        """The forms that were submitted to start something, up to their last page."""
        return [sent for sent in self.desk.sent if sent.kind == "start" and sent.is_last]

    def least(self) -> int:
        """How many sessions there must be: one for each form that was taken and for each message with a reaction, and
        for those that will be."""
        coming = sum(1 for errand in self._wanted.values() if not self._taken(errand))
        return (
            coming
            + self._coming
            + len(self.reacted)
            + len({sent.view for sent in self.starts() if sent.taken})
        )

    def unsure(self) -> int:
        """How many more there may be: forms that were submitted, and nobody acknowledged it; and reactions that came when
        what the first one had started was over."""
        late = sum(max(0, len(people) - 1) for people in self.reacted.values())
        taken = {sent.view for sent in self.starts() if sent.taken}
        return late + len({sent.view for sent in self.starts() if sent.fits} - taken)
