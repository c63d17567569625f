"""What people write in the thread of a session, and what becomes of it."""

from __future__ import annotations

from tests.support.acting import Acts
from tests.support.bot import ThreadView, start_flow, whispered, words
from tests.support.inprocess import Town
from tests.support.simulated import TownWorkspace, in_town

TWO = """
flow: two
nodes:
  - {id: first, type: ask, with: {message: "First question"}}
  - {id: second, type: ask, with: {message: "Second question"}}
  - {id: tell, type: message, with: {text: "first={{ nodes.first.text }} second={{ nodes.second.text }}"}}
"""


def reactions(thread: ThreadView, ts: str) -> list[str]:
    """The names of the reactions on a message."""
    message = next(message for message in thread.messages() if message["ts"] == ts)
    return [entry["name"] for entry in message.get("reactions") or ()]


def whispers(workspace: Acts, user: str) -> list[str]:
    """What only this person was shown."""
    return [str(message["text"]) for message in workspace.ephemerals(user)]


NUMBER = """
flow: number
nodes:
  - id: n
    type: ask
    with:
      message: "How many?"
      form: {properties: {n: {type: integer, minimum: 1}}, required: [n]}
  - {id: tell, type: message, with: {text: "it is {{ nodes.n.values.n }}"}}
"""


@in_town({"number": NUMBER})
async def test_a_reply_that_counts_is_marked_and_one_that_is_refused_is_not(workspace: TownWorkspace) -> None:
    """The bot puts a check mark on the reply that it used; one that is not an answer gets words and no mark."""
    thread = await start_flow(workspace, "ana", "ops", "number", says="How many?")
    wrong = await thread.reply("ana", "several")
    await thread.says("whole number")
    right = await thread.reply("ana", "4")
    await thread.says("it is 4")
    await workspace.wait_for(lambda: reactions(thread, right) == ["white_check_mark"])
    assert reactions(thread, wrong) == []


ASKS_ALL = "flow: all\nnodes:\n" + "".join(
    f"  - {{id: q{n}, type: ask, with: {{message: 'Question {n}', who: [channel]}}}}\n" for n in (1, 2, 3)
)


@in_town({"all": ASKS_ALL})
async def test_the_first_reply_of_each_person_is_marked_and_each_question_says_who_answered(
    workspace: TownWorkspace,
) -> None:
    """One reaction for each person in a session: the question says whose reply counted, also without."""
    thread = await start_flow(workspace, "ana", "ops", "all")
    said = []
    for number, person in enumerate(("ana", "ben", "ana"), start=1):
        await thread.says(f"Question {number}")
        said.append(await thread.reply(person, f"words {number}"))
    await thread.says("*Completed*")
    await workspace.wait_for(lambda: reactions(thread, said[1]) == ["white_check_mark"])
    assert [reactions(thread, ts) for ts in said] == [["white_check_mark"], ["white_check_mark"], []]
    for number, person in enumerate(("ANA", "BEN", "ANA"), start=1):
        closed = [text for text in map(words, thread.messages()) if f"Question {number}" in text]
        assert len(closed) == 1
        assert f"*Answered* by <@U0LOCAL{person}>" in closed[0]


@in_town({"two": TWO})
async def test_an_edited_reply_changes_nothing_and_its_author_is_told_once(workspace: TownWorkspace) -> None:
    """The first version counts; a person who edits it later is told so once, and nobody else is."""
    thread = await start_flow(workspace, "ana", "ops", "two", says="First question")
    ts = await thread.reply("ana", "one")
    await thread.says("Second question")
    await workspace.edit("ana", "ops", ts, "uno")
    await workspace.wait_for(lambda: len(whispers(workspace, "ana")) == 1)
    assert "edit was ignored" in whispers(workspace, "ana")[0]
    await workspace.edit("ana", "ops", ts, "eins")
    await thread.reply("ana", "two")
    await thread.says("first=one second=two")
    assert len(whispers(workspace, "ana")) == 1
    assert whispers(workspace, "ben") == []


WHOM = """
flow: whom
nodes:
  - {id: gate, type: approval, with: {message: "Open?", approvers: [channel]}}
  - {id: q, type: ask, with: {message: "Who are you?", who: [channel]}}
  - id: same
    type: set
    with:
      one: "{{ nodes.gate.by[0].email is not none and nodes.gate.by[0].email == session.requester.email }}"
      two: "{{ nodes.q.by is not none and nodes.q.by.email is not none and nodes.q.by.email == 'ben@example.com' }}"
  - {id: tell, type: message, with: {text: "known: {{ nodes.same.one }} {{ nodes.same.two }}"}}
"""


@in_town({"whom": WHOM})
async def test_addresses_are_known_to_the_flow_and_shown_to_nobody(workspace: TownWorkspace) -> None:
    """Requester, approver and author have the e-mail of their profile; no message, card or whisper has it by itself."""
    thread = await start_flow(workspace, "ana", "ops", "whom")
    await thread.approve("ana", await thread.says("Open?"))
    await thread.says("Who are you?")
    await thread.reply("ben", "Ben")
    await thread.says("known: true true")
    shown = repr([*thread.messages(), *workspace.ephemerals("ana"), *workspace.ephemerals("ben")])
    assert "@example.com" not in shown


