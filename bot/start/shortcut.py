"""The message shortcut: which flow is started about this message."""

from __future__ import annotations

from bot.config.library import Library
from bot.inbound.view_values import (
    Errors,
    Next,
    Opened,
    Opening,
    Refuse,
    Show,
    Submission,
    Verdict,
    View,
    Words,
)
from bot.rendering.modals import field_block, modal
from bot.rendering.text import one_line
from bot.start.form import StartForm, shortcut_of
from bot.views.service import Kind
from engine.flow import Flow
from engine.language.codec import Json

FLOW = "flow"
_MOST = 100
"""Options of a select."""


class FlowChoice(Kind):
    """`message_action`: with one flow its form is opened at once, with several they are offered first."""

    name = "pick"

    def __init__(self, library: Library, form: StartForm) -> None:
        self._library = library
        self._form_of = form

    def _flows(self) -> list[Flow]:
        flows = sorted(self._library.refresh().items())
        return [flow for _, flow in flows if shortcut_of(flow) is not None][:_MOST]

    async def open(self, opening: Opening) -> Opened:
        """The flows to choose from, or the form of the only one."""
        flows = self._flows()
        if not flows:
            return Words("No flow here is started from a message.")
        meta: dict[str, Json] = {
            "channel": opening.channel,
            "user": opening.user,
            "about": {"ts": opening.data["ts"]},
        }
        if len(flows) == 1:
            return Show(self._form(flows[0], meta))
        options = [
            {"text": {"type": "plain_text", "text": _label(flow)}, "value": str(index)}
            for index, flow in enumerate(flows)
        ]
        element = {"type": "static_select", "action_id": FLOW, "options": options}
        # The list may be another by the time it is submitted: names say which were offered.
        names: list[Json] = [flow.name for flow in flows]
        blocks = [field_block(FLOW, "Which flow?", element)]
        return Show(
            modal(
                "Run a flow",
                blocks,
                kind=self.name,
                meta={**meta, "flows": names if len(names) <= 30 else None},
                submit="Next",
            )
        )

    def _form(self, flow: Flow, meta: dict[str, Json]) -> View:
        return self._form_of.page_about(flow, {**meta, "flow": flow.name})

    async def check(self, submission: Submission) -> Verdict:
        """The form of the flow that was chosen comes next."""
        chosen = submission.values.get(FLOW, {}).get(FLOW, {}).get("selected_option") or {}
        names = submission.meta.get("flows") or [flow.name for flow in self._flows()]
        index = str(chosen.get("value") or "")
        if not index.isdigit() or int(index) >= len(names):
            return Errors({FLOW: "Please choose a flow."})
        flow = self._library.refresh().get(names[int(index)])
        if flow is None or shortcut_of(flow) is None:
            return Refuse("This flow is not served here any more.")
        meta = {key: submission.meta[key] for key in ("channel", "user", "about")}
        return Next(self._form(flow, meta))


def _label(flow: Flow) -> str:
    trigger = shortcut_of(flow)
    return one_line(trigger.pattern if trigger is not None else flow.name, 75)
