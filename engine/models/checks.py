"""What every provider looks at before a turn: the same requests are refused by all of them."""

from __future__ import annotations

from engine.messages.errors import InvalidRequest
from engine.messages.messages import legal
from engine.messages.turns import TurnRequest

MAX_LISTED = 5


def refuse_illegal(request: TurnRequest) -> None:
    """Raise `InvalidRequest` for what no API would take; nothing is sent then."""
    flaws = legal(request.messages)
    if flaws:
        listed = "; ".join(str(flaw) for flaw in flaws[:MAX_LISTED])
        more = f"; and {len(flaws) - MAX_LISTED} more" if len(flaws) > MAX_LISTED else ""
        raise InvalidRequest(f"the conversation cannot be sent: {listed}{more}")
    if request.max_tokens < 1:
        raise InvalidRequest(f"max_tokens must be at least 1, not {request.max_tokens}")
    names = [tool.name for tool in request.tools]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidRequest(f"two tools have the name {twice[0]}")
