"""The app's Home: questions for this person, the people their own runs wait for, runs, and flows to start. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.faces.marks import mark_of
from bot.rendering.blocks import Block, actions, button, context, header, option, section, select
from bot.rendering.grants import home_grants
from bot.rendering.text import date, one_line, person, safe
from bot.rendering.waiting import MOST_TOGETHER, TOGETHER, Waiting, alike, question_blocks, waits_line
from engine.flow import Flow
from engine.journal.queries import is_rejection, verdict_and_reason
from engine.journal.state import Grant, State
from engine.language.counting import plural

START, AGAIN, ME = "sayso:open:start", "sayso:open:home", "sayso:open:me"
MOST_WAITING, MOST_OTHERS, MOST_RUNNING, MOST_RECENT, MOST_FLOWS = 22, 8, 8, 5, 14
"""Most entries of each kind. A Home has a hundred blocks; the rest is counted, and questions for this person are paged."""
_MOST_GROUPS = 4
_MOST_GRANTS = 4
"""Blocks of grants where as many runs are shown as there is room for."""

KINDS = {
    "all": ("Everything", None),
    "approval": ("Approvals", "decide"),
    "question": ("Questions", "answer"),
    "problem": ("Problems", "resolve"),
}
"""Filters for waiting questions: the label, and the action that answers them."""


@dataclass(frozen=True, slots=True)
class Look:
    """A person's filter for their waiting questions."""

    kind: str = "all"
    flow: str = ""
    start: int = 0

    def shows(self, entry: Waiting) -> bool:
        """True if the filter includes a question."""
        action = KINDS[self.kind][1]
        return action in (None, entry.prompt.rules.action) and self.flow in ("", entry.flow_name)


@dataclass(frozen=True, slots=True)
class Run:
    """A session that this person may see."""

    state: State
    link: str | None


@dataclass(frozen=True, slots=True)
class HomePage:
    """Content of a Home, newest first. `others` are questions of this person's runs that wait for somebody else."""

    waiting: Sequence[Waiting]
    running: Sequence[Run]
    recent: Sequence[Run]
    flows: Mapping[str, Flow]
    now: str
    others: Sequence[Waiting] = ()
    look: Look = Look()
    about_me: str = ""
    """Line about this person's stand-in while they are away."""
    allowed: Sequence[Grant] = ()
    """Calls that this person allows beyond one run."""


def home_view(page: HomePage) -> dict[str, Any]:
    """The Home as Slack takes it."""
    blocks = [
        header("Waiting for you"),
        *_controls(page),
        *_waiting(page),
        *_others(page.others),
        header("Open runs"),
        *_listed(
            [
                *(_run(entry) for entry in page.running[:MOST_RUNNING]),
                *home_grants([entry.state for entry in page.running], page.now, page.allowed),
            ][: MOST_RUNNING + _MOST_GRANTS],
            len(page.running) - MOST_RUNNING,
            "There are no open runs for you or in your channels.",
        ),
        header("Recent"),
        *_listed([_run(entry) for entry in page.recent[:MOST_RECENT]], 0, "No recent runs."),
        header("Start a flow"),
        *_flows(page.flows),
        context(f"As of {date(page.now, '{time_secs}')}"),
    ]
    return {"type": "home", "blocks": blocks}


def words_home(text: str) -> dict[str, Any]:
    """Return a Home with only a reason why it is empty."""
    return {"type": "home", "blocks": [section(safe(text))]}


def page_of(page: HomePage) -> list[Waiting]:
    """The questions that one Home shows."""
    shown = _filtered(page)
    start = _start(page, shown)
    return shown[start : start + MOST_WAITING]


def _filtered(page: HomePage) -> list[Waiting]:
    return [entry for entry in page.waiting if page.look.shows(entry)]


def _start(page: HomePage, shown: Sequence[Waiting]) -> int:
    """The first question of the page that is looked at; where that is empty by now, of the first one."""
    return page.look.start if page.look.start < len(shown) else 0


def _listed(blocks: list[Block], beyond: int, nothing: str) -> list[Block]:
    if not blocks:
        return [section(f"_{nothing}_")]
    return [*blocks, context(f"… and {beyond:,} more")] if beyond > 0 else blocks


# --- questions for this person -----------------------------------------------------------------------------


