"""Settings of a process: from the environment, and from `.env` for what the environment does not say."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Literal, NamedTuple

from engine.language.codec import Json, decode
from engine.language.durations import parse_duration
from engine.language.errors import NotJson, SaysoError


class SettingsError(SaysoError):
    """A setting is missing or cannot be used; says which one and what it should be."""

    code = "settings"


class Rate(NamedTuple):
    """So many starts, or calls, within so many seconds."""

    most: int
    seconds: float


class Rates(NamedTuple):
    """How often flows may be started; None means as often as anybody likes."""

    person: Rate | None = Rate(20, 60.0)
    channel: Rate | None = Rate(60, 60.0)
    workspace: Rate | None = Rate(300, 60.0)


DEFAULT_RATES = Rates()
DEFAULT_CATCH_UP = Rate(40, 60.0)
"""Slack allows some fifty calls a minute of the methods that read conversations."""


@dataclass(frozen=True)
class AgentSettings:
    """What agents are set to. `prices` replace those that are known, or add to them."""

    model: str | None = None
    prices: Mapping[str, Json] = field(default_factory=dict)
    day_cap: Decimal | None = Decimal(50)
    """Dollars that all model calls of a day (UTC) may cost; None is without a cap."""
    script: Path | None = None
    scripted: Literal["never", "named", "without_key"] = "named"
    """When scripts answer in place of Claude: never, when `script` names one, or also where there is no key."""
    link_hosts: frozenset[str] = frozenset()
    """Hosts to which links of a model stay links; `*.example.com` is every host below it."""
    mcp_config: Path | None = None


@dataclass(frozen=True)
class Settings:
    """What an installation is set to. Paths are absolute; tokens are never printed."""

    home: Path
    flows: Path
    database_url: str
    bot_token: str | None = field(default=None, repr=False)
    app_token: str | None = field(default=None, repr=False)
    api_url: str = "https://slack.com/api/"
    secret_key: bytes | None = field(default=None, repr=False)
    snapshot_dir: Path | None = None
    secrets_dir: Path | None = None
    admins: frozenset[str] = frozenset()
    allow_guests: bool = False
    users: frozenset[str] = frozenset()
    """Entries of those in Slack who may use the bot at all; none means everybody."""
    channels: frozenset[str] = frozenset()
    """Ids of the channels in which flows may be started, and `dm`; none means everywhere."""
    rates: Rates = DEFAULT_RATES
    catch_up: Rate | None = DEFAULT_CATCH_UP
    """How often catch-up may call one method of Slack; None means as often as Slack answers."""
    connections: int = 2
    quiet_seconds: float = 600.0
    """After so long without any event sockets are opened anew, for a silent one looks like a quiet workspace."""
    retention_days: float = 90.0
    local_user: str = "local"
    agents: AgentSettings = field(default_factory=lambda: AgentSettings())
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The whole environment after `.env`: secrets are looked up here."""

    @property
    def mcp_file(self) -> Path:
        """The file that says which MCP servers there are; it need not exist."""
        return self.agents.mcp_config or self.flows / "mcp.json"


KNOWN = (
    *("SAYSO_FLOWS", "SAYSO_HOME", "SAYSO_DATABASE_URL", "SAYSO_SECRET_KEY", "SAYSO_SNAPSHOT_DIR"),
    *("SAYSO_RETENTION", "SAYSO_ADMINS", "SAYSO_ALLOW_GUESTS", "SAYSO_USERS", "SAYSO_CHANNELS"),
    *("SAYSO_RATE_PERSON", "SAYSO_RATE_CHANNEL", "SAYSO_RATE_WORKSPACE", "SAYSO_USER", "SAYSO_SECRETS_DIR"),
    *("SAYSO_CONNECTIONS", "SAYSO_QUIET", "SAYSO_CATCH_UP"),
    *("SAYSO_ANTHROPIC_API_KEY", "SAYSO_MODEL", "SAYSO_PRICES", "SAYSO_MAX_COST_PER_DAY", "SAYSO_SCRIPT"),
    *("SAYSO_LINK_HOSTS", "SAYSO_MCP_CONFIG"),
)
"""Every setting but the tokens, and the secrets of flows (`SAYSO_SECRET_…`)."""


def read_env_file(path: Path) -> dict[str, str]:
    """The variables of a `.env` file; none where there is no such file."""
    if not path.is_file():
        return {}
    from dotenv import dotenv_values

    return {name: value for name, value in dotenv_values(path).items() if value is not None}


