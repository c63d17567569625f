"""Settings of a process: from the environment, and from `.env` for what the environment does not say."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engine.errors import SaysoError


class SettingsError(SaysoError):
    """A setting is missing or cannot be used; says which one and what it should be."""

    code = "settings"


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
    connections: int = 2
    retention_days: float = 90.0
    local_user: str = "local"
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The whole environment after `.env`: secrets are looked up here."""


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
        admins=frozenset(name.strip() for name in env.get("SAYSO_ADMINS", "").split(",") if name.strip()),
        allow_guests=_boolean(env, "SAYSO_ALLOW_GUESTS"),
        connections=int(_number(env, "SAYSO_CONNECTIONS", 2, least=1, most=10)),
        retention_days=_number(env, "SAYSO_RETENTION", 90, least=0.01, most=36500),
        local_user=_user(env),
        env=env,
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
    return prefix + str((cwd / url.removeprefix(prefix)).resolve())


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


def _user(env: Mapping[str, str]) -> str:
    try:
        return env.get("SAYSO_USER") or getpass.getuser()
    except (KeyError, OSError):
        return "local"
