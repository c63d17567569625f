"""Permissions: the tables of cases are the specification."""

from __future__ import annotations

from typing import Any, NamedTuple, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

from engine.decide.policy import Action, Gate, Target, authorize
from engine.forms.question import Question
from engine.forms.question_kinds import KINDS
from engine.journal.state import State
from engine.language.actors import Actor
from engine.language.errors import MalformedJournal
from prompt_state.question_row import PromptKind, may_act_on
from tests.prompt_state.prompt_cases import TEAM, approval, ask, person

ACTIONS: tuple[Action, ...] = get_args(Action)
NAMES = {"UANA": "Ana", "UBEN": "Ben Okafor"}

ANA = person("UANA", email="ana@example.com")
"""Started the session."""
BEN = person("UBEN", email="Ben@Example.com")
CLEO = person("UCLEO", groups=frozenset({"sre"}))
GUEST = person("UBEN", is_restricted=True)
OUTSIDER = person("UX", in_channel=False)
UNSEEN = person("UX", in_channel=None)
"""Of whom nobody knows whether they are in the channel."""
TERMINAL = Actor.local("ana")
POSING = replace(TERMINAL, groups=frozenset({"sre"}), email="ben@example.com")
"""Somebody at the terminal with what people of Slack have."""
AS_BEN, AS_CLEO, AS_ADDRESS = map(Actor.pretend, ("UBEN", "cleo", "ben@example.com"))
"""Whom somebody plays there."""

ASK = Question(kind="ask")
GATE = Question(kind="approval", approvers=("UBEN", "@sre"))
STUCK = Question(kind="interrupted")
BROKEN = Question(kind="failed")
CAP = Question(kind="budget")


def target(prompt: Question | None = None, **changed: Any) -> Target:
    """A session in a channel of T1 that Ana started."""
    values: dict[str, Any] = {"home_team": TEAM, "requester_id": "UANA", "prompt": prompt, "names": NAMES}
    return Target(**(values | changed))


def listing(*entries: str, **changed: Any) -> Target:
    """An approval with these approvers."""
    return target(Question(kind="approval", approvers=entries), **changed)


def asking(*entries: str, **changed: Any) -> Target:
    """A question to these people."""
    return target(Question(kind="ask", who=entries), **changed)


def listing_here(*entries: str) -> Target:
    """The same in a run at the terminal."""
    return listing(*entries, **LOCAL_RUN)


def starters(*entries: str) -> Target:
    """A flow that these people may start."""
    return target(Question(kind="start", who=entries))


def excluding(*entries: str) -> Target:
    """An approval with these approvers, but for the requester."""
    return target(Question(kind="approval", approvers=entries, exclude_requester=True))


class Case(NamedTuple):
    name: str
    actor: Actor
    action: Action
    target: Target
    reason: str | None


