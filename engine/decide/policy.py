"""Authorization: one pure function for every way in (message, button, modal, slash command, shortcut, CLI).

It fails closed: an action, a kind of prompt or a fact that it does not know is refused. There are three steps and no
bypass; an admin may approve only if listed.

1. The gate. People of this workspace only: no bots or workflows, no edited text, nobody deactivated, no guests
   unless they are allowed. At the terminal: `local:<user>`; one that is played (`--as`) only if the session
   has no channel, so that nobody plays in front of people who take it for real.
2. The rule of the action (`_RULES`).
3. A person who is away may have named a stand-in (`Actor.absent`), who may do what the absent person may do unless
   barred themselves. A stand-in hands on to nobody.

An entry of `approvers` or `who` is a user id, an e-mail address, `@group`, `rota:<name>` (the person on call),
`local:<user>`, `channel` (members of the session's channel), or `requester` (the person who started it). A `Target` has
everything that the policy reads of a session and its prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set

from msgspec import Struct, field

from engine.decide.commands import Action
from engine.forms import question_kinds
from engine.forms.question import Question
from engine.journal.state import State
from engine.language.actors import Actor, account_of, fold, requester_of
from engine.language.codec import Json, nfc

ROTA = "rota:"
"""Prefix of an entry that means the person on call: `rota:payments`."""


class Verdict(Struct, frozen=True):
    """Result of `authorize`; if refused, `reason` is the sentence for that person."""

    allowed: bool
    reason: str | None = None


def authorize(actor: Actor, action: Action, target: Target) -> Verdict:
    """Decide whether this actor may do this to the target. Total: anything unknown is refused with a reason."""
    if actor.is_channel_watch and action == "pause":
        return Verdict(True)
    rule = _RULES.get(action)
    reason = _gate(actor, action, target)
    if reason is None:
        reason = "You can't do this here." if rule is None else rule(actor, action, target)
        if reason is not None and rule is not None and action in _IN_PLACE:
            places = (_in_place(actor, absent, action, target) for absent in actor.absent)
            reason = reason if None not in places else None
    return Verdict(reason is None, reason)


_IN_PLACE = ("answer", "decide", "resolve")
"""Actions that a stand-in can do for a person who is away."""


def _in_place(actor: Actor, absent: Actor, action: Action, target: Target) -> str | None:
    """Return why this actor may not do this for a person who is away; None if they may."""
    prompt = target.prompt
    if prompt is None or actor.in_channel is not True or actor.id in prompt.excluded:
        return "You can't do this on somebody's behalf."
    if prompt.exclude_requester and (_asked_for_it(actor, target) or _changed_it(actor, prompt)):
        return "You started this, so you can't decide it for somebody else either."
    return _gate(absent, action, target) or _RULES[action](absent, action, target)


class PolicySettings(Struct, frozen=True):
    """The settings of an installation about people."""

    home_team: str | None
    """Workspace of this installation; None without one, and then nobody from Slack may act."""
    admins: frozenset[str] = frozenset()
    """Entries as in `approvers`, without `channel` and `requester`."""
    allow_guests: bool = False
    allow_local: bool = False
    """True if users of this machine's terminal may steer and end any session, as admins may."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Display names by user id or e-mail, for the reasons."""
    users: frozenset[str] = frozenset()
    """Entries for the people in Slack who may use the bot at all; empty means everybody."""


class Gate(PolicySettings, frozen=True):
    """`authorize` with this installation's settings, as the engine calls it while it decides."""

    def __call__(self, actor: Actor, action: Action, state: State, prompt: Question | None) -> str | None:
        """Return None if it is allowed, else the sentence that tells this person why not."""
        has_channel = bool((state.thread or {}).get("channel"))
        return authorize(actor, action, self.target(state.actor, has_channel, prompt)).reason

    def target(
        self, requester: Mapping[str, Json], has_channel: bool, prompt: Question | None = None
    ) -> Target:
        """The target for a session that this requester (an actor's record) started."""
        requester_id, name = requester_of(requester), requester.get("name")
        known = {requester_id: name} if requester_id and name else {}
        return Target(
            home_team=self.home_team,
            has_channel=has_channel,
            requester_id=requester_id,
            requester_account=account_of(requester),
            prompt=prompt,
            admins=self.admins,
            allow_guests=self.allow_guests,
            allow_local=self.allow_local,
            names={**known, **self.names},
            users=self.users,
        )


