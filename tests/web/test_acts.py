"""What may be changed on the page: requests in the inbox, on which the policy decides as on all others."""

from __future__ import annotations

import asyncio
import html
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from bot.cli.app import run
from bot.config.settings import load_settings
from bot.terminal.console import Exit, place_of
from bot.terminal.follower import terminal_label
from bot.web import acts
from engine.decide import policy
from engine.decide.policy import Verdict
from engine.flow import coerce_inputs
from engine.flow.load import load_flow
from engine.journal.queries import next_try
from engine.journal.records import DEAD, Consumed, InboxItem
from engine.language.actors import Actor
from engine.language.codec import decode
from tests.support import roomful
from tests.web.acting import Slack, served
from tests.web.conftest import Json, Visitor, visited


async def answered(
    visitor: Visitor, session_id: str, value: str = "approve", **more: Any
) -> tuple[int, Json]:
    """Answer the open question."""
    [asked] = (await visitor.get(f"sessions/{session_id}"))["prompts"]
    told = {"promptId": asked["promptId"], "nonce": asked["nonce"], "value": value, **more}
    return await visitor.post("act", {"session": session_id, "do": "answer", **told})


@pytest.mark.parametrize("who", [Actor.local("ana"), Actor(id="U0BEN", name="Ben")], ids=["token", "slack"])
async def test_whoever_may_answer_answers(home: Path, who: Actor) -> None:
    """The answer is applied as theirs, and the session goes on."""
    async with served(home, who) as (visitor, session_id):
        assert await answered(visitor, session_id) == (200, {"outcome": "applied", "there": True})
        while (told := await visitor.get(f"sessions/{session_id}"))["status"] != "complete":
            pass
        step = await visitor.get(f"sessions/{session_id}", step="ask")
        assert f"by: {who.name.lower()}\n" in step["panel"]["output"][0]["text"]
        assert told["prompts"] == []


WHY = """
flow: careful
nodes:
  - {id: ask, type: approval, with: {message: "Go?", approvers: [local:ana], require_reason: true}}
"""


async def test_a_rejection_that_needs_a_reason_can_be_given_one_on_the_page(home: Path) -> None:
    """The page has a field for the reason, says who is asked, and a rejection without words is refused."""
    async with served(home, Actor.local("ana"), flow=WHY) as (visitor, session_id):
        page = await visitor.page(f"sessions/{session_id}")
        assert 'name="reason"' in page
        assert "Approval needed from ana" in page
        for nothing in ({}, {"reason": ""}, {"reason": "  "}, {"reason": "\u200b"}):
            assert (await answered(visitor, session_id, "reject", **nothing))[0] == 400
        given = await answered(visitor, session_id, "reject", reason="Not on Fridays")
        assert given == (200, {"outcome": "applied", "there": True})


SIZED = """
flow: sized
nodes:
  - id: agree
    type: approval
    with: {message: Scale?, approvers: [requester], form: {properties: {copies: {type: integer, default: 7}}}}
"""


async def test_an_approval_shows_the_values_that_it_approves(home: Path) -> None:
    """Nobody approves blindly: what a form would let them change is shown as it is."""
    async with served(home, Actor.local("ana"), flow=SIZED) as (visitor, session_id):
        page = re.sub("<[^>]*>", "", await visitor.page(f"sessions/{session_id}"))
    assert re.search(r"Copies:\s*7", page)


async def test_nobody_is_offered_what_the_policy_would_refuse(home: Path) -> None:
    """In place of buttons somebody of this machine reads who can answer, and why a failed run is not tried again from here."""
    failing = "flow: gated\nallowed_to_start: [U0ANA]\nnodes: [{id: ask, type: fail, with: {message: no}}]\n"
    async with served(home, Actor.local("mallory")) as (visitor, waiting):
        async with roomful.engine_at(home / "sayso.db") as engine:
            failed = await roomful.started(engine, failing, {})
        for session_id, why, offer in (
            (waiting, "can approve this", 'data-value="&#34;approve'),
            (failed, "or list local:mallory in", "retry"),
        ):
            page = await visitor.page(f"sessions/{session_id}")
            assert why in page
            assert offer not in page


