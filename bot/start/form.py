"""Starting a flow by a form: its inputs as fields, and, where nobody knows it yet, the channel. The message shortcut
asks first which flow is meant."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from msgspec.structs import replace

from bot.config.library import Library
from bot.inbound.decisions import (
    Accept,
    Errors,
    Next,
    Opened,
    Opening,
    Refuse,
    Submission,
    Verdict,
    View,
)
from bot.inbound.lines import StartLine, parse
from bot.rendering.blocks import field_block, lacking, modal, option
from bot.rendering.forms import form_view
from bot.rendering.text import escape, one_line
from bot.views.forms import read_pages, wrong_on
from bot.views.kinds import PromptLookup
from bot.views.service import Kind
from engine.flow import Flow, coerce_inputs, parse_input
from engine.flow.model import Input, Trigger
from engine.forms import Field, check_form, input_field
from engine.journal.records import InboxRow
from engine.language.codec import Json, encode
from engine.language.errors import InvalidInputs

WHERE = "where"

Begin: TypeAlias = Callable[[InboxRow, dict[str, Json], str, dict[str, Json]], Awaitable[bool]]
"""Starts a flow, with these inputs, in the thread of a message that the bot posts."""

AboutMessage: TypeAlias = Callable[[InboxRow, dict[str, Json]], Awaitable[bool]]
"""Starts a flow in the thread of the message that a shortcut was used on."""

InputsOf: TypeAlias = Callable[[str, str], Awaitable[Mapping[str, Json]]]
"""The inputs of a session by its id, for people in its channel; none for others."""

Missing: TypeAlias = Callable[[Flow], Awaitable[Sequence[str]]]
"""Says what this installation lacks of what a flow refers to."""


@dataclass(eq=False, repr=False)
class StartForm(Kind):
    """`sayso:open:start`; the value of the button is the flow's name, or with `|` and a session's id the form of a start
    with the inputs of that session, which the thread of the button is about."""

    name = "start"

    _library: Library
    _prompts: PromptLookup
    _begin: Begin
    _about: AboutMessage
    _lacks: Missing
    _inputs: InputsOf

    def wants(self, opening: Opening) -> bool:
        """A slash command that names a flow and not all that it needs."""
        line = self._line(opening)
        if line is None:
            return False
        flow = self._library.refresh()[line.flow]
        try:
            return bool(coerce_inputs(flow, line.inputs)[1])
        except InvalidInputs:
            return False

    def _line(self, opening: Opening) -> StartLine | None:
        """The flow that is meant, with what was given of its inputs."""
        flows = self._library.refresh()
        if opening.within != "command":
            name = opening.value.partition("|")[0]
            return StartLine(name, {}) if name in flows else None
        line = parse(str(opening.data.get("text") or ""), flows)
        return line if isinstance(line, StartLine) else None

    async def open(self, opening: Opening) -> Opened:
        """The inputs, filled in as far as they are known."""
        line = self._line(opening)
        if line is None:
            return "This flow is no longer available here."
        flow = self._library.refresh()[line.flow]
        meta: dict[str, Json] = {"flow": flow.name, "channel": opening.channel, "user": opening.user}
        _, _, session_id = opening.value.partition("|")
        given = await self._inputs(session_id, opening.channel or "") if session_id else line.inputs
        told = typed_inputs(flow, given)
        fields = [{**field, "required": False} for field in fields_of(flow) if field["name"] in told]
        values, _ = check_form(fields, told)
        fitting = {name: value for name, value in values.items() if value is not None}
        return await self._first(flow, meta, fitting)

    async def page_about(self, flow: Flow, meta: Mapping[str, Json]) -> View:
        """The first page, for a flow that is started from a message."""
        return await self._first(flow, meta, {})

    async def _first(self, flow: Flow, meta: Mapping[str, Json], values: Mapping[str, Json]) -> View:
        view = self._page(flow, meta, 0, (), values)
        view["blocks"] = [*lacking(await self._lacks(flow)), *view["blocks"]]
        return view

    def _page(
        self, flow: Flow, meta: Mapping[str, Json], page: int, kept: Sequence[str], values: Mapping[str, Json]
    ) -> View:
        about = f"*{escape(flow.name)}*" + (f"\n{escape(flow.description)}" if flow.description else "")
        view = form_view(
            asked_of(flow, meta),
            title="Start a flow",
            kind=self.name,
            meta={**meta, "pages": list(kept)},
            message=about if page == 0 else None,
            page=page,
            values=values,
            submit="Start",
        )
        if page == 0 and not meta.get("channel"):
            # The channel in which the flow's thread begins.
            element = {
                "type": "conversations_select",
                "action_id": WHERE,
                "default_to_current_conversation": True,
                "filter": {"include": ["public", "private"], "exclude_bot_users": True},
            }
            where = field_block(WHERE, "Channel", element, hint="The bot must be a member of it.")
            view["blocks"].append(where)
        return view

    async def check(self, submission: Submission) -> Verdict:
        """Every input, as it is when somebody types it."""
        flow = self._library.refresh().get(str(submission.meta.get("flow")))
        if flow is None:
            return Refuse("This flow is no longer available here.")
        channel = submission.meta.get("channel") or submission.given(WHERE).get("selected_conversation")
        if not channel:
            return Errors({WHERE: "Please choose a channel."})
        meta: dict[str, Json] = {"flow": flow.name, "channel": channel, "user": submission.user}
        if "about" in submission.meta:
            meta["about"] = submission.meta["about"]
        show = partial(self._page, flow, meta)
        accept = partial(self._accept, submission, flow, meta)
        return await read_pages(self._prompts, submission, asked_of(flow, meta), show, accept)

    def _accept(
        self, submission: Submission, flow: Flow, meta: Mapping[str, Json], values: Mapping[str, Json]
    ) -> Verdict:
        inputs = {name: value for name, value in values.items() if value is not None}
        try:
            coerce_inputs(flow, inputs)
        except InvalidInputs as error:
            wrong = {}
            for name, value in inputs.items():
                # The faults of inputs that only JSON can express, each at its own field.
                try:
                    coerce_inputs(replace(flow, inputs={name: flow.inputs[name]}), {name: value})
                except InvalidInputs as fault:
                    wrong[name] = str(fault).partition(": ")[2] or str(fault)
            return wrong_on(submission, fields_of(flow), wrong) if wrong else Refuse(str(error))
        data: dict[str, Json] = {"flow": flow.name, "inputs": inputs, "channel": meta["channel"]}
        if "about" in meta:
            data["about"] = meta["about"]
        return Accept({**data, "userTeam": submission.team, "responseUrl": None})

    async def submit(self, row: InboxRow, data: dict[str, Json]) -> bool:
        """Post the message that the session's thread begins with; the session starts under it. One about a message
        lives in that message's thread."""
        if data.get("about"):
            return await self._about(row, data)
        return await self._begin(row, data, data["flow"], data["inputs"])


