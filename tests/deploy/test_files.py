"""The files with which sayso is deployed name what there is: commands, settings, paths, and a user who is not root."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from bot.cli.app import ROOT as COMMANDS
from bot.serve.roles import ROLES

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/sayso"
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((ROOT / "compose.yml").read_text())["services"]["sayso"]
FLEET = yaml.safe_load((ROOT / "deploy/compose.fleet.yml").read_text())["services"]
WEB = yaml.safe_load((ROOT / "compose.yml").read_text())["services"]["web"]
WEB_UNIT = dict(re.findall(r"(?m)^(\w+)=(.*)$", (ROOT / "deploy/sayso-web.service").read_text()))
UNIT = dict(re.findall(r"(?m)^(\w+)=(.*)$", (ROOT / "deploy/sayso.service").read_text()))
SECURED = (
    "ProtectSystem=strict",
    "NoNewPrivileges=yes",
    "CapabilityBoundingSet=",
    "SystemCallFilter=@system-service",
)


def known(words: list[str]) -> bool:
    """Whether a command line calls a command that there is, with options that it has."""
    name, command, *options = words
    there = COMMANDS.commands[command]
    flags = {flag for one in there.options for flag in one.flags}
    return Path(name).name == "sayso" and {word for word in options if word.startswith("--")} <= flags


def pod(template: str = "statefulset.yaml") -> dict[str, Any]:
    """A pod of the chart, with what its templates would insert left out."""
    text = (CHART / "templates" / template).read_text()
    lines = [line for line in text.splitlines() if not re.match(r"\s*\{\{.*\}\}$", line)]
    plain = re.sub(r'"?\{\{[^}]*\}\}"?(:\{\{[^}]*\}\}"?)?', "x", "\n".join(lines))
    found: dict[str, Any] = yaml.safe_load(plain)["spec"]["template"]["spec"]
    return found


def test_what_is_started_and_what_checks_its_health_are_commands() -> None:
    """In the image, under systemd, in the chart."""
    said = re.search(r"HEALTHCHECK .* CMD (\[.*\])", DOCKERFILE)
    assert said is not None
    container, web = pod()["containers"]
    lines = [
        yaml.safe_load(said[1]),
        shlex.split(UNIT["ExecStart"]),
        *(container[probe]["exec"]["command"] for probe in ("startupProbe", "livenessProbe")),
        ["sayso", *container["args"]],
        ["sayso", *(word.partition("=")[0] for word in web["args"])],
        ["sayso", *WEB["command"]],
        shlex.split(WEB_UNIT["ExecStart"]),
    ]
    assert [line for line in lines if not known(line)] == []
    assert 'ENTRYPOINT ["sayso"]\nCMD ["start"]' in DOCKERFILE


def test_nothing_runs_as_root_or_writes_outside_of_its_home() -> None:
    """One user id everywhere; the root file system is read-only, and nobody gets more rights than that."""
    (user,) = re.findall(r"(?m)^USER (\d+):\d+$", DOCKERFILE)
    assert f"useradd --uid {user}" in DOCKERFILE
    assert DOCKERFILE.rindex("USER ") > DOCKERFILE.rindex("RUN ")
    found = pod()
    container, web = found["containers"]
    assert (found["securityContext"]["runAsUser"], found["securityContext"]["runAsNonRoot"]) == (
        int(user),
        True,
    )
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert web["securityContext"] == container["securityContext"]
    assert (COMPOSE["read_only"], COMPOSE["cap_drop"]) == (True, ["ALL"])
    assert (WEB["read_only"], WEB["cap_drop"]) == (True, ["ALL"])
    assert UNIT["User"] == "sayso"
    for unit in ("sayso.service", "sayso-web.service"):
        text = (ROOT / "deploy" / unit).read_text()
        assert [line for line in SECURED if f"\n{line}\n" not in text] == []


def test_each_role_of_the_fleet_is_started_alike() -> None:
    """By Compose and by the chart: with a role that there is, without rights, and with the time that a stop takes."""
    for role in ("socket", "worker"):
        service = FLEET[role]
        assert service["command"] == ["start", "--role", role]
        assert known(["sayso", *service["command"]])
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert service["stop_grace_period"] == "60s"
    assert {"socket", "worker"} < set(ROLES)
    found, alone = pod("fleet.yaml"), pod()
    (container,), (other, _) = found["containers"], alone["containers"]
    assert container["securityContext"] == other["securityContext"]
    assert known(["sayso", *container["args"]])
    assert found["terminationGracePeriodSeconds"] == 60


def test_the_control_room_and_services_are_off_by_default() -> None:
    """Nobody opens a port by installing: a profile of Compose, a unit of its own, and values of the chart that are false."""
    assert (WEB["profiles"], WEB["ports"]) == (["web"], ["127.0.0.1:8766:8766"])
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert (values["service"], values["web"]) == (False, {"enabled": False, "write": False})


@pytest.mark.parametrize(
    ("service", "web", "fleet", "ports"),
    [
        (False, {}, False, []),
        (True, {}, False, ["metrics"]),
        (False, {"enabled": True}, False, ["web"]),
        (True, {"enabled": True, "write": True}, False, ["metrics", "web"]),
        (False, {"enabled": True}, True, []),
        (True, {"enabled": True}, True, ["metrics"]),
    ],
)
def test_the_chart_runs_the_control_room_where_it_is_enabled(
    service: bool, web: dict[str, bool], fleet: bool, ports: list[str]
) -> None:
    """Its container and its port are there with `web.enabled` and without a fleet, and `--write` with `web.write` alone."""
    given = {"service": service, "web": web, "fleet": {"worker": 1} if fleet else None}
    found = re.findall(r"- name: (\w+)\n\s+port:", chosen("service.yaml", given))
    assert found == ports
    text = chosen("statefulset.yaml", given)
    assert ("- name: web\n          image" in text) is (bool(web) and not fleet)
    assert ("- --write" in text) is (bool(web.get("write")) and not fleet)


def chosen(template: str, values: dict[str, Any]) -> str:
    """What is left of a template by its conditions on `service`, `web` and `fleet`; all others hold."""
    left, open_ = list[str](), list[bool]()
    for line in (CHART / "templates" / template).read_text().splitlines(keepends=True):
        action = re.match(r"\s*\{\{-? *(if|with|range|else|end)\b(.*?)-?\}\}$", line.rstrip())
        if action is None:
            left += [line] if all(open_) else []
        elif action[1] == "end":
            open_.pop()
        elif action[1] == "else":
            open_[-1] = not open_[-1]
        else:
            known = re.search(r"\.Values\.(service|web|fleet)\b", action[2])
            open_.append(holds(action[2], values) if action[1] == "if" and known else True)
    assert open_ == []
    return "".join(left)


def holds(condition: str, values: dict[str, Any]) -> bool:
    """Whether a condition of a template holds: `and`, `or`, `not`, values, and parentheses."""
    words = re.findall(r"[()]|[^\s()]+", condition)

    def whole(end: str | None) -> bool:
        parts, function = list[bool](), ""
        while words and words[0] != end:
            word = words.pop(0)
            if word == "(":
                parts.append(whole(")"))
                words.pop(0)
            elif word in ("and", "or", "not"):
                function = word
            else:
                found: Any = values
                for name in word.removeprefix(".Values.").split("."):
                    found = (found or {}).get(name)
                parts.append(bool(found))
        return {"and": all(parts), "or": any(parts), "not": not parts[0], "": parts[0]}[function]

    return whole(None)


def test_settings_that_are_named_are_read() -> None:
    """A mistyped name would be a default that nobody sees."""
    files = [
        ROOT / "Dockerfile",
        ROOT / "compose.yml",
        ROOT / "deploy/compose.fleet.yml",
        *CHART.rglob("*.*"),
    ]
    named = {
        name for file in files for name in re.findall(r"\b(?:SAYSO|SLACK)_[A-Z_]+[A-Z]\b", file.read_text())
    }
    assert "SAYSO_HOME" in named
    settings = (ROOT / ".env.example").read_text()
    assert [name for name in sorted(named) if f"{name}=" not in settings] == []


def test_everything_has_the_time_that_a_stop_takes() -> None:
    """Running steps get ten seconds, and what was cut is recorded after them."""
    seconds = [COMPOSE["stop_grace_period"], UNIT["TimeoutStopSec"], pod()["terminationGracePeriodSeconds"]]
    assert [int(str(value).removesuffix("s")) for value in seconds] == [60, 60, 60]


def test_what_is_copied_into_the_image_is_there_and_let_through() -> None:
    """And it is all that the package is built from."""
    copied = {
        name for line in re.findall(r"(?m)^COPY (?!--from)(.*) \S+$", DOCKERFILE) for name in line.split()
    }
    assert [name for name in copied if not (ROOT / name).exists()] == []
    let_through = re.findall(r"(?m)^!(.*)$", (ROOT / ".dockerignore").read_text())
    assert sorted(let_through) == sorted(copied)
    assert {"bot", "engine", "prompt_state", "examples", ".env.example", "pyproject.toml"} <= copied


def test_the_chart_is_of_this_release() -> None:
    """Its version and the image that it takes."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (chart["version"], chart["appVersion"]) == (version, version)


@pytest.mark.parametrize("file", sorted(CHART.glob("templates/*")), ids=lambda file: file.name)
def test_templates_use_values_that_there_are(file: Path) -> None:
    """Each has its default in values.yaml."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for path in re.findall(r"\.Values\.([\w.]+)", file.read_text()):
        place = values
        for name in path.split("."):
            assert name in place, f"{file.name} uses {path}"
            place = place[name]