async def refuse(home: Path, who: Actor) -> None:
    """Somebody who is not listed tries to answer, and nothing happens."""
    async with served(home, who) as (visitor, session_id):
        status, told = await answered(visitor, session_id)
        assert (status, told.get("error")) == (400, "not_allowed"), told
        assert "can approve this" in told["message"]
        assert (await visitor.get(f"sessions/{session_id}"))["status"] == "paused"


FOUR_EYES = """
flow: gated
nodes:
  - {id: ask, type: approval, with: {message: Go?, approvers: [U0BEN], exclude_requester: true}}
"""


async def test_who_asked_for_it_sees_no_buttons_where_that_is_excluded(home: Path) -> None:
    """Of somebody of Slack that alone is known here; who else may not answer is told by the bot, after a press."""
    async with served(home, Actor(id="U0ANA", name="Ana"), flow=FOUR_EYES) as (visitor, session_id):
        [asked] = (await visitor.get(f"sessions/{session_id}"))["prompts"]
        assert asked["refused"].startswith("You started this")
        assert "data-value" not in await visitor.page(f"sessions/{session_id}")
    async with served(home, Actor(id="U0EVE", name="Eve"), flow=FOUR_EYES) as (visitor, session_id):
        assert (await visitor.get(f"sessions/{session_id}"))["prompts"][0]["refused"] is None


@pytest.mark.parametrize(
    "who", [Actor.local("mallory"), Actor(id="U0EVE", name="ana")], ids=["token", "slack"]
)
async def test_others_are_refused_by_the_policy(home: Path, who: Actor) -> None:
    """The page decides nothing: what the policy says of this person counts, whatever they call themselves."""
    await refuse(home, who)


async def test_a_policy_that_is_not_asked_is_noticed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded fault: with `authorize` left out the test above fails."""
    monkeypatch.setattr(policy, "authorize", lambda actor, action, target: Verdict(True))
    with pytest.raises(AssertionError):
        await refuse(home, Actor(id="U0EVE"))


async def test_a_name_that_a_request_brings_along_counts_for_nothing(home: Path) -> None:
    """Who acts is whoever is logged in: a request that says otherwise is refused."""
    async with served(home, Actor(id="U0EVE")) as (visitor, session_id):
        claimed = {"user": "U0BEN", "actor": {"id": "U0BEN", "kind": "local"}, "key": "web:1"}
        assert (await answered(visitor, session_id, **claimed))[1]["error"] == "bad_request"


@pytest.mark.parametrize("who", [Actor.local("ana"), Actor(id="U0BEN", name="Ben")], ids=["token", "slack"])
async def test_a_text_by_the_page_is_as_long_as_one_in_slack(home: Path, who: Actor) -> None:
    """A reason of 900 kB is refused with its size, and stored nowhere."""
    async with served(home, who) as (visitor, session_id):
        before = len(visitor.store.inbox.rows())
        for do in ("answer", "abort", "pause"):
            told = {"session": session_id, "do": do, "reason": "x" * 900_000}
            status, answer = await visitor.post("act", told)
            assert (status, answer["error"]) == (400, "answer_invalid"), answer
            assert "16,384" in answer["message"]
            assert len(visitor.store.inbox.rows()) == before


async def test_somebody_whom_slack_does_not_know_is_refused_and_one_it_cannot_look_up_waits(
    home: Path,
) -> None:
    """No facts, no change: an unknown id is refused at once, and while Slack is away the request is tried again."""
    async with served(home, Actor(id="U0NOBODY")) as (visitor, session_id):
        assert (await answered(visitor, session_id))[1]["error"] == "unknown_person"
    slack = Slack()
    slack.away = 2
    async with served(home, Actor(id="U0BEN"), slack) as (visitor, session_id):
        assert (await answered(visitor, session_id))[0] == 200
        assert slack.away == 0


async def test_who_has_no_id_in_slack_only_looks(home: Path) -> None:
    """A login by address alone changes nothing."""
    async with served(home, Actor(id="", email="ana@example.com")) as (visitor, session_id):
        assert "log in with Slack" in (await answered(visitor, session_id))[1]["message"]


async def test_a_session_is_paused_and_goes_on_and_is_ended(home: Path) -> None:
    """Each is a request that the bot carries out; what has ended takes nothing more."""
    async with served(home, Actor.local("ana")) as (visitor, session_id):
        for do, said, phase in (
            ("pause", "reason", "held"),
            ("resume", "text", "waiting"),
            ("abort", "reason", "ended"),
        ):
            told = await visitor.post("act", {"session": session_id, "do": do, said: "Go on."})
            assert told == (200, {"outcome": "applied", "there": True})
            assert (await visitor.get(f"sessions/{session_id}"))["phase"] == phase
        _, refused = await visitor.post("act", {"session": session_id, "do": "abort"})
        assert refused["error"] == "session_ended"


FAILING = """
flow: gated
allowed_to_start: ['local:ana', U0ANA]
nodes:
  - {id: ask, type: fail, with: {message: no}}
