"""Model calls without a usable answer: the automatic remedy, the question to people, and the continuation."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from engine.decide.agents import outcomes
from engine.decide.agents.kinds import KINDS
from engine.decide.commands import Hold, NodeDone, Resume, Steer
from engine.decide.step import Step
from engine.journal.fold import derive_state, evolve
from engine.journal.snapshot import from_bytes, to_bytes
from engine.journal.state import LEFT
from engine.language import timestamps
from engine.language.errors import InvalidAnswer, MalformedJournal
from engine.messages.messages import Message, legal
from tests.engine.agents.talks import Talk, talk
from tests.engine.agents.test_talk_listening import ana, carl, listening
from tests.support.engine import ANA, flow_of

SHELL = 'tools: [shell: {commands: ["restart *"]}]'
RAN = {"stdout": "done", "stderr": "", "exit_code": 0, "seconds": 1.0}
SCHEMA = "output: {type: object, properties: {cause: {type: string}}, required: [cause]}"
TURN = "helper/turn[2]"


def after_a_tool(with_: str = "", rest: str = "") -> Talk:
    """A conversation whose tool has run, and whose next model call is in progress."""
    case = talk(f"{SHELL}\n{with_}", rest=rest).model("I restart it.", ("shell", {"command": "restart db"}))
    return case.tool("tool[0]", RAN)


def ends(case: Talk, text: str = "", *, stop: str, **told: Any) -> Talk:
    """The model call ends so, and all of it is read again from what is stored."""
    done = case.reply(text, stop=stop)
    return asked_anew(case.when(NodeDone(done.path, done.attempt, {**done.output, **told})))


def asked_anew(case: Talk) -> Talk:
    """The same from its journal and from a snapshot, as another process finds it, which claims it."""
    assert derive_state(case.events) == case.state
    case.state = from_bytes(to_bytes(case.state))
    return case.claimed()


def labels(case: Talk) -> list[str]:
    """The buttons that are offered."""
    return [str(option["label"]) for option in case.prompt.options]


def tools_ran(case: Talk) -> int:
    """How often a tool was started."""
    return sum(getattr(event, "node_type", None) == "shell" for event in case.events)


IN_A_LOOP = """
flow: loop
nodes:
  - id: each
    type: foreach
    with: {items: [1]}
    body:
      - {id: one, type: agent, with: {prompt: Look}}