ANYBODY = """
flow: anybody
nodes:
  - {id: word, type: ask, with: {message: "Which word?", who: [channel]}}
  - {id: tell, type: message, with: {text: "the word is {{ nodes.word.text }} by {{ nodes.word.by.name }}"}}
"""


@in_town({"anybody": ANYBODY})
async def test_an_edit_before_the_reply_was_taken_changes_nothing(workspace: TownWorkspace) -> None:
    """A reply that waits for a lookup and is edited meanwhile counts as it was first written."""
    thread = await start_flow(workspace, "ana", "ops", "anybody", says="Which word?")
    workspace.faults.fail("users.info", times=2)
    ts = await thread.reply("ben", "tree")
    await workspace.edit("ben", "ops", ts, "house")
    await thread.says("the word is tree")
    await workspace.wait_for(lambda: len(whispers(workspace, "ben")) == 1)


@in_town({"two": TWO})
async def test_an_edited_mention_starts_nothing_and_says_so(workspace: TownWorkspace) -> None:
    """A mention with a slip is refused; mended by an edit it starts nothing, and its author is told to send it again."""
    thread = await start_flow(workspace, "ana", "ops", "twoo", says="twoo")
    await workspace.edit("ana", "ops", thread.root_ts, "@sayso two")
    await workspace.wait_for(lambda: bool(whispers(workspace, "ana")))
    assert "new message" in whispers(workspace, "ana")[0]
    assert thread.find("First question") is None


@in_town({"two": TWO})
async def test_a_deleted_reply_was_said_all_the_same(workspace: TownWorkspace) -> None:
    """Deleting a reply takes nothing back."""
    thread = await start_flow(workspace, "ana", "ops", "two", says="First question")
    ts = await thread.reply("ana", "one")
    await thread.says("Second question")
    await workspace.delete("ana", "ops", ts)
    await thread.reply("ana", "two")
    await thread.says("first=one second=two")


PAIR = """
flow: pair
nodes:
  - id: both
    type: parallel
    branches:
      left: [{id: colour, type: ask, with: {message: "Which colour?"}}]
      right: [{id: size, type: ask, with: {message: "Which size?"}}]
  - id: tell
    type: message
    with: {text: "{{ nodes.both.branches.left.colour.text }} and {{ nodes.both.branches.right.size.text }}"}
"""


@in_town({"pair": PAIR})
async def test_a_reply_names_the_question_or_chooses_it_from_a_menu(workspace: TownWorkspace) -> None:
    """With two questions open a plain reply is not guessed at: its author chooses; `#name: text` needs no choice."""
    thread = await start_flow(workspace, "ana", "ops", "pair", says="Which colour?")
    await thread.says("Which size?")
    await thread.reply("ana", "large")
    menu = await thread.says("Several questions are open here")
    button = next(label for label in ("#1 Which size?", "#2 Which size?") if label in str(menu["blocks"]))
    await thread.press("ana", menu, button)
    await thread.says("“large” answered")
    await thread.reply("ana", "#colour: green")
    await thread.says("green and large")


GATE = """
flow: gate
nodes:
  - {id: gate, type: approval, with: {message: "Open the gate?", approvers: [ana@example.com, ben@example.com], on_reject: continue}}
  - {id: tell, type: message, with: {text: "The verdict is {{ nodes.gate.decision }}"}}
"""


@in_town({"gate": GATE})
async def test_words_where_only_buttons_are_open_get_one_hint(workspace: TownWorkspace, bot: Town) -> None:
    """Of several texts where a button is needed the first gets a hint, also over a restart, and none decides."""
    thread = await start_flow(workspace, "ana", "ops", "gate")
    prompt = await thread.says("Open the gate?")
    for text in ("yes", "approve", "well?"):
        await thread.reply("ana", text)
    await thread.says("use the buttons to answer")
    await bot.close()
    await bot.open()
    await thread.reply("ana", "approved!")
    await thread.reply("ana", "status")
    await thread.says("is waiting")
    assert thread.count("use the buttons to answer") == 1
    await thread.approve("ben", prompt)
    await thread.says("The verdict is approve")


CHOICE = """
flow: choice
nodes:
  - {id: pick, type: ask, with: {message: "Stop or go?", choices: [stop, go]}}
  - {id: say, type: ask, with: {message: "And why?"}}
  - {id: tell, type: message, with: {text: "{{ nodes.pick.value }} because {{ nodes.say.text }}"}}
"""


@in_town({"choice": CHOICE})
async def test_a_control_word_is_a_whole_message_and_never_stands_over_a_choice(
    workspace: TownWorkspace,
) -> None:
    """`stop` is the answer where it is offered, and inside a sentence it is a word; alone it pauses."""
    thread = await start_flow(workspace, "ana", "ops", "choice", says="Stop or go?")
    await thread.reply("ana", "stop")
    await thread.says("And why?")
    await thread.reply("ana", "Stop!")
    await thread.says("Use `resume` to continue")
    await thread.reply("ana", "resume")
    await thread.says("continues")
    await thread.reply("ana", "please stop asking")
    await thread.says("stop because please stop asking")


