"""Checks of an installation, each with what it found and what to do. Nothing is changed, nothing is posted.

A check that cannot be made because an earlier one failed is left out, so that one cause is told once.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from difflib import get_close_matches
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bot.compose.environment import lacking
from bot.config.revision import DIRTY, is_dirty, passed_over, version_of
from bot.config.settings import KNOWN, Settings, SettingsError, slack_tokens
from bot.doctor.agents import check_agents, check_deep, check_freshness, check_mcp, check_models
from bot.doctor.blobs import check_blobs
from bot.doctor.encryption import check_audit_key, check_encryption
from bot.doctor.findings import Check, Level
from bot.doctor.fleet import check_fleet, check_listening
from bot.doctor.manifest import check_manifest
from bot.doctor.slack import check_named, check_reading
from bot.outbound.calls import AGENT_REFUSED
from bot.outbound.turns import method_of
from bot.terminal.console import database_file
from bot.wire.budget import FULL, NOTED_SECONDS
from bot.wire.client import bot_client, describe
from bot.wire.manifest import needed_by, scope_report
from bot.wire.sockets import HEARD
from engine.flow import Flow
from engine.flow.load import flow_from_body
from engine.journal.records import Head
from engine.language import timestamps
from engine.language.errors import SaysoError, SchemaTooNew, StorageError
from engine.nodes.runtime.secrets import SecretSource
from engine.run.flow_files import flow_warnings, load_flows
from engine.run.stored import stored_state
from engine.storage.open import open_store, place_of
from engine.storage.store import Store

SLACK_SECONDS = 30.0
"""Seconds that Slack may take for all requests together."""

LATE_SECONDS = 300.0
"""A message that waits longer to be sent is told."""

_FAR = "9999-12-31T00:00:00.000Z"
_OLDEST_SQLITE = (3, 51, 3)
_OF_PROGRAMS = ("SAYSO_SESSION_ID", "SAYSO_IDEMPOTENCY_KEY", "SAYSO_EXECUTION")
"""Variables that `shell` nodes give to their programs, of which sayso can be one."""

_PERSON = re.compile(r"[UW][A-Z0-9]{2,}|[^@\s]+@[^@\s]+\.[^@\s]+|local:\S+", re.ASCII)


async def examine(settings: Settings, manifest: Path | None, *, deep: bool = False) -> AsyncIterator[Check]:
    """All checks, in the order in which things build on each other; `deep` reads all that is stored."""
    here = (*check_versions(), *check_apart(), *check_user(), *check_settings(settings))
    for check in (*here, *check_flows(settings), *check_database(settings, deep=deep)):
        yield check
    async for check in check_blobs(settings):
        yield check
    flows = list(load_flows(settings.flows)[0].values()) if settings.flows.is_dir() else []
    for check in (*check_agents(settings, flows), *check_manifest(manifest, flows)):
        yield check
    async for check in check_models(settings, flows):
        yield check
    async for check in check_slack(settings, flows):
        yield check


# --- this machine ------------------------------------------------------------------------------------------


def check_versions() -> Iterator[Check]:
    """Python, SQLite, and the libraries that speak to Slack."""
    import apsw

    python = platform.python_version()
    known = (3, 11) <= sys.version_info[:2] <= (3, 13)
    hint = None if known else "sayso is tested with Python 3.11, 3.12 and 3.13."
    yield Check("python", "ok" if known else "warn", f"Python {python}", hint)
    sqlite = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    sound = sqlite >= _OLDEST_SQLITE
    hint = None if sound else "SQLite before 3.51.3 can corrupt a database in WAL mode: pip install -U apsw"
    text = f"SQLite {apsw.sqlite_lib_version()} (apsw {version('apsw')})"
    yield Check("sqlite", "ok" if sound else "fail", text, hint)
    names = ("slack-bolt", "slack-sdk", "aiohttp", "pydantic")
    yield Check("libraries", "ok", ", ".join(f"{name} {version(name)}" for name in names))


def check_apart() -> Iterator[Check]:
    """Check that no other package here has a name of sayso's packages, which are common ones."""
    owners, names = packages_distributions(), ("bot", "engine", "prompt_state")
    hint = "Install sayso in a separate environment (pipx, uv tool, venv or the image): docs/production.md"
    others = [
        f"`{name}` of {owner}" for name in names for owner in sorted({*owners.get(name, ())} - {"sayso"})
    ]
    if others:
        text = (
            f"{', '.join(others)} has the same name as a package of sayso: one overwrites or hides the other"
        )
        yield Check("install", "fail", text, hint)
    elif sys.prefix == sys.base_prefix:
        text = f"sayso is installed in the system Python ({sys.prefix}), beside packages of other programs"
        yield Check("install", "warn", text, hint)
    else:
        yield Check("install", "ok", f"in {sys.prefix}; no other package is called {', '.join(names)}")