"""

REFUSED = {"category": "cyber", "explanation": "It looks like an attack."}

BUTTONS = ["Try again", "Other model", "Tell it", "Stop"]
AWAY_BUTTONS = ["Try again", "Other model", "Stop"]
"""Where no words help: the model cannot be asked."""

STUCK: dict[str, dict[str, Any]] = {
    "refusal": {"stopDetails": REFUSED},
    "max_tokens": {"cutCall": True},
    "end_turn": {},
}


@pytest.mark.parametrize("value", ["retry", "model", "tell"])
@pytest.mark.parametrize("stop", STUCK)
def test_people_are_asked_and_it_goes_on_at_the_turn(stop: str, value: str) -> None:
    """Whatever the model ends with: the same buttons, and after each of them the conversation as it was."""
    case = after_a_tool("max_tokens: 64000")
    before = case.request()["messages"]
    ends(case, stop=stop, **STUCK[stop])
    if stop == "end_turn":
        ends(case, stop=stop)
    assert labels(case) == BUTTONS
    assert case.state.phase == "waiting"
    case.decide(value, reason={"model": "claude-opus-5-5", "tell": "Go on, please."}.get(value))
    assert ("Go on, please." in case.said()) == (value == "tell")
    messages = case.request()["messages"]
    assert messages[: len(before) - 1] == before[:-1]
    assert messages[-1]["content"][: len(before[-1]["content"])] == before[-1]["content"]
    case.model("Done.")
    assert case.node("helper").output["text"] == "Done."
    assert tools_ran(case) == 1


@pytest.mark.parametrize(
    ("kind", "buttons"),
    [
        ("request_invalid", BUTTONS),
        ("access_denied", AWAY_BUTTONS),
        ("spend_limit", AWAY_BUTTONS),
        ("model_not_found", AWAY_BUTTONS),
        ("mcp", BUTTONS),
    ],
)
def test_a_call_that_failed_is_made_again_by_a_persons_word(kind: str, buttons: list[str]) -> None:
    """The same messages are sent, by the same call; no tool runs a second time."""
    case = after_a_tool()
    before = case.request()["messages"]
    asked_anew(case.when(case.broke(kind, retryable=False, errorCode="too_odd")))
    assert labels(case) == buttons
    assert "too_odd" in case.prompt.message
    case.decide("retry")
    assert (case.calling, case.request()["messages"]) == (TURN, before)
    assert case.model("Done.").state.outcome == "complete"
    assert tools_ran(case) == 1


def test_it_can_be_asked_about_again_and_again() -> None:
    """A second failure is a second question; then another model answers."""
    case = after_a_tool()
    for _ in range(2):
        case.when(case.broke("access_denied", retryable=False)).decide("retry")
    case.when(case.broke("model_not_found", retryable=False)).decide("model", reason="claude-opus-5-5")
    assert case.request()["model"] == "claude-opus-5-5"
    assert case.model("Done.").state.outcome == "complete"


def test_what_only_an_admin_can_put_right_is_asked_of_them() -> None:
    """The card says so, as that of the day's cap does."""
    case = after_a_tool()
    case.when(case.broke("spend_limit", retryable=False))
    assert case.prompt.exclude_requester


def test_stop_fails_the_node_with_what_was_wrong() -> None:
    """By whom it was stopped stands in the error."""
    case = ends(after_a_tool(), stop="refusal", stopDetails=REFUSED).decide("stop")
    assert (case.state.error or {})["type"] == "refusal"
    assert "stopped by" in (case.state.error or {})["message"]


def test_a_failed_call_can_be_stopped_too() -> None:
    """Its model call ends with the agent."""
    case = after_a_tool()
    case.when(case.broke("access_denied", retryable=False)).decide("stop")
    assert (case.state.error or {})["type"] == "access_denied"


def test_the_flow_may_have_it_fail_at_once() -> None:
    """`on_error: fail`, `continue` and a jump say what a failure does; nobody is asked then."""
    for written, outcome in (("fail", "failed"), ("continue", "complete")):
        case = after_a_tool(rest=f"    on_error: {written}\n").model("", stop="refusal")
        assert case.state.outcome == outcome
        assert not case.state.prompts


# --- refusals ------------------------------------------------------------------------------------------------------


def test_a_refusal_says_why_and_names_the_model_that_the_api_recommends() -> None:
    """Category, explanation, model; that model is the first choice."""
    case = ends(after_a_tool(), stop="refusal", stopDetails={**REFUSED, "recommended_model": "claude-opus-5"})
    assert "(cyber)" in case.prompt.message
    assert "It looks like an attack." in case.prompt.message
    assert "recommends claude-opus-5" in case.prompt.message
    assert case.prompt.options[1]["asks"]["choices"][0] == "claude-opus-5"
    assert case.decide("model", reason="claude-opus-5").request()["model"] == "claude-opus-5"


def test_a_refused_answer_is_no_part_of_the_conversation() -> None:
    """Half a refusal that is sent back is refused again."""
    case = after_a_tool()
    before = case.request()["messages"]
    ends(case, "To attack it, first", stop="refusal", stopDetails=REFUSED)
    assert case.decide("model", reason="claude-opus-5").request()["messages"] == before


def test_words_in_the_thread_are_said_to_the_model() -> None:
    """A reply to the card, or the button: both say who said it, and it continues."""
    for said in ({"value": "tell", "reason": "Only look."}, {"value": None, "text": "Only look."}):
        case = ends(after_a_tool(), stop="refusal", stopDetails=REFUSED)
        case.decide(**said)
        assert "Only look." in case.said()
        assert "<message from=" in case.said()


