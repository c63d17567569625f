"""What the control room tells of sessions over HTTP."""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise, product
from pathlib import Path

import apsw
import pytest

from bot.web import documents, index
from engine.decide import past
from engine.decide.commands import Answer
from engine.journal.events import decode_event
from engine.journal.fold import derive_state
from engine.language.actors import Actor
from engine.nodes.runtime.runner import Completed, Failed, Outcome
from engine.storage.erasing import erase_session
from engine.storage.sqlite import open_sqlite
from tests.support import roomful
from tests.web.conftest import PROGRAM, Json, Visitor, visited


async def some(visitor: Visitor, **wanted: str) -> Json:
    """The newest session like that."""
    found = (await visitor.get("sessions", **wanted))["sessions"]
    assert found, wanted
    return dict(found[0])


# --- lists -------------------------------------------------------------------------------------------------


async def test_pages_follow_each_other_and_hold_every_session_once(visitor: Visitor) -> None:
    """The cursor of a page is where the next one begins; all of them are newest first."""
    ids, before, created = [], "", []
    while before is not None:
        page = await visitor.get("sessions", limit=6, before=before)
        ids += [each["sessionId"] for each in page["sessions"]]
        created += [each["createdAt"] for each in page["sessions"]]
        before = page["next"]
    assert len(ids) == len(set(ids)) == 20
    assert created == sorted(created, reverse=True)


FOUND: list[tuple[dict[str, str], int]] = [
    ({"q": "v1.4.0"}, 1),
    ({"q": "RESTORE disk"}, 6),
    ({"q": "ana@example.com"}, 4),
    ({"status": "aborted"}, 2),
    ({"person": "ben", "flow": "deploy-checkout"}, 3),
    ({"channel": "C0CHANNEL1"}, 5),
    ({"q": "<script>"}, 0),
    ({"q": "error rate 4.1"}, 3),
    ({"q": "tidy: ok v1.4.0"}, 1),
    ({"q": "tidy: ok v1.4.0", "within": "1h"}, 1),
    ({"q": "tidy: ok v1.4.0", "until": "2000-01-01"}, 0),
    ({"within": "1h"}, 20),
    ({"since": "2000-01-01"}, 20),
    ({"until": "2000-01-01"}, 0),
    ({"since": "2200-01-01"}, 0),
]


async def test_sessions_are_found_by_words_and_filters(visitor: Visitor) -> None:
    """Every word has to be in the id, flow, person, channel, inputs, outputs or errors, and every filter has to fit."""
    found = [(wanted, len((await visitor.get("sessions", **wanted))["sessions"])) for wanted, _ in FOUND]
    assert found == FOUND


async def test_states_are_counted_among_what_the_other_filters_show(visitor: Visitor) -> None:
    """What a state would show is its number: of one flow, or of a time in which nothing began."""
    told = await visitor.get("sessions", flow="restore-database", standing="waiting")
    counts = told["facets"]["standings"]
    for standing, number in counts.items():
        found = await visitor.get("sessions", flow="restore-database", standing=standing)
        assert len(found["sessions"]) == number
    long_ago = (await visitor.get("sessions", until="2000-01-01"))["facets"]["standings"]
    assert long_ago.keys() == counts.keys()
    assert not any(long_ago.values())


async def test_a_run_is_found_by_what_it_gave_once_it_rests(visitor: Visitor, home: Path) -> None:
    """What a run that goes on elsewhere gives later is searched too."""
    wanted = await some(visitor, flow="deploy-checkout", standing="waiting")
    assert (await visitor.get("sessions", q="watch half"))["sessions"]
    assert not (await visitor.get("sessions", q=f"{wanted['sessionId']} tidy: ok"))["sessions"]
    async with roomful.engine_at(home / "sayso.db") as engine:
        answer = Answer(wanted["prompts"][0], roomful.PEOPLE[0], "late", value="reject")
        await engine.resume(wanted["sessionId"], answer)
        await engine.parked(wanted["sessionId"])
    visitor.room._index.refresh()
    await visitor.all_read()
    assert (await visitor.get("sessions", q=f"{wanted['sessionId']} tidy: ok"))["sessions"]