def check_user() -> Iterator[Check]:
    """Programs of flows run with the rights of this process."""
    if os.geteuid() == 0:
        text = "running as root, and so does every program that a flow runs"
        yield Check("user", "warn", text, "Run sayso as a separate user.")
    else:
        yield Check("user", "ok", "not running as root")


def check_settings(settings: Settings) -> Iterator[Check]:
    """Check for settings without effect. Reported only if there are any: a mistyped list of people is an open door."""
    for name in sorted(settings.env):
        if name.startswith("SAYSO_SECRET_") or name in (*KNOWN, *_OF_PROGRAMS):
            continue
        if name.startswith("SAYSO_"):
            near = get_close_matches(name, KNOWN, 1)
            hint = f"Did you mean {near[0]}?" if near else "docs/settings.md lists all settings."
            yield Check("settings", "warn", f"Unknown setting {name} (ignored)", hint)
    if settings.web.issuer and find_spec("authlib") is None:
        text = "SAYSO_WEB_OIDC_ISSUER needs Authlib, which is not installed"
        yield Check("settings", "warn", text, "pip install 'sayso[web]'")
    groups = {entry for entry in settings.users if entry.startswith("@")}
    for name, entries in (("SAYSO_ADMINS", settings.admins), ("SAYSO_USERS", settings.users - groups)):
        for entry in sorted(entries):
            if not _PERSON.fullmatch(entry):
                hint = "Write a user id (U012ABCDEF) or an e-mail address."
                yield Check("settings", "warn", f"{name} has {entry!r}, which does not identify anyone", hint)


# --- flows -------------------------------------------------------------------------------------------------


def check_flows(settings: Settings) -> Iterator[Check]:
    """The folder of flows, its files, and the secrets and MCP servers that they name."""
    if not settings.flows.is_dir():
        text = f"the folder {settings.flows} does not exist"
        yield Check("flows", "warn", text, "Create it, or set SAYSO_FLOWS.")
        return
    flows, errors = load_flows(settings.flows)
    if errors:
        text = "\n".join(str(error) for error in errors.values())
        yield Check("flows", "fail", text, "The other flows are served; fix these to serve them again.")
    names = ", ".join(sorted(flows)) or "none"
    version = version_of(settings.flows)
    at = "" if version.revision is None else f" at {version.revision}"
    at += DIRTY if at and version.git and is_dirty(version.folder) else ""
    yield Check("flows", "ok" if flows else "warn", f"{len(flows)} in {settings.flows}{at}: {names}")
    if doubts := flow_warnings(flows.values()):
        text = "\n".join(f"{doubt.file}:{doubt.line}:{doubt.column}: {doubt.message}" for doubt in doubts)
        yield Check("flows", "warn", text, "`sayso validate` shows what to write instead.")
    if version.unfinished:
        yield Check("flows", "warn", f"a running bot keeps its current flows: {version.unfinished}")
    if version.revision is None and (theirs := passed_over(settings.flows)):
        text = f"sessions record no commit: {theirs} belongs to another user, or others can write to it"
        yield Check("flows", "warn", text, "Make root or the bot's user its owner, and chmod go-w.")
    source = SecretSource(settings.env, settings.secrets_dir, settings.secret_command)
    wanted = {(name, flow.name) for flow in flows.values() for name in flow.secrets}
    for flow in flows.values():
        wanted |= {(trigger.secret, flow.name) for trigger in flow.triggers if trigger.secret is not None}
    for name, flow_name in sorted(wanted):
        try:
            source.get(name)
        except SaysoError as error:
            yield Check("secrets", "warn", f"flow {flow_name}: {error}")
    yield from check_mcp(settings, flows)


# --- the database ------------------------------------------------------------------------------------------