def test_words_are_needed_where_the_button_asks_for_some() -> None:
    """Nothing is sent without any."""
    case = ends(after_a_tool(), stop="refusal", stopDetails=REFUSED)
    with pytest.raises(InvalidAnswer):
        case.decide("tell")


# --- half an answer ------------------------------------------------------------------------------------------------


def test_half_a_tool_call_is_made_again_with_twice_the_room() -> None:
    """By itself, up to a bound; nothing of the half stays."""
    case = talk(SHELL)
    before = case.request()
    ends(case, "I restart", stop="max_tokens", cutCall=True)
    assert case.request() == {**before, "maxTokens": 2 * before["maxTokens"]}
    for _ in range(10):
        if case.state.phase == "waiting":
            break
        ends(case, stop="max_tokens", cutCall=True)
    assert case.agent.max_tokens == outcomes.MOST_ROOM
    case.decide("retry")
    assert case.request()["maxTokens"] == outcomes.MOST_ROOM


def test_a_text_that_was_cut_is_gone_on_with() -> None:
    """Three times by itself; the output has all of it."""
    case = talk()
    for piece in ("One, ", "two, ", "three, "):
        ends(case, piece, stop="max_tokens")
        assert "Go on exactly where it ends" in case.said()
    assert case.model("four.").node("helper").output["text"] == "One, two, three, four."


def test_data_that_was_cut_is_asked_for_again_as_a_whole() -> None:
    """Half of a JSON value is nothing to continue with."""
    case = ends(talk(SCHEMA), '{"cause": "di', stop="max_tokens")
    assert "di" not in case.said().partition("Why is")[0]
    assert case.model('{"cause": "disk"}').node("helper").output["data"] == {"cause": "disk"}


def test_what_was_cut_stays_through_a_summary() -> None:
    """One that the API asks for by refusing the conversation, and one that needs more room or is made in words."""
    case = after_a_tool().model("One, ", stop="max_tokens")
    case.when(case.broke("context_too_long", retryable=False)).model("A summary.")
    assert case.model("two.").node("helper").output["text"] == "One, two."
    full = {"input_tokens": 900_000, "output_tokens": 20}
    for paused in (False, True):
        case = after_a_tool("max_tokens: 1000").model("One, ", stop="max_tokens", usage=full)
        assert case.request()["purpose"] == "compact"
        if paused:
            case.when(Hold(ANA, "h1")).model("Half a", interrupted=True).when(Resume("Go on.", ANA, "r1"))
        ends(case, "Half a", stop="max_tokens")
        ends(case, stop="refusal", signed=True)
        assert case.request()["purpose"] == "compact"
        case.model("A summary.")
        assert case.model("two.").node("helper").output["text"] == "One, two."


def test_what_was_cut_stays_through_an_empty_answer() -> None:
    """By the word of a person too."""
    case = talk().model("One, ", stop="max_tokens").model("", stop="end_turn")
    assert "empty" in case.said()
    ends(case, stop="end_turn")
    assert case.prompt.scope == "empty"
    case.decide("tell", reason="Go on.").model("two.")
    assert case.node("helper").output["text"] == "One, two."


def test_a_tool_of_the_provider_that_was_cut_off_stands_nowhere() -> None:
    """Nothing could be said behind it."""
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "disks"}}
    case = talk()
    ends(case, stop="max_tokens", content=[{"type": "text", "text": "One, "}, use])
    assert "Go on exactly where it ends" in case.said()
    assert case.request()["messages"][-2]["content"] == [{"type": "text", "text": "One, "}]


# --- words meanwhile ----------------------------------------------------------------------------------------------


