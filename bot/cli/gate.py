"""`sayso gate`: tokens for agents."""

from __future__ import annotations

import re
import sys

from bot.gate.tokens import Token, make_token, revoke_token, tokens_of
from bot.terminal.console import Exit, Paint, Place, UsageError, clean, moment, print_json, table, writing
from engine.language.codec import Json
from engine.run.stored import utc_now

_PERSON = re.compile(r"[UW][A-Z0-9]{2,}")
_AGENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/-]{0,79}")


def login(place: Place, agent: str, person: str, days: float, as_json: bool) -> int:
    """Make a token for an agent, and print it once. Raises `UsageError`."""
    if not _AGENT.fullmatch(agent):
        raise UsageError(
            f"{agent!r} is no name for an agent: letters, digits, and . _ : @ / - such as claude-code:laptop"
        )
    if not _PERSON.fullmatch(person):
        raise UsageError(f"{person!r} is no Slack user id, such as U012ABCDEF: copy it from their profile.")
    with writing(place.settings()) as store:
        token, text = make_token(store, agent, person, days, utc_now())
    if as_json:
        print_json({**_json(token), "token": text})
        return Exit.OK
    print(
        f"{token.id} is the token of {agent}, which works for {person}, until {moment(token.until)}.",
        file=sys.stderr,
    )
    print(
        "It is shown once. It can ask, and answer nothing. Take it back: sayso gate revoke " + token.id,
        file=sys.stderr,
    )
    print(text)
    return Exit.OK


def list_tokens(place: Place, as_json: bool) -> int:
    """Print which tokens count now, without their texts."""
    with writing(place.settings()) as store:
        found = tokens_of(store, utc_now())
    if as_json:
        print_json({"tokens": [_json(token) for token in found]})
    elif not found:
        print("No agent has a token. Make one: sayso gate login --agent NAME --person U012ABCDEF")
    else:
        rows = [(token.id, clean(token.agent), token.person, moment(token.until)) for token in found]
        for line in table(("TOKEN", "AGENT", "FOR", "UNTIL"), rows, Paint(sys.stdout)):
            print(line)
    return Exit.OK


def revoke(place: Place, token_id: str, as_json: bool) -> int:
    """Take a token back. Raises `UnknownToken`."""
    with writing(place.settings()) as store:
        token = revoke_token(store, token_id, utc_now())
    if as_json:
        print_json(_json(token))
    else:
        print(f"Revoked: {clean(token.agent)} can ask no more.")
    return Exit.OK


def _json(token: Token) -> dict[str, Json]:
    return {"id": token.id, "agent": token.agent, "person": token.person, "until": token.until}