def check_database(settings: Settings, *, deep: bool = False) -> Iterator[Check]:
    """Check that it opens, is sound and ours alone, and its pending work."""
    file = database_file(settings)
    if file is None:
        if settings.database_url == "memory:":
            yield Check("database", "warn", "memory: is not kept", "Use a file: sqlite:///path.")
        else:
            yield from _check_opened(settings, place_of(settings.database_url), deep=deep)
        return
    if not file.exists():
        folder = next(parent for parent in file.parents if parent.exists())
        if os.access(folder, os.W_OK | os.X_OK):
            yield Check("database", "ok", f"{file} does not exist yet; it is created at the first start")
        else:
            yield Check("database", "fail", f"{file} cannot be created: {folder} is not writable")
        return
    problem = _quick_check(file)
    if problem is not None and not os.access(file.parent, os.W_OK | os.X_OK):
        text = f"{file.parent} is not writable for this user, and SQLite creates files there"
        hint = "Run doctor as the user who runs sayso, or make the folder writable."
        yield Check("database", "fail", f"{file} cannot be opened: {text}", hint)
        return
    if problem is not None:
        yield Check("database", "fail", f"{file}: {problem}", "Restore it from a backup, with its key file.")
        return
    yield from _check_opened(settings, f"{file}: pages are intact; it", deep=deep)


def _check_opened(settings: Settings, what: str, *, deep: bool) -> Iterator[Check]:
    """Check that the store opens, and its pending work."""
    try:
        store = open_store(settings.database_url, settings.secret_key, settings.encryption_keys)
    except StorageError as error:
        yield Check("database", "fail", str(error))
        return
    with closing(store):
        try:
            yield Check("database", "ok", f"{what} opens with its key, schema is current")
            if store.dated:
                yield from check_freshness(store)
            yield from check_encryption(store)
            yield from check_audit_key(settings, store)
            yield from _check_content(store)
            yield from check_listening(store, settings.listen_url)
            if deep:
                yield from check_deep(store)
        except StorageError as error:
            yield Check("database", "fail", str(error))


def _quick_check(file: Path) -> str | None:
    """Return SQLite's own finding, or None for a sound file. Opened read-only, so that nothing is repaired."""
    import apsw

    try:
        connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
        with closing(connection):
            connection.set_busy_timeout(2000)
            found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(3)")]
    except apsw.Error as error:
        return str(error)
    return None if found == ["ok"] else "; ".join(found)


def _check_content(store: Store) -> Iterator[Check]:
    heads = store.sessions.heads(limit=None)
    open_ones = [head for head in heads if head.status in ("running", "paused")]
    aside = [head for head in heads if head.quarantined]
    lost = [head for head in heads if head.phase == "unreachable"]
    newer = [head for head in open_ones if _is_newer(store, head)]
    yield from _some(
        "sessions", "fail", aside, "on hold, records damaged", "sayso sessions show {} shows what is wrong."
    )
    yield Check("sessions", "ok", f"{len(heads)} kept, {len(open_ones)} open")
    hint = "sayso sessions show {} shows why. Each continues once the bot can post there again."
    yield from _some("reach", "warn", lost, "out of reach of Slack", hint)
    hint = "They are not changed, and continue when that release is installed again."
    yield from _some("newer", "warn", newer, "written by a newer release", hint)
    for why, wanting in lacking(store).items():
        some = ", ".join(head.session_id for head in wanting[:5])
        hint = (
            "Fix this where sayso runs. Otherwise they are put on hold there until you fix it, restart "
            f"sayso, and run: sayso sessions release {wanting[0].session_id}"
        )
        text = f"{why}: open sessions use it, {len(wanting)} in all: {some}"
        yield Check("packages", "warn", text, hint)
    unsent, untaken = len(store.outbox.due(now=_FAR, limit=None)), len(store.inbox.rows(limit=None))
    running = "bot" in store.serving()
    if (unsent or untaken) and not running:
        text = f"{unsent} to send and {untaken} to handle, and no bot runs on this database"
        yield Check("queues", "warn", text, "They are kept until the bot runs: sayso start")
    else:
        runs = "runs" if running else "does not run"
        yield Check("queues", "ok", f"{unsent} to send, {untaken} to handle; the bot {runs}")
    yield from check_fleet(store)
    if letters := store.inbox.dead_letters():
        hint = "sayso inbox list shows why; then sayso inbox retry ID, or drop ID."
        yield Check("inbox", "warn", f"{len(letters)} could not be handled (dead letters)", hint)
    yield from _check_age(store, running)