# --- the gate: each returns why not, or None ---------------------------------------------------------------

_NOT_PEOPLE = "Only people can do this, not apps or workflows."


def _gate(actor: Actor, action: Action, target: Target) -> str | None:
    if actor.is_trigger and action == "start":
        return None
    if not actor.id or actor.is_bot or actor.is_app:
        return _NOT_PEOPLE
    if actor.edited:
        return "Edited text does not count. Please write it again as a new message."
    if actor.kind == "slack":
        if actor.simulated or ":" in actor.id:
            return _NOT_PEOPLE
        if not actor.facts_known:
            return UNKNOWN
        if actor.deleted:
            return "This account is deactivated."
        if actor.is_stranger or target.home_team is None or actor.team_id != target.home_team:
            return "Only members of this workspace can do this."
        if (actor.is_restricted or actor.is_ultra_restricted) and not target.allow_guests:
            return "Guests cannot do this in this workspace."
        if target.users and not _is_listed(actor, sorted(target.users), target):
            return "This bot is not open to everybody here. Ask an admin to add you (SAYSO_USERS)."
        return None
    if actor.kind == "local":
        if not actor.facts_known or actor.deleted:
            return _NOT_PEOPLE
        if actor.simulated and target.has_channel:
            return "This run is in a Slack channel, where --as is not available."
        if not actor.simulated and (not actor.id.startswith("local:") or actor.id == "local:"):
            return _NOT_PEOPLE
        return None
    return _NOT_PEOPLE


# --- the rules ---------------------------------------------------------------------------------------------


def _start(actor: Actor, action: Action, target: Target) -> str | None:
    starters = target.prompt.who if target.prompt is not None else None
    if not target.has_channel:
        return None if actor.kind == "local" else "Please start this in a channel."
    if actor.kind == "system":
        return None if actor.is_trigger else _NOT_PEOPLE
    if actor.kind == "local" and (starters is None or actor.id not in starters):
        return f"Start this in Slack, or list {actor.id} in `allowed_to_start` of the flow."
    if starters is None:
        return in_channel(actor, "start this")
    return None if _is_listed(actor, starters, target) else _only_these(starters, "start this", target)


def _look(actor: Actor, action: Action, target: Target) -> str | None:
    """Allow a look at the session to people who can read its thread or may steer it."""
    if actor.kind == "local" or _owner(actor, action, target) is None:
        return None
    return in_channel(actor, "see this") if target.has_channel else _owner(actor, action, target)


def _answer(actor: Actor, action: Action, target: Target) -> str | None:
    prompt = target.prompt
    if prompt is None or prompt.rules.action != "answer":
        return "A reply does not answer this: please use its buttons."
    if actor.id in prompt.excluded:
        return _HANDED_OVER
    entries = prompt.who
    if entries is None:
        entries = ("channel",) if target.requester_id is None else ("requester",)
    # Without a channel the conversation is at the terminal.
    at_terminal = actor.kind == "local" and not target.has_channel and "channel" in entries
    if at_terminal or _is_listed(actor, entries, target):
        return None
    return _only_these(entries, "answer this", target)


def _decide(actor: Actor, action: Action, target: Target) -> str | None:
    prompt = target.prompt
    if prompt is None or not prompt.is_approval:
        return "This is not an approval."
    if prompt.exclude_requester and _changed_it(actor, prompt) and not _asked_for_it(actor, target):
        return _somebody_else("You changed this", actor, prompt, target)
    return _approver(actor, prompt, target)


