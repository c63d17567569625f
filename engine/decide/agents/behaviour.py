"""The behaviour of agents, as `engine.decide.behaviours.Conversations` lists it. Pure."""

from engine.decide.agents.conversation import (
    answered,
    begin_turn,
    cap_decided,
    ended,
    frozen,
    hear,
    may_go_on,
    open_conversation,
    startable,
)
from engine.decide.agents.model_request import request
from engine.decide.agents.tool_calls import begin_call, settle_containers
from engine.decide.agents.tool_calls import covered_after as call_covered
from engine.decide.agents.tool_calls import decided as call_decided
from engine.decide.agents.tool_calls import done as call_done
from engine.decide.agents.tool_calls import failed as call_failed

__all__ = [
    "answered",
    "begin_call",
    "begin_turn",
    "call_covered",
    "call_decided",
    "call_done",
    "call_failed",
    "cap_decided",
    "ended",
    "frozen",
    "hear",
    "may_go_on",
    "open_conversation",
    "request",
    "settle_containers",
    "startable",
]
