"""The chart and the compose files, as Helm and Compose read them, where these programs are there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.test_files import CHART, ROOT, known

FLEET = {"socket": 2, "worker": 4}
SECRET = {"SLACK_BOT_TOKEN": "xoxb-1", "POSTGRES_PASSWORD": "secret"}


def rendered(values: dict[str, Any]) -> list[dict[str, Any]]:
    """The manifests, by Helm's own library (`pip install helm-python-sdk`, which brings 85 MB)."""
    chart = pytest.importorskip("helm_python.chart", reason="helm-python-sdk is not installed").Chart.load(
        CHART
    )
    texts = [text for name, text in chart.render(values, name="bot").items() if name.endswith(".yaml")]
    return [one for text in texts for one in yaml.safe_load_all(text) if one]


def test_helm_renders_a_fleet() -> None:
    """A deployment for each role, with its number of processes and its command; settings and the secret reach each."""
    found = rendered({"fleet": FLEET, "settings": {"SAYSO_ADMINS": "U012"}})
    deployments = [one for one in found if one["kind"] == "Deployment"]
    assert {one["metadata"]["name"]: one["spec"]["replicas"] for one in deployments} == {
        "bot-socket": 2,
        "bot-worker": 4,
    }
    assert "StatefulSet" not in {one["kind"] for one in found}
    for one in deployments:
        (container,) = one["spec"]["template"]["spec"]["containers"]
        assert known(["sayso", *container["args"]])
        assert container["args"][-1] == one["metadata"]["name"].removeprefix("bot-")
        assert {"name": "SAYSO_ADMINS", "value": "U012"} in container["env"]
        assert container["envFrom"] == [{"secretRef": {"name": "sayso"}}]


def test_helm_renders_one_process() -> None:
    """Without a fleet: one process with a disk of its own."""
    kinds = [one["kind"] for one in rendered({"flows": {"a.yml": "flow: a\nnodes: []"}})]
    assert "StatefulSet" in kinds
    assert "Deployment" not in kinds


@pytest.mark.parametrize("name", ["compose.yml", "deploy/compose.fleet.yml"])
def test_compose_reads_the_file(name: str, tmp_path: Path) -> None:
    """`docker-compose config` takes it, with what is in .env."""
    program = shutil.which("docker-compose")
    if program is None:
        pytest.skip("docker-compose is not in PATH")
    (tmp_path / "deploy").mkdir()
    shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".env").write_text("".join(f"{key}={value}\n" for key, value in SECRET.items()))
    done = subprocess.run(
        [program, "--env-file", ".env", "-f", name, "config"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    services = yaml.safe_load(done.stdout)["services"]
    for role in ("socket", "worker") if "fleet" in name else ("sayso",):
        assert services[role]["environment"]["SLACK_BOT_TOKEN"] == "xoxb-1"
    if "fleet" in name:
        assert (
            services["worker"]["environment"]["SAYSO_DATABASE_URL"]
            == "postgresql://sayso:secret@postgres/sayso"
        )
        assert services["worker"]["command"] == ["start", "--role", "worker"]