async def test_what_another_process_does_is_told(visitor: Visitor, home: Path) -> None:
    """A session that begins elsewhere is announced by its id, and found from then on."""
    async with visitor.http.get(f"{visitor.url}/api/live") as news:
        assert (await news.content.readline()).startswith(b":")
        begun = await roomful.long_one(home / "sayso.db", hosts=1)
        told = b""
        while begun.encode() not in told:
            told = await news.content.readline()
    assert (await some(visitor, q="nightly"))["sessionId"] == begun


@pytest.mark.parametrize("changed", ["junk", "9999-01-01T00:00:00.000Z"])
async def test_a_row_that_somebody_changed_hides_no_news(home: Path, changed: str) -> None:
    """When a session changed last is believed of rows that verify alone."""
    with closing(apsw.Connection(str(home / "sayso.db"))) as db:
        db.execute("UPDATE sessions SET updated_at = ? WHERE n = (SELECT max(n) FROM sessions)", (changed,))
    async with visited(home) as visitor:
        await visitor.log_in()
        await visitor.all_read()
        await test_what_another_process_does_is_told(visitor, home)


async def test_a_deleted_session_leaves_the_list(visitor: Visitor) -> None:
    """What the store has no more is shown no more."""
    gone = await some(visitor, status="complete")
    assert visitor.store.sessions.delete([gone["sessionId"]]) == []
    ids = [each["sessionId"] for each in (await visitor.get("sessions"))["sessions"]]
    assert gone["sessionId"] not in ids
    assert await visitor.status(f"/sessions/{gone['sessionId']}") == 404


# --- one session -------------------------------------------------------------------------------------------


async def test_a_session_is_shown_as_it_stood_at_each_event(visitor: Visitor) -> None:
    """The state told of an event is the fold of the journal up to it, and nodes only ever come to be."""
    head = await some(visitor, flow="deploy-checkout", status="complete")
    events = [decode_event(row) for row in visitor.store.sessions.journal(head["sessionId"])]
    documents = [
        await visitor.get(f"sessions/{head['sessionId']}", at=seq) for seq in range(1, len(events) + 1)
    ]
    for seq, told in enumerate(documents, start=1):
        state = derive_state(events[:seq])
        assert (told["at"], told["status"], told["phase"]) == (seq, state.status, state.phase)
        assert {prompt["promptId"] for prompt in told["prompts"]} == set(state.open_prompts)
    begun = [{tuple(mark[:2]) for mark in told["marks"]} for told in documents]
    assert all(before <= after for before, after in pairwise(begun))


async def test_the_graph_has_a_box_for_every_node_that_ran(visitor: Visitor) -> None:
    """Marks name boxes, a loop's nodes are counted, and boxes lie inside the picture."""
    head = await some(visitor, flow="deploy-checkout", status="complete")
    told = await visitor.get(f"sessions/{head['sessionId']}")
    picture = told["picture"]
    boxes = {(box["list"], box["node"]) for box in picture["boxes"] if "node" in box}
    assert {tuple(mark[:2]) for mark in told["marks"]} == boxes
    assert [mark for mark in told["marks"] if mark[1] == "apply"] == [
        ["rollout", "apply", "completed", 3, "rollout[2]/apply"]
    ]
    for box in picture["boxes"]:
        assert 0 <= box["x"] <= box["x"] + box["width"] <= picture["width"]
        assert 0 <= box["y"] <= box["y"] + box["height"] <= picture["height"]


async def test_a_step_is_told_in_full(visitor: Visitor) -> None:
    """What a node was given and gave, its error, and the events about it."""
    head = await some(visitor, flow="deploy-checkout", status="failed")
    step = (await visitor.get(f"sessions/{head['sessionId']}", step="rollout[1]/watch"))["panel"]
    assert '"half"' in step["input"][0]["text"]
    assert step["error"][0]["text"].startswith("message: error rate 4.1 %")
    assert [event["type"] for event in step["events"]] == ["container:childStarted", "node:error"]