LOCAL_RUN: dict[str, Any] = {"has_channel": False, "requester_id": "local:ana", "home_team": None}
ONLY_BEN_OR_SRE = "Only Ben Okafor and @sre can approve this. Ask one of them."
NOT_PEOPLE = "Only people can do this, not apps or workflows."
UNKNOWN = "Slack could not identify you right now. Please try again in a moment."
NOT_HERE = "Only members of this workspace can do this."
NOT_OPEN = "This bot is not open to everybody here. Ask an admin to add you (SAYSO_USERS)."
START_IN_SLACK = "Start this in Slack, or list local:ana in `allowed_to_start` of the flow."
NO_CHANNEL = "Please start this in a channel."
NO_STARTER = "Only @sre and Ana can start this. Ask one of them."
USE_BUTTONS = "A reply does not answer this: please use its buttons."
MEMBERS_START = "Only members of this channel can start this."
MEMBERS_SEE = "Only members of this channel can see this."
MEMBERS_ANSWER = "Only members of this channel can answer this."
MEMBERS_APPROVE = "Only members of this channel can approve this."
NOBODY_LISTED = "Nobody can approve this: the flow's list is empty."
SOMEBODY_ELSE = "You started this, so somebody else must approve it."
BEN_INSTEAD = "You started this, so somebody else must approve it: Ben Okafor."
ONLY_BEN = "Only Ben Okafor can approve this."
ONLY_ADDRESS = "Only ben@example.com can approve this."
ONLY_BEN_THERE = "Only ben at the terminal can approve this."
ONLY_ANA_THERE = "Only ana at the terminal can cancel this."
ONLY_ANA_DECIDES = "Only Ana can decide how this continues."
ONLY_ANA_PAUSES = "Only Ana can pause this."
ONLY_ANA_SEES = "Only Ana can see this."
ANA_OR_ADMINS = "Only Ana and the admins can steer this."
ONLY_WHO_STARTED = "Only the person who started this can revoke this."
NOBODY_LEFT = "Nobody can cancel this: no person started it, and SAYSO_ADMINS is empty."
NOT_STUCK = "This is not a question about an interrupted or failed step, or about a cap."
NOT_ITS_OWN = "Only members of this channel and @sre can approve this. Ask one of them."
NOT_POSING = "Only @sre and ben@example.com can approve this. Ask one of them."
PLAYED = "This run is in a Slack channel, where --as is not available."

