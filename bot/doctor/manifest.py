"""The app's manifest against what the app and its flows need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from bot.doctor.findings import Check
from bot.wire.manifest import AGENT, EVENTS, NEEDED, events_for, has_shortcut, needed_by
from engine.flow import Flow
from engine.language.codec import Json
from engine.language.errors import FlowError
from engine.language.yaml import decode_source, load_located


def check_manifest(path: Path | None, flows: Sequence[Flow]) -> Iterator[Check]:
    """The app's manifest against what these flows need."""
    file = path or Path("manifest.yml")
    if not file.is_file():
        yield Check("manifest", "ok", "no manifest.yml here, so it was not checked (--manifest FILE)")
        return
    try:
        problems = list(manifest_problems(load_manifest(file), flows))
    except FlowError as error:
        yield Check("manifest", "fail", f"not readable: {error}")
        return
    if problems:
        hint = "`sayso manifest` prints the right one: paste it under App Manifest in the app's settings, and reinstall the app."
        yield Check("manifest", "fail", f"{file}: " + "; ".join(problems), hint)
    else:
        yield Check("manifest", "ok", f"{file} matches the needs of the app")


def load_manifest(file: Path) -> Json:
    """The manifest as data. Raises `FlowError` with the places where it is not YAML."""
    located = load_located(decode_source(file.read_bytes(), str(file)), str(file), empty=True)
    if located.problems:
        raise FlowError(located.problems)
    return located.data


def _at(data: Json, *keys: str) -> Json:
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _listed(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def manifest_problems(manifest: Json, flows: Sequence[Flow] | None = None) -> Iterator[str]:
    """The missing or excess parts of a manifest for the app to work with these flows; None means any flows. Pure."""
    if not isinstance(manifest, dict):
        yield "it is not a mapping"
        return
    for name, most in (("name", 35), ("description", 140)):
        text = _at(manifest, "display_information", name)
        if not isinstance(text, str) or not 1 <= len(text) <= most:
            yield f"display_information.{name} must be text of 1 to {most} characters"
    features, settings = _at(manifest, "features"), _at(manifest, "settings")
    if not _at(features, "bot_user", "display_name"):
        yield "features.bot_user is missing"
    if _at(features, "app_home", "home_tab_enabled") is not True:
        yield "features.app_home.home_tab_enabled must be true: the Home tab shows people's open questions"
    if _at(features, "app_home", "messages_tab_enabled") is not True:
        yield "features.app_home.messages_tab_enabled must be true: people send direct messages there"
    if _at(features, "app_home", "messages_tab_read_only_enabled") is not False:
        yield "features.app_home.messages_tab_read_only_enabled must be false"
    commands = [entry for entry in _listed(_at(features, "slash_commands")) if isinstance(entry, dict)]
    if "/sayso" not in [entry.get("command") for entry in commands]:
        yield "features.slash_commands has no /sayso"
    if any(entry.get("url") for entry in commands):
        yield "slash commands have no url in Socket Mode"
    needed = NEEDED if flows is None else needed_by(flows)
    wanted = EVENTS if flows is None else events_for(flows)
    if _at(features, "agent_view") is not None:
        needed, wanted = {**needed, **AGENT.scopes}, (*wanted, *AGENT.events)
    scopes = _listed(_at(manifest, "oauth_config", "scopes", "bot"))
    for scope in needed:
        if scope not in scopes:
            yield f"scope {scope} is missing: needed for {needed[scope]}"
    events = _listed(_at(settings, "event_subscriptions", "bot_events"))
    for event in wanted:
        if event not in events:
            yield f"event {event} is missing"
    wants_shortcut = flows is not None and any(map(has_shortcut, flows))
    if wants_shortcut and not _listed(_at(features, "shortcuts")):
        yield "features.shortcuts is missing: needed for flows that a message shortcut starts"
    modes = (
        (("socket_mode_enabled",), True),
        (("interactivity", "is_enabled"), True),
        (("token_rotation_enabled",), False),
    )
    for path, value in modes:
        if _at(settings, *path) is not value:
            yield f"settings.{'.'.join(path)} must be {'true' if value else 'false'}"
    for path in (("event_subscriptions", "request_url"), ("interactivity", "request_url")):
        if _at(settings, *path):
            yield f"settings.{'.'.join(path)} does not belong in a Socket Mode manifest"