FULL = {"input_tokens": 900_000, "output_tokens": 20}
MEANWHILE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "room": ({"stop": "max_tokens", "cutCall": True}, {"maxTokens": 64_000}),
    "model": ({"stop": "refusal"}, {"model": "claude-opus-5"}),
    "compact": ({"stop": "model_context_window_exceeded"}, {"purpose": "compact"}),
}


@pytest.mark.parametrize("said", [ana("and db-2?"), carl("hello")], ids=["steering", "overheard"])
@pytest.mark.parametrize("how", MEANWHILE)
def test_words_do_not_keep_it_from_helping_itself(how: str, said: Steer) -> None:
    """Whoever speaks while an answer is made that is none: it continues as if nobody had, and the words are heard."""
    told, expected = MEANWHILE[how]
    case = after_a_tool("listen: thread\nfallbacks: [claude-opus-5]").allowing(ANA).when(said)
    ends(case, **told)
    assert expected.items() <= case.request().items()
    if how == "compact":
        case.model("A summary.")
    assert said.text in case.said()


@pytest.mark.parametrize("said", [ana("and db-2?"), carl("hello")], ids=["steering", "overheard"])
def test_words_do_not_keep_a_summary_from_more_room(said: Steer) -> None:
    """They are behind it."""
    case = after_a_tool("listen: thread\nmax_tokens: 1000\nmax_cost: 100").allowing(ANA)
    case.model("", ("shell", {"command": "restart db"}), usage=FULL).tool("tool[0]", RAN).when(said)
    assert case.request()["purpose"] == "compact"
    ends(case, "Half a", stop="max_tokens")
    assert case.request()["maxTokens"] == 2_000
    assert said.text in case.model("A summary.").said()


# --- nothing, pauses -----------------------------------------------------------------------------------------------


def test_an_empty_answer_is_nudged_once_and_then_asked_about() -> None:
    """It completes nothing by itself."""
    case = after_a_tool()
    ends(case, stop="end_turn")
    assert "empty" in case.said()
    ends(case, stop="end_turn")
    assert case.prompt.scope == "empty"
    assert case.decide("retry").model("Done.").node("helper").output["text"] == "Done."


def test_an_empty_answer_to_which_somebody_spoke_needs_no_nudge() -> None:
    """What was said meanwhile is what the model answers next."""
    case = ends(after_a_tool().when(Steer("look at db-2", ANA, "s1")), stop="end_turn")
    assert "look at db-2" in case.said()
    assert "empty" not in case.said()


def test_a_usable_answer_ends_the_count_of_what_it_did_by_itself() -> None:
    """A talk of days may be nudged more than once."""
    case = after_a_tool()
    for _ in range(3):
        ends(case, stop="end_turn")
        case.model("", ("shell", {"command": "restart db"})).tool("tool[0]", RAN)
    assert not case.state.open_prompts


def test_words_of_people_end_the_count_too() -> None:
    """Of what it did by itself, and of corrections: what an agent that rests is asked next is another task."""
    case = listening("follow_up: 7d")
    for number in range(4):
        case.model("One, ", stop="max_tokens").model("two.").when(ana("next", key=f"s{number}"))
    assert not case.state.open_prompts
    case = listening(f"follow_up: 7d\n{SCHEMA}")
    for number in range(2):
        case.model("the disk").model('{"cause": "disk"}').when(ana("next", key=f"s{number}"))
    assert not case.state.open_prompts


def test_a_pause_is_sent_back_as_it_is() -> None:
    """Nothing is added, ten times; then people are asked."""
    case = talk()
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "disks"}}
    for number in range(1, 11):
        ends(case, stop="pause_turn", content=[{**use, "id": f"srvtoolu_{number}"}])
        last = case.request()["messages"][-1]
        assert (last["role"], len(last["content"])) == ("assistant", number)
    ends(case, stop="pause_turn", content=[{**use, "id": "srvtoolu_11"}])
    case.decide("retry").model("Found.")
    assert case.node("helper").output["text"] == "Found."


USE = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "disks"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}


