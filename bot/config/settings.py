"""Settings of a process: from the environment, and from `.env` for variables that the environment lacks."""

from __future__ import annotations

import getpass
import logging
import os
import pwd
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from decimal import Decimal, InvalidOperation
from functools import cache, cached_property
from io import StringIO
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bot.config.ownership import is_ours
from engine.language.codec import Json, decode
from engine.language.errors import NotJson, SaysoError
from engine.language.timestamps import parse_duration
from engine.nodes.runtime.folder import content

log = logging.getLogger("sayso")
_MOST_BYTES = 1024 * 1024
_SQLITE = "sqlite:///"

LEVELS = ("debug", "info", "warning", "error", "critical")


class SettingsError(SaysoError):
    """A setting is missing or invalid; the message names it and its format."""

    code = "settings"


class Rate(NamedTuple):
    """So many starts, or calls, within so many seconds."""

    most: int
    seconds: float


class Address(NamedTuple):
    """Address of a listener."""

    host: str
    port: int


# --- how a setting is read ---------------------------------------------------------------------------------


def setting(name: str, read: Callable[[str, Path], Any], default: Any = None, **options: Any) -> Any:
    """Define a field set by an environment variable. `read` converts the text, given the folder in which sayso is
    started; it raises `ValueError` with the accepted format, or `SettingsError`."""
    if "default_factory" not in options:
        options["default"] = default
    return field(metadata={"env": name, "read": read}, **options)


def _text(raw: str, cwd: Path) -> str:
    return raw.strip()


def _words(raw: str, cwd: Path) -> tuple[str, ...]:
    import shlex

    try:
        return tuple(shlex.split(raw))
    except ValueError:
        raise ValueError("a program and its arguments, quoted as in a shell") from None


def _path(raw: str, cwd: Path) -> Path:
    return (cwd / raw).resolve()


def _base_url(raw: str, cwd: Path) -> str:
    return raw if raw.endswith("/") else raw + "/"


def _blobs(raw: str, cwd: Path) -> str:
    if not re.match(r"(s3|gs|az)://[^/]|file:///.", raw):
        raise ValueError("s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///folder")
    return raw.rstrip("/")


def _checkpoints(raw: str, cwd: Path) -> str:
    if raw.startswith(("https://", "http://")):
        return raw.strip()
    path = (cwd / raw.removeprefix("git:").strip()).resolve()
    if raw.startswith("git:") and not (path / ".git").exists():
        raise ValueError("git:PATH of an existing clone")
    return f"git:{path}" if raw.startswith("git:") else str(path)


def _server(raw: str, cwd: Path) -> str:
    if not raw.startswith(("postgresql://", "postgres://")):
        raise SettingsError(
            "SAYSO_DATABASE_LISTEN_URL takes postgresql://user@host/name, the direct address of the database."
        )
    return raw.strip()


def _boolean(raw: str, cwd: Path) -> bool:
    value = raw.strip().lower()
    if value not in ("0", "false", "no", "off", "1", "true", "yes", "on"):
        raise ValueError("true or false")
    return value in ("1", "true", "yes", "on")


def _number(
    least: float, most: float, make: Callable[[float], float] = float
) -> Callable[[str, Path], float]:
    def read(raw: str, cwd: Path) -> float:
        try:
            value = float(raw.strip().rstrip("d"))
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise ValueError(f"a number from {least:g} to {most:g}")
        return make(value)

    return read


def _key(raw: str, cwd: Path) -> bytes:
    """Return a secret as bytes; with `hex:` the bytes of a key file."""
    digits = raw.strip().removeprefix("hex:")
    return bytes.fromhex(digits) if raw.startswith("hex:") and _KEY_FILE.fullmatch(digits) else raw.encode()


_KEY_FILE = re.compile("[0-9a-f]{64}")
KEYS_SETTING = "SAYSO_ENCRYPTION_KEYS"
_ELSEWHERE = "secret"
"""Value instead of keys: a file or a command supplies them as a secret."""


def _encryption_keys(raw: str, cwd: Path) -> tuple[bytes, ...] | str:
    """Parse keys given as hex digits. Errors do not quote them."""
    if raw.strip() == _ELSEWHERE:
        return _ELSEWHERE
    found = raw.replace(",", " ").split()
    for number, one in enumerate(found, 1):
        if not re.fullmatch("[0-9a-fA-F]{64}", one):
            raise SettingsError(
                f"{KEYS_SETTING} takes keys of 64 hex digits, separated by commas, or the word `secret`; number {number} "
                f"has {len(one)} characters. Make one: python -c 'import secrets; print(secrets.token_hex(32))'"
            )
    return tuple(map(bytes.fromhex, found))