def shortcut_of(flow: Flow) -> Trigger | None:
    """The trigger by which a flow is started from a message."""
    return next((trigger for trigger in flow.triggers if trigger.kind == "shortcut"), None)


def asked_of(flow: Flow, meta: Mapping[str, Json]) -> list[Field]:
    """The fields that are asked for: not those that the message, or the flow's file, fills."""
    trigger = shortcut_of(flow) if "about" in meta else None
    if trigger is None:
        return fields_of(flow)
    filled = {trigger.message_as, trigger.link_as, *trigger.values}
    return [field for field in fields_of(flow) if field["name"] not in filled]


def fields_of(flow: Flow) -> list[Field]:
    """A field for each input of a flow. What only JSON can say is written as text and read by the input's type."""
    fields: list[Field] = []
    for entry in flow.inputs.values():
        field = input_field(entry.name, entry.type, entry.description, entry.choices)
        if field is None:
            form = "separated by commas" if entry.type == "array" else "as JSON"
            about = f"{entry.description or ''} ({form})".strip()
            field = {"name": entry.name, "type": "string", "title": entry.name, "description": about}
        field["required"] = entry.required
        if entry.default not in (None, [], {}):
            field["default"] = _typed(entry, field, entry.default)
        fields.append(field)
    return fields


def _typed(entry: Input, field: Field, value: Json) -> Json:
    """A value as it is typed into its field: what only JSON can say as text that is read as the same value."""
    if field["type"] != "string" or value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        listed = ", ".join(map(str, value))
        with suppress(InvalidInputs):
            if value and parse_input(entry, listed) == value:
                return listed
    return encode(value).decode()


def typed_inputs(flow: Flow, given: Mapping[str, Json]) -> dict[str, Json]:
    """Values of a flow's inputs as they are typed into its form; those that it has not are left out."""
    fields = {field["name"]: field for field in fields_of(flow)}
    return {name: _typed(flow.inputs[name], fields[name], given[name]) for name in given if name in fields}


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
            return "No flow here can be started from a message."
        meta: dict[str, Json] = {
            "channel": opening.channel,
            "user": opening.user,
            "about": {"ts": opening.data["ts"]},
        }
        if len(flows) == 1:
            return await self._form(flows[0], meta)
        options = [option(_label(flow), str(index)) for index, flow in enumerate(flows)]
        element = {"type": "static_select", "action_id": FLOW, "options": options}
        # The list may be another by the time it is submitted: names say which were offered.
        names: list[Json] = [flow.name for flow in flows]
        blocks = [field_block(FLOW, "Which flow?", element)]
        meta["flows"] = names if len(names) <= 30 else None
        return modal("Run a flow", blocks, kind=self.name, meta=meta, submit="Next")

    async def _form(self, flow: Flow, meta: dict[str, Json]) -> View:
        return await self._form_of.page_about(flow, {**meta, "flow": flow.name})

    async def check(self, submission: Submission) -> Verdict:
        """The form of the flow that was chosen comes next."""
        chosen = submission.given(FLOW).get("selected_option") or {}
        names = submission.meta.get("flows") or [flow.name for flow in self._flows()]
        index = str(chosen.get("value") or "")
        if not index.isdigit() or int(index) >= len(names):
            return Errors({FLOW: "Please choose a flow."})
        flow = self._library.refresh().get(names[int(index)])
        if flow is None or shortcut_of(flow) is None:
            return Refuse("This flow is no longer available here.")
        meta = {key: submission.meta[key] for key in ("channel", "user", "about")}
        return Next(await self._form(flow, meta))


def _label(flow: Flow) -> str:
    trigger = shortcut_of(flow)
    return one_line(trigger.pattern if trigger is not None else flow.name, 75)