async def test_a_journal_is_read_in_pages_and_event_by_event(visitor: Visitor, home: Path) -> None:
    """More of them are shown with each press, up to the event that is looked at at least; one is told with all that it
    says."""
    long = await roomful.long_one(home / "sayso.db", hosts=60)
    shown, wanted = 0, ""
    while shown < (told := await visitor.get(f"sessions/{long}", tab="journal", events=wanted))["last"]:
        seqs = [event["seq"] for event in told["panel"]["events"]]
        assert seqs == list(range(1, len(seqs) + 1))
        assert shown < len(seqs) <= told["panel"]["more"]
        shown, wanted = len(seqs), told["panel"]["more"]
    assert shown == told["last"] > 250
    past = await visitor.get(f"sessions/{long}", tab="journal", at=300)
    assert past["panel"]["events"][-1]["seq"] == 300
    assert '"hosts": 60' in (await visitor.get(f"sessions/{long}/events/1"))["text"]
    for seq in ("99999", "0", "x", "-1", "1" * 10):
        assert await visitor.status(f"/sessions/{long}/events/{seq}") == 404
    async with visitor.http.get(f"{visitor.url}/sessions/{long}/events/1") as answer:
        assert (await answer.json())["seq"] == 1


async def test_a_fork_first_differs_where_it_was_answered_otherwise(visitor: Visitor, home: Path) -> None:
    """The comparison with its parent names the question, and what ran alike before it is the same."""
    parent = (await some(visitor, flow="deploy-checkout", status="complete"))["sessionId"]
    journal = [decode_event(row) for row in visitor.store.sessions.journal(parent)]
    asked = next(event.seq for event in journal if event.type == "flow:paused")
    async with roomful.engine_at(home / "sayso.db") as engine:
        child = await engine.fork(
            parent, past.seam(journal, asked), actor=Actor.local("ana"), answers={"gate": "reject"}
        )
        await engine.parked(child)
    told = await visitor.get("compare", left=parent, right=child)
    assert told["first"] == "gate"
    assert told["sameFlow"]
    assert [row["path"] for row in told["rows"] if not row["differs"]][:2] == ["build", "checks"]


async def test_damaged_records_are_said_and_nothing_of_them_is_shown(visitor: Visitor, home: Path) -> None:
    """A journal that was changed outside is refused in words; the list and other sessions stay."""
    hurt = await some(visitor, status="complete")
    with closing(apsw.Connection(str(home / "sayso.db"))) as db:
        db.execute("UPDATE journal SET mac = zeroblob(24) WHERE n = (SELECT max(n) FROM journal)")
        db.execute("UPDATE sessions SET mac = zeroblob(24) WHERE session_id = ?", (hurt["sessionId"],))
    assert await visitor.status(f"/sessions/{hurt['sessionId']}") == 409
    found = {each["sessionId"]: each for each in (await visitor.get("sessions"))["sessions"]}
    assert found[hurt["sessionId"]]["status"] == "on hold"