def _seconds(raw: str, cwd: Path) -> float:
    try:
        return parse_duration(raw.strip())
    except ValueError:
        raise ValueError("a time, such as 10m") from None


def _names(raw: str, cwd: Path) -> frozenset[str]:
    found = frozenset(entry.strip() for entry in raw.split(",") if entry.strip())
    if not found:
        raise ValueError("one or more entries, separated by commas")
    return found


def _matching(pattern: str, takes: str, *, lower: bool = False) -> Callable[[str, Path], frozenset[str]]:
    def read(raw: str, cwd: Path) -> frozenset[str]:
        found = _names(raw.lower() if lower else raw, cwd)
        for entry in sorted(found):
            if not re.fullmatch(pattern, entry):
                raise _Entry(entry, takes)
        return found

    return read


class _Entry(ValueError):
    """One of several entries is invalid."""


def _prices(raw: str, cwd: Path) -> Mapping[str, Json]:
    """Prices from JSON, or from a file of JSON."""
    from engine.messages.prices import InvalidPrice, prices_from

    raw = raw.strip()
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


_LIMITS = ("a_minute", "spare", "channel_a_minute", "channel_ahead")


def _slack_limits(raw: str, cwd: Path) -> Mapping[str, Mapping[str, float]] | None:
    """Limits of Slack from JSON, or from a file of JSON."""
    raw = raw.strip()
    if raw.lower() in ("off", "none"):
        return None
    try:
        given = decode((cwd / raw).read_bytes() if not raw.startswith("{") else raw.encode())
        return {str(method): _limit(limit) for method, limit in given.items()}
    except (OSError, NotJson, AttributeError, TypeError, ValueError):
        raise ValueError(
            '`off`, JSON such as {"chat.update": {"a_minute": 25}}, or the name of a file with it'
        ) from None


def _limit(given: Mapping[str, Json]) -> Mapping[str, float]:
    if not given.keys() <= {*_LIMITS} or any(not float(given[name]) >= 0 for name in given):
        raise ValueError
    return dict(given)


def _dollars(raw: str, cwd: Path) -> Decimal | None:
    if raw.strip().lower() in ("off", "none"):
        return None
    try:
        value = Decimal(raw.strip().removeprefix("$"))
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or not 0 <= value <= 1_000_000:
        raise ValueError("dollars, such as 50 or 2.50, or `none`")
    return value


def _address(raw: str, cwd: Path) -> Address:
    host, _, port = raw.strip().rpartition(":")
    if not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        raise ValueError("a port, or an address and a port: 9464, 0.0.0.0:9464")
    return Address(host.strip("[]") or "127.0.0.1", int(port))


def _log_format(raw: str, cwd: Path) -> bool:
    if raw.strip().lower() not in ("text", "json"):
        raise ValueError("text or json")
    return raw.strip().lower() == "json"


def _log_levels(raw: str, cwd: Path) -> Mapping[str, str]:
    found = {}
    for entry in raw.lower().split(","):
        name, _, level = entry.strip().rpartition("=")
        if level not in LEVELS:
            raise ValueError(
                f"a level ({', '.join(LEVELS)}), optionally with levels for parts: info,sayso.slack=debug"
            )
        found[name.strip()] = level
    return found


def _rate(raw: str, cwd: Path) -> Rate | None:
    if raw.strip().lower() in ("off", "none"):
        return None
    most, _, span = raw.strip().partition("/")
    try:
        rate = Rate(int(most), parse_duration(span or "1m"))
    except ValueError:
        rate = Rate(0, 0.0)
    if rate.most < 1 or rate.seconds <= 0:
        raise ValueError("a number and a time, such as 20/1m, or `off`")
    return rate


_CHANNELS = _matching(
    r"dm|[CGD][A-Z0-9]{2,}",
    "channel IDs (C012345), and `dm` for direct messages. Names are not accepted, because a name can move "
    "to another channel",
)
_HOSTS = _matching(
    r"(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)*",
    "host names (grafana.example.com), and *.example.com for all subdomains",
    lower=True,
)

_LEVELS = ("mention", "requester", "thread")


def _listens(raw: str, cwd: Path) -> Mapping[str, str]:
    found = {}
    for entry in _names(raw, cwd):
        place, _, level = entry.rpartition("=")
        if level not in _LEVELS or (place and not re.fullmatch(r"dm|[CGD][A-Z0-9]{2,}", place)):
            raise ValueError(
                f"{', '.join(_LEVELS)}, optionally with others by channel ID or `dm`: "
                "requester,C012345=thread"
            )
        found[place] = level
    return found


