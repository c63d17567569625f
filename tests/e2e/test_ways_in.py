"""What starts flows beside a mention: alerts, reactions, schedules, the command line; and what keeps them from it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from bot.config.settings import Rate, Rates
from tests.support import prefork
from tests.support.acting import Workspace
from tests.support.bot import BotProcess, ThreadView, running_bot, start_flow, whispered, words
from tests.support.inprocess import Town
from tests.support.simulated import TownWorkspace, in_town, inhabited_town, simulated

ALERT = """
flow: outage
inputs:
  service: {type: string}
  alert: {type: string, default: ""}
  link: {type: string, default: ""}
triggers:
  - message: "{service} is down"
    channels: ["#ops"]
    from_bots: true
    dedupe: 10m
    dedupe_by: [service]
    message_as: alert
    link_as: link
nodes:
  - {id: look, type: ask, with: {message: "Who looks at {{ inputs.service }}? It said: {{ inputs.alert }}"}}
  - {id: tell, type: message, with: {text: "{{ nodes.look.text }} looks, asked at {{ inputs.link }}"}}
"""


@in_town({"outage": ALERT})
async def test_an_alert_of_an_app_starts_a_run_that_the_channel_answers(workspace: TownWorkspace) -> None:
    """A message of an app with the words starts the flow in its thread; anybody in the channel may answer."""
    pager = workspace.add_user("pager", is_bot=True)
    workspace.join(pager, "ops")
    ts = await workspace.post(pager, "ops", "checkout is down since 10:02")
    thread = ThreadView(workspace, "ops", ts)
    await thread.says("Who looks at checkout? It said: checkout is down since 10:02")
    await thread.reply("cleo", "me")
    said = await thread.says("me looks, asked at")
    assert f"/{ts}" in said["text"]


@in_town({"outage": ALERT})
async def test_an_alert_storm_starts_one_run(workspace: TownWorkspace) -> None:
    """Of many alike alerts one starts a run, whose thread counts the others; another service starts one of its own."""
    pager = workspace.add_user("pager", is_bot=True)
    workspace.join(pager, "ops")
    first = await workspace.post(pager, "ops", "checkout is down")
    thread = ThreadView(workspace, "ops", first)
    await thread.says("Who looks at checkout?")
    others = [await workspace.post(pager, "ops", "checkout is down") for _ in range(5)]
    await thread.says("5 more messages like this one")
    ts = await workspace.post(pager, "ops", "search is down")
    await ThreadView(workspace, "ops", ts).says("Who looks at search?")
    assert all(len(workspace.messages("ops", other)) == 1 for other in others)


def heard(name: str, trigger: str) -> str:
    """A flow that asks something with its name."""
    service = "inputs: {service: {type: string, default: x}}"
    ask = f'{{id: look, type: ask, with: {{message: "{name} looks at {{{{ inputs.service }}}}"}}}}'
    return f"flow: {name}\n{service}\ntriggers: [{trigger}]\nnodes:\n  - {ask}\n"


@simulated
async def test_what_fits_two_flows_starts_both(tmp_path: Path) -> None:
    """A message starts each flow that listens to its words, once whatever of its triggers fit, and so does a reaction."""
    words_for = '{{message: "{0} is down", dedupe: 10m}}, {{message: "{0} is", dedupe: 10m}}'.format(
        "{service}"
    )
    flows = {
        "one": heard("one", words_for),
        "two": heard("two", words_for),
        "three": heard("three", "{reaction: eyes}"),
        "four": heard("four", "{reaction: eyes}"),
    }
    async with inhabited_town(tmp_path, flows) as (workspace, _):
        ts = await workspace.post("ana", "ops", "checkout is down")
        thread = ThreadView(workspace, "ops", ts)
        for name in ("one", "two"):
            await thread.says(f"{name} looks at checkout")
        await workspace.post("ana", "ops", "checkout is down")
        await thread.says("1 more message like this one")
        await workspace.react("ana", "ops", ts, "eyes")
        for name in ("three", "four"):
            await thread.says(f"{name} looks at x")
        assert [thread.count(f"{name} looks at") for name in flows] == [1, 1, 1, 1]


@in_town({"outage": ALERT})
async def test_words_in_another_channel_start_nothing(workspace: TownWorkspace) -> None:
    """A trigger with channels counts in those only; what is said elsewhere is left alone."""
    other = await workspace.post("ana", "incidents", "checkout is down")
    ts = await workspace.post("ana", "ops", "checkout is down")
    await ThreadView(workspace, "ops", ts).says("Who looks at checkout?")
    assert len(workspace.messages("incidents", other)) == 1


@in_town({"outage": ALERT})
async def test_an_alert_from_before_a_restart_is_found(workspace: TownWorkspace, bot: Town) -> None:
    """An alert that came while the bot was down starts its run once after the start."""
    await asyncio.sleep(5)
    await bot.close()
    ts = await workspace.post("ana", "ops", "checkout is down")
    await bot.open()
    thread = ThreadView(workspace, "ops", ts)
    await thread.says("Who looks at checkout?")
    assert thread.count("It said: checkout is down") == 1


REACTION = """
flow: look
allowed_to_start: ["@sre", ana@example.com]
inputs:
  what: {type: string}