def _approver(actor: Actor, prompt: Question, target: Target) -> str | None:
    """Return why this person may not decide an approval, or None if they may."""
    entries = prompt.approvers or ()
    if actor.id in prompt.excluded:
        return _HANDED_OVER
    if prompt.exclude_requester and _asked_for_it(actor, target):
        return _somebody_else("You started this", actor, prompt, target)
    if _is_listed(actor, entries, target):
        return None
    return _only_these(entries, "approve this", target)


_HANDED_OVER = "You handed this over; someone else answers it now."


def _somebody_else(why: str, actor: Actor, prompt: Question, target: Target) -> str:
    entries = [entry for entry in prompt.approvers or () if entry not in ("requester", actor.id)]
    others = _in_words(entries, target, "or")
    return f"{why}, so somebody else must approve it" + (f": {others}." if others else ".")


def _edit(actor: Actor, action: Action, target: Target) -> str | None:
    """Allow editing to people who may decide, and to earlier editors, who can no longer approve."""
    prompt = target.prompt
    if prompt is None or not prompt.is_approval:
        return "This is not an approval, so there is nothing to change."
    return _approver(actor, prompt, target)


def _resolve(actor: Actor, action: Action, target: Target) -> str | None:
    prompt = target.prompt
    if prompt is None or prompt.rules is question_kinds.UNKNOWN or prompt.rules.action != "resolve":
        return "This is not a question about an interrupted or failed step, or about a cap."
    if actor.id in prompt.excluded:
        return _HANDED_OVER
    if _is_listed(actor, prompt.who or (), target):
        return None
    admins = sorted(target.admins - {"channel", "requester"})
    # The cap of the day, and the key of the installation, are everybody's.
    if prompt.everybodys and admins and not _is_listed(actor, admins, target):
        return "This affects everybody's runs, so only SAYSO_ADMINS can resolve it."
    return _owner(actor, "resolve", target)


def _hand_over(actor: Actor, action: Action, target: Target) -> str | None:
    """Allow handing over to people who may answer; for an ask also to the requester and the admins."""
    kind = None if target.prompt is None else target.prompt.rules.action
    if kind == "decide":
        return _decide(actor, kind, target)
    if kind == "resolve":
        return _resolve(actor, kind, target)
    if kind != "answer":
        return "This question cannot be handed over."
    reason = _answer(actor, kind, target)
    return None if reason is None or _owner(actor, action, target) is None else reason


def _revoke(actor: Actor, action: Action, target: Target) -> str | None:
    """Allow revoking to the person who answered, the requester and the admins."""
    prompt = target.prompt
    if prompt is not None and prompt.answered_by is not None and actor.id == prompt.answered_by:
        return None
    return _owner(actor, action, target)


def _owner(actor: Actor, action: Action, target: Target) -> str | None:
    """The requester and the admins."""
    admins = sorted(target.admins - {"channel", "requester"})
    if _is_requester(actor, target) or _is_listed(actor, admins, target):
        return None
    if actor.kind == "local" and not actor.simulated and target.allow_local:
        return None
    verb = _VERBS.get(action, "do this")
    if target.requester_id is None and not admins:
        return f"Nobody can {verb}: no person started it, and SAYSO_ADMINS is empty."
    people = [named("requester", target)] if target.requester_id is not None else []
    return f"Only {' and '.join([*people, *(['the admins'] if admins else [])])} can {verb}."


_VERBS: Mapping[str, str] = {
    "resolve": "decide how this continues",
    **{action: f"{action} this" for action in ("steer", "revoke", "stop", "pause", "resume", "cancel")},
    **dict.fromkeys(("status", "help", "list"), "see this"),
}

_RULES: Mapping[str, Callable[[Actor, Action, Target], str | None]] = {
    "start": _start,
    "answer": _answer,
    "decide": _decide,
    "resolve": _resolve,
    "edit": _edit,
    "hand_over": _hand_over,
    "revoke": _revoke,
    **dict.fromkeys(("steer", "stop", "pause", "resume", "cancel"), _owner),
    **dict.fromkeys(("status", "help", "list"), _look),
}