# --- the settings ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rates:
    """Rate limits for starting flows; None means no limit."""

    person: Rate | None = setting("SAYSO_RATE_PERSON", _rate, Rate(20, 60.0))
    channel: Rate | None = setting("SAYSO_RATE_CHANNEL", _rate, Rate(60, 60.0))
    workspace: Rate | None = setting("SAYSO_RATE_WORKSPACE", _rate, Rate(300, 60.0))


@dataclass(frozen=True)
class AgentSettings:
    """Settings of agents. `prices` replace or extend the known ones."""

    model: str | None = setting("SAYSO_MODEL", _text)
    prices: Mapping[str, Json] = setting("SAYSO_PRICES", _prices, default_factory=dict)
    day_cap: Decimal | None = setting("SAYSO_MAX_COST_PER_DAY", _dollars, Decimal(50))
    """Dollars that all model calls of a day (UTC) may cost; None is without a cap."""
    script: Path | None = setting("SAYSO_SCRIPT", _path)
    scripted: Literal["never", "named", "without_key"] = "named"
    """Use of scripts instead of Claude: never, when `script` names one, or also without a key."""
    link_hosts: frozenset[str] = setting("SAYSO_LINK_HOSTS", _HOSTS, frozenset())
    """Hosts to which links of a model stay links; `*.example.com` is every host below it."""
    mcp_config: Path | None = setting("SAYSO_MCP_CONFIG", _path)
    listens: Mapping[str, str] = setting("SAYSO_LISTEN", _listens, default_factory=dict)
    """Most that agents may hear, whatever their flows say: by id of a channel, `dm`, and under the empty name
    everywhere else."""


@dataclass(frozen=True)
class WebSettings:
    """Login to the control room from other machines: by an OIDC provider, or by a proxy in front."""

    url: str | None = setting("SAYSO_WEB_URL", _base_url)
    """Public URL of the page."""
    issuer: str | None = setting("SAYSO_WEB_OIDC_ISSUER", _base_url)
    client_id: str | None = setting("SAYSO_WEB_OIDC_CLIENT", _text)
    client_secret: str | None = setting("SAYSO_WEB_OIDC_SECRET", _text, repr=False)
    proxy_header: str | None = setting("SAYSO_WEB_PROXY_HEADER", _text)
    """Header with which a proxy identifies a person."""
    proxy_secret: str | None = setting("SAYSO_WEB_PROXY_SECRET", _text, repr=False)
    users: frozenset[str] = setting("SAYSO_WEB_USERS", _names, frozenset())
    """Slack ids and e-mail addresses of people who may view it, beside the admins."""


