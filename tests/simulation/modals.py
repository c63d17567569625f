"""Simulated people in front of modals: they fill forms in, change what is to be approved, and hand questions over.

What a person sees is what Slack would show: a modal stands open until an acknowledgement that came in time says what
becomes of it; without one there is "trouble connecting", and the person sends it again, as it was or changed, or gives
up. What chance decides here comes from a stream of its own, so runs without forms are what they were.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from bot.views.forms import BACK
from bot.workspace import elements
from bot.workspace.state import SlackError, View, copied
from tests.simulation.flows import SAMPLES
from tests.simulation.form_flows import FORM_SAMPLES
from tests.simulation.further_flows import FURTHER_SAMPLES
from tests.simulation.slack import PATIENCE, Delivery, Json, asked_key

if TYPE_CHECKING:
    from tests.simulation.world import World

EVERYBODY = ("ana", "ben", "cleo", "dev")
OPENS = "sayso:open:"
MOST_EDITS, MOST_HANDED = 4, 4
"""How often people ask for the modal to change what one question proposes, and to hand questions over."""
NEEDED = ("form", "reject", "start", "pick")
"""The modals without which not all can be answered."""
_FIELD = "field:"


@dataclass
class Sent:
    """A modal that somebody submitted."""

    delivery: Delivery
    user: str
    """By id."""
    view: str
    kind: str
    hash: str
    """Of the view as it was submitted."""
    prompt: str
    nonce: str
    meant: Json
    """What each field was filled in with, as it should be recorded."""
    fits: bool
    """Whether nothing of it is wrong."""
    filled: Json
    """As `meant`, of the page that was submitted: `meant` has the pages before it as well."""
    is_last: bool
    """Whether no page comes after it."""
    flow: str = ""
    about: str = ""
    """Of a form that starts a flow: which, and the ts of the message from which it is started, if it is."""

    @property
    def taken(self) -> bool:
        """Whether the bot acknowledged it without a word against it."""
        return any(not said for said in self.delivery.said)


class Desk:
    """What people do with modals."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.chance = Random(f"sayso modals {world.seed}")
        self.sent: list[Sent] = []
        self.calm = False
        self._waiting: dict[str, Delivery] = {}
        """By the modal: what was submitted and is not answered yet."""
        self._failed: dict[str, Sent] = {}
        """By the modal: what Slack could not deliver in time."""
        self._pages: dict[str, list[Json]] = {}
        """By the modal: what was filled in on the pages before the one that it shows."""
        self._refused: set[str] = set()
        """Modals whose answer says that nothing can come of them."""
        self._pressed: list[tuple[Json, tuple[Json, Json], str | None]] = []
        self._edits: dict[str, int] = {}
        self._handed = 0
        self._serial = 0

    # --- whom and what ---------------------------------------------------------------------------------------

    def flow(self) -> str:
        """Which flow somebody starts."""
        if self.world.files and self.chance.random() < 0.7:
            return self.chance.choice(("papers", "memo"))
        if self.world.ways and self.chance.random() < 0.7:
            return self.chance.choice(("ferry", "ferry", "look", "mend", "rescue", "alarm"))
        if self.world.further:
            return self._further()
        if self.chance.random() < 0.2:
            return self.chance.choice(sorted(SAMPLES))
        return self.chance.choice(("careful", "careful", "order", "relay", "release", "release"))

    def _further(self) -> str:
        if self.chance.random() < 0.2:
            return self.chance.choice(sorted({**SAMPLES, **FORM_SAMPLES}))
        return self.chance.choice(sorted(FURTHER_SAMPLES))

    def who(self, message: Json) -> str:
        """Who does something about a question: mostly one of those whom it mentions. A card may name them further down, where
        people look at the end."""
        blocks = message.get("blocks") or []
        lead = json.dumps(blocks if self.calm else blocks[:1])
        users = self.world.slack.core.state.users
        named = [users[found].name for found in re.findall(r"<@(U\w+)>", lead) if found in users]
        return self.chance.choice(named if named and self.chance.random() < 0.75 else EVERYBODY)

    # --- opening ---------------------------------------------------------------------------------------------

    def opens(self, message: Json) -> bool:
        """Press something that opens a modal, if there is such a thing and somebody wants it; whether they did."""
        there = openers(message)
        if "hand" in there and self._wants_to_hand():
            self._open(message, *there["hand"])
        elif self.world.further and "reject" in there and self.chance.random() < 0.4:
            self._open(message, *there["reject"])
        elif "edit" in there and self._wants_to_edit(asked_key(message)):
            self._open(message, *there["edit"])
        elif "form" in there:
            self._open(message, *there["form"])
        else:
            return False
        return True

    def _wants_to_hand(self) -> bool:
        if self.calm or self._handed >= MOST_HANDED or self.chance.random() > 0.15:
            return False
        self._handed += 1
        return True

    def _wants_to_edit(self, key: str) -> bool:
        done, most = self._edits.get(key, 0), MOST_EDITS if self.world.weather.rude > 0 else 1
        if self.calm or done >= most or self.chance.random() > 0.7:
            return False
        self._edits[key] = done + 1
        return True

    def _open(self, message: Json, found: tuple[Json, Json], choice: str | None) -> None:
        kept = (copied(message), (copied(found[0]), copied(found[1])), choice)
        self._pressed.append(kept)
        if self.world.weather.rude > 0 and self.chance.random() < 0.15:
            kept = self.chance.choice(self._pressed)  # as it was shown some time ago
        user = self.who(kept[0])
        self.world.slack.press(user, *kept)
        self.world.note(f"{user} opens {kept[1][1].get('action_id')} {choice or ''}")

    # --- filling in ------------------------------------------------------------------------------------------

    def look(self) -> bool:
        """Continue with a modal that stands open; whether there was one."""
        state = self.world.slack.core.state
        views = [view for view in state.views.values() if view.id not in self._waiting]
        if views and self.world.further and not self.calm:
            views = self._pressing(views)
        if not views:
            return False
        self._go_on(self.chance.choice(views))
        return True

    def _pressing(self, views: list[View]) -> list[View]:
        """What stands open can wait; a reason is thought over for long, and somebody changes what it is about."""
        if self.chance.random() < 0.3:
            return []
        is_slow = self.world.weather.rude > 0 and self.chance.random() < 0.7
        return [view for view in views if not is_slow or _kind(view) != "reject"]

    def _go_on(self, view: View) -> None:
        kind = _kind(view)
        useless = (
            not view.body.get("submit") or view.id in self._refused or (self.calm and kind not in NEEDED)
        )
        if useless or (not self.calm and self.chance.random() < 0.1):
            self.world.note(f"close {view.id}")
            self.world.slack.views.remove(view)
            return
        self._turned_back(view)
        if self._goes_back(view):
            return
        before = self._failed.pop(view.id, None)
        if before is not None and before.hash == view.hash and self.chance.random() < 0.5:
            filled, fits = before.filled, before.fits  # once more, as it is
        else:
            filled, fits = self._filled(view, kind)
        self._submit(view, kind, filled, fits)
        if self.world.weather.rude > 0 and self.chance.random() < 0.2:
            self._submit(view, kind, filled, fits)  # pressed twice

    def _turned_back(self, view: View) -> None:
        """A page that somebody goes back to has what was filled in there."""
        known, page = self._pages.get(view.id, []), _page(view)
        if page > len(known):
            self.world.trouble(f"{view.id} shows page {page + 1}, and {len(known)} were filled in")
        if page >= len(known):
            return
        self._pages[view.id] = known[:page]
        shown = {
            name: _shown(view.values[block["block_id"]][element["action_id"]])
            for name, block, element in _inputs(view)
        }
        if shown != known[page]:
            self.world.trouble(f"{view.id} went back to {shown}, and what was filled in is {known[page]}")

    def _goes_back(self, view: View) -> bool:
        """Press the button to the page before, if there is one and somebody wants it; whether they did."""
        if self.world.weather.rude == 0 or not self.world.further or self.chance.random() > 0.3:
            return False
        for block, element in elements.elements(view.body["blocks"]):
            if element.get("action_id") == BACK:
                self.world.slack.press_in(view, (copied(block), copied(element)))
                self.world.note(f"{view.user_id} goes back in {view.id}")
                return True
        return False

    def _filled(self, view: View, kind: str) -> tuple[Json, bool]:
        """What somebody fills in, and whether it is right."""
        if kind == "hand":
            return self._hand(view)
        return self._reason(view) if kind == "reject" else self._fill_in(view, kind)

    def _reason(self, view: View) -> tuple[Json, bool]:
        """Why not; sometimes nothing but blanks."""
        self._serial += 1
        blank = not self.calm and self.chance.random() < 0.25
        text = "  " if blank else f"because-{self._serial:04d} "
        for block, element in elements.elements(view.body["blocks"]):
            if block["type"] == "input":
                entry = elements.entry_for(element, text)
                view.values = elements.merged(view.values, {block["block_id"]: {element["action_id"]: entry}})
                return {"reason": text.strip() or None}, not blank or bool(block.get("optional"))
        raise AssertionError(f"{view.id} does not ask for a reason")

    def _fill_in(self, view: View, kind: str) -> tuple[Json, bool]:
        """Something in every field, sometimes something wrong."""
        self._serial += 1
        wrong = not self.calm and self.chance.random() < 0.25
        meant: Json = {}
        values: Json = {}
        for name, block, element in _inputs(view):
            shown = _shown(view.values[block["block_id"]][element["action_id"]])
            is_kept = kind == "edit" or (self.world.further and shown is not None)
            is_kept = is_kept and self.chance.random() < 0.4
            given = shown if is_kept else self._value(name, block, element, wrong)
            meant[name] = given
            values[block["block_id"]] = {element["action_id"]: elements.entry_for(element, given)}
        view.values = elements.merged(view.values, values)
        return meant, not any(" at " in str(value) for value in meant.values())

    def serial(self) -> str:
        """A number that nothing else has."""
        self._serial += 1
        return f"{self._serial:04d}"

    def _value(self, name: str, block: Json, element: Json, wrong: bool) -> Any:
        if name == "stops":
            return f"{self._serial} at sea" if wrong else f"{self._serial}, {self._serial + 1}"
        if element["type"] == "number_input":
            return 1000 + self._serial
        if element["type"] == "email_text_input":
            return f"p{self._serial:04d} at example" if wrong else f"p{self._serial:04d}@example.com"
        if element["type"] in ("radio_buttons", "static_select"):
            return self.chance.choice([elements.label_of(option) for option in element["options"]])
        return None if block.get("optional") and self.chance.random() < 0.5 else f"v{self._serial:04d}"

    def _hand(self, view: View) -> tuple[Json, bool]:
        """Somebody who answers instead."""
        state = self.world.slack.core.state
        to = state.user(self.chance.choice(EVERYBODY)).id
        for block, element in elements.elements(view.body["blocks"]):
            if element["type"] == "users_select":
                entry = elements.entry_for(element, to)
                view.values = elements.merged(view.values, {block["block_id"]: {element["action_id"]: entry}})
        return {"to": to}, to != view.user_id

    # --- submitting ------------------------------------------------------------------------------------------

    def _submit(self, view: View, kind: str, filled: Json, fits: bool) -> None:
        missing = elements.missing_inputs(view.body["blocks"], view.values)
        if missing:
            self.world.trouble(f"Slack does not send {view.id}: {missing}")
            return
        about = json.loads(view.body["private_metadata"])
        delivery = self.world.slack.submit(view)
        ids = (str(about.get("promptId", "")), str(about.get("nonce", "")))
        meant: Json = {}
        for each in (*self._pages.get(view.id, [])[: _page(view)], filled):
            meant.update(each)
        is_last = view.body["submit"]["text"] != "Next"
        sent = Sent(delivery, view.user_id, view.id, kind, view.hash, *ids, meant, fits, filled, is_last)
        sent.flow, sent.about = str(about.get("flow", "")), str((about.get("about") or {}).get("ts", ""))
        self.sent.append(sent)
        self._waiting[view.id] = delivery
        delivery.heard = partial(self._answered, view, sent)
        self.world.note(f"{view.user_id} submits {view.id} ({kind}) {json.dumps(meant)}")
        self.world.timeline.after(PATIENCE, partial(self._given_up, view, sent))
        if kind in ("edit", "reject") and self.world.weather.rude > 0:
            self._meanwhile(f"prompt:{sent.prompt}")

    def _meanwhile(self, key: str) -> None:
        """Somebody else decides at the same time, on what the message shows before the change."""
        for message in self.world.slack.by_bot():
            if asked_key(message) == key:
                press = partial(self.world.people.decide, self.who(message), copied(message))
                self.world.timeline.after(self.chance.uniform(0.0, 3.0), press)

    def _answered(self, view: View, sent: Sent, said: Json | None) -> None:
        """An acknowledgement came; in time, unless the person sees "trouble connecting" already."""
        if self._waiting.get(view.id) is not sent.delivery:
            return
        del self._waiting[view.id]
        if view.hash != sent.hash:
            return  # the bot has put something else in its place
        person = self.world.slack.core.state.users[view.user_id]
        try:
            shown = self.world.slack.views.answer_submission(person, view, said or {})
        except SlackError as error:
            self.world.trouble(f"Slack takes no such answer to a submission: {error}")
            return
        self.world.note(
            f"{view.id} {json.dumps(shown.get('errors')) if 'errors' in shown else next(iter(shown))}"
        )
        if "updated" in shown and not sent.is_last and sent.kind != "pick":
            self._pages[view.id] = [*self._pages.get(view.id, []), sent.filled]
        if "errors" in shown and sent.fits:
            self._refused.add(view.id)

    def _given_up(self, view: View, sent: Sent) -> None:
        if self._waiting.get(view.id) is sent.delivery:
            del self._waiting[view.id]
            self._failed[view.id] = sent
            self.world.note(f"trouble connecting {view.id}")
            if self.chance.random() < 0.5:
                self.world.timeline.after(self.chance.uniform(0.3, 2.0), partial(self._again, view.id))

    def _again(self, view_id: str) -> None:
        """The person does not wait long."""
        view = self.world.slack.core.state.views.get(view_id)
        if view is not None and view_id not in self._waiting:
            self._go_on(view)


