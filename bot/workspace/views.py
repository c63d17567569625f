"""Modals and the app's Home: trigger ids, the stack of views of a person, and how a submission ends."""

from __future__ import annotations

import copy
import secrets
from dataclasses import dataclass

from bot.workspace import blocks, elements, payloads
from bot.workspace.core import Core
from bot.workspace.errors import SlackError
from bot.workspace.state import Json, User, View

TRIGGER_SECONDS = 3.0
MAX_STACK = 3


@dataclass(slots=True)
class Trigger:
    """The right to open one view for a person, for a short time."""

    user: User
    expires: float
    view_id: str | None
    is_used: bool = False


class Views:
    """The open modals of everybody."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.triggers: dict[str, Trigger] = {}

    def new_trigger(self, user: User, view: View | None = None) -> str:
        """A trigger id for an interaction of this person (with a view, when it came from one)."""
        serial = self.core.state.new_id("X")
        trigger_id = f"{serial}.{self.core.state.team_id}.{secrets.token_hex(8)}"
        expires = self.core.clock() + TRIGGER_SECONDS
        self.triggers[trigger_id] = Trigger(user, expires, view.id if view else None)
        return trigger_id

    def _spend(self, trigger_id: str) -> Trigger:
        trigger = self.triggers.get(trigger_id)
        if trigger is None:
            raise SlackError("invalid_trigger_id")
        if self.core.clock() > trigger.expires:
            raise SlackError("expired_trigger_id")
        if trigger.is_used:
            raise SlackError("exchanged_trigger_id")
        trigger.is_used = True
        return trigger

    def stack(self, user_id: str) -> list[View]:
        """The modals this person has open, the visible one last."""
        return [view for view in self.core.state.views.values() if view.user_id == user_id]

    def open(self, trigger_id: str, body: Json) -> View:
        """`views.open`; what was open before is closed."""
        blocks.check_view(body)
        trigger = self._spend(trigger_id)
        for view in self.stack(trigger.user.id):
            self.remove(view)
        return self._show(trigger.user, body, None, "view_opened")

    def push(self, trigger_id: str, body: Json) -> View:
        """`views.push`; only from a modal, and at most three deep."""
        blocks.check_view(body)
        trigger = self._spend(trigger_id)
        below = self.core.state.views.get(trigger.view_id or "")
        if below is None:
            raise SlackError("not_found", "the trigger does not come from an open modal")
        return self._push_on(trigger.user, below, body)

    def _push_on(self, user: User, below: View, body: Json) -> View:
        if len(self.stack(user.id)) >= MAX_STACK:
            raise SlackError("push_limit_reached")
        return self._show(user, body, below, "view_opened")

    def update(self, body: Json, view_id: str = "", external_id: str = "", hash_: str = "") -> View:
        """`views.update`; SlackError `not_found`, or `hash_conflict` when it changed meanwhile."""
        view = self._named(view_id, external_id)
        blocks.check_view(body)
        if hash_ and hash_ != view.hash:
            raise SlackError("hash_conflict")
        self._replace(view, body)
        return view

    def _named(self, view_id: str, external_id: str) -> View:
        for view in self.core.state.views.values():
            if view.id == view_id or (external_id and view.body.get("external_id") == external_id):
                return view
        raise SlackError("not_found")

    def _replace(self, view: View, body: Json) -> None:
        kept = view.values
        view.body = self._with_ids(body, view.id)
        view.hash = self._hash()
        view.values = elements.initial_values(view.body["blocks"])
        # Slack keeps what the person typed where block_id and action_id stay the same.
        for block_id, entries in view.values.items():
            for action_id, entry in entries.items():
                before = kept.get(block_id, {}).get(action_id)
                if before is not None and before["type"] == entry["type"]:
                    entries[action_id] = before
        self._tell("view_updated", view)

    def publish(self, user: User, body: Json, hash_: str = "") -> Json:
        """`views.publish`: the app's Home for one person."""
        blocks.check_view(body)
        before = self.core.state.homes.get(user.id)
        if before is not None and hash_ and hash_ != before["hash"]:
            raise SlackError("hash_conflict")
        view_id = before["id"] if before else self.core.state.new_id("V")
        view = View(view_id, user.id, self._with_ids(body, view_id), self._hash(), view_id)
        view.values = elements.initial_values(view.body["blocks"])
        home = payloads.view_field(self.core.state, view)
        self.core.state.homes[user.id] = home
        self.core.changes.tell({"type": "home", "view": copy.deepcopy(home)}, frozenset({user.id}))
        return home

    def _show(self, user: User, body: Json, below: View | None, news: str) -> View:
        external = body.get("external_id")
        if external and any(v.body.get("external_id") == external for v in self.core.state.views.values()):
            raise SlackError("duplicate_external_id")
        view_id = self.core.state.new_id("V")
        root_id = below.root_id if below else view_id
        filled = self._with_ids(body, view_id)
        view = View(view_id, user.id, filled, self._hash(), root_id, below.id if below else None)
        view.values = elements.initial_values(filled["blocks"])
        self.core.state.views[view_id] = view
        self._tell(news, view)
        return view

    @staticmethod
    def _with_ids(body: Json, seed: str) -> Json:
        return {**copy.deepcopy(body), "blocks": elements.with_ids(body["blocks"], seed)}

    def _hash(self) -> str:
        return f"{int(self.core.clock())}.{secrets.token_hex(4)}"

    def remove(self, view: View) -> None:
        """Take one view away."""
        if self.core.state.views.pop(view.id, None) is not None:
            self._tell("view_closed", view)

    def _tell(self, news: str, view: View) -> None:
        shown = payloads.view_field(self.core.state, view)
        body = {"type": news, "view": shown, "view_id": view.id}
        self.core.changes.tell(body, frozenset({view.user_id}))

    def answer_submission(self, user: User, view: View, answer: Json) -> Json:
        """Carry out the `response_action` of an acknowledgement (none means: close this view)."""
        action = answer.get("response_action")
        if action == "errors":
            return self._field_errors(view, answer.get("errors") or {})
        if action == "clear":
            for open_view in self.stack(user.id):
                self.remove(open_view)
            return {"closed": True}
        if action in ("update", "push"):
            blocks.check_view(answer["view"])
        if action == "update":
            self._replace(view, answer["view"])
            return {"updated": payloads.view_field(self.core.state, view)}
        if action == "push":
            return {"pushed": payloads.view_field(self.core.state, self._push_on(user, view, answer["view"]))}
        self.remove(view)
        return {"closed": True}

    @staticmethod
    def _field_errors(view: View, errors: dict[str, str]) -> Json:
        inputs = {block["block_id"] for block in view.body["blocks"] if block["type"] == "input"}
        unknown = sorted(set(errors) - inputs)
        if unknown or not errors:
            # Slack shows "We had some trouble connecting" and leaves the modal open.
            text = f"the app answered with errors for {unknown}; inputs are {sorted(inputs)}"
            raise SlackError("invalid_response", text)
        return {"errors": dict(errors)}

    def content(self, body: Json) -> Json:
        """Text and blocks of an answer, checked."""
        text = str(body.get("text") or "")
        given = body.get("blocks") or []
        blocks.check_message(text, given)
        filled = elements.with_ids(given, self.core.state.new_id("b").lower()) if given else []
        return {"text": text, "blocks": filled}