"""


async def test_a_failed_session_is_tried_again_from_the_page(home: Path) -> None:
    """The page offers it where it can be, the bot begins the next try, and its answer leads there; it is not offered again."""
    async with served(home, Actor.local("ana"), flow=FAILING) as (visitor, session_id):
        assert (await visitor.get(f"sessions/{session_id}"))["again"] is True
        assert "Try again from ask" in await visitor.page(f"sessions/{session_id}")
        told = await visitor.post("act", {"session": session_id, "do": "retry"})
        assert told == (200, {"outcome": "applied", "there": True, "session": next_try(session_id)})
        assert (await visitor.get(f"sessions/{next_try(session_id)}"))["parent"] == session_id
        assert "retry of <" in await visitor.page(f"sessions/{next_try(session_id)}")
        badges = [
            (row["isRetry"], row["isRetried"])
            for row in (await visitor.get("sessions", flow="gated"))["sessions"]
        ]
        assert badges == [(True, False), (False, True)]
        after = await visitor.get(f"sessions/{session_id}")
        assert (after["again"], after["triedAgain"]) == (False, next_try(session_id))


async def test_the_page_of_a_failed_run_hears_that_it_is_tried_again(home: Path) -> None:
    """The news of a new run name the one that it tries again, whose page shows a button until then."""
    async with served(home, Actor.local("ana"), flow=FAILING) as (visitor, session_id):
        while (await visitor.get(f"sessions/{session_id}"))["status"] != "failed":
            pass
        visitor.room._index.refresh()
        news: asyncio.Queue[Json] = asyncio.Queue()
        visitor.room._watchers.add(news)
        await visitor.post("act", {"session": session_id, "do": "retry"})
        told: list[str] = []
        while next_try(session_id) not in told:
            told += (await news.get())["sessions"]
        assert session_id in told


async def test_what_the_page_does_not_offer_is_no_request(home: Path) -> None:
    """Words of other requests, and nonsense, reach nobody."""
    async with served(home, Actor.local("ana")) as (visitor, session_id):
        for do in ("migrate", "shown", "delivered", "", None, ["abort"]):
            _, told = await visitor.post("act", {"session": session_id, "do": do})
            assert told["error"] == "bad_request", do


UNREAD: list[dict[str, Any]] = [
    {"promptId": {"a": 1}},
    {"values": [1]},
    {"value": {"a": 1}},
    {"nonce": 7},
    {"reason": ["x"]},
    {"reasn": "x"},
]


@pytest.mark.parametrize("who", [Actor.local("ana"), Actor(id="U0BEN", name="Ben")], ids=["token", "slack"])
async def test_fields_that_nobody_reads_are_refused_at_once(home: Path, who: Actor) -> None:
    """What no handler can read never comes into the inbox, where it would be tried again and again before those behind it, and
    nothing that was said is dropped."""
    async with served(home, who) as (visitor, session_id):
        for fields in UNREAD:
            status, told = await answered(visitor, session_id, **fields)
            assert (status, told["error"]) == (400, "bad_request"), fields
            assert visitor.store.inbox.dead_letters() == visitor.store.inbox.rows() == [], fields


async def test_without_a_bot_a_request_is_kept(home: Path) -> None:
    """It lies in the inbox until a bot carries it out, and the page says so; one for a terminal is refused."""
    async with visited(home, write=True) as visitor:
        await visitor.log_in()
        await visitor.all_read()
        head = (await visitor.get("sessions", status="paused"))["sessions"][0]
        told = await visitor.post("act", {"session": head["sessionId"], "do": "abort"})
        assert told == (200, {"outcome": "queued", "there": False})
        assert [row.session_id for row in visitor.store.inbox.rows()] == [head["sessionId"]]


async def test_a_session_of_a_terminal_is_changed_from_there_alone(home: Path) -> None:
    """Somebody of Slack reads at once why not: no terminal can look up who they are, and their request would lie there as dead."""
    flow = load_flow("flow: here\nnodes: [{id: ask, type: ask, with: {message: Why?}}]\n", "flow.yml")
    async with roomful.engine_at(home / "sayso.db") as engine:
        session_id = await engine.start(flow, {}, actor=Actor.local("ana"))
        await engine.parked(session_id)
    async with (
        roomful.engine_at(home / "sayso.db", label=terminal_label(session_id)),
        visited(home, write=True) as visitor,
    ):
        visitor.log_in_as(Actor(id="U0BEN", name="Ben"))
        _, told = await visitor.post("act", {"session": session_id, "do": "abort"})
        assert (told["error"], visitor.store.inbox.rows()) == ("not_allowed", [])
        assert "terminal" in told["message"]


SERVED = {
    "restore-database": roomful.RESTORE.replace(
        "inputs:", "allowed_to_start: ['local:ana', U0BEN]\ninputs:", 1
    ),
    "for-members": "flow: for-members\nnodes: [{id: a, type: noop}]\n",
    "for-a-group": "flow: for-a-group\nallowed_to_start: ['@sre']\nnodes: [{id: a, type: noop}]\n",
}


@pytest.fixture
def flows(home: Path) -> Path:
    """The home with flows that different people may start."""
    (home / "flows").mkdir()
    for name, text in SERVED.items():
        (home / "flows" / f"{name}.yml").write_text(text)
    return home


async def test_a_run_is_started_from_the_page(flows: Path) -> None:
    """The form has the inputs of another run; what is sent is a request for the bot, as `sayso start-flow` makes it."""
    async with visited(flows, write=True) as visitor:
        await visitor.log_in()
        await visitor.all_read()
        like = (await visitor.get("sessions", flow="restore-database"))["sessions"][0]
        told = await visitor.get("start", flow="restore-database", like=like["sessionId"])
        assert [(field["name"], field["default"]) for field in told["fields"]] == [("reason", "disk full")]
        assert told["channel"] == like["channel"]
        queued = {"outcome": "queued", "session": None, "there": False}
        assert await visitor.post("start", WANTED) == (200, queued)
        [row] = visitor.store.inbox.rows()
        data = decode(row.payload)
        assert (data["flow"], data["place"], data["inputs"], data["local"], data.get("user")) == (
            "restore-database",
            "#ops",
            {"reason": "why not"},
            "ana",
            None,
        )


WANTED = {"flow": "restore-database", "channel": "#ops", "values": {"reason": "why not"}}


async def test_somebody_of_slack_starts_a_run_by_their_id(flows: Path) -> None:
    """The request names who it is of, not what they may do: the bot looks that up."""
    async with visited(flows, write=True) as visitor:
        visitor.log_in_as(Actor(id="U0BEN", name="Ben"))
        assert (await visitor.post("start", WANTED))[0] == 200
        [row] = visitor.store.inbox.rows()
        data = decode(row.payload)
        assert (data["user"], data["local"]) == ("U0BEN", None)
        visitor.log_in_as(Actor(id="", email="ben@example.com"))
        assert "log in with Slack" in (await visitor.post("start", WANTED))[1]["message"]
        assert len(visitor.store.inbox.rows()) == 1


@pytest.mark.parametrize(
    ("who", "startable"),
    [
        (Actor.local("ana"), ["restore-database"]),
        (Actor.local("mallory"), []),
        (Actor(id="U0BEN", name="Ben"), ["for-a-group", "for-members", "restore-database"]),
        (Actor(id="U0EVE", name="Eve"), ["for-a-group", "for-members"]),
        (Actor(id="", email="ana@example.com"), []),
    ],
    ids=["local", "another-local", "listed", "not-listed", "without-id"],
)
async def test_starts_are_offered_to_those_who_may_start(
    flows: Path, who: Actor, startable: list[str]
) -> None:
    """The form lists the flows that somebody may start and says why not the others; of a run no link leads to it for them."""
    async with visited(flows, write=True) as visitor:
        visitor.log_in_as(who)
        await visitor.all_read()
        run = (await visitor.get("sessions", flow="restore-database"))["sessions"][0]["sessionId"]
        told = await visitor.get("start")
        assert told["flows"] == startable
        assert sorted(name for _, names in told["refused"] for name in names) == sorted(
            SERVED.keys() - set(startable)
        )
        page = await visitor.page(f"sessions/{run}")
        assert ('href="/start"' in page) is bool(who.id)
        assert ("start again with these inputs" in page) is ("restore-database" in startable)


async def test_a_start_that_is_not_offered_says_why(flows: Path) -> None:
    """Whoever is not listed reads which entry is missing, in the menu's view, at one flow, and on a run of it."""
    why = "or list local:mallory in"
    async with visited(flows, write=True) as visitor:
        visitor.log_in_as(Actor.local("mallory"))
        await visitor.all_read()
        run = (await visitor.get("sessions", flow="restore-database"))["sessions"][0]["sessionId"]
        for path in ("start", "start?flow=restore-database", f"sessions/{run}"):
            assert why in await visitor.page(path), path