@dataclass(frozen=True)
class Settings:
    """Settings of an installation. Paths are absolute; tokens are never printed."""

    home: Path
    flows: Path
    database_url: str
    bot_token: str | None = setting("SLACK_BOT_TOKEN", _text, repr=False)
    app_token: str | None = setting("SLACK_APP_TOKEN", _text, repr=False)
    api_url: str = setting("SLACK_API_URL", _base_url, "https://slack.com/api/")
    listen_url: str | None = setting("SAYSO_DATABASE_LISTEN_URL", _server, repr=False)
    """The database's own address, if `database_url` is a pooler's: notifications of commits arrive there."""
    secret_key: bytes | None = setting("SAYSO_SECRET_KEY", _key, repr=False)
    given_keys: tuple[bytes, ...] | str = setting(KEYS_SETTING, _encryption_keys, (), repr=False)
    snapshot_dir: Path | None = setting("SAYSO_SNAPSHOT_DIR", _path)
    blobs: str | None = setting("SAYSO_BLOBS", _blobs)
    """Shared storage of session files; None uses the home alone."""
    secrets_dir: Path | None = setting("SAYSO_SECRETS_DIR", _path)
    secret_command: tuple[str, ...] = setting("SAYSO_SECRET_COMMAND", _words, ())
    """A program that prints the secret that its last argument names."""
    admins: frozenset[str] = setting("SAYSO_ADMINS", _names, frozenset())
    allow_guests: bool = setting("SAYSO_ALLOW_GUESTS", _boolean, False)
    users: frozenset[str] = setting("SAYSO_USERS", _names, frozenset())
    """Entries of people in Slack who may use the bot at all; empty means everybody."""
    channels: frozenset[str] = setting("SAYSO_CHANNELS", _CHANNELS, frozenset())
    """Ids of the channels in which flows may be started, and `dm`; empty means everywhere."""
    rates: Rates = field(default_factory=Rates)
    slack_limits: Mapping[str, Mapping[str, float]] | None = setting(
        "SAYSO_SLACK_LIMITS", _slack_limits, default_factory=dict
    )
    """Replacements for Slack's published limits (`bot/wire/slack_limits.json`), by method; None disables our own
    limits."""
    connections: int = setting("SAYSO_CONNECTIONS", _number(1, 10, int), 2)
    reactions: bool = setting("SAYSO_REACTIONS", _boolean, True)
    """True if a reaction on the message that started a run shows how it stands."""
    quiet_seconds: float = setting("SAYSO_QUIET", _seconds, 600.0)
    """After so long without any event sockets are opened again, for a silent one looks like a quiet workspace."""
    people: Path | None = setting("SAYSO_PEOPLE", _path)
    """The file about people; without it `people.yml` in the home, which need not exist."""
    metrics: Address | None = setting("SAYSO_METRICS", _address)
    """Address for metrics and health checks; None disables them."""
    gate: Address | None = setting("SAYSO_GATE", _address)
    """Address for agents' requests; None disables it."""
    gate_rules: Path | None = None
    """File with the rules for agents, if it is not beside the flows."""
    log_json: bool = setting("SAYSO_LOG_FORMAT", _log_format, False)
    log_levels: Mapping[str, str] | None = setting("SAYSO_LOG_LEVEL", _log_levels)
    """Levels by the name of a logger, that of all others under the empty name; None as `-v` says."""
    checkpoints: str | None = setting("SAYSO_CHECKPOINTS", _checkpoints)
    """Place where checkpoints of the audit log are published: a file, a URL, or `git:` and a clone."""
    retention_days: float = setting("SAYSO_RETENTION", _number(0.01, 36500), 90.0)
    local_user: str = setting("SAYSO_USER", lambda raw, cwd: raw, "local")
    agents: AgentSettings = field(default_factory=AgentSettings)
    web: WebSettings = field(default_factory=WebSettings)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The whole environment after `.env`: secrets are looked up here."""

    @cached_property
    def encryption_keys(self) -> tuple[bytes, ...]:
        """Return the keys that encrypt bodies, the first for new ones. Raises `SettingsError`."""
        if not isinstance(self.given_keys, str):
            return self.given_keys
        from engine.nodes.runtime.secrets import ENCRYPTION_KEYS, SecretSource  # where they are a secret

        source = SecretSource(self.env, self.secrets_dir, self.secret_command)
        try:
            found = _encryption_keys(source.own(ENCRYPTION_KEYS), self.home)
        except SettingsError:
            raise
        except SaysoError as error:
            raise SettingsError(f"{KEYS_SETTING}=secret: {error}") from error
        if isinstance(found, str) or not found:
            raise SettingsError(f"{KEYS_SETTING}=secret: the secret {ENCRYPTION_KEYS} contains no keys.")
        return found

    @property
    def people_file(self) -> Path:
        """Return the file with managers and on-call rotas."""
        return self.people or self.home / "people.yml"

    @property
    def gate_file(self) -> Path:
        """Return the file with the rules for agents' calls, by default beside the folder of flows."""
        return self.gate_rules or self.flows.parent / "gate.yml"

    @property
    def mcp_file(self) -> Path:
        """The file that says which MCP servers there are; it need not exist."""
        return self.agents.mcp_config or self.flows / "mcp.json"


KNOWN = (
    *("SAYSO_FLOWS", "SAYSO_HOME", "SAYSO_DATABASE_URL", "SAYSO_ANTHROPIC_API_KEY", "SAYSO_ANTHROPIC_AUTH"),
    *(
        str(one.metadata["env"])
        for kind in (Settings, Rates, AgentSettings, WebSettings)
        for one in fields(kind)
        if str(one.metadata.get("env")).startswith("SAYSO_")
    ),
)
"""Every setting except the tokens, and the secrets of flows (`SAYSO_SECRET_…`)."""


_OURS = ("SAYSO_", "SLACK_", "ANTHROPIC_")
_STORE = "SAYSO_DATABASE_URL"
_NOBODY_ELSES = (
    *("SAYSO_SECRET_COMMAND", "SAYSO_MCP_CONFIG", "SAYSO_PEOPLE"),
    *("SLACK_API_URL", "ANTHROPIC_BASE_URL", "SAYSO_BLOBS", "SAYSO_WEB_URL", "SAYSO_WEB_OIDC_ISSUER", _STORE),
    *("SAYSO_DATABASE_LISTEN_URL", "SAYSO_CHECKPOINTS"),
)
"""Settings that name programs, or the destinations of tokens, keys and session content."""


