"""The face of a bad end: the failure, or the person who ended the run, what was left undone, and what one can do. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from bot.faces.marks import EMOJI
from bot.faces.places import WITHOUT_EFFECT, label_of, latest_visits, place_of
from bot.faces.words import Actor, Icon, Link, People, Said, Words, clip, weight
from engine.flow import Flow
from engine.journal.queries import is_rejection, verdict
from engine.journal.state import State
from engine.language.codec import Json
from engine.language.template import shown

_LINES, _LINE, _MOST = 12, 300, 1_500
"""Lines of a failed program's output that are shown, the units of each, and of all."""
_NAMES = 8


class End(Struct, frozen=True, kw_only=True):
    """The text and the actions of the note about a bad end, as values."""

    session_id: str
    flow_name: str
    lead: Sequence[Words]
    """The failure or the decision, and a link to the run that stood in the way."""
    output: Sequence[str]
    """The last lines of the failed program's output, unless the error says them."""
    in_file: bool
    """True if a file has more of it."""
    undone: Sequence[Words]
    """The steps whose outcome is unknown, and those that never began."""
    again: bool
    inputs: bool
    """True if it was started with inputs, with which the form to start it again is filled in."""
    retry: str
    """The place of the step from which it can be tried again; empty if it cannot: after a decision one can only start again."""


def end(
    state: State, flow: Flow, *, by: Actor | None = None, reason: str | None = None, holder: str | None = None
) -> End:
    """Return the face of a bad end. `by` ended the run, and said why; `holder` is the address of the run that holds the lock
    which this one was refused."""
    error, failed = state.error or {}, failed_path(state)
    name: Words = ("*", Said(flow.name, 80), "*")
    if state.outcome == "aborted":
        who = (" by ", People([by])) if by else ()
        why = (": ", Said(reason, 200)) if reason else ()
        lead: Words = (Icon(EMOJI["aborted"]), *name, " was cancelled", *who, *why, ".")
    elif is_rejection(error):
        lead = (Icon(EMOJI["rejected"]), *name, " was ", Said(verdict(error), 400))
    else:
        at = (" at *", Said(place_of(state, flow, failed)), "*") if failed else ()
        message = Said(str(error.get("message") or error.get("type") or "no reason given"), 400)
        lead = (Icon(EMOJI["failed"]), *name, " failed", *at, ": ", message)
    unknown = [path for path in state.active if state.nodes[path].type not in WITHOUT_EFFECT]
    undone = {
        "Outcome unknown": list(dict.fromkeys(place_of(state, flow, path) for path in unknown)),
        "Not done": list(_missing(state, flow)),
    }
    retries = state.outcome == "failed" and failed is not None and not is_rejection(error)
    return End(
        session_id=state.session_id,
        flow_name=state.flow_name,
        lead=[lead, *([(Link(holder, "Open the run that holds the lock"),)] if holder else [])],
        output=_tail(state) if state.outcome == "failed" else (),
        in_file=state.outcome == "failed" and log_of(state) is not None,
        undone=[
            (
                f"*{what}:* ",
                Said(", ".join(names[:_NAMES]), 2_000),
                f" and {len(names) - _NAMES} more." if len(names) > _NAMES else ".",
            )
            for what, names in undone.items()
            if names
        ],
        again=state.outcome in ("failed", "aborted"),
        inputs=bool(state.given if state.inputs is None else state.inputs),
        retry=shown(place_of(state, flow, failed)) if failed is not None and retries else "",
    )


def failed_path(state: State) -> str | None:
    """Return the path of the node that failed the session, or None."""
    error = state.error or {}
    # A container fails with the error of an inner node, which has its path.
    if error.get("path"):
        return str(error["path"])
    failed = [path for path, run in state.nodes.items() if run.status == "failed" and run.error == error]
    return failed[-1] if failed else None


def _missing(state: State, flow: Flow) -> Iterator[str]:
    """The nodes and passes that never began."""
    for scope, frame in sorted(state.frames.items()):
        nodes = flow.lists[frame.list_id].nodes if frame.list_id in flow.lists else ()
        container = state.containers.get(frame.owner or "")
        # The rest of a conversation cannot be known.
        if scope and (container is None or container.agent is None):
            yield from (place_of(state, flow, f"{scope}/{n.id}") for n in nodes if n.id not in frame.nodes)
    for path, container in sorted(state.containers.items()):
        left = (container.total or 0) - container.begun
        if container.kind == "foreach" and left > 0:
            yield f"{left:,} of the {container.total:,} passes of {place_of(state, flow, path)}"
    for path, run in sorted(state.nodes.items()):
        if run.status == "failed" and (run.error or {}).get("path"):
            yield f"the rest of {place_of(state, flow, path)}"
    begun = latest_visits(state)
    yield from (label_of(flow, node.id) for node in flow.nodes if node.id not in begun)


# --- what a failed program wrote ---------------------------------------------------------------------------


def _tail(state: State) -> Sequence[str]:
    """The last lines of the failed node's output; none if there is none that the error does not say."""
    text = next(iter(_outputs(state).values()), "").strip()
    lines = [clip(line, _LINE) for line in shown(text).splitlines() if line.strip()][-_LINES:]
    while len(lines) > 1 and weight("\n".join(lines)) > _MOST:
        lines.pop(0)
    said = len(lines) == 1 and str((state.error or {}).get("message")).endswith(lines[0])
    return [] if said else lines


def log_of(state: State) -> str | None:
    """Return the failed node's whole output if the thread shows less of it; else None."""
    outputs = _outputs(state)
    text = next(iter(outputs.values()), "").strip()
    lines = text.splitlines()
    fits = len(lines) <= _LINES and weight(text) <= _MOST and all(len(line) <= _LINE for line in lines)
    if len(outputs) < 2 and fits:
        return None
    return "\n".join(f"{name}:\n{output}" for name, output in outputs.items())


def _outputs(state: State) -> dict[str, str]:
    """The output of the failed node, the most relevant first: standard error, and standard output."""
    details: Json = (state.error or {}).get("details")
    found = details if isinstance(details, dict) else {}
    return {
        name: text
        for name in ("stderr", "stdout")
        if isinstance(text := found.get(name), str) and text.strip()
    }