def _some(name: str, level: Level, heads: Sequence[Head], what: str, hint: str) -> Iterator[Check]:
    """Sessions of which something has to be said; `{}` in the hint is the first of them."""
    ids = [head.session_id for head in heads]
    if ids:
        yield Check(name, level, f"{len(ids)} {what}: {', '.join(ids[:5])}", hint.format(ids[0]))


def _is_newer(store: Store, head: Head) -> bool:
    try:
        stored_state(store, head.session_id)
        flow_from_body(store.flows.text(head.flow_digest))
    except SchemaTooNew:
        return True
    except SaysoError:
        pass
    return False


def _check_age(store: Store, running: bool) -> Iterator[Check]:
    """Check the wait of the oldest message, and the time of the last event."""
    now = timestamps.to_text(datetime.now(UTC))
    oldest = min((row.created_at for row in store.outbox.due(now=_FAR, limit=None)), default=now)
    waits = timestamps.seconds_between(oldest, now)
    if running and waits > LATE_SECONDS:
        text = f"the oldest message has been waiting to be sent for {waits / 60:.0f} min"
        yield Check("backlog", "warn", text, "Slack may be down or limiting the app: see the bot's log.")
    yield from check_limits(store)
    heard = store.marks.ts(HEARD)
    if running and heard is not None:
        ago = datetime.now(UTC).timestamp() - float(heard)
        yield Check("events", "ok", f"the last event came {max(0.0, ago) / 60:.0f} min ago")
    if refused := store.marks.ts(AGENT_REFUSED):
        hint = "Agent features are off; everything else works. They may need a paid plan, or a reinstall of the app."
        yield Check("agent", "warn", f"Slack refuses agent features: {refused}", hint)


def check_limits(store: Store) -> Iterator[Check]:
    """Methods of Slack that the bot has used up: how many rows wait for them, and until when."""
    now = datetime.now(UTC)
    rows = [method_of(row) for row in store.outbox.due(now=_FAR, limit=None)]
    for scope, ts in store.marks.rows(FULL):
        until = datetime.fromtimestamp(float(ts), UTC)
        if (now - until).total_seconds() < NOTED_SECONDS:
            method = scope.removeprefix(FULL)
            text = f"Slack's limit of {method} is used up: {rows.count(method)} wait, until about {until:%H:%M:%S} UTC"
            yield Check("limits", "warn", text, "Nothing is lost. docs/settings.md, SAYSO_SLACK_LIMITS.")


# --- Slack -------------------------------------------------------------------------------------------------


async def check_slack(settings: Settings, flows: Sequence[Flow]) -> AsyncIterator[Check]:
    """Both tokens, the granted scopes, and whether threads can be read."""
    try:
        bot_token, app_token = slack_tokens(settings)
    except SettingsError as error:
        yield Check("tokens", "fail", str(error))
        return
    url = settings.api_url
    bot, app = bot_client(bot_token, url), bot_client(app_token, url)
    try:
        async with asyncio.timeout(SLACK_SECONDS):
            others = {"SAYSO_ADMINS": settings.admins, "SAYSO_USERS": settings.users}
            found = [check async for check in _ask_slack(bot, app, url, flows, others)]
    except TimeoutError:
        text = f"Slack at {url} did not answer within {SLACK_SECONDS:g} s"
        found = [Check("slack", "fail", text, "Check the network, a proxy, and SLACK_API_URL.")]
    for check in found:
        yield check


async def _ask_slack(
    bot: Any, app: Any, url: str, flows: Sequence[Flow], others: Mapping[str, Iterable[str]]
) -> AsyncIterator[Check]:
    try:
        who = await bot.auth_test()
        yield Check("bot token", "ok", f"@{who.get('user')} in {who.get('team')} ({who.get('team_id')})")
    except Exception as error:
        yield Check("bot token", "fail", describe(error, token="SLACK_BOT_TOKEN", api_url=url))
        who = None
    try:
        await app.apps_connections_open(app_token=app.token)
        yield Check("app token", "ok", "opens Socket Mode connections")
    except Exception as error:
        yield Check("app token", "fail", describe(error, token="SLACK_APP_TOKEN", api_url=url))
    if who is not None:
        headers = {name.lower(): value for name, value in (who.headers or {}).items()}
        report = scope_report(headers.get("x-oauth-scopes"), needed_by(flows))
        level: Level = "fail" if report.fatal else "warn" if report.missing else "ok"
        yield Check("scopes", level, report.text())
        async for check in check_reading(bot):
            yield check
        async for check in check_named(bot, flows, others):
            yield check