async def test_a_start_that_is_offered_to_everybody_is_noticed(
    flows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeded fault: with `authorize` left out the test above fails."""
    monkeypatch.setattr(acts, "authorize", lambda actor, action, target: Verdict(True))
    with pytest.raises(AssertionError):
        await test_starts_are_offered_to_those_who_may_start(flows, Actor.local("mallory"), [])


@pytest.mark.parametrize("write", [True, False])
async def test_nothing_is_offered_to_those_who_only_look(flows: Path, write: bool) -> None:
    """No button, box or link to change something: nobody of Slack without an id, and nobody where the page only shows."""
    async with visited(flows, write=write) as visitor:
        visitor.log_in_as(Actor(id="", email="eve@example.com") if write else Actor.local("ana"))
        await visitor.all_read()
        ids = visitor.store.inbox.ingest([InboxItem("a", "message", b'{"x":1}')], roomful.NOW)
        visitor.store.consume(
            [Consumed(ids[0] or 0, DEAD, b'{"error":"broken","message":"no"}')], roomful.NOW
        )
        waiting = (await visitor.get("sessions", standing="waiting"))["sessions"][0]["sessionId"]
        for path in ("sessions", f"sessions/{waiting}", "queues"):
            page = await visitor.page(path)
            for offer in ('data-to="act"', 'data-to="letter"', 'class="pick"', 'href="/start'):
                assert offer not in page, (path, offer)


NO_STARTS: list[tuple[Json, str]] = [
    ({"flow": "nope"}, "There is no flow 'nope'"),
    ({"flow": None}, "There is no flow"),
    ({"channel": ""}, "give a channel"),
    ({"channel": ["#ops"]}, "give a channel"),
    ({"values": [1]}, "must be an object"),
    ({"values": "reason"}, "must be an object"),
    ({"values": 3}, "must be an object"),
    ({"values": {"reson": "x"}}, "reson"),
    ({"values": {"reason": {"a": 1}}}, "reason"),
]


async def test_a_start_that_cannot_be_says_why(flows: Path) -> None:
    """Whatever is sent in place of a flow, a channel or inputs is refused in a sentence, and nothing is asked for."""
    async with visited(flows, write=True) as visitor:
        await visitor.log_in()
        for wrong, says in NO_STARTS:
            status, told = await visitor.post("start", {**WANTED, **wrong})
            assert (status, visitor.store.inbox.rows()) == (400, []), wrong
            assert says in told["message"], wrong


@pytest.mark.parametrize("path", ["act", "letter", "start", "login"])
async def test_no_body_makes_the_server_fail(flows: Path, path: str) -> None:
    """Each field of each request may hold anything: that is refused, and is no error of the server."""
    names = ("session", "do", "values", "promptId", "key", "again", "flow", "channel", "token")
    values: tuple[Any, ...] = (None, 1, "x", [1], {"a": [1]}, True)
    async with visited(flows, write=True) as visitor:
        await visitor.log_in()
        for value in values:
            for body in (value, *({name: value} for name in names), dict.fromkeys(names, value)):
                assert (await visitor.post(path, body))[0] < 500, body


INPUTS = """flow: many
allowed_to_start: ['local:ana']
inputs:
  none: {type: string, required: false}
  maybe: {type: boolean, required: false}
  text: {type: string, default: a}
  words: {type: array, items: {type: string}, default: [a]}
  numbers: {type: array, items: {type: integer}, default: [1]}
  things: {type: array, default: []}
  data: {type: object, default: {}}
  pick: {type: array, items: {type: string}, choices: [a, b, c], default: [a]}
nodes: [{id: a, type: noop}]
"""


@pytest.mark.parametrize(
    "given",
    [
        {},
        {
            "text": "two\nlines",
            "words": ["a", "b"],
            "numbers": [1, 2],
            "data": {"a": None},
            "pick": ["c", "a"],
        },
        {"words": ["a, b", "c"], "things": [1, "2", None, {"a": [1]}], "maybe": False, "pick": []},
        {"words": ["[a]", " b "], "things": [True, "yes"], "numbers": [], "text": "null"},
        {"words": ["", "a"], "things": ["a", "b"], "maybe": True},
    ],
)
async def test_a_form_is_filled_with_what_means_the_same_inputs(home: Path, given: Json) -> None:
    """What stands in the form of another start gives the inputs of the first: nothing is null that was not given, and lists
    and objects are read as they were."""
    flow = load_flow(INPUTS, "many.yml")
    (home / "flows").mkdir()
    (home / "flows" / "many.yml").write_text(INPUTS)
    async with roomful.engine_at(home / "sayso.db") as engine:
        begun = await roomful.started(engine, INPUTS, given)
        before = (await engine.state(begun)).inputs
    async with visited(home, write=True) as visitor:
        await visitor.log_in()
        told = await visitor.get("start", flow="many", like=begun)
    sent = {field["name"]: field["default"] for field in told["fields"] if field["default"] not in (None, "")}
    assert coerce_inputs(flow, sent) == (before, [])


async def test_a_run_is_downloaded_as_a_signed_file(home: Path) -> None:
    """What the page gives is the portable file of `sayso sessions export`, and verifies."""
    async with visited(home) as visitor:
        await visitor.log_in()
        await visitor.all_read()
        one = (await visitor.get("sessions", status="complete"))["sessions"][0]["sessionId"]
        async with visitor.http.get(f"{visitor.url}/sessions/{one}/export") as answer:
            assert answer.headers["Content-Disposition"] == f'attachment; filename="{one}.json"'
            (home / "one.json").write_bytes(await answer.read())
        assert await visitor.status("/sessions/session-nope/export") == 404
    assert run(["--home", str(home), "verify", str(home / "one.json")]) == Exit.OK


async def test_no_button_stands_where_nobody_could_press_it(home: Path) -> None:
    """A run of a terminal that is gone has the command that goes on with it, for this home, in place of buttons."""
    flow = load_flow("flow: here\nnodes: [{id: ask, type: ask, with: {message: Why?}}]\n", "flow.yml")
    there = home / "a home"
    there.mkdir()
    async with roomful.engine_at(there / "sayso.db") as engine:
        session_id = await engine.start(flow, {}, actor=Actor.local("ana"))
        state = await engine.parked(session_id)
    async with visited(there, write=True) as visitor:
        await visitor.log_in()
        page = html.unescape(await visitor.page(f"sessions/{session_id}"))
        assert 'data-to="act"' not in page
        [prompt_id] = state.open_prompts
        assert f"<code>sayso --home '{there}' sessions resume {session_id}</code>" in page
        assert f"<code>sayso --home '{there}' prompts answer {prompt_id} ANSWER</code>" in page


def test_a_command_of_a_page_names_the_database_that_the_home_alone_would_not_mean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the environment says, the command opens the database of the page; the home is enough where that is its own."""
    for database in (None, "sqlite:////elsewhere/of.db"):
        settings = load_settings({}, cwd=tmp_path, home=str(tmp_path), database_url=database)
        named = ["--db", "/elsewhere/of.db"] if database else []
        assert place_of(settings).command("run") == shlex.join(
            ["sayso", "--home", str(tmp_path), *named, "run"]
        )
    monkeypatch.setenv("SAYSO_DATABASE_URL", "sqlite:////another.db")
    settings = load_settings({}, cwd=tmp_path, home=str(tmp_path))
    assert f"--db {tmp_path / 'sayso.db'}" in place_of(settings).command("run")


async def test_each_option_of_a_question_has_its_command(home: Path) -> None:
    """Where the page only shows, what it offers to copy answers the question as it stands."""
    async with roomful.engine_at(home / "sayso.db") as engine:
        begun = await roomful.started(engine, roomful.DEPLOY, {})
        [prompt_id] = (await engine.state(begun)).open_prompts
    async with visited(home) as visitor:
        await visitor.log_in()
        page = html.unescape(await visitor.page(f"sessions/{begun}"))
    for value in ("approve", "reject"):
        assert f"<code>sayso --home {home} prompts answer {prompt_id} --value {value}</code>" in page


@pytest.mark.parametrize(("who", "may"), [(Actor.local("ana"), True), (Actor(id="U0EVE"), False)])
async def test_dead_letters_are_for_admins(home: Path, who: Actor, may: bool) -> None:
    """Whoever has this machine, or is listed as an admin, hands one to the bot again or drops it."""
    async with visited(home, write=True) as visitor:
        visitor.log_in_as(who)
        ids = visitor.store.inbox.ingest([InboxItem("a", "message", b'{"x":1}')], roomful.NOW)
        visitor.store.consume(
            [Consumed(ids[0] or 0, DEAD, b'{"error":"broken","message":"no","tries":3}')], roomful.NOW
        )
        assert (await visitor.get("queues"))["letters"][0]["message"] == "no"
        status, _ = await visitor.post("letter", {"key": "a", "again": True})
        assert (status == 200) is may
        assert (await visitor.get("queues"))["dead"] == (0 if may else 1)
