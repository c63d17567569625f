"""Simulated people: they start flows, read their threads, and answer, or do something else."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from bot.workspace import elements
from bot.workspace.state import copied
from tests.simulation.errands import Errands
from tests.simulation.flows import SAMPLES
from tests.simulation.modals import Desk, openers
from tests.simulation.slack import CHANNEL, Delivery, Json, asked_key, key_of
from tests.simulation.way_flows import WAY_SAMPLES

if TYPE_CHECKING:
    from tests.simulation.world import World

HINT = "Reply in this thread"
FILES_HINT = "📎"
ENDS = ("✅", "❌", "🛑")
CALM = 4.0
"""Seconds between two looks at a thread when all faults have ended."""
_NEVER = ("Cancel the run",)
"""Buttons that nobody presses: the model knows no ends but the good one."""


@dataclass
class Said:
    """A message of a person in a thread."""

    ts: str
    user: str
    text: str
    root: str
    edited: bool = False
    deleted: bool = False
    number: int = 0
    """The prompt that it names, by its number; 0 for none."""
    choice: str = ""
    """The prompt that offers these words as a choice, and was open to see when they were written."""
    files: dict[str, bytes] = field(default_factory=dict)
    """What was dropped with it, by name."""


@dataclass
class Pressed:
    """A press of a button."""

    delivery: Delivery
    user: str
    label: str
    prompt: str


class Crowd:
    """Ana starts flows and answers; Ben and Dev approve; Cleo is not asked."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.starts: dict[str, str] = {}
        """By the ts of the message that started it: the flow."""
        self.storm: list[str] = []
        """The messages of an alert storm."""
        self.commands: list[tuple[Delivery, str]] = []
        self.unsure = 0
        """Commands that showed an error to whoever sent them: each may have started a session all the same."""
        self.said: dict[str, Said] = {}
        self.pressed: list[Pressed] = []
        self._seen: list[tuple[Json, tuple[Json, Json], str]] = []
        self._serial = 0
        self._calm = False
        self.desk = Desk(world)
        self.errands = Errands(world, self.desk)

    # --- starting ------------------------------------------------------------------------------------------

    def begin(self, wants: str | None) -> None:
        """Plan the starts of this run and the first looks."""
        chance = self.world.chance
        for _ in range(chance.choice((1, 1, 1, 2))):
            name = wants or (self.desk.flow() if self.world.forms else chance.choice(sorted(SAMPLES)))
            if name in WAY_SAMPLES:
                self.errands.plan(name)
                continue
            if name == "storm":
                self._alert_storm()
                continue
            # Two ships want the harbour at once.
            times = 2 if name == "booking" else 1
            # What a command does not say is asked for in a modal, and nobody here fills in modals.
            start = self._command if chance.random() < 0.2 and name != "tell" else self._mention
            for _ in range(times):
                self.world.timeline.after(chance.uniform(0.0, 10.0), partial(start, name))
        self.world.timeline.after(1.0, self._look)

    def _mention(self, name: str) -> None:
        bot = self.world.slack.core.state.bot_user_id
        ts = self.world.slack.say("ana", f"<@{bot}> {name}")
        self.starts[ts] = name
        self.world.note(f"start {name} {ts}")

    def _alert_storm(self) -> None:
        """The same alert again and again: one run comes of it."""
        if self.storm:
            return
        for _ in range(self.world.chance.randint(2, 6)):
            self.world.timeline.after(self.world.chance.uniform(0.0, 20.0), self._alert)

    def _alert(self) -> None:
        ts = self.world.slack.say("ana", "ALERT db is down")
        self.storm.append(ts)
        self.world.note(f"alert {ts}")

    def _command(self, name: str) -> None:
        delivery = self.world.slack.command("ana", f"run {name}")
        self.commands.append((delivery, name))
        self.world.note(f"command {name}")

        def again() -> None:
            # The person sees an error unless Slack saw the acknowledgement. One that was lost may mean two sessions.
            if not delivery.acknowledged:
                self.commands.remove((delivery, name))
                self.unsure += 1
                self._command(name)

        self.world.timeline.after(40.0, again)

    def expected(self) -> int:
        """How many sessions there must be."""
        return len(self.starts) + len(self.commands) + (1 if self.storm else 0) + self.errands.least()

    def roots(self) -> list[str]:
        """The messages whose threads people read."""
        ours = [m["ts"] for m in self.world.slack.by_bot() if key_of(m).startswith("root:")]
        return [*self.starts, *self.storm, *self.errands.texts, *ours]

    # --- looking -------------------------------------------------------------------------------------------

    def calm(self) -> None:
        """From now on do what is asked, and nothing else."""
        self._calm = self.desk.calm = True

    def done(self) -> bool:
        """Whether every session shows its end."""
        cards = [m["text"] for m in self.world.slack.by_bot() if key_of(m).startswith("card:")]
        ended = sum(1 for text in cards if any(icon in text for icon in ENDS))
        return ended >= self.expected() and not any("*Paused*" in text for text in cards)

    def _look(self) -> None:
        chance = self.world.chance
        roots = self.roots()
        if not (self.world.forms and self.desk.look()) and roots:
            self._act(chance.choice(roots))
        pause = CALM if self._calm else chance.uniform(0.5, 10.0)
        self.world.timeline.after(pause, self._look)

    def _act(self, root: str) -> None:
        if self.world.chance.random() < self.world.weather.rude:
            self._rude(root)
            return
        thread = self.world.slack.thread(root)
        if self._calm and any(
            "*Paused*" in message["text"] for message in thread if key_of(message).startswith("card:")
        ):
            self._say("ana", "resume", root)
            return
        asked = [message for message in thread if asked_key(message)]
        live = [message for message in asked if _buttons(message) or _hint(message) or openers(message)]
        if live:
            message = self.world.chance.choice(live)
            if not (self.world.forms and self.desk.opens(message)):
                self._answer(message, live, root)

    def _answer(self, message: Json, live: list[Json], root: str) -> None:
        buttons = [found for found in _buttons(message) if elements.label_of(found[1]) not in _NEVER]
        rude = self.world.weather.rude > 0 and "What now?" in message["text"]
        if rude and self.world.chance.random() < 0.5:
            self._type_a_choice(root)
        elif buttons:
            found = self.world.chance.choice(buttons)
            self._seen.append((*_kept((message, found)), asked_key(message)))
            self._press(self._approver(message), message, found)
        else:
            self._write(message, live, root)

    def _write(self, message: Json, live: list[Json], root: str) -> None:
        self._serial += 1
        text, number = f"answer-{self._serial}", 0
        if sum(1 for each in live if _hint(each)) > 1:
            number = _number(message)
            text = f"#{number}: {text}"
        user = self.desk.who(message) if self.world.forms else "ana"
        if FILES_HINT in _hint(message):
            self._drop(user, text, root)
            return
        self._say(user, text, root, number)

    def _drop(self, user: str, text: str, root: str) -> None:
        """Drop files into the thread, sometimes too many or too large ones, sometimes with words."""
        chance = self.desk.chance
        wrong = "" if self._calm or chance.random() > 0.2 else chance.choice(("many", "large", "none"))
        count = {"many": 3, "none": 0}.get(wrong, chance.choice((1, 2)))
        size = 200 if wrong == "large" else chance.randint(1, 100)
        files = {
            f"{text}-{n}.txt": f"{text} of {n:02d} has this in it. ".encode() * size for n in range(count)
        }
        self._say(user, text if not count or chance.random() < 0.5 else "", root, files=files)

    def _approver(self, message: Json) -> str:
        if self.world.forms:
            return self.desk.who(message)
        if "Both?" in message["text"]:
            return self.world.chance.choice(("ana", "ben", "dev"))
        return self.world.chance.choice(("ben", "dev")) if "Deploy?" in message["text"] else "ana"

    def decide(self, user: str, message: Json) -> None:
        """Press the first button of a question as it was shown."""
        found = _buttons(message)
        if found:
            self._press(user, message, found[0])

    def _press(self, user: str, message: Json, found: tuple[Json, Json]) -> None:
        label = elements.label_of(found[1])
        delivery = self.world.slack.press(user, message, found)
        self.pressed.append(Pressed(delivery, user, label, asked_key(message).removeprefix("prompt:")))
        self.world.note(f"{user} presses {label}")

    def _say(
        self,
        user: str,
        text: str,
        root: str,
        number: int = 0,
        choice: Json | None = None,
        files: dict[str, bytes] | None = None,
    ) -> None:
        ts = self.world.slack.say(user, text, root, files)
        offered = asked_key(choice).removeprefix("prompt:") if choice else ""
        self.said[ts] = Said(ts, user, text, root, number=number, choice=offered, files=files or {})
        self.world.note(f"{user} says {text} {ts}")

    # --- what nobody asked for -----------------------------------------------------------------------------

    def _rude(self, root: str) -> None:
        acts = (
            self._chat,
            self._control,
            self._press_twice,
            self._press_together,
            self._press_old,
            self._press_of_others,
            self._edit,
            self._delete,
            self._speak_up,
            self._type_a_choice,
        )
        self.world.chance.choice(acts)(root)

    def _chat(self, root: str) -> None:
        text = self.world.chance.choice(("lunch?", "<@U0LOCALBEN> please look", "thanks"))
        self._say(self.world.chance.choice(("cleo", "ben")), text, root)

    def _control(self, root: str) -> None:
        words = ("status", "help", "pause", "resume", "resume", "resume and hurry", "stop", "Status?")
        self._say("ana", self.world.chance.choice(words), root)

    def _some_button(self, root: str) -> tuple[Json, tuple[Json, Json]] | None:
        live = [message for message in self.world.slack.thread(root) if asked_key(message)]
        there = [(message, found) for message in live for found in _buttons(message)]
        there = [one for one in there if elements.label_of(one[1][1]) not in _NEVER]
        return _kept(self.world.chance.choice(there)) if there else None

    def _press_twice(self, root: str) -> None:
        there = self._some_button(root)
        if there is not None:
            self._seen.append((*there, ""))
            user = self._approver(there[0])
            self._press(user, *there)
            self._press(user, *there)

    def _press_together(self, root: str) -> None:
        first, second = self._some_button(root), self._some_button(root)
        if first is not None and second is not None:
            self._press("ben", *first)
            self._press("dev" if "Deploy?" in first[0]["text"] else "ana", *second)

    def _press_old(self, root: str) -> None:
        if self._seen:
            message, found, _ = self.world.chance.choice(self._seen)
            self._press(self._approver(message), message, found)

    def _press_of_others(self, root: str) -> None:
        there = self._some_button(root)
        if there is not None:
            self._press("cleo", *there)

    def _type_a_choice(self, root: str) -> None:
        """Write what a button says, which may be a word that otherwise means the whole run."""
        there = self._some_button(root)
        if there is not None and "What now?" in there[0]["text"]:
            self._say("ana", elements.label_of(there[1][1]), root, choice=there[0])

    def _mine(self, root: str) -> Said | None:
        mine = [said for said in self.said.values() if said.root == root and not said.deleted]
        return self.world.chance.choice(mine) if mine else None

    def _edit(self, root: str) -> None:
        said = self._mine(root)
        message = said and self.world.slack.core.state.message(CHANNEL, said.ts)
        if said is not None and message:
            said.edited = True
            channel = self.world.slack.core.state.channels[CHANNEL]
            self.world.slack.core.edit(channel, message, {"text": f"{said.text} edited"})
            self.world.note(f"edit {said.ts}")

    def _delete(self, root: str) -> None:
        said = self._mine(root)
        message = said and self.world.slack.core.state.message(CHANNEL, said.ts)
        if said is not None and message:
            said.deleted = True
            self.world.slack.core.delete(self.world.slack.core.state.channels[CHANNEL], message)
            self.world.note(f"delete {said.ts}")

    def _speak_up(self, root: str) -> None:
        self._serial += 1
        self._say("ana", f"unasked-{self._serial}", root)


def _buttons(message: Json, action: str = "sayso:option") -> list[tuple[Json, Json]]:
    """The buttons of a message that answer its prompt, or do something else with it."""
    found = elements.elements(message.get("blocks") or [])
    return [one for one in found if str(one[1].get("action_id", "")).startswith(action)]


def live_buttons(message: Json) -> bool:
    """Whether a message of the bot can be pressed."""
    opens = openers(message) if asked_key(message) else {}
    return bool(_buttons(message) or opens)


def _hint(message: Json) -> str:
    """The line that says how to answer with a text; empty where there is none."""
    for block in message.get("blocks") or []:
        text: Any = block.get("text")
        if isinstance(text, dict) and any(hint in text.get("text", "") for hint in (HINT, FILES_HINT)):
            return str(text["text"])
    return ""


def _number(message: Json) -> int:
    return int(_hint(message).split("#", 1)[1].split(":", 1)[0])


def _kept(there: tuple[Json, tuple[Json, Json]]) -> tuple[Json, tuple[Json, Json]]:
    """A button with its message as they are now: they may be pressed when they look different."""
    message, (block, button) = there
    return copied(message), (copied(block), copied(button))