# --- entries -----------------------------------------------------------------------------------------------


UNKNOWN = "Slack could not identify you right now. Please try again in a moment."


def _is_listed(actor: Actor, entries: Iterable[str], target: Target) -> bool:
    """True if one of these entries means this person."""
    return any(_matches(actor, entry.strip(), target) for entry in entries)


def _matches(actor: Actor, entry: str, target: Target) -> bool:
    if entry == "requester":
        return _is_requester(actor, target)
    if entry.startswith("local:"):
        return actor.kind == "local" and nfc(actor.id) == nfc(entry)
    if actor.kind == "local" and not actor.simulated:
        return False
    if entry == "channel":
        return target.has_channel and actor.in_channel is True
    if entry.startswith(ROTA):
        return entry in actor.groups
    if entry.startswith("@"):
        return fold(entry[1:]) in {fold(group) for group in actor.groups}
    if "@" in entry:
        return actor.email is not None and fold(actor.email) == fold(entry)
    return bool(nfc(actor.id) == nfc(entry))


def _is_requester(actor: Actor, target: Target) -> bool:
    """True if this person started the session."""
    return target.requester_id is not None and actor.id == target.requester_id


def _asked_for_it(actor: Actor, target: Target) -> bool:
    """True if this person started the session, under any name of their account."""
    return _is_requester(actor, target) or bool(target.requester_account & account_of(actor.record()))


def _changed_it(actor: Actor, prompt: Question) -> bool:
    """True if this person edited the proposal, under any name of their account."""
    return not {actor.id, *account_of(actor.record())}.isdisjoint(prompt.editors)


def in_channel(actor: Actor, verb: str) -> str | None:
    """Return why a person outside the session's channel may not do this; None for its members."""
    if actor.in_channel is True:
        return None
    return UNKNOWN if actor.in_channel is None else f"Only members of this channel can {verb}."


# --- words -------------------------------------------------------------------------------------------------

_NAMED = 6
"""People that a sentence names before it counts the rest."""


def _only_these(entries: Iterable[str], verb: str, target: Target) -> str:
    """Return the sentence for people who are not listed."""
    listed = list(dict.fromkeys(entry.strip() for entry in entries))
    if not listed:
        return f"Nobody can {verb}: the flow's list is empty."
    ask = " Ask one of them." if len(listed) > 1 else ""
    return f"Only {_in_words(listed, target, 'and')} can {verb}.{ask}"


def _in_words(entries: Iterable[str], target: Target, word: str) -> str:
    """The people of these entries, the last one joined with `word`."""
    names = list(dict.fromkeys(named(entry, target) for entry in entries))
    if len(names) > _NAMED:
        names = [*names[: _NAMED - 1], f"{len(names) - _NAMED + 1} others"]
    return (
        names[0] if len(names) == 1 else f" {word} ".join([", ".join(names[:-1]), names[-1]]) if names else ""
    )


def named(entry: str, target: Target) -> str:
    """Return the display name of an entry."""
    if entry == "channel":
        return "members of this channel"
    if entry == "requester":
        entry = target.requester_id or ""
        if entry not in target.names and not entry.startswith("local:"):
            return "the person who started this"
    name = target.names.get(entry)
    if entry.startswith(ROTA):
        return f"the person on call for {entry.removeprefix(ROTA)}"
    if entry.startswith("local:"):
        return f"{name or entry.removeprefix('local:')} at the terminal"
    return name or entry


# --- the target --------------------------------------------------------------------------------------------


class Target(PolicySettings, frozen=True):
    """Target of an action: a session in its place, and the prompt if the action is about one."""

    has_channel: bool = True
    """True if the session is in a Slack channel; False for a local run."""
    requester_id: str | None = None
    requester_account: Set[Json] = frozenset()
    """Account from which it was started (`engine.language.actors.account_of`), if known."""
    prompt: Question | None = None
