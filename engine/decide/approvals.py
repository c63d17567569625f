"""Actions on a prompt beside answering it: vote, edit the proposal, hand over, revoke. Pure.

An approval that one person decides is answered like any other question. If several must agree, each vote is an event
until one side wins; then the answer follows, with the votes in it. A new vote replaces the person's earlier one. An
edit clears the earlier votes and shows the prompt under another nonce, so that a button of the previous copy decides
nothing.
"""

from __future__ import annotations

import re
from collections import Counter

from engine.decide import question
from engine.decide.commands import Answer, Edit, HandOver, Revoke
from engine.decide.prompt_timers import open_prompt
from engine.decide.step import Step
from engine.forms import check_form
from engine.forms.question import Question, wrong_text
from engine.journal import events as ev
from engine.journal.queries import asked_people, votes_without
from engine.journal.state import Asked, State
from engine.language import timestamps
from engine.language.actors import Actor, account_of, fold, requester_of
from engine.language.codec import Json, clean_text
from engine.language.errors import AlreadyAnswered, InvalidAnswer, PromptClosed, SaysoError

_PERSON = re.compile(r"[UW][A-Z0-9]{2,}|[^@\s]+@[^@\s]+\.[^@\s]+|local:[^\s:]+", re.ASCII)


# --- votes -----------------------------------------------------------------------------------------------


def vote(step: Step, prompt: Asked, command: Answer, answer: dict[str, Json]) -> dict[str, Json] | None:
    """Count a decision on an approval. Returns the answer to journal once a side has won, None before that.

    Raises `InvalidAnswer` where the reason is missing, `AlreadyAnswered` for the same vote once more.
    """
    reason = question.spoken(command.reason) or None
    if reason is None and answer["value"] == "reject" and prompt.require_reason:
        raise InvalidAnswer("Please give a reason for the rejection. Nothing was decided.")
    if reason is None and answer["value"] == question.ANSWER:
        raise InvalidAnswer("Please write the result to use instead of the tool's. Nothing was decided.")
    if answer["value"] == "approve":
        _, errors = check_form(prompt.fields, prompt.values)
        if errors:
            raise InvalidAnswer(f"This cannot be approved as it is. {wrong_text(prompt.fields, errors)}")
    before = votes_without(prompt, command.actor.record())
    if len(before) < len(prompt.votes):
        # Refuse a vote that this person has given already, in these words.
        voter = {command.actor.id, *account_of(command.actor.record())}
        for old in prompt.votes if command.always is None else ():
            theirs = {old["actor"].get("id"), *account_of(old["actor"])}
            if voter & theirs and (old["vote"], old["reason"]) == (answer["value"], reason):
                known = (
                    "" if old["actor"].get("id") == command.actor.id else f" as {old['actor'].get('name')}"
                )
                raise AlreadyAnswered(
                    f"You have already voted{known}, at {timestamps.told(old['at'])}: "
                    f"{question.DECIDED[str(answer['value'])]}. {question.tally(prompt)}"
                )
    mine = {"actor": command.actor.record(), "vote": answer["value"], "reason": reason, "at": step.facts.now}
    if command.always is not None:
        if command.value != "approve":
            raise InvalidAnswer("You can only always allow calls when you approve. Nothing was decided.")
        mine["always"] = step.around(prompt.path).granted(step, prompt, command.always)
    votes = (*before, mine)
    decision = outcome(prompt, votes)
    if decision is None or prompt.votes or prompt.required > 1:
        fields = {**mine, "key": command.key}
        del fields["at"]
        step.emit_about(prompt, ev.PromptVoted, **fields)
    if decision is None:
        return None
    return _decided(prompt, answer, votes)


def outcome(prompt: Question, votes: tuple[dict[str, Json], ...]) -> str | None:
    """Return the decision of these votes, `approve`, `reject` or `answer`, or None if it is still open."""
    required = prompt.required
    rejected = sum(vote["vote"] == "reject" for vote in votes)
    if rejected * 2 > required or (rejected and prompt.veto != "majority"):
        return "reject"
    # Reasons for approving may differ; people who answer for the tool must agree on the text.
    said = Counter(
        (vote["vote"], vote["reason"] if vote["vote"] == question.ANSWER else None) for vote in votes
    )
    agreed = (vote for (vote, _), count in said.items() if vote != "reject" and count >= required)
    return next(agreed, None)


def _decided(prompt: Asked, answer: dict[str, Json], votes: tuple[dict[str, Json], ...]) -> dict[str, Json]:
    winning = [vote for vote in votes if vote["vote"] == answer["value"]]
    reasons = [str(vote["reason"]) for vote in winning if vote["reason"] is not None]
    decided = {**answer, "values": prompt.values, "reason": "\n".join(reasons) or None}
    if answer["value"] == question.ANSWER:
        decided["reason"] = votes[-1]["reason"]
    if len(votes) > 1:
        decided["votes"] = list(votes)
    terms = votes[-1].get("always")
    if terms is not None and sum(vote.get("always") == terms for vote in winning) >= prompt.required:
        decided["always"] = terms
    return decided


# --- edits -----------------------------------------------------------------------------------------------