def openers(message: Json) -> dict[str, tuple[tuple[Json, Json], str | None]]:
    """What opens a modal in a message, by the kind of the modal: the element, and in a menu the option."""
    found: dict[str, tuple[tuple[Json, Json], str | None]] = {}
    for block, element in elements.elements(message.get("blocks") or []):
        action = str(element.get("action_id", ""))
        if not action.startswith(OPENS):
            continue
        if element["type"] != "overflow":
            found[_named(action.removeprefix(OPENS))] = ((block, element), None)
            continue
        for option in element["options"]:
            found[_named(option["value"].partition("|")[0])] = ((block, element), option["value"])
    return found


def _kind(view: View) -> str:
    return _named(str(view.body.get("callback_id") or "").removeprefix("sayso:"))


def _named(kind: str) -> str:
    """Of the answers here only a rejection is given in a modal: with its reason."""
    return "reject" if kind.partition(":")[0] == "answer" else kind


def _page(view: View) -> int:
    """Which page of its form a modal shows, from 0."""
    return int(json.loads(view.body.get("private_metadata") or "{}").get("page") or 0)


def _inputs(view: View) -> Iterator[tuple[str, Json, Json]]:
    """The fields of a form that a modal shows: each with its name, its block and its element."""
    for block, element in elements.elements(view.body["blocks"]):
        if block["type"] == "input":
            yield str(block["block_id"]).removeprefix(_FIELD), block, element


def _shown(entry: Json) -> Any:
    """What a field of a form is filled in with already; None where it is empty."""
    if entry.get("selected_option"):
        return elements.label_of(entry["selected_option"])
    value = entry.get("value")
    return int(value) if value is not None and entry["type"] == "number_input" else value
