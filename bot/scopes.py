"""Which rights the app needs, and what does not work without each. The manifest is checked against this table."""

from __future__ import annotations

from dataclasses import dataclass

NEEDED: dict[str, str] = {
    "chat:write": "posting anything at all",
    "app_mentions:read": "starting flows by mention",
    "channels:history": "reading replies in public channels",
    "groups:history": "reading replies in private channels",
    "im:history": "reading direct messages",
    "commands": "the /sayso command",
    "channels:read": "finding the public channels it is in, and who is in them",
    "groups:read": "finding the private channels it is in, and who is in them",
    "users:read": "finding out who somebody is: without it nobody can answer or approve",
    "users:read.email": "approvers given by e-mail address",
    "usergroups:read": "approvers given as @group",
    "im:write": "messages to one person (`to: dm:...`)",
    "files:read": "files that people drop into a thread as an answer",
    "files:write": "files of messages, and what is too long for one",
}
"""Bot scope → what will not work without it."""

EVENTS = ("app_mention", "message.channels", "message.groups", "message.im")
"""Bot events that the manifest must subscribe to."""

_READING = ("channels:history", "groups:history", "im:history")


@dataclass(frozen=True)
class Report:
    """What is missing. `fatal`: nothing would work (posting, or reading any thread). `known` is false where the
    server does not say which scopes there are."""

    known: bool
    missing: tuple[str, ...]
    fatal: bool

    def text(self) -> str:
        """What will not work, a line each, and what to do."""
        if not self.missing:
            return (
                "All scopes are granted."
                if self.known
                else "The server does not say which scopes are granted."
            )
        lines = [f"  {scope}: needed for {NEEDED[scope]}" for scope in self.missing]
        verdict = "Nothing would work without them." if self.fatal else "Everything else works."
        return (
            "The bot token lacks these scopes:\n" + "\n".join(lines) + f"\n{verdict} "
            "Add them under OAuth & Permissions (manifest.yml has them all) and install the app again."
        )


def scope_report(header: str | None) -> Report:
    """What the `X-OAuth-Scopes` header of an answer says; None where there was none."""
    if header is None:
        return Report(known=False, missing=(), fatal=False)
    granted = {scope.strip() for scope in header.split(",") if scope.strip()}
    missing = tuple(scope for scope in NEEDED if scope not in granted)
    fatal = "chat:write" in missing or all(scope in missing for scope in _READING)
    return Report(known=True, missing=missing, fatal=fatal)