def edit(step: Step, command: Edit) -> None:
    """Change an approval's proposal: validate it like a form, show what would run now, and clear the votes."""
    if command.key in step.state.seen:
        return
    prompt = open_prompt(step, command.prompt_id, command.nonce)
    step.permit(command.actor, "edit", prompt)
    current = prompt.values
    values = _edited(prompt, current, command.values)
    before = {name: current.get(name) for name in values if values[name] != current.get(name)}
    if not before:
        raise InvalidAnswer("No changes to save.")
    _refuse_nobody_left(step.state, prompt, command.actor)
    step.emit_about(
        prompt,
        ev.PromptEdited,
        actor=command.actor.record(),
        values=values,
        before=before,
        covers=_covered(step, prompt, values),
        nonce=step.new_id("", f"nonce {prompt.path}"),
        key=command.key,
    )


def change_problem(step: Step, prompt: Asked, changed: dict[str, Json]) -> str | None:
    """Return why an approval cannot be changed like this by anyone, before anything is stored; None if it can."""
    try:
        _covered(step, prompt, _edited(prompt, prompt.values, changed))
    except InvalidAnswer as error:
        return str(error)
    return None


def _covered(step: Step, prompt: Asked, values: dict[str, Json]) -> dict[str, Json] | None:
    try:
        return step.around(prompt.path).covered(step, prompt, values)
    except SaysoError as error:
        raise InvalidAnswer(f"Nothing was changed: it could not run with these values. {error}") from error


def _edited(prompt: Question, current: dict[str, Json], changed: dict[str, Json]) -> dict[str, Json]:
    """Return all values of the form with these changes. Raises `InvalidAnswer` if a change is not possible."""
    editable = prompt.editable
    if not editable:
        raise InvalidAnswer("This question has no editable fields. Decide on it as it is.")
    fixed = [name for name in changed if name not in editable]
    if fixed:
        named = ", ".join(f"`{name[:80]}`" for name in fixed)
        raise InvalidAnswer(
            f"{named} cannot be changed here, only {', '.join(f'`{name}`' for name in editable)}."
        )
    values, errors = check_form(prompt.fields, {**current, **changed})
    if errors:
        raise InvalidAnswer(f"Nothing was changed. {wrong_text(prompt.fields, errors)}")
    # Fixed fields stay exactly as shown, however the check would write them.
    return {**values, **{name: value for name, value in current.items() if name not in editable}}


def _refuse_nobody_left(state: State, prompt: Asked, editor: Actor) -> None:
    """Refuse an edit after which fewer people are left than must agree, as far as the list names people one by one."""
    if not prompt.exclude_requester:
        return
    asked = {fold(entry) for entry in asked_people(state, prompt)}
    if any(entry.startswith("@") or entry == "channel" for entry in asked):
        return
    out = {fold(entry) for entry in (*prompt.changed_by, *prompt.excluded) if entry != editor.id}
    # Each is on the list: if not by id, then by an unknown e-mail address.
    by_address = len(out - asked)
    gone = ("requester", state.actor.get("id"), editor.id, editor.email)
    left = asked - out - {fold(entry) for entry in gone if entry}
    if len(left) - by_address < prompt.required:
        raise InvalidAnswer(
            "Nothing was changed: people who edit this cannot approve it, and too few approvers would be "
            "left. Reject it and ask for a new proposal."
        )


# --- handing over ----------------------------------------------------------------------------------------


def hand_over(step: Step, command: HandOver) -> None:
    """Somebody else answers in the actor's place from now on."""
    if command.key in step.state.seen:
        return
    prompt = open_prompt(step, command.prompt_id)
    step.permit(command.actor, "hand_over", prompt)
    to = clean_text(command.to)[0].strip()
    if to == "requester":
        to = requester_of(step.state.actor) or to
    if not _PERSON.fullmatch(to):
        raise InvalidAnswer(
            f"{to[:80]!r} is not a person: hand a question to one person, by user ID (U012ABCDEF), e-mail "
            "address or local:<user>."
        )
    _refuse_taker(step.state, prompt, command, to)
    step.emit_about(prompt, ev.PromptHanded, actor=command.actor.record(), to=to, key=command.key)


def _refuse_taker(state: State, prompt: Asked, command: HandOver, to: str) -> None:
    giver, taker = command.actor, command.taker
    if to in (giver.id, giver.email):
        raise InvalidAnswer("You already hold this question; nothing was changed.")
    if taker is not None and (taker.is_bot or taker.deleted):
        raise InvalidAnswer(
            f"{taker.name or to} cannot answer this: the account is a bot or was deactivated."
        )
    names = {to.lower(), (taker.email if taker is not None and taker.email else to).lower()}
    if names & {entry.lower() for entry in asked_people(state, prompt)} and to not in prompt.excluded:
        known = taker.name if taker is not None and taker.name else to
        raise InvalidAnswer(f"{known} is already asked. Nothing was changed.")
    if not prompt.is_approval or not prompt.exclude_requester:
        return
    if to == state.actor.get("id"):
        raise InvalidAnswer(f"{to} started this and cannot approve it. Hand it to someone else.")
    if to in (prompt.editors):
        raise InvalidAnswer(f"{to} changed this and cannot approve it. Hand it to someone else.")


# --- revoking --------------------------------------------------------------------------------------------


def revoke(step: Step, command: Revoke) -> None:
    """Revoke what an approval allowed beyond one call."""
    if command.key in step.state.seen:
        return
    if command.prompt_id not in step.state.grants:
        raise PromptClosed("There is nothing to revoke: this is no longer allowed.")
    step.kinds["agent"].revoked(step, command)
