"""MCP servers whose tool descriptions differ from those that a conversation was opened with, or that were approved.
Pure.

The conversation continues with the descriptions it has. People see the difference, and the new ones are offered only once
they approve; this changes the beginning of the conversation, so the API drops the thinking until then.

The first description of a tool, and each one that people approved, is a row of its own for all later conversations
(`KeptRow`): a new conversation begins with the newest, and people are asked if the server describes the tool
differently.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from engine.decide.question import option, step_prompt
from engine.decide.step import Step
from engine.journal import events as ev
from engine.journal.queries import LISTING, agent_at, asked_in_order
from engine.journal.records import KeptRow, Row
from engine.journal.state import Asked, State, in_finally
from engine.language.codec import Json, canonical, decode, encode
from engine.language.template import escape_markup

OFFER = "offer"

_MOST_LINES, _MOST_WIDTH = 24, 160


def noticed(step: Step, owner: str, changed: Sequence[Json]) -> None:
    """Ask about tools that their servers describe in other words now; about the same words once."""
    state, agent = step.state, agent_at(step.state, owner)
    quiet = state.phase != "running" or in_finally(owner) or agent.final or agent.body is None
    listing: dict[str, Json] = {"tools": list(changed)}
    asked = [prompt for prompt in state.prompts.values() if prompt.kind == LISTING and prompt.path == owner]
    if not changed or quiet or any(prompt.listing == listing for prompt in asked):
        return
    withdraw(step, owner, "the server has changed again")
    known = {tool["name"]: tool for tool in (agent.body or {}).get("tools") or ()}
    names = ", ".join(f"`{escape_markup(tool['name'])}`" for tool in changed)
    lines = [line for tool in changed for line in _difference(known.get(tool["name"], {}), tool)]
    shown = [line[:_MOST_WIDTH].replace("```", "'''") for line in lines[:_MOST_LINES]]
    if len(lines) > _MOST_LINES:
        shown.append(f"… {len(lines) - _MOST_LINES} more lines")
    text = (
        f": a server changed the description of {names}. The agent continues with the old description.\n"
        f"```{escape_markup(chr(10).join(shown))}```"
    )
    offer = option(OFFER, "Use the new version", "primary")
    step.ask(
        owner,
        step_prompt(
            step.node(owner), LISTING, text, offer, option("keep", "Keep the old version"), listing=listing
        ),
    )


def _difference(before: Json, after: Json) -> Iterator[str]:
    import difflib  # by the first server that says something else

    name = str(after["name"])
    lines = difflib.unified_diff(_lines(before), _lines(after), tofile=name, lineterm="", n=1)
    return (line for line in list(lines)[1:] if not line.startswith("@@"))


def _lines(tool: Json) -> list[str]:
    schema = json.dumps(tool.get("input_schema"), indent=1, ensure_ascii=False)
    return [*str(tool.get("description") or "").splitlines(), *schema.splitlines()]


def decided(step: Step, prompt: Asked) -> None:
    """People have looked at it."""
    if (prompt.answer or {}).get("value") != OFFER:
        return
    agent = agent_at(step.state, prompt.path)
    new = {tool["name"]: tool for tool in (prompt.listing or {})["tools"]}
    body = agent.body or {}
    tools = [{**tool, **new.get(tool["name"], {})} for tool in body.get("tools") or ()]
    body = {**body, "tools": tools}
    step.emit_at(prompt.path, ev.AgentOpened, body=body, drop=True, listed=list(new))


# --- what was approved, for later conversations --------------------------------------------------------------------

LISTED = "listing"
"""The kind of these rows."""
_DESCRIBED = ("name", "description", "input_schema")
_NEVER = "9999-12-31T23:59:59.999Z"


class ListingRows(Struct, frozen=True):
    """Extension that stores the descriptions; stored ones are never overwritten."""

    def __call__(self, before: State, after: State, events: Sequence[ev.Event]) -> Sequence[Row]:
        """Return rows for the tools that this step begins with or offers; none for an imported journal, which approves
        nothing."""
        if not before.seq:
            return ()
        opened = [event for event in events if isinstance(event, ev.AgentOpened) and event.listed]
        return [
            _row(tool, event.timestamp)
            for event in opened
            for tool in (event.body or {}).get("tools") or ()
            if tool["name"] in (event.listed or ())
        ]

    about = (ev.AgentOpened,)
    """Events that can produce rows."""


def scope_of(server: str) -> str:
    """Return the scope that the descriptions of a server's tools are kept under."""
    return f"mcp:{server}"


def _row(tool: Mapping[str, Json], now: str) -> KeptRow:
    told = {name: tool.get(name) for name in _DESCRIBED}
    key = hashlib.sha256(canonical(told)).hexdigest()[:32]
    server = str(tool["name"]).partition("__")[0]
    return KeptRow(f"listing-{key}", LISTED, scope_of(server), 1, _NEVER, encode({"tool": told, "at": now}))


def approved(rows: Sequence[KeptRow]) -> list[Json]:
    """The descriptions that these rows hold, `{name, description, input_schema}` each, the newest last."""
    return [decode(row.body)["tool"] for row in rows]


def withdraw(step: Step, owner: str, reason: str) -> None:
    """Withdraw the question about this agent's tools."""
    for prompt_id in asked_in_order(step.state):
        prompt = step.state.prompts[prompt_id]
        if prompt.kind == LISTING and prompt.path == owner:
            step.withdraw(prompt, reason)