async def test_two_runs_that_did_the_same_are_the_same(
    visitor: Visitor, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seconds, times, ids and numbers in links differ in every run, and are no differences; an exit code is one."""
    flow = "flow: twice\nnodes: [{id: work, type: shell, with: {run: [work]}, on_crash: again}]\n"
    outputs = [
        {
            "stdout": f"{day}T10:00:00Z took {took} s of session-{id}: https://ci/runs/{run}\n",
            "exit_code": code,
            "seconds": took,
        }
        for day, took, id, run, code in (
            ("2026-01-01", 0.4, "0123456789", 1234567, 0),
            ("2026-02-02", 1.7, "abcdef0123", 7654321, 0),
            ("2026-02-02", 1.7, "abcdef0123", 7654321, 3),
        )
    ]
    given = iter(outputs)

    async def done(*_: object) -> Completed:
        return Completed(next(given))

    monkeypatch.setattr(roomful, "shell", done)
    async with roomful.engine_at(home / "sayso.db") as engine:
        ids = [await roomful.started(engine, flow, {}) for _ in outputs]
    same = await visitor.get("compare", left=ids[0], right=ids[1])
    assert (same["first"], [row["differs"] for row in same["rows"]]) == (None, [[]])
    other = await visitor.get("compare", left=ids[1], right=ids[2])
    assert (other["first"], other["rows"][0]["differs"]) == ("work", ["output"])
    assert other["rows"][0]["right"]["shown"] == {"output": [["exit_code: 3", True]]}


LINED = """flow: lined
inputs: {waits: {type: string, default: 5 s}, day: {type: string, default: 2026-01-01}}
nodes: [{id: work, type: shell, with: {run: [work, "{{ inputs.waits }}"]}, on_crash: again}]
"""


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        ([{}, {"waits": "9 s"}], [{}, {}]),
        ([{}, {"day": "2026-02-02"}], [{}, {}]),
        ([{}, {}], [{"stdout": "a\nb\n"}, {"stdout": "b\na\n"}]),
        ([{}, {}], [{"stdout": "a\na\n"}, {"stdout": "a\n"}]),
        ([{}, {}], [{"a": None, "b": {}}, {"b": {"c": 1}}]),
        ([{}, {}], [{"a": 1, "b": 2}, {"b": 2, "a": 1}]),
        ([{}, {}], [{"seconds": 4, "stdout": "took 5 s\n5\nseconds"}, {"stdout": "took 6 s\n5\nseconds"}]),
        ([{}, {}], ["plain", {"text": "plain"}]),
    ],
    ids=["duration", "date", "order", "repeated", "empty", "names", "over-lines", "kinds"],
)
async def test_marks_of_a_comparison_agree(
    visitor: Visitor, home: Path, monkeypatch: pytest.MonkeyPatch, inputs: list[Json], outputs: list[Json]
) -> None:
    """The number of steps that are the same, what differs in a step, and the lines that are marked say one thing."""
    given = iter(outputs)

    async def done(*_: object) -> Completed:
        return Completed(next(given))

    monkeypatch.setattr(roomful, "shell", done)
    async with roomful.engine_at(home / "sayso.db") as engine:
        ids = [await roomful.started(engine, LINED, each) for each in inputs]
    told = await visitor.get("compare", left=ids[0], right=ids[1])
    for row in told["rows"]:
        marked = {
            name.partition(" ")[0]
            for side in (row["left"], row["right"])
            for name, lines in side["shown"].items()
            if any(differs for _, differs in lines)
        }
        assert marked == set(row["differs"]) - {"status"}
    assert told["same"] == len([row for row in told["rows"] if not row["differs"]])
    assert all(any(differs for lines in one["sides"] for _, differs in lines) for one in told["inputs"])
    assert [one["name"] for one in told["inputs"]] == [*inputs[1]]
    assert told["same"] == (
        1 if inputs[1].keys() == {"day"} or "seconds" in outputs[0] or "a" in outputs[1] else 0
    )


async def test_a_comparison_that_marks_no_lines_is_noticed(
    visitor: Visitor, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeded fault: where no line is marked, what differs in a step is said and not shown."""
    marked = documents._marked
    monkeypatch.setattr(documents, "_marked", lambda one, two, *_: marked(one, one))
    with pytest.raises(AssertionError):
        await test_marks_of_a_comparison_agree(visitor, home, monkeypatch, [{}, {}], [{"a": 1}, {"a": 2}])


async def test_a_comparison_says_how_runs_stand_as_lists_do(visitor: Visitor, home: Path) -> None:
    """A run that people rejected is rejected there too, and so is its approval."""
    waiting = await some(visitor, flow="deploy-checkout", standing="waiting")
    async with roomful.engine_at(home / "sayso.db") as engine:
        no = Answer(waiting["prompts"][0], roomful.PEOPLE[0], "no", value="reject")
        await engine.resume(waiting["sessionId"], no)
        await engine.parked(waiting["sessionId"])
    complete = await some(visitor, flow="deploy-checkout", status="complete")
    told = await visitor.get("compare", left=waiting["sessionId"], right=complete["sessionId"])
    assert [one["standing"] for one in told["sessions"]] == ["rejected", "complete"]
    assert [row["left"]["status"] for row in told["rows"] if row["path"] == "gate"] == ["rejected"]


AFTER = """flow: after
nodes:
  - id: work
    type: shell
    with: {run: [work]}
    on_crash: again
    on_failure: [{id: mend, type: fail, with: {message: cannot mend}}]
finally:
  - {id: tidy, type: fail, with: {message: cannot tidy}}
"""


@pytest.mark.parametrize(
    ("flow", "works", "step"),
    [
        (AFTER, False, "work"),
        (AFTER, True, "finally/tidy"),
        (
            AFTER.replace("fail, with: {message: cannot mend}", "noop").replace(
                "fail, with: {message: cannot tidy}", "noop"
            ),
            True,
            "",
        ),
    ],
)
async def test_a_run_opens_at_the_step_that_failed_first_not_at_what_ran_because_of_it(
    visitor: Visitor, home: Path, monkeypatch: pytest.MonkeyPatch, flow: str, works: bool, step: str
) -> None:
    """`finally` and `on_failure` that fail too come after the step; where it did not fail they are what failed."""

    async def done(*_: object) -> Outcome:
        return Completed({}) if works else Failed("shell", "it broke")

    monkeypatch.setattr(roomful, "shell", done)
    async with roomful.engine_at(home / "sayso.db") as engine:
        begun = await roomful.started(engine, flow, {})
        await engine.parked(begun)
    assert (await visitor.get(f"sessions/{begun}"))["step"] == step


async def test_a_failed_run_is_found_by_its_error_as_it_is_read(
    visitor: Visitor, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every word of the reason in the list finds it: quotes, further lines, and however much the error says beside
    it."""
    error = Failed("disk", 'the "blue" disk\n\nis ünwell', {"log": "x" * 3_000})

    async def done(*_: object) -> Outcome:
        return error

    monkeypatch.setattr(roomful, "shell", done)
    async with roomful.engine_at(home / "sayso.db") as engine:
        begun = await roomful.started(engine, LINED, {})
        await engine.parked(begun)
    visitor.room._index.refresh()
    await visitor.all_read()
    [row] = (await visitor.get("sessions", q=begun))["sessions"]
    for words in (row["waits"], '"blue"', "is ünwell"):
        assert [one["sessionId"] for one in (await visitor.get("sessions", q=words))["sessions"]] == [begun]


NAMED = """flow: named
inputs: {why: {type: string, default: "<@U0BEN> asked"}}
nodes:
  - id: hosts
    name: All hosts
    type: foreach
    with: {items: [{name: web-1}, {name: web-2}], as: host}
    body:
      - {id: check, name: Check, type: shell, with: {run: [check, "{{ host.name }}"]}, on_crash: again}
"""


async def named(home: Path, monkeypatch: pytest.MonkeyPatch, runs: int = 1) -> list[str]:
    """Sessions that fail at the second host, in a flow whose steps have names."""

    async def check(config: Json, _: object) -> Outcome:
        return Failed("exit_code", "no answer") if "web-2" in config["run"] else Completed({})

    monkeypatch.setattr(roomful, "shell", check)
    async with roomful.engine_at(home / "sayso.db") as engine:
        return [await roomful.started(engine, NAMED, {}) for _ in range(runs)]


async def test_a_failed_loop_names_its_item_in_the_list(
    visitor: Visitor, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason begins with the item as on its page, and is found by it."""
    [begun] = await named(home, monkeypatch)
    visitor.room._index.refresh()
    await visitor.all_read()
    [row] = (await visitor.get("sessions", q="web-2: answer"))["sessions"]
    assert (row["sessionId"], row["waits"]) == (begun, "web-2: no answer")


async def test_steps_are_called_as_people_know_them(
    visitor: Visitor, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of steps, the graph, a step's place and a comparison have names and items in place of ids and
    numbers."""
    one, two = await named(home, monkeypatch, 2)
    told = await visitor.get(f"sessions/{one}")
    assert [step["called"] for step in told["steps"]] == ["All hosts", "web-1", "Check", "web-2", "Check"]
    assert told["steps"][-1]["place"] == "All hosts › web-2 › Check"
    assert [box["name"] for box in told["picture"]["boxes"]] == ["All hosts", "Check"]
    rows = (await visitor.get("compare", left=one, right=two))["rows"]
    assert [row["place"] for row in rows] == [
        "All hosts",
        "All hosts › web-1 › Check",
        "All hosts › web-2 › Check",
    ]
    assert "All hosts › web-2 › Check" in await visitor.page(f"sessions/{one}")


async def test_a_run_that_waits_for_a_time_says_until_when(visitor: Visitor, home: Path) -> None:
    """The list has the time at which its timer is due, and nothing else that it waits for."""
    flow = "flow: later\nnodes: [{id: nap, type: wait, with: {for: 2h}}]\n"
    async with roomful.engine_at(home / "sayso.db") as engine:
        begun = await roomful.started(engine, flow, {})
        [timer] = (await engine.state(begun)).timers.values()
    visitor.room._index.refresh()
    row = await some(visitor, q=begun)
    assert (row["waits"], row["until"]) == ("", timer.due_at)


async def test_mentions_are_read_as_people_are_called(
    visitor: Visitor, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Slack writes for a mention stands nowhere: an input shows the person."""
    [begun] = await named(home, monkeypatch)
    visitor.room._names.learn("U0BEN", "ben")
    assert (await visitor.get(f"sessions/{begun}"))["inputs"] == {"why": "@ben asked"}


async def test_a_question_is_read_without_its_marks(visitor: Visitor) -> None:
    """In the list and among what waits there are no stars; on its page bold words are bold."""
    head = await some(visitor, flow="deploy-checkout", standing="waiting")
    [asked] = (await visitor.get(f"sessions/{head['sessionId']}"))["prompts"]
    waiting = (await visitor.get("waiting"))["questions"]
    [listed] = [one["message"] for one in waiting if one["promptId"] == asked["promptId"]]
    assert head["waits"] == listed == asked["message"] == "Roll out {} to eu?".format(asked["words"][1][0])
    assert asked["words"][1] == [asked["message"].split()[2], "strong"]
    assert f"<strong>{asked['words'][1][0]}</strong>" in await visitor.page(f"sessions/{head['sessionId']}")


async def test_one_look_reads_a_bounded_number_of_rows(
    visitor: Visitor, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long journals are, whoever asks for a page waits for few rows: the last ones of some sessions."""
    long = await roomful.long_one(home / "sayso.db", hosts=60)
    read = list[int]()
    ending = visitor.store.sessions.ending

    def counted(session_id: str, rows: int) -> tuple[bytes, ...]:
        found = ending(session_id, rows)
        read.append(len(found))
        return found

    monkeypatch.setattr(visitor.store.sessions, "ending", counted)
    monkeypatch.setattr(index, "_ROWS", 30)
    monkeypatch.setattr(index, "_ROWS_AT_ONCE", 60)
    found = index.Index(visitor.store, visitor.room._names)
    rows, calls = list[int](), 0
    while not found.complete:
        found.read_on()
        calls += 1
        rows.append(sum(read))
        read.clear()
    assert max(rows[1:]) < 60 + 30 * 4
    assert calls > 3
    assert visitor.store.sessions.head(long).seq > 200  # type: ignore[union-attr]


async def test_a_failed_run_opens_at_the_step_that_failed(visitor: Visitor) -> None:
    """Whoever opens it from a list reads why at once; whoever chose something else sees that."""
    head = await some(visitor, flow="deploy-checkout", status="failed")
    told = await visitor.get(f"sessions/{head['sessionId']}")
    assert (told["tab"], told["step"]) == ("step", "rollout[1]/watch")
    assert told["panel"]["error"][0]["text"].startswith("message: error rate 4.1 %")
    assert (await visitor.get(f"sessions/{head['sessionId']}", tab="steps"))["tab"] == "steps"
    assert (await visitor.get(f"sessions/{head['sessionId']}", at=5))["tab"] == "steps"


def test_texts_of_several_lines_are_shown_as_lines() -> None:
    """No `\\n` stands in what a program printed; what is not set is left out, and people are named."""
    value = {
        "stdout": "one\ntwo\n",
        "stderr": "",
        "exit_code": 0,
        "cwd": None,
        "by": [{"id": "U0BEN", "name": "ben", "email": None}],
        "details": {"log": "a\nb", "code": 3},
    }
    assert documents.parts(value) == [
        {"name": "", "text": "exit_code: 0\nby: ben"},
        {"name": "stdout", "text": "one\ntwo"},
        {"name": "details", "text": "code: 3"},
        {"name": "details.log", "text": "a\nb"},
    ]
    assert documents.parts("one\ntwo") == [{"name": "", "text": "one\ntwo"}]
    assert documents.parts(None) == [{"name": "", "text": "null"}]


async def test_a_thread_is_linked_by_its_channel(visitor: Visitor) -> None:
    """The page of a run leads to its thread, and one of a terminal has none."""
    head = await some(visitor, flow="deploy-checkout", status="complete")
    told = await visitor.get(f"sessions/{head['sessionId']}")
    assert told["threadLink"].startswith(
        f"https://slack.com/app_redirect?team=T0&channel={told['channel']}&message_ts="
    )


# --- all together ------------------------------------------------------------------------------------------


async def test_who_waits_for_whom(visitor: Visitor) -> None:
    """Open questions name whom they ask as people are called, and since when; locks have their queue."""
    told = await visitor.get("waiting")
    assert {one["asks"] for one in told["questions"]} <= {"@ana", "@ben", "@cleo", "@dan", "@eva"}
    assert all(one["since"] for one in told["questions"])
    assert told["inAll"] == len(told["questions"])
    assert [(lock["name"], lock["place"]) for lock in told["locks"]] == [
        ("production-database", number) for number in range(len(told["locks"]))
    ]


async def test_an_empty_database_has_nothing_to_tell_and_no_errors(tmp_path: Path) -> None:
    """Every view answers before there is any session."""
    async with visited(tmp_path) as visitor:
        await visitor.log_in()
        for path in ("queues", "spend", "compare", "waiting", "sessions"):
            assert await visitor.get(path), path
            assert await visitor.page(path), path
        assert (await visitor.get("sessions"))["sessions"] == []


async def test_nonsense_is_refused_in_words(visitor: Visitor) -> None:
    """A number that is none is no error of the server."""
    there = f"{visitor.url}/sessions/{(await some(visitor))['sessionId']}"
    for at, headers in product(("x", "-1", "9999999999999", "%00"), (PROGRAM, {})):
        async with visitor.http.get(f"{there}?at={at}", headers=headers) as answer:
            assert answer.status == 400, at
            assert "must be a number" in await answer.text(), at


async def test_what_was_erased_is_told_no_more(tmp_path: Path) -> None:
    """A session that is erased while the page runs is neither shown from memory nor found by its words; it stays in the
    list."""
    file, keys = tmp_path / "sayso.db", (b"k" * 32,)
    open_sqlite(file, encryption_keys=keys).close()
    async with roomful.engine_at(file, keys=keys) as engine:
        erased = await roomful.started(
            engine,
            "flow: idle\ninputs: {who: {type: string}}\nnodes: [{id: a, type: noop}]\n",
            {"who": "zelda"},
        )
        await engine.parked(erased)
    async with visited(tmp_path, keys=keys) as visitor:
        await visitor.log_in()
        await visitor.all_read()
        assert (await some(visitor, q="zelda"))["sessionId"] == erased
        assert await visitor.status(f"/sessions/{erased}") == 200
        with closing(open_sqlite(file, encryption_keys=keys)) as store:
            erase_session(store, erased)
        await visitor.room._writer.call(visitor.store.changed)
        assert await visitor.status(f"/sessions/{erased}") == 400
        assert (await visitor.get("sessions", q="zelda"))["sessions"] == []
        assert (await some(visitor))["sessionId"] == erased
