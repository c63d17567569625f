"""`sayso gate`: tokens for agents."""

from __future__ import annotations

import os
import re
import sys

from bot.gate.tokens import Token, make_token, revoke_token, tokens_of
from bot.terminal.console import Exit, Place, UsageError, clean, moment, print_json, print_list, writing
from engine.language.codec import Json
from engine.run.stored import utc_now

_PERSON = re.compile(r"[UW][A-Z0-9]{2,}")
_AGENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/-]{0,79}")


def login(place: Place, agent: str, person: str, days: float, as_json: bool) -> int:
    """Make a token for an agent, and print it once. Raises `UsageError`."""
    if not _AGENT.fullmatch(agent):
        raise UsageError(
            f"{agent!r} is not a valid agent name: use letters, digits, and . _ : @ / - such as claude-code:laptop"
        )
    if not _PERSON.fullmatch(person):
        raise UsageError(f"{person!r} is not a Slack user id such as U012ABCDEF: copy it from their profile.")
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
        "It is shown only once. It lets the agent ask, but not answer. To revoke it: sayso gate revoke "
        + token.id,
        file=sys.stderr,
    )
    print(text)
    return Exit.OK


def list_tokens(place: Place, as_json: bool) -> int:
    """Print which tokens count now, without their texts."""
    with writing(place.settings()) as store:
        found = tokens_of(store, utc_now())
    rows = [(token.id, clean(token.agent), token.person, moment(token.until)) for token in found]
    nothing = "No agent has a token. Create one: sayso gate login --agent NAME --person U012ABCDEF"
    headers = ("TOKEN", "AGENT", "FOR", "UNTIL")
    return print_list("tokens", map(_json, found), headers, rows, nothing, as_json=as_json)


def revoke(place: Place, token_id: str, as_json: bool) -> int:
    """Take a token back. Raises `UnknownToken`."""
    with writing(place.settings()) as store:
        token = revoke_token(store, token_id, utc_now())
    if as_json:
        print_json(_json(token))
    else:
        print(f"Revoked: {clean(token.agent)} can no longer ask.")
    return Exit.OK


def _json(token: Token) -> dict[str, Json]:
    return {"id": token.id, "agent": token.agent, "person": token.person, "until": token.until}


def hook(place: Place, client: str, wait: float, interactive: bool) -> int:
    """Answer one call of an agent's program, on standard input."""
    from bot.gate.hook import main

    return main(["--client", client, "--wait", str(wait), *["--interactive"] * interactive])


def resume(place: Place, words: list[str], once: bool) -> int:
    """Continue with deferred sessions. Raises `UsageError` where the gate cannot be asked."""
    from bot.gate.client import NoGate
    from bot.gate.resume import resume as go_on

    try:
        return go_on(words, once=once, tell=lambda text: print(clean(text), file=sys.stderr, flush=True))
    except NoGate as error:
        raise UsageError(str(error)) from error


def doctor(place: Place, as_json: bool) -> int:
    """Print what is found; 1 where something is wrong."""
    from bot.gate.doctor import look

    settings = place.settings()
    found = list(look(settings.home, settings.gate_file))
    if as_json:
        print_json({"findings": [{"good": one.good, "text": one.text} for one in found]})
    else:
        marks = {True: "✓", False: "✗", None: "!"}
        for one in found:
            print(f"{marks[one.good]} {clean(one.text)}")
    return Exit.FAILED if any(one.good is False for one in found) else Exit.OK


def proxy(
    place: Place, words: list[str] | None, name: str, url: str | None, token_from: str | None, wait: float
) -> int:
    """Relay between a client and a server. Raises `UsageError`."""
    from bot.gate.client import NoGate
    from bot.gate.proxy import Proxy, serve

    if bool(words) == bool(url):
        raise UsageError("Name the server: sayso gate proxy --name NAME -- COMMAND, or --url URL")
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,60}", name):
        raise UsageError(f"{name!r} is not a valid server name: use letters, digits, _ and -")
    try:
        if url is None:
            serve(lambda gate: Proxy(gate, name, wait), words or [])
        from bot.gate.proxy_url import UrlProxy

        token = os.environ.get(token_from or "", "")
        serve(lambda gate: UrlProxy(gate, name, wait, str(url), token), [])
    except NoGate as error:
        raise UsageError(str(error)) from error
    except ImportError as error:
        raise UsageError(f"{error}. MCP needs: pip install 'sayso[mcp]'") from error
    except OSError as error:
        raise UsageError(f"{words[0] if words else url} cannot be run: {error.strerror}") from error
    except ExceptionGroup as error:
        raise UsageError(f"{url} cannot be reached: {error.exceptions[0]}") from error


def agents(place: Place, agent: str | None, every: float, once: bool) -> int:
    """Ask about calls of Managed Agents. Raises `UsageError`."""
    from anthropic import APIStatusError

    from bot.gate.agents import watch
    from bot.gate.client import NoGate
    from engine.models.keys import KEY_VARIABLES

    key = next((found for name in KEY_VARIABLES if (found := os.environ.get(name, "").strip())), "")
    if not key:
        raise UsageError("No key is set: set ANTHROPIC_API_KEY to a key of the agents' workspace.")
    try:
        watch(key, agent, every, once=once, tell=lambda text: print(clean(text), file=sys.stderr, flush=True))
    except (NoGate, APIStatusError) as error:
        raise UsageError(str(error)) from error
    return Exit.OK


def settings(place: Place, wait: float, interactive: bool) -> int:
    """Print the settings of Claude Code."""
    from bot.gate.doctor import claude_settings

    print_json(claude_settings(wait, interactive=interactive))
    return Exit.OK


def mcp(place: Place, port: int | None) -> int:
    """Serve MCP until the input ends, or a signal. Raises `UsageError`."""
    from bot.gate.client import DEFAULT_URL, NoGate

    try:
        from bot.cli.authoring import Bench
        from bot.gate.mcp_server import serve_http, serve_stdio
    except ImportError as error:
        raise UsageError(f"{error}. MCP needs: pip install 'sayso[mcp]'") from error
    try:
        if port is None:
            serve_stdio(Bench(lambda: place.settings().flows))
        else:
            url = os.environ.get("SAYSO_GATE_URL", DEFAULT_URL)
            serve_http(url, port, lambda here: print(f"MCP: {here}", flush=True))
    except NoGate as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(f"Cannot listen on port {port}: {error.strerror}.") from error
    # A call that still waits for people in a thread holds the process no longer: it is asked again by its key.
    sys.stdout.flush()
    os._exit(Exit.OK)