triggers:
  - {reaction: eyes, message_as: what}
nodes:
  - {id: tell, type: message, with: {text: "Looking at: {{ inputs.what }}"}}
  - {id: done, type: ask, with: {message: "Done?"}}
"""


@in_town({"look": REACTION})
async def test_a_reaction_starts_a_run_about_the_message(workspace: TownWorkspace) -> None:
    """A reaction of somebody who may starts the flow in the message's thread, once while it runs, however many react; others are told."""
    ts = await workspace.post("cleo", "ops", "the queue is long again")
    await workspace.react("cleo", "ops", ts, "eyes")
    await whispered(workspace, "cleo", "can start this")
    thread = ThreadView(workspace, "ops", ts)
    assert len(thread.messages()) == 1
    await workspace.react("dev", "ops", ts, "eyes")
    await thread.says("Looking at: the queue is long again")
    await thread.says("Done?")
    await workspace.react("ana", "ops", ts, "eyes")
    await workspace.settled()
    await thread.reply("dev", "yes")
    await thread.says("Completed")
    said = [message for message in thread.messages() if message["text"].startswith("Looking at")]
    assert len(said) == 1


LIMITED = """
flow: hello
nodes:
  - {id: tell, type: message, with: {text: "Hello there"}}
"""


@in_town({"hello": LIMITED}, rates=Rates(person=Rate(2, 600.0)))
async def test_a_person_over_the_limit_is_told_which_and_until_when(workspace: TownWorkspace) -> None:
    """The start beyond the limit of a person is refused with the limit and when it has ended; others continue."""
    for _ in range(2):
        await start_flow(workspace, "ana", "ops", "hello", says="Hello there")
    third = await start_flow(workspace, "ana", "ops", "hello")
    await third.says("You have started 2 flows within 10 min, which is the limit")
    await start_flow(workspace, "ben", "ops", "hello", says="Hello there")
    assert third.count("Hello there") == 0


@in_town({"hello": LIMITED}, channels=frozenset({"C0LOCALOPS"}), users=frozenset({"@sre"}))
async def test_channels_and_people_that_are_not_listed_start_nothing(workspace: TownWorkspace) -> None:
    """With SAYSO_CHANNELS and SAYSO_USERS only those channels and people count, and others are told so."""
    elsewhere = await start_flow(workspace, "ben", "releases", "hello")
    await elsewhere.says("SAYSO_CHANNELS does not list this channel")
    await start_flow(workspace, "cleo", "ops", "hello", says="not open to everybody here")
    await start_flow(workspace, "dev", "ops", "hello", says="Hello there")


HERE_ONLY = LIMITED.replace("flow: hello", 'flow: hello\nchannels: ["#releases"]')


@in_town({"hello": HERE_ONLY})
async def test_a_flow_is_started_in_its_own_channels_only(workspace: TownWorkspace) -> None:
    """A flow with `channels` says where it is started when somebody tries elsewhere."""
    await (await start_flow(workspace, "ana", "ops", "hello")).says(
        "cannot be started here, only in #releases"
    )
    await start_flow(workspace, "ana", "releases", "hello", says="Hello there")


CI = """
flow: deploy
allowed_to_start: ["local:ci", channel]
inputs:
  version: {type: string}
nodes:
  - {id: go, type: approval, with: {message: "Deploy {{ inputs.version }}?", approvers: [channel]}}
"""