@pytest.mark.parametrize("said", [ana("and db-2?"), carl("hello")], ids=["steering", "overheard"])
def test_words_wait_until_what_paused_has_gone_on(said: Steer) -> None:
    """Nothing is behind a tool of the provider's that is open, not where the call is made again either."""
    case = listening().when(said)
    ends(case, stop="pause_turn", content=[USE], usage=FULL)
    assert case.request()["purpose"] == "answer"
    assert case.sent == [USE]
    case.when(case.broke("request_invalid", retryable=False)).decide("retry")
    assert case.sent == [USE]
    ends(case, stop="end_turn", content=[FOUND, {"type": "text", "text": "Found."}])
    if said.actor == ANA:
        assert said.text in case.said()
        case.model("And db-2.")
    assert case.state.outcome == "complete"


def test_words_that_an_older_release_put_behind_a_pause_stay_there() -> None:
    """Its journal folds as it did: there the next call followed at once, and took them."""
    case = listening().when(ana("and db-2?"))
    ends(case, stop="pause_turn", content=[USE])
    answered = [event for event in case.events if event.type == "agent:message"][-1]
    begun = [event for event in case.events if event.type == "container:childStarted"][-2]
    told = {name: value for name, value in begun.input.items() if name != "held"}
    state = derive_state(case.events[: answered.seq])
    state = evolve(state, replace(begun, seq=answered.seq + 1, timestamp=answered.timestamp, input=told))
    said = state.containers["helper"].agent.messages
    assert said[len(said) - 1]["role"] == "user"


def test_what_paused_goes_back_after_a_pause_of_the_session_too() -> None:
    """Its call was stopped before it gave anything; words of people wait."""
    case = listening()
    ends(case, stop="pause_turn", content=[USE])
    case.when(Hold(ANA, "h1"), ana("and db-2?")).model("", interrupted=True).when(Resume("Go on.", ANA, "r1"))
    assert case.sent == [USE]


def test_a_pause_behind_what_a_tool_gave_is_sent_back_too() -> None:
    """The provider's tool has its result already; what paused is legal as it is, and goes back."""
    case = talk()
    ends(case, stop="pause_turn", content=[USE, FOUND])
    said = case.request()["messages"]
    assert said[-1] == {"role": "assistant", "content": [USE, FOUND]}
    assert legal([Message.from_json(message) for message in said]) == ()
    ends(case, "All is well.", stop="end_turn")
    assert case.node("helper").output["text"] == "All is well."


def test_a_pause_in_the_middle_of_words_is_gone_on_with() -> None:
    """No model takes back what ends in its own words: it is told to continue."""
    case = ends(talk(), "One, ", stop="pause_turn")
    assert "Go on exactly" in case.said()
    assert case.model("two.").node("helper").output["text"] == "One, two."


OPENED = [USE, {"type": "tool_use", "id": "toolu_9", "name": "shell", "input": {"command": "restart db"}}]


@pytest.mark.parametrize("content", [OPENED[1:], [USE, FOUND, OPENED[1]], OPENED, OPENED[::-1]])
def test_a_pause_with_calls_of_tools_makes_them(content: list[Any]) -> None:
    """What they give is what it continues with."""
    case = talk(SHELL)
    done = case.reply(stop="pause_turn")
    case.when(NodeDone(done.path, done.attempt, {**done.output, "content": content}))
    asked_anew(case.tool("tool[0]", RAN))
    said = case.request()["messages"]
    assert (said[-2]["content"], said[-1]["content"][0]["tool_use_id"]) == (content, "toolu_9")
    assert legal([Message.from_json(message) for message in said]) == ()
    assert case.model("All is well.").node("helper").output["text"] == "All is well."