@in_town({"two": TWO})
async def test_help_names_what_can_be_done_here(workspace: TownWorkspace) -> None:
    """`help` in a thread says how to answer, take back, hand over, pause and end, and `cancel` keeps what one keeps."""
    thread = await start_flow(workspace, "ana", "ops", "two", says="First question")
    await thread.reply("ana", "help")
    told = str(await thread.says("In this thread you can write"))
    for word in ("hand", "file", "pause", "resume", "cancel", "status", "Edit"):
        assert word in told
    await thread.reply("ana", "cancel")
    asked = await thread.says("Cancel *two*?")
    await thread.press("ana", asked, "Keep going")
    await thread.reply("ana", "one")
    await thread.says("Second question")


@in_town({"two": TWO})
async def test_the_question_whether_to_cancel_is_answered_once(workspace: TownWorkspace) -> None:
    """`Keep going` and `Cancel it` leave what came of it and no buttons; who may not say it changes nothing."""
    thread = await start_flow(workspace, "ana", "ops", "two", says="First question")
    await thread.reply("ana", "cancel")
    asked = await thread.says("Cancel *two*?")
    await thread.press("ben", asked, "Keep going")
    await whispered(workspace, "ben", "can cancel this")
    await thread.press("ana", asked, "Keep going")
    kept = await thread.says("keeps it going")
    assert kept["ts"] == asked["ts"]
    assert "sayso:" not in str(kept)
    await thread.reply("ana", "`cancel`")
    again = await thread.says("Cancel *two*? Finished steps")
    await thread.press("ana", again, "Cancel run")
    done = await thread.says("cancelled it")
    assert done["ts"] == again["ts"] != kept["ts"]
    assert "sayso:" not in str(done)


FILES = """
flow: files
nodes:
  - id: both
    type: parallel
    branches:
      one: [{id: logs, type: ask, with: {message: "The logs?", accept: files}}]
      two: [{id: plan, type: ask, with: {message: "The plan?", accept: [text, files]}}]
  - {id: tell, type: message, with: {text: "{{ nodes.both.branches.one.logs.files[0].name }} and {{ nodes.both.branches.two.plan.text }}"}}
"""


@in_town({"files": FILES})
async def test_a_file_for_one_of_several_questions_is_used_once_that_is_said(
    workspace: TownWorkspace,
) -> None:
    """The menu names the questions in their order; the file that was dropped before answers the one that is chosen, and
    its message is marked."""
    thread = await start_flow(workspace, "ana", "ops", "files", says="The plan?")
    await thread.says("The logs?")
    ts = await workspace.post("ana", "ops", "", thread_ts=thread.root_ts, files={"app.log": b"all well"})
    menu = await thread.says("Which one did you answer?")
    labels = [element["text"]["text"] for element in menu["blocks"][-1]["elements"]]
    assert [label[:2] for label in labels] == ["#1", "#2"]
    await thread.press("ana", menu, next(label for label in labels if "logs" in label))
    await thread.says("“app.log” answered #")
    await workspace.wait_for(lambda: reactions(thread, ts) == ["white_check_mark"])
    await thread.reply("ana", "none")
    await thread.says("app.log and none")


LATE = """
flow: late
nodes:
  - {id: q, type: ask, with: {message: "Quick, which one?", timeout: 3s, on_timeout: default, default: none}}
  - {id: gate, type: approval, with: {message: "And now?", approvers: [ben@example.com], timeout: 3s, on_timeout: reject, on_reject: continue}}
  - {id: tell, type: message, with: {text: "{{ nodes.q.text }} and {{ nodes.gate.decision }}"}}
"""


@in_town({"late": LATE})
async def test_a_late_answer_is_told_when_the_time_was_over(workspace: TownWorkspace) -> None:
    """After the deadline the buttons are gone and a reply changes nothing; its author is told, once where nobody asked."""
    thread = await start_flow(workspace, "ana", "ops", "late")
    prompt = await thread.says("And now?", timeout=30)
    await thread.says("none and reject", timeout=30)

    def shown() -> str:
        return str(next(message for message in thread.messages() if message["ts"] == prompt["ts"]))

    await workspace.wait_for(lambda: "sayso:option" not in shown())

    def told(user: str) -> int:
        return sum("came too late" in text for text in whispers(workspace, user))

    await thread.reply("ana", "#q: the red one")
    await workspace.wait_for(lambda: told("ana") == 1)
    await thread.reply("ben", "approve")
    await workspace.wait_for(lambda: told("ben") == 1)
    await thread.reply("ben", "oh well")
    await thread.reply("ana", "@sayso status")
    await thread.says("is completed")
    assert (told("ana"), told("ben")) == (1, 1)
    assert thread.count("none and reject") == 1