def read_env_file(path: Path, environ: Mapping[str, str] = {}) -> dict[str, str]:
    """Return the variables of a `.env` file that the environment lacks; empty without a file. If others may have
    written it, it must name no programs, neither by a setting nor by a variable such as PATH, and no address to which
    secrets are sent. Raises `SettingsError`, also if such a file names the store: without it another one would be
    served."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}.") from error
    from dotenv import dotenv_values

    ours = is_ours(os.fstat(descriptor))
    text = (content(descriptor, _MOST_BYTES) or b"").decode(errors="replace")
    values = dotenv_values(stream=StringIO(text)).items()
    given = {name: value or "" for name, value in values if name not in environ}
    if ours:
        return given
    taken = {
        name: value for name, value in given.items() if name.startswith(_OURS) and name not in _NOBODY_ELSES
    }
    if left_out := sorted(given.keys() - taken.keys()):
        told = (
            f"{path} is writable by others, so {', '.join(left_out)} is not read from it. Restrict the file "
            "(chown, chmod go-w), or set it in the environment."
        )
        if _STORE in left_out:
            raise SettingsError(told)
        _say_once(told)
    return taken


@cache
def _say_once(text: str) -> None:
    log.warning("%s", text)


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
    env = {**read_env_file(cwd / ".env", environ), **environ}
    for name in KNOWN:
        if name in env and not env[name].strip() and not name.endswith("_API_KEY"):
            raise SettingsError(
                f"{name} has no value: set one, or remove the setting. In .env a # after a space begins a "
                "comment."
            )
    if env.get(one := KEYS_SETTING.removesuffix("S")):
        raise SettingsError(f"{one} has no effect: the setting is called {KEYS_SETTING}.")
    home_path = (cwd / (home or env.get("SAYSO_HOME") or ".sayso")).resolve()
    url = database_url or env.get("SAYSO_DATABASE_URL") or f"{_SQLITE}{home_path / 'sayso.db'}"
    given = _read(Settings, env, cwd)
    if "local_user" not in given:
        with suppress(KeyError, OSError):
            given["local_user"] = getpass.getuser()
    if url.startswith(_SQLITE):
        # Not `resolve()`: a database that is a symbolic link has to be recognized, and is refused.
        url = _SQLITE + os.path.abspath(cwd / url.removeprefix(_SQLITE))
    return Settings(
        home=home_path,
        flows=(cwd / (flows or env.get("SAYSO_FLOWS") or "flows")).resolve(),
        database_url=url,
        **given,
        rates=Rates(**_read(Rates, env, cwd)),
        agents=AgentSettings(**_read(AgentSettings, env, cwd)),
        web=WebSettings(**_read(WebSettings, env, cwd)),
        env=env,
    )


def _read(
    kind: type[Settings | Rates | AgentSettings | WebSettings], env: Mapping[str, str], cwd: Path
) -> dict[str, Any]:
    """The fields that the environment sets."""
    found = {}
    for one in fields(kind):
        name = str(one.metadata.get("env"))
        raw = env.get(name, "")
        if not raw.strip():
            continue
        try:
            found[one.name] = one.metadata["read"](raw, cwd)
        except _Entry as error:
            entry, takes = error.args
            raise SettingsError(f"{name} has {entry!r}; it takes {takes}.") from None
        except ValueError as error:
            raise SettingsError(f"{name} is {raw.strip()!r}; it takes {error}.") from None
    return found


def account() -> str:
    """The account of the operating system under which this process runs, whatever its environment says."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def slack_tokens(settings: Settings) -> tuple[str, str]:
    """The bot and app token. Raises `SettingsError` saying which is missing, or is the wrong one of the two."""
    wanted = (
        ("SLACK_BOT_TOKEN", settings.bot_token, "xoxb-"),
        ("SLACK_APP_TOKEN", settings.app_token, "xapp-"),
    )
    for name, token, prefix in wanted:
        if not token or token == f"{prefix}...":  # as `sayso init` writes it
            raise SettingsError(
                f"{name} is not set. Set it in .env or in the environment; it starts with {prefix} and "
                "docs/connect-slack.md says where Slack shows it. To try sayso without Slack: sayso dev"
            )
        if not token.startswith(prefix):
            raise SettingsError(f"{name} does not start with {prefix}: is it the other token?")
    return settings.bot_token or "", settings.app_token or ""