def load_settings(
    environ: Mapping[str, str],
    *,
    cwd: Path,
    flows: str | None = None,
    home: str | None = None,
    database_url: str | None = None,
) -> Settings:
    """The settings for a process started in `cwd`; arguments win over the environment, that over `.env`.

    Raises `SettingsError`.
    """
    env = {**read_env_file(cwd / ".env"), **environ}
    _refuse_encryption(env)
    home_path = (cwd / (home or env.get("SAYSO_HOME") or ".sayso")).resolve()
    url = database_url or env.get("SAYSO_DATABASE_URL") or f"sqlite:///{home_path / 'sayso.db'}"
    key = env.get("SAYSO_SECRET_KEY")
    return Settings(
        home=home_path,
        flows=(cwd / (flows or env.get("SAYSO_FLOWS") or "flows")).resolve(),
        database_url=_absolute(url, cwd),
        bot_token=env.get("SLACK_BOT_TOKEN") or None,
        app_token=env.get("SLACK_APP_TOKEN") or None,
        api_url=_base_url(env.get("SLACK_API_URL") or "https://slack.com/api/"),
        secret_key=key.encode() if key else None,
        snapshot_dir=_path(env.get("SAYSO_SNAPSHOT_DIR"), cwd),
        secrets_dir=_path(env.get("SAYSO_SECRETS_DIR"), cwd),
        admins=_names(env, "SAYSO_ADMINS"),
        allow_guests=_boolean(env, "SAYSO_ALLOW_GUESTS"),
        users=_names(env, "SAYSO_USERS"),
        channels=_channels(env, "SAYSO_CHANNELS"),
        rates=Rates(
            person=_rate(env, "SAYSO_RATE_PERSON", DEFAULT_RATES.person),
            channel=_rate(env, "SAYSO_RATE_CHANNEL", DEFAULT_RATES.channel),
            workspace=_rate(env, "SAYSO_RATE_WORKSPACE", DEFAULT_RATES.workspace),
        ),
        catch_up=_rate(env, "SAYSO_CATCH_UP", DEFAULT_CATCH_UP),
        connections=int(_number(env, "SAYSO_CONNECTIONS", 2, least=1, most=10)),
        quiet_seconds=_seconds(env, "SAYSO_QUIET", "10m"),
        retention_days=_number(env, "SAYSO_RETENTION", 90, least=0.01, most=36500),
        local_user=_user(env),
        agents=_agents(env, cwd),
        env=env,
    )


def _refuse_encryption(env: Mapping[str, str]) -> None:
    """Nobody shall believe that a key which nothing uses protects anything."""
    for name in ("SAYSO_ENCRYPTION_KEY", "SAYSO_ENCRYPTION_KEYS"):
        if env.get(name):
            raise SettingsError(
                f"{name} is set, and this release encrypts nothing at rest: the database is signed and readable. "
                f"Unset {name}, and encrypt the disk that SAYSO_HOME is on."
            )


def slack_tokens(settings: Settings) -> tuple[str, str]:
    """The bot and app token. Raises `SettingsError` saying which is missing, or is the wrong one of the two."""
    wanted = (
        ("SLACK_BOT_TOKEN", settings.bot_token, "xoxb-"),
        ("SLACK_APP_TOKEN", settings.app_token, "xapp-"),
    )
    for name, token, prefix in wanted:
        if not token:
            raise SettingsError(
                f"{name} is not set. Put it into the environment or into .env (it starts with {prefix}); "
                "the README says where Slack shows it. To try sayso without Slack: sayso dev"
            )
        if not token.startswith(prefix):
            raise SettingsError(f"{name} does not start with {prefix}: is it the other token?")
    return settings.bot_token or "", settings.app_token or ""


def _absolute(url: str, cwd: Path) -> str:
    prefix = "sqlite:///"
    if not url.startswith(prefix):
        return url
    # Not `resolve()`: a database that is a symbolic link has to be seen as one, and is refused.
    return prefix + os.path.abspath(cwd / url.removeprefix(prefix))


def _base_url(url: str) -> str:
    return url if url.endswith("/") else url + "/"


def _path(value: str | None, cwd: Path) -> Path | None:
    return (cwd / value).resolve() if value else None


