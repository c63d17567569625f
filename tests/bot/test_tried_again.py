"""A failed run continues in Slack: the note of its end has a button to try again at the step that failed, and one to start again."""

from __future__ import annotations

import pytest

from bot.rendering.home import START
from bot.rendering.notes import RETRY
from engine.language.codec import Json
from engine.nodes.runtime.runner import Completed, Failed, NodeContext, Outcome
from tests.support.inprocess import Town
from tests.support.simulated import in_town

FLAKY = """
flow: flaky
inputs: {service: {type: string}}
nodes:
  - {id: first, type: shell, with: {run: [first]}}
  - {id: gate, type: approval, with: {message: "Restart {{ inputs.service }}?", approvers: [channel]}}
  - {id: restart, name: Restart it, type: shell, with: {run: [restart]}}
  - {id: tell, type: message, with: {text: "restarted"}}
"""


async def broken(place: Town, root: str) -> None:
    """The run stops at its step that fails."""
    await place.until(lambda: "sayso:option:0" in str(place.thread(root)))
    await place.press("ana", *place.find(root, "sayso:option:0"))
    await place.until(lambda: RETRY in str(place.thread(root)))


class Service:
    """Runs the steps; it can be restarted once it is ready."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.ready = False

    async def __call__(self, config: dict[str, Json], ctx: NodeContext) -> Outcome:
        """The runner of `shell`."""
        (word,) = config["run"]
        self.ran.append(word)
        if word == "restart" and not self.ready:
            return Failed("exit_code", "it does not answer")
        return Completed({"stdout": "", "stderr": "", "exit_code": 0, "seconds": 0.0})


@pytest.fixture(autouse=True)
def service() -> Service:
    """The service that the flow restarts, as new."""
    SERVICE.ran.clear()
    SERVICE.ready = False
    return SERVICE


SERVICE = Service()
flaky = in_town({"flaky": FLAKY}, runners={"shell": SERVICE})


@flaky
async def test_a_press_tries_a_failed_run_again_at_the_step_that_failed(
    place: Town, service: Service
) -> None:
    """What was done and approved stays, the thread continues, and the button is gone; a press that comes late begins nothing."""
    root = await place.start("ana", "flaky service=db")
    await broken(place, root)
    message, found = place.find(root, RETRY)
    service.ready = True
    await place.press("ben", message, found)
    await place.press("ana", message, found)
    await place.until(lambda: any(one["text"] == "restarted" for one in place.thread(root)))
    await place.settle()
    assert service.ran == ["first", "restart", "restart"]
    heads = place.store.sessions.heads(limit=None)
    assert sorted(head.status for head in heads) == ["complete", "failed"]
    assert RETRY not in str(place.thread(root))
    assert place.store.inbox.dead_letters() == []


@flaky
async def test_a_run_that_fails_again_can_be_tried_again(place: Town, service: Service) -> None:
    """Each try that fails has its own note with its own button."""
    root = await place.start("ana", "flaky service=db")
    await broken(place, root)
    first = place.find(root, RETRY)
    await place.press("ana", *first)
    await place.until(lambda: RETRY in str(place.thread(root)) and place.find(root, RETRY)[1] != first[1])
    service.ready = True
    await place.press("ana", *place.find(root, RETRY))
    await place.until(lambda: any(one["text"] == "restarted" for one in place.thread(root)))
    assert service.ran == ["first", "restart", "restart", "restart"]


@in_town({"flaky": f"allowed_to_start: [U0LOCALANA]{FLAKY}"}, runners={"shell": SERVICE})
async def test_only_who_may_start_the_flow_may_try_it_again(place: Town) -> None:
    """The press of somebody else is refused to them alone, and the button stays."""
    root = await place.start("ana", "flaky service=db")
    await broken(place, root)
    await place.press("ben", *place.find(root, RETRY))
    await place.settle()
    assert len(place.store.sessions.heads(limit=None)) == 1
    assert place.find(root, RETRY)


@flaky
async def test_start_again_opens_the_form_with_the_inputs_of_the_run(place: Town) -> None:
    """The form has what was given, and a new thread begins with it."""
    root = await place.start("ana", "flaky service=db")
    await broken(place, root)
    await place.press("ana", *place.find(root, START))
    await place.until(lambda: place.view_of("ana"))
    view = place.view_of("ana")
    assert view is not None
    assert "'initial_value': 'db'" in str(view.body)
