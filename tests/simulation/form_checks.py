"""What must be true of forms, changes and hand-overs at the end of a run, read from Slack and from the store."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bot.views.forms import LOST
from engine.forms.question import Question
from engine.language.codec import decode
from tests.simulation.file_flows import ALL
from tests.simulation.modals import Sent
from tests.simulation.people import Pressed
from tests.simulation.slack import Json, by_keys, key_of

if TYPE_CHECKING:
    from tests.simulation.checks import Session
    from tests.simulation.flows import Answers
    from tests.simulation.world import World


def submissions(world: World, store: Any, team: str) -> Iterator[str]:
    """What was acknowledged as taken was right, is stored as it was filled in, and applied or refused with a word."""
    for sent in world.people.desk.sent:
        yield from _paged(sent, store, team)
        if not sent.taken:
            continue
        what = f"{sent.kind} {sent.view} with {sent.meant}"
        row = store.inbox.row(f"view:{team}:{sent.view}")
        if not sent.fits:
            yield f"{what} was taken and is wrong"
        elif row is None:
            yield f"{what} is lost"
        elif row.outcome not in (("rooting", "started") if sent.kind == "start" else ("applied", "refused")):
            yield f"{what} is {row.outcome}"
        elif not _same(sent, decode(row.payload)):
            yield f"{what} was taken, and what counts is {decode(row.payload)}"
        elif row.outcome == "refused" and not store.outbox.row(f"ephemeral:{row.key}"):
            yield f"{what} was refused without a word"


def _paged(sent: Sent, store: Any, team: str) -> Iterator[str]:
    """A page that another one follows is stored as it was filled in, and none is asked for again."""
    for said in sent.delivery.said:
        if sent.kind == "pick":
            continue
        if said and LOST in json.dumps(said):
            yield f"{sent.view} has lost what was filled in on the pages before {sent.filled}"
        if not said or sent.is_last or said["response_action"] != "update" or "submit" not in said["view"]:
            continue
        digest = json.loads(said["view"]["private_metadata"])["pages"][-1]
        row = store.inbox.row(f"view:{team}:{sent.view}:{digest}")
        if row is None:
            continue  # then it must not be needed again
        stored = {name: str(value) for name, value in decode(row.payload)["values"].items()}
        if stored != {name: str(value) for name, value in sent.filled.items()}:
            yield f"a page of {sent.view} with {sent.filled} was taken, and what is kept is {stored}"


def _same(sent: Sent, stored: Json) -> bool:
    """Whether a row holds what was filled in. Of a change it holds what is different."""
    if sent.kind in ("hand", "reject"):
        return all(stored[name] == value for name, value in sent.meant.items())
    if sent.kind == "start":
        given = {name: value for name, value in sent.meant.items() if value is not None}
        return bool((stored["flow"], stored["inputs"]) == (sent.flow, given))
    values: Json = stored["values"]
    if sent.kind == "edit":
        return all(sent.meant[name] == value for name, value in values.items())
    return values == sent.meant


# --- one session -------------------------------------------------------------------------------------------


@dataclass
class _Asked:
    """A question, as far as the journal has come."""

    question: Question
    nonce: str
    values: Json
    changed: bool = False
    votes: dict[str, str] = field(default_factory=dict)
    """By person, the latest last."""
    reasons: dict[str, str | None] = field(default_factory=dict)
    """Of those votes."""
    latest: str = ""
    """The key of the latest vote."""
    out: set[str] = field(default_factory=set)
    """Who handed it over."""


class Decisions:
    """Goes through a journal and finds what people did not fill in, did not see, or were not asked for."""

    def __init__(self, world: World, session: Session) -> None:
        self._session = session
        self._sent: dict[str, list[Sent]] = {}
        for sent in world.people.desk.sent:
            self._sent.setdefault(sent.view, []).append(sent)
        self._pressed: dict[str, Pressed] = {
            press.delivery.body["actions"][0]["action_ts"]: press for press in world.people.pressed
        }
        self._asked: dict[str, _Asked] = {}

    def wrong(self) -> Iterator[str]:
        """Everything, in words."""
        for event in self._session.events:
            match event.type:
                case "prompt:requested":
                    asked = event.question
                    self._asked[event.prompt_id] = _Asked(asked, asked.nonce, dict(asked.values))
                case "prompt:edited":
                    yield from self._edited(event)
                case "prompt:handed":
                    yield from self._handed(event)
                case "prompt:voted":
                    yield from self._cast(event, event.vote)
                    if event.reason != self._asked[event.prompt_id].reasons[event.actor["id"]]:
                        yield f"{event.actor['id']} is recorded to have rejected because of {event.reason!r}"
                case "prompt:answered":
                    yield from self._answered(event)
                case "prompt:reposted":
                    self._asked[event.prompt_id].nonce = event.nonce

    def _of(self, event: Any, kind: str) -> Sent | None:
        """The modal that a fact comes from: submitted by that person, about that question."""
        key = event.key.rsplit(":", 1)[1]
        return next(
            (
                sent
                for sent in self._sent.get(key, ())
                if (sent.kind, sent.prompt, sent.user) == (kind, event.prompt_id, event.actor["id"])
                and sent.is_last
                and _recorded(sent, event)
            ),
            None,
        )

    def _edited(self, event: Any) -> Iterator[str]:
        asked, sent = self._asked[event.prompt_id], self._of(event, "edit")
        if sent is None:
            yield f"nobody changed {event.prompt_id} to {event.values} ({event.key})"
        elif sent.nonce != asked.nonce:
            yield f"{event.prompt_id} was changed by somebody who had not seen what it was then"
        elif event.values != {**asked.values, **sent.meant}:
            yield f"{sent.meant} over {asked.values} became {event.values}"
        before = {
            name: asked.values[name] for name in event.values if event.values[name] != asked.values[name]
        }
        if event.before != before:
            yield f"{event.prompt_id} was {before}, and is recorded to have been {event.before}"
        asked.values, asked.nonce, asked.changed = event.values, event.nonce, True
        asked.votes.clear()

    def _handed(self, event: Any) -> Iterator[str]:
        asked, giver = self._asked[event.prompt_id], event.actor["id"]
        if self._of(event, "hand") is None:
            yield f"nobody handed {event.prompt_id} to {event.to} ({event.key})"
        # A plain question can always be handed over by whoever asked for the run.
        is_theirs = asked.question.kind != "approval" and giver == self._session.state.actor.get("id")
        if giver in asked.out and not is_theirs:
            yield f"{giver} handed {event.prompt_id} over twice"
        asked.out = (asked.out | {giver}) - {event.to}
        asked.votes.pop(giver, None)

    def _answered(self, event: Any) -> Iterator[str]:
        asked = self._asked[event.prompt_id]
        kind = event.key.partition(":")[0]
        if event.actor["id"] in asked.out:
            yield f"{event.prompt_id} was answered by {event.actor['id']}, who had handed it over"
        if event.answer["value"] in ("approve", "reject") and asked.question.kind == "approval":
            yield from self._cast(event, event.answer["value"])
            yield from _stands(asked, event)
        elif kind == "view" and self._of(event, "form") is None:
            yield f"nobody answered {event.prompt_id} with {event.answer['values']} ({event.key})"
        elif kind == "click":
            yield from self._decided(event, str(event.answer["value"]))
        if asked.values and event.answer["values"] != asked.values:
            yield f"{event.prompt_id} proposes {asked.values}, and {event.answer['values']} was approved"
        if self._session.head.flow_name == "release" and event.answer["value"] == "approve":
            agreed = [who for who, vote in asked.votes.items() if vote == "approve"]
            if len(agreed) != 2:
                yield f"{event.prompt_id} was approved by {agreed} as it is now"

    def _cast(self, event: Any, vote: str) -> Iterator[str]:
        """A decision is a press, or a rejection with the reason that was filled in. One that needs a reason has one."""
        asked, who = self._asked[event.prompt_id], event.actor["id"]
        if event.type == "prompt:answered" and event.key == asked.latest:
            return  # the vote that decides is a vote and, in the same commit, the answer
        asked.latest = event.key
        asked.votes.pop(who, None)
        reason = None
        if event.key.startswith("view:"):
            sent = self._of(event, "reject")
            reason = sent.meant["reason"] if sent else None
            if sent is None or vote != "reject":
                yield f"{who} never meant to {vote} {event.prompt_id} ({event.key})"
            elif sent.nonce != asked.nonce:
                yield f"{event.prompt_id} was rejected by somebody who had not seen what it was then"
            asked.votes[who] = vote
        else:
            yield from self._decided(event, vote)
        asked.reasons.pop(who, None)
        asked.reasons[who] = reason
        if vote == "reject" and asked.question.require_reason and not reason:
            yield f"{event.prompt_id} was rejected by {who} without a reason"

    def _decided(self, event: Any, vote: str) -> Iterator[str]:
        """A press counts for the copy that was pressed, and there the person saw what it decided."""
        asked = self._asked[event.prompt_id]
        body = self._pressed[event.key.rsplit(":", 1)[1]].delivery.body
        if event.actor["id"] in asked.out:
            yield f"{event.actor['id']} decided {event.prompt_id} after handing it over"
        if body["actions"][0]["value"].split("|")[1] != asked.nonce:
            yield f"{event.prompt_id} was decided with a button of an older copy"
        shown = json.dumps(body["message"]["blocks"])
        told = {name: value for name, value in asked.values.items() if value is not None}
        unseen = {name: value for name, value in told.items() if str(value) not in shown}
        if unseen:
            yield f"{event.actor['id']} decided {event.prompt_id} without having seen {unseen}"
        asked.votes[event.actor["id"]] = vote


def _stands(asked: _Asked, event: Any) -> Iterator[str]:
    """What was decided is what the votes say, for the reasons that were given."""
    value = event.answer["value"]
    required = int(asked.question.required)
    against = [who for who, vote in asked.votes.items() if vote == "reject"]
    is_vetoed = len(against) * 2 > required if asked.question.veto == "majority" else bool(against)
    is_approved = not is_vetoed and len(asked.votes) - len(against) >= required
    if (value == "reject") != is_vetoed or (value == "approve") != is_approved:
        yield f"{event.prompt_id} is decided to {value} by {asked.votes}"
    reasons = [asked.reasons[who] for who, vote in asked.votes.items() if vote == value]
    said = "\n".join(reason for reason in reasons if reason) or None
    if event.answer.get("reason") != said:
        yield f"{event.prompt_id} is decided because of {event.answer.get('reason')!r}, and people said {said!r}"


def _recorded(sent: Sent, event: Any) -> bool:
    if sent.kind == "hand":
        return bool(event.to == sent.meant["to"])
    if sent.kind == "reject":
        reason = event.reason if event.type == "prompt:voted" else event.answer["reason"]
        return bool(reason == sent.meant["reason"])
    values: Json = event.values if sent.kind == "edit" else event.answer["values"]
    return all(values[name] == value for name, value in sent.meant.items())


def arguments(world: World, session: Session, answers: Answers) -> Iterator[str]:
    """Commands ran with what was filled in, and with what was approved."""
    name = session.head.session_id
    wanted = ALL[session.head.flow_name].args(answers)
    for session_id, path, given in world.given:
        if session_id == name and path in wanted and given != wanted[path]:
            yield f"{path} ran as {given}, and what people said is {wanted[path]}"


def told(world: World, store: Any, session: Session) -> Iterator[str]:
    """The thread was told once of each change and of each hand-over, and shows what was filled in or approved."""
    done = {
        event.prompt_id for event in session.events if event.type in ("prompt:answered", "prompt:expired")
    }
    ours = world.slack.by_bot()
    times = Counter(key_of(message) for message in ours)
    by_key = by_keys(ours)
    for event in session.events:
        if event.type == "prompt:answered":
            yield from _shows(by_key.get(f"prompt:{event.prompt_id}"), event)
        key = ""
        if event.type == "prompt:edited":
            key = f"edited:{event.prompt_id}:{event.nonce}"
        elif event.type == "prompt:handed":
            key = f"handed:{event.prompt_id}:{event.seq}"
        # Nobody is called to what has ended already.
        is_late = event.type == "prompt:handed" and event.prompt_id in done and _dropped(store, key)
        if key and times[key] != 1 and not is_late:
            yield f"{key} stands {times[key]} times"


def _dropped(store: Any, key: str) -> bool:
    row = store.outbox.row(key)
    return row is not None and "dropped" in decode(row.result or b"{}")


def _shows(message: Json | None, event: Any) -> Iterator[str]:
    if message is None:
        return
    shown = json.dumps(message["blocks"])
    values = (event.answer.get("values") or {}).values()
    reasons = str(event.answer.get("reason") or "").split("\n")
    missing = [value for value in (*values, *reasons) if value is not None and str(value) not in shown]
    if missing:
        yield f"the message of {event.prompt_id} does not show {missing}"
