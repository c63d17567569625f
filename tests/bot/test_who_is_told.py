"""What a refusal shows, and to whom: the bot says nothing in public about what did not happen."""

from __future__ import annotations

from engine.language.codec import Json
from engine.nodes.runtime.runner import Failed, NodeContext, Outcome
from tests.support.hostile import markup
from tests.support.inprocess import Town
from tests.support.simulated import in_town

FLOWS = {
    "deploy": """
flow: deploy
allowed_to_start: ["ben@example.com"]
nodes:
  - {id: gate, type: approval, with: {message: "Go?", approvers: ["@sre"]}}
""",
    "talk": """
flow: talk
nodes:
  - {id: a, type: ask, with: {message: "Say it"}}
  - {id: b, type: message, with: {text: "heard {{ nodes.a.text }}"}}
""",
}
DEV, CLEO = "U0LOCALDEV", "U0LOCALCLEO"


@in_town(FLOWS)
async def test_words_of_somebody_unknown_hold_up_nobody(place: Town) -> None:
    """A reply by an id that Slack does not know is ignored, and the next person's reply is taken."""
    root = await place.start("ana", "talk")
    stranger = place.newcomer("nobody")
    place.core.state.users.pop(stranger.id)
    place.core.post(stranger, place.channel(), "mine", thread_ts=root)
    await place.settle()
    place.say("ana", "yours", root)
    await place.settle()
    assert place.thread(root)[-1]["text"] == "heard yours"


@in_town(FLOWS)
async def test_a_stranger_is_not_told_how_things_stand(place: Town) -> None:
    """`status`, `help` and a mention by a guest or a stranger: only they are told, and only that it is not for them."""
    root = await place.start("ana", "talk")
    place.newcomer("guest", is_restricted=True)
    place.newcomer("stranger", is_stranger=True, team_id="T0OTHER01")
    for name in ("guest", "stranger"):
        before = len(place.calls)
        for text in ("status", "help", "<@U0LOCALBOT> how is it?"):
            place.say(name, text, root)
        place.say(name, "<@U0LOCALBOT> status")
        place.say(name, "<@U0LOCALBOT> list")
        await place.settle()
        assert place.posted(before) == []
        assert len(place.told(name, before)) == 5
    before = len(place.calls)
    place.say("cleo", "status", root)
    await place.settle()
    assert "waits for" in place.posted(before)[0].args["text"]


@in_town(FLOWS)
async def test_whoever_is_not_asked_is_told_so_once(place: Town) -> None:
    """Words of a colleague beside a question for others: one quiet word to the author, however much is written."""
    root = await place.start("ben", "deploy")
    before = len(place.calls)
    for text in ("looks fine", "really", "<@U0LOCALBEN> what do you think?"):
        place.say(CLEO, text, root)
        await place.settle()
    assert place.posted(before) == []
    assert ["Only the people asked" in str(call.args) for call in place.told(CLEO, before)] == [True]


@in_town(FLOWS)
async def test_a_group_is_looked_up_for_words_too(place: Town) -> None:
    """Whoever may approve by their group and writes instead reads about the buttons, not that others are asked."""
    root = await place.start("ben", "deploy")
    place.say(DEV, "#1: approve", root)
    await place.settle()
    assert "use the buttons to answer" in place.thread(root)[-1]["text"]
    before = len(place.calls)
    place.say(CLEO, "#1: approve", root)
    await place.settle()
    assert place.posted(before) == []
    assert "Only the people asked" in place.told(CLEO, before)[0].args["text"]


WROTE = "<@U0LOCALCLEO> <!channel> <https://evil.example|x> & more"
BROKEN = "flow: broken\nnodes:\n  - {id: a, type: shell, on_error: ask, with: {run: [x]}}\n"


async def writing(config: dict[str, Json], ctx: NodeContext) -> Outcome:
    """A program that fails with these words."""
    return Failed("exit_code", WROTE)


@in_town({"broken": BROKEN}, runners={"shell": writing})
async def test_what_a_program_wrote_mentions_nobody(place: Town) -> None:
    """The question about a step that failed shows what the program wrote as text: no mention and no link is in it."""
    root = await place.start("ana", "broken")
    message, _ = place.find(root, "sayso:option:0")
    shown = "\n".join(markup(message))
    assert "&lt;@U0LOCALCLEO&gt; &lt;!channel&gt; &lt;https://evil.example|x&gt; &amp; more" in shown
    assert "<@U0LOCALCLEO>" not in shown
    assert "<!channel>" not in shown


@in_town(FLOWS)
async def test_what_no_text_may_hold_becomes_one_mark(place: Town) -> None:
    """Each lone surrogate and each NUL of a reply becomes one U+FFFD, and two halves of a character that character."""
    root = await place.start("ana", "talk")
    place.say("ana", "a\ud800b\x00c\ud83d\ude00d", root)
    await place.settle()
    assert place.thread(root)[-1]["text"] == "heard a\ufffdb\ufffdc\U0001f600d"