def _controls(page: HomePage) -> list[Block]:
    """Return the filters, if there is something to filter; the notification settings; and a refresh button."""
    made: list[Block] = []
    if len(page.waiting) > 1:
        kinds = [option(label, f"kind:{name}") for name, (label, _) in KINDS.items()]
        made.append(_menu("kind", kinds, list(KINDS).index(page.look.kind)))
        names = sorted({entry.flow_name for entry in page.waiting} | {page.look.flow} - {""})[:99]
        flows = [option("All flows", "flow:"), *(option(one_line(n, 75), f"flow:{n}"[:150]) for n in names)]
        made.append(_menu("flow", flows, names.index(page.look.flow) + 1 if page.look.flow in names else 0))
    made.append(button("Refresh", AGAIN, "again"))
    made.append(button("While I am away…", ME, "me"))
    found: list[Block] = [{**actions(made), "block_id": "home:controls"}]
    return [*found, context(page.about_me)] if page.about_me else found


def _menu(name: str, options: list[Block], chosen: int) -> Block:
    return {**select(f"{AGAIN}:{name}", "Show", options), "initial_option": options[chosen]}


def _waiting(page: HomePage) -> list[Block]:
    shown = _filtered(page)
    if not shown:
        hidden = len(page.waiting)
        return [section(f"_No matches; {hidden} hidden._" if hidden else "_Nothing is waiting for you._")]
    made: list[Block] = []
    for first, group in list(alike(shown).items())[:_MOST_GROUPS]:
        made.append(_group(first, group))
    for entry in page_of(page):
        made += question_blocks(entry)
    return [*made, *_pages(len(shown), _start(page, shown))]


def _group(first: str, group: Sequence[Waiting]) -> Block:
    """Alike approvals, with the button that decides them together."""
    count = len(group)
    node = safe(one_line(str(group[0].prompt.node_name or group[0].prompt.node_id), 60))
    text = f"🗂️ *{count} alike* · *{safe(one_line(group[0].flow_name, 80))}* › {node}"
    many = min(count, MOST_TOGETHER)
    together = button(f"Decide {many} together…", f"sayso:open:{TOGETHER}", first, "primary")
    return {**section(text), "block_id": f"alike:{first}", "accessory": together}


def _pages(count: int, start: int) -> list[Block]:
    if count <= MOST_WAITING:
        return []
    made = []
    if start > 0:
        made.append(button("Newer", f"{AGAIN}:newer", f"from:{max(0, start - MOST_WAITING)}"))
    if start + MOST_WAITING < count:
        made.append(button("Older", f"{AGAIN}:older", f"from:{start + MOST_WAITING}"))
    last = min(start + MOST_WAITING, count)
    return [context(f"{start + 1} to {last} of {count:,}"), {**actions(made), "block_id": "home:pages"}]


def _others(others: Sequence[Waiting]) -> list[Block]:
    """Return the people this person's runs wait for."""
    if not others:
        return []
    lines = [context(waits_line(entry)) for entry in others[:MOST_OTHERS]]
    more = len(others) - MOST_OTHERS
    return [header("You are waiting for"), *lines, *([context(f"… and {more:,} more")] if more > 0 else [])]


# --- runs and flows ----------------------------------------------------------------------------------------


def _run(entry: Run) -> Block:
    state = entry.state
    if state.ended and is_rejection(state.error):
        said, reason = verdict_and_reason(state.error)
        word = f"{safe(one_line(said, 80))} {date(state.updated_at)}"
        word += f": {safe(one_line(reason, 80))}" if reason else ""
    else:
        word = state.stands
        word += f" {date(state.updated_at)}" if state.ended else f", since {date(state.created_at)}"
    waits = f" · {plural(len(state.open_prompts), 'open question')}" if state.open_prompts else ""
    by = person(state.actor)
    name = safe(one_line(state.flow_name, 80))
    linked = f"<{entry.link}|{name}>" if entry.link else name
    return section(f"{mark_of(state).emoji} *{linked}* · {word}{waits}\nstarted by {by}")


def _flows(flows: Mapping[str, Flow]) -> list[Block]:
    if not flows:
        return [section("_There are no flows yet._")]
    names = sorted(flows)
    blocks = []
    for name in names[:MOST_FLOWS]:
        about = f"\n{safe(one_line(flows[name].description or '', 200))}" if flows[name].description else ""
        start = button("Start", START, name)
        # Slack requires different blocks for two buttons with one action in a view.
        blocks.append({**section(f"*{safe(name)}*{about}"), "block_id": f"flow:{name}", "accessory": start})
    more = len(names) - MOST_FLOWS
    if more > 0:
        blocks.append(context(f"… and {more:,} more: `/sayso list`"))
    return blocks