@pytest.mark.parametrize("stop", ["", "model_context_window_exceeded"])
def test_nothing_is_summed_up_behind_an_open_tool_of_the_provider(stop: str) -> None:
    """A summary may not be there: people are asked, and may choose a model that can keep more in mind."""
    case = talk(SHELL)
    done = case.reply("", stop="tool_use")
    case.when(NodeDone(done.path, done.attempt, {**done.output, "content": OPENED}))
    case.tool("tool[0]", RAN)
    before = case.request()["messages"]
    if stop:
        ends(case, stop=stop)
    else:
        case.when(case.broke("context_too_long", retryable=False))
    assert "summarises" not in case.prompt.message
    case.decide("model", reason="claude-opus-5-5")
    assert (case.request()["purpose"], case.request()["messages"]) == ("answer", before)


def test_what_was_cut_stays_over_a_pause_of_the_session() -> None:
    """The first part of an answer is in front of what the model says once people continue."""
    case = ends(talk(), "One, ", stop="max_tokens")
    case.when(Hold(ANA, "h1")).model("two, ", interrupted=True).when(Resume("Go on.", ANA, "r1"))
    assert asked_anew(case).model("three.").node("helper").output["text"] == "One, two, three."


# --- too long, wrong form ------------------------------------------------------------------------------------------


def test_a_conversation_that_does_not_fit_is_summed_up_by_itself_once() -> None:
    """The summary is asked for with little of each result, so that it fits."""
    case = talk(SHELL).model("I restart it.", ("shell", {"command": "restart db"}))
    case.tool("tool[0]", {**RAN, "stdout": "x" * 20_000})
    case.when(case.broke("context_too_long", retryable=False))
    asked_anew(case)
    assert (case.request()["purpose"], case.calling) == ("compact", TURN)
    assert len(str(case.request()["messages"])) < 5_000
    case.model("It was restarted.")
    assert "It was restarted." in case.said()
    case.when(case.broke("context_too_long", retryable=False))
    assert "_Try again_ summarises the conversation without its largest results." in case.prompt.message
    assert case.decide("retry").request()["purpose"] == "compact"
    assert case.agent.compacts == "brief"


def test_a_window_that_is_full_in_the_middle_of_an_answer_is_summed_up() -> None:
    """What was said of the answer is left out."""
    case = ends(after_a_tool(), "And so", stop="model_context_window_exceeded")
    assert case.request()["purpose"] == "compact"
    assert "And so" not in str(case.request()["messages"])
    assert case.model("A summary.").model("Done.").node("helper").output["text"] == "Done."


def wrong_form(case: Talk) -> Talk:
    """An answer that does not fit, and one after its correction."""
    return case.model("the disk").model('{"cause": 3}')


@pytest.mark.parametrize(
    "said", [{"value": "tell", "reason": "As JSON."}, {"value": None, "text": "As JSON."}]
)
def test_words_to_an_answer_of_the_wrong_form_are_said_to_the_model(said: dict[str, Any]) -> None:
    """Words that would fit are no answer either: the model gives one."""
    case = wrong_form(talk(SCHEMA))
    case.decide(**{name: '{"cause": "net"}' if text == "As JSON." else text for name, text in said.items()})
    assert '{"cause": "net"}' in case.said()
    assert case.node("helper").output is None
    assert case.model('{"cause": "disk"}').node("helper").output["data"] == {"cause": "disk"}


def test_the_model_is_asked_again_for_the_form() -> None:
    """It reads what was wrong."""
    case = wrong_form(talk(SCHEMA)).decide("retry")
    assert "cannot be used" in case.said()
    assert case.model('{"cause": "disk"}').state.outcome == "complete"


def test_a_text_that_is_cut_too_often_is_asked_about() -> None:
    """Another try continues where it ends; other words ask for another answer."""
    for value, expected in (("retry", "One, two, three, four, five."), ("tell", "five.")):
        case = talk()
        for piece in ("One, ", "two, ", "three, ", "four, "):
            ends(case, piece, stop="max_tokens")
        assert labels(case) == BUTTONS
        case.decide(value, reason="In one word." if value == "tell" else None).model("five.")
        assert case.node("helper").output["text"] == expected


