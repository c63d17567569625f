"""A session as people and programs look at it. Pure."""

from __future__ import annotations

from engine.journal.records import Head
from engine.journal.state import State
from engine.journal.state_json import to_json
from engine.language.codec import Json


def inspection(state: State, head: Head) -> dict[str, Json]:
    """The state's document with waiting nodes' outputs as `{awaiting: true, promptId}` and where it stands in the store."""
    data = to_json(state)
    for prompt_id in state.open_prompts:
        prompt = state.prompts[prompt_id]
        data["outputs"][prompt.path] = {"awaiting": True, "promptId": prompt_id}
    data["code"] = (state.error or {}).get("type") if state.status == "failed" else None
    data["quarantined"] = head.quarantined
    data["epoch"] = head.epoch
    data["owner"] = head.owner
    if head.quarantined:
        data["phase"] = "quarantined"
    return data