def _boolean(env: Mapping[str, str], name: str) -> bool:
    value = env.get(name, "").strip().lower()
    if value in ("", "0", "false", "no", "off"):
        return False
    if value in ("1", "true", "yes", "on"):
        return True
    raise SettingsError(f"{name} is {value!r}; it takes true or false.")


def _number(env: Mapping[str, str], name: str, default: float, *, least: float, most: float) -> float:
    raw = env.get(name)
    if not raw:
        return default
    try:
        value = float(raw.rstrip("d"))
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise SettingsError(f"{name} is {raw!r}; it takes a number from {least:g} to {most:g}.")
    return value


def _seconds(env: Mapping[str, str], name: str, default: str) -> float:
    raw = env.get(name, "").strip() or default
    try:
        return parse_duration(raw)
    except ValueError:
        raise SettingsError(f"{name} is {raw!r}; it takes a time, such as 10m.") from None


def _names(env: Mapping[str, str], name: str) -> frozenset[str]:
    return frozenset(entry.strip() for entry in env.get(name, "").split(",") if entry.strip())


def _channels(env: Mapping[str, str], name: str) -> frozenset[str]:
    found = _names(env, name)
    for entry in sorted(found):
        if entry != "dm" and not re.fullmatch(r"[CGD][A-Z0-9]{2,}", entry):
            raise SettingsError(
                f"{name} has {entry!r}; it takes ids of channels (C012345), and `dm` for direct messages. A name "
                "can be given to another channel, so names do not count here."
            )
    return found


def _agents(env: Mapping[str, str], cwd: Path) -> AgentSettings:
    return AgentSettings(
        model=env.get("SAYSO_MODEL", "").strip() or None,
        prices=_prices(env, cwd),
        day_cap=_dollars(env, "SAYSO_MAX_COST_PER_DAY", AgentSettings.day_cap),
        script=_path(env.get("SAYSO_SCRIPT"), cwd),
        link_hosts=_hosts(env, "SAYSO_LINK_HOSTS"),
        mcp_config=_path(env.get("SAYSO_MCP_CONFIG"), cwd),
    )


def _prices(env: Mapping[str, str], cwd: Path) -> Mapping[str, Json]:
    """Prices from JSON, or from a file of JSON."""
    raw = env.get("SAYSO_PRICES", "").strip()
    if not raw:
        return {}
    from engine.messages.prices import InvalidPrice, prices_from

    try:
        given = decode((cwd / raw).read_bytes() if not raw.startswith("{") else raw.encode())
        prices_from(given, {})
    except (OSError, ValueError, NotJson) as error:
        raise SettingsError(
            f"SAYSO_PRICES takes prices as JSON, or the name of a file with them: {error}."
        ) from None
    except InvalidPrice as error:
        raise SettingsError(f"SAYSO_PRICES: {error}.") from None
    return dict(given)


def _dollars(env: Mapping[str, str], name: str, default: Decimal | None) -> Decimal | None:
    raw = env.get(name, "").strip()
    if not raw:
        return default
    if raw.lower() in ("off", "none"):
        return None
    try:
        value = Decimal(raw.removeprefix("$"))
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or not 0 <= value <= 1_000_000:
        raise SettingsError(f"{name} is {raw!r}; it takes dollars, such as 50 or 2.50, or `none`.")
    return value


def _hosts(env: Mapping[str, str], name: str) -> frozenset[str]:
    found = frozenset(entry.lower() for entry in _names(env, name))
    for entry in sorted(found):
        if not re.fullmatch(r"(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)*", entry):
            raise SettingsError(
                f"{name} has {entry!r}; it takes names of hosts (grafana.example.com), and *.example.com for all below."
            )
    return found


def _rate(env: Mapping[str, str], name: str, default: Rate | None) -> Rate | None:
    raw = env.get(name, "").strip()
    if not raw:
        return default
    if raw.lower() in ("off", "none"):
        return None
    most, _, span = raw.partition("/")
    try:
        rate = Rate(int(most), parse_duration(span or "1m"))
    except ValueError:
        rate = Rate(0, 0.0)
    if rate.most < 1 or rate.seconds <= 0:
        raise SettingsError(f"{name} is {raw!r}; it takes a number and a time, such as 20/1m, or `off`.")
    return rate


def _user(env: Mapping[str, str]) -> str:
    try:
        return env.get("SAYSO_USER") or getpass.getuser()
    except (KeyError, OSError):
        return "local"