# --- what another try changes ----------------------------------------------------------------------------------------

RETRY_WITH = "retry_with: {model: claude-opus-5, max_tokens: 50000, thinking: off}"
ASKED: dict[str, Callable[[Talk], Talk]] = {
    "refusal": lambda case: ends(case, stop="refusal"),
    "cut": lambda case: ends(ends(case, stop="max_tokens", cutCall=True), stop="max_tokens", cutCall=True),
    "cut words": lambda case: [ends(case, "One, ", stop="max_tokens") for _ in range(4)][-1],
    "empty": lambda case: ends(ends(case, stop="end_turn"), stop="end_turn"),
    "pauses": lambda case: [ends(case, stop="pause_turn", content=[USE, FOUND]) for _ in range(11)][-1],
    "wrong form": wrong_form,
    "too long": lambda case: (
        case.when(case.broke("context_too_long", retryable=False))
        .model("A summary.")
        .when(case.broke("context_too_long", retryable=False))
    ),
    "no summary": lambda case: case.when(case.broke("context_too_long", retryable=False)).model(
        "", stop="refusal"
    ),
    "bad request": lambda case: case.when(case.broke("request_invalid", retryable=False)),
    "no access": lambda case: case.when(case.broke("access_denied", retryable=False)),
    "away": lambda case: away(case, 11),
}


@pytest.mark.parametrize("name", ASKED)
def test_another_try_changes_what_the_flow_says(name: str) -> None:
    """After each failure: the model, the length of an answer and thinking are those of `retry_with` from then on."""
    more = f"{RETRY_WITH}\n{SCHEMA}" if name == "wrong form" else RETRY_WITH
    case = asked_anew(ASKED[name](after_a_tool(f"max_tokens: 40000\n{more}")))
    assert "_Try again_ asks claude-opus-5 and allows 50,000 tokens" in case.prompt.message
    case.decide("retry")
    request = case.request()
    assert (request["model"], request["maxTokens"], request["plain"]) == ("claude-opus-5", 50_000, True)
    assert derive_state(case.events) == case.state


def test_another_model_of_a_person_leaves_the_rest_as_it_is() -> None:
    """`retry_with` is for *Try again* alone."""
    case = ends(after_a_tool(RETRY_WITH), stop="refusal")
    request = case.decide("model", reason="claude-haiku-5-5").request()
    assert (request["model"], request["maxTokens"]) == ("claude-haiku-5-5", 32_000)
    assert "plain" not in request


def test_a_journal_in_which_an_agent_changes_itself_is_refused() -> None:
    """Only the word of a person makes a call with other settings."""
    case = ends(after_a_tool(RETRY_WITH), stop="refusal").decide("retry")
    outcome = case.event("agent:outcome")
    before = derive_state(case.events[: outcome.seq - 1])
    assert evolve(before, outcome).containers["helper"].agent.plain
    with pytest.raises(MalformedJournal):
        evolve(before, replace(outcome, actor=None))


# --- fallbacks, outages --------------------------------------------------------------------------------------------


def test_a_refusal_goes_to_the_models_that_the_flow_names() -> None:
    """One after the other, each recorded; then people are asked."""
    case = after_a_tool("fallbacks: [claude-opus-5, claude-haiku-5-5]")
    before = case.request()["messages"]
    for model in ("claude-opus-5", "claude-haiku-5-5"):
        ends(case, stop="refusal", model="claude-sonnet-5-5")
        assert (case.request()["model"], case.request()["messages"]) == (model, before)
    ends(case, stop="refusal", model="claude-sonnet-5-5")
    assert case.prompt.options[1]["asks"]["choices"][0] == "claude-opus-5"


def test_models_that_the_api_has_asked_are_not_asked_again() -> None:
    """One of them has refused in the place of the first."""
    case = after_a_tool("fallbacks: [claude-opus-5]")
    ends(case, stop="refusal", model="claude-opus-5")
    assert (labels(case), case.prompt.scope) == (BUTTONS, "refusal")