CASES = [
    # -- start: members of the channel
    Case("a member starts", BEN, "start", target(), None),
    Case("one from outside does not", person(in_channel=False), "start", target(), MEMBERS_START),
    Case("nor where membership is not known", person(in_channel=None), "start", target(), UNKNOWN),
    Case("the terminal starts a local run", TERMINAL, "start", target(**LOCAL_RUN), None),
    Case("but none in a channel", TERMINAL, "start", target(), START_IN_SLACK),
    Case("except where the flow lists it", TERMINAL, "start", starters("local:ana"), None),
    Case("a listed group starts", CLEO, "start", starters("@sre"), None),
    Case("a member who is not listed does not", BEN, "start", starters("@sre", "UANA"), NO_STARTER),
    Case("a schedule starts", Actor.itself("schedule"), "start", target(), None),
    Case("and does nothing else", Actor.itself("schedule"), "cancel", target(), NOT_PEOPLE),
    Case("the watch over channels pauses", Actor.itself("channel"), "pause", target(), None),
    Case("and resumes nothing", Actor.itself("channel"), "resume", target(), NOT_PEOPLE),
    Case("other parts of sayso start nothing", Actor.itself("timer"), "start", target(), NOT_PEOPLE),
    Case("whom the bot is open to", BEN, "start", target(users=frozenset({"UBEN"})), None),
    Case("and everybody else", CLEO, "start", target(users=frozenset({"UBEN"})), NOT_OPEN),
    Case("in all that one does", CLEO, "decide", target(GATE, users=frozenset({"UBEN"})), NOT_OPEN),
    Case("Slack starts none outside a channel", BEN, "start", target(has_channel=False), NO_CHANNEL),
    # -- ask: the requester, else the channel, unless `who` says otherwise
    Case("the requester answers", ANA, "answer", target(ASK), None),
    Case("and an input too", ANA, "answer", target(Question(kind="input")), None),
    Case("a colleague does not", BEN, "answer", target(ASK), "Only Ana can answer this."),
    Case("nor an admin", BEN, "answer", target(ASK, admins=frozenset({"UBEN"})), "Only Ana can answer this."),
    Case("without a requester the channel", BEN, "answer", target(ASK, requester_id=None), None),
    Case("and nobody beyond it", OUTSIDER, "answer", target(ASK, requester_id=None), MEMBERS_ANSWER),
    Case("`who` names a user", BEN, "answer", asking("UBEN"), None),
    Case("`who` leaves the requester out", ANA, "answer", asking("UBEN"), "Only Ben Okafor can answer this."),
    Case("`who` names the channel", BEN, "answer", asking("channel"), None),
    Case("`who` names the requester", ANA, "answer", asking("@sre", "requester"), None),
    Case("`who` names nobody", ANA, "answer", asking(), "Nobody can answer this: the flow's list is empty."),
    Case("an approval is not answered", BEN, "answer", target(GATE), USE_BUTTONS),
    # -- approval: those listed, and nobody else
    Case("listed by id", BEN, "decide", target(GATE), None),
    Case("listed by group", CLEO, "decide", target(GATE), None),
    Case("group names know no case", CLEO, "decide", listing("@SRE"), None),
    Case("listed by e-mail, in any case", BEN, "decide", listing("ben@example.com"), None),
    Case("not by an unknown e-mail", CLEO, "decide", listing("ben@example.com"), ONLY_ADDRESS),
    Case("not by a display name", person("UX", name="UBEN"), "decide", listing("UBEN"), ONLY_BEN),
    Case("not listed", ANA, "decide", target(GATE), ONLY_BEN_OR_SRE),
    Case("an admin is not listed", ANA, "decide", target(GATE, admins=frozenset({"UANA"})), ONLY_BEN_OR_SRE),
    Case("the channel is listed", CLEO, "decide", listing("channel"), None),
    Case("the channel, by one who is not in it", OUTSIDER, "decide", listing("channel"), MEMBERS_APPROVE),
    Case("the channel, where that is not known", UNSEEN, "decide", listing("channel"), MEMBERS_APPROVE),
    Case("the requester is listed", ANA, "decide", listing("requester"), None),
    Case("nobody is listed", BEN, "decide", target(Question(kind="approval")), NOBODY_LISTED),
    Case("nor an admin where nobody is", BEN, "decide", listing(admins=frozenset({"UBEN"})), NOBODY_LISTED),
    Case("the requester is excluded though listed", ANA, "decide", excluding("UANA", "UBEN"), BEN_INSTEAD),
    Case("excluded as the only one", ANA, "decide", excluding("requester"), SOMEBODY_ELSE),
    Case("others are not excluded", BEN, "decide", excluding("UANA", "UBEN"), None),
    Case("an ask is not approved", ANA, "decide", target(ASK), "This is not an approval."),
    Case("nothing is approved where nothing asks", ANA, "decide", target(), "This is not an approval."),
    # -- the rest: the requester and the admins
    Case("the requester cancels", ANA, "cancel", target(), None),
    Case("a colleague does not cancel", BEN, "cancel", target(), "Only Ana can cancel this."),
    Case("an admin cancels", BEN, "cancel", target(admins=frozenset({"UBEN"})), None),
    Case("an admin by e-mail", BEN, "stop", target(admins=frozenset({"ben@example.com"})), None),
    Case("an admin by group", CLEO, "pause", target(admins=frozenset({"@sre"})), None),
    Case("the channel is no admin", BEN, "pause", target(admins=frozenset({"channel"})), ONLY_ANA_PAUSES),
    Case("it says that there are admins", CLEO, "steer", target(admins=frozenset({"UBEN"})), ANA_OR_ADMINS),
    Case("nobody is left", BEN, "cancel", target(requester_id=None), NOBODY_LEFT),
    Case("a requester without a known name", BEN, "revoke", target(names={}), ONLY_WHO_STARTED),
    Case("the requester resolves", ANA, "resolve", target(STUCK), None),
    Case("an admin resolves", BEN, "resolve", target(STUCK, admins=frozenset({"UBEN"})), None),
    Case("a colleague does not", BEN, "resolve", target(STUCK), ONLY_ANA_DECIDES),
    Case("the requester resolves a failure", ANA, "resolve", target(BROKEN), None),
    Case("an admin resolves it", BEN, "resolve", target(BROKEN, admins=frozenset({"UBEN"})), None),
    Case("a colleague does not resolve it", BEN, "resolve", target(BROKEN), ONLY_ANA_DECIDES),
    Case("the requester raises a cap", ANA, "resolve", target(CAP), None),
    Case("an admin raises it", BEN, "resolve", target(CAP, admins=frozenset({"UBEN"})), None),
    Case("a colleague does not raise it", BEN, "resolve", target(CAP), ONLY_ANA_DECIDES),
    Case("an approval is not resolved", ANA, "resolve", target(GATE), NOT_STUCK),
    # -- to look: whoever can read the thread
    Case("a member asks for the status", BEN, "status", target(), None),
    Case("one from outside does not", OUTSIDER, "list", target(), MEMBERS_SEE),
    Case("the requester, though not in the channel", person(in_channel=False), "help", target(), None),
    Case("the terminal sees everything", TERMINAL, "status", target(), None),
    Case("nobody of Slack sees a local run", BEN, "status", target(has_channel=False), ONLY_ANA_SEES),
    # -- the terminal
    Case("answers what it started", TERMINAL, "answer", target(ASK, **LOCAL_RUN), None),
    Case("is the channel of a local run", TERMINAL, "answer", asking("channel", **LOCAL_RUN), None),
    Case("is not the group", TERMINAL, "answer", asking("@sre", **LOCAL_RUN), "Only @sre can answer this."),
    Case("does not answer for Slack", TERMINAL, "answer", target(ASK), "Only Ana can answer this."),
    Case("approves where listed", TERMINAL, "decide", listing("local:ana"), None),
    Case("listed as another", TERMINAL, "decide", listing("local:ben"), ONLY_BEN_THERE),
    Case("is no approver of its own run", TERMINAL, "decide", listing_here("channel", "@sre"), NOT_ITS_OWN),
    Case("not with Slack's groups", POSING, "decide", listing("@sre", "ben@example.com"), NOT_POSING),
    Case("does not end others' runs", TERMINAL, "cancel", target(), "Only Ana can cancel this."),
    Case("unless that is allowed", TERMINAL, "cancel", target(allow_local=True), None),
    Case("which is no approval", TERMINAL, "decide", target(GATE, allow_local=True), ONLY_BEN_OR_SRE),
    Case("and is an admin where listed", TERMINAL, "stop", target(admins=frozenset({"local:ana"})), None),
    # -- played with --as
    Case("plays an approver of a local run", AS_BEN, "decide", listing_here("UBEN"), None),
    Case("by e-mail", AS_ADDRESS, "decide", listing_here("BEN@example.com"), None),
    Case("by group", Actor.pretend("@sre"), "decide", listing_here("@sre"), None),
    Case("one who is not listed", AS_CLEO, "decide", listing_here("UBEN"), ONLY_BEN),
    Case("not in a channel", Actor.pretend("UBEN"), "decide", target(GATE), PLAYED),
    Case("not even as oneself", Actor.pretend("ana"), "status", target(), PLAYED),
    Case("is no operator", AS_CLEO, "cancel", target(**LOCAL_RUN, allow_local=True), ONLY_ANA_THERE),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_may(case: Case) -> None:
    """An actor may do an action to a target exactly where its row of the table gives no reason."""
    verdict = authorize(case.actor, case.action, case.target)
    assert verdict.reason == case.reason
    assert verdict.allowed is (case.reason is None)


BARRED = [
    ("a bot", replace(BEN, is_bot=True), NOT_PEOPLE),
    ("a workflow", replace(BEN, is_app=True), NOT_PEOPLE),
    (
        "edited text",
        replace(BEN, edited=True),
        "Edited text does not count. Please write it again as a new message.",
    ),
    ("unknown facts", replace(BEN, facts_known=False), UNKNOWN),
    ("deactivated", replace(BEN, deleted=True), "This account is deactivated."),
    ("another organisation", replace(BEN, is_stranger=True), NOT_HERE),
    ("another team", replace(BEN, team_id="T2"), NOT_HERE),
    ("no team", replace(BEN, team_id=None), NOT_HERE),
    ("a guest", replace(BEN, is_restricted=True), "Guests cannot do this in this workspace."),
    (
        "a guest of one channel",
        replace(BEN, is_ultra_restricted=True),
        "Guests cannot do this in this workspace.",
    ),
    ("nobody", replace(BEN, id=""), NOT_PEOPLE),
    ("a terminal that says it is Slack", replace(BEN, id="local:ana"), NOT_PEOPLE),
    ("Slack, played", replace(BEN, simulated=True), NOT_PEOPLE),
    ("sayso itself", Actor.itself("timer"), NOT_PEOPLE),
    ("a terminal with a Slack id", replace(TERMINAL, id="UBEN"), NOT_PEOPLE),
    ("a terminal without a name", replace(TERMINAL, id="local:"), NOT_PEOPLE),
    ("a terminal of which nothing is known", replace(TERMINAL, facts_known=False), NOT_PEOPLE),
    ("only a journaled record", Actor(id=BEN.id, name=BEN.name), UNKNOWN),
]


@pytest.mark.parametrize(("name", "actor", "reason"), BARRED, ids=[row[0] for row in BARRED])
@pytest.mark.parametrize("action", ACTIONS)
def test_some_may_do_nothing(name: str, actor: Actor, reason: str, action: Action) -> None:
    """Who is not a known person of this workspace may do nothing, though requester, approver, asked and admin."""
    kinds = {"answer": "ask", "decide": "approval", "resolve": "interrupted"}
    prompt = Question(kind=kinds.get(action, "ask"), approvers=(actor.id,), who=(actor.id,))
    generous = target(prompt, requester_id=actor.id, admins=frozenset({actor.id, "UBEN"}), allow_local=True)
    assert authorize(actor, action, generous).reason == reason


def test_guests_may_what_others_may_where_they_are_allowed() -> None:
    """With guests allowed a guest is treated as any member, no better."""
    assert authorize(GUEST, "decide", target(GATE, allow_guests=True)).allowed
    assert not authorize(GUEST, "cancel", target(allow_guests=True)).allowed


def test_nobody_of_slack_acts_where_there_is_no_workspace() -> None:
    """An installation that belongs to no workspace refuses everybody who comes from one."""
    assert authorize(ANA, "cancel", target(home_team=None)).reason == NOT_HERE


def test_an_unknown_action_is_refused() -> None:
    """What the policy does not know, nobody may do."""
    unknown: Any = "vote_twice"
    assert authorize(ANA, unknown, target()).reason == "You can't do this here."


def test_a_long_list_is_counted_after_some_names() -> None:
    """A refusal names some people and counts the rest, so that it stays a sentence."""
    reason = authorize(ANA, "decide", listing(*(f"U{index}" for index in range(1, 10)))).reason
    assert reason == "Only U1, U2, U3, U4, U5 and 4 others can approve this. Ask one of them."


def test_addresses_that_only_folding_makes_equal_are_different() -> None:
    """Letters beyond ASCII are compared as they are: `ß` is not `ss`, and the Kelvin sign is no `k`."""
    assert not authorize(
        person("UX", email="strasse@example.com"), "decide", listing("straße@example.com")
    ).allowed
    assert not authorize(person("UX", groups=frozenset({"\u212aube"})), "decide", listing("@kube")).allowed


# --- properties --------------------------------------------------------------------------------------------

USERS = st.sampled_from(["", "UANA", "UBEN", "local:ana", "local:", "system:timer", "ben@example.com"])
ENTRIES = st.lists(
    st.one_of(
        st.sampled_from(
            ["UANA", "UBEN", "@sre", "ben@example.com", "local:ana", "channel", "requester", "", "@"]
        ),
        st.text(max_size=6),
    ),
    max_size=4,
).map(tuple)
ACTORS = st.builds(
    Actor,
    id=USERS,
    kind=st.sampled_from(["slack", "local", "system"]),
    team_id=st.sampled_from([None, TEAM, "T2"]),
    email=st.sampled_from([None, "ben@example.com", ""]),
    is_bot=st.booleans(),
    is_app=st.booleans(),
    deleted=st.booleans(),
    is_restricted=st.booleans(),
    is_ultra_restricted=st.booleans(),
    is_stranger=st.booleans(),
    groups=st.frozensets(st.sampled_from(["sre", "SRE", ""])),
    in_channel=st.sampled_from([None, True, False]),
    edited=st.booleans(),
    simulated=st.booleans(),
    facts_known=st.booleans(),
)
SOUND = st.builds(
    person,
    st.sampled_from(["UANA", "UBEN", "UCLEO"]),
    email=st.sampled_from([None, "ben@example.com"]),
    groups=st.frozensets(st.sampled_from(["sre", "dba"])),
    in_channel=st.sampled_from([None, True, False]),
)
PROMPTS = st.builds(
    Question,
    kind=st.sampled_from(["ask", "approval", "interrupted", "failed", "input", "else"]),
    approvers=st.one_of(st.none(), ENTRIES),
    who=st.one_of(st.none(), ENTRIES),
    exclude_requester=st.booleans(),
)
TARGETS = st.builds(
    Target,
    home_team=st.sampled_from([None, TEAM]),
    has_channel=st.booleans(),
    requester_id=st.sampled_from([None, "UANA", "local:ana"]),
    prompt=st.one_of(st.none(), PROMPTS),
    admins=ENTRIES.map(frozenset),
    allow_guests=st.booleans(),
    allow_local=st.booleans(),
    names=st.just(NAMES),
)


@given(actor=ACTORS, action=st.one_of(st.sampled_from(ACTIONS), st.text(max_size=8)), target=TARGETS)
def test_the_policy_is_total(actor: Actor, action: Any, target: Target) -> None:
    """For whatever it is given, the policy allows without a reason or refuses with a sentence."""
    verdict = authorize(actor, action, target)
    if verdict.allowed:
        assert verdict.reason is None
        assert action in ACTIONS
    else:
        assert verdict.reason
        assert verdict.reason.endswith(".")


def _may_be_meant(actor: Actor, entry: str, target: Target) -> bool:
    """Written apart from the policy: whether an entry could mean this actor at all."""
    meant = {actor.id, *(f"@{group}".lower() for group in actor.groups)}
    if actor.email:
        meant.add(actor.email)
    if actor.id == target.requester_id:
        meant.add("requester")
    if actor.in_channel is True and target.has_channel:
        meant.add("channel")
    return entry in meant or entry.lower() in meant


GATES = st.builds(
    replace,
    TARGETS,
    home_team=st.just(TEAM),
    prompt=st.builds(structs.replace, PROMPTS, kind=st.just("approval"), approvers=ENTRIES),
)


@given(actor=st.one_of(ACTORS, SOUND), target=st.one_of(TARGETS, GATES))
def test_only_those_listed_ever_approve(actor: Actor, target: Target) -> None:
    """Nobody approves whom no entry means, who is excluded, or who is no person of this workspace."""
    if not authorize(actor, "decide", target).allowed:
        return
    prompt = target.prompt
    assert prompt is not None
    assert prompt.kind == "approval"
    assert any(_may_be_meant(actor, entry.strip(), target) for entry in prompt.approvers or ())
    assert not (prompt.exclude_requester and actor.id == target.requester_id)
    assert not any([actor.is_bot, actor.is_app, actor.edited, actor.deleted])
    assert actor.facts_known
    if actor.kind == "slack":
        assert actor.team_id == target.home_team
        assert not actor.is_stranger


@given(actor=SOUND, entries=ENTRIES, admins=ENTRIES.map(frozenset))
def test_admins_and_settings_never_open_an_approval(
    actor: Actor, entries: tuple[str, ...], admins: frozenset[str]
) -> None:
    """What an approval answers does not depend on who is an admin or what the terminal may do."""
    plain = listing(*entries)
    assert (
        authorize(actor, "decide", plain).allowed
        == authorize(actor, "decide", replace(plain, admins=admins, allow_local=True)).allowed
    )


# --- as the engine and the bot call it ------------------------------------------------------------------------


def test_the_gate_reads_a_session_and_a_prompt_of_the_engine() -> None:
    """The engine's policy takes the requester, the place and the prompt from the state, and gives the sentence."""
    gate = Gate(home_team=TEAM, names=NAMES)
    state = State(actor={"id": "UANA", "name": "Ana"}, thread={"team": TEAM, "channel": "C1"})
    prompt = Question(kind="approval", approvers=("UBEN", "@sre"), exclude_requester=True)
    assert gate(BEN, "decide", state, prompt) is None
    assert gate(CLEO, "decide", state, prompt) is None
    assert gate(ANA, "decide", state, prompt) == (
        "You started this, so somebody else must approve it: Ben Okafor or @sre."
    )
    assert gate(ANA, "cancel", state, None) is None
    assert gate(BEN, "cancel", state, None) == "Only Ana can cancel this."


def test_the_gate_knows_a_local_run_by_its_missing_thread() -> None:
    """A session without a thread is a local one: its own terminal acts in it, and somebody may be played."""
    gate = Gate(home_team=None)
    state = State(actor={"id": "local:ana"}, thread=None)
    question = Question(kind="ask")
    assert gate(TERMINAL, "start", state, None) is None
    assert gate(TERMINAL, "answer", state, question) is None
    decision = Question(kind="approval", approvers=("@sre",))
    assert gate(Actor.pretend("@sre"), "decide", state, decision) is None


@pytest.mark.parametrize("broken", ["UBEN", {"UBEN": 1}, [1, None], True, 7])
def test_approvers_that_are_no_list_of_texts_are_refused(broken: Any) -> None:
    """A malformed list of approvers is a malformed journal, never a reason to let somebody through."""
    with pytest.raises(MalformedJournal):
        Question.from_wire({"kind": "approval", "approvers": broken})


def test_the_prompts_that_somebody_may_act_on() -> None:
    """Of a thread's prompts those are given that this person may answer or decide, each by its own requester."""
    prompts = [
        ask("p-1"),
        approval("p-2"),
        ask("p-3", requester_id="UBEN"),
        ask("p-4", kind="interrupted", accepts_text=False),
    ]
    base = Target(home_team=TEAM)
    assert may_act_on(ANA, prompts, base) == {"p-1", "p-4"}
    assert may_act_on(BEN, prompts, base) == {"p-2", "p-3"}
    assert may_act_on(replace(BEN, facts_known=False), prompts, base) == frozenset()


def test_every_kind_of_prompt_has_its_action() -> None:
    """Each kind of prompt is answered by exactly one action that the policy knows."""
    assert {kind.action for kind in KINDS.values()} <= set(ACTIONS)
    assert set(KINDS) == set(get_args(PromptKind))


def test_the_cap_of_the_day_is_for_the_admins() -> None:
    """Who started a run may lift its own cap and not everybody's, unless nobody else is named."""
    own = ask("p-cap", kind="budget", accepts_text=False)
    day = structs.replace(own, exclude_requester=True)
    base = Target(home_team=TEAM, requester_id="UANA", admins=frozenset({"UBEN"}))
    assert authorize(ANA, "resolve", replace(base, prompt=own)).allowed
    refused = authorize(ANA, "resolve", replace(base, prompt=day))
    assert refused.reason == "This affects everybody's runs, so only SAYSO_ADMINS can resolve it."
    assert authorize(BEN, "resolve", replace(base, prompt=day)).allowed
    assert authorize(ANA, "resolve", replace(base, prompt=day, admins=frozenset())).allowed