async def sayso(bot: BotProcess, *words: str, **env: str) -> tuple[int, str, str]:
    """A command beside the running bot: exit code, output, error output."""
    done = await asyncio.to_thread(
        prefork.run, ["-m", "bot.cli", *words], cwd=bot.home, env={**bot.env, **env}
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.process
async def test_ci_starts_a_flow_in_a_channel(workspace: Workspace, tmp_path: Path) -> None:
    """`start-flow` posts a message in the channel and starts the flow in its thread; the same key starts it once."""
    async with running_bot(workspace, tmp_path, {"deploy": CI}) as bot:
        words = (
            "start-flow",
            "deploy",
            "--channel",
            "#ops",
            "-i",
            "version=1.2",
            "--json",
            "--key",
            "build-7",
        )
        code, out, err = await sayso(bot, *words, SAYSO_USER="ci")
        assert code == 0, err
        started = json.loads(out)
        thread = ThreadView(workspace, "ops", started["threadTs"])
        await thread.says("Deploy 1.2?")
        again = json.loads((await sayso(bot, *words, SAYSO_USER="ci"))[1])
        assert again["session"] == started["session"]
        assert sum("started by ci" in message["text"] for message in workspace.messages("ops")) == 1


@pytest.mark.process
async def test_a_start_from_a_terminal_is_refused_with_what_it_needs(
    workspace: Workspace, tmp_path: Path
) -> None:
    """`start-flow` by somebody whom the flow does not list, and into a channel where the bot may not post, ends with why."""
    async with running_bot(workspace, tmp_path, {"deploy": CI}) as bot:
        start = ("start-flow", "deploy", "-i", "version=1", "--channel")
        code, _, err = await sayso(bot, *start, "#ops", SAYSO_USER="mallory")
        assert code == 5
        assert "or list local:mallory in" in err
        code, _, err = await sayso(bot, *start, "#random", SAYSO_USER="ci")
        assert code == 5
        assert "the bot is not in #random" in err
        workspace.admin.archive(workspace.channel("releases"))
        code, _, err = await sayso(bot, *start, workspace.channel("releases").id, SAYSO_USER="ci")
        assert code == 5
        assert "is archived" in err


SHORTCUTS = {
    "look": """
flow: look
inputs:
  what: {type: string}
  where: {type: string}
  urgent: {type: boolean, default: false}
triggers:
  - {shortcut: "Look into this", message_as: what, link_as: where}
nodes:
  - {id: tell, type: message, with: {text: "Urgent {{ inputs.urgent }}: {{ inputs.what }} at {{ inputs.where }}"}}
""",
    "note": """
flow: note
inputs: {text: {type: string}}
triggers:
  - {shortcut: "Note this", message_as: text}
nodes:
  - {id: tell, type: message, with: {text: "Noted: {{ inputs.text }}"}}
""",
}


@in_town(SHORTCUTS)
async def test_a_shortcut_starts_a_flow_about_a_message(workspace: TownWorkspace) -> None:
    """The shortcut offers the flows that take a message; the chosen one asks for the rest and runs in its thread."""
    ts = await workspace.post("cleo", "ops", "The queue is long *again*")
    await workspace.shortcut("ana", "sayso:run", "ops", ts)
    await workspace.wait_for(lambda: bool(workspace.views("ana")))
    (view,) = workspace.views("ana")
    assert "Look into this" in words(view)
    await workspace.submit_view("ana", view["id"], {"flow": "0"})
    (form,) = workspace.views("ana")
    assert "urgent" in words(form).lower()
    assert "what" not in {block["block_id"] for block in form["blocks"]}
    await workspace.submit_view("ana", form["id"])
    thread = ThreadView(workspace, "ops", ts)
    said = await thread.says("Urgent false: The queue is long")
    assert f"/{ts}" in said["text"]


@in_town({"note": SHORTCUTS["note"]})
async def test_with_one_flow_the_shortcut_asks_for_its_inputs_at_once(workspace: TownWorkspace) -> None:
    """Where one flow takes a message its form is opened at once, and a reply in a thread starts it in that thread."""
    root = await workspace.post("ben", "ops", "Talk")
    ts = await workspace.post("cleo", "ops", "more talk", root)
    await workspace.shortcut("ana", "sayso:run", "ops", ts)
    await workspace.wait_for(lambda: bool(workspace.views("ana")))
    (view,) = workspace.views("ana")
    await workspace.submit_view("ana", view["id"])
    await ThreadView(workspace, "ops", root).says("Noted: more talk")