def away(case: Talk, minutes: float) -> Talk:
    """The provider is away for so long; a call is waited for then."""
    start = case.now
    if case.state.launched:
        case.when(case.broke())
    while timestamps.seconds_between(start, case.now) < minutes * 60:
        case.due("retry").when(case.broke())
    return case


def test_an_outage_of_ten_minutes_is_told_with_buttons() -> None:
    """Before that there is no card; the call is tried again meanwhile, and the card goes when the provider is available again."""
    case = away(after_a_tool(), 5)
    assert not case.state.prompts
    asked_anew(away(case, 11))
    assert labels(case) == AWAY_BUTTONS
    asked = case.prompt
    case.due("retry")
    assert (case.calling, asked.prompt_id in case.state.open_prompts) == (TURN, True)
    case.model("Here again.")
    assert case.state.prompts[asked.prompt_id].status == "cancelled"
    assert case.state.outcome == "complete"


@pytest.mark.parametrize("value", ["retry", "model"])
def test_an_outage_need_not_be_waited_out(value: str) -> None:
    """The call is made at once, by another model where that is wanted."""
    case = away(after_a_tool(), 11)
    before = case.request(TURN)["messages"]
    case.decide(value, reason="claude-haiku-5-5" if value == "model" else None)
    assert case.request()["messages"] == before
    assert case.request()["model"] == ("claude-haiku-5-5" if value == "model" else "claude-sonnet-5-5")
    assert case.model("Here.").state.outcome == "complete"


@pytest.mark.parametrize("value", ["retry", "model"])
def test_an_outage_is_decided_while_a_try_runs(value: str) -> None:
    """That try stays the one of the model that it asked, is paid at its price, and no earlier words are put before its answer."""
    case = away(after_a_tool(), 11)
    case.due("retry")
    answer = case.reply("The end.", usage={"input_tokens": 1_000_000, "output_tokens": 0})
    case.decide(value, reason="claude-haiku-5-5" if value == "model" else None)
    assert case.request()["model"] == "claude-sonnet-5-5"
    case.when(answer)
    assert case.node("helper").output["text"] == "The end."
    assert Decimal(case.event("agent:message").cost) == 2
    assert derive_state(case.events) == case.state


def test_a_model_that_people_chose_is_not_replaced_by_a_fallback() -> None:
    """The try that ran when they chose is refused: the model that they named continues, and no other one."""
    case = away(after_a_tool("fallbacks: [claude-opus-5]"), 11)
    case.due("retry")
    refused = case.reply("", stop="refusal")
    case.decide("model", reason="claude-haiku-5-5").when(refused)
    assert derive_state(case.events) == case.state
    assert case.request()["model"] == "claude-haiku-5-5"


def test_what_was_cut_before_an_outage_stays_in_front_of_the_answer() -> None:
    """It was said, and the model continues exactly where it ended."""
    case = away(ends(after_a_tool(), "One, ", stop="max_tokens"), 11)
    assert case.decide("retry").model("two.").node("helper").output["text"] == "One, two."


def test_an_outage_can_be_given_up() -> None:
    """While it waits, and while a try is in progress: then that ends first."""
    assert (away(after_a_tool(), 11).decide("stop").state.error or {})["type"] == "overloaded"
    case = away(after_a_tool(), 11)
    case.due("retry").decide("stop")
    case.when(case.reply("too late", interrupted=True))
    assert case.state.outcome == "failed"


def test_what_happens_in_an_agent_is_seen_around_it() -> None:
    """Its pass has its own address: what is around the agent is looked at all the same."""
    case = Talk(flow_of(IN_A_LOOP)).started(ANA)
    step = Step(case.flow, case.state, case._facts(), KINDS)
    step.moved()
    step.interrupt(case.calling, LEFT)
    assert {"each", "each[0]", "each[0]/one", case.calling} <= step.moved()
