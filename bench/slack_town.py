"""People who use a bot at a steady pace, and what each of them sees of it, by the workspace's own clock.

A flow asks two questions with buttons. Somebody starts it by a mention, answers after some seconds, by a button in every
other flow and in words in the others, and has seen enough once the result is posted. What is noted is what the workspace
did: a message counts from the moment it is there, an edit from the moment it shows. `Load` knows no bot: it works on a
server with a bot process as it does on a simulated town, where ten minutes take some seconds.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.workspace import NotAcknowledged, WorkspaceError, elements
from tests.support.acting import Acts

Json = dict[str, Any]
ASKS = ("First question?", "Second question?")
RESULT = "That was all."
CHOICE = "Go on"
THINKS = (4.0, 12.0)
"""Seconds that a person takes for an answer, at least and at most."""


def flow(name: str, questions: int) -> str:
    """A flow with so many questions, and its result."""
    asks = "".join(
        f'  - {{id: ask{n}, type: ask, with: {{message: "{ASKS[n]}", choices: [{CHOICE}, Stop]}}}}\n'
        for n in range(questions)
    )
    return f'flow: {name}\nnodes:\n{asks}  - {{id: result, type: message, with: {{text: "{RESULT}"}}}}\n'


FLOWS = {"one": flow("one", 1), "two": flow("two", 2)}


@dataclass
class Question:
    """One question as it was seen: when it was there, was answered, and lost its buttons."""

    ts: str
    shown: float
    answered: float | None = None
    disarmed: float | None = None


@dataclass
class Run:
    """One flow in its thread."""

    channel: str
    root: str
    began: float
    presses: bool
    questions: list[Question] = field(default_factory=list)
    result: float | None = None
    card: str = ""
    """The message that came first, which stands for the whole flow."""
    card_final: float | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def until(self, reached: Callable[[], object]) -> None:
        """Wait until something was seen in this thread."""
        while not reached():
            self.news.clear()
            await self.news.wait()


class Load:
    """Flows that people start and answer in a workspace, and what came of each."""

    def __init__(self, workspace: Acts, channels: Sequence[str], clock: Callable[[], float]) -> None:
        self.workspace, self.channels, self.clock = workspace, channels, clock
        self.runs: list[Run] = []
        self.unheard = 0
        """Presses that the app did not acknowledge."""
        self.first_call = len(workspace.calls)
        self.began = clock()
        self.last_write = self.began
        self._threads: dict[str, Run] = {}
        self._chance = random.Random(7)
        self._watch()

    # --- what people do ------------------------------------------------------------------------------------

    def start(self, number: int, name: str = "two", answers: int = len(ASKS)) -> Awaitable[None]:
        """Start a flow now, and give so many answers; done once nothing more is to come of that."""
        channel = self.channels[number % len(self.channels)]
        return self._live(channel, name, number % 2 == 0, min(answers, 2 if name == "two" else 1))

    async def steady(self, a_minute: float, minutes: float) -> list[asyncio.Task[None]]:
        """Start so many flows a minute; the tasks of them."""
        begin, tasks = self.clock(), []
        for number in range(round(a_minute * minutes)):
            await asyncio.sleep(max(0.0, begin + number * 60 / a_minute - self.clock()))
            tasks.append(asyncio.ensure_future(self.start(number)))
        await asyncio.sleep(max(0.0, begin + minutes * 60 - self.clock()))
        return tasks

    async def _live(self, channel: str, name: str, presses: bool, answers: int) -> None:
        began = self.clock()
        root = await self.workspace.post("ana", channel, f"@sayso {name}")
        run = self._threads[root] = Run(channel, root, began, presses)
        self.runs.append(run)
        for number in range(answers):
            await run.until(lambda number=number: len(run.questions) > number)
            await asyncio.sleep(self._chance.uniform(*THINKS))
            run.questions[number].answered = self.clock()
            await self._answer(run, run.questions[number])
        await run.until(lambda: run.result if answers else run.questions)

    async def _answer(self, run: Run, question: Question) -> None:
        if not run.presses:
            await self.workspace.post("ana", run.channel, CHOICE, thread_ts=run.root)
            return
        while True:
            try:
                await self.workspace.press("ana", run.channel, question.ts, text=CHOICE)
                return
            except NotAcknowledged:
                self.unheard += 1

    # --- what there is to see ------------------------------------------------------------------------------

    def _watch(self) -> None:
        core = self.workspace.core
        post, edit, react = core.post, core.edit, core.react

        def posted(*given: Any, **fields: Any) -> Json:
            message = post(*given, **fields)
            self._wrote(message)
            if message["user"] == self.workspace.bot_user_id and message.get("thread_ts") in self._threads:
                self._posted(self._threads[message["thread_ts"]], message)
            return message

        def edited(*given: Any) -> Json:
            message = edit(*given)
            self._wrote(message)
            if message.get("thread_ts") in self._threads:
                self._edited(self._threads[message["thread_ts"]], message)
            return message

        def reacted(user: Any, *given: Any, **more: Any) -> None:
            react(user, *given, **more)
            self._wrote({"user": user.id})

        core.post, core.edit, core.react = posted, edited, reacted  # type: ignore[method-assign]  # we only look on

    def _wrote(self, message: Json) -> None:
        if message["user"] == self.workspace.bot_user_id:
            self.last_write = self.clock()

    def _posted(self, run: Run, message: Json) -> None:
        run.card = run.card or str(message["ts"])
        if is_live(message):
            run.questions.append(Question(str(message["ts"]), self.clock()))
        elif RESULT in str(message["blocks"] or message["text"]):
            run.result = run.result or self.clock()
        run.news.set()

    def _edited(self, run: Run, message: Json) -> None:
        if message["ts"] == run.card and run.card_final is None and "Completed" in str(message):
            run.card_final = self.clock()
        for question in run.questions:
            if question.ts == message["ts"] and question.disarmed is None and not is_live(message):
                question.disarmed = self.clock()

    # --- what came of it -----------------------------------------------------------------------------------

    def to_next(self, since: float = 0.0, until: float = float("inf")) -> list[float]:
        """Seconds from each answer that was given in this time to the next question; to now where none came."""
        found = []
        for run in self.runs:
            for before, after in zip(run.questions, [*run.questions[1:], None], strict=True):
                last = before.answered is None or (after is None and len(run.questions) == len(ASKS))
                if not last and before.answered is not None and since <= before.answered < until:
                    found.append((after.shown if after else self.clock()) - before.answered)
        return found

    def to_disarmed(self, *, by_press: bool) -> list[float]:
        """Seconds from each answer until its question had no buttons; to now where it has them still."""
        answered = [q for run in self.runs if run.presses == by_press for q in run.questions if q.answered]
        return [(q.disarmed or self.clock()) - (q.answered or 0.0) for q in answered]

    def to_final_card(self) -> list[float]:
        """Seconds from each last answer until the card said the end; those whose card never did are left out, since the
        message below it says it."""
        return [run.card_final - (run.questions[-1].answered or 0.0) for run in self.runs if run.card_final]

    def to_first(self) -> list[float]:
        """Seconds from each start to its first question; to now where none came."""
        return [(run.questions[0].shown if run.questions else self.clock()) - run.began for run in self.runs]

    def calls(self, since: float = 0.0) -> list[Any]:
        """The calls of the app since the load began, or since a moment, but for those that look after its connection."""
        found = self.workspace.calls[self.first_call :]
        return [call for call in found if call.at >= since and not call.method.startswith(("apps.", "auth."))]

    def refused_share(self, since: float = 0.0) -> float:
        """How many of all calls were answered with 429, in percent."""
        statuses = [call.status for call in self.calls(since)]
        return 100 * statuses.count(429) / max(1, len(statuses))

    def carried_out(self) -> Counter[str]:
        """How often each method was carried out, but for marks."""
        return Counter(call.method for call in self.calls() if call.ok and not self._marks(call))

    def marks(self) -> Counter[str]:
        """How often reactions were added to and removed from the messages that started runs."""
        return Counter(call.method for call in self.calls() if call.ok and self._marks(call))

    def _marks(self, call: Any) -> bool:
        return call.method.startswith("reactions.") and str(call.args.get("timestamp")) in self._threads

    def asked(self) -> int:
        """Flows whose first question is there."""
        return sum(bool(run.questions) for run in self.runs)

    def unfinished(self) -> int:
        """Flows whose result never came."""
        return sum(run.result is None for run in self.runs)

    def doubled(self) -> int:
        """Messages that are there twice."""
        state, keys = self.workspace.state, Counter[str]()
        for messages in state.messages.values():
            for message in messages.values():
                payload = (message.get("metadata") or {}).get("event_payload") or {}
                keys[str(payload.get("key", message["ts"]))] += 1
        return sum(count - 1 for count in keys.values())


def is_live(message: Json) -> bool:
    """Whether a message has the buttons of a question."""
    try:
        elements.find(message.get("blocks") or [], text=CHOICE)
    except WorkspaceError:
        return False
    return True


async def finished(tasks: Iterable[Awaitable[None]], most: float) -> None:
    """Wait for flows to end, so many seconds at most."""
    waiting = [asyncio.ensure_future(task) for task in tasks]
    if waiting:
        _, late = await asyncio.wait(waiting, timeout=most)
        for task in late:
            task.cancel()
